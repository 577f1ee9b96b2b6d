"""What one rank does from its start to its report: the step once to be compared, then unmeasured, then measured.

An operation that waits for others is timed from the call to the moment at which the rank goes on. One that runs in the
background ends when that is noticed: at its wait, or at the first operation before which it was found to be over.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from lib.errors.wording import ranges
from lib.replay.rank.context import RankContext
from lib.replay.rank.interpreter import Interpreter
from lib.replay.rank.transport import Handle
from lib.schedules.formats.timelines.actions import actions_of
from lib.schedules.formats.timelines.kineto import OWN, PREFIX
from lib.values.operations import TIMED

__all__ = ["Clock", "CpuClock", "CudaClock", "Ranges", "Report", "Times", "steps"]

Times = tuple[list[int], list[int], int, int]
"""Starts and ends of all events, and of the whole step, in nanoseconds of `time.perf_counter_ns`. -1: never."""


class CpuClock:
    """A clock for one step of one rank: the monotonic clock, which all processes of a machine share."""

    def __init__(self, events: int) -> None:
        self.starts = [-1] * events
        self.ends = [-1] * events
        self.begun = 0

    def start(self) -> None:
        """Begin the step."""
        self.begun = time.perf_counter_ns()

    def begin(self, index: int) -> None:
        """Note that event `index` begins."""
        self.starts[index] = time.perf_counter_ns()

    def end(self, index: int) -> None:
        """Note that event `index` is over."""
        self.ends[index] = time.perf_counter_ns()

    def stop(self) -> Times:
        """End the step, once the device is done, and say when everything was."""
        return self.starts, self.ends, self.begun, time.perf_counter_ns()


class CudaClock:
    """The same by events on the GPU's own stream of work: when it was done, not when it was asked for."""

    def __init__(self, events: int) -> None:
        self.starts: list[torch.cuda.Event | None] = [None] * events
        self.ends: list[torch.cuda.Event | None] = [None] * events
        self.base = torch.cuda.Event(enable_timing=True)
        self.begun = 0

    def start(self) -> None:
        torch.cuda.synchronize()  # the device is idle, so that the first event happens now
        self.begun = time.perf_counter_ns()
        self.base.record()

    def begin(self, index: int) -> None:
        self.starts[index] = self._mark()

    def end(self, index: int) -> None:
        self.ends[index] = self._mark()

    def _mark(self) -> torch.cuda.Event:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark

    def stop(self) -> Times:
        torch.cuda.synchronize()
        over = time.perf_counter_ns()
        return [self._time(m) for m in self.starts], [self._time(m) for m in self.ends], self.begun, over

    def _time(self, mark: torch.cuda.Event | None) -> int:
        return -1 if mark is None else self.begun + round(self.base.elapsed_time(mark) * 1e6)


Clock = CpuClock | CudaClock


Report = dict[str, Any]
"""Plain data, so that it can go home as JSON."""


def steps(context: RankContext, report: Report) -> Iterator[Handle]:
    """Do all that a rank does, as a generator of what it waits for. Fills `report`.

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
    if (folder := context.options.profile) is not None:
        yield from _profiled(context, Path(folder), library_steps)
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


# -- one more step for torch.profiler ---------------------------------------------------------------------------------


def _profiled(context: RankContext, folder: Path, library_steps: list[Any]) -> Iterator[Handle]:
    """One more step of the replay, and of each library, that torch.profiler records: a file of each for each rank.

    Ranges are named as torch's pipeline executor does, and `lib.schedules.formats.timelines.kineto` reads such files.
    """
    activities = [ProfilerActivity.CPU]
    if context.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    for library in (None, *library_steps):
        profiler = profile(activities=activities)
        interpreter = Interpreter(context, _clock(context), ranges=Ranges(context))
        profiler.start()
        yield from _wait(context.transport.barrier())
        if library is None:
            yield from interpreter.run()
        else:
            library.run()
        if context.device.type == "cuda":
            torch.cuda.synchronize()
        profiler.stop()
        name = "replay" if library is None else library.name
        profiler.export_chrome_trace(str(folder / f"{name}_rank{context.rank}.json"))


class Ranges:
    """The ranges of a rank's step: at which event each begins and ends, and what it is called.

    What belongs to an action of a pipeline is in one range, `PP:3F1`; anything else has a range of its own, such as
    `puzzles:update:3:`, with its layer and batches.
    """

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
        """Begin a range, if one begins with this event."""
        if index in self.names:
            name, self.until = self.names[index]
            self.open = record_function(name)
            self.open.__enter__()

    def end(self, index: int) -> None:
        """End the range that ends with this event."""
        if self.open is not None and index == self.until:
            self.open.__exit__(None, None, None)
            self.open = None
