"""The measured Trace is a Trace: it can be saved, drawn, compared, exported; and costs can be fitted to it."""

import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from lib import Trace, check
from lib.analysis.figures import end, samples
from lib.cluster.costs import TICKS
from lib.replay import ReplayResult, replay
from lib.schedules.formats.chrome import perfetto
from lib.trace.event import Event
from lib.trace.lifetimes import own_lifetimes
from tests.replay.hooks import hooked
from tests.replay.schedules import trace

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")


@pytest.fixture(scope="module")
def measured() -> dict[str, ReplayResult]:
    names = ("fsdp", "overlapped", "one_f_one_b")
    return {name: replay(trace(name), hidden=32, length=16, steps=3, timeout=120) for name in names}


@pytest.mark.parametrize("name", ["fsdp", "overlapped", "one_f_one_b"])
def test_it_has_the_same_events_with_other_times(name: str, measured: dict[str, ReplayResult], tmp_path: Path) -> None:
    result = measured[name]
    assert len(result.seconds) == 3
    for before, after in zip(trace(name).programs, result.measured.programs, strict=True):
        now = 0
        for old, new in zip(before.events, after.events, strict=True):
            same = (old.op, old.inputs, old.outputs, old.group, old.peer, old.blocking, old.arg)
            assert same == (new.op, new.inputs, new.outputs, new.group, new.peer, new.blocking, new.arg)
            assert new.issued >= now, "a rank's clock never runs back"
            assert new.start is not None
            assert new.start >= new.issued
            assert new.length >= 0
            now = new.issued
        # What is in flight follows from when messages are received, and that is measured: the rest is the same.
        assert own_lifetimes(before) == own_lifetimes(after)
        if name == "fsdp":
            curves = [[one.by_kind for one in samples(run, before.rank)] for run in (trace(name), result.measured)]
            assert curves[0] == curves[1]
    assert 0.7 * min(result.seconds) < end(result.measured) * result.unit < 1.4 * max(result.seconds)
    result.measured.save(tmp_path / "measured.json")
    assert check(Trace.load(tmp_path / "measured.json")).correct


def test_members_of_a_collective_start_together(measured: dict[str, ReplayResult]) -> None:
    for result in (measured["fsdp"], measured["overlapped"]):
        columns = zip(*(p.events for p in result.measured.programs), strict=True)  # these ranks all do the same
        for members in columns:
            if members[0].group:
                latest = max(event.issued for event in members)
                assert all(event.start == min(latest, event.end or 0) for event in members)


def test_who_sends_goes_on(measured: dict[str, ReplayResult]) -> None:
    """A message is over for its sender when it goes on, not when somebody comes to receive it."""
    for program in measured["one_f_one_b"].measured.programs:
        for event, following in zip(program.events, program.events[1:], strict=False):
            if event.op == "pass_to" and event.blocking:
                assert event.end is not None
                assert event.end <= following.issued


def test_one_step_is_the_median_forward_of_a_batch(measured: dict[str, ReplayResult]) -> None:
    result = measured["one_f_one_b"]
    forwards = [event.length / TICKS for _, event in result.measured.events() if event.op == "forward"]
    assert 1 / 4 < median(forwards) < 4, "the machine may be busy"


def test_bytes_on_the_wire_are_counted_by_the_kernel(measured: dict[str, ReplayResult]) -> None:
    """Gloo sends what a ring sends, and a little of its own; its reduce-scatter is an all-reduce, twice as much."""
    pipeline, sharded = measured["one_f_one_b"], measured["fsdp"]
    if pipeline.ranks[0].wire is None:
        pytest.skip("this system does not count the bytes of a connection")
    for result, most in ((pipeline, 1.2), (sharded, 2)):
        for one in result.ranks:
            assert one.wire is not None
            assert one.sent <= one.wire < most * one.sent + 4096
            assert f"{one.wire:,}" in result.text()


def test_the_table_has_simulated_beside_measured(measured: dict[str, ReplayResult]) -> None:
    text = measured["fsdp"].text()
    for word in ("forward", "allgather", "scatterreduce", "whole step", "37.80", "simulated", "measured", "Correct:"):
        assert word in text
    data = json.loads(json.dumps(measured["fsdp"].to_json()))
    assert data["simulated_steps"] == 37.8
    assert data["options"]["hidden"] == 32
    assert data["operations"][0]["op"] == "forward"


def test_perfetto_shows_both_on_one_axis(measured: dict[str, ReplayResult]) -> None:
    result = measured["one_f_one_b"]
    data = json.loads(json.dumps(perfetto(simulated=result.simulated, measured=result.measured)))
    events = data["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {f"{which}: rank {rank}" for which in ("simulated", "measured") for rank in range(4)}
    drawn = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in drawn)
    simulated = [event for event in drawn if event["pid"] < 4]
    assert max(event["ts"] + event["dur"] for event in simulated) == pytest.approx(1000 * end(result.simulated))
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} >= {
        "compute",
        "network: to rank 1",
    }
    assert any(event["ph"] == "C" and event["args"].get("weight") for event in events)


def test_the_command_writes_everything(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from lib.replay.__main__ import main

    trace("ddp").save(tmp_path / "ddp.json")
    arguments = [str(tmp_path / "ddp.json"), "--transport", "local", "--hidden", "16", "--length", "8"]
    outputs = {name: tmp_path / f"out_{name}.json" for name in ("json", "save", "perfetto")}
    for name, path in outputs.items():
        arguments += [f"--{name}", str(path)]
    assert main(arguments) == 0
    said = capfd.readouterr().out
    assert "Correct: the same as ordinary training in one process." in said
    assert all(json.loads(path.read_text()) for path in outputs.values())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this policy")
def test_ranks_use_up_their_turns_on_a_core_and_this_process_need_not() -> None:
    before = os.sched_getscheduler(0)

    def look(rank: int, index: int, event: Event, tensors: dict[int, Any]) -> None:
        threads = {one.parent.name: one.read_text() for one in Path("/proc/self/task").glob("*/comm")}
        some = [int(number) for number, name in threads.items() if "gloo" in name]
        assert some, "gloo has threads of its own"
        assert {os.sched_getscheduler(one) for one in (0, *some)} == {os.SCHED_BATCH}

    assert hooked(trace("fsdp"), look, hidden=16, length=8).ok
    assert os.sched_getscheduler(0) == before
