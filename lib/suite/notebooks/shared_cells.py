"""What follows from the records: cells that all notebooks share, and rows of docs/puzzles.md and TEACHING.md.

Shared cells are written once in solutions/parts/, and put where a source asks for them.

    # %% [markdown]
    # <!-- part: hints -->

in solutions/NN_name.py stands for the cells of solutions/parts/hints.py, in which `$id`, `$ranks` and the other words
of this module are filled in for that notebook. A source itself has the line `# # $heading` for its title, and
`$number_ddp` for the number of another puzzle.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from dataclasses import dataclass
from importlib.metadata import requires, version
from pathlib import Path
from string import Template

from lib.puzzles.records import PUZZLES, Puzzle, by_chapter, puzzle_of_file
from lib.suite.submissions.gap import BuildError

__all__ = [
    "AFTER",
    "AROUND",
    "A_LINE",
    "A_MINUTE",
    "FRONT",
    "LISTEN",
    "MARKED",
    "PAGES",
    "ROUND",
    "Address",
    "estimate",
    "expand",
    "links_to",
    "near",
    "pinned",
    "puzzles_page",
    "teaching",
    "words",
]

FRONT = {"index": "Map of the puzzles", "introduction": "Introduction"}
AFTER = {"pipelines": ("gallery", "The gallery of pipelines")}
"""Notebooks without a puzzle that come at the end of a chapter."""
PAGES = (*FRONT, *(name for name, _ in AFTER.values()))
"""All notebooks without a puzzle."""
"""The notebooks before the puzzles, all numbered 00, and how links call them."""

PART = re.compile(r"^# %% \[markdown\]\n# <!-- part: (\w+) -->\n?$", re.MULTILINE)
WORDS = ("id", "title", "heading", "ranks", "navigation", "top", "requirements", "table")
"""The words of parts."""
HEADING = re.compile(r"^# # \$heading$", re.MULTILINE)
NUMBER = re.compile(r"\$number_(\w+)")
TABLE_ROWS = re.compile(r"(?:^\|(?: (?!00)\d+ \|| \| \*\*).*\n)+", re.MULTILINE)
"""The rows of puzzles, and above those of each chapter its title."""
NEARLY = re.compile(r"<!--\s*part\b.*", re.IGNORECASE)
PACKAGE = "llm-training-puzzles"
EVERYWHERE = frozenset({"pillow", "importlib-metadata", "toolz", "typing-extensions", "zipp"})
"""What other packages of an environment need too: whatever version is there stays."""
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


def expand(text: str, stem: str, root: Path) -> str:
    """Put the parts of a source in. `root` holds solutions/ and, for versions, pyproject.toml and constraints.txt.

    Raises BuildError for a part that does not exist, or that asks for a word that there is not.
    """
    words = _Words(stem, root)
    whole = PART.sub(lambda found: words.part(found[1]), _numbered(text, words))
    if left := NEARLY.search(whole):
        raise BuildError(f"{stem}.py: {left[0]!r} is not a part: a cell with nothing but `<!-- part: name -->`")
    return whole


def _numbered(text: str, words: _Words) -> str:
    """A source with its heading, and with the numbers of the puzzles that it speaks of. Any other $ is its own."""

    def number(found: re.Match[str]) -> str:
        if found[1] not in PUZZLES:
            raise BuildError(f"{words.stem}.py: {found[0]} is the number of no puzzle; there are {', '.join(PUZZLES)}")
        return str(PUZZLES[found[1]].number)

    return NUMBER.sub(number, HEADING.sub(lambda _: f"# # {words.heading()}", text))


def links_to(stem: str, label: str) -> str:
    """Return a Markdown link to another notebook of the folder."""
    return f"[{label}]({stem}.ipynb)"


@dataclass(frozen=True, slots=True)
class Address:
    """The place where the project is published, as pyproject.toml says: nothing here knows it otherwise."""

    version: str
    repository: str | None
    branch: str
    released: bool

    @classmethod
    def read(cls, root: Path) -> Address:
        """From `[project]`: its version and `urls.Repository`; from `[tool.puzzles]`: `branch` (else main), and whether
        it is `released` on the package index (else not)."""
        data = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
        urls: dict[str, str] = data["project"].get("urls", {})
        repository = urls.get("Repository")
        ours = data.get("tool", {}).get("puzzles", {})
        repository = repository and repository.rstrip("/").removesuffix(".git")
        return cls(data["project"]["version"], repository, ours.get("branch", "main"), ours.get("released", False))

    def badge(self, stem: str) -> str:
        """The badge that opens a notebook in Colab; empty where the project is not on GitHub."""
        found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", self.repository or "")
        if found is None:
            return ""
        colab = "https://colab.research.google.com"
        page = f"{colab}/github/{found[1]}/blob/{self.branch}/puzzles/{stem}.ipynb"
        return f"[![Open in Colab]({colab}/assets/colab-badge.svg)]({page})"

    def requirement(self) -> str | None:
        """Return what pip installs: the tag of this version where there is a repository, else its release, where there
        are releases; None where pip can have it from nowhere."""
        if self.repository is not None:
            return f"{PACKAGE}@git+{self.repository}@v{self.version}"
        return f"{PACKAGE}=={self.version}" if self.released else None


def pinned(root: Path) -> list[str]:
    """Return the packages that only the drawings need, in the versions of constraints.txt, else in those here."""
    needed, waiting = set[str](), ["chalk-diagrams"]
    while waiting:
        name = waiting.pop()
        if name not in needed and name not in EVERYWHERE:
            needed.add(name)
            waiting += [_plain(line) for line in requires(name) or () if ";" not in line]  # the same on every system
    if not (root / "constraints.txt").is_file():  # an installed wheel
        return [f"{name}=={version(name)}" for name in sorted(needed)]
    lines = (root / "constraints.txt").read_text("utf-8").splitlines()
    versions = {_plain(name): line for line in lines if (name := line.partition("==")[0]) and "==" in line}
    return [versions[name] for name in sorted(needed)]


def _plain(requirement: str) -> str:
    """The name in a requirement, as indexes spell it."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""


class _Words:
    """The meaning that the words of parts and sources have in one notebook, each worked out when it is asked for."""

    def __init__(self, stem: str, root: Path) -> None:
        self.stem = stem
        self.root = root

    def fill(self, text: str, where: str) -> str:
        """A part with its words filled in."""
        template = Template(text)
        unknown = sorted(set(template.get_identifiers()) - set(WORDS))
        if unknown or not template.is_valid():
            what = ", ".join(f"${word}" for word in unknown) or "a single $"
            raise BuildError(f"{where} has {what}; its words are ${', $'.join(WORDS)}")
        return template.substitute({word: getattr(self, word)() for word in template.get_identifiers()})

    def part(self, name: str) -> str:
        """The cells of a part, filled in. While pip can have the package from nowhere the set-up does not ask it."""
        if name == "setup" and Address.read(self.root).requirement() is None:
            name = "setup_unpublished"
        path = self.root / "solutions" / "parts" / f"{name}.py"
        if not path.is_file():
            there = ", ".join(sorted(p.stem for p in path.parent.glob("*.py"))) or "none"
            raise BuildError(f"{self.stem}.py: there is no part {name!r}; the parts are {there}")
        return self.fill(path.read_text("utf-8"), f"parts/{name}.py")

    @property
    def puzzle(self) -> Puzzle:
        """Its record. BuildError for a notebook without one."""
        found = puzzle_of_file(self.stem)
        if found is None:
            raise BuildError(f"{self.stem}.py: this part speaks of a puzzle, and this notebook has none")
        return found

    def id(self) -> str:
        return self.puzzle.id

    def title(self) -> str:
        return self.puzzle.title

    def heading(self) -> str:
        return self.puzzle.heading

    def ranks(self) -> str:
        return str(self.puzzle.ranks)

    def navigation(self) -> str:
        """Links to the notebooks before and after this one, and to the map. One of another chapter says so."""
        names = {f"00_{name}": label for name, label in FRONT.items()}
        mine = puzzle_of_file(self.stem)
        for chapter, puzzles in by_chapter():
            other = mine is not None and mine not in puzzles
            names |= {one.stem: f"{chapter.title}: {one.heading}" if other else one.heading for one in puzzles}
            if puzzles[0].chapter in AFTER:
                name, label = AFTER[puzzles[0].chapter]
                names[f"00_{name}"] = label
        stems = list(names)
        here = stems.index(self.stem)
        links = [f"← {links_to(stems[here - 1], names[stems[here - 1]])}"] if here > 1 else []
        links += [links_to(stems[0], names[stems[0]])] if here else []
        links += [f"{links_to(stems[here + 1], names[stems[here + 1]])} →"] if here + 1 < len(stems) else []
        return " · ".join(links)

    def top(self) -> str:
        """The navigation, and a badge where the project is published."""
        return " · ".join(filter(None, (self.navigation(), Address.read(self.root).badge(self.stem))))

    def requirements(self) -> str:
        """Return what pip has to install."""
        return " ".join([Address.read(self.root).requirement() or "", *pinned(self.root)])

    def table(self) -> str:
        """The chapters, each with what it is about and a Markdown table of its puzzles: a link, what each teaches, and
        what to solve before."""
        lines: list[str] = []
        for chapter, puzzles in by_chapter():
            lines += [f"### {chapter.title}", "", *textwrap.wrap(chapter.about, 118), ""]
            lines += ["| puzzle | what it is about | solve first |", "|---|---|---|"]
            for puzzle in puzzles:
                needs = [PUZZLES[need] for need in puzzle.needs]
                before = ", ".join(links_to(need.stem, str(need.number)) for need in needs)
                first = before or links_to("00_introduction", FRONT["introduction"])
                lines.append(f"| {links_to(puzzle.stem, puzzle.heading)} | {puzzle.teaches} | {first} |")
            lines.append("")
            if puzzles[0].chapter in AFTER:
                name, label = AFTER[puzzles[0].chapter]
                lines += [f"Then: {links_to(f'00_{name}', label)}.", ""]
        return "\n".join(f"# {line}".rstrip() for line in lines[:-1]).removeprefix("# ")


# -- pages ------------------------------------------------------------------------------------------------------------

# In TEACHING.md stands what is made here between `<!-- puzzles -->` or `<!-- questions -->` and `<!-- end -->`, and
# elsewhere two forms of words are kept current: "`ddp` (40 min)", and in a cell of a table "90 min together", for the
# puzzles of that cell.


def puzzles_page(text: str) -> str:
    """Return docs/puzzles.md with the rows of its table as the records have them, by chapter."""
    rows: list[str] = []
    for chapter, puzzles in by_chapter():
        rows.append(f"| | **{chapter.title}** | | |\n")
        for puzzle in puzzles:
            size = "a function" if puzzle.is_function else ", ".join(map(str, puzzle.size))
            rows.append(f"| {puzzle.number:02d} | {puzzle.id} | {size} | {puzzle.teaches} |\n")
    return TABLE_ROWS.sub("".join(rows), text, count=1)


def words(source: str) -> int:
    """Count the words in the text of a solutions/NN_name.py, folded answers and all, without code and without the
    cells that all notebooks share."""
    read, found = False, 0
    for line in source.splitlines():
        if line.startswith(CELL):
            read = line.startswith(TEXT)
        elif read:
            found += len(line.removeprefix("#").split())
    return found


def estimate(read: int, lines: int) -> float:
    """Estimate the minutes that a notebook takes with so many words to read, and so many lines to write."""
    return AROUND + read / A_MINUTE + A_LINE * lines


def near(minutes: int, estimated: float) -> bool:
    """Return whether the minutes of a record are what may be said of such an estimate."""
    return minutes % ROUND == 0 and abs(minutes - estimated) <= NEAR * estimated


def teaching(text: str) -> str:
    """Return TEACHING.md with its tables, its questions and its minutes as the records have them."""
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
