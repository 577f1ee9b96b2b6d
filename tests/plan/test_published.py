"""Predicted beside published: the promises, and where the closed forms fail."""

import pytest

from lib.plan import CLUSTERS
from lib.plan.judge import METRICS, error, mean_error, published, sets
from tools.fit_plan import SHARES, fitted

OF_SET = {name: [run for run in published() if run.set == name] for name in sets()}


@pytest.mark.parametrize("name", [name for name, one in sets().items() if one.promise is not None])
def test_what_is_held_out_is_predicted_as_promised(name: str) -> None:
    promise = sets()[name].promise
    assert promise is not None
    assert not sets()[name].fitted
    assert mean_error(OF_SET[name]) <= promise


@pytest.mark.parametrize("name", [name for name, one in sets().items() if one.fails])
def test_where_the_closed_forms_fail_they_say_so(name: str) -> None:
    assert mean_error(OF_SET[name]) > 8, "it does not fail any more: promise something"
    assert sets()[name].promise is None


def test_zero_3_of_2021_used_one_card_of_eight_perhaps() -> None:
    """The detective's task: with 20 GB/s a host the prediction is near what was printed."""
    from dataclasses import replace

    slow = {"a100": replace(CLUSTERS["a100"], nic=CLUSTERS["a100"].nic / 10)}
    assert all(abs(error(run, slow)) < 0.2 for run in OF_SET["zero3_2021"])
    assert all(error(run) < -0.25 for run in OF_SET["zero3_2021"])


def test_every_run_is_possible_and_every_set_has_runs() -> None:
    assert [(run.set, why) for run in published() for why in run.plan.problems(run.model)] == []
    assert {run.metric for run in published()} == METRICS.keys()
    assert all(OF_SET.values())
    assert all(one.source and not (one.fitted and one.promise) for one in sets().values())


def test_the_constants_are_what_the_fit_gives() -> None:
    for name, cluster in fitted().items():
        for constant in (*SHARES, "half_size", "collective", "hop"):
            there = getattr(CLUSTERS[name], constant)
            assert getattr(cluster, constant) == pytest.approx(there, rel=1e-3), f"{name}: {constant}"
