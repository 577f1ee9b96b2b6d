"""The collectives, one row each: what members bring, what each gets, and how much moves.

A row is all there is to a collective: the simulator, the check, the figures and the replay read this table. Costs are
those of ring algorithms (Patarasuk and Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002): with n members and a
whole tensor of S elements, one pass round the ring takes n - 1 messages of S/n elements from every member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from lib.errors.exceptions import RuleError
from lib.errors.wording import amount
from lib.values.table import Table
from lib.values.values import Elements, Value, cut, describe, gather, reduce, renew, total_elements

__all__ = ["COLLECTIVES", "Collective", "title"]

Results = list[Any]
Size = Callable[[Sequence[Value]], Elements]
"""How large some values are together: in elements, or in whatever a replay makes of them."""


class Collective(NamedTuple):
    """One collective.

    `name` is Model's method, `word` its short form in text and pictures, `signature` how a student writes it. `results`
    maps what the members brought, in group order, to what each member gets. `whole` gives S, the size of the whole
    tensor. `rounds` is how often the data goes round the ring. An `in_place` collective writes over its input, so that
    its output needs no memory of its own. `law` says what it does to values: reduce, gather, exchange or copy.

    What the members bring is a value each, or for an exchange a list of values each.
    """

    name: str
    word: str
    title: str
    signature: str
    results: Callable[[Sequence[Any], int], Results]
    whole: Callable[[Sequence[Any], int, Size], Elements]
    rounds: int
    in_place: bool
    law: str

    def brought(self, values: Sequence[Sequence[Value]]) -> list[Any]:
        """The values of each member, as the row takes them: one each, or for an exchange all of them."""
        return [mine if self.law == "exchange" else mine[0] for mine in values]

    def size(self, values: Sequence[Any], root: int = 0, size: Size = total_elements) -> Elements:
        """S, the size of the whole tensor, of what all members bring: what the time depends on."""
        return self.whole(values, root, size)

    def sent(self, values: Sequence[Any], root: int = 0, size: Size = total_elements) -> list[Elements]:
        """What each member sends, of what all members bring. In a ring all send the same, on the average.

        In an exchange that is everything but what a member keeps for itself.
        """
        members = len(values)
        if self.law == "exchange":
            return [size(row) - size(row[i : i + 1]) for i, row in enumerate(values)]
        return [self.rounds * Fraction(members - 1, members) * self.whole(values, root, size)] * members

    def busiest(self, whole: Elements, members: int) -> Elements:
        """What the busiest link carries, of a whole of that size: the last byte of a broadcast travels the whole
        tensor's length over one link, in the others a link carries (n - 1)/n of it in each round."""
        if self.law == "copy":
            return whole if members > 1 else 0
        return self.rounds * Fraction(members - 1, members) * whole

    def messages(self, members: int) -> int:
        """Messages that each member sends, the latencies on the critical path."""
        return self.rounds * (members - 1)


def _all_reduce(values: Sequence[Any], root: int) -> Results:
    total = reduce(*values)
    return [renew(total) for _ in values]


def _all_gather(values: Sequence[Any], root: int) -> Results:
    whole = gather(*values)
    return [renew(whole) for _ in values]


def _reduce_scatter(values: Sequence[Any], root: int) -> Results:
    total = reduce(*values)
    return [cut(total, i, len(values)) for i in range(len(values))]


def _all_to_all(values: Sequence[Sequence[Value]], root: int) -> Results:
    return [[renew(row[i]) for row in values] for i in range(len(values))]


def _broadcast(values: Sequence[Any], root: int) -> Results:
    """What others bring is overwritten by what the root brings, so it has to be as large."""
    elements = values[root].elements()
    for value in values:
        if value.elements() != elements:
            raise RuleError(
                "what a member brings is not as large as what the root brings",
                expected=f"a value of {amount(elements)} elements, to be overwritten by the root's",
                got=f"{describe(value)}: {amount(value.elements())} elements",
                fix="bring the value that the root's replaces, of the same shape: the old weight for a new one",
            )
    return [renew(values[root]) for _ in values]


def _first(values: Sequence[Any], root: int, size: Size) -> Elements:
    return size(values[:1])


def _sum(values: Sequence[Any], root: int, size: Size) -> Elements:
    return size(values)


def _rows(values: Sequence[Sequence[Value]], root: int, size: Size) -> Elements:
    """The even exchange that takes as long: the busiest member sends or receives (n - 1)/n of it."""
    members = len(values)
    if members == 1:
        return size(values[0])
    most: Elements = 0
    for i, row in enumerate(values):
        column = [value for other in values for value in other[i : i + 1]]
        own = size(row[i : i + 1])
        most = max(most, size(row) - own, size(column) - own)
    whole = Fraction(members, members - 1) * most
    return whole.numerator if whole.denominator == 1 else whole


def _root(values: Sequence[Any], root: int, size: Size) -> Elements:
    return size(values[root : root + 1])


COLLECTIVES = Table(
    (
        Collective(
            "allreduce",
            "AR",
            "all-reduce",
            "await model.allreduce(gradient, layer)",
            _all_reduce,
            _first,
            2,
            True,
            "reduce",
        ),
        Collective(
            "allgather",
            "AG",
            "all-gather",
            "await model.allgather(shard, layer)",
            _all_gather,
            _sum,
            1,
            False,
            "gather",
        ),
        Collective(
            "scatterreduce",
            "RS",
            "reduce-scatter",
            "await model.scatterreduce(gradient, layer)",
            _reduce_scatter,
            _first,
            1,
            False,
            "reduce",
        ),
        Collective(
            "alltoall",
            "AA",
            "all-to-all",
            "await model.alltoall(values, layer)",
            _all_to_all,
            _rows,
            1,
            False,
            "exchange",
        ),
        Collective(
            "broadcast",
            "BC",
            "broadcast",
            "await model.broadcast(value, layer, root)",
            _broadcast,
            _root,
            1,
            True,
            "copy",
        ),
    )
)


def title(op: str) -> str:
    """What an operation is called in a sentence: "all-gather"; one that is no collective by its own name."""
    return COLLECTIVES[op].title if op in COLLECTIVES else op
