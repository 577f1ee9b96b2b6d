"""Numbers, sets and names in words, for the figures, sets of ranks and plurals of every text and picture. Also the
arguments of a student's calls, in words, and as plain ints and names.

A number may be numpy's, a bool, or of a class of the student's that claims to equal everything. Only plain ints go
further: the rules compare them, and a Trace keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from operator import index
from typing import Any, cast

KEPT = "\n\t\u200c\u200d"
"""Invisible characters that honest text may need: ends of lines, tabs, joiners and non-joiners of letters."""
MOST_NUMBERS = 16
"""The most numbers, or runs of them, that a message lists."""


def with_article(noun: str) -> str:
    """Return a noun with its article: "a weight", "an activation"."""
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


def shown(key: Any) -> str:
    """Return a key as written in square brackets: 1, "full"."""
    parts = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else ()
    if not parts:
        return repr(cast("object", key))
    return ", ".join(map(repr, parts)) + ("," if len(parts) == 1 else "")


def message_of(error: BaseException) -> str:
    """Return what an error says; "" if it cannot, as with a number that is too long to write."""
    try:
        return str.__str__(str(error))
    except Exception:  # an error class of the student's may raise anything
        return ""


def plural(noun: str, number: float) -> str:
    """Return the noun for a number of things: 1 "rank", 4 "ranks", 2 "batches"."""
    return noun if number == 1 else f"{noun}{'es' if noun.endswith(('ch', 's')) else 's'}"


def visible(text: str, lines: bool = True) -> str:
    """Return foreign text with invisible characters made visible: an escape, or one that reverses the reading
    direction, becomes ⟨U+001B⟩. `lines`: whether ends of lines and tabs stay; otherwise they become spaces.

    Joiners of letters, as in some scripts and in emoji, stay too. Every result can be written in UTF-8.
    """
    if text.isprintable():
        return text
    from unicodedata import category  # here and not above: few texts are odd, and `import lib` should be quick

    seen = "".join(
        letter
        if letter.isprintable() or letter in KEPT or category(letter) in ("Zs", "Cn")
        else f"⟨U+{ord(letter):04X}⟩"
        for letter in text.replace("\r\n", "\n")
    )
    return seen if lines else seen.replace("\n", " ").replace("\t", " ")


def amount(value: float | Fraction) -> str:
    """Return a number of elements, or a fraction of one, to ten digits: 1,835,008."""
    return f"{float(value):,.10g}"


def exact(value: float) -> str:
    """Return a time to four decimals (measured ones have nine), without .0 if it is whole: 8, 33.3."""
    value = round(value, 4)
    return str(int(value)) if value == int(value) else repr(value)


def counted(number: int, noun: str, form: str = "") -> str:
    """Return a count and its noun: "1 rank", "4 ranks". The form "," separates thousands: "1,024 ranks"."""
    return f"{number:{form}} {plural(noun, number)}"


def more(found: Sequence[object], noun: str, link: str = ", and") -> str:
    """Return ", and 2 more values like it"; "" if there is only one."""
    return "" if len(found) == 1 else f"{link} {len(found) - 1} more {plural(noun, len(found) - 1)} like it"


def runs(items: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers in order as half-open runs: {0, 1, 2, 7} -> [(0, 3), (7, 8)]."""
    if (known := getattr(items, "runs", None)) is not None:
        return [*known]
    found: list[tuple[int, int]] = []
    first = after = None
    for number in sorted(items):
        if first is None or after is None:
            first = number
        elif number > after:
            found.append((first, after))
            first = number
        after = number + 1
    return found if first is None or after is None else [*found, (first, after)]


def run_words(found: Iterable[tuple[int, int]]) -> Iterator[str]:
    """Yield runs in order, as a message writes them; a run of two is two numbers: "0", "4", "5", "7-9"."""
    for first, after in found:
        if after - first > 2:
            yield f"{first}-{after - 1}"
        else:
            yield from map(str, range(first, after))


def ranges(items: Iterable[int]) -> str:
    """Return a set of numbers in order, with runs shortened, and the middle left out if there are many: 0, 2-5."""
    return _some([*run_words(runs(items))])


def _some(parts: list[str], most: int = MOST_NUMBERS) -> str:
    if len(parts) > most:
        parts[most // 2 : -1] = ["..."]
    return ", ".join(parts)


def numbers(items: Iterable[int]) -> str:
    """Return the same in the braces of a set: {0, 2-5}."""
    return "{" + ranges(items) + "}"


def listed(items: Sequence[int], most: int = MOST_NUMBERS) -> str:
    """Return a list of numbers in its own order, the middle of a long one left out: [0, 2, ..., 98]."""
    return f"[{_some([*map(str, items)], most)}]"


def these(noun: str, items: Iterable[int]) -> str:
    """Name numbered things in a sentence: "rank 0", "ranks 0 and 1", "batches 0, 2-5"."""
    found = runs(items)
    count = sum(after - first for first, after in found)
    words = f"{found[0][0]} and {found[-1][1] - 1}" if count == 2 else _some([*run_words(found)])
    return f"{plural(noun, count)} {words}"


def numbered(noun: str, items: Iterable[int]) -> str:
    """Name numbered things as a label: "rank 0", "ranks 0, 1", "batches 0, 2-5"."""
    found = runs(items)
    return f"{plural(noun, sum(after - first for first, after in found))} {_some([*run_words(found)])}"


# -- arguments of a call ------------------------------------------------------------------------------------------


def is_awaitable(thing: object) -> bool:
    """Tell whether a thing can be awaited: the usual reason why it is not the value that it should be."""
    return hasattr(type(thing), "__await__")


def plain(item: Any) -> Any:
    """Return a whole number of any class as a plain int; anything else as it is, for the rules to refuse."""
    if type(item) is int:
        return item
    try:
        return index(item)
    except TypeError:
        return item


def name_of(item: Any) -> Any:
    """Return a str of any class as a plain str; anything else as it is."""
    return str.__str__(item) if isinstance(item, str) else item


def written(item: object) -> str:
    """Return a thing as a message shows it, even a number that is too long for Python to write."""
    if type(item) is int and item.bit_length() > 100:
        return f"{'-' if item < 0 else ''}2**{item.bit_length() - 1} or more"
    return repr(item)


def described(thing: object, describe: Callable[[object], str]) -> str:
    """Describe briefly what stands where a value belongs. `describe` has the words for items of a list."""
    if isinstance(thing, int | float) and not isinstance(thing, bool):
        return f"the number {written(thing)}"
    if isinstance(thing, tuple | list):
        items, name = cast("Sequence[object]", thing), "tuple" if isinstance(thing, tuple) else "list"
        inside = "; ".join(describe(item) for item in items[:3]) + ("; ..." if len(items) > 3 else "")
        return f"a {name} of {len(items)}" + (f": {inside}" if items else "")
    if isinstance(thing, dict):
        name = getattr(cast("object", thing), "name", None)
        return "a whole dict" if name is None else f"the whole store {name}"
    if callable(thing) and (called := getattr(thing, "__name__", None)) is not None:
        return f"{called} itself, which is not called"
    if hasattr(type(thing), "__await__"):
        return f"what {getattr(thing, '__name__', 'a call')} returned, which is not awaited"
    text = re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(thing))  # addresses differ from run to run
    return text if thing is None else f"{type(thing).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
