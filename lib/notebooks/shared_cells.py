"""Cells that all notebooks share: written once in solutions/parts/, and put where a source asks for them.

    # %% [markdown]
    # <!-- part: hints -->

in solutions/NN_name.py stands for the cells of solutions/parts/hints.py, in which `$id`, `$ranks` and the other words
of this module are filled in for that notebook.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path
from string import Template

from lib.puzzles.records import PUZZLES, Puzzle
from lib.submissions.gap import BuildError

__all__ = ["FRONT", "Address", "expand", "links_to"]

FRONT = {"index": "Map of the puzzles", "introduction": "Introduction"}
"""The notebooks before the puzzles, all numbered 00, and how links call them."""

PART = re.compile(r"^# %% \[markdown\]\n# <!-- part: (\w+) -->\n?$", re.MULTILINE)
NEARLY = re.compile(r"<!--\s*part\b.*", re.IGNORECASE)
PACKAGE = "llm-training-puzzles"
EVERYWHERE = frozenset({"pillow", "importlib-metadata", "toolz", "typing-extensions", "zipp"})
"""What other packages of an environment need too: whatever version is there stays."""


def expand(text: str, stem: str, root: Path) -> str:
    """A source with its parts put in. `root` holds solutions/ and, for versions, pyproject.toml and constraints.txt.

    Raises BuildError for a part that does not exist, or that asks for a word that there is not.
    """
    notebook = _Notebook(stem, root)
    whole = PART.sub(lambda found: notebook.part(found[1]), text)
    if left := NEARLY.search(whole):
        raise BuildError(f"{stem}.py: {left[0]!r} is not a part: a cell with nothing but `<!-- part: name -->`")
    return whole


def links_to(stem: str, label: str) -> str:
    """A Markdown link to another notebook of the folder."""
    return f"[{label}]({stem}.ipynb)"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the project is published, as pyproject.toml says: nothing here knows it otherwise."""

    version: str
    repository: str | None
    branch: str

    @classmethod
    def read(cls, root: Path) -> Address:
        """From `[project]`: its version, `urls.Repository` and, under `[tool.puzzles]`, `branch` (else main)."""
        data = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
        urls: dict[str, str] = data["project"].get("urls", {})
        repository = urls.get("Repository")
        branch = data.get("tool", {}).get("puzzles", {}).get("branch", "main")
        return cls(data["project"]["version"], repository and repository.rstrip("/").removesuffix(".git"), branch)

    def badge(self, stem: str) -> str:
        """The badge that opens a notebook in Colab; empty where the project is not on GitHub."""
        found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", self.repository or "")
        if found is None:
            return ""
        colab = "https://colab.research.google.com"
        page = f"{colab}/github/{found[1]}/blob/{self.branch}/puzzles/{stem}.ipynb"
        return f"[![Open in Colab]({colab}/assets/colab-badge.svg)]({page})"

    def requirement(self) -> str:
        """What pip installs: the tag of this version where there is a repository, else the release of this version."""
        if self.repository is None:
            return f"{PACKAGE}=={self.version}"
        return f"{PACKAGE}@git+{self.repository}@v{self.version}"


def pinned(root: Path) -> list[str]:
    """The packages that only the drawings need, in the versions of constraints.txt."""
    lines = (root / "constraints.txt").read_text("utf-8").splitlines()
    versions = {_plain(name): line for line in lines if (name := line.partition("==")[0]) and "==" in line}
    needed, waiting = set[str](), ["chalk-diagrams"]
    while waiting:
        name = waiting.pop()
        if name not in needed and name not in EVERYWHERE:
            needed.add(name)
            waiting += [_plain(line) for line in requires(name) or () if ";" not in line]  # the same on every system
    return [versions[name] for name in sorted(needed)]


def _plain(requirement: str) -> str:
    """The name in a requirement, as indexes spell it."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""


class _Notebook:
    """One notebook for which parts are filled in. A word is worked out when a part asks for it."""

    def __init__(self, stem: str, root: Path) -> None:
        self.stem = stem
        self.root = root
        self.words: dict[str, Callable[[], str]] = {
            "id": lambda: self.puzzle.id,
            "title": lambda: self.puzzle.title,
            "ranks": lambda: str(self.puzzle.ranks),
            "navigation": self.navigation,
            "heading": lambda: " · ".join(filter(None, (self.navigation(), Address.read(root).badge(stem)))),
            "requirements": lambda: " ".join([Address.read(root).requirement(), *pinned(root)]),
            "table": self.table,
        }

    @property
    def puzzle(self) -> Puzzle:
        """Its record. BuildError for a notebook without one."""
        for puzzle in PUZZLES.values():
            if puzzle.stem == self.stem:
                return puzzle
        raise BuildError(f"{self.stem}.py: this part speaks of a puzzle, and this notebook has none")

    def part(self, name: str) -> str:
        """The cells of a part, filled in."""
        path = self.root / "solutions" / "parts" / f"{name}.py"
        if not path.is_file():
            there = ", ".join(sorted(p.stem for p in path.parent.glob("*.py"))) or "none"
            raise BuildError(f"{self.stem}.py: there is no part {name!r}; the parts are {there}")
        template = Template(path.read_text("utf-8"))
        unknown = sorted(set(template.get_identifiers()) - self.words.keys())
        if unknown or not template.is_valid():
            what = ", ".join(f"${word}" for word in unknown) or "a single $"
            raise BuildError(f"parts/{name}.py has {what}; its words are ${', $'.join(self.words)}")
        return template.substitute({word: self.words[word]() for word in template.get_identifiers()})

    def navigation(self) -> str:
        """Links to the notebooks before and after this one, and to the map."""
        names = {f"00_{name}": label for name, label in FRONT.items()}
        names |= {puzzle.stem: f"{puzzle.number + 1}. {puzzle.title}" for puzzle in PUZZLES.values()}
        stems = list(names)
        here = stems.index(self.stem)
        links = [f"← {links_to(stems[here - 1], names[stems[here - 1]])}"] if here > 1 else []
        links += [links_to(stems[0], names[stems[0]])] if here else []
        links += [f"{links_to(stems[here + 1], names[stems[here + 1]])} →"] if here + 1 < len(stems) else []
        return " · ".join(links)

    def table(self) -> str:
        """Every puzzle as a row of a Markdown table: a link, what it teaches, and what to solve before."""
        rows = ["| puzzle | what it is about | solve first |", "|---|---|---|"]
        for puzzle in PUZZLES.values():
            needs = [PUZZLES[need] for need in puzzle.needs]
            before = ", ".join(links_to(need.stem, str(need.number + 1)) for need in needs)
            first = before or links_to("00_introduction", FRONT["introduction"])
            link = links_to(puzzle.stem, f"{puzzle.number + 1}. {puzzle.title}")
            rows.append(f"| {link} | {puzzle.teaches} | {first} |")
        return "\n# ".join(rows)
