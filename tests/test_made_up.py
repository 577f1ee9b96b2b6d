"""A new operation and a new collective are a row, a method and a kernel: some that are made up are taken by everything,
and those that there are have all that a row needs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drawing.canvas.palette import LOOKS, PASSES
from lib import Model
from lib.values.collectives import COLLECTIVES, Collective
from lib.values.operations import ARGUMENTS, OPERATIONS, Operation, calls

ROOT = Path(__file__).parents[1]


@pytest.mark.thorough
def test_rows_that_are_made_up_are_taken_by_everything() -> None:
    """In a process of its own, as the tables are read when modules are imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.made_up_rows"]
    done = subprocess.run(
        [*command, "tests/made_up.py"], capture_output=True, text=True, timeout=300, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def rows() -> Iterator[Operation | Collective]:
    yield from OPERATIONS.values()
    yield from COLLECTIVES.values()


def test_every_row_has_a_word_a_title_and_a_signature_of_its_own() -> None:
    for field in ("name", "word", "title", "signature"):
        found = [getattr(row, field) for row in rows()]
        assert all(found)
        assert len(set(found)) == len(found), field
    assert all(name == row.name for table in (OPERATIONS, COLLECTIVES) for name, row in table.items())


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_operation_is_whole(name: str) -> None:
    row = OPERATIONS[name]
    assert row.colour in {*PASSES, *LOOKS}
    assert row.about in ("call", "input", "output")
    assert row.says in ARGUMENTS
    assert (row.kind in ("local", "read")) == bool(row.takes or row.gives)
    assert (row.rule is not None) == (row.kind in ("local", "read") and name != "foreign")
    assert row.cost is None or row.kind == "local"
    if row.signature.removeprefix("await ").startswith("model."):
        assert callable(getattr(Model, name))


CASES = "\n".join(
    path.read_text() for path in Path(__file__).with_name("diagnosis").glob("cases/**/*") if path.is_file()
)


@pytest.mark.parametrize("name", calls())
def test_every_call_has_a_mistake_case(name: str) -> None:
    """Somebody gets it wrong in tests/diagnosis/cases, and is told how to mend it."""
    assert f"model.{name}(" in CASES
