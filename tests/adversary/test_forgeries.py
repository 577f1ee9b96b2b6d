"""No Trace with one thing changed is called correct, unless it is: then its figures are those of what it says now."""

import copy
from collections import Counter
from importlib.util import find_spec
from random import Random

import pytest
from hypothesis import given

from lib import Layer, Mesh, Trace, TraceError, check, simulate
from lib.schedules.mesh_parallel import domain_parallel
from tests.adversary.examples import randoms, runs, tensor_runs
from tests.adversary.forgeries import FORGERIES
from tests.adversary.judging import dishonest, read
from tests.adversary.programs import Program
from tests.support.profiles import THOROUGH, examples
from tests.support.version_1 import encode
from tests.values.numbers import play

EACH = 5
"""Forgeries of one run: to forge is cheaper than to run."""


def forge(name: str, trace: Trace, random: Random) -> str:
    before = encode(trace)
    data = copy.deepcopy(before)
    FORGERIES[name](data, random)
    if data == before:
        return "the same"
    try:
        forged = read(data)
    except TraceError:
        return "refused"
    return "found out" if dishonest(forged, trace) else "honest"


@pytest.mark.parametrize("name", FORGERIES)
def test_one_thing_changed(name: str) -> None:
    found: Counter[str] = Counter()

    @examples(14, 3)
    @given(runs(), randoms)
    def test(program: Program, random: Random) -> None:
        trace = program.run()
        for _ in range(EACH):
            found[forge(name, trace, random)] += 1

    test()
    assert found["refused"] + found["found out"] + found["honest"] > 0, found


def test_one_thing_changed_where_weights_are_cut() -> None:
    found: Counter[str] = Counter()

    @examples(60, 10)
    @given(tensor_runs(), randoms)
    def test(program: Program, random: Random) -> None:
        trace = program.run()
        for name in ["parts"] * EACH + random.sample(sorted(FORGERIES), EACH):
            found[forge(name, trace, random)] += 1

    test()
    assert min(found["refused"], found["found out"], found["honest"]) > 3, found


GRID = [
    Layer("convolution", 2, 3, 9, kernel=3, padding=1),
    Layer("moments", 3, 2, 9),
    Layer("group_norm", 3, 3, 9, of=(1, 2)),
    Layer("convolution", 3, 2, 9, kernel=4, stride=2, padding=1),
]
AT_HOME = ["inputs", "inputs", "argument", "operation", "removed", "repeated", "group"]
"""Halos that are used twice, rows that a value lacks, gradients of halos that are left out or added to others."""


def test_one_thing_changed_where_a_grid_is_cut() -> None:
    """What is called correct is right in numbers: each value that is done, and with real tensors the whole step."""
    step = domain_parallel({"rows": [4, 2, 3]})
    before = encode(Trace.of(simulate(step, layers=GRID, mesh=Mesh({"rows": 3}), batches=2)))
    random, found = Random("halo"), Counter[str]()
    for _ in range(400 if THOROUGH else 30):
        name = random.choice(AT_HOME if random.random() < 0.7 else sorted(FORGERIES))
        data = copy.deepcopy(before)
        FORGERIES[name](data, random)
        try:
            forged = read(data)
            correct = check(forged).correct
        except TraceError:
            found["refused"] += data != before
            continue
        if data == before or not correct:
            found["found out"] += data != before
            continue
        assert play(forged), name
        assert replayed_right(forged), name
        found["honest"] += 1
    assert min(found["refused"], found["found out"]) > 1, found


def replayed_right(trace: Trace) -> bool:
    """Whether a replay gives the numbers of ordinary training; without torch nobody knows."""
    if find_spec("torch") is None:
        return True
    from lib.replay import UnfitTrace, replay

    try:
        return replay(trace, transport="local").ok
    except UnfitTrace:  # that of a sandbox
        return trace.sandbox
