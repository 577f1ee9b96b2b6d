"""What one rank does from its start to its report: the step once to be compared, then unmeasured, then measured.

An operation that waits for others is timed from the call to the moment at which the rank goes on. One that runs in the
background ends when that is noticed: at its wait, or at the first operation before which it was found to be over.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from lib.errors.wording import ranges
from lib.replay.rank.context import RankContext
from lib.replay.rank.interpreter import Interpreter
from lib.replay.rank.transport import Handle
from lib.schedules.formats.timelines.actions import actions_of
from lib.schedules.formats.timelines.kineto import OWN, PREFIX
from lib.values.operations import TIMED

__all__ = ["Clock", "CpuClock", "CudaClock", "Profile", "Ranges", "Report", "Times", "steps"]

Times = tuple[list[int], list[int], int, int]
"""Starts and ends of all events, and of the whole step, in nanoseconds of `time.perf_counter_ns`. -1: never."""


class Clock(Protocol):
    """A clock for one step of one rank."""

    def start(self) -> None:
        """The step begins."""
        ...

    def begin(self, index: int) -> None:
        """Event `index` begins."""
        ...

    def end(self, index: int) -> None:
        """Event `index` is over."""
        ...

    def stop(self) -> Times:
        """The step is over: waits for the device, and says when everything was."""
        ...


class CpuClock:
    """The monotonic clock, which all processes of a machine share."""

    def __init__(self, events: int) -> None:
        self.starts = [-1] * events
        self.ends = [-1] * events
        self.begun = 0

    def start(self) -> None:
        """The step begins."""
        self.begun = time.perf_counter_ns()

    def begin(self, index: int) -> None:
        """Event `index` begins."""
        self.starts[index] = time.perf_counter_ns()

    def end(self, index: int) -> None:
        """Event `index` is over."""
        self.ends[index] = time.perf_counter_ns()

    def stop(self) -> Times:
        """The step is over."""
        return self.starts, self.ends, self.begun, time.perf_counter_ns()


class CudaClock:
    """Events on the GPU's own stream of work: the times at which it was done, not at which it was asked for."""

    def __init__(self, events: int) -> None:
        self.starts: list[torch.cuda.Event | None] = [None] * events
        self.ends: list[torch.cuda.Event | None] = [None] * events
        self.base = torch.cuda.Event(enable_timing=True)
        self.begun = 0

    def start(self) -> None:
        """The step begins: the device is idle, so that the first event happens now."""
        torch.cuda.synchronize()
        self.begun = time.perf_counter_ns()
        self.base.record()

    def begin(self, index: int) -> None:
        """Event `index` begins when the device comes to this point."""
        self.starts[index] = self._mark()

    def end(self, index: int) -> None:
        """Event `index` is over when the device comes to this point."""
        self.ends[index] = self._mark()

    def _mark(self) -> torch.cuda.Event:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark

    def stop(self) -> Times:
        """Waits for the device."""
        torch.cuda.synchronize()
        over = time.perf_counter_ns()
        return [self._time(m) for m in self.starts], [self._time(m) for m in self.ends], self.begun, over

    def _time(self, mark: torch.cuda.Event | None) -> int:
        return -1 if mark is None else self.begun + round(self.base.elapsed_time(mark) * 1e6)


class Ranges:
    """The ranges of a rank's step: at which event each begins and ends, and what it is called."""

    def __init__(self, context: RankContext) -> None:
        actions = actions_of(context.plan.trace)
        self.names = {
            index: (f"{OWN}{event.op}:{'' if event.layer is None else event.layer}:{ranges(event.batches)}", index)
            for index, event in enumerate(context.mine.program.events)
            if event.op in TIMED or event.op == "wait"
        }
        for done in () if actions is None else actions[context.rank]:
            for index in range(done.first, done.last + 1):
                self.names.pop(index, None)
            self.names[done.first] = f"{PREFIX}{done.action}", done.last
        self.open: Any = None
        self.until = -1

    def begin(self, index: int) -> None:
        """An event begins, and perhaps a range with it."""
        if index in self.names:
            name, self.until = self.names[index]
            self.open = record_function(name)
            self.open.__enter__()

    def end(self, index: int) -> None:
        """An event is over, and perhaps a range with it."""
        if self.open is not None and index == self.until:
            self.open.__exit__(None, None, None)
            self.open = None


class Profile:
    """What torch.profiler records of a rank between start and stop, as a file in the folder of profiles."""

    def __init__(self, context: RankContext, name: str) -> None:
        self.path = Path(context.options.profile or ".", f"{name}_rank{context.rank}.json")
        self.on_gpu = context.device.type == "cuda"
        on_gpu = [ProfilerActivity.CUDA] if self.on_gpu else []
        self.profiler = profile(activities=[ProfilerActivity.CPU, *on_gpu])

    def start(self) -> None:
        """Starts to record, which takes a while."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.profiler.start()

    def stop(self) -> None:
        """Waits for the device, and writes the file."""
        if self.on_gpu:
            torch.cuda.synchronize()
        self.profiler.stop()
        self.profiler.export_chrome_trace(str(self.path))


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
    from lib.replay.rank.steps import Profile, Ranges

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
