"""What a process does that is one rank: cuts its ties to the parent, meets the others, works, and reports home."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import torch
import torch.distributed as dist

from lib.replay.errors import InUse
from lib.replay.layers.layers import Source
from lib.replay.options import Hook, ReplayOptions
from lib.replay.plan.libraries_plan import shares
from lib.replay.plan.plan import Plan
from lib.replay.processes.board import FINISHED, READY, RUNNING, WAITING, Board
from lib.replay.rank.interpreter import Kit
from lib.replay.rank.wire import Meter
from lib.replay.rank.worker import Report, job
from lib.replay.transports import processes
from lib.replay.transports.processes import ProcessTransport
from lib.replay.transports.transport import Handle

__all__ = ["Meeting", "be_rank", "check_free"]

LEFT = 3.0
"""Timeouts of torch.distributed are this much longer than ours, so that it is we who say what happened."""


class Meeting(NamedTuple):
    """Where processes find each other, as torch's init_method, and the network interface for it."""

    address: str
    interface: str | None


def be_rank(
    rank: int,
    plan: Plan,
    options: ReplayOptions,
    source: Source,
    board: Board,
    meeting: Meeting,
    folder: Path,
    lifeline: int,
    away: int,
    hook: Hook | None,
) -> int:
    """The whole life of a forked rank. Returns its exit code; the report or the error goes home over `away`."""
    report: Report = {}
    try:
        _alone(folder / f"rank{rank}.log", lifeline)
        work(rank, plan, options, source, board, meeting, report, hook)
        outcome = report
    except BaseException as error:
        outcome = {
            "error": f"{type(error).__name__}: {error}",
            "echo": is_echo(error),
            "event": board.event(rank),
            "when": time.monotonic(),
        }
    with os.fdopen(away, "w", encoding="utf-8") as home:
        json.dump(outcome, home)
    if "error" in outcome:
        return 1
    with contextlib.suppress(Exception):
        dist.destroy_process_group()
    return 0


def _alone(log: Path, lifeline: int) -> None:
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


def work(
    rank: int,
    plan: Plan,
    options: ReplayOptions,
    source: Source,
    board: Board,
    meeting: Meeting,
    report: Report,
    hook: Hook | None = None,
) -> None:
    """Meets the others, and runs the job."""
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    meter = Meter()
    device = torch.device("cpu")
    if options.on_gpu:
        device = torch.device("cuda", rank % torch.cuda.device_count())  # there are enough: see run.device_of
        torch.cuda.set_device(device)
    if meeting.interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = meeting.interface
    wait = timedelta(seconds=options.timeout * LEFT)
    backend = "nccl" if options.transport == "nccl" else "gloo"
    dist.init_process_group(
        backend,
        init_method=meeting.address,
        rank=rank,
        world_size=plan.ranks,
        timeout=wait,
        device_id=device if backend == "nccl" else None,
    )
    transport = ProcessTransport(rank, plan, device, options.timeout * LEFT, shared_clock=True)
    board.say(rank, READY, -1)
    owned, _ = shares(plan, options.against, rank)
    kit = Kit(rank, plan, options, source, transport, device, board.results(rank), owned, hook)
    kit.at = lambda index: board.say(rank, RUNNING, index)
    follow(rank, job(kit, report, meter), board)
    board.say(rank, FINISHED, board.event(rank))


def keep_freed_memory() -> None:
    """Lets the C library keep what tensors free, as torch does on a GPU: giving it back and forth costs 5 % of a step.

    For a process that is nothing but a rank. (glibc; elsewhere nothing happens.)
    """
    trim_threshold, mmap_threshold, largest = -1, -3, 32 * 2**20
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, largest)
        library.mallopt(trim_threshold, 2**31 - 1)


def follow(rank: int, steps: Iterator[Handle], board: Board) -> None:
    """Runs a job, waiting for what it has to wait for."""
    for handle in steps:
        board.say(rank, WAITING, board.event(rank))
        handle.wait()
        board.say(rank, RUNNING, board.event(rank))


def is_echo(error: BaseException) -> bool:
    """Whether an error comes from torch.distributed: then it is often the echo of what happened on another rank."""
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_globals.get("__name__") == processes.__name__:
            return True
        at = at.tb_next
    return False


def check_free(where: str) -> None:
    """InUse where a port or file to meet at belongs to somebody else."""
    parts = urlsplit(where)
    if parts.scheme == "file":
        if os.path.exists(parts.path):
            raise InUse(f"the file {parts.path} is there already: a rendezvous needs a fresh one")
        return
    host, port = parts.hostname or "localhost", parts.port or 0
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise InUse(f"the ranks cannot meet at {host}:{port}: {error.strerror}") from None
            raise InUse(f"port {port} of {host} is in use: name another, or none to need no port") from None
