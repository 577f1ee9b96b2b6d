"""Orders as programs: the figures that they come to, with messages awaited and posted, and what they are told."""

from collections import Counter
from pathlib import Path

import pytest

from lib import LINKS, UNIT, Costs, Mesh, Trace, check, simulate
from lib.analysis.figures import end, peak
from lib.schedules.pipelines.action import Action, Order, parse, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import breadth_first, gpipe, interleaved, one_f_one_b
from lib.schedules.pipelines.lowering import awaited, posted, waits_for_room, with_messages, with_weights
from lib.schedules.pipelines.program import Messages, program_of
from tests.support.drivers import encoded, in_asyncio
from tests.support.said import Said

ORDERS = {
    "gpipe": gpipe,
    "one_f_one_b": one_f_one_b,
    "interleaved": lambda ranks, batches: interleaved(ranks, batches, 2),
    "breadth_first": lambda ranks, batches: breadth_first(ranks, batches, 2),
}


def _run(order: Order, layers: int, batches: int, messages: Messages = "awaited") -> Trace:
    function = program_of(order, messages=messages)
    return Trace.of(simulate(function, ranks=len(order), layers=layers, batches=batches))


def figures(name: str, batches: int, messages: Messages = "awaited") -> str:
    """Of a schedule on four ranks with eight layers, of which nothing has to be noted."""
    order = ORDERS[name](4, batches) if name in ORDERS else SCHEDULES[name].order(4, batches)
    trace = _run(order, 8, batches, messages)
    assert (check(trace).faults, check(trace).notes) == ((), ())
    return f"time {end(trace):g}, memory {peak(trace).elements:,}"


test_pipelines_come_to_the_published_figures = Said(Path(__file__).with_name("figures.txt")).test(lambda: globals())


def test_who_waits_for_room_for_ever_receives_on_arrival() -> None:
    order = breadth_first(4, 8, 2)
    stuck = waits_for_room(with_messages(order))
    assert list(map(str, stuck.values())) == ["0SEND_F7", "1SEND_F5", "2SEND_F3", "3SEND_F1"]
    assert waits_for_room(awaited(order)) == {}
    assert waits_for_room(posted(order)) == {}


@pytest.mark.parametrize("name", SCHEDULES)
def test_room_for_one_message_is_enough_for_every_schedule(name: str) -> None:
    for ranks, batches in ((2, 5), (3, 8), (4, 12), (5, 6)):
        order = SCHEDULES[name].order(ranks, batches)
        assert waits_for_room(awaited(order)) == {}, (ranks, batches)
        assert waits_for_room(posted(order)) == {}, (ranks, batches)


@pytest.mark.parametrize("costs", [UNIT, LINKS], ids=["alike", "links shared"])
@pytest.mark.parametrize("messages", ["awaited", "posted"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_messages_awaited_at_once_are_those_that_asyncio_awaits(name: str, messages: Messages, costs: Costs) -> None:
    """Under our own driver a message that is over at once needs no Work; among the tasks of asyncio each has one."""
    order = SCHEDULES[name].order(4, 6)
    function, layers = program_of(order, messages=messages), len(places(order))
    ours, theirs = (by(function, ranks=4, layers=layers, batches=6, costs=costs) for by in (simulate, in_asyncio))
    assert encoded(ours) == encoded(theirs)


def test_ranks_that_wait_for_each_other_for_good() -> None:
    """What cannot be done stays as it is: the simulator says what each rank waits for."""
    order = parse("0F0 0B0 0F1 0B1"), parse("1F1 1F0 1B1 1B0")
    assert [str(action) for action in waits_for_room(awaited(order)).values()] == ["0RECV_B1", "1RECV_F1"]


def test_a_message_is_awaited_at_once_unless_the_order_has_a_wait_for_it() -> None:
    words = (
        "0F0 0SEND_F0 0RECV_B0 0F1 0SEND_F1 0RECV_B1 0WAIT_RECV_B0 0B0 0WAIT_RECV_B1 0B1",
        "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
    )
    trace = _run(tuple(map(parse, words)), 2, 2)
    assert check(trace).correct
    blocking = [event.blocking for event in trace.programs[0].events if event.op in ("pass_to", "receive")]
    assert blocking == [True, False, True, False]


def test_a_message_that_has_to_lie_lies_in_a_store() -> None:
    late = (
        parse("0F0 0F1 0SEND_F0 0SEND_F1 0RECV_B0 0RECV_B1 0B0 0B1"),
        parse("1RECV_F0 1RECV_F1 1F0 1F1 1B0 1B1 1SEND_B0 1SEND_B1"),
    )
    verdict = check(_run(late, 2, 2))
    assert verdict.correct
    assert verdict.notes == ()


def test_an_update_may_stand_anywhere_and_is_not_done_twice() -> None:
    trace = _run((parse("0F0 1F0 1B0 1UPDATE 0B0"),), 2, 1)
    ops = [event.op for _, event in trace.events() if event.op in ("backward", "update")]
    assert ops == ["backward", "update"] * 2
    assert check(trace).correct


def test_a_pair_waits_for_the_messages_of_both() -> None:
    """A forward and a backward in one: both inputs are there before the first of them begins."""
    order = (parse("0F0 0F1 (0F2;0B0)OVERLAP_F_B 0B1 0B2"), parse("1F0 1B0 1F1 1B1 1F2 1B2"))
    trace = _run(order, 2, 3)
    assert check(trace).correct
    ops = [event.op for event in trace.programs[0].events if event.op in ("forward", "backward", "receive")]
    assert ops == ["forward", "forward", "receive", "forward", "backward", "receive", "backward", "receive", "backward"]


def test_stages_may_have_any_run_of_layers_and_microbatches_any_batches() -> None:
    order = one_f_one_b(3, 2)
    function = program_of(order, layers_of=[range(1), range(1, 4), range(4, 6)], microbatches=[(0, 1, 2), (3,)])
    trace = Trace.of(simulate(function, ranks=3, layers=6, batches=4))
    assert check(trace).correct
    passes = [(e.layer, sorted(e.batches)) for e in trace.programs[1].events if e.op == "forward"]
    assert passes == [(layer, batches) for batches in ([0, 1, 2], [3]) for layer in (1, 2, 3)]


def test_pipelines_beside_each_other_take_their_own_batches() -> None:
    mesh = Mesh({"data": 2, "stage": 2})
    trace = Trace.of(simulate(program_of(one_f_one_b(2, 3)), mesh=mesh, layers=4, batches=6))
    assert check(trace).correct
    data = [[*e.batches] for e in trace.programs[2].events if e.op == "get_activation"]
    assert data == [[1], [3], [5]]


SHARDED = Mesh({"stage": 4, "data": 2})


def _sharded(order: Order, batches: int, messages: Messages = "awaited") -> tuple[Trace, Counter[str]]:
    """A run of pipelines beside each other, each rank with a shard, and what the first rank calls how often."""
    trace = Trace.of(simulate(program_of(order, messages=messages), mesh=SHARDED, layers=8, batches=batches))
    verdict = check(trace)
    assert verdict.correct, verdict.faults
    assert verdict.notes == ()
    return trace, Counter(event.op for event in trace.programs[0].events)


def test_weights_gathered_once_a_stage_or_for_every_pass() -> None:
    order = one_f_one_b(4, 4)
    once, calls = _sharded(with_weights(order), 8)
    assert (calls["allgather"], calls["scatterreduce"]) == (2, 2)
    each = tuple(
        tuple(step for a in actions for step in (Action(a.stage, "UNSHARD"), a, Action(a.stage, "RESHARD")))
        for actions in order
    )
    often, calls = _sharded(each, 8)
    assert (calls["allgather"], calls["scatterreduce"]) == (16, 2)
    assert (end(once), end(often)) == (34.3, 37.4)


def test_whole_weights_go_between_a_stage_s_passes() -> None:
    """Breadth-first, two stages a rank: each is gathered once a direction, and the last one once for both."""
    order = breadth_first(4, 8, 2)
    trace, calls = _sharded(with_weights(order), 16, "posted")
    assert calls["allgather"] == 3
    assert (end(trace), peak(trace).elements) == (42.6, 4_194_304)


def test_gradients_of_whole_weights_are_all_reduced_where_the_order_says_so() -> None:
    """A stage is done with its gradients before the rank is: the all-reduce of its first runs behind the other."""
    order = tuple(
        (*actions[:-4], Action(rank + 4, "REDUCE_GRAD"), *actions[-4:])
        for rank, actions in enumerate(breadth_first(4, 4, 2))
    )
    trace, calls = _sharded(order, 8, "posted")
    assert (calls["allgather"], calls["scatterreduce"], calls["allreduce"]) == (0, 0, 2)
    late, _ = _sharded(breadth_first(4, 4, 2), 8, "posted")
    assert end(trace) < end(late)


def test_a_stage_is_updated_before_its_weights_are_freed() -> None:
    order = tuple(parse(f"{s}UNSHARD {s}F0 {s}B0 {s}UPDATE {s}RESHARD") for s in range(4))
    _, calls = _sharded(order, 2)
    assert (calls["allgather"], calls["update"]) == (2, 2)


def test_without_other_pipelines_there_is_nothing_to_gather() -> None:
    trace = _run(with_weights(one_f_one_b(2, 2)), 2, 2)
    assert check(trace).correct
    assert {event.op for _, event in trace.events()}.isdisjoint({"allgather", "scatterreduce", "allreduce"})


def test_pipelines_that_share_nothing_add_their_gradients_up_at_the_end() -> None:
    trace, calls = _sharded(one_f_one_b(4, 4), 8)
    assert (calls["allgather"], calls["allreduce"]) == (0, 2)
    assert end(trace) == 34.0
