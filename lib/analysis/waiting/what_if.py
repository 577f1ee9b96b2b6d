"""what_if: the same run with something faster, or free. The order of operations stays; only the times are new.

None of the student's code runs again: the Trace is timed anew (see `lib.trace.retiming`). A schedule that adapts to the
change would be another schedule, and another run.

Causal profiling answers the same question for a running program by slowing everything else down (Curtsinger, Berger:
Coz, SOSP 2015).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Final

from lib.analysis.figures import makespan, peak
from lib.analysis.waiting.gaps import Gap, gaps
from lib.cluster.costs import Costs, as_written, in_units, units
from lib.errors.wording import amount, exact, numbered, these
from lib.trace.event import Event, spoken
from lib.trace.retiming import retime
from lib.trace.trace import Answer, ModelLike, Trace, asked
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, COMPUTE, MESSAGES, OPERATIONS, TIMED

FAMILIES: Final[Mapping[str, Container[str]]] = {"compute": COMPUTE, "messages": MESSAGES, "collectives": COLLECTIVES}
"""Names for groups of operations."""


@dataclass(frozen=True)
class Change:
    """A change: what becomes faster, and how many times as fast (None: it takes no time).

    `rank`: what it computes, or, with an `op`, all such operations that it takes part in. `op`: the name of an
    operation, or of FAMILIES. `layer`: what is computed with it. `link`: what two ranks send each other. `group`:
    collectives along an axis of the mesh, or over these ranks.
    """

    rank: int | tuple[int, ...] | None = None
    op: str | None = None
    layer: int | None = None
    link: tuple[int, int] | None = None
    group: str | tuple[int, ...] | None = None
    faster: Fraction | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks named by `rank`."""
        return self.rank if isinstance(self.rank, tuple) else () if self.rank is None else (self.rank,)

    def touches(self, run: Trace, rank: int, event: Event) -> bool:
        """Tell whether the change applies to an event of a rank."""
        between = self.link is not None or self.group is not None
        ops = (self.op,) if self.op is not None else COMMUNICATION if between else COMPUTE
        if event.op not in FAMILIES.get(self.op or "", ops) or (self.layer is not None and event.layer != self.layer):
            return False
        if event.op in COLLECTIVES:
            involved: Sequence[int] = event.group
        else:
            involved = (rank,) if event.peer is None else (rank, event.peer)
        if self.rank is not None and not any(one in self.ranks for one in involved):
            return False
        if self.link is not None and (event.op not in COMMUNICATION or set(involved) != set(self.link)):
            return False
        members = self.group
        if isinstance(members, str):
            assert run.mesh is not None, "an axis is one of a mesh"
            members = run.mesh.group(rank, members)
        return members is None or (event.op in COLLECTIVES and set(involved) == set(members))

    def what(self) -> str:
        """Name what changes: "all that is computed on rank 3", "backward of layer 7", "what is sent ..."."""
        kind = self.op or (
            "what is sent" if self.link is not None else "compute" if self.group is None else "collectives"
        )
        words = "all that is computed" if kind == "compute" else kind if self.op in (None, *FAMILIES) else spoken(kind)
        if self.layer is not None:
            words += f" of layer {self.layer}"
        if self.rank is not None:
            words += f" on {numbered('rank', self.ranks)}"
        if self.link is not None:
            words += f" between {these('rank', self.link)}"
        if isinstance(self.group, str):
            words += f' along "{self.group}"'
        elif self.group is not None:
            words += f" of {these('rank', self.group)}"
        return words

    def words(self) -> str:
        """State the assumption: "If forward on rank 3 were 1.2 times as fast"."""
        if self.faster is None:
            return f"If {self.what()} took no time"
        if self.faster < 1:
            return f"If {self.what()} took {float(1 / self.faster):.10g} times as long"
        return f"If {self.what()} were {float(self.faster):.10g} times as fast"


@dataclass(frozen=True, repr=False)
class WhatIf(Answer):
    """A run as it was, and timed anew with a change. `words` begin a sentence with the assumption; `change` is None if
    the costs as a whole were replaced."""

    before: Trace
    after: Trace
    words: str
    change: Change | None = None

    @property
    def gain(self) -> int:
        """Return how much earlier the run ends, in ticks."""
        return makespan(self.before) - makespan(self.after)

    def head(self) -> str:
        """Say when the run would end."""
        whole = makespan(self.before)
        start, end = exact(units(whole)), exact(units(makespan(self.after)))
        if not self.gain:
            return f"{self.words}, the run would end as it does, at {start}."
        share = f"{abs(self.gain) / whole:.1%}" if whole else "0%"
        apart = f"{in_units(abs(self.gain))} ({share}) {'earlier' if self.gain > 0 else 'later'}"
        return f"{self.words}, the run would end at {end} instead of {start}: {apart}."

    def ends(self) -> Iterator[str]:
        """Say what becomes of memory and gaps, and what the answer leaves out."""
        old, new = peak(self.before), peak(self.after)
        if old.elements == new.elements:
            yield f"The peak stays: {amount(old.elements)} elements on rank {old.rank}."
        else:
            yield f"The peak: {amount(new.elements)} elements instead of {amount(old.elements)}."
        # Gaps match if the rank idles in the same operation, or at its end, for the same kind of reason.
        before, now = gaps(self.before), Counter[tuple[object, ...]]()
        for gap in gaps(self.after):
            now[_key(gap)] += gap.length
        closed = [gap for gap in before if _key(gap) not in now]
        less = [gap.length - now[_key(gap)] for gap in before if _key(gap) in now]
        yield (
            f"Gaps: {in_units(now.total())} instead of {exact(units(sum(gap.length for gap in before)))}; "
            f"{len(closed)} of {len(before)} are closed, {sum(one > 0 for one in less)} shorter, "
            f"{sum(one < 0 for one in less)} longer."
        )
        if closed:
            yield f"The longest that is closed: {max(closed, key=lambda gap: gap.length).text()}."
        yield "Every rank does the same in the same order: the run is timed anew, and nothing is run again."


def _key(gap: Gap) -> tuple[object, ...]:
    return gap.rank, None if gap.before is None else gap.before.number, gap.kind


def what_if(
    models: Trace | Sequence[ModelLike],
    *,
    rank: int | Sequence[int] | None = None,
    op: str | None = None,
    layer: int | None = None,
    link: tuple[int, int] | None = None,
    group: str | Sequence[int] | None = None,
    faster: float | None = None,
    costs: Costs | None = None,
) -> WhatIf | None:
    """Time a run anew as if something were faster: `what_if(out, rank=3, faster=1.2)`.

    Choose by `rank=3` (what it computes; or several ranks), `op="backward"` (or "compute", "messages", "collectives"),
    `layer=7`, `link=(0, 1)` (what these send each other), `group="data"` (collectives along that axis), or several of
    these, which must all apply. `faster=2` is twice as fast, 0.5 half as fast; without it, no time is taken. Or give
    other `costs`.

    Takes the Models that simulate returned, or a Trace, whose order stays as it was: it is timed anew, and a bare
    receive() keeps the message that it got. None, with a message, if there is no run. ValueError if nothing in the run
    matches.

    >>> async def slow_pair(model):
    ...     model.forward(0, model.get_activation([model.rank]), model.load_weights(0)[0])
    ...     await model.allreduce(model.fake_grad(0, [model.rank]), 0)
    >>> run = simulate(slow_pair, ranks=2, layers=1, batches=2, costs=Uneven(ranks=(1, 2)))
    >>> print(str(what_if(run, rank=1, faster=2)).splitlines()[0])
    If all that is computed on rank 1 were 2 times as fast, the run would end at 1.3 instead of 2.3: ...
    """
    if (run := asked(models, "what_if")) is None:
        return None
    named = (rank, op, layer, link, group)
    if (costs is None) == (named == (None,) * 5):
        raise ValueError("say what is to be faster: rank=, op=, layer=, link= or group=; or give other costs=, alone")
    if costs is not None:
        return WhatIf(retime(run, run.costs), retime(run, costs), "With these costs")
    members = group if group is None or isinstance(group, str) else tuple(group)
    if rank is not None and not isinstance(rank, int):
        if not isinstance(rank, Sequence) or isinstance(rank, str) or not rank:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"rank= is a rank of this run, or several, such as [0, 1]; got {rank!r}")
        rank = tuple(rank)
    if link is not None and (not isinstance(link, list | tuple) or len(link) != 2):  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
        raise ValueError(f"link= is a pair of ranks, such as (0, 1); got {link!r}")
    pair = None if link is None else (link[0], link[1])
    if faster is not None:
        number = isinstance(faster, int | float | Fraction) and not isinstance(faster, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not number or not faster > 0:
            raise ValueError(f"faster= is a number above 0, such as 1.2 (0.5 is half as fast); got {faster!r}")
    exactly = None if faster is None or not isfinite(faster) else as_written(faster)
    change = Change(rank, op, layer, pair, members, exactly)
    _require(run, change)
    before, scale = retime(run, run.costs), Fraction(0) if exactly is None else 1 / exactly
    after = retime(before, before.costs, lambda rank, event: scale if change.touches(before, rank, event) else 1)
    return WhatIf(before, after, change.words(), change)


def _require(run: Trace, change: Change) -> None:
    """Raise ValueError if a change applies to nothing in a run."""
    if change.op is not None and str(change.op) not in {*FAMILIES, *OPERATIONS, *COLLECTIVES}:
        known = ", ".join(sorted({event.op for _, event in run.events() if event.op in TIMED and event.length}))
        raise ValueError(f"op= is one of {', '.join(FAMILIES)}, or an operation: {known}; got {change.op!r}")
    if isinstance(change.group, str) and (run.mesh is None or change.group not in run.mesh.axes):
        axes = "no mesh" if run.mesh is None else f"a mesh with the axes {', '.join(run.mesh.axes)}"
        raise ValueError(f"group= is an axis of the mesh or a list of ranks; this run has {axes}; got {change.group!r}")
    for one in (*change.ranks, *(change.link or ())):
        if one not in range(run.ranks):
            raise ValueError(f"this run has the ranks 0 to {run.ranks - 1}; got {one!r}")
    if not any(change.touches(run, rank, event) and event.length for rank, event in run.events()):
        raise ValueError(f"there is nothing in this run that takes time and is {change.what()}")
