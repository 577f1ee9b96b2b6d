"""`puzzles gallery`: all solutions of one puzzle, small, beside each other, sorted by any figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Column, Table
from rich.text import Text

from lib.errors.wording import counted
from lib.suite.cli.comparing.documents import GALLERIES, Paper, need_for
from lib.suite.cli.comparing.entries import ALL, Entry, chosen, entries_of
from lib.suite.cli.comparing.figures import FIGURES, best
from lib.suite.cli.comparing.groups import SORTS, Gallery, grouped, in_order
from lib.suite.cli.console import say, show_table
from lib.suite.cli.options import Aspect, Frame, Limit, output, shape_of
from lib.suite.course.solutions import without_lines
from lib.suite.submissions.source import SourceError

__all__ = ["gallery_command"]

LISTED: Final = 20
"""Rows of the table in a terminal; the file has all."""


def gallery_command(
    puzzle: Annotated[str, typer.Argument(help="The puzzle's id, such as gpipe.", show_default=False)],
    whats: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[[NAME=]WHAT]...",
            help="Solutions beside ours: a folder or zip of what a class handed in, notebooks, .py files, or saved "
            "Traces (.json).",
            show_default=False,
        ),
    ] = None,
    output_: Annotated[Path | None, output("a gallery", [*GALLERIES], "gallery_PUZZLE.html")] = None,
    sort: Annotated[str, typer.Option(metavar="|".join(SORTS), help="What to sort by, the lowest first.")] = "time",
    reverse: Annotated[bool, typer.Option("--reverse", help="The highest first.")] = False,
    most: Annotated[int | None, typer.Option(min=1, help="Show only the first so many.", show_default=False)] = None,
    ours: Annotated[bool, typer.Option(help="Show our own solutions, too.")] = True,
    names: Annotated[bool, typer.Option(help="Say who handed it in. Without, it says how many did.")] = False,
    pictures: Annotated[
        bool, typer.Option(help="With a page, write a large picture of each solution into a folder beside it.")
    ] = True,
    frame: Frame = "card",
    aspect: Aspect = None,
    limit: Limit = None,
) -> None:
    """Show all solutions of one puzzle as small timelines with their figures: ours, and those of a class.

    Equal schedules are shown once, with how many have them. As a page (.html) it can be sorted again and filtered by
    goal, and a click makes a solution large; as slides (.pdf) each has a page. What is not correct comes last.

    For example: `puzzles gallery gpipe`, or `puzzles gallery gpipe submissions/ --sort memory -o class.html`.

    What students wrote runs where it can do no harm, and nobody is named unless you say --names.

    It shows solutions of a puzzle. The schedules of pipelines that have a name, such as 1F1B, are in
    `puzzles schedule gallery`.
    """
    if sort not in SORTS:
        raise typer.BadParameter(f"--sort takes one of {', '.join(SORTS)}; got {sort!r}")
    path = output_ or Path(f"gallery_{puzzle}.html")
    paper = Paper(*shape_of(path, frame, aspect))
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
    entries = [_bare(entry) for entry in entries_of(subjects, limit)]
    shown = _gallery(puzzle, entries, sort, names, reverse, most, pictures)
    _say(shown, entries)
    GALLERIES[path.suffix](shown, paper, path)
    say(f"Wrote {path}")


def _bare(entry: Entry) -> Entry:
    """Without lines of code: a gallery is shown to a class, and a line is somebody's, or is the answer."""
    return entry if entry.trace is None else replace(entry, trace=without_lines(entry.trace))


def _gallery(
    puzzle: str, entries: Sequence[Entry], sort: str, names: bool, reverse: bool, most: int | None, pictures: bool
) -> Gallery:
    groups = in_order(grouped(entries), sort, names, reverse)[:most]
    lowest = best([group.first.figures if group.correct else None for group in groups])
    return Gallery(puzzle, tuple(groups), sum(len(one.entries) for one in groups), sort, names, pictures, lowest)


def _say(shown: Gallery, entries: Sequence[Entry]) -> None:
    """The first rows, and what is not shown."""
    numbers = [Column(figure.title, justify="right") for figure in FIGURES.values() if figure.judged]
    table = Table(Column("", overflow="fold"), Column("goal reached", overflow="fold"), *numbers)
    for group in shown.groups[:LISTED]:
        figures = group.first.figures or {}
        cells = [figure.words(figures[name]) if figures else "" for name, figure in FIGURES.items() if figure.judged]
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
