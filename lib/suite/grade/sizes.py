"""Puzzles at other sizes than their own: what their goals are there, and which sizes a seed gives.

A goal at the puzzle's own size is so many times what our reference takes: its slack. At another size the same goal is
that slack times what the reference takes there; time, memory and what is sent each by itself. No goal is below what the
lower bound of the puzzle proves possible at that size (`lib.analysis.bounds`).

The first goal, by which a hidden size passes, is more generous. Other schedules than ours grow in other ways: one that
holds all batches at once needs more than ours where there are more of them. So it is never less than what any solution
of ours that reaches it at the puzzle's own size takes at the other (the reference, and those in
solutions/alternatives/), and a quarter more than that: a hidden size is there to find answers that are right at one
size only, and the puzzle's own size to measure how good they are.

A seed gives sizes near the puzzle's own and unlike it. One is kept where all solutions of ours that reach the first
goal are correct, so that nobody is asked for more than the puzzle says; where what divides what at the puzzle's own
size, and at the hidden ones of its record, does so there too; and where a run is quick.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil, prod
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from lib.analysis.bounds.family import Family
from lib.analysis.bounds.puzzle_bounds import SharedWork, bound_of
from lib.checker.checker import check
from lib.cluster.costs import as_written
from lib.cluster.mesh import Mesh
from lib.errors.exceptions import PuzzleError
from lib.puzzles.records import PUZZLES, Goal, Puzzle
from lib.simulator.simulator import Unsolved, simulate
from lib.suite.course.solutions import alternatives
from lib.suite.isolation.messages import AtSize
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from lib.trace.trace import Trace

__all__ = ["LEEWAY", "MOST", "Unfit", "draw_sizes", "figures_at", "own_ways", "record_at", "reference_run"]

# -- goals ---------------------------------------------------------------------------------------------------------

LEEWAY: Final = Fraction(5, 4)
"""How much more the first goal allows at another size than what our own solutions take there."""
HUNDREDTHS: Final = 100
ANY: Final = Goal("correct", float("inf"), float("inf"))


class Unfit(ValueError):
    """A size at which our own reference is not correct, so that nobody can be asked for it. Says why."""


class Figures(NamedTuple):
    """Time in time units, memory in elements on the rank with the highest peak, elements sent by the rank that sends
    most; and how many events all ranks record together."""

    time: float = 0.0
    memory: float = 0.0
    sent: float = 0.0
    events: int = 0


@cache
def own_ways(puzzle: str) -> tuple[Path, ...]:
    """The files of our solutions that reach the first goal of a puzzle, the reference first."""
    record = PUZZLES[puzzle]
    others = [path for path in alternatives(puzzle) if check(_run(path, record), record).passed]
    return (reference(puzzle), *others)


@cache
def figures_at(puzzle: str, size: AtSize) -> tuple[Figures, ...]:
    """Return what each of `own_ways` takes at a size, the reference first; those that are not correct there are left
    out.

    Unfit where the reference is not.
    """
    record = _bare(puzzle, size)
    ours, *others = own_ways(puzzle)
    first = _figures(ours, record)
    if isinstance(first, str):
        raise Unfit(f"our own solution of {puzzle} is not correct at {record.size.words()}: {first}")
    found = [_figures(path, record) for path in others]
    return (first, *(figures for figures in found if isinstance(figures, Figures)))


def record_at(puzzle: str, size: AtSize) -> Puzzle:
    """The record of a puzzle at another size, with its goals there. Unfit where our reference is not correct."""
    record = PUZZLES[puzzle]
    here = AtSize(*record.size, record.mesh)
    ours, *others = figures_at(puzzle, size)
    own = figures_at(puzzle, here)[0]
    least = _bound(_bare(puzzle, size))
    goals: list[Goal] = []
    for number, goal in enumerate(record.goals):

        def there(name: str, limit: float, first: bool = number == 0) -> float:
            mine, known = as_written(getattr(own, name)), as_written(getattr(ours, name))
            scaled = as_written(limit) / mine * known if mine else as_written(limit)
            if first:
                scaled = LEEWAY * max(scaled, known, *(as_written(getattr(way, name)) for way in others))
            # Rounded up, so that nobody misses it by what no picture shows.
            digits = HUNDREDTHS if name == "time" else 1
            return max(ceil(scaled * digits) / digits, getattr(least, name))

        sent = record.sent if goal.sent is None else goal.sent
        most = None if sent is None else there("sent", sent)
        goals.append(Goal(goal.name, there("time", goal.time), there("memory", goal.memory), sent=most))
    return replace(_bare(puzzle, size), goals=tuple(goals))


def _bare(puzzle: str, size: AtSize) -> Puzzle:
    """The record at a size, without its goals: all that is correct is within the one that is left."""
    record = PUZZLES[puzzle]
    costs = record.costs if size.costs is None else size.costs
    sizes = {"ranks": size.ranks, "layers": size.layers, "batches": size.batches, "mesh": size.mesh}
    return replace(record, **sizes, costs=costs, goals=(ANY,), hidden=(), sent=None)


def _figures(path: Path, record: Puzzle) -> Figures | str:
    """Return what one of our solutions takes; or in a line why it is not correct there."""
    try:
        trace = _run(path, record)
    except (PuzzleError, ValueError, LookupError, ArithmeticError) as error:
        return str(error).partition("\n")[0]
    verdict = check(trace, record)
    if not verdict.passed:  # nothing counts that leaves a rank out, however correct
        return (verdict.faults or verdict.notes or ("it does not count",))[0].partition("\n")[0]
    events = sum(len(program.events) for program in trace.programs)
    return Figures(verdict.time, verdict.memory, verdict.sent, events)


def reference_run(puzzle: str) -> Trace:
    """The run of our own solution at the puzzle's size."""
    return _run(reference(puzzle), PUZZLES[puzzle])


def _run(path: Path, record: Puzzle) -> Trace:
    with redirect_stdout(io.StringIO()):
        models = simulate(
            load_function(path, record.id),
            puzzle=record.id,
            ranks=record.ranks,
            layers=record.layers,
            batches=record.batches,
            mesh=record.mesh,
            costs=record.costs,
        )
    assert not isinstance(models, Unsolved), "a solution of ours is solved"
    return Trace.of(models)


def _bound(record: Puzzle) -> Figures:
    """Return what no schedule of the puzzle's family is below at the size of a record; zeros where that is not
    known."""
    premise, mesh = record.bound, record.mesh
    if premise is None or premise.copies > 1 or premise.state_copies > 1:
        return Figures()
    if premise.work:
        return Figures(SharedWork.of(record).time(record.costs).value)
    stages = 1 if premise.stages == 1 else mesh.axes.get("stage", record.ranks) if mesh else record.ranks
    replicas = record.ranks // stages
    if record.ranks % stages or record.layers % stages or record.batches % replicas:
        return Figures()
    bound = bound_of(Family(*record.size, stages, premise.sharded, premise.grouping), record.costs)
    return Figures(bound.time.value, bound.memory.value, bound.sent.value)


# -- draws ---------------------------------------------------------------------------------------------------------

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
    """Return how many devices share a host, or a process, where `number` of them did on the puzzle's own mesh."""
    if not isinstance(number, int):
        return None
    along = next((axis for axis in reversed(list(mesh.axes)) if mesh.axes[axis] == number), None)
    return number if along is None else axes[along]


def _is_alike(record: Puzzle, size: AtSize) -> bool:
    """Tell whether what divides what at the puzzle's own size does so here: layers and batches by the ranks, and by
    each axis of the mesh. What does not at a hidden size of the record is an accident of the puzzle's."""
    if size.mesh is not None and len(set(map(len, size.mesh.processes))) > 1:
        return False
    needed = _divides(AtSize(*record.size, record.mesh)).intersection(
        *(_divides(AtSize(*other)) for other in record.hidden)
    )
    return needed <= _divides(size)


def _divides(size: AtSize) -> set[tuple[str, str]]:
    """Return what is divided by what at a size, by name."""
    parts = {"ranks": size.ranks} | ({} if size.mesh is None else dict(size.mesh.axes))
    return {
        (whole, part)
        for whole, number in (("layers", size.layers), ("batches", size.batches))
        for part, count in parts.items()
        if number % count == 0
    }


def _runs(puzzle: str, size: AtSize, most: int) -> bool:
    """Return whether all solutions of ours are correct at a size, and quick."""
    try:
        found = figures_at(puzzle, size)
    except Unfit:
        return False
    return len(found) == len(own_ways(puzzle)) and found[0].events <= most
