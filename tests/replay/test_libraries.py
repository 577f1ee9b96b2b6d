"""torch's own DDP, FSDP2, HSDP and pipelines beside the replay, in one launch: equal results, equal counts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import Mesh, Trace, simulate
from lib.replay import ReplayResult, replay
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.pipelines import one_f_one_b
from lib.schedules.program import program_of
from tests.replay.schedules import trace

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")


@pytest.fixture(autouse=True)
def cache_of_torch(nothing_is_left: None) -> Iterator[None]:
    """torch.optim makes an empty folder for torch's compiler when it is first used."""
    yield
    for path in Path(tempfile.gettempdir()).glob("torchinductor_*"):
        shutil.rmtree(path)


def against(schedule: Trace, *names: str, optimizer: str = "sgd") -> ReplayResult:
    result = replay(schedule, against=names, hidden=32, length=16, optimizer=optimizer, steps=2, timeout=60)
    assert result.ok, result.text()
    assert [one.name for one in result.libraries] == list(names)
    for one in result.libraries:
        assert {error.what for error in one.errors} == {"gradient", "weight", "optimizer state"}
        assert all(error.relative <= 1e-12 for error in one.errors)
        assert len(one.seconds) == 2
        assert result.ratio(one.name) > 0
        assert f"{one.name}: " in result.text()
    return result


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_data_parallel(optimizer: str) -> None:
    by_layer, whole = against(trace("ddp"), "ddp_by_layer", "ddp", optimizer=optimizer).libraries
    assert by_layer.counts == by_layer.replay_counts == {"allreduce": 4 * 2}
    assert whole.counts == {"allreduce": 4}  # one bucket


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_fully_sharded(optimizer: str) -> None:
    (fsdp,) = against(trace("fsdp"), "fsdp", optimizer=optimizer).libraries
    assert fsdp.counts == {"allgather": 4 * 2 * 2 * 6, "scatterreduce": 4 * 2 * 6}
    # Ours keeps the weight where a pass turns round: twice after the loss, once between the two batches of a rank.
    assert fsdp.replay_counts == fsdp.counts | {"allgather": 4 * (2 * 2 * 6 - 3)}


def test_fully_sharded_with_one_batch_a_rank() -> None:
    (fsdp,) = against(Trace.of(simulate(fully_sharded(), ranks=4, layers=3, batches=4)), "fsdp").libraries
    assert fsdp.counts == fsdp.replay_counts == {"allgather": 4 * 2 * 3, "scatterreduce": 4 * 3}


def test_hybrid() -> None:
    models = simulate(fully_sharded("shard", "replica"), layers=3, batches=4, mesh=Mesh({"replica": 2, "shard": 2}))
    (hsdp,) = against(Trace.of(models), "hsdp").libraries
    assert hsdp.counts == hsdp.replay_counts
    assert hsdp.counts == {"allgather": 4 * 2 * 3, "allreduce": 4 * 3, "scatterreduce": 4 * 3}


def test_pipelines() -> None:
    (gpipe,) = against(trace("gpipe"), "gpipe").libraries
    assert gpipe.counts == gpipe.replay_counts == {"pass_to": 2 * 3 * 4, "receive": 2 * 3 * 4}
    schedule = Trace.of(simulate(program_of(one_f_one_b(4, 6)), ranks=4, layers=8, batches=6))
    (alternating,) = against(schedule, "1f1b").libraries
    assert alternating.counts == alternating.replay_counts == {"pass_to": 2 * 3 * 6, "receive": 2 * 3 * 6}
