"""Our orders against those that torch.distributed.pipelining makes, action for action."""

from __future__ import annotations

from typing import Any

import pytest

from lib.schedules.pipelines.action import Order, parse
from lib.schedules.pipelines.catalogue import SCHEDULES, Named
from lib.schedules.pipelines.timing import time_order

pytest.importorskip("torch", reason="torch's tables need torch: pip install torch")

EQUAL = ["gpipe", "interleaved", "interleaved_zero_bubble", "zb_v", "dualpipe_v"]
"""Their 1F1B is not among them: in torch 2.13 its last rank does a backward before its forward."""


def theirs(row: Named, ranks: int, batches: int, chunks: int) -> Order:
    """The order that torch has, without its blanks, and without the reduction of gradients that it has for GPipe."""
    schedules: Any = pytest.importorskip("torch.distributed.pipelining.schedules")
    visualizer: Any = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    assert row.torch is not None
    table = visualizer.get_schedule_ops(getattr(schedules, row.torch), ranks, batches, chunks)
    rows = [parse(str(action) for action in actions if action is not None) for actions in table]
    return tuple(tuple(action for action in actions if action.kind != "REDUCE_GRAD") for actions in rows)


def ours(row: Named, ranks: int, batches: int, chunks: int) -> Order:
    return row.order(ranks, batches, chunks=chunks)


@pytest.mark.parametrize("ranks", [1, 2, 3, *(pytest.param(more, marks=pytest.mark.thorough) for more in (4, 8))])
@pytest.mark.parametrize("name", EQUAL)
def test_the_same_order(name: str, ranks: int) -> None:
    row = SCHEDULES[name]
    for rounds in (1, 2, 3):
        batches = max(rounds, 2 if name == "dualpipe_v" else 1) * ranks
        for chunks in (2, 3) if "chunks" in row.takes else (row.chunks,):
            assert ours(row, ranks, batches, chunks) == theirs(row, ranks, batches, chunks)


@pytest.mark.parametrize(("ranks", "batches"), [(2, 4), (4, 8), (3, 7)])
def test_breadth_first_takes_the_backwards_in_the_order_of_the_forwards(ranks: int, batches: int) -> None:
    """Torch takes them from the last microbatch on: other actions, the same figures."""
    row = SCHEDULES["breadth_first"]
    mine, other = (time_order(make(row, ranks, batches, 2)) for make in (ours, theirs))
    assert mine.order != other.order
    assert (mine.end, mine.peaks) == (other.end, other.peaks)
