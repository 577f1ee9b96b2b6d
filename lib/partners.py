"""Why two members of a collective do not fit together: another order, another group, or values that overlap."""

from __future__ import annotations

from typing import Any

from .history import home, line_of, maker
from .program import COLLECTIVE, Event, Program
from .values import Value

__all__ = ["meeting", "twice"]

ALONG_LAYERS = frozenset({"stage", "pipeline", "pp"})
"""Axes of a mesh along which ranks have different layers, by their usual names."""


def twice(_: Program | None, field: str, left: Value, right: Value) -> str | None:
    """Two values that share batches or shards, to be put together."""
    makers, mine = [maker(left), maker(right)], home(left)
    if mine is None or None in makers:
        return None
    mesh = getattr(mine.world, "mesh", None)
    if field == "shards" and not left.is_complete():
        own = "the place in the group" if mesh is not None else "model.rank"
        return f"each rank loads a shard of its own: model.load_weights(layer, {own}, total)"
    if field == "batches" and home(right) is not mine:
        if all(event is not None and event.op in COLLECTIVE for event in makers):
            return f"both have been summed{line_of(makers[0])} already: sum a gradient over the ranks once"
        own = 'model.coord["data"]' if mesh is not None and "data" in mesh.axes else "model.rank"
        return f"each rank works on batches of its own: model.get_activation([{own}])"
    return None


def meeting(_: Program | None, first: Any, other: Any) -> str | None:
    """Two members of a collective that called different things: in another order, or in the wrong group?"""
    mine, theirs = home(first.value), home(other.value)
    if mine is None or theirs is None:
        return None
    for here, member, there, wanted in ((mine, first, theirs, other), (theirs, other, mine, first)):
        number = _elsewhere(_calls(here, member), member, _calls(there, wanted), wanted)
        if number is not None:
            return (
                f"rank {member.rank} makes the call of rank {wanted.rank} too, but as its collective #{number + 1}:\n"
                "every rank must make the same collective calls in the same order"
            )
    return _other_group(mine, first, other) if first.op == other.op else None


def _calls(program: Program, member: Any) -> list[Event]:
    """The collectives of a rank in the group in which it is a member."""
    calls = [event for event in program.events if event.op in COLLECTIVE]
    mine = next((event for event in reversed(calls) if (event.op, event.layer) == (member.op, member.layer)), calls[-1])
    return [event for event in calls if event.group == mine.group]


def _elsewhere(mine: list[Event], member: Any, theirs: list[Event], wanted: Any) -> int | None:
    """The number of the collective in which a rank makes the call that another one made in this one."""

    def numbers(calls: list[Event], call: Any) -> list[int]:
        return [i for i, event in enumerate(calls) if (event.op, event.layer) == (call.op, call.layer)]

    now = max(numbers(mine, member), default=len(mine))
    later = [i for i in numbers(mine, wanted) if i > now]
    before = numbers(mine[:now], wanted)
    if len(before) > len(numbers(theirs[:now], wanted)):
        return before[-1]
    return later[0] if later else None


def _other_group(program: Program, first: Any, other: Any) -> str | None:
    """In a mesh: the axis along which ranks do have the same layer, or what else is wrong."""
    mesh, models = getattr(program.world, "mesh", None), getattr(program.world, "models", {})
    if mesh is None:
        return None
    group = _calls(program, first)[-1].group
    lines = {axis: mesh.group(first.rank, axis) for axis in mesh.axes}
    own = next((axis for axis, line in lines.items() if line == group), None)
    if own is None or own in ALONG_LAYERS:
        for axis, line in lines.items():
            last = [[e for e in models[r].program.events if e.op in COLLECTIVE][-1:] for r in line if r in models]
            if axis != own and len(line) > 1 and {e.layer for calls in last for e in calls} == {first.layer}:
                return (
                    f'the ranks that share layer {first.layer} are those along the axis {axis!r}: write group="{axis}"'
                )
    where = "\n".join(f"rank {m.rank} is at {mesh.coordinates(m.rank)}" for m in (first, other))
    return f"take the layer from model.coord, not from arithmetic with the rank:\n{where}"
