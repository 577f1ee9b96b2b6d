"""The table of collectives: what each member gets, and that all-reduce is reduce-scatter followed by all-gather."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Activation, Links, MismatchError, Model, RuleError, Weight, WeightGrad, simulate
from lib.cluster.costs import units
from lib.values.collectives import COLLECTIVES, TWICE_ROUND, Collective, values_in
from lib.values.facts import Disagree
from lib.values.laws import total_elements
from lib.values.rules import Member, agree, bring, collective
from tests.support.said import Said
from tests.values.test_averages import means

SIZES = [1, 2, 3, 4, 5, 7, 8, 12]


def grads(n: int, batches: int) -> list[WeightGrad]:
    return [WeightGrad(1, 3, range(rank, batches, n), batches) for rank in range(n)]


def buckets(n: int) -> list[list[WeightGrad]]:
    """A bucket of the gradients of two layers on each of n ranks, a batch each."""
    return [[WeightGrad(layer, 3, [rank], n) for layer in (2, 1)] for rank in range(n)]


def busiest(row: Collective, whole: Any, n: int) -> Any:
    """What the busiest link carries, of a whole of that size."""
    return row.travel.rounds * row.travel.share(n) * whole


def results(op: str, values: list[Any], root: int = 0) -> list[Any]:
    return COLLECTIVES[op].results(values, root)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("batches", [1, 4, 12])
def test_all_reduce_is_reduce_scatter_then_all_gather(n: int, batches: int) -> None:
    reduced = results("allreduce", grads(n, batches))
    gathered = results("allgather", results("scatterreduce", grads(n, batches)))
    assert reduced == [WeightGrad(1, 3, range(batches), batches)] * n
    assert gathered == [WeightGrad(1, 3, range(batches), batches, range(n), n)] * n
    for one, other in zip(reduced, gathered, strict=True):
        assert one.is_complete()
        assert other.is_complete()
        assert one.elements() == other.elements()
        assert [one.shard(i, n) for i in range(n)] == [other.shard(i, n) for i in range(n)]


@given(st.integers(1, 6), st.data())
def test_all_to_all_transposes(n: int, data: st.DataObject) -> None:
    numbers = st.integers(0, 99)
    table = [[Activation(0, 2, [data.draw(numbers)], 100) for _ in range(n)] for _ in range(n)]
    once = results("alltoall", table)
    assert once == [[table[row][column] for row in range(n)] for column in range(n)]
    assert results("alltoall", once) == table


@pytest.mark.parametrize("op", sorted(COLLECTIVES))
def test_everybody_gets_a_value_of_its_own(op: str) -> None:
    brought: list[Any] = grads(3, 3)
    if op.startswith("allgather"):
        brought = [Weight(0, 3, 0, [i], 3) for i in range(3)]
    if op.startswith("alltoall"):
        brought = [[value.shard(i, 3) for i in range(3)] for value in brought]
    if op == "halo":
        brought = [[value] * (1 if place != 1 else 2) for place, value in enumerate(brought)]
    if op == "allreduce_bucket":
        brought = buckets(3)
    if op == "allreduce_mean":
        brought = means([4, 4, 4])
    got: list[Any] = [None] * 3

    async def meet(model: Model) -> None:
        mine = brought[model.rank]
        layer = () if op == "allreduce_bucket" else (values_in(mine)[0].layer,)
        got[model.rank] = await getattr(model, op)(mine, *layer)

    models = simulate(meet, ranks=3, layers=3, batches=12 if op == "allreduce_mean" else 3)
    made = [values_in(one) for one in got]
    assert sum(map(len, made)) == len({id(one) for mine in made for one in mine})
    assert made == [*map(values_in, results(op, brought))]
    for model, mine in zip(models, made, strict=True):
        assert all(one.mark == (model.program, one.number) for one in mine)


def test_a_bucket_is_summed_place_by_place() -> None:
    sums = [WeightGrad(layer, 3, range(4), 4) for layer in (2, 1)]
    assert results("allreduce_bucket", buckets(4)) == [sums] * 4


def test_two_of_a_bucket_that_share_a_batch_are_found_wherever_they_stand_in_it() -> None:
    row, brought = COLLECTIVES["allreduce_bucket"], buckets(4)
    brought[3][1] = brought[1][1]
    members = [Member(rank, row.name, 2, value, 0) for rank, value in enumerate(brought)]
    with pytest.raises(MismatchError) as caught:
        collective(row, members)
    assert caught.value.ranks == (1, 3)


def test_a_bucket_costs_one_latency_and_the_bytes_of_all() -> None:
    costs, row, whole = Links(latency=0.15), COLLECTIVES["allreduce_bucket"], 512 * 512
    times = [units(costs.communicate(row, layers * whole, range(4))) for layers in (1, 2, 4, 8)]
    assert times == [1.5, 2.1, 3.3, 5.7]


PARTS = st.lists(st.integers(0, 3), min_size=1, max_size=6)
"""How many of 24 shards, or batches, each member brings: uneven, and some bring none."""


def shares(parts: list[int]) -> list[frozenset[int]]:
    starts = [sum(parts[:i]) for i in range(len(parts))]
    return [frozenset(range(start, start + n)) for start, n in zip(starts, parts, strict=True)]


@given(st.integers(1, 12))
def test_what_is_sent_is_that_of_a_ring(n: int) -> None:
    whole = 512 * 512
    once = Fraction(n - 1, n) * whole
    brought: dict[str, list[Any]] = {
        "allreduce": grads(n, n),
        "scatterreduce": grads(n, n),
        "allgather": [Weight(0, 1, 0, [i], n) for i in range(n)],
        "alltoall": [[Weight(0, 1, 0, [i], n) for i in range(n)]] * n,
        "broadcast": [Weight(0, 1, 0)] * n,
        "allreduce_bucket": buckets(n),
    }
    for op in brought:
        row = COLLECTIVES[op]
        rounds = 2 if row.travel is TWICE_ROUND else 1
        layers = 2 if row.bucket else 1
        assert row.size(brought[op], 0, total_elements) == layers * whole
        assert row.sent(brought[op]) == [layers * rounds * once] * n
        assert busiest(row, whole, n) == (whole if op == "broadcast" and n > 1 else rounds * once)
        assert row.messages(n) == rounds * (n - 1)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_shift_sends_each_value_once(n: int) -> None:
    row, brought = COLLECTIVES["shift"], [Weight(0, 1, 0, [i], n) for i in range(n)]
    assert row.results(brought, 0) == [brought[-1], *brought[:-1]]
    assert row.sent(brought) == [Fraction(512 * 512, n) if n > 1 else 0] * n
    whole = row.size(brought, 0, total_elements)
    assert busiest(row, whole, n) == (whole if n > 1 else 0)


@given(PARTS)
def test_of_unequal_parts_a_member_sends_all_but_its_successors(parts: list[int]) -> None:
    """As a ring does it, step by step: first its own part, then what came in the step before. What a member is charged
    does not depend on what itself brings alone, and all together send the n - 1 wholes that have to arrive."""
    n, row = len(parts), COLLECTIVES["allgather"]
    brought = [Weight(0, 1, 0, share, 24) for share in shares(parts)]
    whole = Fraction(sum(parts), 24) * 512 * 512
    moved = [Fraction(0)] * n
    for step in range(n - 1):
        for member in range(n):
            moved[member] += brought[(member - step) % n].elements()
    assert row.size(brought, 0, total_elements) == whole
    assert row.sent(brought) == moved
    assert sum(moved) == (n - 1) * whole


@given(st.integers(2, 5), st.data())
def test_an_uneven_exchange_sends_what_leaves_and_takes_as_long_as_its_busiest_member(
    n: int, data: st.DataObject
) -> None:
    counts = [[data.draw(st.integers(0, 3)) for _ in range(n)] for _ in range(n)]
    row = COLLECTIVES["alltoall"]
    one = 512 * 256
    brought = [[Activation(0, 2, range(count), 3) for count in line] for line in counts]
    sent = [sum(line) - line[i] for i, line in enumerate(counts)]
    received = [sum(line[i] for line in counts) - counts[i][i] for i in range(n)]
    assert row.sent(brought) == [one * number for number in sent]
    assert busiest(row, row.size(brought, 0, total_elements), n) == one * max(*sent, *received)


@pytest.mark.parametrize("root", range(3))
def test_a_broadcast_is_as_large_as_what_its_root_brings(root: int) -> None:
    """And what the others bring, to be overwritten, has to be as large: else it would be a buffer for nothing."""
    shards = [Weight(0, 1, 0, [i], 3) for i in range(3)]
    row = COLLECTIVES["broadcast"]
    assert row.results(shards, root) == [shards[root]] * 3
    assert row.sent(shards, root) == [Fraction(2, 3) * Fraction(512 * 512, 3)] * 3
    for small in (Weight(0, 1, 0, [0], 10**6), Weight(0, 1, 0)):
        brought = [small if rank == (root + 1) % 3 else shard for rank, shard in enumerate(shards)]
        with pytest.raises(MismatchError) as caught:
            collective(row, [Member(rank, "broadcast", 0, value, root) for rank, value in enumerate(brought)])
        assert caught.value.ranks == (root, (root + 1) % 3)
        assert caught.value.expected == "a value of 87,381.33333 elements, to be overwritten by the root's"


def test_sizes_of_a_replay_are_those_that_it_says() -> None:
    row = COLLECTIVES["allgather"]
    assert row.sent([Weight(0, 1, 0, [i], 2) for i in range(2)], size=lambda values: 10 * len(values)) == [10, 10]


def members(*calls: tuple[str, int, Any]) -> list[Member]:
    return [Member(rank, op, layer, value, 0) for rank, (op, layer, value) in enumerate(calls)]


def meet(one: Member, other: Member) -> None:
    """Two that disagree: a collective asks `agree`, as is done before all have come."""
    with pytest.raises(MismatchError) as raised:
        collective(COLLECTIVES[one.op], [one, other])
    assert raised.value.ranks == (0, 1)
    assert raised.value.fact == Disagree(one, other)
    raise raised.value


def join(op: str, *values: Any, pair: tuple[int, int]) -> None:
    with pytest.raises(MismatchError) as raised:
        collective(COLLECTIVES[op], members(*((op, 0, value) for value in values)))
    assert raised.value.ranks == pair
    raise raised.value


HALF, OTHER = Weight(0, 2, 0, [0], 2), Weight(0, 2, 0, [1], 2)
test_members_that_do_not_go_together_are_shown_side_by_side = Said(__file__, "groups").test(
    lambda: {**globals(), "bring": bring}
)


def test_what_nobody_sums_is_nobodys_mismatch() -> None:
    with pytest.raises(RuleError) as raised:
        collective(COLLECTIVES["allreduce"], members(*[("allreduce", 0, HALF)] * 2))
    assert type(raised.value) is RuleError
    assert raised.value.what == "a weight cannot be summed"


def test_those_who_have_not_joined_yet_disagree_with_nobody() -> None:
    weight = Weight(0, 2, 0)
    one, two = members(("allgather", 0, weight), ("allgather", 0, weight))
    agree([None, one, None, two])
