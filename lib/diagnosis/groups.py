"""What is wrong with a group of ranks, or with a rank, that a call names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lib.cluster.mesh import Mesh
from lib.errors.arguments import written
from lib.errors.exceptions import RuleError

__all__ = ["no_axis", "no_mesh", "not_a_group"]


def not_a_group(rank: int, ranks: Sequence[Any], world: int, mesh: Mesh | None) -> RuleError:
    """A list that is no group of ranks, or none of this one."""
    inside = any(isinstance(item, int | float) and item == rank for item in ranks)
    by_axis = "" if mesh is None else f": by an axis of the mesh, as in group={next(iter(mesh.axes))!r}"
    return RuleError(
        "this rank is not in the group that it names" if not inside else "this is not a group of ranks",
        expected=f"rank {rank} and other ranks from 0 to {world - 1}, each once",
        got=f"group=[{', '.join(map(written, ranks))}]",
        fix=f"each rank names the group that it is in itself{by_axis}",
    )


def no_mesh(axis: str) -> RuleError:
    """The name of an axis where the ranks are in no mesh."""
    return RuleError(
        f"there is no group {axis!r}",
        expected="no group, for all ranks, or a list of ranks",
        got=f"group={axis!r}, the name of a mesh axis, but these ranks are in no mesh",
        fix="leave the group out: the collective is then for all ranks",
    )


def no_axis(axis: str, rank: int, mesh: Mesh) -> RuleError:
    """A name that no axis of the mesh has."""
    return RuleError(
        f"there is no group {axis!r}",
        expected=f"an axis of the mesh: {' or '.join(map(repr, mesh.axes))}",
        got=f"group={axis!r}",
        fix="the group of an axis are the ranks that differ along it only:\n"
        + "\n".join(f"group={known!r} is {list(mesh.group(rank, known))} here" for known in mesh.axes),
    )
