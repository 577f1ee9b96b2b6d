"""write_report: the pages of a graded class, in a folder.

`index.html` needs no other file to be read; `students/` has a page for each student, which shows pictures of
`pictures/`; `feedback/` has for each student a page and a text to send, which know nothing of anybody else. All of it
follows from the gradebook and the schedules: the same bytes every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.errors.wording import counted, visible
from lib.files import ready, write_whole
from lib.suite.cli.grading.report.leaderboard import leaderboard
from lib.suite.cli.grading.report.pages import render
from lib.suite.cli.grading.report.pictures import Order, Pictures, Traces, draw_all
from lib.suite.cli.grading.report.puzzles import ClassPuzzle, puzzles_of
from lib.suite.cli.grading.report.students import (
    beside,
    feedback_parts,
    feedback_text,
    own,
    parts,
    scores_of,
    unread_files,
    whole,
)
from lib.suite.cli.grading.report.wording import goals_reached
from lib.suite.cli.templates import markup
from lib.suite.grade.gradebook import Gradebook, Refused, Score, Student
from lib.suite.grade.patterns import INNOCENT, mistakes, similar
from lib.suite.grade.results import file_names, is_ours
from lib.suite.submissions.states import STATES, State

__all__ = ["LEADERBOARD", "Traces", "write_report"]

LEADERBOARD = "leaderboard.html"
"""The page that the class may see."""

SHORT = 60
"""Characters of a student's name in a table."""
PAIRS = 200
"""Pairs that the page of the class lists."""
Done = Callable[[int, int], None]


@dataclass(frozen=True)
class Cell:
    """One student and one puzzle in the table of the class."""

    puzzle: str
    state: State
    order: int
    more: str
    link: bool


@dataclass(frozen=True)
class Line:
    """A student in the table of the class, and wherever else a page names them."""

    file: str
    name: str
    short: str
    passed: int
    notes: tuple[str, ...]
    unread: tuple[Refused, ...]
    cells: tuple[Cell, ...]
    points: str = ""
    total: float = 0.0
    comment: str = ""


def write_report(
    book: Gradebook,
    traces: Traces,
    out: Path,
    *,
    jobs: int = 1,
    tell_sizes: bool = False,
    done: Done | None = None,
) -> Path:
    """Writes the pages into the folder `out`, and gives the first of them. Pictures that are there are not drawn again;
    pages of students who are not in the book any more go.

    `tell_sizes`: whether students are told at which hidden sizes they failed, and all of the message there. `jobs` are
    processes that draw. `done(so_far, all)` counts pictures and students. ModuleNotFoundError without jinja2; OSError
    where the folder cannot be written.
    """
    puzzles = puzzles_of(book)
    lines = _lines(book, puzzles)
    pictures = Pictures(out / "pictures", traces)
    orders = list(dict.fromkeys(_orders(book, puzzles)))

    def tell(so_far: int) -> None:
        if done is not None:
            done(so_far, len(orders) + len(lines))

    draw_all(pictures, orders, jobs, lambda left: tell(len(orders) - left))
    # The page of the class leads to the others: it comes last.
    for row, student in enumerate(book.students):
        _write_student(out, lines, row, student, puzzles, pictures)
        _write_feedback(out, lines[row], student, puzzles, pictures, tell_sizes, book.title)
        tell(len(orders) + row + 1)
    _remove_others(out, lines, pictures, orders)
    write_whole(ready(out / LEADERBOARD), leaderboard(book, puzzles, traces))
    index = out / "index.html"
    write_whole(ready(index), _index(book, puzzles, lines))
    return index


def _lines(book: Gradebook, puzzles: Sequence[ClassPuzzle]) -> list[Line]:
    files = file_names([student.name for student in book.students])
    return [
        Line(
            file,
            student.name or "(no name)",
            _short(student.name) or "(no name)",
            student.passed,
            student.notes,
            book.refused_of(student),
            tuple(_cell(puzzle, score) for puzzle, score in scores_of(student, puzzles)),
            whole(student) if student.of else "",
            student.points,
            student.mark().comment,
        )
        for file, student in zip(files, book.students, strict=True)
    ]


def _short(name: str) -> str:
    name = visible(name, lines=False).strip()
    return name if len(name) <= SHORT else name[: SHORT - 1] + "…"


def _cell(puzzle: ClassPuzzle, score: Score) -> Cell:
    state, goals = STATES[score.state], goals_reached(puzzle.asked, score)
    order = 10_000 * list(STATES).index(state.word) - 100 * goals - score.hidden_passed
    found: list[str] = []
    if score.correct and puzzle.asked.goals:
        found.append(f"{goals}/{len(puzzle.asked.goals)} goals")
    if score.correct and score.hidden:
        found.append(f"{score.hidden_passed}/{len(score.hidden)} sizes")
    return Cell(puzzle.asked.puzzle, state, order, " · ".join(found), score.state != "absent")


def _orders(book: Gradebook, puzzles: Sequence[ClassPuzzle]) -> Iterable[Order]:
    """All pictures that the pages show."""
    for student in book.students:
        for puzzle, score in scores_of(student, puzzles):
            yield from filter(None, (beside(puzzle, score), own(score)))


def _write_student(
    out: Path, lines: Sequence[Line], row: int, student: Student, puzzles: Sequence[ClassPuzzle], pictures: Pictures
) -> None:
    page = render(
        "student.html",
        student=lines[row],
        before=lines[row - 1] if row else None,
        after=lines[row + 1] if row + 1 < len(lines) else None,
        parts=list(parts(student, puzzles, pictures)),
    )
    write_whole(ready(out / "students" / f"{lines[row].file}.html"), page)


def _write_feedback(
    out: Path,
    line: Line,
    student: Student,
    puzzles: Sequence[ClassPuzzle],
    pictures: Pictures,
    tell_sizes: bool,
    title: str,
) -> None:
    unread = unread_files(line.unread)
    found = list(feedback_parts(student, puzzles, pictures, tell_sizes, unread))
    page = render(
        "feedback.html", student=line, parts=found, unread=unread, title=title, points=line.points, comment=line.comment
    )
    write_whole(ready(out / "feedback" / f"{line.file}.html"), page)
    text = "\n".join(visible(one) for one in feedback_text(student, found, unread))
    write_whole(out / "feedback" / f"{line.file}.txt", f"{text}\n")


def _remove_others(out: Path, lines: Sequence[Line], pictures: Pictures, orders: Sequence[Order]) -> None:
    """Takes away what an earlier report left of students and schedules that are not there any more. Files that no
    report has written stay."""
    files = {line.file for line in lines}
    for folder, endings in (("students", (".html",)), ("feedback", (".html", ".txt"))):
        for path in (out / folder).iterdir() if (out / folder).is_dir() else ():
            if path.suffix in endings and is_ours(path.stem) and path.stem not in files:
                path.unlink()
    pictures.keep(orders)


def _mistakes(book: Gradebook) -> dict[str, Any]:
    """What went wrong, each kind with a comment for all who made it and the rows of the students."""
    rows = {student.name: row for row, student in enumerate(book.students)}
    found: list[dict[str, Any]] = []
    for one in mistakes(book):
        comment = one.words + (f"\n\nWhat to do: {one.fix}" if one.fix else "")
        found.append(
            {
                "words": one.words,
                "people": one.students,
                "puzzles": one.puzzles,
                "sizes": list(dict.fromkeys(case.size for case in one.cases)),
                "comment": comment,
                "lines": comment.count("\n") + 2 + len(comment) // 160,
                "cases": [(rows[case.student], case.puzzle) for case in one.cases],
                "example": one.example,
            }
        )
    return {"mistakes": found, "alone": sum(len(one["people"]) == 1 for one in found)}


def _pairs(book: Gradebook) -> dict[str, Any]:
    """Who is alike, and whose code is ours, with the rows of the students."""
    found = similar(book)
    rows = {student.name: row for row, student in enumerate(book.students)}
    pairs = [
        {"bits": one.bits, "shared": one.shared, "rows": [rows[name] for name in one.students]}
        for one in found.alike[:PAIRS]
    ]
    ours = [
        {"puzzle": one.puzzle, "solution": one.solution, "rows": [rows[name] for name in one.students]}
        for one in found.ours
    ]
    return {"pairs": pairs, "more_pairs": max(0, len(found.alike) - PAIRS), "ours": ours}


def _passed_everything(number: int) -> str:
    if number == 0:
        return "Nobody passed everything that was asked."
    return f"{counted(number, 'student')} passed everything that was asked."


def _index(book: Gradebook, puzzles: Sequence[ClassPuzzle], lines: Sequence[Line]) -> str:
    everything = sum(line.passed == len(puzzles) for line in lines)
    shown: list[dict[str, Any]] = [
        {
            "asked": puzzle.asked,
            "counts": puzzle.counts,
            "states": puzzle.states,
            "kinds": puzzle.kinds,
            "reference": puzzle.reference,
            "best": puzzle.best,
            "picture": bool(puzzle.picture),
            "drawn": markup(puzzle.picture),
            "size": puzzle.reference.size if puzzle.reference is not None else "a table of answers",
        }
        for puzzle in puzzles
    ]
    there = {cell.state for line in lines for cell in line.cells}
    return render(
        "index.html",
        present=[state for state in STATES.values() if state in there or state.word == "passed"],
        title=book.title,
        students=lines,
        puzzles=shown,
        refused=book.refused,
        problems=book.problems,
        everything=_passed_everything(everything),
        isolation=book.isolation,
        made_by=book.made_by,
        **_mistakes(book),
        innocent=INNOCENT,
        **_pairs(book),
    )
