"""Orders of actions for small pipelines: all of them, or one by chance, and what they come to when they are run.

Each layer is a stage here, as in `lib.analysis.bounds.optima`.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lib import PuzzleError, Trace, simulate
from lib.analysis.bounds.optima import Size
from lib.analysis.figures import end, peak
from lib.schedules.pipelines.action import KINDS, Action
from lib.schedules.pipelines.program import program_of

T = TypeVar("T")
Chain = tuple[tuple[Action, ...], ...]
"""Blocks of actions, one after the other: nothing of the same chain comes between those of a block."""


def run(size: Size, orders: Sequence[Sequence[Action]]) -> Trace | None:
    """The Trace of orders; None where they cannot be run: they deadlock, or receive what they did not expect."""
    function = program_of(tuple(map(tuple, orders)))
    try:
        return Trace.of(simulate(function, layers=size.layers, batches=size.batches, ranks=size.stages))
    except PuzzleError:
        return None


def figures(trace: Trace) -> tuple[float, int]:
    assert isinstance(trace, Trace)
    return end(trace), int(peak(trace).elements)


def merges(chains: Sequence[Sequence[tuple[T, ...]]]) -> Iterator[tuple[T, ...]]:
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
    bottom, top = layers[0], layers[-1]
    first, last = rank == 0, rank == size.stages - 1

    def message(stage: int, kind: str) -> Action:
        return Action(stage, kind, batch)

    forth: list[tuple[Action, ...]] = [(Action(layer, "F", batch),) for layer in layers]
    back: list[tuple[Action, ...]] = [(Action(layer, "B", batch),) for layer in reversed(layers)]
    if not size.overlap:
        get, give = ([] if first else [(message(bottom, "RECV_F"),)]), ([] if last else [(message(top, "SEND_F"),)])
        take, hand = ([] if last else [(message(top, "RECV_B"),)]), ([] if first else [(message(bottom, "SEND_B"),)])
        yield (*get, *forth, *give, *take, *back, *hand)
        return
    if not first:
        forth[0] = (message(bottom, "WAIT_RECV_F"), *forth[0])
        back[-1] = (*back[-1], message(bottom, "SEND_B"))
    if not last:
        forth[-1] = (*forth[-1], message(top, "SEND_F"))
        back[0] = (message(top, "WAIT_RECV_B"), *back[0])
    waits = [(message(bottom, "WAIT_SEND_B"),)] if not first else []
    if last:
        yield (*forth, *back, *waits)
        return
    for place in range(len(back) + 1):
        yield (*forth, *back[:place], (message(top, "WAIT_SEND_F"),), *back[place:], *waits)
    if waits:
        yield (*forth, *back, *waits, (message(top, "WAIT_SEND_F"),))


def calls(size: Size, rank: int) -> Iterator[Chain]:
    """The calls of a rank's receives, with overlap: one after the other from each neighbour."""
    if size.overlap:
        if rank > 0:
            yield tuple((Action(rank * size.each, "RECV_F", number),) for number in range(size.batches))
        if rank < size.stages - 1:
            yield tuple(((Action((rank + 1) * size.each - 1, "RECV_B", number)),) for number in range(size.batches))


def all_orders(size: Size, rank: int) -> set[tuple[Action, ...]]:
    """All orders of a rank: of the batches' chains in any mixture, and all updates at the end.

    With overlap only those that take the batches in order: there are many, and nothing is lost (see the solver).
    """
    updates = tuple(Action(layer, "UPDATE") for layer in range(rank * size.each, (rank + 1) * size.each))
    found: set[tuple[Action, ...]] = set()

    def pick(batch: int, chosen: list[Chain]) -> None:
        if batch == size.batches:
            mixed = merges([*chosen, *calls(size, rank)])
            found.update((*order, *updates) for order in mixed if not size.overlap or _possible(order))
            return
        for chain in chains(size, rank, batch):
            pick(batch + 1, [*chosen, chain])

    pick(0, [])
    return found


def _possible(order: Sequence[Action]) -> bool:
    """Whether an order takes the batches in turn, and issues every receive before it awaits it."""
    issued: dict[str, int] = {"WAIT_RECV_F": 0, "WAIT_RECV_B": 0}
    for action in order:
        if action.kind.startswith("RECV"):
            issued[f"WAIT_{action.kind}"] += 1
        elif action.microbatch >= issued.get(action.kind, action.microbatch + 1):
            return False
    return list(order) == in_turn(order)


def in_turn(order: Sequence[Action]) -> list[Action]:
    """The same order with the batches of each action one after the other (it can be run, too: see the solver)."""
    count: dict[tuple[int, str], int] = {}
    found: list[Action] = []
    for action in order:
        key = action.stage, action.kind
        found.append(action if action.kind == "UPDATE" else action._replace(microbatch=count.get(key, 0)))
        count[key] = count.get(key, 0) + 1
    return found


def random_orders(size: Size, dice: random.Random) -> list[list[Action]]:
    """Orders that can be run: all ranks together take one step after the other, whichever can be taken."""
    mixed = [[list(dice.choice(list(chains(size, rank, b)))) for b in range(size.batches)] for rank in _ranks(size)]
    for rank in _ranks(size):
        mixed[rank] += [list(chain) for chain in calls(size, rank)]
    orders: list[list[Action]] = [[] for _ in _ranks(size)]
    channels = {(what, rank): _Channel() for what in "FB" for rank in range(-1, size.stages + 1)}
    while any(chain for rank in mixed for chain in rank):
        able = [
            (rank, place)
            for rank in _ranks(size)
            for place, chain in enumerate(mixed[rank])
            if chain and all(_able(size, one, channels[_channel(one, rank)]) for one in chain[0] if "_" in one.kind)
        ]
        # Whoever is able now is able later: so somebody always is.
        rank, place = dice.choice(able)
        for action in mixed[rank][place].pop(0):
            orders[rank].append(action)
            if "_" in action.kind:
                channel = channels[_channel(action, rank)]
                channel.sent += [action.microbatch] if action.kind.startswith("SEND") else []
                channel.issued += action.kind.startswith("RECV")
    for rank in _ranks(size):
        for place, action in enumerate(orders[rank]):
            if size.overlap and action.kind.startswith("RECV"):  # what it brings is what is sent in its turn
                sent = channels[_channel(action, rank)].sent[action.microbatch]
                orders[rank][place] = action._replace(microbatch=sent)
        layers = list(range(rank * size.each, (rank + 1) * size.each))
        dice.shuffle(layers)
        orders[rank] += [Action(layer, "UPDATE") for layer in layers]
    return orders


def _ranks(size: Size) -> range:
    return range(size.stages)


@dataclass
class _Channel:
    """The batches that a rank has sent in one direction, and how many receives were issued for them."""

    sent: list[int] = field(default_factory=list[int])
    issued: int = 0


def _channel(action: Action, rank: int) -> tuple[str, int]:
    """What a message of a rank goes through: what it brings, and its sender."""
    kind = action.kind.removeprefix("WAIT_")
    return kind[-1], rank if kind.startswith("SEND") else rank + KINDS[kind].towards


def _able(size: Size, action: Action, channel: _Channel) -> bool:
    """Whether a message is there to be received, and was asked for; or there is room for one that is sent."""
    if action.kind.startswith("WAIT_RECV"):
        return action.microbatch in channel.sent[: channel.issued]
    if action.kind.startswith("WAIT_SEND"):
        return channel.sent.index(action.microbatch) <= channel.issued
    if action.kind.startswith("RECV"):
        return size.overlap or action.microbatch in channel.sent[channel.issued : channel.issued + 1]
    return size.overlap or len(channel.sent) == channel.issued
