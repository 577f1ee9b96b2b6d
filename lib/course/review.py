"""Review: a run beside the reference as plain data, and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from lib.analysis.gaps import Gap, Path, operation
from lib.checker.verdict import Verdict
from lib.cluster.clock import in_steps, steps
from lib.errors.wording import amount, exact, numbered
from lib.trace.event import COLLECTIVE
from lib.trace.trace import Trace
from lib.values.collectives import title
from lib.values.values import Elements

if TYPE_CHECKING:
    from lib.analysis.bounds.puzzle_bounds import Bound, Limit
    from lib.analysis.figures import Peak
    from lib.analysis.peak import Holding, Row

__all__ = ["Group", "Review", "grouped"]

GROUPS = 6
"""Kinds of gaps that are told one by one; of more, the rest is counted."""
ROWS = 12
"""Rows of the table of the peak that are shown."""


@dataclass(frozen=True, slots=True)
class Group:
    """Gaps of one kind and with one reason, the longest first. `ticks` is how much they are together."""

    gaps: tuple[Gap, ...]

    @property
    def kind(self) -> str:
        """The kind of its gaps (see lib.analysis.gaps)."""
        return self.gaps[0].kind

    @property
    def ticks(self) -> int:
        """The length of all its gaps together."""
        return sum(gap.length for gap in self.gaps)

    def text(self) -> str:
        """How much, how often, on which ranks, and why; of gaps that differ, the longest as an example."""
        first, ranks = self.gaps[0], _ranks(gap.rank for gap in self.gaps)
        if len(self.gaps) == 1:
            return first.text()
        if len({(gap.start, gap.end, gap.why()) for gap in self.gaps}) == 1:
            return f"{in_steps(self.ticks)}: {first.clause(ranks, many=True)}"
        least, most = exact(steps(self.gaps[-1].length)), exact(steps(first.length))
        each = most if least == most else f"{least} to {most}"
        head = f"{in_steps(self.ticks)}, {len(self.gaps)} times on {ranks}: {self.reason()}, {each} each"
        return head if first.kind == "communication" else f"{head}. For example, {first.text()}"

    def reason(self) -> str:
        """What its gaps have in common."""
        first = self.gaps[0]
        event = None if first.before is None else first.before.event
        what = "communication" if event is None else _kind_of(event.op)
        if first.kind == "communication":
            layers = {gap.before.event.layer for gap in self.gaps if gap.before is not None}
            known = {layer for layer in layers if layer is not None}
            where = f" of {numbered('layer', known)}" if known else ""
            return f"{what}{where if event is not None and event.op in COLLECTIVE else ''} that nothing hides"
        after = "" if first.cause is None else f" after {_kind_of(first.cause.event.op)}"
        return {
            "fill": "waiting for the first input",
            "message": f"waiting for messages that are sent{after or ' later'}",
            "collective": f"waiting in {what} for ranks that come last{after}",
            "stream": f"{what} that wait for an earlier communication of the same ranks",
            "drain": "done before the end of the run",
            "never": "waiting for what never happened",
            "stopped": "stopped because the run failed",
        }.get(first.kind, "between two operations")


def grouped(found: Sequence[Gap]) -> tuple[Group, ...]:
    """Gaps of one kind and with one reason together, the groups that are longest in all first."""
    alike: dict[tuple[object, ...], list[Gap]] = {}
    for gap in found:
        event, cause = gap.before and gap.before.event, gap.cause and gap.cause.event
        what: object = None
        if event is not None and gap.kind in ("communication", "collective", "stream"):
            what = _kind_of(event.op)
        why = _kind_of(cause.op) if cause is not None and gap.kind in ("message", "collective") else None
        alike.setdefault((gap.kind, what, why), []).append(gap)
    groups = [Group(tuple(sorted(gaps, key=lambda gap: -gap.length))) for gaps in alike.values()]
    return tuple(sorted(groups, key=lambda group: -group.ticks))


def _kind_of(op: str) -> str:
    """What operations of one kind are called together."""
    if op in ("pass_to", "receive"):
        return "messages"
    return title(op)


def _ranks(ranks: Iterator[int]) -> str:
    return numbered("rank", set(ranks))


@dataclass(frozen=True, slots=True)
class Review:
    """A run beside the reference solution of its puzzle.

    `mine` and `reference` are Traces timed with the costs of the puzzle; `reference` is None for a run that is not
    correct. `bound` is None where none is known, and `excuse` says why it does not speak of this run. `idle` are the
    gaps of `mine`, `groups` the same by reason. `lean` is the peak (elements) if everything went after its last use.
    """

    verdict: Verdict
    mine: Trace
    reference: Trace | None
    bound: Bound | None
    excuse: str | None
    idle: tuple[Gap, ...]
    path: Path
    peak: Peak
    alive: tuple[Holding, ...]
    lean: Elements

    @property
    def groups(self) -> tuple[Group, ...]:
        """The gaps by kind and reason, the largest first."""
        return grouped(self.idle)

    def rows(self) -> list[Row]:
        """The table of what is alive at the peak."""
        from lib.analysis.peak import rows

        return rows(self.mine, self.alive)

    def text(self) -> str:
        """The whole review in words. Of the verdict's notes it has the first lines: what they tell of is told below."""
        verdict = replace(self.verdict, notes=tuple(note.partition("\n")[0] for note in self.verdict.notes))
        parts = (self.bounds(), self.proofs(), self.beside(), self.waits(), self.memory())
        return "\n".join([verdict.text(), *chain.from_iterable(parts)])

    def bounds(self) -> Iterator[str]:
        """The lower bounds, what they are made of, and how far the run is above them."""
        if self.bound is None or not self.verdict.correct:
            return
        if self.excuse is not None:
            yield f"The lower bound does not speak of this run: {self.excuse.rstrip('.')}."
            return
        from lib.analysis.figures import traffic

        bound, verdict = self.bound, self.verdict
        sent = max((float(elements) for elements, _ in traffic(self.mine)), default=0.0)
        yield f"Lower bounds, for every schedule like this: {bound.premise}"
        yield f"  It ends no earlier than at {_limit(bound.time, verdict.time, 'steps')}"
        yield f"  It needs no less than {_limit(bound.memory, verdict.memory, 'elements')}"
        if bound.sent.value:
            yield f"  Its busiest rank sends no less than {_limit(bound.sent, sent, 'elements')}"

    def proofs(self) -> Iterator[str]:
        """How the lower bounds are proved. The picture leaves this out."""
        if self.bound is not None and self.verdict.correct and self.excuse is None:
            for name, limit in (("steps", self.bound.time), ("memory", self.bound.memory), ("sent", self.bound.sent)):
                if limit.value:
                    yield f"  Proof ({name}): {limit.proof}"

    def beside(self) -> Iterator[str]:
        """How the run compares with the reference."""
        if self.reference is None:
            yield "The timeline of the reference is shown beside a correct run only."
            return
        from lib.analysis.figures import end, peak

        time, memory = end(self.reference), float(peak(self.reference).elements)
        early, small = round(self.verdict.time - time, 9), self.verdict.memory - memory
        when = f"{abs(early):.10g} steps {'later' if early > 0 else 'earlier'}" if early else "as early"
        size = f"{amount(abs(small))} elements {'more' if small > 0 else 'less'}" if small else "the same memory"
        yield f"The reference: {time:.10g} steps, {amount(memory)} elements. Yours: {when}, {size}."

    def waits(self) -> Iterator[str]:
        """What determines the end, and where the gaps are and why."""
        whole = max((event.end or 0 for _, event in self.mine.events()), default=0)
        if not whole:
            return
        name = "Critical path" if self.mine.error is None else "Critical path to where the run stopped"
        yield f"{name}: {exact(steps(whole))} steps = {self.path.text().replace(', ', ' + ')}{_through(self.path)}."
        empty, ranks = sum(gap.length for gap in self.idle), self.mine.ranks
        if not empty:
            until = "the end" if self.mine.error is None else "where the run stopped"
            yield f"No gaps: every rank computes from the beginning to {until}."
            return
        share = f"{empty / (whole * ranks):.1%}"
        yield f"Gaps: {in_steps(empty)} of {ranks} x {exact(steps(whole))} ({share}) are not computing:"
        groups = self.groups
        for group in groups[:GROUPS]:
            yield f"  {group.text()}"
        if rest := groups[GROUPS:]:
            others = "another reason" if len(rest) == 1 else f"{len(rest)} other reasons"
            yield f"  and {in_steps(sum(group.ticks for group in rest))} for {others}"

    def memory(self) -> Iterator[str]:
        """What is alive at the peak, and what of it could have been deleted."""
        if not self.alive:
            return
        yield f"{self.fullest()}:"
        table = self.rows()
        for row, following in zip(table[:ROWS], [*table[1:], None], strict=False):
            yield f"  {amount(row.elements):>12}  {row.what}: {row.made}, {row.fate}"
            if row.idle and (following is None or following.place != row.place or not following.idle):
                yield f"{'':>16}{row.advice()}"
        if rest := table[ROWS:]:
            yield f"  {amount(sum(row.elements for row in rest)):>12}  in {len(rest)} more rows"
        if any(row.idle for row in table):
            yield self.leaner()

    def fullest(self) -> str:
        """Which rank holds the most, how much, and when."""
        event = self.mine.programs[self.peak.rank].events[self.peak.index]
        held = f"At the peak rank {self.peak.rank} holds {amount(self.peak.elements)} elements"
        return f"{held}, at time {steps(self.peak.time):.10g}, when {operation(event)} begins"

    def leaner(self) -> str:
        """What the peak could be."""
        less, now = f"{amount(self.lean)} elements", amount(self.peak.elements)
        return f"If every value were deleted after its last use, the peak would be {less} instead of {now}."


def _limit(limit: Limit, mine: float, unit: str) -> str:
    """A limit, what it is made of, and how far a run is above it."""
    parts = " + ".join(f"{amount(part.amount)} for {part.what}" for part in limit.parts)
    if len(limit.parts) == 1:
        parts = limit.parts[0].what
    above = round(mine - limit.value, 9)
    far = f"You are {amount(above)} above it." if above > 0 else "You have reached it."
    if limit.optimal:
        far = "You have reached it: this is optimal." if above <= 0 else f"{far} It can be reached."
    return f"{amount(limit.value)} {unit}: {parts} ({limit.kind}). {far}"


def _through(path: Path) -> str:
    """The ranks that a critical path goes through."""
    ranks = path.ranks()
    if len(ranks) < 2:
        return f", all on rank {ranks[0]}" if ranks else ""
    if len(ranks) <= 12:
        return f", through ranks {' > '.join(map(str, ranks))}"
    return f", with {len(ranks) - 1} changes of rank"
