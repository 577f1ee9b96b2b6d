"""One collective alone: it runs for every row of the table, and is nothing but that collective."""

import pytest

from lib import Costs, Layer, Trace, simulate
from lib.schedules.steps import one_collective
from lib.values.collectives import COLLECTIVES

OTHER = {"load_weights", "fake_grad", "shard", "get_activation", "forward"}
"""What makes the values that ranks bring."""


@pytest.mark.parametrize("name", list(COLLECTIVES))
def test_every_row(name: str) -> None:
    ranks = 4
    layers = [Layer("mean" if name == "allreduce_mean" else "linear")]
    models = simulate(one_collective(name), layers=layers, batches=ranks, ranks=ranks, costs=Costs(forward=0))
    trace = Trace.of(models)
    for program in trace.programs:
        assert [event.op for event in program.events if event.op not in OTHER] == [name]
    assert {model.time for model in models} == {0.3}
