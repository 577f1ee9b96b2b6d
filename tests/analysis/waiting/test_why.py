"""why: what is said of a gap, of a rank that does not idle, and of questions that make no sense."""

from collections.abc import Callable
from typing import Any

import pytest

from lib import Model, Trace, critical_path, simulate, why
from lib.analysis.waiting.what_if import what_if
from lib.analysis.waiting.why import LEGS, Why
from lib.schedules.pipelines.generators import gpipe, one_f_one_b
from lib.schedules.pipelines.program import program_of
from tests.analysis.waiting import test_gaps
from tests.analysis.waiting.test_gaps import compute, down, uneven
from tests.drawing import runs
from tests.drawing.runs import trace
from tests.drawing.test_golden import on_line_one
from tests.support.said import Said

HELD_BACK = "Meanwhile it could do forward of layer 0 (batch 4): what that needs is there from 8.8 on, but its program"


def asked(run: Any, rank: int, time: float) -> Why:
    found = why(run, rank, time)
    assert found is not None
    return found


def told(function: Callable[[Model], Any], rank: int, time: float, **sizes: Any) -> list[str]:
    return asked(on_line_one(trace(function, **sizes)), rank, time).text().splitlines()


async def one_late(model: Model) -> None:
    compute(model, 1 + model.rank)
    await model.allreduce(model.fake_grad(0, []), 0)


def nothing(model: Model) -> None:
    pass


test_what_is_said = Said(__file__, "why").test(
    lambda: vars(runs) | vars(test_gaps) | globals() | {"models": simulate(down, ranks=2, batches=2)}
)


def test_where_only_its_own_order_is_in_the_way_it_says_so() -> None:
    """1F1B holds forwards back, which GPipe does not."""
    kept = told(program_of(one_f_one_b(4, 8)), 0, 12, ranks=4, layers=8, batches=8)
    assert kept[-1].startswith(HELD_BACK)
    assert kept[-1].endswith("That makes 131,072 elements; the rank holds 2,228,224 then, and 2,752,512 at its peak.")
    for messages in ("awaited", "posted"):
        program = program_of(gpipe(4, 4), messages=messages)
        assert not told(program, 0, 12, ranks=4, layers=8, batches=4)[-1].startswith("Meanwhile")


def test_of_causes_that_were_as_late_one_is_followed_and_the_others_are_named() -> None:
    found = told(program_of(gpipe(4, 4), messages="posted"), 0, 12, ranks=4, layers=8, batches=4)
    late = "; just as late: the message from rank 2"
    assert f"  8. rank 3 first does forward of layers 6, 7 (batch 2): 11.2 to 13.2{late}" in found
    found = told(uneven, 0, 3.1, ranks=3, batches=3)
    assert found[1] == "  1. all-gather of layer 1 over ranks 0-2: 3 to 3.3 (line 1)"
    assert found[2] == "  2. rank 2 comes last to it, after forward of layer 0 (batches 0-2): 0 to 3 (line 1)"


def test_of_a_long_chain_the_nearest_and_the_last_are_told() -> None:
    found = asked(trace(program_of(gpipe(4, 4)), ranks=4, layers=8, batches=4), 0, 9)
    lines = found.text().splitlines()
    assert len(found.legs) > LEGS
    assert f"  ... {len(found.legs) - LEGS} more steps ..." in lines
    assert sum(line.startswith("  ") for line in lines) == LEGS + 1
    assert any(line.startswith(f"  {len(found.legs)}. ") for line in lines)


def test_models_and_the_ends_of_the_run() -> None:
    models = simulate(down, ranks=2, batches=2)
    assert asked(models, 1, 0).gap == asked(Trace.of(models), 1, 2).gap
    last = asked(models, 0, 3.6)
    assert last.gap is not None
    assert last.gap.kind == "drain"


def test_an_answer_is_printed_as_its_words() -> None:
    models = simulate(down, ranks=2, batches=2)
    for found in (asked(models, 1, 2), critical_path(models), what_if(models, rank=0)):
        assert found is not None
        assert str(found) == repr(found) == found.text()
        assert found.text().startswith(found.head())


def test_nothing_to_ask(capsys: pytest.CaptureFixture[str]) -> None:
    assert why([], 0, 0) is None
    assert critical_path([]) is None
    assert capsys.readouterr().out == "No run: simulate(...) has not come to its end.\n" * 2
