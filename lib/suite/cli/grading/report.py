"""write_report: the pages of a graded class, in a folder.

`index.html` needs no other file to be read; `students/` has a page for each student, which shows pictures of
`pictures/`; `feedback/` has for each student a page and a text to send, which know nothing of anybody else. The class
may see `leaderboard.html`, which is made of schedules, counts, and the names that the roster has under `alias`. All of
it follows from the gradebook and the schedules: the same bytes every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

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
    goals_reached,
    puzzles_of,
)
from lib.suite.cli.grading.students import (
    beside,
    feedback_parts,
    feedback_text,
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
from lib.suite.submissions.source import STATES, State
from lib.trace.trace import Trace

__all__ = ["LEADERBOARD", "STATE_COLOURS", "write_report"]

LEADERBOARD = "leaderboard.html"
"""The page that the class may see."""

SHORT = 60
"""Characters of a student's name in a table."""
PAIRS = 200
"""Pairs that the page of the class lists."""
Done = Callable[[int, int], None]


class Cell(NamedTuple):
    """One student and one puzzle in the table of the class. `order` is what it is sorted by."""

    puzzle: str
    state: State
    order: int
    more: str
    link: bool


class Line(NamedTuple):
    """A student in the table of the class, and wherever else a page names them."""

    file: str
    name: str
    short: str
    passed: int
    notes: tuple[str, ...]
    unread: tuple[Refused, ...]
    cells: tuple[Cell, ...]
    points: str
    total: float
    comment: str


def write_report(
    book: Gradebook,
    traces: Traces,
    out: Path,
    *,
    jobs: int = 1,
    tell_sizes: bool = False,
    done: Done | None = None,
) -> Path:
    """Write the pages into the folder `out`, and return the first of them. Pictures that are there are not drawn again;
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
    for row, (student, line) in enumerate(zip(book.students, lines, strict=True)):
        before, after = lines[row - 1 : row] or [None], lines[row + 1 : row + 2] or [None]
        found = [*parts(student, puzzles, pictures)]
        page = render("student.html", student=line, before=before[0], after=after[0], parts=found)
        write_whole(ready(out / "students" / f"{line.file}.html"), page)
        found, unread = [*feedback_parts(student, puzzles, pictures, tell_sizes)], unread_files(line.unread)
        page = render("feedback.html", student=line, parts=found, unread=unread, title=book.title)
        write_whole(ready(out / "feedback" / f"{line.file}.html"), page)
        text = "\n".join(map(visible, feedback_text(student, found, unread)))
        write_whole(out / "feedback" / f"{line.file}.txt", f"{text}\n")
        tell(len(orders) + row + 1)
    # What an earlier report left of students and schedules that are not there any more. Files of others stay.
    files = {line.file for line in lines}
    for folder, endings in (("students", (".html",)), ("feedback", (".html", ".txt"))):
        for path in (out / folder).iterdir() if (out / folder).is_dir() else ():
            if path.suffix in endings and is_ours(path.stem) and path.stem not in files:
                path.unlink()
    pictures.keep(orders)
    write_whole(ready(out / LEADERBOARD), _leaderboard(book, puzzles, traces))
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
    state, goals = STATES[score.state], goals_reached(puzzle.asked, score.own)
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


def _index(book: Gradebook, puzzles: Sequence[ClassPuzzle], lines: Sequence[Line]) -> str:
    there = {cell.state for line in lines for cell in line.cells}
    common, alike = mistakes(book), similar(book)
    return render(
        "report.html",
        present=[state for state in STATES.values() if state in there or state.word == "passed"],
        title=book.title,
        students=lines,
        line_of={student.name: line for student, line in zip(book.students, lines, strict=True)},
        puzzles=puzzles,
        refused=book.refused,
        problems=book.problems,
        everything=sum(line.passed == len(puzzles) for line in lines),
        isolation=book.isolation,
        made_by=book.made_by,
        mistakes=common,
        alone=sum(len(one.students) == 1 for one in common),
        innocent=INNOCENT,
        pairs=alike.alike[:PAIRS],
        more_pairs=max(0, len(alike.alike) - PAIRS),
        ours=alike.ours,
    )


# -- the leaderboard ------------------------------------------------------------------------------------------------

PLACES: Final = 30
"""Schedules of a puzzle."""
LONGEST: Final = 40
"""Characters of a name that somebody chose."""


def _leaderboard(book: Gradebook, puzzles: Sequence[ClassPuzzle], traces: Traces) -> str:
    """The page: of each puzzle the schedules that are correct at all sizes, the best first."""
    from drawing.canvas.scene import sheet  # here and below: a class of plain functions needs none

    boards = [_board(book, puzzle, traces) for puzzle in puzzles if puzzle.asked.goals]
    night, style = sheet({mark.fill for board in boards for mark in board.pop("marks")}, set(), titles=False)
    title = visible(book.title, lines=False)
    return render("leaderboard.html", title=title, boards=boards, night=night, night_style=markup(style))


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
    figures = ("time", "memory", "sent") if shown else ()
    best = {name: min(getattr(result, name) or 0.0 for _, result in shown) for name in figures}
    rows: list[dict[str, Any]] = []
    for place, (kind, result) in enumerate(shown, 1):
        run, picture = runs.get(result.schedule), ""
        if result.schedule in small:
            scene = Scene(WIDE, HIGH, small[result.schedule], paper=False)
            picture = markup(scene.svg(label=f"schedule {place} of {puzzle.asked.puzzle}", night=False))
        rows.append(
            {
                "place": place if kind is not None else None,
                "who": _who([book.students[row] for row in kind.students]) if kind is not None else "",
                "reference": reference is not None and result.schedule == reference.schedule,
                "goals": kind.goals if kind is not None else None,
                "result": result,
                "best": [name for name in best if getattr(result, name) == best[name]],
                "computing": None if run is None else 1 - bubbles(run).makespan,
                "picture": picture,
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
    """Count those who have a schedule, and name those who chose a name."""
    aliases: list[str] = []
    for student in students:
        said = next((text for heading, text in student.more if heading.casefold() == ALIAS), "")
        aliases.append(visible(said, lines=False).strip()[:LONGEST])
    chosen, others = sorted(filter(None, aliases)), aliases.count("")
    if not chosen:
        return counted(others, "student")
    return ", ".join(chosen) + (f" and {others} more" if others else "")


# -- how all of them look -------------------------------------------------------------------------------------------

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
"""The colours of the stripes that stand for states; cells have the same, much paler."""


LOOK: Final[Mapping[str, Colour]] = {
    **{f"state-{name}": colour for name, colour in STATE_COLOURS.items()},
    **{f"pale-{name}": mix(colour, PAPER, 0.84) for name, colour in STATE_COLOURS.items()},
}
WORDS: Final = {"states": STATES, "amount": amount, "counted": counted, "exact": exact, "message_there": message_there}
"""Words and numbers that every template may use."""


def render(template: str, **values: Any) -> str:
    """A page of a report. Pictures lie beside the pages. ModuleNotFoundError without jinja2."""
    return page(template, "report", "'self' data:", colours=LOOK, **WORDS, **values)
