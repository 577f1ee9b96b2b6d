"""What is wrong with the answer of a plain function, in words: what it was asked, what is right, and the likely fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from lib.checker.table import Answer, Failure
from lib.errors.exceptions import PuzzleError

__all__ = ["wrong_answer"]

LONGEST = 300
"""Characters of a value that are shown."""


def wrong_answer(name: str, failure: Failure, fix: str = "") -> PuzzleError:
    """The mistake of the function `name`. `fix` is what its puzzle says where nothing better is known."""
    call = f"{name}({', '.join(map(_shown, failure.given))})"
    got = failure.got
    what = f"{call} raises {got.raised}" if got.raised else f"{call} is not right"
    return PuzzleError(
        what,
        expected=_words(failure.expected),
        got=_words(got) + (f" ({got.where})" if got.where else ""),
        fix=_fix(failure) or fix or "work this one out by hand: it is the smallest input found that goes wrong",
    )


def _words(answer: Answer) -> str:
    if not answer.raised:
        return _shown(answer.value)
    return f"{answer.raised}: {answer.message[:LONGEST]}" if answer.message else answer.raised


def _shown(value: Any) -> str:
    if isinstance(value, frozenset):
        items = sorted(cast("frozenset[Any]", value), key=repr)
        value = set(items) or "set()"
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        if not all(isinstance(key, str) for key, _ in items):
            items = sorted(items, key=lambda item: _in_order(repr(item[0])))
        value = dict(items)
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _fix(failure: Failure) -> str:
    """The likely reason, seen from the two answers alone."""
    expected, got = failure.expected, failure.got
    if "coroutine" in got.message and got.raised == "TypeError":
        return "write `def` in place of `async def`: nobody awaits a plain function"
    if got.raised and expected.raised:
        return f"such an input is a mistake of the caller's: raise {expected.raised}, before anything else goes wrong"
    if got.raised == "ValueError":
        return "this input is not to be refused: it has an answer"
    if got.raised:
        return ""
    if expected.raised:
        return f"such an input is a mistake of the caller's: raise {expected.raised}"
    if failure.why:
        return failure.why
    if got.value is None:
        return "it gives nothing back: end it with `return ...`"
    if _kind(expected.value) != _kind(got.value):
        return f"give back {_kind(expected.value)}; this is {_kind(got.value)}"
    return _fix_of_values(expected.value, got.value)


def _fix_of_values(expected: object, got: object) -> str:
    """The same for answers of one kind."""
    if isinstance(expected, list) and isinstance(got, list):
        return _fix_of_lists(cast("list[Any]", expected), cast("list[Any]", got))
    if isinstance(expected, dict) and isinstance(got, dict):
        return _fix_of_dicts(cast("dict[Any, Any]", expected), cast("dict[Any, Any]", got))
    return _off_by([expected], [got])


def _fix_of_dicts(expected: dict[Any, Any], got: dict[Any, Any]) -> str:
    if missing := sorted((repr(key) for key in expected if key not in got), key=_in_order):
        return f"the answer has the key{'s' if len(missing) > 1 else ''} {', '.join(missing)}; this has not"
    if more := sorted((repr(key) for key in got if key not in expected), key=_in_order):
        return f"there is no key {' and no key '.join(more)} in the answer"
    return ""


def _in_order(key: str) -> tuple[int, str]:
    """Numbers by size."""
    return len(key), key


def _fix_of_lists(expected: list[Any], got: list[Any]) -> str:
    if len(expected) != len(got):
        return f"the answer has {len(expected)} items; this has {len(got)}"
    if sorted(map(repr, expected)) == sorted(map(repr, got)):
        return "the right items, in another order"
    return _off_by(expected, got)


def _off_by(expected: Sequence[Any], got: Sequence[Any]) -> str:
    if not _numbers([*expected, *got]) or not expected:
        return ""
    gaps = {mine - right for mine, right in zip(got, expected, strict=True)}
    if gaps in ({1}, {-1}):
        return f"one too {'many' if gaps == {1} else 'few'}: does it count from 0, and up to but not including the end?"
    return ""


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _kind(value: Any) -> str:
    kinds = {bool: "True or False", int: "a number", float: "a number", str: "text", list: "a list", dict: "a dict"}
    return "None" if value is None else "a set" if isinstance(value, frozenset) else kinds[type(value)]
