"""The laws of values as properties, and what their errors say."""

import copy
import pickle
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lib import HIDDEN, Activation, ActivationGrad, Model, OptState, RuleError, Weight, WeightGrad
from lib.values.laws import cut, gather, reduce, total_elements
from lib.values.values import KINDS, Value, describe, fields_of, value_of
from tests.support.said import Said

LAYERS = 4
layers = st.integers(0, LAYERS - 1)


@st.composite
def shard_sets(draw: st.DrawFn) -> tuple[frozenset[int], int]:
    total = draw(st.integers(1, 12))
    return draw(st.frozensets(st.integers(0, total - 1), min_size=1)), total


@st.composite
def kept(draw: st.DrawFn, kind: type[Weight] | type[OptState]) -> Weight | OptState:
    shards, total = draw(shard_sets())
    return kind(draw(layers), LAYERS, draw(st.integers(0, 2)), shards, total)


@st.composite
def weight_grads(draw: st.DrawFn) -> WeightGrad:
    shards, total = draw(shard_sets())
    return WeightGrad(draw(layers), LAYERS, draw(st.frozensets(st.integers(0, 9))), 10, shards, total)


@st.composite
def batched(draw: st.DrawFn) -> Activation | ActivationGrad:
    kind = draw(st.sampled_from([Activation, ActivationGrad]))
    return kind(draw(layers), LAYERS, draw(st.frozensets(st.integers(0, 9), min_size=1)), 10)


values = st.one_of(kept(Weight), kept(OptState), weight_grads(), batched())
sharded = st.one_of(kept(Weight), kept(OptState), weight_grads())


def split_field(value: Value) -> str:
    return "batches" if isinstance(value, Activation | ActivationGrad) else "shards"


def with_set(value: Any, **sets: frozenset[int]) -> Any:
    fields = [sets.get(name, getattr(value, name)) for name in value.__match_args__]
    return type(value)(*fields)


@st.composite
def parts(draw: st.DrawFn, whole: frozenset[int]) -> list[frozenset[int]]:
    """A set in three parts that do not overlap."""
    owner = {item: draw(st.integers(0, 2)) for item in sorted(whole)}
    return [frozenset(item for item in whole if owner[item] == i) for i in range(3)]


@given(values, st.data())
def test_gather_is_associative_and_commutative_and_loses_nothing(value: Value, data: st.DataObject) -> None:
    field = split_field(value)
    a, b, c = (with_set(value, **{field: part}) for part in data.draw(parts(getattr(value, field))))
    assert a.combine(b).combine(c) == a.combine(b.combine(c)) == value
    assert a.combine(b) == b.combine(a)
    assert gather(a, b, c) == value
    assert a.elements() + b.elements() + c.elements() == value.elements()


@given(weight_grads(), weight_grads())
def test_a_sum_takes_disjoint_batches_of_the_same_shards_and_nothing_else(a: WeightGrad, b: WeightGrad) -> None:
    fits = a.layer == b.layer and a.shards == b.shards and a.total == b.total and not a.batches & b.batches
    if fits:
        assert (a + b).batches == a.batches | b.batches
    else:
        with pytest.raises(RuleError):
            _ = a + b


@given(sharded, sharded)
def test_gather_takes_disjoint_shards_of_the_same_thing_and_nothing_else(a: Any, b: Any) -> None:
    rest = [name for name in a.__match_args__ if name != "shards"]
    fits = type(a) is type(b) and all(getattr(a, n) == getattr(b, n) for n in rest) and not a.shards & b.shards
    if fits:
        assert a.combine(b).shards == a.shards | b.shards
    else:
        with pytest.raises(RuleError):
            a.combine(b)


@given(values)
def test_a_value_survives_pickle_and_copy(value: Value) -> None:
    assert hash(pickle.loads(pickle.dumps(value))) == hash(value)
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.copy(value) == copy.deepcopy(value) == value


@given(values, values)
def test_values_are_equal_where_their_class_and_fields_are(a: Any, b: Any) -> None:
    same = type(a) is type(b) and all(getattr(a, n) == getattr(b, n) for n in a.__match_args__)
    assert (a == b) == same
    if same:
        assert hash(a) == hash(b)


def test_a_copy_of_a_value_that_a_rank_holds_equals_it_and_has_no_home() -> None:
    weight, _ = Model().load_weights(0)
    again = pickle.loads(pickle.dumps(weight))
    assert again == weight
    assert weight.mark is not None
    assert again.mark is None


def test_what_is_said_to_who_changes_a_value() -> None:
    weight: Any = Weight(0, 1, 0)
    with pytest.raises(FrozenInstanceError) as raised:
        weight.step = 1
    assert str(raised.value) == "cannot assign to field 'step': values never change, operations make new ones"
    with pytest.raises(FrozenInstanceError) as raised:
        del weight.step
    assert str(raised.value) == "cannot delete field 'step': values never change"


@given(values)
def test_values_are_frozen_and_nobody_forges_where_one_lives(value: Any) -> None:
    for name in (*value.__match_args__, "mark"):
        before = getattr(value, name)
        with pytest.raises(AttributeError):
            setattr(value, name, 1)
        with pytest.raises(AttributeError):
            delattr(value, name)
        assert getattr(value, name) == before
    assert value.mark is None
    with pytest.raises(AttributeError):
        value.note = "mine"


@given(sharded)
def test_the_size_of_shards_is_exact(value: Any) -> None:
    elements = value.elements()
    assert elements * value.total == len(value.shards) * HIDDEN * HIDDEN
    assert isinstance(elements, int) == (len(value.shards) * HIDDEN * HIDDEN % value.total == 0)
    assert value.memory() == float(elements)


@given(st.lists(values, max_size=8))
def test_the_sum_of_sizes_is_exact(some: list[Value]) -> None:
    assert total_elements(some) == sum((value.elements() for value in some), 0)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Weight(1, 2, 0), "weight of layer 1"),
        (Activation(0, 1, [], 2), "activation 0, no batches"),
        (Weight(1, 2, 1, [3], 4), "weight of layer 1, shard 3 of 4, step 1"),
        (OptState(0, 2, 0, [0, 1, 2], 8), "optimizer state of layer 0, shards 0-2 of 8"),
        (Activation(2, 2, [0, 2, 3], 4), "activation 2, batches 0, 2, 3"),
        (ActivationGrad(1, 2, [0], 1), "gradient of activation 2, batch 0"),
        (WeightGrad(1, 2, [0, 1, 2, 5], 8, [3], 4), "weight gradient of layer 1, batches 0-2, 5, shard 3 of 4"),
    ],
)
def test_a_value_describes_itself_also_in_a_list(value: Value, words: str) -> None:
    assert describe(value) == str(value) == words
    assert repr([value]) == f"[<{words}>]"


class Pizza:
    """As Python shows what has no repr of its own."""


class Windows:
    def __repr__(self) -> str:
        return "<an address at 0x00ABCDEF>"


async def deliver() -> None:
    """Closed at once: nobody misses it."""


UNDELIVERED = deliver()
UNDELIVERED.close()


class Delivery:
    def __await__(self) -> Any:
        yield


test_other_things_are_described_in_few_words = Said(__file__, "things").test(lambda: {**globals(), "partial": partial})


def test_the_five_kinds_stand_in_the_order_of_the_stores() -> None:
    assert list(KINDS.values()) == [Weight, OptState, Activation, ActivationGrad, WeightGrad]
    assert [cls.kind for cls in KINDS.values()] == list(KINDS)


grad = WeightGrad(1, 2, [0, 1], 4)


test_a_broken_law_explains_itself = Said(__file__, "laws").test(lambda: {**globals(), "reduce": reduce})


MOST = 10**6


@pytest.mark.parametrize(
    "value",
    [Weight(-1, 1, 0), Weight(MOST, MOST, MOST, [MOST - 1], MOST), Weight(0, 1, 0, [], 1), Activation(0, 1, [], 1)],
)
def test_a_value_made_by_hand_is_one_that_there_could_be(value: Value) -> None:
    assert value_of(type(value), None, *fields_of(value)) == value


class Mine(Value):
    def __init__(self) -> None:
        for name, item in (("home", None), ("number", -1), ("updates", 0)):
            object.__setattr__(self, name, item)


@given(values, st.integers(-3, 15), st.integers(-3, 15))
def test_cut_gives_a_shard_or_a_rule_error(value: Any, shard: int, total: int) -> None:
    try:
        piece = cut(value, shard, total)
    except RuleError:
        assert not (hasattr(value, "shards") and value.is_complete() and 0 <= shard < total)
        assert hasattr(value, "shards") or not (
            0 <= shard < total and value.batches and len(value.batches) % total == 0
        )
    else:
        if hasattr(value, "shards"):
            pieces = [cut(value, i, total) for i in range(total)]
            assert piece.elements() * total == value.elements()
            assert gather(*pieces).place.first.ranges == value.place.first.ranges
            if value.is_complete():
                assert (piece.shards, piece.total) == ({shard}, total)
        else:
            assert gather(*(cut(value, i, total) for i in range(total))) == value
            assert len(piece.batches) * total == len(value.batches)


def test_a_broken_law_names_the_rank_that_the_value_lives_on() -> None:
    model = Model(rank=3, layers=2, batches=2)
    weight, _ = model.load_weights(0, 0, 2)
    with pytest.raises(RuleError) as raised:
        weight.combine(weight)
    assert raised.value.rank == 3
    assert str(raised.value).startswith("rank 3: cannot join these values: shard 0 would be counted twice\n")
    assert "weight.combine(weight)" in str(raised.value)


@given(weight_grads())
def test_the_sum_with_nothing_is_the_same(grad: WeightGrad) -> None:
    nothing = with_set(grad, batches=frozenset())
    assert grad + nothing == nothing + grad == grad
    assume(grad.batches)
    with pytest.raises(RuleError):
        _ = grad + grad
