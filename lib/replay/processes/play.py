"""Plays one rank in a process of its own: meets the others, does its steps, and says how far it is.

Forked ranks and those of torchrun are played alike. What differs is where they meet, whom they tell how far they are,
and how their reports come home.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from lib.replay.processes.rendezvous import Rendezvous
from lib.replay.rank.context import Job, RankContext, device_of
from lib.replay.rank.steps import Report, steps
from lib.replay.transports import distributed
from lib.replay.transports.distributed import ProcessTransport
from lib.replay.transports.socket_counters import SocketCounters

__all__ = ["FINISHED", "READY", "RUNNING", "STARTING", "WAITING", "Progress", "is_echo", "meet", "play"]

STARTING, READY, RUNNING, WAITING, FINISHED = range(5)
"""What a rank does. Who is waiting waits for other ranks."""

Progress = Callable[[int, int], None]
"""Is told what the rank does and the number of its event (-1 before the first), whenever it has moved."""


def meet(job: Job, rank: int, local_rank: int, rendezvous: Rendezvous) -> ProcessTransport:
    """Meets the other ranks. From then on this process is nothing but a rank, the `local_rank`th of its machine."""
    torch.set_num_threads(job.options.threads)
    _keep_freed_memory()
    sockets = SocketCounters()
    device = device_of(job.options, local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if rendezvous.interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = rendezvous.interface
    nccl = job.options.transport == "nccl"
    dist.init_process_group(
        "nccl" if nccl else "gloo",
        init_method=rendezvous.address,
        rank=rank,
        world_size=job.plan.ranks,
        timeout=timedelta(seconds=rendezvous.timeout),
        device_id=device if nccl else None,
    )
    return ProcessTransport(rank, job.plan, device, rendezvous.timeout, rendezvous.one_machine, sockets)


def play(job: Job, transport: ProcessTransport, results: Tensor, progress: Progress) -> Report:
    """Does all that a rank has to do. What is compared with ordinary training is written to `results`."""
    now = -1

    def now_in(index: int) -> None:
        nonlocal now
        now = index
        progress(RUNNING, index)

    progress(READY, now)
    report: Report = {}
    context = RankContext(job, transport.rank, transport, transport.device, results)
    context.now_in = now_in
    for handle in steps(context, report):
        progress(WAITING, now)
        handle.wait()
        progress(RUNNING, now)
    progress(FINISHED, now)
    return report


def _keep_freed_memory() -> None:
    """Lets the C library keep what tensors free, as torch does on a GPU: giving it back and forth costs 3 to 4 % of
    the processor's time of a step of large layers (measured with and without).

    For a process that is nothing but a rank. (glibc; elsewhere nothing happens.)
    """
    trim_threshold, mmap_threshold, largest = -1, -3, 32 * 2**20
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, largest)
        library.mallopt(trim_threshold, 2**31 - 1)


def is_echo(error: BaseException) -> bool:
    """Whether an error comes from torch.distributed: then it is often the echo of what happened on another rank."""
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_globals.get("__name__") == distributed.__name__:
            return True
        at = at.tb_next
    return False
