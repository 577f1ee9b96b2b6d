"""What was tried, with fresh eyes, to get to a goal of a puzzle cheaper than an honest solution can.

Each trick runs at the size of its puzzle, and is judged as a grader judges: by the JSON of its Trace. Where a value is
kept, what is left out, made up, touched up or changed in the record is drawn at random (cheats.py, forgeries.py); here
is what no random program does.
"""

from collections.abc import Callable
from typing import Any

import pytest

from lib import Model, PuzzleError, Trace, Verdict, check, simulate
from lib.schedules.data_parallel import ddp, fully_sharded
from lib.schedules.steps import backward, compute, forward, load, loss, mine, step
from lib.trace.json_format import encode
from tests.adversary.judging import read


def judged(function: Callable[[Model], Any], puzzle: str) -> Verdict:
    """The verdict of a grader, who has the JSON only."""
    return check(read(encode(Trace.of(simulate(function, puzzle=puzzle)))), puzzle)


class Bag:
    """A class of a student's own."""

    def __init__(self, value: Any) -> None:
        self.value = value


BAGS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a bag": (Bag, lambda bag: bag.value),
    "a set": (lambda value: {value}, lambda items: next(iter(items))),
    "a closure": (lambda value: lambda: value, lambda call: call()),
}


@pytest.mark.parametrize("bag", BAGS)
def test_a_gradient_in_a_message_that_seems_to_weigh_nothing(bag: str) -> None:
    wrap, unwrap = BAGS[bag]

    async def run(model: Model) -> None:
        load(model)
        compute(model, mine(model))
        after, before = (model.rank + 1) % model.RANKS, (model.rank - 1) % model.RANKS
        await model.pass_to(after, wrap(model.grad_weights[0]))
        model.grad_weights[0] += unwrap(await model.receive(before))

    with pytest.raises(PuzzleError):
        judged(run, "ddp")


def test_a_result_taken_out_of_its_work() -> None:
    """It is known when the last member has come; taken from there, and not waited for, it is nobody's value."""

    async def take(model: Model) -> None:
        load(model)
        compute(model, mine(model))
        works: list[Any] = [model.allreduce(model.grad_weights[layer], layer) for layer in range(model.LAYERS)]
        await model.allreduce(model.fake_grad(0), 0)  # now everybody has come
        for layer, work in enumerate(works):
            model.grad_weights[layer] = work._signal.value[work._place]
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


async def second_hand_data(model: Model) -> None:
    """The data of layer 0 is not kept for its backward: the neighbour loads it, too, and passes it on in time.

    A rank reads a batch once. But data is not at rest: any rank may read it, as with data loaders, and what is passed
    on takes time and memory like everything else. One activation less is alive at the peak.
    """
    load(model, shard=model.rank, total=model.RANKS)
    after, before = (model.rank + 1) % model.RANKS, (model.rank - 1) % model.RANKS
    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.weights["whole"] = await model.allgather(model.weights[layer], layer)
        forward(model, layer, model.weights.pop("whole"))
    del model.activations[0]
    loss(model)
    coming: Any = None
    for layer in reversed(range(model.LAYERS)):
        model.weights["whole"] = await model.allgather(model.weights[layer], layer)
        if layer == 0:
            model.activations[0] = await coming
        made = backward(model, layer, model.weights.pop("whole"))
        model.grad_weights[layer] = await model.allreduce(made, layer)
        step(model, layer)
        if layer == 2:
            model.pass_to(after, model.get_activation([after]))
            coming = model.receive(before)


def test_data_may_be_read_by_two_ranks() -> None:
    """No trick, though it saves something."""
    verdict = judged(second_hand_data, "wsdp")
    assert verdict.correct
    assert verdict.memory == judged(fully_sharded(), "wsdp").memory - 512 * 256
