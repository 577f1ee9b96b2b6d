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

from lib.errors.exceptions import PuzzleError
from lib.errors.wording import message_of
from lib.puzzles.puzzle import Row

SEED = 0
ROUNDS, TRIED = 12, 200  # how often a wrong input is made smaller, at most, and how many are tried each time
MOST_BITS = 10_000  # of a number in an answer: Python writes no longer one down, and nobody wants to read it
T = TypeVar("T")
Given = tuple[Any, ...]  # the arguments of a call


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
    is wrong with the one it got, if the puzzle knows; `wanted` is told for the right answer; `names` for `given`."""

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
        """Return a number from `low` to `high`, both included. Smaller inputs have lower ones."""
        self.choices.append(self._choose(high - low + 1))
        return low + self.choices[-1]

    def choice(self, options: Sequence[T]) -> T:
        """One of several. Smaller inputs have earlier ones."""
        return options[self.integer(0, len(options) - 1)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in any order. Smaller inputs have them nearer to the order in which they were given."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in items]


ODD = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""What functions of the judge's may raise: an answer may be anything."""


@dataclass(frozen=True, slots=True)
class Judge:
    """The reference, which knows what is right. `inputs` draws an input (the arguments, as a tuple), or, if it is a
    generator without arguments, gives all that there are, small ones first. `accepts(answer, *given)` says whether
    an answer is right, where more than one is, or in a sentence why it is not. `picture(answer, expected, *given)`
    is what a picture of a wrong answer shows; `answer` is None where there is none of the right kind. `wanted` says
    what is to come out, where the answer of the reference is one of many and not to be shown."""

    answer: Callable[..., Any]
    inputs: Callable[..., Any] | None = None
    accepts: Callable[..., bool | str] | None = None
    picture: Callable[..., Any] | None = None
    wanted: str = ""
    names: Sequence[str] = ()

    def failure(self, given: Given, got: Answer, row: Row | None = None) -> Failure | None:
        """Return what is wrong with an answer; None where it is right."""
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
        """Return what the picture of a failure shows; None where there is none, as where the input is to be refused."""
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
    """Return how many inputs were asked first, and the smallest that is wrong; None where all are right. One that is
    to be refused is shown only where all others are right: what a function is for comes first. Random inputs are
    those of `seed`."""
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
    """All inputs that there are, or random ones with their choices: the same ones every time for a seed."""
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
        tried = zip(smaller, smaller.values(), ask([*smaller.values()]), strict=True)
        for made, given, got in sorted(tried, key=lambda one: _order(one[0])):
            if (found := judge.failure(given, got)) is not None and found.is_refusal <= failure.is_refusal:
                choices, failure = list(made), found
                break
        else:
            break
    return failure


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
    """Call a function in this process. It gets copies: what it does to its inputs changes nothing. `where` says in
    which line an error was raised. Control flow is passed on: of what is raised only an Exception, or the wish to end
    Python, is an answer; and a PuzzleError, such as NotSolved, is none."""

    def answer(given: Given) -> Answer:
        try:
            return Answer(decode(encode(function(*deepcopy(given)))))
        except PuzzleError:
            raise
        except (Exception, SystemExit) as error:
            return Answer(raised=str.__str__(type(error).__name__), message=message_of(error), where=where(error))

    return lambda inputs: [answer(given) for given in inputs]


def encode(value: Any) -> Any:
    """Return data as JSON has it; what JSON has not is an object of one key. TypeError where it is not data. Nothing of
    the student's own comes through: a class of text may call itself equal to everything."""
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
    if callable(told := getattr(kind, "as_answer", None)):  # such as a Plan
        return encode(told(value))
    try:
        number = index(value)  # also of numpy's integers
    except TypeError:
        if inspect.iscoroutine(value):
            value.close()  # or Python would complain a second time
        raise TypeError(f"it answers with a {type(value).__name__}, which is no data") from None
    if number.bit_length() > MOST_BITS:
        raise OverflowError(f"it answers with a number of more than {MOST_BITS} bits")
    return number


def decode(data: Any) -> Any:
    """Decode what `encode` made, sent by anybody. ValueError for anything else."""
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
    """Return a value as it can be in a set, or the key of a dict: a list becomes a tuple there."""
    value = decode(data)
    if isinstance(value, dict):
        raise ValueError("a dict is no key")
    return tuple(_key(encode(item)) for item in cast("list[Any]", value)) if isinstance(value, list) else value


def same(mine: object, other: object) -> bool:
    """Tell whether two answers are the same, both decoded."""
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
