"""Starts the ranks in processes of this machine, watches them, and leaves nothing behind whatever happens.

Processes are forked: 16 are ready in half a second. Each has a pipe, over which its reports come home as JSON and
whose end says that it is gone; all read one lifeline, whose end says that this process is gone. Where forking is unsafe
(CUDA or torch.distributed are already in use here, or macOS) a fresh Python does all this in our place:

    python -m lib.replay.rank.forked FOLDER

The folder holds the Trace, the options and the shared state; the outcome is written there, too. That Python ends when
its standard input does, which is when its parent is gone.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import mmap
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

import lib.replay
from lib.files import child_environment
from lib.replay import NotEnoughMemory, RankDied, RankStalled, ReplayError
from lib.replay.options import ReplayOptions
from lib.replay.plan import describe_event, plan_of, raised
from lib.replay.rank.context import Job, device_of
from lib.replay.rank.interpreter import Report
from lib.replay.rank.play import FINISHED, LEFT, STARTING, WAITING, Rendezvous, is_echo, loopback, meet, play
from lib.trace.trace import Trace

GRACE = 1.0
"""Seconds that others have to say what they saw, once one rank has failed."""
GOODBYE = 5.0
"""Seconds for a rank to end after it has reported."""


def fork_is_safe() -> bool:
    """Tell whether this process can be forked, and its children use torch.distributed."""
    return sys.platform == "linux" and not _driver_is_in_use() and not dist.is_initialized()


def _driver_is_in_use() -> bool:
    """Tell whether this process has initialised CUDA's driver, whose children can use no GPU, and no autograd either.

    Where there is a GPU, torch's first backward initialises it, on the CPU too, and `torch.cuda.is_initialized` does
    not say so.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    not_initialized = 3  # CUDA_ERROR_NOT_INITIALIZED
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != not_initialized


@contextlib.contextmanager
def forked(job: Job) -> Iterator[tuple[list[Report], Sequence[Tensor]]]:
    """Run all ranks as processes: gives their reports, and what they kept to be compared."""
    if not hasattr(os, "fork"):
        raise ReplayError(f"{sys.platform} cannot fork the ranks: use transport='local', or torchrun")
    device_of(job.options, job.plan.ranks - 1)  # WrongWorld while it is still one process that says so
    folder = Path(tempfile.mkdtemp(prefix="puzzles-replay-"))
    try:
        state = SharedState(folder / "state", job.kept, job.initial.dtype, create=True)
        yield (_fork_ranks(job, state, folder) if fork_is_safe() else _in_fresh_python(job, folder)), state.results
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class SharedState:
    """One file, mapped by the forked ranks and their parent: how far each rank is, and the tensors to be compared.

    So a rank that dies has still said where it was, nothing is pickled, and results cost one copy. Of each rank there
    are its state (see play), the number of its event (-1 before the first) and how often it moved; `results[rank]` is
    room for `counts[rank]` numbers.
    """

    def __init__(self, path: Path, counts: Sequence[int], dtype: torch.dtype, create: bool) -> None:
        ranks, head = len(counts), len(counts) * 3 * 8
        size = head + sum(counts) * dtype.itemsize
        handle = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        try:
            if create:
                _reserve(handle, size, path)
            room = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        words = memoryview(room)[:head].cast("q")
        self.states, self.events, self.moves = (words[i * ranks : (i + 1) * ranks] for i in range(3))
        kept = torch.frombuffer(room, dtype=dtype, offset=head) if sum(counts) else torch.empty(0, dtype=dtype)
        self.results: Sequence[Tensor] = kept.split(list(counts))

    def say(self, rank: int, state: int, event: int) -> None:
        """Note what a rank does."""
        self.states[rank], self.events[rank] = state, event
        self.moves[rank] += 1


def _reserve(handle: int, size: int, path: Path) -> None:
    """Take the room on the disk now: a full disk would otherwise kill a rank in the middle."""
    try:
        getattr(os, "posix_fallocate", lambda handle, _, size: os.ftruncate(handle, size))(handle, 0, size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise NotEnoughMemory(f"{path.parent} has no room for the {size:,} bytes that are compared") from None
        os.ftruncate(handle, size)  # a file system that cannot reserve


# -- a fresh Python -----------------------------------------------------------------------------------------------


def _in_fresh_python(job: Job, folder: Path) -> list[Report]:
    """Let a fresh Python fork the ranks: see `main`. It ends when this process does."""
    if job.hook is not None:
        raise ValueError("a hook cannot follow into another Python")
    job.plan.trace.save(folder / "trace.json")
    (folder / "options.json").write_text(json.dumps(job.options.to_json()), "utf-8")
    environment = child_environment(path or os.getcwd() for path in sys.path)
    command, log = [sys.executable, "-m", "lib.replay.rank.forked", str(folder)], folder / "log"
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
        kind: type[ReplayError] = getattr(lib.replay, found["kind"])
        raise kind(found["what"], rank=found["rank"], operation=found["operation"])
    return found["reports"]


def main(folder: Path) -> int:
    """Run what the folder holds; exit status 1 for an error that the outcome tells of."""
    options = ReplayOptions.from_json(json.loads((folder / "options.json").read_text("utf-8")))
    try:
        job = Job.of(plan_of(Trace.load(folder / "trace.json"), options), options)
        state = SharedState(folder / "state", job.kept, job.initial.dtype, create=False)
        ranks = folder / "ranks"
        ranks.mkdir()
        outcome: dict[str, object] = {"reports": _fork_ranks(job, state, ranks)}
    except ReplayError as error:
        kind = type(error).__name__
        outcome = {"kind": kind, "what": str(error), "rank": error.rank, "operation": error.operation}
    (folder / "outcome.json").write_text(json.dumps(outcome), "utf-8")
    return int("kind" in outcome)


def _until_parent_ends(folder: Path) -> None:
    """Wait until our standard input ends: the parent has what it wants, or is gone. Then its folder goes too."""
    os.read(0, 1)  # not by sys.stdin, whose lock a child would inherit that closes it
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(75)


# -- the processes ------------------------------------------------------------------------------------------------


@dataclass
class Child:
    """A forked process, as its parent sees it. `outcome` is what it reported, if it could."""

    rank: int
    process: Any
    pipe: Connection
    outcome: dict[str, Any] | None = None

    def end(self) -> None:
        """Make sure that it is gone, whatever it was doing."""
        self.pipe.close()
        if self.process.exitcode is None:
            self.process.kill()
        self.process.join(GOODBYE)
        with contextlib.suppress(ValueError):  # not even now
            self.process.close()


def _fork_ranks(job: Job, state: SharedState, folder: Path) -> list[Report]:
    """Fork all ranks, and wait for their reports. `folder` is for their logs and data, and for them to meet in."""
    children: list[Child] = []
    context, lifeline = cast(Any, multiprocessing.get_context("fork")), os.pipe()
    try:
        rendezvous = Rendezvous(f"file://{folder / 'store'}", job.options.timeout * LEFT, loopback())
        examples = folder / "examples"
        job.initial.make_all(job.plan)
        job.write_examples(examples)
        if job.options.against:
            from lib.replay.rank.libraries import preload

            preload(job.options.against)
        for rank in range(job.plan.ranks):
            state.say(rank, STARTING, -1)

        def be(rank: int, home: Connection, away: Connection) -> None:
            code = 70
            try:
                home.close()
                os.close(lifeline[1])
                outcome = outcome_of(rank)
                away.send_bytes(json.dumps(outcome).encode())
                code = int("error" in outcome)
                if not code:
                    with contextlib.suppress(Exception):
                        dist.destroy_process_group()
            finally:
                os._exit(code)

        def outcome_of(rank: int) -> dict[str, Any]:
            try:
                _cut_ties(folder / f"rank{rank}.log", lifeline[0])
                here = meet(job, rank, rank, rendezvous)
                return {"report": play(job, here, examples, state.results[rank], partial(state.say, rank))}
            except BaseException as error:
                said = {"error": f"{type(error).__name__}: {error}", "echo": is_echo(error)}
                return said | {"rank": rank, "event": state.events[rank], "when": time.monotonic()}

        for rank in range(job.plan.ranks):
            home, away = context.Pipe(duplex=False)
            child = Child(rank, context.Process(target=be, args=(rank, home, away)), home)
            try:
                with away, warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside torch's threads
                    child.process.start()
            except OSError as error:
                home.close()
                raise ReplayError(f"rank {rank} of {job.plan.ranks} cannot be started: {error.strerror}") from None
            children.append(child)

        def all_are_ready() -> None:
            # Everything is open by now. Without its folder the replay leaves no trace even if we are killed. (Nccl and
            # the libraries come back to the store in it, readers to the data set.)
            if job.options.transport == "gloo" and not job.options.against and not job.reads:
                shutil.rmtree(folder, ignore_errors=True)

        return _watch(job, state, children, all_are_ready)
    finally:
        for child in children:
            child.end()
        for number in lifeline:
            os.close(number)


def _cut_ties(log: Path, lifeline: int) -> None:
    """Touch nothing of the parent's any more: its terminal, its event loop, its signals, its garbage."""
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


# -- watching them ------------------------------------------------------------------------------------------------


def _watch(job: Job, state: SharedState, children: Sequence[Child], ready: Callable[[], None]) -> list[Report]:
    """Return the reports of all ranks; `ready` is called once all have begun. ReplayError: who failed, and in what."""
    timeout, left = job.options.timeout, {child.pipe: child for child in children}
    moves, moved = state.moves.tolist(), time.monotonic()
    deadline, told = float("inf"), False
    while left and (now := time.monotonic()) < deadline:
        for pipe in wait(left, min(timeout / 4, 1.0 if told else 0.05, deadline - now)):
            child = left.pop(cast(Connection, pipe))
            with contextlib.suppress(EOFError, OSError):  # it is gone without a word
                child.outcome = json.loads(child.pipe.recv_bytes())
            if "report" not in (child.outcome or {}):
                deadline = min(deadline, time.monotonic() + GRACE)
        if not told and STARTING not in state.states.tolist():
            told = True
            ready()
        if state.moves.tolist() != moves:
            moves, moved = state.moves.tolist(), time.monotonic()
        elif time.monotonic() - moved > timeout:
            raise _stalled(job, state)
    # To blame is one that is gone, or one whose own operation failed, and only then one that waited for them.
    if gone := [child for child in children if child.outcome is None and child.pipe not in left]:
        raise _died(job, state, gone[0])
    outcomes = [child.outcome for child in children if child.outcome is not None]
    if failed := [outcome for outcome in outcomes if "error" in outcome]:
        first = min(failed, key=lambda outcome: (outcome["echo"], outcome["when"]))
        raise raised(job.plan, first["rank"], first["event"], first["error"])
    for child in children:
        child.process.join(GOODBYE)
    return [outcome["report"] for outcome in outcomes]


def _died(job: Job, state: SharedState, child: Child) -> RankDied:
    operation = describe_event(job.plan, child.rank, state.events[child.rank])
    child.process.join(GOODBYE)
    code = child.process.exitcode or 0  # another thread may have asked for it
    how = f"ended with exit status {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
    if code == -signal.SIGKILL:
        how += ", which is what the system does when memory runs out"
    return RankDied(f"rank {child.rank} {how}, in {operation}", rank=child.rank, operation=operation)


def _stalled(job: Job, state: SharedState) -> RankStalled:
    """Return the error for no rank moving for the whole timeout: to blame is one that does not wait for others, if
    any."""
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


if __name__ == "__main__":
    threading.Thread(target=_until_parent_ends, args=[Path(sys.argv[1])], daemon=True).start()
    sys.exit(main(Path(sys.argv[1])))
