"""Sizes that nobody knows before: drawn from a seed, near the puzzle's own and unlike it.

A size is kept where all solutions of ours that reach the puzzle's first goal are correct, so that nobody is asked for
more than the puzzle says; where what divides what at the puzzle's own size, and at the hidden ones of its record, does
so there too; and where a run is quick.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from random import Random
from typing import Final

from lib.cluster.mesh import Mesh
from lib.puzzles.records import PUZZLES, Puzzle
from lib.suite.grade.isolation.asked import AtSize
from lib.suite.grade.sizes.goals import Unfit, figures_at, own_ways

__all__ = ["MOST", "draw_sizes"]

MOST: Final = 20
"""Sizes of one puzzle, at most: each is a run of every student's."""
TRIED: Final = 4000
SIMULATED: Final = 80
"""Sizes that are looked at, and run, before a puzzle is said to have no more."""
LONGER: Final = 3
"""How many times the events of the puzzle's own size a run of ours may have, so that grading stays quick."""


def draw_sizes(puzzle: str, count: int, seed: int | str) -> tuple[AtSize, ...]:
    """`count` different sizes of a puzzle, the same for the same seed; fewer where there are no more."""
    record = PUZZLES[puzzle]
    most = LONGER * figures_at(puzzle, AtSize(*record.size, record.mesh))[0].events
    found: dict[AtSize, None] = {}
    tried = set[AtSize]()
    for size in _candidates(record, Random(f"{seed}:{puzzle}")):
        if len(found) == count or len(tried) == SIMULATED:
            break
        if size not in tried and _is_alike(record, size):
            tried.add(size)
            if _runs(puzzle, size, most):
                found[size] = None
    return tuple(found)


def _candidates(record: Puzzle, random: Random) -> Iterator[AtSize]:
    """Sizes near the puzzle's own."""
    for _ in range(TRIED):
        try:
            mesh = None if record.mesh is None else _mesh(record.mesh, random)
        except ValueError:  # so many devices do not make such hosts or processes
            continue
        ranks = len(mesh) if mesh is not None else _near(record.ranks, random) if record.ranks > 1 else 1
        fixed = record.has_its_own_layers
        layers, batches = record.layers if fixed else _near(record.layers, random), _near(record.batches, random)
        if random.random() < 0.5 and record.batches % record.ranks == 0:  # else it would seldom divide
            batches = ranks * (record.batches // record.ranks)
        size = AtSize(ranks, layers, batches, mesh)
        changed = sum(mine != other for mine, other in zip(record.size, size, strict=False))
        if changed >= (1 if fixed else 2):
            yield size


def _near(number: int, random: Random) -> int:
    """From half of a number to one and a half of it, and a little more for small ones."""
    return random.randint((number + 1) // 2, number + number // 2 + 1)


def _mesh(mesh: Mesh, random: Random) -> Mesh:
    """A mesh of the same axes with other sizes, on hosts and in processes as large as an axis is, if they were; its
    devices in another order, where they stood in one of their own."""
    axes = {axis: max(min(size, 2), _near(size, random)) for axis, size in mesh.axes.items()}
    order = list(range(prod(axes.values())))
    if mesh.ranks != tuple(range(len(mesh))):
        random.shuffle(order)
    given = mesh.to_json()
    return Mesh(
        axes,
        ranks=order,
        host_size=_shared(given.get("host_size"), mesh, axes),
        processes=_shared(given.get("processes"), mesh, axes),
    )


def _shared(number: object, mesh: Mesh, axes: dict[str, int]) -> int | None:
    """How many devices share a host, or a process, where `number` of them did on the puzzle's own mesh."""
    if not isinstance(number, int):
        return None
    along = next((axis for axis in reversed(list(mesh.axes)) if mesh.axes[axis] == number), None)
    return number if along is None else axes[along]


def _is_alike(record: Puzzle, size: AtSize) -> bool:
    """Whether what divides what at the puzzle's own size does so here: layers and batches by the ranks, and by each
    axis of the mesh. What does not at a hidden size of the record is an accident of the puzzle's."""
    if size.mesh is not None and len(set(map(len, size.mesh.processes))) > 1:
        return False
    needed = _divides(AtSize(*record.size, record.mesh)).intersection(
        *(_divides(AtSize(*other)) for other in record.hidden)
    )
    return needed <= _divides(size)


def _divides(size: AtSize) -> set[tuple[str, str]]:
    """What is divided by what at a size, by name."""
    parts = {"ranks": size.ranks} | ({} if size.mesh is None else dict(size.mesh.axes))
    return {
        (whole, part)
        for whole, number in (("layers", size.layers), ("batches", size.batches))
        for part, count in parts.items()
        if number % count == 0
    }


def _runs(puzzle: str, size: AtSize, most: int) -> bool:
    """Whether all solutions of ours are correct at a size, and quick."""
    try:
        found = figures_at(puzzle, size)
    except Unfit:
        return False
    return len(found) == len(own_ways(puzzle)) and found[0].events <= most
