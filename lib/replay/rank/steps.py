"""What one rank does from its start to its report: the step once to be compared, then unmeasured, then measured."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from lib.replay.rank.clocks import Clock, CpuClock, CudaClock
from lib.replay.rank.context import RankContext
from lib.replay.rank.interpreter import Interpreter
from lib.replay.transports.transport import Handle

__all__ = ["Report", "steps"]

Report = dict[str, Any]
"""Plain data, so that it can go home as JSON."""


def steps(context: RankContext, report: Report) -> Iterator[Handle]:
    """The whole life of a rank, as a generator of what it waits for. Fills `report`.

    Libraries to compare with are run step by step in turns with the replay, so that both meet the same machine.
    """
    yield from _wait(context.transport.barrier())
    report["ready"] = time.perf_counter_ns()
    report["shared_clock"] = context.transport.shared_clock
    yield from _recorded_step(context, report)
    library_steps = _library_steps(context, report)
    report["steps"] = []
    for number in range(context.options.warmup + context.options.steps):
        turns = [*library_steps, None]  # None is the replay; whoever came last comes first in the next round
        for library in turns if number % 2 == 0 else reversed(turns):
            if library is None:
                interpreter = Interpreter(context, _clock(context))
                yield from _wait(context.transport.barrier())
                interpreter.clock.start()
                yield from interpreter.run()
                times, found = interpreter.clock.stop(), report["steps"]
                del interpreter
            else:
                yield from _wait(context.transport.barrier())
                times, found = library.step(), report["libraries"][library.name]["steps"]
            if number >= context.options.warmup:
                found.append(times)
    if context.options.profile is not None:
        yield from _profiled(context, library_steps)
    yield from _wait(context.transport.barrier())
    report["read"] = context.reader.read_in(0)


def _recorded_step(context: RankContext, report: Report) -> Iterator[Handle]:
    """The step whose numbers are kept to be compared, with what it holds and sends."""
    on_gpu = context.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    interpreter = Interpreter(context, _clock(context), record=True)
    before = context.transport.bytes_sent()
    yield from interpreter.run()
    if on_gpu:
        torch.cuda.synchronize()
    after = context.transport.bytes_sent()
    report["socket_bytes"] = None if before is None or after is None else [before, after]
    report["memory"] = interpreter.memory
    report["sent"] = interpreter.sent
    report["allocator_peak"] = torch.cuda.max_memory_allocated() if on_gpu else 0


def _profiled(context: RankContext, library_steps: list[Any]) -> Iterator[Handle]:
    """One more step of the replay, and of each library, in torch.profiler's eyes."""
    from lib.replay.rank.profile import Profile, Ranges

    for library in (None, *library_steps):
        profile = Profile(context, "replay" if library is None else library.name)
        interpreter = Interpreter(context, _clock(context), ranges=Ranges(context))
        profile.start()
        yield from _wait(context.transport.barrier())
        if library is None:
            yield from interpreter.run()
        else:
            library.run()
        profile.stop()


def _library_steps(context: RankContext, report: Report) -> list[Any]:
    if not context.options.against:
        return []
    from lib.replay.rank.libraries import library_step

    found = [library_step(name, context) for name in context.options.against]
    report["libraries"] = {one.name: {**one.prove(), "steps": []} for one in found}
    return found


def _wait(handle: Handle) -> Iterator[Handle]:
    yield handle
    handle.wait()


def _clock(context: RankContext) -> Clock:
    events = len(context.mine.program.events)
    return CudaClock(events) if context.device.type == "cuda" else CpuClock(events)
