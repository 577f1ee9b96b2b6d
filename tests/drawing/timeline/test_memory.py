"""The memory panel: what lies at the bottom, who is a guest, which peak is marked, and where the goals are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from drawing import draw
from drawing.canvas.palette import ALARM, GOOD, GUEST
from drawing.timeline.memory import GATHERED, SERIES, Level, Plateau, goals, levels, longest
from drawing.timeline.rows import fold
from drawing.timeline.schedule import picture_of_trace
from lib import PUZZLES, Model, Trace, check, simulate
from lib.analysis.figures import makespan, peak, samples
from lib.analysis.memory import guests
from lib.cluster.costs import TICKS
from lib.values.values import Weight
from tests.drawing.marks import polys, rects, written
from tests.drawing.runs import quietly, solved, trace
from tests.support.profiles import sample
from tests.support.puzzles import SCHEDULES
from tests.support.schedules import CLASSIC, OTHERS, Case


@pytest.mark.parametrize("case", sample([*CLASSIC, *OTHERS]), ids=lambda case: case.name)
def test_the_curve_goes_to_the_end_below_the_peak_and_guests_lie_above_what_is_at_rest(case: Case) -> None:
    run = Trace.of(case.run(simulate))
    assert check(run).correct
    most = float(peak(run).elements)
    at_rest = SERIES.index(GATHERED) - 1
    for program in run.programs:
        curve = levels(run, program.rank)
        assert (curve[0].time, curve[-1].time) == (0, makespan(run))
        assert {one.sums[-1] for one in curve[:-2]} <= {float(one.total) for one in samples(run, program.rank)}
        assert all(one.time <= two.time for one, two in pairwise(curve))
        assert max(level.sums[-1] for level in curve) <= most
        assert all(list(level.sums) == sorted(level.sums) for level in curve)
        made = {number for event in program.events if event.op == "allgather" for number in event.outputs}
        final = {number for event in program.events if event.op == "set_final_weight" for number in event.inputs}
        handed_in = float(sum(value.elements() for value in program.values_of(sorted(made & final))))
        # ZeRO-1 loads a shard beside the whole weight; who gathers what is handed in ends with more than it began with.
        first, last = curve[0].sums[at_rest], curve[-1].sums[at_rest]
        assert first >= last - handed_in
        assert last > 0
        assert case not in CLASSIC or first == last


def test_a_weight_that_is_gathered_and_what_is_made_of_it_are_guests_in_a_look_of_their_own() -> None:
    run = solved("wsdp")
    program = run.programs[0]
    visiting = guests(program)
    gathered = {number for event in program.events if event.op == "allgather" for number in event.outputs}
    assert visiting == gathered
    assert all(isinstance(program.values[number], Weight) for number in visiting)
    assert not any(guests(program) for name in ("ddp", "gpipe") for program in solved(name).programs)
    guest = SERIES.index(GATHERED)
    heights = {level.sums[guest] - level.sums[guest - 1] for level in levels(run, 0)}
    whole = program.values[min(visiting)]
    assert whole is not None
    assert heights == {0, whole.elements()}
    assert [mark.title for mark in polys(solved("fsdp"), fill=GUEST)] == [GATHERED]
    assert rects(solved("fsdp"), fill=GUEST)
    assert GATHERED not in picture_of_trace(solved("ddp")).svg()

    async def gather(model: Model) -> None:
        shard, _ = model.load_weights(0, model.rank, 2)
        weight = await model.allgather(shard, 0)
        weight.shard(model.rank, 2)
        other = await model.allgather(shard, 0)
        model.set_final_weight(0, other)  # which is no guest

    program = trace(gather, ranks=2, layers=1, batches=2).programs[0]
    made = {event.op: event.outputs for event in program.events[:3]}
    assert guests(program) == {*made["allgather"], *made["shard"]}


def test_the_longest_of_equal_peaks_is_marked() -> None:
    curves = {
        0: [Level(0, (3,)), Level(1, (5,)), Level(2, (4,)), Level(7, (4,))],
        1: [Level(0, (5,)), Level(0, (5,)), Level(3, (2, 5)), Level(4, (1,)), Level(7, (1,))],
        2: [Level(3, (5,)), Level(7, (5,))],
    }
    assert longest(curves, 5) == Plateau(1, 0, 4)
    assert longest({0: curves[0]}, 5) == Plateau(0, 1, 2)
    assert longest({2: curves[2], 1: curves[1]}, 5) == Plateau(2, 3, 7)
    assert longest(curves, 6) is None
    run = solved("pipeline")
    assert longest({rank: levels(run, rank) for rank in range(4)}, float(peak(run).elements)) == Plateau(
        0, 58_400_000_000, 62_400_000_000
    )
    assert "2,621,440 elements on rank 0 from 58.4 to 62.4" in picture_of_trace(run).svg()


@pytest.mark.parametrize("puzzle", sample(SCHEDULES))
def test_the_label_of_the_peak_lies_on_no_memory(puzzle: str) -> None:
    scene = picture_of_trace(solved(puzzle)).scene
    (label,) = [mark for mark in written(scene) if mark.text.startswith("peak ")]
    assert label.fill == ALARM
    for area in (mark for mark in polys(scene) if mark.fill != "none"):
        top, bottom = min(y for _, y in area.points), max(y for _, y in area.points)
        assert label.y + label.size / 2 < top or label.y - label.size / 2 > bottom


def test_goals_are_lines_where_the_run_is_of_a_puzzle() -> None:
    run = solved("ddp")
    limits = sorted((float(one.memory) for one in PUZZLES["ddp"].goals), reverse=True)
    assert goals(run) == limits
    lines = polys(picture_of_trace(run), stroke=GOOD)
    assert len(lines) == len(limits) + 1  # and one in the legend
    assert "≤ 1.84 M" in picture_of_trace(run).svg()
    for other in (replace(run, puzzle=None), replace(run, puzzle="no such"), replace(run, batches=8)):
        assert goals(other) == []
        assert "goal" not in picture_of_trace(other).svg()


def test_a_goal_that_is_missed_is_red_and_one_far_away_is_not_drawn() -> None:
    async def wasteful(model: Model) -> None:
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
            model.weights[layer, "again"], _ = model.load_weights(layer)
        model.activations[0] = model.get_activation([model.rank])
        model.forward(0, model.activations[0], model.weights[0])

    run = Trace.of(simulate(wasteful, puzzle="ddp"))
    most = float(peak(run).elements)
    drawn = polys(picture_of_trace(run), line=0.8)
    wanted = {ALARM if limit < most else GOOD for limit in goals(run) if limit < 1.3 * most}
    assert {mark.stroke for mark in drawn} == wanted


def test_a_rank_that_only_holds_weights_is_not_blank() -> None:
    def half(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        if model.rank == 0:
            model.forward(0, model.get_activation([0]), model.weights[0])

    run = trace(half, ranks=3, layers=1, batches=1)
    held = 2 * run.programs[1].values[0].elements()  # pyright: ignore[reportOptionalMemberAccess]
    assert [(level.time, level.sums[-1]) for level in levels(run, 1)] == [(0, held), (TICKS, held)]
    assert [row.ranks for row in fold(run)] == [(0,), (1, 2)]
    assert ">ranks 1, 2</text>" in quietly(draw, run)[0].svg()
