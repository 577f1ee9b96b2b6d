"""`puzzles gallery`: all solutions of one puzzle, small, beside each other, sorted by any figure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.table import Column, Table
from rich.text import Text

from lib.analysis.difference import alike
from lib.errors.wording import counted
from lib.files import ready, write_whole
from lib.puzzles.records import PUZZLES
from lib.suite.cli.compare import comparing_page, figure_cells, need_for
from lib.suite.cli.console import numbers, say, show_table
from lib.suite.cli.entries import ALL, FIGURES, Entry, best, chosen, entries_of
from lib.suite.cli.options import Aspect, Frame, Limit, argument, option, output, shape_of
from lib.suite.course.solutions import OFFICIAL, without_lines
from lib.suite.submissions.source import SourceError

__all__ = ["SORTS", "Gallery", "Group", "gallery_command", "grouped", "in_order"]

SORTS: Final = {name: figure.title for name, figure in FIGURES.items()} | {"name": "name", "count": "how many have it"}
"""The keys that solutions are sorted by, with their words: a figure, their names, or how many have them."""
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
        """The names of those that are ours."""
        return tuple(entry.name for entry in self.entries if entry.ours)

    @property
    def students(self) -> tuple[str, ...]:
        """The students who handed it in."""
        return tuple(entry.name for entry in self.entries if not entry.ours)

    @property
    def correct(self) -> bool:
        """True for one correct training step."""
        return self.first.correct

    @property
    def message(self) -> str:
        """The fault, in a line: the rest of it has the lines of somebody's code."""
        words = self.first.message.splitlines()
        if self.first.verdict is not None and not self.correct:
            words = words[1:]  # which fault, as the state says already that it is one
        return words[0] if words and not self.correct else ""

    def title(self, names: bool) -> str:
        """Its title: its name where it is ours, with its students, or with how many they are; what nobody
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
        """The key to sort it by, smallest first; its name among equals."""
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
    """The groups that are shown, in order, and how many solutions they are. `names`: those of students, too."""

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
        """The size of the puzzle, and how many solutions there are."""
        counts = f"{counted(self.solutions, 'solution')}, {counted(len(self.groups), 'schedule')}"
        return f"{PUZZLES[self.puzzle].size.words()} · {counts}"


# -- the command -------------------------------------------------------------------------------------------------

LISTED: Final = 20
"""Rows of the table in a terminal; the file has all."""


def gallery_command(
    puzzle: Annotated[str, typer.Argument(help="The puzzle's id, such as gpipe.", show_default=False)],
    whats: Annotated[
        list[str] | None,
        argument(
            "[[NAME=]WHAT]...",
            "Solutions beside ours: a folder or zip of what a class handed in, notebooks, .py files, or saved Traces "
            "(.json).",
        ),
    ] = None,
    output_: Annotated[
        Path | None, output("a gallery", (".html", ".svg", ".png", ".pdf"), "gallery_PUZZLE.html")
    ] = None,
    sort: Annotated[str, option("What to sort by, the lowest first.", metavar="|".join(SORTS))] = "time",
    reverse: Annotated[bool, option("The highest first.", "--reverse")] = False,
    most: Annotated[int | None, option("Show only the first so many.", min=1, show_default=False)] = None,
    ours: Annotated[bool, option("Show our own solutions, too.")] = True,
    names: Annotated[bool, option("Say who handed it in. Without, it says how many did.")] = False,
    pictures: Annotated[
        bool, option("With a page, write a large picture of each solution into a folder beside it.")
    ] = True,
    frame: Frame = "card",
    aspect: Aspect = None,
    limit: Limit = None,
) -> None:
    """Show all solutions of one puzzle as small timelines with their figures: ours, and those of a class.

    Equal schedules are shown once, with how many have them. As a page (.html) it can be sorted again and filtered by
    goal, and a click makes a solution large. What is not correct comes last.

    For example: `puzzles gallery gpipe`, or `puzzles gallery gpipe submissions/ --sort memory -o class.html`.

    What students wrote runs where it can do no harm, and nobody is named unless you say --names.

    It shows solutions of a puzzle. The schedules of pipelines that have a name, such as 1F1B, are in
    `puzzles schedule gallery`.
    """
    if sort not in SORTS:
        raise typer.BadParameter(f"--sort takes one of {', '.join(SORTS)}; got {sort!r}")
    path = output_ or Path(f"gallery_{puzzle}.html")
    shape = shape_of(path, frame, aspect)
    need_for(path)
    try:
        official = chosen([f"{puzzle}:{ALL}"] if ours else [], puzzle).subjects
        others = chosen(whats or [], puzzle)
    except (SourceError, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    for note in others.notes:
        say(note)
    subjects = official + others.subjects
    if not subjects:
        raise typer.BadParameter(f"there is nothing to show: no solution of {puzzle} was handed in")
    # Without lines of code: a gallery is shown to a class, and a line is somebody's, or is the answer.
    entries = [
        entry if entry.trace is None else replace(entry, trace=without_lines(entry.trace))
        for entry in entries_of(subjects, limit)
    ]
    groups = in_order(grouped(entries), sort, names, reverse)[:most]
    lowest = best([group.first.figures if group.correct else None for group in groups])
    count = sum(len(group.entries) for group in groups)
    shown = Gallery(puzzle, tuple(groups), count, sort, names, pictures, lowest)
    _say(shown, entries)
    if path.suffix == ".html":
        _write_page(shown, path)
    else:
        _draw(shown, shape, path)
    say(f"Wrote {path}")


def _say(shown: Gallery, entries: Sequence[Entry]) -> None:
    """The first rows, and what is not shown."""
    judged = {name: figure for name, figure in FIGURES.items() if figure.judged}
    columns = numbers(*(figure.title for figure in judged.values()))
    table = Table(Column("", overflow="fold"), Column("goal reached", overflow="fold"), *columns)
    for group in shown.groups[:LISTED]:
        figures = group.first.figures or {}
        cells = [figure.words(figures[name]) if figures else "" for name, figure in judged.items()]
        goal = Text(group.first.goals[-1] if group.first.goals else "" if group.correct else group.first.state)
        table.add_row(Text(group.title(shown.names)), goal, *cells)
    if len(shown.groups) > LISTED:
        table.caption = f"the first {LISTED} of {counted(len(shown.groups), 'schedule')}"
    show_table(table)
    for state in ("not solved", "failed"):
        count = sum(entry.trace is None and entry.state == state for entry in entries)
        if count:
            reason = "still the stub" if state == "not solved" else "they failed before anything ran"
            say(f"{counted(count, 'solution')} not shown: {reason}.")


# -- as a picture and as a page -----------------------------------------------------------------------------------


def _draw(shown: Gallery, shape: tuple[bool, float | None], path: Path) -> None:
    from drawing.canvas.picture import on_paper
    from drawing.comparing.overview import Tile, draw_overview
    from drawing.timeline.schedule import WIDTH

    tiles: list[Tile] = []
    for group in shown.groups:
        first = group.first
        assert first.trace is not None, "what is shown has a run"
        goal = f"goal reached: {first.goals[-1]}" if first.goals else ""
        tiles.append(Tile(group.title(shown.names), first.trace, _lines(group), group.message or goal, group.correct))
    overview = draw_overview(shown.title, f"{shown.about} · sorted by {SORTS[shown.sort]}", tiles)
    on_paper(lambda width: overview, WIDTH, *shape).save(path)


def _lines(group: Group) -> list[str]:
    """The figures of a solution on two lines."""
    if group.first.figures is None:
        return []
    judged = [(figure, group.first.figures[name]) for name, figure in FIGURES.items() if figure.judged]
    said = [f"{figure.title} {figure.words(value)}" for figure, value in judged]
    half = (len(said) + 1) // 2
    return [" · ".join(said[:half]), " · ".join(said[half:])]


def _write_page(shown: Gallery, path: Path) -> None:
    """Write a page with a tile for each schedule, and the large pictures that it leads to into a folder beside it."""
    from drawing.canvas.scene import Scene, Text, sheet
    from drawing.comparing.overview import HIGH, WIDE, thumbnails
    from drawing.timeline.schedule import picture_of_trace

    groups = [(group, group.first.trace) for group in shown.groups if group.first.trace is not None]
    small = thumbnails([trace for _, trace in groups])
    fills = {mark.fill for marks in small for mark in marks}
    strokes = {mark.stroke for marks in small for mark in marks if not isinstance(mark, Text)}
    night, style = sheet(fills, strokes, titles=False)
    start = next((group for group, _ in groups if OFFICIAL in group.ours), None)
    tiles: list[dict[str, Any]] = []
    for (group, _), marks in zip(groups, small, strict=True):
        title = group.title(shown.names)
        tiles.append(
            {
                "group": group,
                "title": title,
                "cells": figure_cells(group.first, shown.best),
                "picture": Scene(WIDE, HIGH, marks, paper=False).svg(label=title, night=False),
                "differs": _differs(start, group) if start is not None and start is not group else (),
                "large": f"{path.stem}_pictures/{group.number}.svg" if shown.pictures else "",
            }
        )
    goals = [goal.name for goal in PUZZLES[shown.puzzle].goals]
    colours = {"title": shown.title, "night": night, "night_style": style}
    html = comparing_page("gallery.html", "'self' file:", shown=shown, sorts=SORTS, tiles=tiles, goals=goals, **colours)
    write_whole(ready(path), html)
    for (_, trace), tile in zip(groups, tiles, strict=True):
        if tile["large"]:
            picture_of_trace(trace).save(path.parent / tile["large"])


def _differs(official: Group, group: Group) -> list[str]:
    """Describe how a schedule departs from the official one."""
    from drawing.comparing.comparison import Compared, Comparison

    name = group.first.short if group.ours else "this one"
    other = Compared(name, group.first.trace, counts=group.correct)
    return Comparison([Compared(official.first.short, official.first.trace), other]).differences()
