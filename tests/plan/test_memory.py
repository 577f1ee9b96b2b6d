"""Bytes by kind: the figures of the papers that the formulas are from, and what no plan may get wrong."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.plan import MODELS, STACKS, Plan, Transformer, memory_of
from lib.plan.records import GIB, RECOMPUTE, SCHEDULES
from lib.plan.resources import layer_activations, layers_in_flight, state_bytes

MEGATRON = STACKS["megatron"]
SIZES = st.sampled_from([1, 2, 4, 8])


@pytest.mark.parametrize(
    ("model", "plan", "state", "activations", "spared"),
    [
        ("megatron-22b", Plan(8, 4, micro=4, tp=8), 45.5625, 59.25, 9.5625),
        ("gpt3-175b", Plan(64, 64, tp=8, pp=8, v=3), 45.5625, 66.84375, 12.3515625),
        ("megatron-530b", Plan(280, 280, tp=8, pp=35, v=3), 31.640625, 114.0234375, 23.076171875),
        ("megatron-1t", Plan(512, 512, tp=8, pp=64), 32.958984375, 131.25, 26.5625),
    ],
)
def test_figure_1_of_korthikanti(model: str, plan: Plan, state: float, activations: float, spared: float) -> None:
    """arXiv 2205.05198: weights and optimizer of the layers, activations as Megatron kept them, and with sequence
    parallelism and selective recomputation, in GiB."""
    shape, plan = MODELS[model], replace(plan, sp=False, stack=MEGATRON)
    per_rank = shape.layers * shape.layer_weights[0] / plan.tp / plan.pp
    assert sum(state_bytes(per_rank, 1, 0)) / GIB == state
    deep = layers_in_flight(shape, plan)
    assert deep * sum(layer_activations(shape, plan)) / GIB == activations
    rows, inside, _ = layer_activations(shape, replace(plan, sp=True))
    assert deep * (rows + inside) / GIB == spared


@given(heads=SIZES, d=st.sampled_from([64, 128]), sequence=st.sampled_from([1024, 2048]), micro=SIZES, t=SIZES)
def test_a_layer_of_gpt_keeps_34_bytes_an_entry_and_5_a_score(
    heads: int, d: int, sequence: int, micro: int, t: int
) -> None:
    """Equations 1 to 4 of arXiv 2205.05198: s·b·h·(34 + 5·a·s/h), with tensor parallelism (10 + 24/t + ...), and with
    sequence parallelism all of it divided by t."""
    h, a = 8 * heads * d, 8 * heads
    model = Transformer(layers=4, hidden=h, heads=a, ffn=4 * h, vocab=1024, dropout=True)
    entries, scores = sequence * micro * h, 5 * a * sequence / h
    plan = Plan(t, 8, sequence, tp=t, micro=micro, sp=False, stack=MEGATRON)
    assert sum(layer_activations(model, plan)) == pytest.approx(entries * (10 + 24 / t + scores / t))
    assert sum(layer_activations(model, replace(plan, sp=True))) == pytest.approx(entries * (34 + scores) / t)


@given(
    zero=st.integers(1, 2),
    tp=SIZES,
    pp=SIZES,
    micro=SIZES,
    recompute=st.sampled_from(RECOMPUTE),
    schedule=st.sampled_from(sorted(SCHEDULES)),
    model=st.sampled_from(sorted(MODELS)),
)
def test_sharding_and_recomputing_never_take_more(
    zero: int, tp: int, pp: int, micro: int, recompute: str, schedule: str, model: str
) -> None:
    shape = MODELS[model]
    plan = Plan(512, 4096, 4096, tp=tp, pp=pp, micro=micro, zero=zero, recompute=recompute, schedule=schedule)
    if next(plan.problems(shape), None) is not None:
        return
    here = memory_of(shape, plan)
    assert all(size >= 0 for size in here)
    assert here.total == sum(here)
    assert here.total <= memory_of(shape, replace(plan, zero=zero - 1)).total
    assert here.activations <= memory_of(shape, replace(plan, recompute="none")).activations * (1 + 1e-12) + here.logits


def test_gpt_3_fits_only_with_both() -> None:
    """PUZZLES: neither sequence parallelism nor selective recomputation alone brings GPT-3 onto 64 A100."""
    plan = Plan(64, 64, tp=8, pp=8, v=3, zero=0, sp=False, stack=MEGATRON)
    ways = (plan, replace(plan, sp=True), replace(plan, recompute="selective"))
    both = replace(plan, sp=True, recompute="selective")
    totals = [round(memory_of(MODELS["gpt3-175b"], way).total / GIB, 1) for way in (*ways, both)]
    assert totals == [113.7, 88.3, 84.9, 59.5]


def test_the_words_say_the_largest_first() -> None:
    """torchtitan measured 77.0 GiB there, compiled: the prediction is a lower bound."""
    plan = Plan(8, 16, 8192, micro=2, zero=3, recompute="half")
    said = "75.4 GiB: activations 38.1, logits 19.6, optimizer 7.5, weights 6.5, gradients 3.7"
    assert str(memory_of(MODELS["llama3-8b"], plan)) == said
