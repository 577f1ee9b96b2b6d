"""The pages of one student: for the teacher, beside the reference and the best; for the student, their own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from lib.errors.wording import amount, exact
from lib.suite.cli.grading.schedules import ClassPuzzle, Drawn, Order, Pictures
from lib.suite.cli.pages import markup
from lib.suite.grade.gradebook import Asked, Mark, Refused, Result, Score, Student
from lib.suite.submissions.source import STATES, State

__all__ = ["Part", "beside", "feedback_parts", "feedback_text", "head_text", "message_there", "own"]
__all__ += ["part_text", "parts", "remarks", "scores_of", "unread_files", "whole", "without_sizes"]

WITHHELD: Final = "…"
"""Stands for a number."""
NO_MARK = Mark("")


class Row(NamedTuple):
    """A row of figures: one's own, those of others, or the limits of a goal."""

    name: str
    time: float | None
    memory: float | None
    sent: float | None = None
    rank: int | None = None
    own: bool = False
    limit: str = ""
    over_time: str = ""
    over_memory: str = ""


class Elsewhere(NamedTuple):
    """A result at another size, in words that a student may read."""

    words: str
    message: str = ""


@dataclass(frozen=True)
class Part:
    """One puzzle on a student's page."""

    asked: Asked
    score: Score
    state: State
    size: str
    rows: Sequence[Row]
    message: str
    picture: Drawn | None = None
    caption: str = ""
    elsewhere: Sequence[Elsewhere] = ()
    drawn: Any = ""
    mark: Mark = NO_MARK

    @property
    def points(self) -> str:
        """The points in words, with what being late cost and what a person gave; nothing where there are none."""
        mark = self.mark
        if not mark.of and mark.by_hand is None:
            return ""
        parts = [mark.late] if mark.late else []
        if mark.by_hand is not None:
            parts = [f"{amount(mark.points)} for the results", f"{amount(mark.by_hand)} by hand", *parts]
        return f"{amount(mark.total)} of {amount(mark.of)} points" + (f" ({', '.join(parts)})" if parts else "")


def whole(student: Student) -> str:
    """All points of a student in words."""
    return f"{amount(student.points)} of {amount(student.of)} points"


def scores_of(student: Student, puzzles: Sequence[ClassPuzzle]) -> Iterator[tuple[ClassPuzzle, Score]]:
    """The score of each puzzle, in the order in which they were asked."""
    found = {score.puzzle: score for score in student.scores}
    for puzzle in puzzles:
        name = puzzle.asked.puzzle
        yield puzzle, found.get(name) or Score(name, "absent", Result("", "absent"))


def beside(puzzle: ClassPuzzle, score: Score) -> Order | None:
    """A student's schedule beside the reference and the best of the class, those that are equal to it left out."""
    mine = score.own.schedule
    if not mine:
        return None
    others = (("the reference", puzzle.reference), ("the best of the class", puzzle.best))
    found = {mine: "this student"}
    for name, other in others:
        if other is not None and other.schedule:
            found.setdefault(other.schedule, name)
    return Order(tuple(found), tuple(found.values()), score.correct)


def own(score: Score) -> Order | None:
    """A student's schedule alone."""
    return Order((score.own.schedule,), ("yours",), score.correct) if score.own.schedule else None


def parts(student: Student, puzzles: Sequence[ClassPuzzle], pictures: Pictures) -> Iterator[Part]:
    """The puzzles on the page for the teacher."""
    for puzzle, score in scores_of(student, puzzles):
        order = beside(puzzle, score)
        part = _part(student, puzzle, score, "this student", others=True)
        yield part if order is None else replace(part, picture=pictures.drawn(order), caption=_caption(order))


def feedback_parts(
    student: Student, puzzles: Sequence[ClassPuzzle], pictures: Pictures, tell_sizes: bool
) -> Iterator[Part]:
    """The puzzles in what a student may have."""
    for puzzle, score in scores_of(student, puzzles):
        order = own(score)
        drawn = "" if order is None else markup(pictures.svg(order))
        part = _part(student, puzzle, score, "yours", others=False)
        yield replace(part, elsewhere=tuple(_elsewhere(score, tell_sizes)), drawn=drawn)


def _part(student: Student, puzzle: ClassPuzzle, score: Score, name: str, others: bool) -> Part:
    """Fill in what both pages have of a puzzle."""
    state, message = STATES[score.state], score.own.message
    if not state.judged:
        message = message or state.about  # there is no function
    elif score.correct and score.own.time is not None:
        message = remarks(message)  # the figures stand beside it
    size = score.own.size or (puzzle.reference.size if puzzle.reference is not None else "the puzzle's size")
    mark = student.mark(puzzle.asked.puzzle)
    return Part(puzzle.asked, score, state, size, _rows(puzzle, score, name, others), message, mark=mark)


def unread_files(refused: Sequence[Refused]) -> list[str]:
    """Tell a student of files that cannot be graded: their names, without the folders of the teacher."""
    return [f"{one.file.rpartition('/')[2]}: {one.why}" for one in refused]


def feedback_text(student: Student, found: Sequence[Part], unread: Sequence[str] = ()) -> Iterator[str]:
    """The same in plain text, for the comment box of a learning platform."""
    yield from head_text(student, unread)
    for part in found:
        yield ""
        yield from part_text(part)


def head_text(student: Student, unread: Sequence[str] = ()) -> Iterator[str]:
    """Write the head above the puzzles."""
    points = f", {whole(student)}" if student.of else ""
    yield f"{student.name}: {student.passed} of {len(student.scores)} puzzles passed{points}."
    yield from _comment(student.mark())
    yield from (f"Could not be graded: {text}" for text in unread)


def _comment(mark: Mark) -> list[str]:
    return f"Comment: {mark.comment}".splitlines() if mark.comment else []


def part_text(part: Part) -> Iterator[str]:
    """Write what is said of one puzzle."""
    yield f"{part.asked.number}. {part.asked.title}: {part.state.word}" + (part.points and f", {part.points}")
    yield from (f"  {line}" for line in _comment(part.mark))
    for row in part.rows:
        if row.time is not None and row.memory is not None:
            over = row.over_time or row.over_memory
            figures = f"time {row.limit}{exact(row.time)}, memory {row.limit}{amount(row.memory)} elements"
            yield f"  {row.name}: {figures}" + (" (over)" if over else "")
    for text in (part.message, *(one for each in part.elsewhere for one in (each.words, each.message))):
        yield from (f"  {line}" for line in text.splitlines())


def _caption(order: Order) -> str:
    if len(order.names) == 1:
        return "The timeline of this student, who does what the reference and the best of the class do"
    return f"Timelines of {' and '.join(order.names)}, with the first difference marked"


def _rows(puzzle: ClassPuzzle, score: Score, name: str, others: bool) -> list[Row]:
    """Figures, where there are any to be compared: a plain function has none, nor what is not correct."""
    asked, mine = puzzle.asked, score.own
    if mine.time is None:
        return []
    rows = [Row(name, mine.time, mine.memory, mine.sent, mine.rank, own=True)]
    for goal, time, memory in asked.goals:
        reached = "✓ " if goal in mine.goals else ""
        needed = " (needed)" if goal == asked.need else ""
        over = [_over(have, limit) for have, limit in ((mine.time, time), (mine.memory, memory))]
        rows.append(Row(f"{reached}{goal}{needed}", time, memory, None, None, False, "at most ", *over))
    if others:
        for title, other in (("the reference", puzzle.reference), ("the best of the class", puzzle.best)):
            if other is not None:
                rows.append(Row(title, other.time, other.memory, other.sent, other.rank))
    return rows


def _over(have: float | None, limit: float) -> str:
    return amount(round(have - limit, 9)) if have is not None and have > limit else ""


def _elsewhere(score: Score, tell_sizes: bool) -> Iterator[Elsewhere]:
    """Tell of the other sizes. Which they are is said only where the teacher wants it."""
    if not score.hidden or not score.correct:
        return
    yield Elsewhere(f"At other sizes: passed at {score.hidden_passed} of {len(score.hidden)}.")
    wrong = [result for result in score.hidden if result.state != "passed"]
    if tell_sizes:
        yield from (Elsewhere(f"At {result.size}:", message_there(result)) for result in wrong)
        return
    for message, times in Counter(without_sizes(message_there(result)) for result in wrong).items():
        where = "another size, which is" if times == 1 else f"{times} other sizes, which are"
        yield Elsewhere(f"At {where} not told:", message)


def remarks(message: str) -> str:
    """The notes in the verdict on a correct schedule: its state and its figures stand beside it, and better."""
    lines = message.splitlines()
    figures = next((place for place, line in enumerate(lines) if line.startswith("Time ")), len(lines))
    return "\n".join(lines[1:figures])


def message_there(result: Result) -> str:
    """The message of a result whose size stands beside it."""
    return result.message.removeprefix(f"At {result.size}: ")


def without_sizes(message: str) -> str:
    """A message for a student about a size that they are not to know: what went wrong, the line of their own, and how
    to mend it, without the numbers. What was expected and what came are left out."""
    kept: list[str] = []
    keeps = True
    for number, line in enumerate(message.splitlines()):
        label = re.match(r"\s{2}(\w+):\s", line)
        if label is not None:
            keeps = label[1] in ("where", "fix")
        elif not line.startswith("   "):
            keeps = number == 0
        if keeps:
            own = label is not None and label[1] == "where"
            kept.append(line if own else re.sub(r"\d[\d,.]*\d|\d", WITHHELD, line))
    return "\n".join(kept)
