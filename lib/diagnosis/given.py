"""No value where one belongs, or another than belongs there: where it came from, what became of it, what gives it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence, Set
from typing import Any, cast

import lib.diagnosis.facts as facts
from lib.diagnosis.facts.laws import CUT_ALIKE
from lib.diagnosis.facts.operations import LOAD_ALIKE, call_besides
from lib.diagnosis.groups import gather_call, not_reached, shard_call
from lib.diagnosis.provenance import (
    Advice,
    Running,
    alike,
    batches_of,
    because,
    came_of,
    in_turn,
    is_held,
    layers_of,
    line,
    line_of,
    made_by,
    maker,
    named,
    sent_in,
    store_of,
    titled,
)
from lib.errors.exceptions import Fact
from lib.errors.source_lines import student_place
from lib.errors.wording import plural, shown, these, with_article
from lib.trace.event import STORE, STORES, Event, place_of
from lib.values.collectives import COLLECTIVES, STEP
from lib.values.operations import BY_INPUT, BY_WEIGHT, LOCAL, MESSAGES, OPERATIONS, calls, signatures
from lib.values.values import KINDS, Activation, ActivationGrad, Value, Weight, WeightGrad, definite, subject

# -- what is given ------------------------------------------------------------------------------------------------


def _order(op: str) -> str:
    signature = signatures().get(op)
    return f"write {signature}" if signature is not None else "check the order of the arguments"


@because(facts.NotALayer)
def not_a_layer(fact: Fact, _: Running) -> str:
    return f"the {'rank' if fact.op in MESSAGES else 'layer'} comes first: {_order(fact.op)}"


@because(facts.WrongKind)
def wrong_kind(fact: Fact, program: Running) -> Advice:
    """Something else stands where a value belongs."""
    wanted, op, value, order = fact.wanted, fact.op, fact.value, _order(fact.op)
    if hasattr(value, "popitem"):  # a dict, or a store
        name = STORE[wanted] if wanted in STORE else getattr(value, "name", "grad_weights")
        return f"take one value out of the store: {name}[layer]"
    source = _came_from(program, wanted, value) or _misplaced(program, value)
    if source is not None:
        return source
    if wanted is ActivationGrad and isinstance(value, Activation):
        idea = "an activation is not a gradient: the first gradient comes from loss, the others from backward"
        fix = "loss gives the first gradient, and each backward the next one:\n"
        fix += "grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])"
        return line(program, "loss", idea, fix)
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


def _came_from(program: Running, wanted: type[Value], value: object) -> str | None:
    """Tell where a value of another kind came from, if that is where it went wrong."""
    made = maker(value)
    if made is None or not isinstance(value, Value):
        return None
    if made.op == "receive" and made.peer is not None:
        what, instead = with_article(value.kind), with_article(wanted.kind)
        return f"rank {made.peer} passed {what}{sent_in(program, made)}: pass {instead} there"
    kinds = [type(program.values[number]) for number in made.outputs]
    if made.op in LOCAL and len(kinds) > 1 and wanted in kinds:
        names = ", ".join(f"{STORE[kind]}[layer]" for kind in kinds if kind in STORE)
        return f"{named(made)} gives its two results in this order:\n{names} = model.{made.op}(...)"
    return None


def _misplaced(program: Running, value: object) -> str | None:
    """A value that stands in the store of another kind: that is where it went wrong."""
    if not isinstance(value, Value):
        return None
    stores: Sequence[Any] = program.world.models[program.rank].storage()
    for kind, store in zip(STORE, stores, strict=True):
        key = next((key for key, held in store.items() if held is value), None)
        if key is not None and not isinstance(value, kind):
            made = maker(value)
            source = "" if made is None else f", which {made.op} gave{line_of(made)}"
            return (
                f"{store.name}[{shown(key)}] holds {with_article(value.kind)}{source}: keep it in "
                f"{STORE[type(value)]}[...],\nand {store.name} for {plural(kind.kind, 2)} alone"
            )
    return None


@because(facts.Besides)
def besides(fact: Fact, _: Running) -> str | None:
    """An argument of a layer besides its input was left out, or is a name for None."""
    here = student_place()
    written = _arguments(fact.op, "" if here is None else here.text)
    if fact.other is not None or not written:
        return None
    less = len(written) <= (2 if fact.op == "forward" else 3)
    call = call_besides(fact.op, fact.layer, fact.takes, fact.of, written if less else written[:-1])
    if less:
        return f"give it one more argument: {call}"
    return f"{written[-1]} is None on this rank: look at what it should be, as in\n{call}"


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


@because(facts.NotStored)
def not_stored(fact: Fact, program: Running) -> str:
    """Something that is no value at all, in a store."""
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
    operations = [row.name for row in OPERATIONS.values() if len(kinds) > 1 and row.gives == tuple(kinds)]
    if operations:
        one = len(operations) == 1
        call = f"model.{operations[0]}(...)" if one else "..."
        stores = ", ".join(f"{STORE[kind]}[layer]" for kind in kinds if kind in STORE)
        return f"{' and '.join(operations)} give{'s' if one else ''} two results: {stores} = {call}"
    call = f"await model.receive({last[0].peer})" if last and last[0].op == "receive" else "..."
    return f"take the tuple apart first: {', '.join('abcdef'[: len(kinds)])} = {call}"


@because(facts.Incomplete)
def incomplete(fact: Fact, program: Running) -> Advice:
    """A shard where the whole weight is needed."""
    weight = fact.weight
    made = maker(weight)
    for value in program.values:
        if isinstance(value, Activation) and value.layer == weight.layer and not value.place.dims[-1].whole:
            why = f"this rank has the rows of the weight for the features that {made_by(value)}"
            return f"{why}:\ngive forward these features as they are, without a gather"
    if made is not None and made.op == "allgather":
        count = len(made.group)
        return (
            f"{count} ranks put {len(weight.shards)} shards together, but the weight is cut into {weight.total}:\n"
            f"cut it into as many as there are ranks to gather from: {shard_call(program, count, made.group)}"
        )
    if made is not None and made.op == "shard":
        why = f"the whole weight was cut{line_of(made)} already: cut it when nothing needs it whole any more"
        return f"{why},\nwhich is after its last backward"
    for number, whole in alike(program, weight):
        if whole.is_complete() and whole.step == weight.step and whole.mark is not None:
            if is_held(program, number):
                return f"the whole weight is what the all-gather gave{line_of(maker(whole))}: use that, not the shard"
            return f"the weight gathered{line_of(maker(whole))} is deleted by now: gather it again before this line"
    idea = f"this rank has {these('shard', weight.shards)} only: all shards have to be put together first"
    return line(program, "allgather", idea, f"gather all shards first:\n{gather_call(program)}")


@because(facts.NoBatch)
def no_batch(fact: Fact, program: Running) -> str | None:
    mesh, ranks = program.world.mesh, program.world.ranks
    if mesh is not None and 1 < mesh.axes.get("data", 1) < ranks:
        rows = mesh.axes["data"]
        return (
            f"batches are shared among the {rows} rows along data, so they follow from a rank's row, "
            'model.coord["data"],\n'
            f"here {mesh.coordinates(program.rank)['data']}, and not from its number, model.rank"
        )
    if ranks <= fact.batches:
        return None
    return "batches are counted from 0; with more ranks than batches, a rank's number is not its batch"


@because(facts.WrongLayer)
def wrong_layer(fact: Fact, program: Running) -> Advice | None:
    """A value of another layer: one that came from another rank tells who disagrees with whom."""
    value, layer, made = fact.value, fact.layer, maker(fact.value)
    wanted = definite(subject(value.kind, layer))
    if made is not None and made.op == "receive" and made.peer is not None:
        why = f"rank {made.peer} passed it{sent_in(program, made)}: pass {wanted} there"
        return f"{why},\nif both ranks agree on which layers each of them has"
    for number, other in [*enumerate(program.values)] if fact.op == "loss" else ():
        if type(other) is Activation and other.layer == layer and is_held(program, number):
            keys = [shown(key) for key, held in store_of(program, 2).items() if held is other]
            return f"{made_by(other).replace(' gave', f' gave {wanted}', 1)}: use activations[{keys[0]}]"
    if program.world.ranks == 1:
        return None
    kinds = program.world.models[program.rank].shape.kinds
    if layer == value.layers and value.is_complete() and any(kind.weight for kind in kinds[value.layer :]):
        return "only the ranks that have the last layer call loss: the others pass their activation on"
    if fact.op == "forward" and made is not None and made.op == "get_activation":
        idea = f"{wanted} is made on the rank that has layer {layer - 1}"
        fix = f"{idea}: await model.receive(...) it from there"
        return line(program, "receive", f"{idea}, and comes here as a message", fix)
    return None


@because(facts.NoShard)
def no_shard(fact: Fact, program: Running | None) -> str | None:
    """A shard that is not there: the call that cuts a weight as its group needs it."""
    return CUT_ALIKE + shard_call(program, fact.total if isinstance(fact.total, int) else None) if fact.loads else None


@because(facts.Stateless)
def stateless(fact: Fact, program: Running) -> str | None:
    """A shard of the state that does not fit the weight's."""
    weight, made = fact.weight, maker(fact.weight)
    if made is not None and made.op == "shard":
        shard, total = min(weight.shards), weight.total
        return (
            f"the weight was cut{line_of(made)} to {these('shard', weight.shards)} of {total}:\n"
            f"load the optimizer state of the same shard: model.load_weights(layer, {shard}, {total}) on this rank"
        )
    return None if weight.is_complete() else LOAD_ALIKE + shard_call(program, weight.total)


@because(facts.OtherFeatures)
def other_features(fact: Fact, _: Running) -> str | None:
    """Features that another rank has made and passed on."""
    made = maker(fact.value)
    if made is None or made.op not in COLLECTIVES or COLLECTIVES[made.op].travel is not STEP:
        return None
    why = f"{named(made)} brought what another rank's part of a weight gave: pass on what went into that layer"
    return f"{why},\nand multiply it with this rank's part"


@because(facts.Broken)
def broken(fact: Fact, _: Running) -> str | None:
    """One of the pieces that an all-to-all brought."""
    made = maker(fact.value)
    if made is None or made.op != "alltoall" or len(made.outputs) == 1 or fact.number != 1:
        return None
    why = f"the all-to-all{line_of(made)} brought {len(made.outputs)} pieces, one from each rank, and this is one"
    return f"{why}:\nput all of them together, piece by piece: value = value.combine(piece)"


# -- keys of stores -----------------------------------------------------------------------------------------------


@because(facts.Missing)
def missing(fact: Fact, program: Running) -> str | None:
    """A key that never had a value: another one has it, or nobody has made it yet."""
    store: int = fact.store
    parts = _parts(fact.key)
    name, number = STORES[store], parts[0]
    here = student_place()
    if here is not None and re.match(rf"(\w+\.)?{name}\[.*\] \+=", here.text):
        return "`+=` needs a value to add to: store the first gradient itself, and add the others to it"
    if any(type(part) is int and part < 0 for part in parts):
        return f"{name}[{shown(fact.key)}] would be the one before the first: there is none yet to take"
    if type(number) is not int:
        return None
    found = _under_another_key(program, store, parts)
    if found is None and store == 0 and _words_in(parts):
        whole = f"the whole weight of layer {number} is there after an all-gather of its shards, which has not run yet"
        return not_reached(program, number, ("allgather",)) or whole
    return found or _not_made(program, store, number, parts[1:])


def _parts(key: Any) -> list[Any]:
    return [*cast("tuple[Any, ...]", key)] if isinstance(key, tuple) and key != () else [key]


def _words_in(parts: list[Any]) -> list[str]:
    return [part for part in parts if isinstance(part, str)]


def _batch_in(parts: list[Any]) -> int | None:
    return next((part for part in parts[1:] if type(part) is int), None)


def _number(value: Value) -> int:
    """The number by which a value is kept: its layer, or that of the activation."""
    return value.layer + 1 if isinstance(value, ActivationGrad) else value.layer


def _under_another_key(program: Running, number: int, parts: list[Any]) -> str | None:
    """The value that a key is for, where it is in the store under another key, or was."""
    name, batch, store = STORES[number], _batch_in(parts), store_of(program, number)
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
    """Name the operation that gives the value which is missing."""
    model, kind = program.world.models[program.rank], list(KINDS.values())[store]
    layers, kinds, alone = model.LAYERS, model.shape.kinds, program.world.ranks == 1
    last = layers if kind in (Activation, ActivationGrad) else layers - 1
    name = subject(kind.kind, number - (kind is ActivationGrad))
    if number > last:
        return f"there is no {name}: the last number is {last}"
    if last < layers and number >= 0 and kinds[number].weight is None:
        return f"layer {number}, of the kind {kinds[number].name}, has no weight"
    what, mine = definite(name), layers_of(program)
    if store < 2:
        some = f": this rank has loaded {these('layer', mine)} only" if mine and not alone else ""
        return f"{what} is there after load_weights({number}, ...){some}"
    if kind is Activation and number == 0:
        return f"{what} is the data, which get_activation gives"
    if kind is ActivationGrad and number == layers:
        lost = next((event for event in program.events if event.op == "loss"), None)
        if lost is not None and more:
            return f"loss gave what this rank has of it{line_of(lost)}: what others have has to come from them"
        return f"{what} is what loss gives{'' if alone else ', on the rank that has the last layer'}"
    layer = number - 1 if kind is Activation else number
    ops = BY_INPUT if kind is ActivationGrad else BY_WEIGHT if kind is WeightGrad else frozenset(["forward"])
    op = "forward" if kind is Activation else _back(program, ops)
    if kind is not WeightGrad and mine and layer not in mine and kinds[layer].weight is not None:
        return f"{what} is made by {op}({layer}, ...) on another rank,\nwhich passes it on: keep what receive gives"
    batch, done = _batch_in([number, *more]), batches_of(program, ops, layer)
    if batch is not None and batch in done:
        return f"{op}({layer}, ...) has run for batch {batch}, but nothing is kept under this key"
    if batch is not None and done:
        why = f"{op}({layer}, ...) has not run for batch {batch} on this rank, only for {these('batch', done)}"
        programs = [other.program for other in program.world.models.values()]
        there = [p.rank for p in programs if batch in batches_of(p, ops, layer)]
        if there:
            return f"{why}:\nbatch {batch} goes through {these('rank', there)}"
        if kind is WeightGrad and max(done) == model.BATCHES - 1 and batch == min(done) - 1:
            return (
                f"{why}:\nhere the last batch goes back first, so the sum that is there is of the batch after this one"
            )
        return why
    made = [event for event in program.events if event.op in ops and event.layer == layer]
    if batch is None and made:
        keys = [shown(key) for key, value in store_of(program, store).items() if _number(value) == number]
        if keys:
            there = ", ".join(f"{STORES[store]}[{key}]" for key in keys)
            return f"{what} is there as {there}: use the key under which it was stored"
        return f"{what} is what {op} gave{line_of(made[-1])}: keep it under this key"
    order = "" if op not in BY_INPUT else ":\nbackward goes from the last layer to the first"
    return f"{what} is what {op}({layer}, ...) gives, which has not run yet{order}"


def _back(program: Running, ops: Set[str] = BY_INPUT) -> str:
    """Return which of these operations goes backward on a rank: all of backward, or half of it where it is split."""
    halves = BY_INPUT ^ BY_WEIGHT
    done = [event.op for event in program.events if event.op in BY_INPUT | BY_WEIGHT]
    return next((op for op in done if op in ops), min(ops & halves) if halves.intersection(done) else "backward")


@because(facts.Deleted)
def deleted(fact: Fact, program: Running) -> Advice | None:
    """A key that was deleted: one that several batches had shared, or a gathered weight."""
    number: int = fact.number
    value, store, here = program.values[number], store_of(program, fact.store), student_place()
    if (shared := _shared(program, fact.store, fact.key, number)) is not None:
        return shared
    if (elsewhere := _inside_my_stage(program, value)) is not None:
        return elsewhere
    if isinstance(value, WeightGrad):
        for key, other in store.items():
            if isinstance(other, WeightGrad) and other.layer == value.layer and other.batches > value.batches:
                name = f"{STORES[fact.store]}[{shown(key)}]"
                return f"it has gone into the sum of {these('batch', other.batches)}, which is {name}: use that"
    for event in program.events:
        if number in event.inputs and event.op in COLLECTIVES and COLLECTIVES[event.op].travel is STEP:
            return (
                f"this rank passed it on, by {named(event)}: only what it does not need itself can go on without being "
                "kept.\nOf a sum that goes round, that is all but the last"
            )
    if isinstance(value, Activation) and value.layer == value.layers and "loss(" not in (here.text if here else ""):
        took = next((event for event in program.events if event.op == "loss" and number in event.inputs), None)
        if took is not None:
            why = f"activation {value.layer} is what the last layer gave, and {named(took)} alone needs it"
            return (
                f"{why}:\nbackward({value.layer - 1}, ...) takes the input of that layer, activation {value.layer - 1}"
            )
    if (again := _once_more(program, fact, value)) is not None:
        return again
    made = maker(value)
    if made is None or made.op != "allgather" or not isinstance(value, Weight):
        return None
    found = place_of(made)
    if here is not None and "set_final_weight" in here.text and value.updates == 0:
        return "a gathered weight is only borrowed, for forward and backward: hand in the shard that this rank updated"
    again = f"{fact.fix},\nor gather it again before backward"
    if found is not None and re.match(r"\w+\[.*\] = await model\.allgather\(", found.text):
        return f"{again}: {found.text}"
    return line(program, "allgather", again, f"{again}: {gather_call(program)}")


def _once_more(program: Running, fact: Fact, value: Value | None) -> str | None:
    """An activation that was deleted in its turn: its backward is over already, or forward can make it again."""
    if not isinstance(value, Activation) or value.layer == program.world.models[program.rank].LAYERS:
        return None
    batches = value.place.batches
    for event in program.events:
        if event.op in BY_INPUT & BY_WEIGHT and event.layer == value.layer and event.batches == batches:
            return (
                f"{event.op}({value.layer}, ...) has run already for {these('batch', batches)}, and after that it was "
                "deleted:\ngo back once for each batch"
            )
    kept = store_of(program, fact.store).values()
    lower = [v.layer for v in kept if v.place.batches == batches and v.layer < value.layer]
    if not lower:
        return None
    return f"{fact.fix},\nor make it again before this line: forward from activation {max(lower)}, which is there"


def _inside_my_stage(program: Running, value: Value | None) -> str | None:
    """A gradient that this rank made and used up itself, passed on although the stage before needs another."""
    here, mine = student_place(), layers_of(program)
    if here is None or "pass_to(" not in here.text or not isinstance(value, ActivationGrad) or not mine:
        return None
    if value.layer + 1 <= min(mine):
        return None
    by = f"{_back(program)}({value.layer}, ...)"
    why = f"{definite(subject(value.kind, value.layer))} is used up on this rank, by {by}"
    return f"{why}:\nwhat the stage before waits for is the gradient of this stage's input, activation {min(mine)}"


def _shared(program: Running, store: int, key: object, number: int) -> str | None:
    """A key under which the values of several batches took each other's place."""
    batches = in_turn(program, store, number)
    if len(batches) < 2 or not all(batches) or sum(map(len, batches)) > len(frozenset[int]().union(*batches)):
        return None
    order = ", ".join(str(batch) for some in batches for batch in sorted(some))
    name = STORES[store]
    return f"{name}[{shown(key)}] held batches {order} one after the other:\nuse a key with two parts, {name}[layer, b]"


@because(facts.OtherBatches)
def other_batches(fact: Fact, program: Running) -> str | None:
    """An input and a gradient of different batches: does one of them have a key that all batches share?"""
    for value in (fact.inp, fact.grad):
        number = -1 if value.mark is None else value.mark[1]
        if is_held(program, number):
            found = _shared(program, STORES.index(STORE[type(value)]), value.layer, number)
            if found is not None:
                return found
    if (scattered := came_of(fact.grad, "scatterreduce")) is None:
        return None
    made, part = scattered
    left = these("batch", part.place.batches)
    return f"{titled(made)} left this rank the sum of {left} alone:\nan all-reduce gives all of it to every rank"
