"""How the command shows things in a terminal: tables, hints, solutions, and errors in a panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Column, Table
from rich.text import Text
from typer.core import TyperGroup

from lib.checker.verdict import FunctionVerdict, Verdict
from lib.errors import graded
from lib.errors.exceptions import PuzzleError, TraceError
from lib.errors.wording import amount
from lib.puzzles.records import PUZZLES, Chapter, Puzzle, by_chapter
from lib.suite.course.hints import Hints
from lib.suite.course.progress import is_off, next_puzzle
from lib.suite.course.progress_file import ProgressError, Standing
from lib.suite.course.solutions import Way, ways
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import SourceError
from lib.suite.submissions.locations import shown
from lib.suite.submissions.workplace import notebook_of

__all__ = [
    "WIDTH",
    "Door",
    "Terminal",
    "chapter_row",
    "console",
    "fail",
    "rule",
    "say",
    "show_hints",
    "show_table",
    "show_way",
    "show_ways",
    "status_table",
]

WIDTH = 100
"""Columns where the output is no terminal."""
LEAST = 12
"""Columns that a part of a table has that folds."""


class Door(TyperGroup):
    """Shows what went wrong for the user in a panel, without a traceback, and help in lines as wide as the terminal."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, whose paragraphs of help are a line each: the terminal is not as wide as the source."""
        found = super().get_command(ctx, cmd_name)
        if found is not None and found.help:
            found.help = "\n\n".join(" ".join(part.split()) for part in found.help.split("\n\n"))
        return found

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; exit status 1 for a run that failed, a file that will not do, or a missing extra."""
        try:
            return super().invoke(ctx)
        except (PuzzleError, TraceError, SourceError, BuildError, ProgressError, ImportError, OSError) as error:
            fail(str(error))


def console(*, stderr: bool = False) -> Console:
    """Where to print. Not highlighted: a number is not more important than the word beside it."""
    found = Console(stderr=stderr, highlight=False)
    if not found.is_terminal:
        found.width = WIDTH
    return found


def say(text: str) -> None:
    """Prints text as it is. Where the output is no terminal, a line stays a line, however long."""
    found = console()
    found.print(Text(text), soft_wrap=not found.is_terminal)


def show_table(table: Table) -> None:
    """Prints a table. One that does not fit is rather wider than the terminal than without its figures and names: only
    columns that fold are made narrower."""
    found = console()
    for column in table.columns:
        column.no_wrap = column.overflow != "fold"
        lines = [line for cell in (column.header, *column.cells) for line in str(cell).splitlines()]
        least = min(max(map(len, lines), default=0), 1000 if column.no_wrap else LEAST)
        column.min_width = max(least, column.min_width or 0)
    found.width = max(found.width, found.measure(table, options=found.options.update(max_width=10**4)).minimum)
    found.print(table)


def rule(title: str) -> None:
    """Begins something new."""
    console().print(Rule(Text(title), align="left", style="dim"))


def fail(text: str, status: int = 1) -> NoReturn:
    """Says what went wrong, and ends with an exit status."""
    console(stderr=True).print(Panel(Text(text), title="Error", title_align="left", border_style="red"))
    raise typer.Exit(status)


def status_table(standings: Mapping[str, Standing]) -> None:
    """What is solved and how well, and what comes next."""
    counts = [Column(name, justify="right") for name in ("time", "memory", "hints")]
    table = Table("", "puzzle", "", "best goal reached", *counts)
    for chapter, records in by_chapter():
        table.add_section()
        title, solved = chapter_row(chapter, records, standings)
        table.add_row("", title, "", solved)
        for record in records:
            found = standings.get(record.id, Standing())
            state = Text("solved", "green") if found.passed else Text("tried" if found.runs else "", "yellow")
            time = "" if found.time is None else f"{found.time:g}"
            memory = "" if found.memory is None else amount(found.memory)
            hints = f"{found.hints} of {len(record.hints)}" if found.hints else ""
            table.add_row(str(record.number), record.id, state, found.goal or "", time, memory, hints)
    show_table(table)
    solved = sum(record in standings and standings[record].passed for record in PUZZLES)
    say(f"{solved} of {len(PUZZLES)} solved. {what_next(standings)}")
    if is_off():
        say(
            f"Progress is not recorded: {f'{graded.VARIABLE} is set' if graded.is_on() else 'PUZZLES_PROGRESS is off'}."
        )
    say("puzzles --help lists the commands.")


def chapter_row(chapter: Chapter, records: Sequence[Puzzle], standings: Mapping[str, Standing]) -> tuple[Text, Text]:
    """The title of a chapter, and how much of it is solved."""
    solved = sum(record.id in standings and standings[record.id].passed for record in records)
    return Text(chapter.title, "bold"), Text(f"{solved} of {len(records)} solved", "bold")


def what_next(standings: Mapping[str, Standing]) -> str:
    """The puzzle to solve next, and its notebook."""
    record = next_puzzle(puzzle for puzzle, found in standings.items() if found.passed)
    if record is None:
        return "There is nothing left to solve."
    notebook = notebook_of(record.id)
    how = "" if notebook.is_file() else " (`puzzles lab` makes it, and opens the map)"
    return f"Next: {record.id} ({record.title}), {shown(notebook)}{how}"


def show_hints(hints: Hints, how: str | None = None) -> None:
    """The hints that are open, and `how` to open the next one: with a command, unless it is said otherwise."""
    console().print(Markdown(hints.body))
    kind, how = hints.kind_of_next, how or f"puzzles hint {hints.puzzle}"
    say("\nThese were all the hints." if kind is None else f"\nThe next hint is {kind}: {how}")


def show_ways(puzzle: str) -> None:
    """The official answer to a puzzle, its figures, and what else can be done, each with its figures."""
    official, *others = ways(puzzle)
    say(f"The official answer to {puzzle}, from {shown(official.path)}:\n")
    show_code(official.code)
    say("")
    _figures([official, *others])
    for way in others:
        say(f"\n{way.name}: {way.about}")
        console().print(Text(way.worth))
    if others:
        say(f"\nTo see the code of one of them: puzzles reveal {puzzle} {others[0].name}")


def show_way(puzzle: str, name: str) -> None:
    """The code of one way to do a puzzle, with its figures. SourceError where there is none of that name."""
    every = ways(puzzle)
    way = next((way for way in every if way.name == name), None)
    if way is None:
        names = ", ".join(way.name for way in every)
        raise SourceError(f"{puzzle} has no solution called {name!r}; there are {names}")
    say(f"{way.name}, from {shown(way.path)}\n{way.about}\n{way.worth}\n".replace("\n\n", "\n"))
    show_code(way.code)
    say("")
    _figures([way])


def show_code(code: str) -> None:
    """Python with its syntax in colours."""
    found = console()
    if not found.is_terminal:
        found.width = max(WIDTH, *map(len, code.splitlines()))
    found.print(Syntax(code, "python", background_color="default", word_wrap=True))


def _figures(found: Sequence[Way]) -> None:
    table = Table("", *(Column(name, justify="right") for name in ("time", "memory")), "best goal reached")
    for way in found:
        if isinstance(way.verdict, FunctionVerdict):
            say(f"{way.name}: {way.verdict.text()}")
        else:
            table.add_row(way.name, *_measured(way.verdict), way.verdict.best or "none")
    if table.row_count:
        show_table(table)


def _measured(verdict: Verdict) -> tuple[str, str]:
    return f"{verdict.time:g}", amount(verdict.memory)


class Terminal:
    """The screen of `puzzles watch`."""

    def say(self, text: str) -> None:
        """Shows text as it is."""
        say(text)

    def title(self, text: str) -> None:
        """Begins something new."""
        rule(text)

    def hints(self, hints: Hints) -> None:
        """Shows the hints that are open."""
        show_hints(hints, "type h again")

    def reveal(self, puzzle: str) -> None:
        """Shows the official answer and its alternatives."""
        show_ways(puzzle)
