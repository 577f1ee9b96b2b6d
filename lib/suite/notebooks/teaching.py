"""TEACHING.md: what of it follows from the records, and the estimate that the minutes of a record are held to.

Between `<!-- puzzles -->` or `<!-- questions -->` and `<!-- end -->` stands what is made here, and elsewhere two forms
of words are kept current: "`ddp` (40 min)", and in a cell of a table "90 min together", for the puzzles of that cell.
"""

from __future__ import annotations

import re

from lib.puzzles.records import PUZZLES, by_chapter

__all__ = ["AROUND", "A_LINE", "A_MINUTE", "LISTEN", "ROUND", "estimate", "near", "page", "words"]

A_MINUTE = 150
"""Words that are read in a minute, of a text to think about."""
A_LINE = 1.5
"""Minutes for a line of the answer: to have the idea, write it, run it, and read what came of it."""
AROUND = 10
"""Minutes for what each notebook asks besides: predict, look at the pictures, check, review."""
ROUND = 5
"""Minutes are multiples of this; nobody knows them better."""
NEAR = 0.25
"""How far from the estimate a record may be, as a part of it: some lines take more thought than others."""
LISTEN = "*Listen for:*"

CELL = "# %%"
TEXT = "# %% [markdown]"
MARKED = re.compile(r"(<!-- (puzzles|questions) -->\n).*?(<!-- end -->)", re.DOTALL)
ONE = re.compile(r"`(\w+)` \(\d+ min\)")
TOGETHER = re.compile(r"\d+ min together")
NAME = re.compile(r"`(\w+)`")


def words(source: str) -> int:
    """The words in the text of a solutions/NN_name.py, folded answers and all. Code is not counted, nor are the cells
    that all notebooks share."""
    read, found = False, 0
    for line in source.splitlines():
        if line.startswith(CELL):
            read = line.startswith(TEXT)
        elif read:
            found += len(line.removeprefix("#").split())
    return found


def estimate(read: int, lines: int) -> float:
    """How many minutes a notebook takes that has so many words to read, and so many lines to write."""
    return AROUND + read / A_MINUTE + A_LINE * lines


def near(minutes: int, estimated: float) -> bool:
    """Whether the minutes of a record are what may be said of such an estimate."""
    return minutes % ROUND == 0 and abs(minutes - estimated) <= NEAR * estimated


def page(text: str) -> str:
    """TEACHING.md with its tables, its questions and its minutes as the records have them."""
    made = {"puzzles": _table, "questions": _questions}
    text = MARKED.sub(lambda found: found[1] + made[found[2]]() + found[3], text)
    lines = [_summed(line) if line.startswith("|") else line for line in ONE.sub(_minutes, text).split("\n")]
    return "\n".join(lines)


def _minutes(found: re.Match[str]) -> str:
    """One puzzle with its minutes; anything else in such brackets stays as it is."""
    return f"`{found[1]}` ({PUZZLES[found[1]].minutes} min)" if found[1] in PUZZLES else found[0]


def _summed(row: str) -> str:
    return "|".join(TOGETHER.sub(f"{_together(cell)} min together", cell) for cell in row.split("|"))


def _together(cell: str) -> int:
    """The minutes of all puzzles that a cell names."""
    return sum(PUZZLES[name].minutes for name in NAME.findall(cell) if name in PUZZLES)


def _table() -> str:
    """A row for each puzzle, and above those of each chapter its title and its minutes."""
    rows = ["| | puzzle | minutes | what it teaches | solve first |", "|---|---|---|---|---|"]
    for chapter, puzzles in by_chapter():
        together = sum(puzzle.minutes for puzzle in puzzles)
        rows.append(f"| | **{chapter.title}** | **{together}** | | |")
        for puzzle in puzzles:
            first = ", ".join(f"`{need}`" for need in puzzle.needs) or "introduction"
            rows.append(f"| {puzzle.number} | `{puzzle.id}` | {puzzle.minutes} | {puzzle.teaches} | {first} |")
    return "\n".join(rows) + "\n"


def _questions() -> str:
    """The questions of each puzzle, by chapter."""
    lines: list[str] = []
    for chapter, puzzles in by_chapter():
        lines += [f"### {chapter.title}", ""]
        for puzzle in puzzles:
            lines += [f"**{puzzle.heading}** (`{puzzle.id}`). {puzzle.discuss}", ""]
    return "\n".join(lines)
