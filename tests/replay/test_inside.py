"""What a replay has no real layers for yet is refused, in words, before anything starts."""

import pytest

from lib import Layer, simulate
from lib.replay.errors import UnfitTrace
from lib.replay.plan.plan import make_plan
from lib.replay.plan.sizes import Sizes
from tests.support.inside import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_layers_of_other_kinds_are_refused(name: str) -> None:
    one = PROGRAMS[name]
    models = simulate(one.make(""), layers=one.layers, ranks=one.ranks, batches=one.batches)
    with pytest.raises(UnfitTrace, match="linear ones of one size"):
        make_plan(models[0].trace, Sizes(8, 8))


def test_a_part_of_the_rows_is_refused() -> None:
    models = simulate(PROGRAMS["grid"].make(""), layers=[Layer()] * 2, ranks=4, batches=2)
    with pytest.raises(UnfitTrace, match="whole rows of a batch"):
        make_plan(models[0].trace, Sizes(8, 8))
