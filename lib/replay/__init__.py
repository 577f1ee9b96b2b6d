"""Replay: the same schedule on torch.distributed, with real tensors. A Trace is data, so no student's code is run here.

    from lib.replay import replay
    result = replay(simulate(fsdp, puzzle="fsdp"))
    print(result.text())

Needs torch, imported only when something is replayed. A replay that cannot be done raises ReplayError and leaves
nothing behind; one that gives wrong numbers raises nothing: its result says so.
"""
# pyright: reportMissingImports=false, reportUnusedImport=false

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lib.errors.source_lines import notebook

if TYPE_CHECKING:
    from lib.replay.options import ReplayOptions
    from lib.replay.result import ReplayResult
    from lib.simulator.model import Model
    from lib.trace.trace import Trace

__all__ = ["RankDied", "RankRaised", "RankStalled", "ReplayError", "ReplayOptions", "ReplayResult"]
__all__ += ["UnfitTrace", "WrongWorld", "replay"]

_HOME = {"ReplayOptions": "lib.replay.options", "ReplayResult": "lib.replay.result"}
"""Where other public names live. They are imported when first asked for: the `puzzles` command reads our options."""
_ABSENT = (
    "a notebook that brings the puzzles along brings no replay: it is in the folder that it was made in. There "
    "`make setup` installs what it needs, and `make lab` opens the notebooks"
)


class ReplayError(RuntimeError):
    """A replay could not be done. `rank` and `operation` (in words) where one is to blame."""

    def __init__(self, what: str, *, rank: int | None = None, operation: str | None = None) -> None:
        super().__init__(what)
        self.rank = rank
        self.operation = operation


class UnfitTrace(ReplayError):
    """The Trace is not one correct training step, comes from a sandbox, or does not fit real layers and tensors."""


class WrongWorld(ReplayError):
    """The processes or devices do not match the number of ranks in the Trace."""


class RankRaised(ReplayError):
    """An operation failed on a rank."""


class RankDied(ReplayError):
    """A rank's process ended without a report."""


class RankStalled(ReplayError):
    """No rank moved for the whole timeout."""


def replay(schedule: Trace | Sequence[Model], options: ReplayOptions | None = None, **choices: Any) -> ReplayResult:
    """Run a schedule (a Trace, or the Models of a run) with real tensors, and compare it with ordinary training.

    `ReplayOptions` lists the choices: `replay(models, transport="gloo", dtype="float64", steps=5)`. Started by
    torchrun, this process plays its own rank, and every process gets the result. Raises ReplayError where the replay
    could not be done, ImportError where torch is missing; wrong numbers raise nothing, see `ReplayResult.ok`.
    """
    from lib.trace.trace import trace_of

    chosen: ReplayOptions = __getattr__("ReplayOptions")(**choices) if options is None else replace(options, **choices)
    trace = trace_of(schedule, "replay takes a Trace, or the Models that simulate returned")
    need_torch("a replay")
    from lib.replay.rank.run import run  # here and not above: it imports torch

    return run(trace, chosen)


def need_torch(what: str) -> None:
    """Raise ImportError where torch is missing, saying in one line what needs it and what to type here."""
    try:
        import torch
        import torch.distributed
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        typed = subprocess.list2cmdline([sys.executable, "-m", "pip", "install", "torch", "numpy"])
        here = "run `%pip install torch numpy` in a cell" if notebook() is not None else f"run `{typed}`"
        raise ImportError(f"{what} needs torch, which is not installed: {here}, then try again") from None
    if not torch.distributed.is_available():
        raise ImportError("this torch was built without torch.distributed; install an official one")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = globals()[name] = getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if error.name != _HOME[name]:
            raise
        raise ModuleNotFoundError(_ABSENT, name=error.name) from None
    return found
