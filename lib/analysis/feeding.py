"""How a run was fed: how many examples each process read, which ones each device got, and which rows of data there are.

A process that takes an example with `get_activation` reads it each time; its reader, asked with `read`, reads it once.

The run alone shows which axes of a mesh cut the data. If all ranks of each line along an axis got the same examples,
that axis does not cut the data: those ranks are one row of data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lib.cluster.reader import Readers, process_of
from lib.errors.wording import amount, counted, these
from lib.trace.event import NO_BATCHES
from lib.trace.order import requests
from lib.trace.trace import Event, Trace
from lib.values.operations import OPERATIONS, READS
from lib.values.values import Activation, Elements


def feeds(event: Event) -> bool:
    """Tell whether an event brings input data to its rank from outside, not from another rank."""
    row = OPERATIONS.get(event.op)
    return row is not None and row.loads and Activation in row.gives and event.start is not None


def got(trace: Trace) -> list[frozenset[int]]:
    """Return the examples that each rank's device got from outside."""
    every = [[event.batches for event in program.events if feeds(event)] for program in trace.programs]
    return [NO_BATCHES.union(*batches) for batches in every]


def on_device(trace: Trace) -> list[Elements]:
    """Return how many elements of input data were put on each device."""
    batch = trace.shape.activations[0].size // trace.shape.items
    return [batch * sum(len(e.batches) for e in program.events if feeds(e)) for program in trace.programs]


def examples_read(trace: Trace) -> dict[int, int]:
    """Return how many examples each process read; an example read twice counts twice."""
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
    """Return what was read and copied: "each of 4 processes read 8 examples, and each device got 524,288 elements of
    them"."""
    read, put = examples_read(trace), [float(elements) for elements in on_device(trace)]
    least, most = min(put), max(put)
    got = amount(most) if least == most else f"{amount(least)} to {amount(most)}"
    copied = f"{'each' if len(put) > 1 else 'the'} device got {got} elements of them"
    if len(set(read.values())) == 1:
        who = "one process" if len(read) == 1 else f"each of {len(read)} processes"
        return f"{who} read {counted(read[0], 'example')}, and {copied}"
    groups: dict[int, list[int]] = defaultdict(list)
    for process, count in read.items():
        groups[count].append(process)
    said = [f"{these('process', members)} read {counted(count, 'example')}" for count, members in groups.items()]
    return f"{', '.join(said)}, and {copied}"


SHOWN = 8
"""The most rows that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of data of a run. `axes` are those along which rows are counted (none without a mesh); `ranks` and
    `examples` are those of each row: if its ranks got different examples, all of them."""

    axes: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    examples: tuple[frozenset[int], ...]

    def named(self, rows: Sequence[int]) -> str:
        """Name rows in a sentence: "rows 1 and 3", or "ranks 1 and 3" if each has only one rank."""
        if all(len(self.ranks[row]) == 1 for row in rows):
            return these("rank", [self.ranks[row][0] for row in rows])
        return these("row", rows)

    def shared(self, batches: frozenset[int]) -> str | None:
        """Say which rows share one of some examples: "rows 1 and 3 hold the same example (batch 5)"."""
        for batch in sorted(batches):
            rows = [row for row, held in enumerate(self.examples) if batch in held]
            if len(rows) > 1:
                both = batches.intersection(*[self.examples[row] for row in rows])
                what = "example" if len(both) == 1 else "examples"
                return f"{self.named(rows)} hold the same {what} ({these('batch', both)})"
        return None

    def words(self) -> str:
        """Return what each row holds: "row 0: batches 0-3; row 1: batches 4, 5"."""
        held = [f"{self.named([row])}: {these('batch', self.examples[row])}" for row in range(len(self.ranks))[:SHOWN]]
        return "; ".join(held) + ("; ..." if len(self.ranks) > SHOWN else "")

    def unread(self, batches: frozenset[int]) -> frozenset[int]:
        """Return those of some examples that no rank got."""
        return batches - frozenset[int]().union(*self.examples)


def rows_of(trace: Trace) -> Rows:
    """Return the rows of data of a run, as far as it went. Ranks that got none, such as later stages, are in no row."""
    held = got(trace)
    mesh = trace.mesh
    if mesh is None:
        fed = [rank for rank in range(trace.ranks) if held[rank]]
        return Rows((), tuple((rank,) for rank in fed), tuple(held[rank] for rank in fed))
    lines = {axis: {mesh.group(rank, axis) for rank in range(trace.ranks)} for axis in mesh.axes}
    apart = {axis: [{held[rank] for rank in line if held[rank]} for line in every] for axis, every in lines.items()}
    axes = [axis for axis, every in apart.items() if any(len(given) > 1 for given in every)]
    found = [row for row in mesh.rows(*axes) if any(held[rank] for rank in row)]
    return Rows(tuple(axes), tuple(found), tuple(frozenset[int]().union(*[held[r] for r in row]) for row in found))
