"""How errors are put together: who, what, where in the student's code, and what would be right."""

import copy
import json
import linecache
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import lib
from lib import AbsentKey, NotSolved, PuzzleError, RuleError
from lib.errors.source_lines import Place, is_students, place, student_place


def test_a_message_has_only_the_parts_that_are_known() -> None:
    assert str(PuzzleError("it broke")) == "it broke"
    assert str(PuzzleError("it broke", rank=3)) == "rank 3: it broke"
    error = PuzzleError(
        "it broke",
        expected="that it works",
        got="this",
        fix="mend it\nand test it",
        rank=3,
        where=[
            (None, Place("a.py", 1, "f", "x = 1")),
            (2, Place("notebook cell", 7, "<module>", "")),
            (11, Place("b.py", 2, "<module>", "y")),
        ],
    )
    assert str(error) == (
        "rank 3: it broke\n"
        "  expected: that it works\n"
        "  got:      this\n"
        "  where:    a.py, line 1, in f: x = 1\n"
        "  rank 2:   notebook cell, line 7\n"
        "  rank 11:  b.py, line 2: y\n"
        "  fix:      mend it\n"
        "            and test it"
    )


def test_who_and_where_are_added_once() -> None:
    error = RuleError("it broke").at(1).at(2)
    assert error.rank == 1
    assert len(error.where) == 1
    assert error.where[0][1].function == "test_who_and_where_are_added_once"


def test_a_line_that_is_nowhere_to_be_found_and_the_line_of_a_caller_from_outside() -> None:
    assert str(place(compile("x = 1", "<string>", "exec"), 1)) == "<string>, line 1"
    found = student_place()
    assert found is not None
    assert found.text == "found = student_place()"


def test_the_same_line_of_several_ranks_is_shown_once_and_lines_that_are_indented_stay_there() -> None:
    here, there = Place("a.py", 1, "f", "x = 1"), Place("a.py", 2, "f", "y = 2")
    where = [(0, here), (3, there), (1, here), (2, here), (11, there)]
    assert str(PuzzleError("it broke", got="one\ntwo", where=where)) == (
        "it broke\n"
        "  got:      one\n"
        "            two\n"
        "  ranks 0-2: a.py, line 1, in f: x = 1\n"
        "  ranks 3 and 11: a.py, line 2, in f: y = 2"
    )
    lines = "one\n            two\n              three"
    assert str(PuzzleError("it broke", got=lines)) == f"it broke\n  got:      {lines}"


SOURCES = {
    "x = f(\n    1,\n    [2, 3],\n)\n": "x = f(1, [2, 3])",
    "a, b = f(\n    g('('),  # (\n    1\n)\n": "a, b = f(g('('),  # (1)",
    "f('{')\ng()\n": "f('{')",
    "for x in y:\n    f(x)\n": "for x in y:",
    "while f(1,\n        2):\n    g()\n": "while f(1, 2):",
    "f(\n": "f(",
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_statement_over_several_lines_reads_as_one(source: str) -> None:
    """Its first line alone says too little, and where an instruction ends is another place in every Python."""
    path = "/tmp/ipykernel_4711/987654321.py"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    code = compile("0", path, "exec")
    try:
        assert place(code, 1).text == SOURCES[source]
    finally:
        del linecache.cache[path]


@pytest.mark.parametrize(
    ("file", "students"),
    [
        (str(Path(lib.__file__).parent / "simulator" / "model.py"), False),
        (str(Path(lib.__file__).parents[1] / "drawing" / "display.py"), False),
        (json.__file__, False),
        (f"{Path(os.__file__).parents[1]}/python{sys.version_info[0]}{sys.version_info[1]}.zip/json/decoder.py", False),
        (f"{Path(os.__file__).parents[1]}/python_course.zip/ddp.py", True),
        ("<frozen importlib._bootstrap>", False),
        ("/home/ada/venv/lib/python3.11/site-packages/numpy/core.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("/home/ada/ddp.py", True),
        ("/tmp/ipykernel_7/123.py", True),
        ("<ipython-input-3-abc>", True),
        ("<stdin>", True),
    ],
)
def test_whose_code_it_is(file: str, students: bool) -> None:
    """One answer for errors, pictures of errors, and what a function that does not end was doing."""
    code = compile("pass", file, "exec")
    assert is_students(code) is students


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_of_each_kind_are_copied(twin: Any) -> None:
    missing = AbsentKey("weights[3] is not there", held=[1, 2], rank=0)
    for error in (missing, NotSolved("ddp"), RuleError("no", fix="do")):
        found = twin(error)
        assert (type(found), str(found), found.args) == (type(error), str(error), error.args)
