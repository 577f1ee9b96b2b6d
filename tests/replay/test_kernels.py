"""A kernel is one row of a table, for every transport: nothing else of a replay knows an operation by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lib.replay import RankRaised, replay
from lib.values.collectives import COLLECTIVES
from lib.values.operations import LOCAL, READS
from tests.replay.schedules import trace

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

from lib.replay.layers import layers  # noqa: E402
from lib.replay.rank.communication import COLLECTIVE_KERNELS, CollectiveCall, Started  # noqa: E402
from lib.replay.rank.context import Call  # noqa: E402
from lib.replay.rank.kernels import KERNELS, PREPARED  # noqa: E402

SMALL: dict[str, Any] = {"hidden": 24, "length": 8, "timeout": 120}


def test_every_operation_has_a_kernel() -> None:
    assert {*KERNELS, *PREPARED} == LOCAL | READS
    assert set(COLLECTIVE_KERNELS) == set(COLLECTIVES)


def test_an_operation_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backward, made of its halves."""
    done: list[int] = []

    def halves(call: Call, inputs: Sequence[Any]) -> Sequence[Any]:
        done.append(call.context.rank)
        x, grad, weight = map(call.matrix, range(3))
        inner = torch.tanh(x)
        by_weight = layers.weight_gradient(inner, grad)
        return [by_weight.view(-1), layers.input_gradient(inner, grad, weight).view(-1)]

    monkeypatch.setitem(KERNELS, "backward", halves)
    result = replay(trace("pipeline"), transport="local", **SMALL)
    assert result.ok, result.text()
    assert set(done) == set(range(4))


def test_an_operation_without_a_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KERNELS, "loss")
    monkeypatch.delitem(COLLECTIVE_KERNELS, "allgather")
    for puzzle, op in (("basic", "loss"), ("fsdp", "allgather")):
        with pytest.raises(RankRaised, match=rf"rank \d failed in event \d+, {op} of .*: no kernel for {op}"):
            replay(trace(puzzle), transport="local", **SMALL)


def permute(call: CollectiveCall, tensor: Any, step: int) -> Started:
    """Everybody's tensor to the member `step` places on: an exchange in which most parts are empty."""
    members, nothing = len(call.group), tensor[:0]
    to, source = (call.me + step) % members, (call.me - step) % members
    out = call.empty(tensor.numel())
    parts = [tensor if member == to else nothing for member in range(members)]
    sizes = [tensor.numel() if member == source else 0 for member in range(members)]
    return Started(call.transport.all_to_all(call.group, out, parts, sizes), [out])


@pytest.mark.parametrize("transport", ["local", "gloo"])
def test_a_collective_is_one_row_for_all_transports(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An all-reduce of permutations along a ring, a gather of everything to the root and a copy from there."""

    def ring(call: CollectiveCall, inputs: Sequence[Any]) -> Started:
        passed = [permute(call, inputs[0], step) for step in range(1, len(call.group))]

        def outputs() -> list[Any]:
            for one in passed:
                one.handle.wait()
            return [sum((one.buffers[0] for one in passed), inputs[0])]

        return Started(passed[-1].handle, [one.buffers[0] for one in passed], outputs)

    def to_all_from_root(call: CollectiveCall, inputs: Sequence[Any]) -> Started:
        numel = call.numel(call.brought[call.root][0])
        out = call.empty(numel)
        mine = inputs[0] if call.me == call.root else inputs[0][:0]
        sizes = [numel if member == call.root else 0 for member in range(len(call.group))]
        return Started(call.transport.all_to_all(call.group, out, [mine] * len(call.group), sizes), [out])

    monkeypatch.setitem(COLLECTIVE_KERNELS, "allreduce", ring)
    monkeypatch.setitem(COLLECTIVE_KERNELS, "broadcast", to_all_from_root)
    for name in ("ddp", "odd", "hybrid", "loose") if transport == "local" else ("odd",):
        result = replay(trace(name), transport=transport, **SMALL)
        assert result.ok, result.text()


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
