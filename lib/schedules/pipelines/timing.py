"""When the actions of an order start and end, without running a program: for the search, and for thousands of settings.

The times are those of the simulator, where a run of an order waits for nothing but inputs. No values, no check: what is
legal says `legality`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, chain, compress, islice
from math import lcm
from typing import Final, NamedTuple

from lib.analysis.figures import Bubbles
from lib.cluster.costs import Streams, as_written
from lib.errors.exceptions import PuzzleError
from lib.schedules.pipelines.action import (
    BEGINS,
    KINDS,
    MESSAGES,
    RECEIVES,
    SENDS,
    Action,
    Messages,
    Order,
    parts_of,
    places,
    says_messages,
)
from lib.schedules.pipelines.legality import require_legal
from lib.schedules.pipelines.lowering import awaited

Number = float | Fraction
Key = tuple[str, int, int]
"""What an action waits for, or makes: of what kind, for which stage and microbatch."""


class Passes(NamedTuple):
    """The lengths of the passes of a microbatch over a stage, and of a message, which costs no rank any time."""

    forward: Number = 1
    input_half: Number = 1
    weight_half: Number = 1
    message: Number = 0


EVEN: Final = Passes()


class NoRoom(PuzzleError):
    """A legal order whose ranks wait for one another, as there is room for one message only from a rank to another."""


@dataclass(frozen=True)
class Timed:
    """An order with its times: `starts[r][i]` and `ends[r][i]` are of the action `order[r][i]`, in time units.

    They are counted in ticks, so that nothing is rounded; `busy` is what all ranks compute together.
    """

    order: Order
    start_ticks: list[list[int]]
    end_ticks: list[list[int]]
    ticks: int
    busy: int

    @cached_property
    def starts(self) -> list[list[float]]:
        return [[time / self.ticks for time in times] for times in self.start_ticks]

    @cached_property
    def ends(self) -> list[list[float]]:
        return [[time / self.ticks for time in times] for times in self.end_ticks]

    @property
    def end(self) -> float:
        """Return when the last rank is done."""
        return max((times[-1] for times in self.end_ticks if times), default=0) / self.ticks

    @property
    def bubble(self) -> Bubbles:
        """Return the share of time in which ranks compute nothing, in both conventions."""
        ranks, busy = len(self.order), Fraction(self.busy, self.ticks)
        spans = [0]
        for actions, starts, ends in zip(self.order, self.start_ticks, self.end_ticks, strict=True):
            computes = [
                (start, end)
                for action, start, end in zip(actions, starts, ends, strict=True)
                if end > start and action.kind not in MESSAGES and action.kind not in BEGINS
            ]
            if computes:
                spans.append(computes[-1][1] - computes[0][0])
        times = self.end, max(spans) / self.ticks
        return Bubbles(*(float(1 - busy / (ranks * Fraction(time))) if time else 0.0 for time in times))

    @property
    def peaks(self) -> list[float]:
        """The most activations of each rank (see `peaks`)."""
        return peaks(self.order)


def peaks(order: Order) -> list[float]:
    """Count the most activations of each rank, in microbatches of all its stages. A stage's are there from the start
    of its forward to the end of its backward, or of the weight half: no costs matter."""
    stages = len(places(order)) or 1
    found: list[float] = []
    for actions in order:
        held = accumulate((part.kind == "F") - (part.kind in ("B", "W")) for part in parts_of(actions))
        found.append(float(Fraction(max(0, *held, 0) * len(order), stages)))
    return found


def time_order(
    order: Order,
    *,
    forward: Number = 1.0,
    input_half: Number = 1.0,
    weight_half: Number = 1.0,
    backward: Number | None = None,
    update: Number = 0.0,
    message: Number = 0.0,
    messages: Messages = "posted",
    cost: Callable[[Action, int], Number] | None = None,
) -> Timed:
    """Time an order: every action starts as soon as its rank is free and its inputs are there.

    The costs are those of one stage; a backward that is not split takes as long as its halves, if nothing is said, and
    updates have a cost only where the order says them. `cost` gives the costs of an action on a rank instead, for
    stages or ranks that are not alike.

    A message takes `message` from the end of what makes it until it is there, half of it until it is sent; or nothing,
    where both stages are on one rank. Awaited, both ranks do nothing else meanwhile, each for half of the time; an
    order that has no messages gets them first (see `awaited` in `lowering`). Posted, it costs no rank any time, but
    that one is sent before the next to the same rank, and receives are issued early enough. What has a WAIT in an order
    that has its messages is sent, received and awaited where the order says so.

    IllegalOrder where ranks wait for what does not come, NoRoom where it is legal and does not come all the same.
    """
    both = input_half + weight_half if backward is None else backward
    prices: dict[str, Number] = {"F": forward, "B": both, "I": input_half, "W": weight_half, "UPDATE": update}
    lowered = order
    if messages == "awaited" and not says_messages(order):
        lowered = awaited(order)
    half = as_written(message) / 2
    if cost is None:
        (half, *each), ticks = in_ticks([half, *prices.values()])
        known = dict(zip(prices, each, strict=True))
        costs = [[sum([known.get(p.kind, 0) for p in a.parts or (a,)]) for a in actions] for actions in lowered]
    else:
        exact = [
            [sum(as_written(cost(p, rank)) for p in a.parts or (a,) if p.kind in prices) for a in actions]
            for rank, actions in enumerate(lowered)
        ]
        (half, *each), ticks = in_ticks([half, *chain(*exact)])
        rest = iter(each)
        costs = [[*islice(rest, len(actions))] for actions in lowered]
    clock = _Clock(lowered, costs, half, messages == "awaited", places(lowered))
    try:
        waiting = clock.run()
    except KeyError:  # a stage that no rank has
        require_legal(order)
        raise
    if waiting:
        require_legal(order)
        raise NoRoom(
            "this order is legal, but ranks wait for room for their messages",
            expected="room for one message from a rank to another, so that each is received before the next is sent",
            got="; ".join(f"rank {rank} is at {clock.at(rank)}" for rank in sorted(waiting)),
        )
    starts, ends = clock.starts, clock.ends
    if lowered is not order:  # of the messages that were put in nobody asked
        asked = [[action.kind not in MESSAGES for action in actions] for actions in lowered]
        starts, ends = ([*map(list, map(compress, times, asked))] for times in (starts, ends))
    return Timed(order, starts, ends, ticks, sum(map(sum, costs)))


def time_until(order: Order, place: dict[int, int]) -> tuple[Timed, dict[int, Action]]:
    """Time as much of an order as can be done, all passes equally long; and tell for each rank that does not come to
    its end the pass that it waits for: none where it is at a WAIT. `place` has the rank of each stage, also of those
    that are not done."""
    ticks = {"F": 1, "B": 2, "I": 1, "W": 1}
    costs = [[sum(ticks.get(part.kind, 0) for part in one.parts or (one,)) for one in actions] for actions in order]
    clock = _Clock(order, costs, 0, False, place)
    waiting = clock.run()
    done = tuple(actions[: len(ends)] for actions, ends in zip(order, clock.ends, strict=True))
    gradient = "I" if any(one.kind == "I" for actions in order for one in actions) else "B"
    passes = {"F": ("F", -1), "B": (gradient, 1), "f": ("F", 0), "i": ("I", 0)}
    missing: dict[int, Action] = {}
    for rank, (what, stage, microbatch) in waiting.items():
        if what in passes:
            kind, further = passes[what]
            missing[rank] = Action(stage + further, kind, microbatch)
    return Timed(done, clock.starts, clock.ends, 1, 0), missing


def in_ticks(times: Iterable[Number]) -> tuple[list[int], int]:
    """Return times as whole numbers of ticks, and how many ticks make a time unit: as few as will do. A time is the
    decimal that was written."""
    exact = [*map(as_written, times)]
    ticks = lcm(*{time.denominator for time in exact})
    return [int(time * ticks) for time in exact], ticks


EVER: Final = ("room", -1, -1)
"""What is always there."""


class _Clock:
    """All ranks on their way through an order. A rank goes on until it needs what is not there yet; the one that makes
    it wakes the rank.

    What there is to wait for, of a stage and a microbatch: F and B, the inputs of these passes; f and i, the own
    forward and the own input half; >F and >B, what was sent out; =F and =B, what has arrived; and of a channel, from a
    rank to another, room for message number so and so, which has no time.
    """

    def __init__(self, order: Order, costs: list[list[int]], half: int, awaited: bool, place: dict[int, int]) -> None:
        self.order, self.costs, self.half, self.awaited, self.place = order, costs, half, awaited, place
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
        return self.order[rank][min(len(self.ends[rank]), len(self.order[rank]) - 1)]

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
                ends.append(now)
                if self.at_once(action) and (room := self.rooms.get(_key(action), EVER)) not in there:
                    yield room
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
        if before := self.count[*channel, "sent"]:
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
