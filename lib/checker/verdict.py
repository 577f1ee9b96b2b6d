"""Is this Trace one correct training step, how long does it take, how much memory, and how good is that? The question
and the verdict, as plain data. `judging` finds the answer; it is imported only then, as a run needs none of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lib.errors.exceptions import CheckError
from lib.errors.wording import amount, counted, message_of
from lib.record import record
from lib.trace.event import Program
from lib.trace.trace import ModelLike, Trace, trace_of, without_collector

if TYPE_CHECKING:
    from lib.puzzles.puzzle import Goal, Puzzle

RIGHT_AT = "right at"  # how a fault begins that names another size at which a run is wrong
WRONG, WRONG_ELSEWHERE = "Not one correct training step.", "Right at the size on the page, and wrong at another."
WRONG_FUNCTION = "Not right yet."


@record()
class Verdict:
    """The result of a check: `time` is the true end, `printed` the time that the original prints, `memory` the peak in
    elements on rank `rank`, `sent` the most elements that any rank sends. `faults` say why the run is not one correct
    training step (none: it is). `notes` are remarks that fail nothing: hidden locals, messages never received, made-up
    gradients in a sandbox. `elsewhere`: at how many other sizes the function is right, too."""

    correct: bool
    time: float
    printed: float
    memory: float
    rank: int
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    goals: tuple[Goal, ...] = ()
    puzzle: str | None = None
    sent: float = 0.0
    elsewhere: int = 0

    @property
    def passed(self) -> bool:
        """Whether the run is correct, and within the easiest goal if there are goals."""
        return self.correct and (not self.goals or self.goals[0].reached)

    @property
    def best(self) -> str | None:
        """The name of the best goal reached."""
        return next((goal.name for goal in reversed(self.goals) if goal.reached), None)

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = 24) -> str:
        """Return the verdict in words, with a bar for each figure of each goal: full means exactly at the limit."""
        head = WRONG_ELSEWHERE if self.faults and self.faults[0].startswith(RIGHT_AT) else WRONG
        if self.correct:
            head = "Correct!" if self.passed else "Correct, but not within the goal yet."
            head += f" Also right at {counted(self.elsewhere, 'other size')}." if self.elsewhere else ""
        lines = [head, *(f"  {fault}" for fault in self.faults), *(f"Note: {note}" for note in self.notes)]
        if self.correct:
            lines.append(f"Time {self.time:g}, memory {self.memory:,.0f} elements (rank {self.rank}).")
        for goal in self.goals:
            mark = "reached" if self.correct and goal.reached else "missed"
            # Within its limits, yet not reached: memory was hidden, or the puzzle was made easier.
            if self.correct and not goal.reached and goal.allows(self.time, self.memory):
                mark = "does not count: see the note above"
            lines.append(f"  {goal.name} - {mark}")
            limits = {"time": (self.time, goal.time), "memory": (self.memory, goal.memory)}
            if goal.sent is not None:
                limits["sent"] = self.sent, goal.sent
            for name, (mine, limit) in limits.items():
                filled = min(width, round((mine / limit if limit else 0.0) * width))
                bar = "#" * filled + "." * (width - filled)
                lines.append(f"    {name:<7}[{bar}] {amount(mine):>11} of {amount(limit)}{' over' * (mine > limit)}")
        return "\n".join(lines)


@record()
class FunctionVerdict:
    """The result of testing a plain function. `asked` counts the inputs, and `faults` describe one that it gets wrong.
    `shown` is how the answer looks, if the puzzle says (`import drawing` makes a picture of it). A plan has `goals`,
    and `worth` says its seconds and GiB."""

    puzzle: str
    asked: int
    faults: tuple[str, ...] = ()
    shown: Any = None
    goals: tuple[Goal, ...] = ()
    worth: str = ""

    @property
    def correct(self) -> bool:
        """Whether the function is right on every input."""
        return not self.faults

    passed = correct  # there are no goals to be reached

    def __repr__(self) -> str:
        """Return a short form; `text` has the whole verdict."""
        if self.worth and self.correct:
            return f"<{self.puzzle}: {self.worth}>"
        return f"<{self.puzzle}: {'right' if self.correct else 'wrong'}, of {counted(self.asked, 'input')}>"

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Return the verdict in words."""
        if self.correct and self.worth:
            marks = (f"  {one.name} - {'reached' if one.reached else 'missed'}: {one.time:g} s" for one in self.goals)
            return "\n".join([f"Correct! {self.worth}", *marks])
        if self.correct:
            return f"Correct! Right on all of {counted(self.asked, 'input', ',')}."
        return "\n".join([WRONG_FUNCTION, *("  " + fault.replace("\n", "\n  ") for fault in self.faults)])


def refusal(verdict: Verdict, trace: Trace) -> CheckError:
    """Return the error of a run that is wrong, or does not count."""
    what = "this is not one correct training step" if verdict.faults else "this does not count"
    error = CheckError(what, got="\n".join(verdict.faults or verdict.notes).replace("\n", "\n" + " " * 12))
    error.trace = trace
    return error


@without_collector()
def check(
    trace: Trace | Sequence[ModelLike] | ModelLike,
    puzzle: str | Puzzle | None = None,
    *,
    time: float | None = None,
    memory: float | None = None,
) -> Verdict:
    """Return the verdict on a Trace, or on the Models of a run: against the goals of a puzzle, or one of your own.

    A puzzle is an id or a record; the run must have its sizes, and is timed with its costs. Nothing is printed or
    raised for an incorrect run: `verdict.faults` say what is wrong with it. Without goals only correctness is judged.

    Made-up gradients are accepted only from a live Model without a Dist, and without a puzzle.

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
        # No NaN, which no run could exceed.
        number = isinstance(limit, int | float) and not isinstance(limit, bool) and limit == limit
        if limit is not None and not number:
            raise ValueError(f"{name}= is the most {name} that the run may take, a number; got {name}={limit!r}")
    if puzzle is not None:
        from lib.puzzles import records

        asked = puzzle if isinstance(puzzle, records.Puzzle) else records.schedule_record(puzzle)
        return check_data(_plain(trace, asked), asked)
    goals: list[Goal] = []
    if time is not None or memory is not None:
        from lib.puzzles.puzzle import Goal

        most = float("inf")
        goals.append(Goal("your goal", most if time is None else time, most if memory is None else memory))
    # A Model without a Dist, to try operations with. A Trace never counts as one: anyone may have made it.
    world = None if isinstance(models, Trace) else (models[0] if isinstance(models, Sequence) else models).dist
    sandbox = world is not None and world.sandbox and world.ranks == 1
    try:
        return judge(trace, None, goals, sandbox)
    # A Trace put together by hand may be anything; only reading it as data can say what is wrong.
    except (AttributeError, LookupError, TypeError, ValueError):
        return judge(_plain(trace), None, goals, sandbox)  # says where it is malformed, if that is the reason


def _plain(trace: Trace, puzzle: Puzzle | None = None) -> Trace:
    """Return the run as data: a verdict on a puzzle trusts no object that student code could have touched."""
    from lib.trace.json_format import plain  # here and not above: only a puzzle needs it

    try:
        return plain(trace)
    except Exception as error:  # of any class: a foreign object may raise anything
        text = f"its record is not a run: {message_of(error)}"
        if puzzle is None:
            return Trace(1, 1, [Program(0)], error=text)
        programs = [Program(rank) for rank in range(puzzle.ranks)]
        return Trace(puzzle.layers, puzzle.batches, programs, puzzle.costs, puzzle.mesh, error=text)
