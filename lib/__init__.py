"""LLM Training Puzzles: a student writes what each rank does, the simulator turns it into a schedule.

from lib import Model, simulate

async def ddp(model: Model) -> None: ...

models = simulate(ddp, puzzle="ddp")
Model.check(models, puzzle="ddp")
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .check import check
from .costs import LINKS, UNIT, Costs, Links
from .dist import Dist
from .errors import (
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
from .mesh import Mesh
from .model import Model
from .puzzles import PUZZLES, goal
from .retime import retime
from .simulate import Unsolved, simulate
from .trace import Event, Trace
from .values import HIDDEN, LENGTH, Activation, ActivationGrad, OptState, Weight, WeightGrad
from .verdict import Verdict
from .work import Work

if TYPE_CHECKING:
    from .beside import review
    from .hints import hint
    from .predictions import predict
    from .progress import solved

__all__ = [
    "HIDDEN",
    "LENGTH",
    "LINKS",
    "PUZZLES",
    "UNIT",
    "AbsentKey",
    "Activation",
    "ActivationGrad",
    "BudgetError",
    "CheckError",
    "Costs",
    "DeadlockError",
    "Dist",
    "Event",
    "ForgottenAwait",
    "Links",
    "Mesh",
    "MismatchError",
    "Model",
    "NotSolved",
    "OptState",
    "PuzzleError",
    "RankFailed",
    "RuleError",
    "Trace",
    "TraceError",
    "Unsolved",
    "Verdict",
    "Weight",
    "WeightGrad",
    "Work",
    "check",
    "goal",
    "hint",
    "predict",
    "retime",
    "review",
    "simulate",
    "solved",
]

_LATER = {"hint": ".hints", "predict": ".predictions", "review": ".beside", "solved": ".progress"}
"""What only notebooks need is imported when it is first asked for: `import lib` should be quick."""


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATER[name], __name__), name)
    return found
