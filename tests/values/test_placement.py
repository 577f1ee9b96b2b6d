"""Places: the laws of sets on parts of a dim, at a price that does not grow with what it is cut into; one object for
each, tables that end with the step, and what a law accepts can be said by one place."""

import gc
import json
from dataclasses import FrozenInstanceError
from fractions import Fraction
from math import lcm
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lib
from lib import Activation, ActivationGrad, Model, Weight, WeightGrad, check, simulate
from lib.errors.wording import runs
from lib.trace.rebuild import rebuild
from lib.trace.validation import MAX_COUNT
from lib.values import rules
from lib.values.dims import RunSet, united
from lib.values.kinds.attention import Causal
from lib.values.kinds.kind import PRICED
from lib.values.laws import cut, gather, reduce
from lib.values.layers import Layer, Shape, by_hand, layer_from
from lib.values.placement import MOST, MOST_KEPT, Dim, Owners, Part, Schema, held_together, keep, union
from tests.support.said import Said

GRIDS = st.sampled_from([1, 2, 3, 4])
COMMON = lcm(*range(1, 13))
DIM = Dim("in", 60)
pieces = st.integers(1, 12).flatmap(lambda total: st.tuples(st.frozensets(st.integers(0, total - 1)), st.just(total)))
some = st.lists(pieces, min_size=1, max_size=4)


def part(shards: Any, total: int) -> Part:
    return DIM.piece(total, frozenset(shards))


def together(of: list[tuple[frozenset[int], int]]) -> Part:
    return union([part(*one) for one in of])


def enumerated(*of: tuple[frozenset[int], int]) -> set[int]:
    """The same parts, each of them written down."""
    return {shard * (COMMON // total) + i for shards, total in of for shard in shards for i in range(COMMON // total)}


@given(some, some)
def test_parts_are_sets(left: Any, right: Any) -> None:
    a, b = together(left), together(right)
    mine, theirs = enumerated(*left), enumerated(*right)
    assert a.size * COMMON == len(mine) * DIM.size
    assert union([a, b]).size * COMMON == len(mine | theirs) * DIM.size
    assert a.minus(b).size * COMMON == len(mine - theirs) * DIM.size
    assert b.covers(a) == (mine <= theirs)
    assert a.meets(b) == bool(mine & theirs)
    assert a.whole == (len(mine) == COMMON)
    assert DIM.whole.minus(a).shards(COMMON) == runs(set(range(COMMON)) - mine)


@given(pieces, pieces)
def test_pieces_of_grids_are_the_ranges_that_they_cover(left: Any, right: Any) -> None:
    """Whatever a part knows of its grid is the same as what its ranges say."""
    a, b = part(*left), part(*right)
    bare, other = DIM.part(*a.ranges), DIM.part(*b.ranges)
    assert (a.size, a.whole) == (bare.size, bare.whole)
    assert a.covers(b) == bare.covers(other) == a.covers(other)
    assert a.meets(b) == bare.meets(other) == a.meets(other)
    assert a.same(b) == (left == right)
    assert bare.same(other) == (enumerated(left) == enumerated(right))


def test_what_touches_is_one_and_what_is_empty_is_nothing() -> None:
    assert DIM.part((0, 1), (1, 2)).ranges == ((0, 2),)
    assert DIM.part((1, 1), (2, 2)).ranges == ()
    assert DIM.part().size == 0
    assert DIM.part((0, 30), (30, 60)).whole


def test_ends_are_exact_and_whole_numbers_where_they_are() -> None:
    assert part([1], 4).ranges == ((15, 30),)
    assert part([0, 1, 5], 7).ranges == ((0, Fraction(120, 7)), (Fraction(300, 7), Fraction(360, 7)))
    assert type(part([0], 4).size) is int
    assert part([0], 7).size == Fraction(60, 7)


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=3), max_size=12), st.booleans())
def test_the_first_owner_is_the_first_that_overlaps_whoever_it_is(
    owners: list[list[tuple[int, int]]], numbers: bool
) -> None:
    """A number, 0 too, or something that cannot even be compared."""
    known: Owners[object] = Owners()
    before: list[tuple[object, set[int]]] = []
    for number, parts in enumerate(owners):
        owner = number if numbers else object()
        ranges = Dim("rows", 40).part(*[(low, low + length) for low, length in parts]).ranges
        mine = {point for low, high in ranges for point in range(int(low), int(high))}
        first = next((other for other, theirs in before if mine & theirs), None)
        assert known.add(ranges, owner) is first
        before.append((owner, mine))


@pytest.mark.parametrize("runs", [20, 21])
def test_twenty_runs_are_listed(runs: int) -> None:
    many = part(range(0, 2 * runs, 2), 100)
    more = runs > 20
    numbers = ", ".join(str(number) for number in range(0, 40, 2)) + (", ..." if more else "")
    assert many.words(100) == f"shards {numbers} of 100"
    parts = [f"from {Fraction(low, 100)} to {Fraction(low + 1, 100)}" for low in range(0, 40, 2)]
    assert many.words(7) == " and ".join(parts) + (" and more" if more else "")


def test_two_coprime_numbers_of_shards_are_no_work() -> None:
    a, b = Weight(0, 1, 0, [0], 10**6).place, Weight(0, 1, 0, [1], 999_983).place
    assert not a.covers(b)
    together = union([a.first, b.first])
    assert Fraction(together.size, together.dim.size) == Fraction(1, 10**6) + Fraction(1, 999_983)


grids = st.integers(1, 12)


def step(batches: int = 4) -> Shape:
    return Shape(2, batches)


@given(grids, st.data())
def test_what_a_shape_cuts_apart_it_gathers_to_the_same_object(total: int, data: st.DataObject) -> None:
    weight, _ = rules.load_weights(step(), 0, 0, 1)
    pieces = [cut(weight, i, total) for i in range(total)]
    shuffled = data.draw(st.permutations(pieces))
    split = data.draw(st.integers(0, total - 1))
    left, right = shuffled[:split], shuffled[split:]
    again = gather(*shuffled)
    assert again.place.complete
    assert again.elements() == weight.elements()
    assert again.place is (gather(gather(*left), gather(*right)) if left else gather(*right)).place
    assert [cut(again, i, total).place for i in range(total)] == [piece.place for piece in pieces]


@given(st.permutations(range(6)), st.integers(1, 5))
def test_a_sum_is_one_object_in_whatever_order_it_is_made(order: list[int], split: int) -> None:
    shape = step(6)
    grads = [rules.fake_grad(shape, 0, [batch]) for batch in range(6)]
    mixed = [grads[batch] for batch in order]
    whole = reduce(*grads)
    assert reduce(*mixed).place is whole.place
    assert reduce(reduce(*mixed[:split]), reduce(*mixed[split:])).place is whole.place
    assert whole.place.elements == grads[0].place.elements
    assert whole.place.sums[1].whole


def test_equal_places_of_one_step_are_one_object_and_of_two_steps_the_same() -> None:
    one, other = step(), step()
    for shape in (one, other):
        a, b = rules.load_weights(shape, 0, 1, 4), rules.load_weights(shape, 1, 1, 4)
        assert a[0].place is a[1].place is b[0].place
        grad = reduce(*[rules.fake_grad(shape, 0, [batch]) for batch in range(4)])
        assert cut(grad, 1, 4).place.first is a[0].place.first
    mine, theirs = (rules.get_activation(shape, [0, 2]) for shape in (one, other))
    assert mine.place is not theirs.place
    assert mine.place.same(theirs.place)
    assert mine == theirs == Activation(0, 2, [0, 2], 4)
    assert hash(mine) == hash(theirs)
    grad = ActivationGrad(0, 2, [0, 2], 4)
    assert rules.backward(one, 0, mine, grad, Weight(0, 2, 0))[0] == WeightGrad(0, 2, [0, 2], 4)


def test_other_sizes_are_another_place() -> None:
    small, large = (Shape(2, 4, Layer(inputs=n, outputs=n)) for n in (8, 512))
    one, other = (rules.load_weights(shape, 0, 1, 4)[0] for shape in (small, large))
    assert one.elements() == 16
    assert other.elements() == PRICED.weight // 4
    assert not one.place.same(other.place)
    assert one != other
    assert rules.get_activation(small, [1, 2]).elements() == 2 * 256 * 8


def test_a_place_does_not_change() -> None:
    place: Any = Weight(0, 1, 0).place
    for thing in (place, place.first, place.first.dim, place.schema, by_hand()):
        for name in type(thing).__annotations__:
            with pytest.raises(FrozenInstanceError):
                setattr(thing, name, 1)
            with pytest.raises(FrozenInstanceError):
                delattr(thing, name)
        with pytest.raises((AttributeError, TypeError)):
            thing.another = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_a_place_shows_its_parts_and_what_is_open() -> None:
    assert repr(WeightGrad(0, 1, [0, 2], 4, [1], 2).place) == "<in 256:512; out all | batch 0:1,2:3; rows all>"
    assert repr(Activation(0, 1, [], 4).place) == "<batch none; rows all; features all | terms all>"


def test_the_places_of_a_step_go_with_the_step() -> None:
    """A grader checks thousands of runs in one process."""

    def live() -> int:
        gc.collect()
        return sum(type(thing) in (Dim, Part, Schema) for thing in gc.get_objects())

    async def program(model: Model) -> None:
        weight, state = model.load_weights(0, model.rank, model.RANKS)
        whole = await model.allgather(weight, 0)
        x = model.get_activation([model.rank])
        grad, _ = model.backward(0, x, model.loss(model.forward(0, x, whole)), whole)
        grad = await model.scatterreduce(grad, 0)
        model.set_final_weight(0, model.update(0, grad, weight, state)[0])

    def run(ranks: int) -> None:
        assert check(simulate(program, ranks=ranks, layers=1, batches=ranks)[0].trace).correct

    run(3)
    before = live()
    for ranks in range(2, 6):
        run(ranks)
    assert live() == before


def test_what_is_made_by_hand_fills_no_memory() -> None:
    for number in range(200):
        Activation(0, 1, [number], number + 1)
    kept = by_hand.cache_info()
    assert kept.maxsize is not None
    assert kept.currsize <= kept.maxsize == 16
    table: dict[int, int] = {}
    for number in range(MOST_KEPT + 10):
        keep(table, number, number)
    assert len(table) == 10


CONVOLUTION = Layer("convolution", 4, 6, 16, kernel=3, stride=2, dilation=2, padding=1)
EXPERTS = [
    Layer("dispatch", experts=4, route=((0, 1),), capacity=9, groups=(4,)),
    Layer("experts", experts=4),
    Layer("combine"),
]


def test_a_description_reads_back() -> None:
    for layer in (PRICED, Layer("linear", 8, 8, 3), CONVOLUTION, *EXPERTS):
        assert layer_from(json.loads(json.dumps(layer.to_json()))) == layer


test_a_description_that_there_cannot_be_is_refused = Said(__file__, "layers").test(
    lambda: {**globals(), "lib": lib, "load_weights": rules.load_weights}
)


def test_layers_that_are_alike_are_one_with_one_table_of_places() -> None:
    kinds = Shape(8, 1, [PRICED, Layer("attention", heads=4)] * 4).kinds
    assert [kinds.index(kind) for kind in kinds] == [0, 1, 2, 1, 2, 1, 2, 7]  # data are no sum, nor what the loss takes


def test_a_file_holds_as_many_shards_as_a_call_may_name() -> None:
    assert MOST == MAX_COUNT


def test_many_shards_on_one_rank_are_found_by_bisection() -> None:
    total = 4000

    def many(model: Model) -> None:
        for shard in range(total):
            model.set_final_weight(0, model.load_weights(0, shard, total)[0])

    rebuilt = rebuild(simulate(many, layers=1)[0].trace)
    assert not rebuilt.flaws


def test_a_mistake_between_the_last_of_many_members_is_found_at_once() -> None:
    ranks = 1500

    async def same(model: Model) -> None:
        weight, _ = model.load_weights(0, min(model.rank, ranks - 2), ranks)
        await model.allgather(weight, 0)

    with pytest.raises(AssertionError) as raised:
        simulate(same, ranks=ranks, layers=1)
    assert raised.value.ranks == (ranks - 2, ranks - 1)  # type: ignore[attr-defined]


boxes = st.lists(
    st.tuples(GRIDS, st.sets(st.integers(0, 3)), GRIDS, st.sets(st.integers(0, 3))), min_size=1, max_size=5
)


@given(boxes, st.sets(st.integers(0, 3), min_size=1))
def test_of_places_cut_along_two_dims_only_whole_rows_count(cuts: Any, wanted: set[int]) -> None:
    """A row is held where its every wanted column is: against sets of cells."""
    rows, columns = Dim("in", 12), Dim("out", 12)
    schema, cells, places = Schema((rows, columns)), set[tuple[int, int]](), []
    for down, shards, across, some_columns in cuts:
        mine = [frozenset(n for n in named if n < grid) for named, grid in ((shards, down), (some_columns, across))]
        places.append(schema.place(rows.piece(down, mine[0]), columns.piece(across, mine[1])))
        cells |= {
            (i, j) for i in range(12) if i * down // 12 in mine[0] for j in range(12) if j * across // 12 in mine[1]
        }
    rest = columns.piece(4, frozenset(wanted))
    here = [i for i in range(12) if all((i, j) in cells for j in range(12) if j // 3 in wanted)]
    assert held_together(places, [rest]).ranges == tuple(runs(here))


numbers = st.frozensets(st.integers(0, 30))


@given(numbers, numbers, st.integers(0, 30), st.integers(0, 30))
def test_a_set_by_its_runs_is_a_set(one: frozenset[int], other: frozenset[int], low: int, high: int) -> None:
    mine, its = RunSet.of(one), RunSet.of(other)
    assert (frozenset(mine), len(mine), mine == one, RunSet.of(mine)) == (one, len(one), True, mine)
    assert [mine & its, united([mine, its])] == [one & other, one | other]
    assert [mine <= its, mine == its, mine.isdisjoint(its)] == [one <= other, one == other, one.isdisjoint(other)]
    assert (low in mine, hash(RunSet.of(list(one)))) == (low in one, hash(mine))
    assert mine.nth(low, high) == frozenset(sorted(one)[low:high])
    causal = Causal()
    assert causal.pairs(mine, its) == sum(key <= row for row in one for key in other)
    assert causal.needed(mine) == frozenset(range(max(one, default=-1) + 1))
