"""Pictures of runs that cut the inside of a layer: they are drawn, and say what each value has."""

import pytest

from drawing import draw, draw_collective, draw_ring, draw_step, step_through
from drawing.values import picture_of_value
from lib import Model, simulate
from lib.values.collectives import COLLECTIVES
from tests.support.inside import PROGRAMS


@pytest.fixture(scope="module", params=PROGRAMS)
def models(request: pytest.FixtureRequest) -> list[Model]:
    one = PROGRAMS[request.param]
    return simulate(one.make(""), layers=one.layers, ranks=one.ranks, batches=one.batches)


def test_a_timeline_and_a_page_are_drawn(models: list[Model]) -> None:
    assert "forward" in draw(models).svg()
    assert "peak" in step_through(models).html()


def test_each_collective_is_drawn(models: list[Model]) -> None:
    calls = {(event.op, event.layer) for event in models[0].program.events if event.op in COLLECTIVES}
    for op, layer in calls:
        picture = draw_collective(models, op, layer)
        assert COLLECTIVES[op].title.capitalize() in repr(picture)
        assert "layer" in repr(picture) or "activation" in repr(picture)
        if op in ("allreduce", "allgather", "scatterreduce"):
            assert "Round 1 of" in draw_ring(models, op, layer, 1).words
    assert "rank 0" in draw_step(models).svg()


def test_each_value_is_drawn(models: list[Model]) -> None:
    values = {str(value): value for value in models[0].program.values if value is not None}
    for value in values.values():
        assert picture_of_value(value).svg()
