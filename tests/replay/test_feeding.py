"""Processes read a data set for real, and the examples of every device are looked at."""

import json
from pathlib import Path

import pytest

from lib import Mesh
from lib.analysis.feeding import examples_read
from lib.errors.exceptions import PuzzleError
from lib.replay import Feeding, ReplayError, WrongWorld, feed, replay
from lib.replay.rank.context import Examples
from lib.suite.course.subject import Stub, feedings
from lib.suite.submissions.load import SourceError
from lib.suite.submissions.locations import reference
from tests.replay.schedules import trace
from tests.support.profiles import sample

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

TURNED = Mesh(
    {"data": 4, "model": 4}, ranks=[0, 1, 4, 5, 8, 9, 12, 13, 10, 11, 14, 15, 2, 3, 6, 7], processes=4, host_size=8
)
"""Sixteen devices in no order."""
SMALLEST = Mesh({"data": 3, "model": 2}, ranks=[0, 2, 3, 4, 1, 5], processes=2)
"""The smallest mesh for which the published mapping is wrong."""


def in_parts(mesh: Mesh, batch: int, parts: list[int]) -> Feeding:
    """Process p reads part parts[p] of as many as there are: every n-th example."""
    return Feeding(mesh, batch, {p: range(part, batch, max(parts) + 1) for p, part in enumerate(parts)})


def by_index(mesh: Mesh, batch: int) -> Feeding:
    """Each process reads the examples of its rows."""
    rows = mesh.rows("data")
    each, reads = batch // len(rows), {process: list[int]() for process in range(len(mesh.processes))}
    for number, row in enumerate(rows):
        for process in {mesh.process(device) for device in row}:
            reads[process] += range(number * each, (number + 1) * each)
    return Feeding(mesh, batch, reads)


def test_devices_in_no_order() -> None:
    result = feed(in_parts(TURNED, 16, [0, 0, 1, 1]))
    assert result.ok, result.text()
    rows = ((0, 2, 4, 6), (1, 3, 5, 7), (9, 11, 13, 15), (8, 10, 12, 14))
    for examples, row in zip(rows, TURNED.rows("data"), strict=True):
        assert [result.held[device] for device in row] == [examples] * 4
    assert result.needed == (8, 8, 8, 8)
    assert [one.examples for one in result.read] == [8, 8, 8, 8]  # 4 devices, 4 examples each: 16 if each read its own
    assert [one.bytes for one in result.read] == [8 * 520] * 4
    assert "process 1 (devices 4-7) feeds rows 0 and 3: read 8 examples of 16, 4,160 bytes; its rows" in result.text()


def test_the_published_mapping_is_wrong_for_the_smallest_mesh() -> None:
    published = {0: [0, 2, 4], 1: [0, 2, 4], 2: [1, 3, 5]}
    pieces = {0: [0, 2], 2: [0, 2], 3: [4], 4: [1, 3], 1: [4], 5: [5]}
    result = feed(Feeding(SMALLEST, 6, published, pieces))
    assert not result.ok
    assert result.faults == (
        "devices 3 and 4 stand in row 1 and hold different examples",
        "devices 1 and 5 stand in row 2 and hold different examples",
        "rows 1 and 2 hold the same example",
    )
    assert "row 1 (device 3): example 4\nrow 1 (device 4): examples 1 and 3" in result.text()
    assert "WRONG: rows 1 and 2 hold the same example" in result.text()
    right = feed(by_index(SMALLEST, 6))
    assert right.ok, right.text()
    assert [one.examples for one in right.read] == list(right.needed) == [4, 4, 4]


def test_the_answers_to_the_puzzles_about_mapping(capfd: pytest.CaptureFixture[str]) -> None:
    """What `puzzles replay` feeds: every row of their tables. The published mapping is wrong in the last one."""
    *published, last = feedings("process_map") or []
    by_rows = feedings("fix_the_map") or []
    assert (len(published), len(by_rows)) == (6, 4)
    for feeding in (*sample(published), *sample(by_rows)):
        result = feed(feeding)
        assert result.ok, result.text()
        assert tuple(one.examples for one in result.read) == result.needed
    assert feed(last).faults[-1] == "rows 1 and 2 hold the same example"
    assert feedings("ddp") is None
    with pytest.raises(SourceError, match="the answer to local_devices is a plain function, and feeds no mesh"):
        feedings("local_devices")


def test_only_right_answers_are_fed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = reference("fix_the_map").read_text()
    wrong, unsolved = tmp_path / "wrong_fix_the_map.py", tmp_path / "fix_the_map.py"
    wrong.write_text(text.replace("range(number * each, (number + 1) * each)", "range(each)"))
    unsolved.write_text(
        'from lib import NotSolved\ndef fix_the_map(grid, per_process, batch):\n    raise NotSolved("fix_the_map")\n'
    )
    with pytest.raises(PuzzleError, match=r"fix_the_map\(\[\[\[0\], \[1\]\]\], 1, 4\) is not right"):
        feedings(str(wrong), puzzle="fix_the_map")
    with pytest.raises(Stub, match="fix_the_map is not solved yet"):
        feedings(str(unsolved), puzzle="fix_the_map")


def test_an_example_that_nobody_reads() -> None:
    mesh = Mesh({"data": 2})
    result = feed(Feeding(mesh, 4, {0: [0], 1: [2, 3]}))
    assert result.faults == ("no row has example 1",)


def test_a_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: Examples, number: int) -> bytes:
        raise FileNotFoundError(f"no example {number}")

    monkeypatch.setattr(Examples, "read", lost)
    with pytest.raises(ReplayError, match=r"process \d could not feed its devices: FileNotFoundError: no example"):
        feed(by_index(SMALLEST, 6))


@pytest.mark.parametrize("transport", ["local", "gloo"])
@pytest.mark.parametrize("name", ["fed", "fed_in_rows"])
def test_a_training_step_that_reads(name: str, transport: str) -> None:
    """Every step anew, but each example once a process: what the simulator says."""
    result = replay(trace(name), transport=transport, hidden=16, length=4, steps=2, timeout=120)
    assert result.ok, result.text()
    read = examples_read(trace(name))
    assert {process: one.examples for process, one in enumerate(result.processes)} == read
    assert [one.bytes for one in result.processes] == [8 * 16 * 4 * examples for examples in read.values()]
    assert "examples read  in bytes" in result.text()
    assert any(one.op == "read" for one in result.spreads)


def test_a_process_for_each_device_reads_for_itself() -> None:
    alone = replay(trace("fed_in_rows"), hidden=16, length=4, timeout=120, processes=8)
    assert alone.ok, alone.text()
    assert [one.examples for one in alone.processes] == [2] * 8


def test_as_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from lib.replay.feeding import main

    feeding = by_index(SMALLEST, 6)
    feeding.save(tmp_path / "feeding.json")
    assert Feeding.from_json(json.loads((tmp_path / "feeding.json").read_text())).to_json() == feeding.to_json()
    assert main([str(tmp_path / "feeding.json")]) == 0
    assert "Correct: every row has examples of its own." in capfd.readouterr().out
    (tmp_path / "feeding.json").write_text("{}")
    assert main([str(tmp_path / "feeding.json")]) == 1
    assert capfd.readouterr().err.startswith("ValueError: a feeding has mesh")
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(WrongWorld, match=r"the mesh has 3 processes, torchrun started 2: .* must be 3"):
        feed(feeding)
