"""Where ranks meet: collectives that gather their members, and channels in which messages wait.

What waits here says of itself what it is (`kind`), and for whom it waits (`awaits`), so that a deadlock can be told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from lib import diagnosis
from lib.errors.exceptions import MismatchError, PuzzleError
from lib.simulator.engine import Signal
from lib.trace.event import Event, located
from lib.values.rules import Member, agree

__all__ = ["Channel", "Communicator", "Group", "Message", "PendingCollective", "Receive"]


class PendingCollective:
    """A collective of a group that not all members have joined yet. Members are in ascending order of their ranks, so
    that nothing depends on who comes first; `group` is that of the first, and whether all name the same is found out
    when all are there.
    """

    kind = "collective"
    __slots__ = ("count", "events", "group", "members", "number", "signal")

    def __init__(self, group: Group, number: int) -> None:
        size = len(group.ranks)
        self.group = group
        self.number = number
        self.members: list[Member | None] = [None] * size
        self.events: list[Event | None] = [None] * size
        self.count = 0
        self.signal = Signal(self)

    def member(self, rank: int) -> Member:
        """What a rank that has joined called."""
        return cast(Member, self.members[self.group.communicator.position[rank]])

    def awaits(self, rank: int) -> list[int]:
        """The ranks that have not joined."""
        return [r for r, m in zip(self.group.communicator.ranks, self.members, strict=True) if m is None]

    def disagreement(self) -> PuzzleError | None:
        """What is wrong between those who have joined, if anything is."""
        try:
            agree(self.members)
        except MismatchError as error:
            self.locate(error)
            return error
        return None

    def locate(self, error: PuzzleError) -> None:
        """Adds the source lines of the two members that an error is about, or of the one, and the likely reason."""
        diagnosis.advise(error)
        for member, event in zip(self.members, self.events, strict=True):
            if member is not None and event is not None and member.rank in getattr(error, "ranks", ()):
                located(error, member.rank, event.source)
            elif member is not None and event is not None and member.rank == error.rank:
                located(error, None, event.source)


class Communicator:
    """The ranks of a group, in ascending order: how many collectives each has issued, and those that are open.

    Groups of the same ranks have one communicator, in whatever order they name them: the same links carry what they
    send, so it is one stream, and one sequence of collectives.
    """

    __slots__ = ("issued", "open", "position", "ranks")

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self.ranks = ranks
        self.position = {rank: i for i, rank in enumerate(ranks)}
        self.issued = [0] * len(ranks)
        self.open: dict[int, PendingCollective] = {}


class Group:
    """An ordered process group: member i is `ranks[i]`."""

    __slots__ = ("communicator", "partial", "position", "ranks")

    def __init__(self, ranks: tuple[int, ...], world: int, communicator: Communicator) -> None:
        self.ranks = ranks
        self.partial = ranks != tuple(range(world))
        self.position = {rank: i for i, rank in enumerate(ranks)}
        self.communicator = communicator


class Message:
    """Something on its way. `over` is when its sender is through with it, `posted` when it found room in the
    channel: its place in simulated time. `length` is what it takes where it has its links for itself."""

    kind = "pass"
    __slots__ = ("event", "length", "load", "over", "posted", "signal")

    def __init__(self, event: Event, load: Any, over: int) -> None:
        self.event = event
        self.load = load
        self.over = over
        self.posted = over
        self.length = event.length
        self.signal: Signal | None = None

    def awaits(self, rank: int) -> list[int]:
        """The receiver."""
        return [cast(int, self.event.peer)]


class Receive:
    """A receive that no message has answered yet. `source` is None where any source will do."""

    kind = "receive"
    __slots__ = ("event", "others", "rank", "signal", "source")

    def __init__(self, event: Event, rank: int, source: int | None) -> None:
        self.event = event
        self.rank = rank
        self.source = source
        self.signal = Signal(self)
        self.others: Sequence[int] = ()

    def awaits(self, rank: int) -> list[int]:
        """The source, or everybody else."""
        return [r for r in self.others if r != rank] if self.source is None else [self.source]


class Channel:
    """What one rank sends another: room for one message, and a queue of those that wait for room."""

    __slots__ = ("arrivals", "ready", "receives", "sends", "source", "target", "waiting")

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        self.sends = (source, target, "send")
        self.arrivals = (source, target, "receive")
        self.ready: deque[Message] = deque()
        self.waiting: deque[Message] = deque()
        self.receives: deque[Receive] = deque()
