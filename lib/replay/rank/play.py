"""Plays the ranks of one process: meets the other processes, does the ranks' steps, and says how far each is.

Forked processes and those of torchrun are played alike. What differs is where they meet, whom they tell how far they
are, and how their reports come home. Several ranks in a process are threads, which wait for each other as processes do.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous as rendezvous_at

from lib.replay import InUse
from lib.replay.options import ReplayOptions
from lib.replay.rank import transport
from lib.replay.rank.context import Job, RankContext, Reader, device_of
from lib.replay.rank.interpreter import Report, steps
from lib.replay.rank.transport import ProcessTransport, SocketCounters, ThreadGroups, TorchGroups

STARTING, READY, RUNNING, WAITING, FINISHED = range(5)
"""What a rank does. Who is waiting waits for other ranks."""
Progress = Callable[[int, int, int], None]
"""Is told the rank, what it does and the number of its event (-1 before the first), whenever it has moved."""
LEFT = 3.0
"""Timeouts of torch.distributed are this much longer than ours, so that it is we who say what happened."""


class Rendezvous(NamedTuple):
    """The place where processes meet, as torch's init_method; the network interface for it; how many seconds torch
    waits there and for every communication; whether all are on one machine; how many replays have met there before."""

    address: str
    timeout: float
    interface: str | None = None
    one_machine: bool = True
    before: int = 0


def rendezvous_of(options: ReplayOptions, folder: Path) -> Rendezvous:
    """Name the place where ranks of this machine meet: a fresh file, or what was asked for. InUse if it is taken."""
    where, timeout = options.rendezvous, options.timeout * LEFT
    if where is None:
        return Rendezvous(f"file://{folder / 'store'}", timeout, loopback())
    parts = urlsplit(where)
    host, port = parts.hostname or "localhost", parts.port or 0
    if parts.scheme == "file":
        if os.path.exists(parts.path):
            raise InUse(f"the file {parts.path} is there already: a rendezvous needs a fresh one")
        return Rendezvous(where, timeout)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise InUse(f"the ranks cannot meet at {host}:{port}: {error.strerror}") from None
            raise InUse(f"port {port} of {host} is in use: name another, or none to need no port") from None
    return Rendezvous(where, timeout)


def loopback() -> str | None:
    """Name the interface that ranks of one machine talk over: no name has to be resolved, and no packet leaves."""
    names = {name for _, name in socket.if_nameindex()}
    return next((name for name in ("lo", "lo0") if name in names), None)


class RankError(Exception):
    """An error of a rank of this process; `echo`: it comes from torch.distributed, so it may be that of another one."""

    def __init__(self, rank: int, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.rank, self.echo = rank, False
        at = error.__traceback__
        while at is not None:
            self.echo |= at.tb_frame.f_globals.get("__name__") == transport.__name__
            at = at.tb_next


class Here(NamedTuple):
    """This process, once it has met the others: its ranks, and the device of each. `store` is what all can write to."""

    ranks: Sequence[int]
    devices: Sequence[torch.device]
    rendezvous: Rendezvous
    store: Any
    sockets: SocketCounters


def meet(job: Job, process: int, local_process: int, rendezvous: Rendezvous) -> Here:
    """Meet the other processes. From then on this one is nothing but its ranks: it is the `local_process`th of its
    machine."""
    torch.set_num_threads(job.options.threads)
    _keep_freed_memory()
    sockets, ranks = SocketCounters(), job.processes[process]
    before = sum(map(len, job.processes[process - local_process : process]))
    devices = [device_of(job.options, before + place) for place in range(len(ranks))]
    _use(devices[0])
    store = join(rendezvous, process, len(job.processes), devices[0] if job.options.transport == "nccl" else None)
    return Here(ranks, devices, rendezvous, store, sockets)


def join(rendezvous: Rendezvous, process: int, processes: int, gpu: torch.device | None = None) -> Any:
    """Make this process one of torch.distributed's, on gloo, or on nccl with a GPU of its own. Gives the store where
    all have met."""
    timeout = timedelta(seconds=rendezvous.timeout)
    if rendezvous.interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = rendezvous.interface
    place = _place(rendezvous.address, process, processes, timeout)
    store = PrefixStore(f"puzzles-replay/{rendezvous.before}", place)
    backend = "gloo" if gpu is None else "nccl"
    dist.init_process_group(backend, store=store, rank=process, world_size=processes, timeout=timeout, device_id=gpu)
    return store


@cache
def _place(address: str, process: int, processes: int, timeout: timedelta) -> Any:
    """Open the store where processes meet, and to which all can write. Replays one after the other meet in the same."""
    store, _, _ = next(rendezvous_at(address, process, processes, timeout=timeout))
    return store


def play(job: Job, here: Here, examples: Path, results: Sequence[Tensor], progress: Progress) -> list[Report]:
    """Do all that the ranks of this process have to do. What they read is in `examples`; what is compared with
    ordinary training is written to `results`, for each rank. RankError for the first that fails, without a word to the
    others."""
    reader, outcomes = Reader(examples), SimpleQueue[tuple[int, Report | RankError]]()
    alone = len(job.processes) == job.plan.ranks

    def be(place: int) -> Report:
        rank, device, report, timeout = here.ranks[place], here.devices[place], Report(), here.rendezvous.timeout
        try:
            groups = TorchGroups(timeout) if alone else ThreadGroups(rank, job.plan.ranks, here.store, timeout)
            way = ProcessTransport(rank, job.plan, groups, device, here.rendezvous.one_machine, here.sockets)
            context = RankContext(job, rank, way, reader, device, results[place], partial(progress, rank, RUNNING))
            progress(rank, READY, context.now)
            for handle in steps(context, report):
                progress(rank, WAITING, context.now)
                handle.wait()
                progress(rank, RUNNING, context.now)
            progress(rank, FINISHED, context.now)
        except BaseException as error:
            raise RankError(rank, error) from error
        return report

    def be_thread(place: int) -> None:
        torch.set_num_threads(job.options.threads)
        _use(here.devices[place])
        try:
            outcomes.put((place, be(place)))
        except RankError as error:
            outcomes.put((place, error))

    if alone:
        return [be(0)]
    for place in range(len(here.ranks)):
        threading.Thread(target=be_thread, args=[place], daemon=True).start()
    reports: dict[int, Report] = {}
    while len(reports) < len(here.ranks):
        place, outcome = outcomes.get()
        if isinstance(outcome, RankError):
            raise outcome
        reports[place] = outcome
    return [reports[place] for place in range(len(here.ranks))]


def _use(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_device(device)


def _keep_freed_memory() -> None:
    """Let the C library keep what tensors free, as torch does on a GPU: giving it back and forth costs 3 to 4 % of
    the processor's time of a step of large layers (measured with and without).

    For a process that is nothing but its ranks. (glibc; elsewhere nothing happens.)
    """
    trim_threshold, mmap_threshold, largest = -1, -3, 32 * 2**20
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, largest)
        library.mallopt(trim_threshold, 2**31 - 1)
