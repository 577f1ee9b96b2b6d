"""One collective alone: it runs for every row of the table, and is nothing but that collective."""

import pytest

from lib import Costs, Layer, Trace, simulate
from lib.schedules.steps import one_collective
from lib.values.collectives import COLLECTIVES

OTHER = {"load_weights", "fake_grad", "shard", "get_activation", "forward"}
"""What makes the values that ranks bring."""


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", list(COLLECTIVES))
def test_every_row(name: str, ranks: int) -> None:
    layers = [Layer("mean" if name == "allreduce_mean" else "linear")]
    models = simulate(one_collective(name), layers=layers, batches=ranks, ranks=ranks, costs=Costs(forward=0))
    trace = Trace.of(models)
    for program in trace.programs:
        assert [event.op for event in program.events if event.op not in OTHER] == [name]
    assert {model.time for model in models} == {0.3}


def test_who_has_what() -> None:
    sums = [model.grad_weights["gets"] for model in simulate(one_collective("allreduce"), batches=4, ranks=4)]
    assert [grad.batches for grad in sums] == [frozenset(range(4))] * 4
    whole = [model.weights["gets"] for model in simulate(one_collective("allgather"), batches=4, ranks=4)]
    assert [weight.shards for weight in whole] == [frozenset(range(4))] * 4
    parts = [model.grad_weights["gets"] for model in simulate(one_collective("scatterreduce"), batches=4, ranks=4)]
    assert [sorted(grad.shards) for grad in parts] == [[0], [1], [2], [3]]
