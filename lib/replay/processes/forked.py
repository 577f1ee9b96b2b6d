"""Starts the ranks in processes of this machine, and leaves nothing behind whatever happens.

Processes are forked: 16 are ready in half a second. Each has a pipe, over which its reports come home as JSON and
whose end says that it is gone; all read one lifeline, whose end says that this process is gone. Where forking is unsafe
(CUDA or torch.distributed are already in use here, or macOS) a fresh Python does all this in our place:

    python -m lib.replay.processes.forked FOLDER

The folder holds the Trace, the options and the shared state; the outcome is written there, too. That Python ends when
its standard input does, which is when its parent is gone.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from lib.files import child_environment
from lib.replay import errors
from lib.replay.errors import ReplayError
from lib.replay.options import ReplayOptions
from lib.replay.plan.plan import plan_that_fits
from lib.replay.processes.play import STARTING, RankError, Rendezvous, meet, play, rendezvous_of
from lib.replay.processes.watch import Child, SharedState, watch
from lib.replay.rank.context import Examples, Job, device_of
from lib.replay.rank.interpreter import Report
from lib.trace.trace import Trace

__all__ = ["Launch", "be_process", "fork_ranks", "forked", "main"]


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
        if job.options.start == "fork" or (job.options.start == "auto" and fork_is_safe()):
            reports = fork_ranks(job, state, folder)
        else:
            reports = _in_fresh_python(job, folder)
        yield reports, state.results
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fork_ranks(job: Job, state: SharedState, folder: Path) -> list[Report]:
    """Fork all ranks, and wait for their reports."""
    children: list[Child] = []
    lifeline = os.pipe()
    try:
        launch = Launch(job, state, folder, rendezvous_of(job.options, folder), Examples(folder / "examples"), lifeline)
        job.initial.make_all(job.plan)
        launch.examples.write(job.examples())
        if job.options.against:
            from lib.replay.rank.libraries import preload

            preload(job.options.against)
        if job.options.profile is not None:
            import_module("torch._inductor.config")  # the profiler asks it, and importing it takes a second
        for rank in range(job.plan.ranks):
            state.say(rank, STARTING, -1)
        for process, ranks in enumerate(job.processes):
            try:
                children.append(_fork(launch, process))
            except OSError as error:
                raise ReplayError(f"rank {ranks[0]} of {job.plan.ranks} cannot be started: {error.strerror}") from None

        def everybody_is_ready() -> None:
            # Everything is open by now. Without its folder the replay leaves no trace even if we are killed. (Nccl and
            # the libraries come back to the store in it, readers to the data set.)
            if job.options.transport == "gloo" and not job.options.against and not job.reads:
                shutil.rmtree(folder, ignore_errors=True)

        return watch(job, state, children, everybody_is_ready)
    finally:
        for child in children:
            child.end()
        for number in lifeline:
            os.close(number)


def _in_fresh_python(job: Job, folder: Path) -> list[Report]:
    """Let a fresh Python fork the ranks: see `main`. It ends when this process does."""
    if job.hook is not None:
        raise ValueError("a hook cannot follow into another Python: start='fork'")
    job.plan.trace.save(folder / "trace.json")
    (folder / "options.json").write_text(json.dumps(job.options.to_json()), "utf-8")
    environment = child_environment(path or os.getcwd() for path in sys.path)
    command = [sys.executable, "-m", "lib.replay.processes.forked", str(folder)]
    log = folder / "log"
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


def _fork(launch: Launch, process: int) -> Child:
    home, away = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside torch's threads: see fork_is_safe
        number = os.fork()
    if number:
        os.close(away)
        return Child(launch.job.processes[process], number, home)
    code = 70
    try:
        os.close(home)
        os.close(launch.lifeline[1])
        code = be_process(launch, process, away)
    finally:
        os._exit(code)


@dataclass(frozen=True)
class Launch:
    """All that forked processes share. `folder` is for their logs, and for them to meet in; they read `examples`.

    The write end of `lifeline` is the parent's alone: its read end says when the parent is gone.
    """

    job: Job
    state: SharedState
    folder: Path
    rendezvous: Rendezvous
    examples: Examples
    lifeline: tuple[int, int]


def be_process(launch: Launch, process: int, away: int) -> int:
    """Be a rank, or some, in a forked process. Returns its exit code; the reports or the error go home over `away`."""
    job, state = launch.job, launch.state
    ranks = job.processes[process]
    try:
        _cut_ties(launch.folder / f"process{process}.log", launch.lifeline[0])
        here = meet(job, process, process, launch.rendezvous)
        results = [state.results[rank] for rank in ranks]
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


def main(folder: Path) -> int:
    """Run what the folder holds; exit status 1 for an error that the outcome tells of."""
    options = ReplayOptions.from_json(json.loads((folder / "options.json").read_text("utf-8")))
    try:
        job = Job.of(plan_that_fits(Trace.load(folder / "trace.json"), options), options)
        state = SharedState(folder / "state", job.kept, job.initial.dtype, create=False)
        ranks = folder / "ranks"
        ranks.mkdir()
        outcome: dict[str, object] = {"reports": fork_ranks(job, state, ranks)}
    except ReplayError as error:
        kind = type(error).__name__
        outcome = {"kind": kind, "what": str(error), "rank": error.rank, "operation": error.operation}
    (folder / "outcome.json").write_text(json.dumps(outcome), "utf-8")
    return int("kind" in outcome)


def _until_parent_ends(folder: Path) -> None:
    """The parent closes our standard input when it has what it wants, or when it is gone: then its folder goes too."""
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(75)


if __name__ == "__main__":
    threading.Thread(target=_until_parent_ends, args=[Path(sys.argv[1])], daemon=True).start()
    sys.exit(main(Path(sys.argv[1])))
