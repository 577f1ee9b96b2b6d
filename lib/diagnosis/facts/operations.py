"""Facts of one operation and what it is given, and of keys that stores do not have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lib.diagnosis.facts.laws import tokens
from lib.errors.arguments import written
from lib.errors.exceptions import Words, fact
from lib.errors.wording import numbered, plural, ranges, runs, these, with_article
from lib.values.dims import DIMS, RunSet
from lib.values.placement import Part, listed
from lib.values.values import Activation, OptState, Value, Weight, WeightGrad, definite, describe, subject

if TYPE_CHECKING:
    from lib.values.kinds.grid import Stencil, Window

__all__ = ["Besides", "Broken", "Deleted", "EndlessBatches", "Incomplete", "Lacks", "Missing", "NoBatch", "NoDim"]
__all__ += ["NoLayer", "NoRows", "NoWindow", "NotALayer", "NotBatches", "NotStored", "NothingBeside", "NothingToGet"]
__all__ += ["OtherBatches", "OtherFeatures", "OtherParts", "OtherRows", "OtherStep", "Owes", "Stateless", "Uncovered"]
__all__ += ["Unread", "Unsummed", "Unweighted", "WrongKind", "WrongLayer"]

SHOWN = 40
"""Batches that a message lists."""
LOAD_ALIKE = (
    "load both with one call, and update a shard of the weight with the same shard of the state:\n"
    "weights[layer], opt_states[layer] = "
)


def _some(items: Iterable[Any]) -> str:
    """The first of some things, in order."""
    numbers_first = sorted(items, key=lambda item: (not isinstance(item, int), item if isinstance(item, int) else 0))
    named = [written(item) for item in numbers_first]
    return ", ".join(named[:SHOWN]) + (", ..." if len(named) > SHOWN else "")


def _missing(noun: str, found: Sequence[tuple[int, int]]) -> str:
    """List what is not there, as runs of numbers: "; shard 3 is missing", "; batches 0, 2-5 are missing"."""
    one = sum(after - first for first, after in found) == 1
    return f"; {noun if one else plural(noun, 2)} {listed(found)} {'is' if one else 'are'} missing" if found else ""


def _part(value: Weight) -> str:
    """Name the part of a weight that a value is: "shard 0 of 4"."""
    return "the whole weight" if value.is_complete() else ", ".join(value.place.words())


# -- of the wrong kind, layer or part -----------------------------------------------------------------------------


@fact
def WrongKind(role: str, wanted: type[Value], value: object, op: str) -> Words:
    """An operation was given something that is not of the kind that it needs in this role."""
    kind = with_article(wanted.kind)
    fix = "check the order of the arguments and the store that it comes from"
    return Words(f"the {role} is not {kind}", kind, describe(value), fix)


@fact
def NoLayer(layer: int, layers: int) -> Words:
    """The model has no layer of that number."""
    fix = "layers are counted from 0; the last one is model.LAYERS - 1"
    expected = f"a layer from 0 to {layers - 1}"
    return Words(f"there is no layer {written(layer)}", expected, f"layer {written(layer)}", fix)


@fact
def NotALayer(op: str, layer: object, layers: int) -> Words:
    """Something else stands where the layer belongs; or a rank, where a message goes (`layers` 0)."""
    return Words("the layer is not a whole number", f"a layer from 0 to {layers - 1}", describe(layer))


@fact
def WrongLayer(op: str, role: str, value: Value, layer: int) -> Words:
    """A value belongs to another layer than `layer`, the one that the operation needs in this role."""
    expected = definite(subject(value.kind, layer))
    what = f"the {role} belongs to another layer"
    return Words(what, expected, describe(value), _right_layer(op, role, value, layer))


def _right_layer(op: str, role: str, value: Value, layer: int) -> str:
    """Tell what an operation works on instead of a value of another layer."""
    if op == "loss":
        return f"run forward up to layer {layer - 1} first"
    if op == "update":
        return f"update({layer}, ...) takes everything of layer {layer}"
    if op == "set_final_weight":
        return f"hand it in as what it is: set_final_weight({value.layer}, ...)"
    if isinstance(value, Weight):
        return f"use the weight of layer {layer}, or run layer {value.layer}"
    if op == "forward" and role.startswith("activation"):
        return f"it takes two activations, the second is activation {layer}: look at the order of the two"
    if op == "forward":
        before = f"activation {layer}, which forward({layer - 1}, ...) gave" if layer else "the data"
        return f"layer {layer} works on {before}"
    if isinstance(value, Activation):
        return f"use activation {layer}, the one that went into forward({layer}, ...)"
    if op != "backward" and value.layer == layer - 1:
        return f"both halves take the gradient of activation {layer + 1}: keep it until the weight half is done, too"
    if layer == value.layers - 1:
        return f"{op}({layer}, ...) is the first one: it takes the gradient that loss gave"
    half = "" if op == "backward" else "_input"
    return f"take the gradient of activation {layer + 1}, which backward{half}({layer + 1}, ...) gave"


@fact
def Incomplete(weight: Weight) -> Words:
    """A shard where the whole weight is needed."""
    taps, part = weight.place.part("taps"), weight.place.first
    if taps is not None and not taps.whole:
        what = f"the weight of layer {weight.layer} lacks a part of its kernel"
        fix = "a kernel is used whole: cut a weight along in or out, and not along its taps"
        return Words(what, f"all {taps.dim.size} taps", describe(weight), fix)
    missing = _missing("shard", part.dim.whole.minus(part).shards(weight.total) or ())
    got = f"{these('shard', weight.shards)} of {weight.total}{missing}"
    fix = "put its shards together first, with an all-gather"
    return Words(f"the weight of layer {weight.layer} is not complete", f"all {weight.total} shards", got, fix)


@fact
def NoDim(dim: object) -> Words:
    """A weight is cut along its rows or its columns, and along nothing else."""
    expected = 'dim="in" for rows, or dim="out" for columns'
    fix = 'write dim="out" for a column shard; without dim it is a row shard'
    return Words("a weight is cut along its rows or along its columns", expected, f"dim={written(dim)}", fix)


@fact
def Owes(role: str, value: Value) -> Words:
    """A partial sum, where an operation needs the sum."""
    lacks = next(part for part in value.place.sums if not part.whole)
    whole = f"{definite(subject(value.kind, value.layer))} with all parts of the sum in it"
    if owed := DIMS[lacks.dim.name].owed:
        got = describe(value)
        if lacks.dim.route is not None:
            rest = frozenset(range(lacks.dim.size)) - frozenset(lacks.pieces)
            got += f"; without {tokens(value.place, lacks.dim.name, rest) or 'any token'}"
        return Words(f"the {role} is only a part of a sum", whole, got, owed)
    terms = f"part {ranges(lacks.pieces)} of {lacks.grid} of a sum: "
    return Words(
        f"the {role} owes an all-reduce: it is only a part of a sum",
        whole,
        f"{describe(value).rsplit(', ', 1)[0]}, {terms}the ranks with the other shards of the weight have the rest",
        "sum it over the ranks that share the weight first: await model.allreduce(value, layer, group=...);\n"
        "or scatterreduce, where each of them goes on with some of the batches",
    )


@fact
def OtherFeatures(role: str, value: Value, weight: Weight, of: str) -> Words:
    """A value has other features than the part of the weight that it is for (`of`: in or out)."""
    part, side = weight.place.part(of), "takes" if of == "in" else "gives"
    whole = part is None or part.whole
    needs = "all features" if part is None or part.whole else f"features {ranges(part.pieces)} of {part.grid}"
    fix = "gather the features first: await model.allgather(value, layer, group=...)"
    if of == "in" and value.place.part("keys") is not None:
        fix = "attention gave some heads of all rows: swap them for all heads of some rows, by an all-to-all"
    elif of == "in":
        fix += ";\nor use a row shard of the weight, which takes just these: "
        fix += 'load_weights(layer, shard, total, dim="in")'
    elif not whole:
        fix = (
            "backward takes the gradient of what this shard gave in forward: do not gather or sum more than forward did"
        )
    what = f"the {role} does not have the features that the weight {side}"
    got = describe(value) + (", which has all features" if value.place.dims[-1].whole else "")
    return Words(what, f"{needs}, which the {describe(weight)} {side}", got, fix)


# -- batches ------------------------------------------------------------------------------------------------------


@fact
def NotBatches(batches: object) -> Words:
    """Batches are named by something that is not a collection of numbers."""
    what = "batches are given as a list or a set of numbers"
    return Words(
        what, "for instance [0] or range(model.BATCHES)", describe(batches), "for a single batch write [batch]"
    )


@fact
def NoBatch(wrong: frozenset[Any], named: frozenset[Any], batches: int, padding: int) -> Words:
    """Some of the batches that are named are not there, nor among the `padding` after them."""
    expected = f"batches from 0 to {batches - 1}"
    fix = "batches are counted from 0; the last one is model.BATCHES - 1"
    if padding:
        expected += f", and {batches} to {batches + padding - 1} for padding"
        fix += ", and model.PADDING more are padding"
    return Words(f"there is no batch {_some(wrong)}", expected, f"{plural('batch', len(named))} {_some(named)}", fix)


@fact
def EndlessBatches(batches: int, most: int) -> Words:
    """More than `most` batches are named, which does not end."""
    expected, got = f"each of the {batches} batches once", f"more than {most} items"
    fix = "give a list, a set or a range: range(model.BATCHES) are all batches"
    return Words("the batches do not come to an end", expected, got, fix)


@fact
def NothingToGet() -> Words:
    """The input data of no batch at all is asked for."""
    return Words("there are no batches to get", "at least one batch", "none", "name a batch")


@fact
def Unread(op: str) -> Words:
    """Input data is taken for nothing (`op`) where reading it costs something."""
    what = f"{op} takes data that nobody has read, and here reading costs something"
    fix = "ask the reader, and wait for it: await model.read(batches)"
    got = f"model.{op}(...), with costs.read above 0"
    return Words(what, "examples from the reader of this rank's process", got, fix)


@fact
def OtherBatches(op: str, inp: Value, grad: Value) -> Words:
    """The input and the gradient that backward, or half of it (`op`), got are of different batches; or two activations
    that forward got (the second one is `grad`)."""
    what = "gradient"
    if isinstance(grad, Activation):
        what = "activation beside it"
        fix = "take both of the same batches, from under a key that says which these are"
    elif "experts" in inp.place.named:
        fix = "the gradient of a result goes to the rank whose expert made it, as the result came from there:\n"
        fix += "cut it along its experts, and exchange the parts: await model.alltoall(parts, layer)"
    elif "experts" in grad.place.named:
        fix = "the gradient of a token goes home, as the token came from there: cut it along what each rank has,\n"
        fix += "its batches or its rows, and exchange the parts: await model.alltoall(parts, layer)"
    else:
        fix = "take the input of the same batch; messages arrive in the order in which they were passed,\n"
        fix += "so both ranks have to go through the batches in the same order"
    expected = f"the {what} of {these('batch', inp.place.batches)}, as the input"
    got = f"the {what} of {these('batch', grad.place.batches)}"
    return Words(f"the input and the {what} given to {op} are of different batches", expected, got, fix)


# -- rows and other dims ------------------------------------------------------------------------------------------


@fact
def OtherParts(op: str, role: str, one: Value, other: Value) -> Words:
    """Two values that an operation takes are of different parts of a dim (`role`)."""
    plural = DIMS[role].plural
    mine, its = (value.place.part(role) for value in (one, other))
    fix = f"gather the {plural} of the one, or cut those of the other"
    apart = mine is not None and its is not None and not mine.meets(its)
    if apart and role == "experts":
        fix = "a rank works on the tokens of the experts that it has loaded, and each loads experts of its own:\n"
        fix += "model.load_weights(layer, place, ranks), by its place among the ranks that exchange tokens"
    elif role == "experts":
        fix = "tokens go where their experts are: cut what dispatch gave along its experts, a part for each rank,\n"
        fix += "and exchange the parts: await model.alltoall(parts, layer)"
    elif mine is not None and its is not None and not (mine.covers(its) or its.covers(mine)):
        differ = f"they have no {plural} in common" if apart else f"each has {plural} that the other has not"
        fix = f"{differ}: what is of the same {plural} has to come to the same rank"
    got = f"{describe(one)}; {describe(other)}"
    return Words(f"{op} got values of different {plural}", f"the same {plural} in both", got, fix)


@fact
def NoRows(op: str, inp: Value, stencil: Stencil, role: str) -> Words:
    """A layer needs several rows for one of its output, and has too few that lie together (`stencil`, of a dim)."""
    kind = DIMS[role]
    row = min(stencil.users(inp.place.named[role].pieces), default=0)
    needs = f"all that a {kind.noun} of the output needs, as {kind.noun} {row} needs {_span(stencil, role, row)}"
    fix = f"put the {kind.plural} of the neighbours that it lacks, the halo, together with its own first: "
    fix += "x = x.combine(halo)"
    return Words(f"{op} has too few {kind.plural} for one of the output", needs, describe(inp), fix)


@fact
def OtherRows(op: str, inp: Value, grad: Value, stencil: Stencil, role: str) -> Words:
    """A gradient is of rows that the input does not give (`stencil`, of a dim)."""
    kind = DIMS[role]
    mine, its = stencil.given(inp.place.named[role].pieces), grad.place.named[role].pieces
    row = next(row for row in its if row not in mine)
    given = numbered(kind.noun, mine) if mine else f"no {kind.plural}"
    return Words(
        f"the input and the gradient given to {op} are of different {kind.plural}",
        expected=f"the gradient of {given}, which are those that this input gives, or of some of them",
        got=f"the gradient of {numbered(kind.noun, its)}",
        fix=f"{kind.noun} {row} of the output needs {_span(stencil, role, row)} of the input: give backward what "
        "forward\nwas given, with its halo",
    )


def _span(stencil: Stencil, role: str, row: int) -> str:
    """The rows of the input that a row of the output needs."""
    inside = range(stencil.rows)
    return numbered(DIMS[role].noun, [one for one in stencil.needs(row) if one in inside])


@fact
def NoWindow(op: str, inp: Value, keys: Value, window: Window, role: str) -> Words:
    """Some queries attend to keys that are not here (`window`, of a dim)."""
    noun = DIMS[role].noun
    mine, here = (RunSet.of(value.place.named[role].pieces) for value in (inp, keys))
    given = window.given(here)
    row = next(row for row in mine if row not in given)
    needs = window.needs(row)
    lacks = RunSet.of(one for one in needs if one not in here)
    fix = "put the keys and values of the neighbours, the halo, together with its own first: kv = kv.combine(halo)"
    if needs[len(needs) // 2] != row:
        fix = (
            "at an edge of the grid a window does not shrink but stays inside, so it reaches further than others:\n"
            "where the first or the last rank has few rows, further than what a neighbour lends. If no halo has come "
            "at all,\nput it together with its own first: kv = kv.combine(halo)"
        )
    elif mine & given:
        fix += f".\nThe keys that are here are enough for queries of {numbered(noun, mine & given)}"
    expected = f"the whole window of each query, as {noun} {row} attends to {numbered(noun, needs)}"
    got = f"{describe(inp)}; {describe(keys)}"
    return Words(f"{op} lacks keys and values of {numbered(noun, lacks)}", expected, got, fix)


@fact
def Broken(op: str, role: str, value: Value, number: int, noun: str) -> Words:
    """An operation mixes what belongs together along a dim (`number` pieces of it), and got a part of a piece."""
    things, got = DIMS[role].plural, describe(value)
    if number == 1:
        fix = f"gather the {things} first; or exchange parts: some {things} of everything for all {things} of some, "
        fix += "by an all-to-all"
        what = f"{op} got some of the {things}, and this layer mixes all of them"
        return Words(what, f"all {value.place.named[role].dim.size} {things}", got, fix)
    what = f"{op} got a part of a {noun}, and this layer mixes all {things} of a {noun}"
    fix = f"cut along the {noun}s: into as many parts as divide their number"
    return Words(what, f"the {things} of some of {number} {noun}s, each whole", got, fix)


# -- what a layer takes besides its input --------------------------------------------------------------------------


@fact
def Besides(op: str, layer: int, kind: str, takes: str, of: tuple[int, ...], other: object) -> Words:
    """A layer that takes a weight, or one of the activations `of`, besides its input got nothing, or something else."""
    wanted = "a weight" if takes == "weight" else f"activation {of[1]}"
    expected = f"{wanted} besides its input: layer {layer} is of the kind {kind}"
    call = call_besides(op, layer, takes, of)
    if isinstance(other, Value):
        what = f"{op} of layer {layer} got {with_article(other.kind)} where it needs {wanted}"
        return Words(what, expected, describe(other), f"write {call}")
    what = f"{op} of layer {layer} got nothing where it needs {wanted}"
    return Words(what, expected, "nothing", f"give it one more argument: {call}")


def call_besides(op: str, layer: int, takes: str, of: tuple[int, ...], given: Sequence[str] = ()) -> str:
    """The call of a layer as it should be: with what it was given, and what it takes besides."""
    stored = [str(layer), f"activations[{of[0]}]", f"grad_activations[{layer + 1}]"]
    lacks = f"weights[{layer}]" if takes == "weight" else f"activations[{of[1]}]"
    return f"model.{op}({', '.join([*(given or stored[: 2 if op == 'forward' else 3]), lacks])})"


@fact
def NothingBeside(op: str, kind: str, other: object) -> Words:
    """Something is given beside the input to a layer of a kind that takes nothing besides."""
    what = f"{op} of a layer of the kind {kind} takes neither a weight nor another activation"
    return Words(what, got=describe(other), fix=f"leave it out: model.{op}(layer, ...)")


@fact
def Unweighted(op: str, layer: int, kind: str) -> Words:
    """A layer of a kind without a weight is asked for one."""
    fix = f"leave out {op} for this layer"
    if "backward" in op:
        fix = f"write model.backward({layer}, ...), which gives each gradient of this layer"
    what = f"layer {layer} is of the kind {kind}, which has no weight"
    return Words(what, f"{op} of a layer with a weight", fix=fix)


# -- update -------------------------------------------------------------------------------------------------------


@fact
def Unsummed(grad: WeightGrad, batches: int) -> Words:
    """A gradient lacks batches in an update."""
    there, every = grad.batches, range(batches)
    what = f"the gradient of layer {grad.layer} does not have all batches yet"
    got = (these("batch", there) if there else "no batches") + _missing("batch", runs(set(every) - there))
    fix = "sum the gradients of all batches first: `+` on one rank, allreduce or scatterreduce over ranks"
    return Words(what, f"all {batches} batches: {ranges(every)}", got, fix)


@fact
def Lacks(grad: WeightGrad, part: Part) -> Words:
    """A gradient has all batches in an update, but only `part` of something else that it is a sum over."""
    size, kind = part.dim.size, DIMS[part.dim.name]
    fix = kind.owed
    if grad.place.first.dim.counted:
        fix = f"the tokens of all {kind.plural} come to this rank's {grad.place.noun}s: add up the gradients\nthat "
        fix += "its backwards give, grad_weights[layer] + gradient, and update when all are there"
    what = f"the gradient of layer {grad.layer} is not summed over all {kind.plural} yet"
    return Words(what, f"the sum over all {size} {kind.plural} of all batches", describe(grad), fix)


@fact
def Uncovered(grad: WeightGrad, weight: Weight) -> Words:
    """The gradient is not that of all of the weight that is to be updated."""
    expected = f"a gradient of {_part(weight)}, or of the whole weight"
    fix = "a rank updates the shard whose gradient it has: cut both in the same way"
    if weight.is_complete():
        expected = "a gradient of the whole weight"
        fix = "after scatterreduce a rank has the gradient of one shard: update the shard of the weight that it "
        fix += "loaded,\nnot the gathered weight; or use allreduce, and every rank updates the whole weight"
    return Words("the gradient does not cover the weight", expected, describe(grad), fix)


@fact
def Stateless(state: OptState, weight: Weight) -> Words:
    """The optimizer state is not that of all of the weight that is to be updated."""
    fix = LOAD_ALIKE + "model.load_weights(layer, model.rank, model.RANKS)"
    if weight.is_complete():
        fix = "update the shard of the weight that this rank loaded with its optimizer state, not the gathered\n"
        fix += "weight: model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])"
    expected = f"the optimizer state of {_part(weight)}"
    return Words("the optimizer state does not cover the weight", expected, describe(state), fix)


@fact
def OtherStep(weight: Weight, state: OptState) -> Words:
    """The weight and the optimizer state have had different numbers of updates."""
    got = f"the optimizer state is at step {state.step}"
    fix = "keep both results of update, and update each layer once"
    what = "the weight and the optimizer state are not at the same step"
    return Words(what, f"step {weight.step} for both", got, fix)


# -- stores -------------------------------------------------------------------------------------------------------


@fact
def Deleted(store: int, key: object, number: int, fix: str) -> Words:
    """A value is asked for that was in a store under a key, and was deleted. `fix`: what to do about that alone."""
    raise NotImplementedError("Deleted is told by the error that has it")


@fact
def Missing(store: int, key: object) -> Words:
    """A value is asked for that never was in a store under this key."""
    raise NotImplementedError("Missing is told by the error that has it")


@fact
def NotStored(name: str, kind: type[Value], thing: object) -> Words:
    """Something that is no value was put into a store of values of a kind, as `name`: with its key."""
    return Words(f"{name} was given something that is not a value", with_article(kind.kind), describe(thing))
