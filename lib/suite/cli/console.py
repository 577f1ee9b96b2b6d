"""The terminal side of the commands: tables, hints, solutions, results of runs, and errors in a panel."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Column, Table
from rich.text import Text
from typer.core import TyperGroup

from lib.analysis.figures import traffic
from lib.checker.verdict import FunctionVerdict, Verdict
from lib.errors import graded
from lib.errors.exceptions import NotSolved, PuzzleError, TraceError
from lib.errors.wording import amount
from lib.puzzles.records import PUZZLES, Chapter, Puzzle, by_chapter
from lib.suite.course.exercises import Hints
from lib.suite.course.progress import ProgressError, Standing, is_off, next_puzzle
from lib.suite.course.solutions import Way, ways
from lib.suite.course.subject import Attempt, Stub
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import SourceError
from lib.suite.submissions.locations import notebook_of, shown

__all__ = ["WIDTH", "Door", "Terminal", "as_json", "chapter_row", "console", "fail", "numbers", "progress", "say"]
__all__ += ["show", "show_hints", "show_table", "show_way", "show_ways", "status_table"]

WIDTH = 100
"""Columns where the output is no terminal."""
LEAST = 12
"""Columns that a part of a table has that folds."""
COLOURS = {"passed": "green", "missed": "yellow", "unsolved": "yellow"}


class Door(TyperGroup):
    """Shows what went wrong for the user in a panel, without a traceback, and help in lines as wide as the terminal."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, whose paragraphs of help are a line each: the terminal is not as wide as the source."""
        found = super().get_command(ctx, cmd_name)
        if found is not None and found.help:
            found.help = "\n\n".join(" ".join(part.split()) for part in found.help.split("\n\n"))
        return found

    def invoke(self, ctx: Any) -> Any:
        """Run a command; exit status 1 for a stub, a run that failed, a file that will not do, or a missing extra."""
        try:
            return super().invoke(ctx)
        except Stub as stub:
            print(stub)
            raise typer.Exit(1) from None
        except (PuzzleError, TraceError, SourceError, BuildError, ProgressError, ImportError, OSError) as error:
            fail(str(error))


def console(*, stderr: bool = False) -> Console:
    """Return where to print. Not highlighted: a number is not more important than the word beside it."""
    found = Console(stderr=stderr, highlight=False)
    if not found.is_terminal:
        found.width = WIDTH
    return found


def say(text: str) -> None:
    """Print text as it is. Where the output is no terminal, a line stays a line, however long."""
    found = console()
    found.print(Text(text), soft_wrap=not found.is_terminal)


def fail(text: str, status: int = 1) -> NoReturn:
    """Say what went wrong, and end with an exit status."""
    console(stderr=True).print(Panel(Text(text), title="Error", title_align="left", border_style="red"))
    raise typer.Exit(status)


def numbers(*names: str) -> list[Column]:
    """Return columns of numbers for a table."""
    return [Column(name, justify="right") for name in names]


def show_table(table: Table) -> None:
    """Print a table. One that does not fit is rather wider than the terminal than without its figures and names: only
    columns that fold are made narrower."""
    found = console()
    for column in table.columns:
        column.no_wrap = column.overflow != "fold"
        lines = [line for cell in (column.header, *column.cells) for line in str(cell).splitlines()]
        least = min(max(map(len, lines), default=0), 1000 if column.no_wrap else LEAST)
        column.min_width = max(least, column.min_width or 0)
    found.width = max(found.width, found.measure(table, options=found.options.update(max_width=10**4)).minimum)
    found.print(table)


@contextmanager
def progress(what: str) -> Generator[Callable[[int, int], None]]:
    """Show a bar where there is a terminal, and give what moves it: how many are done, and of how many."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda so_far, everything: bar.update(task, completed=so_far, total=everything)


class Terminal:
    """The screen of `puzzles watch`."""

    def say(self, text: str) -> None:
        """Show text as it is."""
        say(text)

    def title(self, text: str) -> None:
        """Begin something new."""
        console().print(Rule(Text(text), align="left", style="dim"))

    def hints(self, hints: Hints) -> None:
        """Show the hints that are open."""
        show_hints(hints, "type h again")

    def reveal(self, puzzle: str) -> None:
        """Show the official answer and its alternatives."""
        show_ways(puzzle)


# -- the course -----------------------------------------------------------------------------------------------------


def status_table(standings: Mapping[str, Standing]) -> None:
    """Show what is solved and how well, and what comes next."""
    table = Table("", "puzzle", "", "best goal reached", *numbers("time", "memory", "hints"))
    for chapter, records in by_chapter():
        table.add_section()
        table.add_row("", *chapter_row(chapter, records, standings))
        for record in records:
            found = standings.get(record.id, Standing())
            state = Text("solved", "green") if found.passed else Text("tried" if found.runs else "", "yellow")
            time = "" if found.time is None else f"{found.time:g}"
            memory = "" if found.memory is None else amount(found.memory)
            hints = f"{found.hints} of {len(record.hints)}" if found.hints else ""
            table.add_row(str(record.number), record.id, state, found.goal or "", time, memory, hints)
    show_table(table)
    say(f"{_solved(PUZZLES.values(), standings)} solved. {_what_next(standings)}")
    if is_off():
        why = f"{graded.VARIABLE} is set" if graded.is_on() else "PUZZLES_PROGRESS is off"
        say(f"Progress is not recorded: {why}.")
    say("puzzles --help lists the commands.")


def chapter_row(
    chapter: Chapter, records: Sequence[Puzzle], standings: Mapping[str, Standing]
) -> tuple[Text, str, Text]:
    """Return the title of a chapter, nothing, and how much of it is solved."""
    return Text(chapter.title, "bold"), "", Text(f"{_solved(records, standings)} solved", "bold")


def _solved(records: Collection[Puzzle], standings: Mapping[str, Standing]) -> str:
    return f"{sum(one.id in standings and standings[one.id].passed for one in records)} of {len(records)}"


def _what_next(standings: Mapping[str, Standing]) -> str:
    """The puzzle to solve next, and its notebook."""
    record = next_puzzle(puzzle for puzzle, found in standings.items() if found.passed)
    if record is None:
        return "There is nothing left to solve."
    notebook = notebook_of(record.id)
    how = "" if notebook.is_file() else " (`puzzles lab` makes it, and opens the map)"
    return f"Next: {record.id} ({record.title}), {shown(notebook)}{how}"


def show_hints(hints: Hints, how: str | None = None) -> None:
    """Show the hints that are open, and `how` to open the next one: with a command, unless it is said otherwise."""
    console().print(Markdown(hints.body))
    kind, how = hints.kind_of_next, how or f"puzzles hint {hints.puzzle}"
    say("\nThese were all the hints." if kind is None else f"\nThe next hint is {kind}: {how}")


def show_ways(puzzle: str) -> None:
    """Show the official answer to a puzzle, its figures, and what else can be done, each with its figures."""
    official, *others = ways(puzzle)
    say(f"The official answer to {puzzle}, from {shown(official.path)}:\n")
    _show_code([official, *others])
    for way in others:
        say(f"\n{way.name}: {way.about}")
        console().print(Text(way.worth))
    if others:
        say(f"\nTo see the code of one of them: puzzles reveal {puzzle} {others[0].name}")


def show_way(puzzle: str, name: str) -> None:
    """Show the code of one way to do a puzzle, with its figures. SourceError where there is none of that name."""
    every = {way.name: way for way in ways(puzzle)}
    if name not in every:
        raise SourceError(f"{puzzle} has no solution called {name!r}; there are {', '.join(every)}")
    way = every[name]
    say(f"{way.name}, from {shown(way.path)}\n{way.about}\n{way.worth}\n".replace("\n\n", "\n"))
    _show_code([way])


def _show_code(every: Sequence[Way]) -> None:
    """The code of the first, with its syntax in colours, and the figures of all."""
    found, code = console(), every[0].code
    if not found.is_terminal:
        found.width = max(WIDTH, *map(len, code.splitlines()))
    found.print(Syntax(code, "python", background_color="default", word_wrap=True))
    say("")
    table = Table("", *numbers("time", "memory"), "best goal reached")
    for way in every:
        if isinstance(way.verdict, FunctionVerdict):
            say(f"{way.name}: {way.verdict.text()}")
        else:
            table.add_row(way.name, f"{way.verdict.time:g}", amount(way.verdict.memory), way.verdict.best or "none")
    if table.row_count:
        show_table(table)


# -- what came of runs ----------------------------------------------------------------------------------------------


def show(files: Sequence[str], attempts: Sequence[Attempt]) -> None:
    """Show what came of each file, and a table of all."""
    table = Table(Column("file", overflow="fold"), "puzzle", "", "best goal reached", *numbers("time", "memory"))
    for file, found in zip(files, attempts, strict=True):
        Terminal().title(f"{found.puzzle} ({file})" if found.puzzle else file)
        if found.printed:
            say(found.printed.rstrip("\n"))
        say(str(NotSolved(found.puzzle or file)) if found.state == "unsolved" else found.text)
        verdict = _measured(found)
        figures = (
            ("",) * 3 if verdict is None else (verdict.best or "none", f"{verdict.time:g}", amount(verdict.memory))
        )
        table.add_row(file, found.puzzle or "", Text(found.state, COLOURS.get(found.state, "red")), *figures)
    show_table(table)
    say(f"{sum(found.state == 'passed' for found in attempts)} of {len(attempts)} passed.")


def as_json(files: Sequence[str], attempts: Sequence[Attempt]) -> str:
    """Return what came of each file as JSON:

        {"format": "llm-training-puzzles run", "version": 1, "passed": false, "runs": [
            {"file": "03_ddp.py", "puzzle": "ddp", "state": "missed", "passed": false, "correct": true,
             "goals": [{"name": "passes", "time": 6.0, "memory": 2000000, "reached": false}, ...], "best": null,
             "time": 5.6, "memory": 2097152, "rank": 0, "sent": 786432, "faults": [], "notes": ["..."],
             "error": null, "printed": ""}]}

    `passed` is what the exit status says. `state` is "passed", "missed" (correct, and no goal reached), "unsolved" or
    "failed"; or, where there is no function to run, "renamed", "unreadable", "empty" or "unrelated". Where there is no
    verdict, `error` says why, and `correct` is null. `faults` are what is wrong with a run, and `notes` what else is to
    be said of it. Figures are those of a correct run: `memory` is the highest peak in elements, on `rank`, and `sent`
    the elements sent by the rank that sends most. The answers of a plain function have none.
    """
    passed = all(found.state == "passed" for found in attempts)
    runs = [_as_data(file, found) for file, found in zip(files, attempts, strict=True)]
    return json.dumps({"format": "llm-training-puzzles run", "version": 1, "passed": passed, "runs": runs}, indent=1)


def _as_data(file: str, found: Attempt) -> dict[str, Any]:
    outcome, figures = found.outcome, _measured(found)
    verdict, run = (None, None) if outcome is None else (outcome.verdict, outcome.run)
    schedule = verdict if isinstance(verdict, Verdict) else None
    goals = () if schedule is None else schedule.goals
    right = verdict is not None and verdict.correct
    unsolved = str(NotSolved(found.puzzle or "this")) if found.state == "unsolved" else found.text
    sent = None if figures is None or run is None else _elements(max(float(sent) for sent, _ in traffic(run.trace)))
    return {
        "file": file,
        "puzzle": found.puzzle,
        "state": found.state,
        "passed": found.state == "passed",
        "correct": None if verdict is None else right,
        "goals": [goal._replace(reached=goal.reached and right)._asdict() for goal in goals],
        "best": None if figures is None else figures.best,
        "time": None if figures is None else figures.time,
        "memory": None if figures is None else _elements(figures.memory),
        "rank": None if figures is None else figures.rank,
        "sent": sent,
        "faults": [] if verdict is None else [*verdict.faults],
        "notes": [] if schedule is None else [*schedule.notes],
        "error": unsolved if verdict is None else None,
        "printed": found.printed,
    }


def _elements(number: float) -> float:
    """A number of elements, which is nearly always whole."""
    return int(number) if number == int(number) else number


def _measured(found: Attempt) -> Verdict | None:
    """The verdict on a correct run: that of any other has no figures to speak of."""
    verdict = None if found.outcome is None else found.outcome.verdict
    return verdict if isinstance(verdict, Verdict) and verdict.correct else None
