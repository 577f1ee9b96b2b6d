"""What a verdict remarks: where time and memory go when a goal is missed. The corpus shows whole texts."""

from typing import Any

import pytest

from lib import PUZZLES, Model, Trace, check, simulate
from lib.checker.judging import fed
from lib.schedules.steps import backward, compute, forward, load, loss, step
from lib.suite.course.solutions import files_of, run_of_file
from lib.suite.course.subject import run
from tests.support.profiles import sample
from tests.support.schedules import basic

SIZES: dict[str, Any] = {"layers": 2, "batches": 2}


def notes(function: Any, **goal: Any) -> list[str]:
    verdict = check(Trace.of(simulate(function, **SIZES)), **goal)
    assert verdict.correct
    return list(verdict.notes)


@pytest.mark.parametrize("puzzle", sample(key for key, record in PUZZLES.items() if not record.is_function))
def test_a_reference_gets_none(puzzle: str) -> None:
    reference = run(puzzle)
    assert reference is not None
    assert check(reference.trace, puzzle).notes == tuple(fed(reference.trace))


def test_a_run_within_its_target_gets_none() -> None:
    assert notes(basic, time=9, memory=10**7) == []
    assert notes(basic) == []


def test_time_and_memory_are_told_apart() -> None:
    late, large = notes(basic, time=8.5, memory=10**6)
    assert late.startswith('for "your goal" the run is 0.5 time units too long\n')
    assert large.startswith('for "your goal" memory is ')
    assert [note.partition(" elements")[0] for note in notes(basic, memory=10**6)] == [large.partition(" elements")[0]]


def test_a_rank_alone_never_waits() -> None:
    (late,) = notes(basic, time=8)
    assert late == (
        'for "your goal" the run is 1 time unit too long\n'
        "  got:      no rank ever waits\n"
        "  fix:      let the ranks compute less, or share the work more evenly"
    )


def test_of_what_there_is_most_one_should_hold_fewer() -> None:
    sizes: dict[str, Any] = {"layers": 8, "batches": 1}
    trace = Trace.of(simulate(basic, **sizes))  # updates only at the end: all gradients at once
    (large,) = check(trace, memory=10**6).notes
    assert large.endswith("fix:      update a layer as soon as its gradient is complete, and delete the gradient")
    assert "7 weight gradients: 1,835,008 elements\n" in large


def test_whole_weights_are_named_where_gathers_are_asked_for() -> None:
    trace = run_of_file(files_of("domain_data")["whole_weights"], "domain_data")
    (large,) = check(trace, "domain_data").notes
    assert large.endswith("keep a shard of each, and gather a weight when it is used")


def test_a_result_of_training_is_nothing_to_delete() -> None:
    """The optimizer state of a layer that is done is not used again, and yet it has to stay."""

    def one_by_one(model: Model) -> None:
        load(model)
        model.activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            forward(model, layer)
        loss(model)
        for layer in reversed(range(model.LAYERS)):
            model.grad_weights[layer] = backward(model, layer)
            step(model, layer)

    trace = Trace.of(simulate(one_by_one, layers=3, batches=1))
    (large,) = check(trace, memory=10).notes
    assert "are values that are not used again" not in large


def test_nobody_is_advised_to_delete_an_optimizer_state() -> None:
    """What is too much of it is not loaded; what was updated the next step begins with."""

    def twice(model: Model) -> None:
        load(model)
        for layer in range(model.LAYERS):
            _, model.opt_states["spare", layer] = model.load_weights(layer)
        compute(model, range(model.BATCHES))
        for layer in range(model.LAYERS):
            step(model, layer)

    (large,) = notes(twice, memory=10**6)
    assert "are values that are not used again" in large
    assert "optimizer state of layer 0, never needed after load_weights" in large
    assert "del opt_states" not in large
    assert "load no more of it than this rank updates" in large
