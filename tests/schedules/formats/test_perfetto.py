"""Files for Perfetto: what is in them, and that they obey the format."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lib import Links, Trace, simulate
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.formats.chrome import perfetto, write_perfetto
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
def test_what_is_written_obeys_the_format(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_perfetto(path, {name: RUNS[name], "again": RUNS[name]})
    data = json.loads(path.read_text("utf-8"))
    valid(data)
    assert data["otherData"] == {"writer": "llm-training-puzzles", "microseconds": 1000.0}
    titles = [event["args"]["name"] for event in data["traceEvents"] if event["name"] == "process_name"]
    assert titles == [f"{run}: rank {rank}" for run in (name, "again") for rank in range(4)]


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
    assert "data_parallel.py" in forward["args"]["source"] or "given.py" in forward["args"]["source"]
