"""A Trace back to the order that it is, and its actions: of every schedule, and of what students write by hand."""

from itertools import accumulate, pairwise, starmap
from random import Random

import pytest

from lib import Mesh, Trace, check, simulate
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.formats.trace import actions_of, order_of, pipeline_of
from lib.schedules.pipelines.action import PASSES, Action, Order, parse, parts_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import gpipe, one_f_one_b
from lib.schedules.pipelines.program import MESSAGES_ARE, Messages, program_of
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from tests.schedules.mutations import random_order
from tests.support.puzzles import way

SIZES = [(2, 3), (3, 5), (4, 4), (4, 8)]


def _official(puzzle: str) -> Trace:
    return Trace.of(simulate(way(puzzle), puzzle=puzzle))


def _again(order: Order) -> Order:
    """An order without what a Trace does not tell: which passes were one."""
    return tuple(tuple(parts_of(actions)) for actions in order)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("messages", ["awaited", "posted"])
def test_the_orders_that_have_a_name_come_back(name: str, messages: Messages) -> None:
    for ranks, batches in SIZES:
        order = SCHEDULES[name].order(ranks, batches)
        size = {"layers": len(places(order)), "batches": batches, "ranks": ranks}
        trace = Trace.of(simulate(program_of(order, messages=messages), **size))  # pyright: ignore[reportArgumentType]
        assert order_of(trace) == _again(order), (ranks, batches)
        assert (check(trace).faults, check(trace).notes) == ((), ())


def test_settings_come_back_with_it() -> None:
    order, stages, batches = one_f_one_b(3, 2), (range(1), range(1, 4), range(4, 6)), ((0, 1, 2), (3,))
    trace = Trace.of(simulate(program_of(order, layers_of=stages, microbatches=batches), ranks=3, layers=6, batches=4))
    assert pipeline_of(trace) == (order, stages, batches)


def test_of_pipelines_beside_each_other_it_is_that_of_one() -> None:
    order = one_f_one_b(2, 3)
    trace = Trace.of(simulate(program_of(order), mesh=Mesh({"data": 2, "stage": 2}), layers=4, batches=6))
    assert pipeline_of(trace) == (order, (range(2), range(2, 4)), ((0,), (1,), (2,)))


def test_what_students_write_by_hand() -> None:
    assert order_of(_official("gpipe")) == gpipe(4, 4)
    assert order_of(_official("pipeline")) == gpipe(4, 1)
    assert order_of(_official("pipeline_fsdp")) == gpipe(4, 4)
    assert order_of(_official("grad_accum")) == (parse("0F0 0B0 0F1 0B1 0F2 0B2 0F3 0B3"),)
    for name, order in {"gpipe_one_f_one_b": one_f_one_b(4, 4), "gpipe_interleaved": None}.items():
        function = load_function(reference("gpipe").parents[1] / "alternatives" / f"{name}.py", "gpipe")
        trace = Trace.of(simulate(function, puzzle="gpipe"))
        found = order_of(trace)
        if order is not None:
            assert found == order
        again = Trace.of(simulate(program_of(found), puzzle="gpipe"))
        assert order_of(again) == found


def test_an_update_before_the_end_is_said() -> None:
    order = (parse("0F0 1F0 1B0 1UPDATE 0B0"),)
    assert order_of(Trace.of(simulate(program_of(order), layers=2, batches=1))) == order


@pytest.mark.parametrize("seed", range(20))
def test_every_legal_order_runs_in_both_worlds_and_comes_back(seed: int) -> None:
    """Stages of any length anywhere, halves, pairs; stages that a rank does in one go may come back as one."""
    dice = Random(seed)
    stages, batches = dice.randint(1, 7), dice.randint(1, 5)
    ranks = dice.randint(1, min(stages, 4))
    place = [*range(ranks), *(dice.randrange(ranks) for _ in range(stages - ranks))]
    dice.shuffle(place)
    order = random_order(dice, place, batches)
    cuts = [0, *accumulate(dice.randint(1, 2) for _ in place)]
    size = {"ranks": ranks, "layers": cuts[-1], "batches": batches}
    for messages in MESSAGES_ARE:
        how: Messages = messages  # pyright: ignore[reportAssignmentType]
        program = program_of(order, messages=how, layers_of=[*starmap(range, pairwise(cuts))])
        trace = Trace.of(simulate(program, **size))  # pyright: ignore[reportArgumentType]
        verdict = check(trace)
        assert verdict.correct, verdict.faults
        assert verdict.notes == ()
        if ranks == 1 or any(event.op == "pass_to" for _, event in trace.events()):
            found = pipeline_of(trace)
            assert len(places(found.order)) <= stages
            assert found.order == _again(order) or len(places(found.order)) < stages
            again = program_of(found.order, messages=how, layers_of=found.layers_of)
            assert pipeline_of(Trace.of(simulate(again, **size))) == found  # pyright: ignore[reportArgumentType]


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
