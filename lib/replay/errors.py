"""What can go wrong with a replay, and how it says which rank and which operation it was.

    RuntimeError
    └── ReplayError          a replay could not be done; nothing of it is left behind
        ├── UnfitTrace       the Trace is not one correct training step, so there is nothing to compare with
        ├── WrongWorld       there are not as many processes or devices as the Trace has ranks
        ├── NotEnoughMemory  it would not fit; found out before anything was started
        ├── InUse            a port or a file that the ranks were to meet at is taken
        ├── RankRaised       an operation failed on a rank
        ├── RankDied         the process of a rank is gone
        └── RankStalled      a rank has not moved for the whole timeout

A replay that ran and gave wrong numbers raises nothing: its result says so (`ReplayResult.ok`, `.faults`).
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import os
import shlex
import subprocess
import sys

from lib.errors.source_lines import notebook

__all__ = ["InUse", "NotEnoughMemory", "RankDied", "RankRaised"]
__all__ += ["RankStalled", "ReplayError", "UnfitTrace", "WrongWorld", "need_torch"]


class ReplayError(RuntimeError):
    """A replay could not be done. `rank` and `operation` (in words) where one is to blame."""

    def __init__(self, what: str, *, rank: int | None = None, operation: str | None = None) -> None:
        super().__init__(what)
        self.rank = rank
        self.operation = operation


class UnfitTrace(ReplayError):
    """The Trace is not one correct training step, is that of a sandbox, or has nothing to run."""


class WrongWorld(ReplayError):
    """There are not as many processes, or devices, as the Trace has ranks."""


class NotEnoughMemory(ReplayError):
    """The replay would need more memory than there is."""


class InUse(ReplayError):
    """The port or file where the ranks were to meet belongs to somebody else."""


class RankRaised(ReplayError):
    """An operation failed on a rank."""


class RankDied(ReplayError):
    """The process of a rank ended without a word."""


class RankStalled(ReplayError):
    """A rank did not move for the whole timeout."""


def need_torch() -> None:
    """Raise ImportError where torch is missing, which says in one line what to type: here, where this runs."""
    try:
        import torch
        import torch.distributed
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        pip = [sys.executable, "-m", "pip", "install", "torch", "numpy"]  # torch warns where there is no numpy
        typed = subprocess.list2cmdline(pip) if os.name == "nt" else shlex.join(pip)
        here = "run `%pip install torch numpy` in a cell" if notebook() is not None else f"run `{typed}`"
        raise ImportError(f"a replay needs torch, which is not installed: {here}, then try again") from None
    if not torch.distributed.is_available():
        raise ImportError("this torch was built without torch.distributed; install an official one")
