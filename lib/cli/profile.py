"""`puzzles profile`: what was recorded of a real run, beside the schedule that it was to be."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from lib.analysis.recordings.recording import Recording
from lib.schedules.formats.timelines.kineto import read_profile
from lib.schedules.formats.timelines.perfetto import is_ours, read_perfetto
from lib.schedules.formats.timelines.recorded import costs_of, order_of_recording, recording_of, recording_of_order
from lib.schedules.pipelines.action import batches_of
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.trace.trace import Trace

__all__ = ["expected", "recorded"]


def recorded(files: Sequence[Path], step: int | None = None) -> list[Recording]:
    """The recordings in some files: one of torch.profiler's, a file a rank; or all that are in files for Perfetto that
    we wrote."""
    ours = [path for path in files if is_ours(path)]
    if not ours:
        return [read_profile(files, _named(files), step)]
    return [one for path in ours for one in read_perfetto(path).values()]


def _named(files: Sequence[Path]) -> str:
    """What the first file is called, without its rank: replay_rank0.json -> replay."""
    return re.sub(r"[_.-]*(rank)?[_.-]*\d*$", "", files[0].name.partition(".")[0]) or "profile"


def expected(schedule: str, found: Recording, run: Callable[[str], Trace]) -> Recording:
    """The schedule that a recording is compared with: a run, or one with a name, of the recording's own size, timed
    with its median passes. ValueError where the recording names no microbatches."""
    if schedule not in SCHEDULES:
        return recording_of(run(schedule), Path(schedule).stem)
    row = SCHEDULES[schedule]
    if not found.has_order:
        raise ValueError(f"{found.name} names no microbatches, so {row.title} has no size to be compared at")
    batches = batches_of(order_of_recording(found))
    if batches * found.ranks > len(found.spans):
        raise ValueError(f"{found.name} names microbatch {batches - 1}, and not all that come before it")
    return recording_of_order(row.make(found.ranks, batches), row.title, **costs_of(found))
