"""retime: the same schedule under other costs. Order, values and partners stay; only the times are worked out anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar, cast

from lib.cluster.clock import Streams
from lib.cluster.costs import Costs
from lib.cluster.reader import Readers
from lib.errors.exceptions import TraceError
from lib.trace.event import Event, Program
from lib.trace.order import Communicators, Do, Done, Issue, Meet, Pass, Read, walk
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.laws import total_elements
from lib.values.operations import OPERATIONS
from lib.values.values import Value

__all__ = ["retime"]

R = TypeVar("R", bound=Trace)


def retime(run: R, costs: Costs) -> R:
    """A copy of a run with the times that `costs` gives. A run that failed is timed as far as it went.

    A bare `receive()` keeps the message that it got, even if under other costs another would have been first, and a
    reader serves its requests in the order in which it did.
    """
    copied = replace(run, programs=[_copy(program) for program in run.programs], costs=costs)
    prices, clocks = costs.on(run.mesh), [0] * run.ranks
    streams, communicator, readers = Streams(), Communicators(), Readers(costs, run.mesh)
    try:
        for step in walk(copied):
            if isinstance(step, Do):
                _local(copied, prices, clocks, step)
            elif isinstance(step, Issue):
                step.event.issued = clocks[step.rank]
                if step.event.op == "pass_to":
                    _send(copied, prices, streams, step)
            elif isinstance(step, Meet):
                _meet(copied, prices, streams, communicator, step)
            elif isinstance(step, Pass):
                _receive(streams, step)
            elif isinstance(step, Read):
                found = readers.read(step.rank, step.event.batches, step.event.issued)
                step.event.start, step.event.length = found.start, found.length
            else:
                _done(clocks, step)
    except TraceError:
        if run.error is None:
            raise
    return copied


def _copy(program: Program) -> Program:
    copy = Program(program.rank)
    copy.events = [event.copy() for event in program.events]
    for event in copy.events:
        event.start = None
    copy.values = program.values
    copy.moves = program.moves
    return copy


def _local(run: Trace, prices: Costs, clocks: list[int], step: Do) -> None:
    event = step.event
    event.issued = event.start = clocks[step.rank]
    row = OPERATIONS[event.op]
    event.length = 0
    if row.cost is not None:
        work = row.work(len(event.batches), run.programs[step.rank].values_of(event.inputs[-1:]))
        event.length = prices.compute(row, step.rank, event.layer, work)
    clocks[step.rank] += event.length


def _values(run: Trace, rank: int, event: Event) -> list[Value]:
    found = run.programs[rank].values_of(event.inputs)
    if len(found) < len(event.inputs):  # in a run that failed before it was made
        raise TraceError(f"rank {rank}: {event.op} uses a value before it exists")
    return found


def _send(run: Trace, prices: Costs, streams: Streams, step: Issue) -> None:
    event = step.event
    target = cast(int, event.peer)
    event.length = prices.message(total_elements(_values(run, step.rank, event)), step.rank, target)
    event.start = streams.start((step.rank, target, "send"), event.issued, event.length)


def _receive(streams: Streams, step: Pass) -> None:
    event = step.received
    event.length = step.sent.length
    stream = (step.source, step.target, "receive")
    event.start = streams.start(stream, max(event.issued, cast(int, step.sent.end)), event.length)


def _meet(run: Trace, prices: Costs, streams: Streams, communicator: Communicators, step: Meet) -> None:
    _, first = step.members[0]
    row = COLLECTIVES[first.op]
    brought = row.brought([_values(run, rank, event) for rank, event in step.members])
    whole = row.size(brought, first.arg[0] if row.rooted else 0)
    length = prices.communicate(row, whole, first.group)
    start = streams.start(communicator(first.group), max(event.issued for _, event in step.members), length)
    for _, event in step.members:
        event.start, event.length = start, length


def _done(clocks: list[int], step: Done) -> None:
    now = clocks[step.rank]
    after = max(now, cast(int, step.event.end))
    if step.wait is not None:
        step.wait.issued = step.wait.start = now
        step.wait.length = after - now
    clocks[step.rank] = after
