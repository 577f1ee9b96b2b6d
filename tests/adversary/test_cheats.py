"""No dishonest edit of a program is called correct: it is refused as it runs, or found out by the check."""

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given

from lib import PuzzleError
from tests.adversary.cheats import CHEATS
from tests.adversary.examples import plans, randoms, tensor_plans
from tests.adversary.judging import dishonest
from tests.adversary.plans import Plan
from tests.adversary.programs import programs
from tests.support.profiles import examples


def cheat(name: str, plan: Plan, random: Random) -> str:
    """What became of a cheat: there was nothing to edit, it was refused, found out, or harmless where it landed."""
    if not CHEATS[name](plan, random):
        return "nothing to edit"
    try:
        trace = programs(plan, random).run()
    except PuzzleError:
        return "refused"
    return "found out" if dishonest(trace) else "harmless"


@pytest.mark.parametrize("name", CHEATS)
def test_one_dishonest_edit(name: str) -> None:
    found: Counter[str] = Counter()

    @examples(115, 8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
    @given(plans(), randoms)
    def test(plan: Plan, random: Random) -> None:
        found[result := cheat(name, plan, random)] += 1
        assume(result in ("refused", "found out"))

    test()
    assert found["refused"] + found["found out"], found


def test_one_dishonest_edit_where_weights_are_cut() -> None:
    found: Counter[str] = Counter()

    @examples(120, 30)
    @given(tensor_plans(), randoms)
    def test(plan: Plan, random: Random) -> None:
        found[cheat(random.choice(sorted(CHEATS)), plan, random)] += 1

    test()
    assert min(found["refused"], found["found out"]) > 3, found
