"""LLM Training Puzzles: a student writes what each rank does, the simulator turns it into a schedule.

from lib import Model, simulate

async def ddp(model: Model) -> None: ...

models = simulate(ddp, puzzle="ddp")
Model.check(models, puzzle="ddp")
"""

from importlib import import_module
from os import environ as _environ
from typing import TYPE_CHECKING

from lib import checker as _checker

if TYPE_CHECKING:
    from lib.analysis.waiting.critical_path import critical_path
    from lib.analysis.waiting.what_if import what_if
    from lib.analysis.waiting.why import why
    from lib.checker.verdict import FunctionVerdict, Verdict, check
    from lib.cluster.costs import LINKS, UNIT, Costs, Links, Uneven
    from lib.cluster.mesh import Mesh
    from lib.errors.exceptions import (
        AbsentKey,
        BudgetError,
        CheckError,
        DeadlockError,
        ForgottenAwait,
        MismatchError,
        NotSolved,
        PuzzleError,
        RankFailed,
        RuleError,
        TraceError,
    )
    from lib.errors.fixes import fix
    from lib.puzzles.records import PUZZLES, goal
    from lib.schedules.written import schedule, stages
    from lib.simulator.dist import Dist
    from lib.simulator.model import Model
    from lib.simulator.recorder import Work
    from lib.simulator.simulator import Unsolved, simulate
    from lib.suite.course.exercises import expect, hint, predict
    from lib.suite.course.progress import solved
    from lib.suite.course.review import review
    from lib.suite.course.solutions import reveal
    from lib.suite.submissions.function_check import check_function
    from lib.trace.retiming import retime
    from lib.trace.trace import Event, Trace
    from lib.values.kinds.experts import route_by_loads
    from lib.values.layers import Layer
    from lib.values.values import HIDDEN, LENGTH, Activation, ActivationGrad, OptState, Weight, WeightGrad

__all__ = [
    "HIDDEN", "LENGTH", "LINKS", "PUZZLES", "UNIT", "AbsentKey", "Activation", "ActivationGrad", "BudgetError",
    "CheckError", "Costs", "DeadlockError", "Dist", "Event", "ForgottenAwait", "FunctionVerdict", "Layer", "Links",
    "Mesh", "MismatchError", "Model", "NotSolved", "OptState", "PuzzleError", "RankFailed", "RuleError", "Trace",
    "TraceError", "Uneven", "Unsolved", "Verdict", "Weight", "WeightGrad", "Work", "check", "check_function",
    "critical_path", "expect", "fix", "goal", "hint", "predict", "retime", "reveal", "review",
    "route_by_loads", "schedule", "simulate", "solved", "stages", "what_if", "why",
]  # fmt: skip

_HOMES = {
    "lib.analysis.waiting.critical_path": "critical_path",
    "lib.analysis.waiting.what_if": "what_if",
    "lib.analysis.waiting.why": "why",
    "lib.checker.verdict": "FunctionVerdict Verdict check",
    "lib.cluster.costs": "LINKS UNIT Costs Links Uneven",
    "lib.cluster.mesh": "Mesh",
    "lib.suite.course.exercises": "expect hint predict",
    "lib.suite.course.progress": "solved",
    "lib.suite.course.review": "review",
    "lib.suite.course.solutions": "reveal",
    "lib.errors.exceptions": "AbsentKey BudgetError CheckError DeadlockError ForgottenAwait MismatchError NotSolved "
    "PuzzleError RankFailed RuleError TraceError",
    "lib.errors.fixes": "fix",
    "lib.puzzles.records": "PUZZLES goal",
    "lib.schedules.written": "schedule stages",
    "lib.simulator.dist": "Dist",
    "lib.simulator.model": "Model",
    "lib.simulator.recorder": "Work",
    "lib.simulator.simulator": "Unsolved simulate",
    "lib.suite.submissions.function_check": "check_function",
    "lib.trace.retiming": "retime",
    "lib.trace.trace": "Event Trace",
    "lib.values.kinds.experts": "route_by_loads",
    "lib.values.layers": "Layer",
    "lib.values.values": "HIDDEN LENGTH Activation ActivationGrad OptState Weight WeightGrad",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
"""Where each public name lives. It is imported when it is first asked for: `import lib` should be quick, and who
simulates needs nothing of what checks, reviews and gives hints."""


def _record(verdict: "Verdict | FunctionVerdict", trace: "Trace | None") -> None:
    """Adds a check of a puzzle's run to what the student has reached."""
    if verdict.puzzle is not None:
        import_module("lib.suite.course.progress").checked(verdict, trace)


_checker.listen(_record)
if _environ.get("PUZZLES_GRADING"):  # see `lib.errors.graded`, which nobody else need load
    from lib.errors.graded import watch as _watch

    _watch()


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
