"""Exploring schedules: the grid, the points, what nothing beats, and going on where one was."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Trace, check
from lib.analysis import figures
from lib.schedules.gallery import (
    AIMS,
    Grid,
    Point,
    Setting,
    cell,
    explore,
    front,
    measure,
    order_of,
    run_of,
    settings,
    worlds,
)
from lib.schedules.pipelines.catalogue import SCHEDULES

SMALL = Grid(
    ranks=(2, 4), batches=(4, 8), chunks=(1, 2), limit=(None, 2.0), messages=("posted", "awaited"), latency=(0.2,)
)


@pytest.fixture(scope="module")
def points() -> tuple[Point, ...]:
    return explore(SMALL)


def test_every_schedule_is_tried_with_the_stages_that_it_can_have(points: tuple[Point, ...]) -> None:
    assert {point.setting.schedule for point in points} == set(SCHEDULES)
    assert {point.setting.chunks for point in points if point.setting.schedule == "one_f_one_b"} == {1}
    assert {point.setting.chunks for point in points if point.setting.schedule == "zb_v"} == {2}
    assert len(points) == len(set(points)) == len(list(settings(SMALL)))


def test_what_is_impossible_says_why(points: tuple[Point, ...]) -> None:
    refused = [point for point in points if point.why]
    assert refused
    assert all(point.time == 0 for point in refused)
    gpipe = next(point for point in refused if point.setting.schedule == "gpipe")
    assert gpipe.why.startswith("limit=2 microbatches of activations are too few: GPipe needs")


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_point_is_what_the_simulator_makes_of_it(name: str) -> None:
    """The end, but for the updates, and the messages, where a stage is a layer and costs what a layer does."""
    each = SCHEDULES[name].chunks
    point = measure(Setting(name, 4, 8, each, None, "posted", 8, each, each / 2, each / 2, latency=0.4))
    trace = Trace.of(run_of(point))
    assert check(trace).correct
    assert point.time + 0.5 * each == pytest.approx(figures.end(trace)), "a stage is one layer; its rank updates each"
    assert point.sent == max(sum(event.op == "pass_to" for event in program.events) for program in trace.programs)


def test_the_same_examples_in_more_microbatches() -> None:
    """A smaller microbatch takes less time: the bubble shrinks, and GPipe holds everything. Messages go both ways."""
    few, many = (measure(Setting("gpipe", 4, batches, examples=64)) for batches in (8, 32))
    assert few.memory == many.memory == 64
    assert few.sent == many.sent == 2 * 64
    assert (few.time, many.time) == (64 / 8 * 33, 64 / 32 * (32 + 3) * 3)


FIGURES = st.integers(0, 5).map(float)


@given(st.lists(st.builds(Point, st.just(Setting("gpipe")), FIGURES, FIGURES, FIGURES), max_size=30))
def test_the_front_is_what_nothing_beats(some: list[Point]) -> None:
    best = front(some)

    def beats(one: Point, other: Point) -> bool:
        mine, theirs = ([getattr(point, aim) for aim in AIMS] for point in (one, other))
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))

    assert not any(beats(one, other) for one in some for other in best)
    for point in some:
        assert (
            point in best
            or any(beats(one, point) for one in best)
            or any(all(getattr(one, aim) == getattr(point, aim) for aim in AIMS) for one in best)
        )


def test_only_equal_costs_are_compared() -> None:
    found = explore(Grid(schedules=["gpipe", "zb_v"], batches=(4,), latency=(0, 1)))
    assert [len(points) for points in worlds(found).values()] == [2, 2]
    assert [words.endswith("messages for nothing (posted)") for words in worlds(found)] == [True, False]


FEW = Grid(schedules=("gpipe", "zb_1p", "zb_v"), ranks=(2, 4), chunks=(1, 2), limit=(None, 2.0))


def test_several_processes_find_the_same(tmp_path: Path) -> None:
    pytest.importorskip("joblib", reason="needs joblib: pip install joblib")
    file = tmp_path / "points.jsonl"
    points = explore(FEW, jobs=2, file=file)
    text = file.read_text("utf-8")
    assert explore(FEW, file=tmp_path / "alone.jsonl") == points
    assert (tmp_path / "alone.jsonl").read_text("utf-8") == text, "in the order of the grid, whoever was first"


def test_what_is_known_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "points.jsonl"
    points = explore(FEW, file=file)
    lines = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:-3]) + lines[-1][:20], "utf-8")  # killed in the middle of a line
    asked: list[Setting] = []

    def counted(setting: Setting) -> Point:
        asked.append(setting)
        return measure(setting)

    monkeypatch.setattr("lib.schedules.gallery.measure", counted)
    told: list[tuple[int, int]] = []
    assert explore(FEW, file=file, done=lambda *now: told.append(now)) == points
    assert asked == [point.setting for point in points[-3:]]
    assert told[0] == (len(points) - 3, len(points))
    assert told[-1] == (len(points), len(points))
    assert file.read_text("utf-8") == "".join(lines)


WITHOUT_TIME = '{"setting": {"schedule": "gpipe", "batches": 4}, "time": %s}'


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", "[]", "3", '{"setting": 1}', '{"setting": {"schedule": "x", "new": 1}}'),
        *(WITHOUT_TIME % time for time in ('"soon"', "null", "NaN", "-1", "[]")),
    ],
)
def test_a_file_with_something_else_in_it(line: str, tmp_path: Path) -> None:
    grid = Grid(schedules=["gpipe"], batches=(4,))
    file = tmp_path / "points.jsonl"
    file.write_text(line + "\n", "utf-8")
    (point,) = explore(grid, file=file)
    assert [json.loads(text)["time"] for text in file.read_text("utf-8").splitlines()] == [point.time]


def test_what_another_sweep_writes_meanwhile_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "points.jsonl"
    other = Grid(schedules=["zb_v"], batches=(4,))

    def at_the_end(so_far: int, everything: int) -> None:
        if so_far == everything:
            explore(other, file=file)

    explore(Grid(schedules=["gpipe"], batches=(4,)), file=file, done=at_the_end)
    names = [json.loads(line)["setting"]["schedule"] for line in file.read_text("utf-8").splitlines()]
    assert names == ["gpipe", "zb_v"]


@pytest.mark.parametrize("name", ["zb_1p", "zb_2p"])
@pytest.mark.parametrize("examples", [8, 7])
def test_a_cell_has_the_order_of_the_costs_of_its_point(name: str, examples: int) -> None:
    setting = Setting(name, batches=8, examples=examples, input_half=1.5, weight_half=0.1, message=0.1)
    given: dict[str, Any] = {}
    exec(cell(measure(setting)).replace("from drawing import draw\n", "").replace("draw(", "list("), given)
    assert given["order"] == order_of(setting)


def test_a_cell_runs(points: tuple[Point, ...], capsys: pytest.CaptureFixture[str]) -> None:
    for point in points:
        size = point.setting.ranks, point.setting.batches, point.setting.messages
        if not point.why and size == (2, 4, "posted"):
            exec(cell(point).replace("from drawing import draw\n", "").replace("draw(", "list("), {})
