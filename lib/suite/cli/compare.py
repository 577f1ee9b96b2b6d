"""`puzzles compare`: runs beside each other, in words, as a picture, or as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.table import Column, Table
from rich.text import Text

from lib.analysis.difference import difference, lesson, said, unequal
from lib.extras import need_extra
from lib.files import ready, write_whole
from lib.puzzles.records import PUZZLES, Size
from lib.suite.cli.console import numbers, say, show_table
from lib.suite.cli.entries import ALL, FIGURES, Entry, Subject, best, chosen, entries_of
from lib.suite.cli.options import (
    Aspect,
    Batches,
    Frame,
    Layers,
    Limit,
    MeshOption,
    Ranks,
    argument,
    option,
    output,
    shape_of,
)
from lib.suite.submissions.source import SourceError
from lib.trace.trace import Trace

__all__ = ["compare_command", "comparing_page", "figure_cells", "need_for"]

if TYPE_CHECKING:
    from drawing.comparing.comparison import Compared

Memory = Literal["peak", "each", "none"]
"""The ranks whose memory is drawn."""
COLOURS = {"correct": "green", "not correct": "red", "failed": "red", "not solved": "yellow"}
TRIES: Final = 12
"""Sizes that are tried at most before one is proposed."""
NAME: Final = 26
"""Columns of a name that do not fold."""


def compare_command(
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
        Memory, option("Whose memory is drawn: of the rank with the highest peak, of each rank, or of none.")
    ] = "peak",
    fold: Annotated[
        bool, option("Whether ranks that do the same at the same times share a row.", "--fold/--unfold")
    ] = True,
    frame: Frame = "card",
    aspect: Aspect = None,
    ranks: Ranks = None,
    layers: Layers = None,
    batches: Batches = None,
    mesh: MeshOption = None,
    limit: Limit = None,
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
    if output_ is not None:
        need_for(output_)
    try:
        found = chosen(whats, puzzle)
    except SourceError as error:
        raise typer.BadParameter(str(error)) from None
    for note in found.notes:
        say(note)
    if not found.subjects:
        raise typer.BadParameter(f"there is nothing to compare in {', '.join(whats)}")
    size = {"ranks": ranks, "layers": layers, "batches": batches, "mesh": mesh}
    entries = entries_of(found.subjects, limit, **size)
    _show(entries)
    _tell(entries, " ".join(f"--{name} {value}" for name, value in size.items() if value is not None))
    if unequal(_runs(entries)) is not None:
        say(_one_size(found.subjects, entries, limit))
    if output_ is not None:
        if output_.suffix == ".html":
            write_whole(ready(output_), _page(entries, memory, fold))
        else:
            _draw(entries, memory, fold, shape, output_)
        say(f"Wrote {output_}")
    if any(entry.verdict is None for entry in entries):
        raise typer.Exit(1)


def _show(entries: Sequence[Entry]) -> None:
    """The figures in a table, the best of each in bold and with a star."""
    figures = numbers(*(figure.title for figure in FIGURES.values()))
    name = min(max(len(entry.name) for entry in entries), NAME)
    table = Table(Column("", overflow="fold", min_width=name), "", Column("goal reached", overflow="fold"), *figures)
    lowest = _best(entries)
    for entry in entries:
        cells = [Text("")] * len(FIGURES)
        if entry.figures is not None:
            cells = [
                _cell(name, value, lowest) if entry.correct else Text(FIGURES[name].words(value), "dim")
                for name, value in entry.figures.items()
            ]
        state = Text(entry.state, COLOURS[entry.state])
        table.add_row(Text(entry.name), state, entry.goals[-1] if entry.goals else "", *cells)
    if lowest:
        table.caption = "* the best of those that are correct"
    show_table(table)


def _cell(name: str, value: float, lowest: Mapping[str, float]) -> Text:
    words = FIGURES[name].words(value)
    return Text(f"{words} *", "bold") if lowest.get(name) == round(value, 9) else Text(words)


def _best(entries: Sequence[Entry]) -> dict[str, float]:
    """The lowest of each figure, where all are of one size."""
    if unequal(_runs(entries)) is not None:
        return {}
    return best([entry.figures if entry.correct else None for entry in entries])


def _runs(entries: Sequence[Entry]) -> list[tuple[str, Trace]]:
    return [(entry.name, entry.trace) for entry in entries if entry.trace is not None]


def _tell(entries: Sequence[Entry], sized: str) -> None:
    """Say what went wrong, and how the runs differ. `sized`: the size that was asked for, as it was said."""
    for entry in entries:
        if entry.message:
            with_size = f" does not run with {sized}" if sized and entry.state == "failed" else ""
            say(f"{entry.name}{with_size}: {entry.message}")
    runs = _runs(entries)
    if (warning := unequal(runs)) is not None:
        say(warning)
    if (words := lesson(runs)) is not None and all(entry.correct for entry in entries):
        say(words)
    tasks = [entry.task for entry in entries if entry.trace is not None]
    for (name, trace), task in zip(runs[1:], tasks[1:], strict=True):
        if task in (None, tasks[0]) or tasks[0] is None:  # of different puzzles they differ from the start
            say(said(difference(runs[0][1], trace), runs[0][0], name))


def _one_size(subjects: Sequence[Subject], entries: Sequence[Entry], limit: float | None) -> str:
    """Find the options that give all runs one size: one of their own, at which each was tried and is correct."""
    able = [(subject, entry.trace) for subject, entry in zip(subjects, entries, strict=True) if entry.trace]
    sizes = {name: sorted({getattr(trace, name) for _, trace in able}) for name in Size._fields}
    wanted = {name: numbers for name, numbers in sizes.items() if len(numbers) > 1}
    at = [Size.of(trace)._asdict() for _, trace in able]
    tries = [dict(zip(wanted, size, strict=True)) for size in product(*wanted.values())]
    tries.sort(key=lambda size: -sum(size.items() <= one.items() for one in at))  # that of most of them first
    for size in tries[:TRIES]:
        if all(entries_of([subject], limit, **size)[0].correct for subject, _ in able):
            said = " ".join(f"--{name} {number}" for name, number in size.items())
            return f"To compare them at one size, say it: {said}"
    return "None of their own sizes suits all of them. Try another with --ranks, --layers and --batches."


# -- as a picture and as a page ----------------------------------------------------------------------------------
# What draws is imported where something is drawn: figures alone need no picture.


def need_for(path: Path) -> None:
    """Raise ModuleNotFoundError where an extra is missing that the format of a file needs: before anything runs."""
    if path.suffix == ".html":
        need_extra("grade", "a page needs", "jinja2")
    elif path.suffix != ".svg":
        need_extra("png", f"a {path.suffix[1:].upper()} needs")


def _compared(entries: Sequence[Entry], says: bool = True) -> list[Compared]:
    from drawing.comparing.comparison import Compared

    return [
        Compared(one.short, one.trace, one.message if says else "", one.correct, one.title, one.task or "")
        for one in entries
    ]


def _title(entries: Sequence[Entry]) -> str:
    """The puzzle, where all are of one; else what they are called."""
    from drawing.comparing.comparison import together

    tasks = {entry.task for entry in entries}
    if len(entries) > 1 and len(tasks) == 1 and (task := tasks.pop()) is not None:
        return PUZZLES[task].title
    return together([entry.short for entry in entries])


def _draw(entries: Sequence[Entry], memory: Memory, fold: bool, shape: tuple[bool, float | None], path: Path) -> None:
    from drawing.canvas.picture import on_paper
    from drawing.comparing.comparison import Comparison
    from drawing.timeline.schedule import WIDTH

    runs, title = _compared(entries), _title(entries)
    on_paper(
        lambda width: Comparison(runs, width=width, memory=memory, fold=fold, title=title).picture(), WIDTH, *shape
    ).save(path)


def _page(entries: Sequence[Entry], memory: Memory, fold: bool) -> str:
    """A page with the figures of runs in a table, their timelines on one axis, and how they differ."""
    from drawing.comparing.comparison import Comparison

    compared = Comparison(_compared(entries, says=False), memory=memory, fold=fold)  # the page says what went wrong
    legend, pictures = compared.parts()
    lowest, warning = _best(entries), unequal(compared.drawn)
    runs = [
        {
            "entry": entry,
            "cells": figure_cells(entry, lowest),
            "picture": None if entry.trace is None else picture.svg(),
        }
        for entry, picture in zip(entries, pictures, strict=True)
    ]
    return comparing_page(
        "comparison.html",
        title=_title(entries),
        warning=warning,
        size=Size.of(compared.traces[0]).words() if compared.traces and warning is None else "",
        legend=legend.svg() if compared.traces else "",
        runs=runs,
        differences=[words for words in compared.differences() if words],
        parted=any(gap is not None for gap in compared.gaps),
        marked=bool(lowest),
    )


def comparing_page(template: str, images: str = "'none'", **what: Any) -> str:
    """Fill in a page of a comparison or a gallery, with the style and the script that both share."""
    from drawing.canvas.palette import GOLD, GOOD
    from lib.suite.cli.pages import page

    return page(template, "comparing", images, colours={"good": GOOD, "gold": GOLD}, figures=FIGURES, **what)


def figure_cells(entry: Entry, best: Mapping[str, float]) -> list[dict[str, Any]]:
    """The figures of an entry as a table has them; one that there is not sorts behind all others."""
    if entry.figures is None:
        return [{"name": name, "value": "", "words": "", "best": False} for name in FIGURES]
    return [
        {
            "name": name,
            "value": repr(round(value, 9)),
            "words": FIGURES[name].words(value),
            "best": entry.correct and best.get(name) == round(value, 9),
        }
        for name, value in entry.figures.items()
    ]
