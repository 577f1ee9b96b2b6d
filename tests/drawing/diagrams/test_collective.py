"""A collective over all its ranks: whose part is where before and after, who came, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawing import draw_collective
from drawing.canvas.layout import Box
from drawing.canvas.palette import ALARM, origin_colour
from drawing.canvas.scene import TEXT, Poly, Rect, Scene
from drawing.diagrams.exchange import MESSAGE, beside, chosen, exchanges
from drawing.diagrams.tiles import Origin, caption, laid, parts, weave
from lib import Activation, Model, Weight, WeightGrad
from lib.analysis.figures import traffic
from lib.values.collectives import COLLECTIVES
from lib.values.layers import by_hand
from lib.values.values import Elements, value_of
from tests.drawing.diagrams.exchanges import EXCHANGES, MESH, small
from tests.drawing.marks import texts, written


def area(marks: list[Rect | Poly]) -> float:
    """Of rectangles and polygons (the shoelace formula)."""
    total = 0.0
    for mark in marks:
        if isinstance(mark, Rect):
            total += mark.width * mark.height
        else:
            ends = [*mark.points[1:], mark.points[0]]
            total += abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in zip(mark.points, ends, strict=True))) / 2
    return total


@pytest.mark.parametrize("name", EXCHANGES)
def test_every_one_says_in_words_what_it_is_who_takes_part_and_what_it_costs(name: str) -> None:
    picture, one = draw_collective(EXCHANGES[name]), exchanges(EXCHANGES[name])[0]
    assert one.title in picture.words.lower()
    assert all(f"ank {seat.rank}" in picture.words for seat in one.seats[:6])
    assert ("It takes" in picture.words) == one.happened
    assert min(mark.size for mark in written(picture)) >= TEXT
    assert picture.svg() == draw_collective(EXCHANGES[name]).svg()


def test_what_is_sent_is_what_the_figures_say() -> None:
    assert set(COLLECTIVES) <= set(EXCHANGES)
    for name, run in EXCHANGES.items():
        found = [one for one in exchanges(run) if one.happened]
        sent: list[Elements] = [0] * run.ranks
        for one in found:
            for seat in one.seats:
                sent[seat.rank] += seat.sent
        if run.error is None:
            assert sent == [elements for elements, _ in traffic(run)], name


def test_who_never_came_is_missing_and_who_called_another_one_is_named() -> None:
    assert "It needs all 4 ranks: 3 came, rank 2 never did." in texts(draw_collective(EXCHANGES["missing"]))
    assert {"never came", "never happened"} <= set(texts(draw_collective(EXCHANGES["missing"])))
    assert {"called all-reduce", "of layer 1"} <= set(texts(draw_collective(EXCHANGES["different"])))
    assert "Rank 0 sends a message that rank 1 never receives." in texts(draw_collective(EXCHANGES["unreceived"]))
    names = texts(draw_collective(EXCHANGES["different"]), fill=ALARM)
    assert "rank 2" in names
    assert "rank 1" not in names


def test_groups_of_a_mesh_stand_side_by_side() -> None:
    shown = texts(draw_collective(EXCHANGES["grid"]))
    assert {"data 0 · ranks 0, 1", "data 1 · ranks 2, 3"} <= set(shown)
    run = EXCHANGES["grid"]
    sums = beside(run, chosen(run, "all-reduce", None, "test") or exchanges(run)[0])
    assert [one.ranks for one in sums] == [(0, 2), (1, 3)]
    assert "Weight gradient" not in " ".join(shown)


def test_groups_of_other_layers_stand_beside_it_unless_a_layer_is_named() -> None:
    async def stages(model: Model) -> None:
        stage = model.mesh.coordinates(model.rank)["shard"]
        weight, _ = model.load_weights(stage, model.rank // 2, 2)
        await model.allgather(weight, stage, group=model.mesh.group(model.rank, "data"))

    run = small(stages, mesh=MESH)
    assert "ranks 1, 3" in " ".join(texts(draw_collective(run)))
    only = " ".join(texts(draw_collective(run, layer=1)))
    assert "rank 1" in only
    assert "rank 0" not in only


def test_one_is_chosen_by_name_word_title_and_layer() -> None:
    for run, op, layer, words in (
        ("grid", "allreduce", 1, ("allreduce", "AR", "all-reduce", "All-Reduce", "all reduce")),
        ("message", MESSAGE, None, ("pass_to", "receive", "message", "send")),
    ):
        for one in (chosen(EXCHANGES[run], which, None, "test") for which in words):
            assert one is not None
            assert (one.op, one.layer if layer else None) == (op, layer)


@given(st.floats(0, 300), st.floats(0, 300), st.floats(1, 120), st.floats(1, 120), st.integers(1, 8), st.floats(0, 50))
def test_stripes_fill_a_box_and_nothing_else(
    x: float, y: float, width: float, height: float, count: int, back: float
) -> None:
    scene, box = Scene(0, 0), Box(x, y, width, height)
    weave(scene, box, [origin_colour(member, count) for member in range(count)], Box(x - back, y - back, 400, 400))
    marks = [mark for mark in scene.marks if isinstance(mark, Rect | Poly)]
    assert area(marks) == pytest.approx(width * height, rel=1e-6)
    for mark in marks:
        for px, py in mark.points if isinstance(mark, Poly) else []:
            assert x - 1e-6 <= px <= x + width + 1e-6
            assert y - 1e-6 <= py <= y + height + 1e-6


def test_whose_part_it_is_whatever_it_was_cut_into() -> None:
    halves = [[Weight(0, 1, 0, [shard], 2)] for shard in range(2)]
    whole = Weight(0, 1, 0, range(4), 4)
    origin = Origin(halves, range(2))
    assert [origin.of(whole, shard) for shard in range(4)] == [(0,), (0,), (1,), (1,)]
    gradients = [[WeightGrad(0, 1, [batch], 4)] for batch in range(3)]
    assert Origin(gradients, range(3)).of(WeightGrad(0, 1, [0, 2], 4, [1], 2), 1) == (0, 2)
    assert Origin(gradients, range(3)).of(Weight(0, 1, 0), 0) == ()


def test_captions_are_short_where_there_is_little_room() -> None:
    total = WeightGrad(0, 2, range(8), 8, [3], 4)
    assert caption(total) == ["shard 3 of 4", "sum of batches 0-7"]
    assert caption(total, 80) == ["shard 3 of 4", "batches 0-7"]
    assert caption(Weight(0, 2, 0)) == ["whole"]
    assert caption(Activation(0, 2, [1], 4)) == ["batch 1"]
    assert len([*parts(Weight(0, 1, 0, range(1000), 1000), lambda number: (0,))]) <= 48


def test_columns_and_features_that_are_gathered_lie_as_they_were_cut() -> None:
    def part(kind: Any, role: str, number: int, *fields: Any) -> Any:
        return value_of(kind, by_hand(), 0, 1, *fields, [(role, [number], 2)])

    columns = [[part(Weight, "out", number, 0, frozenset([0]), 1)] for number in range(2)]
    origin, whole = Origin(columns, range(2)), Weight(0, 1, 0)
    assert laid(whole.place, origin.beside(whole)) == (frozenset([0, 1]), 2, False, "out")
    assert [origin.of(whole, number) for number in range(2)] == [(0,), (1,)]
    assert laid(whole.place) == (frozenset([0]), 1, True, "")
    features = [[part(Activation, "features", number, frozenset([0]), 1)] for number in range(2)]
    origin, done = Origin(features, range(2)), Activation(0, 1, [0], 1)
    assert laid(done.place, origin.beside(done)) == (frozenset([0, 1]), 2, False, "features")
    assert [origin.of(done, number) for number in range(2)] == [(0,), (1,)]
    sums = [[part(Activation, "terms", number, frozenset([0]), 1)] for number in range(2)]
    assert Origin(sums, range(2)).of(done, 0) == (0, 1)
