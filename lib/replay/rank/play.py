"""Plays one rank in its process: meets the others, does its steps, and says how far it is.

Forked processes (`forked.py`) and those of torchrun are played alike. What differs is where they meet, whom they tell
how far they are, and how their reports come home. torchrun starts them on one machine or on many,

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:PORT -m lib.replay trace.json

brings them together, and ends all of them when one fails; a rank that waits in vain says in which operation, after the
timeout. All read the same Trace. Reports go round as JSON in tensors, never pickled; what is compared with ordinary
training goes to rank 0 alone, which tells the others.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple
from datetime import timedelta
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous as rendezvous_at

from lib.replay import ReplayError, WrongWorld
from lib.replay.layers.training import Comparison
from lib.replay.plan import raised
from lib.replay.rank import transport
from lib.replay.rank.context import Job, RankContext, Reader, device_of
from lib.replay.rank.interpreter import Report, steps
from lib.replay.rank.transport import ProcessTransport, SocketCounters, exchange
from lib.replay.result import Deviation

STARTING, READY, RUNNING, WAITING, FINISHED = range(5)
"""What a rank does. Who is waiting waits for other ranks."""
Progress = Callable[[int, int], None]
"""Is told what the rank does and the number of its event (-1 before the first), whenever it has moved."""
REPLAYS = count()
"""One after the other in these processes: what one has said in the store is not for the next."""
LEFT = 3.0
"""Timeouts of torch.distributed are this much longer than ours, so that it is we who say what happened."""


class Rendezvous(NamedTuple):
    """The place where processes meet, as torch's init_method; the seconds that torch waits there and for every
    communication; the network interface for it; whether all are on one machine; how many replays met there before."""

    address: str
    timeout: float
    interface: str | None = None
    one_machine: bool = True
    before: int = 0


def loopback() -> str | None:
    """Name the interface that ranks of one machine talk over: no name has to be resolved, and no packet leaves."""
    names = {name for _, name in socket.if_nameindex()}
    return next((name for name in ("lo", "lo0") if name in names), None)


def is_echo(error: BaseException) -> bool:
    """Tell whether an error comes from torch.distributed, so that it may be that of another rank."""
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_globals.get("__name__") == transport.__name__:
            return True
        at = at.tb_next
    return False


class Here(NamedTuple):
    """This process, once it has met the others: its rank and device. `store` is what all can write to."""

    rank: int
    device: torch.device
    rendezvous: Rendezvous
    store: Any
    sockets: SocketCounters


def meet(job: Job, rank: int, local_rank: int, rendezvous: Rendezvous) -> Here:
    """Meet the other processes, as the `local_rank`th of this machine. From then on this one is but its rank."""
    torch.set_num_threads(job.options.threads)
    sockets, device = SocketCounters(), device_of(job.options, local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = join(rendezvous, rank, job.plan.ranks, device if job.options.transport == "nccl" else None)
    return Here(rank, device, rendezvous, store, sockets)


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


def play(job: Job, here: Here, examples: Path, results: Tensor, progress: Progress) -> Report:
    """Do all that the rank of this process has to do. What it reads is in `examples`; what is compared with ordinary
    training is written to `results`. What goes wrong is raised here, without a word to the others."""
    report: Report = {}
    way = ProcessTransport(
        here.rank, job.plan, here.device, here.rendezvous.timeout, here.rendezvous.one_machine, here.sockets
    )
    context = RankContext(job, here.rank, way, Reader(examples), here.device, results, partial(progress, RUNNING))
    progress(READY, context.now)
    for handle in steps(context, report):
        progress(WAITING, context.now)
        handle.wait()
        progress(RUNNING, context.now)
    progress(FINISHED, context.now)
    return report


# -- a process of torchrun ----------------------------------------------------------------------------------------


def torchrun_is_here() -> bool:
    """Tell whether torchrun (or another that sets its variables) has started this process."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def _numbers() -> tuple[int, int]:
    """Return the rank of this process, and its number among those of its machine."""
    rank = int(os.environ["RANK"])
    return rank, int(os.environ.get("LOCAL_RANK", rank))


def play_with_torchrun(job: Job) -> tuple[int, list[Report], Comparison]:
    """Play this process's rank. Every process gets its rank, the reports of all, and the comparison."""
    (rank, local), world = _numbers(), os.environ["WORLD_SIZE"]
    if int(world) != job.plan.ranks:
        raise WrongWorld(
            f"the Trace has {job.plan.ranks} ranks, torchrun started {world} processes: "
            f"--nnodes times --nproc-per-node must be {job.plan.ranks}"
        )
    begun, one_machine = time.perf_counter_ns(), os.environ.get("LOCAL_WORLD_SIZE") == world
    rendezvous = Rendezvous("env://", job.options.timeout, one_machine=one_machine, before=next(REPLAYS))
    now = -1

    def progress(state: int, event: int) -> None:
        nonlocal now
        now = event

    try:
        here = meet(job, rank, local, rendezvous)
        if job.options.against:
            from lib.replay.rank.libraries import preload

            preload(job.options.against)
        results = torch.zeros(job.kept[rank], dtype=job.initial.dtype)
        with _examples(job, here.store) as examples:
            report = play(job, here, examples, results, progress)
            report["ready"] -= begun
            # Where processes exchange what they have to say.
            device = here.device if job.options.transport == "nccl" else torch.device("cpu")
            return rank, exchange(report, device), _compared_on_rank_0(job, results, here, device)
    except ReplayError:
        raise
    except Exception as error:
        raise raised(job.plan, rank, now, f"{type(error).__name__}: {error}") from error
    finally:
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


@contextlib.contextmanager
def _examples(job: Job, store: Any) -> Iterator[Path]:
    """Give a data set on this machine, which its first process makes and removes: leave it when all have read."""
    process, local = _numbers()
    key = f"examples/{process - local}"
    if not job.reads:
        yield Path()
    elif local:
        store.wait([key])
        yield Path(store.get(key).decode())
    else:
        with tempfile.TemporaryDirectory(prefix="puzzles-examples-") as folder:
            job.write_examples(Path(folder))
            store.set(key, folder)
            yield Path(folder)


def _compared_on_rank_0(job: Job, results: Tensor, here: Here, device: torch.device) -> Comparison:
    """Collect what all kept on rank 0, which compares, and tells the others."""
    if not job.options.verify:
        return job.compared(())
    if here.rank != 0:
        if results.numel():
            dist.send(results.to(device), 0)
        here.store.wait(["verdict"], timedelta(hours=6))
        verdict: dict[str, list[Any]] = json.loads(here.store.get("verdict"))
        return {name: [Deviation(*each) for each in found] for name, found in verdict.items()}
    everything = [results]
    for rank in range(1, job.plan.ranks):
        room = torch.empty(job.kept[rank], dtype=job.initial.dtype, device=device)
        if room.numel():
            dist.recv(room, rank)
        everything.append(room.cpu())
    found = job.compared(everything)
    here.store.set("verdict", json.dumps({name: [*map(astuple, each)] for name, each in found.items()}))
    return found
