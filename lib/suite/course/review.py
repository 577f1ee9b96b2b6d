"""review: answers a student's questions about a run: how good it is, where ranks wait, and what fills the memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from lib.analysis import figures
from lib.analysis.figures import Peak
from lib.analysis.memory import Holding, Row, holdings, lean, rows
from lib.analysis.waiting.critical_path import Path, critical_path
from lib.analysis.waiting.gaps import Gap, Group, gaps, grouped
from lib.checker.verdict import Verdict
from lib.cluster.costs import in_units, units
from lib.errors.exceptions import PuzzleError, TraceError
from lib.errors.wording import amount, exact
from lib.puzzles.puzzle import Size
from lib.puzzles.records import schedule_record
from lib.trace.event import operation
from lib.trace.trace import Answer, ModelLike, Trace, asked
from lib.values.values import Elements

if TYPE_CHECKING:
    from lib.analysis.bounds.limits import Bound, Limit
    from lib.suite.course.solutions import Known

# `drawing` draws the picture of a review, and so imports this module: what makes a review is imported when needed.

GROUPS = 6  # kinds of gaps listed one by one; the rest is summed up
ROWS = 12  # most rows shown of the table of the peak


def review(models: Trace | Sequence[ModelLike], *, puzzle: str) -> Review | None:
    """Return the run of a puzzle beside its reference solution; notebooks show it as a picture, `text()` gives words.
    Takes the Models that simulate returned, or a Trace. None, with a printed reason, if there is no run. ValueError if
    the run does not have the puzzle's sizes. The reference is run here, but only if the run is correct."""
    from lib.analysis.bounds.limits import has_bound, lower_bound
    from lib.checker.verdict import check
    from lib.suite.course.progress import judged_here
    from lib.suite.course.solutions import known_ways, run_of_file, schedule_of
    from lib.suite.submissions.locations import reference as reference_file

    trace = asked(models, "review")
    if trace is None:
        return None
    record = schedule_record(puzzle)
    if not record.fits(trace):
        mine, wanted = Size.of(trace), record.size
        raise ValueError(
            f"the puzzle {record.id} has {wanted[0]} ranks, {wanted[1]} layers and {wanted[2]} batches; this run has "
            f'{mine[0]}, {mine[1]} and {mine[2]}. Review the run of simulate({record.id}, puzzle="{record.id}")'
        )
    judged, said = judged_here.get(puzzle, (None, None))
    # Repeat the verdict of Model.check on this run, as it knows about other sizes, too.
    verdict = said if judged is trace and isinstance(said, Verdict) else check(trace, puzzle)
    try:
        mine = trace.normalised(record.costs)
    except (PuzzleError, TraceError):
        mine = trace  # the verdict says what is wrong with it
    reference, others = None, ()
    if verdict.correct:
        # Its lines of code are only for those who have passed the puzzle.
        reference = run_of_file(reference_file(puzzle), puzzle) if verdict.passed else schedule_of(puzzle)
        others = known_ways(puzzle)
    bound = lower_bound(puzzle) if verdict.correct and has_bound(puzzle) else None
    peak = figures.peak(mine)
    excuse = None if bound is None else bound.excuse(mine)
    alive = holdings(mine, peak, whole=verdict.correct)
    path, leaner = critical_path(mine), lean(mine)
    return Review(verdict, mine, reference, bound, excuse, gaps(mine), path, peak, alive, leaner, others)


@dataclass(frozen=True, slots=True, repr=False)
class Review(Answer):
    """A run beside the reference solution of its puzzle.

    `mine` and `reference` are Traces timed with the puzzle's costs; `reference` is None for an incorrect run. `bound`
    is None if none is known, and `excuse` says why it does not apply to this run. `idle` are the gaps of `mine`,
    `groups` the same by reason. `lean` is the peak (elements) if everything were deleted after its last use. `others`
    are the figures of other known ways to do the puzzle.
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
    others: tuple[Known, ...] = ()

    @property
    def groups(self) -> tuple[Group, ...]:
        """Return the gaps by kind and reason, the largest first."""
        return grouped(self.idle)

    def rows(self) -> list[Row]:
        """Return the table of what is alive at the peak."""
        return rows(self.mine, self.alive)

    def head(self) -> str:
        """Return the verdict, with only the first lines of its notes, as the details follow below."""
        return replace(self.verdict, notes=tuple(note.partition("\n")[0] for note in self.verdict.notes)).text()

    def ends(self) -> Iterator[str]:
        """Yield the whole review in words, below the verdict."""
        yield from chain(self.bounds(), self.proofs(), (self.beside(),), self.waits(), self.memory())

    def bounds(self) -> Iterator[str]:
        """Yield the lower bounds, their parts, and how far the run is above them."""
        yield from filter(None, (self.premise(),))
        yield from (f"  {line}" for line in (*self.limits(), self.both()) if line)

    def premise(self) -> str | None:
        """Say which schedules the lower bounds apply to, or why not to this one. None if there are none."""
        if self.bound is None or not self.verdict.correct:
            return None
        if self.excuse is not None:
            return f"The lower bound does not speak of this run: {self.excuse.rstrip('.')}."
        return f"Lower bounds, for every schedule like this: {self.bound.premise}"

    def _speaking(self) -> Bound | None:
        """The lower bounds, if they apply to this run."""
        return self.bound if self.verdict.correct and self.excuse is None else None

    def limits(self) -> Iterator[str]:
        """Yield each lower bound that applies to this run, and how far the run is above it."""
        if (bound := self._speaking()) is None:
            return
        verdict = self.verdict
        yield f"It ends no earlier than at time {_limit(bound.time, verdict.time)}"
        if bound.memory.value:
            yield f"It needs no less than {_limit(bound.memory, verdict.memory, ' elements')}"
        if bound.sent.value:
            yield f"Sent per rank is no less than {_limit(bound.sent, figures.most_sent(self.mine), ' elements')}"

    def both(self) -> str | None:
        """Say whether one schedule can have the least time and the least memory; None if no bounds apply."""
        if (bound := self._speaking()) is None:
            return None
        if len(bound.frontier) > 1:
            quick, small = bound.frontier[0], bound.frontier[-1]
            return (
                f"No schedule has both the least time and the least memory: one that ends at {exact(quick.end)} needs "
                f"{amount(quick.peak)} elements, and one that needs {amount(small.peak)} ends at {exact(small.end)}."
            )
        if bound.together is None or not (bound.time.optimal and bound.memory.optimal):
            return None
        time, memory = bound.together
        if time <= bound.time.value and memory <= bound.memory.value:
            return "One schedule can have both the least time and the least memory."
        return "Whether one schedule can have both the least time and the least memory is not known."

    def figures(self) -> Iterator[tuple[str, float, float]]:
        """Yield time and memory of your run, and of the reference."""
        yield "yours", self.verdict.time, self.verdict.memory
        if self.reference is not None:
            yield "the reference", figures.end(self.reference), float(figures.peak(self.reference).elements)

    def proofs(self) -> Iterator[str]:
        """Prove the lower bounds. The picture leaves this out."""
        if (bound := self._speaking()) is not None:
            for name, limit in (("time", bound.time), ("memory", bound.memory), ("sent", bound.sent)):
                if limit.value:
                    yield f"  Proof ({name}): {limit.proof}"

    def beside(self) -> str:
        """Compare the run with the reference."""
        if self.reference is None:
            return "The timeline of the reference is shown beside a correct run only."
        *_, (_, time, memory) = self.figures()
        early, small = round(self.verdict.time - time, 9), self.verdict.memory - memory
        when = f"{abs(early):.10g} time units {'later' if early > 0 else 'earlier'}" if early else "as early"
        size = f"{amount(abs(small))} elements {'more' if small > 0 else 'less'}" if small else "the same memory"
        return f"The reference: time {time:.10g}, memory {amount(memory)} elements. Yours: {when}, {size}."

    def waits(self) -> Iterator[str]:
        """Say what determines the end, where the gaps are and why, and how to find out more."""
        yield from self.heads()
        told, rest = self.reasons()
        yield from (f"  {group.text()}" for group in told)
        if rest:
            yield f"  {rest}"
        if (further := self.further()) is not None:
            yield further

    def heads(self) -> tuple[str, ...]:
        """Return the critical path, and the share of time without computing; empty if nothing took time."""
        whole = figures.makespan(self.mine)
        if not whole:
            return ()
        name = "Critical path" if self.mine.error is None else "Critical path to where the run stopped"
        ranks = self.path.ranks()
        through = f", with {len(ranks) - 1} changes of rank"
        if len(ranks) < 2:
            through = f", all on rank {ranks[0]}" if ranks else ""
        elif len(ranks) <= 12:
            through = f", through ranks {' > '.join(map(str, ranks))}"
        path = f"{name}: time {exact(units(whole))} = {self.path.made_of().replace(', ', ' + ')}{through}."
        empty, count = sum(gap.length for gap in self.idle), self.mine.ranks
        if not empty:
            until = "the end" if self.mine.error is None else "where the run stopped"
            return path, f"No gaps: every rank computes from the beginning to {until}."
        share = f"{empty / (whole * count):.1%}"
        return path, f"Gaps: {in_units(empty)} of {count} x {exact(units(whole))} ({share}) are not computing:"

    def reasons(self) -> tuple[tuple[Group, ...], str]:
        """Return the groups of gaps to list one by one, and a summary of all others."""
        groups = self.groups
        told, rest = groups[:GROUPS], groups[GROUPS:]
        others = "another reason" if len(rest) == 1 else f"{len(rest)} other reasons"
        return told, f"and {in_units(sum(group.ticks for group in rest))} for {others}" if rest else ""

    def further(self) -> str | None:
        """Say how to follow the longest gap back to its cause. None if there is none, or the run failed."""
        if not self.idle or self.mine.error is not None:
            return None
        longest = max(self.idle, key=lambda gap: gap.length)
        middle = exact(units((longest.start + longest.end) // 2))
        ask = f"why(out, rank={longest.rank}, time={middle})"
        return f"{ask} follows the longest gap back to its cause."

    def memory(self) -> Iterator[str]:
        """List what is alive at the peak, and what could have been deleted."""
        if not self.alive:
            return
        yield f"{self.at_the_peak()}:"
        table = self.rows()
        for row in table[:ROWS]:
            yield f"  {amount(row.elements):>12}  {row.what}: {row.made}, {row.fate}"
            if row.advice:
                yield f"{'':>16}{row.advice}"
        if rest := table[ROWS:]:
            yield f"  {amount(sum(row.elements for row in rest)):>12}  in {len(rest)} more rows"
        if any(row.idle for row in table) and (words := self.leaner()):
            yield words

    def at_the_peak(self) -> str:
        """Name the rank that holds the most, how much, and when."""
        event = self.mine.programs[self.peak.rank].events[self.peak.index]
        held = f"At the peak rank {self.peak.rank} holds {amount(self.peak.elements)} elements"
        return f"{held}, at time {units(self.peak.time):.10g}, when {operation(event)} begins"

    def leaner(self) -> str:
        """Say what the peak could be; "" if it could be no lower."""
        less, now = f"{amount(self.lean)} elements", amount(self.peak.elements)
        if self.lean >= self.peak.elements:
            return ""
        return f"If every value were deleted after its last use, the peak would be {less} instead of {now}."


def _limit(limit: Limit, mine: float, unit: str = "") -> str:
    """A limit, its parts, and how far a run is above it."""
    parts = " + ".join(f"{amount(part.amount)} for {part.what}" for part in limit.parts)
    if len(limit.parts) == 1:
        parts = limit.parts[0].what
    above = round(mine - limit.value, 9)
    far = f"You are {amount(above)} above it." if above > 0 else "You have reached it."
    if limit.optimal:
        far = "You have reached it: this is optimal." if above <= 0 else f"{far} It can be reached."
    return f"{amount(limit.value)}{unit}: {parts} ({limit.kind}). {far}"
