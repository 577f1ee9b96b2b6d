"""The Trace of a run that failed, up to the moment of the failure: ranks that ran ahead had not done the rest."""

from __future__ import annotations

from dataclasses import replace

from lib.trace.event import Event, Program
from lib.trace.trace import Trace
from lib.values.operations import COMMUNICATION, READS

__all__ = ["cut"]


def cut(trace: Trace, until: int) -> Trace:
    """The Trace up to a moment: what began by then, and what was called by then and had not begun."""
    return replace(trace, programs=[_cut(program, until) for program in trace.programs])


def _cut(program: Program, until: int) -> Program:
    events: list[Event] = []
    pending: set[int] = set()
    clock = 0
    for number, event in enumerate(program.events):
        if event.issued > until or (event.op == "wait" and event.arg[0] in pending):
            break
        if event.op in COMMUNICATION and (event.start is None or event.start > until):
            pending.add(number)
            event = _not_begun(event)
        elif event.blocking or event.op not in COMMUNICATION:
            clock = max(clock, event.end or 0)
        events.append(event)
    count = len(events)
    last = count if clock <= until else count - 1  # what comes after an operation that goes on is not yet
    moves = [move for move in program.moves if move[0] <= last]
    ids = [value for event in events for value in (*event.inputs, *event.outputs)]
    ids += [value for _, _, value, _ in moves]
    return Program(program.rank, events, program.values[: max(ids, default=-1) + 1], moves)


def _not_begun(event: Event) -> Event:
    """A communication whose time had not come."""
    event = event.copy()
    event.start, event.length, event.outputs, event.blocking = None, 0, (), False
    if event.op == "receive":
        event.layer, event.batches = None, frozenset()
    if event.op in READS:
        event.arg = ()
    return event
