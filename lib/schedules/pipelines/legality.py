"""Is an order legal: can its ranks do what it says, and is it then one whole training step? What is wrong first.

It serves orders at every level: passes alone, with the gathers of weights, with messages, with waits for these: what
has no wait is awaited at once. A message comes in its channel: the n-th receive from a rank gets its n-th send, and a
sender never waits. Whether a run has room for so many messages under way is not asked here (see `waits_for_room`).

*First* is, of what a rank does wrong whatever the others do, the lowest position, and of these the lowest rank; then
what is missing; then messages that do not fit; then what holds all ranks up together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count, groupby
from typing import Final, NamedTuple

from lib.errors.exceptions import PuzzleError
from lib.errors.wording import exact, plural, these
from lib.schedules.pipelines.action import (
    BEGINS,
    KINDS,
    MESSAGES,
    PAIR,
    PASSES,
    WAITS,
    Action,
    Messages,
    Order,
    parse,
    places,
)
from lib.values.table import table

__all__ = ["RULES", "IllegalOrder", "Rule", "Wrong", "illegal", "order_from", "require_legal"]

Limit = float | Sequence[float] | None


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


def illegal(
    order: Order,
    *,
    batches: int | None = None,
    stages: int | None = None,
    limit: Limit = None,
    messages: Messages = "awaited",
) -> Wrong | None:
    """Return what is wrong with an order first, or None.

    Without `batches` there are as many microbatches as most stages have, without `stages` as many as there are in a
    row. `limit` is of how many microbatches a rank may hold the activations, one number or one for each rank: where it
    has two stages, a forward on one of them makes half a microbatch. Where messages are `posted` a receive without a
    wait holds up not its rank but the pass that needs it.
    """
    if isinstance(limit, Sequence) and len(limit) != len(order):
        raise ValueError(f"a limit for each of {len(order)} ranks, please; got {len(limit)}")
    facts = _Facts(order, batches, stages, limit, messages == "posted")
    for _, rules in groupby(RULES.values(), key=lambda rule: rule.turn):
        found = [wrong for rule in rules for wrong in rule.find(facts)]
        if found:
            return min(found, key=lambda wrong: (wrong.position, wrong.rank))
    return None


def require_legal(
    order: Order,
    *,
    batches: int | None = None,
    stages: int | None = None,
    limit: Limit = None,
    messages: Messages = "awaited",
) -> Order:
    """Return the order, if it is legal; else IllegalOrder."""
    if (wrong := illegal(order, batches=batches, stages=stages, limit=limit, messages=messages)) is not None:
        raise IllegalOrder(wrong)
    return order


def order_from(rows: Iterable[str | Iterable[str]], *, one_stage: bool = False) -> Order:
    """Return the order of which each row has the words of one rank, as a list or a text. With `one_stage` a word such
    as F0 is of the stage that has the number of its rank. IllegalOrder names the place of a word that is none."""
    order: list[tuple[Action, ...]] = []
    for rank, row in enumerate(rows):
        words, stage = row.split() if isinstance(row, str) else row, rank if one_stage else None
        order.append(tuple(_read(rank, position, word, stage) for position, word in enumerate(words)))
    return tuple(order)


LONG: Final = 60
"""Characters of the longest word, and of what a message shows of a longer one."""


def _read(rank: int, position: int, word: object, stage: int | None) -> Action:
    """Return the action that a word is of; it may be anything."""
    why, cause = f"{_short(repr(word))} is no action: a stage, a kind and a microbatch, as 0F3 or 2SEND_B1", None
    if isinstance(word, str):
        plain = word.replace(" ", "").upper()
        for meant in (word, plain, f"{rank}{plain}"):
            with suppress(ValueError):
                found = parse((meant[:LONG],), stage)[0]
                if meant == word and len(word) <= LONG:
                    return found
                cause = f"write {meant}" if len(word) <= LONG else None
                break
    else:
        cause = 'write it as a word, such as "0F3"'
    raise IllegalOrder(Wrong(rank, position, Action(-1, _short(str(word))), "word", why, cause))


def _short(word: str) -> str:
    return word if len(word) <= LONG else f"{word[:LONG]}..."


# -- what follows from an order ---------------------------------------------------------------------------------

Key = tuple[int, str, int]
"""Stage, kind and microbatch."""
Step = tuple[int, int, str, int]
"""Position, stage, kind and microbatch of an action, or of a part of a pair."""

SAME: Final = {"B": "I", "I": "B", "W": "B"}
"""Which backward a pass would do again."""
OVER: Final = ("B", "W")
"""The passes with which a backward is over, and the activation of its forward is free."""
BOTH: Final = ["SEND_F", "SEND_B"]
"""The messages that the parts of a pair go out with."""


class _Facts:
    """An order, and what the rules ask of it."""

    def __init__(self, order: Order, batches: int | None, stages: int | None, limit: Limit, posted: bool) -> None:
        self.order, self.said_batches, self.said_stages, self.limit, self.posted = order, batches, stages, limit, posted
        self.malformed: list[tuple[int, int, str]] = []
        """Rank, position, and why it is no action."""
        self.pairs: list[tuple[int, int, Action]] = []
        self.ranks: list[list[Step]] = []
        """The actions of each rank, the parts of a pair one by one, without those that are none."""
        self.done: list[dict[Key, int]] = []
        """Where each rank does what for the first time."""
        for rank, actions in enumerate(order):
            steps: list[Step] = []
            done: dict[Key, int] = {}
            for position, action in enumerate(actions):
                if (why := _malformed(action)) is not None:
                    self.malformed.append((rank, position, why))
                    continue
                if action.parts:
                    self.pairs.append((rank, position, action))
                for stage, kind, microbatch, _ in action.parts or (action,):
                    steps.append((position, stage, kind, microbatch))
                    done.setdefault((stage, kind, microbatch), position)
            self.ranks.append(steps)
            self.done.append(done)
        self.kinds = {step[2] for steps in self.ranks for step in steps}
        self.messages = not self.kinds.isdisjoint(MESSAGES | BEGINS.keys())

    @cached_property
    def passes(self) -> dict[int, Counter[int]]:
        """For each stage that is named how many passes each of its microbatches has."""
        found: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for steps in self.ranks:
            for _, stage, kind, microbatch in steps:
                if kind in PASSES:
                    found[stage][microbatch] += 1
        return found

    @cached_property
    def batches(self) -> int:
        """Return how many microbatches there are: as most stages have, so that one stray number is the odd one out."""
        if self.said_batches is not None:
            return self.said_batches
        counts = Counter(max(self.passes[stage]) + 1 for stage in self.place)
        return min(counts, key=lambda number: (-counts[number], number), default=0)

    @cached_property
    def stages(self) -> int:
        """Return how many stages there are: as many as there are in a row, without one of which a rank does hardly
        anything beside what it has."""
        if self.said_stages is not None:
            return self.said_stages
        passes = {stage: found.total() for stage, found in self.passes.items()}
        most: Counter[int] = Counter()
        for stage, rank in self._named.items():
            most[rank] = max(most[rank], passes[stage])
        return next(s for s in count() if s not in passes or 4 * passes[s] < most[self._named[s]])

    @cached_property
    def place(self) -> dict[int, int]:
        """The rank of each stage that there is."""
        return {stage: rank for stage, rank in self._named.items() if stage < self.stages}

    @cached_property
    def _named(self) -> dict[int, int]:
        """The rank of each stage that is named."""
        wrong = {(rank, position) for rank, position, _ in self.malformed}
        order = self.order
        if wrong:
            order = tuple(
                tuple(action for position, action in enumerate(actions) if (rank, position) not in wrong)
                for rank, actions in enumerate(order)
            )
        return places(order)

    @cached_property
    def held(self) -> Counter[int]:
        """Return how many stages each rank has."""
        return Counter(self.place.values())

    def other(self, rank: int, stage: int) -> int | None:
        """Return the rank of a stage, where that is another one."""
        found = self.place.get(stage, rank)
        return None if found == rank else found

    def wrong(self, rule: str, rank: int, position: int, text: str, cause: str | None = None) -> Wrong:
        return Wrong(rank, position, self.order[rank][position], rule, text, cause)

    def missing(self, rank: int, text: str, cause: str | None = None) -> Wrong:
        return Wrong(rank, len(self.order[rank]) if self.order else 0, None, "missing", text, cause)

    def when(self, rank: int, key: Key) -> str:
        """Return where a rank does something, that it has not done before."""
        position = self.done[rank].get(key)
        return "which this rank never does" if position is None else f"which comes later, at position {position}"

    def off_by_one(self, rank: int, stage: int, kind: str) -> str | None:
        """That the microbatches of a kind on a stage are numbered from 1, if they are."""
        own = sorted(key[2] for key in self.done[rank] if key[:2] == (stage, kind))
        shifted = self.batches in own or not any(0 in found for found in self.passes.values())
        if not own or self.place.get(stage) != rank or own != list(range(1, len(own) + 1)) or not shifted:
            return None
        to = f" to {stage}{kind}{own[-1]}" if len(own) > 1 else ""
        return f"off by one: rank {rank} does {stage}{kind}1{to}"


def _malformed(action: Action) -> str | None:
    """Why an action is none: words give only such as are well formed, but for pairs of other things."""
    stage, kind, microbatch, parts = action
    if parts or kind == PAIR:
        if kind == PAIR and [KINDS[part.kind].passes if part.kind in KINDS else "" for part in parts] == BOTH:
            return next(filter(None, map(_malformed, parts)), None)
        return f"{_short(str(action))} is no pair of a forward and a backward, such as (0F7;3B5){PAIR}"
    row = KINDS.get(kind)
    if row is not None and stage >= 0 and (microbatch >= 0 if row.per_batch else microbatch == -1):
        return None
    word = _short(_word(stage, kind, microbatch))
    return f"{word!r} is no action: a stage, a kind and a microbatch, as 0F3 or 2SEND_B1"


def _word(stage: int, kind: str, microbatch: int) -> str:
    return f"{stage}{kind}{'' if microbatch == -1 else microbatch}"


def _told(stage: int, kind: str, microbatch: int) -> str:
    """Return a word and what it says: "0F8 (forward of microbatch 8 on stage 0)"."""
    title = KINDS[kind].title
    of = f" of microbatch {microbatch} on stage {stage}" if KINDS[kind].per_batch else f", stage {stage}"
    return f"{_word(stage, kind, microbatch)} ({title}{of})"


def _there_are(noun: str, number: int) -> str:
    """ "there are microbatches 0 to 7"."""
    if number > 1:
        return f"there are {plural(noun, 2)} 0 to {number - 1}"
    return f"there is only {noun} 0" if number else f"there is no {noun}"


# -- what a rank does wrong by itself ---------------------------------------------------------------------------


def _words(facts: _Facts) -> Iterator[Wrong]:
    for rank, position, why in facts.malformed:
        yield facts.wrong("word", rank, position, why)


def _batch(facts: _Facts) -> Iterator[Wrong]:
    batches = facts.batches
    for rank, steps in enumerate(facts.ranks):
        for position, stage, kind, microbatch in steps:
            if microbatch >= batches:
                text = f"{_told(stage, kind, microbatch)}: {_there_are('microbatch', batches)}"
                yield facts.wrong("batch", rank, position, text, facts.off_by_one(rank, stage, kind))
                break


def _stage(facts: _Facts) -> Iterator[Wrong]:
    place, stages = facts.place, facts.stages
    for rank, steps in enumerate(facts.ranks):
        for position, stage, kind, microbatch in steps:
            if stage not in place:
                why, cause = _there_are("stage", stages), None
                if stage < stages:
                    why = "no rank has a pass of that stage"
                elif facts.said_stages is None and stages not in facts.passes:
                    why = f"no rank has stage {stages}"
                    cause = None if stages else "stages count from 0"
                yield facts.wrong("stage", rank, position, f"{_told(stage, kind, microbatch)}: {why}", cause)
                break


def _place(facts: _Facts) -> Iterator[Wrong]:
    place = facts.place
    for rank, steps in enumerate(facts.ranks):
        for position, stage, kind, microbatch in steps:
            if (right := place.get(stage, rank)) != rank:
                own = [stage for stage, at in place.items() if at == rank]
                text = f"{_told(stage, kind, microbatch)}: stage {stage} is on rank {right}"
                cause = "stages are numbered over all ranks, and not on each one"
                cause = f"rank {rank} has {these('stage', own)}" if own else cause
                yield facts.wrong("place", rank, position, text, cause)
                break


def _twice(facts: _Facts) -> Iterator[Wrong]:
    for rank, (steps, done) in enumerate(zip(facts.ranks, facts.done, strict=True)):
        for position, stage, kind, microbatch in steps:
            first = done[stage, kind, microbatch]
            if first < position and kind not in ("UNSHARD", "RESHARD"):
                text = f"{_told(stage, kind, microbatch)} was done already, at position {first}"
                yield facts.wrong("twice", rank, position, text)
                break
            if kind in SAME and done.get((stage, SAME[kind], microbatch), position) < position:
                at = done[stage, SAME[kind], microbatch]
                text = f"{_told(stage, kind, microbatch)}: the same backward was done as {SAME[kind]} at position {at}"
                yield facts.wrong("twice", rank, position, text, "B is both halves: write B, or I and later W")
                break


def _before(facts: _Facts) -> Iterator[Wrong]:
    reduces = "REDUCE_GRAD" in facts.kinds
    for rank, (steps, done) in enumerate(zip(facts.ranks, facts.done, strict=True)):
        for position, stage, kind, microbatch in steps:
            lacks: Key | None = None
            if kind in PASSES:
                lacks = _lacks(facts, rank, position, stage, kind, microbatch)
            elif kind == "UPDATE" and reduces and done.get((stage, "REDUCE_GRAD", -1), position) >= position:
                lacks = stage, "REDUCE_GRAD", -1
            if lacks is not None and done.get(lacks) != position:
                cause = None if lacks in done else facts.off_by_one(rank, *lacks[:2])
                text = f"{_word(stage, kind, microbatch)} needs {_word(*lacks)} before it, {facts.when(rank, lacks)}"
                yield facts.wrong("before", rank, position, text, cause)
                break


def _pair(facts: _Facts) -> Iterator[Wrong]:
    for rank, position, action in facts.pairs:
        forward, backward = (part[:3] for part in action.parts)
        if facts.done[rank][forward] == position and _lacks(facts, rank, position, *backward) == forward:
            yield facts.wrong("pair", rank, position, f"{action}: the backward needs the forward beside it")


def _lacks(facts: _Facts, rank: int, position: int, stage: int, kind: str, microbatch: int) -> Key | None:
    """Return what a pass needs of its own rank, and does not find done before it."""
    done = facts.done[rank]
    after, needed = KINDS[kind].after, KINDS[kind].needs
    if after and done.get(key := (stage, after, microbatch), position) >= position:
        return key
    if needed and facts.place.get(other := stage + KINDS[needed].towards) == rank:
        keys = [(other, maker, microbatch) for maker in _MAKERS[_sent(needed)]]
        if all(done.get(key, position) >= position for key in keys):
            return min(keys, key=lambda key: done.get(key, len(facts.order[rank])))
    return None


_MAKERS: Final = {
    name: tuple(kind.name for kind in KINDS.values() if kind.passes == name)
    for name in KINDS
    if name.startswith("SEND")
}
"""Whose outcome a message brings: SEND_B that of B or I."""


def _sent(received: str) -> str:
    """Return the kind of the other end of a message: of RECV_F it is SEND_F."""
    return received.replace("RECV", "SEND")


def _gather(facts: _Facts) -> Iterator[Wrong]:
    """Weights are whole from UNSHARD to RESHARD, and each pass of their stage comes between, W too: its gradient is as
    large as they are. Gradients are reduced, and weights updated, after the whole backward."""
    gathers = not facts.kinds.isdisjoint(("UNSHARD", "RESHARD"))
    for rank, steps in enumerate(facts.ranks):
        if gathers:
            yield from _gathers(facts, rank, steps)
        if not facts.kinds.isdisjoint(("REDUCE_GRAD", "UPDATE")):
            last = {stage: (position, _word(stage, kind, m)) for position, stage, kind, m in steps if kind in OVER}
            for position, stage, kind, microbatch in steps:
                at, word = last.get(stage, (-1, ""))
                if kind in ("REDUCE_GRAD", "UPDATE") and at > position:
                    text = f"{_told(stage, kind, microbatch)}: a backward comes later, {word} at position {at}"
                    yield facts.wrong("gather", rank, position, text)
                    break


def _gathers(facts: _Facts, rank: int, steps: Iterable[Step]) -> Iterator[Wrong]:
    whole: dict[int, int] = {}  # stages, and since which position
    unused: dict[int, int] = {}
    freed: set[int] = set()
    for position, stage, kind, microbatch in steps:
        text = None
        if kind in PASSES:
            unused.pop(stage, None)
            if stage not in whole:
                when = f"since the last {stage}RESHARD" if stage in freed else "before it"
                text = f"needs the weights: no {stage}UNSHARD {when}"
        elif kind == "UNSHARD":
            if stage in whole:
                text = f"again: they are whole since position {whole[stage]}"
            whole[stage] = unused[stage] = position
        elif kind == "RESHARD":
            if stage not in whole:
                text = f"has nothing to free: no {stage}UNSHARD before it"
            elif stage in unused:
                yield facts.wrong("gather", rank, unused[stage], f"{_told(stage, 'UNSHARD', -1)}: no pass uses them")
                return
            freed.add(stage)
            whole.pop(stage, None)
        if text is not None:
            yield facts.wrong("gather", rank, position, f"{_told(stage, kind, microbatch)} {text}")
            return
    for stage, position in unused.items():
        yield facts.wrong("gather", rank, position, f"{_told(stage, 'UNSHARD', -1)}: no pass uses them")


def _message(facts: _Facts) -> Iterator[Wrong]:
    """Yield what a rank sends it has made, what it computes with it has received, and what it waits for has begun."""
    if not facts.messages:
        return
    for rank, steps in enumerate(facts.ranks):
        for step in steps:
            if (text := _alone(facts, rank, *step)) is not None:
                yield facts.wrong("message", rank, step[0], f"{_told(*step[1:])}{text}")
                break


def _alone(facts: _Facts, rank: int, position: int, stage: int, kind: str, microbatch: int) -> str | None:
    """Return what an action lacks of its own rank's messages."""
    row, done, why = KINDS[kind], facts.done[rank], ""
    if row.needs:
        if facts.other(rank, stage + KINDS[row.needs].towards) is None:
            return None
        wait = WAITS[row.needs]
        names = (wait if (stage, wait, microbatch) in done else row.needs,)
    elif row.towards:
        if facts.other(rank, end := stage + row.towards) is None:
            why = f"stage {end} is on this rank too" if end in facts.place else f"there is no stage {end}"
            return f": {why}, so there is no message"
        if kind not in _MAKERS:
            return None
        names, why = _MAKERS[kind], ": nothing to send yet, it"
    elif kind in BEGINS:
        names, why = (BEGINS[kind],), ": nothing to wait for yet, it"
    else:
        return None
    for name in names:
        if done.get((stage, name, microbatch), position) < position:
            return None
    key = min(((stage, name, microbatch) for name in names), key=lambda key: done.get(key, len(facts.order[rank])))
    return f"{why} needs {_word(*key)} before it, {facts.when(rank, key)}"


def _memory(facts: _Facts) -> Iterator[Wrong]:
    """Yield an activation is there from its forward to the end of its backward, of both halves of it."""
    if facts.limit is None:
        return
    for rank, steps in enumerate(facts.ranks):
        limit = facts.limit[rank] if isinstance(facts.limit, Sequence) else facts.limit
        share, held = facts.held[rank] or 1, 0
        for position, stage, kind, microbatch in steps:
            held += (kind == "F") - (kind in OVER)
            if kind == "F" and held > limit * share:
                makes = f"makes {exact(held / share)} microbatches of activations; at most {exact(limit)}"
                yield facts.wrong("memory", rank, position, f"{_told(stage, kind, microbatch)} {makes}")
                break


# -- what is missing --------------------------------------------------------------------------------------------


def _missing(facts: _Facts) -> Iterator[Wrong]:
    if not facts.order or not (facts.passes or facts.stages):
        yield facts.missing(0, "there is nothing to do")
        return
    idle = [rank for rank in range(len(facts.order)) if not facts.held[rank]]
    if (absent := next((stage for stage in range(facts.stages) if stage not in facts.place), None)) is not None:
        rank = idle[0] if idle else absent % len(facts.order)
        yield facts.missing(rank, f"stage {absent} is missing: {_there_are('stage', facts.stages)}")
        return
    for rank in idle:
        yield facts.missing(rank, "there is nothing to do: no stage is on this rank")
    for rank, done in enumerate(facts.done):
        found: defaultdict[int, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        for stage, kind, microbatch in done:
            found[stage][kind].add(microbatch)
        for stage in found:
            yield from _missing_on(facts, rank, stage, found[stage])


def _missing_on(facts: _Facts, rank: int, stage: int, done: dict[str, set[int]]) -> Iterator[Wrong]:
    """Yield what a stage lacks."""
    forwards, both, first, second = (done[kind] for kind in "FBIW")
    name, batches = "I" if first and not both else "B", facts.batches
    if len(forwards) < batches:
        absent = next(microbatch for microbatch in count() if microbatch not in forwards)
        why = _there_are("microbatch", batches)
        yield facts.missing(rank, f"{stage}F{absent} is missing: {why}", facts.off_by_one(rank, stage, "F"))
    elif absent := forwards - both - first:
        cause = None if both or first else f"stage {stage} has no backward at all"
        yield facts.missing(rank, f"{stage}{name}{min(absent)} is missing: its forward is there", cause)
    elif absent := first - second:
        yield facts.missing(rank, f"{stage}W{min(absent)} is missing: its input half is there")
    elif "REDUCE_GRAD" in facts.kinds and not done["REDUCE_GRAD"]:
        yield facts.missing(rank, f"{stage}REDUCE_GRAD is missing: other stages have theirs")


# -- messages that do not fit -----------------------------------------------------------------------------------


def _channel(facts: _Facts) -> Iterator[Wrong]:
    """Yield the n-th receive from a rank is for its n-th send."""
    sent: defaultdict[tuple[int, int], list[Key]] = defaultdict(list)
    for rank, steps in enumerate(facts.ranks) if facts.messages else ():
        for _, stage, kind, microbatch in steps:
            if kind.startswith("SEND"):
                after = stage + KINDS[kind].towards
                sent[rank, facts.place[after]].append((after, kind.replace("SEND", "RECV"), microbatch))
    coming = {channel: iter(messages) for channel, messages in sent.items()}
    for rank, steps in enumerate(facts.ranks) if facts.messages else ():
        for position, stage, kind, microbatch in steps:
            if not kind.startswith("RECV"):
                continue
            source = facts.place[other := stage + KINDS[kind].towards]
            comes = next(coming.get((source, rank), iter(())), None)
            if comes != (stage, kind, microbatch):
                ends = other, _sent(kind), microbatch
                text = f"{_told(stage, kind, microbatch)}: rank {source} never does {_word(*ends)}"
                if ends in facts.done[source] and comes is not None:
                    word = _word(stage, kind, microbatch)
                    text = f"{word}, but the next message of rank {source} is for {_word(*comes)}"
                yield facts.wrong("channel", rank, position, text)
                break


# -- what holds all ranks up ------------------------------------------------------------------------------------


def _deadlock(facts: _Facts) -> Iterator[Wrong]:
    """Yield all go on as far as they can. Who is left waits for somebody, and somebody for them."""
    blocked = _blocked(facts)
    source = {rank: facts.place[key[0]] for rank, (_, key) in blocked.items()}
    at = {rank: facts.order[rank][position] for rank, (position, _) in blocked.items()}
    for rank, (position, key) in blocked.items():
        circle = [rank]
        while (after := source[circle[-1]]) not in circle:
            circle.append(after)
        if after != rank:
            continue  # it only waits for those in a circle
        shown = [str(one) for one in [*circle, rank]]
        if len(circle) > MOST_RANKS:
            shown[MOST_RANKS // 2 : -2] = ["..."]
        text = f"{at[rank]} waits for {_word(*key)} on rank {source[rank]}, which never comes"
        text += f": ranks {' -> '.join(shown)} wait for each other"
        wanted = {one: _word(*blocked[one][1]) for one in circle}
        late = [
            f"{wanted[one]} after {at[source[one]]} on rank {source[one]}"
            for one in circle
            if wanted[one] != str(at[source[one]])  # else that rank only waits for the next one
        ]
        cause = f"{'one of these' * (len(late) > 1) or 'this'} comes too late: {', '.join(late)}" if late else None
        cause = cause if len(late) <= MOST_RANKS // 2 else None
        yield facts.wrong("deadlock", rank, position, text, cause)


MOST_RANKS: Final = 8
"""Ranks of a circle that a message lists."""


def _blocked(facts: _Facts) -> dict[int, tuple[int, Key]]:
    """At which position ranks wait for ever, and for what of another rank."""
    place = facts.place
    brings = {name: (_sent(name), KINDS[name].towards) for name in MESSAGES - _MAKERS.keys()}
    waits = {WAITS[name]: sent for name, sent in brings.items()}
    behind = {name: WAITS[name] for name in brings}
    if facts.posted or not facts.messages:
        brings = {kind: brings[KINDS[kind].needs] for kind in PASSES if KINDS[kind].needs}
    brings |= waits
    sends = {name: name for name in _MAKERS}
    if not facts.messages:
        sends = {kind: KINDS[kind].passes for kind in PASSES}
    at, going = [0] * len(facts.ranks), list(range(len(facts.ranks)))
    sent: set[Key] = set()
    awaited: defaultdict[Key, list[int]] = defaultdict(list)
    blocked: dict[int, tuple[int, Key]] = {}
    while going:
        rank = going.pop()
        blocked.pop(rank, None)
        steps, done, first = facts.ranks[rank], facts.done[rank], at[rank]
        while first < len(steps) and rank not in blocked:
            position, after = steps[first][0], first + 1
            while after < len(steps) and steps[after][0] == position:  # a pair starts when the inputs of both are there
                after += 1
            for _, stage, kind, microbatch in steps[first:after]:
                if kind in brings:
                    name, towards = brings[kind]
                    key = stage + towards, name, microbatch
                    if key in sent or place.get(key[0], rank) == rank:
                        continue
                    if kind not in behind or (stage, behind[kind], microbatch) not in done:
                        awaited[key].append(rank)
                        blocked[rank] = position, key
                        break
            else:
                for _, stage, kind, microbatch in steps[first:after]:
                    if name := sends.get(kind):
                        sent.add(key := (stage, name, microbatch))
                        going += awaited.pop(key, ())
                first = after
        at[rank] = first
    if not facts.messages:  # they wait for the pass itself
        for rank, (position, (stage, name, microbatch)) in blocked.items():
            done = facts.done[place[stage]]
            keys = [(stage, maker, microbatch) for maker in _MAKERS[name]]
            blocked[rank] = position, next(key for key in keys if key in done)
    return blocked


class Rule(NamedTuple):
    """A rule that every order keeps to. Rules of one `turn` look at the same time, and what stands first counts."""

    name: str
    turn: int
    find: Callable[[_Facts], Iterable[Wrong]]


RULES: Final = table(
    (
        Rule("word", 0, _words),
        Rule("stage", 0, _stage),
        Rule("place", 0, _place),
        Rule("batch", 0, _batch),
        Rule("twice", 0, _twice),
        Rule("before", 0, _before),
        Rule("pair", 0, _pair),
        Rule("gather", 0, _gather),
        Rule("message", 0, _message),
        Rule("memory", 0, _memory),
        Rule("missing", 1, _missing),
        Rule("channel", 2, _channel),
        Rule("deadlock", 3, _deadlock),
    )
)
"""The rules, in the order in which they look."""
