"""Records one more step with torch.profiler, a file for each rank, with ranges named as torch's pipeline executor does.

What belongs to an action of a pipeline is in one range, `PP:3F1`; anything else has a range of its own, such as
`puzzles:update:3:`, with its layer and batches. `lib.schedules.formats.timelines.kineto` reads such files.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from lib.errors.wording import ranges
from lib.replay.rank.context import RankContext
from lib.schedules.formats.timelines.actions import actions_of
from lib.schedules.formats.timelines.kineto import OWN, PREFIX
from lib.values.operations import TIMED

__all__ = ["Profile", "Ranges"]


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
