"""How a collective goes round a ring: which piece each rank passes to its neighbour in which step, and who has what.

A tensor is cut into as many pieces as there are members. In a reduce-scatter each piece goes once round the ring and is
added to on its way; in an all-gather each goes once round and is copied; an all-reduce is one after the other
(Patarasuk and Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002). What is not cut goes along a chain, in one piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from drawing.communication.exchange import Exchange
from lib.values.collectives import CHAIN, RING, TWICE_ROUND
from lib.values.laws import gather, reduce, total_elements
from lib.values.values import Elements

__all__ = ["Hop", "Rounds", "rounds"]

Has = tuple[dict[int, frozenset[int]], ...]
"""For each member the pieces that it has, each with the members whose contributions are in it."""


class Hop(NamedTuple):
    """In one step a member passes a piece to another, with the contributions of some members in it.

    `adds`: the other one adds it to its own, and the piece is gone here; else it is a copy.
    """

    source: int
    target: int
    piece: int
    members: frozenset[int]
    adds: bool


class Rounds(NamedTuple):
    """The steps of a collective, and what members have before the first and after each: one more than steps.

    `sizes` are those of the pieces in elements. `turn` is the number of the first step that copies what was added up.
    """

    steps: tuple[tuple[Hop, ...], ...]
    states: tuple[Has, ...]
    sizes: tuple[Elements, ...]
    turn: int

    def sent(self, member: int, step: int | None = None) -> Elements:
        """Elements that a member has sent after so many steps, or after all."""
        hops = [hop for hops in self.steps[:step] for hop in hops if hop.source == member]
        return sum((self.sizes[hop.piece] for hop in hops), 0)


def rounds(one: Exchange) -> Rounds | None:
    """The steps of a collective that took place, by the law and the way of its row; None where it goes no such way."""
    row, members = one.row, len(one.seats)
    if row is None or row.many or not one.happened:
        return None
    brought = [seat.brought[0] for seat in one.seats]
    whole = row.size(brought, one.root)
    everyone: Has = tuple({piece: frozenset([member]) for piece in range(members)} for member in range(members))
    if row.law is gather and row.travel is RING:
        own: Has = tuple({member: frozenset([member])} for member in range(members))
        sizes = tuple(total_elements([value]) for value in brought)
        return _played(own, [*_copying(members)], sizes)
    if row.law is reduce and row.travel in (RING, TWICE_ROUND):
        steps = [*_adding(members)] + ([*_copying(members)] if row.travel is TWICE_ROUND else [])
        return _played(everyone, steps, (_share(whole, members),) * members)
    if row.travel is CHAIN and row.root:
        adds = row.law is reduce
        first = one.root + 1 if adds else one.root
        own = tuple({0: frozenset([member])} if adds or member == one.root else {} for member in range(members))
        chain = [[((first + k) % members, (first + k + 1) % members, 0, adds)] for k in range(members - 1)]
        return _played(own, chain, (whole,))
    return None


_Step = list[tuple[int, int, int, bool]]
"""The hops of a step: from which rank, to which, which piece, and whether it is added."""


def _adding(members: int) -> Iterator[_Step]:
    """Once round the ring: after the last step member i has piece i with everybody's contribution."""
    for step in range(members - 1):
        yield [(i, (i + 1) % members, (i - 1 - step) % members, True) for i in range(members)]


def _copying(members: int) -> Iterator[_Step]:
    """Once round the ring, from each member having its own piece to each having all."""
    for step in range(members - 1):
        yield [(i, (i + 1) % members, (i - step) % members, False) for i in range(members)]


def _played(start: Has, steps: Sequence[_Step], sizes: tuple[Elements, ...]) -> Rounds:
    """What members have after each step, all hops of which happen at once."""
    states, done = [start], list[tuple[Hop, ...]]()
    for step in steps:
        before = states[-1]
        after = tuple(dict(pieces) for pieces in before)
        hops = [Hop(source, target, piece, before[source][piece], adds) for source, target, piece, adds in step]
        for hop in hops:
            if hop.adds:
                del after[hop.source][hop.piece]
        for hop in hops:
            own = before[hop.target].get(hop.piece, frozenset()) if hop.adds else frozenset[int]()
            after[hop.target][hop.piece] = hop.members | own
        done.append(tuple(hops))
        states.append(after)
    turn = next((number for number, hops in enumerate(done) if not hops[0].adds), len(done))
    return Rounds(tuple(done), tuple(states), sizes, turn)


def _share(whole: Elements, members: int) -> Elements:
    share = Fraction(whole) / members
    return share.numerator if share.denominator == 1 else share
