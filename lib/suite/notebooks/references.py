"""References of the notebooks: each work stands once in docs/references.toml, and a source cites it by its key.

`[@zhao2023]`, or `[@zhao2023, table 2]`, becomes `[1]`; works are numbered in the order in which a notebook first cites
them, and `<!-- references -->` becomes their list.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lib.suite.submissions.gap import BuildError

FILE = "docs/references.toml"
CITATION = re.compile(r"\[@(?P<key>\w+)(?:, (?P<place>[^\]]+))?\]")
LIST = "# <!-- references -->"


@dataclass(frozen=True)
class Work:
    """A paper, a page, a pull request or a file that notebooks cite. `at` is what its link is called.

    `checked` says what was looked up in it, its title or a claim that we cite it for too; it is empty for a work that
    could not be opened, which its entry tells a reader.
    """

    authors: str
    title: str
    at: str
    url: str
    year: int | None = None
    checked: str = ""

    def __str__(self) -> str:
        """Write it as an entry of a list, in Markdown."""
        year = [str(self.year)] if self.year else []
        entry = ", ".join([self.authors, f"*{self.title}*", *year, f"[{self.at}]({self.url})"])
        return entry if self.checked else f"{entry} (not opened)"


@cache
def works(root: Path) -> dict[str, Work]:
    """Read all works by key. Raises BuildError for a work that lacks a field, or has one too many."""
    try:
        return {key: Work(**fields) for key, fields in tomllib.loads((root / FILE).read_text("utf-8")).items()}
    except (TypeError, tomllib.TOMLDecodeError) as error:
        raise BuildError(f"{FILE}: {error}") from error


def cited(text: str) -> list[str]:
    """Give the keys that a source cites, each once, in the order of first use."""
    return list(dict.fromkeys(match["key"] for match in CITATION.finditer(text)))


def with_references(text: str, name: str, root: Path) -> str:
    """Number the citations of a source, and put in the list of the works that it cites.

    Raises BuildError for a key that docs/references.toml lacks, and for citations without a list or a list without any.
    """
    keys = cited(text)
    if bool(keys) != (LIST in text.splitlines()):
        raise BuildError(f"{name}: a source with citations such as [@key] has one line {LIST!r}, and no other has it")
    if not keys:
        return text
    if unknown := [key for key in keys if key not in works(root)]:
        raise BuildError(f"{name} cites {', '.join(unknown)}, which {FILE} does not have")

    def number(match: re.Match[str]) -> str:
        place = f", {match['place']}" if match["place"] else ""
        return f"[{keys.index(match['key']) + 1}{place}]"

    # Markdown joins lines into a paragraph; two blanks at the end of one keep the next entry on a line of its own.
    entries = "  \n".join(f"# [{place}] {works(root)[key]}" for place, key in enumerate(keys, 1))
    return CITATION.sub(number, text).replace(LIST, entries)
