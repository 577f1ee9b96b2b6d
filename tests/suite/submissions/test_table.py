"""Answers of plain functions: what is the same, what survives JSON, and how small a wrong input gets."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import NotSolved
from lib.puzzles.puzzle import Row
from lib.suite.submissions.function_check import wrong_answer
from lib.suite.submissions.table import Answer, Draw, Failure, Judge, ask_here, decode, encode, first_failure, same
from tests.support.said import Said


def failing(rows: Sequence[Row], count: int, judge: Judge, function: Any) -> Failure:
    """The input that is shown of a function that goes wrong."""
    _, failure = first_failure(rows, count, judge, ask_here(function))
    assert failure is not None
    return failure


ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.integers() | st.text(max_size=3) | st.tuples(st.integers(), st.integers())
DATA = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.frozensets(KEYS, max_size=3)
    ),
    max_leaves=12,
)


@given(DATA)
def test_an_answer_survives_json(value: Any) -> None:
    data = json.loads(json.dumps(encode(value)))
    again = decode(data)
    assert same(again, decode(encode(value)))
    assert json.dumps(encode(again)) == json.dumps(encode(decode(encode(again))))


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5), lambda x: st.lists(x) | st.dictionaries(st.text(max_size=5), x)
    )
)
def test_whatever_json_is_sent_it_is_an_answer_or_refused(data: Any) -> None:
    try:
        value = decode(data)
    except (ValueError, TypeError):
        return
    assert same(decode(encode(value)), value)


def alike(mine: Any, other: Any) -> str:
    both = {same(decode(encode(one)), decode(encode(two))) for one, two in ((mine, other), (other, mine))}
    return " and ".join("the same" if equal else "not the same" for equal in both)


test_what_is_the_same_answer = Said(__file__, "answers").test(lambda: globals())


@pytest.mark.parametrize("value", [object(), lambda: 0, {1: object()}, [b"1"], 1j, (x for x in ())])
def test_what_is_no_data(value: Any) -> None:
    with pytest.raises(TypeError, match="which is not data"):
        encode(value)


class Anything(str):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class Pretender:
    __class__ = str  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def __eq__(self, other: object) -> bool:
        return True


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError


def raised(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize("expected", ["x", 1, None, [1], {"a": 1}, frozenset([1]), True])
@pytest.mark.parametrize(
    "answer",
    [
        lambda: Anything("y"),
        Pretender,
        lambda: [Anything("y")],
        lambda: 10**5000,
        lambda: [10**5000],
        lambda: raised(Mute()),
        lambda: raised(type(Anything("Odd"), (Exception,), {})()),
        lambda: raised(ValueError(10**5000)),
    ],
)
def test_odd_answers_are_wrong_and_worded(expected: Any, answer: Any) -> None:
    failure = failing([Row((), expected)], 0, Judge(lambda: expected), answer)
    assert "expected:" in str(wrong_answer("odd", failure))


def test_a_number_too_long_to_write_is_no_answer() -> None:
    (answer,) = ask_here(lambda: 2**20_000)([()])
    assert (answer.raised, answer.message) == ("OverflowError", "it answers with a number of more than 10000 bits")


def test_a_coroutine_is_no_answer_and_no_warning() -> None:
    async def late(number: int) -> int:
        return number

    (answer,) = ask_here(late)([(3,)])
    assert answer.message == "it answers with a coroutine, which is not data"
    found = wrong_answer("late", Failure((3,), Answer(3), answer))
    assert found.fix == "write `def` instead of `async def`: a plain function is called, and not awaited"


def test_what_a_function_does_to_its_inputs_changes_nothing() -> None:
    def greedy(items: list[int]) -> int:
        items.clear()
        return 0

    rows = [Row(([1, 2],), 2)]
    assert failing(rows, 0, Judge(len), greedy) == Failure(([1, 2],), Answer(2), Answer(0))


def test_a_stub_is_no_answer() -> None:
    def stub(number: int) -> int:
        raise NotSolved("stub")

    with pytest.raises(NotSolved):
        ask_here(stub)([(1,)])


def numbers(draw: Draw) -> tuple[list[int]]:
    return ([draw.integer(0, 100) for _ in range(draw.integer(0, 12))],)


def wrong_from(bad: Any) -> Any:
    """`sum`, but for the lists that are `bad`."""
    return lambda items: sum(items) + bad(items)


@pytest.mark.parametrize(
    ("bad", "smallest"),
    [
        (lambda items: True, []),
        (lambda items: len(items) >= 3, [0, 0, 0]),
        (lambda items: any(item >= 40 for item in items), [40]),
        (lambda items: sum(items) > 150, None),
        (lambda items: any(a > b for a, b in pairwise(items)), [1, 0]),
    ],
)
def test_a_wrong_input_is_made_as_small_as_it_can_be(bad: Any, smallest: list[int] | None) -> None:
    rounds: list[int] = []
    ask = ask_here(wrong_from(bad))

    def counted(inputs: Sequence[tuple[Any, ...]]) -> Sequence[Answer]:
        rounds.append(len(inputs))
        return ask(inputs)

    asked, failure = first_failure([], 100, Judge(sum, numbers), counted)
    assert asked == rounds[0] == 100
    assert failure is not None
    assert bad(failure.given[0])
    assert len(rounds) <= 13
    if smallest is not None:
        assert failure.given == (smallest,)
    else:
        assert len(failure.given[0]) == 2


def test_the_same_inputs_every_time_and_none_that_is_right_is_shown() -> None:
    seen: list[Any] = []
    for _ in range(2):
        assert first_failure([], 20, Judge(sum, numbers), ask_here(lambda items: seen.append(items) or sum(items))) == (
            20,
            None,
        )
    assert seen[:20] == seen[20:]
    assert len({repr(items) for items in seen}) > 10


def test_a_generator_gives_every_input() -> None:
    def pairs() -> Iterator[tuple[int, int]]:
        for total in range(6):
            for first in range(total + 1):
                yield first, total - first

    judge = Judge(lambda a, b: a + b, pairs)
    assert first_failure([], 0, judge, ask_here(lambda a, b: b + a)) == (21, None)
    asked, failure = first_failure([], 0, judge, ask_here(lambda a, b: max(a, b)))
    assert (asked, failure) == (21, Failure((1, 1), Answer(2), Answer(1)))


def test_of_a_table_and_random_inputs_the_smaller_is_shown() -> None:
    rows = [Row(([9] * 9,), 81), Row(([1],), 1)]
    assert failing(rows, 50, Judge(sum, numbers), wrong_from(lambda items: len(items) > 4)).given == ([0] * 5,)
    assert failing(rows, 0, Judge(sum, numbers), wrong_from(lambda items: len(items) > 4)).given == ([9] * 9,)


def test_more_than_one_answer_may_be_right() -> None:
    judge = Judge(min, numbers_of_one, accepts=lambda answer, items: answer in items)
    assert first_failure([], 30, judge, ask_here(max)) == (30, None)
    assert failing([], 30, judge, lambda items: -1) == Failure(([0],), Answer(0), Answer(-1))
    failure = failing([], 30, judge, lambda items: items[1])
    assert failure.got.raised == "IndexError"


def numbers_of_one(draw: Draw) -> tuple[list[int]]:
    return ([draw.integer(0, 9) for _ in range(draw.integer(1, 5))],)


def half(number: int) -> int:
    if number % 2:
        raise ValueError("odd")
    return number // 2


def test_what_is_to_be_refused_is_shown_last() -> None:
    def every() -> Iterator[tuple[int]]:
        yield from ((number,) for number in range(1, 10))

    def drawn(draw: Draw) -> tuple[int]:
        return (draw.integer(1, 9),)

    table = [Row((3,), raises="ValueError"), Row((44,), 22)]
    for inputs in (None, every, drawn):
        judge = Judge(half, inputs)
        failure = failing(table, 40, judge, lambda number: 7)
        assert failure.given == ((44,) if inputs is None else (2,))
        failure = failing(table, 40, judge, lambda number: number // 2)
        assert failure.given == ((3,) if inputs is None else (1,))


def test_a_row_may_ask_for_an_error() -> None:
    def careless(number: int) -> int:
        assert number % 2 == 0, "odd"
        return number // 2

    table = [Row((4,), 2), Row((3,), raises="ValueError", why="3 is odd")]
    assert first_failure(table, 0, Judge(half), ask_here(half)) == (2, None)
    for wrong, got, fix in (
        (lambda number: number // 2, "got:      1", "raise ValueError"),
        (careless, "got:      AssertionError: odd", "raise ValueError, before anything else goes wrong"),
    ):
        _, failure = first_failure(table, 0, Judge(half), ask_here(wrong))
        text = str(failure and wrong_answer("half", failure))
        assert "  expected: ValueError: 3 is odd\n" in text
        assert got in text
        assert text.endswith(f"a mistake of the caller's: {fix}")


def told(expected: Any, got: Any) -> str:
    return str(wrong_answer("f", Failure((1,), Answer(expected), Answer(got))))


test_the_likely_reason = Said(__file__, "reasons").test(lambda: globals())


def test_what_is_wrong_may_be_said_by_the_puzzle() -> None:
    def accepts(answer: Any, number: int) -> bool | str:
        return answer in (number, -number) or f"{answer!r} is not {number}, with or without a sign"

    judge = Judge(abs, accepts=accepts)
    table = [Row((3,), 3), Row((-12,), 12)]
    assert first_failure(table, 0, judge, ask_here(lambda number: number)) == (2, None)
    assert str(wrong_answer("size", failing(table, 0, judge, lambda number: 3))).endswith(
        "fix:      3 is not -12, with or without a sign"
    )
    assert str(wrong_answer("size", failing(table, 0, judge, lambda number: None))).endswith(
        "fix:      None is not 3, with or without a sign"
    )


def test_a_wrong_answer_has_a_picture_where_the_puzzle_says_of_what() -> None:
    def picture(answer: Any, expected: int, number: int) -> str:
        return f"{number}: {expected}" + ("" if answer is None else f", not {answer + 0}")

    judge = Judge(abs, picture=picture)
    assert judge.shown(Failure((-3,), Answer(3), Answer(4))) == "-3: 3, not 4"
    assert judge.shown(Failure((-3,), Answer(3), Answer("four"))) == "-3: 3"  # of another kind
    assert judge.shown(Failure((-3,), Answer(3), Answer(raised="KeyError"))) == "-3: 3"
    assert judge.shown(Failure((-3,), Answer(raised="ValueError"), Answer(3))) is None
    assert Judge(abs).shown(Failure((-3,), Answer(3), Answer(4))) is None
    whole = Judge(abs, picture=lambda answer, expected, number: f"{number}: {0 if answer is None else int(answer)}")
    assert whole.shown(Failure((-3,), Answer(3), Answer(float("inf")))) == "-3: 0"  # which no picture has room for


def test_of_all_inputs_the_first_that_is_wrong_is_shown_unless_a_row_of_the_table_is_smaller() -> None:
    def inputs() -> Iterator[tuple[int]]:
        yield from ((number,) for number in (5000, 10, 7))

    judge, wrong = Judge(abs, inputs), ask_here(lambda number: -1)
    for table, smallest in (([Row((123456,), 123456)], (5000,)), ([Row((123456,), 123456), Row((3,), 3)], (3,))):
        _, failure = first_failure(table, 0, judge, wrong)
        assert failure is not None
        assert failure.given == smallest


def test_draws_can_be_made_again_and_are_within_their_bounds() -> None:
    draw = Draw.again([5, 1, 99, 2, 0, 0])
    assert [draw.integer(0, 9), draw.choice("abc"), draw.integer(3, 5)] == [5, "b", 5]
    assert draw.shuffled([1, 2, 3]) == [3, 1, 2]
    assert draw.integer(4, 8) == 4
    assert draw.choices == [5, 1, 2, 2, 0, 0, 0]
