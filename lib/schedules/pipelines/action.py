"""Actions: the words of which the orders of pipelines are made. `3F1` is the forward of microbatch 1 on stage 3.

An order is, for every rank, the list of its actions, and nothing else: on which rank a stage lies, how many stages and
microbatches there are, and who sends what to whom follow from it. The words are those of torch.distributed.pipelining;
that an update may stand anywhere, and that one may wait for a message, is ours.

    order = (parse("0F0 0F1 0B0 0B1"), parse("1F0 1B0 1F1 1B1"))
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from typing import NamedTuple

__all__ = ["KINDS", "Action", "Order", "parse", "places", "with_messages"]

KINDS = {
    "F": 0,  # forward
    "B": 0,  # backward
    "UPDATE": 0,  # left out, it comes at the end
    "SEND_F": 1,  # the output
    "RECV_F": -1,  # the input
    "SEND_B": -1,  # the gradient of the input
    "RECV_B": 1,  # the gradient of the output
    "WAIT_SEND_F": 0,  # where a message may travel while its ranks compute: until this one is over
    "WAIT_RECV_F": 0,
    "WAIT_SEND_B": 0,
    "WAIT_RECV_B": 0,
}
"""Every kind of action, and how many stages further the other end of its message is."""

_WORD = re.compile(rf"(\d+)({'|'.join(sorted(KINDS, key=len, reverse=True))})(\d*)")


class Action(NamedTuple):
    """What a rank does to a stage and a microbatch. An update is of no microbatch: it has -1."""

    stage: int
    kind: str
    microbatch: int = -1

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch if self.microbatch >= 0 else ''}"


Order = tuple[tuple[Action, ...], ...]
"""For every rank its actions, one after the other."""


def parse(text: str) -> tuple[Action, ...]:
    """The actions of one rank from their words, with blanks between. ValueError names a word that is none."""
    return tuple(map(_action, text.split()))


def _action(word: str) -> Action:
    found = _WORD.fullmatch(word)
    if found is None or bool(found[3]) == (found[2] == "UPDATE"):
        raise ValueError(f"{word!r} is no action: a stage, a kind and a microbatch, as 0F3 or 2SEND_B1, or 3UPDATE")
    return Action(int(found[1]), found[2], int(found[3] or -1))


def places(order: Order) -> dict[int, int]:
    """The rank of each stage: the one that computes on it."""
    return {action.stage: rank for rank, actions in enumerate(order) for action in actions if action.kind in "FB"}


def with_messages(order: Order) -> Order:
    """The same order with all messages between ranks: sent as soon as there is something to send, received when it is
    needed. ValueError where an action needs what no rank sends.

    The n-th receive from a rank gets its n-th send. So before a wanted message those are received that come before it
    from the same rank, whatever they are for.
    """
    place = places(order)
    channels: dict[tuple[int, int], deque[Action]] = defaultdict(deque)
    for source, actions in enumerate(order):
        for stage, kind, microbatch in actions:
            after = stage + KINDS.get(f"SEND_{kind}", 0)
            if place.get(after, source) != source:
                channels[source, place[after]].append(Action(after, f"RECV_{kind}", microbatch))
    return tuple(_with_messages(rank, actions, place, channels) for rank, actions in enumerate(order))


def _with_messages(
    rank: int, actions: tuple[Action, ...], place: dict[int, int], channels: dict[tuple[int, int], deque[Action]]
) -> tuple[Action, ...]:
    found: list[Action] = []
    received: set[Action] = set()
    for action in actions:
        stage, kind, microbatch = action
        source = place.get(stage + KINDS.get(f"RECV_{kind}", 0), rank)
        wanted = Action(stage, f"RECV_{kind}", microbatch)
        while source != rank and wanted not in received:
            if not channels[source, rank]:
                raise ValueError(f"rank {rank}: nobody sends what {action} needs, for {wanted}")
            found.append(channels[source, rank].popleft())
            received.add(found[-1])
        found.append(action)
        if place.get(stage + KINDS.get(f"SEND_{kind}", 0), rank) != rank:
            found.append(Action(stage, f"SEND_{kind}", microbatch))
    return tuple(found)
