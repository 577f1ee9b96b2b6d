"""A group norm over rows that are shared out, in the figures of an independent model."""

import json
from fractions import Fraction

import pytest

from lib import Trace
from lib.analysis.figures import end
from lib.cluster.costs import as_written, ticks
from lib.suite.submissions.locations import home, notebook_in, reference
from tests.support.puzzles import in_parts

FIGURES = {"moments": "0.1202197265625", "gradients": "0.120146484375", "two passes": "0.24029296875", "gather": "0.66"}
"""4 ranks, 4 batches of 64 x 32 points with 8 groups of 8 features, latency 0.02."""
COMPUTED, SUM, UPDATE = 4 + 4 * Fraction("0.015625"), Fraction("0.129375"), Fraction("0.0078125")
MOMENTS, GRADIENTS = Fraction(FIGURES["moments"]), Fraction(FIGURES["gradients"])


def run(name: str, sizes: list[int] | None = None, batches: int = 4) -> Trace:
    return in_parts("group_norm", name, {"sizes": sizes}, batches)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("await_all", COMPUTED + MOMENTS + GRADIENTS + 2 * SUM + 2 * UPDATE),
        ("behind_backward", COMPUTED + MOMENTS + SUM + UPDATE),
        ("halves", COMPUTED + SUM + UPDATE),
        ("", COMPUTED + SUM + UPDATE),
    ],
)
def test_each_way_waits_for_what_it_says(name: str, expected: Fraction) -> None:
    assert abs(ticks(as_written(end(run(name)))) - ticks(expected)) <= 3


@pytest.mark.parametrize(
    ("name", "op", "layer", "figure"),
    [
        ("await_all", "allreduce", 1, "moments"),
        ("await_all", "allreduce", 2, "gradients"),
        ("gathered", "allgather", 0, "gather"),
    ],
)
def test_an_exchange_takes_what_another_model_says(name: str, op: str, layer: int, figure: str) -> None:
    for program in run(name).programs:
        event = next(event for event in program.events if (event.op, event.layer) == (op, layer))
        assert abs(event.length - ticks(Fraction(FIGURES[figure]))) <= 1


def test_its_variances_are_those_of_the_other_model() -> None:
    """1.0736113679345871, and the mean of the parts' 0.44651139206338425: printed, and in the text."""
    cells = json.loads(notebook_in(home() / "solutions", "group_norm").read_text("utf-8"))["cells"]
    found = next(one for one in cells if "mean of the four variances" in "".join(one["source"]))
    printed = "".join("".join(output.get("text", "")) for output in found["outputs"])
    text = reference("group_norm").read_text("utf-8")
    assert all(number in printed and number in text for number in ("1.0736", "0.4465", "0.5135"))
    assert "mean 1.3809, variance 1.0736" in text


@pytest.mark.parametrize("sizes", [[4, 8, 12, 40], [22, 22, 20, 0], [0, 0, 32, 32], [1] * 64, [8] * 8, [63, 1]])
@pytest.mark.parametrize("name", ["", "halves", "await_all", "gathered"])
def test_parts_of_any_size_will_do(sizes: list[int], name: str) -> None:
    run(name, sizes, batches=3)
