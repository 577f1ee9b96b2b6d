"""What is said of a puzzle of which a student handed in no function: which of the states it is, and why."""

from __future__ import annotations

from collections.abc import Sequence

from lib.suite.grade.gradebook import Refused, Result, Score
from lib.suite.grade.intake.names import stem_of
from lib.suite.submissions.states import STATES

__all__ = ["missing"]


def missing(puzzle: str, refused: Sequence[Refused], *, others: bool, anything: bool) -> Score:
    """The score of a puzzle that is in no file which could be read. `refused` are the student's files that could not be
    graded, `others` says whether another puzzle could, and `anything` whether there is a file at all.

    A file counts that is called after the puzzle; else one that may be anything, as nothing says what it was for.
    """
    rows = {row: row.puzzle or stem_of(row.file.rpartition("/")[2]).puzzle for row in refused}
    about = [row for row, its in rows.items() if its == puzzle] or [row for row, its in rows.items() if its is None]
    if about:
        row = about[-1]
        return _score(puzzle, row.state, f"{row.file.rpartition('/')[2]} {row.why}")
    if anything and not others and not refused:
        return _score(puzzle, "unrelated")
    return _score(puzzle, "absent")


def _score(puzzle: str, state: str, why: str = "") -> Score:
    return Score(puzzle, state, Result("", state, message=why or STATES[state].about))
