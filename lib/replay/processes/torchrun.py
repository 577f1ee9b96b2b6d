"""One rank of a replay that torchrun has started, on one machine or on many.

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:PORT -m lib.replay trace.json

Every process reads the same Trace. torchrun brings them together, and ends all of them when one fails. Each rank says
in torchrun's store how far it is, so that whoever waits in vain can name the one who does not get on. Reports go round
as JSON in tensors, never pickled; what is compared with ordinary training goes to rank 0 alone, which tells the others.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lib.replay.errors import RankStalled, ReplayError, WrongWorld
from lib.replay.layers.reference import Comparison, compared
from lib.replay.plan.describe import describe_event, raised, stalled
from lib.replay.processes.play import STARTING, WAITING, is_echo, meet, play
from lib.replay.processes.rendezvous import Rendezvous
from lib.replay.rank.context import Job
from lib.replay.rank.steps import Report
from lib.replay.transports.distributed import ProcessTransport

__all__ = ["play_here", "rank_here", "ranks_of_this_machine"]

BEAT = 0.5
"""Seconds between two signs of life."""


def rank_here() -> int | None:
    """The rank that torchrun (or whoever sets its variables) gave this process; None where nobody did."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return int(os.environ["RANK"]) if all(name in os.environ for name in names) else None


def ranks_of_this_machine() -> range:
    """The ranks that torchrun started here."""
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    return range(rank - local, rank - local + int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


class Life:
    """How far this rank is, told to the others by way of the store."""

    def __init__(self, store: Any, rank: int) -> None:
        self.store = store
        self.rank = rank
        self.state = STARTING
        self.event = -1
        self.beats = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def say(self, state: int, event: int) -> None:
        """What this rank does."""
        self.state, self.event = state, event

    def _beat(self) -> None:
        while not self.over.is_set():
            self.beats += 1
            with contextlib.suppress(Exception):  # the store is gone: so is everything else
                self.store.set(f"life/{self.rank}", json.dumps([self.beats, self.state, self.event]))
            self.over.wait(BEAT)

    def others(self, ranks: int) -> dict[int, tuple[int, int, int]]:
        """The beats, state and event that each other rank told last."""
        found: dict[int, tuple[int, int, int]] = {}
        for rank in range(ranks):
            if rank != self.rank:
                with contextlib.suppress(Exception):
                    beats, state, event = json.loads(self.store.get(f"life/{rank}"))
                    found[rank] = (beats, state, event)
        return found

    def end(self) -> None:
        """No more signs of life."""
        self.over.set()
        self.thread.join(5)


def play_here(job: Job) -> tuple[int, list[Report], Comparison]:
    """Plays this process's rank. Every process gets its rank, the reports of all, and the comparison."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    plan = job.plan
    if world != plan.ranks:
        raise WrongWorld(
            f"the Trace has {plan.ranks} ranks, torchrun started {world} processes: "
            f"--nnodes times --nproc-per-node must be {plan.ranks}"
        )
    begun = time.perf_counter_ns()
    one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
    rendezvous = Rendezvous("env://", job.options.timeout, one_machine=one_machine)
    try:
        transport = meet(job, rank, int(os.environ.get("LOCAL_RANK", rank)), rendezvous)
        if job.options.against:
            from lib.replay.rank.libraries import preload

            preload(job.options.against)
        results = torch.zeros(job.kept[rank], dtype=job.initial.dtype)
        # The store that the process group was made with: torch gives it no public name.
        store = dist.distributed_c10d.PrefixStore("puzzles-replay", dist.distributed_c10d._get_default_store())
        with _alive(job, store, rank) as life:
            report = play(job, transport, results, life.say)
            report["ready"] -= begun
            reports = _exchange(report, transport)
            return rank, reports, _compared_on_rank_0(job, results, transport, store)
    finally:
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


@contextlib.contextmanager
def _alive(job: Job, store: Any, rank: int) -> Iterator[Life]:
    """Tells the others how far this rank is. What goes wrong is told with its operation, or with who is to blame."""
    life = Life(store, rank)
    try:
        yield life
    except Exception as error:
        blamed = _blame(job, life) if is_echo(error) else None
        raise blamed or raised(job.plan, rank, life.event, f"{type(error).__name__}: {error}") from error
    finally:
        life.end()


def _blame(job: Job, life: Life) -> ReplayError | None:
    """The first rank that gives no sign of life any more, or has not moved though it waits for nobody."""
    plan = job.plan
    before = life.others(plan.ranks)
    time.sleep(3 * BEAT)
    waited = f"rank {life.rank} waited for it in {describe_event(plan, life.rank, life.event)}"
    for rank, (beats, state, event) in sorted(life.others(plan.ranks).items()):
        last_beats, _, last_event = before.get(rank, (0, STARTING, None))
        if beats == last_beats:
            operation = describe_event(plan, rank, event)
            return RankStalled(f"rank {rank} is gone, in {operation}; {waited}", rank=rank, operation=operation)
        if state != WAITING and event == last_event:
            return stalled(plan, [rank], event, job.options.timeout, waited)
    return None


def _exchange(report: Report, transport: ProcessTransport) -> list[Report]:
    """Everybody gets everybody's report."""
    device = transport.token.device
    mine = torch.frombuffer(bytearray(json.dumps(report).encode()), dtype=torch.uint8).to(device)
    world = dist.get_world_size()
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([mine.numel()], device=device))
    lengths = [int(size) for size in sizes]
    padded = torch.zeros(max(lengths), dtype=torch.uint8, device=device)
    padded[: mine.numel()] = mine
    all_ = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(all_, padded)
    return [json.loads(bytes(one[:length].tolist())) for one, length in zip(all_, lengths, strict=True)]


def _compared_on_rank_0(job: Job, results: Tensor, transport: ProcessTransport, store: Any) -> Comparison:
    """Rank 0 collects what all kept, compares, and tells the others."""
    if not job.options.verify:
        return compared(job.plan, job.options, job.initial, ())
    device = transport.token.device
    if transport.rank != 0:
        if results.numel():
            dist.send(results.to(device), 0)
        store.wait(["verdict"], timedelta(hours=6))
        return Comparison.from_json(json.loads(store.get("verdict")))
    everything = [results]
    for rank, count in enumerate(job.kept[1:], 1):
        room = torch.empty(count, dtype=results.dtype, device=device)
        if count:
            dist.recv(room, rank)
        everything.append(room.cpu())
    found = compared(job.plan, job.options, job.initial, everything)
    store.set("verdict", json.dumps(found.to_json()))
    return found
