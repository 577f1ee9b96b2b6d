"""write_report: the pages of a graded class, in a folder.

`index.html` needs no other file to be read; `students/` has a page for each student, which shows pictures of
`pictures/`; `feedback/` has for each student a page and a text to send, which know nothing of anybody else. The class
may see `leaderboard.html`, which is made of schedules, counts, and the names that the roster has under `alias`. All of
it follows from the gradebook and the schedules: the same bytes every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from drawing.canvas.palette import GOLD, GOOD, PAGE, PAPER, Colour, mix
from lib.analysis.figures import bubbles
from lib.errors.exceptions import TraceError
from lib.errors.wording import amount, counted, exact, visible
from lib.files import ready, write_whole
from lib.suite.cli.grading.schedules import (
    MOST_EVENTS,
    ClassPuzzle,
    Kind,
    Order,
    Pictures,
    Traces,
    draw_all,
    puzzles_of,
)
from lib.suite.cli.grading.students import (
    beside,
    feedback_parts,
    feedback_text,
    goals_reached,
    message_there,
    own,
    parts,
    scores_of,
    unread_files,
    whole,
)
from lib.suite.cli.pages import markup, page
from lib.suite.grade.gradebook import Gradebook, Refused, Result, Score, Student
from lib.suite.grade.intake.roster import ALIAS
from lib.suite.grade.patterns import INNOCENT, mistakes, similar
from lib.suite.grade.results import file_names, is_ours
from lib.suite.submissions.states import STATES, State
from lib.trace.trace import Trace

__all__ = ["LEADERBOARD", "Traces", "leaderboard", "render", "write_report"]

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
        "report.html",
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


PLACES: Final = 30
"""Schedules of a puzzle."""
LONGEST: Final = 40
"""Characters of a name that somebody chose."""


def leaderboard(book: Gradebook, puzzles: Sequence[ClassPuzzle], traces: Traces) -> str:
    """The page: of each puzzle the schedules that are correct at all sizes, the best first."""
    boards = [_board(book, puzzle, traces) for puzzle in puzzles if puzzle.asked.goals]
    fills = {mark.fill for board in boards for mark in board.pop("marks")}
    from drawing.canvas.scene import sheet  # here: a class of plain functions needs none

    night, style = sheet(fills, set(), titles=False)
    return render(
        "leaderboard.html",
        title=visible(book.title, lines=False),
        boards=boards,
        night=night,
        night_style=markup(style),
    )


def _board(book: Gradebook, puzzle: ClassPuzzle, traces: Traces) -> dict[str, Any]:
    from drawing.canvas.scene import Scene
    from drawing.comparing.overview import HIGH, WIDE, thumbnails

    reference = puzzle.reference
    kinds = [kind for kind in puzzle.kinds if kind.everywhere]
    shown: list[tuple[Kind | None, Result]] = [(kind, kind.result) for kind in kinds[:PLACES]]
    if reference is not None and all(result.schedule != reference.schedule for _, result in shown):
        shown.append((None, reference))
    runs = {result.schedule: run for _, result in shown if (run := _run(traces, result.schedule)) is not None}
    small = dict(zip(runs, thumbnails([*runs.values()]) if runs else (), strict=True))
    best = (
        {name: min(getattr(result, name) or 0.0 for _, result in shown) for name in ("time", "memory", "sent")}
        if shown
        else {}
    )
    rows: list[dict[str, Any]] = []
    for place, (kind, result) in enumerate(shown, 1):
        run = runs.get(result.schedule)
        marks = small.get(result.schedule)
        words = f"schedule {place} of {puzzle.asked.puzzle}"
        rows.append(
            {
                "place": place if kind is not None else None,
                "who": _who([book.students[row] for row in kind.students]) if kind is not None else "",
                "reference": reference is not None and result.schedule == reference.schedule,
                "goals": kind.goals if kind is not None else None,
                "result": result,
                "best": [name for name in best if getattr(result, name) == best[name]],
                "computing": None if run is None else 1 - bubbles(run).makespan,
                "picture": ""
                if marks is None
                else markup(Scene(WIDE, HIGH, marks, paper=False).svg(label=words, night=False)),
            }
        )
    return {
        "asked": puzzle.asked,
        "rows": rows,
        "more": len(kinds) - len(kinds[:PLACES]),
        "students": sum(len(kind.students) for kind in kinds),
        "marks": [mark for marks in small.values() for mark in marks],
    }


def _run(traces: Traces, digest: str) -> Trace | None:
    """A schedule, where it can be read and is not too large to be drawn."""
    try:
        run = traces.load(digest)
    except (OSError, TraceError, ValueError):
        return None
    return run if sum(len(program.events) for program in run.programs) <= MOST_EVENTS else None


def _who(students: Sequence[Student]) -> str:
    """How many have a schedule, by the names that they chose where they did."""
    chosen = sorted(filter(None, (_alias(dict(student.more)) for student in students)))
    others = len(students) - len(chosen)
    if not chosen:
        return counted(others, "student")
    return ", ".join(chosen) + (f" and {others} more" if others else "")


def _alias(cells: Mapping[str, str]) -> str:
    said = next((text for heading, text in cells.items() if heading.casefold() == ALIAS), "")
    return visible(said, lines=False).strip()[:LONGEST]


STATE_COLOURS: Mapping[str, Colour] = {
    "passed": GOOD,
    "missed": GOLD,
    "partly": mix(GOLD, PAGE["alarm"], 0.45),
    "failed": PAGE["alarm"],
    "unsolved": PAGE["soft"],
    "renamed": GOLD,
    "unreadable": PAGE["alarm"],
    "empty": PAGE["soft"],
    "unrelated": PAGE["soft"],
    "absent": PAGE["edge"],
}
"""Of the stripe that stands for a state; the cells are the same, much paler."""


LOOK: Final[Mapping[str, Colour]] = {
    **{f"state-{name}": colour for name, colour in STATE_COLOURS.items()},
    **{f"pale-{name}": mix(colour, PAPER, 0.84) for name, colour in STATE_COLOURS.items()},
}
WORDS: Final = {"states": STATES, "amount": amount, "counted": counted, "exact": exact, "message_there": message_there}
"""What every template may use."""


def render(template: str, **values: Any) -> str:
    """A page of a report. Pictures lie beside the pages. ModuleNotFoundError without jinja2."""
    return page(template, "report", "'self' data:", colours=LOOK, **WORDS, **values)
