"""The critical path: a chain without holes from the beginning to the end, and what makes the run longer.

Slack: what is over later by that much changes nothing, and by a tick more makes the run longer by that tick.
"""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Costs, Links, Model, Trace, retime, simulate
from lib.analysis.figures import makespan
from lib.analysis.waiting.critical_path import Path, critical_path, slack
from lib.cluster.costs import ticks
from lib.trace.order import meetings
from lib.values.collectives import COLLECTIVES
from lib.values.operations import MESSAGES, OPERATIONS
from lib.values.values import Elements
from tests.analysis.waiting.test_chain import longer
from tests.analysis.waiting.test_gaps import compute, end
from tests.support.profiles import sample
from tests.support.random_programs import RUNS, Schedule, traced
from tests.support.schedules import EVERYTHING, Case


def check_path(trace: Trace) -> Path:
    path = critical_path(trace)
    now = 0
    for rank, number, event in path.steps:
        same = trace.programs[rank].events[number]
        # Of a read the part counts until its reader turns to another one.
        assert same is event or (event.op == "read" and 0 < event.length <= same.length and event.start == same.start)
        assert event.start == now
        now += event.length
    assert now == end(trace)
    assert sum(length for _, length in path.parts()) == now
    return path


@given(RUNS)
def test_lengths_along_it_sum_to_the_end(one: Case | Schedule) -> None:
    check_path(traced(one))


@given(st.sampled_from(EVERYTHING), st.sampled_from(["forward", "backward", "update", "collective", "p2p"]))
def test_whatever_makes_an_operation_on_it_slower_makes_the_run_longer(case: Case, field: str) -> None:
    """The path stays a chain of what depends on what, so the run is at least as long as it is under other costs."""
    costs = Costs()
    trace = retime(Trace.of(case.run(simulate)), costs)
    slower = replace(costs, **{field: getattr(costs, field) + 0.01})
    more = ticks(0.01)
    count: dict[str, Elements] = defaultdict(int)
    for rank, _, event in critical_path(trace).steps:
        kind = "collective" if event.op in COLLECTIVES else "p2p" if event.op in MESSAGES else event.op
        row, program = OPERATIONS.get(event.op), trace.programs[rank]
        work = 1
        if row is not None and row.per_batch:
            work = row.work(trace.shape, event.layer, len(event.batches), program.values_of(event.inputs))
        count[kind] += work
    assert end(retime(trace, slower)) >= end(trace) + count[field] * more


def test_in_words() -> None:
    trace = Trace.of(simulate(pair, ranks=2, batches=2))
    path = check_path(trace)
    assert path.made_of() == "4 forward, 0.4 messages"
    assert path.ranks() == (0, 1)


async def pair(model: Model) -> None:
    if model.rank == 0:
        compute(model, 2)
        await model.pass_to(1, "go")
    else:
        compute(model, 1)
        await model.receive(0)
        compute(model, 2)


def test_of_equal_causes_the_own_rank_is_taken() -> None:
    async def together(model: Model) -> None:
        compute(model, 1)
        await model.allreduce(model.fake_grad(0, []), 0)

    assert check_path(Trace.of(simulate(together, ranks=4))).ranks() == (0,)


def test_a_run_of_nothing_and_one_that_waits_for_itself() -> None:
    trace = Trace.of(simulate(lambda model: None, ranks=2))
    assert critical_path(trace).steps == ()
    trace = Trace.of(simulate(pair, ranks=2, batches=2))
    for program in trace.programs:  # as a file might say
        for event in program.events:
            event.issued = event.start = 7
    assert critical_path(trace).steps


def check_slack(trace: Trace, number: int) -> None:
    """Of one event that takes time."""
    met = {place for members in meetings(trace) for place in members[1:]}  # the first member says how long it takes
    every = [
        (program.rank, place)
        for program in trace.programs
        for place, event in enumerate(program.events)
        if event.length and event.op not in ("wait", "read") and (program.rank, place) not in met
    ]
    if not every:
        return
    rank, place = every[number % len(every)]
    late = slack(trace)[rank][place]
    assert late is not None
    assert late >= 0
    assert makespan(longer(trace, (rank, place), late)) == makespan(trace)
    assert makespan(longer(trace, (rank, place), late + 1)) == makespan(trace) + 1


@given(RUNS.filter(lambda one: not one.costs.shared), st.integers(0, 10**6))
def test_it_is_exact(one: Case | Schedule, number: int) -> None:
    check_slack(traced(one), number)


@pytest.mark.parametrize("case", sample(EVERYTHING), ids=lambda case: case.name)
def test_where_links_are_shared_nothing_is_over_after_the_end(case: Case) -> None:
    trace = retime(Trace.of(case.run(simulate)), Links(host_size=2, ratio=3, latency=0.07, cards=1))
    for program, left in zip(trace.programs, slack(trace), strict=True):
        for event, late in zip(program.events, left, strict=True):
            assert late is None or 0 <= late <= makespan(trace) - (event.end or 0)


def test_a_read_may_be_late_by_what_its_rank_has_left() -> None:
    async def two(model: Model) -> None:
        inp = await model.read([model.rank])
        for _ in range(2 - model.rank):
            model.forward(0, inp, model.load_weights(0)[0])

    trace = Trace.of(simulate(two, ranks=2, layers=1, batches=2, costs=Costs(read=0.5)))
    assert found(trace, "read") == [0, 10**9]


def test_what_nobody_waits_for_may_last_to_the_end() -> None:
    async def beside(model: Model) -> None:
        model.allreduce(model.fake_grad(0, []), 0)
        compute(model, 1)

    trace = Trace.of(simulate(beside, ranks=2, layers=1, batches=1))
    assert found(trace, "allreduce") == [7 * 10**8] * 2
    assert found(trace, "forward") == [0, 0]


def found(trace: Trace, op: str) -> list[int | None]:
    pairs = (zip(p.events, left, strict=True) for p, left in zip(trace.programs, slack(trace), strict=True))
    return [late for pair in pairs for event, late in pair if event.op == op]
