"""order: who meets whom, as it stands in the programs."""

from __future__ import annotations

from lib import Model, Trace, simulate
from lib.trace.order import meetings


def test_a_collective_that_never_started_did_not_take_place() -> None:
    async def two(model: Model) -> None:
        for layer in range(2):
            await model.allreduce(model.fake_grad(layer, []), layer)

    trace = Trace.of(simulate(two, ranks=2, layers=2))
    assert list(meetings(trace)) == [[(0, 1), (1, 1)], [(0, 3), (1, 3)]]
    for program in trace.programs:
        program.events[3].start = None
    assert list(meetings(trace)) == [[(0, 1), (1, 1)]]
    del trace.programs[1].events[1:]
    assert list(meetings(trace)) == []
