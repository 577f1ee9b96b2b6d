"""torch's own DDP, FSDP2 and pipelines beside the replay, in one launch: equal results, equal counts."""

import pytest

from lib import Trace, simulate
from lib.replay import ReplayResult, replay
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.formats.chrome import our_name
from lib.schedules.pipelines.action import Order, batches_of, parse, places
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from tests.replay.schedules import answer, trace

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")
pytestmark = pytest.mark.usefixtures("cache_of_torch")


def against(schedule: Trace, *names: str, optimizer: str = "sgd") -> ReplayResult:
    result = replay(schedule, against=names, hidden=32, length=16, optimizer=optimizer, timeout=120)
    assert result.ok, result.text()
    assert [one.name for one in result.libraries] == list(names)
    for one in result.libraries:
        assert {error.what for error in one.errors} == {"gradient", "weight", "optimizer state"}
        assert all(error.relative <= 1e-12 for error in one.errors)
        assert len(one.seconds) == len(one.cpu) == len(one.replay_cpu) == 1
        assert min(one.cpu + one.replay_cpu) > 0
        assert result.ratio(one.name) > 0
        assert (f"{one.name} ({one.by}): " if one.by else f"{one.name}: ") in result.text()
    return result


@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("adam", marks=pytest.mark.thorough)])
def test_data_parallel_in_buckets_of_the_schedule(optimizer: str) -> None:
    (ddp,) = against(trace("ddp"), "ddp", optimizer=optimizer).libraries
    assert ddp.counts == ddp.replay_counts == {"allreduce": 4 * 2}
    (buckets,) = against(answer("ddp_overlap"), "ddp").libraries
    assert buckets.counts == {"allreduce": 4 * 4}
    assert buckets.replay_counts == {"allreduce_bucket": 4 * 4}


@pytest.mark.thorough
def test_fully_sharded() -> None:
    fsdp, ddp = against(trace("fsdp"), "fsdp", "ddp", optimizer="adam").libraries
    assert fsdp.counts == fsdp.replay_counts == {"allgather": 4 * 2 * 2 * 6, "scatterreduce": 4 * 2 * 6}
    assert ddp.counts == {"allreduce": 4}  # one bucket, as DDP has it where the schedule has none


def test_fully_sharded_with_one_batch_a_rank() -> None:
    (fsdp,) = against(Trace.of(simulate(fully_sharded(), ranks=4, layers=3, batches=4)), "fsdp").libraries
    assert fsdp.counts == fsdp.replay_counts == {"allgather": 4 * 2 * 3, "scatterreduce": 4 * 3}


VEE = parse("0F0 0F1 3F0 3B0 3F1 0B0 3B1 0B1"), parse("1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1")


@pytest.mark.parametrize(
    ("order", "by"),
    [
        (one_f_one_b(4, 6), "Schedule1F1B"),
        (one_f_one_b(3, 2), "torch's executor with this order"),  # torch's class wants a microbatch for each stage
        (VEE, "torch's executor with this order"),
    ],
    ids=["1F1B", "short of microbatches", "a V of somebody's own"],
)
def test_the_order_of_a_trace_on_torchs_pipelines(order: Order, by: str) -> None:
    stages, batches = len(places(order)), batches_of(order)
    run = simulate(program_of(order, messages="posted"), ranks=len(order), layers=stages, batches=batches)
    (theirs,) = against(Trace.of(run), "torch-pipelining").libraries
    assert theirs.by == by
    assert theirs.counts == theirs.replay_counts


def test_what_libraries_do_has_our_names() -> None:
    theirs = "allreduce_ _allgather_base_ _reduce_scatter_base_ broadcast_ alltoall_base_ send recv_ monitored_barrier_"
    ours = "allreduce allgather scatterreduce broadcast alltoall pass_to receive monitored_barrier_"
    assert [our_name(name) for name in theirs.split()] == ours.split()
