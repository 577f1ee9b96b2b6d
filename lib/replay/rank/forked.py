"""Starts the ranks as processes on this machine, watches them, and leaves nothing behind whatever happens.

Ranks are forked, and share memory with their parent: 16 are ready in half a second. Each has a pipe that brings its
report home, and whose end shows that the rank is gone. A rank whose parent is gone ends too.
Where forking is unsafe (CUDA or torch.distributed is already in use here, or macOS), a fresh Python forks them for us.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import mmap
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch.distributed as dist

from lib.files import child_environment
from lib.replay import RankDied, RankStalled, ReplayError
from lib.replay.plan import describe_event, plan_of, raised
from lib.replay.rank import transport
from lib.replay.rank.interpreter import Job, Report
from lib.replay.rank.run import FINISHED, STARTING, WAITING, device_of, meet, play
from lib.trace.json_format import decode, encode

LEFT = 3.0
"""Timeouts of torch.distributed are this many times as long as ours, so that we are the first to say what happened."""
GRACE = 1.0
"""Seconds that the other ranks have to report, once one rank has failed."""
GOODBYE = 5.0
"""Seconds for a rank to end after it has reported."""


def forked(job: Job) -> list[Report]:
    """Run all ranks as processes and return their reports. ReplayError where they cannot be started, or one fails."""
    if not hasattr(os, "fork"):
        raise ReplayError(f"{sys.platform} cannot fork the ranks: use transport='local', or torchrun")
    device_of(job.options, job.plan.ranks - 1)  # raises WrongWorld while there is still only one process
    return _fork_ranks(job) if fork_is_safe() else _in_fresh_python(job)


def fork_is_safe() -> bool:
    """Tell whether this process can be forked and its children can use torch.distributed. They can use neither a GPU
    nor autograd once CUDA's driver is initialised: where there is a GPU, torch's first backward does that even on the
    CPU, and `torch.cuda.is_initialized` does not say so."""
    if sys.platform != "linux" or dist.is_initialized():
        return False
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True
    not_initialized = 3  # CUDA_ERROR_NOT_INITIALIZED
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == not_initialized


class SharedState:
    """Memory that forked ranks share with their parent, so that even a dead rank has told where it was: its state, the
    number of its event (-1 before the first) and how often it moved."""

    def __init__(self, ranks: int) -> None:
        words = memoryview(mmap.mmap(-1, 3 * 8 * ranks)).cast("q")
        self.states, self.events, self.moves = (words[i * ranks : (i + 1) * ranks] for i in range(3))
        for rank in range(ranks):
            self.say(rank, STARTING, -1)

    def say(self, rank: int, state: int, event: int) -> None:
        """Note the state and the event of a rank."""
        self.states[rank], self.events[rank] = state, event
        self.moves[rank] += 1


class Child(NamedTuple):
    """A forked process, as its parent sees it."""

    rank: int
    process: Any
    pipe: Connection


def _fork_ranks(job: Job) -> list[Report]:
    """Fork all ranks, and return their reports."""
    state, folder = SharedState(job.plan.ranks), Path(tempfile.mkdtemp(prefix="puzzles-replay-"))
    context = cast(Any, multiprocessing.get_context("fork"))
    children: list[Child] = []
    try:
        job.initial.make_all()

        def be(rank: int, away: Connection) -> None:
            code = 70
            try:
                outcome = outcome_of(rank)
                away.send_bytes(pickle.dumps(outcome))  # under torch, `send` would send only the address of tensors
                code = int("error" in outcome)
                with contextlib.suppress(Exception):
                    if not code:
                        dist.destroy_process_group()
            finally:
                os._exit(code)

        def outcome_of(rank: int) -> dict[str, Any]:
            try:
                _cut_ties()
                way = meet(job, rank, rank, f"file://{folder / 'store'}", job.options.timeout * LEFT, True)
                return {"report": play(job, way, partial(state.say, rank))}
            except BaseException as error:
                said = {"error": f"{type(error).__name__}: {error}", "echo": _is_echo(error)}
                return said | {"rank": rank, "event": state.events[rank], "when": time.monotonic()}

        for rank in range(job.plan.ranks):
            home, away = context.Pipe(duplex=False)
            child = Child(rank, context.Process(target=be, args=(rank, away)), home)
            try:
                with away, warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside torch's threads
                    child.process.start()
            except OSError as error:
                home.close()
                raise ReplayError(f"rank {rank} of {job.plan.ranks} cannot be started: {error.strerror}") from None
            children.append(child)

        def all_are_ready() -> None:
            # All files are open by now, so nothing is left even if we are killed. (Nccl and libraries need the store.)
            if job.options.transport == "gloo" and not job.options.against:
                shutil.rmtree(folder, ignore_errors=True)

        return _watch(job, state, children, all_are_ready)
    finally:
        for _, process, pipe in children:  # whatever they were doing
            pipe.close()
            if process.exitcode is None:
                process.kill()
            process.join(GOODBYE)
            with contextlib.suppress(ValueError):  # it is still not gone
                process.close()
        shutil.rmtree(folder, ignore_errors=True)


def _cut_ties() -> None:
    """Let go of the parent's terminal, event loop, signals and garbage. Ranks talk over the loopback alone."""
    signal.set_wakeup_fd(-1)
    for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    gc.freeze()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    sys.stdout = sys.__stdout__ = sys.stderr = sys.__stderr__ = open(1, "w", closefd=False)  # noqa: SIM115 # for life
    for interface in {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}:
        os.environ["GLOO_SOCKET_IFNAME"] = interface

    def follow() -> None:
        cast(Any, multiprocessing.parent_process()).join()  # ranks that were forked later have to end first
        os._exit(75)

    threading.Thread(target=follow, daemon=True).start()


def _is_echo(error: BaseException) -> bool:
    """Tell whether an error comes from torch.distributed, so that another rank may have caused it."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__") == transport.__name__ for frame in frames)


def _watch(job: Job, state: SharedState, children: Sequence[Child], ready: Callable[[], None]) -> list[Report]:
    """Return the reports of all ranks; `ready` is called once all have begun. ReplayError names the one that failed."""
    timeout, left = job.options.timeout, {child.pipe: child for child in children}
    outcomes: dict[int, dict[str, Any]] = {}
    moves, moved = state.moves.tolist(), time.monotonic()
    deadline, told = float("inf"), False
    while left and (now := time.monotonic()) < deadline:
        for pipe in wait(left, min(timeout / 4, 1.0 if told else 0.05, deadline - now)):
            child = left.pop(cast(Connection, pipe))
            with contextlib.suppress(EOFError, OSError):  # it is gone without a report
                outcomes[child.rank] = pickle.loads(child.pipe.recv_bytes())
            if "report" not in outcomes.get(child.rank, {}):
                deadline = min(deadline, time.monotonic() + GRACE)
        if not told and STARTING not in state.states.tolist():
            told = True
            ready()
        if state.moves.tolist() != moves:
            moves, moved = state.moves.tolist(), time.monotonic()
        elif time.monotonic() - moved > timeout:
            raise _stalled(job, state)
    # Blame first a rank that is gone, then one whose own operation failed, and only then one that waited for these.
    if gone := [child for child in children if child.rank not in outcomes and child.pipe not in left]:
        raise _died(job, state, gone[0])
    if failed := [outcome for outcome in outcomes.values() if "error" in outcome]:
        first = min(failed, key=lambda outcome: (outcome["echo"], outcome["when"]))
        raise raised(job.plan, first["rank"], first["event"], first["error"])
    for child in children:
        child.process.join(GOODBYE)
    return [outcomes[child.rank]["report"] for child in children]


def _died(job: Job, state: SharedState, child: Child) -> RankDied:
    operation = describe_event(job.plan, child.rank, state.events[child.rank])
    child.process.join(GOODBYE)
    code = child.process.exitcode or 0  # another thread may have asked for it
    how = f"ended with exit status {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
    if code == -signal.SIGKILL:
        how += ", which is what the system does when memory runs out"
    return RankDied(f"rank {child.rank} {how}, in {operation}", rank=child.rank, operation=operation)


def _stalled(job: Job, state: SharedState) -> RankStalled:
    """Return the error for a standstill. It blames a rank that does not wait for others, if there is one."""
    plan, left = job.plan, [rank for rank in range(job.plan.ranks) if state.states[rank] != FINISHED]
    rank, *others = blamed = [rank for rank in left if state.states[rank] != WAITING] or left or [0]
    operation = describe_event(plan, rank, state.events[rank])
    if state.states[rank] == STARTING:
        operation = "the start, before it had met the others"
    words = f"rank {rank} did not move for {job.options.timeout:g} s, in {operation}"
    words += f"; ranks {', '.join(map(str, others))} neither" if others else ""
    words += "; if it is only slow, allow more time"
    if waiting := [rank for rank in left if rank not in blamed]:
        words += f"; rank {waiting[0]} waited in {describe_event(plan, waiting[0], state.events[waiting[0]])}"
    return RankStalled(words, rank=rank, operation=operation)


# -- a fresh Python, which forks them -----------------------------------------------------------------------------


def _in_fresh_python(job: Job) -> list[Report]:
    """Let a fresh Python fork the ranks. Its answer is pickled: it runs our own code, so it can be trusted."""
    if job.hook is not None:
        raise ValueError("a hook cannot follow into another Python")
    environment = child_environment(path or os.getcwd() for path in sys.path)
    command = [sys.executable, "-c", f"from {__name__} import fork_for_parent; fork_for_parent()"]
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, env=environment)
        try:
            with contextlib.suppress(BrokenPipeError):
                pickle.dump((json.dumps(encode(job.plan.trace)), job.options), cast(Any, process.stdin))
                cast(Any, process.stdin).flush()
            said = cast(Any, process.stdout).read()
        finally:
            process.kill()
            process.communicate()
        log.seek(0)
        last = log.read().decode("utf-8", "replace").strip().splitlines()[-1:]
    if not said:
        raise ReplayError(f"the Python that starts the ranks ended with status {process.returncode}: {''.join(last)}")
    outcome = pickle.loads(said)
    if isinstance(outcome, ReplayError):
        raise outcome
    return outcome


def fork_for_parent() -> None:
    """Fork the ranks for the Python at the other end of standard input and output; end when it does."""
    text, options = pickle.load(sys.stdin.buffer)
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def follow() -> None:
        os.read(0, 1)  # not sys.stdin, whose lock a child that closes it would inherit
        os.kill(os.getpid(), signal.SIGINT)  # so that nothing is left behind

    threading.Thread(target=follow, daemon=True).start()
    try:
        outcome: object = _fork_ranks(Job.of(plan_of(decode(json.loads(text)), options), options))
    except ReplayError as error:
        outcome = error
    with answer:
        pickle.dump(outcome, answer)
