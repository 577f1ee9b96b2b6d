"""Traces of torch.profiler: what ranges, operations and collectives become, on which clock, of which step.

The files are made up here, in the form that torch 2.13 writes; the last test has one of torch's own.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from lib.analysis.recording import Recording, Span, departures
from lib.errors.exceptions import TraceError
from lib.schedules.formats.chrome import our_name, read_profile, read_slices
from lib.schedules.formats.trace import order_of_recording, recording_of_order
from lib.schedules.pipelines.action import parse
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.timing import time_order
from tests.support.said import Said

Event = dict[str, Any]


def at(name: str, start: float, end: float, category: str = "user_annotation", thread: int = 1) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": thread, "ts": start, "dur": end - start}


def write(path: Path, events: Sequence[Event], rank: int | None = None, base: int | None = 0) -> Path:
    data: dict[str, Any] = {"schemaVersion": 1, "traceEvents": list(events)}
    if rank is not None:
        data["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": 4}
    if base is not None:
        data["baseTimeNanoseconds"] = base
    text = json.dumps(data).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def profile_of(
    folder: Path, name: str, batches: int = 6, steps: int = 1, late: Sequence[int] = (0, 0, 0, 0)
) -> list[Path]:
    """A profile of a schedule on four ranks, whose clocks are late by so many microseconds."""
    order = SCHEDULES[name].order(4, batches)
    timed = time_order(order)
    files: list[Path] = []
    for rank, actions in enumerate(order):
        spans = list(zip(actions, timed.starts[rank], timed.ends[rank], strict=True))
        events = [
            at(f"PP:{action}", 1000 * step + 10 * a + late[rank], 1000 * step + 10 * b + late[rank])
            for step in range(steps)
            for action, a, b in spans
        ]
        files.append(write(folder / f"rank{rank}.json", events, rank))
    return files


def read(
    *files: Sequence[Event], ranks: Sequence[int | None] = (0, 1), base: int | None = 0, step: int | None = None
) -> str:
    """What is read of files with these events: the spans in microseconds, the order if there is one, and the notes."""
    with TemporaryDirectory() as folder:
        paths = [write(Path(folder, f"{'abc'[n]}.json"), events, ranks[n], base) for n, events in enumerate(files)]
        found = read_profile(paths, step=step)
    said = [
        f"rank {span.rank}, {span.stream}: {span.start / 1000:g} to {span.end / 1000:g} "
        f"{span.op or 'other'} {span.word or span.name} {span.stage} {span.label}".rstrip()
        for span in found.spans
    ]
    order = [" ".join(map(str, actions)) for actions in order_of_recording(found)] if found.has_order else []
    return "\n".join([*said, *order, *found.notes])


def gaps(name: str, other: str) -> str:
    with TemporaryDirectory() as folder:
        found = read_profile(profile_of(Path(folder), name), "run")
    return "\n".join(
        gap.words(other, "run") for gap in departures(recording_of_order(SCHEDULES[other].order(4, 6)), found)
    )


test_what_is_read = Said(__file__, "profiles").test(lambda: globals() | {"our_name": our_name, "Recording": Recording})


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_order_comes_back(name: str, tmp_path: Path) -> None:
    order = SCHEDULES[name].order(4, 6)
    found = read_profile(list(reversed(profile_of(tmp_path, name))))
    assert order_of_recording(found) == order
    schedule = recording_of_order(order)
    assert departures(schedule, found) == []
    assert len(found.messages) == len(schedule.messages) > 0
    assert found.notes == ("Clocks: each file's own base time.",)


def test_one_step_of_several(tmp_path: Path) -> None:
    files = profile_of(tmp_path, "gpipe", steps=3)
    last, first = read_profile(files), read_profile(files, step=0)
    assert last.spans == first.spans
    assert last.notes[0] == "Step 2 of 3 that were recorded."
    assert order_of_recording(last) == SCHEDULES["gpipe"].order(4, 6)
    with pytest.raises(TraceError, match="there is no step 3: these files have 3 steps, numbered from 0"):
        read_profile(files, step=3)


def test_clocks_that_differ_are_moved_until_nothing_is_used_before_it_was_made(tmp_path: Path) -> None:
    files = profile_of(tmp_path, "one_f_one_b", late=(40, 0, 25, 0))
    found = read_profile(files)
    passes = {span.word: span for span in found.spans}
    for microbatch in range(6):
        ends = [passes[f"{stage}F{microbatch}"].end for stage in range(4)]
        assert ends == sorted(ends)
    assert found.notes[1].startswith("Ranks 1, 3 moved later, by up to 0.0")


def test_a_file_of_torch_itself(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch.profiler is torch's")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for word in ("0F0", "0F1", "0B0", "0B1"):
            with torch.profiler.record_function(f"PP:{word}"):
                torch.mm(torch.ones(64, 64), torch.ones(64, 64))
    profiler.export_chrome_trace(str(tmp_path / "rank0.json"))
    found = read_profile([tmp_path / "rank0.json"])
    assert order_of_recording(found) == (parse("0F0 0F1 0B0 0B1"),)
    assert {span.op for span in found.spans} >= {"forward", "backward"}


def test_a_small_file_that_unpacks_to_a_huge_one_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lib.schedules.formats.chrome.MAX_BYTES", 10_000)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 1_000_000))
    with pytest.raises(TraceError, match="larger than"):
        read_slices(path)
    with pytest.raises(TraceError, match="cannot be read"):
        read_slices(tmp_path / "missing.json")


def test_what_a_rank_does_at_the_same_time_keeps_it_busy_once() -> None:
    """Profilers put ranges in ranges, and runs have two streams of kernels."""
    times = ((0, 10, "forward"), (2, 5, ""), (8, 12, "backward"), (20, 30, "forward"), (11, 25, "wait"))
    spans = tuple(Span(0, start, end, op, op) for start, end, op in times)
    one = Recording("nested", (*spans, Span(1, 0, 30, "forward", "forward")), 2)
    assert one.busy == (22, 30)
    assert one.bubble == 1 - 52 / 60
