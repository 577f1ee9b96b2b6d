"""Is a plain function right? Its answers to given tables and random inputs, and the smallest input that it gets wrong.

Inputs and answers are data: numbers, text, None, and lists, tuples, sets and dicts of them. A list and a tuple of the
same items are the same answer, and numbers that differ by rounding only; True is no 1.

Random inputs are made of choices (see `Draw`). When the function is wrong on one, the choices are made fewer and
smaller as long as it stays wrong: so whatever is tried is an input that the puzzle could have drawn.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from operator import index
from random import Random
from typing import Any, NamedTuple, TypeVar, cast

from lib.errors.wording import message_of
from lib.puzzles.records import Row

__all__ = ["Answer", "Ask", "Draw", "Failure", "Given", "Judge", "ask_here", "decode", "encode", "first_failure"]

SEED = 0
ROUNDS = 12
"""How often a wrong input is made smaller, at most; and how many are tried each time."""
TRIED = 200
MOST_BITS = 10_000
"""Of a number in an answer: Python refuses to write a longer one down, and nobody wants to read it."""
T = TypeVar("T")
Given = tuple[Any, ...]
"""The arguments of a call."""


class Answer(NamedTuple):
    """A function's answer: data; or the name of the error that it raised, its message, and the line."""

    value: Any = None
    raised: str = ""
    message: str = ""
    where: str = ""


Ask = Callable[[Sequence[Given]], Sequence[Answer]]
"""Has a function answer several inputs, here or in a process of its own."""


class Failure(NamedTuple):
    """An input that a function gets wrong. `expected` is the answer of the table, or one that is right; `why` says what
    is wrong with the one that it got, where the puzzle knows."""

    given: Given
    expected: Answer
    got: Answer
    why: str = ""


# -- random inputs --------------------------------------------------------------------------------------------------


class Draw:
    """The choices that a random input is made of. They are noted, so that they can be made again, or smaller ones."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self.choices: list[int] = []

    @classmethod
    def again(cls, choices: Sequence[int]) -> Draw:
        """Choices that were made before; the least possible where there are no more."""
        left = iter(choices)
        return cls(lambda count: min(next(left, 0), count - 1))

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included. Smaller inputs have lower ones."""
        choice = self._choose(high - low + 1)
        self.choices.append(choice)
        return low + choice

    def choice(self, options: Sequence[T]) -> T:
        """One of several. Smaller inputs have earlier ones."""
        return options[self.integer(0, len(options) - 1)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in any order. Smaller inputs have them nearer to the order in which they were given."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in items]


ODD = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""What functions of the judge's may raise: an answer may be anything."""


@dataclass(frozen=True, slots=True)
class Judge:
    """The reference, which knows what is right. `inputs` draws an input (the arguments, as a tuple), or, if it is a
    generator without arguments, gives all that there are, small ones first. `accepts(answer, *given)` says whether
    an answer is right, where more than one is, or in a sentence why it is not. `picture(answer, expected, *given)`
    is what a picture of a wrong answer shows; `answer` is None where there is none of the right kind."""

    answer: Callable[..., Any]
    inputs: Callable[..., Any] | None = None
    accepts: Callable[..., bool | str] | None = None
    picture: Callable[..., Any] | None = None

    def failure(self, given: Given, got: Answer, row: Row | None = None) -> Failure | None:
        """Return what is wrong with an answer; None where it is right."""
        expected = ask_here(self.answer)([given])[0] if row is None else _answer_of(row)
        right: bool | str = got.raised == expected.raised and same(got.value, expected.value)
        if not right and self.accepts is not None and not got.raised:
            try:
                right = self.accepts(got.value, *deepcopy(given))
            except ODD:
                right = False
        return None if right is True else Failure(given, expected, got, right or "")

    def shown(self, failure: Failure) -> Any:
        """Return what the picture of a failure shows; None where there is none, as where the input is to be refused."""
        if self.picture is None or failure.expected.raised:
            return None
        given, expected = deepcopy(failure.given), failure.expected.value
        try:
            return self.picture(failure.got.value, expected, *given)
        except ODD:
            return self.picture(None, expected, *given)


def _answer_of(row: Row) -> Answer:
    return Answer(raised=row.raises, message=row.why) if row.raises else Answer(decode(encode(row.answer)))


def first_failure(
    table: Sequence[Row], draws: int, judge: Judge, ask: Ask, seed: int | str = SEED
) -> tuple[int, Failure | None]:
    """Return how many inputs were asked first, and the smallest that is wrong; None where all are right. One that is
    to be refused is shown only where all others are right: what a function is for comes first. Random inputs are
    those of `seed`."""
    rows = [(row.given, row) for row in table]
    every, drawn = _inputs(judge, draws, seed)
    asked = [*rows, *((given, None) for given in every), *((given, None) for _, given in drawn)]
    answers = ask([given for given, _ in asked])
    failures = [judge.failure(given, got, row) for (given, row), got in zip(asked, answers, strict=True)]
    wrong = [failure for failure in failures[: len(rows)] if failure is not None]
    found = [failure for failure in failures[len(rows) : len(rows) + len(every)] if failure is not None]
    wrong += sorted(found, key=_refuses)[:1]
    random = [
        (choices, failure)
        for (choices, _), failure in zip(drawn, failures[len(rows) + len(every) :], strict=True)
        if failure is not None
    ]
    if random:
        first = min(random, key=lambda drawn: (_refuses(drawn[1]), _order(drawn[0])))
        wrong.append(_shrunk(*first, judge, ask))
    return len(asked), min(wrong, key=_smaller_first, default=None)


def _refuses(failure: Failure) -> bool:
    """Tell whether the right answer is an error."""
    return bool(failure.expected.raised)


def _smaller_first(failure: Failure) -> tuple[bool, int, str]:
    return _refuses(failure), len(repr(failure.given)), repr(failure.given)


def _inputs(judge: Judge, draws: int, seed: int | str) -> tuple[list[Given], list[tuple[list[int], Given]]]:
    """All inputs that there are, or random ones with their choices: the same ones every time for a seed."""
    if judge.inputs is None:
        return [], []
    if inspect.isgeneratorfunction(judge.inputs):
        return [tuple(given) for given in judge.inputs()], []
    random = Random(seed)
    drawn: list[tuple[list[int], Given]] = []
    for _ in range(draws):
        draw = Draw(random.randrange)
        given = tuple(judge.inputs(draw))
        drawn.append((draw.choices, given))
    return [], drawn


def _order(choices: Sequence[int]) -> tuple[int, Sequence[int]]:
    """Fewer choices are smaller, then lower ones."""
    return len(choices), choices


def _shrunk(choices: list[int], failure: Failure, judge: Judge, ask: Ask) -> Failure:
    """A failure on an input that is as small as can be found. `ask` is called once a round: it may be costly."""
    assert judge.inputs is not None, "the failure is on a random input"
    for _ in range(ROUNDS):
        smaller: dict[tuple[int, ...], Given] = {}
        for attempt in _smaller(choices):
            draw = Draw.again(attempt)
            given = tuple(judge.inputs(draw))
            if _order(draw.choices) < _order(choices):
                smaller.setdefault(tuple(draw.choices), given)
            if len(smaller) == TRIED:
                break
        answers = ask(list(smaller.values()))
        for made, given, got in sorted(zip(smaller, smaller.values(), answers, strict=True), key=_by_choices):
            if (found := judge.failure(given, got)) is not None and _refuses(found) <= _refuses(failure):
                choices, failure = list(made), found
                break
        else:
            break
    return failure


def _by_choices(tried: tuple[Sequence[int], Given, Answer]) -> tuple[int, Sequence[int]]:
    return _order(tried[0])


def _smaller(choices: list[int]) -> Iterator[list[int]]:
    """The same choices without some in a row, or with one of them lower."""
    for length in (8, 4, 2, 1):
        for first in range(len(choices) - length + 1):
            yield choices[:first] + choices[first + length :]
            # What was left out is often counted by a choice before it.
            for before in range(first):
                if choices[before] >= 1:
                    fewer = [*choices[:before], choices[before] - 1, *choices[before + 1 :]]
                    yield fewer[:first] + fewer[first + length :]
    for place, choice in enumerate(choices):
        for lower in sorted({0, choice // 2, choice - 1} - {-1, choice}):
            yield [*choices[:place], lower, *choices[place + 1 :]]


# -- answers --------------------------------------------------------------------------------------------------------


def ask_here(function: Callable[..., Any], where: Callable[[BaseException], str] = lambda error: "") -> Ask:
    """Calls a function in this process. It gets copies: what it does to its inputs changes nothing.

    `where` says in which line an error was raised. Control flow is passed on: of what is raised only an Exception, or
    the wish to end Python, is an answer; and a PuzzleError, such as NotSolved, is none.
    """
    from lib.errors.exceptions import PuzzleError

    def answer(given: Given) -> Answer:
        try:
            return Answer(decode(encode(function(*deepcopy(given)))))
        except PuzzleError:
            raise
        except (Exception, SystemExit) as error:
            return Answer(raised=str.__str__(type(error).__name__), message=message_of(error), where=where(error))

    return lambda inputs: [answer(given) for given in inputs]


def encode(value: Any) -> Any:
    """Data as JSON has it; what JSON has not is an object of one key. TypeError for what is no data.

    Nothing of the student's own comes through: a class of text may call itself equal to everything.
    """
    kind = cast("type[Any]", type(value))
    if kind is int and value.bit_length() <= MOST_BITS:  # which most of all data is
        return value
    if value is None or value is True or value is False:
        return value
    if issubclass(kind, str):  # isinstance believes what an object says of its class
        return str.__str__(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, list | tuple | range):
        return [encode(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, set | frozenset):
        return {"set": sorted((encode(item) for item in cast("set[Any]", value)), key=repr)}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in cast("dict[Any, Any]", value).items()]}
    try:
        number = index(value)  # also of numpy's integers
    except TypeError:
        if inspect.iscoroutine(value):
            value.close()  # or Python would complain a second time
        raise TypeError(f"it answers with a {type(value).__name__}, which is no data") from None
    if number.bit_length() > MOST_BITS:
        raise OverflowError(f"it answers with a number of more than {MOST_BITS} bits")
    return number


PLAIN = (int, str, float)


def decode(data: Any) -> Any:
    """Decode what `encode` made, sent by anybody. ValueError for anything else."""
    if data is None or isinstance(data, PLAIN):
        return data
    if isinstance(data, list):
        return [decode(item) for item in cast("list[Any]", data)]
    if isinstance(data, dict) and len(cast("dict[Any, Any]", data)) == 1:
        ((kind, content),) = cast("dict[str, Any]", data).items()
        if kind == "float" and content in ("inf", "-inf", "nan"):
            return float(content)
        if kind in ("set", "dict") and isinstance(content, list):
            items = cast("list[Any]", content)
            return frozenset(map(_key, items)) if kind == "set" else dict(map(_pair, items))
    raise ValueError("this is no answer in JSON")


def _pair(data: Any) -> tuple[Any, Any]:
    key, value = data
    return _key(key), decode(value)


def _key(data: Any) -> Any:
    """Return a value as it can be in a set, or the key of a dict: a list becomes a tuple there."""
    value = decode(data)
    if isinstance(value, dict):
        raise ValueError("a dict is no key")
    return tuple(_key(encode(item)) for item in cast("list[Any]", value)) if isinstance(value, list) else value


def same(mine: object, other: object) -> bool:
    """Tell whether two answers are the same, both decoded."""
    if isinstance(mine, bool) or isinstance(other, bool):
        return mine is other
    if isinstance(mine, int | float) and isinstance(other, int | float):  # a bool was one, too
        return mine == other or _close(mine, other)
    if isinstance(mine, list) and isinstance(other, list):
        ours, theirs = cast("list[object]", mine), cast("list[object]", other)
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(mine, dict) and isinstance(other, dict):
        here, there = cast("dict[object, object]", mine), cast("dict[object, object]", other)
        return here.keys() == there.keys() and all(same(here[key], there[key]) for key in here)
    return mine == other


def _close(mine: float, other: float) -> bool:
    try:
        return math.isclose(mine, other, rel_tol=1e-9) or (math.isnan(mine) and math.isnan(other))
    except OverflowError:  # an int that no float can hold
        return False
