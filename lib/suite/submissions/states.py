"""What may come of a puzzle: the words of the terminal, of files and of pages, in one table.

A new state is a row; who shows states reads the rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["STATES", "State"]


class State(NamedTuple):
    """A state by its word, which is the same everywhere, with a sign that stands for it and what it means. `judged`:
    there was a function to look at."""

    word: str
    sign: str
    about: str
    judged: bool = True


STATES: Final = {
    state.word: state
    for state in (
        State("passed", "✓", "all that is needed"),
        State("missed", "◐", "correct, and over the goal that is needed"),
        State("partly", "◑", "right at the puzzle's own size, and not at all others"),
        State("failed", "✗", "not correct, or it did not come to its end"),
        State("unsolved", "○", "the gap still holds its stub"),
        State("renamed", "≠", "a file is there for it, which does not define its function", judged=False),
        State("unreadable", "⊘", "what was handed in cannot be read", judged=False),
        State("empty", "∅", "what was handed in holds no code", judged=False),
        State("unrelated", "∉", "what was handed in holds none of the puzzles that are asked", judged=False),
        State("absent", "–", "it was not handed in", judged=False),
    )
}
"""From good to bad."""
