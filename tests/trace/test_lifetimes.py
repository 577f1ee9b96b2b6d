"""How long values live: what works in place, what has a buffer, what waits in a variable, and what nobody waits for."""

from collections.abc import Callable
from typing import Any

import pytest

from lib import HIDDEN, LENGTH, Model, Trace, check, simulate
from lib.analysis import figures
from lib.schedules.data_parallel import ddp
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.trace.lifetimes import lifetimes, never_awaited, stays_of, twins, uses_of
from tests.support.drivers import Run
from tests.support.schedules import ddp_overlap, fsdp

WEIGHT, BATCH = HIDDEN * HIDDEN, HIDDEN * LENGTH


def tick(model: Model) -> None:
    """An operation that takes no time: memory is sampled when it starts. Its own activation is of the last layer."""
    model.loss(model.forward(0, model.get_activation([0]), model.final_weights[0]))


def gradients(model: Model) -> list[int]:
    samples = figures.samples(model.trace, model.rank)
    found = [s for s in samples if model.program.events[s.index].op == "forward"]
    return [int(s.by_kind.get("weight gradient", 0)) // WEIGHT for s in found]


def begin(model: Model) -> None:
    """A weight to work with, which is alive to the end."""
    model.set_final_weight(0, model.load_weights(0)[0])


def in_background(use: Callable[[Model, Any], Any]) -> Callable[[Model], Any]:
    """An all-reduce in the background; `use` does something with what it was given, once it is under way."""

    async def function(model: Model) -> None:
        begin(model)
        grad = model.fake_grad(0)
        work = model.allreduce(grad, 0)
        use(model, grad)
        del grad
        tick(model)
        model.grad_weights["sum"] = await work
        tick(model)

    return function


USES: dict[str, tuple[Callable[[Model, Any], Any], list[int]]] = {
    "nothing, so that it works in place": (lambda model, grad: None, [1, 1]),
    "stored until it is over": (lambda model, grad: model.grad_weights.update(sum=grad), [1, 1]),
    "stored elsewhere": (lambda model, grad: model.grad_weights.update(own=grad), [2, 2]),
    "used by another operation": (lambda model, grad: grad.shard(0, 2), [2, 1]),
    "sent, and nobody ever receives it": (lambda model, grad: model.pass_to(1 - model.rank, grad), [2, 2]),
}


@pytest.mark.parametrize("name", USES)
def test_what_works_in_place_needs_a_buffer_where_its_input_is_needed(run: Run, name: str) -> None:
    """The shard that another operation makes is used by nobody, and is gone at once."""
    use, held = USES[name]
    for model in run(in_background(use), ranks=2, layers=1):
        assert gradients(model) == held


def test_what_was_used_before_may_be_overwritten(run: Run) -> None:
    async def before(model: Model) -> None:
        begin(model)
        model.grad_weights[0] = model.fake_grad(0)
        model.grad_weights[0].shard(0, 2)
        work = model.allreduce(model.grad_weights.pop(0), 0)
        tick(model)
        await work

    for model in run(before, ranks=2, layers=1):
        assert gradients(model) == [1]


@pytest.mark.parametrize(("late", "held"), [(False, [1, 1, 1]), (True, [2, 2, 2])])
def test_what_was_sent_may_be_overwritten_when_it_was_received(run: Run, late: bool, held: list[int]) -> None:
    """The other rank asks for it at once, or a step later, when the sum is under way."""

    async def send(model: Model) -> None:
        begin(model)
        if model.rank == 1:
            tick(model) if late else None
            await model.receive(0)
            tick(model)
            await model.allreduce(model.fake_grad(0), 0)
            return
        grad = model.fake_grad(0)
        await model.pass_to(1, grad)
        tick(model) if not late else None
        work = model.allreduce(grad, 0)
        del grad
        tick(model)
        tick(model)
        tick(model) if late else None
        model.grad_weights[0] = await work

    sender, _ = run(send, ranks=2, layers=1)
    assert gradients(sender) == held


def test_the_sum_that_nobody_waits_for(run: Run) -> None:
    """In place it is where its input was, to the end; where that is needed besides, it is somewhere else."""

    async def drop(model: Model) -> None:
        begin(model)
        model.allreduce(model.fake_grad(0), 0)
        tick(model)
        model.grad_weights["own"] = model.fake_grad(0)
        model.allreduce(model.grad_weights["own"], 0)
        tick(model)
        model.grad_weights["own"].shard(0, 2)
        tick(model)

    for model in run(drop, ranks=2, layers=1):
        assert gradients(model) == [1, 3, 3]
        assert [model.program.events[number].op for number in never_awaited(model.trace)[model.rank]] == [
            "allreduce"
        ] * 2


def test_each_gets_its_own_of_what_nobody_waits_for(run: Run) -> None:
    """Of an all-to-all in a group that is not in order, one of two values of different sizes."""

    async def drop(model: Model) -> None:
        begin(model)
        first, second = model.fake_grad(0), model.fake_grad(0).shard(0, 2)
        mine = [first, second] if model.rank == 1 else [second, first]
        model.alltoall(mine, 0, [1, 0])
        tick(model)

    for model, got in zip(run(drop, ranks=2, layers=1), (WEIGHT + WEIGHT // 2, WEIGHT + WEIGHT // 2), strict=True):
        (sample,) = [s for s in figures.samples(model.trace, model.rank) if s.index > 5][:1]
        assert sample.by_kind["weight gradient"] == WEIGHT + WEIGHT // 2 + got


def test_a_value_waits_in_a_variable_until_it_is_stored(run: Run) -> None:
    async def late(model: Model) -> None:
        begin(model)
        grad = model.fake_grad(0)
        tick(model)
        tick(model)
        model.grad_weights[0] = grad
        tick(model)
        del model.grad_weights[0]
        tick(model)

    (model,) = run(late, ranks=1, layers=1)
    assert gradients(model) == [1, 1, 1, 0]


def test_what_nobody_waits_for_is_there_to_the_end(run: Run) -> None:
    async def post(model: Model) -> None:
        begin(model)
        model.receive(1 - model.rank)
        model.allgather(model.load_weights(1, model.rank, 2)[0], 1)
        await model.pass_to(1 - model.rank, model.get_activation([0, 1]))
        for _ in range(2):
            model.forward(0, model.get_activation([0]), model.final_weights[0])

    for model in run(post, ranks=2, layers=2, batches=2):
        samples = figures.samples(model.trace, model.rank)
        found = [s.by_kind for s in samples if model.program.events[s.index].op == "forward"]
        assert [kinds["activation"] for kinds in found] == [3 * BATCH, 3 * BATCH]
        assert [kinds["weight"] for kinds in found] == [2 * WEIGHT + WEIGHT // 2] * 2


async def careless(model: Model) -> None:
    """Every rank hides a weight, and all but the first keep another one in a store that is for states."""
    model.weights[0], state = model.load_weights(0)
    kept = model.load_weights(1)[0]
    model.activations[0] = model.get_activation([model.rank])
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    model.activations[2] = model.forward(1, model.activations[1], kept)
    if model.rank:
        model.opt_states[0] = model.weights[0]  # type: ignore[assignment]
    else:
        model.opt_states[0] = state
    _ = model.allreduce(model.fake_grad(0, []), 0)


async def crossed(model: Model) -> None:
    """Both ranks send two weights, and wait for that in another order."""
    begun = [model.pass_to(1 - model.rank, model.load_weights(layer)[0]) for layer in range(2)]
    for _ in begun:
        await model.receive(1 - model.rank)
    for work in reversed(begun) if model.rank else begun:
        await work


TWINS = {
    "alike": (ddp, 4, 3, 4, [0, 0, 0, 0]),
    "in the background": (ddp_overlap, 2, 3, 4, [0, 0]),
    "unequally large": (ddp, 2, 3, 3, [0, 0]),
    "each on its own": (program_of(one_f_one_b(2, 4)), 2, 2, 4, [0, 1]),
    "in another order": (crossed, 2, 2, 2, [0, 1]),
    "shards": (fsdp, 2, 3, 2, [0, 0]),
    "careless": (careless, 3, 2, 3, [0, 1, 1]),
}


@pytest.mark.parametrize("name", TWINS)
def test_what_follows_for_twins_is_what_follows_for_each(name: str) -> None:
    function, ranks, layers, batches, expected = TWINS[name]
    run, alone = (Trace.of(simulate(function, ranks=ranks, layers=layers, batches=batches)) for _ in range(2))
    assert twins(run) == expected
    alone.answers[twins] = [*range(ranks)]  # so all is worked out for each rank by itself
    for follows in (uses_of, stays_of, lifetimes, figures.hidden, figures.peaks):
        assert repr(follows(run)) == repr(follows(alone))
    assert check(run) == check(alone)
