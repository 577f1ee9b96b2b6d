"""Dishonest edits of a program, one at a time: what a student might try, where ranks, values and stores are Python.

Each takes a plan and changes it a little, or what one of its operations is given when it runs. Not every edit is
dishonest wherever it lands: an equal value in the place of another changes nothing. The oracle says which are.
"""

from __future__ import annotations

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


def left_out(plan: Plan, random: Random) -> bool:
    """Nothing in the place of a gradient."""
    return _forge(plan, random, lambda value, rank: rank.model.fake_grad(value.layer), "G")


def another_value(plan: Plan, random: Random) -> bool:
    """Another value of the same kind that the rank has: other batches, another layer, a stale or an updated weight."""

    def other(value: Any, rank: Any) -> Any:
        found = [v for v in rank.values.values() if type(v) is type(value) and v is not value]
        alike = [v for v in found if v.layer == value.layer]
        return random.choice(alike or found or [value])

    return _forge(plan, random, other)


USES = ("forward", "backward", "backward_input", "backward_weight", "update", "set_final_weight", "allgather")


def loaded_again(plan: Plan, random: Random) -> bool:
    """A fresh load in the place of what was loaded, gathered or received before."""

    def load(value: Any, rank: Any) -> Any:
        model = rank.model
        kind = "WO".find({"weight": "W", "optimizer state": "O"}.get(value.kind, "-"))
        if kind < 0:
            return model.get_activation(value.batches) if value.layer == 0 else value
        parts = [model.load_weights(value.layer, shard, value.total)[kind] for shard in sorted(value.shards)]
        if len(parts) == value.total:
            return model.load_weights(value.layer)[kind]
        found = parts[0]
        for part in parts[1:]:
            found = found.combine(part)
        return found

    return _forge(plan, random, load, "WOA", *USES)


def updated_twice(plan: Plan, random: Random) -> bool:
    """What was updated is updated again, with the same gradient."""

    def again(weight: Any, rank: Any) -> Any:
        model = rank.model
        values = [v for v in rank.values.values() if v.layer == weight.layer]
        grads = [v for v in values if v.kind == "weight gradient" and len(v.batches) == model.BATCHES]
        states = [v for v in values if v.kind == "optimizer state" and v.step == 1]
        if not grads or not states:
            return weight
        return model.update(weight.layer, random.choice(grads), weight, random.choice(states))[0]

    return _forge(plan, random, again, "W", "set_final_weight", "allgather", "broadcast", "pass_to")


def not_updated(plan: Plan, random: Random) -> bool:
    """The weight as it was loaded is handed in, or goes on to others."""

    def old(weight: Any, rank: Any) -> Any:
        found = [v for v in rank.values.values() if type(v) is type(weight) and v.layer == weight.layer and not v.step]
        return random.choice(found or [weight])

    return _forge(plan, random, old, "W", "set_final_weight", "allgather", "broadcast", "combine")


def not_handed_in(plan: Plan, random: Random) -> bool:
    """One rank forgets to hand in what it has updated, or to keep it."""
    finals = [node for node in plan.nodes if node.calls[0].op == "set_final_weight"]
    if plan.ends and random.random() < 0.5:
        plan.ends.remove(random.choice(plan.ends))
        return True
    if not finals:
        return False
    gone = random.choice(finals)
    gone.calls[0] = Call(gone.calls[0].rank, "fake_grad", gone.calls[0].layer, [], [], {"batches": (), "nothing": True})
    return True


def other_data(plan: Plan, random: Random) -> bool:
    """Another batch than the one that it says."""
    call = random.choice(_calls(plan, "get_activation"))
    before = call.more["batches"]
    call.more["batches"] = frozenset(random.sample(range(plan.batches), random.randint(1, plan.batches)))
    return call.more["batches"] != before


def other_part(plan: Plan, random: Random) -> bool:
    """Another shard than that which nobody else has; or another one is cut out."""
    calls = [call for call in _calls(plan, "load_weights", "shard") if call.more["total"] > 1]
    if not calls:
        return False
    call = random.choice(calls)
    if random.random() < 0.7:
        call.more["shard"] = (call.more["shard"] + random.randint(1, call.more["total"] - 1)) % call.more["total"]
    else:
        call.more["total"] += 1
    return True


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


def skipped(plan: Plan, random: Random) -> bool:
    """A forward or a backward pass is left out: its result is asked of a gradient or an activation of another one."""

    def instead(value: Any, rank: Any) -> Any:
        found = [v for v in rank.values.values() if type(v) is type(value) and v.batches == value.batches]
        return random.choice(found or [value])

    return _forge(plan, random, instead, "AD")


def absent(plan: Plan, random: Random) -> bool:
    """A member of a collective does not come, a message is not sent or not received."""
    nodes = [node for node in plan.nodes if node.calls[0].op in ("pass_to", "receive") or len(node.calls) > 1]
    if not nodes:
        return False
    node = random.choice(nodes)
    call = random.choice(node.calls)
    call.more["absent"] = True
    return True


CHEATS: dict[str, Cheat] = {
    "a value from nowhere": from_nowhere,
    "a value through pickle": through_pickle,
    "a value of another rank": of_another_rank,
    "a made-up gradient": made_up,
    "a gradient left out": left_out,
    "another value in its place": another_value,
    "loaded again": loaded_again,
    "updated twice": updated_twice,
    "not updated": not_updated,
    "not handed in, or not kept": not_handed_in,
    "other data": other_data,
    "another part": other_part,
    "a value tampered with": tampered,
    "a pass skipped": skipped,
    "a member that does not come": absent,
}
