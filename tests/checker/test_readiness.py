"""At rest before a step and after it: what was loaded counts from the beginning, and is there afterwards, updated."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given

from lib import HIDDEN, PUZZLES, Mesh, Model, Trace, check, simulate
from lib.analysis import figures
from lib.checker.faults import unready
from lib.schedules.data_parallel import ddp as ddp_lean
from lib.schedules.steps import backward, compute, forward, load, loss, mine, step
from lib.trace import json_format as serial
from lib.trace.rebuild import rebuild
from tests.diagnosis.corpus import CHECKED, cases, function
from tests.support.profiles import sample
from tests.support.puzzles import SCHEDULES
from tests.support.random_programs import RUNS, Schedule, traced
from tests.support.schedules import EVERYTHING, Case, basic

WEIGHT = HIDDEN * HIDDEN


def strictly(monkeypatch: pytest.MonkeyPatch, function: Callable[[Model], Any], **sizes: Any) -> tuple[str, ...]:
    """The faults of a run that is judged as a puzzle's of its own size: what a bare check only remarks is one there."""
    trace = Trace.of(simulate(function, **sizes))
    size = {"ranks": trace.ranks, "layers": trace.layers, "batches": trace.batches, "mesh": trace.mesh}
    record = replace(PUZZLES["ddp"], id="made_up", costs=trace.costs, sent=None, **size)
    with monkeypatch.context() as patch:
        patch.setattr(import_module("lib.puzzles.records"), "schedule_record", {"made_up": record}.__getitem__)
        strict = check(trace, "made_up")
    bare = check(trace)
    assert bare.faults == ()
    assert bare.correct
    assert [note for note in bare.notes if "not ready" in note] == [*strict.faults]
    assert strict.correct == (not strict.faults)
    return strict.faults


@pytest.mark.parametrize("case", EVERYTHING, ids=lambda case: case.name)
def test_after_every_known_schedule_all_ranks_are_ready(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {key: value for key, value in case._asdict().items() if key not in ("name", "function")}
    assert strictly(monkeypatch, case.function, **sizes) == ()


NOT_READY = {case.name: case for case in cases(CHECKED) if "not ready" in case.message}
"""Their whole texts are asked for in test_cheats.py."""


@pytest.mark.parametrize("name", NOT_READY)
def test_what_is_only_remarked_is_a_fault_of_a_puzzles_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = NOT_READY[name]
    with function(case) as student:
        assert len(strictly(monkeypatch, student, **case.sizes)) == case.message.count("not ready")
        models = simulate(student, **case.sizes)
    notes = check(Trace.parse(Trace.of(models).text())).notes
    assert {note.count("where:") for note in notes if "not ready" in note} == {0}  # a text has no line to show


async def broadcasts(model: Model) -> None:
    """Rank 1 alone has the optimizer state; everybody gets the new weight from it."""
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer)
        if model.rank == 1:
            model.opt_states[layer] = state
    compute(model, mine(model))
    for layer in range(model.LAYERS):
        model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer)
        if model.rank == 1:
            step(model, layer)
        model.weights[layer] = await model.broadcast(model.weights[layer], layer, root=1)


@given(RUNS)
def test_where_all_is_there_and_nothing_is_loaded_twice_the_long_ways_say_the_same(one: Case | Schedule) -> None:
    trace = traced(one)
    short = rebuild(trace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lib.trace.rebuild._loads_again", lambda _: True)
        long = rebuild(trace)
        assert (long.flaws, long.finals) == (short.flaws, short.finals)
        told = unready(short)
        patch.setattr("lib.checker.faults._all_there", lambda *_: False)
        assert unready(long) == told


def test_an_updated_weight_may_come_from_another_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    assert strictly(monkeypatch, broadcasts, ranks=3, layers=2, batches=3) == ()


def test_a_state_that_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lends(model: Model) -> None:
        if model.rank == 0:
            _, state = model.load_weights(0)
            await model.pass_to(1, state)
            model.opt_states[0] = await model.receive(1)
        else:
            model.weights[0], _ = model.load_weights(0)
            compute(model, range(model.BATCHES))
            model.opt_states[0] = await model.receive(0)
            step(model, 0)
            await model.pass_to(0, model.opt_states[0])

    assert strictly(monkeypatch, lends, ranks=2, layers=1, batches=1) == ()


def keeps(model: Model, layer: int) -> None:
    step(model, layer)


def throws_away(model: Model, layer: int) -> None:
    grad, state = model.grad_weights.pop(layer), model.opt_states.pop(layer)
    model.weights[layer], _ = model.update(layer, grad, model.weights[layer], state)
    model.set_final_weight(layer, model.weights[layer])


def keeps_the_old_one(model: Model, layer: int) -> None:
    old = model.opt_states[layer]
    throws_away(model, layer)
    model.opt_states[layer] = old


def deletes(model: Model, layer: int) -> None:
    step(model, layer)
    del model.opt_states[layer]


def keeps_it_elsewhere(model: Model, layer: int) -> None:
    step(model, layer)
    state = model.opt_states.pop(layer)
    model.weights["the state of", layer] = state  # type: ignore[assignment]


UPDATES: dict[Callable[[Model, int], None], str | None] = {
    keeps: None,
    keeps_it_elsewhere: None,
    throws_away: "none of it",
    deletes: "none of it",
}
UPDATES |= {keeps_the_old_one: "the same as before, not updated"}


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("judge", ["in process", "from a file"])
def test_an_optimizer_state_that_was_updated_is_in_a_store_at_the_end(
    update: Callable[[Model, int], None], judge: str
) -> None:
    """Whatever the goal; nothing is saved by throwing it away, and the step is none."""
    ends = UPDATES[update]

    def basic(model: Model) -> None:
        load(model)
        compute(model, range(model.BATCHES))
        for layer in range(model.LAYERS):
            update(model, layer)

    models = simulate(basic, puzzle="basic")
    verdict = check(models if judge == "in process" else serial.decode(serial.encode(Trace.of(models))), "basic")
    assert verdict.correct == verdict.passed == (ends is None)
    assert check(models).correct
    if ends is not None:
        (fault,) = verdict.faults
        assert "the optimizer state of layers 0 and 1 is not up to date there" in fault
        assert f"rank 0 ends with {ends}" in fault
        assert "keep both results of update in stores, to the end" in fault


def test_who_only_passes_by_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 is idle, and loads what it never uses."""

    async def alone(model: Model) -> None:
        if model.rank == 1:
            model.load_weights(0)
            return
        load(model)
        compute(model, range(model.BATCHES))
        step(model, 0)

    assert strictly(monkeypatch, alone, ranks=2, layers=1, batches=2) == ()


def peak(function: Callable[[Model], Any], **sizes: Any) -> int:
    return int(figures.peak(Trace.of(simulate(function, **sizes))).elements)


def test_loading_late_and_dropping_early_save_nothing() -> None:
    """The optimizer state loaded only for its update, and forgotten after it: as large as kept all the time."""

    def late(model: Model) -> None:
        for layer in range(model.LAYERS):
            model.weights[layer], _ = model.load_weights(layer)
        compute(model, range(model.BATCHES))
        for layer in range(model.LAYERS):
            _, model.opt_states[layer] = model.load_weights(layer)
            step(model, layer)
            del model.opt_states[layer]

    assert peak(late, layers=3, batches=4) == peak(basic, layers=3, batches=4)


def test_the_shard_of_another_rank_in_backward_is_at_rest_too() -> None:
    """FSDP that gathers shard r in forward and shard r + 1 in backward, so that it holds nothing between."""

    async def shifted(model: Model, by: int) -> None:
        ranks = model.RANKS
        for layer in range(model.LAYERS):
            model.activations[0] = model.activations.get(0) or model.get_activation(mine(model))
            shard, _ = model.load_weights(layer, model.rank, ranks)
            forward(model, layer, weight=await model.allgather(shard, layer))
        loss(model)
        for layer in reversed(range(model.LAYERS)):
            own = (model.rank + by) % ranks
            shard, state = model.load_weights(layer, own, ranks)
            if not by:
                shard, state = model.load_weights(layer, own, ranks)
            grad = backward(model, layer, await model.allgather(shard, layer))
            group = [(rank - by) % ranks for rank in range(ranks)]
            grad = await model.scatterreduce(grad, layer, group)
            weight, state = model.update(layer, grad, shard, state)
            model.set_final_weight(layer, weight)

    sizes: dict[str, Any] = {"ranks": 4, "layers": 6, "batches": 4}
    trace = Trace.of(simulate(lambda model: shifted(model, 1), **sizes))
    verdict = check(trace)
    assert verdict.correct
    at_rest = 6 * 2 * WEIGHT // 4  # two shards of each weight, and the states of one of them besides
    first = figures.samples(trace, 0)[0]
    assert first.by_kind["weight"] == at_rest
    assert first.by_kind["optimizer state"] == at_rest // 2
    assert any("not ready" in note for note in verdict.notes)


def pretend(model: Model) -> None:
    for layer in (number for number, kind in enumerate(model.shape.kinds) if kind.weight is not None):
        weight, state = model.load_weights(layer)
        grad = model.fake_grad(layer, range(model.BATCHES))
        weight, model.opt_states[layer] = model.update(layer, grad, weight, state)
        model.set_final_weight(layer, weight)


def test_only_a_live_sandbox_may_pretend() -> None:
    sandbox = Model(layers=2, batches=4)
    pretend(sandbox)
    assert check([sandbox]).correct
    assert not check([sandbox], "basic").correct
    assert not check(sandbox.trace).correct
    assert not check(replace(sandbox.trace, sandbox=True)).correct
    data = serial.encode(sandbox.trace)
    assert data["sandbox"] is True
    assert not check(serial.decode(data)).correct
    assert not check(Trace.parse(sandbox.trace.text())).correct


def test_a_sandbox_has_one_rank() -> None:
    second = Model(rank=1, layers=1, batches=1)
    pretend(second)
    assert not check([second]).correct


@pytest.mark.parametrize("puzzle", sample(SCHEDULES))
def test_what_a_file_says_of_itself_makes_no_check_milder(puzzle: str) -> None:
    record = PUZZLES[puzzle]
    trace = Trace.of(simulate(pretend, puzzle=puzzle))
    data = serial.encode(trace)
    data["sandbox"], data["puzzle"] = True, puzzle
    again = serial.decode(data)
    for verdict in (check(again), check(again, puzzle), check(trace, puzzle)):
        assert not verdict.correct
        assert "a gradient was made up with fake_grad" in verdict.faults[0]
    assert (again.ranks, again.layers, again.batches) == (record.ranks, record.layers, record.batches)


def test_one_rank_may_be_anybody_of_a_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    assert strictly(monkeypatch, ddp_lean, mesh=Mesh({"a": 2, "b": 2}, ranks=[3, 1, 0, 2]), layers=2, batches=4) == ()
