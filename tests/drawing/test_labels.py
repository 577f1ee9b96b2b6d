"""Which label of a box goes first where room gets scarce, and which last."""

import pytest

from drawing import draw
from drawing.canvas.scene import Text
from drawing.timeline.paint import place_label
from lib import Trace
from tests.drawing.runs import RUNS, ddp, trace


def texts(run: Trace) -> list[str]:
    return [mark.text for mark in draw(run, fold=True).scene.marks if isinstance(mark, Text)]


def test_a_layer_is_the_last_label_to_go() -> None:
    shown = [[line.text for line in place_label(["0 1 2 3"], "L3", width, 30, kept=True)] for width in (60, 17, 10, 7)]
    assert shown == [["L3", "0 1 2 3"], ["L3"], ["L3"], []]
    assert [line.turned for width in (17, 10) for line in place_label(["0 1 2 3"], "L3", width, 30, kept=True)] == [
        False,
        True,
    ]


def test_what_the_colour_does_not_say_stays_before_the_layer() -> None:
    assert [line.text for line in place_label(["all-reduce", "AR"], "L3", 17, 22)] == ["AR"]


def test_batches_of_which_each_rank_has_one_have_no_label() -> None:
    found = texts(trace(ddp, ranks=4, layers=8, batches=4))
    assert {f"L{layer}" for layer in range(8)} <= {*found}
    assert not [text for text in found if text.startswith("own")]
    assert "forward (each rank on its own batch)" in found


@pytest.mark.parametrize(("layers", "label"), [(1, ""), (2, "L1")])
def test_a_layer_that_is_always_the_same_is_left_out_first(layers: int, label: str) -> None:
    shown = [line.text for line in place_label(["7"], "L1", 12, 20, kept=layers > 1)]
    assert shown == [label or "7"]


def test_batches_of_a_pipeline_stay_where_a_rank_has_one_layer() -> None:
    assert {"0", "1"} <= {*texts(RUNS["relay"])}
