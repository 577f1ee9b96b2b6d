"""The chain of operations that led to a moment: each of them began exactly when the one before was over.

It is followed back from an operation, or from the end of a gap. Of several causes at one moment the rank's own is
taken, so that a chain changes ranks only where it must; the others stand beside it.
"""

from __future__ import annotations

from typing import NamedTuple

from lib.analysis.dependencies import At, Causes
from lib.analysis.waiting.gaps import Gap
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMPUTE, MESSAGES, READS

__all__ = ["Cause", "Step", "causes_before", "followed", "led_to"]


class Cause(NamedTuple):
    """What was over just when an operation began, and so let it begin. `how`: see Step."""

    how: str
    at: At


class Step(NamedTuple):
    """A step of a chain: an operation from `start` to `end`, in ticks, the moment at which the next step began.

    `how` says why the next step waited for it: "own" (their rank did one after the other), "sent" (it sent what the
    next one receives), "member" (its rank came last to a collective), "stream" (the same ranks communicate one after
    the other), "reader" (their process reads one after the other) or "room" (what its rank did then made room for a
    message). `also` are the others that were over at the same moment, and for which the next step waited just as long.
    """

    at: At
    start: int
    end: int
    how: str
    also: tuple[At, ...] = ()


def causes_before(causes: Causes, here: At) -> list[Cause]:
    """All that was over just when an operation began, the one to follow first."""
    event, found = here.event, list[Cause]()
    start, before = event.start, causes.stream(here)
    if event.op in COLLECTIVES:
        last = causes.last_member(here)
        for one in (last, *(one for one in causes.members(here) if one[:2] != last[:2])):
            if one.event.issued == start:
                found += [Cause("own" if one.rank == here.rank else "member", kept) for kept in causes.kept_by(one)]
    elif event.issued == start:
        found += [Cause("own", kept) for kept in causes.kept_by(here)]
    if event.op in READS:
        return found if event.issued == start or before is None else [Cause("reader", before)]
    if event.op in MESSAGES and (sent := causes.sent(here)) is not None and sent.event.end == start:
        found.append(Cause("sent", sent))
    if before is not None and before.event.end == start:
        found.append(Cause("stream", before))
    return found


def followed(causes: Causes, here: At | None, end: int, until: int = 0, how: str = "own") -> tuple[Step, ...]:
    """The chain that led to `end`, when an operation was over or had come so far: the last step first.

    It goes back to what computes at the moment `until`, or before it.
    """
    found: list[Step] = []
    seen: set[tuple[int, int]] = set()
    also: tuple[At, ...] = ()
    while here is not None and here[:2] not in seen:  # a Trace from a file may say that something waits for itself
        seen.add(here[:2])
        if (room := causes.room(here)) is not None and here.event.end == end:
            here, how = room, "room"  # its beginning let the message go
        elif (start := here.event.start or 0) < end:
            found.append(Step(here, start, end, how, also))
            if not start or (start <= until and here.event.op in COMPUTE):
                break
            end, how, also = start, "own", ()
        before = causes_before(causes, here)
        also += tuple(cause.at for cause in before[1:])
        if not before:
            break
        here, how = before[0].at, before[0].how if how == "own" else how
    return tuple(found)


def led_to(causes: Causes, gap: Gap) -> tuple[Step, ...]:
    """The chain that led to the end of a gap, back to what was computed when it began; the last step first.

    Nothing where nobody knows what led there: in a run that failed, or was measured.
    """
    here, how = gap.before, "own"
    if gap.kind == "drain":
        here = gap.cause
    elif here is None or gap.kind in ("never", "unknown", "stopped"):
        return ()
    elif gap.kind in ("collective", "stream", "reader"):
        here, how = gap.cause, "member" if gap.kind == "collective" else gap.kind
    elif (sent := causes.sent(here)) is not None and gap.end <= (here.event.start or 0):
        late = gap.kind != "communication" and gap.end <= sent.event.issued
        here, how = (causes.kept(sent) if late else sent), "sent"
    return followed(causes, here, gap.end, gap.start, how)
