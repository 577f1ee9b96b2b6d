"""Recordings in words: figures, where one departs from the order of another, and what is to be known of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from lib.analysis.recordings.recording import Recording, departures
from lib.errors.wording import exact, numbered

__all__ = ["figures", "told"]

MOST: Final = 6
"""Ranks of which it is said where they depart."""


def figures(one: Recording) -> str:
    """What is said of a recording: how long it takes, and how much of the ranks' time they do not compute."""
    time = f"end {exact(one.end / one.unit)}" if one.unit is not None else f"{one.end / 1e6:.4g} ms"
    forward = "" if one.forward is None or one.unit is not None else f" · median forward {one.forward / 1e3:.4g} µs"
    return f"{one.name}: {time} · bubble {one.bubble:.1%}{forward}"


def told(expected: Recording, found: Sequence[Recording]) -> Iterator[str]:
    """Where orders differ, and what is to be known of where recordings come from."""
    for one in found:
        yield from _compared(expected, one)
    notes: defaultdict[str, list[str]] = defaultdict(list)
    for one in (expected, *found):
        for note in one.notes:
            notes[note].append(one.name)
    yield from (note if len(names) > len(found) else f"{', '.join(names)}: {note}" for note, names in notes.items())


def _compared(expected: Recording, one: Recording) -> Iterator[str]:
    """Where the ranks of one depart from what was expected of them, if orders are known."""
    if not (expected.has_order and one.has_order):
        if expected.has_order or one.has_order:
            silent = one if expected.has_order else expected
            yield f"The ranges of {silent.name} are not named, so its order is not compared."
        return
    gaps = departures(expected, one)
    if not gaps:
        yield f"Every rank of {one.name} passes its microbatches in the order of {expected.name}."
        return
    yield f"{one.name} departs from the order of {expected.name} on {numbered('rank', (gap.rank for gap in gaps))}:"
    yield from (gap.words(expected.name, one.name) for gap in gaps[:MOST])
