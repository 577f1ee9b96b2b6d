"""What follows from the records: cells that all notebooks share, rows of docs/puzzles.md and TEACHING.md, and words.

Shared cells are written once in solutions/parts/, and put where a source asks for them.

    # %% [markdown]
    # <!-- part: hints -->

in a source stands for the cells of solutions/parts/hints.py, in which `$id`, `$ranks` and the other words of this
module are filled in for that notebook; `<!-- part: hints zero1 -->` is for another puzzle in it. A source itself has
the line `# # $heading` for its title, `$number_ddp` for the number of another puzzle, and citations, `[@zhao2023]`.
"""

from __future__ import annotations

import os.path
import re
import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from lib.files import packaged
from lib.puzzles.puzzle import Puzzle
from lib.puzzles.records import PUZZLES, by_chapter, chapters, minutes_of_core, of_one_notebook
from lib.suite.course.exports import pinned
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.locations import place_of

FRONT = {"index": "Map of the puzzles", "introduction": "Introduction"}
"""The notebooks before the puzzles, all numbered 00, and how links call them."""
AFTER = {"pipelines": ("gallery", "The gallery of pipelines")}
"""Notebooks without a puzzle that come at the end of a chapter."""
LISTEN = "*Listen for:*"  # what stands before the answer to a question that is to be discussed

PART = re.compile(r"^# %% \[markdown\]\n# <!-- part: (\w+)(?: (\w+))? -->\n?$", re.MULTILINE)
NEARLY = re.compile(r"<!--\s*part\b.*", re.IGNORECASE)
HEADING = re.compile(r"^# # \$heading$", re.MULTILINE)
NUMBER = re.compile(r"\$number_(\w+)")
OF_RECORD = ("id", "title", "heading", "ranks")
WORDS = (*OF_RECORD, "onwards", "top", "requirements", "table", "words")  # the words of parts


def core_of(puzzle: Puzzle) -> Puzzle:
    """Return the puzzle of the core path that a puzzle deepens, by way of others perhaps, or itself."""
    return core_of(PUZZLES[puzzle.deepens]) if puzzle.deepens else puzzle


def notebooks_before(puzzle: Puzzle) -> list[str]:
    """Return the puzzles whose notebooks are to be solved before the one of a puzzle, in order."""
    needs = {PUZZLES[need].notebook for part in of_one_notebook(puzzle) for need in part.needs}
    return [one.id for one in PUZZLES.values() if one.id in needs - {puzzle.notebook}]


def minutes_of(puzzle: Puzzle) -> int:
    """Return how many minutes the notebook of a puzzle takes: its own, and those of its parts that are not skipped."""
    parts = (one for one in of_one_notebook(puzzle) if one is puzzle or one.deepens in ("", puzzle.deepens))
    return sum(part.minutes for part in parts)


class Term(NamedTuple):
    """A word of the field: what it is, the puzzle that teaches it, and our word for it, where that is another."""

    says: str
    puzzle: str
    ours: str = ""


def glossary() -> dict[str, Term]:
    """Return the words of the field in alphabetical order. TypeError for an entry with a field that there is not."""
    words = tomllib.loads(packaged("lib.puzzles", "glossary.toml"))
    return {word: Term(**words[word]) for word in sorted(words, key=str.lower)}


def expand(text: str, name: str, root: Path) -> str:
    """Put the parts of a puzzle's or page's source in. `root` holds solutions/ and, for versions, pyproject.toml and
    constraints.txt.

    Raises BuildError for a part that does not exist, or that asks for a word that there is not.
    """

    def number(found: re.Match[str]) -> str:
        if found[1] not in PUZZLES:
            raise BuildError(f"{name}.py: {found[0]} is the number of no puzzle; there are {', '.join(PUZZLES)}")
        return PUZZLES[found[1]].label

    text = HEADING.sub(lambda _: f"# # {_meaning('heading', name, root)}", text)
    whole = PART.sub(lambda found: _part(found[1], found[2] or name, root), NUMBER.sub(number, text))
    if left := NEARLY.search(whole):
        raise BuildError(f"{name}.py: {left[0]!r} is not a part: a cell with nothing but `<!-- part: name -->`")
    return with_references(whole, f"{name}.py", root)


def _part(part: str, name: str, root: Path) -> str:
    """The cells of a part, filled in. While pip can have the package from nowhere the set-up does not ask it."""
    if part == "setup" and requirement(root) is None:
        part = "setup_unpublished"
    path = root / "solutions" / "parts" / f"{part}.py"
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in path.parent.glob("*.py"))) or "none"
        raise BuildError(f"{name}.py: there is no part {part!r}; the parts are {there}")
    template = Template(path.read_text("utf-8"))
    asked = template.get_identifiers()
    unknown = sorted(set(asked) - set(WORDS))
    if unknown or not template.is_valid():
        what = ", ".join(f"${word}" for word in unknown) or "a single $"
        raise BuildError(f"parts/{part}.py has {what}; its words are ${', $'.join(WORDS)}")
    return template.substitute({word: _meaning(word, name, root) for word in asked})


def _meaning(word: str, name: str, root: Path) -> str:
    """What a word stands for in one notebook. BuildError for one of a puzzle, where the notebook has none."""
    match word:
        case "onwards":
            return _onwards(name)
        case "top":  # the navigation, and a badge where the project is published
            return " · ".join(filter(None, (_navigation(name), badge(root, place_of(name)))))
        case "requirements":  # what pip has to install
            return " ".join([requirement(root) or "", *pinned(root)])
        case "table":
            return _map()
        case "words":
            return "\n# ".join(_words(name))
        case _:
            if name not in PUZZLES:
                raise BuildError(f"{name}.py: this part speaks of a puzzle, and this notebook has none")
            return str(getattr(PUZZLES[name], word))


def reading_order() -> list[str]:
    """Return all puzzles and pages in the order in which their notebooks are read."""
    names = [*FRONT]
    for _, puzzles in by_chapter():
        names += [puzzle.id for puzzle in puzzles]
        names += [AFTER[puzzles[0].chapter][0]] if puzzles[0].chapter in AFTER else []
    return names


def _navigation(name: str) -> str:
    """Links to the notebooks before and after this one, and to the map. One of another chapter says so."""
    order = reading_order()
    here = order.index(name)
    around = [f"← {_link(order[here - 1], name)}"] if here > 1 else []
    around += [_link("index", name)] if here else []
    return " · ".join(around + [f"{_link(one, name)} →" for one in order[here + 1 : here + 2]])


def _onwards(name: str) -> str:
    """Where to go from the end of a notebook: on the core path, and deeper. No chapter is a dead end."""
    core = [puzzle for puzzle in PUZZLES.values() if not (puzzle.deepens or puzzle.part_of)]
    mine = next((one for one in PUZZLES.values() if one.id == name), None)
    root = mine and core_of(mine)
    before = [chapter for chapter, (page, _) in AFTER.items() if page == name]  # what the page comes after
    last = root or max((one for one in core if one.chapter in before), key=lambda one: one.number, default=None)
    done = core.index(last) + 1 if last is not None else 0
    following = core[done:][:1]

    def listed(puzzles: Sequence[Puzzle]) -> str:
        return ", ".join(f"{_link(one.id, name)} ({minutes_of(one)} minutes)" for one in puzzles)

    said = [f"**Next on the core path,** {done + 1} of {len(core)}: {listed(following)}." if following else ""]
    if root is not None and not following:
        said = [f"**The core path ends {'here' if mine is root else f'with {_link(root.id, name)}'}.**"]
    if mine is not None:
        deeper = [one for one in PUZZLES.values() if one.deepens == name and not one.part_of]
        rest = [one for one in PUZZLES.values() if one.number > mine.number and core_of(one) is root and one.deepens]
        said += [f"**Deeper,** if you like: {listed(deeper)}." if deeper else ""]
        left = [one for one in rest if not one.part_of and one not in deeper][:1]
        said += [f"**Deeper, further on:** {listed(left)}." if left and mine.deepens else ""]
    said += [f"**All of them:** {_link('index', name)}." if name != "index" else ""]
    return "\n#\n# ".join(filter(None, said))


def _link(name: str, here: str, label: str = "") -> str:
    """A Markdown link from one notebook to another: with its title, if nothing else is said, and that of its chapter
    where it is another."""
    pages = FRONT | dict(AFTER.values())
    if name in PUZZLES and not label:
        label, chapter = PUZZLES[name].heading, PUZZLES[name].chapter
        if here in PUZZLES and PUZZLES[here].chapter != chapter:
            label = f"{chapters()[chapter].title}: {label}"
    start = os.path.dirname(place_of(here)) or "."
    return f"[{label or pages[name]}]({Path(os.path.relpath(place_of(name), start)).as_posix()}.ipynb)"


def _map() -> str:
    """The chapters, each with what it is about and a Markdown table of its core puzzles, those that deepen one folded
    below: a link, what each teaches, its minutes, and what to solve before."""
    core, skipped = minutes_of_core(), sum(puzzle.minutes for puzzle in PUZZLES.values() if puzzle.deepens)
    said = f"""The **core path** takes {_hours(core)}, the introduction included. What is folded below it goes deeper
        ({_hours(skipped)} in all): take what you like, now or later, or skip it. No core puzzle needs it."""
    lines = [*textwrap.wrap(" ".join(said.split()), 118), ""]
    for chapter, puzzles in by_chapter():
        path = [puzzle for puzzle in puzzles if not puzzle.deepens]
        lines += [f"### {chapter.title}", "", *textwrap.wrap(chapter.about, 118), ""]
        lines += _rows(path)
        for root in dict.fromkeys(core_of(puzzle).id for puzzle in puzzles if puzzle.deepens):
            deeper = [puzzle for puzzle in puzzles if puzzle.deepens and core_of(puzzle).id == root]
            total = sum(map(minutes_of, deeper))
            what = f"Deeper, after {PUZZLES[root].heading} ({_hours(total)}; may be skipped)"
            lines += ["<details>", f"<summary>{what}</summary>", "", *_rows(deeper), "</details>", ""]
        if puzzles[0].chapter in AFTER:
            lines += [f"Then: {_link(AFTER[puzzles[0].chapter][0], 'index')}.", ""]
    return "\n".join(f"# {line}".rstrip() for line in lines[:-1]).removeprefix("# ")


def _rows(puzzles: Sequence[Puzzle]) -> list[str]:
    """The Markdown table of some puzzles, for the index."""
    lines = ["| puzzle | what it is about | minutes | solve first |", "|---|---|---|---|"] if puzzles else []
    for puzzle in puzzles:
        before = ", ".join(_link(need, "index", PUZZLES[need].label) for need in notebooks_before(puzzle))
        first = before or _link("introduction", "index")
        lines.append(f"| {_link(puzzle.id, 'index')} | {puzzle.teaches} | {minutes_of(puzzle)} | {first} |")
    return [*lines, ""] if puzzles else []


def _words(here: str = "") -> list[str]:
    """The Markdown table of the field's words, with links from a notebook, or with the ids of their puzzles."""
    lines = ["| word | what it is | in our code | puzzle |", "|---|---|---|---|"]
    for word, term in glossary().items():
        label = PUZZLES[term.puzzle].label
        puzzle = _link(term.puzzle, here, label) if here else f"{label} `{term.puzzle}`"
        lines.append(f"| **{word}** | {term.says} | {term.ours} | {puzzle} |")
    return lines


def _hours(minutes: int) -> str:
    """A time in words: "45 minutes", "about 3 hours"."""
    return f"{minutes} minutes" if minutes < 100 else f"about {round(minutes / 60)} hours"


def repository(root: Path) -> str | None:
    """Return where the project is published, as `urls.Repository` of pyproject.toml says and nothing else."""
    address: str | None = _project(root).get("urls", {}).get("Repository")
    return address and address.rstrip("/").removesuffix(".git")


def requirement(root: Path) -> str | None:
    """Return what pip installs, the tag of this version; None where pip can have it from nowhere."""
    address, project = repository(root), _project(root)
    return address and f"{project['name']}@git+{address}@v{project['version']}"


def badge(root: Path, place: str) -> str:
    """Return the badge that opens a notebook in Colab; empty where the project is not on GitHub."""
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", repository(root) or "")
    colab = "https://colab.research.google.com"
    page = found and f"{colab}/github/{found[1]}/blob/main/puzzles/{place}.ipynb"
    return f"[![Open in Colab]({colab}/assets/colab-badge.svg)]({page})" if page else ""


def _project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]


# -- pages ----------------------------------------------------------------------------------------------------------

# What is made here stands between `<!-- puzzles -->`, `<!-- questions -->` or, in docs/glossary.md, `<!-- words -->`
# and `<!-- end -->`. Elsewhere in TEACHING.md two forms of words are kept current: "`ddp` (40 min)", and in a cell of a
# table "90 min together", for the puzzles of that cell.

TABLE_ROWS = re.compile(r"(?:^\|(?: (?!00)[\d.]+ \|| \| \*\*).*\n)+", re.MULTILINE)
"""The rows of puzzles, and above those of each chapter its title."""
MARKED = re.compile(r"(<!-- (puzzles|questions|words) -->\n).*?(<!-- end -->)", re.DOTALL)
ONE = re.compile(r"`(\w+)` \(\d+ min\)")
TOGETHER = re.compile(r"\d+ min together")
NAME = re.compile(r"`(\w+)`")


def puzzles_page(text: str) -> str:
    """Return docs/puzzles.md with the rows of its table as the records have them, by chapter."""
    rows: list[str] = []
    for chapter, puzzles in by_chapter(parts=True):
        rows.append(f"| | **{chapter.title}** | | | |\n")
        for puzzle in puzzles:
            size = "a function" if puzzle.is_function else ", ".join(map(str, puzzle.size))
            rows.append(f"| {puzzle.label} | {puzzle.id} | {size} | {puzzle.teaches} | {puzzle.deepens or 'core'} |\n")
    return TABLE_ROWS.sub("".join(rows), text, count=1)


def glossary_page(text: str) -> str:
    """Return docs/glossary.md with its table as the records have it."""
    return MARKED.sub(lambda found: found[1] + "\n".join([*_words(), ""]) + found[3], text)


def teaching(text: str) -> str:
    """Return TEACHING.md with its tables, its questions and its minutes as the records have them."""
    table = ["| | puzzle | minutes | what it teaches | solve first | deepens |", "|---|---|---|---|---|---|"]
    questions: list[str] = []
    for chapter, puzzles in by_chapter(parts=True):
        core = sum(puzzle.minutes for puzzle in puzzles if not puzzle.deepens)
        deeper = sum(puzzle.minutes for puzzle in puzzles) - core
        table.append(f"| | **{chapter.title}** | **{core}**, deeper {deeper} | | | |")
        questions += [f"### {chapter.title}", ""]
        for puzzle in puzzles:
            first = ", ".join(f"`{need}`" for need in puzzle.needs) or "introduction"
            deepens = f"`{puzzle.deepens}`" if puzzle.deepens else ""
            row = (puzzle.label, f"`{puzzle.id}`", puzzle.minutes, puzzle.teaches, first, deepens)
            table.append(f"| {' | '.join(map(str, row))} |")
            questions += [f"**{puzzle.heading}** (`{puzzle.id}`). {puzzle.discuss}", ""]
    core = minutes_of_core()
    table.append(f"| | **the core path, with the introduction** | **{core}**, {_hours(core)} | | | |")
    made = {"puzzles": "\n".join([*table, ""]), "questions": "\n".join(questions)}

    def minutes(found: re.Match[str]) -> str:
        return f"`{found[1]}` ({PUZZLES[found[1]].minutes} min)" if found[1] in PUZZLES else found[0]

    def summed(cell: str) -> str:
        total = sum(PUZZLES[name].minutes for name in NAME.findall(cell) if name in PUZZLES)
        return TOGETHER.sub(f"{total} min together", cell)

    text = ONE.sub(minutes, MARKED.sub(lambda found: found[1] + made[found[2]] + found[3], text))
    lines = text.split("\n")
    return "\n".join("|".join(map(summed, line.split("|"))) if line.startswith("|") else line for line in lines)


# -- references -----------------------------------------------------------------------------------------------------

# Each work stands once in docs/references.toml, and a source cites it by its key: `[@zhao2023]`, or
# `[@zhao2023, table 2]`, becomes `[1]`. Works are numbered in the order in which a notebook first cites them, and
# `<!-- references -->` becomes their list.

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
        return entry if self.checked else f"{entry} (we could not open it)"


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
