"""The collectives, one row each: what members bring, what each gets, and how much moves.

A row is all there is to a collective: the simulator, the check, the figures and the replay read this table. Costs are
those of ring algorithms (Patarasuk and Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002): with n members and a
whole tensor of S elements, one pass round the ring takes n - 1 messages of S/n elements from every member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from .values import Elements, Value, cut, gather, reduce, renew, total_elements

__all__ = ["COLLECTIVES", "Collective", "title"]

Results = list[Any]


class Collective(NamedTuple):
    """One collective.

    `name` is Model's method, `word` its short form in text and pictures. `results` maps what the members brought, in
    group order, to what each member gets. `whole` gives S, the elements of the whole tensor. `rounds` is how often
    the data goes round the ring. An `in_place` collective writes over its input, so that its output needs no memory of
    its own. `law` says what it does to values: reduce, gather, exchange or copy.
    """

    name: str
    word: str
    title: str
    results: Callable[[Sequence[Any], int], Results]
    whole: Callable[[Sequence[Any], int], Elements]
    rounds: int
    in_place: bool
    law: str

    def sent(self, whole: Elements, members: int) -> Fraction:
        """Elements that each member sends (for a broadcast: on the average)."""
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
    return [renew(values[root]) for _ in values]


def _first(values: Sequence[Any], root: int) -> Elements:
    return values[0].elements()


def _sum(values: Sequence[Any], root: int) -> Elements:
    return total_elements(values)


def _rows(values: Sequence[Sequence[Value]], root: int) -> Elements:
    return max(total_elements(row) for row in values)


def _root(values: Sequence[Any], root: int) -> Elements:
    return values[root].elements()


COLLECTIVES = {
    row.name: row
    for row in (
        Collective("allreduce", "AR", "all-reduce", _all_reduce, _first, 2, True, "reduce"),
        Collective("allgather", "AG", "all-gather", _all_gather, _sum, 1, False, "gather"),
        Collective("scatterreduce", "RS", "reduce-scatter", _reduce_scatter, _first, 1, False, "reduce"),
        Collective("alltoall", "AA", "all-to-all", _all_to_all, _rows, 1, False, "exchange"),
        Collective("broadcast", "BC", "broadcast", _broadcast, _root, 1, True, "copy"),
    )
}


def title(op: str) -> str:
    """What an operation is called in a sentence: "all-gather"; one that is no collective by its own name."""
    return COLLECTIVES[op].title if op in COLLECTIVES else op
