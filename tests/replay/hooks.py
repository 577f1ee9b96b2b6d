"""Replays that a test looks into, or breaks: a hook is called after each event of each rank, with its tensors."""

from typing import Any

from lib.replay import ReplayOptions, ReplayResult
from lib.replay.options import Hook
from lib.trace.trace import Trace

__all__ = ["Hook", "hooked"]


def hooked(schedule: Trace, hook: Hook, **choices: Any) -> ReplayResult:
    """A replay with a hook, which can change what it finds, stall, or end its process."""
    from lib.replay.run import run

    return run(schedule, ReplayOptions(**choices), hook)
