"""Every correct training step is accepted, however odd: with the same figures in memory, from JSON and from text."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, reject

from lib import Trace, simulate
from tests.adversary.examples import runs, tensor_runs
from tests.adversary.judging import agree, honest, judged, ready, replayed
from tests.adversary.oracle import TooFine, opinion
from tests.adversary.plans import training_step
from tests.adversary.programs import Program, programs
from tests.support.profiles import examples, sample
from tests.support.schedules import EVERYTHING, Case
from tests.support.version_1 import encode


def accepted(program: Program) -> None:
    """Whether a step is, unless it is cut too finely for the oracle to lay it out."""
    try:
        honest(program.run())
    except TooFine:
        reject()


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6])
def test_a_correct_step_is_accepted(ranks: int) -> None:
    @examples(200, 8)
    @given(runs(ranks))
    def test(program: Program) -> None:
        accepted(program)

    test()


@examples(200, 20)
@given(tensor_runs())
def test_a_correct_step_with_parts_of_weights_is_accepted(program: Program) -> None:
    accepted(program)


@pytest.mark.parametrize("case", sample(EVERYTHING), ids=lambda case: case.name)
def test_the_oracle_has_the_figures_of_known_schedules(case: Case) -> None:
    trace = Trace.of(case.run(simulate))
    verdict, second = judged(trace), opinion(encode(trace))
    assert ready(verdict) == (second.flaw is None)
    agree(trace, verdict, second)


def test_what_is_drawn_has_everything_in_it() -> None:
    """No kind of operation, group, message or waiting is left out for long."""
    found: Counter[str] = Counter()
    for seed in range(150):
        random = Random(seed)
        trace = programs(training_step(random), random).run()
        for program in trace.programs:
            if not program.events:
                found["an idle rank"] += 1
            for event in program.events:
                found[event.op] += 1
                if event.group:
                    found["a group of some"] += len(event.group) < trace.ranks
                    found["a group in another order"] += list(event.group) != sorted(event.group)
                if event.op == "pass_to":
                    found["a message of several"] += len(event.inputs) > 1
                    found["a message of none"] += not event.inputs
                found["an uneven shard"] += event.op == "load_weights" and event.arg[1] > trace.ranks
            for _, store, number, _ in program.moves:
                value = program.values[number]
                found["a swapped store"] += value is not None and value.kind == "weight" and store != 0
    missing = {what for what in found if not found[what]}
    assert not missing
    assert len(found) == 28, sorted(found)


@examples(110, 15)
@given(runs())
def test_a_correct_step_is_ordinary_training(program: Program) -> None:
    """Replayed with real tensors, in just the memory that it claims."""
    pytest.importorskip("torch", reason="a replay needs torch: pip install torch")
    replayed(program.run())


@examples(10)
@given(runs())
def test_with_two_numbers_of_state_a_weight(program: Program) -> None:
    pytest.importorskip("torch", reason="a replay needs torch: pip install torch")
    replayed(program.run(), optimizer="adam")
