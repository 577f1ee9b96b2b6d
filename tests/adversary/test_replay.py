"""Every correct training step is ordinary training when it is replayed with real tensors, in the memory it claims."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.adversary.examples import runs
from tests.adversary.programs import Program
from tests.adversary.replaying import replayed
from tests.support.profiles import examples

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")


@examples(110, 15)
@given(runs())
def test_a_correct_step_is_ordinary_training(program: Program) -> None:
    replayed(program.run())


@examples(10)
@given(runs())
def test_with_two_numbers_of_state_a_weight(program: Program) -> None:
    replayed(program.run(), optimizer="adam")
