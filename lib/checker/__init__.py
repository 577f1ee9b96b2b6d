"""Is a Trace one correct training step? The check that a student asks for: what it prints, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from lib.simulator import attached

if TYPE_CHECKING:
    from lib.checker.verdict import FunctionVerdict, Verdict
    from lib.errors.exceptions import PuzzleError
    from lib.simulator.model import Model
    from lib.trace.trace import Trace

    Listener = Callable[[Verdict | FunctionVerdict, Trace | None], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Has a listener hear of every check to come."""
    _listeners.append(listener)


def tell(verdict: Verdict | FunctionVerdict, trace: Trace | None) -> None:
    """Tells all listeners of a verdict on a run."""
    for listener in _listeners:
        listener(verdict, trace)


def check(
    models: Sequence[Model] | Model,
    *,
    puzzle: str | None = None,
    time: float | None = None,
    memory: float | None = None,
    elsewhere: bool = True,
) -> Verdict | None:
    """Print whether the run is one correct training step, and how it does against a puzzle's goals or your own.

    Returns the verdict, which `import drawing` lets notebooks show. CheckError says what is wrong with the run;
    a puzzle that is not solved yet is no error, nor is a run that is not within the goal, unless that is graded.

    A run of simulate's that passes is not enough for a puzzle: the function has to be right at its hidden sizes, too,
    unless `elsewhere` is off. A PuzzleError says of the first at which it is not what is wrong there.
    """
    from lib.errors import graded  # here and not above: `import lib` should be quick
    from lib.trace.trace import absent, trace_of

    if (why := absent(models)) is not None:
        graded.say_absent(models, why)
        return None
    from lib.checker.verdict import check as judge
    from lib.checker.verdict import refusal

    trace = trace_of(models, "Model.check takes the Models that simulate returned, or one Model")
    verdict = judge(models, puzzle, time=time, memory=memory)
    wrong: PuzzleError | None = None
    model = cast("Any", models[0] if isinstance(models, list | tuple) else models)
    function = getattr(getattr(model, "dist", None), "function", None)  # none of ranks run by hand, and of a saved run
    # Only a run that passes: at other sizes a wrong one would be wrong again, and with a stranger message.
    if puzzle is not None and verdict.passed and function is not None and elsewhere:
        from lib.checker.hidden_sizes import tried_elsewhere
        from lib.puzzles.records import PUZZLES

        verdict, wrong = tried_elsewhere(function, PUZZLES[puzzle], verdict)
    # Before anything is raised: an attempt that failed is part of a student's progress, too.
    tell(verdict, trace)
    if wrong is not None:
        raise wrong
    if not verdict.correct:
        raise refusal(verdict, trace)
    graded.say(verdict.text(), passed=verdict.passed)
    return verdict


attached["check"] = check  # `Model.check`: a run needs none, so the simulator stands below the checker
