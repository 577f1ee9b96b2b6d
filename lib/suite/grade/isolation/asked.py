"""The size at which a function is asked to run, and whether a Trace that came back is of that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from lib.cluster.costs import Costs
from lib.cluster.mesh import Mesh
from lib.puzzles.records import PUZZLES, Puzzle, Size
from lib.trace.trace import Trace

__all__ = ["QUESTIONS", "AtSize", "asked_for", "size_of"]

QUESTIONS: Final = 16
"""Requests that one child answers at most; together they have so many times the processor time of one."""


class AtSize(NamedTuple):
    """Another size than the puzzle's: the fields of a record's Hidden, and costs, where they are not the puzzle's.

    Where it has no mesh and as many ranks as the puzzle, it has the puzzle's.
    """

    ranks: int
    layers: int
    batches: int
    mesh: Mesh | None = None
    costs: Costs | None = None


def size_of(puzzle: str, size: AtSize | None) -> AtSize:
    """What is asked of a puzzle, with the mesh and the costs there."""
    record = PUZZLES[puzzle]
    if size is None:
        return AtSize(*record.size, record.mesh, record.costs)
    mesh = record.mesh if size.mesh is None and size.ranks == record.ranks else size.mesh
    return size._replace(mesh=mesh, costs=record.costs if size.costs is None else size.costs)


def asked_for(trace: Trace, puzzle: str, size: AtSize | None = None) -> str | None:
    """Why a Trace is not of the run that was asked for, in words; None where it is. Whether it is a correct step is
    not asked here."""
    return next(_differences(trace, PUZZLES[puzzle], size_of(puzzle, size)), None)


def _differences(trace: Trace, record: Puzzle, asked: AtSize) -> Iterator[str]:
    wanted = Size.of(asked)
    if Size.of(trace) != wanted:
        yield _other(record, f"{wanted.words()}", f"{Size.of(trace).words()}")
    if _json(trace.mesh) != _json(asked.mesh):
        yield _other(record, _arranged(asked.mesh), _arranged(trace.mesh))
    if trace.costs != asked.costs:
        yield _other(record, "the costs of the simulator that was asked", "others")
    if trace.padding:
        yield _other(record, "no padding", f"{trace.padding} batches of it")
    if trace.descriptions != record.described(trace.layers):
        yield _other(record, "the layers that the puzzle has", "others")
    if trace.puzzle != record.id:
        yield _other(record, record.id, "a run of another puzzle" if trace.puzzle else "a run of no puzzle")
    if trace.sandbox:
        yield _other(record, "a run with a Dist", "one of a Model without")


def _other(record: Puzzle, wanted: str, got: str) -> str:
    return (
        f"what came back is not the run of {record.id} that was asked for\n"
        f"  expected: {wanted}\n"
        f"  got:      {got}\n"
        f"  fix:      let {record.id} use the Model that it is given, and nothing else of the simulator"
    )


def _json(mesh: Mesh | None) -> Any:
    return None if mesh is None else mesh.to_json()


def _arranged(mesh: Mesh | None) -> str:
    return "no mesh" if mesh is None else str(mesh)
