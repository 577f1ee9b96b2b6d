"""hsdp and hsdp_zero: what lies inside a host, and what between hosts, in the figures that their notebooks state."""

from collections.abc import Callable
from typing import Any

import pytest

from lib import LINKS, PUZZLES, UNIT, Costs, Links, Mesh, Model, Trace, check, simulate
from lib.analysis.bounds.limits import lower_bound
from lib.checker.verdict import Verdict
from lib.schedules import data_parallel
from lib.schedules.data_parallel import fully_sharded
from lib.suite.course.solutions import alternatives
from lib.suite.submissions.load import load_function
from tests.support.puzzles import way
from tests.support.said import Said

Function = Callable[[Model], Any]
HYBRID = fully_sharded("shard", "replica")
MESH = PUZZLES["hsdp"].mesh
TURNED = Mesh({"shard": 2, "replica": 4}, host_size=4)
CROSSED = Mesh({"shard": 4, "replica": 2}, host_size=4)


def judged(function: Function, mesh: Mesh | None = MESH, costs: Costs = LINKS, **sizes: int) -> Verdict:
    given: dict[str, Any] = {"layers": 6, "batches": 8, "ranks": 8} | sizes
    verdict = check(Trace.of(simulate(function, mesh=mesh, costs=costs, **given)))
    assert verdict.correct, verdict.faults
    return verdict


def came_to(function: Function, mesh: Mesh | None = MESH) -> str:
    """With hosts, and where all messages cost the same."""
    there, flat = (judged(function, mesh, costs) for costs in (LINKS, UNIT))
    assert there.memory == flat.memory
    return f"time {there.time:g}, or {flat.time:g}; memory {flat.memory:,.0f}"


test_flat_costs_cannot_teach_it = Said(__file__, "hybrid").test(lambda: vars(data_parallel) | globals())


def figures(verdict: Verdict) -> tuple[float, float]:
    return verdict.time, verdict.memory


def test_one_network_card_for_all_ranks_of_a_host() -> None:
    one = Links(host_size=4, cards=1)
    assert judged(way("hsdp"), costs=one).time == 32.8
    assert judged(HYBRID, TURNED, one).time == 160.8
    assert [judged(way("hsdp", name), costs=one).time for name in ("ddp", "fsdp_over_all")] == [49.5, 63.5]


def test_a_card_for_each_rank_of_a_host() -> None:
    four = Links(host_size=4, cards=4)
    assert judged(HYBRID, costs=four) == judged(HYBRID)
    assert judged(HYBRID, TURNED, four) == judged(HYBRID, TURNED)
    assert judged(fully_sharded(), None, four).time == 30.75
    assert judged(fully_sharded(), None, four) == judged(fully_sharded(), None, Links(host_size=4, ratio=2.5))


@pytest.mark.parametrize("replicas", [2, 3, 4])
@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.parametrize("ratio", [1, 10])
def test_the_formulas_of_the_notebook(replicas: int, shards: int, ratio: float) -> None:
    layers, ranks = 3, replicas * shards
    costs = Links(host_size=shards, ratio=ratio)
    sizes = {"layers": layers, "batches": ranks, "ranks": ranks}
    compute = 2 * layers + 0.5 * layers
    inside = 3 * 2 * 0.2 * (shards - 1) / shards
    between = 2 * 2 * 0.2 * ratio * (replicas - 1) / replicas / shards
    over_all = 3 * 2 * 0.2 * ratio * (ranks - 1) / ranks
    mesh = Mesh({"replica": replicas, "shard": shards})
    assert judged(HYBRID, mesh, costs, **sizes).time == pytest.approx(compute + layers * (inside + between))
    assert judged(fully_sharded(), None, costs, **sizes).time == pytest.approx(compute + layers * over_all)


def test_the_bound_speaks_of_hybrids_alone() -> None:
    bound = lower_bound("hsdp")
    for path in alternatives("hsdp"):
        excuse = bound.excuse(Trace.of(simulate(load_function(path, "hsdp"), puzzle="hsdp")))
        assert (excuse is None) == (path.stem in ("hsdp_step_by_step", "hsdp_sums_behind"))


def test_the_bound_does_not_speak_of_weights_from_another_host() -> None:
    """On a mesh that is turned round the same function gathers over the network."""
    trace = Trace.of(simulate(way("hsdp"), puzzle="hsdp", mesh=CROSSED))
    assert "to allgather with another host" in (lower_bound("hsdp").excuse(trace) or "")


def test_the_optimizer_over_all_ranks_saves_an_eighth_of_every_layer_at_no_time() -> None:
    hybrid, zero = judged(HYBRID), judged(way("hsdp_zero", "step_by_step"))
    assert zero.time == hybrid.time
    assert hybrid.memory - zero.memory == 6 * 262_144 // 8 == 196_608


@pytest.mark.parametrize("name", ["step_by_step", "sums_behind", "fsdp_over_all", "ddp"])
def test_no_solution_of_hsdp_reaches_a_goal_here(name: str) -> None:
    assert not check(Trace.of(simulate(way("hsdp", name), puzzle="hsdp_zero")), "hsdp_zero").passed


def test_one_replica_is_fsdp_and_one_shard_is_the_first_stage_of_zero() -> None:
    alone = judged(way("hsdp_zero"), Mesh({"replica": 1, "shard": 8}))
    assert alone.memory == 1_572_864
    first = judged(way("hsdp_zero"), Mesh({"replica": 8, "shard": 1}))
    assert first.memory > 6 * 262_144
