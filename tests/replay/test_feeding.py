"""Processes read a data set for real: in a training step, and in the example of the documentation."""

import contextlib
import io
import runpy

import pytest

from lib.files import ROOT
from lib.replay import replay
from tests.replay.schedules import trace
from tests.support.worlds import as_torchrun

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")


@pytest.mark.parametrize("transport", ["local", "gloo"])
@pytest.mark.parametrize("name", ["fed", "fed_in_rows"])
def test_a_training_step_that_reads(name: str, transport: str) -> None:
    """Every step anew, and each rank for itself, whatever processes its mesh has."""
    result = replay(trace(name), transport=transport, hidden=16, length=4, steps=2, timeout=120)
    assert result.ok, result.text()
    assert [one.examples for one in result.ranks] == [2] * result.simulated.ranks
    assert {one.bytes for one in result.ranks} == {8 * 16 * 4 * 2}
    assert "examples read  in bytes" in result.text()
    assert any(one.op == "read" for one in result.spreads)


def example(process: int) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(str(ROOT / "docs/examples/feeding.py"), run_name="__main__")
    return said.getvalue()


def test_the_example_finds_the_published_mapping_wrong_and_reading_by_index_right() -> None:
    first, second, third = as_torchrun(3, example)
    by_shards, by_index = (line for line in first.splitlines() if line.startswith("by_"))
    assert by_shards == (
        "by_shards: devices (3, 4) hold different examples; devices (1, 5) hold different examples; "
        "rows 1 and 2 hold the same example"
    )
    assert by_index == "by_index: every row has examples of its own"
    assert "process 0 feeds rows [0, 2]: reads 3 examples of 6, [0, 2, 4]" in first
    assert "process 1 feeds rows [0, 1]: reads 4 examples of 6, [0, 1, 2, 3]" in second
    assert third.count("process 2 feeds rows [1, 2]") == 2
