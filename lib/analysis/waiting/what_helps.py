"""what_helps: of all ranks, operations and links, which would make a run shorter, and by how much, if they were faster.

Each is made faster in turn, all else as it is, and the run is timed anew: what causal profiling tries on a running
program by slowing everything else down (Curtsinger, Berger: Coz, SOSP 2015), a simulator has for the asking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from lib.analysis.event_words import spoken
from lib.analysis.figures import makespan
from lib.analysis.waiting.critical_path import critical_path
from lib.analysis.waiting.what_if import Change, apart, changed, factor_of
from lib.cluster.costs import units
from lib.errors.wording import exact, numbered
from lib.trace.order import messages
from lib.trace.retiming import retime
from lib.trace.trace import ModelLike, Trace, absent, trace_of
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMPUTE, MESSAGES, READS

__all__ = ["Help", "Helps", "what_helps"]

ROWS = 16
"""Rows of the table that are shown; all others help less."""


class Help(NamedTuple):
    """One thing made faster: its name, what that is, and how much earlier the run ends (in ticks)."""

    name: str
    change: Change
    gain: int


@dataclass(frozen=True)
class Helps:
    """What would help, the most first. `faster` is how many times as fast each was made; None: it took no time.
    Notebooks show it as a picture."""

    run: Trace
    faster: Fraction | None
    rows: tuple[Help, ...]

    def head(self) -> str:
        """What was tried."""
        how = "took no time" if self.faster is None else f"were {float(self.faster):.10g} times as fast"
        return f"The run ends at {exact(units(makespan(self.run)))}. What would help, if it alone {how}:"

    def shown(self) -> tuple[Help, ...]:
        """Those that help, the most first, up to so many that can be read."""
        return tuple(row for row in self.rows if row.gain)[:ROWS]

    def rest(self) -> str:
        """What is said of all others."""
        idle = [row for row in self.rows if not row.gain]
        alone = {row.change.rank for row in idle if isinstance(row.change.rank, int)}
        names = [numbered("rank", alone)] if alone else []
        names += [row.name for row in idle if not isinstance(row.change.rank, int)]
        more = sum(row.gain != 0 for row in self.rows) - len(self.shown())
        told = [f"{more} more help less"] if more else []
        if names:
            told.append(f"no difference: {', '.join(names[:ROWS])}{' and so on' if len(names) > ROWS else ''}")
        return "; ".join(told)

    def text(self) -> str:
        """All of it in words."""
        whole, rest = makespan(self.run), self.rest()
        rows = [f"  {row.name}: {apart(row.gain, whole)}" for row in self.shown()]
        return "\n".join([self.head(), *rows, *([f"  {rest}"] if rest else [])])


def what_helps(models: Trace | Sequence[ModelLike], faster: float | None = None) -> Helps | None:
    """What would make a run shorter, and by how much: each rank, each operation, each link and each row of the mesh
    made `faster` in turn (1.1: by a tenth; without it, it takes no time), the order of operations as it is.

    Takes the Models that simulate returned, or a Trace. None where there is no run, which is said.
    """
    if (missing := absent(models)) is not None:
        print(f"{missing}.")
        return None
    given = trace_of(models, "what_helps takes the Models that simulate returned, or a Trace")
    factor = factor_of(faster)
    run = retime(given, given.costs)
    path = critical_path(run).steps
    found: list[Help] = []
    for name, change in _candidates(run, factor):
        # What is nowhere on a critical path cannot make it shorter; but where links are shared it makes room on them.
        on_it = run.costs.shared or any(change.touches(run, at.rank, at.event) for at in path)
        found.append(Help(name, change, changed(run, change).gain if on_it else 0))
    return Helps(run, factor, tuple(sorted(found, key=lambda row: -row.gain)))


def _candidates(run: Trace, faster: Fraction | None) -> Iterator[tuple[str, Change]]:
    """What can be made faster in a run, with its name."""
    timed = {(rank, event.op) for rank, event in run.events() if event.length}
    for rank in sorted({rank for rank, op in timed if op in COMPUTE}):
        yield f"rank {rank}", Change(rank=rank, faster=faster)
    ops = {op for _, op in timed}
    for op in (*sorted(ops & COMPUTE), *(op for op in COLLECTIVES if op in ops), *sorted(ops & READS)):
        yield spoken(op), Change(op=op, faster=faster)
    if ops & MESSAGES:
        yield "messages", Change(op="messages", faster=faster)
    pairs = {(min(one.source, one.target), max(one.source, one.target)) for one in messages(run)}
    for one, other in sorted(pairs if ops & MESSAGES else ()):
        yield f"link {one}-{other}", Change(link=(one, other), faster=faster)
    axes: Mapping[str, int] = {} if run.mesh is None or len(run.mesh.axes) < 2 else run.mesh.axes
    for axis, size in axes.items():
        for place, ranks in enumerate(_across(run, axis) if size > 1 else ()):
            yield f"all of {axis} {place}", Change(rank=ranks, faster=faster)
        change = Change(group=axis, faster=faster)
        if any(event.length and change.touches(run, rank, event) for rank, event in run.events()):
            yield f'collectives along "{axis}"', change


def _across(run: Trace, axis: str) -> list[tuple[int, ...]]:
    """The ranks at each place along an axis of the mesh."""
    assert run.mesh is not None, "an axis is one of a mesh"
    found: list[list[int]] = [[] for _ in range(run.mesh.axes[axis])]
    for rank in range(run.ranks):
        found[run.mesh.coordinates(rank)[axis]].append(rank)
    return [tuple(ranks) for ranks in found]
