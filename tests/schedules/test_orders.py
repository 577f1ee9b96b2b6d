"""Orders of pipelines: their words, their messages, and the operations that their actions are."""

from hypothesis import given
from hypothesis import strategies as st

from lib.schedules.pipelines.action import KINDS, PAIR, Action, parse, places
from lib.schedules.pipelines.generators import gpipe, one_f_one_b
from lib.schedules.pipelines.lowering import with_messages
from lib.values.collectives import COLLECTIVES
from lib.values.operations import OPERATIONS

PLAIN = st.builds(
    Action, st.integers(0, 99), st.sampled_from(sorted(KINDS.keys() - {PAIR})), st.integers(0, 999), st.just(())
).map(lambda action: action if KINDS[action.kind].per_batch else action._replace(microbatch=-1))
PAIRS = st.builds(
    lambda stage, one, microbatch, other: Action(
        stage, PAIR, one, (Action(stage, "F", one), Action(microbatch, "B", other))
    ),
    *4 * [st.integers(0, 99)],
)
ACTIONS = st.one_of(PLAIN, PAIRS)


@given(st.lists(ACTIONS))
def test_actions_read_back(actions: list[Action]) -> None:
    assert parse(" ".join(map(str, actions))) == tuple(actions)
    assert parse(map(str, actions)) == tuple(actions)


def test_a_rank_with_one_stage_need_not_say_it() -> None:
    assert parse("F0 2B0 UPDATE", stage=2) == parse("2F0 2B0 2UPDATE")


def test_the_two_orders_that_everybody_knows() -> None:
    assert gpipe(2, 2) == (parse("0F0 0F1 0B0 0B1"), parse("1F0 1F1 1B0 1B1"))
    assert one_f_one_b(2, 3) == (parse("0F0 0F1 0B0 0F2 0B1 0B2"), parse("1F0 1B0 1F1 1B1 1F2 1B2"))
    assert places(one_f_one_b(3, 1)) == {0: 0, 1: 1, 2: 2}


def test_messages_are_sent_when_they_are_made_and_received_when_they_are_needed() -> None:
    assert with_messages((parse("0F0 0B0"), parse("1F0 1B0"))) == (
        parse("0F0 0SEND_F0 0RECV_B0 0B0"),
        parse("1RECV_F0 1F0 1B0 1SEND_B0"),
    )


def test_what_comes_before_a_wanted_message_is_received_before_it() -> None:
    order = (parse("0F1 0F0"), parse("1F0 1F1"))
    assert with_messages(order)[1] == parse("1RECV_F1 1RECV_F0 1F0 1F1")


def test_what_a_kind_of_action_is_in_a_run() -> None:
    """A pair is two operations, and every other kind one that there is."""
    known = {*OPERATIONS, *COLLECTIVES, "wait"}
    assert {kind for kind, row in KINDS.items() if row.operation not in known} == {PAIR}
    letters = {row.operation: kind for kind, row in reversed([*KINDS.items()]) if row.computes}
    assert letters == {name: OPERATIONS[name].letter or OPERATIONS[name].word for name in letters}
