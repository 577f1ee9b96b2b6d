"""A mesh as plain lists, `grid[replica][data][model]` is a device: what the puzzles about mapping are asked.

Process p owns the devices p·n to p·n + n - 1, as on real machines, and they may stand anywhere. `grids` gives every way
in which processes can share a mesh: eight devices in pairs make 105.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations, product
from random import Random

from lib.cluster.mesh import Mesh
from lib.errors.arguments import plain
from lib.errors.wording import counted, listed

Grid = list[list[list[int]]]
AXES = ("replica", "data", "model")
EVERY_ORDER = 4
Owners = tuple[tuple[int, ...], ...]
"""The places of each process, in the order of the mesh."""


def mesh_of(grid: Sequence[Sequence[Sequence[int]]], per_process: int) -> Mesh:
    """Return the same as a Mesh, which has a picture. ValueError where it is no grid, or a device is missing or
    repeated."""
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
    """Every way to give the places of a mesh to processes that own so many devices each. Which of its devices a process
    has where makes no difference, nor what number the process has: the first places belong to process 0."""
    sizes = _sizes(replica, data, model, per_process)
    for owners in _shared(tuple(range(sizes[0] * sizes[1] * sizes[2])), per_process):
        devices = {place: device for device, place in enumerate(place for mine in owners for place in mine)}
        yield _folded([devices[place] for place in range(len(devices))], sizes)


def small_grids(most: int) -> Iterator[tuple[Grid, int]]:
    """Yield all of these of at most so many devices, each with how many a process owns; small ones first. Of at most
    four devices it is every order of the devices."""
    for count in range(1, most + 1):
        for replica, data, model in product(range(1, count + 1), repeat=3):
            if replica * data * model == count:
                for per_process in (size for size in range(1, count + 1) if count % size == 0):
                    orders = grids(replica, data, model, per_process)
                    if count <= EVERY_ORDER:
                        orders = (_folded(order, (replica, data, model)) for order in permutations(range(count)))
                    yield from ((grid, per_process) for grid in orders)


def random_grids(number: int, most: Sequence[int]) -> Iterator[tuple[Grid, int]]:
    """So many larger ones, each axis at most so long, with the devices in any order; the same ones every time."""
    # Always the same: a solution that is right today has to be right tomorrow.
    random = Random(0)
    for _ in range(number):
        sizes = [random.randint(1, size) for size in most]
        devices = list(range(sizes[0] * sizes[1] * sizes[2]))
        per_process = random.choice([size for size in range(1, len(devices) + 1) if len(devices) % size == 0])
        if random.random() < 0.5:
            random.shuffle(devices)
        else:  # in order but for a few
            for _ in range(3):
                one, other = (random.randrange(len(devices)) for _ in range(2))
                devices[one], devices[other] = devices[other], devices[one]
        yield _folded(devices, sizes), per_process


def _sizes(replica: int, data: int, model: int, per_process: int) -> list[int]:
    sizes = [plain(size) for size in (replica, data, model)]
    if any(type(size) is not int or size < 1 for size in sizes):
        raise ValueError(f"an axis has a size of 1 or more; got {', '.join(map(repr, (replica, data, model)))}")
    count = sizes[0] * sizes[1] * sizes[2]
    if type(plain(per_process)) is not int or per_process < 1 or count % per_process:
        fits = [size for size in range(1, count + 1) if count % size == 0]
        raise ValueError(
            f"{counted(count, 'device')} make no processes of {per_process!r}: a process owns one of {listed(fits)}"
        )
    return sizes


def _shared(places: tuple[int, ...], size: int) -> Iterator[Owners]:
    """Places in groups of a size: the first one with any others, and the rest in groups."""
    if not places:
        yield ()
        return
    first, *rest = places
    # The first place is in every first group, so no way of sharing is met twice under other numbers.
    for others in combinations(rest, size - 1):
        left = tuple(place for place in rest if place not in others)
        for groups in _shared(left, size):
            yield ((first, *others), *groups)


def _folded(devices: Sequence[int], sizes: Sequence[int]) -> Grid:
    _, data, model = sizes
    rows = [list(devices[first : first + model]) for first in range(0, len(devices), model)]
    return [rows[first : first + data] for first in range(0, len(rows), data)]
