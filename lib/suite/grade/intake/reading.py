"""The text of a file that was handed in: from bytes in any encoding, and of a notebook its code without what came out.

What is not code of a large notebook is passed over, string by string, and never held: one with 20 MB of pictures costs
little more memory than its bytes and its text, and neither does one that was made to be expensive.
"""

from __future__ import annotations

import codecs
import json
import re
from json.decoder import scanstring  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
from typing import Final, cast

from lib.suite.grade.intake.archives import Unreadable
from lib.suite.grade.intake.owners import NOTEBOOK, ending
from lib.suite.submissions.statements import without_package

__all__ = ["MOST_BYTES", "decoded", "text_of"]

MOST_BYTES: Final = 20_000_000
"""Bytes of a file that is read."""
MOST_CODE: Final = 2**20
"""Characters of code in one file, without the package that a notebook for Colab brings: more than any person writes."""
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
SMALL: Final = 2**20
"""Characters of a notebook that is read as it is."""
MOST_PARTS: Final = 200_000
"""Values in a notebook without its outputs: what is made of each takes twenty times its place in the file."""
MOST_MARKS: Final = 3_000_000
"""Brackets and quotation marks in a notebook that is read: each takes a moment."""
DROPPED: Final = ("outputs", "metadata", "attachments")
"""The parts of a notebook that may be large and are no code."""
MARK: Final = re.compile(r'["\[\]{}]')
COLON: Final = re.compile(r"[ \t\n\r]*:")
SCALAR: Final = re.compile(r"[ \t\n\r]*[-+.\w]+")


def kind_of_bytes(data: bytes) -> str | None:
    """Return what a file is by its first bytes, where it is a kind that is known; it begins with an article."""
    return next((kind for mark, kind in SIGNATURES.items() if data.startswith(mark)), None)


def text_of(name: str, data: bytes) -> str:
    """The text of a file called `name` that can be graded, with "\\n" at the end of its lines.

    A notebook comes back as a notebook of format 4 that has its code cells and nothing else, whatever its format was.
    Unreadable, with a sentence for people, where it is none.
    """
    if not data.strip():
        raise Unreadable("is empty; perhaps the upload was cut off: hand it in again", "empty")
    wanted = "a notebook" if ending(name) == NOTEBOOK else "Python"
    if (kind := kind_of_bytes(data)) is not None:
        raise Unreadable(f"is {kind}, and not {wanted}, whatever it is called; hand in the file itself")
    text = decoded(data)
    if text.lstrip()[:200].lower().startswith(("<!doctype", "<html", "<?xml", "<head", "<body")):
        raise Unreadable(f"is a web page, and not {wanted}: perhaps the page of a login was saved in its place")
    if ending(name) == NOTEBOOK:
        cells = [without_package(_clean(cell)) for cell in _code_cells(text)]
        _not_too_long(sum(map(len, cells)))
        return json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": cell} for cell in cells]})
    text = without_package(_clean(text))
    _not_too_long(len(text))
    return text


def decoded(data: bytes) -> str:
    """Bytes as text: by the mark at their beginning, in UTF-8 or UTF-16, as their first lines say, else as Windows-1252
    or Latin-1. Unreadable where they are no text."""
    text = _as_text(data)
    if CONTROLS.search(text):
        raise Unreadable("is binary, and no text: it has control characters")
    return text


def _as_text(data: bytes) -> str:
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
    lines = data.split(b"\n", 2)[:2]
    told = next((found[1].decode("ascii", "replace") for line in lines if (found := COOKIE.match(line))), "cp1252")
    for encoding in ("utf-8", told, "cp1252"):
        try:
            return data.decode(encoding)
        except (LookupError, ValueError):
            continue
    return data.decode("latin-1")


def _decoded_as(encoding: str, data: bytes) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise Unreadable(f"begins as text in {encoding.upper()}, and is none: {error.reason}") from None


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
    if len(text) > SMALL or _parts(text) > MOST_PARTS:
        if (marks := sum(map(text.count, '[{"'))) > MOST_MARKS:
            raise Unreadable(f"has {marks:,} brackets and strings; clear its outputs, and hand it in again")
        text = _slim(text)
        if (parts := _parts(text)) > MOST_PARTS:
            raise Unreadable(
                f"has {parts:,} parts besides its outputs, as no notebook has; at most {MOST_PARTS:,} are read"
            )
    try:
        data: object = json.loads(text, strict=False)
    except RecursionError:
        raise Unreadable("is no notebook: it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _damaged(text, error.pos, error.msg) from None
    except ValueError as error:  # such as a number of 5,000 digits
        raise Unreadable(f"is no notebook, or a damaged one: {str(error).partition(';')[0][:100]}") from None
    if not isinstance(data, dict):
        raise Unreadable("is JSON, and no notebook: it is no object with cells")
    notebook = cast("dict[str, object]", data)
    sheets = [notebook] if "cells" in notebook else notebook.get("worksheets")
    cells = [cell for sheet in _objects(sheets) for cell in _objects(sheet.get("cells"))]
    code = [_joined(cell) for cell in cells if cell.get("cell_type") == "code"]
    if not any(source.strip() for source in code):
        raise Unreadable("is a notebook without code: nothing in it can be graded", "empty")
    return code


def _objects(found: object) -> list[dict[str, object]]:
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in cast("list[object]", found)):
        raise Unreadable("is JSON, and no notebook: it has no list of cells")
    return cast("list[dict[str, object]]", found)


def _joined(cell: dict[str, object]) -> str:
    source = cell.get("source", cell.get("input", ""))
    lines = cast("list[object]", source) if isinstance(source, list) else [source]
    if not all(isinstance(line, str) for line in lines):
        raise Unreadable("is a damaged notebook: the source of a cell is neither text nor lines of text")
    return "".join(cast("list[str]", lines))


def _parts(text: str) -> int:
    """Return how many values JSON may have at most: each begins with a bracket, or comes after a comma."""
    return sum(map(text.count, "[{,"))


def _slim(text: str) -> str:
    """JSON with null for the values of DROPPED, read from left to right; no more of them is held than one string."""
    kept: list[str] = []
    start = at = 0
    while found := MARK.search(text, at):
        at = found.end()
        if found[0] != '"':
            continue
        word, at = _string(text, at)
        if word in DROPPED and (colon := COLON.match(text, at)):
            at = _after_value(text, colon.end())
            kept += text[start : colon.end()], "null"
            start = at
    return "".join((*kept, text[start:]))


def _after_value(text: str, at: int) -> int:
    """The place after the value that begins at a place, however deep it is."""
    depth = 0
    while found := MARK.search(text, at):
        if depth == 0 and (scalar := SCALAR.match(text, at)):
            return scalar.end()
        at = found.end()
        if found[0] == '"':
            _, at = _string(text, at)
        else:
            depth += 1 if found[0] in "[{" else -1
        if depth <= 0:
            return at
    raise _damaged(text, len(text), "it ends in the middle")


def _string(text: str, at: int) -> tuple[str, int]:
    """The string that begins after a quotation mark, and the place after it."""
    try:
        return cast("tuple[str, int]", scanstring(text, at, False))
    except json.JSONDecodeError as error:
        raise _damaged(text, error.pos, error.msg) from None


def _damaged(text: str, at: int, why: str) -> Unreadable:
    if at >= len(text.rstrip()) or why.startswith("Unterminated string"):
        return Unreadable("is cut off: it ends in the middle of the notebook; hand it in again")
    line = text.count("\n", 0, at) + 1
    what = f"is no notebook, or a damaged one: line {line} is not the JSON that it should be ({why})"
    return Unreadable(f"{what}; open it in Jupyter, save it, and hand it in again")
