"""Pictures of values: the right place in the network, the right part of it, and words for it."""

from typing import Any

import pytest

from drawing import draw_group, picture_of
from drawing.canvas.palette import KINDS
from drawing.canvas.scene import Rect
from drawing.values import slot
from lib import Activation, Model, OptState, Weight, WeightGrad, simulate
from lib.values.layers import by_hand
from lib.values.values import Value, value_of
from tests.drawing.marks import rects, texts, written
from tests.drawing.runs import VALUES, ddp


def shown(thing: Any) -> list[str]:
    return texts(draw_group(thing))


def filled(thing: Any, kind: str) -> list[Rect]:
    """The parts of slots in the colour of a kind, without the one beside its name."""
    return [mark for mark in rects(draw_group(thing), fill=KINDS[kind]) if not mark.radius]


@pytest.mark.parametrize("name", VALUES)
def test_every_kind_shows_its_words_and_its_layer(name: str) -> None:
    value = VALUES[name]
    words = shown(value)
    assert str(value) in words
    place = slot(value)
    assert (f"layer {place.place}" if place.column == "layer" else f"act {place.place}") in words


def test_a_part_is_as_large_as_its_share() -> None:
    whole, half = filled([Weight(0, 2, 0), Weight(1, 2, 0, {1, 2}, 4)], "weight")
    assert half.height == pytest.approx(whole.height / 2)
    assert half.width == whole.width
    left, right = filled(Activation(0, 2, {0, 1, 3}, 4), "activation")
    assert left.width == pytest.approx(2 * right.width)


def test_a_gradient_is_as_large_as_its_weight_however_many_batches_are_summed_in_it() -> None:
    (weight,) = filled(Weight(0, 2, 0), "weight")
    for batches in ([2], [0, 2], range(4)):
        (gradient,) = filled(WeightGrad(0, 2, batches, 4), "weight gradient")
        assert (gradient.width, gradient.height) == (weight.width, weight.height)
    assert "batch 2" in shown(WeightGrad(0, 2, [2], 4))
    assert "no batches" in shown(WeightGrad(0, 1, (), 4))
    assert {"2", "3"} <= set(shown(Activation(0, 1, {2, 3}, 4)))
    assert {"Σ 0-3", "Σ: added up"} <= set(shown(WeightGrad(0, 2, range(4), 4)))
    dots = [mark for mark in draw_group(WeightGrad(0, 2, [1, 2], 4)).scene.marks if getattr(mark, "radius", 0) == 2]
    assert [mark.fill == dots[1].fill for mark in dots] == [False, True, True, False]


def test_numbers_of_shards_can_be_read() -> None:
    for total in range(2, 9):
        (part,) = filled(OptState(0, 2, 0, [total - 1], total), "optimizer state")
        assert part.height >= 10
        words = written(draw_group(OptState(0, 2, 0, [total - 1], total)), text=str(total - 1))
        assert min(text.size for text in words) >= 10


def test_values_of_the_same_part_are_a_stack() -> None:
    """Gradients of four batches are four tensors; shards of one lie beside each other."""
    apart = filled([WeightGrad(0, 2, [batch], 4) for batch in range(4)], "weight gradient")
    assert len({(sheet.x, sheet.y) for sheet in apart}) == 4
    assert "×4" in shown([WeightGrad(0, 2, [batch], 4) for batch in range(4)])
    parts = [WeightGrad(0, 2, range(4), 4, [shard], 4) for shard in range(4)]
    *shards, whole = filled([*parts, WeightGrad(1, 2, [0], 4)], "weight gradient")
    assert len({sheet.x for sheet in shards}) == 1
    assert sum(sheet.height for sheet in shards) == pytest.approx(whole.height)


def test_a_group_is_painted_over_one_network_with_its_keys() -> None:
    models = simulate(ddp, ranks=4, layers=2, batches=4)
    group = {f"rank {m.rank}": WeightGrad(0, 2, {m.rank}, 4) for m in models}
    words = shown(group)
    assert words.count("layer 0") == 1
    assert "rank 2: weight gradient of layer 0, batch 2" in words
    assert len(filled(group, "weight gradient")) == 4
    assert "×4" in shown([WeightGrad(0, 2, {0}, 4)] * 4)
    assert "0: weight of layer 0, step 1" in shown(models[0].final_weights)


def test_groups_of_anything_that_holds_values() -> None:
    grad, inp = VALUES["weight gradient"], VALUES["activation"]
    mixed: dict[Any, Value] = {("o", 1): VALUES["optimizer state"], 3: grad, "a": inp}
    assert "('o', 1): optimizer state of layer 1, shard 7 of 8, step 1" in shown(mixed)
    assert draw_group(list(mixed.values())).words == "<picture of 3 values>"
    assert draw_group(value for value in mixed.values()).words == "<picture of 3 values>"
    assert draw_group(Model().weights).words == "<picture of nothing: empty>"
    assert "and 19 more" in shown([Weight(layer, 30, 0) for layer in range(30)])


def test_the_oddest_values_that_there_can_be_are_drawn_and_named() -> None:
    for value in (
        Weight(7, 2, 0),
        Weight(0, 1, 0, (), 4),
        Activation(0, 10**6, range(10**4), 10**6),
        Weight(0, 1, 0, {3}, 10**6),
    ):
        assert str(value)[:40] in " ".join(shown(value))
        assert len(picture_of(value).svg()) < 20_000


def test_columns_lie_side_by_side_rows_go_down_and_a_part_of_a_sum_is_pale() -> None:
    part = value_of(Activation, by_hand(2), 1, 2, frozenset([0, 1]), 2, [("terms", [1], 2)])
    assert filled(part, "activation") == []
    assert {"Σ 1 of 2", "across: batches, pale: a part of a sum"} <= set(shown(part))
    rows, columns = (
        value_of(Weight, by_hand(), layer, 2, 0, frozenset([1 - layer]), 2 - layer, [("out", [1], 2)] if layer else [])
        for layer in (0, 1)
    )
    upper, right = filled([rows, columns], "weight")
    assert (right.width, right.height) == (pytest.approx(upper.width / 2), pytest.approx(2 * upper.height))
    assert "across: columns, down: shards" in shown([rows, columns])
    half = value_of(Activation, by_hand(2), 1, 2, frozenset([0, 1]), 2, [("rows", [1], 2)])
    whole, lower = filled([Activation(0, 2, [0, 1], 2), half], "activation")
    assert (lower.width, lower.height) == (whole.width, pytest.approx(whole.height / 2))
    assert lower.y == pytest.approx(whole.y + whole.height / 2)
    other = value_of(Activation, by_hand(2), 1, 2, frozenset([0, 1]), 2, [("rows", [0], 2)])
    assert [mark.y for mark in filled([other, half], "activation")] == [whole.y, lower.y], "beside each other"
