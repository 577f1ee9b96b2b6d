"""`puzzles compare`, which puts runs side by side, and `puzzles gallery`, all solutions of one puzzle.

Drawing is imported only when something is drawn: figures alone need no picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Final

import typer
from rich.table import Column, Table
from rich.text import Text

from lib.analysis.difference import alike, difference, lesson, said, unequal
from lib.errors.wording import counted
from lib.extras import need_extra
from lib.files import ready, write_whole
from lib.puzzles.puzzle import Size
from lib.puzzles.records import PUZZLES
from lib.suite.cli import console as options
from lib.suite.cli.console import argument, numbers, option, output, page, say, show_table
from lib.suite.cli.entries import ALL, FIGURES, Entry, best, chosen, entries_of
from lib.suite.course.solutions import OFFICIAL, without_lines

COLOURS = {"correct": "green", "not correct": "red", "failed": "red", "not solved": "yellow"}
NAME: Final = 26  # columns of a name that do not fold
LISTED: Final = 20  # rows of a gallery's table in a terminal; the page has all
WHATS = (
    "What to compare: notebooks, .py files, saved Traces (.json), folders or zips of what a class handed in, and "
    f"puzzles, such as gpipe (our solution), gpipe:one_f_one_b (another) or gpipe:{ALL}. NAME= calls it so."
)
BESIDE = "Solutions beside ours: a folder or zip of a class, notebooks, .py files, or saved Traces (.json)."


def compare(
    whats: Annotated[list[str], argument("[NAME=]WHAT...", WHATS)],
    output_: Annotated[Path | None, output("a comparison", (".svg", ".png", ".pdf", ".html"))] = None,
    puzzle: Annotated[str | None, option("The puzzle, where a file has several or does not tell.", "--puzzle")] = None,
    fold: Annotated[bool, option("Whether ranks that do the same share a row.", "--fold/--unfold")] = True,
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
    is_picture = output_ is not None and output_.suffix != ".html"
    if (frame != "card" or aspect is not None) and not is_picture:
        raise typer.BadParameter("--frame and --aspect are for a picture: say -o NAME.svg or -o NAME.png")
    if output_ is not None and not is_picture:
        need_extra("grade", "a page needs", "jinja2")
    if not (subjects := chosen(whats, puzzle)):
        raise typer.BadParameter(f"there is nothing to compare in {', '.join(whats)}")
    size = {"ranks": ranks, "layers": layers, "batches": batches, "mesh": mesh}
    entries = entries_of(subjects, limit, **size)
    ran = [(entry.name, entry.trace, entry.puzzle) for entry in entries if entry.trace is not None]
    warning = unequal(runs := [(name, trace) for name, trace, _ in ran])
    lowest = {} if warning is not None else best(entries)
    _show([(entry.name, entry) for entry in entries], lowest)
    sized = " ".join(f"--{name} {value}" for name, value in size.items() if value is not None)
    for entry in entries:
        if entry.message:
            with_size = f" does not run with {sized}" if sized and entry.state == "failed" else ""
            say(f"{entry.name}{with_size}: {entry.message}")
    if warning is not None:
        say(f"{warning}\nTo compare them at one size, say it: --ranks, --layers and --batches.")
    if (words := lesson(runs)) is not None and all(entry.correct for entry in entries):
        say(words)
    for name, trace, task in ran[1:]:
        if None in (task, ran[0][2]) or task == ran[0][2]:  # of different puzzles they differ from the start
            say(said(difference(runs[0][1], trace), runs[0][0], name))
    if output_ is not None:
        if is_picture:
            _draw_comparison(entries, fold, frame == "card", aspect, output_)
        else:
            _write_comparison(entries, lowest, fold, output_)
        say(f"Wrote {output_}")
    if any(entry.verdict is None for entry in entries):
        raise typer.Exit(1)


def _compared(entries: Sequence[Entry], says: bool) -> tuple[list[Any], str]:
    """The runs to draw, and a title: their puzzle if they share one; else their names."""
    from drawing.comparing.comparison import Compared, together

    runs = [
        Compared(one.short, one.trace, one.message if says else "", one.correct, one.title, one.puzzle or "")
        for one in entries
    ]
    task = entries[0].puzzle
    of_one = len(entries) > 1 and task is not None and all(entry.puzzle == task for entry in entries)
    return runs, PUZZLES[task].title if task is not None and of_one else together([entry.short for entry in entries])


def _draw_comparison(entries: Sequence[Entry], fold: bool, frame: bool, aspect: float | None, path: Path) -> None:
    from drawing.canvas.picture import on_paper
    from drawing.comparing.comparison import Comparison
    from drawing.timeline.schedule import WIDTH

    runs, title = _compared(entries, says=True)
    paint = partial(Comparison, runs, fold=fold, title=title)
    on_paper(lambda width: paint(width=width).picture(), WIDTH, frame, aspect).save(path)


def _write_comparison(entries: Sequence[Entry], lowest: Mapping[str, float], fold: bool, path: Path) -> None:
    """Write a page with the figures of runs in a table, their timelines on one axis, and how they differ."""
    from drawing.comparing.comparison import Comparison

    runs, title = _compared(entries, says=False)  # the page says what went wrong
    compared = Comparison(runs, fold=fold)
    legend, pictures = compared.parts()
    warning = unequal(compared.drawn)
    rows = [
        {"entry": entry, "cells": entry.cells(lowest), "picture": entry.trace and picture.svg()}
        for entry, picture in zip(entries, pictures, strict=True)
    ]
    _write(
        path,
        "comparison.html",
        title=title,
        warning=warning,
        size=Size.of(compared.traces[0]).words() if compared.traces and warning is None else "",
        legend=legend.svg() if compared.traces else "",
        runs=rows,
        differences=[words for words in compared.differences() if words],
        parted=any(gap is not None for gap in compared.gaps),
        marked=bool(lowest),
    )


def _write(path: Path, name: str, images: str = "'none'", **what: Any) -> None:
    from drawing.canvas.palette import GOLD, GOOD

    html = page(name, "comparing", images, {"good": GOOD, "gold": GOLD}, figures=FIGURES, **what)
    write_whole(ready(path), html)


def _show(rows: Sequence[tuple[str, Entry]], lowest: dict[str, float], more: str = "") -> None:
    """The figures of runs in a table, each run under its title, the best figures in bold and with a star. `more` is
    said below it."""
    figures = numbers(*(figure.title for figure in FIGURES.values()))
    name = min(max(len(title) for title, _ in rows), NAME)
    table = Table(Column("", overflow="fold", min_width=name), "", Column("goal reached", overflow="fold"), *figures)
    for title, entry in rows:
        looks = "" if entry.correct else "dim"
        cells = [Text(f"{one.words} *", "bold") if one.best else Text(one.words, looks) for one in entry.cells(lowest)]
        table.add_row(Text(title), Text(entry.state, COLOURS[entry.state]), "".join(entry.goals[-1:]), *cells)
    table.caption = "\n".join(filter(None, ("* the best of those that are correct" if lowest else "", more))) or None
    show_table(table)


# -- a gallery ------------------------------------------------------------------------------------------------------

LONG: Final = 60  # letters of a goal or a mistake in a title
NAMED: Final = 3  # most students named together; others are counted


@dataclass(frozen=True, slots=True)
class Group:
    """Solutions with one schedule: those that are `ours`, by name, and the `students` who handed it in. `number` counts
    groups from 1 in their original order, ours first. The `message` is the fault's first line: the rest may have lines
    of a student's code."""

    number: int
    first: Entry
    message: str
    ours: tuple[Entry, ...]
    students: tuple[str, ...]

    def title(self, names: bool) -> str:
        """Return its title: our name for it, if any, with its students or their number; without a name, the goal that
        it reaches, or what is wrong with it."""
        count = len(self.students)
        who = counted(count, "student") if count else ""
        if names and count:
            who = ", ".join(self.students[:NAMED]) + (f" and {count - NAMED} more" if count > NAMED else "")
        if self.ours:
            return f"{' and '.join(one.short for one in self.ours)} (ours)" + (f" · {who}" if who else "")
        reaches = self.message or self.first.state
        if self.first.correct:
            reaches = self.first.goals[-1] if self.first.goals else "correct, within no goal"
        return who if names else f"{who}: {shorten(reaches, LONG, placeholder='…')}"


def grouped(entries: Sequence[Entry]) -> list[Group]:
    """Group equal solutions that have a run; if they fail, or are incorrect, only those with the same words. The first
    of each group is drawn: one of ours, if any. The fastest group comes first, and incorrect ones come last."""
    groups: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in entries:
        # A whole run's first line only says that it is incorrect: its fault is in the second line.
        fault = [] if entry.correct else entry.message.splitlines()[0 if entry.verdict is None else 1 :]
        if entry.trace is not None:
            groups.setdefault((alike(entry.trace), entry.state, entry.goals, *fault[:1]), []).append(entry)
    every: list[Group] = []
    for number, (key, same) in enumerate(groups.items(), 1):
        ours, students = ([one for one in same if one.ours is own] for own in (True, False))
        every.append(Group(number, same[0], "".join(key[3:]), tuple(ours), tuple(one.name for one in students)))
    return sorted(every, key=lambda group: (not group.first.correct, (group.first.figures or {}).get("time", 0.0)))


def gallery(
    puzzle: Annotated[str, typer.Argument(help="The puzzle's id, such as gpipe.", show_default=False)],
    whats: Annotated[list[str] | None, argument("[[NAME=]WHAT]...", BESIDE)] = None,
    output_: Annotated[Path | None, output("a gallery", (".html",), "gallery_PUZZLE.html")] = None,
    ours: Annotated[bool, option("Show our own solutions, too.")] = True,
    names: Annotated[bool, option("Say who handed it in. Without, it says how many did.")] = False,
    limit: options.Limit = None,
) -> None:
    """Show all solutions of one puzzle as small timelines with their figures: ours, and those of a class.

    Equal schedules are shown once, with how many have them. The page can be sorted by any figure and filtered by goal,
    and a click makes a solution large, from a picture in a folder beside it. What is not correct comes last.

    For example: `puzzles gallery gpipe`, or `puzzles gallery gpipe submissions/ -o class.html`.

    What students wrote runs where it can do no harm, and no student is named unless you say --names.

    It shows solutions of a puzzle. The schedules of pipelines that have a name, such as 1F1B, are in
    `puzzles schedule gallery`.
    """
    need_extra("grade", "a page needs", "jinja2")
    path = output_ or Path(f"gallery_{puzzle}.html")
    subjects = chosen([f"{puzzle}:{ALL}"] if ours else [], puzzle) + chosen(whats or [], puzzle)
    if not subjects:
        raise typer.BadParameter(f"there is nothing to show: no solution of {puzzle} was handed in")
    # Without lines of code: a gallery is shown to a class, and a line is private to a student, or is the answer.
    entries = [
        entry if entry.trace is None else replace(entry, trace=without_lines(entry.trace))
        for entry in entries_of(subjects, limit)
    ]
    groups = grouped(entries)
    more = f"the first {LISTED} of {counted(len(groups), 'schedule')}" if len(groups) > LISTED else ""
    lowest = best([group.first for group in groups])
    if groups:
        _show([(group.title(names), group.first) for group in groups[:LISTED]], lowest, more)
    for state, reason in (("not solved", "still the stub"), ("failed", "they failed before anything ran")):
        if count := sum(entry.trace is None and entry.state == state for entry in entries):
            say(f"{counted(count, 'solution')} not shown: {reason}.")
    _write_gallery(puzzle, groups, lowest, names, path)
    say(f"Wrote {path}")


def _write_gallery(puzzle: str, groups: Sequence[Group], lowest: Mapping[str, float], names: bool, path: Path) -> None:
    """Write a page with a tile for each schedule, and the large pictures that it links to into a folder beside it."""
    from drawing.canvas.scene import Scene, Text, sheet
    from drawing.comparing.comparison import Compared, Comparison
    from drawing.comparing.overview import HIGH, WIDE, thumbnails
    from drawing.timeline.schedule import picture_of_trace

    record, drawn = PUZZLES[puzzle], [(group, group.first.trace) for group in groups if group.first.trace is not None]
    small = thumbnails([trace for _, trace in drawn])
    every = [mark for marks in small for mark in marks]
    strokes = {mark.stroke for mark in every if not isinstance(mark, Text)}
    night, style = sheet({mark.fill for mark in every}, strokes, titles=False)
    official = next((one for group in groups for one in group.ours if one.name == f"{puzzle}:{OFFICIAL}"), None)
    tiles: list[dict[str, Any]] = []
    for (group, trace), marks in zip(drawn, small, strict=True):
        title, differs, large = group.title(names), list[str](), f"{path.stem}_pictures/{group.number}.svg"
        if official is not None and official not in group.ours:
            other = Compared(group.first.short if group.ours else "this one", trace, counts=group.first.correct)
            differs = Comparison([Compared(official.short, official.trace), other]).differences()
        picture = Scene(WIDE, HIGH, marks, paper=False).svg(label=title, night=False)
        tiles.append({"group": group, "title": title, "cells": group.first.cells(lowest), "picture": picture})
        tiles[-1] |= {"differs": differs, "large": large}
        picture_of_trace(trace).save(path.parent / large)
    solutions = sum(len(group.ours) + len(group.students) for group in groups)
    _write(
        path,
        "gallery.html",
        "'self' file:",
        title=f"Solutions of {record.heading}",
        about=f"{record.size.words()} · {counted(solutions, 'solution')}, {counted(len(groups), 'schedule')}",
        goals=[goal.name for goal in record.goals],
        tiles=tiles,
        names=names,
        night=night,
        night_style=style,
    )
