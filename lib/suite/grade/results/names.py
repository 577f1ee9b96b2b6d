"""Names of files for students of any name: safe on every system, the same every time, and no two alike."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

__all__ = ["file_names", "is_ours"]

LONGEST = 40
"""Letters of a name that a person can recognise; the digest behind it tells names apart."""
DIGITS = 8


def file_names(students: Sequence[str]) -> list[str]:
    """The name of the file of each student, without its ending: "anna-schmidt-1f0c2d3e".

    It follows from the student's name alone, whoever else is in the class: only where two digests begin alike they are
    longer. Letters are a-z, so nothing depends on capitals, on the system's alphabet, or on names that it keeps for
    itself. Two rows of one name are numbered in their order.
    """
    digests = [sha256(name.encode("utf-8", "surrogatepass")).hexdigest() for name in students]
    short = Counter(digest[:DIGITS] for digest in dict.fromkeys(digests))
    seen = Counter[str]()
    found: list[str] = []
    for name, digest in zip(students, digests, strict=True):
        seen[digest] += 1
        again = f"-{seen[digest]}" if seen[digest] > 1 else ""
        kept = digest[:DIGITS] if short[digest[:DIGITS]] == 1 else digest
        found.append(f"{_plain(name)}-{kept}{again}")
    return found


def is_ours(stem: str) -> bool:
    """Whether a file was called so by `file_names`."""
    return re.fullmatch(rf"[a-z0-9-]+-([0-9a-f]{{{DIGITS}}}|[0-9a-f]{{64}})(-\d+)?", stem) is not None


def _plain(name: str) -> str:
    """What is left of a name in a-z and 0-9."""
    letters = unicodedata.normalize("NFKD", name[: 10 * LONGEST].casefold()).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")[:LONGEST].strip("-") or "student"
