"""Actions: the words of which the orders of pipelines are made. `3F1` is the forward of microbatch 1 on stage 3.

An order is, for every rank, the list of its actions, and nothing else: on which rank a stage lies, how many stages and
microbatches there are, and who sends what to whom follow from it. The words are those of torch.distributed.pipelining;
that an update may stand anywhere, and that one may wait for a message, is ours.

    order = (parse("0F0 0F1 0B0 0B1"), parse("1F0 1B0 1F1 1B1"))

Below them is the clock, with which all ranks go through an order side by side: how far each comes, what it waits for
there, and when. Legality, the lowering of messages and the timer ask the same one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from lib.cluster.costs import Stream
from lib.record import table


class Kind(NamedTuple):
    """A kind of action: its word, what people call it, and what there is to know of it.

    `computes`: it is a pass over a stage, forward or backward, or half of one. `passes`: the message that its outcome
    goes out with, `needs` the one that its input comes with. `towards`: of a message, how many stages further its other
    end is. `per_batch`: it is of a microbatch. `operation`: its name in a run, which a pair has not.
    `after`: the pass of the same stage and microbatch that comes before it.
    """

    name: str
    title: str
    computes: bool = False
    passes: str = ""
    needs: str = ""
    towards: int = 0
    per_batch: bool = True
    operation: str = ""
    after: str = ""


KINDS: Final = table(
    (
        Kind("F", "forward", True, "SEND_F", "RECV_F", operation="forward"),
        Kind("B", "backward", True, "SEND_B", "RECV_B", operation="backward", after="F"),
        Kind("I", "input half of the backward", True, "SEND_B", "RECV_B", operation="backward_input", after="F"),
        Kind("W", "weight half of the backward", True, operation="backward_weight", after="I"),
        Kind("OVERLAP_F_B", "a forward and a backward in one"),
        Kind("UPDATE", "update", per_batch=False, operation="update"),  # left out, it comes at the end
        # Issues it; the first pass that needs it waits.
        Kind("UNSHARD", "all-gather of the weights", per_batch=False, operation="allgather"),
        Kind("RESHARD", "weights freed but for this rank's shard", per_batch=False, operation="wait"),
        Kind("REDUCE_GRAD", "reduce-scatter of the gradients", per_batch=False, operation="scatterreduce"),
        Kind("SEND_F", "send of the output", towards=1, operation="pass_to"),
        Kind("RECV_F", "receive of the input", towards=-1, operation="receive"),
        Kind("SEND_B", "send of the input's gradient", towards=-1, operation="pass_to"),
        Kind("RECV_B", "receive of the output's gradient", towards=1, operation="receive"),
        # Where a message may travel while its ranks compute: until it is over.
        Kind("WAIT_SEND_F", "wait for the send of the output", operation="wait"),
        Kind("WAIT_RECV_F", "wait for the receive of the input", operation="wait"),
        Kind("WAIT_SEND_B", "wait for the send of the input's gradient", operation="wait"),
        Kind("WAIT_RECV_B", "wait for the receive of the output's gradient", operation="wait"),
    )
)
"""Every kind of action. DualPipe's pair of passes is the only one that has parts: see `Action.parts`."""

PASSES: Final = frozenset(name for name, kind in KINDS.items() if kind.computes)
MESSAGES: Final = frozenset(name for name, kind in KINDS.items() if kind.towards)
SENDS: Final = frozenset(name for name in MESSAGES if name.startswith("SEND"))
RECEIVES: Final = MESSAGES - SENDS
OTHER_END: Final = {"SEND_F": "RECV_F", "RECV_F": "SEND_F", "SEND_B": "RECV_B", "RECV_B": "SEND_B"}
"""By what a message is at one end what it is at the other."""
WEIGHTS: Final = frozenset(("UNSHARD", "RESHARD", "REDUCE_GRAD"))
"""What is done to weights, or to their gradients, of which each rank has a shard."""
WAITS: Final = {kind: f"WAIT_{kind}" for kind in KINDS if f"WAIT_{kind}" in KINDS}
BEGINS: Final = {wait: kind for kind, wait in WAITS.items()}
"""By message the wait for it, and the other way round."""

Messages = Literal["awaited", "posted"]
"""How messages travel: both sides stand still meanwhile, or both go on."""


class Action(NamedTuple):
    """Something that a rank does to a stage and a microbatch. An update is of no microbatch: it has -1.

    OVERLAP_F_B has `parts`, a forward and a backward that run as one: it starts when the inputs of both are there, and
    takes as long as both. Its stage and its microbatch are those of the forward.
    """

    stage: int
    kind: str
    microbatch: int = -1
    parts: tuple[Action, ...] = ()

    def __str__(self) -> str:
        if self.parts:
            return f"({';'.join(map(str, self.parts))}){self.kind}"
        return f"{self.stage}{self.kind}{self.microbatch if self.microbatch >= 0 else ''}"


Order = tuple[tuple[Action, ...], ...]
"""For every rank its actions, one after the other."""

PAIR: Final = "OVERLAP_F_B"
LONG: Final = 60
"""Characters of the longest word, and of what a message shows of a longer one."""
_NAMES = "|".join(sorted(KINDS.keys() - {PAIR}, key=len, reverse=True))
_WORD = re.compile(rf"(\d*)({_NAMES})(\d*)", re.ASCII)
_PAIR = re.compile(rf"\(([^;()]+);([^;()]+)\){PAIR}")


def parse(text: str | Iterable[str], stage: int | None = None) -> tuple[Action, ...]:
    """Return the actions of one rank from their words: a list, or a text with blanks between. Words that name no stage,
    such as F0, are of `stage`, if one is given. ValueError names a word that is none."""
    words = text.split() if isinstance(text, str) else text
    # Their letters alone: one of a class of a student's own may be equal to whatever it likes.
    return tuple([_action(str.__str__(word), stage) for word in words])


@lru_cache(maxsize=4096)
def _action(word: str, stage: int | None) -> Action:
    """Ranks, sizes and the next run have mostly the same words."""
    if (pair := _PAIR.fullmatch(word)) is not None:
        parts = _action(pair[1], stage), _action(pair[2], stage)
        return Action(parts[0].stage, PAIR, parts[0].microbatch, parts)
    found = _WORD.fullmatch(word) if len(word) <= LONG else None
    if found is not None and (found[1] or stage is not None) and bool(found[3]) == KINDS[found[2]].per_batch:
        return Action(int(found[1]) if found[1] else stage or 0, found[2], int(found[3] or -1))
    raise ValueError(no_action(word))


def no_action(word: str) -> str:
    """Say that a word is none."""
    shown = repr(word if len(word) <= LONG else f"{word[:LONG]}...")
    return f"{shown} is not an action: a stage, a kind and a microbatch, as 0F3 or 2SEND_B1"


def parts_of(actions: Iterable[Action]) -> Iterator[Action]:
    """Yield actions one by one, the parts of a pair each on its own."""
    for action in actions:
        if action.parts:
            yield from action.parts
        else:
            yield action


def places(order: Order) -> dict[int, int]:
    """Return the rank of each stage: the one that does most of its passes, so that one stray action is the odd one
    out."""
    found: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for rank, actions in enumerate(order):
        for action in actions:
            for stage, kind, _, _ in action.parts or (action,):
                if kind in PASSES:
                    found[stage][rank] += 1
    return {stage: min(ranks, key=lambda rank: (-ranks[rank], rank)) for stage, ranks in sorted(found.items())}


def says_messages(order: Order) -> bool:
    """Tell whether an order has its messages, so that none are put in."""
    return any(action.kind in MESSAGES for actions in order for action in actions)


def batches_of(order: Order) -> int:
    """Return how many microbatches there are: one more than the highest that is named."""
    return max((action.microbatch for actions in order for action in parts_of(actions)), default=-1) + 1


# -- the way of all ranks through an order ------------------------------------------------------------------------

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
        self.streams = defaultdict[tuple[str, int, int], Stream](Stream)
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
                now = self.streams["send", rank, place].carry(now, self.half)
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
        over = self.streams["send", *channel].carry(now, self.half) + self.half
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
            arrived = self.streams["receive", *channel].carry(issued, self.half, sent) + self.half
            self.make((f"WAIT_{receive[0]}", *receive[1:]) if behind else receive, arrived)

    def make(self, key: Key, time: int) -> None:
        """Say that something is there: who waits for it goes on."""
        self.there[key] = time
        if key in self.waiting:
            self.going += self.waiting.pop(key)
