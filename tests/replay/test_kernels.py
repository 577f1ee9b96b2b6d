"""A kernel is one row of a table, for every transport: nothing else of a replay knows an operation by name."""

from typing import Any

import pytest

from lib.replay import RankRaised, replay
from lib.values.collectives import COLLECTIVES
from lib.values.operations import LOCAL, READS
from tests.replay.schedules import trace

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

from lib.replay.rank.communication import COLLECTIVE_KERNELS  # noqa: E402
from lib.replay.rank.kernels import KERNELS, PREPARED  # noqa: E402

SMALL: dict[str, Any] = {"hidden": 24, "length": 8, "timeout": 120}


def test_every_operation_has_a_kernel() -> None:
    assert {*KERNELS, *PREPARED} == LOCAL | READS
    assert set(COLLECTIVE_KERNELS) == set(COLLECTIVES)


def test_an_operation_without_a_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KERNELS, "loss")
    monkeypatch.delitem(COLLECTIVE_KERNELS, "allgather")
    for puzzle, op in (("basic", "loss"), ("fsdp", "allgather")):
        with pytest.raises(RankRaised, match=rf"rank \d failed in event \d+, {op} of .*: no kernel for {op}"):
            replay(trace(puzzle), transport="local", **SMALL)


def test_what_libraries_do_has_our_names() -> None:
    from lib.replay.rank.libraries import our_name

    theirs = (
        "allreduce_",
        "_allgather_base_",
        "_reduce_scatter_base_",
        "broadcast_",
        "alltoall_base_",
        "send",
        "recv_",
    )
    ours = ["allreduce", "allgather", "scatterreduce", "broadcast", "alltoall", "pass_to", "receive"]
    assert [our_name(name) for name in theirs] == ours
    assert our_name("monitored_barrier_") == "monitored_barrier_"
