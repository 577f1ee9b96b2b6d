"""Facts about what an operation is given: its kind, layer and batches, and where it came from."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from lib.diagnosis import Running, Told, because, line, provenance, words_of
from lib.diagnosis.facts.stores import shared_key
from lib.diagnosis.provenance import home, is_held, line_of, made_by, maker, named, sent_in, store_of, through, titled
from lib.errors.exceptions import Words, fact
from lib.errors.source_lines import student_place
from lib.errors.wording import plural, ranges, shown, these, with_article, written
from lib.trace.event import STORE, STORES
from lib.values.collectives import COLLECTIVES
from lib.values.operations import BY_INPUT, BY_WEIGHT, LOCAL, MESSAGES, OPERATIONS, signatures
from lib.values.values import KINDS, Activation, ActivationGrad, Value, Weight, definite, describe, subject

__all__ = ["Besides", "EndlessBatches", "NoBatch", "NoKind", "NoLayer", "NoValue", "NotALayer", "NotBatches"]
__all__ += ["NothingBeside", "NothingToGet", "OtherBatches", "Unread", "Unweighted", "WrongKind", "WrongLayer"]

SHOWN, CUT_OFF = 40, 1000
"""The most things that a message lists, and how many numbers `rules` passes on before it leaves any out."""
MADE_BY_HAND = "take it from an operation: load_weights, forward, backward, update or a collective"


def _order(op: str) -> str:
    signature = signatures().get(op)
    return f"write {signature}" if signature is not None else "check the order of the arguments"


def _some(items: Iterable[Any]) -> str:
    """List things in order: numbers as runs, then all that are not numbers, or too long to write."""
    numbers = {item for item in items if isinstance(item, int) and item.bit_length() <= 100}
    others = sorted(written(item) for item in items if item not in numbers)[:SHOWN]
    more = ["..."] if len(numbers) > CUT_OFF else []
    return ", ".join([*filter(None, [ranges(numbers)]), *more, *others])


@fact
def NotALayer(_: object, op: str, layer: object, layers: int) -> Told:
    """Something else stands where the layer belongs, or, for a message, the rank (`layers` 0)."""
    yield words_of("NotALayer", last=layers - 1, layer=describe(layer))
    yield f"the {'rank' if op in MESSAGES else 'layer'} comes first: {_order(op)}"


@fact
def WrongKind(program: Running, role: str, wanted: type[Value], value: object, op: str) -> Told:
    """An operation was given something of the wrong kind for this role."""
    yield words_of("WrongKind", role=role, kind=with_article(wanted.kind), value=describe(value))
    order = _order(op)
    if hasattr(value, "popitem"):  # a dict, or a store
        name = STORE[wanted] if wanted in STORE else getattr(value, "name", "grad_weights")
        yield f"take one value out of the store: {name}[layer]"
    yield from _came_from(program, wanted, value)
    if wanted is ActivationGrad and isinstance(value, Activation):
        if (made := through(value, {"combine"})[0]) is not None and made.op in COLLECTIVES:
            way = f"layer {value.layer} and the loss" if value.layer < program.world.shape.layers else "the loss"
            brought = f"{titled(made)} brought an activation, which has yet to go through {way}"
            yield f"{brought}:\nits gradient comes from there"
        yield line(program, "loss", "gradients_begin")
    if op in COLLECTIVES and (row := COLLECTIVES[op]).bucket and isinstance(value, int):
        yield f"the list holds the gradients, not the numbers of their layers: {row.signature}"
    if op in COLLECTIVES and type(value) in (list, tuple) and not COLLECTIVES[op].many:
        several = " (several gradients in one: allreduce_bucket)" if op == "allreduce" else ""
        yield f"one value for each call{several}: {order}"
    if (op in OPERATIONS and type(value) in OPERATIONS[op].takes) or op in COLLECTIVES or wanted is Value:
        yield f"the arguments are in a different order: {order}"
    if value is None:
        yield "None is what a call gives that has no result: take the value from its store"
    if wanted in STORE and not isinstance(value, Value):
        yield f"take {with_article(wanted.kind)} out of its store: {STORE[wanted]}[...]\n{order}"
    yield f"take it from the store {STORE[wanted]}: {order}" if wanted in STORE else order


def _came_from(program: Running, wanted: type[Value], value: object) -> Told:
    """Where a value of the wrong kind came from, or which other kind's store holds it."""
    made = maker(value)
    if not isinstance(value, Value):
        return
    kinds = [] if made is None else [type(program.values[number]) for number in made.outputs]
    if made is not None and made.op == "receive" and made.peer is not None:
        what, instead = with_article(value.kind), with_article(wanted.kind)
        starts = wanted is ActivationGrad and any(event.op == "loss" for event in program.events)
        end = ",\nor leave out this receive: the gradients of this rank begin with its own loss" if starts else ""
        yield f"rank {made.peer} passed {what}{sent_in(program, made)}: pass {instead} there{end}"
    elif made is not None and made.op in LOCAL and len(kinds) > 1 and wanted in kinds:
        names = ", ".join(f"{STORE[kind]}[layer]" for kind in kinds if kind in STORE)
        yield f"{named(made)} gives its two results in this order:\n{names} = model.{made.op}(...)"
    stores: Sequence[Any] = program.world.models[program.rank].storage()
    for kind, store in zip(STORE, stores, strict=True):
        key = next((key for key, held in store.items() if held is value), None)
        if key is not None and not isinstance(value, kind):
            source = "" if made is None else f", which {made.op} gave{line_of(made)}"
            what = f"{store.name}[{shown(key)}] holds {with_article(value.kind)}{source}: keep it in "
            yield f"{what}{STORE[type(value)]}[...],\nand {store.name} for {plural(kind.kind, 2)} alone"


@fact
def NoLayer(layer: int, layers: int) -> Words:
    """The model has no layer with that number."""
    return words_of("NoLayer", layer=written(layer), last=layers - 1)


@fact
def WrongLayer(program: Running, op: str, role: str, value: Value, layer: int, taker: int) -> Told:
    """A value does not belong to `layer`, which an operation of layer `taker` needs in this role."""
    made, wanted, fix = maker(value), definite(subject(value.kind, layer)), _right_layer(op, role, value, layer, taker)
    yield words_of("WrongLayer", role=role, wanted=wanted, value=value, fix=fix)
    own = isinstance(value, Activation) and layer - 1 in provenance.layers_of(program)  # this rank makes what it needs
    if made is not None and made.op == "receive" and made.peer is not None and not own:
        yield because("passed_another_layer", peer=made.peer, line=sent_in(program, made), wanted=wanted)
    if made is not None and made.op == "allreduce_bucket":
        order = " and ".join(str(one.layer) for one in program.values_of(made.outputs))
        yield f"{titled(made)} gives its sums in the order in which the gradients went in: layers {order}"
    if made is not None and made.op == "allgather":
        waits = {event.arg for event in program.events if event.op == "wait"}
        posted = [event for n, event in enumerate(program.events) if not event.blocking and (n,) not in waits]
        is_there = any(one.layer == layer and one.is_complete() for one in store_of(program, 0).values())
        why = f"{titled(made)} brought this, of layer {made.layer}, and"
        if any(event.op == made.op and event.layer == layer for event in posted):
            yield f"{why} that of layer {layer} is not awaited yet:\nawait gathers in the order in which they are used"
        if not made.blocking and not is_there:
            yield f"{why} none of layer {layer} is on its way:\nstart gathers in the order in which they are used"
    gave = [] if made is None else program.values_of(made.outputs)
    layers = [one.layer for one in gave if isinstance(one, ActivationGrad)]
    if made is not None and isinstance(value, ActivationGrad) and layer in layers:
        yield f"{named(made)} gave two gradients, this and {wanted}: look at the order of the two"
    for number, other in [*enumerate(program.values)] if op == "loss" else ():
        if type(other) is Activation and other.layer == layer and is_held(program, number):
            keys = [shown(key) for key, held in store_of(program, 2).items() if held is other]
            yield f"{made_by(other).replace(' gave', f' gave {wanted}', 1)}: use activations[{keys[0]}]"
    for took in program.events if op == "loss" else ():
        if took.op == "loss" and took.batches == value.place.batches:
            yield f"{named(took)} has given the gradient of {these('batch', took.batches)} already: once is enough"
    if program.world.ranks == 1:
        return
    kinds = program.world.models[program.rank].shape.kinds
    if layer == value.layers and value.is_complete() and any(kind.weight for kind in kinds[value.layer :]):
        if own:
            yield f"loss takes the output of the last layer, {wanted}: call it once, after the loop over the layers"
        yield "only the ranks that have the last layer call loss: the others pass their activation on"
    if op == "forward" and made is not None and made.op == "get_activation" and not own:
        yield line(program, "receive", "made_elsewhere", wanted=wanted, layer=layer - 1)


def _right_layer(op: str, role: str, value: Value, layer: int, taker: int) -> str:
    """Say what an operation needs instead of a value of the wrong layer."""
    if op == "loss":
        return f"run forward up to layer {layer - 1} first"
    if op == "update":
        return f"update({layer}, ...) takes everything of layer {layer}"
    if op == "set_final_weight":
        return f"hand it in as what it is: set_final_weight({value.layer}, ...)"
    if isinstance(value, Weight):
        return f"use the weight of layer {layer}, or run layer {value.layer}"
    if op == "forward":
        before = f"activation {layer}, which forward({layer - 1}, ...) gave" if layer else "the data"
        second = "takes two activations: the second is" if role.startswith("activation") else "works on"
        return f"layer {taker} {second} {before}"
    if op not in BY_INPUT | BY_WEIGHT:
        return f"{op}({layer}, ...) takes {definite(subject(value.kind, layer))}"
    if isinstance(value, Activation):
        into = f"activation {layer}, the one that went into forward({taker}, ...)"
        two = f"{op}({taker}, input, gradient, other) takes two activations: other is {into}"
        return two if role.startswith("activation") else f"use {into}"
    if op != "backward" and value.layer == layer - 1:
        return f"both halves take the gradient of activation {layer + 1}: keep it until the weight half is done, too"
    if layer == value.layers - 1:
        return f"{op}({layer}, ...) is the first one: it takes the gradient that loss gave"
    half = "" if op == "backward" else "_input"
    return f"take the gradient of activation {layer + 1}, which backward{half}({layer + 1}, ...) gave"


@fact
def Besides(_: object, op: str, layer: int, kind: str, takes: str, of: tuple[int, ...], other: object) -> Told:
    """A layer that takes a weight, or the activations `of`, besides its input got nothing or something else."""
    wanted, call = "a weight" if takes == "weight" else f"activation {of[1]}", call_besides(op, layer, takes, of)
    given, case = (with_article(other.kind), "another") if isinstance(other, Value) else ("nothing", "")
    parts = {"op": op, "layer": layer, "kind": kind, "wanted": wanted, "given": given, "other": other, "call": call}
    yield words_of("Besides", case, **parts)
    if case:
        return
    here = student_place()
    written = _arguments(op, "" if here is None else here.text)
    if other is None and written:
        less = len(written) <= (2 if op == "forward" else 3)
        call = call_besides(op, layer, takes, of, written if less else written[:-1])
        none = "" if less else f"{written[-1]} is None on this rank: look at what it should be, as in\n{call}"
        yield none or f"give it one more argument: {call}"


def call_besides(op: str, layer: int, takes: str, of: tuple[int, ...], given: Sequence[str] = ()) -> str:
    """Return the right call of a layer: with what it was given, and what else it takes."""
    stored = [str(layer), f"activations[{of[0]}]", f"grad_activations[{layer + 1}]"]
    lacks = f"weights[{layer}]" if takes == "weight" else f"activations[{of[1]}]"
    return f"model.{op}({', '.join([*(given or stored[: 2 if op == 'forward' else 3]), lacks])})"


def _arguments(op: str, text: str) -> list[str]:
    """Return the arguments of a call of an operation, as in the text of its line."""
    try:
        nodes = ast.walk(ast.parse(text))
    except SyntaxError:  # the head of a loop, or truncated text
        return []
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == op:
            return [ast.unparse(one) for one in (*node.args, *[named.value for named in node.keywords])]
    return []


@fact
def NothingBeside(op: str, kind: str, other: object) -> Words:
    """A layer whose kind takes only an input was given something else as well."""
    return words_of("NothingBeside", op=op, kind=kind, other=describe(other))


@fact
def Unweighted(op: str, layer: int, kind: str) -> Words:
    """A layer whose kind has no weight is asked for one."""
    return words_of("Unweighted", "backward" * ("backward" in op), op=op, layer=layer, kind=kind)


@fact
def NotBatches(batches: object) -> Words:
    """The batches are not given as a collection of numbers."""
    return words_of("NotBatches", batches=describe(batches))


@fact
def NoBatch(program: Running, wrong: frozenset[Any], named: frozenset[Any], batches: int, padding: int) -> Told:
    """Some of the named batches do not exist, nor are they among the `padding` after the last one."""
    are = "is no batch" if len(wrong) == 1 else "are no batches"
    sizes = {"last": batches - 1, "batches": batches, "padded": batches + padding - 1}
    got = f"{plural('batch', len(named))} {_some(named)}"
    yield words_of("NoBatch", "padded" * (padding > 0), are=are, wrong=_some(wrong), named=got, **sizes)
    mesh, ranks = program.world.mesh, program.world.ranks
    taken = [event.batches for event in program.events if event.op in {"get_activation", "read"}]
    if mesh is not None and 1 < (rows := mesh.axes.get("data", 1)) < ranks:
        share = max(1, batches // rows)
        if len(taken) == share and batches == min(wrong):
            yield f"this rank has asked for all {share} of its row already: ask ahead only while one is left"
        place = mesh.coordinates(program.rank)["data"]
        first = min((one for one in named if isinstance(one, int)), default=-1)
        by_rank = program.rank != place and program.rank in (first, first // share)
        row = f'model.coord["data"],\nhere {place}{", and not from model.rank" * by_rank}'
        if len(named - wrong) < share:  # otherwise it names its own and more
            yield f"the {rows} places along data share {batches} batches, {share} for each: which, follows from {row}"
    if len(taken) == batches == min(wrong):
        taken = f"all {batches} batches" if batches > 1 else "its only batch"
        yield f"this rank has taken {taken} already: what asks for more has to stop at model.BATCHES"
    if len(named) > batches:
        yield f"the number of batches is model.BATCHES, and here {batches}: all of them are range(model.BATCHES)"
    if ranks > batches:
        yield "batches are counted from 0; with more ranks than batches, a rank's number is not its batch"


@fact
def EndlessBatches(batches: int, most: int) -> Words:
    """More than `most` batches are named; the iterable may be endless."""
    return words_of("EndlessBatches", batches=batches, most=most)


@fact
def NothingToGet() -> Words:
    """Input data is requested for no batch at all."""
    return words_of("NothingToGet")


@fact
def Unread(op: str) -> Words:
    """Input data is taken free of charge (`op`) where reading has a cost."""
    return words_of("Unread", op=op)


@fact
def OtherBatches(program: Running, op: str, inp: Value, grad: Value) -> Told:
    """Backward, or half of it (`op`), got an input and a gradient of different batches; or forward got two such
    activations (the second one is `grad`)."""
    what, made, there, case = "gradient", maker(grad), home(grad), ""
    came = there.values_of(made.inputs) if made and there and inp.place.batches < grad.place.batches else ()
    shared = inp.place.batches & grad.place.batches  # a missing exchange leaves some; a wrong order, none
    if isinstance(grad, Activation):
        what, case = "activation beside it", "activations"
    elif shared and "experts" in inp.place.named:
        case = "results_of_experts"
    elif shared and any("experts" in one.place.named for one in (grad, *came)):
        case = "tokens_of_experts"
    elif inp.place.batches < grad.place.batches:
        case = "slices"
    wanted, batches = (these("batch", one.place.batches) for one in (inp, grad))
    yield words_of("OtherBatches", case, what=what, op=op, wanted=wanted, batches=batches)
    for value in (inp, grad):
        number = -1 if value.mark is None else value.mark[1]
        if is_held(program, number):
            yield shared_key(program, STORES.index(STORE[type(value)]), value.layer, number)
    yield provenance.scattered(grad)
    if program.world.ranks == 1 and what == "gradient":  # no messages involved
        yield "take the input of the same batch"


@fact
def NoKind(value: Value) -> Words:
    """A value is of a class of the student's own, not one of the five kinds."""
    return words_of("NoKind", name=type(value).__name__, kinds=", ".join(KINDS), by_hand=MADE_BY_HAND)


@fact
def NoValue(kind: type[Value], fields: tuple[object, ...], field: str, low: int | None, most: object) -> Words:
    """No value of a kind can have these fields: `field` has to be a number from `low` up, or some of `most`."""
    said = {"kind": kind.kind, "name": kind.__name__, "field": field, "low": low, "most": written(most)}
    given = ", ".join(written(item)[:40] for item in fields)
    return words_of("NoValue", "pieces" * (low is None), fields=given, by_hand=MADE_BY_HAND, **said)
