"""What an operation may do to values, and what it says to those it cannot work with."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Activation, ActivationGrad, ForgottenAwait, Model, OptState, PuzzleError, RuleError, Weight, WeightGrad
from lib.values import facts, rules
from lib.values.collectives import COLLECTIVES
from lib.values.layers import Shape
from lib.values.values import Value

SHAPE = Shape(layers=3, batches=4)
layers = st.integers(-1, 4)
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


# -- what operations make -----------------------------------------------------------------------------------------


@given(layers, layers, layers, batch_sets, shard_sets)
def test_forward(layer: int, of_input: int, of_weight: int, batches: frozenset[int], shards: Any) -> None:
    inp, whole = activation(of_input, batches), weight(of_weight, 0, *shards)
    if 0 <= layer < 3 and layer == of_input == of_weight and whole.is_complete():
        assert rules.forward(SHAPE, layer, inp, whole) == activation(layer + 1, batches)
    else:
        with pytest.raises(RuleError):
            rules.forward(SHAPE, layer, inp, whole)


@given(layers, layers, layers, layers, batch_sets, batch_sets, shard_sets)
def test_backward(
    layer: int, of_input: int, of_grad: int, of_weight: int, here: frozenset[int], there: frozenset[int], shards: Any
) -> None:
    inp, grad, whole = activation(of_input, here), gradient(of_grad, there), weight(of_weight, 0, *shards)
    if 0 <= layer < 3 and layer == of_input == of_grad == of_weight and here == there and whole.is_complete():
        made = rules.backward(SHAPE, layer, inp, grad, whole)
        assert made == (WeightGrad(layer, 3, here, 4), gradient(layer - 1, here))
    else:
        with pytest.raises(RuleError):
            rules.backward(SHAPE, layer, inp, grad, whole)


@given(st.integers(0, 2), batch_sets, batch_sets)
def test_backward_takes_the_gradient_of_the_batches_that_went_in(
    layer: int, here: frozenset[int], there: frozenset[int]
) -> None:
    """Neither of some of them nor of more."""
    if here == there:
        made = rules.backward(SHAPE, layer, activation(layer, here), gradient(layer, there), weight(layer))
        assert made == (WeightGrad(layer, 3, here, 4), gradient(layer - 1, here))
    else:
        with pytest.raises(RuleError, match="of different batches"):
            rules.backward(SHAPE, layer, activation(layer, here), gradient(layer, there), weight(layer))


@given(layers, batch_sets)
def test_loss(layer: int, batches: frozenset[int]) -> None:
    if layer == 3:
        assert rules.loss(SHAPE, activation(layer, batches)) == gradient(2, batches)
    else:
        with pytest.raises(RuleError):
            rules.loss(SHAPE, activation(layer, batches))


@given(layers, layers, batch_sets, shard_sets, shard_sets, shard_sets, st.integers(0, 1), st.integers(0, 1))
def test_update(
    layer: int, of_grad: int, batches: frozenset[int], g: Any, w: Any, o: Any, step: int, of_state: int
) -> None:
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

MISTAKES: dict[str, tuple[Any, str]] = {
    "no such layer": (
        lambda: rules.load_weights(SHAPE, 3, 0, 1),
        "there is no layer 3\n"
        "  expected: a layer from 0 to 2\n"
        "  got:      layer 3\n"
        "  fix:      layers are counted from 0; the last one is model.LAYERS - 1",
    ),
    "no such shard": (
        lambda: rules.load_weights(SHAPE, 0, 4, 4),
        "there is no shard 4 of 4\n"
        "  expected: a shard from 0 to 3\n"
        "  got:      shard 4\n"
        "  fix:      cut a weight into as many shards as ranks share it, and give each rank its own:\n"
        "            model.load_weights(layer, model.rank, model.RANKS)",
    ),
    "no second shard of one": (
        lambda: rules.load_weights(SHAPE, 0, 1, 1),
        "there is no shard 1 of 1\n"
        "  expected: a shard from 0 to 0\n"
        "  got:      shard 1\n"
        "  fix:      cut a weight into as many shards as ranks share it, and give each rank its own:\n"
        "            model.load_weights(layer, model.rank, model.RANKS)",
    ),
    "no such batch": (
        lambda: rules.get_activation(SHAPE, [4, 7]),
        "there is no batch 4, 7\n"
        "  expected: batches from 0 to 3\n"
        "  got:      batches 4, 7\n"
        "  fix:      batches are counted from 0; the last one is model.BATCHES - 1",
    ),
    "a number for a set": (
        lambda: rules.get_activation(SHAPE, 1),  # type: ignore[arg-type]
        "batches are given as a list or a set of numbers\n"
        "  expected: for instance [0] or range(model.BATCHES)\n"
        "  got:      the number 1\n"
        "  fix:      for a single batch write [batch]",
    ),
    "no batches": (
        lambda: rules.get_activation(SHAPE, []),
        "there are no batches to get\n  expected: at least one batch\n  got:      none\n  fix:      name a batch",
    ),
    "batches without end": (
        lambda: rules.get_activation(SHAPE, itertools.repeat(0)),
        "the batches do not come to an end\n"
        "  expected: each of the 4 batches once\n"
        "  got:      more than 1008 items\n"
        "  fix:      give a list, a set or a range: range(model.BATCHES) are all batches",
    ),
    "weight of another layer": (
        lambda: rules.forward(SHAPE, 0, activation(0), weight(1)),
        "the weight of forward belongs to another layer\n"
        "  expected: the weight of layer 0\n"
        "  got:      weight of layer 1\n"
        "  fix:      use the weight of layer 0, or run layer 1",
    ),
    "input of another layer": (
        lambda: rules.forward(SHAPE, 1, activation(0), weight(1)),
        "the input of forward belongs to another layer\n"
        "  expected: activation 1\n"
        "  got:      activation 0, batch 0\n"
        "  fix:      layer 1 works on activation 1, which forward(0, ...) gave",
    ),
    "weight not gathered": (
        lambda: rules.forward(SHAPE, 1, activation(1), weight(1, 0, [2], 4)),
        "the weight of layer 1 is not complete\n"
        "  expected: all 4 shards\n"
        "  got:      shard 2 of 4; shards 0, 1, 3 are missing\n"
        "  fix:      put its shards together first, with an all-gather",
    ),
    "arguments swapped": (
        lambda: rules.forward(SHAPE, 0, weight(0), activation(0)),
        "the input of forward is not an activation\n"
        "  expected: an activation\n"
        "  got:      weight of layer 0\n"
        "  fix:      check the order of the arguments and the store that it comes from",
    ),
    "not even a value": (
        lambda: rules.forward(SHAPE, 0, activation(0), "weights"),
        "the weight of forward is not a weight\n"
        "  expected: a weight\n"
        "  got:      str 'weights'\n"
        "  fix:      check the order of the arguments and the store that it comes from",
    ),
    "loss too early": (
        lambda: rules.loss(SHAPE, activation(2)),
        "the input of loss belongs to another layer\n"
        "  expected: activation 3\n"
        "  got:      activation 2, batch 0\n"
        "  fix:      run forward up to layer 2 first",
    ),
    "gradient of another layer": (
        lambda: rules.backward(SHAPE, 1, activation(1), gradient(2), weight(1)),
        "the gradient given to backward belongs to another layer\n"
        "  expected: the gradient of activation 2\n"
        "  got:      gradient of activation 3, batch 0\n"
        "  fix:      take the gradient of activation 2, which backward(2, ...) gave",
    ),
    "last layer without loss": (
        lambda: rules.backward(SHAPE, 2, activation(2), gradient(1), weight(2)),
        "the gradient given to backward belongs to another layer\n"
        "  expected: the gradient of activation 3\n"
        "  got:      gradient of activation 2, batch 0\n"
        "  fix:      backward(2, ...) is the first one: it takes the gradient that loss gave",
    ),
    "output instead of input": (
        lambda: rules.backward(SHAPE, 1, activation(2), gradient(1), weight(1)),
        "the input of backward belongs to another layer\n"
        "  expected: activation 1\n"
        "  got:      activation 2, batch 0\n"
        "  fix:      use activation 1, the one that went into forward(1, ...)",
    ),
    "another microbatch": (
        lambda: rules.backward(SHAPE, 1, activation(1, [0, 1]), gradient(1, [1, 2]), weight(1)),
        "the input and the gradient given to backward are of different batches\n"
        "  expected: the gradient of batches 0 and 1, as the input\n"
        "  got:      the gradient of batches 1 and 2\n"
        "  fix:      take the input of the same batch; messages arrive in the order in which they were passed,\n"
        "            so both ranks have to go through the batches in the same order",
    ),
    "another batch": (
        lambda: rules.backward(SHAPE, 1, activation(1, [0]), gradient(1, [3]), weight(1)),
        "the input and the gradient given to backward are of different batches\n"
        "  expected: the gradient of batch 0, as the input\n"
        "  got:      the gradient of batch 3\n"
        "  fix:      take the input of the same batch; messages arrive in the order in which they were passed,\n"
        "            so both ranks have to go through the batches in the same order",
    ),
    "batches missing": (
        lambda: rules.update(SHAPE, 0, WeightGrad(0, 3, [0, 1], 4), weight(), OptState(0, 3, 0)),
        "the gradient of layer 0 does not have all batches yet\n"
        "  expected: all 4 batches: 0-3\n"
        "  got:      batches 0 and 1; batches 2, 3 are missing\n"
        "  fix:      sum the gradients of all batches first: `+` on one rank, allreduce or scatterreduce over ranks",
    ),
    "gradient of another shard": (
        lambda: rules.update(SHAPE, 0, WeightGrad(0, 3, range(4), 4, [1], 2), weight(0, 0, [0], 2), OptState(0, 3, 0)),
        "the gradient does not cover the weight\n"
        "  expected: a gradient of shard 0 of 2, or of the whole weight\n"
        "  got:      weight gradient of layer 0, batches 0-3, shard 1 of 2\n"
        "  fix:      a rank updates the shard whose gradient it has: cut both in the same way",
    ),
    "state of another shard": (
        lambda: rules.update(SHAPE, 0, whole, weight(0, 0, [0], 2), OptState(0, 3, 0, [1], 2)),
        "the optimizer state does not cover the weight\n"
        "  expected: the optimizer state of shard 0 of 2\n"
        "  got:      optimizer state of layer 0, shard 1 of 2\n"
        "  fix:      load both with one call, and update a shard of the weight with the same shard of the state:\n"
        "            weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)",
    ),
    "another step": (
        lambda: rules.update(SHAPE, 0, whole, weight(0, 1), OptState(0, 3, 0)),
        "the weight and the optimizer state are not at the same step\n"
        "  expected: step 1 for both\n"
        "  got:      the optimizer state is at step 0\n"
        "  fix:      keep both results of update, and update each layer once",
    ),
    "final weight of another layer": (
        lambda: rules.final(SHAPE, 0, weight(2)),
        "the final weight belongs to another layer\n"
        "  expected: the weight of layer 0\n"
        "  got:      weight of layer 2\n"
        "  fix:      hand it in as what it is: set_final_weight(2, ...)",
    ),
    "an optimizer state instead of a gradient": (
        lambda: rules.update(SHAPE, 0, OptState(0, 3, 0), weight(), whole),
        "the gradient given to update is not a weight gradient\n"
        "  expected: a weight gradient\n"
        "  got:      optimizer state of layer 0\n"
        "  fix:      check the order of the arguments and the store that it comes from",
    ),
    "no number for a layer": (
        lambda: rules.need_layer(SHAPE, "0", "forward"),
        "the layer is not a whole number\n  expected: a layer from 0 to 2\n  got:      str '0'",
    ),
    "many batches that are not there": (
        lambda: rules.get_activation(SHAPE, list(range(11, 60))),
        f"there is no batch {', '.join(map(str, range(11, 51)))}, ...\n"
        "  expected: batches from 0 to 3\n"
        f"  got:      batches {', '.join(map(str, range(11, 51)))}, ...\n"
        "  fix:      batches are counted from 0; the last one is model.BATCHES - 1",
    ),
    "as many as are shown": (
        lambda: rules.get_activation(SHAPE, list(range(11, 51))),
        f"there is no batch {', '.join(map(str, range(11, 51)))}\n"
        "  expected: batches from 0 to 3\n"
        f"  got:      batches {', '.join(map(str, range(11, 51)))}\n"
        "  fix:      batches are counted from 0; the last one is model.BATCHES - 1",
    ),
    "one batch that is not there": (
        lambda: rules.fake_grad(SHAPE, 0, [4]),
        "there is no batch 4\n"
        "  expected: batches from 0 to 3\n"
        "  got:      batch 4\n"
        "  fix:      batches are counted from 0; the last one is model.BATCHES - 1",
    ),
    "the first input is the data": (
        lambda: rules.forward(SHAPE, 0, activation(1), weight(0)),
        "the input of forward belongs to another layer\n"
        "  expected: activation 0\n"
        "  got:      activation 1, batch 0\n"
        "  fix:      layer 0 works on the data",
    ),
    "weight of another layer backwards": (
        lambda: rules.backward(SHAPE, 0, activation(0), gradient(0), weight(1)),
        "the weight of backward belongs to another layer\n"
        "  expected: the weight of layer 0\n"
        "  got:      weight of layer 1\n"
        "  fix:      use the weight of layer 0, or run layer 1",
    ),
    "weight not gathered backwards": (
        lambda: rules.backward(SHAPE, 0, activation(0), gradient(0), weight(0, 0, [0, 1], 4)),
        "the weight of layer 0 is not complete\n"
        "  expected: all 4 shards\n"
        "  got:      shards 0 and 1 of 4; shards 2, 3 are missing\n"
        "  fix:      put its shards together first, with an all-gather",
    ),
    "gradient of another layer to update with": (
        lambda: rules.update(SHAPE, 1, whole, weight(1), OptState(1, 3, 0)),
        "the gradient given to update belongs to another layer\n"
        "  expected: the weight gradient of layer 1\n"
        "  got:      weight gradient of layer 0, batches 0-3\n"
        "  fix:      update(1, ...) takes everything of layer 1",
    ),
    "weight of another layer to update": (
        lambda: rules.update(SHAPE, 0, whole, weight(1), OptState(0, 3, 0)),
        "the weight given to update belongs to another layer\n"
        "  expected: the weight of layer 0\n"
        "  got:      weight of layer 1\n"
        "  fix:      update(0, ...) takes everything of layer 0",
    ),
    "state of another layer": (
        lambda: rules.update(SHAPE, 0, whole, weight(0), OptState(1, 3, 0)),
        "the optimizer state given to update belongs to another layer\n"
        "  expected: the optimizer state of layer 0\n"
        "  got:      optimizer state of layer 1\n"
        "  fix:      update(0, ...) takes everything of layer 0",
    ),
    "gradient of a shard for the gathered weight": (
        lambda: rules.update(SHAPE, 0, WeightGrad(0, 3, range(4), 4, [1], 2), weight(), OptState(0, 3, 0)),
        "the gradient does not cover the weight\n"
        "  expected: a gradient of the whole weight\n"
        "  got:      weight gradient of layer 0, batches 0-3, shard 1 of 2\n"
        "  fix:      after scatterreduce a rank has the gradient of one shard: update the shard of the weight that it "
        "loaded,\n"
        "            not the gathered weight; or use allreduce, and every rank updates the whole weight",
    ),
    "state of a shard for the gathered weight": (
        lambda: rules.update(SHAPE, 0, whole, weight(), OptState(0, 3, 0, [1], 2)),
        "the optimizer state does not cover the weight\n"
        "  expected: the optimizer state of the whole weight\n"
        "  got:      optimizer state of layer 0, shard 1 of 2\n"
        "  fix:      update the shard of the weight that this rank loaded with its optimizer state, not the gathered\n"
        "            weight: model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_explains_itself(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with pytest.raises(RuleError) as raised:
        make()
    assert str(raised.value) == message


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


FACTS: list[tuple[Any, facts.Fact]] = [
    (lambda: rules.load_weights(SHAPE, 0, 4, 4), facts.NoShard(4, 4, loads=True)),
    (lambda: rules.get_activation(SHAPE, [4, 0]), facts.NoBatch(frozenset([4]), frozenset([0, 4]), 4, 0)),
    (
        lambda: rules.forward(SHAPE, 0, activation(0), weight(1)),
        facts.WrongLayer("forward", "weight of forward", weight(1), 0),
    ),
    (
        lambda: rules.forward(SHAPE, 0, activation(0), weight(0, 0, [2], 4)),
        facts.Incomplete(weight(0, 0, [2], 4)),
    ),
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
def test_a_mistake_is_a_fact_for_who_knows_the_whole_run(make: Any, fact: facts.Fact) -> None:
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


ROLES: dict[str, tuple[Any, type[Any], str]] = {
    "input of forward": (lambda it: rules.forward(SHAPE, 0, it, weight()), Activation, "forward"),
    "weight of forward": (lambda it: rules.forward(SHAPE, 0, activation(), it), Weight, "forward"),
    "input of loss": (lambda it: rules.loss(SHAPE, it), Activation, "loss"),
    "input of backward": (lambda it: rules.backward(SHAPE, 0, it, gradient(), weight()), Activation, "backward"),
    "gradient given to backward": (
        lambda it: rules.backward(SHAPE, 0, activation(), it, weight()),
        ActivationGrad,
        "backward",
    ),
    "weight of backward": (lambda it: rules.backward(SHAPE, 0, activation(), gradient(), it), Weight, "backward"),
    "gradient given to update": (
        lambda it: rules.update(SHAPE, 0, it, weight(), OptState(0, 3, 0)),
        WeightGrad,
        "update",
    ),
    "weight given to update": (lambda it: rules.update(SHAPE, 0, whole, it, OptState(0, 3, 0)), Weight, "update"),
    "optimizer state given to update": (lambda it: rules.update(SHAPE, 0, whole, weight(), it), OptState, "update"),
    "final weight": (lambda it: rules.final(SHAPE, 0, it), Weight, "set_final_weight"),
    "first argument of allgather": (
        lambda it: rules.bring(COLLECTIVES["allgather"], it, 0, 2),
        Value,
        "allgather",
    ),
    "first argument of alltoall": (
        lambda it: rules.bring(COLLECTIVES["alltoall"], [weight(), it], 0, 2),
        Value,
        "alltoall",
    ),
}


@pytest.mark.parametrize("role", ROLES)
def test_a_thing_in_the_wrong_place_is_named_with_its_place(role: str) -> None:
    use, kind, op = ROLES[role]
    noun = kind.kind if kind is not Value else "value"
    wanted = f"an {noun}" if noun[0] in "ao" else f"a {noun}"
    with pytest.raises(RuleError) as raised:
        use("a string")
    error = raised.value
    assert (error.what, error.expected, error.got) == (f"the {role} is not {wanted}", wanted, "str 'a string'")
    assert error.fix == "check the order of the arguments and the store that it comes from"
    assert error.fact == facts.WrongKind(role, kind, "a string", op)

    async def fetch() -> None: ...

    with pytest.raises(ForgottenAwait) as forgotten:
        use(fetch())
    assert (forgotten.value.what, forgotten.value.expected) == (f"the {role} was not awaited", wanted)
    assert forgotten.value.got == "a call of the async function fetch, not awaited yet"


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


def test_an_all_to_all_takes_a_list() -> None:
    row = COLLECTIVES["alltoall"]
    rules.bring(row, (weight(), weight()), 0, 2)
    with pytest.raises(RuleError) as raised:
        rules.bring(row, weight(), 0, 2)
    assert raised.value.got == "weight of layer 0"
    with pytest.raises(RuleError) as raised:
        rules.bring(row, [], 0, 2)
    assert raised.value.got == "a list of 0"
    with pytest.raises(ForgottenAwait) as forgotten:
        rules.bring(row, NotYet(), 0, 2)
    assert forgotten.value.what == "the list given to alltoall was not awaited"


def test_a_layer_is_a_number() -> None:
    for layer in ("0", None, 1.0):
        with pytest.raises(RuleError, match=r"the layer is not a whole number"):
            rules.load_weights(SHAPE, layer, 0, 1)  # type: ignore[arg-type]


def test_total_below_one_is_no_number_of_shards() -> None:
    with pytest.raises(RuleError) as raised:
        rules.load_weights(SHAPE, 0, 0, 0)
    assert raised.value.expected == "total >= 1"


# -- as a student meets them --------------------------------------------------------------------------------------


def test_the_message_names_rank_and_line() -> None:
    model = Model(rank=2, layers=2)
    weight, _ = model.load_weights(1)
    with pytest.raises(RuleError) as raised:
        model.forward(0, model.get_activation([0]), weight)
    where = raised.value.where[0][1]
    assert (where.file, where.function) == ("test_rules.py", "test_the_message_names_rank_and_line")
    assert str(raised.value) == (
        "rank 2: the weight of forward belongs to another layer\n"
        "  expected: the weight of layer 0\n"
        "  got:      weight of layer 1\n"
        f"  where:    test_rules.py, line {where.line}, in test_the_message_names_rank_and_line: "
        "model.forward(0, model.get_activation([0]), weight)\n"
        "  fix:      use the weight of layer 0, or run layer 1"
    )


def test_a_failed_operation_moves_no_clock_and_records_nothing() -> None:
    model = Model(layers=2, batches=2)
    weight, state = model.load_weights(0)
    inp = model.get_activation([0])
    model.forward(0, inp, weight)
    events, clock = len(model.program.events), model.time
    grad = model.fake_grad(0, [0])
    events += 1
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


def test_a_failed_collective_moves_no_clock() -> None:
    model = Model(layers=2, batches=2)
    weight, _ = model.load_weights(0)
    model.forward(0, model.get_activation([0]), weight)
    with pytest.raises(RuleError, match="a weight cannot be summed"):
        model.allreduce(weight, 0)
    assert model.time == 1.0
    assert [event.typ for event in model.log] == ["forward"]


class NotYet:
    """What is awaited, as seen from outside."""

    def __await__(self) -> Any:
        yield


@pytest.mark.parametrize(
    "use",
    [
        lambda shape, work: rules.forward(shape, 0, work, weight()),
        lambda shape, work: rules.forward(shape, 0, activation(), work),
        lambda shape, work: rules.loss(shape, work),
        lambda shape, work: rules.backward(shape, 0, work, gradient(), weight()),
        lambda shape, work: rules.backward(shape, 0, activation(), work, weight()),
        lambda shape, work: rules.backward(shape, 0, activation(), gradient(), work),
        lambda shape, work: rules.update(shape, 0, work, weight(), OptState(0, 3, 0)),
        lambda shape, work: rules.update(shape, 0, whole, work, OptState(0, 3, 0)),
        lambda shape, work: rules.update(shape, 0, whole, weight(), work),
        lambda shape, work: rules.final(shape, 0, work),
    ],
)
def test_whatever_is_awaitable_reminds_of_await(use: Any) -> None:
    with pytest.raises(ForgottenAwait) as raised:
        use(SHAPE, NotYet())
    assert raised.value.what.endswith(" was not awaited")
    assert raised.value.fix == "put `await` in front of the call"
