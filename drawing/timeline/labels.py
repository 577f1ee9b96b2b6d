"""What pictures say about events: short labels inside boxes, and the sentence that the pointer shows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from drawing.timeline.boxes import Box
from drawing.timeline.folding import Fold
from lib.analysis.event_words import event_words, ranges, spoken
from lib.cluster.clock import units
from lib.errors.wording import exact, numbered
from lib.puzzles.records import Size
from lib.trace.event import Event
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import OPERATIONS

__all__ = ["labels", "size", "title"]

NONE: Final[Mapping[int, str]] = MappingProxyType({})


def size(trace: Trace) -> str:
    """The size of a run: "4 ranks, 4 layers, 8 batches"."""
    return Size.of(trace).words()


def labels(box: Box, event: Event, own: Mapping[int, str] = NONE) -> tuple[list[str], str]:
    """The label of a box, best first with shorter ones after it, and a smaller second line.

    `own` says what the batches of some events are called, by their numbers (see `folding.Fold`).
    """
    layer = "" if event.layer is None else f"L{event.layer}"
    if box.look == "pending":
        return [f"waits: {spoken(event.op)}", "waits", "…"], layer
    if box.look == "failed":
        return ["failed here", "failed", "X"], ""
    if box.look == "wait":
        return [], ""
    if event.op in COLLECTIVES:
        return [COLLECTIVES[event.op].title, COLLECTIVES[event.op].word], layer
    row = OPERATIONS.get(event.op)
    if row is None or row.labels or not row.per_batch:
        return [*row.labels] if row is not None and row.labels else [event.op], layer
    if box.number in own:
        return [own[box.number], own[box.number].removeprefix("own ")], layer
    shortened = ranges(event.batches)
    every = " ".join(map(str, sorted(event.batches))) if len(event.batches) <= 32 else shortened
    return [every, shortened.replace(", ", ","), shortened.split(",")[0] + "…"], layer


def title(trace: Trace, box: Box, fold: Fold | None = None, brief: bool = False) -> str:
    """What the pointer shows over a box, which stands for all ranks of a fold. `brief` leaves out the text of the
    source line, for crowded pictures."""
    event = trace.programs[box.rank].events[box.number]
    who = f"rank {box.rank}"
    start, end = exact(units(box.start)), exact(units(box.end))
    what = _what(trace, box, event)
    when = f"from {start}, never over" if box.look in ("pending", "failed") else f"{start} to {end}"
    place = trace.place(event)
    where = ""
    if fold is not None and len(fold.ranks) > 1:
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
        return f"waits for ever: {event_words(event, trace.ranks)}"
    if box.look != "wait":
        return event_words(event, trace.ranks)
    if event.op == "wait" and event.arg:
        event = trace.programs[box.rank].events[event.arg[0]]
    return f"waits for {event_words(event, trace.ranks)}"
