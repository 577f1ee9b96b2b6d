"""What an operation may do to values, and what it says to those it cannot work with."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Activation, ActivationGrad, ForgottenAwait, Model, OptState, PuzzleError, RuleError, Weight, WeightGrad
from lib.errors.exceptions import Fact
from lib.values import facts, rules
from lib.values.collectives import COLLECTIVES
from lib.values.layers import Layer, Shape
from lib.values.values import Value
from tests.support.said import Said

SHAPE = Shape(layers=3, batches=4)
ADDED = Shape(3, 4, [Layer("linear", 6, 6, 4), Layer("norm", 6, 6, 4), Layer("add", 6, 6, 4, of=(2, 1))])
"""With a weight of one dim, and a layer that has none."""
LAST = Shape(1, 4, [Layer("cross_entropy", 8, 1, 4)])
X0 = rules.get_activation(ADDED, [0])
X1 = rules.forward(ADDED, 0, X0, rules.load_weights(ADDED, 0, 0, 1)[0])
X2 = rules.forward(ADDED, 1, X1, rules.load_weights(ADDED, 1, 0, 1)[0])
X3 = rules.forward(ADDED, 2, X2, X1)
GRADIENT = rules.loss(ADDED, X3)
"""What such a model gives, layer by layer."""
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


# -- what operations make -----------------------------------------------------------------------------------------


@given(layers, shifts, shifts, batch_sets, shard_sets)
def test_forward(layer: int, by: int, also: int, batches: frozenset[int], shards: Any) -> None:
    of_input, of_weight = beside(layer, by), beside(layer, also)
    inp, whole = activation(of_input, batches), weight(of_weight, 0, *shards)
    if 0 <= layer < 3 and layer == of_input == of_weight and whole.is_complete():
        assert rules.forward(SHAPE, layer, inp, whole) == activation(layer + 1, batches)
    else:
        with pytest.raises(RuleError):
            rules.forward(SHAPE, layer, inp, whole)


@given(layers, shifts, shifts, shifts, batch_sets, st.none() | batch_sets, shard_sets)
def test_backward(
    layer: int, by: int, also: int, too: int, here: frozenset[int], other: frozenset[int] | None, shards: Any
) -> None:
    """It takes the gradient of the batches that went in: neither of some of them nor of more."""
    there = here if other is None else other
    of_input, of_grad, of_weight = beside(layer, by), beside(layer, also), beside(layer, too)
    inp, grad, whole = activation(of_input, here), gradient(of_grad, there), weight(of_weight, 0, *shards)
    if 0 <= layer < 3 and layer == of_input == of_grad == of_weight and here == there and whole.is_complete():
        made = rules.backward(SHAPE, layer, inp, grad, whole)
        assert made == (WeightGrad(layer, 3, here, 4), gradient(layer - 1, here))
    else:
        with pytest.raises(RuleError):
            rules.backward(SHAPE, layer, inp, grad, whole)


@given(layers, batch_sets)
def test_loss(layer: int, batches: frozenset[int]) -> None:
    if layer == 3:
        assert rules.loss(SHAPE, activation(layer, batches)) == gradient(2, batches)
    else:
        with pytest.raises(RuleError):
            rules.loss(SHAPE, activation(layer, batches))


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


@given(layers, st.integers(-1, 5), st.integers(-1, 5))
def test_load_weights(layer: int, shard: int, total: int) -> None:
    if 0 <= layer < 3 and 0 <= shard < total:
        made = rules.load_weights(SHAPE, layer, shard, total)
        assert made == (weight(layer, 0, [shard], total), OptState(layer, 3, 0, [shard], total))
    else:
        with pytest.raises(RuleError):
            rules.load_weights(SHAPE, layer, shard, total)


@given(st.lists(st.integers(-1, 5)))
def test_get_activation_and_fake_grad_take_batches_of_the_step(batches: list[int]) -> None:
    inside = set(batches) <= set(range(4))
    if inside:
        assert rules.fake_grad(SHAPE, 1, batches) == WeightGrad(1, 3, batches, 4)
    else:
        with pytest.raises(RuleError):
            rules.fake_grad(SHAPE, 1, batches)
    if inside and batches:
        assert rules.get_activation(SHAPE, batches) == activation(0, batches)
    else:
        with pytest.raises(RuleError):
            rules.get_activation(SHAPE, batches)


# -- what they say ------------------------------------------------------------------------------------------------

whole = WeightGrad(0, 3, range(4), 4)


test_a_mistake_explains_itself = Said(Path(__file__).with_name("said") / "rules.txt").test(
    lambda: {**globals(), "itertools": itertools}
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


FACTS: list[tuple[Any, Fact]] = [
    (lambda: rules.load_weights(SHAPE, 0, 4, 4), facts.NoShard(4, 4, loads=True)),
    (lambda: rules.get_activation(SHAPE, [4, 0]), facts.NoBatch(frozenset([4]), frozenset([0, 4]), 4, 0)),
    (
        lambda: rules.forward(SHAPE, 0, activation(0), weight(1)),
        facts.WrongLayer("forward", "weight of forward", weight(1), 0),
    ),
    (lambda: rules.forward(SHAPE, 0, activation(0), weight(0, 0, [2], 4)), facts.Incomplete(weight(0, 0, [2], 4))),
    (
        lambda: rules.backward(SHAPE, 0, activation(0, [0]), gradient(0, [1]), weight()),
        facts.OtherBatches("backward", activation(0, [0]), gradient(0, [1])),
    ),
    (
        lambda: rules.update(SHAPE, 0, WeightGrad(0, 3, [0], 4), weight(), OptState(0, 3, 0)),
        facts.Unsummed(WeightGrad(0, 3, [0], 4), 4),
    ),
    (
        lambda: rules.update(SHAPE, 0, whole, weight(0, 0, [0], 2), OptState(0, 3, 0, [1], 2)),
        facts.Stateless(OptState(0, 3, 0, [1], 2), weight(0, 0, [0], 2)),
    ),
]


@pytest.mark.parametrize(("make", "fact"), FACTS, ids=lambda item: type(item).__name__)
def test_a_mistake_is_a_fact_for_who_knows_the_whole_run(make: Any, fact: Fact) -> None:
    """See diagnosis."""
    with pytest.raises(RuleError) as raised:
        make()
    assert raised.value.fact == fact


NAMES = {
    "load_weights": lambda layer: rules.load_weights(SHAPE, layer, 0, 1),
    "forward": lambda layer: rules.forward(SHAPE, layer, None, None),
    "backward": lambda layer: rules.backward(SHAPE, layer, None, None, None),
    "update": lambda layer: rules.update(SHAPE, layer, None, None, None),
    "fake_grad": lambda layer: rules.fake_grad(SHAPE, layer, []),
    "set_final_weight": lambda layer: rules.final(SHAPE, layer, None),
}


@pytest.mark.parametrize("op", NAMES)
def test_each_operation_says_which_one_it_was_where_the_layer_is_none(op: str) -> None:
    with pytest.raises(RuleError) as raised:
        NAMES[op]("0")
    assert raised.value.fact == facts.NotALayer(op, "0", 3)


ROLES: dict[str, tuple[Any, type[Any]]] = {
    "input of forward": (lambda it: rules.forward(SHAPE, 0, it, weight()), Activation),
    "weight of forward": (lambda it: rules.forward(SHAPE, 0, activation(), it), Weight),
    "input of loss": (lambda it: rules.loss(SHAPE, it), Activation),
    "input of backward": (lambda it: rules.backward(SHAPE, 0, it, gradient(), weight()), Activation),
    "gradient given to backward": (lambda it: rules.backward(SHAPE, 0, activation(), it, weight()), ActivationGrad),
    "weight of backward": (lambda it: rules.backward(SHAPE, 0, activation(), gradient(), it), Weight),
    "gradient given to update": (lambda it: rules.update(SHAPE, 0, it, weight(), OptState(0, 3, 0)), WeightGrad),
    "weight given to update": (lambda it: rules.update(SHAPE, 0, whole, it, OptState(0, 3, 0)), Weight),
    "optimizer state given to update": (lambda it: rules.update(SHAPE, 0, whole, weight(), it), OptState),
    "final weight": (lambda it: rules.final(SHAPE, 0, it), Weight),
    "first argument of allgather": (lambda it: rules.bring(COLLECTIVES["allgather"], it, 0, 2), Value),
    "first argument of alltoall": (lambda it: rules.bring(COLLECTIVES["alltoall"], [weight(), it], 0, 2), Value),
}


@pytest.mark.parametrize("role", ROLES)
def test_a_thing_in_the_wrong_place_is_named_with_its_place(role: str) -> None:
    use, kind = ROLES[role]
    op = "set_final_weight" if role == "final weight" else role.split()[-1]
    noun = kind.kind if kind is not Value else "value"
    wanted = f"an {noun}" if noun[0] in "ao" else f"a {noun}"
    with pytest.raises(RuleError) as raised:
        use("a string")
    error = raised.value
    assert (error.what, error.expected, error.got) == (f"the {role} is not {wanted}", wanted, "str 'a string'")
    assert error.fix == "check the order of the arguments and the store that it comes from"
    assert error.fact == facts.WrongKind(role, kind, "a string", op)

    async def fetch() -> None: ...

    for thing in (fetch(), NotYet()):
        with pytest.raises(ForgottenAwait) as forgotten:
            use(thing)
        assert (forgotten.value.what, forgotten.value.expected) == (f"the {role} was not awaited", wanted)
        assert str(forgotten.value.fix).startswith("put `await` in front of the call")
        assert isinstance(thing, NotYet) or forgotten.value.got == (
            "a call of the async function fetch, not awaited yet"
        )


def test_a_gradient_of_another_number_of_batches_is_no_gradient_of_this_step() -> None:
    for grad in (WeightGrad(0, 3, range(4), 5), WeightGrad(0, 3, range(5), 5), WeightGrad(0, 3, range(3), 4)):
        with pytest.raises(RuleError, match="does not have all batches yet"):
            rules.update(SHAPE, 0, grad, weight(), OptState(0, 3, 0))


def test_a_collective_is_of_the_layer_of_what_it_brings() -> None:
    row = COLLECTIVES["allgather"]
    for value in (weight(1), OptState(1, 3, 0), WeightGrad(1, 3, [0], 4)):
        rules.bring(row, value, 1, 2)
        with pytest.raises(RuleError) as raised:
            rules.bring(row, value, 0, 2)
        assert str(raised.value) == (
            "allgather was told layer 0, but the value is of another layer\n"
            "  expected: a value of layer 0\n"
            f"  got:      {value}\n"
            "  fix:      say the layer of the value, which is 1, or bring the value of layer 0"
        )
    rules.bring(row, activation(1), 0, 2)
    rules.bring(row, gradient(1), 0, 2)
    for pair in ((weight(), weight()), [weight(), weight()]):
        rules.bring(COLLECTIVES["alltoall"], pair, 0, 2)


# -- as a student meets them --------------------------------------------------------------------------------------


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
