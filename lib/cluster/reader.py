"""Reading: each process has one reader, which reads an example once and keeps it for all devices of the process.

For a read, the reader first reads the examples that its process does not have, one after the other; then the device
copies all that were requested, on a link of its own. The only copy of this timing: the simulator and `retime` both ask
here, in the order in which requests are served.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from lib.cluster.costs import Costs, ticks

if TYPE_CHECKING:
    from lib.cluster.mesh import Mesh


class Reading(NamedTuple):
    """A served request. Times in ticks.

    `number` is its place in the queue of its process, and `fresh` the examples that the reader read for it. It is under
    way from `start`, when the reader begins with it, or the device if everything has been read; `after` is the number
    of the request that it had to wait for, if any, and `until` when its examples were there.
    """

    number: int
    start: int
    length: int
    fresh: tuple[int, ...]
    after: int | None
    until: int


def process_of(mesh: Mesh | None, rank: int) -> int:
    """Return the process that owns a rank's device. Without a mesh each rank is its own."""
    return rank if mesh is None else mesh.process(rank)


class Asked(NamedTuple):
    """A rank's wait for examples from its reader, which always come."""

    batches: frozenset[int]
    kind: str = "read"

    def awaits(self, rank: int) -> list[int]:
        """Return no ranks."""
        return []


@dataclass(slots=True)
class _Process:
    """The reader of a process: when it is free, and when each example came by which request."""

    free: int = 0
    served: int = 0
    last: int | None = None
    there: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])


class Readers:
    """The readers of all processes, and the links from their memory to the devices."""

    def __init__(self, costs: Costs, mesh: Mesh | None) -> None:
        self._read, self._copy = ticks(costs.read), ticks(costs.to_device)
        self._mesh = mesh
        self._processes: dict[int, _Process] = {}
        self._copied: dict[int, tuple[int, int | None]] = {}

    def read(self, rank: int, batches: Iterable[int], issued: int, scale: Fraction | int = 1) -> Reading:
        """Serve the request of a rank for some examples, in times that are scaled."""
        read_time, copy_time = round(self._read * scale), round(self._copy * scale)
        process = self._processes.setdefault(process_of(self._mesh, rank), _Process())
        number, process.served = process.served, process.served + 1
        # In order of their numbers: a set has no order, and the times depend on it.
        wanted = sorted(batches)
        # What was read once is there for all devices of the process. Simplified: memory never runs out.
        fresh = tuple([batch for batch in wanted if batch not in process.there])
        begin, after = (issued, None) if not fresh or process.free <= issued else (process.free, process.last)
        for place, batch in enumerate(fresh, 1):
            process.there[batch] = begin + place * read_time, number
        if fresh:
            process.free, process.last = begin + len(fresh) * read_time, number
        # The last example counts, which another rank's request may have brought.
        until, brought = max([process.there[batch] for batch in wanted], default=(issued, number))
        copied, before = self._copied.get(rank, (0, None))
        # Each device has its own link: its copies queue, those of two devices run side by side.
        start = max(issued, until, copied)
        end = start + len(wanted) * copy_time
        self._copied[rank] = end, number
        # The reader did nothing for it, so the copy is shown, and what that waited for.
        if not fresh:
            begin = start
            after = None if start == issued else before if copied > until else brought
        return Reading(number, begin, end - begin, fresh, after, max(issued, until))
