"""Calling starts a communication, `await` waits for it: what overlaps with what."""

from typing import Any

import pytest

from lib import ForgottenAwait, Mesh, Model, Trace, Work, simulate
from lib.analysis import figures
from tests.support.drivers import DRIVERS, Run


@pytest.fixture(params=DRIVERS)
def run(request: pytest.FixtureRequest) -> Run:
    return DRIVERS[request.param]


def spans(model: Model, *ops: str) -> list[tuple[float, float]]:
    """Start and end of the operations named."""
    return [(e.time, round(e.time + e.length, 9)) for e in model.log if e.typ in ops]


# -- what is hidden behind what -----------------------------------------------------------------------------------


def test_collectives_of_one_group_wait_for_each_other(run: Run) -> None:
    async def two(model: Model) -> None:
        first = model.allreduce(model.fake_grad(0), 0)
        second = model.allreduce(model.fake_grad(1), 1)
        model.forward(0, model.get_activation([0]), model.load_weights(0)[0])
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
