"""replay: from a Trace to a result. Runs the ranks in this process, forked from it, or as one process of torchrun.

A rank is played the same way everywhere; only its meeting place, the receiver of its progress and the way back for its
report differ. torchrun starts ranks on one machine or on many,

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:PORT -m lib.replay trace.json

and ends all processes when one fails; a rank that waits in vain says in which operation, after the timeout.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from lib.replay import ReplayError, WrongWorld
from lib.replay.options import Hook, ReplayOptions
from lib.replay.plan import plan_of, raised
from lib.replay.rank.interpreter import Job, RankContext, Report, steps
from lib.replay.rank.transport import Handle, LocalTransport, ProcessTransport, SocketCounters, drive
from lib.replay.result import Comparison, ReplayResult, assembled
from lib.replay.training import compared
from lib.trace.trace import Trace

STARTING, RUNNING, WAITING, FINISHED = range(4)
"""The states of a rank. A waiting rank waits for other ranks."""
Progress = Callable[[int, int], None]
"""Called with the state of the rank and the number of its event (-1 before the first), whenever it has moved."""
REPLAYS = count()
"""Numbers successive replays in the processes of torchrun: each has keys of its own in the store."""


def run(trace: Trace, options: ReplayOptions, hook: Hook | None = None) -> ReplayResult:
    """Replay a Trace: in this process, as one process of torchrun, or in processes of its own."""
    plan = plan_of(trace, options)
    # Torchrun has started this process, or another that sets its variables.
    torchrun = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    if options.transport != "local" and torchrun:
        job = Job.of(plan, options, hook, share=False)
        rank, reports, comparison = _as_torchrun_does(job)
        return replace(assembled(plan, options, reports, 0, comparison), rank=rank)
    job, begun = Job.of(plan, options, hook), time.perf_counter_ns()
    if options.transport == "local":
        reports = _in_turns(job)
    else:
        from lib.replay.rank.forked import forked  # here, as it imports this module

        reports = forked(job)
    kept = [report.pop("kept") for report in reports]
    return assembled(plan, options, reports, begun, compared(plan, options, job.initial, kept))


def device_of(options: ReplayOptions, local_rank: int) -> torch.device:
    """Return the device of a rank: the CPU, or the GPUs in turn. WrongWorld where there are too few."""
    if not options.on_gpu:
        return torch.device("cpu")
    gpus = torch.cuda.device_count()
    if gpus == 0:
        raise WrongWorld("there is no GPU here that torch can use: transport='gloo', device='cpu' needs none")
    if options.transport == "nccl" and local_rank >= gpus:
        raise WrongWorld(
            f"nccl needs a GPU for each rank of a machine: this one has {gpus}, and a rank number {local_rank}. "
            "With transport='gloo', device='cuda' several ranks share one"
        )
    return torch.device("cuda", local_rank % gpus)


# -- all ranks in this process ------------------------------------------------------------------------------------


def _in_turns(job: Job) -> list[Report]:
    """Run all ranks in this process, taking turns."""
    threads, meetings = torch.get_num_threads(), dict[Any, Any]()
    reports: list[Report] = [{} for _ in job.plan.rank_plans]

    def played(rank: int) -> Iterator[Handle]:
        way = LocalTransport(rank, job.plan.ranks, meetings)
        context = RankContext(job, rank, way, device_of(job.options, rank))
        try:
            yield from steps(context, reports[rank])
        except Exception as error:
            raise raised(job.plan, rank, context.now, f"{type(error).__name__}: {error}") from error

    torch.set_num_threads(job.options.threads)
    try:
        drive([played(rank) for rank in range(job.plan.ranks)])
    finally:
        torch.set_num_threads(threads)
    return reports


# -- a rank of its own process ------------------------------------------------------------------------------------


def meet(
    job: Job, rank: int, local_rank: int, address: str, timeout: float, one_machine: bool, before: int = 0
) -> ProcessTransport:
    """Meet the other processes at an address, in the form of torch's `init_method`, after `before` replays there.
    From then on this process plays only its rank; torch waits `timeout` seconds at most."""
    torch.set_num_threads(job.options.threads)
    _keep_freed_memory()
    _use_up_turns()
    sockets, device = SocketCounters(), device_of(job.options, local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    nccl, ranks, most = job.options.transport == "nccl", job.plan.ranks, timedelta(seconds=timeout)
    store = PrefixStore(f"puzzles-replay/{before}", _store(address, rank, ranks, most))
    dist.init_process_group(
        job.options.transport,
        store=store,
        rank=rank,
        world_size=ranks,
        timeout=most,
        device_id=device if nccl else None,
    )
    return ProcessTransport(rank, job.plan, device, most, one_machine, sockets, store)


def _keep_freed_memory() -> None:
    """Have the C library keep what a step frees for the next one, as a GPU's allocator does. By default glibc gives it
    back to the system whenever much is free, and every step gets its tensors again, page by page."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # it is another C library
        set_option, trim_threshold, mmap_threshold = ctypes.CDLL(None).mallopt, -1, -3  # as malloc.h numbers them
        set_option(trim_threshold, -1)
        set_option(mmap_threshold, 2**25)


def _use_up_turns() -> None:
    """Ask the system to leave this rank its turn on a core when others wake up (Linux). Often they wake up by a message
    that it sends while it holds a lock of gloo's. If it loses its turn then, gloo's thread asks for that lock over and
    over until it is back: of a step of small tensors on shared cores, half of the CPU time."""
    with contextlib.suppress(OSError, AttributeError):  # it is another system, or one that does not allow it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@cache
def _store(address: str, rank: int, ranks: int, timeout: timedelta) -> Any:
    """Open the store where processes meet, which all can write to. Successive replays meet in the same one."""
    store, _, _ = next(rendezvous(address, rank, ranks, timeout=timeout))
    return store


def play(job: Job, way: ProcessTransport, progress: Progress) -> Report:
    """Play the rank of this process. Errors are raised here, without telling the other ranks."""
    report: Report = {}
    context = RankContext(job, way.rank, way, way.device, partial(progress, RUNNING))
    progress(RUNNING, context.now)
    for handle in steps(context, report):
        progress(WAITING, context.now)
        handle.wait()
        progress(RUNNING, context.now)
    progress(FINISHED, context.now)
    return report


# -- a process of torchrun ----------------------------------------------------------------------------------------


def _as_torchrun_does(job: Job) -> tuple[int, list[Report], Comparison]:
    """Play this process's rank. Returns its rank, all reports and the comparison, in every process."""
    rank, world = int(os.environ["RANK"]), os.environ["WORLD_SIZE"]
    if int(world) != job.plan.ranks:
        raise WrongWorld(
            f"the Trace has {job.plan.ranks} ranks, torchrun started {world} processes: "
            f"--nnodes times --nproc-per-node must be {job.plan.ranks}"
        )
    begun, local = time.perf_counter_ns(), int(os.environ.get("LOCAL_RANK", rank))
    one_machine, now = os.environ.get("LOCAL_WORLD_SIZE") == world, -1

    def progress(state: int, event: int) -> None:
        nonlocal now
        now = event

    try:
        way = meet(job, rank, local, "env://", job.options.timeout, one_machine, next(REPLAYS))
        report = play(job, way, progress)
        report["ready"] -= begun
        kept = report.pop("kept")
        reports: list[Any] = [None] * job.plan.ranks
        dist.all_gather_object(reports, report)
        return rank, reports, _compared_on_rank_0(job, kept, way)
    except ReplayError:
        raise
    except Exception as error:
        raise raised(job.plan, rank, now, f"{type(error).__name__}: {error}") from error
    finally:
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


def _compared_on_rank_0(job: Job, kept: Any, way: ProcessTransport) -> Comparison:
    """Collect all kept tensors on rank 0, which compares them and tells the others: this may outlast any timeout."""
    everything, mine = [kept], [kept]
    if job.options.verify and way.rank != 0:
        dist.send_object_list(mine, 0)
        way.store.wait(["verdict"], timedelta(hours=6))
        return pickle.loads(way.store.get("verdict"))
    for rank in range(1, job.plan.ranks if job.options.verify else 0):
        dist.recv_object_list(mine, rank)
        everything += mine
    found = compared(job.plan, job.options, job.initial, everything)
    way.store.set("verdict", pickle.dumps(found))
    return found
