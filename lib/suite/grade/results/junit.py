"""junit.xml: what CI systems read. A suite for each student, a test for each puzzle, and a suite of what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from lib.suite.grade.gradebook import Asked, Gradebook, Refused, Score, Student

__all__ = ["junit_of"]

ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML may have, not even escaped."""


def junit_of(book: Gradebook) -> str:
    """The text of junit.xml. Whatever did not pass is a failure, also what is absent; what is refused is an error."""
    failures = sum(len(book.asked) - student.passed for student in book.students)
    tests = len(book.asked) * len(book.students) + len(book.refused)
    counts = f'tests="{tests}" failures="{failures}" errors="{len(book.refused)}"'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<testsuites name="puzzles grade" {counts}>']
    for student in book.students:
        lines += _suite(student, book.asked)
    if book.refused:
        lines += _refused(book.refused)
    return "\n".join((*lines, "</testsuites>", ""))


def _suite(student: Student, asked: tuple[Asked, ...]) -> Iterator[str]:
    name, failures = _attribute(student.name), len(asked) - student.passed
    yield f'  <testsuite name={name} tests="{len(asked)}" failures="{failures}" errors="0">'
    for score in student.scores:
        case = f"    <testcase classname={name} name={_attribute(score.puzzle)}"
        yield case + "/>" if score.state == "passed" else case + ">"
        if score.state != "passed":
            yield from _failure(score)
            yield "    </testcase>"
    yield "  </testsuite>"


def _failure(score: Score) -> Iterator[str]:
    first = score.message.partition("\n")[0]
    yield f"      <failure type={_attribute(score.state)} message={_attribute(first)}>{_text(score.message)}</failure>"


def _refused(refused: tuple[Refused, ...]) -> Iterator[str]:
    count = len(refused)
    yield f'  <testsuite name="refused" tests="{count}" failures="0" errors="{count}">'
    for one in refused:
        yield f"    <testcase classname={_attribute(one.student or 'refused')} name={_attribute(one.file)}>"
        yield f'      <error type="refused" message={_attribute(one.why)}/>'
        yield "    </testcase>"
    yield "  </testsuite>"


def _attribute(text: str) -> str:
    """Between quotes, on one line."""
    return quoteattr(ILLEGAL.sub("\ufffd", text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _text(text: str) -> str:
    return escape(ILLEGAL.sub("\ufffd", text))
