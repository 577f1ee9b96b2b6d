"""The likely reason for a broken rule: what the rank did before says more than the values that it ended up with.

A rule raises a fact (what is wrong, with which values); here the programs of the ranks are searched for what a student
probably meant. Nothing is decided here: an error is an error, whatever advice there is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import singledispatch
from typing import Any, cast

from lib.diagnosis.collectives import meeting, not_reached, pipelined, shard_call, sum_axis, twice
from lib.diagnosis.provenance import alike, home, in_turn, is_held, line_of, maker, sent_in
from lib.diagnosis.rule_words import CUT_ALIKE, LOAD_ALIKE
from lib.diagnosis.running import Advice, Line, Running, line
from lib.errors.exceptions import PuzzleError
from lib.errors.facts import Fact
from lib.errors.forgotten_await import put_await
from lib.errors.wording import plural, shown, these, with_article
from lib.trace.event import STORES, Event, place_of
from lib.values import facts
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMPUTE, LOCAL, MESSAGES, OPERATIONS, calls, signatures
from lib.values.values import KINDS, Activation, ActivationGrad, Value, Weight, WeightGrad, definite, subject

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
    if hasattr(value, "popitem") and wanted in STORE:  # a dict, or a store
        return f"take one value out of the store: {STORE[wanted]}[layer]"
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
    if (op in OPERATIONS and type(value) in OPERATIONS[op].takes) or op in COLLECTIVES or wanted is Value:
        return f"the order of the arguments is another one: {order}"
    if value is None:
        return "None is what a call gives that has no result: take the value from its store"
    if wanted in STORE and not isinstance(value, Value):
        return f"take {with_article(wanted.kind)} out of its store: {STORE[wanted]}[...]\n{order}"
    return f"take it from the store {STORE[wanted]}: {order}" if wanted in STORE else order


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
        return "a call that gives nothing back stands on a line of its own, without a store before it"
    if callable(value) and (name := getattr(value, "__name__", None)) is not None:
        return f"call it: {calls().get(name, f'{name}(...)')}"
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
    if made is not None and made.op == "allgather":
        count = len(made.group)
        return (
            f"{count} ranks put {len(weight.shards)} shards together, but the weight is cut into {weight.total}:\n"
            f"cut it into as many as there are ranks to gather from: {shard_call(program, count, made.group)}"
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
        f"gather all shards first:\n{GATHER}",
    )


GATHER = 'weights[layer, "full"] = await model.allgather(weights[layer], layer)'


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
            return f"the {COLLECTIVES[event.op].title}{line_of(event)} was started, but nobody awaited its result{line}"
    return _sum_first(program, grad)


def _sum_first(program: Running, grad: WeightGrad) -> Advice:
    here = frozenset[int]().union(*(other.batches for _, other in alike(program, grad)))
    add = (
        "add each gradient to the sum of those before:\n"
        "grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - 1]"
    )
    if len(here) == grad.total_batches:
        had = f"this rank has had the gradients of {these('batch', here)}, one in the place of the other"
        return line(program, "add", f"{had}: keep their sum", add)
    lost = _own(program, grad) - grad.batches
    if lost and _own(program, grad) & grad.batches:
        left_out = f"this rank computed the gradients of {these('batch', lost)} too, and they are not in this sum"
        return line(program, "add", f"{left_out}: add each new one to those before", f"{left_out}:\n{add}")
    if program.world.ranks == 1:
        return "update once, after the last batch, with the sum of all gradients"
    if (found := not_reached(program, grad) or pipelined(program, grad)) is not None:
        return found
    axis = sum_axis(program)
    whose, group = ("all ranks", "") if axis is None else (f"the ranks along the axis {axis!r}", f', group="{axis}"')
    op = "scatterreduce" if "scatterreduce" in (program.world.asks or ()) else "allreduce"
    seen = these("batch", here) if here else "no batch at all"
    return line(
        program,
        op,
        f"this rank has only seen {seen}: the gradients of {whose} have to be summed before anyone updates",
        f"sum the gradients of {whose} first:\n"
        f"grad_weights[layer] = await model.{op}(grad_weights[layer], layer{group})",
    )


def _own(program: Running, grad: WeightGrad) -> frozenset[int]:
    """The batches of which this rank has itself computed a gradient of the same weight."""
    made = [other for _, other in alike(program, grad) if (event := maker(other)) is not None and event.op in COMPUTE]
    return frozenset[int]().union(*(other.batches for other in made))


@likely_cause.register
def _(fact: facts.NoSum, _: Running | None) -> str | None:
    """An activation in a sum over ranks: each belongs to the rank that has its batch."""
    value, there = fact.thing, home(fact.thing)
    if there is None or not isinstance(value, Activation) or there.events[-1].op not in COLLECTIVES:
        return None
    return (
        f"activations stay on the rank that has their batch, here {these('batch', value.batches)};\n"
        "what is summed over the ranks is the gradient of a weight: grad_weights[layer]"
    )


@likely_cause.register
def _(_: facts.NoBatch, program: Running) -> str | None:
    world = program.world
    mesh = world.mesh
    if mesh is not None and "data" in mesh.axes:
        return 'with more ranks than batches a rank\'s number is not its batch: batch = model.coord["data"]'
    return "batches are counted from 0; with more ranks than batches, a rank's number is not its batch"


@likely_cause.register
def _(fact: facts.WrongLayer, program: Running) -> str | None:
    """A value of another layer: one that came from another rank tells who disagrees with whom."""
    value, layer = fact.value, fact.layer
    made = maker(value)
    if made is None or made.op != "receive" or made.peer is None:
        if layer == value.layers and program.world.ranks > 1:
            return "only the ranks that have the last layer call loss: the others pass their activation on"
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
    weight = fact.weight
    return None if weight.is_complete() else LOAD_ALIKE + shard_call(program, weight.total)


@likely_cause.register
def _(fact: facts.Deleted, program: Running) -> Advice | None:
    """A key that was deleted: one that several batches had shared, or a gathered weight."""
    number, fix = fact.number, fact.fix
    shared = _shared(program, fact.store, fact.key, number)
    if shared is not None:
        return shared
    value = program.values[number]
    made = maker(value)
    if made is None or made.op != "allgather" or not isinstance(value, Weight):
        return None
    found = place_of(made)
    text = "" if found is None else found.text
    again = f"{fix},\nor gather it again before backward"
    if re.match(r"\w+\[.*\] = await model\.allgather\(", text):
        return f"{again}: {text}"
    return line(program, "allgather", again, f"{again}: {GATHER}")


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
    return None


@likely_cause.register
def _(fact: facts.Twice, _: Running | None) -> str | None:
    return twice(fact.field, *fact.both[:2])


@likely_cause.register
def _(fact: facts.Unlawful, program: Running | None) -> Advice | None:
    return likely_cause(fact.why, program) if isinstance(fact.why, Fact) else None


@likely_cause.register
def _(fact: facts.Disagree, _: Running | None) -> Advice | None:
    """In another order, or in the wrong group? Of what is called with other arguments there is no more to know."""
    first, other = fact.first, fact.other
    return meeting(first, other) if (first.op, first.layer) != (other.op, other.layer) else None
