"""The files of a class beside what it handed in: the roster and marks by hand, in; platforms' forms, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lib.suite.grade.gradebook import Gradebook
from lib.suite.grade.intake.roster import Roster, TableError, enrolled, read_roster, read_table
from lib.suite.grade.intake.submission import Collected, Submission
from lib.suite.grade.points import Rules, by_hand, to_fill_in
from lib.suite.grade.results import RETURNS, Class, returning, write_returns

__all__ = ["ClassFiles"]


@dataclass(slots=True)
class ClassFiles:
    """The paths that somebody named, and what was read from them: anew at each grading of a folder that is watched."""

    roster: Path | None = None
    marks: Sequence[Path] = ()
    platforms: Sequence[str] = ()
    _roster: Roster = field(default_factory=Roster)
    _submissions: tuple[Submission, ...] = ()
    _problems: tuple[str, ...] = ()

    def check(self) -> None:
        """Reads all of them, before anything runs. TableError or OSError for what is no such file."""
        if self.roster is not None:
            read_roster(self.roster)
        for path in self.marks:
            if path.exists():
                read_table(path)
        known = [one.platform.casefold() for one in RETURNS]
        for name in self.platforms:
            if name.casefold() not in known:
                raise TableError(f"--platform {name}: there is no such form\n  expected: one of {', '.join(known)}")

    def enroll(self, collected: Collected, rules: Rules) -> Collected:
        """What was handed in, with everybody in the roster."""
        problems: tuple[str, ...] = ()
        if self.roster is not None:
            self._roster = read_roster(self.roster)
            collected, problems = enrolled(collected, self._roster)
        self._submissions = collected.submissions
        known = {name for one in collected.submissions for name in (one.roster_id, one.id, one.student) if name}
        unknown = (
            f"[extension] {one!r}: no student has that id or name" for one in rules.extensions if one not in known
        )
        self._problems = (*self._roster.problems, *problems, *unknown)
        return collected

    def marked(self, book: Gradebook, rules: Rules) -> Gradebook:
        """The gradebook with what people add to it, and what is to be looked at in their files."""
        book = replace(book, problems=self._problems)
        try:
            return by_hand(book, [path for path in self.marks if path.exists()], rules)
        except (TableError, OSError) as error:  # it was whole when all began
            return replace(book, problems=(*book.problems, f"no marks by hand are used: {error}"))

    def give_back(self, book: Gradebook, out: Path) -> list[str]:
        """Writes what platforms take back, and files of marks that are not there yet. What was written, in words."""
        submissions = {one.student: one for one in self._submissions}
        group = Class(book, self._roster, submissions)
        platforms = returning(Collected(self._submissions), self._roster, self.platforms)
        said = [f"To upload: {path}" for path in write_returns(group, platforms, out)]
        for path in self.marks:
            if not path.exists():
                to_fill_in(book, path)
                said.append(f"To fill in: {path}, which the next run reads and never changes")
        return said
