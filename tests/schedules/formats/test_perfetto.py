"""Files for Perfetto: what is in them, that they obey the format, and that they are read back as what was written."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lib import Links, Trace, simulate
from lib.errors.exceptions import TraceError
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.formats.perfetto import is_ours, perfetto, read_perfetto, write_perfetto
from lib.schedules.formats.trace import order_of_recording, recording_of
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from tests.replay.schedules import overlapped
from tests.support.schedules import OTHERS, Case

RUNS = {
    "one_f_one_b": Trace.of(simulate(program_of(one_f_one_b(4, 6)), ranks=4, layers=8, batches=6)),
    "fsdp": Trace.of(simulate(fully_sharded(), ranks=4, layers=3, batches=4)),
    "overlapped": Trace.of(simulate(overlapped, ranks=4, layers=2, batches=4, costs=Links())),
}


def valid(data: dict[str, Any]) -> None:
    """The rules of the Trace Event Format that a viewer stumbles over."""
    slices: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    arrows: dict[str, list[tuple[str, float]]] = defaultdict(list)
    named: set[tuple[int, int]] = set()
    for event in data["traceEvents"]:
        assert event["ph"] in "XMCstf"
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            named.add((event["pid"], event.get("tid", -1)))
            continue
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert isinstance(event["name"], str)
            assert event["name"]
            assert event["dur"] >= 0
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "C":
            assert all(isinstance(amount, float) for amount in event["args"].values())
    for thread, mine in slices.items():
        assert thread in named
        ordered = sorted(mine)
        assert all(one[1] <= other[0] + 1e-6 for one, other in pairwise(ordered)), thread
    for event in data["traceEvents"]:
        if event["ph"] in "stf":
            around = slices[event["pid"], event["tid"]]
            assert any(start - 1e-6 <= event["ts"] <= end + 1e-6 for start, end in around), "an arrow hangs in the air"
            arrows[event["id"]].append((event["ph"], event["ts"]))
    for ends in arrows.values():
        assert "".join(kind for kind, _ in ends) == "s" + "t" * (len(ends) - 2) + "f"
        assert [time for _, time in ends] == sorted(time for _, time in ends)


@pytest.mark.parametrize("name", RUNS)
def test_what_is_written_is_read_back(name: str, tmp_path: Path) -> None:
    trace = RUNS[name]
    valid(json.loads(json.dumps(perfetto(first=trace, second=trace))))
    path = tmp_path / "run.json"
    write_perfetto(path, {name: trace, "again": trace})
    assert is_ours(path)
    assert read_perfetto(path) == {name: recording_of(trace, name), "again": recording_of(trace, "again")}


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_every_schedule_obeys_the_format(case: Case) -> None:
    valid(perfetto(run=Trace.of(case.run(simulate))))


def test_arrows_lead_from_sends_to_receives_and_between_members() -> None:
    events = perfetto(run=RUNS["one_f_one_b"])["traceEvents"]
    sends = [event for event in events if event["ph"] == "s"]
    assert len(sends) == 2 * 3 * 6
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks == {"pipeline", "compute"} | {
        f"network: {way} rank {rank}" for way in ("to", "from") for rank in range(4)
    }
    members = [event["ph"] for event in perfetto(run=RUNS["fsdp"])["traceEvents"] if event["ph"] in "stf"]
    assert members.count("t") == 2 * members.count("s") == 2 * members.count("f")


def test_an_event_says_its_layer_its_batches_and_its_line() -> None:
    events = perfetto(run=RUNS["fsdp"])["traceEvents"]
    forward = next(event for event in events if event.get("cat") == "forward" and event["args"]["layer"] == 1)
    assert forward["args"]["batches"] == "0"
    assert "data_parallel.py" in forward["args"]["source"] or "steps.py" in forward["args"]["source"]


@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b"])
def test_the_order_of_a_pipeline_comes_back(name: str, tmp_path: Path) -> None:
    order = SCHEDULES[name].make(4, 6)
    path = tmp_path / "run.json"
    write_perfetto(path, {"run": Trace.of(simulate(program_of(order), ranks=4, layers=4, batches=6))})
    assert order_of_recording(read_perfetto(path)["run"]) == order


def test_a_file_of_somebody_else_has_a_rank_for_each_process(tmp_path: Path) -> None:
    path = tmp_path / "theirs.json"
    events = [
        {"ph": "B", "pid": "worker b", "tid": 1, "name": "step", "ts": 0},
        {"ph": "E", "pid": "worker b", "tid": 1, "ts": 5.5},
        {"ph": "X", "pid": 7, "tid": 1, "name": "PP:3F1", "ts": "2", "dur": 3},
        {"ph": "i", "pid": 7, "name": "a mark", "ts": 1},
    ]
    path.write_text(json.dumps(events))
    (found,) = read_perfetto(path).values()
    assert [(span.rank, span.name, span.word, span.start, span.end) for span in found.spans] == [
        (0, "step", "", 0, 5500),
        (1, "PP:3F1", "3F1", 2000, 5000),
    ]
    assert found.unit is None


def test_a_small_file_that_unpacks_to_a_huge_one_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lib.schedules.formats.perfetto.MAX_BYTES", 10_000)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 1_000_000))
    with pytest.raises(TraceError, match="larger than"):
        read_perfetto(path)
    with pytest.raises(TraceError, match="cannot be read"):
        read_perfetto(tmp_path / "missing.json")


def test_arguments_of_a_forged_file_are_not_believed(tmp_path: Path) -> None:
    data = perfetto(run=RUNS["one_f_one_b"])
    for event in data["traceEvents"]:
        if event["ph"] == "X":
            event["args"] = {"action": "rm -rf", "layer": 10**30, "batches": "x" * 10**5}
            event["cat"] = "__import__"
    path = tmp_path / "forged.json"
    path.write_text(json.dumps(data))
    (found,) = read_perfetto(path).values()
    assert {(span.op, span.stage, span.word, len(span.label)) for span in found.spans} == {("", None, "", 40)}
    assert not found.has_order
