"""Keys that hold nothing, or the value of another batch: which key has it, what gives it, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any, cast

import lib.diagnosis.facts as facts
from lib.diagnosis.collectives import gather_call, not_reached
from lib.diagnosis.provenance import batches_of, came_of, in_turn, is_held, layers_of, line_of, maker, store_of
from lib.diagnosis.running import Advice, Running, likely_cause, line
from lib.errors.source_lines import student_place
from lib.errors.wording import shown, these
from lib.trace.event import STORE, STORES, place_of
from lib.values.collectives import COLLECTIVES, STEP
from lib.values.operations import BY_INPUT, BY_WEIGHT
from lib.values.values import KINDS, Activation, ActivationGrad, Value, Weight, WeightGrad, definite, subject


@likely_cause.register
def missing(fact: facts.Missing, program: Running) -> str | None:
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
    store: Any = store_of(program, fact.store)
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
    layers, kinds = model.LAYERS, model.shape.kinds
    last = layers if kind in (Activation, ActivationGrad) else layers - 1
    if number > last:
        return f"there is no {subject(kind.kind, number - (kind is ActivationGrad))}: the last number is {last}"
    if last < layers and number >= 0 and kinds[number].weight is None:
        return f"layer {number}, of the kind {kinds[number].name}, has no weight"
    what = definite(subject(kind.kind, number - (kind is ActivationGrad)))
    mine = layers_of(program)
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
    done = batches_of(program, ops, layer)
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
    return [
        f"{STORES[store]}[{shown(key)}]"
        for key, value in store_of(program, store).items()
        if _number(value) == number and (batch is None or batch in value.place.batches)
    ]


@likely_cause.register
def deleted(fact: facts.Deleted, program: Running) -> Advice | None:
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
    return line(program, "allgather", again, f"{again}: {gather_call(program)}")


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
    kept = store_of(program, fact.store).values()
    lower = [v.layer for v in kept if v.place.batches == value.place.batches and v.layer < value.layer]
    if not lower:
        return None
    return f"{fact.fix},\nor make it again before this line: forward from activation {max(lower)}, which is there"


def _inside_my_stage(program: Running, value: Value | None) -> str | None:
    """A gradient that this rank made and used up itself, passed on although the stage before needs another."""
    here = student_place()
    mine = layers_of(program)
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
    """Return which of these operations goes backward on a rank: all of backward, or half of it where it is split."""
    halves = BY_INPUT ^ BY_WEIGHT
    done = [event.op for event in program.events if event.op in BY_INPUT | BY_WEIGHT]
    return next((op for op in done if op in ops), min(ops & halves) if halves.intersection(done) else "backward")


def _in_a_sum(program: Running, store: int, value: Value | None) -> str | None:
    """A gradient that has gone into a sum, which is kept under another key."""
    if not isinstance(value, WeightGrad):
        return None
    for key, other in store_of(program, store).items():
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
def other_batches(fact: facts.OtherBatches, program: Running | None) -> str | None:
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
