"""why: what is said of a gap, of a rank that does not idle, and of questions that make no sense."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from lib import LINKS, Mesh, Model, Trace, critical_path, simulate, why
from lib.analysis.waiting.why import LEGS, Why
from lib.schedules.pipelines.generators import gpipe, one_f_one_b
from lib.schedules.pipelines.program import program_of
from tests.analysis.waiting.test_gaps import across, ahead, compute, down, overlapped, stuck, uneven
from tests.drawing.runs import relay, trace
from tests.drawing.test_golden import on_line_one

HELD_BACK = "Meanwhile it could do forward of layer 0 (batch 4): what that needs is there from 8.8 on, but its program"


def asked(run: Any, rank: int, time: float) -> Why:
    found = why(run, rank, time)
    assert found is not None
    return found


def told(function: Callable[[Model], Any], rank: int, time: float, **sizes: Any) -> list[str]:
    return asked(on_line_one(trace(function, **sizes)), rank, time).text().splitlines()


def test_a_chain_through_two_ranks() -> None:
    assert told(relay, 1, 2.7, ranks=3, layers=3, batches=2) == [
        "Rank 1 idles from 2.6 to 5: it waits 2.4 time units for a message from rank 2, which sends it after backward "
        "of layer 2 (batch 0) (schedule.py, line 1).",
        "  1. it needs the message from rank 2 to rank 1 with the gradient of activation 2, batch 0: 4.8 to 5 (line 1)",
        "  2. it needs backward of layer 2 (batch 0) on rank 2: 3.8 to 4.8 (line 1)",
        "  3. it needs forward of layer 2 (batch 0) on rank 2: 2.8 to 3.8 (line 1)",
        "  4. it needs the message from rank 1 to rank 2 with activation 2, batch 0: 2.4 to 2.8 (line 1)",
        "  5. it needs forward of layer 1 (batch 0) on rank 1: 1.4 to 2.4 (line 1)",
        "The chain starts with forward of layer 1 (batch 0) on rank 1, before this gap.",
        "The gap is as long as what it waits for: 1 of backward (rank 2), 1 of forward (rank 2), 0.4 of messages.",
    ]


@pytest.mark.parametrize(
    ("function", "where", "sizes", "lines"),
    [
        (
            down,
            (0, 3.4),
            {"ranks": 2, "batches": 2},
            [
                "1. the run ends with the message from rank 1 to rank 0: 3.4 to 3.6 (line 1)",
                "2. rank 1 sends it only after forward of layer 0 (batch 0): 2.4 to 3.4 (line 1)",
            ],
        ),
        (
            uneven,
            (0, 1),
            {"ranks": 3, "batches": 3},
            ["1. rank 2 comes last to it, after forward of layer 0 (batches 0-2): 0 to 3 (line 1)"],
        ),
        (
            overlapped,
            (0, 0.1),
            {"ranks": 1},
            ["1. before it all-reduce of layer 1 over rank 0 is under way between the same ranks: 0 to 0.3 (line 1)"],
        ),
        (
            ahead,
            (0, 0.7),
            {"ranks": 2, "batches": 2, "costs": LINKS},
            ["1. rank 1 makes room for it only after forward of layer 0 (batch 0): 0 to 1 (line 1)"],
        ),
        (
            across,
            (5, 0.31),
            {"ranks": 8, "mesh": Mesh({"replica": 2, "shard": 4}, host_size=4), "costs": LINKS},
            [
                "1. all-gather of layer 1 over ranks 4-7: 0 to 0.33 (line 1); 0.3 time units alone: it shares a link "
                "with all-gather of layer 0"
            ],
        ),
    ],
    ids=["drain", "collective", "stream", "room", "shared"],
)
def test_what_each_kind_of_gap_waits_for(
    function: Callable[[Model], Any], where: tuple[int, float], sizes: dict[str, Any], lines: list[str]
) -> None:
    found = told(function, *where, **sizes)
    assert [line.strip() for line in found if line.startswith("  ")] == lines


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


def test_a_rank_that_does_not_idle() -> None:
    assert told(down, 0, 1, ranks=2, batches=2) == [
        "Rank 0 does not idle at 1: it computes forward of layer 0 (batches 0, 1), 0 to 2 (schedule.py, line 1)."
    ]


def test_a_run_that_failed() -> None:
    assert told(stuck, 0, 0.15, ranks=3, batches=2) == [
        "Rank 0 idles from 0 to 2: it waits 2 time units in the message from rank 1, which never happened "
        "(schedule.py, line 1).",
        "The run failed: deadlock: these ranks wait for each other: 0 -> 1 -> 0",
    ]


def test_models_and_the_ends_of_the_run() -> None:
    models = simulate(down, ranks=2, batches=2)
    assert asked(models, 1, 0).gap == asked(Trace.of(models), 1, 2).gap
    last = asked(models, 0, 3.6)
    assert last.gap is not None
    assert last.gap.kind == "drain"


@pytest.mark.parametrize(
    ("rank", "time", "said"),
    [
        (2, 1, "rank= is one of the ranks of this run, 0 to 1; got 2"),
        (True, 1, "rank= is one of the ranks"),
        (0, -1, "this run goes from 0 to 3.6; got time=-1"),
        (0, 3.7, "this run goes from 0 to 3.6; got time=3.7"),
        (0, math.nan, "time= is a moment of this run in time units, such as 2.5; got nan"),
        (0, "now", "time= is a moment"),
    ],
)
def test_questions_that_make_no_sense(rank: Any, time: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        why(simulate(down, ranks=2, batches=2), rank, time)


def test_nothing_to_ask(capsys: pytest.CaptureFixture[str]) -> None:
    assert why([], 0, 0) is None
    assert critical_path([]) is None
    assert capsys.readouterr().out == "No run: simulate(...) has not come to its end.\n" * 2
    with pytest.raises(ValueError, match="nothing takes time in this run, so nobody waits"):
        why(simulate(lambda model: None, ranks=2), 0, 0)


def test_the_critical_path_by_rank() -> None:
    async def one_late(model: Model) -> None:
        compute(model, 1 + model.rank)
        await model.allreduce(model.fake_grad(0, []), 0)

    assert critical_path(trace(one_late, ranks=3, batches=3)).text() == (
        "The run ends at 3.3. Critical path: 3 forward, 0.3 all-reduce.\n"
        "  rank 0: 0.3 collectives; slack 2 time units or more\n"
        "  rank 1: nothing of it; slack 1 time unit or more\n"
        "  rank 2: 3 compute; no slack in 1 of 1"
    )
