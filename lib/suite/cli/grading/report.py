"""write_report: writes the pages of a graded class into a folder.

`index.html` can be read without any other file. `students/` has a page per student for the teacher, which compares the
student with the reference and the best, in pictures from `pictures/`. `feedback/` has a page and a text to send to each
student, without anything about others. The class may see `leaderboard.html`, which has schedules, counts, and names
from the roster's column `alias`. All of it depends only on the gradebook and the schedules: the same bytes every time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from drawing.canvas.palette import GOLD, GOOD, PAGE, PAPER, Colour, mix
from lib.errors.wording import amount, counted, exact, visible
from lib.files import ready, write_whole
from lib.suite.cli.console import page, template
from lib.suite.cli.grading.schedules import ClassPuzzle, Order, Pictures, board_of, puzzles_of
from lib.suite.grade.gradebook import Gradebook, Mark, Refused, Result, Score, Student, Traces
from lib.suite.grade.patterns import INNOCENT, mistakes, similar
from lib.suite.grade.results import file_names, is_ours
from lib.suite.submissions.source import STATES

LEADERBOARD = "leaderboard.html"  # the page that the class may see
SHORT = 60  # characters of a student's name in a table
PAIRS = 200  # pairs that the page of the class lists
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
"""The colours of the states' stripes; cells have the same, much paler."""
LOOK: Final[Mapping[str, Colour]] = {
    **{f"state-{name}": colour for name, colour in STATE_COLOURS.items()},
    **{f"pale-{name}": mix(colour, PAPER, 0.84) for name, colour in STATE_COLOURS.items()},
}


def write_report(
    book: Gradebook,
    traces: Traces,
    out: Path,
    *,
    jobs: int = 1,
    tell_sizes: bool = False,
    done: Callable[[int, int], None] = lambda so_far, everything: None,
) -> Path:
    """Write the pages into the folder `out`, and return the first of them. Existing pictures are not drawn again; pages
    of students who are no longer in the book are deleted.

    `tell_sizes`: whether students learn which hidden sizes failed, with the whole message. `jobs` is the number of
    processes that draw. `done(so_far, all)` counts pictures and students. ModuleNotFoundError without jinja2; OSError
    if the folder cannot be written.
    """
    puzzles = puzzles_of(book)
    lines = _lines(book)
    pictures = Pictures(out / "pictures", traces)
    every = (order for student in book.students for puzzle in puzzles for order in _orders(student, puzzle))
    orders = list(dict.fromkeys(filter(None, every)))
    everything = len(orders) + len(lines)
    pictures.draw_all(orders, jobs, lambda left: done(len(orders) - left, everything))
    # The class's page links to the others, so it comes last.
    neighbours = zip(book.students, lines, [None, *lines], [*lines[1:], None], strict=False)
    for row, (student, line, before, after) in enumerate(neighbours, 1):
        shown = [part_of(student, puzzle, pictures, teacher=True) for puzzle in puzzles]
        html = render("student.html", line=line, before=before, after=after, parts=shown)
        write_whole(ready(out / "students" / f"{line['file']}.html"), html)
        unread = unread_files(line["unread"])
        shown = [part_of(student, puzzle, pictures, tell_sizes=tell_sizes) for puzzle in puzzles]
        html = render("feedback.html", line=line, parts=shown, unread=unread, title=book.title)
        write_whole(ready(out / "feedback" / f"{line['file']}.html"), html)
        texts = [text_of(student=student, unread=unread), *(text_of(part=part) for part in shown)]
        write_whole(out / "feedback" / f"{line['file']}.txt", "\n\n".join(texts) + "\n")
        done(len(orders) + row, everything)
    # Delete an earlier report's files on students and schedules that are gone. Files that are not ours stay.
    files = {line["file"] for line in lines}
    for path in (*out.glob("students/*.html"), *out.glob("feedback/*.html"), *out.glob("feedback/*.txt")):
        if is_ours(path.stem) and path.stem not in files:
            path.unlink()
    pictures.keep(orders)
    write_whole(ready(out / LEADERBOARD), _leaderboard(book, puzzles, traces))
    write_whole(ready(index := out / "index.html"), _index(book, puzzles, lines))
    return index


def render(name: str, **values: Any) -> str:
    """Return a page of a report. Pictures are beside the pages. ModuleNotFoundError without jinja2."""
    words = {"states": STATES, "amount": amount, "counted": counted, "exact": exact, "message_there": _message_there}
    return page(name, "report", "'self' data:", LOOK, **words, **values)


def _lines(book: Gradebook) -> list[dict[str, Any]]:
    """The students, for the table of the class, and wherever else pages name them."""
    lines: list[dict[str, Any]] = []
    for file, student in zip(file_names([student.name for student in book.students]), book.students, strict=True):
        name = visible(student.name, lines=False).strip()
        line = {"file": file, "student": student, "name": student.name or "(no name)"}
        line["short"] = (name if len(name) <= SHORT else name[: SHORT - 1] + "…") or "(no name)"
        lines.append({**line, "unread": book.refused_of(student)})
    return lines


def _index(book: Gradebook, puzzles: Sequence[ClassPuzzle], lines: Sequence[Mapping[str, Any]]) -> str:
    there = {score.state for student in book.students for score in student.scores}
    common, alike = mistakes(book), similar(book)
    return render(
        "report.html",
        book=book,
        students=lines,
        puzzles=puzzles,
        innocent=INNOCENT,
        ours=alike.ours,
        present=[state for word, state in STATES.items() if word in there or word == "passed"],
        line_of={student.name: line for student, line in zip(book.students, lines, strict=True)},
        everything=sum(student.passed == len(puzzles) for student in book.students),
        mistakes=common,
        alone=sum(len(one.students) == 1 for one in common),
        pairs=alike.alike[:PAIRS],
        more_pairs=max(0, len(alike.alike) - PAIRS),
    )


def _leaderboard(book: Gradebook, puzzles: Sequence[ClassPuzzle], traces: Traces) -> str:
    """The page with each puzzle's schedules that are correct at all sizes, the best first."""
    from drawing.canvas.scene import sheet  # not above: a class of plain functions needs none

    boards = [board_of(book, puzzle, traces) for puzzle in puzzles if puzzle.asked.goals]
    night, style = sheet({mark.fill for board in boards for mark in board.pop("marks")}, set(), titles=False)
    title = visible(book.title, lines=False)
    return render("leaderboard.html", title=title, boards=boards, night=night, night_style=style)


# -- one student ----------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of figures: the student's own, another's, or the limits of a goal."""

    name: str
    time: float | None
    memory: float | None
    sent: float | None = None
    rank: int | None = None
    own: bool = False
    limit: str = ""


def _points(mark: Mark) -> str:
    """The points in words, with the penalty for being late and what a person gave; "" if there are none."""
    if not mark.of and mark.by_hand is None:
        return ""
    hand = () if mark.by_hand is None else (f"{amount(mark.points)} for the results", f"{amount(mark.by_hand)} by hand")
    parts = ", ".join(filter(None, (*hand, mark.late)))
    return f"{amount(mark.total)} of {amount(mark.of)} points" + (f" ({parts})" if parts else "")


def _orders(student: Student, puzzle: ClassPuzzle) -> tuple[Order | None, Order | None]:
    """The pictures of a student's schedule: beside the reference and the best of the class, unless they are equal; and
    alone."""
    score = student.scores[puzzle.place]
    mine = score.own.schedule
    if not mine:
        return None, None
    names = {mine: "this student"}
    for name, other in puzzle.others:
        if other.schedule:
            names.setdefault(other.schedule, name)
    return Order(tuple(names), tuple(names.values()), score.correct), Order((mine,), ("yours",), score.correct)


def part_of(
    student: Student, puzzle: ClassPuzzle, pictures: Pictures, *, teacher: bool = False, tell_sizes: bool = False
) -> dict[str, Any]:
    """Return a puzzle's part of the teacher's page, or of the student's: that has `elsewhere` for results at other
    sizes, in words that a student may read, each with a message."""
    asked, score = puzzle.asked, student.scores[puzzle.place]
    state, message, mark = STATES[score.state], score.own.message, student.mark(asked.puzzle)
    if not state.judged:
        message = message or state.about  # there is no function
    elif score.correct and score.own.time is not None:
        message = remarks(message)  # the figures are beside it
    size = score.own.size or (asked.reference.size if asked.reference is not None else "the puzzle's size")
    part = {"asked": asked, "score": score, "state": state, "size": size, "message": message, "mark": mark}
    part |= {"points": _points(mark), "rows": _rows(puzzle, score, teacher)}
    beside, alone = _orders(student, puzzle)
    if not teacher:
        drawn = "" if alone is None else pictures.path(alone).read_text("utf-8").strip()
        return {**part, "elsewhere": [*_elsewhere(score, tell_sizes)], "drawn": drawn}
    return {**part, "picture": beside and pictures.drawn(beside), "names": beside and beside.names}


def _rows(puzzle: ClassPuzzle, score: Score, teacher: bool) -> list[Row]:
    """Figures to compare; plain functions and incorrect runs have none."""
    asked, mine = puzzle.asked, score.own
    if mine.time is None:
        return []
    name = "this student" if teacher else "yours"
    rows = [Row(name, mine.time, mine.memory, mine.sent, mine.rank, own=True)]
    for goal, time, memory in asked.goals:
        called = f"{'✓ ' * (goal in mine.goals)}{goal}{' (needed)' * (goal == asked.need)}"
        rows.append(Row(called, time, memory, limit="at most "))
    if teacher:
        rows += [Row(name, one.time, one.memory, one.sent, one.rank) for name, one in puzzle.others]
    return rows


def _elsewhere(score: Score, tell_sizes: bool) -> Iterator[tuple[str, str]]:
    """Yield the results at other sizes, which are named only if the teacher wants it."""
    if not score.hidden or not score.correct:
        return
    yield f"At other sizes: passed at {score.hidden_passed} of {len(score.hidden)}.", ""
    wrong = [result for result in score.hidden if result.state != "passed"]
    if tell_sizes:
        yield from ((f"At {result.size}:", _message_there(result)) for result in wrong)
        return
    for message, times in Counter(without_sizes(_message_there(result)) for result in wrong).items():
        where = "another size, which is" if times == 1 else f"{times} other sizes, which are"
        yield f"At {where} not told:", message


def _message_there(result: Result) -> str:
    return result.message.removeprefix(f"At {result.size}: ")


def remarks(message: str) -> str:
    """Return the notes in the verdict on a correct schedule, whose state and figures the page shows better."""
    lines = message.splitlines()
    figures = next((place for place, line in enumerate(lines) if line.startswith("Time ")), len(lines))
    return "\n".join(lines[1:figures])


def without_sizes(message: str) -> str:
    """Return a message for a student about a size that must stay hidden: what went wrong, their own line, and how to
    fix it, without numbers. What was expected and what came are left out."""
    kept: list[str] = []
    keeps = True
    for number, line in enumerate(message.splitlines()):
        if (label := re.match(r"\s{2}(\w+):\s", line)) is not None:
            keeps = label[1] in ("where", "fix")
        elif not line.startswith("   "):
            keeps = number == 0
        if keeps:
            own = label is not None and label[1] == "where"
            kept.append(line if own else re.sub(r"\d[\d,.]*\d|\d", "…", line))
    return "\n".join(kept)


def unread_files(refused: Sequence[Refused]) -> list[str]:
    """Tell a student which files cannot be graded, and why: by name, without the teacher's folders."""
    return [f"{one.file.rpartition('/')[2]}: {one.why}" for one in refused]


def text_of(**what: Any) -> str:
    """Return a page as plain text, for the comment box of a learning platform: about a `student` with what is `unread`,
    or about a `part`."""
    return template("feedback.txt").render(amount=amount, exact=exact, **what).rstrip("\n")
