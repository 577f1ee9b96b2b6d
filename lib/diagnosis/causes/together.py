"""Values that do not go together, such as halves of a gather, or rows and their halos: who brought which, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lib.diagnosis.facts as facts
from lib.analysis.feeding import feeds
from lib.diagnosis.groups import cut_otherwise, meeting, same_shard, twice
from lib.diagnosis.provenance import (
    Advice,
    alike,
    because,
    home,
    is_held,
    likely_cause,
    line_of,
    made_by,
    maker,
    named,
    through,
    titled,
)
from lib.errors.exceptions import Fact
from lib.errors.wording import numbered, these
from lib.trace.event import Event
from lib.values.collectives import COLLECTIVES
from lib.values.dims import DIMS, SPACE
from lib.values.kinds.grid.convolution import Swept
from lib.values.kinds.grid.stencils import Stencil
from lib.values.operations import BY_INPUT, BY_WEIGHT
from lib.values.values import ActivationGrad, Value, WeightGrad, definite, describe, subject

if TYPE_CHECKING:
    from lib.diagnosis.provenance import Running

# -- in a collective ----------------------------------------------------------------------------------------------


@because(facts.Unlawful)
def unlawful(fact: Fact, program: Running | None) -> Advice | None:
    return likely_cause(fact.why, program) if isinstance(fact.why, Fact) else None


@because(facts.Disagree)
def disagree(fact: Fact, _: Running | None) -> Advice | None:
    """In another order, or in the wrong group? Of what is called with other arguments there is no more to know."""
    first, other = fact.first, fact.other
    return meeting(first, other) if (first.op, first.layer) != (other.op, other.layer) else None


@because(facts.Different)
def different(fact: Fact, _: Running | None) -> Advice | None:
    """Shards in a sum over ranks that are no part of one, or a whole gradient beside a shard of a sum."""
    first, other = fact.first, fact.other
    mine, theirs, lent = home(first), home(other), maker(other)
    if fact.field == "layer" and lent and lent.op == "halo" and lent.layer is not None:
        return (
            f"the second came by the halo exchange of layer {lent.layer}{line_of(lent)}. A halo is of one activation "
            "alone:\nfor each layer neighbours exchange their edges anew, forward and backward"
        )
    if mine and lent and lent.op == "halo" and fact.field != "layer" and first.place.batches != other.place.batches:
        return _halo_of_other_batches(mine, lent, first.place.batches)
    if fact.field == "layer" or fact.verb == "gather":
        return _exchanged(fact)
    if mine is None or theirs is None or fact.verb != "sum":
        return None
    made = maker(first)
    if made is not None and made.op in BY_INPUT and [*made.outputs].index(first.mark[1]) == 1:
        gave = mine.values[made.outputs[0]]
        if isinstance(gave, ActivationGrad):
            second, before = (definite(subject(value.kind, value.layer)) for value in (first, gave))
            return f"{named(made)} gave {before}, and after it this,\n{second}: look at the order of the two"
    if theirs is mine:
        return _summed_already(mine, fact) if fact.field == "total" else _of_a_neighbour(fact)
    if fact.field != "shards":
        return None
    return cut_otherwise(mine, first) or same_shard(mine, first.layer)


def _exchanged(fact: Fact) -> str | None:
    """Two pieces out of one collective: two ranks brought different things to it, or cut theirs in different ways."""
    event, first = through(fact.first, ("combine",))
    if event is None or event is not maker(fact.other) or event.op not in COLLECTIVES:
        return None
    pieces = [(event.group[event.outputs.index(one.mark[1])], one) for one in (first, fact.other) if one.mark]
    if fact.field == "layer":
        brought = [f"rank {rank} brought {definite(subject(value.kind, value.layer))}" for rank, value in pieces]
        return (
            f"both came out of one {COLLECTIVES[event.op].title}{line_of(event)}: {' and '.join(brought)}.\n"
            "All ranks of a group call its collectives in the same order, each time with the same value"
        )
    if event.op != "alltoall" or fact.field not in DIMS or first.place.batches != fact.other.place.batches:
        return None
    (one, _), (two, _) = pieces
    return (
        f"they came out of one all-to-all{line_of(event)}, from ranks {one} and {two}, which do not agree on the "
        f"{DIMS[fact.field].plural}\nthat this rank gets: on every rank, value number i is for member number i"
    )


def _summed_already(program: Running, fact: Fact) -> str | None:
    """A whole gradient beside a shard of a sum, where a reduce-scatter has taken it already."""
    for value in (fact.first, fact.other):
        number = value.mark[1] if value.is_complete() and value.mark is not None else None
        for event in program.events:
            if event.op == "scatterreduce" and number in event.inputs:
                return (
                    f"the gradient of {these('batch', value.place.batches)} went into {titled(event)}:\n"
                    "add the shard that this gave; and does every key say the batch that it holds?"
                )
    return None


# -- rows, and their halos ----------------------------------------------------------------------------------------


def _stencil(program: Running | None, made: Event | None, role: str) -> Stencil | None:
    """The stencil, along a dim, of the convolution that worked something out."""
    if program is None or made is None or made.layer is None:
        return None
    kinds = program.world.models[program.rank].shape.kinds
    kind = kinds[made.layer] if made.layer < len(kinds) else None  # after the last layer comes the loss
    return kind.stencils.get(role) if isinstance(kind, Swept) else None


@because(facts.OtherParts)
def other_parts(fact: Fact, program: Running) -> str | None:
    """Values of different rows: did a layer get no halo, or does this rank have the one that goes with the other?"""
    for value in (fact.one, fact.other):
        if fact.role in SPACE and (found := _lacked_halo(value, fact.role)) is not None:
            return found
    for value, other in ((fact.one, fact.other), (fact.other, fact.one)) if fact.role == "rows" else ():
        wanted = other.place.part("rows")
        for number, held in () if wanted is None else alike(program, value):
            part = held.place.part("rows")
            if part is not None and part.alike(wanted) and is_held(program, number):
                has = f"this rank has {describe(held)}, too, which {made_by(held)}"
                return f"{has}:\nthat goes with the {describe(other)}"
    return None


def _lacked_halo(value: Value, role: str) -> str | None:
    """A convolution on the way to a value that took what the layer before gave as it was, and so gave less."""
    program, made, kind = home(value), maker(value), DIMS[role]
    while program is not None and made is not None and made.op == "forward":
        given, gave = program.values[made.inputs[0]], program.values[made.outputs[0]]
        before, stencil = maker(given), _stencil(program, made, role)
        if stencil and given and gave and before and before.op == "forward" and stencil.outputs == stencil.rows:
            here, out = given.place.named[role].pieces, gave.place.named[role].pieces
            if len(out) < len(here):
                return (
                    f"forward{line_of(made)} was given {numbered(kind.noun, here)}, and that is enough for "
                    f"{numbered(kind.noun, out)} alone:\nput the {kind.plural} of the neighbours, the halo, together "
                    "with its own first"
                )
        made = before
    return None


@because(facts.Twice)
def brought_twice(fact: Fact, _: Running | None) -> Advice | None:
    """Some rows that a halo brought although they were here, that a convolution gave more of than was needed, or that
    went through backward a second time; or the same batches or shards."""
    left, right = fact.both[:2]
    made, gave = maker(right), maker(left)
    if made is not None and made.op == "forward" and _stencil(home(right), made, fact.field) and not left.place.open:
        kind = DIMS[fact.field]
        return (
            f"forward{line_of(made)} gives every {kind.noun} that its input will do for, and some of them are here "
            f"already:\ncut its input down to what the {kind.plural} that are still missing need"
        )
    if made is None or fact.field not in SPACE or home(left) is not home(right):
        return twice(fact.field, left, right)
    kind = DIMS[fact.field]
    both = numbered(kind.noun, fact.items)
    if made.op == "halo" and gave is not None and gave.op == "forward":
        return (
            f"forward{line_of(gave)} gave {both}, too: its input had more of a halo than this rank's own "
            f"{kind.plural} need.\nHand in what a neighbour lacks and no more, or cut its result down to one's own"
        )
    if made.op == "halo":
        return f"the halo exchange{line_of(made)} brought {both} once more: a halo is put together with the rest once"
    if made.op in BY_WEIGHT and isinstance(right, WeightGrad):
        return (
            f"{named(made)} was given the gradient of {both}, which has gone through another backward:\n"
            f"each of the {kind.plural} counts once, so cut the gradient down to those that are still missing"
        )
    return None


@because(facts.NotCut)
def not_cut(fact: Fact, _: Running | None) -> Advice | None:
    """Rows that a convolution did not give, as its input lacked a halo, or that a neighbour did not hand in."""
    made, program, role = maker(fact.value), home(fact.value), fact.role
    if made is None or program is None or role not in SPACE or fact.wanted is None:
        return None
    kind = DIMS[role]
    if made.op == "halo":
        return (
            f"the exchange{line_of(made)} brought what a neighbour handed in. Forward these are the {kind.plural} at "
            f"its edge,\nin backward those of its halo: a gradient goes home to the rank that has the {kind.noun}"
        )
    stencil, inp = _stencil(program, made, role), program.values[made.inputs[0]] if made.inputs else None
    if made.op not in ("forward", *BY_INPUT) or stencil is None or inp is None:
        return None
    had = numbered(kind.noun, inp.place.named[role].pieces)
    if made.op != "forward":
        return (
            f"{named(made)} gives the gradients of the {kind.plural} that its input has, here {had}.\n"
            "With a halo around the input of forward, and kept for backward, the halo is among them"
        )
    row = fact.wanted[0]
    needed = numbered(kind.noun, [one for one in stencil.needs(row) if 0 <= one < stencil.rows])
    return (
        f"forward{line_of(made)} was given {had}, and for {kind.noun} {row} it needs {needed}:\n"
        f"put the {kind.plural} of the neighbours that it lacks, the halo, together with its own first"
    )


def _halo_of_other_batches(program: Running, lent: Event, batches: frozenset[int]) -> str:
    """A halo that came from ranks with other batches: do others have these, or does nobody?"""
    same = [
        rank
        for rank, model in program.world.models.items()
        if rank != program.rank and any(feeds(event) and event.batches == batches for event in model.program.events)
    ]
    exchange = f"{titled(lent)} was among {these('rank', lent.group)}"
    if same:
        has = "has" if len(same) == 1 else "have"
        return f"{exchange}:\nthis rank's halo comes from {these('rank', same)}, which {has} the same batches"
    return f"{exchange}, and each of them took batches of its own:\nranks that share rows take the same batches"


def _of_a_neighbour(fact: Fact) -> str | None:
    """Some rows that a halo exchange brought, added to all rows of a rank."""
    for value, other in ((fact.first, fact.other), (fact.other, fact.first)):
        made, rows = maker(value), value.place.named.get("rows")
        if fact.field != "rows" or made is None or made.op != "halo" or rows is None:
            continue
        brought = f"the halo exchange{line_of(made)} brought {numbered('row', rows.pieces)}"
        both = set(rows.pieces) & set(other.place.named["rows"].pieces)
        if not both:
            return (
                f"{brought}, which the other value does not have:\n"
                "in backward each rank hands in the gradient of its halo, and gets that of its own edge"
            )
        return (
            f"{brought}: cut {numbered('row', both)} out of the other value,\n"
            "add them there, and put the sum together with the rest"
        )
    return None


@because(facts.NoWindow)
def no_window(fact: Fact, program: Running) -> Advice | None:
    """Queries of a neighbour among those of this rank: they came with a halo."""
    event = maker(fact.inp)
    while event is not None and event.op == "combine":
        for value in event.inputs:
            brought = maker(program.values[value])
            if brought is not None and brought.op in COLLECTIVES:
                return (
                    f"some of these queries came by {titled(brought)}, and their windows reach further still.\n"
                    "Queries need no halo: each rank works on its own, with the keys and values of its neighbours"
                )
        event = maker(program.values[event.inputs[0]])
    return None
