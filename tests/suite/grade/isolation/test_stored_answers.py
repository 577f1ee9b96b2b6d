"""What a child can read holds the answer to no puzzle, and what one student leaves behind hinders nobody else."""

import ast
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from lib import check
from lib.files import ROOT
from lib.puzzles.records import PUZZLES
from lib.schedules.formats.trace import order_of
from lib.suite.course.solutions import files_of, run_of_file
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.walls import readable
from lib.suite.submissions.locations import reference
from lib.suite.submissions.source import Source
from tests.support.profiles import sample


def ours() -> Iterator[Path]:
    """The files of ours that a child can read."""
    for name in readable():
        path = Path(name)
        if path.is_relative_to(ROOT / "lib") or path.is_relative_to(ROOT / "drawing"):
            yield from filter(Path.is_file, path.rglob("*") if path.is_dir() else [path])


def bodies(path: Path) -> Iterator[list[ast.stmt]]:
    """The bodies of all functions in a file, whatever they are called: no expression has one."""
    todo: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while todo:
        node = todo.pop()
        todo += [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.expr)]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.body


def outline(body: list[ast.stmt]) -> tuple[str, ...]:
    return tuple(type(statement).__name__ for statement in body)


def test_no_function_of_ours_that_answers_a_puzzle_can_be_read() -> None:
    answers = dict[tuple[str, ...], set[str]]()
    for puzzle in PUZZLES:
        for path in files_of(puzzle).values():
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == puzzle:
                    answers.setdefault(outline(node.body), set()).add("\n".join(map(ast.dump, node.body)))
    assert sum(map(len, answers.values())) > len(PUZZLES)
    for path in ours():
        for body in bodies(path) if path.suffix == ".py" else ():
            if (same := answers.get(outline(body))) is not None:
                assert "\n".join(map(ast.dump, body)) not in same, f"{path.relative_to(ROOT)}: {ast.unparse(body[0])}"


def test_no_order_that_answers_a_puzzle_can_be_read() -> None:
    texts = {path: path.read_bytes() for path in ours() if path.suffix not in (".pyc", ".py")}
    written = [puzzle for puzzle in PUZZLES if "\n@schedule" in reference(puzzle).read_text("utf-8")]
    assert "interleaved" in written
    for puzzle in ["gpipe", *sample(written)]:
        order = " ".join(map(str, order_of(run_of_file(reference(puzzle), puzzle))[0]))
        for path, text in texts.items():
            assert order.encode() not in text, f"{path.relative_to(ROOT)} has the order of {puzzle}"


WRITES = """
import os
import tempfile
from lib import *


def basic(model):
    with open(f"log{model.rank}.txt", "x") as file:
        file.write("x")
    os.mkdir("folder")
    with tempfile.TemporaryFile() as file:
        file.write(b"x")
"""


WITHOUT = [set[str](), *sample([{"landlock"}, {"bwrap"}, {"bwrap", "landlock"}])]


@pytest.mark.parametrize("without", WITHOUT, ids=lambda without: " ".join(sorted(without)) or "nothing")
def test_a_file_that_one_student_leaves_keeps_no_other_from_writing(isolation: Isolation, without: set[str]) -> None:
    answer = ast.parse(reference("basic").read_text("utf-8"))
    (function,) = (node for node in answer.body if getattr(node, "name", None) == "basic")
    body = "\n".join("    " + line for node in getattr(function, "body") for line in ast.unparse(node).splitlines())  # noqa: B009
    source = Source.of("writes.py", WRITES + body + "\n")
    with Isolation(without) if without else nullcontext(isolation) as used:
        for _ in range(3):
            sent = used.run(source, "basic")
            assert sent.outcome == "trace", sent.text
            assert sent.trace is not None
            assert check(sent.trace, "basic").passed
    assert not os.path.exists("log0.txt")
