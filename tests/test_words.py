"""One word for one thing, in everything that somebody reads: goal, time, elements, sent, rank with the highest peak.

A step is a training step. Read are the strings and docstrings of our code, the puzzles' sources and records, the exact
texts of messages, and the pages for people.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.drivers import ROOT

BANNED = {
    r"\btargets?\b": "goal",
    r"\btiers?\b": "goal",
    r"\btime[ -]?steps?\b": "time, or so many time units",
    r"(?<![\w.])\d+(\.\d+)? steps?\b": "time, or so many time units",
    r"\bin steps\b": "in time units",
    r"\bfullest\b": "the rank with the highest peak",
    r"\bsends? up to\b|\bsent a rank\b|\belements a rank\b": "sent per rank",
    r"\btreat both ends apart\b": "the first and the last stage have only one neighbour",
    r"\bwhat was not awaited\b": "the call itself, which was not awaited",
    r"\bfolded hints?\b": "hints (click to open)",
}
"""What is not said any more, and what is said in its place."""

ALLOWED = {
    ("drawing/timeline/schedule.py", "timesteps"): "the word that the original prints",
    ("lib/replay", "target"): "what a network is to give for its data",
    ("lib/replay", "targets"): "the same",
    ("lib/simulator/messages.py", "target"): "a field: the rank to which a message goes",
    ("drawing/pages", "target"): "a field, and what was clicked",
}
"""Where one of these words means what it does everywhere else: by the beginning of the path, and the word."""


def strings(source: str) -> Iterator[str]:
    """The strings of a Python file, docstrings too; where one has a value put in, a 0 stands for it."""
    nodes: list[ast.AST] = [ast.parse(source)]
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        else:
            nodes += ast.iter_child_nodes(node)


def values(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for one in data.values() if isinstance(data, dict) else data:
            yield from values(one)


@cache
def texts() -> list[tuple[str, str]]:
    """Every text for people, in small letters, with the path of its file, in order."""
    return sorted((path, text.lower()) for path, text in _texts())


def _texts() -> Iterator[tuple[str, str]]:
    for pattern in ("lib/**/*.py", "drawing/**/*.py"):
        for path in ROOT.glob(pattern):
            for text in strings(path.read_text("utf-8")):
                yield str(path.relative_to(ROOT)), text
    for path in ROOT.glob("lib/puzzles/*.toml"):
        source = path.read_text("utf-8")
        for text in (*values(tomllib.loads(source)), *re.findall("^#.*", source, re.MULTILINE)):
            yield str(path.relative_to(ROOT)), text
    whole = (
        "solutions/*.py",
        "solutions/*/*.py",
        "tests/diagnosis/cases/*.txt",
        "drawing/pages/*.[jh]*",
        "*.md",
        "docs/*.md",
    )
    for pattern in whole:
        for path in ROOT.glob(pattern):
            yield str(path.relative_to(ROOT)), path.read_text("utf-8")


def allowed(path: str, word: str) -> bool:
    return any(path.startswith(where) and word == what for where, what in ALLOWED)


@pytest.mark.parametrize("banned", BANNED)
def test_a_word_that_is_not_said_any_more(banned: str) -> None:
    found = [
        f"{path}: {text[max(0, match.start() - 40) : match.end() + 30]!r}"
        for path, text in texts()
        for match in re.finditer(banned, text)
        if not allowed(path, match[0])
    ]
    assert not found, f"say {BANNED[banned]}:\n" + "\n".join(found)


def test_it_reads_what_people_read() -> None:
    read = {Path(path).name for path, _ in texts()}
    assert {"README.md", "operations.py", "notes.py", "basics.toml", "ddp.py", "hints.py", "app.py"} <= read
    assert any("sent per rank 0 elements" in text for _, text in texts())
    assert set(strings('f"{time:g} steps" + "a" "b"')) == {"0 steps", "ab"}


def test_what_is_allowed_is_there() -> None:
    for where, what in ALLOWED:
        assert any(path.startswith(where) and re.search(rf"\b{what}\b", text) for path, text in texts()), (where, what)


def test_the_docstring_of_a_public_function_begins_with_a_verb() -> None:
    """Attributes are nouns, and so is what has a row in a table: a fact, or a cause."""

    def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for one in ast.iter_child_nodes(node):
            if isinstance(one, ast.ClassDef) and not one.name.startswith("_"):
                yield from functions(one)
            elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and not one.name.startswith("_"):
                yield one

    nouns = {"The", "A", "An", "All", "Each", "What", "Which", "Who", "Whose", "Whether", "Where", "When", "How", "Why"}
    found = [
        (f"{path.name}: {one.name}", (ast.get_docstring(one) or "").split(" ", 1)[0])
        for room in ("lib", "drawing")
        for path in ROOT.glob(f"{room}/**/*.py")
        for one in functions(ast.parse(path.read_text("utf-8")))
        if not any(re.search("property|fact|because", ast.unparse(mark)) for mark in one.decorator_list)
    ]
    assert [name for name, first in found if first in nouns] == []
    assert len(found) > 1000
