"""Where ranks meet: collectives that gather their members, and channels in which messages wait.

What waits here says of itself what it is (`kind`), what it waits for (`describe`), for whom (`awaits`), and what would
end it (`wants`), so that a deadlock can be told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from lib import diagnosis
from lib.errors.exceptions import MismatchError, PuzzleError
from lib.errors.wording import listed, numbers, these
from lib.simulator.engine import Signal
from lib.trace.event import Event, located
from lib.values.collectives import COLLECTIVES
from lib.values.rules import Member, agree

__all__ = ["Channel", "Communicator", "Group", "Meeting", "Message", "Receive"]


class Meeting:
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

    def describe(self, rank: int) -> str:
        """What a member that has joined waits for."""
        mine = cast(Member, self.members[self.group.communicator.position[rank]])
        joined = [r for r, m in zip(self.group.communicator.ranks, self.members, strict=True) if m is not None]
        whose = f" of group {listed(self.group.ranks)}" if self.group.partial else ""
        return (
            f"waits in {COLLECTIVES[mine.op].title} #{self.number + 1}{whose}, layer {mine.layer}: "
            f"joined by {numbers(joined)}, missing {numbers(self.awaits(rank))}"
        )

    def wants(self, rank: int) -> str:
        """What would let the member go on."""
        mine = cast(Member, self.members[self.group.communicator.position[rank]])
        return f"{these('rank', self.awaits(rank))} to call model.{mine.op}(..., {mine.layer}) as well"

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
        """Adds the source lines of the two members that an error is about, and the likely reason."""
        diagnosis.advise(error)
        for member, event in zip(self.members, self.events, strict=True):
            if member is not None and event is not None and member.rank in getattr(error, "ranks", ()):
                located(error, member.rank, event.source)


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
        self.open: dict[int, Meeting] = {}


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
    channel: its place in simulated time."""

    kind = "pass"
    __slots__ = ("event", "load", "over", "posted", "signal")

    def __init__(self, event: Event, load: Any, over: int) -> None:
        self.event = event
        self.load = load
        self.over = over
        self.posted = over
        self.signal: Signal | None = None

    def describe(self, rank: int, whom: str | None = None) -> str:
        """What the sender waits for. `whom` is what to call the receiver, where that is not its number."""
        whom = f"rank {self.event.peer}" if whom is None else whom
        return f"waits for room to pass to {whom}, which has not received the message before"

    def wants(self, rank: int) -> str:
        """What would let the sender go on."""
        return f"rank {self.event.peer} to call model.receive({rank})"

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

    def describe(self, rank: int, whom: str | None = None) -> str:
        """What the receiver waits for. `whom` is what to call the source, where that is not its number."""
        if whom is None:
            whom = "any rank" if self.source is None else f"rank {self.source}"
        return f"waits to receive from {whom}"

    def wants(self, rank: int) -> str:
        """What would let the receiver go on."""
        whose = "a rank" if self.source is None else f"rank {self.source}"
        return f"{whose} to call model.pass_to({rank}, ...)"

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
