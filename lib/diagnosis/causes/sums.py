"""Gradients that lack batches, rows or terms, or are of another part than the weight: whose are missing, and how to add
them up."""

from __future__ import annotations

import re

import lib.diagnosis.facts as facts
from lib.diagnosis.collectives import (
    cut_otherwise,
    never_read,
    not_reached,
    not_taken,
    other_half,
    pipelined,
    replicas,
    sum_axis,
)
from lib.diagnosis.provenance import alike, batches_of, had_by_all, home, is_held, line_of, maker
from lib.diagnosis.running import Advice, Running, likely_cause, line
from lib.errors.exceptions import put_await
from lib.errors.wording import plural, these
from lib.trace.event import STORE, Event, place_of
from lib.values.collectives import COLLECTIVES
from lib.values.dims import DIMS, SPACE
from lib.values.laws import reduce
from lib.values.operations import BY_INPUT, BY_WEIGHT, COMPUTE
from lib.values.placement import listed
from lib.values.values import Activation, ActivationGrad, OptState, WeightGrad, subject


@likely_cause.register
def owes(fact: facts.Owes, program: Running | None) -> Advice | None:
    """A part of a sum that is used: what gave it, and over which ranks to add it up."""
    value, made, name = fact.value, maker(fact.value), STORE[type(fact.value)]
    lacks = next(part for part in value.place.sums if not part.whole)
    if program is None or made is None or DIMS[lacks.dim.name].owed:
        return None
    mesh, world, members = program.world.mesh, program.world.ranks, lacks.grid
    axes = [] if mesh is None else [axis for axis, size in mesh.axes.items() if size == members and axis != "data"]
    group = f', group="{axes[0]}"' if axes else "" if world == members else ", group=..."
    number = value.layer + (name == "grad_activations")
    # It was brought here, or added up here: the other parts were left out on the way.
    if made.op not in COMPUTE:
        missing = lacks.dim.whole.minus(lacks).shards(members) or ()
        what, parts = "+" if made.op == "add" else made.op, plural("part", sum(after - at for at, after in missing))
        return (
            f"the sum that {what} gave{line_of(made)} lacks {parts} {listed(missing)} of {members}: each of the ranks "
            "that share the weight\nadds its own part once, before the sum goes on"
        )
    idea = f"{made.op}{line_of(made)} used a part of the weight, and gave a part of a sum"
    call = f"{name}[{number}] = await model.allreduce({name}[{number}], {number}{group})"
    return line(
        program,
        "allreduce",
        f"{idea}: whoever has the other parts of the weight has the rest",
        f"{idea}. Add it up with those who have the other parts of the weight:\n{call}",
    )


@likely_cause.register
def lacks(fact: facts.Lacks, program: Running | None) -> str | None:
    """A gradient of some rows: has this rank made that of the others as well, or taken them forward?"""
    name, grad = fact.part.dim.name, fact.grad
    for other in () if program is None else reversed(program.values):
        part, made = None if other is None or other.layer != grad.layer else other.place.part(name), maker(other)
        if part is None or part.meets(fact.part) or made is None:
            continue
        if type(other) is WeightGrad and made.op in BY_WEIGHT:
            return (
                f"this rank has made the gradients of other {DIMS[name].plural} as well, by {made.op}{line_of(made)}: "
                "keep their sum,\nand update with that: grad_weights[layer] = grad_weights[layer] + gradient"
            )
        if isinstance(other, Activation) and made.op != "halo":  # what neighbours lend is theirs to go back through
            return (
                f"this rank has other {DIMS[name].plural} of {subject(other.kind, other.layer)} too: update when it "
                "has gone back through all of them,\nwith the sum of what they give"
            )
    summed = maker(grad)
    if program is None or summed is None or summed.op not in COLLECTIVES or len(summed.group) == program.world.ranks:
        return None
    return (
        f"the {COLLECTIVES[summed.op].title}{line_of(summed)} went over {these('rank', summed.group)}, and these have "
        f"the same {DIMS[name].plural}.\nThe other {DIMS[name].plural} are on other ranks: sum with those, too. "
        "A sum over all of them at once brings everything"
    )


@likely_cause.register
def unsummed(fact: facts.Unsummed, program: Running) -> Advice:
    """A gradient that lacks batches, in an update."""
    grad = fact.grad
    for number, other in alike(program, grad):
        if len(other.batches) == other.total_batches and number != (grad.mark or (None, -1))[1]:
            made = maker(other)
            what = "+" if made is None or made.op == "add" else made.op
            line = "" if made is None else _kept(made, "grad_weights")
            return (
                f"{what}{line_of(made)} gave the gradient of all batches: keep its result, and update with that{line}"
            )
    mine = -1 if grad.mark is None else grad.mark[1]
    waits = {event.arg for event in program.events if event.op == "wait"}
    for index, event in enumerate(program.events):
        if event.op in COLLECTIVES and mine in event.inputs and not event.blocking and (index,) not in waits:
            line = _kept(event, "grad_weights") or f": {put_await(event.op, place_of(event))}"
            return (
                f"the {COLLECTIVES[event.op].title}{line_of(event)} was started, but its result was never awaited{line}"
            )
    return _sum_first(program, grad)


def _kept(event: Event, store: str) -> str:
    """A call that only lacks a name for its result."""
    found = place_of(event)
    text = "" if found is None else found.text
    if found is None or not re.match(r"(await )?\w+\.\w+\(", text):
        return ""
    call = text if text.startswith("await ") else f"await {text}"
    return f":\n{store}[layer] = {call}"


def _sum_first(program: Running, grad: WeightGrad) -> Advice:
    if (lost := never_read(program, grad.place.batches)) is not None:
        return lost
    layer, made = grad.layer, maker(grad)
    if (left := _half_done(program, layer)) is not None:
        return left
    back = [event.batches for event in program.events if event.op in BY_WEIGHT and event.layer == layer]
    here = frozenset[int]().union(*back)
    if made is not None and made.op in COLLECTIVES:
        row = COLLECTIVES[made.op]
        if row.law is not reduce:
            return f"the {row.title}{line_of(made)} sums nothing: it brings what one rank has. Sum with an all-reduce"
    if len(here) == grad.total_batches or (len(back) > 1 and not grad.batches >= here):
        return _add_up(program, here, grad)
    if program.world.ranks == 1:
        return not_taken(program) or "update once, after the last batch, with the sum of all gradients"
    if (found := not_reached(program, layer) or pipelined(program, grad)) is not None:
        return found
    copies = replicas(program, layer)
    if made is not None and made.op in COLLECTIVES and copies is not None and set(made.group) < set(copies[1]):
        others = these("rank", set(copies[1]) - set(made.group))
        why = f"{others} have the same weight, and gradients of other batches: sum with them, too"
        return line(program, "group", why, f"{why}, with group={copies[0]}")
    if made is not None and made.op in COLLECTIVES and len(grad.batches) > len(here):
        return other_half(program, made, layer) or (
            f"the sum over the ranks has {these('batch', grad.batches)} only: each rank has more batches to take,\n"
            "and updates once, after the last of them, with the sum of all"
        )
    op = "scatterreduce" if "scatterreduce" in (program.world.asks or ()) else "allreduce"
    axis = sum_axis(program)
    whose, group = ("all ranks", "") if axis is None else (f"the ranks along the axis {axis!r}", f', group="{axis}"')
    if op == "allreduce" and copies is not None and len(copies[1]) < program.world.ranks:
        whose, group = f"{these('rank', copies[1])}, which have the same weight,", f", group={copies[0]}"
    seen = these("batch", here or grad.batches)  # a gradient that was made up comes from no backward
    return line(
        program,
        op,
        f"this rank has only seen {seen}:\nthe gradients of {whose} have to be summed before anyone updates",
        f"sum the gradients of {whose} first:\n"
        f"grad_weights[layer] = await model.{op}(grad_weights[layer], layer{group})",
    )


def _half_done(program: Running, layer: int) -> Advice | None:
    """Batches whose gradients lack the weight half of their backward."""
    left = batches_of(program, BY_INPUT, layer) - batches_of(program, BY_WEIGHT, layer)
    if not left:
        return None
    what = "its weight half is" if len(left) == 1 else "their weight halves are"
    idea = f"of {these('batch', left)} this rank did only the input half of backward: {what} missing"
    return line(
        program,
        "backward_weight",
        idea,
        f"{idea}:\ngrad_weights[layer, b] = model.backward_weight(layer, activations[layer, b], "
        "grad_activations[layer + 1, b])",
    )


def _add_up(program: Running, here: frozenset[int], grad: WeightGrad) -> Advice:
    """Gradients of several batches on this rank, which nobody has added up."""
    made, first, second = maker(grad), *sorted(here)[:2]
    step = second - first
    before = "model.RANKS" if step > 1 and step == program.world.ranks else str(step)
    lost = here - grad.batches
    if made is not None and made.op in COLLECTIVES and lost:
        idea = f"this rank computed the gradients of {these('batch', lost)} too, and they are not in this sum"
    else:
        idea = f"this rank has made the gradients of {these('batch', here)}: keep their sum, and update with that"
    return line(
        program,
        "add",
        idea,
        ("add each gradient to the sum of those before:\n" if idea.endswith("that") else f"{idea}:\n")
        + f"grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - {before}]",
    )


@likely_cause.register
def no_sum(fact: facts.NoSum, _: Running | None) -> str | None:
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
        return (
            f"it is the whole sum already, which the {COLLECTIVES[made.op].title}{line_of(made)} gave: leave this out"
        )
    return (
        f"activations stay on the rank that has their batch, here {these('batch', value.batches)};\n"
        "what is summed over the ranks is the gradient of a weight: grad_weights[layer]"
    )


@likely_cause.register
def uncovered(fact: facts.Uncovered, program: Running | None) -> Advice | None:
    """A shard of the gradient for a weight that was never cut, or was cut in another way."""
    made, summed = maker(fact.weight), maker(fact.grad)
    if program is not None and (found := cut_otherwise(program, fact.grad)) is not None:
        return found
    loaded = made is not None and made.op == "load_weights" and fact.weight.is_complete()
    if program is not None and loaded and _has_state_of(program, fact.grad):
        return (
            f"this rank has the gradient and the optimizer state of {these('shard', fact.grad.shards)} only: when its "
            "backward is done,\ncut the weight to that shard too: "
            "weights[layer] = weights[layer].shard(model.rank, model.RANKS)"
        )
    if made is None or made.op != "load_weights" or summed is None or summed.op != "scatterreduce":
        return None
    if not fact.weight.is_complete():
        return (
            f"the reduce-scatter{line_of(summed)} left {these('shard', fact.grad.shards)} of {fact.grad.total}: "
            "cut the same shard out of the weight,\nweights[layer] = weights[layer].shard(...), and update that"
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
