"""The life of one step as a figure: every deed has its number and its place; what is kept is kept until backward."""

from __future__ import annotations

import re

import pytest

from drawing import draw_step
from drawing.diagrams.step import deeds, kept
from lib import Trace, simulate
from lib.schedules.data_parallel import fsdp
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.values.values import Activation
from tests.drawing.marks import texts
from tests.drawing.runs import RUNS, ddp

PIPELINE = Trace.of(simulate(program_of(one_f_one_b(3, 4)), ranks=3, layers=3, batches=4))
SHARDED = Trace.of(simulate(fsdp, ranks=4, layers=4, batches=4))
DEEP = Trace.of(simulate(ddp, ranks=2, layers=9, batches=2))


def test_every_deed_has_its_number_in_the_order_of_the_program() -> None:
    done = deeds(SHARDED.programs[1])
    assert [deed.number for deed in done] == [*range(1, len(done) + 1)]
    assert [deed.event for deed in done] == [event for event in SHARDED.programs[1].events if event.op != "wait"]
    # The numbers that stand in the picture, of places with more than three the first two and the last.
    alone = [text for text in texts(draw_step(SHARDED, 1)) if re.fullmatch(r"[\d, …]+", text)]
    assert {int(number) for text in alone for number in re.findall(r"\d+", text)} >= {deed.number for deed in done}


def test_where_a_deed_belongs_follows_from_the_tables() -> None:
    lanes = {f"{deed.event.op}: {deed.lane}" for deed in deeds(SHARDED.programs[0])}
    told = "load_weights: weight, allgather: weight, get_activation: activation, forward: forward, loss: loss, "
    told += "backward: backward, scatterreduce: gradient, update: update, set_final_weight: update"
    assert lanes == {*told.split(", ")}
    messages = [(deed.lane, deed.chip) for deed in deeds(PIPELINE.programs[1]) if deed.event.peer is not None]
    assert {chip for lane, chip in messages if lane == "activation"} == {"from 0", "to 2"}
    assert {chip for lane, chip in messages if lane != "activation"} == {"from 2", "to 0"}


def test_an_activation_is_kept_from_who_made_it_to_its_backward() -> None:
    for run in (SHARDED, PIPELINE):
        for program in run.programs:
            done = deeds(program)
            for pair in kept(program, done):
                made, used = done[pair.made - 1].event, done[pair.used - 1].event
                (value,) = [n for n in used.inputs if isinstance(program.values[n], Activation)]
                assert value in made.outputs
                assert used.op == "backward"
                assert used.layer == pair.place
    assert "kept 4–7" in texts(draw_step(simulate(ddp, ranks=1, layers=2, batches=1)))


@pytest.mark.parametrize("run", [*RUNS.values(), PIPELINE, SHARDED, DEEP], ids=str)
def test_it_is_drawn_of_every_rank_and_of_a_run_that_failed(run: Trace) -> None:
    for rank in range(min(run.ranks, 3)):
        picture = draw_step(run, rank)
        assert picture.scene.width <= 840
        assert picture.words.startswith(f"<One training step on rank {rank}")
        assert picture.svg() == draw_step(run, rank).svg()


def test_a_pipeline_shows_the_layers_of_its_rank_and_a_deep_network_some() -> None:
    assert [text for text in texts(draw_step(PIPELINE, 1)) if text.startswith("layer")] == ["layer 1"]
    assert "loss" not in texts(draw_step(PIPELINE, 1))
    assert "loss" in texts(draw_step(PIPELINE, 2))
    assert [text for text in texts(draw_step(DEEP)) if text.startswith("layer")] == ["layer 0", "layer 1", "layer 8"]
    assert "…" in texts(draw_step(DEEP))
