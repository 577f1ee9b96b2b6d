"""The actions of a Trace: every schedule with a name comes back, with the events that each action is."""

from itertools import pairwise

import pytest

from lib import Mesh, Trace, simulate
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.formats.trace import actions_of
from lib.schedules.pipelines.action import PASSES, Action, parts_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import Messages, program_of


@pytest.mark.parametrize("messages", ["awaited", "posted"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_comes_back(name: str, messages: Messages) -> None:
    order = SCHEDULES[name].order(4, 6)
    stages = len(places(order))
    trace = Trace.of(simulate(program_of(order, messages=messages), ranks=4, layers=2 * stages, batches=6))
    actions = actions_of(trace)
    assert actions is not None
    for rank, found in enumerate(actions):
        assert [done.action for done in found] == [part for part in parts_of(order[rank]) if part.kind in PASSES]
        for one, other in pairwise(found):
            assert one.first <= one.last < other.first
        for action, first, last in found:
            events = trace.programs[rank].events[first : last + 1]
            layers = {event.layer for event in events if event.op in ("forward", "backward", "backward_input")}
            assert layers <= {2 * action.stage, 2 * action.stage + 1}
            assert {event.batches for event in events if event.op == "forward"} <= {frozenset([action.microbatch])}


def test_pipelines_beside_each_other_have_the_same_numbers() -> None:
    mesh = Mesh({"data": 2, "stage": 2})
    trace = Trace.of(simulate(program_of(one_f_one_b(2, 4)), layers=4, batches=8, mesh=mesh))
    actions = actions_of(trace)
    assert actions is not None
    assert [[done.action for done in mine] for mine in actions[:2]] == [
        [done.action for done in mine] for mine in actions[2:]
    ]
    assert actions[0][0].action == Action(0, "F", 0)


def test_what_is_no_pipeline_has_none() -> None:
    assert actions_of(Trace.of(simulate(fully_sharded(), ranks=4, layers=2, batches=4))) is None
