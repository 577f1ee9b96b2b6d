"""What a forked process does that is a rank, or some: cuts its ties to the parent, plays its ranks, reports home."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from lib.replay.examples import Examples
from lib.replay.processes.play import RankError, meet, play
from lib.replay.processes.rendezvous import Rendezvous
from lib.replay.processes.shared_state import SharedState
from lib.replay.rank.context import Job

__all__ = ["Launch", "be_process"]


@dataclass(frozen=True)
class Launch:
    """What the processes that are forked have in common. `folder` is for their logs, for them to meet in, and for the
    data set that they read.

    The write end of `lifeline` is the parent's alone: its read end says when the parent is gone.
    """

    job: Job
    state: SharedState
    folder: Path
    rendezvous: Rendezvous
    lifeline: tuple[int, int]

    @property
    def examples(self) -> Examples:
        """The data set."""
        return Examples(self.folder / "examples")


def be_process(launch: Launch, process: int, away: int) -> int:
    """The whole life of a forked process. Returns its exit code; the reports or the error go home over `away`."""
    job, state = launch.job, launch.state
    ranks = job.processes[process]
    try:
        _cut_ties(launch.folder / f"process{process}.log", launch.lifeline[0])
        here = meet(job, process, process, launch.rendezvous)
        results = [state.results(rank) for rank in ranks]
        outcome: dict[str, Any] = {"reports": play(job, here, launch.examples, results, state.say)}
    except BaseException as error:
        failed = error if isinstance(error, RankError) else RankError(ranks[0], error)
        event, when = state.event(failed.rank), time.monotonic()
        outcome = {"error": str(failed), "rank": failed.rank, "echo": failed.echo, "event": event, "when": when}
    with os.fdopen(away, "w", encoding="utf-8") as home:
        json.dump(outcome, home)
    if "error" in outcome:
        return 1
    with contextlib.suppress(Exception):
        dist.destroy_process_group()
    return 0


def _cut_ties(log: Path, lifeline: int) -> None:
    """Nothing of the parent's is touched any more: its terminal, its event loop, its signals, its garbage."""
    signal.set_wakeup_fd(-1)
    for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    gc.freeze()
    number = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(number, 1)
    os.dup2(number, 2)
    os.close(number)
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115 # it lives as long as the process
    sys.stderr = sys.__stderr__ = open(2, "w", closefd=False)  # noqa: SIM115

    def follow() -> None:
        os.read(lifeline, 1)  # returns only when the parent is gone
        os._exit(75)

    threading.Thread(target=follow, daemon=True).start()
