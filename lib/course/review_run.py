"""review: what a student asks after a run. How good is it, where do the ranks wait, and what fills the memory?"""

from __future__ import annotations

from collections.abc import Sequence

from lib.analysis import figures
from lib.analysis.bounds.puzzle_bounds import has_bound, lower_bound
from lib.analysis.gaps import critical_path, gaps
from lib.analysis.peak import holdings, lean
from lib.checker.checker import check
from lib.course.review import Review
from lib.course.target import run
from lib.errors.exceptions import PuzzleError, TraceError
from lib.puzzles.records import PUZZLES, Puzzle, Size
from lib.trace.trace import ModelLike, Trace, absent, trace_of

__all__ = ["review"]


def review(models: Trace | Sequence[ModelLike], *, puzzle: str) -> Review | None:
    """The run of a puzzle beside its reference solution; notebooks show it as a picture, `text()` says it in words.

    Takes the Models that simulate returned, or a Trace. None where there is no run, which is said. ValueError where the
    run does not have the sizes of the puzzle. The reference is run here, for a correct run only.
    """
    if (why := absent(models)) is not None:
        print(f"{why}.")
        return None
    record = PUZZLES[puzzle]
    trace = trace_of(models, "review takes the Models that simulate returned, or a Trace")
    _same_size(trace, record)
    verdict = check(trace, puzzle)
    mine = _timed(trace, record)
    bound = lower_bound(puzzle) if verdict.correct and has_bound(puzzle) else None
    peak = figures.peak(mine)
    return Review(
        verdict=verdict,
        mine=mine,
        reference=_reference(record) if verdict.correct else None,
        bound=bound,
        excuse=None if bound is None else bound.excuse(mine),
        idle=gaps(mine),
        path=critical_path(mine),
        peak=peak,
        alive=holdings(mine, peak, whole=verdict.correct),
        lean=lean(mine),
    )


def _same_size(trace: Trace, record: Puzzle) -> None:
    if not record.fits(trace):
        mine, wanted = Size.of(trace), record.size
        raise ValueError(
            f"the puzzle {record.id} has {wanted[0]} ranks, {wanted[1]} layers and {wanted[2]} batches; this run has "
            f'{mine[0]}, {mine[1]} and {mine[2]}. Review the run of simulate({record.id}, puzzle="{record.id}")'
        )


def _timed(trace: Trace, record: Puzzle) -> Trace:
    """The Trace that the verdict speaks of: values made anew and timed with the puzzle's costs, where that can be."""
    try:
        return trace.normalised(record.costs)
    except (PuzzleError, TraceError):
        return trace  # the verdict says what is wrong with it


def _reference(record: Puzzle) -> Trace | None:
    found = run(record.id)
    return None if found is None else found.trace
