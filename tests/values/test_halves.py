"""The two halves of backward: what they give and take together is what backward gives and takes, of any part."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import UNIT, Costs, Links, Uneven
from lib.cluster.costs import costs_from
from lib.values import rules
from lib.values.layers import Shape
from lib.values.operations import OPERATIONS
from lib.values.values import Activation, ActivationGrad, Weight, value_of
from tests.support.said import Said

SHAPE = Shape(3, 4)
BACKWARD, INPUT, WEIGHT = (OPERATIONS[name] for name in ("backward", "backward_input", "backward_weight"))


def cut(draw: st.DrawFn) -> tuple[set[int], int]:
    total = draw(st.sampled_from([1, 2, 4]))
    first = draw(st.integers(0, total - 1))
    return set(range(first, draw(st.integers(first, total - 1)) + 1)), total


@st.composite
def passes(draw: st.DrawFn) -> tuple[Activation, ActivationGrad, Weight]:
    """The input of a layer, the gradient of its output and the part of its weight that fits both."""
    batches = draw(st.sets(st.integers(0, 3), min_size=1))
    rows, columns = cut(draw), cut(draw)
    inp = value_of(Activation, SHAPE, 1, 3, frozenset(batches), 4, [("features", *rows)])
    grad = value_of(ActivationGrad, SHAPE, 1, 3, frozenset(batches), 4, [("features", *columns)])
    weight = SHAPE.kinds[1].weight
    assert weight is not None
    whole = weight.whole
    place = whole.having("in", whole.parts[0].dim.like(inp.place.dims[-1]))
    place = place.having("out", whole.parts[1].dim.like(grad.place.dims[-1]))
    return inp, grad, rules.load_weights(SHAPE, 1, 0, 1)[0].at(place)


@given(passes())
def test_together_they_give_what_backward_gives(taken: tuple[Activation, ActivationGrad, Weight]) -> None:
    inp, grad, weight = taken
    by_weight, by_input = rules.backward(SHAPE, 1, inp, grad, weight)
    assert rules.backward_weight(SHAPE, 1, inp, grad) == by_weight
    assert rules.backward_input(SHAPE, 1, inp, grad, weight) == by_input


@given(passes(), st.sampled_from([UNIT, Links(), Uneven(layers=(1, 3)), Costs(backward=2.5)]))
def test_together_they_take_what_backward_takes(taken: tuple[Activation, ActivationGrad, Weight], costs: Costs) -> None:
    """The weight half uses no weight, and is as much cheaper with the parts of its input and its gradient."""
    inp, grad, weight = taken
    batches = len(inp.batches)
    whole = BACKWARD.work(SHAPE, 1, batches, taken)
    assert INPUT.work(SHAPE, 1, batches, taken) == WEIGHT.work(SHAPE, 1, batches, (inp, grad)) == whole
    assert whole == batches * Fraction(weight.elements()) / SHAPE.descriptions[0].weight
    halves = costs.compute(INPUT, 0, 1, whole) + costs.compute(WEIGHT, 0, 1, whole)
    assert halves == costs.compute(BACKWARD, 0, 1, whole)


def test_costs_of_the_halves() -> None:
    assert (UNIT.backward_input, UNIT.backward_weight) == (0.5, 0.5)
    assert Costs(backward=3) == Costs(backward=3, backward_input=1.5, backward_weight=1.5)
    assert "backward_input" not in Costs(backward=3).to_json()  # so that an older version reads it
    for costs in (Costs(backward_input=0.7), Links(backward_weight=0), Uneven(layers=(1, 2), backward_input=0.1)):
        assert costs_from(costs.to_json()) == costs
    assert costs_from({"model": "unit", "backward": 4.0}).backward_input == 2
    with pytest.raises(ValueError, match="backward_weight must be a number from 0 up; got None"):
        costs_from(UNIT.to_json() | {"backward_weight": None})
    with pytest.raises(ValueError, match="backward is a time"):
        Costs(backward="1")  # pyright: ignore[reportArgumentType]


DATA = value_of(Activation, SHAPE, 1, 3, frozenset([0]), 4)
GRAD = value_of(ActivationGrad, SHAPE, 1, 3, frozenset([0]), 4)
LATER = value_of(ActivationGrad, SHAPE, 1, 3, frozenset([1]), 4)
OF_LAYER_1, SHARD = (rules.load_weights(SHAPE, 1, 0, total)[0] for total in (1, 2))
OPEN: dict[Any, Any] = {
    kind: value_of(kind, SHAPE, 1, 3, frozenset([0]), 4, [("terms", {0}, 2)]) for kind in (Activation, ActivationGrad)
}


test_what_they_refuse = Said(__file__, "halves").test(lambda: globals())
