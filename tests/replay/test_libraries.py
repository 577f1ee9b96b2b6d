"""torch's own DDP, ZeRO, FSDP2, HSDP and pipelines beside the replay, in one launch: equal results, equal counts."""

import pytest

from lib import Mesh, Model, Trace, WeightGrad, simulate
from lib.replay import ReplayResult, replay
from lib.schedules.data_parallel import fully_sharded, zero
from lib.schedules.formats.kineto import our_name
from lib.schedules.pipelines.action import Order, batches_of, parse, places
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from tests.replay.schedules import answer, compute, trace

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")
pytestmark = pytest.mark.usefixtures("cache_of_torch")


def against(schedule: Trace, *names: str, optimizer: str = "sgd") -> ReplayResult:
    result = replay(schedule, against=names, hidden=32, length=16, optimizer=optimizer, timeout=120)
    assert result.ok, result.text()
    assert [one.name for one in result.libraries] == list(names)
    for one in result.libraries:
        assert {error.what for error in one.errors} == {"gradient", "weight", "optimizer state"}
        assert all(error.relative <= 1e-12 for error in one.errors)
        assert len(one.seconds) == 1
        assert result.ratio(one.name) > 0
        assert (f"{one.name} ({one.by}): " if one.by else f"{one.name}: ") in result.text()
    return result


@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("adam", marks=pytest.mark.thorough)])
def test_data_parallel(optimizer: str) -> None:
    by_layer, whole = against(trace("ddp"), "ddp_by_layer", "ddp", optimizer=optimizer).libraries
    assert by_layer.counts == by_layer.replay_counts == {"allreduce": 4 * 2}
    assert whole.counts == {"allreduce": 4}  # one bucket


@pytest.mark.thorough
def test_fully_sharded() -> None:
    (fsdp,) = against(trace("fsdp"), "fsdp", optimizer="adam").libraries
    assert fsdp.counts == {"allgather": 4 * 2 * 2 * 6, "scatterreduce": 4 * 2 * 6}
    # Ours keeps the weight where a pass turns round: twice after the loss, once between the two batches of a rank.
    assert fsdp.replay_counts == fsdp.counts | {"allgather": 4 * (2 * 2 * 6 - 3)}


def test_fully_sharded_with_one_batch_a_rank() -> None:
    (fsdp,) = against(Trace.of(simulate(fully_sharded(), ranks=4, layers=3, batches=4)), "fsdp").libraries
    assert fsdp.counts == fsdp.replay_counts == {"allgather": 4 * 2 * 3, "scatterreduce": 4 * 3}


@pytest.mark.parametrize(
    ("mesh", "batches"),
    [
        pytest.param(Mesh({"replica": 2, "shard": 4}), 8, marks=pytest.mark.thorough),
        pytest.param(Mesh({"shard": 2, "replica": 4}), 16, marks=pytest.mark.thorough),
        (Mesh({"replica": 2, "shard": 3}, ranks=[3, 0, 2, 1, 5, 4]), 6),  # the devices in no order
        # The axes the other way round, and by other names; two batches a rank.
        (Mesh({"fsdp": 2, "data": 2}, ranks=[0, 2, 3, 1]), 8),
    ],
    ids=str,
)
def test_hybrid(mesh: Mesh, batches: int) -> None:
    axes = ("fsdp", "data") if "fsdp" in mesh.axes else ("shard", "replica")
    models = simulate(fully_sharded(*axes), layers=2, batches=batches, mesh=mesh)
    (hsdp,) = against(Trace.of(models), "hsdp").libraries
    assert hsdp.counts == hsdp.replay_counts
    assert hsdp.rank_counts == ({"allgather": 2 * 2, "allreduce": 2, "scatterreduce": 2},) * len(mesh)


@pytest.mark.thorough
def test_hybrid_with_two_microbatches_a_rank() -> None:
    """The library gathers, reduces and all-reduces for each of them; what torch calls gradient accumulation adds up
    shards."""

    async def twice(model: Model) -> None:
        place = model.group("shard").index(model.rank)
        held = [model.load_weights(layer, place, 2) for layer in range(model.LAYERS)]
        sums: dict[int, WeightGrad] = {}
        for batch in (model.rank, model.rank + model.RANKS):
            whole = {layer: await model.allgather(weight, layer, "shard") for layer, (weight, _) in enumerate(held)}
            for layer, grad in compute(model, [batch], whole).items():
                part = await model.scatterreduce(grad, layer, "shard")
                sums[layer] = sums[layer] + part if layer in sums else part
            del whole
        for layer in range(model.LAYERS):
            total = await model.allreduce(sums.pop(layer), layer, "replica")
            model.set_final_weight(layer, model.update(layer, total, *held[layer])[0])

    mesh = Mesh({"replica": 2, "shard": 2}, ranks=[2, 1, 0, 3])
    (hsdp,) = against(Trace.of(simulate(twice, layers=2, batches=8, mesh=mesh)), "hsdp").libraries
    assert hsdp.rank_counts == ({"allgather": 2 * 2 * 2, "allreduce": 2 * 2, "scatterreduce": 2 * 2},) * 4


@pytest.mark.thorough
def test_a_mesh_that_has_no_replicas_is_cut_into_halves() -> None:
    (hsdp,) = against(Trace.of(simulate(fully_sharded(), ranks=4, layers=2, batches=4)), "hsdp").libraries
    assert hsdp.counts == {"allgather": 4 * 2 * 2, "allreduce": 4 * 2, "scatterreduce": 4 * 2}


@pytest.mark.thorough
def test_stages_of_zero() -> None:
    schedule = Trace.of(simulate(zero(1), ranks=4, layers=6, batches=4))
    first, second = against(schedule, "zero1", "zero2", optimizer="adam").libraries
    # Torch gives the optimizer of a whole weight to one rank, which broadcasts it: ours have a shard of each.
    assert first.rank_counts == ({"allreduce": 6, "broadcast": 6},) * 4
    assert first.replay_counts == {"allgather": 4 * 6, "scatterreduce": 4 * 6}
    assert second.rank_counts == ({"allgather": 6, "scatterreduce": 6},) * 4


def test_buckets_beside_those_of_ddp() -> None:
    """Torch counts bytes: so small a model fits into one bucket, after the first step."""
    (ddp,) = against(answer("ddp_overlap"), "ddp").libraries
    assert ddp.rank_counts == ({"allreduce": 1},) * 4
    assert ddp.replay_counts == {"allreduce_bucket": 4 * 4}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("way", "library", "counts", "more"),
    [
        ("whole_layers", "zero1", {"allreduce": 4 * 6, "broadcast": 4 * 6}, {}),
        ("gather_first", "zero2", {"allgather": 4 * 6, "scatterreduce": 4 * 6}, {}),
        # fully_shard drops the weights after backward all the same, and gathers them for the next microbatch.
        ("", "zero2", {"allgather": 4 * 2 * 6, "scatterreduce": 4 * 2 * 6}, {"allgather": 4 * 6}),
    ],
)
def test_stages_of_zero_call_what_torch_calls(
    way: str, library: str, counts: dict[str, int], more: dict[str, int]
) -> None:
    (zero,) = against(answer("zero1" if way else "zero2", way), library).libraries
    assert zero.counts == counts
    assert zero.replay_counts == counts | more


def test_each_layer_cut_into_columns_or_rows() -> None:
    """Torch sums no gradient of the data either, and gathers what a column layer takes again for backward."""
    (whole,) = against(answer("tensor_parallel"), "tensor_parallel").libraries
    assert whole.counts == {"allreduce": 4 * 3}
    (rows,) = against(answer("sequence_parallel"), "sequence_parallel").libraries
    assert rows.counts == {"allgather": 4 * 4, "scatterreduce": 4 * 3}


@pytest.mark.thorough
@pytest.mark.parametrize("ranks", [2, 8])
def test_an_odd_number_of_layers_cut_and_adam(ranks: int) -> None:
    schedule = Trace.of(simulate(fully_sharded(), ranks=ranks, layers=3, batches=ranks))
    whole, rows = against(schedule, "tensor_parallel", "sequence_parallel", optimizer="adam").libraries
    assert whole.counts == {"allreduce": ranks * 2, "allgather": ranks}
    assert rows.counts == {"allgather": ranks * 5, "scatterreduce": ranks * 2}


def test_pipelines() -> None:
    (gpipe,) = against(trace("gpipe"), "gpipe").libraries
    assert gpipe.counts == gpipe.replay_counts == {"pass_to": 2 * 3 * 4, "receive": 2 * 3 * 4}
    schedule = Trace.of(simulate(program_of(one_f_one_b(4, 6)), ranks=4, layers=8, batches=6))
    (alternating,) = against(schedule, "1f1b").libraries
    assert alternating.counts == alternating.replay_counts == {"pass_to": 2 * 3 * 6, "receive": 2 * 3 * 6}


VEE = parse("0F0 0F1 3F0 3B0 3F1 0B0 3B1 0B1"), parse("1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1")


@pytest.mark.parametrize(
    ("order", "by"),
    [
        (one_f_one_b(3, 2), "torch's executor with this order"),  # torch's class wants a microbatch for each stage
        (VEE, "torch's executor with this order"),
    ],
    ids=["short of microbatches", "a V of somebody's own"],
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
