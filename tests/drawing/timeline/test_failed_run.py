"""The picture of a run that failed: what everybody did, who waits for what, and one mark of one size."""

from __future__ import annotations

import pytest

from drawing.canvas.palette import ALARM
from drawing.display import picture_of
from drawing.timeline.boxes import boxes, failed_rank, waiting
from drawing.timeline.paint import MARK
from drawing.timeline.rows import fold
from lib import Mesh, Model, Trace, schedule, simulate
from lib.schedules.pipelines.legality import IllegalOrder
from tests.diagnosis.test_mistakes import CASES, outcome
from tests.drawing.marks import fits, polys, rects, texts, written
from tests.drawing.runs import trace
from tests.support.profiles import sample


def failing(rank: int, at: int, mesh: Mesh | None = None) -> Trace:
    async def function(model: Model) -> None:
        weight, inp = model.load_weights(0)[0], model.get_activation([model.rank])
        for time in range(6):
            if (model.rank, time) == (rank, at):
                raise RuntimeError("no")
            model.forward(0, inp, weight)
        await model.allreduce(model.fake_grad(0), 0)

    return trace(function, ranks=4, layers=1, batches=4, mesh=mesh)


@pytest.mark.parametrize("name", sample(CASES))
def test_no_words_lie_on_others_and_all_are_on_the_paper(name: str) -> None:
    error = outcome(name).error
    if error is None or not isinstance(error.trace, Trace):
        return
    assert fits(error.trace)


@pytest.mark.parametrize(("rank", "at"), [(0, 0), (2, 1), (3, 5)])
def test_the_mark_of_a_failure_has_one_size_and_stands_where_it_failed(rank: int, at: int) -> None:
    run = failing(rank, at)
    assert failed_rank(run) == rank
    assert (rank,) in [row.ranks for row in fold(run)]
    (mark,) = [m for m in rects(run) if m.title.startswith("failed here")]
    assert (mark.width, mark.height) == (MARK, MARK)
    (line,) = [m for m in polys(run, stroke=ALARM) if m.dash]
    assert line.points[0][0] == line.points[1][0] == mark.x - 1.5
    (words,) = written(run, text="failed here", fill=ALARM)
    assert words.x > mark.x + mark.width


def test_the_others_are_drawn_up_to_the_failure_on_a_mesh_too() -> None:
    run = failing(2, 3, Mesh({"data": 2, "stage": 2}))
    assert (run.error or "").startswith("rank 2 (data 1, stage 0): ")
    assert failed_rank(run) == 2
    found = boxes(run).boxes
    assert [sum(box.look == "forward" for box in found if box.rank == rank) for rank in range(4)] == [4, 4, 3, 4]


def arrows(thing: object) -> list[tuple[float, float, float]]:
    """Of the arrows between those who wait: from which height to which, and how thick."""
    lines = [m for m in polys(thing, stroke=ALARM) if len(m.points) == 2 and m.points[0][0] == m.points[1][0]]
    heads = {m.points[0][0] + 4: m.points[2][1] for m in polys(thing, fill=ALARM)}
    return [(m.points[0][1], heads[m.points[0][0]], m.line) for m in lines if m.points[0][0] in heads]


def test_a_deadlock_has_its_circle_in_it() -> None:
    async def circle(model: Model) -> None:
        await model.receive((model.rank + 1) % 3 if model.rank < 3 else 0)

    run = trace(circle, ranks=4)
    places = {text.text: text.y for text in written(run) if text.text.startswith("rank")}
    rows = [places[f"rank {rank}"] for rank in range(4)]
    ways = [(0, 1, 2), (1, 2, 2), (2, 0, 2), (3, 0, 1)]
    assert arrows(run) == [(rows[source], rows[target], line) for source, target, line in ways]
    assert fits(run)


def test_an_order_that_cannot_run_shows_what_ran_and_who_waits_for_whom() -> None:
    @schedule
    def ring(rank: int, ranks: int, batches: int) -> list[str]:
        return [["F0", "B0", "F1", "B1"], ["F1", "B1", "F0", "B0"]][rank]

    with pytest.raises(IllegalOrder) as caught:
        simulate(ring, ranks=2, layers=2, batches=2)
    shown = picture_of(caught.value.shown)
    assert {text for text in texts(shown) if "waits" in text} == {
        "0B0 waits for 1B0 of rank 1",
        "1F1 waits for 0F1 of rank 0",
    }
    assert [line for *_, line in arrows(shown)] == [2, 2]
    assert fits(shown)

    @schedule
    def early(rank: int, ranks: int, batches: int) -> list[str]:
        return ["F0", "B0", "B1", "F1"] if rank else ["F0", "F1", "B0", "B1"]

    with pytest.raises(IllegalOrder) as caught:
        simulate(early, ranks=2, layers=2, batches=2)
    shown = picture_of(caught.value.shown)
    assert "1B1 needs 1F1 before it, which comes later, at position 3" in texts(shown)
    assert "0B1 waits for 1B1 of rank 1" in texts(shown)
    assert [line for *_, line in arrows(shown)] == [1]


def test_who_waits_disagrees_or_finds_no_room_says_so() -> None:
    async def skipped(model: Model) -> None:
        model.load_weights(0)
        if model.rank != 1:
            await model.allreduce(model.fake_grad(1), 1)

    run = trace(skipped, ranks=4, layers=2, batches=4)
    assert waiting(run, 0, len(run.programs[0].events) - 1) == ("all-reduce of layer 1", "rank 1 is missing")
    words = texts(run)
    assert words.count("waits for all-reduce of layer 1") == 3
    assert words.count("rank 1 is missing") == 3
    assert words.count("has finished") == 1

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
