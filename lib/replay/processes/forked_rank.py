"""What a forked process does that is one rank: cuts its ties to the parent, plays its rank, and reports home."""
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
from functools import partial
from pathlib import Path

import torch.distributed as dist

from lib.replay.processes.play import is_echo, meet, play
from lib.replay.processes.rendezvous import Rendezvous
from lib.replay.processes.shared_state import SharedState
from lib.replay.rank.context import Job

__all__ = ["Launch", "be_rank"]


@dataclass(frozen=True)
class Launch:
    """What the ranks that one process forks have in common. `folder` is for their logs, and for them to meet in.

    The write end of `lifeline` is the parent's alone: its read end says when the parent is gone.
    """

    job: Job
    state: SharedState
    folder: Path
    rendezvous: Rendezvous
    lifeline: tuple[int, int]


def be_rank(launch: Launch, rank: int, away: int) -> int:
    """The whole life of a forked rank. Returns its exit code; the report or the error goes home over `away`."""
    state = launch.state
    try:
        _cut_ties(launch.folder / f"rank{rank}.log", launch.lifeline[0])
        transport = meet(launch.job, rank, rank, launch.rendezvous)
        outcome = play(launch.job, transport, state.results(rank), partial(state.say, rank))
    except BaseException as error:
        outcome = {
            "error": f"{type(error).__name__}: {error}",
            "echo": is_echo(error),
            "event": state.event(rank),
            "when": time.monotonic(),
        }
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
