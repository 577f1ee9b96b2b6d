"""Pictures of runs that cut the inside of a layer: they are drawn, and say what each value has."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from drawing import draw, draw_attention, draw_collective, draw_ring, draw_step, step_through
from drawing.canvas.palette import KINDS, ORIGINS, PAPER, TRACK, mix
from drawing.canvas.scene import Rect
from drawing.diagrams.exchange import chosen
from drawing.diagrams.tiles import Origin
from drawing.values import picture_of_value
from lib import Model
from lib.values.collectives import COLLECTIVES
from lib.values.values import Value
from tests.drawing.marks import polys, rects, texts
from tests.support.inside import PROGRAMS


@cache
def run_of(name: str) -> list[Model]:
    return PROGRAMS[name].run()


@pytest.fixture(scope="module", params=PROGRAMS)
def models(request: pytest.FixtureRequest) -> list[Model]:
    return run_of(request.param)


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


def value(words: str, name: str, rank: int = 1) -> Value:
    """What a rank of a program has, by its words."""
    models = run_of(name)
    return next(value for value in models[rank].program.values if value is not None and str(value) == words)


def fills(picture: Any) -> list[Rect]:
    colours = [shade for kind in KINDS.values() for shade in (kind, mix(kind, PAPER, 0.6))]
    return [mark for mark in rects(picture) if mark.fill in colours and not mark.radius]


def test_rows_take_their_share_of_each_batch() -> None:
    picture = picture_of_value(value("activation 0, batches 0, 1, rows 4-7 of 16", "ring"))
    (both,) = fills(picture)
    assert both.fill == KINDS["activation"]
    assert "across: batches, down: rows" in texts(picture)
    halves = picture_of_value(value("activation 2, batches 0, 1, rows 8-15 of 16, features 1 of 2", "ulysses"))
    assert "across: batches, in each: features, down: rows" in texts(halves)
    left, right = fills(halves)
    assert (right.x - left.x, 2 * left.width) == pytest.approx([both.width / 2] * 2, rel=0.05)


def test_any_part_of_a_sum_is_pale_and_says_of_what() -> None:
    found = {
        "Σ keys 4-7": value("activation 2, batches 0, 1, rows 4-7 of 16, keys 4-7 of 16 of a sum", "ring"),
        "Σ nothing": value("activation 2, batches 0, 1, rows 4-7 of 16, keys none of 16 of a sum", "ring"),
        "Σ 1 of 4": value("activation 1, batches 0, 1, vocabulary 1 of 4 of a sum", "vocabulary"),
        "batch 0": value("weight gradient of layer 0, batch 0, rows 8-15 of 16", "grid"),
    }
    for words, one in found.items():
        picture = picture_of_value(one)
        assert words in texts(picture)
        assert {mark.fill for mark in fills(picture)} == {mix(KINDS[one.kind], PAPER, 0.6)}


def test_pictures_of_collectives_say_what_differs() -> None:
    def drawn(name: str, op: str, layer: int) -> Any:
        return draw_collective(run_of(name), op, layer)

    assert {"features 0", "features 1", "rows 0-7", "rows 8-15"} <= set(texts(drawn("ulysses", "alltoall", 2)))
    assert "vocabulary 0 of 4" in texts(drawn("vocabulary", "allreduce", 1))
    softmax = " ".join(texts(drawn("vocabulary", "allreduce", 4)))
    assert "the sum of a softmax beside it" in softmax
    assert "cut into shards" not in softmax
    assert "a whole" not in " ".join(texts(drawn("ring", "shift", 1)))
    summed = " ".join(texts(drawn("vocabulary", "allreduce", 1)))
    assert "each rank sends 384 elements (twice 3/4 of a whole activation)" in summed


def test_a_row_of_a_sum_comes_from_all_who_brought_one() -> None:
    """Their colours are woven together in it, on whatever rank it is."""
    models = run_of("tensor")
    exchange = chosen(models[0].trace, "scatterreduce", 3, "draw_collective")
    assert exchange is not None
    origin = Origin([seat.brought for seat in exchange.seats], range(4))
    for rank, seat in enumerate(exchange.seats):
        (got,) = seat.got
        assert [origin.of(got, row) for row in range(4 * rank, 4 * rank + 4)] == [(0, 1, 2, 3)] * 4


def test_a_layer_without_a_weight_has_none_in_its_step() -> None:
    for name, kinds, weights in (("ring", ["layer 1: attention"], 2), ("vocabulary", ["layer 3: cross entropy"], 3)):
        models = run_of(name)
        shown = texts(draw_step(models))
        assert set(kinds) <= set(shown)
        assert [shown.count(word) for word in ("weight", "gradient", "update")] == [weights] * 3


@pytest.mark.parametrize("name", ["ring", "zigzag"])
def test_each_pair_of_a_query_and_a_key_is_worked_on_by_one_rank_in_one_step(name: str) -> None:
    models = run_of(name)
    picture = draw_attention({name: models})
    panels = [mark for mark in rects(picture) if mark.fill == TRACK]
    assert len(panels) == 4
    size, side = PROGRAMS[name].layers[1].rows, panels[0].width
    blocks = [mark for mark in rects(picture) if mark.fill in ORIGINS and panels[0].y <= mark.y < panels[0].y + side]
    for query in range(size):
        for key in range(query + 1):
            points = [(panel.x + (key + 0.5) * side / size, panel.y + (query + 0.5) * side / size) for panel in panels]
            here = [b for x, y in points for b in blocks if 0 < x - b.x < b.width and 0 < y - b.y < b.height]
            rank = (query * 4 // size) if name == "ring" else min(query * 8 // size, 7 - query * 8 // size)
            assert [b.fill for b in here] == [ORIGINS[rank]]


def test_heads_of_the_same_pairs_are_woven() -> None:
    picture = draw_attention(run_of("ulysses"))
    assert {mark.fill for mark in polys(picture)} >= set(ORIGINS[:2])
    assert "step 1" not in texts(picture)


def test_the_name_of_a_run_stays_as_it_is_written_and_without_one_a_sentence_begins() -> None:
    models = run_of("ring")
    for runs, title in (({"ring_attention": models}, "ring_attention: the longest"), (models, "The longest")):
        assert any(text.startswith(title) for text in texts(draw_attention(runs)))
