"""Starts the ranks as processes of this machine, watches them, and leaves nothing behind whatever happens.

Ranks are forked: 16 are ready in half a second. Each has a pipe, over which its report comes home as JSON, and whose
end says that it is gone; all read one lifeline, whose end says that this process is gone. Where forking is unsafe
(CUDA or torch.distributed are already in use here, or macOS) a fresh Python does all this in our place.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from lib.files import child_environment
from lib.replay import errors
from lib.replay.errors import ReplayError
from lib.replay.layers.layers import Source
from lib.replay.options import Hook, ReplayOptions
from lib.replay.plan.libraries_plan import kept
from lib.replay.plan.plan import Plan
from lib.replay.processes.board import STARTING, Board
from lib.replay.processes.rank import Meeting, be_rank, check_free
from lib.replay.processes.watch import Child, watch
from lib.replay.rank.worker import Report

__all__ = ["fork_is_safe", "fork_ranks", "forked"]


def fork_is_safe() -> bool:
    """Whether this process can be forked, and its children use torch.distributed."""
    return sys.platform == "linux" and not torch.cuda.is_initialized() and not dist.is_initialized()


@contextlib.contextmanager
def forked(
    plan: Plan, options: ReplayOptions, source: Source, hook: Hook | None = None
) -> Iterator[tuple[list[Report], list[Tensor]]]:
    """Runs all ranks as processes: their reports, and what they kept for the truth."""
    folder = Path(tempfile.mkdtemp(prefix="puzzles-replay-"))
    try:
        board = Board(folder / "board", plan, kept(plan, options), source.dtype, create=True)
        if options.start == "fork" or (options.start == "auto" and fork_is_safe()):
            reports = fork_ranks(plan, options, source, board, folder, hook)
        else:
            reports = _in_fresh_python(plan, options, folder, hook)
        yield reports, [board.results(rank) for rank in range(plan.ranks)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fork_ranks(
    plan: Plan, options: ReplayOptions, source: Source, board: Board, folder: Path, hook: Hook | None = None
) -> list[Report]:
    """Forks all ranks and waits for their reports."""
    children: list[Child] = []
    lifeline = os.pipe()
    try:
        for rank in range(plan.ranks):
            board.say(rank, STARTING, -1)
        meeting = _meeting_point(options, folder)
        _fill(plan, source)
        if options.against:
            from lib.replay.layers.libraries import preload

            preload(options.against)
        for rank in range(plan.ranks):
            try:
                child = _fork(rank, plan, options, source, board, meeting, folder, lifeline, hook)
            except OSError as error:
                raise ReplayError(f"rank {rank} of {plan.ranks} cannot be started: {error.strerror}") from None
            children.append(child)

        def everybody_is_ready() -> None:
            # Everything is open by now. Without its folder the replay leaves no trace even if we are killed. (Nccl and
            # the libraries come back to the store in it.)
            if options.transport == "gloo" and not options.against:
                shutil.rmtree(folder, ignore_errors=True)

        return watch(plan, board, children, options.timeout, everybody_is_ready)
    finally:
        for child in children:
            child.end()
        for number in lifeline:
            os.close(number)


def _in_fresh_python(plan: Plan, options: ReplayOptions, folder: Path, hook: Hook | None) -> list[Report]:
    """Lets a fresh Python fork the ranks: see `fresh`. It ends when this process does."""
    if hook is not None:
        raise ValueError("a hook cannot follow into another Python: start='fork'")
    plan.trace.save(folder / "trace.json")
    (folder / "options.json").write_text(json.dumps(options.to_json()), "utf-8")
    environment = child_environment(path or os.getcwd() for path in sys.path)
    command = [sys.executable, "-m", "lib.replay.processes.fresh", str(folder)]
    log = folder / "fresh.log"
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said, env=environment)
    try:
        process.wait()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
    outcome = folder / "outcome.json"
    if not outcome.exists():
        last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
        raise ReplayError(f"the Python that starts the ranks ended with status {process.returncode}: {''.join(last)}")
    found = json.loads(outcome.read_text("utf-8"))
    if "kind" in found:
        kind: type[ReplayError] = getattr(errors, found["kind"])
        raise kind(found["what"], rank=found["rank"], operation=found["operation"])
    return found["reports"]


def _fill(plan: Plan, source: Source) -> None:
    """Makes what the ranks will load, once, in the memory that they will share."""
    for desk in plan.desks:
        for event in desk.program.events:
            if event.op == "load_weights" and event.layer is not None:
                source("weight", event.layer)
                source("state", event.layer)
            elif event.op == "get_activation":
                for batch in event.batches:
                    source("data", batch)
                    source("target", batch)


def _meeting_point(options: ReplayOptions, folder: Path) -> Meeting:
    """Where the ranks will find each other: InUse where the place that was asked for is taken."""
    where = options.rendezvous
    if where is None:
        return Meeting(f"file://{folder / 'store'}", _loopback())
    check_free(where)
    return Meeting(where, None)


def _loopback() -> str | None:
    """The interface that ranks of one machine talk over: no name has to be resolved, and no packet leaves."""
    names = {name for _, name in socket.if_nameindex()}
    return next((name for name in ("lo", "lo0") if name in names), None)


def _fork(
    rank: int,
    plan: Plan,
    options: ReplayOptions,
    source: Source,
    board: Board,
    meeting: Meeting,
    folder: Path,
    lifeline: tuple[int, int],
    hook: Hook | None,
) -> Child:
    home, away = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside torch's threads: see fork_is_safe
        number = os.fork()
    if number:
        os.close(away)
        return Child(rank, number, home)
    code = 70
    try:
        os.close(home)
        os.close(lifeline[1])
        code = be_rank(rank, plan, options, source, board, meeting, folder, lifeline[0], away, hook)
    finally:
        os._exit(code)
