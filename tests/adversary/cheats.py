"""Dishonest edits of a program, one at a time: what a student might try, where ranks, values and stores are Python.

Each changes what one of the operations of a plan is given when it runs. What a program leaves out, does twice or
asks for otherwise is another Trace, see forgeries.py. Not every edit is dishonest wherever it lands: an equal value in
the place of another changes nothing. The oracle says which are.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.adversary.plans import Call, Plan
from tests.adversary.programs import pickled, remade

Cheat = Callable[[Plan, Random], bool]
"""Changes a plan. Whether there was anything to change."""


def _calls(plan: Plan, *ops: str) -> list[Call]:
    return [call for node in plan.nodes for call in node.calls if call.op in ops or (not ops and call.inputs)]


def _forge(plan: Plan, random: Random, how: Callable[[Any, Any], Any], kinds: str = "WOADG", *ops: str) -> bool:
    """Has one operation given something else in the place of one of its inputs."""
    places = [
        (call, place)
        for call in _calls(plan, *ops)
        for place, value in enumerate(call.inputs)
        if plan.kinds[value] in kinds
    ]
    if not places:
        return False
    call, place = random.choice(places)
    call.more.setdefault("forged", {})[place] = how
    return True


def from_nowhere(plan: Plan, random: Random) -> bool:
    return _forge(plan, random, remade)


def through_pickle(plan: Plan, random: Random) -> bool:
    return _forge(plan, random, pickled)


def of_another_rank(plan: Plan, random: Random) -> bool:
    """A value that another rank has put into a variable, if it is there in time: as it is, or as a copy."""
    places = [(call, place, value) for call in _calls(plan) for place, value in enumerate(call.inputs)]
    random.shuffle(places)
    for call, place, value in places:
        there = [v for v in range(len(plan.homes)) if plan.homes[v] != call.rank and _alike(plan, v, value)]
        if there:
            other, as_it_is = random.choice(there), random.random() < 0.5

            def steal(mine: Any, rank: Any, other: int = other, as_it_is: bool = as_it_is) -> Any:
                found = rank.program.shared.get(other, mine)
                return found if as_it_is or found is mine else remade(found, rank)

            call.more["forged"] = {place: steal}
            return True
    return False


def _alike(plan: Plan, one: int, other: int) -> bool:
    return (plan.kinds[one], plan.about[one][0]) == (plan.kinds[other], plan.about[other][0])


def made_up(plan: Plan, random: Random) -> bool:
    return _forge(plan, random, lambda value, rank: rank.model.fake_grad(value.layer, value.batches), "G")


def another_value(plan: Plan, random: Random) -> bool:
    """Another value of the same kind that the rank has: other batches, another layer, a stale or an updated weight."""

    def other(value: Any, rank: Any) -> Any:
        found = [v for v in rank.values.values() if type(v) is type(value) and v is not value]
        alike = [v for v in found if v.layer == value.layer]
        return random.choice(alike or found or [value])

    return _forge(plan, random, other)


def tampered(plan: Plan, random: Random) -> bool:
    """A value is changed behind Python's back just before it is used."""

    def change(value: Any, rank: Any) -> Any:
        model = rank.model
        ways: dict[str, Any] = {
            "batches": frozenset(range(model.BATCHES)),
            "shards": frozenset(range(getattr(value, "total", 1))),
            "total": 1,
            "step": 1 - getattr(value, "step", 0),
            "layer": (value.layer + 1) % model.LAYERS,
        }
        names = [name for name in ways if hasattr(value, name) and getattr(value, name) != ways[name]]
        if names:
            name = random.choice(names)
            object.__setattr__(value, name, ways[name])
        return value

    return _forge(plan, random, change)


CHEATS: dict[str, Cheat] = {
    "a value from nowhere": from_nowhere,
    "a value through pickle": through_pickle,
    "a value of another rank": of_another_rank,
    "a made-up gradient": made_up,
    "another value in its place": another_value,
    "a value tampered with": tampered,
}
