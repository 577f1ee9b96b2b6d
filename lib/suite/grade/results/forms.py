"""The forms in which a gradebook is left for other programs, a row each; and the one place that writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from lib.files import ready, write_whole
from lib.suite.grade.gradebook import Gradebook
from lib.suite.grade.results.junit import junit_of
from lib.suite.grade.results.scores import csv_of

__all__ = ["FORMS", "Form", "write_results"]


class Form(NamedTuple):
    """A file, what it is for, and what makes its text of a gradebook."""

    file: str
    about: str
    text_of: Callable[[Gradebook], str]


FORMS: Final[tuple[Form, ...]] = (
    Form("scores.csv", "a row for each student, for a spreadsheet", csv_of),
    Form("gradebook.json", "everything, for programs", Gradebook.to_json),
    Form("junit.xml", "a test for each puzzle of each student, for CI", junit_of),
)


def write_results(book: Gradebook, out: str | Path) -> list[Path]:
    """Writes a gradebook in every form, each file whole or not at all. The same gradebook gives the same bytes."""
    written: list[Path] = []
    for form in FORMS:
        path = Path(out, form.file)
        # Half a character, which Python has and UTF-8 has not, becomes a question mark.
        write_whole(ready(path), form.text_of(book).encode("utf-8", "replace"))
        written.append(path)
    return written
