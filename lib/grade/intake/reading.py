"""The text of a file that was handed in: from bytes in any encoding, and of a notebook its code without what came out.

A notebook is read by its structure: what is not code is passed over, string by string, and never held. So one with
20 MB of pictures costs no more memory than its bytes and text, and neither does one that was made to be expensive.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
from typing import Final, NoReturn, cast

from lib.grade.intake.archives import Unreadable
from lib.grade.intake.names import NOTEBOOK, ending

__all__ = ["MOST_BYTES", "decoded", "kind_of_bytes", "text_of"]

MOST_BYTES: Final = 20_000_000
"""Bytes of a file that is read."""
MOST_CODE: Final = 2**20
"""Characters of code in one file: more than any person writes."""
SIGNATURES: Final = {
    b"PK\3\4": "a zip archive",
    b"PK\5\6": "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"Rar!": "a RAR archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"%PDF": "a PDF",
    b"\x89PNG": "a picture (PNG)",
    b"\xff\xd8\xff": "a picture (JPEG)",
    b"GIF8": "a picture (GIF)",
    b"\xd0\xcf\x11\xe0": "an Office document",
    b"\x7fELF": "a program",
    b"MZ\x90": "a program",
    b"SQLite format 3": "a database",
    b"version https://git-lfs": "a pointer of Git LFS, and not the file that it points to",
}
"""What a file is by its first bytes, whatever it is called."""
BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Marks at the beginning of a text that name its encoding. That of UTF-32 begins with one of UTF-16."""
COOKIE: Final = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]{1,40})")
CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
SURROGATES: Final = re.compile("[\ud800-\udfff]")
SPACE: Final = re.compile(r"[ \t\n\r]*")
SCALAR: Final = re.compile(r"[-+.\w]+")
MARK: Final = re.compile(r'["\[\]{}]')


def kind_of_bytes(data: bytes) -> str | None:
    """What a file is by its first bytes, where it is a kind that is known; it begins with an article."""
    return next((kind for mark, kind in SIGNATURES.items() if data.startswith(mark)), None)


def text_of(name: str, data: bytes) -> str:
    """The text of a file called `name` that can be graded, with "\\n" at the end of its lines.

    A notebook comes back as a notebook of format 4 that has its code cells and nothing else, whatever its format was.
    Unreadable, with a sentence for people, where it is none.
    """
    if not data.strip():
        raise Unreadable("is empty; perhaps the upload was cut off: hand it in again")
    wanted = "a notebook" if ending(name) == NOTEBOOK else "Python"
    if (kind := kind_of_bytes(data)) is not None:
        raise Unreadable(f"is {kind}, and not {wanted}, whatever it is called; hand in the file itself")
    text = decoded(data)
    if text.lstrip()[:200].lower().startswith(("<!doctype", "<html", "<?xml", "<head", "<body")):
        raise Unreadable(f"is a web page, and not {wanted}: perhaps the page of a login was saved in its place")
    if ending(name) == NOTEBOOK:
        cells = [_clean(cell) for cell in _code_cells(text)]
        _not_too_long(sum(map(len, cells)))
        return json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": cell} for cell in cells]})
    _not_too_long(len(text))
    return _clean(text)


def decoded(data: bytes) -> str:
    """Bytes as text: by the mark at their beginning, in UTF-8 or UTF-16, as their first lines say, else as Windows-1252
    or Latin-1. Unreadable where they are no text."""
    for mark, encoding in BOMS:
        if data.startswith(mark):
            return _decoded_as(encoding, data[len(mark) :])
    if b"\0" in data[:2000]:
        # JSON and Python begin with ASCII, of which every other byte is 0 in UTF-16.
        begin = data[:2000]
        halves = begin[::2].count(0), begin[1::2].count(0)
        if max(halves) < len(begin) // 4 or min(halves) > len(begin) // 8:
            raise Unreadable("is binary, and no text")
        return _decoded_as("utf-16-be" if halves[0] > halves[1] else "utf-16-le", data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = _decoded_otherwise(data)
    if CONTROLS.search(text):
        raise Unreadable("is binary, and no text: it has control characters")
    return text


def _decoded_as(encoding: str, data: bytes) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise Unreadable(f"begins as text in {encoding.upper()}, and is none: {error.reason}") from None


def _decoded_otherwise(data: bytes) -> str:
    """Text that is not in UTF-8."""
    lines = data.split(b"\n", 2)[:2]
    told = next((found[1].decode("ascii", "replace") for line in lines if (found := COOKIE.match(line))), "cp1252")
    for encoding in (told, "cp1252"):
        try:
            return data.decode(encoding)
        except (LookupError, ValueError):
            continue
    return data.decode("latin-1")


def _clean(text: str) -> str:
    return SURROGATES.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def _not_too_long(length: int) -> None:
    if length > MOST_CODE:
        raise Unreadable(f"has {length:,} characters of code; at most {MOST_CODE:,} are read")


# -- notebooks --------------------------------------------------------------------------------------------------


def _code_cells(text: str) -> list[str]:
    """The sources of a notebook's code cells: of format 4, or 3, which has them in worksheets and calls them input.

    Of a key that is there twice the last counts, as in all that read JSON.
    """
    data = _Json(text)
    cells: list[str] | None = None
    for key in data.fields("a notebook"):
        if key == "cells":
            cells = _sources(data)
        elif key == "worksheets":
            cells = []
            for _ in data.items():
                for inner in data.fields("a worksheet"):
                    if inner == "cells":
                        cells += _sources(data)
                    else:
                        data.skip()
        else:
            data.skip()
    data.end()
    if cells is None:
        raise Unreadable("is JSON, and no notebook: it has no cells")
    if not any(cell.strip() for cell in cells):
        raise Unreadable("is a notebook without code: nothing in it can be graded")
    return cells


def _sources(data: _Json) -> list[str]:
    found: list[str] = []
    for _ in data.items():
        kind: object = None
        source: object = ""
        for key in data.fields("a cell"):
            if key == "cell_type":
                kind = data.value()
            elif key in ("source", "input"):
                source = data.value()
            else:
                data.skip()
        if kind == "code":
            found.append(_joined(source))
    return found


def _joined(source: object) -> str:
    lines = cast("list[object]", source) if isinstance(source, list) else [source]
    if not all(isinstance(line, str) for line in lines):
        raise Unreadable("is a damaged notebook: the source of a cell is neither text nor lines of text")
    return "".join(cast("list[str]", lines))


class _Json:
    """JSON that is read from left to right: `at` is where we are. Each key or item that it gives is to be followed by
    `value`, `skip`, `fields` or `items`, which go on after it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def fields(self, what: str) -> Iterator[str]:
        """The keys of an object."""
        if self._next() != "{":
            raise Unreadable(f"is no notebook: where {what} should be, there is none")
        self._at += 1
        if self._next() == "}":
            self._at += 1
            return
        while True:
            if self._next() != '"':
                self._damaged()
            key = self._string()
            self._take(":")
            yield key
            if self._comma_or("}"):
                return

    def items(self) -> Iterator[None]:
        """Gives None for each item of a list."""
        if self._next() != "[":
            raise Unreadable("is no notebook: where its cells should be, there is no list")
        self._at += 1
        if self._next() == "]":
            self._at += 1
            return
        while True:
            yield
            if self._comma_or("]"):
                return

    def value(self) -> object:
        """The value here, with all that is in it."""
        self._next()
        start = self._at
        self.skip()
        _not_too_long(self._at - start)
        try:
            return json.loads(self._text[start : self._at], strict=False)
        except (ValueError, RecursionError):
            self._at = start
            self._damaged()

    def skip(self) -> None:
        """Goes on after the value here, however deep it is."""
        if self._next() == '"':
            self._string()
        elif self._text[self._at] in "[{":
            depth = 0
            while True:
                found = MARK.search(self._text, self._at)
                if found is None:
                    self._at = len(self._text)
                    self._damaged()
                self._at = found.start()
                if found[0] == '"':
                    self._string()
                    continue
                self._at += 1
                depth += 1 if found[0] in "[{" else -1
                if depth == 0:
                    return
        elif found := SCALAR.match(self._text, self._at):
            self._at = found.end()
        else:
            self._damaged()

    def end(self) -> None:
        """Nothing but space is left."""
        self._at = cast("re.Match[str]", SPACE.match(self._text, self._at)).end()
        if self._at < len(self._text):
            self._damaged()

    def _next(self) -> str:
        """The next character that is no space."""
        self._at = cast("re.Match[str]", SPACE.match(self._text, self._at)).end()
        if self._at >= len(self._text):
            self._damaged()
        return self._text[self._at]

    def _take(self, char: str) -> None:
        if self._next() != char:
            self._damaged()
        self._at += 1

    def _comma_or(self, close: str) -> bool:
        """Goes on after a comma, or after what closes, and says whether it was that."""
        char = self._next()
        if char not in (",", close):
            self._damaged()
        self._at += 1
        return char == close

    def _string(self) -> str:
        try:
            found, self._at = cast("tuple[str, int]", scanstring(self._text, self._at + 1, False))
        except ValueError as error:
            self._at = getattr(error, "pos", self._at)
            if "Unterminated" in str(error):
                self._at = len(self._text)
            self._damaged()
        return found

    def _damaged(self) -> NoReturn:
        if self._at >= len(self._text):
            raise Unreadable(
                f"is cut off: it ends after {len(self._text):,} characters, in the middle of the notebook; "
                "perhaps the upload was: hand it in again"
            )
        line = self._text.count("\n", 0, self._at) + 1
        raise Unreadable(
            f"is no notebook, or a damaged one: line {line} is not the JSON that it should be; "
            "open it in Jupyter, save it, and hand it in again"
        )
