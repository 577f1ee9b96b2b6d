"""Slack: what is over later by that much changes nothing, and by a tick more makes the run longer by that tick."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Costs, Links, Model, Trace, retime, simulate
from lib.analysis.figures import makespan
from lib.analysis.waiting.critical_path import slack
from lib.trace.order import meetings
from tests.analysis.waiting.test_chain import longer
from tests.analysis.waiting.test_gaps import compute
from tests.support.profiles import sample
from tests.support.random_programs import RUNS, Schedule, traced
from tests.support.schedules import EVERYTHING, Case


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
