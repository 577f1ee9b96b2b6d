"""draw_ring: one step of a ring as a picture, or all of them as a page to step through."""

from __future__ import annotations

from typing import Any, Final

from drawing.canvas.frame import Page
from drawing.canvas.picture import Picture
from drawing.communication.exchange import Exchange, chosen, exchanges
from drawing.communication.ring.page import ring_page
from drawing.communication.ring.picture import Ring
from drawing.communication.ring.rounds import rounds
from drawing.timeline.schedule import note, trace_of
from lib.errors.wording import counted
from lib.trace.trace import Trace, nothing_to

__all__ = ["draw_ring"]

MOST: Final = 16
"""Ranks of the largest ring that is drawn: in a larger one every step looks the same."""


def draw_ring(run: Any, which: str | None = None, layer: int | None = None, step: int | None = None) -> Picture | Page:
    """How a collective goes round the ring of its ranks: a page to step through, or the picture after one `step`.

    `run` is a Trace, or the Models that simulate returned; `which` and `layer` choose a collective, as for
    draw_collective. Step 0 is before the first one.
    """
    if (why := nothing_to("draw", run)) is not None:
        return note(why)
    one = _chosen(trace_of(run, "draw_ring"), which, layer)
    if one is None:
        return note("no collective of this run goes round a ring")
    found = rounds(one)
    assert found is not None, "what is chosen goes round"
    ring = Ring(one, found)
    if step is None:
        return ring_page(ring)
    if not 0 <= step <= len(found.steps):
        raise ValueError(
            f"draw_ring: this {one.title} takes {counted(len(found.steps), 'round')}, so step= is a number from 0 "
            f"(before the first) to {len(found.steps)} (after the last); got {step}"
        )
    return ring.picture(step)


def _chosen(trace: Trace, which: str | None, layer: int | None) -> Exchange | None:
    """What was asked for, if it goes round a ring; without a name the first that does."""
    if which is None:
        found = [one for one in exchanges(trace) if layer in (None, one.layer) and rounds(one) is not None]
        one = found[0] if found else None
    else:
        one = chosen(trace, which, layer, "draw_ring")
    if one is None:
        return None
    if rounds(one) is None:
        why = "goes from rank to rank directly, and round no ring" if one.happened else "never happened"
        raise ValueError(f"draw_ring: this {one.title} {why}. draw_collective(run, {one.op!r}) shows it")
    if len(one.seats) > MOST:
        raise ValueError(
            f"draw_ring: a ring of {len(one.seats)} ranks is too large to draw; up to {MOST} are. "
            "A smaller one goes round in the same way: simulate(..., ranks=4)"
        )
    return one
