"""The same schedule under other costs: what a run under those costs would have given, and nothing else changed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import LINKS, UNIT, Costs, Links, Mesh, Model, Trace, TraceError, WeightGrad, retime, simulate
from lib.analysis import figures
from lib.analysis.figures import makespan
from lib.cluster import shared_links
from lib.cluster.costs import TICKS, units
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.trace import json_format as serial
from lib.trace.retiming import alone
from tests.support.changes import changed
from tests.support.random_programs import COSTS, RUNS, Schedule, schedules, traced
from tests.support.schedules import EVERYTHING, HOSTS, Case, star

NAMED = [case for case in EVERYTHING if case.function is not star and not case.costs.read]
"""Those without a bare `receive()`, which under other costs may get another message, and without readers, who would
serve in another order."""
PIPELINES = [Case("1F1B", program_of(one_f_one_b(4, n)), ranks=4, layers=4, batches=n) for n in (2, 5)]


@given(st.sampled_from(NAMED[:6] + PIPELINES), st.lists(st.integers(0, 40), min_size=6, max_size=6))
def test_whatever_the_costs_are(case: Case, tenths: list[int]) -> None:
    costs = Costs(*[number / 10 for number in tenths])
    there, run = Trace.of(case.run(simulate, costs=costs)), Trace.of(case.run(simulate))
    assert [serial.encode(retime(run, costs)) for _ in range(2)] == [serial.encode(there)] * 2  # then in fewer steps


SHARED = [LINKS, Links(p2p=1, collective=2), Links(host_size=2, cards=1, p2p=0.5, ratio=3), Links(p2p=4, forward=0.1)]


@given(RUNS | st.sampled_from(PIPELINES), st.sampled_from(SHARED))
def test_what_is_alone_on_its_links_has_the_times_of_a_shared_network(one: Case | Schedule, costs: Costs) -> None:
    run = traced(one)
    found = serial.encode(retime(run, costs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_links, "passed_alone", lambda *_: False)
        assert serial.encode(retime(run, costs)) == found


def test_a_pipeline_is_alone_on_its_links_and_groups_that_share_a_card_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    short = shared_links.passed_alone
    monkeypatch.setattr(shared_links, "passed_alone", lambda *given: told.append(short(*given)))
    for case, costs in (PIPELINES[0], LINKS), (next(case for case in NAMED if case.name == "hsdp"), SHARED[2]):
        retime(traced(case), costs)
    assert told == [True, False]


def test_a_reader_serves_in_the_order_in_which_it_did() -> None:
    async def race(model: Model) -> None:
        if model.rank == 0:
            model.forward(0, await model.read([0]), model.load_weights(0)[0])
        await model.read([model.rank + 1])

    mesh = Mesh({"data": 2}, processes=2)
    run = Trace.of(simulate(race, layers=1, batches=3, mesh=mesh, costs=Costs(read=0.5)))
    first = [event.arg for _, event in run.events() if event.op == "read"]
    assert first == [(0,), (2,), (1,)]
    quick = retime(run, Costs(read=3, forward=0, to_device=0.25))
    assert [event.arg for _, event in quick.events() if event.op == "read"] == first
    (last,) = [event for _, event in quick.events() if event.batches == {1} and event.op == "read"]
    assert [units(last.issued), units(last.start or 0), units(last.length)] == [3.25, 6, 3.25]


def test_a_bare_receive_keeps_the_message_that_it_got() -> None:
    async def race(model: Model) -> None:
        if model.rank == 0:
            got = [await model.receive() for _ in range(2)]
            assert [type(item) for item in got] == [str, dict]
        elif model.rank == 1:
            await model.pass_to(0, "words")
        else:
            weight, _ = model.load_weights(0)
            model.forward(0, model.get_activation([0]), weight)
            await model.pass_to(0, {})

    trace = Trace.of(simulate(race, ranks=3))
    slow = retime(trace, Costs(forward=0))
    assert [event.peer for event in slow.programs[0].events] == [1, 2]
    assert figures.end(slow) == 0.6
    assert figures.end(trace) == 1.4


def test_the_trace_itself_stays_as_it_was() -> None:
    trace = Trace.of(simulate(fully_sharded(), ranks=4, layers=2, batches=4))
    before = serial.encode(trace)
    other = retime(trace, HOSTS)
    assert serial.encode(trace) == before
    assert isinstance(other, Trace)
    assert (other.costs, other.layers, other.mesh) == (HOSTS, trace.layers, trace.mesh)
    assert other.text().splitlines()[2:] == trace.text().splitlines()[2:]


def test_only_a_run_that_failed_may_end_in_the_middle() -> None:
    async def late(model: Model) -> None:
        weight, _ = model.load_weights(0)
        model.forward(0, model.get_activation([0]), weight)
        await model.broadcast(weight, 0, root=0)
        model.forward(0, model.get_activation([0]), weight)

    trace = Trace.of(simulate(late, ranks=2, layers=1, batches=1))
    trace = changed(trace, 1, events=())
    with pytest.raises(TraceError, match=r"rank 0 cannot get past its event 3 \(broadcast\): nobody answers it"):
        retime(trace, UNIT)
    timed = retime(replace(trace, error="rank 1: no"), Costs(forward=2.0)).programs[0].events
    assert [event.start for event in timed] == [0, 0, 0, None, None, None]
    assert timed[3].issued == 2 * 10**9


def test_what_a_run_says_of_itself_stays_when_it_is_worked_out_anew() -> None:
    """Its puzzle, its error and whether it is a sandbox's: a copy has everything but new values and times."""
    trace = replace(Trace.of(EVERYTHING[0].run(simulate)), puzzle="ddp", sandbox=True)
    again = trace.normalised(Costs(forward=2.0))
    assert (again.puzzle, again.sandbox, again.error) == ("ddp", True, None)
    assert again.costs == Costs(forward=2.0)
    assert trace.normalised(Costs(forward=2.0)) is again


@given(schedules(), st.sampled_from(COSTS), st.sampled_from(COSTS))
def test_what_is_known_from_another_timing_changes_nothing(one: Schedule, before: Costs, costs: Costs) -> None:
    run = traced(one)
    fresh, again = retime(replace(run), costs), retime(retime(run, before), costs)
    assert makespan(again) == max((event.end or 0 for _, event in fresh.events()), default=0)
    assert serial.encode(again) == serial.encode(fresh)
    assert alone(again) == alone(fresh)


@pytest.mark.parametrize("costs", [UNIT, HOSTS], ids=["unit", "hosts"])
@pytest.mark.parametrize("op", ["allreduce", "pass_to"])
def test_what_sends_a_value_that_was_never_made_has_no_time(costs: Costs, op: str) -> None:
    async def sends(model: Model) -> None:
        weight, _ = model.load_weights(0)
        gradient = model.fake_grad(0, [model.rank])
        model.forward(0, model.get_activation([0]), weight)
        if op == "allreduce":
            await model.allreduce(gradient, 0)
        else:
            await (model.receive(0) if model.rank else model.pass_to(1, gradient))

    trace = Trace.of(simulate(sends, ranks=2, layers=1, batches=2))
    trace = changed(trace, 0, values=[None if isinstance(v, WeightGrad) else v for v in trace.programs[0].values])
    with pytest.raises(TraceError) as raised:
        retime(trace, costs)
    assert str(raised.value) == f"rank 0: {op} uses a value before it exists"
    timed = retime(replace(trace, error="rank 0: no"), costs).programs[0].events
    assert [(event.op, event.start) for event in timed[-2:]] == [("forward", 0), (op, None)]
    assert timed[-1].issued == TICKS
