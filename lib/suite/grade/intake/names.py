"""Names that others gave: how they are shown, which puzzle they speak of, what is a copy, what computers made."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Final, NamedTuple

from lib.puzzles.records import PUZZLES

__all__ = ["NOTEBOOK", "PYTHON", "Stem", "ending", "is_gradable", "is_junk", "listed_names", "readable", "stem_of"]

NOTEBOOK: Final = ".ipynb"
PYTHON: Final = ".py"
LONGEST: Final = 120
"""Characters of a name that are shown."""
LONGEST_STEM: Final = 300
"""Characters of a name in which a puzzle is looked for: what compares patterns takes long with what is made for it."""
MOST_NAMES: Final = 20
"""Names that a sentence lists."""
JOINERS: Final = frozenset("\u200c\u200d") | frozenset(map(chr, range(0xE0020, 0xE0080)))
"""Invisible characters without which Persian, and some emoji, are not what they are."""
MADE_BY_COMPUTERS: Final = frozenset(
    {"__MACOSX", "__pycache__", "node_modules", "site-packages", "Thumbs.db", "desktop.ini", "Icon\r"}
)
"""Files and folders that nobody wrote; so is what begins with a dot (.git, .ipynb_checkpoints, ._x) or with ~$."""
COPY: Final = re.compile(
    r"(?P<of>.+?)(?:[ _-]*\((?P<number>\d{1,4})\)|-(?P<dash>\d{1,4})|[ _-]+(?:copy|kopie|copie|copia)\d*(?: \d+)?)",
    re.IGNORECASE | re.DOTALL,
)
"""What browsers, systems, Jupyter and platforms make of a name that is taken: `x (1)`, `x-2`, `x - Copy`, `x-Copy1`."""


class Stem(NamedTuple):
    """A file's name without its ending, taken apart: the `puzzle` that it is called after, if any, the `rest` of it,
    and which `copy` it is: 0 where nothing says that it is one."""

    puzzle: str | None
    rest: str
    copy: int = 0


def readable(name: str) -> str:
    """A name as it is shown everywhere: one line, no control characters, nothing that turns the direction of writing,
    not too long, and encodable; a long one ends in a digest, so that two of them differ."""
    text = "".join(char if _is_shown(char) else "\ufffd" for char in unicodedata.normalize("NFC", name)).strip()
    if len(text) > LONGEST:
        digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        return f"{text[: LONGEST - 8]}… {digest}"
    return text or "(no name)"


def _is_shown(char: str) -> bool:
    return char in JOINERS or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def listed_names(names: Sequence[str]) -> str:
    """Names in a sentence, of very many their beginning: "a, b and 3 more"."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def ending(name: str) -> str:
    """The ending of a file's name in small letters, with its dot; "" where it has none."""
    before, dot, after = name.rpartition(".")
    return f".{after.lower()}" if before and dot and len(after) <= 10 else ""


def is_gradable(name: str) -> bool:
    """Whether a file of that name can be graded: a notebook or Python."""
    return ending(name) in (NOTEBOOK, PYTHON)


def is_junk(name: str) -> bool:
    """Whether a file or folder of that name was made by a computer for itself."""
    return name in MADE_BY_COMPUTERS or name.startswith((".", "~$"))


def stem_of(name: str) -> Stem:
    """Takes a file's name apart: "05_fsdp_ann-2.ipynb" is puzzle fsdp, rest "ann", copy 2."""
    stem = name[: len(name) - len(ending(name))]
    if len(stem) > LONGEST_STEM:
        return Stem(None, stem)
    puzzle, rest = _puzzle_in(stem)
    if puzzle is not None and not rest:
        return Stem(puzzle, "")
    if copied := COPY.fullmatch(stem):
        puzzle, rest = _puzzle_in(copied["of"])
        return Stem(puzzle, rest, int(copied["number"] or copied["dash"] or 1))
    return Stem(puzzle, rest)


def _puzzle_in(stem: str) -> tuple[str | None, str]:
    """The puzzle that a name begins or ends with, and what else there is of the name."""
    before, after = _patterns()
    if found := before.fullmatch(stem) or after.fullmatch(stem):
        return found["puzzle"].lower(), (found["rest"] or "").strip(" _-.")
    return None, stem


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The name of a puzzle, with its number or without, at the beginning of a name and at its end."""
    ids = "|".join(sorted(PUZZLES, key=lambda puzzle: (-len(puzzle), puzzle)))
    puzzle = rf"(?:\d{{1,3}}[_ -])?(?P<puzzle>{ids})"
    flags = re.IGNORECASE | re.DOTALL
    return re.compile(rf"{puzzle}(?P<rest>[ _.-].*)?", flags), re.compile(rf"(?P<rest>.*[ _.-]){puzzle}", flags)
