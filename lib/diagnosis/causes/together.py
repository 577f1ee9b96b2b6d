"""Values that do not go together, such as halves of a gather, or rows and their halos: who brought which, and why."""

from __future__ import annotations

from typing import cast

import lib.diagnosis.facts as facts
from lib.analysis.feeding import feeds
from lib.diagnosis.collectives import cut_otherwise, meeting, same_shard, twice
from lib.diagnosis.provenance import alike, home, is_held, line_of, made_by, maker
from lib.diagnosis.running import Advice, Running, likely_cause
from lib.errors.exceptions import Fact
from lib.errors.wording import numbered, these
from lib.trace.event import Event
from lib.values.collectives import COLLECTIVES
from lib.values.dims import DIMS, SPACE
from lib.values.kinds.grid import Stencil, Swept
from lib.values.operations import BY_INPUT, BY_WEIGHT
from lib.values.values import ActivationGrad, Value, WeightGrad, definite, describe, subject


@likely_cause.register
def other_parts(fact: facts.OtherParts, program: Running | None) -> str | None:
    """Values of different rows: did a layer get no halo, or does this rank have the one that goes with the other?"""
    for value in (fact.one, fact.other):
        if fact.role in SPACE and (found := _lacked_halo(value, str(fact.role))) is not None:
            return found
    if program is None or fact.role != "rows":
        return None
    for value, other in ((fact.one, fact.other), (fact.other, fact.one)):
        wanted = other.place.part(fact.role)
        for number, held in () if wanted is None else alike(program, value):
            part = held.place.part(fact.role)
            if part is not None and part.alike(wanted) and is_held(program, number):
                return (
                    f"this rank has {describe(held)}, too, which {made_by(held)}:\nthat goes with the {describe(other)}"
                )
    return None


def _lacked_halo(value: Value, role: str) -> str | None:
    """A convolution on the way to a value that took what the layer before gave as it was, and so gave less."""
    program, made = home(value), maker(value)
    while program is not None and made is not None and made.op == "forward":
        given, gave = program.values[made.inputs[0]], program.values[made.outputs[0]]
        before, stencil = maker(given), _stencil(program, made, role)
        if stencil and given and gave and before and before.op == "forward" and stencil.outputs == stencil.rows:
            here, out = given.place.named[role].pieces, gave.place.named[role].pieces
            if len(out) < len(here):
                kind = DIMS[role]
                return (
                    f"forward{line_of(made)} was given {numbered(kind.noun, here)}, and that is enough for "
                    f"{numbered(kind.noun, out)} alone:\nput the {kind.plural} of the neighbours, the halo, together "
                    "with its own first"
                )
        made = before
    return None


@likely_cause.register
def brought_twice(fact: facts.Twice, _: Running | None) -> Advice | None:
    left, right = fact.both[:2]
    made = maker(right)
    swept = (
        made is not None and made.op == "forward" and _stencil(home(right), made, fact.field) and not left.place.open
    )
    if made is not None and swept:
        kind = DIMS[fact.field]
        return (
            f"forward{line_of(made)} gives every {kind.noun} that its input will do for, and some of them are here "
            f"already:\ncut its input down to what the {kind.plural} that are still missing need"
        )
    if made is not None and fact.field in SPACE and home(left) is home(right):
        return _of_a_grid_twice(fact, made)
    return twice(fact.field, left, right)


def _of_a_grid_twice(fact: facts.Twice, made: Event) -> str | None:
    """Some rows that a halo brought although they were here, or that went through backward a second time."""
    (left, right), kind = fact.both[:2], DIMS[fact.field]
    gave, both = maker(left), numbered(kind.noun, fact.items)
    if made.op == "halo" and gave is not None and gave.op == "forward":
        return (
            f"forward{line_of(gave)} gave {both}, too: its input had more of a halo than this rank's own "
            f"{kind.plural} need.\nHand in what a neighbour lacks and no more, or cut its result down to one's own"
        )
    if made.op == "halo":
        return f"the halo exchange{line_of(made)} brought {both} once more: a halo is put together with the rest once"
    if made.op in BY_WEIGHT and isinstance(right, WeightGrad):
        return (
            f"{made.op}{line_of(made)} was given the gradient of {both}, which has gone through another backward:\n"
            f"each of the {kind.plural} counts once, so cut the gradient down to those that are still missing"
        )
    return None


@likely_cause.register
def not_cut(fact: facts.NotCut, _: Running | None) -> Advice | None:
    """Rows that a convolution did not give, as its input lacked a halo, or that a neighbour did not hand in."""
    made, program = maker(fact.value), home(fact.value)
    if made is None or program is None or fact.role not in SPACE or fact.wanted is None:
        return None
    role = str(fact.role)
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
            f"{made.op}{line_of(made)} gives the gradients of the {kind.plural} that its input has, here {had}.\n"
            "With a halo around the input of forward, and kept for backward, the halo is among them"
        )
    row = cast(int, fact.wanted[0])
    needed = numbered(kind.noun, [one for one in stencil.needs(row) if 0 <= one < stencil.rows])
    return (
        f"forward{line_of(made)} was given {had}, and for {kind.noun} {row} it needs {needed}:\n"
        f"put the {kind.plural} of the neighbours that it lacks, the halo, together with its own first"
    )


def _stencil(program: Running | None, made: Event | None, role: str) -> Stencil | None:
    """The stencil, along a dim, of the convolution that worked something out."""
    if program is None or made is None or made.layer is None:
        return None
    kinds = program.world.models[program.rank].shape.kinds
    kind = kinds[made.layer] if made.layer < len(kinds) else None  # after the last layer comes the loss
    return kind.stencils.get(role) if isinstance(kind, Swept) else None


@likely_cause.register
def different(fact: facts.Different, _: Running | None) -> Advice | None:
    """Shards in a sum over ranks that are no part of one, or a whole gradient beside a shard of a sum."""
    mine, theirs, lent = home(fact.first), home(fact.other), maker(fact.other)
    if fact.field == "layer":
        if lent and lent.op == "halo" and lent.layer is not None:
            return (
                f"the second came by the halo exchange of layer {lent.layer}{line_of(lent)}. A halo is of one "
                "activation alone:\nfor each layer neighbours exchange their edges anew, forward and backward"
            )
        return _exchanged(fact.first, fact.other)
    if mine and lent and lent.op == "halo" and fact.first.place.batches != fact.other.place.batches:
        return _halo_of_other_batches(mine, lent, fact.first.place.batches)
    if fact.verb == "gather":
        return _other_pieces(fact)
    if mine is None or theirs is None or fact.verb != "sum":
        return None
    made, mark = maker(fact.first), fact.first.mark
    if made is not None and mark is not None and made.op in BY_INPUT and [*made.outputs].index(mark[1]) == 1:
        other = mine.values[made.outputs[0]]
        if isinstance(other, ActivationGrad):
            second, first = (definite(subject(value.kind, value.layer)) for value in (fact.first, other))
            return f"{made.op}{line_of(made)} gave {first}, and after it this,\n{second}: look at the order of the two"
    if theirs is mine:
        return _summed_already(mine, fact) if fact.field == "total" else _of_a_neighbour(fact)
    if fact.field != "shards":
        return None
    return cut_otherwise(mine, fact.first) or same_shard(mine, fact.first.layer)


def _halo_of_other_batches(program: Running, lent: Event, batches: frozenset[int]) -> str:
    """A halo that came from ranks with other batches: do others have these, or does nobody?"""
    same = [
        rank
        for rank, model in program.world.models.items()
        if rank != program.rank and any(feeds(event) and event.batches == batches for event in model.program.events)
    ]
    exchange = f"the {COLLECTIVES[lent.op].title}{line_of(lent)} was among {these('rank', lent.group)}"
    if same:
        has = "has" if len(same) == 1 else "have"
        return f"{exchange}:\nthis rank's halo comes from {these('rank', same)}, which {has} the same batches"
    return f"{exchange}, and each of them took batches of its own:\nranks that share rows take the same batches"


def _exchanged(first: Value, other: Value) -> str | None:
    """Values of two layers out of one all-to-all: two ranks brought different things to it."""
    program, event = home(first), maker(first)
    while program is not None and event is not None and event.op == "combine":
        first = cast("Value", program.values[event.inputs[0]])
        event = maker(first)
    if event is None or event is not maker(other) or event.op not in COLLECTIVES:
        return None
    given = [(event.group[event.outputs.index(value.mark[1])], value) for value in (first, other) if value.mark]
    brought = [f"rank {rank} brought {definite(subject(value.kind, value.layer))}" for rank, value in given]
    return (
        f"both came out of one {COLLECTIVES[event.op].title}{line_of(event)}: {' and '.join(brought)}.\n"
        "All ranks of a group call its collectives in the same order, each time with the same value"
    )


def _of_a_neighbour(fact: facts.Different) -> str | None:
    """Some rows that a halo exchange brought, added to all rows of a rank."""
    for value, other in ((fact.first, fact.other), (fact.other, fact.first)):
        made, rows = maker(value), value.place.named.get("rows")
        if fact.field == "rows" and made is not None and made.op == "halo" and rows is not None:
            lent, both = numbered("row", rows.pieces), set(rows.pieces) & set(other.place.named["rows"].pieces)
            if not both:
                return (
                    f"the halo exchange{line_of(made)} brought {lent}, which the other value does not have:\n"
                    "in backward each rank hands in the gradient of its halo, and gets that of its own edge"
                )
            return (
                f"the halo exchange{line_of(made)} brought {lent}: cut {numbered('row', both)} out of the other "
                "value,\nadd them there, and put the sum together with the rest"
            )
    return None


def _other_pieces(fact: facts.Different) -> str | None:
    """Pieces out of one all-to-all that do not fit each other: two ranks cut theirs in different ways."""
    program, first, event = home(fact.first), fact.first, maker(fact.first)
    while program is not None and event is not None and event.op == "combine":
        first = cast("Value", program.values[event.inputs[0]])
        event = maker(first)
    if event is None or event is not maker(fact.other) or event.op != "alltoall" or fact.field not in DIMS:
        return None
    if first.place.batches != fact.other.place.batches:
        return None
    one, two = [event.group[event.outputs.index(value.mark[1])] for value in (first, fact.other) if value.mark]
    return (
        f"they came out of one all-to-all{line_of(event)}, from ranks {one} and {two}, which do not agree on the "
        f"{DIMS[fact.field].plural}\nthat this rank gets: on every rank, value number i is for member number i"
    )


def _summed_already(program: Running, fact: facts.Different) -> str | None:
    """A whole gradient beside a shard of a sum, where a reduce-scatter has taken it already."""
    for value in (fact.first, fact.other):
        for event in program.events if value.is_complete() and value.mark is not None else ():
            if event.op == "scatterreduce" and value.mark is not None and value.mark[1] in event.inputs:
                of = these("batch", value.place.batches)
                return (
                    f"the gradient of {of} went into the reduce-scatter{line_of(event)}:\n"
                    "add the shard that this gave; and does every key say the batch that it holds?"
                )
    return None


@likely_cause.register
def unlawful(fact: facts.Unlawful, program: Running | None) -> Advice | None:
    return likely_cause(fact.why, program) if isinstance(fact.why, Fact) else None


@likely_cause.register
def disagree(fact: facts.Disagree, _: Running | None) -> Advice | None:
    """In another order, or in the wrong group? Of what is called with other arguments there is no more to know."""
    first, other = fact.first, fact.other
    return meeting(first, other) if (first.op, first.layer) != (other.op, other.layer) else None


@likely_cause.register
def no_window(fact: facts.NoWindow, program: Running | None) -> Advice | None:
    """Queries of a neighbour among those of this rank: they came with a halo."""
    event = maker(fact.inp)
    while program is not None and event is not None and event.op == "combine":
        for value in event.inputs:
            brought = maker(program.values[value])
            if brought is not None and brought.op in COLLECTIVES:
                return (
                    f"some of these queries came by the {COLLECTIVES[brought.op].title}{line_of(brought)}, and their "
                    "windows reach further still.\nQueries need no halo: each rank works on its own, with the keys and "
                    "values of its neighbours"
                )
        event = maker(program.values[event.inputs[0]])
    return None
