"""What `puzzles demo` does in a checkout: all references drawn, or a class that nobody attended, to be graded."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.table import Table

from drawing.timeline.schedule import picture_of_trace
from lib.checker.verdict import check
from lib.puzzles.records import PUZZLES
from lib.suite.cli.console import say, show_table
from lib.suite.course.subject import run
from tools.example_class import ASKED, STUDENTS, write_class


def draw_references(output: Path) -> None:
    """Run, check and draw the reference solution of every schedule. Exit status: 0 where all are correct, else 1."""
    output.mkdir(parents=True, exist_ok=True)
    table = Table("puzzle", "verdict", "time", "memory", "reached", "picture", caption=f"pictures in {output}")
    correct = True
    for puzzle, record in PUZZLES.items():
        if record.is_function:
            continue  # which there is nothing to draw of
        trace, path = run(puzzle).trace, output / f"{record.stem}.svg"
        picture_of_trace(trace).save(path)
        verdict = check(trace, puzzle)
        correct &= verdict.correct
        figures = (f"{verdict.time:g}", f"{verdict.memory:,.0f}", verdict.best or "no goal")
        table.add_row(puzzle, "Correct!" if verdict.correct else "not correct", *figures, path.name)
    show_table(table)
    raise typer.Exit(0 if correct else 1)


def hand_in(folder: Path, students: int) -> None:
    """Write what the class hands in, a folder for each of so many students, and say how to grade them."""
    files, people = write_class(folder, students), students or len(STUDENTS)
    say(f"Wrote {len(files)} files of {people} students who do not exist to {folder}: {', '.join(ASKED)}.")
    roster = f" --roster {folder / 'roster.csv'}" if students else ""
    say(f"Grade them: puzzles grade {folder}{roster} --out report")
