"""check: is this Trace one correct training step, and how good is it?

The run is rebuilt from nothing (see rebuild) and timed anew, so neither the times nor the values that a Trace states
are believed. Correct means: for every layer the final weights of all ranks together are complete; each descends from
loaded weights by exactly one update, whose gradient has every batch exactly once; those gradients come from backward
of activations that come from forward of inputs, all with the weights as loaded; and nothing on the way was forged,
made up or loaded twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import lcm
from typing import TYPE_CHECKING

from . import figures
from .errors import Place, PuzzleError, TraceError, resolve
from .program import Event, Program, Run
from .puzzles import PUZZLES, Puzzle, Tier
from .retime import retime
from .trace import Desk, Trace
from .values import Weight, describe, numbers, regions
from .verdict import Reached, Verdict
from .walk import unreceived

if TYPE_CHECKING:
    from .rebuild import Flaw, Rebuilt

__all__ = ["check"]

NAMED = 5
"""Hidden values that a note names one by one; more are counted."""


def check(
    trace: Trace | Sequence[Desk], puzzle: str | None = None, *, time: float | None = None, memory: float | None = None
) -> Verdict:
    """The verdict on a Trace, or on the Models of a run: against the tiers of a puzzle, or a target of your own.

    With a puzzle the run must have its sizes, and is timed with its costs. Nothing is printed and nothing raised for
    an incorrect run: `verdict.faults` say what is wrong with it. A bare run is only judged for correctness.
    """
    from .rebuild import rebuild  # here and not above: only a check needs it, and `import lib` should be quick

    if not isinstance(trace, Trace):
        trace = Trace.of(trace)
    record = None if puzzle is None else PUZZLES[puzzle]
    faults: list[str] = []
    run: Run = trace
    rebuilt: Rebuilt | None = None
    if record is not None:
        faults.extend(_wrong_size(trace, record))
    try:
        rebuilt = rebuild(trace)
        run = retime(rebuilt.run, trace.costs if record is None else record.costs)
    except (PuzzleError, TraceError) as error:
        faults.append(str(error))
    if trace.error is not None:
        faults.insert(0, f"the run did not end: {trace.error}")
    elif rebuilt is not None:
        faults.extend(_finals(trace, rebuilt))
    timed = Trace(run.layers, run.batches, run.programs, run.costs, run.mesh, error=run.error)
    top = figures.peak(timed)
    end, used = figures.end(timed), float(top.elements)
    tiers = record.tiers if record is not None else _own(time, memory)
    return Verdict(
        correct=not faults,
        time=end,
        printed=figures.printed(timed),
        memory=used,
        rank=top.rank,
        faults=tuple(faults),
        notes=tuple(_notes(timed, rebuilt, top)),
        tiers=tuple(Reached(t.name, t.time, t.memory, t.reached(end, used)) for t in tiers),
        puzzle=puzzle,
    )


def _own(time: float | None, memory: float | None) -> tuple[Tier, ...]:
    if time is None and memory is None:
        return ()
    return (Tier("your target", float("inf") if time is None else time, float("inf") if memory is None else memory),)


def _wrong_size(trace: Trace, record: Puzzle) -> list[str]:
    found: list[str] = []
    for name, mine, wanted in (
        ("ranks", trace.ranks, record.ranks),
        ("layers", trace.layers, record.layers),
        ("batches", trace.batches, record.batches),
    ):
        if mine != wanted:
            found.append(f"the puzzle {record.id} has {wanted} {name}, this run has {mine}")
    return found


def _finals(trace: Trace, rebuilt: Rebuilt) -> list[str]:
    """What is wrong with the final weights, layer by layer."""
    found: list[str] = []
    for layer in range(trace.layers):
        here = [(rank, *final) for (rank, at), final in sorted(rebuilt.finals.items(), key=_by_place) if at == layer]
        if not here:
            found.append(
                f"layer {layer} has no final weight: call model.set_final_weight({layer}, weight) after its update"
            )
            continue
        for rank, event, weight, flaw in here:
            fault = _fault(trace, rank, event, weight, flaw)
            if fault is not None:
                found.append(fault)
                break
        missing = _missing([weight for _, _, weight, _ in here])
        if missing:
            found.append(f"the final weights of layer {layer} are not complete: {missing}")
    return found


def _by_place(item: tuple[tuple[int, int], object]) -> tuple[int, int]:
    return item[0]


def _fault(trace: Trace, rank: int, event: Event, weight: Weight, flaw: Flaw | None) -> str | None:
    """What is wrong with one final weight."""
    if flaw is not None and not (flaw.pretended and trace.sandbox):
        return f"rank {rank}: the final weight of layer {weight.layer} is not honest: {_say(flaw)}"
    if weight.step != 1:
        times = "never updated" if weight.step == 0 else f"updated {weight.step} times"
        return (
            f"rank {rank}: the final weight of layer {weight.layer} was {times}, expected exactly one update"
            f"{_where(event)}"
        )
    return None


def _say(flaw: Flaw) -> str:
    return f"{flaw.what} (rank {flaw.rank}{_where(flaw.event)})"


def _where(event: Event) -> str:
    source = event.source
    found = source if source is None or isinstance(source, Place) else resolve(*source)
    return "" if found is None else f"; {found}"


def _missing(weights: Sequence[Weight]) -> str:
    """Which parts of a layer no final weight has, in words; empty where all are there."""
    parts = lcm(*{weight.total for weight in weights})
    has: set[int] = set()
    for weight in set(weights):
        has |= regions(weight, parts)
    missing = set(range(parts)) - has
    return f"shards {numbers(missing)} of {parts} are on no rank" if missing else ""


def _notes(timed: Trace, rebuilt: Rebuilt | None, top: figures.Peak) -> Iterable[str]:
    if timed.sandbox or (rebuilt is not None and rebuilt.run.sandbox):
        flaws = [f for _, _, f in rebuilt.finals.values() if f is not None and f.pretended] if rebuilt else []
        if flaws:
            yield "this Model is a sandbox, so pretended gradients were accepted; with a Dist they are not."
    hidden = [text for program in timed.programs for text in _hidden(program)]
    if hidden:
        more = f", and {len(hidden) - NAMED} more" if len(hidden) > NAMED else ""
        yield f"values kept outside the five stores count as memory too: {'; '.join(hidden[:NAMED])}{more}."
    if timed.error is None and rebuilt is not None:
        for rank, event in unreceived(timed)[:NAMED]:
            yield f"nobody received a message that rank {rank} passed to rank {event.peer}{_where(event)}."


def _hidden(program: Program) -> list[str]:
    """Values that lived on outside the stores while another operation ran."""
    found: list[str] = []
    for alive in figures.hidden(program):
        made = "" if alive.born is None else _where(alive.born)
        found.append(f"rank {program.rank}: {describe(alive.value)}{made}")
    return found
