"""What was tried, with fresh eyes, to get to a goal of a puzzle cheaper than an honest solution can.

Each trick runs at the size of its puzzle, and is judged as a grader judges: by the JSON of its Trace. Where a value is
kept, what is left out, made up, touched up or changed in the record is drawn at random (cheats.py, forgeries.py); here
is what no random program does.
"""

from collections.abc import Callable
from typing import Any

import pytest

from lib import Model, PuzzleError, Trace, Verdict, check, simulate
from lib.schedules.data_parallel import ddp
from lib.schedules.steps import compute, load, mine, step
from tests.adversary.judging import read
from tests.support.version_1 import encode


def judged(function: Callable[[Model], Any], puzzle: str) -> Verdict:
    """The verdict of a grader, who has the JSON only."""
    return check(read(encode(Trace.of(simulate(function, puzzle=puzzle)))), puzzle)


def test_a_result_taken_out_of_its_work() -> None:
    """It is known when the last member has come; taken from there, and not waited for, it is nobody's value."""

    async def take(model: Model) -> None:
        load(model)
        compute(model, mine(model))
        works: list[Any] = [model.allreduce(model.grad_weights[layer], layer) for layer in range(model.LAYERS)]
        await model.allreduce(model.fake_grad(0), 0)  # now everybody has come
        for layer, work in enumerate(works):
            model.grad_weights[layer] = work._pending[1].value[work._pending[2]]
            step(model, layer)

    assert not judged(take, "ddp").correct


def test_a_second_model_of_the_same_rank() -> None:
    """It has a clock of its own."""

    async def twice(model: Model) -> None:
        other = Model(model.rank, model.dist, model.LAYERS, model.BATCHES)
        load(other)
        compute(other, mine(model))
        load(model)
        for layer in range(model.LAYERS):
            model.grad_weights[layer] = await model.allreduce(other.grad_weights[layer], layer)
            step(model, layer)

    with pytest.raises(PuzzleError):
        judged(twice, "ddp")


def test_one_rank_that_writes_the_programs_of_all() -> None:
    """By way of `model.dist.models`: the clocks are those of the ranks all the same."""

    async def write(model: Model) -> None:
        if model.rank == 0:
            for other in model.dist.models.values():
                load(other)
                compute(other, mine(other))
        else:
            await model.receive(0)
        for rank in range(1, model.RANKS if model.rank == 0 else 0):
            await model.pass_to(rank, "done")
        for layer in range(model.LAYERS):
            model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer)
            step(model, layer)

    verdict, honest = judged(write, "ddp"), judged(ddp, "ddp")
    assert verdict.correct
    assert verdict.time >= honest.time
    assert verdict.memory >= honest.memory
