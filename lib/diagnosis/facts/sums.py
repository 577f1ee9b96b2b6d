"""Facts about sums: partial sums, what a gradient still lacks, and what cannot be summed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import cast

from lib.diagnosis import Advice, Running, Told, because, groups, line, of_dim, provenance, words_of
from lib.diagnosis.facts.grids import lacked_halo
from lib.diagnosis.facts.pieces import tokens
from lib.diagnosis.facts.shards import missing_words
from lib.diagnosis.provenance import alike, batches_of, home, is_held, line_of, maker, named, titled
from lib.errors.exceptions import Words, fact, put_await
from lib.errors.wording import counted, exact, plural, ranges, runs, these, with_article
from lib.trace.event import STORE, STORES, Event, place_of
from lib.values.collectives import COLLECTIVES
from lib.values.dims import AVERAGED, DIMS, OUTPUTS, REST, SPACE
from lib.values.laws import reduce
from lib.values.operations import BY_INPUT, BY_WEIGHT, COMPUTE, UPDATES
from lib.values.placement import Part, listed
from lib.values.values import Activation, ActivationGrad, Value, WeightGrad, definite, describe, subject

__all__ = ["Lacks", "MeanOfMeans", "NoMean", "NoSum", "PartialSum", "Unsummed"]


@fact
def PartialSum(program: Running | None, role: str, value: Value) -> Told:
    """A partial sum, where an operation needs the sum."""
    lacks = next(part for part in value.place.sums if not part.whole)
    whole = definite(subject(value.kind, value.layer))
    if owed := of_dim("owed", lacks.dim.name):
        without = ""
        if lacks.dim.route is not None:
            rest = frozenset(range(lacks.dim.size)) - frozenset(lacks.pieces)
            without = f"; without {tokens(value.place, lacks.dim.name, rest) or 'any token'}"
        yield words_of("PartialSum", role=role, whole=whole, value=value, without=without, owed=owed)
        if program is not None and lacks.dim.name in ("keys", "queries"):
            yield from _attention(program, value, lacks)
        made = maker(value)
        if made is None or program is None or not isinstance(value, ActivationGrad):
            return
        if lacks.dim.name == "uses":
            takers = [layer for layer in range(value.layers) if value.layer + 1 in program.world.shape.of(layer)]
            left = [layer for place, layer in enumerate(takers) if place not in lacks.pieces]
            why = f"{these('layer', takers)} take activation {value.layer + 1}, and this lacks what backward of"
            yield f"{why} {these('layer', left)} gives: add it"
        for dim in (dim for dim in SPACE if OUTPUTS[dim] == lacks.dim.name):
            yield from lacked_halo(program.values_of(made.inputs)[0], dim)
        return
    parts = f"{ranges(lacks.pieces)} of {lacks.grid}"
    rest = describe(value).rsplit(", ", 1)[0]
    yield words_of("PartialSum", "of_a_weight", role=role, whole=whole, value=rest, parts=parts)
    made, name = maker(value), STORE[type(value)]
    if program is None or made is None:
        return
    members = lacks.grid
    if made.op not in COMPUTE:
        # It was sent here or added up here: the other parts were left out on the way.
        missing = lacks.dim.whole.minus(lacks).shards(members) or ()
        what, parts = "+" if made.op == "add" else made.op, plural("part", sum(after - at for at, after in missing))
        why = f"the sum that {what} gave{line_of(made)} lacks {parts} {listed(missing)} of {members}: each of the "
        yield f"{why}ranks that share the weight\nadds its own part once, before the sum goes on"
    yield value.mark and provenance.summed_by(program, value.mark[1])
    sizes: Mapping[str, int] = {} if program.world.mesh is None else program.world.mesh.axes
    axis = next((axis for axis, size in sizes.items() if size == members and axis != "data"), None)
    group = f', group="{axis}"' if axis else "" if program.world.ranks == members else ", group=..."
    number = value.layer + (name == "grad_activations")
    asks = program.world.asks or ()
    op, cut = "allreduce", ""
    if "scatterreduce" in asks and "allreduce" not in asks:
        op, cut = "scatterreduce", ', dim="rows"'
    call = f"{name}[{number}] = await model.{op}({name}[{number}], {number}{group}{cut})"
    yield line(program, op, "part_of_a_sum", made=named(made), call=call)


def _attention(program: Running, value: Value, lacks: Part) -> Told:
    """A part of attention's output: no rank has worked on the rows of the rest, or it was overwritten."""
    programs = [model.program for model in program.world.models.values()]
    made = [[one.values_of(event.outputs)[0] for event in one.events if event.op == "forward"] for one in programs]
    rows = [part for one in chain(*made) if (part := one.place.part("rows")) is not None]
    # A rank that has not started may still work on them.
    if all(made) and (never := {*range(lacks.dim.size)}.difference(*(part.pieces for part in rows))):
        yield f"no rank has worked on {these('row', never)}: deal out all of the text, each row to one rank"
    used = {number for event in program.events for number in event.inputs}
    for number, other in alike(program, value) if type(value) is Activation else ():
        if other is not value and number not in used and not is_held(program, number) and (made := maker(other)):
            yield f"what {named(made)} gave before is in no sum and in no store: add the parts up, with +="


@fact
def Unsummed(program: Running, grad: WeightGrad, batches: int) -> Told:
    """The gradient in an update lacks batches."""
    there, every = grad.batches, range(batches)
    said = {"there": these("batch", there) if there else "no batches", "every": ranges(every)}
    missing = missing_words("batch", runs(set(every) - there))
    yield words_of("Unsummed", grad=grad, batches=batches, missing=missing, **said)
    mine = -1 if grad.mark is None else grad.mark[1]
    waits = {event.arg for event in program.events if event.op == "wait"}
    used = {number for event in program.events for number in event.inputs}
    for number, other in alike(program, grad):
        made = maker(other)
        call = "" if made is None else _kept(made)
        if len(other.batches) == other.total_batches and number != mine:
            what = "+" if made is None or made.op == "add" else made.op
            yield f"{what}{line_of(made)} gave the gradient of all batches: keep its result, and update with that{call}"
        if made is None or made.op not in COLLECTIVES or COLLECTIVES[made.op].law is not reduce:
            continue
        arrived = made.blocking or (program.events.index(made),) in waits
        if arrived and number not in used and number != mine and not is_held(program, number):
            lost = any(move[2] == number for move in program.moves)  # it was stored
            how = ", which no store has any more:\nadd up the sums" if lost else f": keep its result{call}"
            yield f"{titled(made)} gave a sum, of {these('batch', other.batches)}{how}"
    buckets = [program.values_of(event.inputs) for event in program.events if event.op == "allreduce_bucket"]
    sent = Counter(chain(*buckets))
    if sent and (max(sent.values()) > 1 or all(value.layer != grad.layer for value in sent)):
        layers = "; ".join(", ".join(str(value.layer) for value in some) for some in buckets[:3])
        yield because("buckets_so_far", buckets=counted(len(buckets), "bucket"), layers=layers)
    for index, event in enumerate(program.events):
        if event.op in COLLECTIVES and mine in event.inputs and not event.blocking and (index,) not in waits:
            call = _kept(event) or f": {put_await(event.op, place_of(event))}"
            yield f"{titled(event)} was started, but its result was never awaited{call}"
    yield groups.never_read(program, grad.place.batches)
    yield groups.cut_otherwise(program, grad)
    layer, made = grad.layer, maker(grad)
    if made is not None and made.op == "shard":
        yield line(program, "scatterreduce", "cut_not_summed", line=line_of(made))
    if left := batches_of(program, BY_INPUT, layer) - batches_of(program, BY_WEIGHT, layer):
        what = "its weight half is" if len(left) == 1 else "their weight halves are"
        yield line(program, "backward_weight", "half_of_backward", batches=these("batch", left), what=what)
    back = [event.batches for event in program.events if event.op in BY_WEIGHT and event.layer == layer]
    here = frozenset[int]().union(*back)
    summed = made is not None and made.op in COLLECTIVES
    if made is not None and summed and COLLECTIVES[made.op].law is not reduce:
        yield f"{titled(made)} sums nothing: it brings what one rank has. Sum with an all-reduce"
    if len(here) == grad.total_batches or (len(back) > 1 and not grad.batches >= here):
        yield _add_up(program, here, grad, summed)
    if program.world.ranks > 1 and groups.in_the_loop(program):
        yield "the loop over the batches is not over: update once, after it, with the sum of all gradients"
    if program.world.ranks == 1:
        yield groups.not_taken(program) or "update once, after the last batch, with the sum of all gradients"
    yield provenance.scattered(grad)
    yield groups.not_back(program, grad) or groups.not_reached(program, layer) or groups.pipelined(program, grad)
    copies = groups.replicas(program, layer)
    if made is not None and summed and copies is not None and set(made.group) < set(copies[1]):
        others = these("rank", set(copies[1]) - set(made.group))
        yield line(program, "group", "same_weight", others=others, group=copies[0])
    if made is not None and summed and len(grad.batches) >= len(here):
        models = [model for rank, model in program.world.models.items() if rank not in made.group]
        left = [one.rank for one in models if batches_of(one.program, BY_WEIGHT, layer) - grad.batches]
        others = (e for e in program.events if e.op in COLLECTIVES and COLLECTIVES[e.op].law is reduce)
        if same := next((e for e in others if e is not made and {*e.inputs} & {*made.inputs}), None):
            yield f"{titled(same)} and {titled(made)} sum the same gradient:\nlet one sum what the other brings"
        yield groups.other_half(program, made, layer)
        if left:
            why = f"{titled(made)} has summed over {these('rank', made.group)} only"
            yield f"{why}: sum with {these('rank', left)}, too"
        yield because("sum_of_some_batches", batches=these("batch", grad.batches))
    if made is not None and not summed and (other := _summed_alone(program, layer)) is not None:
        yield because("summed_one_layer", line=line_of(other), layer=other.layer)
    seen = these("batch", here or grad.batches)  # a made-up gradient comes from no backward
    cut = any(part is not None and not part.whole for part in map(grad.place.part, ("in", "out")))
    if cut and copies is None and made is not None and made.op in BY_WEIGHT:
        yield f"no other rank has this part of the weight: update once, after the last batch, and not after {seen}"
    op = "scatterreduce" if "scatterreduce" in (program.world.asks or ()) else "allreduce"
    axis = groups.sum_axis(program)
    whose, group = ("all ranks", "") if axis is None else (f"the ranks along the axis {axis!r}", f', group="{axis}"')
    if op == "allreduce" and copies is not None and len(copies[1]) < program.world.ranks:
        whose, group = f"{these('rank', copies[1])}, which have the same weight,", f", group={copies[0]}"
    call = f"grad_weights[layer] = await model.{op}(grad_weights[layer], layer{group})"
    if copies is not None and group.endswith(copies[0]):
        same = these("rank", copies[1])
        yield line(program, op, "seen_by_few", seen=seen, same=same, whose=whose, call=call)
    yield line(program, op, "seen_by_one", seen=seen, whose=whose, call=call)


def _kept(event: Event) -> str:
    """Return the fix for a call whose result is not kept: an assignment; "" if the line is not a plain call."""
    found = place_of(event)
    if event.op == "allreduce_bucket":
        return ":\nsums = await ... gives a list, and grad_weights[layer] = sums[i] takes a sum out of it"
    if found is None or not re.match(rf"(await )?\w+\.{event.op}\(", found.text):
        return ""
    return f":\ngrad_weights[layer] = await {found.text.removeprefix('await ')}"


def _summed_alone(program: Running, layer: int) -> Event | None:
    """Return the only sum over ranks, if it is of another layer and came after backward of this one."""
    sums = [event for event in program.events if event.op in ("allreduce", "scatterreduce") and event.layer is not None]
    updated = {event.layer for event in program.events if event.op in UPDATES}
    if len(sums) != 1 or sums[0].layer == layer or not updated <= {sums[0].layer}:
        return None
    if len(sums[0].group) < program.world.ranks:
        return None
    before = program.events[: program.events.index(sums[0])]
    return sums[0] if any(event.op in BY_WEIGHT and event.layer == layer for event in before) else None


def _add_up(program: Running, here: frozenset[int], grad: WeightGrad, summed: bool) -> Advice:
    """Gradients of several batches on this rank, not added up."""
    first, second = sorted(here)[:2]
    step, lost = second - first, here - grad.batches
    before = "model.RANKS" if step > 1 and step == program.world.ranks else str(step)
    call = f"grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - {before}]"
    mine = provenance.through(grad, ("allreduce",))[1]
    held = provenance.in_turn(program, STORES.index("grad_weights"), -1 if mine.mark is None else mine.mark[1])
    made = next((e for e in program.events if e.op in BY_WEIGHT and e.layer == grad.layer and lost & e.batches), None)
    replaced = len(held) > 1 and sum(map(len, held)) == len(here & set().union(*held))
    call = "grad_weights[layer] = grad_weights[layer] + gradient" if replaced else call
    if made is not None and not summed and replaced:
        return line(program, "add", "one_batch_at_a_time", made=named(made), call=call)
    if summed and lost:
        if (when := _summed_too_early(program, grad, lost)) is not None:
            return when
        return line(program, "add", "not_in_this_sum", lost=these("batch", lost), call=call)
    name = "in_no_sum" if len(grad.batches) > 1 and lost else "keep_their_sum"
    return line(program, "add", name, here=these("batch", here), lost=these("batch", lost), call=call)


def _summed_too_early(program: Running, grad: WeightGrad, lost: frozenset[int]) -> str | None:
    """A sum over ranks called before this rank has done backward on all its batches, or called for each batch alone."""
    made = maker(grad)
    if made is None or made.op != "allreduce":  # adding up shards of several reduce-scatters is fine
        return None
    after = program.events[program.events.index(made) :]
    back = [event.batches for event in after if event.op in BY_WEIGHT and event.layer == grad.layer]
    if lost <= frozenset().union(*back):
        return because("summed_too_early", made=titled(made), batches=these("batch", lost))
    times = sum(event.op == made.op and event.layer == grad.layer for event in program.events)
    if times == 1:
        return None
    return because("summed_in_parts", made=titled(made), times=times, layer=grad.layer)


@fact
def Lacks(program: Running, grad: WeightGrad, part: Part) -> Told:
    """The gradient in an update has all batches, but only `part` of another dim that it is a sum over."""
    kind, owed = DIMS[part.dim.name], of_dim("owed", part.dim.name)
    yield words_of("Lacks", "tokens" * grad.place.first.dim.counted, grad=grad, part=part, kind=kind, owed=owed)
    plural = kind.plural
    for other in reversed(program.values):
        its = None if other is None or other.layer != grad.layer else other.place.part(part.dim.name)
        made = maker(other)
        if its is None or its.meets(part) or made is None:
            continue
        if type(other) is WeightGrad and made.op in BY_WEIGHT:
            yield because("gradients_of_others", plural=plural, made=named(made))
        # Not a halo, whose owners do its backward, nor rows swapped for heads, which are not this layer's.
        if isinstance(other, Activation) and made.op != "halo" and provenance.is_whole(other, "features"):
            yield because("others_to_go_back", plural=plural, what=subject(other.kind, other.layer))
    summed, back = maker(grad), provenance.through(grad, COLLECTIVES)[0]
    if summed is not None and summed.op in COLLECTIVES and len(summed.group) < program.world.ranks:
        yield because("summed_with_the_same", summed=titled(summed), ranks=these("rank", summed.group), plural=plural)
    elif back is not None and back.op in BY_INPUT and part.dim.name in SPACE:
        yield from lacked_halo(program.values_of(back.inputs)[0], part.dim.name)


@fact
def NoSum(_: object, thing: object) -> Told:
    """A value to be summed is not a sum over anything, so there is nothing to add up."""
    name = with_article(thing.kind) if isinstance(thing, Value) else repr(thing)
    cut = [role for role, *_ in thing.place.rest] if isinstance(thing, Activation | ActivationGrad) else []
    rows, plural = next((role for role in cut if role in SPACE), ""), REST[cut[0]] if cut else ""
    cases: list[str] = []
    if isinstance(thing, Value) and thing.kind in ("weight", "optimizer state"):
        cases = ["weight"]
    elif isinstance(thing, ActivationGrad):
        cases = ["gradient"] if thing.is_complete() else ["gradient_of_rows" if rows else "gradient_of_features"]
    elif isinstance(thing, Activation):
        cases = ["activation", "cut" * (not thing.is_complete()), "pieces" * bool(cut)]
    yield words_of("NoSum", *cases, name=name, got=describe(thing), rows=rows, plural=plural)
    if "gradient_of_rows" in cases:
        return
    value, there = thing, home(thing)
    if isinstance(value, ActivationGrad) and value.is_complete():
        yield provenance.had_by_all(value)
    if there is None or not isinstance(value, Activation) or there.events[-1].op not in COLLECTIVES:
        return
    if value.mark is not None and value.mark[1] in there.events[-1].outputs:
        return  # the collective's results are being added by hand
    if not value.is_complete():
        if cut := [role for role, *_ in value.place.rest if role in SPACE]:
            yield because("rows_are_whole", rows=cut[0])
        yield because("features_are_whole")
    made = maker(value)
    if made is not None and made.op in ("allreduce", "allreduce_mean"):
        yield f"it is the whole sum already, which {titled(made)} gave: leave this out"
    kinds = there.world.models[there.rank].shape.kinds
    if made is not None and made.op == "forward" and kinds[made.layer or 0].name in ("mean", "moments"):
        yield because("given_all_rows", line=line_of(made))
    if made is not None and made.op == "forward" and kinds[made.layer or 0].name == "cross_entropy":
        yield because("given_all_logits", line=line_of(made))
    yield because("activations_stay", batches=these("batch", value.batches))


@fact
def NoMean(thing: Value) -> Words:
    """A value to be averaged is not a mean over part of a grid."""
    case = "open" * thing.place.open
    case = "gradient" if isinstance(thing, WeightGrad | ActivationGrad) else case
    return words_of("NoMean", case, kind=with_article(thing.kind), thing=thing)


@fact
def MeanOfMeans(one: Value, other: Value, role: str) -> Words:
    """The means to be averaged are over different numbers of rows, or of pieces of another dim."""
    plural = next(of for of, averaged in AVERAGED.items() if averaged == role)
    mine, its = (len(cast(Part, value.place.part(role)).pieces) for value in (one, other))
    few, many = sorted((mine, its))
    weighs = {"few": few, "many": many, "times": exact(many / few) if few else ""}
    case = "of_nothing" * (not few)
    return words_of("MeanOfMeans", case, one=one, other=other, mine=mine, its=its, plural=plural, **weighs)
