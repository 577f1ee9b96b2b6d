"""`puzzles compare`, runs beside each other, and `puzzles gallery`, all solutions of one puzzle: in words.

What draws is in `pages`, and is imported where something is drawn: figures alone need no picture.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Final, Literal, NamedTuple

import typer
from rich.table import Column, Table
from rich.text import Text

from lib.analysis.difference import alike, difference, lesson, said, unequal
from lib.errors.wording import counted
from lib.extras import need_extra
from lib.files import ready, write_whole
from lib.puzzles.records import PUZZLES, Size
from lib.suite.cli import console as options
from lib.suite.cli.console import argument, numbers, option, output, say, shape_of, show_table
from lib.suite.cli.entries import ALL, FIGURES, Entry, best, chosen, entries_of
from lib.suite.course.solutions import without_lines
from lib.suite.submissions.source import SourceError
from lib.trace.trace import Trace

COLOURS = {"correct": "green", "not correct": "red", "failed": "red", "not solved": "yellow"}
TRIES: Final = 12
"""Sizes that are tried at most before one is proposed."""
NAME: Final = 26
"""Columns of a name that do not fold."""
LISTED: Final = 20
"""Rows of the table of a gallery in a terminal; the file has all."""


def compare(
    whats: Annotated[
        list[str],
        argument(
            "[NAME=]WHAT...",
            "What to compare: notebooks, .py files, saved Traces (.json), folders or zips of what a class handed "
            f"in, and puzzles: gpipe is our solution, gpipe:one_f_one_b another one, gpipe:{ALL} are all that we have. "
            "NAME= calls it so.",
        ),
    ],
    output_: Annotated[Path | None, output("a comparison", (".svg", ".png", ".pdf", ".html"))] = None,
    puzzle: Annotated[str | None, option("The puzzle, where a file has several or does not tell.", "--puzzle")] = None,
    memory: Annotated[
        Literal["peak", "each", "none"],
        option("Whose memory is drawn: of the rank with the highest peak, of each rank, or of none."),
    ] = "peak",
    fold: Annotated[
        bool, option("Whether ranks that do the same at the same times share a row.", "--fold/--unfold")
    ] = True,
    frame: options.Frame = "card",
    aspect: options.Aspect = None,
    ranks: options.Ranks = None,
    layers: options.Layers = None,
    batches: options.Batches = None,
    mesh: options.MeshOption = None,
    limit: options.Limit = None,
) -> None:
    """Put runs side by side: their figures, their timelines on one axis, and where they first differ from the first.

    With -o lesson.svg (or .png, .pdf) it is one picture, for a slide of yours with --frame none --aspect 16:9; with
    lesson.html a page with a table to sort, which needs no network and prints as slides: the figures, then each run on
    a page, all on one time axis.
    A run that fails, or is not solved, is shown as far as it came, and stops nothing.

    For example: `puzzles compare gpipe:all`, `puzzles compare mine.ipynb gpipe -o both.svg`, or
    `puzzles compare submissions/ gpipe --puzzle gpipe -o class.html`.

    Sizes that you say apply to all of them, so that runs of different puzzles can be compared.

    Exit status: 0 where every one ran to its end, 1 where one did not, 2 for a command that makes no sense.
    """
    shape = shape_of(output_, frame, aspect)
    _need_for(output_)
    subjects = _chosen(whats, puzzle)
    if not subjects:
        raise typer.BadParameter(f"there is nothing to compare in {', '.join(whats)}")
    size = {"ranks": ranks, "layers": layers, "batches": batches, "mesh": mesh}
    entries = entries_of(subjects, limit, **size)
    runs = [(entry.name, entry.trace) for entry in entries if entry.trace is not None]
    warning = unequal(runs)
    lowest = {} if warning is not None else best(entries)
    _show(entries, lowest)
    sized = " ".join(f"--{name} {value}" for name, value in size.items() if value is not None)
    for entry in entries:
        if entry.message:
            with_size = f" does not run with {sized}" if sized and entry.state == "failed" else ""
            say(f"{entry.name}{with_size}: {entry.message}")
    if warning is not None:
        say(warning)
    if (words := lesson(runs)) is not None and all(entry.correct for entry in entries):
        say(words)
    tasks = [entry.puzzle for entry in entries if entry.trace is not None]
    for (name, trace), task in zip(runs[1:], tasks[1:], strict=True):
        if task in (None, tasks[0]) or tasks[0] is None:  # of different puzzles they differ from the start
            say(said(difference(runs[0][1], trace), runs[0][0], name))
    if warning is not None:
        able = [(subject, ran.trace) for subject, ran in zip(subjects, entries, strict=True) if ran.trace]
        say(_one_size(able, limit))
    if output_ is not None:
        from lib.suite.cli import pages

        if output_.suffix == ".html":
            write_whole(ready(output_), pages.comparison(entries, lowest, memory, fold))
        else:
            pages.draw_comparison(entries, memory, fold, shape, output_)
        say(f"Wrote {output_}")
    if any(entry.verdict is None for entry in entries):
        raise typer.Exit(1)


def _need_for(path: Path | None) -> None:
    """ModuleNotFoundError where an extra is missing that the format of a file needs: before anything runs."""
    if path is not None and path.suffix == ".html":
        need_extra("grade", "a page needs", "jinja2")
    elif path is not None and path.suffix != ".svg":
        need_extra("png", f"a {path.suffix[1:].upper()} needs")


def _chosen(whats: Sequence[str], puzzle: str | None) -> list[Entry]:
    """What is to run. Of what is left out it says why."""
    try:
        found = chosen(whats, puzzle)
    except (SourceError, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    for note in found.notes:
        say(note)
    return found.subjects


def _show(entries: Sequence[Entry], lowest: dict[str, float]) -> None:
    """The figures in a table, the best of each in bold and with a star."""
    figures = numbers(*(figure.title for figure in FIGURES.values()))
    name = min(max(len(entry.name) for entry in entries), NAME)
    table = Table(Column("", overflow="fold", min_width=name), "", Column("goal reached", overflow="fold"), *figures)
    for entry in entries:
        plain = "" if entry.correct else "dim"
        every = entry.cells(lowest)
        cells = [Text(f"{cell.words} *", "bold") if cell.best else Text(cell.words, plain) for cell in every]
        state = Text(entry.state, COLOURS[entry.state])
        table.add_row(Text(entry.name), state, entry.goals[-1] if entry.goals else "", *cells)
    if lowest:
        table.caption = "* the best of those that are correct"
    show_table(table)


def _one_size(able: Sequence[tuple[Entry, Trace]], limit: float | None) -> str:
    """Find the options that give all runs one size: one of their own, at which each was tried and is correct."""
    sizes = {name: sorted({getattr(trace, name) for _, trace in able}) for name in Size._fields}
    wanted = {name: values for name, values in sizes.items() if len(values) > 1}
    at = [Size.of(trace)._asdict() for _, trace in able]
    tries = [dict(zip(wanted, size, strict=True)) for size in product(*wanted.values())]
    tries.sort(key=lambda size: -sum(size.items() <= one.items() for one in at))  # that of most of them first
    for size in tries[:TRIES]:
        if all(entries_of([subject], limit, **size)[0].correct for subject, _ in able):
            said = " ".join(f"--{name} {number}" for name, number in size.items())
            return f"To compare them at one size, say it: {said}"
    return "None of their own sizes suits all of them. Try another with --ranks, --layers and --batches."


# -- a gallery ------------------------------------------------------------------------------------------------------

SORTS: Final = {name: figure.title for name, figure in FIGURES.items()} | {"name": "name", "count": "how many have it"}
"""The keys that solutions are sorted by, with their words: a figure, their names, or how many have them."""
LONG: Final = 60
"""Letters of a goal or a mistake in a title."""
NAMED: Final = 3
"""Students who are named together; of more it says how many."""


@dataclass(frozen=True, slots=True)
class Group:
    """Solutions with one schedule: those that are `ours`, by name, and the `students` who handed it in. `number` counts
    groups from 1 in the order in which they came, ours first. The `message` is the fault, in a line: the rest of it has
    lines of a student's code."""

    number: int
    first: Entry
    message: str
    ours: tuple[Entry, ...]
    students: tuple[str, ...]

    def title(self, names: bool) -> str:
        """Return its title: its name where it is ours, with its students, or with how many they are; without a
        name it is called by the goal that it reaches, or by what is wrong with it."""
        count = len(self.students)
        who = counted(count, "student") if count else ""
        if names and count:
            more = f" and {count - NAMED} more" if count > NAMED else ""
            who = ", ".join(self.students[:NAMED]) + more
        if self.ours:
            ours = f"{' and '.join(entry.short for entry in self.ours)} (ours)"
            return f"{ours} · {who}" if who else ours
        reaches = self.message or self.first.state
        if self.first.correct:
            reaches = self.first.goals[-1] if self.first.goals else "correct, within no goal"
        return who if names else f"{who}: {shorten(reaches, LONG, placeholder='…')}"

    def key(self, sort: str, names: bool) -> tuple[float, str]:
        """Return the key to sort it by, smallest first; its name among equals."""
        title = self.title(names).casefold() if names or self.ours else ""
        if sort == "count":
            return -len(self.students), title
        if sort == "name" or self.first.figures is None:
            return 0.0, title
        return round(self.first.figures[sort], 9), title


def grouped(entries: Sequence[Entry]) -> list[Group]:
    """Put the solutions that have a run into groups, equal ones together: where they fail, or are not correct, with
    the same words. The first of each is drawn: one of ours, where there is one."""
    groups: dict[Hashable, list[Entry]] = {}
    for entry in entries:
        if entry.trace is not None:
            groups.setdefault((alike(entry.trace), entry.state, entry.goals, _fault(entry)), []).append(entry)
    return [
        Group(
            number,
            same[0],
            _fault(same[0]),
            tuple(entry for entry in same if entry.ours),
            tuple(entry.name for entry in same if not entry.ours),
        )
        for number, same in enumerate(groups.values(), 1)
    ]


def _fault(entry: Entry) -> str:
    if entry.correct:
        return ""
    _, *faults = ["", *entry.message.splitlines()]
    # That a whole run is not correct its state says already.
    return next(iter(faults if entry.verdict is None else faults[1:]), "")


def in_order(groups: Sequence[Group], sort: str, names: bool, reverse: bool = False) -> list[Group]:
    """Sort groups, those that are not correct behind all others."""
    ordered = sorted(groups, key=lambda group: (group.key(sort, names), group.number), reverse=reverse)
    return sorted(ordered, key=lambda group: not group.first.correct)


class Gallery(NamedTuple):
    """The groups that are shown, in order, and what is said of all of them. `names`: of students, too."""

    puzzle: str
    title: str
    about: str
    groups: list[Group]
    sort: str
    names: bool
    pictures: bool


def gallery(
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
    frame: options.Frame = "card",
    aspect: options.Aspect = None,
    limit: options.Limit = None,
) -> None:
    """Show all solutions of one puzzle as small timelines with their figures: ours, and those of a class.

    Equal schedules are shown once, with how many have them. As a page (.html) it can be sorted again and filtered by
    goal, and a click makes a solution large. What is not correct comes last.

    For example: `puzzles gallery gpipe`, or `puzzles gallery gpipe submissions/ --sort memory -o class.html`.

    What students wrote runs where it can do no harm, and no student is named unless you say --names.

    It shows solutions of a puzzle. The schedules of pipelines that have a name, such as 1F1B, are in
    `puzzles schedule gallery`.
    """
    from lib.suite.cli import pages

    if sort not in SORTS:
        raise typer.BadParameter(f"--sort takes one of {', '.join(SORTS)}; got {sort!r}")
    path = output_ or Path(f"gallery_{puzzle}.html")
    shape = shape_of(path, frame, aspect)
    _need_for(path)
    subjects = _chosen([f"{puzzle}:{ALL}"] if ours else [], puzzle) + _chosen(whats or [], puzzle)
    if not subjects:
        raise typer.BadParameter(f"there is nothing to show: no solution of {puzzle} was handed in")
    # Without lines of code: a gallery is shown to a class, and a line is a student's own, or is the answer.
    entries = [
        entry if entry.trace is None else replace(entry, trace=without_lines(entry.trace))
        for entry in entries_of(subjects, limit)
    ]
    groups = in_order(grouped(entries), sort, names, reverse)[:most]
    solutions = sum(len(group.ours) + len(group.students) for group in groups)
    counts = f"{counted(solutions, 'solution')}, {counted(len(groups), 'schedule')}"
    about = f"{PUZZLES[puzzle].size.words()} · {counts}"
    title = f"Solutions of {PUZZLES[puzzle].heading}"
    _list(groups, entries, names)
    shown = Gallery(puzzle, title, about, groups, sort, names, pictures)
    if path.suffix == ".html":
        pages.write_gallery(shown, path)
    else:
        pages.draw_gallery(shown, shape, path)
    say(f"Wrote {path}")


def _list(groups: Sequence[Group], entries: Sequence[Entry], names: bool) -> None:
    """The first rows, and what is not shown."""
    columns = numbers(*(figure.title for figure in FIGURES.values() if figure.judged))
    table = Table(Column("", overflow="fold"), Column("goal reached", overflow="fold"), *columns)
    for group in groups[:LISTED]:
        first = group.first
        goal = Text(first.goals[-1] if first.goals else "" if first.correct else first.state)
        cells = (cell.words for cell in first.cells({}) if FIGURES[cell.name].judged)
        table.add_row(Text(group.title(names)), goal, *cells)
    if len(groups) > LISTED:
        table.caption = f"the first {LISTED} of {counted(len(groups), 'schedule')}"
    show_table(table)
    for state, reason in (("not solved", "still the stub"), ("failed", "they failed before anything ran")):
        if count := sum(entry.trace is None and entry.state == state for entry in entries):
            say(f"{counted(count, 'solution')} not shown: {reason}.")
