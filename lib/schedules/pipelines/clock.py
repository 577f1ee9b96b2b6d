"""All ranks side by side on their way through an order: how far each comes, what it waits for there, and when.

Who can go on goes on, until nobody can. Legality, the lowering of messages and the timer ask the same walk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from lib.cluster.costs import Streams
from lib.schedules.pipelines.action import (
    BEGINS,
    KINDS,
    MESSAGES,
    OTHER_END,
    RECEIVES,
    SENDS,
    Action,
    Order,
    says_messages,
)

Key = tuple[str, int, int]
"""What an action waits for, or makes, of a stage and a microbatch: F and I are its own forward and its own input half;
RECV_F and RECV_B are the inputs of its passes, from wherever; SEND_F and SEND_B what was sent out, and WAIT_RECV_F and
WAIT_RECV_B what has arrived. "room" is that of a channel, by its number, for its message number so and so."""


class Clock:
    """A rank goes on until it needs what is not there yet; the one that makes it wakes the rank. Half a message's time
    is spent at each end. Without `room` there is room for any number of messages in a channel, else for one."""

    def __init__(
        self,
        order: Order,
        place: Mapping[int, int],
        costs: list[list[int]] | None = None,
        half: int = 0,
        *,
        awaited: bool = True,
        room: bool = True,
    ) -> None:
        self.order, self.place, self.half, self.awaited, self.scarce = order, place, half, awaited, room
        self.costs = [[0] * len(actions) for actions in order] if costs is None else costs
        self.last = max(self.place, default=0)
        self.implied = not says_messages(order)  # messages go out by themselves
        behind = [action for actions in order for action in actions if action.kind in BEGINS]
        self.behind = {(BEGINS[kind], stage, microbatch) for stage, kind, microbatch, _ in behind}
        self.starts: list[list[int]] = [[] for _ in order]
        self.ends: list[list[int]] = [[] for _ in order]
        self.there: dict[Key, int] = {}
        self.waiting: defaultdict[Key, list[int]] = defaultdict(list)
        self.going = [*range(len(order))]
        self.streams = Streams()
        # How many messages went out from a rank to another, and how many receives of these were issued.
        self.sent, self.received = (defaultdict[tuple[int, int], int](int) for _ in range(2))
        self.rooms: dict[Key, Key] = {}  # for each message that was sent the room that it needs
        self.issued: dict[Key, int] = {}

    def run(self) -> dict[int, Key]:
        """Go as far as it goes, and give the ranks that do not come to their end, with what they wait for."""
        walks = [*map(self.walk, range(len(self.order)))]
        while self.going:
            rank = self.going.pop()
            if (key := next(walks[rank], None)) is not None:
                self.waiting[key].append(rank)
        return {rank: key for key, ranks in self.waiting.items() for rank in ranks}

    def at(self, rank: int) -> Action:
        """Return what a rank does not come past."""
        return self.order[rank][len(self.ends[rank])]

    def walk(self, rank: int) -> Iterator[Key]:
        """Do all that a rank can, and give what it needs before it can go on."""
        there, starts, ends, now = self.there, self.starts[rank], self.ends[rank], 0
        for action, cost in zip(self.order[rank], self.costs[rank], strict=True):
            stage, kind, microbatch, parts = action
            for key in self.needs(action):
                if key not in there:
                    yield key
                if (time := there[key]) > now:
                    now = time
            starts.append(now)
            if kind in MESSAGES:
                key = kind, stage, microbatch
                over = (self.send if kind in SENDS else self.receive)(key, rank, now)
                if self.awaited and key not in self.behind:
                    now = over
                    if (room := self.rooms.get(key)) is not None and room not in there:
                        yield room
                ends.append(now)
                continue
            now += cost
            ends.append(now)
            for part in parts or (action,):
                now = self.outcome(part, rank, now)

    def needs(self, action: Action) -> list[Key]:
        """Return what is to be there before an action."""
        stage, kind, microbatch, parts = action
        if parts:
            own = "F", parts[0].stage, parts[0].microbatch
            return [key for part in parts for key in self.needs(part) if key != own]
        if kind == "F":
            return [("RECV_F", stage, microbatch)] if stage else []
        if kind in ("B", "I"):
            return [("F", stage, microbatch), ("RECV_B", stage, microbatch)]
        if kind == "W":
            return [("I", stage, microbatch)]
        if kind in RECEIVES:
            at_once = self.awaited and (kind, stage, microbatch) not in self.behind
            return [(OTHER_END[kind], stage + KINDS[kind].towards, microbatch)] if at_once else []
        if (begun := BEGINS.get(kind)) in SENDS:
            sent = begun, stage, microbatch
            return [self.rooms[sent], sent] if sent in self.rooms else [sent]
        return [(kind, stage, microbatch)] if begun else []

    def outcome(self, action: Action, rank: int, now: int) -> int:
        """Make what is there after an action: for another stage, if that is here, or when its message came. Return when
        its rank goes on."""
        stage, kind, microbatch, _ = action
        if kind in ("F", "B", "I"):
            forward = kind == "F"
            self.make(("F" if forward else "I", stage, microbatch), now)
            after = stage + 1 if forward else stage - 1
            key = "RECV_F" if forward else "RECV_B", after, microbatch
            if after > self.last:  # after the last forward comes its own backward
                self.make(("RECV_B", stage, microbatch), now)
            elif (place := self.place.get(after)) == rank:
                self.make(key, now)
            elif self.implied and place is not None:
                now = self.streams.carry(("send", rank, place), now, self.half)
                self.make(key, now + 2 * self.half)
        elif (begun := BEGINS.get(kind)) in RECEIVES:
            self.make((begun, stage, microbatch), now)
        return now

    # -- messages that the order says, and when each is over ----------------------------------------------------------

    def send(self, key: Key, rank: int, now: int) -> int:
        kind, stage, microbatch = key
        target = stage + KINDS[kind].towards
        channel = rank, self.place[target]
        if self.scarce and self.sent[channel]:
            self.rooms[key] = self.room(channel, self.sent[channel] - 1)
        self.sent[channel] += 1
        over = self.streams.carry(("send", *channel), now, self.half) + self.half
        self.make(key, over)
        self.arrive(channel, key, (OTHER_END[kind], target, microbatch))
        return over

    def receive(self, key: Key, rank: int, now: int) -> int:
        kind, stage, microbatch = key
        source = stage + KINDS[kind].towards
        channel = self.place[source], rank
        self.make(self.room(channel, self.received[channel]), 0)
        self.received[channel] += 1
        self.issued[key] = now
        self.arrive(channel, (OTHER_END[kind], source, microbatch), key)
        return self.there.get(key, now)

    def room(self, channel: tuple[int, int], number: int) -> Key:
        return "room", channel[0] * len(self.order) + channel[1], number

    def arrive(self, channel: tuple[int, int], send: Key, receive: Key) -> None:
        """Let a message arrive, once it is sent and its receive issued, after the one before it."""
        sent, issued, behind = self.there.get(send), self.issued.get(receive), receive in self.behind
        if sent is not None and not self.awaited and not behind:
            self.make(receive, sent + self.half)  # its receive was issued early enough
        elif sent is not None and issued is not None:
            arrived = self.streams.carry(("receive", *channel), issued, self.half, sent) + self.half
            self.make((f"WAIT_{receive[0]}", *receive[1:]) if behind else receive, arrived)

    def make(self, key: Key, time: int) -> None:
        """Say that something is there: who waits for it goes on."""
        self.there[key] = time
        if key in self.waiting:
            self.going += self.waiting.pop(key)
