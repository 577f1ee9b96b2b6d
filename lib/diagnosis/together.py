"""Values that do not go together, and sums that lack something: who brought which, whose are missing, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping

import lib.diagnosis.facts as facts
from lib.analysis.feeding import feeds
from lib.diagnosis import groups
from lib.diagnosis.groups import cut_otherwise, meeting, same_shard, twice
from lib.diagnosis.provenance import (
    Advice,
    Running,
    alike,
    batches_of,
    because,
    had_by_all,
    home,
    is_held,
    likely_cause,
    line,
    line_of,
    made_by,
    maker,
    named,
    through,
    titled,
)
from lib.errors.exceptions import Fact, put_await
from lib.errors.wording import numbered, plural, these
from lib.trace.event import STORE, Event, place_of
from lib.values.collectives import COLLECTIVES
from lib.values.dims import DIMS, SPACE
from lib.values.kinds.grid import Stencil, Swept
from lib.values.laws import reduce
from lib.values.operations import BY_INPUT, BY_WEIGHT, COMPUTE
from lib.values.placement import listed
from lib.values.values import Activation, ActivationGrad, OptState, Value, WeightGrad, definite, describe, subject

# -- sums ---------------------------------------------------------------------------------------------------------


@because(facts.Owes)
def owes(fact: Fact, program: Running | None) -> Advice | None:
    """A part of a sum that is used: what gave it, and over which ranks to add it up."""
    value, made, name = fact.value, maker(fact.value), STORE[type(fact.value)]
    lacks = next(part for part in value.place.sums if not part.whole)
    if program is None or made is None or DIMS[lacks.dim.name].owed:
        return None
    members = lacks.grid
    if made.op not in COMPUTE:
        # It was brought here, or added up here: the other parts were left out on the way.
        missing = lacks.dim.whole.minus(lacks).shards(members) or ()
        what, parts = "+" if made.op == "add" else made.op, plural("part", sum(after - at for at, after in missing))
        return (
            f"the sum that {what} gave{line_of(made)} lacks {parts} {listed(missing)} of {members}: each of the ranks "
            "that share the weight\nadds its own part once, before the sum goes on"
        )
    sizes: Mapping[str, int] = {} if program.world.mesh is None else program.world.mesh.axes
    axis = next((axis for axis, size in sizes.items() if size == members and axis != "data"), None)
    group = f', group="{axis}"' if axis else "" if program.world.ranks == members else ", group=..."
    number = value.layer + (name == "grad_activations")
    idea = f"{named(made)} used a part of the weight, and gave a part of a sum"
    call = f"{name}[{number}] = await model.allreduce({name}[{number}], {number}{group})"
    fix = f"{idea}. Add it up with those who have the other parts of the weight:\n{call}"
    return line(program, "allreduce", f"{idea}: whoever has the other parts of the weight has the rest", fix)


@because(facts.Lacks)
def lacks(fact: Fact, program: Running) -> str | None:
    """A gradient of some rows: has this rank made that of the others as well, or taken them forward?"""
    name, grad = fact.part.dim.name, fact.grad
    plural = DIMS[name].plural
    for other in reversed(program.values):
        part, made = None if other is None or other.layer != grad.layer else other.place.part(name), maker(other)
        if part is None or part.meets(fact.part) or made is None:
            continue
        if type(other) is WeightGrad and made.op in BY_WEIGHT:
            why = f"this rank has made the gradients of other {plural} as well, by {named(made)}: keep their sum"
            return f"{why},\nand update with that: grad_weights[layer] = grad_weights[layer] + gradient"
        if isinstance(other, Activation) and made.op != "halo":  # what neighbours lend is theirs to go back through
            return (
                f"this rank has other {plural} of {subject(other.kind, other.layer)} too: update when it has gone back "
                "through all of them,\nwith the sum of what they give"
            )
    summed = maker(grad)
    if summed is None or summed.op not in COLLECTIVES or len(summed.group) == program.world.ranks:
        return None
    return (
        f"{titled(summed)} went over {these('rank', summed.group)}, and these have the same {plural}.\nThe other "
        f"{plural} are on other ranks: sum with those, too. A sum over all of them at once brings everything"
    )


@because(facts.Unsummed)
def unsummed(fact: Fact, program: Running) -> Advice:
    """A gradient that lacks batches, in an update."""
    grad = fact.grad
    mine = -1 if grad.mark is None else grad.mark[1]
    waits = {event.arg for event in program.events if event.op == "wait"}
    used = {number for event in program.events for number in event.inputs}
    for number, other in alike(program, grad):
        made = maker(other)
        call = "" if made is None else _kept(made)
        if len(other.batches) == other.total_batches and number != mine:
            what = "+" if made is None or made.op == "add" else made.op
            return (
                f"{what}{line_of(made)} gave the gradient of all batches: keep its result, and update with that{call}"
            )
        if made is None or made.op not in COLLECTIVES or COLLECTIVES[made.op].law is not reduce:
            continue
        arrived = made.blocking or (program.events.index(made),) in waits
        if arrived and number not in used and number != mine and not is_held(program, number):
            return f"{titled(made)} gave a sum, of {these('batch', other.batches)}: keep its result{call}"
    for index, event in enumerate(program.events):
        if event.op in COLLECTIVES and mine in event.inputs and not event.blocking and (index,) not in waits:
            call = _kept(event) or f": {put_await(event.op, place_of(event))}"
            return f"{titled(event)} was started, but its result was never awaited{call}"
    return _sum_first(program, grad)


def _kept(event: Event) -> str:
    """A call that only lacks a name for its result."""
    found = place_of(event)
    if found is None or not re.match(r"(await )?\w+\.\w+\(", found.text):
        return ""
    return f":\ngrad_weights[layer] = await {found.text.removeprefix('await ')}"


def _sum_first(program: Running, grad: WeightGrad) -> Advice:
    if (lost := groups.never_read(program, grad.place.batches)) is not None:
        return lost
    layer, made = grad.layer, maker(grad)
    if made is not None and made.op == "shard":
        why = f"the gradient was cut{line_of(made)}, and never summed with those of other ranks"
        return line(program, "scatterreduce", why, f"{why}: model.scatterreduce(...) does both")
    if left := batches_of(program, BY_INPUT, layer) - batches_of(program, BY_WEIGHT, layer):
        what = "its weight half is" if len(left) == 1 else "their weight halves are"
        idea = f"of {these('batch', left)} this rank did only the input half of backward: {what} missing"
        call = "model.backward_weight(layer, activations[layer, b], grad_activations[layer + 1, b])"
        return line(program, "backward_weight", idea, f"{idea}:\ngrad_weights[layer, b] = {call}")
    back = [event.batches for event in program.events if event.op in BY_WEIGHT and event.layer == layer]
    here = frozenset[int]().union(*back)
    summed = made is not None and made.op in COLLECTIVES
    if made is not None and summed and COLLECTIVES[made.op].law is not reduce:
        return f"{titled(made)} sums nothing: it brings what one rank has. Sum with an all-reduce"
    if len(here) == grad.total_batches or (len(back) > 1 and not grad.batches >= here):
        return _add_up(program, here, grad, summed)
    if program.world.ranks == 1:
        return groups.not_taken(program) or "update once, after the last batch, with the sum of all gradients"
    if (found := groups.not_reached(program, layer) or groups.pipelined(program, grad)) is not None:
        return found
    copies = groups.replicas(program, layer)
    if made is not None and summed and copies is not None and set(made.group) < set(copies[1]):
        others = these("rank", set(copies[1]) - set(made.group))
        why = f"{others} have the same weight, and gradients of other batches: sum with them, too"
        return line(program, "group", why, f"{why}, with group={copies[0]}")
    if made is not None and summed and len(grad.batches) > len(here):
        return groups.other_half(program, made, layer) or (
            f"the sum over the ranks has {these('batch', grad.batches)} only: each rank has more batches to take,\n"
            "and updates once, after the last of them, with the sum of all"
        )
    op = "scatterreduce" if "scatterreduce" in (program.world.asks or ()) else "allreduce"
    axis = groups.sum_axis(program)
    whose, group = ("all ranks", "") if axis is None else (f"the ranks along the axis {axis!r}", f', group="{axis}"')
    if op == "allreduce" and copies is not None and len(copies[1]) < program.world.ranks:
        whose, group = f"{these('rank', copies[1])}, which have the same weight,", f", group={copies[0]}"
    seen = these("batch", here or grad.batches)  # a gradient that was made up comes from no backward
    idea = f"this rank has only seen {seen}:\nthe gradients of {whose} have to be summed before anyone updates"
    call = f"grad_weights[layer] = await model.{op}(grad_weights[layer], layer{group})"
    return line(program, op, idea, f"sum the gradients of {whose} first:\n{call}")


def _add_up(program: Running, here: frozenset[int], grad: WeightGrad, summed: bool) -> Advice:
    """Gradients of several batches on this rank, which nobody has added up."""
    first, second = sorted(here)[:2]
    step, lost = second - first, here - grad.batches
    before = "model.RANKS" if step > 1 and step == program.world.ranks else str(step)
    call = f"grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - {before}]"
    if summed and lost:
        idea = f"this rank computed the gradients of {these('batch', lost)} too, and they are not in this sum"
        return line(program, "add", idea, f"{idea}:\n{call}")
    idea = f"this rank has made the gradients of {these('batch', here)}: keep their sum, and update with that"
    if len(grad.batches) > 1 and lost:
        idea = f"this rank has made the gradients of {these('batch', here)}, and that of {these('batch', lost)} "
        idea += "is in no sum"
    return line(program, "add", idea, f"add each gradient to the sum of those before:\n{call}")


@because(facts.NoSum)
def no_sum(fact: Fact, _: Running | None) -> str | None:
    """An activation in a sum over ranks: each belongs to the rank that has its batch."""
    value, there = fact.thing, home(fact.thing)
    if isinstance(value, ActivationGrad) and value.is_complete():
        return had_by_all(value)
    if there is None or not isinstance(value, Activation) or there.events[-1].op not in COLLECTIVES:
        return None
    if value.mark is not None and value.mark[1] in there.events[-1].outputs:
        return None  # what came out of the collective is added by hand
    if not value.is_complete():
        if cut := [role for role, *_ in value.place.rest if role in SPACE]:
            return (
                f"this rank has some of the {cut[0]}, each of them whole: there is nothing to add.\n"
                "A layer of the kind mean, or moments, takes them as they are, and gives a part of a sum;\n"
                "an all-gather puts them together"
            )
        return (
            "this rank has some of the features, each of them whole: there is nothing to add. A layer cut into rows,\n"
            'dim="in", or a loss over the vocabulary takes them as they are, and gives a part of a sum'
        )
    made = maker(value)
    if made is not None and made.op in ("allreduce", "allreduce_mean"):
        return f"it is the whole sum already, which {titled(made)} gave: leave this out"
    why = f"activations stay on the rank that has their batch, here {these('batch', value.batches)}"
    return f"{why};\nwhat is summed over the ranks is the gradient of a weight: grad_weights[layer]"


@because(facts.Uncovered)
def uncovered(fact: Fact, program: Running) -> Advice | None:
    """A shard of the gradient for a weight that was never cut, or was cut in another way."""
    weight, grad = fact.weight, fact.grad
    made, summed = maker(weight), maker(grad)
    if (found := groups.cut_otherwise(program, grad)) is not None:
        return found
    if made is None or made.op != "load_weights":
        return None
    if weight.is_complete() and _has_state_of(program, grad):
        return (
            f"this rank has the gradient and the optimizer state of {these('shard', grad.shards)} only: when its "
            "backward is done,\ncut the weight to that shard too: "
            "weights[layer] = weights[layer].shard(model.rank, model.RANKS)"
        )
    if summed is None or summed.op != "scatterreduce":
        return None
    if not weight.is_complete():
        return (
            f"{titled(summed)} left {these('shard', grad.shards)} of {grad.total}: cut the same shard out of the "
            "weight,\nweights[layer] = weights[layer].shard(...), and update that"
        )
    return (
        f"this rank loaded the whole weight{line_of(made)}, and updates all of it: it needs the whole sum.\n"
        "A reduce-scatter leaves each rank one shard of the sum; an all-reduce brings all of it to every rank"
    )


def _has_state_of(program: Running, grad: WeightGrad) -> bool:
    """Tell whether a store of the rank has the optimizer state of the shard that a gradient is of, and no more."""
    return any(
        isinstance(value, OptState) and value.layer == grad.layer and value.shards == grad.shards
        for number, value in enumerate(program.values)
        if value is not None and is_held(program, number) and not value.is_complete()
    )


# -- values that do not go together -------------------------------------------------------------------------------


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
        why = f"both came out of one {COLLECTIVES[event.op].title}{line_of(event)}: {' and '.join(brought)}"
        return f"{why}.\nAll ranks of a group call its collectives in the same order, each time with the same value"
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
                why = f"the gradient of {these('batch', value.place.batches)} went into {titled(event)}"
                return f"{why}:\nadd the shard that this gave; and does every key say the batch that it holds?"
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
                why = f"forward{line_of(made)} was given {numbered(kind.noun, here)}, and that is enough for "
                why += f"{numbered(kind.noun, out)} alone"
                return f"{why}:\nput the {kind.plural} of the neighbours, the halo, together with its own first"
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
        why = f"{named(made)} gives the gradients of the {kind.plural} that its input has, here {had}"
        return f"{why}.\nWith a halo around the input of forward, and kept for backward, the halo is among them"
    row = fact.wanted[0]
    needed = numbered(kind.noun, [one for one in stencil.needs(row) if 0 <= one < stencil.rows])
    why = f"forward{line_of(made)} was given {had}, and for {kind.noun} {row} it needs {needed}"
    return f"{why}:\nput the {kind.plural} of the neighbours that it lacks, the halo, together with its own first"


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
            why = f"{brought}, which the other value does not have"
            return f"{why}:\nin backward each rank hands in the gradient of its halo, and gets that of its own edge"
        why = f"{brought}: cut {numbered('row', both)} out of the other value"
        return f"{why},\nadd them there, and put the sum together with the rest"
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
