"""The clock of an order: all its ranks go on as far as they can, and each thing that they wait for is made once.

The times are those of the simulator, where a run of an order waits for nothing but inputs. Without costs it says who
waits for whom for ever, and where.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from lib.cluster.costs import Streams
from lib.schedules.pipelines.action import (
    BEGINS,
    KINDS,
    MESSAGES,
    RECEIVES,
    SENDS,
    Action,
    Order,
    places,
    says_messages,
)

Key = tuple[str, int, int]
"""What an action waits for, or makes: of what kind, for which stage and microbatch."""
EVER: Final = ("room", -1, -1)
"""What is always there."""


class Clock:
    """All ranks on their way through an order. A rank goes on until it needs what is not there yet; the one that makes
    it wakes the rank.

    What there is to wait for, of a stage and a microbatch: F and B, the inputs of these passes; f and i, the own
    forward and the own input half; >F and >B, what was sent out; =F and =B, what has arrived; and of a channel, from a
    rank to another, room for message number so and so, which has no time.

    `costs` are those of the actions, nothing where only who waits for whom counts; a message takes `half` until it is
    sent, and as long again until it is there. What has no wait is `awaited` where it is sent and received, or travels
    while its ranks go on. `rooms`: between two ranks there is room for one message. `place` has the rank of each stage.
    """

    def __init__(
        self,
        order: Order,
        costs: Sequence[Sequence[int]] | None = None,
        half: int = 0,
        *,
        awaited: bool = False,
        rooms: bool = True,
        place: dict[int, int] | None = None,
    ) -> None:
        self.order, self.half, self.awaited, self.one_at_a_time = order, half, awaited, rooms
        self.costs = [[0] * len(actions) for actions in order] if costs is None else costs
        self.place = places(order) if place is None else place
        self.last = max(self.place, default=0)
        self.implied = not says_messages(order)
        """Whether messages go out by themselves."""
        behind = [action for actions in order for action in actions if action.kind in BEGINS]
        self.behind = {(BEGINS[kind], stage, microbatch) for stage, kind, microbatch, _ in behind}
        """The messages that have a wait."""
        self.starts: list[list[int]] = [[] for _ in order]
        self.ends: list[list[int]] = [[] for _ in order]
        self.there: dict[Key, int] = {EVER: 0}
        """When what somebody may wait for is there."""
        self.waiting: defaultdict[Key, list[int]] = defaultdict(list)
        self.going = [*range(len(order))]
        self.streams = Streams()
        self.count: Counter[tuple[int, int, str]] = Counter()
        """How many messages went out from a rank to another, and how many receives of these were issued."""
        self.rooms: dict[Key, Key] = {}
        """For each message that was sent the room that it needs."""
        self.issued: dict[Key, int] = {}
        """When receives were issued."""

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
        """A rank does all that it can, and gives what it needs before it can go on."""
        there, starts, ends, now = self.there, self.starts[rank], self.ends[rank], 0
        for action, cost in zip(self.order[rank], self.costs[rank], strict=True):
            for key in self.needs(action):
                if key not in there:
                    yield key
                if (time := there[key]) > now:
                    now = time
            starts.append(now)
            if action.kind in MESSAGES:
                now = (self.send if action.kind in SENDS else self.receive)(action, rank, now)
                if self.at_once(action) and (room := self.rooms.get(_key(action), EVER)) not in there:
                    yield room
                ends.append(now)
                continue
            now += cost
            ends.append(now)
            for part in action.parts or (action,):
                now = self.outcome(part, rank, now)

    def needs(self, action: Action) -> list[Key]:
        """Return what is to be there before an action."""
        stage, kind, microbatch, parts = action
        if parts:
            own = "f", parts[0].stage, parts[0].microbatch
            return [key for part in parts for key in self.needs(part) if key != own]
        if kind == "F":
            return [("F", stage, microbatch)] if stage else []
        if kind in ("B", "I"):
            return [("f", stage, microbatch), ("B", stage, microbatch)]
        if kind == "W":
            return [("i", stage, microbatch)]
        if kind in BEGINS:
            sent = BEGINS[kind]
            if sent in RECEIVES:
                return [(f"={kind[-1]}", stage, microbatch)]
            room = self.rooms.get((sent, stage, microbatch), EVER)
            return [room, (f">{kind[-1]}", stage + KINDS[sent].towards, microbatch)]
        return [(f">{kind[-1]}", stage, microbatch)] if kind in RECEIVES and self.at_once(action) else []

    def outcome(self, action: Action, rank: int, now: int) -> int:
        """Make what is there after an action: for another stage, if that is here, or when its message came. Return when
        its rank goes on."""
        stage, kind, microbatch, _ = action
        after = None
        if kind == "F":
            self.make(("f", stage, microbatch), now)
            after = stage + 1 if stage != self.last else None
            if after is None:
                self.make(("B", stage, microbatch), now)
        elif kind in ("B", "I"):
            self.make(("i", stage, microbatch), now)
            after = stage - 1 if stage else None
        elif kind in BEGINS and BEGINS[kind] in RECEIVES:
            self.make((kind[-1], stage, microbatch), now)
        if after is not None:
            key = "F" if kind == "F" else "B", after, microbatch
            place = self.place.get(after)
            if place == rank:
                self.make(key, now)
            elif self.implied and place is not None:
                now = self.streams.carry(("send", rank, place), now, self.half)
                self.make(key, now + 2 * self.half)
        return now

    # -- messages that the order says --------------------------------------------------------------------------------

    def at_once(self, action: Action) -> bool:
        """Tell whether a message is awaited where it is sent or received."""
        return self.awaited and _key(action) not in self.behind

    def send(self, action: Action, rank: int, now: int) -> int:
        stage, kind, microbatch, _ = action
        target = stage + KINDS[kind].towards
        channel = rank, self.place[target]
        before = self.count[*channel, "sent"]
        if before and self.one_at_a_time:
            self.rooms[_key(action)] = self.room(channel, before - 1)
        self.count[*channel, "sent"] += 1
        over = self.streams.carry(("send", *channel), now, self.half) + self.half
        self.make((f">{kind[-1]}", target, microbatch), over)
        self.arrive(channel, (kind[-1], target, microbatch))
        return over if self.at_once(action) else now

    def receive(self, action: Action, rank: int, now: int) -> int:
        stage, kind, microbatch, _ = action
        channel, end = (self.place[stage + KINDS[kind].towards], rank), (kind[-1], stage, microbatch)
        self.make(self.room(channel, self.count[*channel, "received"]), 0)
        self.count[*channel, "received"] += 1
        self.issued[end] = now
        self.arrive(channel, end)
        return self.there[end] if self.at_once(action) else now

    def room(self, channel: tuple[int, int], number: int) -> Key:
        return "room", channel[0] * len(self.order) + channel[1], number

    def arrive(self, channel: tuple[int, int], end: Key) -> None:
        """Let a message arrive, once it is sent and its receive issued, after the one before it."""
        what, stage, microbatch = end
        sent, issued = self.there.get((f">{what}", stage, microbatch)), self.issued.get(end)
        behind = (f"RECV_{what}", stage, microbatch) in self.behind
        if sent is not None and not self.awaited and not behind:
            self.make(end, sent + self.half)  # its receive was issued early enough
        elif sent is not None and issued is not None:
            arrived = self.streams.carry(("receive", *channel), issued, self.half, sent) + self.half
            self.make((f"={what}", stage, microbatch) if behind else end, arrived)

    def make(self, key: Key, time: int) -> None:
        """Say that something is there: who waits for it goes on."""
        self.there[key] = time
        if key in self.waiting:
            self.going += self.waiting.pop(key)


def _key(action: Action) -> Key:
    return action.kind, action.stage, action.microbatch
