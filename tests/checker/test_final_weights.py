"""What is wrong with final weights, to the letter: the same for several layers is told once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lib import Model, OptState, Trace, Weight, check, simulate
from lib.checker.final_weights import finals
from lib.checker.readiness import unready
from lib.schedules.steps import compute, load, mine, step, update
from lib.trace.rebuild import rebuild
from lib.values.operations import OPERATIONS, Operation


def forgotten(model: Model) -> None:
    load(model)
    compute(model, range(model.BATCHES))
    for layer in range(model.LAYERS):
        update(model, layer)


def kept_the_old_one(model: Model) -> None:
    load(model)
    compute(model, range(model.BATCHES))
    for layer in range(model.LAYERS):
        model.update(layer, model.grad_weights[layer], model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])


def too_early(model: Model) -> None:
    load(model)
    compute(model, range(model.BATCHES))
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, model.weights[layer])
    for layer in range(model.LAYERS):
        update(model, layer)


def never(model: Model) -> None:
    load(model)
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, model.weights[layer])


def twice(model: Model) -> None:
    load(model)
    compute(model, range(model.BATCHES))
    for layer in range(model.LAYERS):
        weight, state = model.weights[layer], model.opt_states[layer]
        weight, state = model.update(layer, model.grad_weights[layer], weight, state)
        weight, state = model.update(layer, model.grad_weights[layer], weight, state)
        model.set_final_weight(layer, weight)


def nothing(model: Model) -> None:
    pass


def stopped(model: Model) -> None:
    load(model)


def line(function: Callable[..., Any], number: int) -> int:
    """The line of a file: number 0 is the one of `def`."""
    return function.__code__.co_firstlineno + number


HAND_IN = "model.set_final_weight(layer, model.weights[layer])"
FAULTS: dict[Callable[[Model], None], str] = {
    forgotten: (
        "no final weight of layers 0 and 1\n"
        "    expected: model.set_final_weight(layer, weights[layer]) for each layer, on every rank that updates it\n"
        "    got:      an update on rank 0, and no set_final_weight after it\n"
        f"    where:    steps.py, line {line(update, 4)}, in update: "
        "model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)\n"
        "    fix:      hand in what update gives: model.set_final_weight(layer, weights[layer]);\n"
        "              if that line is there, look for a `return` before it"
    ),
    kept_the_old_one: (
        "rank 0: the final weight of layers 0 and 1 was never updated\n"
        "    expected: exactly one update\n"
        f"    got:      the weight as it was loaded; update is called in line {line(kept_the_old_one, 4)}\n"
        f"    where:    test_final_weights.py, line {line(kept_the_old_one, 5)}, in kept_the_old_one: {HAND_IN}\n"
        "    fix:      update changes nothing in place: keep the new weight that it returns, and hand that in"
    ),
    too_early: (
        "rank 0: the final weight of layers 0 and 1 was never updated\n"
        "    expected: exactly one update\n"
        f"    got:      the weight as it was loaded; update is called in line {line(update, 4)}\n"
        f"    where:    test_final_weights.py, line {line(too_early, 4)}, in too_early: {HAND_IN}\n"
        "    fix:      hand in the weight after its update: one handed in before stays as it was"
    ),
    never: (
        "rank 0: the final weight of layers 0 and 1 was never updated\n"
        "    expected: exactly one update\n"
        "    got:      the weight as it was loaded\n"
        f"    where:    test_final_weights.py, line {line(never, 3)}, in never: {HAND_IN}\n"
        "    fix:      update it first: weights[layer], opt_states[layer] = model.update(...)"
    ),
    twice: (
        "rank 0: the final weight of layers 0 and 1 was updated 2 times\n"
        "    expected: exactly one update\n"
        f"    got:      updates in lines {line(twice, 5)} and {line(twice, 6)}\n"
        f"    where:    test_final_weights.py, line {line(twice, 7)}, in twice: model.set_final_weight(layer, weight)\n"
        "    fix:      one training step updates each weight once: leave the others out"
    ),
    nothing: (
        "no update and no final weight of layers 0 and 1\n"
        "    expected: every layer updated once, and handed in with model.set_final_weight\n"
        "    got:      no operation at all\n"
        "    fix:      look for a `return` that comes too early, or a loop that leaves layers out"
    ),
    stopped: (
        "no update and no final weight of layers 0 and 1\n"
        "    expected: every layer updated once, and handed in with model.set_final_weight\n"
        "    got:      rank 0 ended after load_weights\n"
        f"    where:    steps.py, line {line(load, 3)}, in load: "
        "model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, total)\n"
        "    fix:      look for a `return` that comes too early, or a loop that leaves layers out"
    ),
}


@pytest.mark.parametrize("function", FAULTS, ids=lambda function: function.__name__)
def test_a_fault_explains_itself(function: Callable[[Model], None]) -> None:
    trace = Trace.of(simulate(function, layers=2, batches=2))
    assert check(trace).faults == (FAULTS[function],)


@pytest.mark.parametrize("function", FAULTS, ids=lambda function: function.__name__)
def test_a_text_has_no_lines_to_show(function: Callable[[Model], None]) -> None:
    (fault,) = check(Trace.parse(Trace.of(simulate(function, layers=2, batches=2)).text())).faults
    whole = FAULTS[function].splitlines()
    assert fault.splitlines() == [
        row.partition("; update is called")[0] for row in whole if "where:" not in row and "updates in" not in row
    ]


def test_who_forgot_is_said_of_each_rank_and_each_layer_by_itself() -> None:
    async def each(model: Model) -> None:
        load(model)
        compute(model, mine(model))
        for layer in range(model.LAYERS):
            model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer)
        update(model, 0)
        if model.rank == 1:
            step(model, 1)
            update_of_its_own(model)

    def update_of_its_own(model: Model) -> None:
        model.update(2, model.grad_weights[2], model.weights[2], model.opt_states[2])

    faults = check(Trace.of(simulate(each, ranks=2, layers=4, batches=2))).faults
    assert [fault.splitlines()[0] for fault in faults] == [
        "no final weight of layer 0",
        "no final weight of layer 2",
        "no update and no final weight of layer 3",
    ]
    assert "got:      an update on ranks 0 and 1, and no set_final_weight after it" in faults[0]
    assert "got:      an update on rank 1, and no set_final_weight after it" in faults[1]
    assert f"where:    test_final_weights.py, line {line(update_of_its_own, 1)}" in faults[1]
    assert "got:      rank 0 ended after update" in faults[2]


def test_the_first_rank_that_is_wrong_is_named() -> None:
    """And the flaw of another rank with it."""

    async def handed_on(model: Model) -> None:
        load(model)
        if model.rank == 1:
            model.grad_weights[0] = model.fake_grad(0, range(model.BATCHES))
            update(model, 0)
        model.weights[0] = await model.broadcast(model.weights[0], 0, root=1)
        if model.rank != 1:
            model.set_final_weight(0, model.weights[0])

    (fault,) = check(Trace.of(simulate(handed_on, ranks=4, layers=1, batches=2))).faults
    assert fault.splitlines()[0] == (
        "rank 0: the final weight of layer 0 does not count: a gradient was made up with fake_grad on rank 1"
    )


@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        ([(0, 2)], "shard 1 of 2 is on no rank\n    expected: all 2 shards, "),
        ([(0, 3)], "shards 1 and 2 of 3 are on no rank\n    expected: all 3 shards, "),
        ([(0, 10**6)], "shards 1-999999 of 1000000 are on no rank\n    expected: all 1000000 shards, "),
        ([(1, 4)], "shards 0, 2, 3 of 4 are on no rank\n    expected: all 4 shards, "),
        (
            [(0, 10**6), (1, 999_983)],
            "the part of the weight from 1/1000000 to 1/999983 and from 2/999983 to 1 is on no rank\n"
            "    expected: all of the weight, ",
        ),
    ],
)
def test_the_missing_part_is_named(cuts: list[tuple[int, int]], words: str) -> None:
    def hand(model: Model, shard: int, total: int) -> Any:
        weight, state = model.weights[0].shard(shard, total), model.opt_states[0].shard(shard, total)
        return model.update(0, model.grad_weights[0], weight, state)[0]

    async def each(model: Model) -> None:
        load(model)
        compute(model, range(model.BATCHES))
        model.set_final_weight(0, hand(model, *cuts[model.rank]))

    (fault,) = check(Trace.of(simulate(each, ranks=len(cuts), layers=1, batches=1))).faults
    who = "rank 0" if len(cuts) == 1 else "ranks 0 and 1"
    assert fault.startswith(
        f"the final weights of layer 0 are not complete: {words}each handed in by a rank that has updated it\n"
        f"    got:      final weights from {who} only\n"
        "    where:    test_final_weights.py, line "
    )
    # Who hands in on every rank and leaves a part has cut too small.
    every = "a rank updates all of what it has the sum and the state of: cut the weight no smaller than that"
    some = "call model.set_final_weight on every rank, with the shard that it has updated"
    assert fault.endswith(f"    fix:      {every if len(cuts) == 1 else some}")


def columns(shape: Any, layer: int, shard: int, total: int, weight: Weight, state: OptState) -> tuple[Weight, OptState]:
    """Some columns of both: a place that no operation gives yet."""
    place = weight.place.having("out", weight.place.parts[1].axis.shard(shard, total))
    return weight.at(place), state.at(place)


@pytest.mark.parametrize("by_all", [False, True])
def test_some_columns_of_all_rows_are_no_whole_weight(by_all: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight may come to be cut along its second dim. Who hands in half of its columns has no row of it; where the
    ranks hand in all of them, each is not ready to begin anew with the whole."""
    kinds = (Weight, OptState)
    row = Operation("columns", "H2", "columns", "columns(...)", columns, kinds, kinds, says="shard")
    monkeypatch.setitem(OPERATIONS, "columns", row)

    async def halves(model: Any) -> None:
        load(model)
        compute(model, mine(model))
        model.grad_weights[0] = await model.allreduce(model.grad_weights[0], 0)
        cut = (model.rank if by_all else 0, 2)
        weight, state = model._compute("columns", 0, model.weights.pop(0), model.opt_states.pop(0), said=cut)
        model.weights[0], model.opt_states[0] = model.update(0, model.grad_weights[0], weight, state)
        model.set_final_weight(0, model.weights[0])

    models = simulate(halves, ranks=2, layers=1, batches=2)
    rebuilt = rebuild(Trace.of(models))
    faults = finals(Trace.of(models), rebuilt, False)
    assert [fault for fault in faults if "not complete" in fault] == ([] if by_all else faults)
    assert bool(faults) != by_all
    assert check(models).correct == by_all
    assert len(unready(rebuilt)) == 2
