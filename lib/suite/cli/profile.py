"""`puzzles profile`: what was recorded of a real run, beside the schedule that it was to be."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from lib.analysis.recordings.recording import Recording
from lib.files import ready, write_whole
from lib.schedules.formats.orders import FORMATS, is_order_file, read_file, suffixes
from lib.schedules.formats.timelines.kineto import read_profile
from lib.schedules.formats.timelines.perfetto import is_ours, read_perfetto
from lib.schedules.formats.timelines.recorded import costs_of, order_of_recording, recording_of, recording_of_order
from lib.schedules.pipelines.action import Order, batches_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES, Named
from lib.schedules.pipelines.legality import illegal
from lib.schedules.pipelines.lowering import compute_only
from lib.trace.trace import Trace

__all__ = ["expected", "recorded", "write_order"]


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
    """The schedule that a recording is compared with: a run; or the order of a file, or one with a name, of the
    recording's own size, timed with its median passes. ValueError where the recording names no microbatches."""
    if schedule in SCHEDULES:
        row = SCHEDULES[schedule]
        return recording_of_order(_of_its_size(row, found), row.title, **costs_of(found))
    if is_order_file(schedule):
        order = compute_only(read_file(schedule).legal())
        return recording_of_order(order, Path(schedule).stem, **costs_of(found))
    return recording_of(run(schedule), Path(schedule).stem)


def _of_its_size(row: Named, found: Recording) -> Order:
    """The order of a schedule with a name, for as many ranks, microbatches and stages as were recorded."""
    if not found.has_order:
        raise ValueError(
            f"{found.name} names no microbatches, so {row.title} has no size to be compared at. torch's own 1F1B names "
            "nothing in a profile, and an order that torch loads from a file names each pass: puzzles schedule export "
            f"{row.name} --ranks {found.ranks} --batches N -o {row.name}.csv. Or give that file here, to see both as "
            f"they are: --schedule {row.name}.csv"
        )
    order = order_of_recording(found)
    batches, stages = batches_of(order), len(places(order))
    if batches * found.ranks > len(found.spans):
        raise ValueError(f"{found.name} names microbatch {batches - 1}, and not all that come before it")
    chunks = {"chunks": max(1, stages // found.ranks)} if "chunks" in row.takes else {}
    return row.make(found.ranks, batches, **chunks)


def write_order(path: Path, found: Recording) -> str:
    """Writes the order that was recorded, as `puzzles schedule export` does. Says whether it is legal."""
    form = next((row for row in FORMATS.values() if row.suffix == path.suffix.lower()), None)
    if form is None:
        raise ValueError(f"an order is written as {suffixes()}")
    order = order_of_recording(found)
    write_whole(ready(path), form.write(order).text)
    wrong = illegal(order)
    return f"Wrote {path}" + ("" if wrong is None else f", which is no whole step: {wrong}")
