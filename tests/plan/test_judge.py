"""Judging a plan: what cannot be, what does not fit, what is too slow, each with its numbers and what would help."""

from typing import Any

import pytest

from lib.plan import GIB, Plan
from lib.plan.judge import Task, judge, plan_of
from tests.support.said import Said

GPT3 = Task("gpt3-175b", "a100", 64, 64, 2048, "megatron")
GOOD: dict[str, Any] = {
    "tp": 8, "cp": 1, "pp": 8, "ep": 1, "micro": 1, "v": 3, "schedule": "1f1b", "zero": 0, "recompute": "selective",
}  # fmt: skip


def test_a_plan_within_its_goal() -> None:
    judged = judge(GPT3, GOOD, 13.9)
    assert judged.faults == judged.warnings == ()
    assert judged.step is not None
    assert (round(judged.step.seconds, 2), round(judged.step.memory.total / GIB, 1)) == (13.8, 59.5)
    assert judge(GPT3, Plan(1, 1, **GOOD), 13.9) == judged, "a Plan says the same, and its GPUs are the task's"


def faults(answer: object) -> str:
    return "\n".join(judge(GPT3, answer, 13.9).faults)


test_what_is_wrong_is_said_with_its_numbers = Said(__file__, "judged").test(lambda: globals())


def test_what_a_plan_leaves_out_is_as_in_plan() -> None:
    assert plan_of(GPT3, {}).as_answer() == Plan(1, 1).as_answer()
    assert plan_of(GPT3, {"v": 3}).as_answer() == Plan(1, 1, v=3).as_answer()


def test_the_first_change_named_fits_and_is_the_fastest() -> None:
    llama = Task("llama3-405b", "h100-llama3", 8192, 2048, 8192)
    (fault,) = judge(llama, {"tp": 8, "pp": 16, "v": 8, "zero": 2}).faults
    assert fault.endswith("Each alone can make it fit, fastest first: recompute, cp, tp.")
    deepseek = Task("deepseek-v3", "h800", 2048, 15360, 4096, "deepseek")
    (fault,) = judge(deepseek, {"pp": 16, "ep": 8, "schedule": "dualpipe", "recompute": "selective"}).faults
    assert fault.endswith("fastest first: ep, zero."), "and not how far: that is the puzzle"


def test_what_leaves_the_host_is_a_warning() -> None:
    (warning,) = judge(GPT3, GOOD | {"tp": 16, "pp": 4, "v": 6}).warnings
    assert warning.startswith("tp 16 leaves the host of 8 GPUs")


@pytest.mark.parametrize(
    "odd",
    [{"schedule": ["1f1b"]}, {"schedule": None}, {"recompute": {}}, {"zero": True}, {"zero": 1.0}, {"tp": True},
     {"v": 10**400}, {"pp": 10**9000}, {"x" * 10**5: 1}, {"sp": 10**9000}, {"micro": float("nan")}, {"pp": -8}, {3: 4}],
)  # fmt: skip
def test_odd_values_are_refused_in_a_sentence(odd: dict[Any, Any]) -> None:
    (fault,) = judge(GPT3, GOOD | odd).faults
    assert len(fault) < 300
    assert fault.endswith(".")


def test_a_pipeline_of_very_many_passes_is_timed_by_the_closed_forms() -> None:
    task = Task("gpt3-175b", "a100", 64, 61440, 2048, "megatron")
    judged = judge(task, GOOD)
    assert judged.faults == ()
    assert judged.step is not None
    assert judged.step.parts["bubble"] < 0.001 * judged.step.seconds
