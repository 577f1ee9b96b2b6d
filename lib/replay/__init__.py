"""Replay: the same schedule on torch.distributed, with real tensors. A Trace is data, so nobody's code is run here.

    from lib.replay import replay
    result = replay(simulate(fsdp, puzzle="fsdp"))
    print(result.text())

Needs torch, which is imported when something is replayed and not before: pip install 'llm-training-puzzles[replay]'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lib.replay.calibration import Calibration, calibrate
from lib.replay.errors import (
    InUse,
    NotEnoughMemory,
    RankDied,
    RankRaised,
    RankStalled,
    ReplayError,
    UnfitTrace,
    WrongWorld,
    need_torch,
)
from lib.replay.options import Hook, ReplayOptions
from lib.replay.result import ReplayResult
from lib.schedules.formats.perfetto import perfetto
from lib.trace.trace import Trace, trace_of

if TYPE_CHECKING:
    from lib.simulator.model import Model

__all__ = [
    "Calibration",
    "InUse",
    "NotEnoughMemory",
    "RankDied",
    "RankRaised",
    "RankStalled",
    "ReplayError",
    "ReplayOptions",
    "ReplayResult",
    "UnfitTrace",
    "WrongWorld",
    "calibrate",
    "perfetto",
    "replay",
]


def replay(
    schedule: Trace | Sequence[Model],
    options: ReplayOptions | None = None,
    *,
    hook: Hook | None = None,
    **choices: Any,
) -> ReplayResult:
    """Runs a schedule (a Trace, or the Models of a run) with real tensors, and compares it with ordinary training.

    What can be chosen is in `ReplayOptions`: `replay(models, transport="gloo", dtype="float64", steps=5)`. Started by
    torchrun, this process plays its own rank, and every process gets the result. Raises ReplayError where the replay
    could not be done; wrong numbers raise nothing, see `ReplayResult.ok`. `hook` is for tests.
    """
    chosen = replace(options, **choices) if options is not None else ReplayOptions(**choices)
    need_torch()
    from lib.replay.run import run  # here and not above: it imports torch

    return run(trace_of(schedule, "replay takes a Trace, or the Models that simulate returned"), chosen, hook)
