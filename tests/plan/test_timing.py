"""Seconds of a step: parts that add up, what can only make a step slower, and the order timer beside closed forms."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.plan import CLUSTERS, MODELS, STACKS, Plan, step
from lib.plan.judge import Published, published
from lib.plan.records import RECOMPUTE
from lib.plan.resources import LayerTime, hides_from, ring, roofline
from lib.plan.timing import Stages, bubble, order_of, stages, step_in_order, time_pipeline, timeline
from lib.schedules.pipelines.timing import time_order

NONE = LayerTime(0, 0, 0, 0, 0, 0, 0)
POWERS = st.sampled_from([1, 2, 4, 8])


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved 2", "interleaved 4", "zb-h1"])
@pytest.mark.parametrize(("ranks", "batches"), [(2, 4), (4, 8), (4, 16), (8, 16)])
@pytest.mark.parametrize(("forward", "half", "weight"), [(1, 1, 1), (3, 4, 2), (2, 3, 2)])
def test_the_closed_forms_are_the_order_timers_figures(
    schedule: str, ranks: int, batches: int, forward: int, half: int, weight: int
) -> None:
    """Where all stages are alike: a microbatch is m beats of the slowest rank, and the bubble."""
    name, _, v = schedule.partition(" ")
    v = int(v or 1)
    plan = Plan(ranks, batches, pp=ranks, v=v, schedule="1f1b" if name == "interleaved" else name)
    each = forward + half + weight
    stages = Stages(each, each, each, forward, half + weight, weight, NONE, 0, 0, 0)
    timed = time_order(order_of(plan), forward=forward / v, input_half=half / v, weight_half=weight / v)
    assert batches * each + bubble(plan, stages) == pytest.approx(timed.end, rel=1e-14)


@pytest.mark.parametrize("run", [run for run in published() if run.plan.pp > 1][::9], ids=lambda run: run.plan.mesh)
def test_stages_that_are_not_alike_are_within_the_error_of_the_model(run: Published) -> None:
    """The head and the embeddings make the ends longer: closed forms take the slowest rank for the beat."""
    cluster = CLUSTERS[run.cluster_name]
    exact, closed = step_in_order(run.model, cluster, run.plan), step(run.model, cluster, run.plan)
    assert exact.seconds == pytest.approx(closed.seconds, rel=0.02)
    assert exact.memory == closed.memory


@given(
    model=st.sampled_from(["gpt3-175b", "llama3-70b", "deepseek-v3"]),
    tp=POWERS,
    cp=POWERS,
    pp=POWERS,
    micro=POWERS,
    zero=st.integers(0, 3),
    recompute=st.sampled_from(RECOMPUTE),
    stack=st.sampled_from(sorted(STACKS)),
)
def test_parts_add_up_and_better_machines_are_not_slower(
    model: str, tp: int, cp: int, pp: int, micro: int, zero: int, recompute: str, stack: str
) -> None:
    shape, machine = MODELS[model], CLUSTERS["h100"]
    plan = Plan(512, 2048, 8192, tp, cp, pp, 1, micro, zero=zero, recompute=recompute, stack=STACKS[stack])
    if next(plan.problems(shape), None) is not None:
        return
    one = step(shape, machine, plan)
    assert sum(one.parts.values()) == pytest.approx(one.seconds)
    assert 0 < one.mfu_causal < one.mfu <= one.hfu
    assert one.mfu < plan.stack.fp8
    for figure in ("flops", "hbm", "nic", "nvlink"):
        better = replace(machine, **{figure: 2 * getattr(machine, figure)})
        assert step(shape, better, plan).seconds <= one.seconds * (1 + 1e-12), figure


def test_a_ring_enters_and_leaves_a_host_by_all_of_its_cards() -> None:
    h100 = CLUSTERS["h100"]
    inside, across = ring(1e9, 8, 8, h100), ring(1e9, 16, 8, h100)
    assert ring(1e9, 1, 1, h100) == 0
    assert inside == pytest.approx(7 / 8 * 1e9 / (450e9 * 0.82) + h100.collective / 2)
    assert across == pytest.approx(15 / 16 * 1e9 / (450e9 * 0.82) + h100.collective), "8 x 50 GB/s are more than NVLink"
    assert ring(1e9, 2, 1, h100) == pytest.approx(1 / 2 * 1e9 / 50e9 + h100.collective), "one card a pair of hosts"


def test_the_timeline_is_the_order_with_its_times() -> None:
    model, cluster = MODELS["gpt3-175b"], CLUSTERS["a100"]
    plan = Plan(64, 64, tp=8, pp=8, v=3, zero=0, recompute="selective", stack=STACKS["megatron"])
    spans, timed = timeline(model, cluster, plan), time_pipeline(model, cluster, plan)
    assert len(spans) == 2 * 8 * 3 * 64
    assert max(span.end for span in spans) == timed.end == pytest.approx(13_723, abs=1)
    assert all(span.exposed.keys() == {"tp"} and 0 < span.exposed["tp"] < 0.2 for span in spans)
    plan = Plan(8, 64, tp=8, micro=8, stack=STACKS["megatron"])
    alone = timeline(model, cluster, plan)
    assert alone[-1].end == pytest.approx(8e3 * stages(model, cluster, plan).first)
    assert [(span.kind, span.microbatch) for span in alone[:4]] == [("F", 0), ("B", 0), ("F", 1), ("B", 1)]


def test_the_tokens_that_hide_a_gather_do_not_depend_on_the_model() -> None:
    tokens = (256, 512, 1024, 2048, 4096)
    starts = {
        name: hides_from(roofline(MODELS[name], CLUSTERS["h100"], tokens)["data"])
        for name in ("llama3-8b", "llama3-70b", "llama3-405b")
    }
    assert starts == {"llama3-8b": 1127, "llama3-70b": 1140, "llama3-405b": 1218}
    tensor = roofline(MODELS["llama3-8b"], CLUSTERS["h100"], tokens)
    assert hides_from(tensor["tensor 16"]) is None, "two hosts"
    assert hides_from([(1, 2.0), (2, 3.0)]) == 1
    assert set(roofline(MODELS["deepseek-v3"], CLUSTERS["h800"], tokens, (), (64,))) == {"data", "expert 64"}
