"""check: is this Trace one correct training step, and how good is it? What is asked; `judging` says what the answer is,
which is loaded when somebody asks: `import lib` should be quick, and a run needs none of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lib.errors.wording import message_of
from lib.trace.event import Program
from lib.trace.trace import ModelLike, Trace, trace_of, without_collector

if TYPE_CHECKING:
    from lib.checker.verdict import Verdict
    from lib.puzzles.goals import Goal
    from lib.puzzles.puzzle import Puzzle


@without_collector()
def check(
    trace: Trace | Sequence[ModelLike] | ModelLike,
    puzzle: str | Puzzle | None = None,
    *,
    time: float | None = None,
    memory: float | None = None,
) -> Verdict:
    """Return the verdict on a Trace, or on the Models of a run: against the goals of a puzzle, or one of your own.

    With a puzzle the run must have its sizes, and is timed with its costs: those of its record, or of a record
    that is given itself. Nothing is printed and nothing raised for an incorrect run: `verdict.faults` say what is wrong
    with it. A bare run is only judged for correctness.

    Made-up gradients are accepted from a live Model without a Dist, where there is no puzzle; from nobody else.

    >>> async def forgetful(model):
    ...     model.set_final_weight(0, model.load_weights(0)[0])
    >>> verdict = check(simulate(forgetful, layers=1))
    >>> verdict.correct
    False
    >>> print(verdict.faults[0].splitlines()[0])
    rank 0: the final weight of layer 0 was never updated
    """
    from lib.checker.judging import check_data, judge

    models, trace = trace, trace_of(trace, "check takes a Trace, or the Models that simulate returned")
    for name, limit in (("time", time), ("memory", memory)):
        # Not NaN, which no run is over.
        number = isinstance(limit, int | float) and not isinstance(limit, bool) and limit == limit
        if limit is not None and not number:
            raise ValueError(f"{name}= is the most {name} that the run may take, a number; got {name}={limit!r}")
    if puzzle is not None:
        from lib.puzzles import records

        record = puzzle if isinstance(puzzle, records.Puzzle) else records.schedule_record(puzzle)
        return check_data(_plain(trace, record), record)
    goals: list[Goal] = []
    if time is not None or memory is not None:
        from lib.puzzles.goals import Goal

        most = float("inf")
        goals.append(Goal("your goal", most if time is None else time, most if memory is None else memory))
    # A Model without a Dist, to try operations with. A Trace is never one, whatever it says: it may be anybody's.
    world = None if isinstance(models, Trace) else (models[0] if isinstance(models, Sequence) else models).dist
    sandbox = world is not None and world.sandbox and world.ranks == 1
    try:
        return judge(trace, None, goals, sandbox)
    # A Trace that somebody has put together by hand may be anything; only reading it as data finds words for that.
    except (AttributeError, LookupError, TypeError, ValueError):
        return judge(_plain(trace, None), None, goals, sandbox)  # says where it is none, if that is the reason


def _plain(trace: Trace, record: Puzzle | None) -> Trace:
    """The run as data: a verdict on a puzzle asks nothing of an object that student code has had in its hands."""
    from lib.trace.json_format import plain  # here and not above: only a puzzle needs it

    try:
        return plain(trace)
    except Exception as error:  # of whatever class: what is asked here is anybody's
        text = f"its record is no run: {message_of(error)}"
        if record is None:
            return Trace(1, 1, [Program(0)], error=text)
        programs = [Program(rank) for rank in range(record.ranks)]
        return Trace(record.layers, record.batches, programs, record.costs, record.mesh, error=text)
