"""Orders of operations for small pipelines: all of them, or one by chance, and what they come to when they are run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from lib import PuzzleError, Trace, simulate
from lib.figures import end, peak
from lib.optima import Op, Optimum, Size, schedule
from lib.program import Run

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


def figures(trace: Run) -> tuple[float, int]:
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
    """All orders of what a rank does for one batch. With overlap messages are sent at once and taken when needed."""
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


def all_orders(size: Size, rank: int) -> set[tuple[Op, ...]]:
    """All orders of a rank: of the batches' chains in any mixture, and all updates at the end."""
    updates = tuple(Op("U", layer, -1) for layer in range(rank * size.each, (rank + 1) * size.each))
    found: set[tuple[Op, ...]] = set()

    def pick(batch: int, chosen: list[Chain]) -> None:
        if batch == size.batches:
            found.update((*order, *updates) for order in merges(chosen))
            return
        for chain in chains(size, rank, batch):
            pick(batch + 1, [*chosen, chain])

    pick(0, [])
    return found


def random_orders(size: Size, dice: random.Random) -> list[list[Op]]:
    """Orders that can be run: all ranks together take one step after the other, whichever can be taken."""
    mixed = [[list(dice.choice(list(chains(size, rank, b)))) for b in range(size.batches)] for rank in _ranks(size)]
    orders: list[list[Op]] = [[] for _ in _ranks(size)]
    sent: set[tuple[str, int, int]] = set()
    queues: dict[tuple[str, int], list[int]] = {}
    while any(chain for rank in mixed for chain in rank):
        able = [
            (rank, batch)
            for rank in _ranks(size)
            for batch, chain in enumerate(mixed[rank])
            if chain and _able(size, rank, chain[0], queues)
        ]
        # Whoever is able now is able later: so somebody always is.
        rank, batch = dice.choice(able)
        for op in mixed[rank][batch].pop(0):
            orders[rank].append(op)
            if op.what[0] == "s":
                queues.setdefault((op.what[1], rank), []).append(op.batch)
                sent.add((op.what[1], rank, op.batch))
            if op.what[0] == "r":
                queues[op.what[1], rank - 1 if op.what == "ra" else rank + 1].remove(op.batch)
    for rank in _ranks(size):
        layers = list(range(rank * size.each, (rank + 1) * size.each))
        dice.shuffle(layers)
        orders[rank] += [Op("U", layer, -1) for layer in layers]
    return orders


def _ranks(size: Size) -> range:
    return range(size.stages)


def _able(size: Size, rank: int, block: tuple[Op, ...], queues: dict[tuple[str, int], list[int]]) -> bool:
    """Whether the messages that a block receives are there, and there is room for those that it sends."""
    for op in block:
        if op.what[0] == "r":
            queue = queues.get((op.what[1], rank - 1 if op.what == "ra" else rank + 1), [])
            if op.batch not in queue or (not size.overlap and queue[0] != op.batch):
                return False
        if op.what[0] == "s" and not size.overlap and queues.get((op.what[1], rank)):
            return False
    return True
