"""Parts of a weight as intervals: the laws of sets, at a price that does not grow with what it is cut into."""

from __future__ import annotations

import json
from fractions import Fraction
from math import lcm
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Model, check, simulate
from lib.checker.final_weights import finals
from lib.errors.wording import runs
from lib.trace.json_format import encode
from lib.trace.rebuild import rebuild
from lib.trace.validation import MAX_COUNT, decode
from lib.values.regions import MOST, NOTHING, WHOLE, Owners, Region, listed
from lib.values.values import Weight, covers, overlap, region

pieces = st.integers(1, 12).flatmap(lambda total: st.tuples(st.frozensets(st.integers(0, total - 1)), st.just(total)))
some = st.lists(pieces, max_size=4)
COMMON = lcm(*range(1, 13))


def enumerated(*of: tuple[frozenset[int], int]) -> set[int]:
    """The same parts, each of them written down."""
    return {shard * (COMMON // total) + i for shards, total in of for shard in shards for i in range(COMMON // total)}


@given(some, some)
def test_regions_are_sets(left: Any, right: Any) -> None:
    a, b = Region.of(*left), Region.of(*right)
    mine, theirs = enumerated(*left), enumerated(*right)
    assert a.size() == Fraction(len(mine), COMMON)
    assert (a | b).size() * COMMON == len(mine | theirs)
    assert (a - b).size() * COMMON == len(mine - theirs)
    assert (a <= b) == (mine <= theirs)
    assert a.meets(b) == bool(mine & theirs)
    assert (a == b) == (mine == theirs)
    assert bool(a) == bool(mine)
    assert (WHOLE - a).shards(COMMON) == runs(set(range(COMMON)) - mine)


@given(st.frozensets(st.integers(0, 40)))
def test_runs_read_back(items: frozenset[int]) -> None:
    assert [n for low, high in runs(items) for n in range(low, high)] == sorted(items)


def test_what_touches_is_one_and_what_is_empty_is_nothing() -> None:
    assert Region([(0, 1), (1, 2)]).intervals == ((0, 2),)
    assert Region([(1, 1), (2, 2)]) == NOTHING
    assert not Region([(1, 1)])


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), max_size=3), max_size=12))
def test_an_owner_of_several_parts_is_whoever_it_is(owners: list[list[tuple[int, int]]]) -> None:
    """Neither a number nor anything that can be compared."""
    known: Owners[object] = Owners()
    before: list[tuple[object, set[int]]] = []
    for parts in owners:
        owner, region = object(), Region([(low, low + length) for low, length in parts])
        mine = {point for low, high in region.intervals for point in range(int(low), int(high))}
        first = next((other for other, theirs in before if mine & theirs), None)
        assert known.add(region.intervals, owner) is first
        before.append((owner, mine))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=12))
def test_the_first_owner_is_the_first_that_overlaps(spans: list[tuple[int, int]]) -> None:
    owners: Owners[int] = Owners()
    before: list[set[int]] = []
    for number, (low, length) in enumerate(spans):
        mine = set(range(low, low + length))
        expected = next((i for i, theirs in enumerate(before) if mine & theirs), None)
        assert owners.add([(low, low + length)], number) == expected
        before.append(mine)


@pytest.mark.parametrize(
    ("of", "total", "words"),
    [
        (([3], 4), 4, "shard 3 of 4"),
        (([2, 3], 4), 4, "shards 2 and 3 of 4"),
        (([0, 1, 2, 5], 8), 8, "shards 0-2, 5 of 8"),
        (([0], 3), 4, "from 0 to 1/3"),
    ],
)
def test_the_words_for_a_region(of: Any, total: int, words: str) -> None:
    assert Region.of((frozenset(of[0]), of[1])).words(total) == words


def test_a_long_list_of_runs_ends() -> None:
    assert listed([(n, n + 1) for n in range(0, 100, 2)]).endswith(", 38, ...")
    assert NOTHING.words(4) == "shards  of 4"


def test_a_region_is_made_of_shards_only_where_both_its_ends_are() -> None:
    first, second = Region.of(({0}, 2)), Region.of(({1}, 2))
    assert (first.shards(3), second.shards(3)) == (None, None)
    assert (first.shards(4), second.shards(4)) == ([(0, 2)], [(2, 4)])
    assert (WHOLE.shards(1), WHOLE.shards(0)) == ([(0, 1)], None)


@pytest.mark.parametrize("runs", [20, 21])
def test_twenty_runs_are_listed(runs: int) -> None:
    region = Region.of((frozenset(range(0, 2 * runs, 2)), 100))
    more = runs > 20
    numbers = ", ".join(str(number) for number in range(0, 40, 2)) + (", ..." if more else "")
    assert region.words(100) == f"shards {numbers} of 100"
    parts = [f"from {Fraction(low, 100)} to {Fraction(low + 1, 100)}" for low in range(0, 40, 2)]
    assert region.words(7) == " and ".join(parts) + (" and more" if more else "")


def test_two_coprime_numbers_of_shards_are_no_work() -> None:
    a, b = Weight(0, 1, 0, [0], 10**6), Weight(0, 1, 0, [1], 999_983)
    assert not overlap(a, b)
    assert not covers(a, b)
    assert (region(a, b)).size() == Fraction(1, 10**6) + Fraction(1, 999_983)


def test_a_file_holds_as_many_shards_as_a_call_may_name() -> None:
    assert MOST == MAX_COUNT


def hand_in(*of: tuple[int, int]) -> Any:
    """Each rank hands in the shards that it names, updated."""

    async def function(model: Model) -> None:
        shard, total = of[model.rank]
        weight, state = model.load_weights(0, shard, total)
        x = model.get_activation([0])
        whole, _ = model.load_weights(0)
        grad, _ = model.backward(0, x, model.loss(model.forward(0, x, whole)), whole)
        model.set_final_weight(0, model.update(0, grad, weight, state)[0])

    return function


@pytest.mark.parametrize(
    ("of", "first_line"),
    [
        ([(0, 2), (0, 3)], "are not complete: shards 3-5 of 6 are on no rank"),
        ([(0, 2), (3, 4)], "are not complete: shard 2 of 4 is on no rank"),
        ([(0, 1000), (1, 999_983)], "are not complete: shards 1-999 of 1000 are on no rank"),
        ([(0, 10**6), (1, 999_983)], "the part of the weight from 1/1000000 to 1/999983 and from 2/999983 to 1 is on"),
    ],
)
def test_what_no_rank_has_is_told_in_small_numbers(of: list[tuple[int, int]], first_line: str) -> None:
    trace = simulate(hand_in(*of), ranks=2, layers=1)[0].trace
    (fault,) = (one for one in check(trace).faults if "not complete" in one)
    assert first_line in fault


def test_a_thousand_bytes_of_file_are_a_small_check() -> None:
    """Two coprime numbers of shards in a file made 10**12 parts."""
    trace = simulate(hand_in((0, 2), (1, 3)), ranks=2, layers=1)[0].trace
    text = json.dumps(encode(trace)).replace('"0", 2', '"0", 999983').replace('"1", 3', '"1", 1000000')
    text = text.replace("[0, 2]", "[0, 999983]").replace("[1, 3]", "[1, 1000000]")
    run = decode(json.loads(text))
    assert run.programs[1].events[0].arg == (1, 10**6)
    (fault,) = finals(run, rebuild(run), False)[-1:]
    assert "shards 2-999999 of 1000000 are on no rank" in fault


def test_many_shards_on_one_rank_are_found_by_bisection() -> None:
    total = 20_000

    def many(model: Model) -> None:
        for shard in range(total):
            model.set_final_weight(0, model.load_weights(0, shard, total)[0])

    rebuilt = rebuild(simulate(many, layers=1)[0].trace)
    assert not rebuilt.flaws


def test_a_shard_that_is_loaded_in_two_sizes_is_loaded_twice() -> None:
    def twice(model: Model) -> None:
        for shard, total in ((0, 4), (3, 4), (1, 2)):
            model.set_final_weight(0, model.load_weights(0, shard, total)[0])

    (flaw,) = rebuild(simulate(twice, layers=1)[0].trace).flaws.values()
    assert flaw.what.startswith("the weight of layer 0 was loaded a second time")
    assert flaw.event.arg == (1, 2)


def test_a_mistake_between_the_last_of_many_members_is_found_at_once() -> None:
    ranks = 1500

    async def same(model: Model) -> None:
        weight, _ = model.load_weights(0, min(model.rank, ranks - 2), ranks)
        await model.allgather(weight, 0)

    with pytest.raises(AssertionError) as raised:
        simulate(same, ranks=ranks, layers=1)
    assert raised.value.ranks == (ranks - 2, ranks - 1)  # type: ignore[attr-defined]
