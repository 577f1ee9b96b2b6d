"""Orders of operations for small pipelines: all of them, or one by chance, and what they come to when they are run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lib import PuzzleError, Trace, simulate
from lib.analysis.bounds.optima import Op, Optimum, Size, schedule
from lib.analysis.figures import end, peak

Chain = tuple[tuple[Op, ...], ...]
"""Blocks of operations, one after the other: nothing of the same chain comes between those of a block."""


def optimum(size: Size, orders: Sequence[Sequence[Op]]) -> Optimum:
    """Orders in the form that `schedule` takes. Nothing is claimed of them."""
    return Optimum(size, "fastest", 0.0, 0.0, 0, 0, "", tuple(tuple(order) for order in orders))


def run(size: Size, orders: Sequence[Sequence[Op]]) -> Trace | None:
    """The Trace of orders; None where they cannot be run: they deadlock, or receive what they did not expect."""
    function = schedule(optimum(size, orders))
    try:
        return Trace.of(simulate(function, layers=size.layers, batches=size.batches, ranks=size.stages))
    except PuzzleError:
        return None


def figures(trace: Trace) -> tuple[float, int]:
    """End and peak."""
    assert isinstance(trace, Trace)
    return end(trace), int(peak(trace).elements)


def merges(chains: Sequence[Sequence[tuple[Op, ...]]]) -> Iterator[tuple[Op, ...]]:
    """All ways to interleave chains of blocks."""
    if not any(chains):
        yield ()
        return
    for i, chain in enumerate(chains):
        if chain:
            rest = [*chains[:i], chain[1:], *chains[i + 1 :]]
            for tail in merges(rest):
                yield (*chain[0], *tail)


def chains(size: Size, rank: int, batch: int) -> Iterator[Chain]:
    """All orders of what a rank does for one batch. With overlap messages are sent at once and taken when needed; when
    their receives are issued is said by `calls`."""
    layers = range(rank * size.each, (rank + 1) * size.each)
    first, last = rank == 0, rank == size.stages - 1

    def message(what: str) -> Op:
        return Op(what, -1, batch)

    forth: list[tuple[Op, ...]] = [(Op("F", layer, batch),) for layer in layers]
    back: list[tuple[Op, ...]] = [(Op("B", layer, batch),) for layer in reversed(layers)]
    if not size.overlap:
        get, give = ([] if first else [(message("ra"),)]), ([] if last else [(message("sa"),)])
        take, hand = ([] if last else [(message("rg"),)]), ([] if first else [(message("sg"),)])
        yield (*get, *forth, *give, *take, *back, *hand)
        return
    if not first:
        forth[0] = (message("ra"), *forth[0])
        back[-1] = (*back[-1], message("sg"))
    if not last:
        forth[-1] = (*forth[-1], message("sa"))
        back[0] = (message("rg"), *back[0])
    waits = [(message("wg"),)] if not first else []
    if last:
        yield (*forth, *back, *waits)
        return
    for place in range(len(back) + 1):
        yield (*forth, *back[:place], (message("wa"),), *back[place:], *waits)
    if waits:
        yield (*forth, *back, *waits, (message("wa"),))


def calls(size: Size, rank: int) -> Iterator[Chain]:
    """The calls of a rank's receives, with overlap: one after the other from each neighbour."""
    if size.overlap:
        for what in (["ia"] if rank > 0 else []) + (["ig"] if rank < size.stages - 1 else []):
            yield tuple((Op(what, -1, number),) for number in range(size.batches))


def all_orders(size: Size, rank: int) -> set[tuple[Op, ...]]:
    """All orders of a rank: of the batches' chains in any mixture, and all updates at the end.

    With overlap only those that take the batches in order: there are many, and nothing is lost (see the solver).
    """
    updates = tuple(Op("U", layer, -1) for layer in range(rank * size.each, (rank + 1) * size.each))
    found: set[tuple[Op, ...]] = set()

    def pick(batch: int, chosen: list[Chain]) -> None:
        if batch == size.batches:
            mixed = merges([*chosen, *calls(size, rank)])
            found.update((*order, *updates) for order in mixed if not size.overlap or _possible(order))
            return
        for chain in chains(size, rank, batch):
            pick(batch + 1, [*chosen, chain])

    pick(0, [])
    return found


def _possible(order: Sequence[Op]) -> bool:
    """Whether an order takes the batches in turn, and issues every receive before it awaits it."""
    issued = {op.what[1]: 0 for op in order if op.what[0] == "i"}
    for op in order:
        if op.what[0] == "i":
            issued[op.what[1]] += 1
        elif op.what[0] == "r" and op.batch >= issued[op.what[1]]:
            return False
    return list(order) == in_turn(order)


def in_turn(order: Sequence[Op]) -> list[Op]:
    """The same order with the batches of each operation one after the other (it can be run, too: see the solver)."""
    count: dict[tuple[str, int], int] = {}
    found: list[Op] = []
    for op in order:
        key = op.what, op.layer
        found.append(op if op.what == "U" else op._replace(batch=count.get(key, 0)))
        count[key] = count.get(key, 0) + 1
    return found


def random_orders(size: Size, dice: random.Random) -> list[list[Op]]:
    """Orders that can be run: all ranks together take one step after the other, whichever can be taken."""
    mixed = [[list(dice.choice(list(chains(size, rank, b)))) for b in range(size.batches)] for rank in _ranks(size)]
    for rank in _ranks(size):
        mixed[rank] += [list(chain) for chain in calls(size, rank)]
    orders: list[list[Op]] = [[] for _ in _ranks(size)]
    channels = {(letter, rank): _Channel() for letter in "ag" for rank in range(-1, size.stages + 1)}
    while any(chain for rank in mixed for chain in rank):
        able = [
            (rank, place)
            for rank in _ranks(size)
            for place, chain in enumerate(mixed[rank])
            if chain and all(_able(size, op, channels[_channel(op, rank)]) for op in chain[0] if op.layer < 0)
        ]
        # Whoever is able now is able later: so somebody always is.
        rank, place = dice.choice(able)
        for op in mixed[rank][place].pop(0):
            orders[rank].append(op)
            if op.layer < 0:
                channel = channels[_channel(op, rank)]
                channel.sent += [op.batch] if op.what[0] == "s" else []
                channel.issued += op.what[0] == ("i" if size.overlap else "r")
    for rank in _ranks(size):
        for place, op in enumerate(orders[rank]):
            if op.what[0] == "i":  # what a receive brings is what is sent in its turn
                orders[rank][place] = op._replace(batch=channels[_channel(op, rank)].sent[op.batch])
        layers = list(range(rank * size.each, (rank + 1) * size.each))
        dice.shuffle(layers)
        orders[rank] += [Op("U", layer, -1) for layer in layers]
    return orders


def _ranks(size: Size) -> range:
    return range(size.stages)


@dataclass
class _Channel:
    """The batches that a rank has sent in one direction, and how many receives were issued for them."""

    sent: list[int] = field(default_factory=list[int])
    issued: int = 0


def _channel(op: Op, rank: int) -> tuple[str, int]:
    """What a message of a rank goes through, by its letter and its sender."""
    letter = op.what[1]
    return letter, rank if op.what[0] in "sw" else rank + (-1 if letter == "a" else 1)


def _able(size: Size, op: Op, channel: _Channel) -> bool:
    """Whether a message is there to be received, and was asked for; or there is room for one that is sent."""
    if op.what[0] == "i":
        return True
    if op.what[0] == "r":
        taken = channel.sent[: channel.issued] if size.overlap else channel.sent[channel.issued : channel.issued + 1]
        return op.batch in taken
    if op.what[0] == "w":
        return channel.sent.index(op.batch) <= channel.issued
    return size.overlap or len(channel.sent) == channel.issued
