"""Is every rank ready for the next training step? What was at rest on it before, it has afterwards, one update on.

At rest before is what a rank loads and uses. Afterwards it has what it hands in, and what its stores hold at the end:
each of them honest, and updated exactly once. Nothing hands in an optimizer state, so a store has to hold it: what a
variable had is gone with the function.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import Place
from lib.errors.wording import these
from lib.trace.event import Program, place_of
from lib.trace.lifetimes import handed_in, held_at
from lib.trace.rebuild import Rebuilt
from lib.values.operations import LOADS, UPDATES
from lib.values.placement import Part, held_together, union
from lib.values.values import OptState, Weight, describe

__all__ = ["unready"]

Held = Weight | OptState
PARTLY = "only a part of it updated"
TWICE = "one that was updated more than once"


class _Lack(NamedTuple):
    """Something that some ranks lack of some layers, in words that are the same for all of them. `ends` says what is
    there instead."""

    kind: str
    ends: str
    fix: str
    place: Place | None


def unready(rebuilt: Rebuilt, pretend: bool = False) -> list[str]:
    """Return what which rank is not ready for the next step with; the same on several ranks and layers is told once.

    `pretend`: it is a sandbox, where a made-up gradient will do.
    """
    lacks: dict[_Lack, list[tuple[int, Held]]] = defaultdict(list)
    for program in rebuilt.run.programs:
        before, after = _at_rest(program), _afterwards(program, rebuilt, pretend)
        for key, values in before.items():
            now = [value for value in after[key] if value.step == 1]
            if now and _covers(now, [value for value, _ in values]):
                continue
            value, place = next(pair for pair in values if not now or not _covers(now, [pair[0]]))
            ends = _ends(value, after[key])
            lack = _Lack(value.kind, ends, _fix(program, value, ends, now), place)
            lacks[lack].append((program.rank, value))
    return [_text(lack, found) for lack, found in lacks.items()]


def _covers(now: list[Held], before: list[Held]) -> bool:
    """Tell whether all of what some shards were together lies in others, at least one."""
    places = [value.place for value in now]
    firsts: dict[tuple[Part, ...], list[Part]] = {}
    for value in before:
        parts = value.place.dims
        firsts.setdefault(parts[1:], []).append(parts[0])
    return all(held_together(places, rest).covers(union(parts)) for rest, parts in firsts.items())


def _at_rest(program: Program) -> dict[tuple[str, int], list[tuple[Held, Place | None]]]:
    """Return what a rank loads and uses, by kind and layer, each with the line that loads it."""
    used = {number for event in program.events for number in event.inputs}
    found: dict[tuple[str, int], list[tuple[Held, Place | None]]] = defaultdict(list)
    for event in program.events:
        if event.op in LOADS:
            for number in event.outputs:
                value = program.values[number]
                if number in used and isinstance(value, Weight | OptState):
                    found[value.kind, value.layer].append((value, place_of(event)))
    return found


def _afterwards(program: Program, rebuilt: Rebuilt, pretend: bool) -> dict[tuple[str, int], list[Held]]:
    """The honest weights and optimizer states that a rank has when its program is over, by kind and layer."""
    held = held_at(program, len(program.events))
    there = {number for number, count in enumerate(held) if count > 0}
    for event in program.events:
        there.update(handed_in(event))
    found: dict[tuple[str, int], list[Held]] = defaultdict(list)
    for number in sorted(there):
        value, flaw = program.values[number], rebuilt.flaws.get((program.rank, number))
        if isinstance(value, Weight | OptState) and (flaw is None or (pretend and flaw.pretended)):
            found[value.kind, value.layer].append(value)
    return found


def _ends(value: Held, after: list[Held]) -> str:
    """Return what a rank has at the end of what it began with."""
    stale = [other for other in after if other.step == 0]
    if any(other.step > 1 for other in after):
        return TWICE
    if any(other.step == 1 for other in after):
        return PARTLY
    if stale and _covers(stale, [value]):
        return "the same as before, not updated"
    return "none of it"


def _fix(program: Program, value: Held, ends: str, now: list[Held]) -> str:
    if ends == PARTLY and isinstance(value, Weight):
        group = "" if value.is_complete() else ", group=..."  # of those who have updated the rest
        return (
            f"gather the updated shards: weights[layer] = await model.allgather(weights[layer], layer{group});\n"
            "or begin with no more than the shard that this rank updates"
        )
    if ends == PARTLY:
        which = "model.rank, model.RANKS" if value.is_complete() else f"..., {now[0].total}"
        return (
            "this rank updates only a part of it: begin with no more than that part:\n"
            f"_, opt_states[layer] = model.load_weights(layer, {which})"
        )
    updates = any(event.op in UPDATES and event.layer == value.layer for event in program.events)
    if updates and ends == TWICE:
        return "one training step updates a layer once: leave the others out"
    if updates and isinstance(value, OptState):
        return (
            "the next step begins with the optimizer state, too: keep both results of update in stores, to the end:\n"
            "weights[layer], opt_states[layer] = model.update(...)"
        )
    if updates:
        return "keep what update gives: weights[layer], opt_states[layer] = model.update(...)"
    if isinstance(value, OptState):
        return (
            "update a layer where its optimizer state is, and keep both results of update; or load the state only on\n"
            "the rank that updates with it"
        )
    return (
        "update the weight on this rank too, or get the updated one from the rank that has it (a broadcast, an\n"
        "all-gather of the updated shards, a message) and keep it in weights; or do not load it here"
    )


def _text(lack: _Lack, found: list[tuple[int, Held]]) -> str:
    ranks, layers = {rank for rank, _ in found}, {value.layer for _, value in found}
    rank, value = found[0]
    who = these("rank", ranks)
    error = PuzzleError(
        f"{who} {'is' if len(ranks) == 1 else 'are'} not ready for the next training step: the {lack.kind} of "
        f"{these('layer', layers)} is not up to date there",
        expected=f"whatever a rank has before the step it has after it, updated once: rank {rank} began with the "
        f"{describe(value)}",
        got=f"rank {rank} ends with {lack.ends}",
        fix=lack.fix,
        where=[] if lack.place is None else [(None, lack.place)],
    )
    return str(error).replace("\n", "\n  ")
