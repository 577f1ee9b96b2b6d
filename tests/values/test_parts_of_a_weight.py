"""Columns and rows of weights, features of activations, partial sums: the laws and rules of tensor parallelism."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from lib.errors.exceptions import MismatchError, RuleError
from lib.values import rules
from lib.values.collectives import COLLECTIVES
from lib.values.facts import Undivided
from lib.values.laws import cut, gather, reduce
from lib.values.layers import Shape
from lib.values.values import Activation, ActivationGrad, Value, Weight, WeightGrad, describe, value_of
from tests.support.said import Said

SHAPE = Shape(4, 4)
N = 2
HALF, OTHER, QUARTER = ("terms", {0}, 2), ("terms", {1}, 2), ("features", {2}, 4)


def weight(dim: int = 0, shard: int = 0, total: int = 1, layer: int = 0) -> Weight:
    return rules.load_weights(SHAPE, layer, shard, total, dim)[0]


def value(kind: type[Any], layer: int, batches: Any, *rest: tuple[str, set[int], int]) -> Any:
    return value_of(kind, SHAPE, layer, 4, frozenset(batches), 4, rest)


def parts(one: Value) -> dict[str, tuple[set[int], int | None]]:
    """What is cut of a value, beside its batches and shards."""
    return {role: (set(pieces), total) for role, pieces, total in one.place.rest}


X = value(Activation, 0, [0, 1])
FEATURES = [value(Activation, 1, [0, 1], ("features", {i}, N)) for i in range(N)]


def test_what_a_part_of_a_part_gives() -> None:
    """Rows and columns at once: the rule is one."""
    both = cut(weight(1, 1, 2, 1), 0, 2)
    assert describe(both) == "weight of layer 1, shard 0 of 2, columns 1 of 2"
    out = rules.forward(SHAPE, 1, FEATURES[0], both)
    assert parts(out) == {"features": ({1}, 2), "terms": ({0}, 2)}
    assert reduce(out, rules.forward(SHAPE, 1, FEATURES[1], cut(weight(1, 1, 2, 1), 1, 2))) == value(
        Activation, 2, [0, 1], ("features", {1}, 2)
    )


def test_a_sum_is_done_by_itself_and_is_then_the_one_that_no_part_was_missing_from() -> None:
    one, two = (value(Activation, 2, [0, 1], ("terms", {i}, 2)) for i in range(2))
    done = reduce(one, two)
    assert done == value(Activation, 2, [0, 1])
    assert done.place is value(Activation, 2, [0, 1]).place
    assert done.place is reduce(two, one).place
    halves = [value(Activation, 2, [0, 1], ("terms", {i, i + 1}, 4)) for i in (0, 2)]
    assert reduce(*halves).place is done.place
    assert parts(reduce(*[value(Activation, 2, [0], ("terms", {i}, 4)) for i in (0, 3)])) == {"terms": ({0, 3}, 4)}


def test_features_and_columns_are_gathered_and_are_whole_then() -> None:
    assert gather(*FEATURES).place is value(Activation, 1, [0, 1]).place
    assert gather(*reversed(FEATURES)).place is value(Activation, 1, [0, 1]).place
    columns = gather(weight(1, 0, 2), weight(1, 1, 2))
    assert columns == weight()
    assert columns.is_complete()
    batches = [value(Activation, 1, [i], ("features", {0}, N)) for i in (2, 3)]
    assert gather(*batches) == value(Activation, 1, [2, 3], ("features", {0}, N))


def summed(*rest: tuple[str, set[int], int]) -> WeightGrad:
    """The gradient of all batches of some columns, or of all."""
    return value_of(WeightGrad, SHAPE, 0, 4, frozenset(range(4)), 4, frozenset([0]), 1, rest)


def refused(law: Callable[..., Any], values: list[Any]) -> str:
    """What a law says of values that do not go together, in both orders."""
    said: list[str] = []
    for order in (values, values[::-1]):
        with pytest.raises(RuleError) as raised:
            law(*order)
        said.append(str(raised.value))
    return "\n".join(said)


test_what_the_laws_refuse = Said(__file__, "apart").test(lambda: globals())


def test_batches_are_cut_in_order_and_gathered_again() -> None:
    some = value(Activation, 2, [0, 2, 3, 1])
    assert [cut(some, i, 2).batches for i in range(2)] == [{0, 1}, {2, 3}]
    assert [cut(value(Activation, 2, [0, 3]), i, 2).batches for i in range(2)] == [{0}, {3}]
    for one in (some, value(ActivationGrad, 2, [0, 1, 2, 3]), value(Activation, 2, range(4), ("terms", {0}, 2))):
        for n in (1, 2, 4):
            assert gather(*(cut(one, i, n) for i in range(n))) == one
    for n in (3, 8):
        with pytest.raises(RuleError) as raised:
            cut(some, 0, n)
        assert raised.value.fact == Undivided(some, "batches", 4, n)


def test_collectives_of_parts() -> None:
    def meet(op: str, values: list[Any]) -> list[Any]:
        members = [rules.Member(rank, op, 2, one, 0) for rank, one in enumerate(values)]
        return rules.collective(COLLECTIVES[op], members)

    sums = [value(Activation, 2, [0, 1], ("terms", {i}, 2)) for i in range(2)]
    assert meet("allreduce", sums) == [value(Activation, 2, [0, 1])] * 2
    assert meet("scatterreduce", sums) == [value(Activation, 2, [i]) for i in range(2)]
    assert meet("allgather", FEATURES) == [value(Activation, 1, [0, 1])] * 2
    for op, values, ranks in (
        ("allreduce", [sums[0], sums[1], sums[1]], (1, 2)),
        ("allgather", [FEATURES[0], FEATURES[1], FEATURES[0]], (0, 2)),
        ("allgather", [value(Activation, 1, [i], ("features", {0}, 2)) for i in (0, 1, 1)], (1, 2)),
    ):
        with pytest.raises(MismatchError) as raised:
            meet(op, values)
        assert raised.value.ranks == ranks
    with pytest.raises(RuleError) as refused:
        meet("scatterreduce", [value(Activation, 2, [0, 1, 2], ("terms", {i}, 2)) for i in range(2)])
    assert refused.value.what.endswith("cannot be cut into 2 equal parts")


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (weight(1, 1, 2), "weight of layer 0, columns 1 of 2"),
        (FEATURES[1], "activation 1, batches 0, 1, features 1 of 2"),
        (
            value(ActivationGrad, 0, [3], ("terms", {0, 1, 2}, 4)),
            "gradient of activation 1, batch 3, part 0-2 of 4 of a sum",
        ),
    ],
)
def test_what_they_are_called_and_that_they_survive(one: Value, words: str) -> None:
    assert describe(one) == words
    assert repr(one) == f"<{words}>"
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert hash(again) == hash(one)
    assert again.place.same(one.place)
