"""Tables that people and platforms write: CSV of any dialect and encoding. A damaged row costs that row alone."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

__all__ = ["Row", "Table", "TableError", "moment", "neutral", "plain", "read_table"]

MOST_BYTES: Final = 20_000_000
MOST_LINES: Final = 200
"""Lines of one row: an open quotation mark takes no more with it."""
DELIMITERS: Final = ",;\t"
CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
FORMULA: Final = ("=", "+", "-", "@", "|", "%")
"""How a cell begins that a spreadsheet might work out."""
HARMLESS: Final = re.compile(r"-|[+-]?\d+(?:[.,]\d+)?%?")
"""What begins so and is none: a number, and the dash that platforms write where there is nothing."""

MOMENTS: Final = (
    "%A, %d %B %Y, %I:%M %p",
    "%A, %d %B %Y, %H:%M",
    "%d %B %Y, %I:%M %p",
    "%d %B %Y, %H:%M",
    "%Y-%m-%d-%H-%M-%S",
    "%Y-%m-%d-%H-%M",
)
"""How platforms write a time, besides ISO 8601: Moodle's worksheet in English, and names of files."""


class TableError(ValueError):
    """A file from which no table can be read. Says which, what was expected and how to mend it."""


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row by their headings, and the line of the file on which it begins."""

    line: int
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """The headings of a table, its rows, and in words what of it could not be read, with the line."""

    name: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    problems: tuple[str, ...] = ()


def neutral(text: str) -> str:
    """A cell of one line that no spreadsheet takes for a formula."""
    text = CONTROLS.sub(" ", text).strip()
    return f"'{text}" if text.startswith(FORMULA) and not HARMLESS.fullmatch(text) else text


def plain(text: str) -> str:
    """The text of which `neutral` made this."""
    return text[1:] if text.startswith("'") and text[1:].startswith(FORMULA) else text


def moment(text: str) -> datetime | None:
    """A time, by the clock on the wall of who wrote it; None for what is none."""
    text = text.strip()
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        pass
    for form in MOMENTS:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return None


def read_table(path: Path) -> Table:
    """Reads a table whose first row has headings. TableError where there is none; OSError where there is no file."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise TableError(f"{path.name} has more than {MOST_BYTES // 1_000_000} MB: that is no table of a class")
    if data.startswith(b"PK\3\4"):
        raise TableError(f"{path.name} is a workbook (.xlsx)\n  fix: save it as CSV, in UTF-8 if you are asked")
    text, problems = _decoded(path.name, data)
    lines = list(io.StringIO(text, newline=""))
    first = next((line for line in lines if line.strip()), "")
    delimiter = max(DELIMITERS, key=first.count)
    found = _records(path.name, lines, delimiter, problems)
    _, headings = next(found, (0, list[str]()))
    names = tuple(_distinct(CONTROLS.sub(" ", plain(cell)).strip() for cell in headings))
    if len(names) < 2:
        raise TableError(f"{path.name} has no headings\n  expected: a first row such as id,name\n  got: {first[:60]!r}")
    rows: list[Row] = []
    for line, cells in found:
        if len(cells) > len(names) and any(cell.strip() for cell in cells[len(names) :]):
            problems.append(
                f"{path.name}, line {line}: has {len(cells)} cells under {len(names)} headings; what is behind the "
                "last heading is not used\n  fix: put quotation marks around a cell that has a comma in it"
            )
        padded = [*cells, *[""] * (len(names) - len(cells))]
        rows.append(Row(line, {name: plain(cell.strip()) for name, cell in zip(names, padded, strict=False)}))
    return Table(path.name, names, tuple(rows), tuple(problems))


def _decoded(name: str, data: bytes) -> tuple[str, list[str]]:
    """The text of a file, and what is to be said of its encoding."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # what Excel calls Unicode text
        return data.decode("utf-16", "replace"), []
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        where = f"{name}, line {line}: is not UTF-8 and is read as Windows-1252; look at the letters with accents"
        return data.decode("cp1252", "replace"), [f"{where}\n  fix: save the file as CSV UTF-8"]


def _records(name: str, lines: list[str], delimiter: str, problems: list[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows with the lines on which they begin. A line that is none is named, and the next one is read."""
    at = 0
    while at < len(lines):
        reader = csv.reader(lines[at : at + MOST_LINES], delimiter=delimiter, strict=True)
        try:
            cells = next(reader)
        except csv.Error as error:
            problems.append(
                f"{name}, line {at + 1}: is not used: {error}\n  got: {lines[at].strip()[:60]!r}\n"
                "  fix: a cell that begins with a quotation mark ends with one, and those inside it are doubled"
            )
            at += 1
            continue
        if any(cell.strip() for cell in cells):
            yield at + 1, cells
        at += reader.line_num


def _distinct(names: Iterator[str]) -> Iterator[str]:
    """Headings of which no two are alike: the second `Name` is `Name (2)`."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"
