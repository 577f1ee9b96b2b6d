"""One rank of a replay that torchrun has started, on one machine or on many.

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:PORT -m lib.replay trace.json

Every process reads the same Trace. torchrun brings them together, and ends all of them when one fails. Each rank says
in torchrun's store how far it is, so that whoever waits in vain can name the one who does not get on. Reports go round
as JSON in tensors, never pickled; what is compared with the truth goes to rank 0 alone, which tells the others.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lib.replay.errors import RankRaised, RankStalled, ReplayError, WrongWorld
from lib.replay.layers import reference as truth
from lib.replay.options import Hook, ReplayOptions
from lib.replay.plan.libraries_plan import kept, shares
from lib.replay.plan.plan import Plan, describe_event
from lib.replay.processes.rank import is_echo, keep_freed_memory
from lib.replay.rank.interpreter import Kit
from lib.replay.rank.wire import Meter
from lib.replay.rank.worker import Report, job
from lib.replay.result import ReplayResult
from lib.replay.run import assembled, compared, device_of, make_source
from lib.replay.transports.processes import ProcessTransport

__all__ = ["join", "rank_here", "ranks_of_this_machine"]

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
        self.event = -1
        self.waiting = False
        self.beats = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def _beat(self) -> None:
        while not self.over.is_set():
            self.beats += 1
            with contextlib.suppress(Exception):  # the store is gone: so is everything else
                self.store.set(f"life/{self.rank}", json.dumps([self.beats, self.event, self.waiting]))
            self.over.wait(BEAT)

    def others(self, ranks: int) -> dict[int, tuple[int, int, bool]]:
        """What each other rank said last."""
        found: dict[int, tuple[int, int, bool]] = {}
        for rank in range(ranks):
            if rank != self.rank:
                with contextlib.suppress(Exception):
                    beats, event, waiting = json.loads(self.store.get(f"life/{rank}"))
                    found[rank] = (beats, event, waiting)
        return found

    def end(self) -> None:
        """No more signs of life."""
        self.over.set()
        self.thread.join(5)


def join(plan: Plan, options: ReplayOptions, hook: Hook | None = None) -> ReplayResult:
    """Plays this process's rank. Every process gets the result."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world != plan.ranks:
        raise WrongWorld(
            f"the Trace has {plan.ranks} ranks, torchrun started {world} processes: "
            f"--nnodes times --nproc-per-node must be {plan.ranks}"
        )
    begun = time.perf_counter_ns()
    meter = Meter()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    device = torch.device("cpu")
    if options.on_gpu:
        device = device_of(options, int(os.environ.get("LOCAL_RANK", rank)))
        torch.cuda.set_device(device)
    backend = "nccl" if options.transport == "nccl" else "gloo"
    wait = timedelta(seconds=options.timeout)
    dist.init_process_group(backend, timeout=wait, device_id=device if backend == "nccl" else None)
    try:
        return _play(plan, options, rank, device, begun, meter, hook)
    finally:
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


def _play(
    plan: Plan,
    options: ReplayOptions,
    rank: int,
    device: torch.device,
    begun: int,
    meter: Meter,
    hook: Hook | None,
) -> ReplayResult:
    # The store that the process group was made with: torch gives it no public name.
    store = dist.distributed_c10d.PrefixStore("puzzles-replay", dist.distributed_c10d._get_default_store())
    one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
    life = Life(store, rank)
    try:
        source = make_source(plan, options, share=False)
        if options.against:
            from lib.replay.layers.libraries import preload

            preload(options.against)
        counts = kept(plan, options)
        transport = ProcessTransport(rank, plan, device, options.timeout, shared_clock=one_machine)
        results = torch.zeros(counts[rank], dtype=source.dtype)
        owned, _ = shares(plan, options.against, rank)
        kit = Kit(rank, plan, options, source, transport, device, results, owned, hook)
        kit.at = lambda index: setattr(life, "event", index)
        report: Report = {}
        _follow(plan, job(kit, report, meter), life, options)
        report["ready"] -= begun
        reports = _exchange(report, transport)
        told = _compared_on_rank_0(plan, options, source, results, counts, transport, store)
        errors, others = _read(told)
        made = assembled(plan, options, reports, 0, errors, others)
        return replace(made, rank=rank)
    finally:
        life.end()


def _follow(plan: Plan, steps: Iterator[Any], life: Life, options: ReplayOptions) -> None:
    """Runs the job. What goes wrong is told with this rank and its operation, or with the rank that is to blame."""
    try:
        for handle in steps:
            life.waiting = True
            handle.wait()
            life.waiting = False
    except Exception as error:
        operation = describe_event(plan, life.rank, life.event)
        blamed = _blame(plan, life, options) if is_echo(error) else None
        what = f"rank {life.rank} failed in {operation}: {type(error).__name__}: {error}"
        if blamed is None:
            raise RankRaised(what, rank=life.rank, operation=operation) from error
        raise blamed from error


def _blame(plan: Plan, life: Life, options: ReplayOptions) -> ReplayError | None:
    """The first rank that gives no sign of life any more, or has not moved though it waits for nobody."""
    before = life.others(plan.ranks)
    time.sleep(3 * BEAT)
    after = life.others(plan.ranks)
    for rank, (beats, event, waiting) in sorted(after.items()):
        gone = before.get(rank, (0, 0, False))[0] == beats
        stuck = not waiting and before.get(rank) is not None and before[rank][1] == event
        if gone or stuck:
            operation = describe_event(plan, rank, event)
            here = f"rank {life.rank} waited for it in {describe_event(plan, life.rank, life.event)}"
            how = "is gone" if gone else f"did not move for {options.timeout:g} s"
            return RankStalled(f"rank {rank} {how}, in {operation}; {here}", rank=rank, operation=operation)
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


def _compared_on_rank_0(
    plan: Plan,
    options: ReplayOptions,
    source: Any,
    results: Tensor,
    counts: list[int],
    transport: ProcessTransport,
    store: Any,
) -> dict[str, Any]:
    """Rank 0 collects what all kept, compares, and tells the others."""
    if not options.verify:
        return {"errors": [], "others": {name: [] for name in options.against}}
    device = transport.token.device
    if transport.rank != 0:
        if results.numel():
            dist.send(results.to(device), 0)
        store.wait(["verdict"], timedelta(hours=6))
        return json.loads(store.get("verdict"))
    everything = [results]
    for rank in range(1, plan.ranks):
        room = torch.empty(counts[rank], dtype=results.dtype, device=device)
        if counts[rank]:
            dist.recv(room, rank)
        everything.append(room.cpu())
    errors, others = compared(plan, options, source, everything)
    told = {
        "errors": [asdict(error) for error in errors],
        "others": {name: [asdict(error) for error in found] for name, found in others.items()},
    }
    store.set("verdict", json.dumps(told))
    return told


def _read(told: dict[str, Any]) -> tuple[list[truth.Deviation], dict[str, list[truth.Deviation]]]:
    others = {name: [truth.Deviation(**error) for error in found] for name, found in told["others"].items()}
    return [truth.Deviation(**error) for error in told["errors"]], others
