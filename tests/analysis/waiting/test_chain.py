"""Chains: each gap has one without holes, and what is on it is what holds the gap up."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lib import LINKS, Links, Trace, retime
from lib.analysis.dependencies import causes_of
from lib.analysis.waiting.chains import HOW, Step, led_to, legs, pieces
from lib.analysis.waiting.gaps import gaps
from lib.trace.event import Event
from lib.values.operations import COMPUTE
from tests.support.random_programs import RUNS, Schedule, traced
from tests.support.schedules import Case

HOSTS = Links(host_size=2, ratio=3, latency=0.07, cards=1)


def longer(trace: Trace, place: tuple[int, int], by: int) -> Trace:
    """The run with one event, by its rank and its number, so many ticks longer. Events are copied when they are timed,
    so each is known by what it takes and makes."""
    rank, number = place
    changed = trace.programs[rank].events[number]

    def scale(one: int, event: Event) -> Fraction | int:
        same = one == rank and (event.op, event.inputs, event.outputs) == (changed.op, changed.inputs, changed.outputs)
        return Fraction(changed.length + by, changed.length) if same else 1

    return retime(trace, trace.costs, scale)


def check_chains(trace: Trace) -> None:
    """Each gap has a chain from its end back to what was computed when it began, or to the beginning of the run."""
    causes = causes_of(trace)
    for gap in gaps(trace):
        steps = led_to(causes, gap)
        assert steps[0].end == gap.end
        assert all(later.start == step.end for later, step in pairwise(steps))
        assert all(step.start < step.end for step in steps)
        first = steps[-1]
        assert first.start == 0 or (first.start <= gap.start and first.at.event.op in COMPUTE)
        told = legs(trace, steps, gap.before)
        assert [step for leg in told for step in leg.steps] == list(steps)
        assert all(leg.how in HOW and leg.text(trace) for leg in told)
        assert sum(took for *_, took in pieces(causes, steps, gap.start, gap.end)) == gap.length


@given(RUNS)
def test_every_gap_has_one_without_holes(one: Case | Schedule) -> None:
    trace = traced(one)
    check_chains(trace)
    check_chains(retime(trace, HOSTS if isinstance(one, Case) else LINKS))


def check_holds_up(trace: Trace, steps: tuple[Step, ...]) -> None:
    """Whatever a rank computes on a chain holds the gap's end up: a tick more moves it, and so does a tick less, unless
    the chain names something else that is just as late."""
    last = steps[0].at
    for place, step in enumerate(steps):
        if step.at.event.op not in COMPUTE:
            continue
        late = longer(trace, step.at[:2], 1).programs[last.rank].events[last.number]
        early = longer(trace, step.at[:2], -1).programs[last.rank].events[last.number]
        end = last.event.end or 0
        assert late.end == end + 1
        named = any(one.also for one in steps[: place + 1])
        assert early.end == end - 1 or (named and early.end == end)


@given(RUNS, st.integers(0, 10**6))
def test_what_is_on_it_holds_the_gap_up(one: Case | Schedule, number: int) -> None:
    trace = traced(one)
    if not trace.costs.shared and not any(event.op == "read" for _, event in trace.events()):
        found, most = gaps(trace), None
        if isinstance(one, Case) and found:  # known schedules are large: a few gaps of each
            found, most = found[number % len(found) :][:4], 8
        for gap in found:
            check_holds_up(trace, led_to(causes_of(trace), gap)[:most])
