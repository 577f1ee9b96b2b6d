"""Judges a plain function by its answers to tables and random inputs, and finds the smallest input that it gets wrong.

Inputs and answers are data: numbers, text, None, and lists, tuples, sets and dicts of them. A list and a tuple of the
same items are the same answer, and so are numbers that differ only by rounding; but True is not 1.

Random inputs are made of choices (see `Draw`). If the function is wrong on one, the choices are made fewer and smaller
for as long as it stays wrong. So every input tried is one that the puzzle could have drawn.
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

from lib.errors.exceptions import PuzzleError
from lib.errors.wording import message_of
from lib.puzzles.puzzle import Row

SEED = 0
ROUNDS, TRIED = 12, 200  # how often a wrong input is made smaller, at most, and how many are tried each time
MOST_BITS = 10_000  # of a number in an answer: Python prints none much longer, and nobody wants to read it
T = TypeVar("T")
Given = tuple[Any, ...]  # the arguments of a call


class Answer(NamedTuple):
    """A function's answer: data; or the name of the error that it raised, its message, and the line."""

    value: Any = None
    raised: str = ""
    message: str = ""
    where: str = ""


Ask = Callable[[Sequence[Given]], Sequence[Answer]]
"""Makes a function answer several inputs, in this process or another."""


class Failure(NamedTuple):
    """An input that a function gets wrong. `expected` is the table's answer, or another right one; `why` says, if the
    puzzle can, what is wrong with what it `got`; `wanted` is shown for the right answer; `names` belong to `given`."""

    given: Given
    expected: Answer
    got: Answer
    why: str = ""
    wanted: str = ""
    names: Sequence[str] = ()

    @property
    def is_refusal(self) -> bool:
        """Tell whether the right answer is an error."""
        return bool(self.expected.raised)


class Draw:
    """The choices that make a random input. They are recorded, to be repeated or made smaller."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self.choices: list[int] = []

    @classmethod
    def again(cls, choices: Sequence[int]) -> Draw:
        """Repeat earlier choices; where there are no more, make the smallest ones."""
        left = iter(choices)
        return cls(lambda count: min(next(left, 0), count - 1))

    def integer(self, low: int, high: int) -> int:
        """Return a number from `low` to `high`, both included. Smaller inputs have lower ones."""
        self.choices.append(self._choose(high - low + 1))
        return low + self.choices[-1]

    def choice(self, options: Sequence[T]) -> T:
        """Return one of several options. Smaller inputs have earlier ones."""
        return options[self.integer(0, len(options) - 1)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in any order. In smaller inputs it is closer to the given order."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in items]


ODD = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""Errors that the judge's functions may raise, as an answer may be anything."""


@dataclass(frozen=True, slots=True)
class Judge:
    """The reference's `answer`, and how to judge by it. `inputs` draws an input (the arguments, as a tuple), or, if it
    is a generator without arguments, yields all inputs, small ones first. If several answers are right,
    `accepts(answer, *given)` tells whether one is, or says in a sentence why not. `picture(answer, expected, *given)`
    is what a picture of a wrong answer shows; `answer` is None if it is not of the right kind. `wanted` describes the
    right answer if the reference's is one of many and not to be shown."""

    answer: Callable[..., Any]
    inputs: Callable[..., Any] | None = None
    accepts: Callable[..., bool | str] | None = None
    picture: Callable[..., Any] | None = None
    wanted: str = ""
    names: Sequence[str] = ()

    def failure(self, given: Given, got: Answer, row: Row | None = None) -> Failure | None:
        """Return what is wrong with an answer; None if it is right."""
        if row is None:
            expected = ask_here(self.answer)([given])[0]
        else:
            expected = Answer(None if row.raises else decode(encode(row.answer)), row.raises, row.why)
        right: bool | str = got.raised == expected.raised and same(got.value, expected.value)
        if not right and self.accepts is not None and not got.raised:
            try:
                right = self.accepts(got.value, *deepcopy(given))
            except ODD:
                right = False
        return None if right is True else Failure(given, expected, got, right or "", self.wanted, self.names)

    def shown(self, failure: Failure) -> Any:
        """Return what the picture of a failure shows; None if there is none, such as when an error is expected."""
        if self.picture is None or failure.is_refusal:
            return None
        given, expected = deepcopy(failure.given), failure.expected.value
        try:
            return self.picture(failure.got.value, expected, *given)
        except ODD:
            return self.picture(None, expected, *given)


# -- the smallest input that goes wrong ----------------------------------------------------------------------------


def first_failure(
    table: Sequence[Row], draws: int, judge: Judge, ask: Ask, seed: int | str = SEED
) -> tuple[int, Failure | None]:
    """Return the number of inputs asked at first, and the smallest failure; None if there is none. An input to be
    refused is shown only if all others are right: a function's main job comes first. Random inputs are drawn from
    `seed`."""
    asked: list[tuple[Given, Row | None, list[int]]] = [(row.given, row, []) for row in table]
    asked += [(given, None, choices) for choices, given in _inputs(judge, draws, seed)]
    answers = ask([given for given, _, _ in asked])
    wrong: list[Failure] = []
    drawn: list[tuple[list[int], Failure]] = []
    for (given, row, choices), got in zip(asked, answers, strict=True):
        if (failure := judge.failure(given, got, row)) is not None:
            if row is None:
                drawn.append((choices, failure))
            else:
                wrong.append(failure)
    if drawn:
        choices, failure = min(drawn, key=lambda one: (one[1].is_refusal, _order(one[0])))
        wrong.append(_shrunk(choices, failure, judge, ask) if choices else failure)
    smallest = min(wrong, key=lambda one: (one.is_refusal, len(repr(one.given)), repr(one.given)), default=None)
    return len(asked), smallest


def _inputs(judge: Judge, draws: int, seed: int | str) -> Iterator[tuple[list[int], Given]]:
    """All inputs, or random ones with their choices: always the same for a seed."""
    if judge.inputs is None:
        return
    if inspect.isgeneratorfunction(judge.inputs):
        yield from (([], tuple(given)) for given in judge.inputs())
        return
    random = Random(seed)
    for _ in range(draws):
        draw = Draw(random.randrange)
        given = tuple(judge.inputs(draw))
        yield draw.choices, given


def _order(choices: Sequence[int]) -> tuple[int, Sequence[int]]:
    """Fewer choices are smaller, then lower ones."""
    return len(choices), choices


def _shrunk(choices: list[int], failure: Failure, judge: Judge, ask: Ask) -> Failure:
    """A failure on the smallest input that can be found. `ask` may be costly, so it is called once a round."""
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
        tried = zip(smaller, smaller.values(), ask([*smaller.values()]), strict=True)
        for made, given, got in sorted(tried, key=lambda one: _order(one[0])):
            if (found := judge.failure(given, got)) is not None and found.is_refusal <= failure.is_refusal:
                choices, failure = list(made), found
                break
        else:
            break
    return failure


def _smaller(choices: list[int]) -> Iterator[list[int]]:
    """The same choices without a few consecutive ones, or with one of them lower."""
    for length in (8, 4, 2, 1):
        for first in range(len(choices) - length + 1):
            yield choices[:first] + choices[first + length :]
            # An earlier choice often counts what was left out.
            for before in range(first):
                if choices[before] >= 1:
                    fewer = [*choices[:before], choices[before] - 1, *choices[before + 1 :]]
                    yield fewer[:first] + fewer[first + length :]
    for place, choice in enumerate(choices):
        for lower in sorted({0, choice // 2, choice - 1} - {-1, choice}):
            yield [*choices[:place], lower, *choices[place + 1 :]]


# -- answers --------------------------------------------------------------------------------------------------------


def ask_here(function: Callable[..., Any], where: Callable[[BaseException], str] = lambda error: "") -> Ask:
    """Ask a function in this process. It gets copies, so changing its inputs has no effect. `where` says which line
    raised an error. Only an Exception or SystemExit counts as an answer; everything else passes through, and so does a
    PuzzleError, such as NotSolved."""

    def answer(given: Given) -> Answer:
        try:
            return Answer(decode(encode(function(*deepcopy(given)))))
        except PuzzleError:
            raise
        except (Exception, SystemExit) as error:
            return Answer(raised=str.__str__(type(error).__name__), message=message_of(error), where=where(error))

    return lambda inputs: [answer(given) for given in inputs]


def encode(value: Any) -> Any:
    """Return data as JSON; what JSON lacks is an object of one key. TypeError if it is not data. No instance of a
    student's own class gets through: a subclass of str may claim to be equal to everything."""
    kind = cast("type[Any]", type(value))
    if kind is int and value.bit_length() <= MOST_BITS:  # the most common data
        return value
    if value is None or value is True or value is False:
        return value
    if issubclass(kind, str):  # isinstance believes an object's own claim about its class
        return str.__str__(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, list | tuple | range):
        return [encode(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, set | frozenset):
        return {"set": sorted((encode(item) for item in cast("set[Any]", value)), key=repr)}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in cast("dict[Any, Any]", value).items()]}
    if callable(told := getattr(kind, "as_answer", None)):  # such as a Plan
        return encode(told(value))
    try:
        number = index(value)  # works for numpy's integers, too
    except TypeError:
        if inspect.iscoroutine(value):
            value.close()  # or Python would warn, too
        raise TypeError(f"it answers with a {type(value).__name__}, which is not data") from None
    if number.bit_length() > MOST_BITS:
        raise OverflowError(f"it answers with a number of more than {MOST_BITS} bits")
    return number


def decode(data: Any) -> Any:
    """Decode what `encode` made, from an untrusted sender. ValueError for anything else."""
    if data is None or isinstance(data, int | str | float):
        return data
    if isinstance(data, list):
        return [decode(item) for item in cast("list[Any]", data)]
    if isinstance(data, dict) and len(cast("dict[Any, Any]", data)) == 1:
        ((kind, content),) = cast("dict[str, Any]", data).items()
        if kind == "float" and content in ("inf", "-inf", "nan"):
            return float(content)
        if kind in ("set", "dict") and isinstance(content, list):
            items = cast("list[Any]", content)
            return frozenset(map(_key, items)) if kind == "set" else {_key(key): decode(item) for key, item in items}
    raise ValueError("this is no answer in JSON")


def _key(data: Any) -> Any:
    """Return a hashable value, for a set or the key of a dict: a list becomes a tuple there."""
    value = decode(data)
    if isinstance(value, dict):
        raise ValueError("a dict is not a key")
    return tuple(_key(encode(item)) for item in cast("list[Any]", value)) if isinstance(value, list) else value


def same(mine: object, other: object) -> bool:
    """Tell whether two decoded answers are the same."""
    match mine, other:
        case (bool(), _) | (_, bool()):
            return mine is other
        case (int() | float(), int() | float()):
            try:
                close = math.isclose(mine, other, rel_tol=1e-9) or (math.isnan(mine) and math.isnan(other))
            except OverflowError:  # an int that no float can hold
                close = False
            return close or mine == other
        case list(), list():
            ours, theirs = cast("list[object]", mine), cast("list[object]", other)
            return len(ours) == len(theirs) and all(map(same, ours, theirs))
        case dict(), dict():
            here, there = cast("dict[object, object]", mine), cast("dict[object, object]", other)
            return here.keys() == there.keys() and all(same(here[key], there[key]) for key in here)
        case _:
            return mine == other
