"""What pictures say about events: short labels inside boxes, and the sentence that the pointer shows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from drawing.timeline.boxes import Box, failed_rank, padded
from lib.analysis.dependencies import slowed
from lib.analysis.event_words import event_words, layers_of, ranges, spoken
from lib.cluster.costs import units
from lib.errors.wording import exact, numbered
from lib.puzzles.records import Size
from lib.trace.event import Event
from lib.trace.order import collectives
from lib.trace.trace import Trace, kept
from lib.values.collectives import COLLECTIVES
from lib.values.operations import OPERATIONS, READS

__all__ = ["Waiting", "labels", "size", "title", "waiting"]

NONE: Final[Mapping[int, str]] = MappingProxyType({})


class Like(Protocol):
    """Ranks that are alike (see `folding.Fold`): the first is drawn."""

    @property
    def ranks(self) -> tuple[int, ...]: ...
    @property
    def own(self) -> Mapping[int, str]: ...


class _Alone(NamedTuple):
    ranks: tuple[int, ...] = ()
    own: Mapping[int, str] = NONE


ALONE: Final[Like] = _Alone()


def size(trace: Trace) -> str:
    """The size of a run: "4 ranks, 4 layers, 8 batches"."""
    return Size.of(trace).words()


def labels(
    box: Box, event: Event, own: Mapping[int, str] = NONE, waits: Waiting | None = None
) -> tuple[list[str], str]:
    """The label of a box, best first with shorter ones after it, and a smaller second line.

    `own` says what the batches of some events are called, by their numbers (see `folding.Fold`), and `waits` what the
    box of a rank that waits is about.
    """
    layer = "" if event.layer is None else f"L{ranges(layers_of(event))}"
    if box.look == "pending" and waits is not None:
        if box.lane:  # the rank itself did not wait
            return [waits.what, spoken(event.op), "…"], waits.who
        return [f"waits for {waits.what}", f"waits: {spoken(event.op)}", "waits", "…"], waits.who
    if box.look == "pending":
        return [f"waits: {spoken(event.op)}", "waits", "…"], layer
    if box.look == "failed":
        return ["failed here", "failed", "X"], ""
    if box.look == "wait":
        return [], ""
    if event.op in COLLECTIVES:
        return [COLLECTIVES[event.op].title, COLLECTIVES[event.op].word], layer
    row = OPERATIONS.get(event.op)
    if row is None or row.labels or not row.has_batches:
        return [*row.labels] if row is not None and row.labels else [event.op], layer
    if row.loads:
        layer = "read" if row.kind == "read" else "copy"
    if box.number in own:
        # A number alone would name a batch. Of one batch that each rank has there is nothing to tell apart.
        batch = own[box.number].replace("own ", "#") if own[box.number] != "own" else ""
        return [text for text in dict.fromkeys((row.letter + batch, batch)) if text], layer
    shortened = ranges(event.batches)
    every = " ".join(map(str, sorted(event.batches))) if len(event.batches) <= 32 else shortened
    lettered = [row.letter + every] if row.letter else []
    return [*lettered, every, shortened.replace(", ", ","), shortened.split(",")[0] + "…"], layer


class Waiting(NamedTuple):
    """What a rank waited for when a run stopped, and what is known of the others: "rank 1 is missing"."""

    what: str
    who: str


@kept
def _calls(trace: Trace) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """The calls of the collective that an event is part of, by its rank and number."""
    return {call: joined.calls for joined in collectives(trace) for call in joined.calls}


def waiting(trace: Trace, rank: int, number: int) -> Waiting:
    """What a rank waits for in one of its events."""
    event = trace.programs[rank].events[number]
    if event.op == "pass_to":
        return Waiting(f"room to send to {_peer(trace, rank, event.peer)}", "the message before is not received")
    if event.op in READS:
        return Waiting("the reader of its process", numbered("batch", event.batches))
    if event.op not in COLLECTIVES:
        return Waiting(f"a message from {_peer(trace, rank, event.peer)}", "")
    what = f"{spoken(event.op)} of layer {event.layer}"
    calls = _calls(trace)
    missing = set(event.group).difference(joined for joined, _ in calls[rank, number])
    if missing:
        return Waiting(what, f"{numbered('rank', missing)} {'is' if len(missing) == 1 else 'are'} missing")
    every = [trace.programs[joined].events[place] for joined, place in calls[rank, number]]
    if len({(one.op, one.layer, one.group) for one in every}) > 1:
        return Waiting(what, "the calls differ")
    return Waiting(what, f"with {numbered('rank', event.group)}")


def _peer(trace: Trace, rank: int, peer: int | None) -> str:
    """What a rank calls another one: "stage 2" where they differ along that axis of the mesh only, else its number."""
    if peer is None:
        return "any rank"
    if trace.mesh is None or max(rank, peer) >= len(trace.mesh):
        return f"rank {peer}"
    here, there = trace.mesh.coordinates(rank), trace.mesh.coordinates(peer)
    axes = [axis for axis in there if here[axis] != there[axis]]
    return f"{axes[0]} {there[axes[0]]}" if len(axes) == 1 else trace.mesh.named(peer)


def title(trace: Trace, box: Box, fold: Like = ALONE, brief: bool = False) -> str:
    """What the pointer shows over a box, which stands for all ranks of a fold. `brief` leaves out the text of the
    source line, for crowded pictures."""
    event = trace.programs[box.rank].events[box.number]
    who = f"rank {box.rank}"
    start, end = exact(units(box.start)), exact(units(box.end))
    what = _what(trace, box, event)
    when = f"{start} to {end}"
    if box.look in ("pending", "failed"):
        when = f"from {start}, never over" if box.look == "pending" else f"at {start}"
    place = trace.place(event)
    where = ""
    if len(fold.ranks) > 1:
        where = f"so {'does' if len(fold.ranks) == 2 else 'do'} {numbered('rank', fold.ranks[1:])}"
        where += ", on batches of their own" if box.number in fold.own else ""
        where += "" if place is None else ", " if brief else "\n"
    if place is not None:
        where += f"line {place.line}" if brief else f"{place.file}, line {place.line}: {place.text[:90]}"
    if brief:
        return f"{what}\n{who}, {when}" + (f", {where}" if where else "")
    return f"{what}\n{who}, {when}" + (f"\n{where}" if where else "")


def _what(trace: Trace, box: Box, event: Event) -> str:
    if box.look == "failed":
        return f"failed here, after {event_words(event, trace.ranks)}: {(trace.error or '').partition(chr(10))[0]}"
    if box.look == "pending":
        head = "waited when the run stopped" if failed_rank(trace) is not None else "waits for ever"
        who = waiting(trace, box.rank, box.number).who
        return f"{head}: {event_words(event, trace.ranks)}" + (f"; {who}" if who else "")
    number = event.arg[0] if box.look == "wait" and event.op == "wait" and event.arg else box.number
    meant = trace.programs[box.rank].events[number]
    words = ("waits for " if box.look == "wait" else "") + event_words(meant, trace.ranks)
    if box.look != "wait" and (padding := padded(trace, event)):
        words += ", all padding" if padding == len(event.batches) else f", {padding} of them padding"
    why = slowed(trace, box.rank, number)
    return f"{words}; {why}" if why else words
