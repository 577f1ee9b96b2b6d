"""No value where one belongs, or a value of another kind, layer or part: where it came from, and what belongs there."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import lib.diagnosis.facts as facts
from lib.diagnosis.facts.laws import CUT_ALIKE
from lib.diagnosis.facts.operations import LOAD_ALIKE, call_besides
from lib.diagnosis.groups import gather_call, shard_call
from lib.diagnosis.provenance import (
    Advice,
    alike,
    because,
    is_held,
    line,
    line_of,
    made_by,
    maker,
    named,
    sent_in,
)
from lib.errors.exceptions import Fact
from lib.errors.source_lines import student_place
from lib.errors.wording import plural, shown, these, with_article
from lib.trace.event import STORE, Event
from lib.values.collectives import COLLECTIVES, STEP
from lib.values.operations import LOCAL, MESSAGES, OPERATIONS, calls, signatures
from lib.values.values import Activation, ActivationGrad, Value, WeightGrad, definite, subject

if TYPE_CHECKING:
    from lib.diagnosis.provenance import Running


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
            return (
                f"this rank has the rows of the weight for the features that {made_by(value)}:\n"
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
    idea = f"this rank has {these('shard', weight.shards)} only: all shards have to be put together first"
    return line(program, "allgather", idea, f"gather all shards first:\n{gather_call(program)}")


@because(facts.NoBatch)
def no_batch(fact: Fact, program: Running) -> str | None:
    if program.world.ranks <= fact.batches:
        return None
    mesh = program.world.mesh
    if mesh is not None and "data" in mesh.axes:
        return 'with more ranks than batches a rank\'s number is not its batch: batch = model.coord["data"]'
    return "batches are counted from 0; with more ranks than batches, a rank's number is not its batch"


@because(facts.WrongLayer)
def wrong_layer(fact: Fact, program: Running) -> Advice | None:
    """A value of another layer: one that came from another rank tells who disagrees with whom."""
    value, layer, made = fact.value, fact.layer, maker(fact.value)
    wanted = definite(subject(value.kind, layer))
    if made is not None and made.op == "receive" and made.peer is not None:
        return (
            f"rank {made.peer} passed it{sent_in(program, made)}: pass {wanted} there,\n"
            "if both ranks agree on which layers each of them has"
        )
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
    return (
        f"{named(made)} brought what another rank's part of a weight gave: pass on what went into that layer,\n"
        "and multiply it with this rank's part"
    )


@because(facts.Broken)
def broken(fact: Fact, _: Running) -> str | None:
    """One of the pieces that an all-to-all brought."""
    made = maker(fact.value)
    if made is None or made.op != "alltoall" or len(made.outputs) == 1 or fact.number != 1:
        return None
    return (
        f"the all-to-all{line_of(made)} brought {len(made.outputs)} pieces, one from each rank, and this is one:\n"
        "put all of them together, piece by piece: value = value.combine(piece)"
    )
