"""The likely reason for a broken rule: what the rank did before says more than the values that it ended up with.

A rule raises a fact (what is wrong, with which values); here the programs of the ranks are searched for what a student
probably meant. Nothing is decided here: an error is an error, whatever advice there is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence, Set
from functools import singledispatch
from typing import Any, cast

import lib.diagnosis.facts as facts
from lib.analysis.feeding import feeds
from lib.diagnosis.collectives import (
    cut_otherwise,
    meeting,
    never_read,
    not_reached,
    not_taken,
    other_half,
    pipelined,
    replicas,
    same_shard,
    shard_call,
    sum_axis,
    twice,
)
from lib.diagnosis.facts.laws import CUT_ALIKE
from lib.diagnosis.facts.operations import LOAD_ALIKE
from lib.diagnosis.provenance import alike, came_of, had_by_all, home, in_turn, is_held, line_of, maker, sent_in
from lib.diagnosis.running import Advice, Line, Running, line
from lib.errors.exceptions import Fact, PuzzleError
from lib.errors.forgotten_await import put_await
from lib.errors.source_lines import student_place
from lib.errors.wording import numbered, plural, shown, these, with_article
from lib.trace.event import STORES, Event, place_of
from lib.values.collectives import COLLECTIVES, STEP
from lib.values.dims import DIMS, SPACE
from lib.values.kinds.grid.convolution import Swept
from lib.values.kinds.grid.stencils import Stencil
from lib.values.laws import reduce
from lib.values.operations import BY_INPUT, BY_WEIGHT, COMPUTE, LOCAL, MESSAGES, OPERATIONS, calls, signatures
from lib.values.placement import listed
from lib.values.values import (
    KINDS,
    Activation,
    ActivationGrad,
    OptState,
    Value,
    Weight,
    WeightGrad,
    definite,
    describe,
    subject,
)

__all__ = ["advise"]

STORE = dict(zip(KINDS.values(), STORES, strict=True))


def advise(error: PuzzleError, program: Running | None = None) -> None:
    """Puts the likely reason into the fix of an error that has a fact, once, where anything tells it."""
    if error.fact is None or error.advised:
        return
    error.advised = True
    found = likely_cause(error.fact, program)
    if isinstance(found, Line):
        error.idea, error.fix = found
    elif found is not None:
        error.fix = found


def _kept(event: Event, store: str) -> str:
    """A call that only lacks a name for its result."""
    found = place_of(event)
    text = "" if found is None else found.text
    if found is None or not re.match(r"(await )?\w+\.\w+\(", text):
        return ""
    call = text if text.startswith("await ") else f"await {text}"
    return f":\n{store}[layer] = {call}"


# -- one function for each fact of which anybody knows more --------------------------------------------------------


@singledispatch
def likely_cause(fact: Fact, program: Running | None) -> Advice | None:
    """What a student probably meant; None where nothing tells it."""
    return None


def _order(op: str) -> str:
    signature = signatures().get(op)
    return f"write {signature}" if signature is not None else "check the order of the arguments"


@likely_cause.register
def _(fact: facts.NotALayer, _: Running | None) -> str:
    return f"the {'rank' if fact.op in MESSAGES else 'layer'} comes first: {_order(fact.op)}"


@likely_cause.register
def _(fact: facts.WrongKind, program: Running | None) -> Advice:
    """Something else in the place of a value."""
    wanted, op, value, order = fact.wanted, fact.op, fact.value, _order(fact.op)
    if hasattr(value, "popitem"):  # a dict, or a store
        name = STORE[wanted] if wanted in STORE else getattr(value, "name", "grad_weights")
        return f"take one value out of the store: {name}[layer]"
    source = _came_from(program, wanted, value) or _misplaced(program, value)
    if source is not None:
        return source
    if wanted is ActivationGrad and isinstance(value, Activation):
        return line(
            program,
            "loss",
            "an activation is not a gradient: the first gradient comes from loss, the others from backward",
            "loss gives the first gradient, and each backward the next one:\n"
            "grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])",
        )
    if op in COLLECTIVES and (row := COLLECTIVES[op]).bucket and isinstance(value, int):
        return f"the list holds the gradients, not the numbers of their layers: {row.signature}"
    if op in COLLECTIVES and type(value) in (list, tuple) and not COLLECTIVES[op].many:
        several = " (several gradients in one: allreduce_bucket)" if op == "allreduce" else ""
        return f"one value for each call{several}: {order}"
    if (op in OPERATIONS and type(value) in OPERATIONS[op].takes) or op in COLLECTIVES or wanted is Value:
        return f"the arguments are in a different order: {order}"
    if value is None:
        return "None is what a call gives that has no result: take the value from its store"
    if wanted in STORE and not isinstance(value, Value):
        return f"take {with_article(wanted.kind)} out of its store: {STORE[wanted]}[...]\n{order}"
    return f"take it from the store {STORE[wanted]}: {order}" if wanted in STORE else order


@likely_cause.register
def _(fact: facts.Besides, _: Running | None) -> str | None:
    """What a layer takes besides its input: left out, or a name for what is None."""
    here = student_place()
    written = _arguments(fact.op, "" if here is None else here.text)
    if fact.other is not None or not written:
        return None
    if len(written) <= (2 if fact.op == "forward" else 3):
        return f"give it one more argument: {fact.call(written)}"
    return f"{written[-1]} is None on this rank: look at what it should be, as in\n{fact.call(written[:-1])}"


def _arguments(op: str, text: str) -> list[str]:
    """The arguments of a call of an operation, as the text of its line has them."""
    try:
        nodes = ast.walk(ast.parse(text))
    except SyntaxError:  # the head of a loop, or a text that was cut
        return []
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == op:
            return [ast.unparse(one) for one in (*node.args, *[named.value for named in node.keywords])]
    return []


def _misplaced(program: Running | None, value: object) -> str | None:
    """A value that stands in the store of another kind: that is where it went wrong."""
    if program is None or not isinstance(value, Value):
        return None
    stores: Sequence[Any] = program.world.models[program.rank].storage()
    for kind, store in zip(STORE, stores, strict=True):
        key = next((key for key, held in store.items() if held is value), None)
        if key is not None and not isinstance(value, kind):
            made, right = maker(value), STORE[type(value)]
            source = "" if made is None else f", which {made.op} gave{line_of(made)}"
            return (
                f"{store.name}[{shown(key)}] holds {with_article(value.kind)}{source}: keep it in {right}[...],\n"
                f"and {store.name} for {plural(kind.kind, 2)} alone"
            )
    return None


def _came_from(program: Running | None, wanted: type[Value], value: object) -> str | None:
    """Where a value of another kind came from, if that is where it went wrong."""
    made = maker(value)
    if program is None or made is None or not isinstance(value, Value):
        return None
    if made.op == "receive" and made.peer is not None:
        what, instead = with_article(value.kind), with_article(wanted.kind)
        return f"rank {made.peer} passed {what}{sent_in(program, made)}: pass {instead} there"
    kinds = [type(program.values[number]) for number in made.outputs]
    if made.op in LOCAL and len(kinds) > 1 and wanted in kinds:
        names = ", ".join(f"{STORE[kind]}[layer]" for kind in kinds if kind in STORE)
        return f"{made.op}{line_of(made)} gives its two results in this order:\n{names} = model.{made.op}(...)"
    return None


@likely_cause.register
def _(fact: facts.NotStored, program: Running) -> str:
    """What is no value at all, in a store."""
    value: Any = fact.thing
    if isinstance(value, tuple):
        return _tuple([type(item) for item in cast("tuple[Any, ...]", value)], program.events[-1:])
    if value is None:
        here = student_place()
        if here is not None and (key := re.match(r"([^=]+\])\s*=\s*None$", here.text)):
            return f"None takes nothing out of a store: del {key[1]}"
        return "a call that gives nothing back stands on a line of its own, without a store before it"
    if callable(value) and (name := getattr(value, "__name__", None)) is not None:
        return f"call it: {calls().get(name, f'{name}(...)')}"
    if fact.kind is WeightGrad and isinstance(value, int | float) and not value:
        return "a sum of gradients begins with no 0: store the first gradient itself, and add the others to it"
    return f"a store holds one value under each key, here {with_article(fact.kind.kind)}"


def _tuple(kinds: list[type], last: Sequence[Event]) -> str:
    """The results of an operation that gives two, or of a message that is a tuple."""
    names = [STORE[kind] for kind in kinds if kind in STORE]
    operations = [row.name for row in OPERATIONS.values() if len(kinds) > 1 and row.gives == tuple(kinds)]
    if operations:
        one = len(operations) == 1
        call = f"model.{operations[0]}(...)" if one else "..."
        stores = ", ".join(f"{name}[layer]" for name in names)
        return f"{' and '.join(operations)} give{'s' if one else ''} two results: {stores} = {call}"
    names = ", ".join("abcdef"[: len(kinds)])
    call = f"await model.receive({last[0].peer})" if last and last[0].op == "receive" else "..."
    return f"take the tuple apart first: {names} = {call}"


@likely_cause.register
def _(fact: facts.Incomplete, program: Running) -> Advice:
    """A shard where the whole weight is needed."""
    weight = fact.weight
    made = maker(weight)
    for value in program.values:
        if isinstance(value, Activation) and value.layer == weight.layer and not value.place.dims[-1].whole:
            return (
                f"this rank has the rows of the weight for the features that {_made(value)}:\n"
                "give forward these features as they are, without a gather"
            )
    if made is not None and made.op == "allgather":
        count = len(made.group)
        return (
            f"{count} ranks put {len(weight.shards)} shards together, but the weight is cut into {weight.total}:\n"
            f"cut it into as many as there are ranks to gather from: {shard_call(program, count, made.group)}"
        )
    if made is not None and made.op == "shard":
        return (
            f"the whole weight was cut{line_of(made)} already: cut it when nothing needs it whole any more,\n"
            "which is after its last backward"
        )
    for number, whole in alike(program, weight):
        if whole.is_complete() and whole.step == weight.step and whole.mark is not None:
            if is_held(program, number):
                return f"the whole weight is what the all-gather gave{line_of(maker(whole))}: use that, not the shard"
            return f"the weight gathered{line_of(maker(whole))} is deleted by now: gather it again before this line"
    return line(
        program,
        "allgather",
        f"this rank has {these('shard', weight.shards)} only: all shards have to be put together first",
        f"gather all shards first:\n{_gather(program)}",
    )


@likely_cause.register
def _(fact: facts.Owes, program: Running | None) -> Advice | None:
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
    if made.op not in COMPUTE and members is not None:
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
def _(fact: facts.Lacks, program: Running | None) -> str | None:
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


def _made(value: Value) -> str:
    """What made a value, as the end of a sentence: "forward gave in line 12"."""
    made = maker(value)
    return "it has" if made is None else f"{made.op} gave{line_of(made)}"


def _gather(program: Running) -> str:
    """The call that puts the shards of a weight together: along an axis, where a mesh has another for the layers."""
    axis = sum_axis(program)
    group = "" if axis is None else f', group="{axis}"'
    return f'weights[layer, "full"] = await model.allgather(weights[layer], layer{group})'


@likely_cause.register
def _(fact: facts.Unsummed, program: Running) -> Advice:
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
    by_input, by_weight = (
        frozenset[int]().union(*(e.batches for e in program.events if e.op in ops and e.layer == layer))
        for ops in (BY_INPUT, BY_WEIGHT)
    )
    left = by_input - by_weight
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
def _(fact: facts.NoSum, _: Running | None) -> str | None:
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
def _(fact: facts.NoBatch, program: Running) -> str | None:
    world = program.world
    if world.ranks <= fact.batches:
        return None
    mesh = world.mesh
    if mesh is not None and "data" in mesh.axes:
        return 'with more ranks than batches a rank\'s number is not its batch: batch = model.coord["data"]'
    return "batches are counted from 0; with more ranks than batches, a rank's number is not its batch"


@likely_cause.register
def _(fact: facts.WrongLayer, program: Running) -> Advice | None:
    """A value of another layer: one that came from another rank tells who disagrees with whom."""
    value, layer = fact.value, fact.layer
    made = maker(value)
    if made is None or made.op != "receive" or made.peer is None:
        kinds = program.world.models[program.rank].shape.kinds
        weighted = any(kind.weight is not None for kind in kinds[value.layer :])
        if layer == value.layers and program.world.ranks > 1 and value.is_complete() and weighted:
            return "only the ranks that have the last layer call loss: the others pass their activation on"
        if fact.op == "forward" and made is not None and made.op == "get_activation" and program.world.ranks > 1:
            idea = f"{definite(subject(value.kind, layer))} is made on the rank that has layer {layer - 1}"
            fix = f"{idea}: await model.receive(...) it from there"
            return line(program, "receive", f"{idea}, and comes here as a message", fix)
        return None
    wanted = definite(subject(value.kind, layer))
    return (
        f"rank {made.peer} passed it{sent_in(program, made)}: pass {wanted} there,\n"
        "if both ranks agree on which layers each of them has"
    )


@likely_cause.register
def _(fact: facts.NoShard, program: Running | None) -> str | None:
    """A shard that is not there: the call that cuts a weight as its group needs it."""
    return CUT_ALIKE + shard_call(program, fact.total if isinstance(fact.total, int) else None) if fact.loads else None


@likely_cause.register
def _(fact: facts.Stateless, program: Running | None) -> str | None:
    """A shard of the state that does not fit the weight's."""
    weight, made = fact.weight, maker(fact.weight)
    if made is not None and made.op == "shard":
        shard, total = min(weight.shards), weight.total
        return (
            f"the weight was cut{line_of(made)} to {these('shard', weight.shards)} of {total}:\n"
            f"load the optimizer state of the same shard: model.load_weights(layer, {shard}, {total}) on this rank"
        )
    return None if weight.is_complete() else LOAD_ALIKE + shard_call(program, weight.total)


@likely_cause.register
def _(fact: facts.Missing, program: Running) -> str | None:
    """A key that never had a value: another one has it, or nobody has made it yet."""
    key: Any = fact.key
    parts = _parts(key)
    name, number = STORES[fact.store], parts[0]
    here = student_place()
    if here is not None and re.match(rf"(\w+\.)?{name}\[.*\] \+=", here.text):
        return "`+=` needs a value to add to: store the first gradient itself, and add the others to it"
    if any(type(part) is int and part < 0 for part in parts):
        return f"{name}[{shown(key)}] would be the one before the first: there is none yet to take"
    if type(number) is not int:
        return None
    found = _under_another_key(program, fact, parts)
    if found is None and fact.store == 0 and _words_in(parts):
        whole = f"the whole weight of layer {number} is there after an all-gather of its shards, which has not run yet"
        return not_reached(program, number, ("allgather",)) or whole
    return found or _not_made(program, fact.store, number, parts[1:])


def _parts(key: Any) -> list[Any]:
    return [*cast("tuple[Any, ...]", key)] if isinstance(key, tuple) and key != () else [key]


def _words_in(parts: list[Any]) -> list[str]:
    return [part for part in parts if isinstance(part, str)]


def _batch_in(parts: list[Any]) -> int | None:
    return next((part for part in parts[1:] if type(part) is int), None)


def _number(value: Value) -> int:
    """The number by which a value is kept: its layer, or that of the activation."""
    return value.layer + 1 if isinstance(value, ActivationGrad) else value.layer


def _under_another_key(program: Running, fact: facts.Missing, parts: list[Any]) -> str | None:
    """The value that a key is for, where it is in the store under another key, or was."""
    name, batch = STORES[fact.store], _batch_in(parts)
    store: Any = program.world.models[program.rank].storage()[fact.store]
    found: list[tuple[Any, Value | None, Any]] = [(key, value, None) for key, value in store.items()]
    found += [(key, program.values[number], place) for key, number, place in store.deleted()]
    for key, value, place in found:
        theirs = _parts(key)
        if value is None or _number(value) != parts[0] or theirs == parts or _words_in(parts) != _words_in(theirs):
            continue
        numbered = None not in (batch, _batch_in(theirs))
        if numbered and batch not in value.place.batches:
            continue
        of = f" of {these('batch', value.place.batches)}" if numbered else ""
        what = f"{definite(subject(value.kind, value.layer))}{of} {'is' if place is None else 'was'} stored as "
        deleted = "" if place is None else f", and deleted in line {place.line}"
        return f"{what}{name}[{shown(key)}]{deleted}: use one key for both"
    return None


def _not_made(program: Running, store: int, number: int, more: list[Any]) -> str | None:
    """Which operation gives the value that is missing."""
    model, kind = program.world.models[program.rank], list(KINDS.values())[store]
    layers, kinds = model.LAYERS, model.shape.kinds
    last = layers if kind in (Activation, ActivationGrad) else layers - 1
    if number > last:
        return f"there is no {subject(kind.kind, number - (kind is ActivationGrad))}: the last number is {last}"
    if last < layers and number >= 0 and kinds[number].weight is None:
        return f"layer {number}, of the kind {kinds[number].name}, has no weight"
    what = definite(subject(kind.kind, number - (kind is ActivationGrad)))
    mine = {event.layer for event in program.events if event.op == "load_weights" and event.layer is not None}
    if store < 2:
        some = f": this rank has loaded {these('layer', mine)} only" if mine and program.world.ranks > 1 else ""
        return f"{what} is there after load_weights({number}, ...){some}"
    layer = number - 1 if kind is Activation else number
    ops = BY_INPUT if kind is ActivationGrad else BY_WEIGHT if kind is WeightGrad else frozenset(["forward"])
    op = "forward" if kind is Activation else _back(program, ops)
    if kind is Activation and number == 0:
        return f"{what} is the data, which get_activation gives"
    if kind is ActivationGrad and number == layers:
        where = ", on the rank that has the last layer" if program.world.ranks > 1 else ""
        lost = next((event for event in program.events if event.op == "loss"), None)
        if lost is not None and more:
            return f"loss gave what this rank has of it{line_of(lost)}: what others have has to come from them"
        return f"{what} is what loss gives{where}"
    if kind is not WeightGrad and mine and layer not in mine and kinds[layer].weight is not None:
        return f"{what} is made by {op}({layer}, ...) on another rank,\nwhich passes it on: keep what receive gives"
    order = "" if op not in BY_INPUT else ":\nbackward goes from the last layer to the first"
    batch = _batch_in([number, *more])
    done = frozenset[int]().union(*(e.batches for e in program.events if e.op in ops and e.layer == layer))
    if batch is not None and batch in done:
        return f"{op}({layer}, ...) has run for batch {batch}, but nothing is kept under this key"
    if batch is not None and done:
        return f"{op}({layer}, ...) has not run for batch {batch} on this rank, only for {these('batch', done)}"
    if batch in (None, *done) and (made := [e for e in program.events if e.op in ops and e.layer == layer]):
        keys = _elsewhere(program, store, number, batch)
        if keys:
            return f"{what} is there as {', '.join(keys)}: use the key under which it was stored"
        return f"{what} is what {op} gave{line_of(made[-1])}: keep it under this key"
    return f"{what} is what {op}({layer}, ...) gives, which has not run yet{order}"


def _elsewhere(program: Running, store: int, number: int, batch: int | None) -> list[str]:
    """The keys of a store that hold what another key was asked for."""
    held: Any = program.world.models[program.rank].storage()[store]
    return [
        f"{STORES[store]}[{shown(key)}]"
        for key, value in held.items()
        if _number(value) == number and (batch is None or batch in value.place.batches)
    ]


@likely_cause.register
def _(fact: facts.Deleted, program: Running) -> Advice | None:
    """A key that was deleted: one that several batches had shared, or a gathered weight."""
    number, fix = fact.number, fact.fix
    shared = _shared(program, fact.store, fact.key, number)
    if shared is not None:
        return shared
    value = program.values[number]
    if (elsewhere := _inside_my_stage(program, value) or _in_a_sum(program, fact.store, value)) is not None:
        return elsewhere
    for event in program.events:
        if number in event.inputs and event.op in COLLECTIVES and COLLECTIVES[event.op].travel is STEP:
            return (
                f"this rank passed it on, by {event.op}{line_of(event)}: only what it does not need itself can go on "
                "without being kept.\nOf a sum that goes round, that is all but the last"
            )
    if (again := _once_more(program, fact, value)) is not None:
        return again
    made = maker(value)
    if made is None or made.op != "allgather" or not isinstance(value, Weight):
        return None
    found, here = place_of(made), student_place()
    if here is not None and "set_final_weight" in here.text and value.updates == 0:
        return "a gathered weight is only borrowed, for forward and backward: hand in the shard that this rank updated"
    text = "" if found is None else found.text
    again = f"{fix},\nor gather it again before backward"
    if re.match(r"\w+\[.*\] = await model\.allgather\(", text):
        return f"{again}: {text}"
    return line(program, "allgather", again, f"{again}: {_gather(program)}")


def _once_more(program: Running, fact: facts.Deleted, value: Value | None) -> str | None:
    """An activation that was deleted in its turn: its backward is over already, or forward can make it again."""
    if not isinstance(value, Activation) or value.layer == program.world.models[program.rank].LAYERS:
        return None
    back = [event for event in program.events if event.op in BY_INPUT & BY_WEIGHT and event.layer == value.layer]
    done = next((event for event in back if event.batches == value.place.batches), None)
    if done is not None:
        return (
            f"{done.op}({value.layer}, ...) has run already for {these('batch', value.place.batches)}, and after that "
            "it was deleted:\ngo back once for each batch"
        )
    kept: Any = program.world.models[program.rank].storage()[fact.store]
    lower = [v.layer for v in kept.values() if v.place.batches == value.place.batches and v.layer < value.layer]
    if not lower:
        return None
    return f"{fact.fix},\nor make it again before this line: forward from activation {max(lower)}, which is there"


def _inside_my_stage(program: Running, value: Value | None) -> str | None:
    """A gradient that this rank made and used up itself, and is now to be passed on in the place of another."""
    here = student_place()
    mine = {event.layer for event in program.events if event.op == "load_weights" and event.layer is not None}
    if here is None or "pass_to(" not in here.text or not isinstance(value, ActivationGrad) or not mine:
        return None
    number = value.layer + 1
    if number <= min(mine):
        return None
    return (
        f"{definite(subject(value.kind, value.layer))} is used up on this rank, "
        f"by {_back(program)}({value.layer}, ...):\n"
        f"what the stage before waits for is the gradient of this stage's input, activation {min(mine)}"
    )


def _back(program: Running, ops: Set[str] = BY_INPUT) -> str:
    """Which of these operations goes backward on a rank: all of backward, or half of it where it is split."""
    halves = BY_INPUT ^ BY_WEIGHT
    done = [event.op for event in program.events if event.op in BY_INPUT | BY_WEIGHT]
    return next((op for op in done if op in ops), min(ops & halves) if halves.intersection(done) else "backward")


def _in_a_sum(program: Running, store: int, value: Value | None) -> str | None:
    """A gradient that has gone into a sum, which is kept under another key."""
    if not isinstance(value, WeightGrad):
        return None
    held: Any = program.world.models[program.rank].storage()[store]
    for key, other in held.items():
        if isinstance(other, WeightGrad) and other.layer == value.layer and other.batches > value.batches:
            name = f"{STORES[store]}[{shown(key)}]"
            return f"it has gone into the sum of {these('batch', other.batches)}, which is {name}: use that"
    return None


def _shared(program: Running, store: int, key: object, number: int) -> str | None:
    """A key under which the values of several batches took each other's place."""
    batches = [value.place.batches for value in in_turn(program, store, number)]
    if len(batches) < 2 or not all(batches) or sum(map(len, batches)) > len(frozenset[int]().union(*batches)):
        return None
    order = ", ".join(str(batch) for some in batches for batch in sorted(some))
    name = STORES[store]
    return f"{name}[{shown(key)}] held batches {order} one after the other:\nuse a key with two parts, {name}[layer, b]"


@likely_cause.register
def _(fact: facts.OtherBatches, program: Running | None) -> str | None:
    """An input and a gradient of different batches: does one of them have a key that all batches share?"""
    for value in (fact.inp, fact.grad):
        store, mark = STORES.index(STORE[type(value)]), value.mark
        if program is not None and mark is not None and is_held(program, mark[1]):
            found = _shared(program, store, value.layer, mark[1])
            if found is not None:
                return found
    if (scattered := came_of(fact.grad, "scatterreduce")) is not None:
        made, part = scattered
        return (
            f"the reduce-scatter{line_of(made)} left this rank the sum of {these('batch', part.batches)} alone:\n"
            "an all-reduce gives all of it to every rank"
        )
    return None


@likely_cause.register
def _(fact: facts.OtherParts, program: Running | None) -> str | None:
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
                    f"this rank has {describe(held)}, too, which {_made(held)}:\nthat goes with the {describe(other)}"
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
def _(fact: facts.OtherFeatures, _: Running | None) -> str | None:
    """Features that another rank has made and passed on."""
    made = maker(fact.value)
    if made is None or made.op not in COLLECTIVES or COLLECTIVES[made.op].travel is not STEP:
        return None
    return (
        f"{made.op}{line_of(made)} brought what another rank's part of a weight gave: pass on what went into that "
        "layer,\nand multiply it with this rank's part"
    )


@likely_cause.register
def _(fact: facts.Uncovered, program: Running | None) -> Advice | None:
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
    """Whether a store of the rank has the optimizer state of the shard that a gradient is of, and no more."""
    return any(
        isinstance(value, OptState) and value.layer == grad.layer and value.shards == grad.shards
        for number, value in enumerate(program.values)
        if value is not None and is_held(program, number) and not value.is_complete()
    )


@likely_cause.register
def _(fact: facts.Twice, _: Running | None) -> Advice | None:
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
def _(fact: facts.NotCut, _: Running | None) -> Advice | None:
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
def _(fact: facts.Different, _: Running | None) -> Advice | None:
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
def _(fact: facts.Unlawful, program: Running | None) -> Advice | None:
    return likely_cause(fact.why, program) if isinstance(fact.why, Fact) else None


@likely_cause.register
def _(fact: facts.Disagree, _: Running | None) -> Advice | None:
    """In another order, or in the wrong group? Of what is called with other arguments there is no more to know."""
    first, other = fact.first, fact.other
    return meeting(first, other) if (first.op, first.layer) != (other.op, other.layer) else None


@likely_cause.register
def _(fact: facts.NoWindow, program: Running | None) -> Advice | None:
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


@likely_cause.register
def _(fact: facts.Broken, _: Running | None) -> Advice | None:
    """One of the pieces that an all-to-all brought."""
    made = maker(fact.value)
    if made is None or made.op != "alltoall" or len(made.outputs) == 1 or fact.number != 1:
        return None
    return (
        f"the all-to-all{line_of(made)} brought {len(made.outputs)} pieces, one from each rank, and this is one:\n"
        "put all of them together, piece by piece: value = value.combine(piece)"
    )
