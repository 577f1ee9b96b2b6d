"""What ours is measured beside: the same work without what ours accounts for, in asyncio and in SimPy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import simpy


def hand_overs(ranks: int, each: int) -> None:
    """Let tasks of asyncio hand over to each other, `each` of them so many times, and nothing else.

    The loop asks the operating system once a round, in which each task has its turn: of 4 tasks a hand-over takes a
    quarter longer than of 16, and from there on it takes the same.
    """

    async def rank() -> None:
        for _ in range(each):
            await asyncio.sleep(0)

    async def world() -> None:
        await asyncio.gather(*(rank() for _ in range(ranks)))

    asyncio.run(world())


def simpy_pipeline(stages: int, batches: int) -> None:
    """Send, receive and compute as `one_f_one_b` does, in SimPy: times only, no values, no memory, no record."""
    env = simpy.Environment()
    boxes = {(a, b): simpy.Store(env) for a in range(stages) for b in (a - 1, a + 1)}

    def rank(stage: int) -> Iterator[Any]:
        last = stages - 1

        def forward() -> Iterator[Any]:
            if stage:
                yield boxes[stage - 1, stage].get()
                yield env.timeout(0.2)
            yield env.timeout(1)
            if stage != last:
                yield env.timeout(0.2)
                yield boxes[stage, stage + 1].put(1)

        def backward() -> Iterator[Any]:
            if stage != last:
                yield boxes[stage + 1, stage].get()
                yield env.timeout(0.2)
            yield env.timeout(1)
            if stage:
                yield env.timeout(0.2)
                yield boxes[stage, stage - 1].put(1)

        warm = min(batches, last - stage + 1)
        for _ in range(warm):
            yield from forward()
        for batch in range(batches):
            yield from backward()
            if batch + warm < batches:
                yield from forward()

    for stage in range(stages):
        env.process(rank(stage))
    env.run()
