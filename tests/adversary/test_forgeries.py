"""No Trace with one thing changed is called correct, unless it is: then its figures are those of what it says now."""

import copy
from collections import Counter
from random import Random

import pytest
from hypothesis import given

from lib import Trace, TraceError
from lib.trace.json_format import encode
from tests.adversary.examples import randoms, runs, tensor_runs
from tests.adversary.forgeries import FORGERIES
from tests.adversary.judging import dishonest, read
from tests.adversary.programs import Program
from tests.support.profiles import examples

EACH = 5
"""Forgeries of one run: to forge is cheaper than to run."""


def forge(name: str, trace: Trace, random: Random) -> str:
    """What became of a forgery."""
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
