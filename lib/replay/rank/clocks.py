"""When each operation of a rank began and ended: on the CPU by the monotonic clock, on a GPU by CUDA events.

An operation that waits for others is timed from the call to the moment at which the rank goes on. One that runs in the
background ends when that is noticed: at its wait, or at the first operation before which it was found to be over.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import time
from typing import Protocol

import torch

__all__ = ["Clock", "CpuClock", "CudaClock", "Times"]

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
