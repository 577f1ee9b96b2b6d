"""Replays that a test looks into, or breaks: a hook is called after each event of each rank, with its tensors."""

import sys
from typing import Any

import pytest

from lib.replay import ReplayOptions, ReplayResult
from lib.replay.options import Hook
from lib.trace.trace import Trace

__all__ = ["Hook", "hooked", "skip_unless_forked"]


def hooked(schedule: Trace, hook: Hook, **choices: Any) -> ReplayResult:
    """A replay with a hook, which can change what it finds, stall, or end its process."""
    from lib.replay.rank.run import run

    try:
        return run(schedule, ReplayOptions(**choices), hook)
    except ValueError as error:
        skip_unless_forked(error)
        raise


def skip_unless_forked(error: Exception | None = None) -> None:
    """Skip a test that looks into forked ranks where a replay does not fork: on macOS, and once torch has looked for
    the GPUs of this machine. Anywhere else it goes on."""
    import torch

    from lib.replay.rank.forked import fork_is_safe

    meant = error is None or "a hook cannot follow" in str(error)
    if meant and not fork_is_safe() and (sys.platform != "linux" or torch.cuda.is_available()):
        pytest.skip("the ranks of a replay are not forked here, so a test cannot look into them")
