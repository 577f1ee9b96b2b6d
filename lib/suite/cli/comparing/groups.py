"""Solutions of a puzzle, those with equal schedules together, in the order of a figure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Final, NamedTuple

from lib.analysis.difference import alike
from lib.errors.wording import counted
from lib.puzzles.records import PUZZLES
from lib.suite.cli.comparing.entries import Entry
from lib.suite.cli.comparing.figures import FIGURES

__all__ = ["SORTS", "Gallery", "Group", "grouped", "in_order"]

SORTS: Final = {name: figure.title for name, figure in FIGURES.items()} | {"name": "name", "count": "how many have it"}
"""What solutions are sorted by, and what it is called: a figure, their names, or how many have them."""
LONG: Final = 60
"""Letters of a goal or a mistake in a title."""
NAMED: Final = 3
"""Students who are named together; of more it says how many."""


@dataclass(frozen=True, slots=True)
class Group:
    """Solutions with one schedule. `number` counts groups from 1 in the order in which they came, ours first."""

    number: int
    entries: tuple[Entry, ...]

    @property
    def first(self) -> Entry:
        """The one that is drawn: one of ours, where there is one."""
        return self.entries[0]

    @property
    def ours(self) -> tuple[str, ...]:
        """What those of ours are called."""
        return tuple(entry.name for entry in self.entries if entry.ours)

    @property
    def students(self) -> tuple[str, ...]:
        """Who handed it in."""
        return tuple(entry.name for entry in self.entries if not entry.ours)

    @property
    def correct(self) -> bool:
        """Whether it is one correct training step."""
        return self.first.correct

    @property
    def message(self) -> str:
        """What went wrong, in a line: the rest of it has the lines of somebody's code."""
        words = self.first.message.splitlines()
        if self.first.verdict is not None and not self.correct:
            words = words[1:]  # which fault, as the state says already that it is one
        return words[0] if words and not self.correct else ""

    def title(self, names: bool) -> str:
        """What it is called: by its name where it is ours, with its students, or with how many they are; what nobody
        has a name for is called by the goal that it reaches, or by what is wrong with it."""
        count = len(self.students)
        who = counted(count, "student") if count else ""
        if names and count:
            more = f" and {count - NAMED} more" if count > NAMED else ""
            who = ", ".join(self.students[:NAMED]) + more
        ours = " and ".join(entry.short for entry in self.entries if entry.ours)
        if ours:
            return f"{ours} (ours) · {who}" if who else f"{ours} (ours)"
        return who if names else f"{who}: {shorten(self.reaches, LONG, placeholder='…')}"

    @property
    def reaches(self) -> str:
        """The best goal that it reaches, or what is wrong with it."""
        if self.correct:
            return self.first.goals[-1] if self.first.goals else "correct, within no goal"
        return self.message or self.first.state

    def key(self, sort: str, names: bool) -> tuple[float, str]:
        """What it is sorted by, smallest first; by its name among equals."""
        title = self.title(names).casefold() if names or self.ours else ""
        if sort == "count":
            return -len(self.students), title
        if sort == "name" or self.first.figures is None:
            return 0.0, title
        return round(self.first.figures[sort], 9), title


def grouped(entries: Sequence[Entry]) -> list[Group]:
    """The solutions that have a run, equal ones together: where they fail, or are not correct, with the same words."""
    found: dict[Hashable, list[Entry]] = {}
    for entry in entries:
        if entry.trace is not None:
            wrong = Group(0, (entry,)).message
            found.setdefault((alike(entry.trace), entry.state, entry.goals, wrong), []).append(entry)
    return [Group(number, tuple(same)) for number, same in enumerate(found.values(), 1)]


def in_order(groups: Sequence[Group], sort: str, names: bool, reverse: bool = False) -> list[Group]:
    """Groups by what they are sorted by, those that are not correct behind all others."""
    ordered = sorted(groups, key=lambda group: (group.key(sort, names), group.number), reverse=reverse)
    return sorted(ordered, key=lambda group: not group.correct)


class Gallery(NamedTuple):
    """What is shown: the groups in order, and how many solutions they are. `names`: those of students, too."""

    puzzle: str
    groups: tuple[Group, ...]
    solutions: int
    sort: str
    names: bool
    pictures: bool
    best: dict[str, float]

    @property
    def title(self) -> str:
        """The puzzle."""
        return f"Solutions of {PUZZLES[self.puzzle].heading}"

    @property
    def about(self) -> str:
        """Its size, and how many there are."""
        counts = f"{counted(self.solutions, 'solution')}, {counted(len(self.groups), 'schedule')}"
        return f"{PUZZLES[self.puzzle].size.words()} · {counts}"
