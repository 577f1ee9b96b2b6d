"""The picture of a run that failed: what everybody did, who waits for what, and one mark of one size."""

from __future__ import annotations

import pytest

from drawing.canvas.palette import ALARM
from drawing.canvas.scene import Poly, Rect, Text
from drawing.timeline.boxes import boxes, failed_rank
from drawing.timeline.labels import waiting
from drawing.timeline.paint import MARK
from drawing.timeline.schedule import picture_of_trace
from lib import Mesh, Model, Trace
from tests.diagnosis.test_mistakes import CASES, outcome
from tests.drawing.marks import apart, on_paper, texts, written
from tests.drawing.runs import RUNS, trace
from tests.support.profiles import sample
from tests.support.schedules import CLASSIC


def failing(rank: int, at: int, total: int = 6) -> Trace:
    async def function(model: Model) -> None:
        weight, inp = model.load_weights(0)[0], model.get_activation([model.rank])
        for time in range(total):
            if (model.rank, time) == (rank, at):
                raise RuntimeError("no")
            model.forward(0, inp, weight)
        await model.allreduce(model.fake_grad(0), 0)

    return trace(function, ranks=4, layers=1, batches=4)


@pytest.mark.parametrize("name", sample(CASES))
def test_no_words_lie_on_others_and_all_are_on_the_paper(name: str) -> None:
    error = outcome(name).error
    if error is None or not isinstance(error.trace, Trace):
        return
    assert on_paper(error.trace)
    assert apart(written(error.trace))


@pytest.mark.parametrize(("rank", "at"), [(0, 0), (2, 1), (3, 5)])
def test_the_mark_of_a_failure_has_one_size_and_stands_where_it_failed(rank: int, at: int) -> None:
    run = failing(rank, at)
    scene = picture_of_trace(run).scene
    assert failed_rank(run) == rank
    (mark,) = [m for m in scene.marks if isinstance(m, Rect) and m.title.startswith("failed here")]
    assert (mark.width, mark.height) == (MARK, MARK)
    (line,) = [m for m in scene.marks if isinstance(m, Poly) and m.stroke == ALARM and m.dash]
    assert line.points[0][0] == line.points[1][0] == mark.x - 1.5
    (words,) = [m for m in scene.marks if isinstance(m, Text) and m.text == "failed here" and m.fill == ALARM]
    assert words.x > mark.x + mark.width


def test_the_others_are_drawn_up_to_the_failure() -> None:
    timeline = boxes(failing(2, 3))
    computed = [sum(box.look == "forward" for box in timeline.boxes if box.rank == rank) for rank in range(4)]
    assert computed == [4, 4, 3, 4]


def test_who_waits_says_for_what_and_for_whom() -> None:
    async def skipped(model: Model) -> None:
        weight, inp = model.load_weights(1)[0], model.get_activation([model.rank])
        if model.rank != 1:
            await model.allreduce(model.fake_grad(1), 1)
        model.load_weights(0)
        del weight, inp

    run = trace(skipped, ranks=4, layers=2, batches=4)
    found = waiting(run, 0, len(run.programs[0].events) - 1)
    assert found == ("all-reduce of layer 1", "rank 1 is missing")
    words = texts(run)
    assert words.count("waits for all-reduce of layer 1") == 3
    assert words.count("rank 1 is missing") == 3
    assert words.count("has finished") == 1


def test_who_disagrees_and_who_finds_no_room_says_so() -> None:
    async def layers(model: Model) -> None:
        await model.allreduce(model.fake_grad(model.rank), model.rank)

    run = trace(layers, ranks=2, layers=2, batches=2)
    assert waiting(run, 0, len(run.programs[0].events) - 1) == ("all-reduce of layer 0", "the calls differ")

    async def twice(model: Model) -> None:
        data = model.get_activation([model.rank])
        for _ in range(2):
            await model.pass_to(1 - model.rank, data)
        await model.receive(1 - model.rank)

    run = trace(twice, ranks=2, layers=1, batches=2)
    assert [box.look for box in boxes(run).boxes if box.rank == 0] == ["pass_to", "pass_to", "pending"]
    assert texts(run).count("waits for room to send to rank 1") == 1


def test_in_a_mesh_a_rank_calls_another_by_its_coordinate() -> None:
    async def stuck(model: Model) -> None:
        stage = model.coord["stage"]
        await model.receive(model.group("stage")[1 - stage])

    mesh = Mesh({"data": 2, "stage": 2})
    run = trace(stuck, ranks=4, mesh=mesh)
    assert waiting(run, 2, 0).what == "a message from stage 1"
    words = texts(run)
    assert words.count("waits for a message from stage 1") == 2
    assert "rank 2 (data 1, stage 0) waits to receive from rank 3" in (run.error or "")

    async def across(model: Model) -> None:
        await model.receive(3 - model.rank)

    run = trace(across, ranks=4, mesh=mesh)
    assert waiting(run, 0, 0).what == "a message from rank 3 (data 1, stage 1)"


def test_the_message_names_the_place_of_a_rank_in_the_mesh() -> None:
    case = next(case for case in CLASSIC if case.name == "pipeline_fsdp")

    async def broken(model: Model) -> None:
        if model.rank == 6:
            model.load_weights(99)
        await case.function(model)

    run = trace(broken, ranks=16, layers=4, batches=4, mesh=Mesh({"data": 4, "stage": 4}))
    assert (run.error or "").startswith("rank 6 (data 1, stage 2): there is no layer 99")
    assert failed_rank(run) == 6


def test_a_deadlock_of_the_relay_is_drawn_too() -> None:
    assert "waits for a message from rank 0" in texts(RUNS["deadlock"])
