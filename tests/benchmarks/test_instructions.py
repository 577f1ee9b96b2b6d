"""Six programs take as many instructions of the interpreter as is written down for each Python."""

import json

import pytest

from tests.benchmarks.instructions import FILE, PYTHON
from tests.support.drivers import python

KNOWN: dict[str, dict[str, int]] = json.loads(FILE.read_text("utf-8"))
MARGIN = 0.03
OTHER = 0.2
"""Of a Python that nobody has counted with: the newest that is known, whose instructions are somewhat different."""


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    """In a fresh interpreter: what other tests have worked out does not count."""
    found = python("import json; from tests.benchmarks.instructions import counted; print(json.dumps(counted()))")
    return json.loads(found)


@pytest.mark.parametrize("program", [*KNOWN["3.11"]])
def test_a_program_takes_as_many_instructions_as_before(program: str, counts: dict[str, int]) -> None:
    """Where it is meant to take more or fewer: `python -m tests.benchmarks.instructions` writes the file anew."""
    newest = max(KNOWN, key=lambda name: tuple(map(int, name.split("."))))
    known, margin = KNOWN.get(PYTHON, KNOWN[newest]), MARGIN if PYTHON in KNOWN else OTHER
    assert counts[program] == pytest.approx(known[program], rel=margin)
