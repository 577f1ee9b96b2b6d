"""LLM Training Puzzles: a student writes what each rank does, the simulator turns it into a schedule.

from lib import Model, simulate

async def ddp(model: Model) -> None: ...

models = simulate(ddp, puzzle="ddp")
Model.check(models, puzzle="ddp")
"""

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
    "retime",
    "simulate",
]
