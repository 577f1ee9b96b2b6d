"""A replay that computes something else than ordinary training is caught, and so are replicas that disagree."""

from typing import Any

import pytest

from lib.replay import ReplayResult, replay
from lib.trace.event import Event
from lib.values.collectives import COLLECTIVES
from lib.values.operations import LOCAL, READS
from tests.replay.hooks import Hook, hooked
from tests.replay.schedules import trace

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

from lib.replay.rank.kernels import COLLECTIVE_KERNELS, KERNELS, PREPARED  # noqa: E402


def spoiled(name: str, hook: Hook, **more: Any) -> ReplayResult:
    result = hooked(trace(name), hook, **{"transport": "local", "hidden": 32, "length": 16, **more})
    assert not result.ok
    assert "WRONG" in result.text()
    assert result.to_json()["ok"] is False
    assert all(fault in result.text() for fault in result.faults)
    return result


def wrong(result: ReplayResult) -> set[str]:
    return {error.what for error in result.errors if not error.ok}


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_wrong_scale(optimizer: str, dtype: str) -> None:
    """The classic mistake: averaged where a sum belongs. Adam's first step would hide it."""

    def average(rank: int, index: int, event: Event, tensors: dict[int, Any]) -> None:
        if event.op == "allreduce":
            tensors[event.outputs[0]] /= len(event.group)

    result = spoiled("ddp", average, optimizer=optimizer, dtype=dtype)
    assert "gradient" in wrong(result)
    assert "replicas" not in wrong(result)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_dropped_batch(dtype: str) -> None:
    def drop(rank: int, index: int, event: Event, tensors: dict[int, Any]) -> None:
        if event.op == "backward" and event.batches == {2} and event.layer == 1:
            tensors[event.outputs[0]].zero_()

    result = spoiled("grad_accum", drop, dtype=dtype)
    assert next(error.layer for error in result.errors if error.what == "gradient") == 1
    if dtype == "float64":
        spoiled("pipeline_fsdp", drop, transport="gloo")


@pytest.mark.parametrize("transport", ["local", "gloo"])
def test_a_stale_weight(transport: str) -> None:
    """One rank hands in what it had loaded."""
    loaded: dict[tuple[int, int], Any] = {}

    def keep(rank: int, index: int, event: Event, tensors: dict[int, Any]) -> None:
        if event.op == "load_weights" and event.layer is not None:
            loaded[rank, event.layer] = tensors[event.outputs[0]].clone()
        if event.op == "update" and rank == 3 and event.layer == 0:
            tensors[event.outputs[0]].copy_(loaded[3, 0])

    result = spoiled("ddp", keep, transport=transport)
    assert wrong(result) == {"final weight", "replicas"}
    final = next(error for error in result.errors if error.what == "final weight")
    assert (final.rank, final.layer) == (3, 0)
    assert "rank 3, layer 0" in result.faults[0]
    assert any("another rank's" in fault for fault in result.faults)


def test_forward_with_a_stale_weight_and_one_element_off() -> None:
    def nudge(rank: int, index: int, event: Event, tensors: dict[int, Any]) -> None:
        if event.op == "allgather" and rank == 2 and event.layer == 3:
            tensors[event.outputs[0]][-1] += 1e-9

    assert "gradient" in wrong(spoiled("wsdp", nudge))


def test_a_lost_optimizer_state() -> None:
    def lose(rank: int, index: int, event: Event, tensors: dict[int, Any]) -> None:
        if event.op == "load_weights":
            tensors[event.outputs[1]].zero_()

    assert wrong(spoiled("fsdp", lose)) == {"weight", "optimizer state", "final weight"}


def test_not_a_number_is_not_close() -> None:
    def spoil(rank: int, index: int, event: Event, tensors: dict[int, Any]) -> None:
        if event.op == "backward" and rank == 1:
            tensors[event.outputs[0]][5] = float("nan")

    assert wrong(spoiled("wsdp", spoil)) >= {"gradient", "weight", "final weight"}


def test_only_the_first_step_counts_as_evidence_without_verify() -> None:
    result = replay(trace("ddp"), transport="local", hidden=32, length=16, verify=False)
    assert result.ok
    assert result.errors == ()
    assert "Not compared" in result.text()


# -- kernels --------------------------------------------------------------------------------------------------------


def test_every_operation_has_a_kernel() -> None:
    assert {*KERNELS, *PREPARED} == LOCAL | READS
    assert set(COLLECTIVE_KERNELS) == set(COLLECTIVES)
