"""Traces of torch.profiler: what ranges, operations, kernels and collectives become, on which clock, of which step.

The files are made up here, in the form that torch 2.13 writes; `tests/replay/test_profile.py` has real ones.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lib.analysis.recordings.recording import COMPUTE, Recording, departures
from lib.errors.exceptions import TraceError
from lib.schedules.formats.timelines.kineto import our_name, read_profile
from lib.schedules.formats.timelines.recorded import order_of_recording, recording_of_order
from lib.schedules.pipelines.action import parse
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.timing import time_order

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
    order = SCHEDULES[name].make(4, batches)
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


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_order_comes_back(name: str, tmp_path: Path) -> None:
    order = SCHEDULES[name].make(4, 6)
    found = read_profile(list(reversed(profile_of(tmp_path, name))))
    assert order_of_recording(found) == order
    schedule = recording_of_order(order)
    assert departures(schedule, found) == []
    assert len(found.messages) == len(schedule.messages) > 0
    assert found.notes == ("Clocks: each file's own base time.",)


def test_a_departure_names_rank_and_position(tmp_path: Path) -> None:
    found = read_profile(profile_of(tmp_path, "gpipe"), "run")
    gaps = departures(recording_of_order(SCHEDULES["one_f_one_b"].make(4, 6), "1F1B"), found)
    assert [gap.words("1F1B", "run") for gap in gaps] == [
        "rank 0, position 4: 1F1B has 0B0, run has 0F4",
        "rank 1, position 3: 1F1B has 1B0, run has 1F3",
        "rank 2, position 2: 1F1B has 2B0, run has 2F2",
        "rank 3, position 1: 1F1B has 3B0, run has 3F1",
    ]


def test_one_step_of_several(tmp_path: Path) -> None:
    files = profile_of(tmp_path, "gpipe", steps=3)
    last, first = read_profile(files), read_profile(files, step=0)
    assert last.spans == first.spans
    assert last.notes[0] == "Step 2 of 3 that were recorded."
    assert order_of_recording(last) == SCHEDULES["gpipe"].make(4, 6)
    with pytest.raises(TraceError, match="there is no step 3: these files have 3 steps, numbered from 0"):
        read_profile(files, step=3)


def test_a_step_that_the_profiler_marks(tmp_path: Path) -> None:
    events = [at(f"ProfilerStep#{n}", 100 * n, 100 * n + 90) for n in (4, 5)]
    events += [at("aten::mm", 100 * n + 10 * n, 100 * n + 60, "cpu_op") for n in (4, 5)]
    files = [write(tmp_path / "a.json", events, 0)]
    assert [span.end for span in read_profile(files).spans] == [10_000]
    assert [span.end for span in read_profile(files, step=0).spans] == [20_000]
    with pytest.raises(TraceError, match="these files do not say where steps begin"):
        read_profile([write(tmp_path / "b.json", events[2:], 0)], step=1)


def test_what_a_file_says_of_itself_is_not_believed(tmp_path: Path) -> None:
    events = [at("PP:0F0", 0, 1), at(f"PP:0F{10**30}", 1, 2), at(f"PP:{'9' * 5000}F0", 2, 3)]
    path = write(tmp_path / "a.json", events, 10**9, 2**200)
    found = read_profile([path])
    assert found.ranks == 1
    assert found.notes[0].startswith("a.json: no rank is named there")
    assert found.passes(0) == ["0F0", f"0F{10**30}"]


def test_clocks_that_differ_are_moved_until_nothing_is_used_before_it_was_made(tmp_path: Path) -> None:
    files = profile_of(tmp_path, "one_f_one_b", late=(40, 0, 25, 0))
    found = read_profile(files)
    passes = {span.word: span for span in found.spans}
    for microbatch in range(6):
        ends = [passes[f"{stage}F{microbatch}"].end for stage in range(4)]
        assert ends == sorted(ends)
    assert found.notes[1].startswith("Ranks 1, 3 moved later, by up to 0.0")


def test_without_base_times_the_first_collective_or_the_start_is_one_moment(tmp_path: Path) -> None:
    work = [[at("aten::mm", 5, 9, "cpu_op"), at("gloo:all_reduce", 10 + r, 20 + 100 * r)] for r in range(2)]
    files = [write(tmp_path / f"{r}.json", work[r], r, None) for r in range(2)]
    found = read_profile(files)
    ends = {span.rank: span.end for span in found.spans if span.op == "allreduce"}
    assert ends[0] == ends[1]
    assert found.notes[0] == "Clocks: the end of the first gloo:all_reduce of all ranks is taken as one moment."
    files = [write(tmp_path / f"{r}.json", work[r][:1], r, None) for r in range(2)]
    assert read_profile(files).notes[0] == "Clocks: all ranks are taken to begin at one moment."


def test_a_range_begins_with_waiting_for_its_message(tmp_path: Path) -> None:
    events = [
        at("PP:1F0", 0, 100),
        at("aten::linear", 70, 95, "cpu_op"),
        at("PP:1F1", 100, 140),
        at("aten::linear", 105, 135, "cpu_op"),
        at("PP:1RECV_F2", 140, 145),
        at("PP:1UNSHARD", 145, 146),
    ]
    found = read_profile([write(tmp_path / "a.json", events, 0)])
    assert [(span.op, span.name, span.start, span.end) for span in found.spans] == [
        ("wait", "waits for what 1F0 needs", 0, 65_000),
        ("forward", "PP:1F0", 65_000, 100_000),
        ("forward", "PP:1F1", 100_000, 140_000),
        ("receive", "PP:1RECV_F2", 140_000, 145_000),
    ]


def test_a_pair_is_parted_where_autograd_begins(tmp_path: Path) -> None:
    events = [
        at("PP:(0F7;7B3)OVERLAP_F_B", 0, 100),
        at("aten::mm", 0, 30, "cpu_op"),
        at("autograd::engine::evaluate_function: MmBackward0", 40, 99, "cpu_op"),
    ]
    found = read_profile([write(tmp_path / "a.json", events, 0)])
    assert [(span.word, span.start, span.end) for span in found.spans] == [("0F7", 0, 40_000), ("7B3", 40_000, 100_000)]
    whole = read_profile([write(tmp_path / "b.json", events[:1], 0)])
    assert whole.passes(0) == ["0F7", "7B3"]


def test_gpipe_of_torch_names_no_stage(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{r}.json", [at("Forward 0", 0, 1), at("Backward 0", 5, 9)], r) for r in range(2)]
    assert order_of_recording(read_profile(files)) == (parse("0F0 0B0"), parse("1F0 1B0"))


def test_ranges_of_a_replay_that_is_no_pipeline(tmp_path: Path) -> None:
    events = [at("puzzles:forward:3:0-1", 0, 5), at("puzzles:allgather:4:", 5, 7), at("puzzles:evil:x:y:z", 8, 9)]
    found = read_profile([write(tmp_path / "a.json", events, 0)])
    assert [(span.op, span.stage, span.label) for span in found.spans] == [
        ("forward", 3, "0-1"),
        ("allgather", 4, ""),
        ("", None, "y"),
    ]
    assert not found.has_order
    assert found.notes[-1] == "No range is named as an action (PP:3F1), so these boxes have no order."


def test_kernels_of_a_gpu_and_collectives_of_nccl(tmp_path: Path) -> None:
    events = [
        at("aten::mm", 0, 1, "cpu_op"),
        at("nccl:all_gather", 0, 1),
        at("sm90_gemm", 10, 500, "kernel", 7),
        at("elementwise", 500, 510, "kernel", 7),
        at("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", 100, 400, "kernel", 20),
        at("sm90_gemm", 600, 700, "kernel", 7),
    ]
    found = read_profile([write(tmp_path / "a.json.gz", events, 0)])
    assert [(span.op, span.stream, span.start // 1000, span.end // 1000) for span in found.spans] == [
        ("", COMPUTE, 0, 500),
        ("allgather", "communication", 90, 390),
        ("", COMPUTE, 590, 690),
    ]
    assert found.busy == (600_000,)


def test_backward_and_update_are_what_torch_says_of_them(tmp_path: Path) -> None:
    events = [
        at("aten::linear", 0, 10, "cpu_op"),
        at("autograd::engine::evaluate_function: MmBackward0", 20, 50, "cpu_op"),
        at("Optimizer.step#SGD.step", 60, 80),
        at("aten::add_", 61, 79, "cpu_op"),
        at("c10d::allreduce_", 85, 86, "cpu_op"),
    ]
    assert [span.op for span in read_profile([write(tmp_path / "a.json", events, 0)]).spans] == [
        "",
        "backward",
        "update",
    ]


def test_files_have_to_be_of_different_ranks(tmp_path: Path) -> None:
    one, other = (write(tmp_path / name, [at("PP:0F0", 0, 1)], 2) for name in ("a.json", "b.json"))
    with pytest.raises(TraceError, match=r"a\.json and b\.json are both of rank 2: give one file for each rank"):
        read_profile([one, other])
    with pytest.raises(TraceError, match="at least one file"):
        read_profile([])
    with pytest.raises(TraceError, match=r"nothing was done in c\.json"):
        read_profile([write(tmp_path / "c.json", [], 0)])
    nameless = read_profile([write(tmp_path / f"{n}.json", [at("PP:0F0", 0, 1)]) for n in "xy"])
    assert nameless.ranks == 2
    assert nameless.notes[0] == "x.json, y.json: no rank is named there, so files are numbered as they were given."


def test_what_torch_calls_communication_has_our_names() -> None:
    theirs = ("all_reduce", "_all_gather_base", "reduce_scatter_tensor_coalesced", "AllReduce", "ReduceScatter", "send")
    assert [our_name(name) for name in theirs] == [
        "allreduce",
        "allgather",
        "reduce_scatter_tensor_coalesced",
        "allreduce",
        "scatterreduce",
        "pass_to",
    ]


def test_an_empty_recording_has_figures_too() -> None:
    nothing = Recording("nothing", (), 2)
    assert (nothing.end, nothing.bubble, nothing.forward, nothing.busy) == (0, 0.0, None, (0, 0))
    with pytest.raises(ValueError, match="has no order"):
        order_of_recording(nothing)
