"""Calling starts a communication, `await` waits for it: what overlaps with what, and what that costs in memory."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import pytest

from lib import (
    HIDDEN,
    LENGTH,
    ForgottenAwait,
    Mesh,
    Model,
    Trace,
    Weight,
    Work,
    simulate,
)
from lib.analysis import figures
from tests.support.drivers import DRIVERS, Run

WEIGHT, BATCH = HIDDEN * HIDDEN, HIDDEN * LENGTH


@pytest.fixture(params=DRIVERS)
def run(request: pytest.FixtureRequest) -> Run:
    return DRIVERS[request.param]


def spans(model: Model, *ops: str) -> list[tuple[float, float]]:
    """Start and end of the operations named."""
    return [(e.time, round(e.time + e.length, 9)) for e in model.log if e.typ in ops]


SPARE: WeakKeyDictionary[Model, Weight] = WeakKeyDictionary()
"""The weight that a rank works with: at rest from the beginning to its last use."""


def work(model: Model, steps: int = 1) -> None:
    """Computes for as many steps, with one weight a rank and on data that is dropped at once."""
    weight = SPARE.get(model) or SPARE.setdefault(model, model.load_weights(0)[0])
    for _ in range(steps):
        model.forward(0, model.get_activation([0]), weight)


# -- what is hidden behind what -----------------------------------------------------------------------------------


def test_collectives_of_one_group_wait_for_each_other(run: Run) -> None:
    async def two(model: Model) -> None:
        first = model.allreduce(model.fake_grad(0), 0)
        second = model.allreduce(model.fake_grad(1), 1)
        work(model)
        await second
        assert model.time == 1.0
        await first

    (model, _) = run(two, ranks=2)
    assert spans(model, "allreduce") == [(0.0, 0.3), (0.3, 0.6)]


def test_two_groups_run_side_by_side(run: Run) -> None:
    async def two(model: Model) -> None:
        row = model.allreduce(model.fake_grad(0), 0, "row")
        column = model.allreduce(model.fake_grad(0), 0, "column")
        everybody = model.allreduce(model.fake_grad(1), 1)
        again = model.allreduce(model.fake_grad(0), 0, group="row")
        for one in (row, column, everybody, again):
            await one
        assert model.time == 0.6

    models = run(two, mesh=Mesh({"row": 2, "column": 2}), ranks=4)
    assert [spans(model, "allreduce") for model in models] == [[(0.0, 0.3)] * 3 + [(0.3, 0.6)]] * 4


# -- memory of what is under way ----------------------------------------------------------------------------------


def held(model: Model, kind: str) -> list[int]:
    """Elements of a kind whenever a forward started."""
    samples = figures.samples(model.trace, model.rank)
    return [int(s.by_kind.get(kind, 0)) for s in samples if model.program.events[s.index].op == "forward"]


def test_the_output_of_an_all_gather_counts_from_its_issue(run: Run) -> None:
    async def early(model: Model) -> None:
        model.weights["shard"], _ = model.load_weights(0, model.rank, 4)
        work(model)
        coming = model.allgather(model.weights["shard"], 0)
        work(model)
        model.weights["whole"] = await coming
        work(model)
        del model.weights["whole"]
        work(model)

    for model in run(early, ranks=4):
        own = WEIGHT + WEIGHT // 4
        assert held(model, "weight") == [own, own + WEIGHT, own + WEIGHT, own]


def test_an_all_reduce_writes_over_its_input(run: Run) -> None:
    async def early(model: Model) -> None:
        model.grad_weights[0] = model.fake_grad(0)
        work(model)
        coming = model.allreduce(model.grad_weights.pop(0), 0)
        work(model)
        model.grad_weights[0] = await coming
        work(model)
        del model.grad_weights[0]
        work(model)

    for model in run(early, ranks=4):
        assert held(model, "weight gradient") == [WEIGHT, WEIGHT, WEIGHT, 0]


def test_a_reduce_scatter_needs_its_input_until_it_was_waited_for(run: Run) -> None:
    async def early(model: Model) -> None:
        model.grad_weights[0] = model.fake_grad(0)
        coming = model.scatterreduce(model.grad_weights.pop(0), 0)
        work(model)
        model.grad_weights[0] = await coming
        work(model)

    for model in run(early, ranks=4):
        assert held(model, "weight gradient") == [WEIGHT + WEIGHT // 4, WEIGHT // 4]


def test_a_message_is_its_senders_until_it_was_waited_for_and_the_receivers_from_the_call_on(run: Run) -> None:
    async def send(model: Model) -> None:
        model.weights["own"], _ = model.load_weights(0)
        if model.rank == 0:
            sending = model.pass_to(1, model.get_activation([0, 1]))
            model.forward(0, model.get_activation([0]), model.weights["own"])
            await sending
        else:
            coming = model.receive(0)
            model.forward(0, model.get_activation([0]), model.weights["own"])
            model.activations["in"] = await coming
        model.forward(0, model.get_activation([0]), model.weights["own"])

    sender, receiver = run(send, ranks=2, batches=2)
    assert held(sender, "activation") == [3 * BATCH, BATCH]
    assert held(receiver, "activation") == [3 * BATCH, 3 * BATCH]


def test_a_message_that_was_sent_is_its_senders_until_its_receive_is_issued(run: Run) -> None:
    async def send(model: Model) -> None:
        if model.rank == 0:
            await model.pass_to(1, [model.get_activation([0]), {"and": model.get_activation([1])}])
            work(model, 4)
        else:
            work(model, 2)
            model.activations["both"], _ = await model.receive(0)

    sender, _ = run(send, ranks=2, batches=2)
    # Forwards begin at 0.2, 1.2, 2.2 and 3.2, each on one batch of its own; the receive is issued at 2.
    assert held(sender, "activation") == [3 * BATCH, 3 * BATCH, BATCH, BATCH]


def test_what_nobody_waits_for_is_there_to_the_end(run: Run) -> None:
    async def post(model: Model) -> None:
        model.receive(1 - model.rank)
        model.allgather(model.load_weights(1, model.rank, 2)[0], 1)
        await model.pass_to(1 - model.rank, model.get_activation([0, 1]))
        work(model, 2)

    for model in run(post, ranks=2, batches=2):
        assert held(model, "activation") == [3 * BATCH, 3 * BATCH]
        assert held(model, "weight") == [2 * WEIGHT + WEIGHT // 2] * 2


def test_what_nobody_receives_is_its_senders_to_the_end(run: Run) -> None:
    async def send(model: Model) -> None:
        if model.rank == 0:
            await model.pass_to(1, model.get_activation([0, 1]))
            work(model, 3)

    sender, _ = run(send, ranks=2, batches=2)
    assert held(sender, "activation") == [3 * BATCH] * 3


# -- a Work by itself ---------------------------------------------------------------------------------------------


def test_a_work_says_what_it_is_and_awaiting_twice_brings_the_same_and_waits_once(run: Run) -> None:
    async def twice(model: Model) -> None:
        coming = model.allreduce(model.fake_grad(0), 0)
        assert isinstance(coming, Work)
        assert repr(coming) == "<allreduce, to be awaited>"
        assert not hasattr(coming, "layer")
        assert getattr(coming, "batches", None) is None
        first = await coming
        assert await coming is first
        assert model.time == 0.3

    (model, _) = run(twice, ranks=2)
    assert [event.op for event in model.program.events] == ["fake_grad", "allreduce"]


def test_a_work_that_nobody_awaits_happens_all_the_same(run: Run) -> None:
    async def forget(model: Model) -> None:
        model.allreduce(model.fake_grad(0), 0)
        if model.rank == 0:
            model.pass_to(1, "hello")
        else:
            model.receive(0)

    models = run(forget, ranks=2)
    assert [model.time for model in models] == [0.0, 0.0]
    assert figures.end(Trace.of(models)) == 0.4


# -- forgotten await ----------------------------------------------------------------------------------------------

PLACES: dict[str, Any] = {
    "store": lambda model, work: model.weights.__setitem__(0, work),
    "store.update": lambda model, work: model.weights.update({0: work}),
    "store |=": lambda model, work: model.weights.__ior__({0: work}),
    "store.setdefault": lambda model, work: model.weights.setdefault(0, work),
    "attribute": lambda model, work: work.layer,
    "method": lambda model, work: work.is_complete(),
    "memory": lambda model, work: work.memory(),
    "combine": lambda model, work: work.combine(model.fake_grad(0)),
    "shard": lambda model, work: work.shard(0, 2),
    "forward": lambda model, work: model.forward(0, model.get_activation([0]), work),
    "forward, input": lambda model, work: model.forward(0, work, model.load_weights(0)[0]),
    "loss": lambda model, work: model.loss(work),
    "update": lambda model, work: model.update(0, work, *model.load_weights(0)),
    "set_final_weight": lambda model, work: model.set_final_weight(0, work),
    "allreduce": lambda model, work: model.allreduce(work, 0),
    "allgather": lambda model, work: model.allgather(work, 0),
    "scatterreduce": lambda model, work: model.scatterreduce(work, 0),
    "broadcast": lambda model, work: model.broadcast(work, 0),
    "alltoall, one value": lambda model, work: model.alltoall([work, work], 0),
    "alltoall": lambda model, work: model.alltoall(work, 0),
    "pass_to": lambda model, work: model.pass_to(1 - model.rank, work),
    "pass_to, in a tuple": lambda model, work: model.pass_to(1 - model.rank, (0, work)),
    "sum from the left": lambda model, work: work + model.fake_grad(0),
    "sum from the right": lambda model, work: model.fake_grad(0) + work,
    "combine from the right": lambda model, work: model.fake_grad(0).shard(0, 2).combine(work),
    "item": lambda model, work: work[0],
    "loop": lambda model, work: list(work),
    "unpacking": lambda model, work: (lambda a, b: None)(*work),
    "len": lambda model, work: len(work),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_forgotten_await_is_called_that(place: str) -> None:
    async def forget(model: Model) -> None:
        coming = model.allreduce(model.fake_grad(0), 0)
        with pytest.raises(ForgottenAwait) as raised:
            PLACES[place](model, coming)
        assert str(raised.value).startswith(f"rank {model.rank}: ")
        assert "\n  got:      a call of model.allreduce, not awaited yet\n" in str(raised.value)
        assert ": coming = await model.allreduce(model.fake_grad(0), 0)" in str(raised.value.fix)

    simulate(forget, ranks=2)
