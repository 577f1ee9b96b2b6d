"""When actions start and end, against orders that are small enough to be timed by hand, and against the simulator."""

from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lib import Costs, Trace, simulate
from lib.analysis.figures import bubbles, end
from lib.schedules.pipelines.action import Action, parse, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import interleaved
from lib.schedules.pipelines.legality import illegal
from lib.schedules.pipelines.lowering import with_messages
from lib.schedules.pipelines.program import MESSAGES_ARE, Messages, program_of
from lib.schedules.pipelines.timing import NoRoom, time_order
from tests.support.optima import optima

TWO = (parse("0F0 0F1 0B0 0B1"), parse("1F0 1B0 1F1 1B1"))


def test_an_action_starts_when_its_rank_is_free_and_its_inputs_are_there() -> None:
    timed = time_order(TWO, backward=2)
    assert timed.starts == [[0, 1, 4, 7], [1, 2, 4, 5]]
    assert timed.ends == [[1, 2, 6, 9], [2, 4, 5, 7]]
    assert timed.end == 9
    assert timed.peaks == [2, 1]


def test_a_message_waits_for_the_one_before_it() -> None:
    timed = time_order((parse("0F0 0F1 0F2"), parse("1F0 1F1 1F2")), forward=1, message=6)
    assert timed.starts == [[0, 1, 4], [7, 10, 13]]


def test_what_an_action_costs_may_depend_on_all_of_it() -> None:
    def cost(action: Action, rank: int) -> float:
        return 0.1 + rank + action.stage + (0.2 if action.kind == "B" else 0)

    timed = time_order(TWO, cost=cost)
    assert timed.ends[0][:2] == [0.1, 0.2]
    assert timed.ends[1][:2] == [2.2, 4.5]


def test_a_sender_waits_for_room() -> None:
    """Both send twice before they receive again: with one message of room in a channel, that is one too many."""
    order = with_messages(interleaved(2, 4))
    with pytest.raises(NoRoom):
        time_order(order, messages="awaited")
    assert time_order(order).end == time_order(interleaved(2, 4)).end


@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(1, 4),
    st.integers(1, 7),
    st.sampled_from([0.0, 0.2, 0.5, 3.0]),
    st.sampled_from([(1, 1, 1), (1, 2, 0.5), (2, 1, 1.5)]),
    st.sampled_from(["awaited", "posted"]),
)
@example("v_min", 2, 1, 0.0, (2, 1, 1.5), "posted")  # a rank that waits before its first pass is not yet at work
def test_the_simulator_says_the_same(
    name: str, ranks: int, batches: int, p2p: float, passes: tuple[float, float, float], messages: Messages
) -> None:
    """Of an order that has its messages always, and of one without if no message takes longer than two passes."""
    order = SCHEDULES[name].order(ranks, batches)
    forward, input_half, weight_half = passes
    time = partial(time_order, forward=forward, input_half=input_half, weight_half=weight_half, message=2 * p2p)
    timed = time(MESSAGES_ARE[messages](order), messages="awaited")
    if p2p <= 0.5:
        assert time(order, messages=messages).end == timed.end
    costs = Costs(
        forward=forward,
        backward=input_half + weight_half,
        backward_input=input_half,
        backward_weight=weight_half,
        update=0,
        p2p=p2p,
    )
    program = program_of(order, messages=messages)
    trace = Trace.of(simulate(program, ranks=ranks, layers=len(places(order)), batches=batches, costs=costs))
    assert timed.end == end(trace)
    assert timed.bubble == pytest.approx(bubbles(trace))


def test_the_stored_optima_speak_the_same_language() -> None:
    """Each of their layers is a stage. All are legal, and end when the timer says, with messages awaited or not."""
    for optimum in optima():
        order = tuple(map(parse, optimum.orders))
        assert illegal(order, batches=optimum.size.batches) is None
        timed = time_order(order, forward=1, backward=1, update=0.5, message=0.4, messages="awaited")
        assert timed.end == optimum.end


def test_an_order_of_nothing() -> None:
    for order in ((), ((), ())):
        timed = time_order(order)
        assert (timed.end, timed.bubble, timed.peaks) == (0, (0, 0), [0] * len(order))
