"""Chunks that travel while others are multiplied, in the figures of an independent timing model."""

import pytest

from lib import Links, Trace, simulate
from lib.analysis.figures import end, most_sent
from tests.support.puzzles import way


@pytest.mark.parametrize(
    ("name", "ends", "sent"),
    [
        ("await_all", {0.0: 4.9, 0.02: 5.26}, 589_824),
        ("chunks_awaited", {0.0: 4.9, 0.02: 5.26}, 589_824),
        ("keep_gathered", {0.0: 4.0, 0.02: 4.135}, 589_824),
        ("", {0.0: 4.0, 0.02: 4.135}, 786_432),  # two inputs are gathered again
    ],
)
def test_it_takes_what_another_model_says(name: str, ends: dict[float, float], sent: int) -> None:
    runs = {
        latency: Trace.of(
            simulate(way("async_tensor_parallel", name), ranks=4, layers=4, batches=1, costs=Links(latency=latency))
        )
        for latency in ends
    }
    assert {latency: end(run) for latency, run in runs.items()} == ends
    assert {most_sent(run) for run in runs.values()} == {sent}
