"""Ways of puzzle moe_pipeline in the figures of an independent timing model."""

import pytest

from lib import simulate
from lib.analysis.figures import traffic
from lib.cluster.costs import units
from tests.support.puzzles import way


@pytest.mark.parametrize(("name", "ends"), [("await_all", [26.0, 23.6]), ("", [24.9, 22.5])])
def test_experts_in_a_pipeline_take_what_another_model_says(name: str, ends: list[float]) -> None:
    """The second stage's last message shares its link with a sum here, and ends 0.2 later than there."""
    trace = simulate(way("moe_pipeline", name), puzzle="moe_pipeline")[0].trace
    over = [units(max(event.end or 0 for event in program.events)) for program in trace.programs]
    assert over == [end for end in ends for _ in range(4)]
    assert [elements for elements, _ in traffic(trace)] == [2_228_224] * 8
