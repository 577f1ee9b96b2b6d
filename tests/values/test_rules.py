"""What an operation may do to values, and what it says to those it cannot work with."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Activation, ActivationGrad, Model, OptState, PuzzleError, RuleError, Weight, WeightGrad
from lib.values import facts, rules
from lib.values.collectives import COLLECTIVES
from lib.values.layers import Layer, Shape
from tests.support.said import Said

SHAPE = Shape(layers=3, batches=4)
FORKED = Shape(3, 4, [Layer("linear", 6, 6, 4), Layer("linear", 6, 6, 4, of=(0,)), Layer("add", 6, 6, 4, of=(2, 1))])
ADDED = Shape(3, 4, [Layer("linear", 6, 6, 4), Layer("norm", 6, 6, 4), Layer("add", 6, 6, 4, of=(2, 1))])
"""With a weight of one dim, and a layer that has none."""
LAST = Shape(1, 4, [Layer("cross_entropy", 8, 1, 4)])
X0 = rules.get_activation(ADDED, [0])
X1 = rules.forward(ADDED, 0, X0, rules.load_weights(ADDED, 0, 0, 1)[0])
X2 = rules.forward(ADDED, 1, X1, rules.load_weights(ADDED, 1, 0, 1)[0])
X3 = rules.forward(ADDED, 2, X2, X1)
GRADIENT = rules.loss(ADDED, X3)
"""What such a model gives, layer by layer."""
SWAPPED = Shape(2, 4, [Layer("linear", 2, 2, 4, columns=4), Layer("transform", 2, 2, 4, columns=4, along="rows")])
"""With a layer whose backward needs no input."""
SWAP = [rules.forward(SWAPPED, 0, rules.get_activation(SWAPPED, [0]), rules.load_weights(SWAPPED, 0, 0, 1)[0])]
SWAP += [rules.forward(SWAPPED, 1, SWAP[0])]
layers = st.integers(-1, 3)
shifts = st.sampled_from([0, 0, 0, 0, 1, -1])
batch_sets = st.frozensets(st.integers(0, 3), min_size=1)
shard_sets = st.integers(1, 3).flatmap(
    lambda total: st.tuples(st.frozensets(st.integers(0, total - 1), min_size=1), st.just(total))
)


def weight(layer: int = 0, step: int = 0, shards: Any = (0,), total: int = 1) -> Weight:
    return Weight(layer, 3, step, shards, total)


def activation(layer: int = 0, batches: Any = (0,)) -> Activation:
    return Activation(layer, 3, batches, 4)


def gradient(layer: int = 0, batches: Any = (0,)) -> ActivationGrad:
    return ActivationGrad(layer, 3, batches, 4)


def beside(layer: int, by: int) -> int:
    """A layer, or one next to it; there is no value of a layer before -1."""
    return max(layer + by, -1)


@given(layers, shifts, st.just(frozenset(range(4))) | batch_sets, shard_sets, shard_sets, shard_sets, shifts)
def test_update(layer: int, by: int, batches: frozenset[int], g: Any, w: Any, o: Any, also: int) -> None:
    of_grad, step, of_state = beside(layer, by), 1, 1 + also
    grad = WeightGrad(of_grad, 3, batches, 4, *g)
    part, state = weight(layer, step, *w), OptState(layer, 3, of_state, *o)

    def within(inner: Any, outer: Any) -> bool:
        return outer.is_complete() or (
            {(s * 12 + i) // inner.total for s in inner.shards for i in range(12)}
            <= {(s * 12 + i) // outer.total for s in outer.shards for i in range(12)}
        )

    fits = 0 <= layer < 3 and of_grad == layer and len(batches) == 4 and step == of_state
    if fits and within(part, grad) and within(part, state):
        made = rules.update(SHAPE, layer, grad, part, state)
        assert made == (weight(layer, step + 1, *w), OptState(layer, 3, step + 1, *w))
    else:
        with pytest.raises(RuleError):
            rules.update(SHAPE, layer, grad, part, state)


whole = WeightGrad(0, 3, range(4), 4)


test_a_mistake_explains_itself = Said(__file__, "rules").test(
    lambda: {**globals(), "itertools": itertools, "COLLECTIVES": COLLECTIVES}
)


def test_a_list_of_batches_is_long_when_it_has_far_more_than_there_are() -> None:
    """Some say a batch twice."""
    assert rules.get_activation(SHAPE, [0] * 1008) == activation(0)
    with pytest.raises(RuleError, match="do not come to an end"):
        rules.get_activation(SHAPE, [0] * 1009)


def test_a_collective_names_no_layer_or_one_that_activations_and_their_gradients_may_have() -> None:
    for layer in (None, -1, 0, 3):
        rules.named_layer(SHAPE, layer, "allgather")
    for layer in (-2, 4):
        with pytest.raises(RuleError, match=f"there is no layer {layer}"):
            rules.named_layer(SHAPE, layer, "allgather")
    with pytest.raises(RuleError, match="the layer is not a whole number") as raised:
        rules.named_layer(SHAPE, "0", "allgather")
    assert raised.value.fact == facts.NotALayer("allgather", "0", 3)


def test_a_failed_operation_moves_no_clock_and_records_nothing() -> None:
    model = Model(layers=2, batches=2)
    weight, state = model.load_weights(0)
    inp = model.get_activation([0])
    model.forward(0, inp, weight)
    grad = model.fake_grad(0, [0])
    events, clock = len(model.program.events), model.time
    attempts: list[Any] = [
        lambda: model.forward(1, inp, weight),
        lambda: model.backward(0, inp, gradient(0, [1]), weight),
        lambda: model.loss(inp),
        lambda: model.update(0, grad, weight, state),
        lambda: model.set_final_weight(1, weight),
        lambda: model.load_weights(5),
        lambda: model.get_activation([2]),
        lambda: model.fake_grad(0, [9]),
        lambda: model.allgather(weight, 1),
        lambda: model.pass_to(0, weight),
        lambda: model.receive(0),
    ]
    for attempt in attempts:
        with pytest.raises(PuzzleError):
            attempt()
    made = [event.op for event in model.program.events[events:] if event.op != "foreign"]
    assert (made, model.time) == ([], clock)
    with pytest.raises(RuleError, match="a weight cannot be summed"):
        model.allreduce(weight, 0)
    assert model.time == 1.0
    assert [event.typ for event in model.log] == ["forward"]


class NotYet:
    """What is awaited, as seen from outside."""

    def __await__(self) -> Any:
        yield
