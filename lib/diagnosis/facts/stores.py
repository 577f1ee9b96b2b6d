"""Facts about stores: keys that hold nothing, what became of their values, and things that are not values."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import Any, cast

from lib.diagnosis import Running, Told, because, line, provenance, words_of
from lib.diagnosis.groups import gather_call, not_reached, reads
from lib.diagnosis.provenance import batches_of, in_turn, layers_of, maker, named, store_of, through, titled
from lib.diagnosis.python_errors import never_begun
from lib.errors.exceptions import fact
from lib.errors.source_lines import resolve, student_frame, student_place
from lib.errors.wording import shown, these, with_article
from lib.trace.event import STORE, STORES, Event, line_of, place_of
from lib.values.collectives import COLLECTIVES, STEP
from lib.values.operations import BY_INPUT, BY_WEIGHT, OPERATIONS, calls
from lib.values.values import KINDS, Activation, ActivationGrad, Value, Weight, WeightGrad, definite, describe, subject

__all__ = ["Deleted", "Missing", "NotStored"]


@fact
def NotStored(program: Running, name: str, kind: type[Value], thing: object) -> Told:
    """Something other than a value was put into the store of a kind, as `name` (with its key)."""
    yield words_of("NotStored", name=name, kind=with_article(kind.kind), thing=describe(thing))
    if isinstance(thing, tuple):
        yield _tuple([type(item) for item in cast("tuple[Any, ...]", thing)], program.events[-1:])
    elif thing is None:
        if (here := student_place()) is not None and (key := re.match(r"([^=]+\])\s*=\s*None$", here.text)):
            yield f"None takes nothing out of a store: del {key[1]}"
        if program.events[-1:] and (came := program.events[-1]).op == "receive":
            yield f"rank {came.peer} passed None{provenance.sent_in(program, came)}: pass a value there"
        yield "a call that gives nothing back stands on a line of its own, without a store before it"
    elif callable(thing) and (called := getattr(thing, "__name__", None)) is not None:
        yield f"call it: {calls().get(called, f'{called}(...)')}"
    pieces = cast("list[Any]", thing) if isinstance(thing, list) else []
    if len({piece.layer if type(piece) is kind else None for piece in pieces} - {None}) == 1:
        yield "these are pieces of one value: put them together first, value = value.combine(piece), piece by piece"
    if kind is WeightGrad and isinstance(thing, int | float) and not thing:
        yield f"a sum begins with no 0: store the first gradient, and add the others to it. To free one: del {name}"
    yield f"a store holds one value under each key, here {with_article(kind.kind)}"


def _tuple(kinds: list[type], last: Sequence[Event]) -> str:
    """Say how to store both results of an operation, or the parts of a message that is a tuple."""
    operations = [row.name for row in OPERATIONS.values() if len(kinds) > 1 and row.gives == tuple(kinds)]
    if operations:
        one = len(operations) == 1
        call = f"model.{operations[0]}(...)" if one else "..."
        stores = ", ".join(f"{STORE[kind]}[layer]" for kind in kinds if kind in STORE)
        return f"{' and '.join(operations)} give{'s' if one else ''} two results: {stores} = {call}"
    call = f"await model.receive({last[0].peer})" if last and last[0].op == "receive" else "..."
    return f"take the tuple apart first: {', '.join('abcdef'[: len(kinds)])} = {call}"


@fact
def Missing(program: Running, store: int, key: object) -> Told:
    """A store never held a value under the requested key."""
    yield None
    parts = _parts(key)
    name, number, here = STORES[store], parts[0], student_place()
    if here is not None and (asks := re.match(rf"(?:el)?if (?:not )?{name}\[(.+?)\](?: is|:)", here.text)):
        asked = f"({asks[1]})" if "," in asks[1] else asks[1]
        yield f"to ask whether it is there, write: if {asked} in {name}"
    if any(type(part) is int and part < 0 for part in parts):
        why = ",\nor the loop goes through batches that are not this rank's" if len(parts) > 1 else ""
        yield f"{name}[{shown(key)}] would be the one before the first: there is none yet to take{why}{_asker()}"
    if any(isinstance(part, Value) for part in parts):
        what, do = ("a batch", "name it, as in weight=...") if len(parts) > 1 else ("the layer", "hand in that number")
        yield f"a value stands where the number of {what} should: {do}"
    sums = rf"\b{name}(\[.*?\]) ?(\+=|= ?.*{name}\1.*\+|= ?.*\+ ?.*{name}\1)"
    once = sum(event.op in BY_WEIGHT and event.layer == number for event in program.events) == 1
    if once and _batch_in(parts) is None:
        sums += rf"|^{name}\[.*\] ?\+ ?{name}\b"  # second line of a bracketed sum
    if here is not None and re.search(sums, here.text):
        taken = [event.batches for event in program.events if event.op == "get_activation"]
        if number in layers_of(program) and len(taken) == 1 and 0 not in taken[0]:
            yield because("begins_later", rank=program.rank, batches=these("batch", taken[0]))
        sums = [under for under in store_of(program, store) if _parts(under)[0] == number]
        if len(sums) > 1 and _batch_in(parts) is not None:  # the last one is yet to be added
            yield f"the sum so far is {name}[{shown(sums[-2])}], of the batch that this rank took before"
        yield "there is no sum yet to add to: store the first value itself, and add the others to it"
    if isinstance(number, range):
        yield f"{number} is several layers, and a key is for one of them: for layer in segment: ..."
    if type(number) is not int:
        return
    found = _under_another_key(program, store, parts)
    if found is None and store == 0 and _words_in(parts):
        for there, value in store_of(program, store).items():
            if value.layer == number and value.is_complete() and (gave := maker(value)) and gave.op == "allgather":
                why = f"the whole weight of layer {number}, which {titled(gave)} gave, took the place of the shard, "
                yield f"{why}{name}[{shown(there)}]:\nkeep it under a key of its own, {name}[{shown(key)}]"
        whole = f"the whole weight of layer {number} is there after an all-gather of its shards, which has not run yet"
        yield not_reached(program, number, ("allgather",)) or whole
    yield found or never_begun(student_frame()) or _not_made(program, store, number, parts[1:])


def _parts(key: Any) -> list[Any]:
    return [*cast("tuple[Any, ...]", key)] if isinstance(key, tuple) and key != () else [key]


def _words_in(parts: list[Any]) -> list[str]:
    return [part for part in parts if isinstance(part, str)]


def _batch_in(parts: list[Any]) -> int | None:
    return next((part for part in parts[1:] if type(part) is int), None)


def _number(value: Value) -> int:
    """Return the number under which a value is kept: its layer, or its activation's."""
    return value.layer + 1 if isinstance(value, ActivationGrad) else value.layer


def _under_another_key(program: Running, number: int, parts: list[Any]) -> str | None:
    """Say under which other key the store has, or had, the value that a key is for."""
    name, batch, store = STORES[number], _batch_in(parts), store_of(program, number)
    grads = [key for key, value in store.items() if isinstance(value, WeightGrad) and value.layer == parts[0]]
    if len(grads) > 1 and batch is None and not any(map(_words_in, map(_parts, grads))):
        there = f"{name}[{shown(grads[0])}], {name}[{shown(grads[1])}]{', ...' * (len(grads) > 2)}"
        return f"it is there in {len(grads)} parts, {there}: add them up first"
    found: list[tuple[Any, Value | None, Any]] = [(key, value, None) for key, value in store.items()]
    found += [(key, program.values[number], place) for key, number, place in store.deleted()]
    for key, value, place in found:
        theirs = _parts(key)
        if value is None or _number(value) != parts[0] or theirs == parts or _words_in(parts) != _words_in(theirs):
            continue
        made = None if place is not None else maker(value)
        if made is not None and isinstance(value, Activation) and made.op in ("forward", "receive") and batch is None:
            gave = f"forward({made.layer}, ...) gives" if made.op == "forward" else "what came in is"
            return f"{gave} activation {value.layer}, which stands under {name}[{shown(key)}]: use its own number"
        numbered = None not in (batch, other := _batch_in(theirs))
        chunks = max(batch or 0, other or 0) >= program.world.models[program.rank].BATCHES  # and not batches
        if numbered and (chunks or batch not in value.place.batches):
            continue
        batches = these("batch", value.place.batches)
        if numbered and batch != other and (call := provenance.caller(program, value)) is not None:
            again = " again" if any(under == key for under, *_ in store.deleted()) else ""
            why = f"{call.function} was called for batch {other}{again}, when {batches} came in, which has had no "
            how = f"call it for each batch once, in order, in line {call.line}: {call.text}"
            return f"{why}{call.function} here yet:\n{how}"
        of = f" of {batches}" if numbered else ""
        what = f"{definite(subject(value.kind, value.layer))}{of} {'is' if place is None else 'was'} stored as "
        deleted = "" if place is None else f", and deleted in line {place.line}"
        return f"{what}{name}[{shown(key)}]{deleted}: use one key for both"
    return None


def _not_made(program: Running, store: int, number: int, more: list[Any]) -> str | None:
    """Name the operation that gives the missing value."""
    model, kind = program.world.models[program.rank], list(KINDS.values())[store]
    layers, kinds, alone = model.LAYERS, model.shape.kinds, program.world.ranks == 1
    last = layers if kind in (Activation, ActivationGrad) else layers - 1
    name = subject(kind.kind, number - (kind is ActivationGrad))
    if number > last:
        return f"there is no {name}: the last number is {last}"
    if last < layers and number >= 0 and kinds[number].weight is None:
        how = f"call model.forward({number}, ...), or model.backward({number}, ...), without one"
        how = how if kind is Weight else "leave this layer out"
        return f"layer {number}, of the kind {kinds[number].name}, has no weight: {how}"
    what, mine = definite(name), layers_of(program)
    if store < 2:
        some = f": this rank has loaded {these('layer', mine)} only" if mine and not alone else ""
        return f"{what} is there after load_weights({number}, ...){some}"
    if kind is Activation and number == 0:
        return f"{what} is the data, which {'read' if reads(program) else 'get_activation'} gives"
    if kind is ActivationGrad and number == layers:
        lost = next((event for event in program.events if event.op == "loss"), None)
        done = {batch for event in program.events if event.op == "loss" for batch in event.batches}
        if lost is not None and more and type(more[0]) is int and more[0] < model.BATCHES and more[0] not in done:
            return f"loss has not run for batch {more[0]} on this rank, only for {these('batch', done)}"
        if lost is not None and more:
            return f"loss gave what this rank has of it{line_of(lost)}: what others have has to come from them"
        return f"{what} is what loss gives{'' if alone else ', on the rank that has the last layer'}"
    deletes = (here := student_place()) is not None and here.text.startswith("del ")
    if kind is ActivationGrad and number == 0 and (batches_of(program, BY_INPUT, 0) or not deletes):
        return "no layer reads the gradient of the data, activation 0, and it is not kept: leave out what asks for it"
    layer = number - 1 if kind is Activation else number
    if kind is ActivationGrad:  # the last layer that takes the activation
        layer = max((one for one in range(layers) if number in model.shape.of(one)), default=number)
    ops = BY_INPUT if kind is ActivationGrad else BY_WEIGHT if kind is WeightGrad else frozenset(["forward"])
    half = kind is WeightGrad and batches_of(program, BY_INPUT - BY_WEIGHT, layer)
    op = "forward" if kind is Activation else "backward_weight" if half else _back(program, ops)
    if mine and layer not in mine and kinds[layer].weight is not None:
        if number - (kind is ActivationGrad) not in mine:
            return f"{what} stays on another rank: this one has {these('layer', mine)}, and goes through no others"
        return f"{what} is made by {op} of layer {layer} on another rank,\nwhich passes it on: keep what receive gives"
    batch = next((part for part in more if type(part) is int and part < model.BATCHES), None)
    done = batches_of(program, ops, layer)
    source, key = (2, (layer, *more)) if kind is Activation else (3, (layer + 1, *more))
    there = [
        one for under, one in store_of(program, source).items() if under == key and (batch is None or batch in done)
    ]
    used = {number for event in program.events if event.op in ops and event.layer == layer for number in event.inputs}
    if more and there and there[0].mark and there[0].mark[1] not in used:
        return f"{op} of layer {layer} has not run for {STORES[source]}[{shown(key)}], which is there"
    seen = {move[2] for move in program.moves}.union(*(event.inputs for event in program.events))
    unseen = [one for n, one in enumerate(program.values) if n not in seen and isinstance(one, kind)]
    like = [one for one in unseen if _number(one) == number]
    came = through(like[-1], ("combine",))[0] if like and more else None
    if came is not None and came.op in COLLECTIVES:
        return f"{titled(came)} brought {what}: keep what it gives under this key"
    if batch is not None and batch in done:
        return f"{op} of layer {layer} has run for batch {batch}, but nothing is kept under this key"
    if batch is not None and done:
        why = f"{op} of layer {layer} has not run for batch {batch} on this rank, only for {these('batch', done)}"
        others = program.world.models.values()
        if there := [one.program.rank for one in others if batch in batches_of(one.program, ops, layer)]:
            return f"{why}:\nbatch {batch} goes through {these('rank', there)}{_asker()}"
        if kind is WeightGrad and max(done) == model.BATCHES - 1 and batch == min(done) - 1:
            why += ":\nhere the last batch goes back first, so the sum that is there is of the batch after this one"
        elif batch == 0 and min(done) == 1:
            why += ":\nbatches are counted from 0, and this rank began with batch 1"
        return why + _asker()
    made = [event for event in program.events if event.op in ops and event.layer == layer]
    if batch is None and made:
        keys = [key for key, value in store_of(program, store).items() if _number(value) == number]
        if there := ", ".join(f"{STORES[store]}[{shown(key)}]" for key in keys):
            return f"{what} is there as {there}: use the key under which it was stored"
        return f"{what} is what {op} gave{line_of(made[-1])}: keep it under this key"
    order = ":\nbackward goes from the last layer to the first" if op in BY_INPUT else ""
    order += ", layer 0" if order and not number else ""
    came = max((event.layer or 0 for event in program.events if event.op == "forward"), default=layer)
    order = f":\nforward has come only as far as layer {came}" if kind is Activation and came < layer - 1 else order
    of = "" if batch is None else f", batch {batch},"
    return f"{what}{of} is what {op} of layer {layer} gives, which has not run yet{order}{_asker()}"


def _asker() -> str:
    """Name the student's line that called the function which asks for something; "" if no other line did."""
    inner = student_frame()
    outer = student_frame(inner and inner.f_back)
    found = outer and resolve(outer.f_code, outer.f_lasti)
    calls = inner is not None and found is not None and f"{inner.f_code.co_name}(" in found.text
    return f".\nLine {found.line} asks for it: {found.text}" if found and calls else ""


def _back(program: Running, ops: Set[str] = BY_INPUT) -> str:
    """Return which of these operations a rank uses for backward: the whole, or a half if it splits backward."""
    halves = BY_INPUT ^ BY_WEIGHT
    done = [event.op for event in program.events if event.op in BY_INPUT | BY_WEIGHT]
    return next((op for op in done if op in ops), min(ops & halves) if halves.intersection(done) else "backward")


@fact
def Deleted(program: Running, store: int, key: object, number: int, fix: str) -> Told:
    """The value under the requested key of a store has been deleted. `fix`: what to do about that alone."""
    yield None
    value, there, here = program.values[number], store_of(program, store), student_place()
    yield shared_key(program, store, key, number)
    taken = [place.line for _, one, place in there.deleted() if one == number and place is not None]
    if here is not None and here.line in taken and re.search(r"\.pop\(.* for ", here.text):
        what = "the pop in this line runs once for each item of the comprehension, and the value is there once"
        yield f"{what}:\ntake it out before, on a line of its own"
    first, passes = min(layers_of(program), default=None), here is not None and "pass_to(" in here.text
    if passes and isinstance(value, ActivationGrad) and first is not None and value.layer + 1 > first:
        used = f"{definite(subject(value.kind, value.layer))} is used up on this rank, by {_back(program)} of layer"
        yield because("used_up_here", used=used, layer=value.layer, first=first)
    yield from _without_a_part(STORES[store], key, there, value)
    if isinstance(value, WeightGrad):
        for under, other in there.items():
            if isinstance(other, WeightGrad) and other.layer == value.layer and other.batches > value.batches:
                name = f"{STORES[store]}[{shown(under)}]"
                yield f"it has gone into the sum of {these('batch', other.batches)}, which is {name}: use that"
    uses = [event for event in program.events if number in event.inputs]
    yield provenance.summed_by(program, number)
    if uses and uses[-1].op in COLLECTIVES and COLLECTIVES[uses[-1].op].travel is STEP:
        yield because("passed_on", call=named(uses[-1]))
    took = next((event for event in uses if event.op == "loss"), None)
    if took and isinstance(value, Activation) and value.layer == value.layers and not (here and "loss(" in here.text):
        last, why = value.layer - 1, f"only {named(took)} needs activation {value.layer}, what the last layer gave:"
        if here and re.search(r"\b(\w+), activations\[\1\]", here.text):  # its own input, one layer too many
            yield f"{why}\nthere is no layer {value.layer}. Backward goes from layer {last} down to layer 0"
        yield f"{why}\nbackward of layer {last} takes the input of that layer, activation {last}"
    yield from _once_more(program, there, fix, value)
    for event in uses:
        if event.op == "allgather" and not any(move[2] in event.outputs for move in program.moves):
            yield f"{titled(event)} took it, and what that brings is in no store: weights[layer] = await ..."
    made = maker(value)
    if made is None or made.op != "allgather" or not isinstance(value, Weight):
        return
    if here is not None and value.updates == 0 and re.search(r"set_final_weight|update\(|opt_states\[", here.text):
        verb = "hand in" if "set_final" in here.text else "update"
        yield f"a gathered weight is only borrowed, for forward and backward: {verb} the shard that this rank has"
    if here is not None and "allgather(" in here.text:  # it wants the shard, to gather it again
        yield because("shard_is_lost", made=titled(made), call=gather_call(program))
    again = f"{fix},\nor gather it again before backward"
    if (found := place_of(made)) is not None and re.match(r"\w+\[.*\] = await model\.allgather\(", found.text):
        yield f"{again}: {found.text}"
    yield line(program, "allgather", "gather_again", again=again, call=gather_call(program))


def _without_a_part(name: str, key: object, store: Any, value: Value | None) -> Told:
    """A value that was recomputed, and stored under a key with a part more or less."""
    parts = _parts(key)
    for under, other in store.items():
        theirs = _parts(under)
        if value is None or theirs[0] != parts[0] or len(theirs) == len(parts) or _words_in(theirs + parts):
            continue
        if (type(other), other.layer, other.place.batches) == (type(value), value.layer, value.place.batches):
            there = f"{describe(other)} is there as {name}[{shown(under)}]"
            yield f"{there}, and was here before as {name}[{shown(key)}]:\nuse one key for both"


def _once_more(program: Running, store: Any, fix: str, value: Value | None) -> Told:
    """An activation deleted in due course: its backward is over already, or forward can recompute it."""
    if not isinstance(value, Activation) or value.layer == program.world.models[program.rank].LAYERS:
        return
    batches = value.place.batches
    for event in program.events:
        if event.op in BY_INPUT & BY_WEIGHT and event.layer == value.layer and event.batches == batches:
            why = f"{event.op} of layer {value.layer} has run already for {these('batch', batches)}"
            yield f"{why}, and after that it was deleted:\ngo back once for each batch{_asker()}"
    if lower := [one.layer for one in store.values() if one.place.batches == batches and one.layer < value.layer]:
        yield f"{fix},\nor make it again before this line: forward from activation {max(lower)}, which is there"


def shared_key(program: Running, store: int, key: object, number: int) -> str | None:
    """Find a key under which values of several batches replaced each other."""
    batches = in_turn(program, store, number)
    if len(batches) < 2 or not all(batches) or sum(map(len, batches)) > len(frozenset[int]().union(*batches)):
        return None
    order = ", ".join(str(batch) for some in batches for batch in sorted(some))
    name = STORES[store]
    return f"{name}[{shown(key)}] held batches {order} one after the other:\nuse a key with two parts, {name}[layer, b]"
