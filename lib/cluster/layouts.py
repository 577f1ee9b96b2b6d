"""Layouts, as data that a picture can show: on a mesh, in the slots of a batch, in the stages of a pipeline.

For the puzzles about mapping a mesh is plain lists: `grid[replica][data][model]` is a device. Process p owns the
devices p·n to p·n + n - 1, as on real machines, anywhere on the mesh. `grids` yields every way in which processes can
share a mesh: for eight devices in pairs, 105.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, pairwise, permutations, product
from random import Random
from typing import Any

from lib.cluster.mesh import Mesh
from lib.errors.wording import counted, listed, with_article


@dataclass(frozen=True, slots=True)
class Holdings:
    """The data on the devices of a mesh: `holds` has words for it, the same for the same data. Something is wrong at
    the devices `wrong`; `title` says what is shown. `processes` are named even if each has one device."""

    mesh: Mesh
    holds: Mapping[int, str] = field(default_factory=dict[int, str])
    wrong: Collection[int] = ()
    title: str = ""
    processes: bool = False

    def __post_init__(self) -> None:
        for device in [*self.holds, *self.wrong]:
            if device not in self.mesh.ranks:
                raise ValueError(f"device {device!r} is not in {self.mesh}")


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The groups of a rank of a mesh, by name; by default those along each axis. Something is wrong at the ranks
    `wrong`; `title` says what is shown."""

    mesh: Mesh
    rank: int
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    wrong: Collection[int] = ()
    title: str = ""

    def __post_init__(self) -> None:
        for rank in [self.rank, *self.wrong, *(rank for group in self.groups.values() for rank in group)]:
            if rank not in self.mesh.ranks:
                raise ValueError(f"rank {rank!r} is not in {self.mesh}")

    def named(self) -> dict[str, tuple[int, ...]]:
        """Return the groups that have other members than the rank itself."""
        groups = self.groups or {axis: self.mesh.group(self.rank, axis) for axis in self.mesh.axes}
        return {name: tuple(group) for name, group in groups.items() if {*group} - {self.rank}}


@dataclass(frozen=True, slots=True)
class PhysicalBatch:
    """A batch from several feeds, in order: each slot has the number of an example, or None for padding. All slots are
    shared out in order among the `devices`; None: they stay where they are. There are `notes` on the feeds, something
    is wrong in those that are `wrong`, and `title` says what is shown. `names` are the words for a feed and an example,
    such as "rank" and "row"."""

    feeds: Sequence[Sequence[int | None]]
    devices: int | None
    notes: Sequence[str] = ()
    wrong: Collection[int] = ()
    title: str = ""
    names: tuple[str, str] = ("feed", "example")

    def __post_init__(self) -> None:
        if len({len(slots) for slots in self.feeds}) > 1:
            raise ValueError(f"every {self.names[0]} has as many slots; got {[len(slots) for slots in self.feeds]}")
        if self.devices is not None and (self.devices < 1 or self.size % self.devices):
            raise ValueError(f"{counted(self.size, 'slot')} do not divide among {counted(self.devices, 'device')}")

    @classmethod
    def filled(
        cls, feeds: int, slots: int, examples: int, order: Iterable[int], devices: int, **words: Any
    ) -> PhysicalBatch:
        """Return the batch in which only the feeds of `order` bring `examples` each, in that order. Each feed has a
        number of `slots`; `words` are its `notes`, `wrong` and `title`."""
        place = {feed: number for number, feed in enumerate(order)}
        rows: list[list[int | None]] = []
        for feed in range(feeds):
            first, count = place.get(feed, 0) * examples, examples if feed in place else 0
            rows.append([first + slot if slot < count else None for slot in range(slots)])
        return cls(rows, devices, **words)

    @property
    def size(self) -> int:
        """Return the number of slots."""
        return sum(map(len, self.feeds))

    @property
    def padding(self) -> int:
        """Return the number of slots that are only padding."""
        return sum(slot is None for slots in self.feeds for slot in slots)

    def device(self, feed: int, slot: int) -> int | None:
        """Return the device that has a slot; None where the slots are not shared out."""
        if self.devices is None:
            return None
        return (feed * len(self.feeds[feed]) + slot) // (self.size // self.devices)

    def words(self) -> str:
        """Describe it in a line."""
        feed, example = self.names
        shared = "" if self.devices is None else f" on {counted(self.devices, 'device')}"
        return (
            f"{counted(self.size, 'slot')} from {counted(len(self.feeds), feed)}{shared}: "
            f"{self.size - self.padding} with {with_article(example)}, {self.padding} padding"
        )

    def __repr__(self) -> str:
        return f"<{self.words()}>"


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of each rank, all of them once; stage s works on the output of stage s - 1. `layers` are those of each
    stage, if known, and `ends` what is done before the first layer and after the last. Something is wrong with the
    stages `wrong`; `title` says what is shown."""

    ranks: Sequence[Sequence[int]]
    layers: Sequence[range] = ()
    ends: tuple[str, str] = ("", "")
    wrong: Collection[int] = ()
    title: str = ""

    def __post_init__(self) -> None:
        stages = sorted(chain.from_iterable(self.ranks))
        if not stages or stages != list(range(len(stages))):
            raise ValueError(f"each stage from 0 on is on one rank; got {[list(one) for one in self.ranks]}")
        if self.layers and len(self.layers) != len(stages):
            raise ValueError(f"{counted(len(stages), 'stage')} need as many ranges of layers; got {len(self.layers)}")
        if any(len(mine) and len(its) and mine.stop != its.start for mine, its in pairwise(self.layers)):
            raise ValueError(f"the layers of a stage follow those of the stage before; got {list(self.layers)}")

    @property
    def count(self) -> int:
        """Return the number of stages."""
        return sum(map(len, self.ranks))

    def homes(self) -> list[int]:
        """Return the rank that each stage is on."""
        found = {stage: rank for rank, stages in enumerate(self.ranks) for stage in stages}
        return [found[stage] for stage in range(self.count)]

    def messages(self) -> int:
        """Return how often a microbatch goes from one rank to another on its way forward."""
        return sum(mine != its for mine, its in pairwise(self.homes()))

    def words(self) -> str:
        """Describe them in a line."""
        each = "; ".join(f"rank {rank}: {', '.join(map(str, stages))}" for rank, stages in enumerate(self.ranks))
        return f"{counted(self.count, 'stage')} on {counted(len(self.ranks), 'rank')}: {each}"

    def __repr__(self) -> str:
        return f"<{self.words()}>"


# -- meshes as lists --------------------------------------------------------------------------------------------------

Grid = list[list[list[int]]]
AXES = ("replica", "data", "model")
Owners = tuple[tuple[int, ...], ...]
"""The places of each process, in the order of the mesh."""


def mesh_of(grid: Sequence[Sequence[Sequence[int]]], per_process: int) -> Mesh:
    """Return a grid as a Mesh, to be drawn. ValueError if it is not a grid, or a device is missing or repeated."""
    sizes = [len(grid), len(grid[0]) if grid else 0, len(grid[0][0]) if grid and grid[0] else 0]
    rows = [row for replica in grid for row in replica]
    if {len(replica) for replica in grid} != {sizes[1]} or {len(row) for row in rows} != {sizes[2]}:
        found = sorted({len(row) for row in rows})
        raise ValueError(
            "a grid is a list of replicas, each a list of rows, each a list of devices, all of one length; "
            f"got replicas of {listed(sorted({len(replica) for replica in grid}))} rows of {listed(found)} devices"
        )
    return Mesh(zip(AXES, sizes, strict=True), ranks=[device for row in rows for device in row], processes=per_process)


def grids(replica: int, data: int, model: int, per_process: int) -> Iterator[Grid]:
    """Yield every way to give the places of a mesh to processes with `per_process` devices each, the first to process
    0: neither a process's number nor the order of its devices matters. ValueError if these do not divide."""
    sizes = replica, data, model
    mesh = Mesh(zip(AXES, sizes, strict=True), processes=per_process)
    for owners in _shared(mesh.ranks, len(mesh.processes[0])):
        devices = {place: device for device, place in enumerate(place for mine in owners for place in mine)}
        yield _folded([devices[place] for place in mesh.ranks], sizes)


def small_grids(most: int) -> Iterator[tuple[Grid, int]]:
    """Yield all grids of at most `most` devices, each with how many a process owns, small ones first; up to 4 devices
    in every order."""
    for count in range(1, most + 1):
        for replica, data, model in product(range(1, count + 1), repeat=3):
            if replica * data * model == count:
                for per_process in (size for size in range(1, count + 1) if count % size == 0):
                    orders = grids(replica, data, model, per_process)
                    if count <= 4:
                        orders = (_folded(order, (replica, data, model)) for order in permutations(range(count)))
                    yield from ((grid, per_process) for grid in orders)


def random_grids(number: int, most: Sequence[int]) -> Iterator[tuple[Grid, int]]:
    """Yield a number of larger grids, with `most` for each axis and devices in any order; the same ones every time."""
    # Always the same: a solution that is right today has to be right tomorrow.
    random = Random(0)
    for _ in range(number):
        sizes = [random.randint(1, size) for size in most]
        devices = list(range(sizes[0] * sizes[1] * sizes[2]))
        per_process = random.choice([size for size in range(1, len(devices) + 1) if len(devices) % size == 0])
        if random.random() < 0.5:
            random.shuffle(devices)
        else:  # in order except for a few
            for _ in range(3):
                one, other = (random.randrange(len(devices)) for _ in range(2))
                devices[one], devices[other] = devices[other], devices[one]
        yield _folded(devices, sizes), per_process


def _shared(places: tuple[int, ...], size: int) -> Iterator[Owners]:
    """Yield all ways to put places into groups of a size: the first with any others, and the rest in groups."""
    if not places:
        yield ()
        return
    first, *rest = places
    # The first place is in every first group, so no way of sharing comes twice under other numbers.
    for others in combinations(rest, size - 1):
        left = tuple(place for place in rest if place not in others)
        for groups in _shared(left, size):
            yield ((first, *others), *groups)


def _folded(devices: Sequence[int], sizes: Sequence[int]) -> Grid:
    _, data, model = sizes
    rows = [list(devices[first : first + model]) for first in range(0, len(devices), model)]
    return [rows[first : first + data] for first in range(0, len(rows), data)]
