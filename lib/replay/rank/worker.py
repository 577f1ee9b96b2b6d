"""What one rank does from its start to its report: the step once for the truth, then unmeasured, then measured."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from lib.replay.rank.clocks import Clock, CpuClock, CudaClock
from lib.replay.rank.interpreter import Interpreter, Kit
from lib.replay.rank.wire import Meter
from lib.replay.transports.transport import Handle

__all__ = ["Report", "job"]

Report = dict[str, Any]
"""Plain data, so that it can go home as JSON."""


def job(kit: Kit, report: Report, meter: Meter | None = None) -> Iterator[Handle]:
    """The whole life of a rank, as a generator of what it waits for. Fills `report`.

    Libraries to compare with are run step by step in turns with the replay, so that both meet the same machine.
    """
    yield from _wait(kit.transport.barrier())
    report["ready"] = time.perf_counter_ns()
    report["shared_clock"] = kit.transport.shared_clock
    if kit.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    interpreter = Interpreter(kit, _clock(kit), record=True)
    before = meter.sent() if meter else None
    yield from interpreter.run()
    _sync(kit)
    report["wire"] = None if meter is None or before is None else (meter.sent() or 0) - before
    report["memory"] = interpreter.memory
    report["moved"] = sorted(interpreter.moved.items())
    report["allocator_peak"] = torch.cuda.max_memory_allocated() if kit.device.type == "cuda" else 0
    del interpreter
    contenders = _contenders(kit, report)
    report["steps"] = []
    for number in range(kit.options.warmup + kit.options.steps):
        turns = [*contenders, None]  # None is the replay; whoever came last comes first in the next round
        for contender in turns if number % 2 == 0 else reversed(turns):
            if contender is None:
                interpreter = Interpreter(kit, _clock(kit))
                yield from _wait(kit.transport.barrier())
                interpreter.clock.start()
                yield from interpreter.run()
                times, found = interpreter.clock.stop(), report["steps"]
                del interpreter
            else:
                yield from _wait(kit.transport.barrier())
                times, found = contender.step(), report["libraries"][contender.name]["steps"]
            if number >= kit.options.warmup:
                found.append(times)
    yield from _wait(kit.transport.barrier())


def _contenders(kit: Kit, report: Report) -> list[Any]:
    if not kit.options.against:
        return []
    from lib.replay.layers.libraries import contender

    found = [contender(name, kit) for name in kit.options.against]
    report["libraries"] = {one.name: {**one.prove(), "steps": []} for one in found}
    return found


def _wait(handle: Handle) -> Iterator[Handle]:
    yield handle
    handle.wait()


def _clock(kit: Kit) -> Clock:
    events = len(kit.plan.desks[kit.rank].program.events)
    return CudaClock(events) if kit.device.type == "cuda" else CpuClock(events)


def _sync(kit: Kit) -> None:
    if kit.device.type == "cuda":
        torch.cuda.synchronize()
