"""Numbers, sets and names in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

__all__ = ["listed", "numbers", "shown", "these", "with_article"]


MOST_NUMBERS = 16
"""Numbers, or runs of them, that a message lists."""


def with_article(noun: str) -> str:
    """ "weight" -> "a weight", "activation" -> "an activation"."""
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


def shown(key: Any) -> str:
    """A key as one writes it between square brackets: 1, "full"."""
    parts = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else ()
    if not parts:
        return repr(cast("object", key))
    return ", ".join(map(repr, parts)) + ("," if len(parts) == 1 else "")


def numbers(items: Iterable[int]) -> str:
    """A set of numbers in order, with runs shortened: {0, 2-5}."""
    return "{" + _runs(items) + "}"


def _runs(items: Iterable[int]) -> str:
    ordered = sorted(items)
    parts: list[str] = []
    i = 0
    while i < len(ordered):
        j = i
        while j + 1 < len(ordered) and ordered[j + 1] == ordered[j] + 1:
            j += 1
        if j - i < 2:
            parts.extend(str(n) for n in ordered[i : j + 1])
        else:
            parts.append(f"{ordered[i]}-{ordered[j]}")
        i = j + 1
    if len(parts) > MOST_NUMBERS:
        parts[MOST_NUMBERS // 2 : -1] = ["..."]
    return ", ".join(parts)


def listed(items: Sequence[int], most: int = MOST_NUMBERS) -> str:
    """A list of numbers in the order that it has, of a long one its beginning and end: [0, 2, ..., 98]."""
    parts = [str(item) for item in items]
    if len(parts) > most:
        parts[most // 2 : -1] = ["..."]
    return f"[{', '.join(parts)}]"


def these(noun: str, items: Iterable[int], plural: str | None = None) -> str:
    """Numbered things in words: "rank 0", "ranks 0 and 1", "batches 0, 2-5"."""
    ordered = sorted(items)
    if len(ordered) == 1:
        return f"{noun} {ordered[0]}"
    inside = f"{ordered[0]} and {ordered[1]}" if len(ordered) == 2 else _runs(ordered)
    return f"{plural or noun + 's'} {inside}"
