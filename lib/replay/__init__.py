"""Replay: the same schedule on torch.distributed, with real tensors. A Trace is data, so nobody's code is run here.

    from lib.replay import replay
    result = replay(simulate(fsdp, puzzle="fsdp"))
    print(result.text())

Needs torch, which is imported when something is replayed and not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.replay.errors import (
        InUse,
        NotEnoughMemory,
        RankDied,
        RankRaised,
        RankStalled,
        ReplayError,
        UnfitTrace,
        WrongWorld,
    )
    from lib.replay.options import ReplayOptions
    from lib.replay.result import Calibration, ReplayResult, calibrate
    from lib.schedules.formats.perfetto import perfetto
    from lib.simulator.model import Model
    from lib.trace.trace import Trace

__all__ = ["Calibration", "InUse", "NotEnoughMemory", "RankDied"]
__all__ += ["RankRaised", "RankStalled", "ReplayError", "ReplayOptions", "ReplayResult", "UnfitTrace"]
__all__ += ["WrongWorld", "calibrate", "perfetto", "replay"]

_HOMES = {
    "lib.replay.errors": "InUse NotEnoughMemory RankDied RankRaised RankStalled ReplayError UnfitTrace WrongWorld",
    "lib.replay.options": "ReplayOptions",
    "lib.replay.result": "Calibration ReplayResult calibrate",
    "lib.schedules.formats.perfetto": "perfetto",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
"""Where each public name lives. It is imported when it is first asked for: the `puzzles` command reads our options."""
_ABSENT = (
    "a notebook that brings the puzzles along brings no replay: it is in the folder that it was made in. There "
    "`make setup` installs what it needs, and `make lab` opens the notebooks"
)


def replay(schedule: Trace | Sequence[Model], options: ReplayOptions | None = None, **choices: Any) -> ReplayResult:
    """Run a schedule (a Trace, or the Models of a run) with real tensors, and compare it with ordinary training.

    What can be chosen is in `ReplayOptions`: `replay(models, transport="gloo", dtype="float64", steps=5)`. Started by
    torchrun, this process plays its own ranks, and every process gets the result. Raises ReplayError where the replay
    could not be done; wrong numbers raise nothing, see `ReplayResult.ok`.
    """
    from lib.replay.errors import need_torch
    from lib.trace.trace import trace_of

    chosen: ReplayOptions
    chosen = replace(options, **choices) if options is not None else _from_home("ReplayOptions")(**choices)
    trace = trace_of(schedule, "replay takes a Trace, or the Models that simulate returned")
    need_torch()
    from lib.replay.run import run  # here and not above: it imports torch

    return run(trace, chosen)


def __getattr__(name: str) -> Any:
    """Return a public name, from the module where it lives."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = _from_home(name)
    return found


def _from_home(name: str) -> Any:
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if error.name != _HOME[name]:
            raise
        raise ModuleNotFoundError(_ABSENT, name=error.name) from None
