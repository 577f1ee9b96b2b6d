"""Rows that are made up, in the tables before anybody reads them: a plugin of pytest, see test_made_up.

Backward in two halves that both take the weight (those of the table do not, see `backward_weight`), an operation with
an argument of its own, three collectives (a reduce to a root, a permutation along a ring, and an all-gather of unequal
parts), and what a step begins and ends with under other names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lib import record as tables

RENAMED = {"load_weights": "read_checkpoint", "update": "fused_update", "set_final_weight": "hand_in"}


def operations(known: Mapping[str, Any]) -> Iterable[Any]:
    from lib.values import rules
    from lib.values.laws import cut
    from lib.values.operations import ARGUMENTS
    from lib.values.values import Activation, ActivationGrad, Weight, WeightGrad

    halves = {"weight_gradient_half": ("HW", "half"), "input_gradient_half": ("HI", "backward")}
    for place, (name, (word, colour)) in enumerate(halves.items()):
        # Half of backward: it gives one of the two gradients, in half the time, and through the same weight.
        yield replace(
            known["backward"], name=name, word=word, title=name.replace("_", " "),
            signature=f"model.{name}(layer, activation, gradient, weight)",
            rule=lambda shape, layer, *values, place=place: rules.backward(shape, layer, *values)[place],
            takes=(Activation, ActivationGrad, Weight),
            gives=((WeightGrad, ActivationGrad)[place],),
            cost=0.5, by_kind=False, labels=(), letter="", colour=colour,
        )  # fmt: skip
    ARGUMENTS["half"] = (1,)
    yield replace(
        known["shard"], name="half_of", word="HO", title="half", says="half", signature="model.half_of(value, half)",
        rule=lambda shape, layer, half, value: cut(value, half, 2),
    )  # fmt: skip
    for number, (name, other) in enumerate(RENAMED.items()):
        word = f"N{'ABC'[number]}"
        yield replace(known[name], name=other, word=word, title=other, signature=f"model.{other}(layer)")


def collectives(known: Mapping[str, Any]) -> Iterable[Any]:
    from lib.values.collectives import CHAIN, STEP, Collective
    from lib.values.laws import reduce, total_elements

    yield Collective(
        "reduce_to", "RT", "reduce", "gradient, layer, root",
        lambda values, root=0, size=total_elements: size(values[:1]), CHAIN, reduce,
        lambda values, root: [reduce(*values) if i == root else None for i in range(len(values))],
        root=("that gets the sum", "that gets the sum"),
    )  # fmt: skip
    yield Collective(
        "permute", "PM", "permute", "value, layer",
        lambda values, root=0, size=total_elements: max(size([value]) for value in values), STEP,
        gives=lambda values, root: [values[i - 1].at(values[i - 1].place) for i in range(len(values))],
        origins=lambda member, members, root: ((member - 1) % members,),
        sends=lambda values, root, size: [size([value]) if len(values) > 1 else 0 for value in values],
    )  # fmt: skip
    yield replace(known["allgather"], name="gather_unequal", word="AU", title="unequal all-gather")


MORE = {"Operation": operations, "Collective": collectives}
as_it_is = tables.table


def with_more(rows: Iterable[Any], by: str = "name") -> Mapping[str, Any]:
    """A table with its rows that are made up, if it has some."""
    known = as_it_is(rows, by)
    more = MORE.get(type(next(iter(known.values()))).__name__)
    return known if more is None else as_it_is([*known.values(), *more(known)], by)


tables.table = with_more
