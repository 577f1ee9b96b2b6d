"""One process of a replay that torchrun has started, on one machine or on many.

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:PORT -m lib.replay trace.json

Every process reads the same Trace, and plays its rank, or the devices that it owns on the Trace's mesh. torchrun brings
processes together, and ends all of them when one fails. Each rank says in torchrun's store how far it is, so that
whoever waits in vain can name the one who does not get on. Reports go round as JSON in tensors, never pickled; what is
compared with ordinary training goes to process 0 alone, which tells the others.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lib.replay import RankStalled, ReplayError, WrongWorld
from lib.replay.layers.training import Comparison
from lib.replay.plan import describe_event, raised, stalled
from lib.replay.rank.context import Job
from lib.replay.rank.interpreter import Report
from lib.replay.rank.play import STARTING, WAITING, Here, RankError, Rendezvous, meet, play
from lib.replay.rank.transport import exchange
from lib.replay.result import Deviation

BEAT = 0.5
"""Seconds between two signs of life."""
REPLAYS = count()
"""One after the other in these processes: what one has said in the store is not for the next."""


def is_here() -> bool:
    """Tell whether torchrun (or another that sets its variables) has started this process."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def _numbers() -> tuple[int, int]:
    """Return the number of this process, which torchrun calls a rank, and that among those of its machine."""
    number = int(os.environ["RANK"])
    return number, int(os.environ.get("LOCAL_RANK", number))


def ranks_of_this_machine(processes: Sequence[Sequence[int]]) -> list[int]:
    """Return the ranks of the processes that torchrun started here."""
    first = int(os.environ["RANK"]) - int(os.environ.get("LOCAL_RANK", "0"))
    here = processes[first : first + int(os.environ.get("LOCAL_WORLD_SIZE", "1"))]
    return [rank for ranks in here for rank in ranks]


def play_here(job: Job) -> tuple[int, list[Report], Comparison]:
    """Play this process's ranks. Every process gets the first of its ranks, the reports of all, and the comparison."""
    (process, local), world = _numbers(), os.environ["WORLD_SIZE"]
    if int(world) != len(job.processes):
        ranks, processes = job.plan.ranks, len(job.processes)
        owned = "" if processes == ranks else f" in {processes} processes"
        each = "" if processes == ranks else f", or {ranks} with --processes {ranks}"
        raise WrongWorld(
            f"the Trace has {ranks} ranks{owned}, torchrun started {world} processes: "
            f"--nnodes times --nproc-per-node must be {processes}{each}"
        )
    begun, one_machine = time.perf_counter_ns(), os.environ.get("LOCAL_WORLD_SIZE") == world
    rendezvous = Rendezvous("env://", job.options.timeout, one_machine=one_machine, before=next(REPLAYS))
    try:
        here = meet(job, process, local, rendezvous)
        if job.options.against:
            from lib.replay.rank.libraries import preload

            preload(job.options.against)
        results = [torch.zeros(job.kept[rank], dtype=job.initial.dtype) for rank in here.ranks]
        with _alive(job, here.store, here.ranks) as life, _examples(job, here.store) as examples:
            mine = play(job, here, examples, results, life.say)
            for report in mine:
                report["ready"] -= begun
            # Where processes exchange what they have to say.
            device = here.devices[0] if job.options.transport == "nccl" else torch.device("cpu")
            told = zip(job.processes, exchange(mine, device), strict=True)
            reports = {rank: report for ranks, each in told for rank, report in zip(ranks, each, strict=True)}
            comparison = _compared_on_process_0(job, results, here, device)
            return min(here.ranks), [reports[rank] for rank in range(job.plan.ranks)], comparison
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


class Life:
    """The signs of life of this process: how far its ranks are, told to the others by way of the store."""

    def __init__(self, store: Any, ranks: Sequence[int]) -> None:
        self.store = store
        self.now: dict[int, tuple[int, int]] = dict.fromkeys(ranks, (STARTING, -1))
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def say(self, rank: int, state: int, event: int) -> None:
        """Note what a rank does."""
        self.now[rank] = state, event

    def _beat(self) -> None:
        for beats in count(1):
            with contextlib.suppress(Exception):  # the store is gone: so is everything else
                for rank, (state, event) in self.now.items():
                    self.store.set(f"life/{rank}", json.dumps([beats, state, event]))
            if self.over.wait(BEAT):
                return

    def told(self, ranks: int) -> dict[int, tuple[int, int, int]]:
        """Return the beats, state and event that each rank told last."""
        found: dict[int, tuple[int, int, int]] = {}
        for rank in range(ranks):
            with contextlib.suppress(Exception):
                beats, state, event = json.loads(self.store.get(f"life/{rank}"))
                found[rank] = (beats, state, event)
        return found


@contextlib.contextmanager
def _alive(job: Job, store: Any, ranks: Sequence[int]) -> Iterator[Life]:
    """Tell the others how far these ranks are; what goes wrong, with its operation or with the rank to blame."""
    life = Life(store, ranks)
    try:
        yield life
    except Exception as error:
        failed = error if isinstance(error, RankError) else RankError(ranks[0], error)
        blamed = _blame(job, life, failed.rank) if failed.echo else None
        raise blamed or raised(job.plan, failed.rank, life.now[failed.rank][1], str(failed)) from error
    finally:
        life.over.set()
        life.thread.join(5)


def _blame(job: Job, life: Life, waiting: int) -> ReplayError | None:
    """Find the first rank that gives no sign of life any more, or has not moved though it waits for nobody."""
    plan = job.plan
    before = life.told(plan.ranks)
    time.sleep(3 * BEAT)
    waited = f"rank {waiting} waited for it in {describe_event(plan, waiting, life.now[waiting][1])}"
    for rank, (beats, state, event) in sorted(life.told(plan.ranks).items()):
        last_beats, _, last_event = before.get(rank, (0, STARTING, None))
        if beats == last_beats:
            operation = describe_event(plan, rank, event)
            words = f"rank {rank} gives no sign of life: its process is gone, or stopped, in {operation}; {waited}"
            return RankStalled(words, rank=rank, operation=operation)
        if state != WAITING and event == last_event:
            return stalled(plan, [rank], event, job.options.timeout, waited)
    return None


def _compared_on_process_0(job: Job, results: Sequence[Tensor], here: Here, device: torch.device) -> Comparison:
    """Process 0 collects what all kept, compares, and tells the others."""
    if not job.options.verify:
        return job.compared(())
    if dist.get_rank() != 0:
        for kept in results:
            if kept.numel():
                dist.send(kept.to(device), 0)
        here.store.wait(["verdict"], timedelta(hours=6))
        verdict: dict[str, list[Any]] = json.loads(here.store.get("verdict"))
        return {name: [Deviation(*each) for each in found] for name, found in verdict.items()}
    everything = dict(zip(here.ranks, results, strict=True))
    for process, ranks in enumerate(job.processes[1:], 1):
        for rank in ranks:
            room = torch.empty(job.kept[rank], dtype=job.initial.dtype, device=device)
            if room.numel():
                dist.recv(room, process)
            everything[rank] = room.cpu()
    found = job.compared([everything[rank] for rank in range(job.plan.ranks)])
    here.store.set("verdict", json.dumps({name: [*map(astuple, each)] for name, each in found.items()}))
    return found
