"""Torch's CSV by torch: its own tables read here, and ours there; and our orders against its, action for action."""

import csv
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from lib.schedules.formats.orders import read_csv, read_file, to_csv
from lib.schedules.pipelines.action import MESSAGES, Order, batches_of, parse, places
from lib.schedules.pipelines.catalogue import SCHEDULES, Named
from lib.schedules.pipelines.legality import illegal
from lib.schedules.pipelines.lowering import compute_only, posted, with_messages
from lib.schedules.pipelines.timing import time_order
from tests.support.profiles import sample


@cache
def torchs(part: str) -> Any:
    """Torch's own module on pipelines, which takes seconds to import: where a test asks for it."""
    return pytest.importorskip(f"torch.distributed.pipelining.{part}", reason="these tables are torch's: needs torch")


def schedule(row: Named) -> Any:
    assert row.torch is not None
    return getattr(torchs("schedules"), row.torch)


IN_TORCH = [row for row in SCHEDULES.values() if row.torch is not None]
LOWERED = [row for row in IN_TORCH if row.name not in ("gpipe", "one_f_one_b")]
"""Torch cannot put messages into its own tables of the other two."""


def table(path: Path, *arguments: Any, **more: Any) -> Path:
    """A table of torch's, as torch writes it: with empty cells where it has blanks."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(torchs("_schedule_visualizer").get_schedule_ops(*arguments, **more))
    return path


@pytest.mark.parametrize(("ranks", "batches"), [(2, 2), (2, 4), (3, 6), (4, 4), (4, 8), (5, 7), (6, 12), (8, 16)])
def test_torch_has_a_mistake_in_1f1b(ranks: int, batches: int, tmp_path: Path) -> None:
    found = read_file(table(tmp_path / "theirs.csv", "1F1B", ranks, batches))
    wrong, last = found.wrong(), ranks - 1
    assert str(wrong) == (f"rank {last}, position 1: {last}B0 needs {last}F0 before it, which this rank never does")
    assert wrong is not None
    assert wrong.cause == f"off by one: rank {last} does {last}F1 to {last}F{batches}"
    assert found.cell(last, 1) == f"row {ranks}, column 2"  # torch's blanks were taken out with the reduction put in


@pytest.mark.parametrize("row", [row for row in IN_TORCH if row.name != "one_f_one_b"], ids=lambda row: row.name)
def test_all_others_are_legal(row: Named, tmp_path: Path) -> None:
    for ranks, batches in ((2, 4), (4, 8), (3, 9)):
        chunks = (2, 3) if "chunks" in row.takes else (row.chunks,)
        for count in chunks:
            path = table(tmp_path / "theirs.csv", schedule(row), ranks, batches, count)
            assert len(places(read_file(path).legal())) == ranks * count


@pytest.mark.parametrize("row", LOWERED, ids=lambda row: row.name)
def test_what_torch_lowers_them_to_is_legal(row: Named, tmp_path: Path) -> None:
    for ranks, batches in ((2, 4), (4, 8)):
        path = table(tmp_path / "theirs.csv", schedule(row), ranks, batches, 2, with_comms=True)
        order = read_file(path).legal()
        assert {"UNSHARD", "RESHARD", "REDUCE_GRAD", *MESSAGES} <= {a.kind for actions in order for a in actions}
        assert illegal(order) is None, "torch puts a receive where the message comes"


@pytest.mark.parametrize("row", LOWERED, ids=lambda row: row.name)
def test_torch_defers_receives_past_each_other(row: Named, tmp_path: Path) -> None:
    """With `defer_pp_recv` it puts each right before its pass, so that where a gradient and an activation come from the
    same rank each may get the other. Nothing tells it: there are no tags."""
    name = schedule(row)
    path = table(tmp_path / "theirs.csv", name, 4, 8, 2, with_comms=True, defer_pp_recv=True)
    wrong = read_file(path).wrong()
    assert (wrong and wrong.rule) == ("channel" if row.shape == "vee" else None)


def runtime(ranks: int, chunks: int, batches: int) -> Any:
    """Torch's executor for as many stages, without any."""
    stage = mock.create_autospec(torchs("_schedule_visualizer").PipelineStage, instance=True)
    stage.group_rank, stage.group_size, stage.submod, stage.num_stages = 0, ranks, None, ranks * chunks
    return torchs("schedules")._PipelineScheduleRuntime([stage] * chunks, batches)


@pytest.mark.parametrize("row", sample(SCHEDULES.values()), ids=lambda row: row.name)
def test_torch_takes_ours(row: Named, tmp_path: Path) -> None:
    order, path = row.order(4, 8), tmp_path / "ours.csv"
    for lowered, comms in ((order, False), (order, True), (posted(order), True)):
        path.write_text(to_csv(lowered, comms=comms).text)
        theirs = runtime(4, row.chunks, 8)
        theirs._load_csv(str(path), "compute_comms" if comms else "compute_only")
        loaded = theirs.pipeline_order_with_comms if comms else theirs.pipeline_order
        wanted = order if not comms else with_messages(order) if lowered is order else None
        words = [list(map(str, loaded[rank])) for rank in range(4)]
        assert wanted is None or words == [list(map(str, actions)) for actions in wanted]
        back = read_csv("\n".join(",".join(row) for row in words)).legal()
        assert compute_only(back) == order
        assert batches_of(back) == 8


EQUAL = ["gpipe", "interleaved", "interleaved_zero_bubble", "zb_v", "dualpipe_v"]
"""Their 1F1B is not among them: in torch 2.13 its last rank does a backward before its forward."""


def theirs(row: Named, ranks: int, batches: int, chunks: int) -> Order:
    """The order that torch has, without its blanks, and without the reduction of gradients that it has for GPipe."""
    table = torchs("_schedule_visualizer").get_schedule_ops(schedule(row), ranks, batches, chunks)
    rows = [parse(str(action) for action in actions if action is not None) for actions in table]
    return tuple(tuple(action for action in actions if action.kind != "REDUCE_GRAD") for actions in rows)


@pytest.mark.parametrize("ranks", [1, 2, 3, *(pytest.param(more, marks=pytest.mark.thorough) for more in (4, 8))])
@pytest.mark.parametrize("name", EQUAL)
def test_the_same_order(name: str, ranks: int) -> None:
    row = SCHEDULES[name]
    for rounds in (1, 2, 3):
        batches = max(rounds, 2 if name == "dualpipe_v" else 1) * ranks
        for chunks in (2, 3) if "chunks" in row.takes else (row.chunks,):
            assert row.order(ranks, batches, chunks=chunks) == theirs(row, ranks, batches, chunks)


@pytest.mark.parametrize(("ranks", "batches"), [(2, 4), (4, 8), (3, 7)])
def test_breadth_first_takes_the_backwards_in_the_order_of_the_forwards(ranks: int, batches: int) -> None:
    """Torch takes them from the last microbatch on: other actions, the same figures."""
    row = SCHEDULES["breadth_first"]
    mine, other = map(time_order, (row.order(ranks, batches, chunks=2), theirs(row, ranks, batches, 2)))
    assert mine.order != other.order
    assert (mine.end, mine.peaks) == (other.end, other.peaks)
