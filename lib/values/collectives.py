"""The collectives, one row each: what members bring, what each gets, and how much moves.

A row defines a collective completely, except its replay kernel: the simulator, the check, the figures, the pictures and
the replay read its properties. No rule asks for a name; only advice and texts may.

Costs are those of ring algorithms (Patarasuk and Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002): with n members
and a whole tensor of S elements, one pass round the ring takes n - 1 messages of S/n elements from every member. NCCL
chooses between rings and trees by size; here sums and gathers always take the ring, so that paper is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from lib.errors.exceptions import RuleError
from lib.record import record, table
from lib.values import facts
from lib.values.dims import NAMES
from lib.values.laws import average, cut, gather, reduce, total_elements
from lib.values.placement import ONE_PIECE, Part, simplest
from lib.values.values import Elements, Value

Results = list[Any]
Size = Callable[[Sequence[Value]], Elements]
"""The size of some values together: in elements, or in the unit of a replay."""
Whole = Callable[[Sequence[Any], int, Size], Elements]
"""The size of a whole tensor, of what all members bring and the place of the root."""


# Rows are compared by identity: unused comparison methods would take a third of the time of their import.
@record(eq=False)
class Travel:
    """How data goes from member to member, in a number of `rounds`, one after the other.

    In each round the busiest link carries a `share` of the whole, and each member sends a number of `messages` whose
    latencies are on the critical path; both depend on the number of members. Data that goes `straight` from each
    member to each other uses only the links between the two.
    """

    rounds: int
    share: Callable[[int], Fraction | int]
    messages: Callable[[int], int]
    straight: bool = False


RING = Travel(1, lambda members: Fraction(members - 1, members), lambda members: members - 1)
"""Each of n parts goes past all members but one."""
# A reduce-scatter and then an all-gather: no all-reduce sends less (Patarasuk and Yuan 2009).
TWICE_ROUND = Travel(2, RING.share, RING.messages)
STRAIGHT = Travel(1, RING.share, RING.messages, straight=True)
# Pipelined in small pieces, so that length counts once and latency for each hop.
CHAIN = Travel(1, lambda members: min(members - 1, 1), lambda members: members - 1)
"""From one end to the other: the last byte travels the whole tensor's length over one link."""
NEIGHBOURS = Travel(1, lambda members: min(members - 1, 1), lambda members: min(members - 1, 2))
"""A message from each member to the one before it and to the one after it."""
STEP = Travel(1, lambda members: min(members - 1, 1), lambda members: min(members - 1, 1))
"""One message from each member to one other."""


def _nothing(*values: object) -> None:
    """Members of an exchange need not fit each other."""


@record(eq=False)
class Collective:
    """One collective.

    `name` is Model's method, `word` its short form in text and pictures, `arguments` what a student writes between the
    brackets.

    Each member brings a value; with `many`, a list with a value for each member (or for each of its `origins`); in a
    `bucket`, a list of values of any layers, of a length that all agree on.
    `law` takes the values of any number of members, and raises where they do not fit. All members get its result,
    unless `gives` maps what they bring, in group order, to what each gets: a value, a list of them, or None.
    `along`: the call may name a dim of a tensor, by its number, where others have a root. `root`: two phrases that
    describe the root rank, for messages: "the rank ..." and "the rank, by its own number, ...". `origins`: the members
    whose values are in the result of member i of n, None for all.

    `size` gives S, the size of the whole tensor; `pace`, where parts are unequal, the size of an evenly split tensor
    that would take the same time; `travel` is how it moves, and `sends` what each member sends, where that differs.
    An `in_place` collective writes over its input, so its output needs no memory of its own.
    """

    name: str
    word: str
    title: str
    arguments: str
    size: Whole
    travel: Travel = RING
    law: Callable[..., object] = _nothing
    gives: Callable[[Sequence[Any], int], Results] | None = None
    many: bool = False
    bucket: bool = False
    root: tuple[str, str] | None = None
    along: bool = False
    origins: Callable[[int, int, int], Iterable[int]] | None = None
    pace: Whole | None = None
    sends: Callable[[Sequence[Any], int, Size], list[Elements]] | None = None
    in_place: bool = False

    @property
    def signature(self) -> str:
        """Return the call as a student writes it."""
        return f"await model.{self.name}({self.arguments})"

    def results(self, values: Sequence[Any], said: int = 0) -> Results:
        """Return what each member gets, from what all bring and the argument of their calls (see `said`)."""
        return [self.law(*values)] * len(values) if self.gives is None else self.gives(values, said)

    def said(self, arg: Sequence[int]) -> int:
        """Return the number in the argument of its event: the place of its root, or a dim; 0 if there is neither."""
        return arg[0] if arg and (self.root or self.along) else 0

    def takes(self, place: int, members: int) -> int:
        """Return how many values the member at a place brings to a collective of `many` that is not a bucket."""
        return members if self.origins is None else sum(1 for _ in self.origins(place, members, 0))

    def brought(self, values: Sequence[Sequence[Value]]) -> list[Any]:
        """Return the values of each member, as the row takes them: one each, or a list."""
        return [mine if self.many else mine[0] for mine in values]

    def paced(self, values: Sequence[Any], root: int = 0) -> Elements:
        """Return the size of the whole that determines the time."""
        return (self.pace or self.size)(values, root, total_elements)

    def sent(self, values: Sequence[Any], root: int = 0, size: Size = total_elements) -> list[Elements]:
        """Return what each member sends, from what all bring: in a ring the same for all, on average."""
        if self.sends is not None:
            return self.sends(values, root, size)
        members = len(values)
        return [self.travel.rounds * Fraction(members - 1, members) * self.size(values, root, size)] * members

    def messages(self, members: int) -> int:
        """Return how many of each member's messages have latencies on the critical path."""
        return self.travel.rounds * self.travel.messages(members)

    def pairs(self, values: Sequence[Any], root: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs of members between which the law may be broken, in order: few, however many members."""
        if self.root and self.origins is not None:  # the others only have to fit the root's value
            yield from ((root, other) for other in range(len(values)) if other != root)
            return
        # First those that share something: two members of a grid may differ in all dims, and fit.
        owners: dict[object, int] = {}
        shared: set[tuple[int, int]] = set()
        apart = _APART.get(self.law)
        for place, value in enumerate(values):
            for item in apart(value) if apart else ():
                owner = owners.setdefault(item, place)
                if owner != place:
                    shared.add((owner, place))
        # In the order of the group, so that messages are the same in every run.
        yield from sorted(shared)
        yield from ((0, other) for other in range(1, len(values)))


def values_in(result: Any) -> list[Value]:
    """Return the values of what a member gets: one, several or none."""
    return [result] if isinstance(result, Value) else [*(result or ())]


def _bucket_sum(*buckets: Sequence[Value]) -> list[Value]:
    """Return the sums of the first values of all buckets, of the second ones, and so on."""
    first = buckets[0]
    for bucket in buckets[1:]:
        # Real buckets are flat buffers, which would silently add gradients of two layers.
        if len(bucket) != len(first):
            raise RuleError(facts.OtherBucket(len(first), len(bucket)))
    return [reduce(*values) for values in zip(*buckets, strict=True)]


def _scattered(values: Sequence[Any], dim: int) -> Results:
    # Dim 0 of NAMES is not a dim: cut where classic values are cut.
    total, role = reduce(*values), NAMES[dim] or None
    return [cut(total, i, len(values), role) for i in range(len(values))]


def _transposed(values: Sequence[Sequence[Value]], root: int) -> Results:
    return [[row[i] for row in values] for i in range(len(values))]


def _broadcast(values: Sequence[Any], root: int) -> Results:
    """Give all members what the root brings. It overwrites what others bring, so that has to be as large."""
    # torch.distributed.broadcast receives into a tensor of the caller's, which has to fit.
    _as_large(values[root], *values)
    return [values[root]] * len(values)


def _as_large(first: Value, *others: Value) -> None:
    for value in others:
        if value.elements() != first.elements():
            raise RuleError(facts.NotSized(value, first))


def _halo(values: Sequence[Sequence[Value]], root: int) -> Results:
    # Ends of a line, and no ring: a grid does not wrap round, so the outer members have one neighbour.
    after, before = [one[-1:] for one in values[:-1]], [one[:1] for one in values[1:]]
    pairs = zip(([], *after), (*before, []), strict=True)
    return [[*left, *right] for left, right in pairs]


def _cells(parts: Sequence[Part]) -> Iterable[tuple[int, ...]]:
    """Yield the cells of all parts; a part that is whole, except the first, counts as one piece."""
    return product(*[ONE_PIECE if at and part.whole else part.pieces for at, part in enumerate(parts)])


def _summed(value: Any) -> Iterable[tuple[int, ...]]:
    """Yield what is in a sum: batches and rows of a gradient, terms of a partial sum."""
    return _cells(value.place.sums)


_APART: dict[Callable[..., object], Callable[[Any], Iterable[object]]] = {
    gather: lambda value: _cells(value.place.dims),
    reduce: _summed,
    average: _summed,
    _bucket_sum: lambda bucket: ((at, batch) for at, value in enumerate(bucket) for batch in value.place.batches),
}
"""By law, what no two members may have in common: the pieces along which values are gathered, or added up."""


def _first(values: Sequence[Any], root: int, size: Size) -> Elements:
    return size(values[:1])


def _first_alone(values: Sequence[Any], root: int, size: Size) -> Elements:
    """Return the size of the first value, without what accompanies a part of a sum."""
    # `average` takes only means over equally many points, so their counts are not sent, unlike in SyncBatchNorm.
    return simplest(Fraction(size(values[:1])) / (1 + values[0].place.schema.running))


def _largest(values: Sequence[Any], root: int, size: Size) -> Elements:
    return max(size([value]) for value in values)


def _padded(values: Sequence[Any], root: int, size: Size) -> Elements:
    """Return the even whole that takes as long: in each step of a ring all wait for the largest part."""
    return len(values) * _largest(values, root, size)


def _exchanged(values: Sequence[Sequence[Value]], root: int, size: Size) -> Elements:
    """Return the even exchange that takes as long: the busiest member sends or receives (n - 1)/n of it."""
    members = len(values)
    if members == 1:
        return size(values[0])
    most: Elements = 0
    for i, row in enumerate(values):
        column = [value for other in values for value in other[i : i + 1]]
        # Full duplex: sending and receiving happen at once, so the larger one counts. The own piece stays.
        most = max(most, max(size(row), size(column)) - size(row[i : i + 1]))
    # Undoes the (n - 1)/n that a link carries of a whole, so that the time is that of the busiest member.
    return simplest(Fraction(members, members - 1) * most)


def _padded_pieces(values: Sequence[Sequence[Value]], root: int, size: Size) -> Elements:
    """Return the even exchange in which each piece has the size of the largest."""
    return len(values) * _largest([value for row in values for value in row], root, size)


def _all_but_the_next(values: Sequence[Any], root: int, size: Size) -> list[Elements]:
    """Return what each member of a ring sends: its own part, and all others except its successor's."""
    whole = size(values)
    return [whole - size([value]) for value in (*values[1:], values[0])]


COLLECTIVES = table(
    (
        Collective("allreduce", "AR", "all-reduce", "gradient, layer", _first, TWICE_ROUND, reduce, in_place=True),
        # DDP's buckets: many small gradients pay the latency of one call (Li et al. 2020).
        Collective(
            "allreduce_bucket", "BA", "bucketed all-reduce", "gradients", lambda values, root, size: size(values[0]),
            TWICE_ROUND, _bucket_sum, many=True, bucket=True, in_place=True,
        ),
        Collective(
            "allgather", "AG", "all-gather", "shard, layer", lambda values, root, size: size(values), RING, gather,
            pace=_padded, sends=_all_but_the_next,
        ),
        Collective(
            "scatterreduce", "RS", "reduce-scatter", "gradient, layer", _first, RING, reduce, _scattered, along=True
        ),
        Collective(
            "alltoall", "AA", "all-to-all", "values, layer", _exchanged, STRAIGHT, gives=_transposed, many=True,
            sends=lambda values, root, size: [size(row) - size(row[i : i + 1]) for i, row in enumerate(values)],
        ),
        Collective(
            "broadcast", "BC", "broadcast", "value, layer, root",
            lambda values, root, size: size(values[root : root + 1]), CHAIN, _as_large, _broadcast,
            root=("whose value everybody gets", "that has what all others get"),
            # The others' values are overwritten, and so are their flaws.
            origins=lambda member, members, root: (root,), in_place=True,
        ),
        # A step of ring attention (Liu et al. 2023): blocks that go round need not fit each other.
        Collective(
            "shift", "SH", "shift", "value, layer", _largest, STEP,
            gives=lambda values, root: [values[i - 1] for i in range(len(values))],  # of the first the last: a ring
            origins=lambda member, members, root: ((member - 1) % members,),
            sends=lambda values, root, size: [size([value]) if len(values) > 1 else 0 for value in values],
        ),
        # NCCL's all-gather takes parts of one size only, so uneven shards are padded to the largest.
        Collective("allgather_padded", "GP", "padded all-gather", "shard, layer", _padded, RING, gather),
        # Slots of an expert that no token takes travel as well, as with GShard's fixed capacity (Lepikhin et al. 2020).
        Collective(
            "alltoall_padded", "AP", "padded all-to-all", "values, layer", _padded_pieces, STRAIGHT,
            gives=_transposed, many=True,
        ),
        Collective(
            "halo", "HX", "halo exchange", "edges, layer",
            lambda values, root, size: max(map(size, (*values, *_halo(values, root)))),  # that of the busiest member
            NEIGHBOURS, gives=_halo, many=True,
            origins=lambda member, members, root: [one for one in (member - 1, member + 1) if 0 <= one < members],
            sends=lambda values, root, size: [*map(size, values)],
        ),
        # Means of parts of a grid, as a norm needs them: averaging is right only where all parts are equally large.
        Collective("allreduce_mean", "AM", "averaging all-reduce", "mean, layer", _first_alone, TWICE_ROUND, average),
    )
)  # fmt: skip


def title(op: str) -> str:
    """Return the name of an operation in a sentence: "all-gather"; other names are unchanged."""
    return COLLECTIVES[op].title if op in COLLECTIVES else op
