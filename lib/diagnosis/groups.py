"""Errors of a group of ranks, or of a rank, that a call names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lib.cluster.mesh import Mesh
from lib.diagnosis.collectives import stage_axis
from lib.diagnosis.facts import NotALayer
from lib.diagnosis.running import Advice, Line, Running, line
from lib.errors.arguments import written
from lib.errors.exceptions import RuleError
from lib.errors.wording import listed
from lib.values.operations import BY_INPUT
from lib.values.values import describe

__all__ = ["axis_twice", "no_axis", "no_mesh", "no_peer", "not_a_group"]


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
        fix="along an axis, a group is the ranks that differ in that coordinate only:\n"
        + "\n".join(f"group={known!r} is {list(mesh.group(rank, known))} here" for known in mesh.axes),
    )


def axis_twice(axis: str, axes: Sequence[str]) -> RuleError:
    """A group along an axis that is named twice."""
    once = list(dict.fromkeys(axes))
    return RuleError(
        f"the group names the axis {axis!r} twice",
        expected="each axis of the group once",
        got=f"group={list(axes)}",
        fix=f"name it once: group={once if len(once) > 1 else once[0]!r}",
    )


def no_peer(program: Running, rank: Any, call: str) -> RuleError:
    """A message that names no other rank."""
    mine, ranks = program.rank, program.world.ranks
    itself = isinstance(rank, int | float) and rank == mine
    fix = "name the rank at the other end, such as model.rank - 1 or model.rank + 1"
    advice = fix if itself or type(rank) is not int else _beyond(program, rank, call)
    error = RuleError(
        f"{call}({written(rank)}{', ...' if call == 'pass_to' else ''}) does not name another rank"
        if type(rank) is int
        else f"{call} was given no rank",
        expected=f"a rank from 0 to {ranks - 1} other than {mine}",
        got="this rank itself" if itself else describe(rank),
    )
    error.idea, error.fix = advice if isinstance(advice, Line) else (None, advice)
    if type(rank) is not int:
        error.fact = NotALayer(call, rank, 0)
    return error


def _neighbours(program: Running) -> Advice | None:
    """In a mesh with stages, who the neighbours of a rank are is for the mesh to say."""
    mesh = program.world.mesh
    axis = stage_axis(mesh)
    if mesh is None or axis is None:
        return None
    group = listed(mesh.group(program.rank, axis))[1:-1]
    idea = f"rank {program.rank} is in the pipeline of ranks {group}:\n"
    return line(
        program,
        "group",
        idea + f"name the {axis} before or after it by its rank in that group",
        idea + f'write model.group("{axis}")[{axis} - 1] or model.group("{axis}")[{axis} + 1]',
    )


def _beyond(program: Running, rank: int, call: str) -> Advice:
    """A rank before the first one or after the last: an end of the pipeline, or the wrong direction?"""
    mine, ops = program.rank, {event.op for event in program.events}
    if abs(rank - mine) > 1:
        if (found := _neighbours(program)) is not None:
            return found
        return f"ranks are counted from 0; the last one is model.RANKS - 1, here {program.world.ranks - 1}"
    before = rank < 0
    # Whether it is the turn of gradients, which go the other way.
    back = bool(ops & BY_INPUT) if call == "pass_to" else "forward" in ops
    other = "model.rank + 1" if before else "model.rank - 1"
    if call == "receive" and before == back:
        what, side = ("gradient", "after") if back else ("input", "before")
        idea = f"the {what} of a stage comes from the stage {side} it"
        return line(program, "receive", idea, f"{idea}: await model.receive({other})")
    if call == "pass_to" and before != back:
        what, side = ("gradient", "before") if back else ("output", "after")
        idea = f"the {what} of a stage goes to the stage {side} it"
        return line(program, "pass_to", idea, f"{idea}: await model.pass_to({other}, ...)")
    instead = {
        ("receive", True): "it takes its batches with get_activation instead",
        ("receive", False): "its gradient comes from loss instead",
        ("pass_to", True): "the gradient of its input goes nowhere",
        ("pass_to", False): "it calls loss instead",
    }[call, before]
    end, side = ("first", "before") if before else ("last", "after")
    return f"rank {mine} is the {end} stage and has none {side} it: {instead}"
