"""Judging a plan: what cannot be, what does not fit, what is too slow, each with its numbers and what would help."""

from typing import Any

import pytest

from lib.plan import GIB, Plan
from lib.plan.judge import Task, judge, plan_of
from lib.plan.records import CHOSEN

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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sp": False, "recompute": "none"}, "113.7 GiB do not fit into 76.0: the largest part is 66.8 of activations. "
         "One change alone: recompute = 'full' needs 53.2; recompute = 'selective' needs 84.9; sp = True needs 88.3"),
        ({"recompute": "full"}, "a step takes 17.83 s, and the goal allows 13.9. 10.83 s of it are computation; then "
         "computing again 3.59 s (20%)"),
        ({"tp": 7}, "tp 7 x cp 1 x pp 8 make 56, which does not divide 64 GPUs."),
        ({"micro": 32, "v": 3}, "interleaving takes microbatches in groups of pp 8; there are 2, so 2 are left over."),
        ({"tp": 16, "pp": 4, "v": 6}, "tensor parallelism in the open 5.43 s (31%)"),
        ({"sp": 1}, "sp is True or False; got 1."),
        ({"dp": 1}, "and not 'dp'; dp is what is left of the GPUs."),
        ({"tp": "8"}, "tp is a whole number from 1 to 1,000,000,000; got '8'."),
        ({"tp": [8]}, "tp is a whole number"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_numbers(change: dict[str, Any], said: str) -> None:
    (fault,) = judge(GPT3, GOOD | change, 13.9).faults
    assert said in fault


@pytest.mark.parametrize("answer", [None, 3, "tp8", [], ("tp", 8)])
def test_what_is_no_plan_is_refused(answer: object) -> None:
    (fault,) = judge(GPT3, answer).faults
    assert fault.startswith("a plan is a dict of tp, cp, pp")


def test_a_missing_key_is_named_with_what_there_would_be() -> None:
    for name in CHOSEN[:-1]:
        answer = {key: value for key, value in GOOD.items() if key != name}
        with pytest.raises(ValueError, match=f"says nothing of {name}; without it there would be {{'{name}': "):
            plan_of(GPT3, answer)


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
