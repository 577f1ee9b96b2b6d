"""The search: what it finds for published runs, how flat the top is, and what it says where nothing fits."""

from dataclasses import replace
from typing import Any

import pytest

from lib.plan import CLUSTERS, MODELS, STACKS, Plan, memory_of, search
from lib.plan.candidates import ALIKE, ROOM, candidate, one_step_away
from lib.plan.records import GIB

LLAMA = MODELS["llama3-405b"]


MEGATRON = STACKS["megatron"]


@pytest.mark.parametrize(
    ("model", "cluster", "axes", "best", "seconds", "theirs", "regret"),
    [
        ("llama3-405b", "h100-llama3", {"zero": (2,)}, (4, 2, 8, 8), 6.51,
         Plan(16384, 2048, 8192, tp=8, pp=16, v=8, zero=2), 0.024),
        ("llama3-405b", "h100-llama3", {"zero": (2,)}, (8, 32, 2, 8), 16.40,
         Plan(16384, 128, 131072, tp=8, cp=16, pp=16, v=8, zero=2), 0.022),
        ("gpt3-175b", "a100", {"zero": (0, 1, 3), "micro": (1, 2, 4, 8)}, (8, 1, 8, 6), 13.05,
         Plan(64, 64, tp=8, pp=8, v=3, zero=0, recompute="selective", stack=MEGATRON), 0.057),
    ],
    ids=["405B", "405B, long", "GPT-3"],
)  # fmt: skip
def test_published_plans_are_near_the_best(
    model: str, cluster: str, axes: dict[str, Any], best: tuple[int, ...], seconds: float, theirs: Plan, regret: float
) -> None:
    base = Plan(theirs.gpus, theirs.batch, theirs.sequence, zero=theirs.zero or 1, stack=theirs.stack)
    shape, machine = MODELS[model], CLUSTERS[cluster]
    found = search(shape, machine, base, axes)
    first = found.candidates[0]
    assert (first.plan.tp, first.plan.cp, first.plan.pp, first.plan.v) == best
    assert first.seconds == pytest.approx(seconds, rel=1e-3)
    assert candidate(shape, machine, theirs).seconds / first.seconds - 1 == pytest.approx(regret, abs=2e-3)
    assert all(one.memory <= ROOM * machine.memory for one in found.candidates)
    near = sum(one.seconds <= (1 + ALIKE) * first.seconds for one in found.candidates)
    assert near <= 10 < len(found.candidates) / 30, "flat at the top, and steep beside it"


def test_no_plan_of_the_front_is_beaten() -> None:
    found = search(LLAMA, CLUSTERS["h100-llama3"], Plan(16384, 2048, 8192, zero=2), {"zero": (2,)})
    front = found.front()
    pairs = [(one.seconds, one.memory) for one in found.candidates]
    for one in front:
        assert not any((s <= one.seconds and m < one.memory) or (s < one.seconds and m <= one.memory) for s, m in pairs)
    shown = [(round(one.seconds, 2), round(one.memory / GIB)) for one in front]
    assert {(6.51, 68), (6.56, 56), (6.68, 49), (7.24, 31), (8.33, 19), (9.07, 11)} <= set(shown)


def test_processes_find_the_same() -> None:
    base = Plan(64, 64, 4096)
    here = search(MODELS["llama3-8b"], CLUSTERS["h100"], base)
    calls: list[tuple[int, int]] = []
    model, cluster = MODELS["llama3-8b"], CLUSTERS["h100"]
    assert search(model, cluster, base, jobs=2, done=lambda *so_far_of_all: calls.append(so_far_of_all)) == here
    assert calls[-1] == (5, 5)


def test_where_nothing_fits_the_nearest_is_given() -> None:
    found = search(LLAMA, CLUSTERS["h100"], Plan(8, 64, 8192))
    assert found.candidates == ()
    assert found.nearest is not None
    assert found.nearest.memory == memory_of(LLAMA, found.nearest.plan).total > CLUSTERS["h100"].memory
    assert found.nearest.plan.recompute == "full"
    impossible = search(LLAMA, CLUSTERS["h100"], Plan(8, 64, 8192), {"tp": (3,)})
    assert (impossible.candidates, impossible.possible, impossible.nearest) == ((), 0, None)


def test_one_step_away_changes_one_field() -> None:
    plan = Plan(64, 64, tp=8, pp=8, v=3, zero=0, recompute="selective", stack=STACKS["megatron"])
    away = one_step_away(MODELS["gpt3-175b"], CLUSTERS["a100"], plan)
    for name, others in away.items():
        assert [replace(other.plan, **{name: getattr(plan, name)}) for other in others] == [plan] * len(others)
    assert [other.plan.tp for other in away["tp"]] == [4]
    assert [other.plan.recompute for other in away["recompute"]] == ["none", "full"]
