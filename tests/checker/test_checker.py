"""check: every correct training step passes, however it is written; its verdict is measured against the goals."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import PUZZLES, UNIT, Costs, Dist, Links, Mesh, Model, Trace, Verdict, WeightGrad, check, goal, simulate
from lib.analysis import figures
from lib.puzzles import records as puzzles
from lib.puzzles.puzzle import Goal
from lib.schedules.data_parallel import ddp as ddp_lean
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.steps import compute, load, step
from tests.support.drivers import python
from tests.support.said import Said
from tests.support.schedules import basic, ddp, fsdp


def judge(function: Callable[[Model], Any], **sizes: Any) -> Verdict:
    wanted: dict[str, Any] = {"layers": 2, "batches": 4} | sizes
    return check(Trace.of(simulate(function, **wanted)))


def locals_only(model: Model) -> None:
    """Nothing in a store but what the next step begins with. Correct, though it all counts."""
    loaded = [model.load_weights(layer) for layer in range(model.LAYERS)]
    acts = [model.get_activation(range(model.BATCHES))]
    for layer, (weight, _) in enumerate(loaded):
        acts.append(model.forward(layer, acts[layer], weight))
    grad = model.loss(acts[-1])
    for layer in reversed(range(model.LAYERS)):
        weight, state = loaded[layer]
        made, grad = model.backward(layer, acts[layer], grad, weight)
        weight, model.opt_states[layer] = model.update(layer, made, weight, state)
        model.set_final_weight(layer, weight)


async def handed_in_twice(model: Model) -> None:
    load(model)
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, model.weights[layer])
    compute(model, range(model.BATCHES))
    for layer in range(model.LAYERS):
        step(model, layer)


CORRECT: dict[str, tuple[Any, int]] = {"locals only": (locals_only, 1), "handed in twice": (handed_in_twice, 2)}


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_solution_passes_however_it_is_written(name: str) -> None:
    function, ranks = CORRECT[name]
    verdict = judge(function, ranks=ranks)
    assert verdict.faults == ()
    assert verdict.correct
    assert verdict.passed


@given(st.integers(1, 8), st.integers(1, 3), st.sampled_from([ddp, ddp_lean, fsdp]))
def test_data_parallel_is_correct_at_every_size(ranks: int, layers: int, function: Any) -> None:
    assert judge(function, ranks=ranks, layers=layers, batches=ranks + 1).correct


def test_the_figures_of_a_verdict_are_those_of_the_trace() -> None:
    trace = Trace.of(simulate(fsdp, puzzle="fsdp"))
    verdict = check(trace)
    assert verdict.time == figures.end(trace)
    assert verdict.printed == figures.printed(trace)
    assert verdict.memory == float(figures.peak(trace).elements)
    assert verdict.rank == figures.peak(trace).rank
    assert (verdict.goals, verdict.puzzle, verdict.best, verdict.passed) == ((), None, None, True)


def test_goals_are_reached_where_both_figures_are_within_them() -> None:
    verdict = check(Trace.of(simulate(ddp, puzzle="ddp")), "ddp")
    assert verdict.puzzle == "ddp"
    assert [goal._replace(reached=False) for goal in verdict.goals] == list(PUZZLES["ddp"].goals)
    for one in verdict.goals:
        assert one.reached == (verdict.time <= one.time and verdict.memory <= one.memory)


GATHERED, CLASSIC_ONE, IN_VARIABLES = (
    Trace.of(simulate(function, puzzle=puzzle))
    for function, puzzle in ((fully_sharded(), "fsdp"), (basic, "basic"), (locals_only, "basic"))
)
SENT = float(max(figures.traffic(GATHERED))[0])
EASY = Goal("easy", 100, 10**8)


def judged(trace: Trace, puzzle: str, **changes: Any) -> str:
    """What is said of a run by a puzzle with something else in its record."""
    with pytest.MonkeyPatch.context() as patch:
        record = replace(PUZZLES[puzzle], id="own", **changes)
        patch.setattr(puzzles, "_records", lambda: {"own": record})
        verdict = check(trace, "own")
    reached = ", ".join(goal.name for goal in verdict.goals if goal.reached and verdict.correct)
    told = [said.splitlines()[0] for said in (*verdict.faults, *verdict.notes)]
    return "\n".join([f"reached: {reached or 'none'}", *told])


async def sends(model: Model) -> None:
    await model.allreduce(model.fake_grad(0, []), 0)


def unfinished(model: Model) -> None:
    loaded = [model.load_weights(layer)[0] for layer in range(model.LAYERS)]
    acts = [model.get_activation(range(model.BATCHES))]
    for layer, weight in enumerate(loaded):
        acts.append(model.forward(layer, acts[layer], weight))
    grad = model.loss(acts[-1])
    for layer in reversed(range(model.LAYERS)):
        _, grad = model.backward(layer, acts[layer], grad, loaded[layer])


def asked(time: float | None, memory: float | None) -> str:
    """What is said of a correct run beside a goal of one's own."""
    verdict = check(Trace.of(simulate(basic, puzzle="basic")), time=time, memory=memory)
    assert verdict.correct
    assert verdict.passed == (not verdict.notes)
    return "\n".join([f"reached: {verdict.best}", *(note.splitlines()[0] for note in verdict.notes)])


def sized(**sizes: Any) -> str:
    """What is said of a run that has not the size of its puzzle."""
    verdict = check(Trace.of(simulate(ddp, puzzle="ddp", **sizes)), "ddp")
    assert not verdict.passed
    return "\n".join(verdict.faults)


test_what_keeps_a_run_from_its_goal = Said(__file__, "goals").test(lambda: globals())


def test_of_a_run_that_failed_nobody_knows_what_would_have_been_received() -> None:
    async def posts(model: Model) -> None:
        if model.rank == 0:
            await model.pass_to(1, "nobody reads this")

    trace = Trace.of(simulate(posts, ranks=2, layers=1, batches=1))
    assert [note.splitlines()[0] for note in check(trace).notes] == ["rank 1 never received what rank 0 passed to it"]
    assert check(replace(trace, error="rank 1: no")).notes == ()


def test_that_a_run_did_not_end_is_the_first_of_its_faults() -> None:
    trace = Trace.of(simulate(basic, layers=1, batches=1))
    trace.programs[0].events[2].layer = 7
    first, second = check(replace(trace, error="rank 0: one\n  fix: two")).faults
    assert first == "the run did not end: rank 0: one\n    fix: two"
    assert second.startswith("rank 0: there is no layer 7\n    expected: a layer from 0 to 0\n")
    assert "    where:    steps.py, line " in second


def test_only_a_sandbox_that_pretended_is_told_so() -> None:
    def honest(model: Model) -> None:
        basic(model)

    def pretends(model: Model) -> None:
        weight, state = model.load_weights(0)
        weight, state = model.update(0, model.fake_grad(0, range(model.BATCHES)), weight, state)
        model.set_final_weight(0, weight)

    def by_hand(model: Model) -> None:
        weight, state = model.load_weights(0)
        grad = WeightGrad(0, 1, range(model.BATCHES), model.BATCHES)
        model.set_final_weight(0, model.update(0, grad, weight, state)[0])

    told: list[tuple[bool, int]] = []
    for function in (honest, pretends, by_hand):
        for models in ([Model(layers=1, batches=2)], [Model(layers=1, batches=2, dist=Dist(1))]):
            function(models[0])
            verdict = check(models)
            told.append((verdict.correct, len([note for note in verdict.notes if "sandbox" in note])))
    assert told == [(True, 0), (True, 0), (True, 1), (False, 0), (True, 1), (False, 0)]


def test_a_puzzle_prices_a_run_by_its_own_costs() -> None:
    slow = Trace.of(simulate(ddp, puzzle="ddp", costs=Costs(forward=100, collective=7)))
    assert check(slow, "ddp").time == 5.6
    assert check(slow).time == 2 * 100 + 2 + 2 * 7 + 1


def test_a_run_with_other_costs_is_told_by_which_it_is_judged() -> None:
    told = (
        "this run has costs of its own, with which it ends at 7.6; a goal means the puzzle's costs, with which it ends"
    )
    slow = simulate(ddp, puzzle="ddp", costs=Costs(collective=1.3))
    assert check(slow, "ddp").notes[0].startswith(told)
    assert not any("costs" in note for note in (*check(slow).notes, *check(simulate(ddp, puzzle="ddp"), "ddp").notes))


def test_a_record_may_have_costs_and_a_mesh_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    record = replace(
        PUZZLES["ddp"], id="own", ranks=8, batches=8, mesh=Mesh({"replica": 2, "shard": 4}), costs=Links(host_size=4)
    )
    monkeypatch.setattr(puzzles, "_records", lambda: {"own": record})
    models = simulate(ddp, puzzle="own")
    assert (models[0].mesh, models[0].dist.costs) == (record.mesh, record.costs)
    assert figures.end(Trace.of(models)) == 2 + 2 + 2 * 7 + 1
    assert check(Trace.of(models), "own").time == 2 + 2 + 2 * 7 + 1
    assert check(Trace.of(simulate(ddp, puzzle="own", costs=UNIT)), "own").time == 2 + 2 + 2 * 7 + 1


RIGHT = Verdict(
    correct=True,
    time=20.4,
    printed=19.9,
    memory=2359296.0,
    rank=2,
    notes=("mind the gap.",),
    goals=(Goal("passes", 21.0, 2_500_000, True), Goal("best known", 20.4, 1_966_080, False)),
    puzzle="fsdp",
)
WRONG = replace(RIGHT, correct=False, faults=("no layer 0", "no layer 1"), notes=(), goals=RIGHT.goals[:1])
SAID = Said(__file__, "verdicts")


@pytest.mark.parametrize("call", SAID.texts)
def test_the_words_of_a_verdict(call: str) -> None:
    SAID.check(call, globals())
    assert RIGHT.best == "passes"
    assert not WRONG.passed


def test_the_goals_of_a_record_get_harder() -> None:
    for record in PUZZLES.values():
        assert record.mesh is None or len(record.mesh) == record.ranks
        assert bool(record.goals) != (record.kind == "function")
        for easy, hard in pairwise(record.goals):
            assert hard.time <= easy.time
            assert hard.memory <= easy.memory


def test_a_goal_in_words() -> None:
    lines = repr(goal("pipeline_fsdp")).splitlines()
    assert lines[0] == "Pipeline and FSDP together: 16 ranks, 4 layers, 16 batches; mesh of data 4 x stage 4"
    limits = "at most time 19.9 and memory 1,572,864 elements on any rank, and 1,441,792 elements sent per rank"
    assert lines[3] == f"  as good as our reference: {limits}"
    assert goal("basic").text().splitlines()[0] == "One device: 1 rank, 2 layers, 4 batches"
    with pytest.raises(ValueError, match="there is no puzzle"):
        goal("nothing")


def test_the_records_are_not_read_before_they_are_asked_for() -> None:
    assert python(
        "import sys, lib; print('tomllib' in sys.modules and lib.puzzles.records._records.cache_info().currsize)"
    ) in ("0\n", "False\n")
