"""Operations that are written out for speed do what the plain way does: the same Trace, and the same refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lib import LINKS, Costs, Layer, Model, PuzzleError, Uneven, simulate
from lib.schedules.data_parallel import ddp, fsdp
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.simulator import dist
from lib.trace.event import place_of
from lib.trace.trace import Trace

SIZES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "ddp": (ddp, {"ranks": 4, "layers": 3, "batches": 8}),
    "fsdp": (fsdp, {"ranks": 4, "layers": 3, "batches": 4}),
    "1f1b": (program_of(one_f_one_b(4, 8)), {"ranks": 4, "layers": 4, "batches": 8}),
    "wide": (ddp, {"ranks": 2, "layers": [Layer(outputs=2048), Layer(inputs=2048)], "batches": 2}),
    "padded": (ddp, {"ranks": 2, "layers": 2, "batches": 3, "padding": 1}),
}
COSTS = {"unit": Costs(), "links": LINKS, "uneven": Uneven(layers=(2, 0.5), ranks=(1, 1.2))}


def plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(name: str, takes: int) -> Callable[..., Any]:
        def call(model: Any, layer: Any, *values: Any) -> Any:
            return model._compute(name, layer, *values[:takes])

        return call

    for name, takes in (("forward", 2), ("backward", 3), ("update", 3)):
        monkeypatch.setattr(Model, name, plain(name, takes))

    def load(model: Any, layer: Any, shard: int = 0, total: int = 1, dim: str = "in") -> Any:
        return model._compute("load_weights", layer, said=(shard, total, *([] if dim == "in" else [1])))

    def hand_in(model: Any, layer: Any, weight: Any) -> None:
        model._compute("set_final_weight", layer, weight)
        model.final_weights[weight.layer] = weight

    monkeypatch.setattr(Model, "load_weights", load)
    monkeypatch.setattr(Model, "set_final_weight", hand_in)


def told(run: Trace) -> list[Any]:
    """All of a run: events with their lines, values and moves."""
    events = [[(event.copy(), place_of(event)) for event in program.events] for program in run.programs]
    for event, _ in (pair for mine in events for pair in mine):
        event.source = None
    return [events, [(program.values, program.moves) for program in run.programs]]


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("name", SIZES)
def test_both_ways_record_the_same_run(name: str, costs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, size = SIZES[name]
    by_hand = told(simulate(function, **size, costs=COSTS[costs])[0].trace)
    plainly(monkeypatch)
    assert told(simulate(function, **size, costs=COSTS[costs])[0].trace) == by_hand


@pytest.mark.parametrize("name", SIZES)
def test_ranks_that_share_their_rows_record_the_same_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of large worlds do, to be small."""
    function, size = SIZES[name]
    alone = simulate(function, **size)
    monkeypatch.setattr(dist, "FEW", 1)
    together = simulate(function, **size)
    assert (alone[0].dist.shared, bool(together[0].dist.shared)) == (None, True)
    assert told(together[0].trace) == told(alone[0].trace)


MISTAKES: dict[str, Callable[[Model], object]] = {
    "another layer": lambda model: model.forward(1, model.get_activation([0]), model.load_weights(1)[0]),
    "no such layer": lambda model: model.load_weights(7),
    "no activation": lambda model: model.forward(0, 3, model.load_weights(0)[0]),  # type: ignore[arg-type]
    "the state for the weight": lambda model: model.forward(0, model.get_activation([0]), model.load_weights(0)[1]),  # type: ignore[arg-type]
    "no gradient": lambda model: model.backward(0, model.get_activation([0]), None, model.load_weights(0)[0]),  # type: ignore[arg-type]
    "not summed": lambda model: model.update(0, model.fake_grad(0), *model.load_weights(0)),
    "another final layer": lambda model: model.set_final_weight(1, model.load_weights(0)[0]),
    "the state handed in": lambda model: model.set_final_weight(0, model.load_weights(0)[1]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_both_ways_refuse_the_same(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def words() -> str:
        with pytest.raises(PuzzleError) as raised:
            simulate(MISTAKES[mistake], layers=2, batches=2)
        raised.value.where.clear()  # on the plain way the line is one of this file
        return str(raised.value)

    by_hand = words()
    plainly(monkeypatch)
    assert words() == by_hand
