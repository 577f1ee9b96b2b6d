"""Examples: how many each process read, and which each device really got.

A process that takes an example with `get_activation` reads it each time; its reader, asked with `read`, reads it once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lib.cluster.reader import Readers, process_of
from lib.errors.wording import amount, counted, these
from lib.trace.event import NO_BATCHES
from lib.trace.order import requests
from lib.trace.trace import Event, Trace
from lib.values.operations import OPERATIONS, READS
from lib.values.values import Activation, Elements

__all__ = ["examples_read", "feeds", "got", "on_device", "words"]


def feeds(event: Event) -> bool:
    """Whether an event brings input data to its rank, and not from another rank."""
    row = OPERATIONS.get(event.op)
    return row is not None and row.loads and Activation in row.gives and event.start is not None


def got(trace: Trace) -> list[frozenset[int]]:
    """The examples that each rank's device got from outside."""
    every = [[event.batches for event in program.events if feeds(event)] for program in trace.programs]
    return [NO_BATCHES.union(*batches) for batches in every]


def on_device(trace: Trace) -> list[Elements]:
    """Elements of input data that were put on each device."""
    batch = trace.shape.activations[0].size // trace.shape.items
    return [batch * sum(len(e.batches) for e in program.events if feeds(e)) for program in trace.programs]


def examples_read(trace: Trace) -> dict[int, int]:
    """How many examples each process read, one that it read twice counted twice."""
    found: dict[int, int] = defaultdict(int)
    for program in trace.programs:
        taken = sum(len(e.batches) for e in program.events if feeds(e) and e.op not in READS)
        found[process_of(trace.mesh, program.rank)] += taken
    readers = Readers(trace.costs, trace.mesh)
    for process, queue in requests(trace).items():
        for rank, number in queue:
            event = trace.programs[rank].events[number]
            found[process] += len(readers.read(rank, event.batches, event.issued).fresh)
    return dict(sorted(found.items()))


def words(trace: Trace) -> str:
    """What was read and copied: "each of 4 processes read 8 examples, and each device got 524,288 elements of them"."""
    read, put = examples_read(trace), [float(elements) for elements in on_device(trace)]
    devices = "each device got" if len(put) > 1 else "the device got"
    copied = f"{devices} {_between(put)} elements of them"
    if len(read) == 1:
        return f"one process read {counted(read[0], 'example')}, and {copied}"
    if len(set(read.values())) == 1:
        return f"each of {len(read)} processes read {counted(read[0], 'example')}, and {copied}"
    groups: dict[int, list[int]] = defaultdict(list)
    for process, count in read.items():
        groups[count].append(process)
    said = [f"{these('process', members)} read {counted(count, 'example')}" for count, members in groups.items()]
    return f"{', '.join(said)}, and {copied}"


def _between(numbers: Sequence[float]) -> str:
    least, most = min(numbers), max(numbers)
    return amount(most) if least == most else f"{amount(least)} to {amount(most)}"
