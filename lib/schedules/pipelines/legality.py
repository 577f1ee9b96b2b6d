"""Is an order legal: can its ranks do what it says, and is it then one whole training step? What is wrong first.

It serves orders at every level: passes alone, with the gathers of weights, with messages, with waits for these: what
has no wait is awaited at once. A message comes in its channel: the n-th receive from a rank gets its n-th send, and a
sender never waits. Whether a run has room for so many messages under way is not asked here (see `waits_for_room`).

*First* is, of what a rank does wrong whatever the others do, the lowest position, and of these the lowest rank; then
what is missing; then messages that do not fit; then what holds all ranks up together.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, count, islice, pairwise
from typing import Final, NamedTuple

from lib.errors.exceptions import PuzzleError
from lib.errors.wording import plural, these
from lib.schedules.pipelines.action import (
    BEGINS,
    KINDS,
    LONG,
    MESSAGES,
    OTHER_END,
    PAIR,
    PASSES,
    RECEIVES,
    SENDS,
    WAITS,
    Action,
    Clock,
    Messages,
    Order,
    no_action,
    places,
)


class Wrong(NamedTuple):
    """The first mistake. `position` counts the actions of the rank from 0; what is missing is missing at the end of
    its list, and there is no `action`. `cause` is what has likely happened, where that can be told."""

    rank: int
    position: int
    action: Action | None
    rule: str
    text: str
    cause: str | None = None

    @property
    def where(self) -> str:
        """The place: "rank 3, position 1"."""
        return f"rank {self.rank}, {'at the end' if self.action is None else f'position {self.position}'}"

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


class IllegalOrder(PuzzleError):
    """An order is not legal. `wrong` is what is wrong first; a file says in which `cell` it has it."""

    def __init__(self, wrong: Wrong, cell: str | None = None) -> None:
        super().__init__(wrong.text, fix=wrong.cause, rank=wrong.rank)
        self.wrong = wrong
        self.named = wrong.where if cell is None else f"{wrong.where} ({cell})"


def illegal(order: Order, *, batches: int | None = None, messages: Messages = "awaited") -> Wrong | None:
    """Return what is wrong with an order first, or None.

    Without `batches` there are as many microbatches as most stages have. Where messages are `posted` a receive without
    a wait holds up not its rank but the pass that needs it.
    """
    if not order:
        return Wrong(0, 0, None, "missing", "there is nothing to do")
    facts = _Facts(order, batches, messages == "posted")
    for rules in RULES:
        found = [
            Wrong(rank, at, order[rank][at] if at < len(order[rank]) else None, rule, text, *cause)
            for rank in range(len(order))
            for rule, find in rules
            for at, text, *cause in islice(find(facts, rank), 1)
        ]
        if found:
            return min(found, key=lambda wrong: (wrong.position, wrong.rank))
    return None


def require_legal(order: Order, *, batches: int | None = None) -> Order:
    """Return the order, if it is legal; else IllegalOrder."""
    if (wrong := illegal(order, batches=batches)) is not None:
        raise IllegalOrder(wrong)
    return order


# -- what follows from an order ---------------------------------------------------------------------------------

Said = tuple[int, str] | tuple[int, str, str | None]
"""What a rule finds wrong on a rank: a position, the text, and what has likely happened."""

SAME: Final = {"B": "I", "I": "B", "W": "B"}
"""Which backward a pass would do again."""
OVER: Final = ("B", "W")
"""The passes with which a backward is over, and the activation of its forward is free."""
MAKERS: Final = {name: tuple(kind.name for kind in KINDS.values() if kind.passes == name) for name in SENDS}
"""Whose outcome a message brings: SEND_B that of B or I."""


class _Facts:
    """An order, and what the rules ask of it."""

    def __init__(self, order: Order, batches: int | None, posted: bool) -> None:
        self.order, self.posted = order, posted
        # Of each rank what is not an action, by position, and why.
        self.malformed: list[dict[int, str]] = [{} for _ in order]
        # The actions of each rank with their positions, the parts of a pair one by one, without those that are none.
        self.ranks: list[list[tuple[int, Action]]] = [[] for _ in order]
        for actions, malformed, steps in zip(order, self.malformed, self.ranks, strict=True):
            for position, action in enumerate(actions):
                if why := _malformed(action):
                    malformed[position] = why
                else:
                    steps += ((position, part) for part in action.parts or (action,))
        # Where each rank does what for the first time.
        self.done = [{action: position for position, action in reversed(steps)} for steps in self.ranks]
        self.kinds = {action.kind for _, action in chain(*self.ranks)}
        self.messages = not self.kinds.isdisjoint(MESSAGES | BEGINS.keys())
        # For each stage that is named how many passes each of its microbatches has.
        self.passes: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for _, (stage, kind, microbatch, _) in chain(*self.ranks):
            if kind in PASSES:
                self.passes[stage][microbatch] += 1
        named = places(tuple(tuple(action for _, action in steps) for steps in self.ranks))
        passes, most = {stage: found.total() for stage, found in self.passes.items()}, Counter[int]()
        for stage, rank in named.items():
            most[rank] = max(most[rank], passes[stage])
        # As many stages as are in a row, without one of which a rank does hardly anything beside what it has.
        self.stages = next(s for s in count() if s not in passes or 4 * passes[s] < most[named[s]])
        self.place = {stage: rank for stage, rank in named.items() if stage < self.stages}
        # As many microbatches as most stages have, so that one stray number is the odd one out.
        counts = Counter(max(self.passes[stage]) + 1 for stage in self.place)
        usual = min(counts, key=lambda number: (-counts[number], number), default=0)
        self.batches = usual if batches is None else batches

    @cached_property
    def coming(self) -> defaultdict[tuple[int, int], deque[Action]]:
        """What comes from each rank to each other one, in its order."""
        found: defaultdict[tuple[int, int], deque[Action]] = defaultdict(deque)
        for rank, steps in enumerate(self.ranks):
            for _, (stage, kind, microbatch, _) in steps:
                if kind in SENDS:
                    after = stage + KINDS[kind].towards
                    found[rank, self.place[after]].append(Action(after, OTHER_END[kind], microbatch))
        return found

    def other(self, rank: int, stage: int) -> int | None:
        found = self.place.get(stage, rank)
        return None if found == rank else found

    def lacks(self, rank: int, position: int, *actions: Action) -> Action | None:
        """Return of some actions the first that a rank does, if it does none of them before a position."""
        done = self.done[rank]
        if all(done.get(action, position) >= position for action in actions):
            return min(actions, key=lambda action: done.get(action, len(self.order[rank])))
        return None

    def needs(self, rank: int, lacks: Action) -> str:
        """Say that a rank does not do something before it is needed."""
        at = self.done[rank].get(lacks)
        when = "which this rank never does" if at is None else f"which comes later, at position {at}"
        return f" needs {lacks} before it, {when}"

    def off_by_one(self, rank: int, stage: int, kind: str) -> str | None:
        """Say that the microbatches of a kind on a stage are numbered from 1, if they are."""
        own = sorted(action.microbatch for action in self.done[rank] if action[:2] == (stage, kind))
        shifted = self.batches in own or not any(0 in found for found in self.passes.values())
        if not own or self.place.get(stage) != rank or own != list(range(1, len(own) + 1)) or not shifted:
            return None
        to = f" to {stage}{kind}{own[-1]}" if len(own) > 1 else ""
        return f"off by one: rank {rank} does {stage}{kind}1{to}"

    @cached_property
    def blocked(self) -> dict[int, tuple[int, Action]]:
        """At which position ranks wait for ever, and for what of another rank: all go on as far as they can, where a
        pair starts when the inputs of both are there."""
        clock = Clock(self.order, self.place, awaited=not self.posted, room=False)
        found: dict[int, tuple[int, Action]] = {}
        for rank, (what, stage, microbatch) in clock.run().items():
            sent = f"SEND_{what[-1]}"
            source = stage if what == sent else stage - KINDS[sent].towards
            # Without messages they wait for the pass itself.
            each = (Action(source, maker, microbatch) for maker in (sent, *MAKERS[sent]))
            found[rank] = len(clock.ends[rank]), next(one for one in each if one in self.done[self.place[source]])
        return found


def _malformed(action: Action) -> str | None:
    """Say why an action is none: words give only such as are well formed, but for pairs of other things."""
    stage, kind, microbatch, parts = action
    if parts or kind == PAIR:
        passes = [part.kind in KINDS and KINDS[part.kind].passes for part in parts]
        if kind == PAIR and passes == ["SEND_F", "SEND_B"]:
            return next(filter(None, map(_malformed, parts)), None)
        return f"{str(action)[:LONG]} is not a pair of a forward and a backward, such as (0F7;3B5){PAIR}"
    row = KINDS.get(kind)
    if row is not None and stage >= 0 and (microbatch >= 0 if row.per_batch else microbatch == -1):
        return None
    return no_action(f"{stage}{kind}{'' if microbatch == -1 else microbatch}")


def _told(action: Action) -> str:
    """Return a word and what it says: "0F8 (forward of microbatch 8 on stage 0)"."""
    stage, kind, microbatch, _ = action
    of = f" of microbatch {microbatch} on stage {stage}" if KINDS[kind].per_batch else f", stage {stage}"
    return f"{action} ({KINDS[kind].title}{of})"


def _there_are(noun: str, number: int) -> str:
    if number > 1:
        return f"there are {plural(noun, 2)} 0 to {number - 1}"
    return f"there is only {noun} 0" if number else f"there is no {noun}"


# -- what a rank does wrong by itself ---------------------------------------------------------------------------


def _words(facts: _Facts, rank: int) -> Iterator[Said]:
    yield from facts.malformed[rank].items()


def _stage(facts: _Facts, rank: int) -> Iterator[Said]:
    for position, action in facts.ranks[rank]:
        if action.stage not in facts.place:
            why, cause = _there_are("stage", facts.stages), None
            if action.stage < facts.stages:
                why = "no rank has a pass of that stage"
            elif facts.stages not in facts.passes:
                why = f"no rank has stage {facts.stages}"
                cause = None if facts.stages else "stages count from 0"
                on = facts.batches if facts.batches > len(facts.order) + 1 else 0
                if on and action.stage in (rank + on, 2 * on - 1 - rank):
                    cause = f"with {on} ranks that is right: is the number of microbatches where that of ranks belongs?"
            yield position, f"{_told(action)}: {why}", cause


def _place(facts: _Facts, rank: int) -> Iterator[Said]:
    own = [stage for stage, at in facts.place.items() if at == rank]
    cause = f"rank {rank} has {these('stage', own)}" if own else ""
    for position, action in facts.ranks[rank]:
        if (right := facts.other(rank, action.stage)) is not None:
            cause = cause or "stages are numbered over all ranks, and not on each one"
            yield position, f"{_told(action)}: stage {action.stage} is on rank {right}", cause


def _batch(facts: _Facts, rank: int) -> Iterator[Said]:
    for position, action in facts.ranks[rank]:
        if action.microbatch >= facts.batches:
            cause = facts.off_by_one(rank, action.stage, action.kind)
            yield position, f"{_told(action)}: {_there_are('microbatch', facts.batches)}", cause


def _twice(facts: _Facts, rank: int) -> Iterator[Said]:
    done = facts.done[rank]
    for position, action in facts.ranks[rank]:
        if done[action] < position and action.kind not in ("UNSHARD", "RESHARD"):
            yield position, f"{_told(action)} was done already, at position {done[action]}"
        elif action.kind in SAME:
            same = Action(action.stage, SAME[action.kind], action.microbatch)
            if done.get(same, position) < position:
                text = f"{_told(action)}: the same backward was done as {same.kind} at position {done[same]}"
                yield position, text, "B is both halves: write B, or I and later W"


def _before(facts: _Facts, rank: int) -> Iterator[Said]:
    done = facts.done[rank]
    for position, action in facts.ranks[rank]:
        lacks = None
        if action.kind in PASSES:
            lacks = _lacks(facts, rank, position, action)
        elif action.kind == "UPDATE" and "REDUCE_GRAD" in facts.kinds:
            lacks = facts.lacks(rank, position, Action(action.stage, "REDUCE_GRAD"))
        if lacks is not None and done.get(lacks) != position:
            cause = None if lacks in done else facts.off_by_one(rank, lacks.stage, lacks.kind)
            if cause is None and lacks.stage != action.stage:
                what = f"{'activation' if lacks.kind == 'F' else 'gradient'} from stage {lacks.stage}, on the same rank"
                cause = f"stage {action.stage} gets its {what}: do {lacks} first"
            elif cause is None and lacks.kind == "F" and done.get(lacks) == position + 1:
                turned = [one._replace(kind=action.kind) in done for one in done if one.kind == "F"]
                before = [at for one, at in done.items() if one.kind == action.kind and at < position]
                if all(turned) and not before:  # else it is a number, or a warm-up that is too short from here on
                    cause = f"in a turn with both of them the forward comes first: {lacks}, then {action}"
            yield position, f"{action}{facts.needs(rank, lacks)}", cause


def _pair(facts: _Facts, rank: int) -> Iterator[Said]:
    for position, action in enumerate(facts.order[rank]):
        if action.parts and position not in facts.malformed[rank]:
            forward, backward = action.parts
            if facts.done[rank][forward] == position and _lacks(facts, rank, position, backward) == forward:
                yield position, f"{action}: the backward needs the forward beside it"


def _lacks(facts: _Facts, rank: int, position: int, action: Action) -> Action | None:
    """Return what a pass needs of its own rank, and does not find done before it."""
    row, lacks = KINDS[action.kind], None
    if row.after:
        lacks = facts.lacks(rank, position, Action(action.stage, row.after, action.microbatch))
    if lacks is None and row.needs and facts.place.get(other := action.stage + KINDS[row.needs].towards) == rank:
        makers = [Action(other, maker, action.microbatch) for maker in MAKERS[OTHER_END[row.needs]]]
        lacks = facts.lacks(rank, position, *makers)
    return lacks


def _gathers(facts: _Facts, rank: int) -> Iterator[Said]:
    """Yield passes without whole weights: these are so from UNSHARD to RESHARD, for W too, as its gradient is as
    large as they are."""
    if facts.kinds.isdisjoint(("UNSHARD", "RESHARD")):
        return
    whole: dict[int, int] = {}  # stages, and since which position
    unused: dict[int, int] = {}
    freed: set[int] = set()
    for position, action in facts.ranks[rank]:
        stage, kind, told = action.stage, action.kind, _told(action)
        if kind in PASSES:
            unused.pop(stage, None)
            if stage not in whole:
                when = f"since the last {stage}RESHARD" if stage in freed else "before it"
                yield position, f"{told} needs the weights: no {stage}UNSHARD {when}"
        elif kind == "UNSHARD":
            if stage in whole:
                yield position, f"{told} again: they are whole since position {whole[stage]}"
            whole[stage] = unused[stage] = position
        elif kind == "RESHARD":
            if stage not in whole:
                yield position, f"{told} has nothing to free: no {stage}UNSHARD before it"
            elif stage in unused:
                break
            freed.add(stage)
            whole.pop(stage, None)
    for stage, position in unused.items():
        yield position, f"{_told(Action(stage, 'UNSHARD'))}: no pass uses them"


def _reduced(facts: _Facts, rank: int) -> Iterator[Said]:
    """Gradients are reduced, and weights updated, after the whole backward."""
    last = {action.stage: (position, action) for position, action in facts.ranks[rank] if action.kind in OVER}
    for position, action in facts.ranks[rank]:
        if action.kind in ("REDUCE_GRAD", "UPDATE") and action.stage in last:
            at, backward = last[action.stage]
            if at > position:
                yield position, f"{_told(action)}: a backward comes later, {backward} at position {at}"


def _message(facts: _Facts, rank: int) -> Iterator[Said]:
    """Yield what is sent and not made before, computed and its input not received, awaited and not begun."""
    for position, action in facts.ranks[rank] if facts.messages else ():
        stage, kind, microbatch, _ = action
        row, why = KINDS[kind], ""
        end = stage + (row.towards or (KINDS[row.needs].towards if row.needs else 0))
        if row.towards and facts.other(rank, end) is None:
            why = f"stage {end} is on this rank too" if end in facts.place else f"there is no stage {end}"
            yield position, f"{_told(action)}: {why}, so there is no message"
            continue
        if row.needs and facts.other(rank, end) is not None:
            wait = WAITS[row.needs]
            names = (wait if Action(stage, wait, microbatch) in facts.done[rank] else row.needs,)
        elif kind in SENDS:
            names, why = MAKERS[kind], ": nothing to send yet, it"
        elif kind in BEGINS:
            names, why = (BEGINS[kind],), ": nothing to wait for yet, it"
        else:
            continue
        lacks = facts.lacks(rank, position, *(Action(stage, name, microbatch) for name in names))
        if lacks is not None:
            yield position, f"{_told(action)}{why}{facts.needs(rank, lacks)}"


# -- what is missing, what does not fit, and what holds all ranks up --------------------------------------------------


def _missing(facts: _Facts, rank: int) -> Iterator[Said]:
    end, batches = len(facts.order[rank]), facts.batches
    if not (facts.passes or facts.stages):
        if rank == 0:
            yield end, "there is nothing to do"
        return
    idle = [one for one in range(len(facts.order)) if one not in facts.place.values()]
    absent = [stage for stage in range(facts.stages) if stage not in facts.place]
    if absent:  # it could be on a rank that has none
        if rank == (idle[0] if idle else absent[0] % len(facts.order)):
            yield end, f"stage {absent[0]} is missing: {_there_are('stage', facts.stages)}"
        return
    if rank in idle:
        yield end, "there is nothing to do: no stage is on this rank"
    found: defaultdict[int, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for stage, kind, microbatch, _ in sorted(facts.done[rank], key=facts.done[rank].__getitem__):
        found[stage][kind].add(microbatch)
    for stage, done in found.items():
        forwards, both, first, second = (done[kind] for kind in "FBIW")
        if len(forwards) < batches:
            absent = next(microbatch for microbatch in count() if microbatch not in forwards)
            text = f"{stage}F{absent} is missing: {_there_are('microbatch', batches)}"
            yield end, text, facts.off_by_one(rank, stage, "F")
        elif over := forwards - both - first:
            cause = None if both or first else f"stage {stage} has no backward at all"
            name = "I" if first and not both else "B"
            yield end, f"{stage}{name}{min(over)} is missing: its forward is there", cause
        elif halves := first - second:
            yield end, f"{stage}W{min(halves)} is missing: its input half is there"
        elif "REDUCE_GRAD" in facts.kinds and not done["REDUCE_GRAD"]:
            yield end, f"{stage}REDUCE_GRAD is missing: other stages have theirs"


def _channel(facts: _Facts, rank: int) -> Iterator[Said]:
    """Yield receives that are not for the send of the same number from that rank."""
    for position, action in facts.ranks[rank]:
        if action.kind not in RECEIVES:
            continue
        ends = Action(action.stage + KINDS[action.kind].towards, OTHER_END[action.kind], action.microbatch)
        coming = facts.coming[(source := facts.place[ends.stage]), rank]
        comes = coming.popleft() if coming else None
        if comes is not None and comes != action and ends in facts.done[source]:
            yield position, f"{action}, but the next message of rank {source} is for {comes}"
        elif comes != action:
            yield position, f"{_told(action)}: rank {source} never does {ends}"


MOST_RANKS: Final = 8
"""Ranks of a circle that a message lists."""


def _deadlock(facts: _Facts, rank: int) -> Iterator[Said]:
    """Yield circles: ranks that are left when all have gone on as far as they can, each waiting for the next."""
    if rank not in facts.blocked:
        return
    circle = [rank]
    while (after := facts.place[facts.blocked[circle[-1]][1].stage]) not in circle:
        circle.append(after)
    if after != rank:
        return  # it only waits for those in a circle
    shown = [str(one) for one in [*circle, rank]]
    if len(circle) > MOST_RANKS:
        shown[MOST_RANKS // 2 : -2] = ["..."]
    at = {one: facts.order[one][facts.blocked[one][0]] for one in circle}
    waits = [(str(facts.blocked[one][1]), other) for one, other in pairwise([*circle, rank])]
    text = f"{at[rank]} waits for {waits[0][0]} on rank {waits[0][1]}, which never comes"
    late = [f"{word} after {at[other]} on rank {other}" for word, other in waits if word != str(at[other])]
    cause = f"{'one of these' * (len(late) > 1) or 'this'} comes too late: {', '.join(late)}"
    told = cause if 0 < len(late) <= MOST_RANKS // 2 else None  # who is at what is waited for only waits for the next
    yield facts.blocked[rank][0], f"{text}: ranks {' -> '.join(shown)} wait for each other", told


RULES: Final = (
    # What a rank does wrong whatever the others do
    (
        ("word", _words),
        ("stage", _stage),
        ("place", _place),
        ("batch", _batch),
        ("twice", _twice),
        ("before", _before),
        ("pair", _pair),
        ("gather", _gathers),
        ("gather", _reduced),
        ("message", _message),
    ),
    (("missing", _missing),),
    (("channel", _channel),),
    (("deadlock", _deadlock),),
)
"""The rules that every order keeps to, each with its name: what it finds a rank do wrong. Those of one row look at the
same time; of what they find at one position the first counts."""
