"""`puzzles compare`, runs beside each other, in words.

What draws is in `pages`, and is imported where something is drawn: figures alone need no picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Column, Table
from rich.text import Text

from lib.analysis.difference import difference, lesson, said, unequal
from lib.extras import need_extra
from lib.suite.cli import console as options
from lib.suite.cli.console import argument, numbers, option, output, say, show_table
from lib.suite.cli.entries import ALL, FIGURES, Entry, best, chosen, entries_of
from lib.suite.submissions.source import SourceError

COLOURS = {"correct": "green", "not correct": "red", "failed": "red", "not solved": "yellow"}
NAME: Final = 26
"""Columns of a name that do not fold."""
WHATS = (
    "What to compare: notebooks, .py files, saved Traces (.json), and puzzles, such as gpipe (our solution), "
    f"gpipe:one_f_one_b (another) or gpipe:{ALL}. NAME= calls it so."
)


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

    For example: `puzzles compare gpipe:all`, or `puzzles compare mine.ipynb gpipe -o both.svg`.

    Sizes that you say apply to all of them, so that runs of different puzzles can be compared.

    Exit status: 0 where every one ran to its end, 1 where one did not, 2 for a command that makes no sense.
    """
    is_picture = output_ is not None and output_.suffix != ".html"
    if (frame != "card" or aspect is not None) and not is_picture:
        raise typer.BadParameter("--frame and --aspect are for a picture: say -o NAME.svg or -o NAME.png")
    if output_ is not None and not is_picture:
        need_extra("grade", "a page needs", "jinja2")
    try:
        subjects = chosen(whats, puzzle)
    except (SourceError, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    size = {"ranks": ranks, "layers": layers, "batches": batches, "mesh": mesh}
    entries = entries_of(subjects, limit, **size)
    ran = [(entry.name, entry.trace, entry.puzzle) for entry in entries if entry.trace is not None]
    runs = [(name, trace) for name, trace, _ in ran]
    warning = unequal(runs)
    lowest = {} if warning is not None else best(entries)
    _show(entries, lowest)
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
        from lib.suite.cli.pages import draw_comparison, write_comparison

        if is_picture:
            draw_comparison(entries, fold, frame == "card", aspect, output_)
        else:
            write_comparison(entries, lowest, fold, output_)
        say(f"Wrote {output_}")
    if any(entry.verdict is None for entry in entries):
        raise typer.Exit(1)


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
