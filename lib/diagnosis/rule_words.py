"""The words for what rules and laws refuse: a function for each fact gives the message that a student reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Any

from lib.errors.arguments import written
from lib.errors.facts import Fact, Words
from lib.errors.wording import amount, counted, plural, ranges, runs, these, with_article
from lib.values import facts
from lib.values.collectives import COLLECTIVES
from lib.values.dims import DIMS, NAMES, REST
from lib.values.placement import MOST, listed
from lib.values.rules import Member
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
    fields_of,
    subject,
)

__all__ = ["CUT_ALIKE", "LOAD_ALIKE", "words"]

SHOWN = 40
"""Batches that a message lists."""
FROM_AN_OPERATION = "take it from an operation: load_weights, forward, backward, update or a collective"
CUT_ALIKE = "cut a weight into as many shards as ranks share it, and give each rank its own:\n"


@singledispatch
def words(fact: Fact) -> Words:
    """What to say of a fact."""
    raise TypeError(f"nobody has words for {fact!r}")


# -- the laws -----------------------------------------------------------------------------------------------------


@words.register
def _(fact: facts.OtherKind) -> Words:
    return Words(
        f"cannot {fact.verb} two different kinds of value",
        expected=f"another {fact.first.kind}",
        got=describe(fact.other),
        fix="look at the stores that they come from: both values have to be of the same kind",
    )


DIFFERENT = {
    "layer": "of different layers",
    "batches": "of different batches",
    "shards": "of different shards",
    "total": "that are cut into different numbers of shards",
    "step": "of different steps",
} | {role: "that are not parts of one sum" if DIMS[role].partial else f"of different {REST[role]}" for role in REST}
SAME = {
    "layer": "of the same layer",
    "batches": "of the same batches",
    "shards": "of the same shards",
    "total": "that are cut into the same number of shards",
    "step": "of the same step",
} | {
    role: "that are parts of one sum, or sums that are done" if DIMS[role].partial else f"of the same {REST[role]}"
    for role in REST
}
ALIKE = {
    "layer": "use values of one layer: a layer has its own weight, gradient and optimizer state",
    "batches": "gradients of different batches are summed: with `+`, scatterreduce or allreduce",
    "shards": "sum the same shard of each gradient: reduce-scatter them, or cut them in the same way",
    "total": "give load_weights or shard the same total everywhere: how many ranks share the weight",
    "step": "gather all shards before the update, or all of them after it",
} | {role: DIMS[role].alike or f"cut both along their {REST[role]} in the same way" for role in REST}


SHARD_AND_WHOLE = "one is a shard of a sum, the other is whole: reduce-scatter that one too, and then add the shards"


@words.register
def _(fact: facts.Different) -> Words:
    return Words(
        f"cannot {fact.verb} {fact.first.kind}s {DIFFERENT[fact.field]}",
        expected=f"values {SAME[fact.field]}",
        got=f"{describe(fact.first)}; {describe(fact.other)}",
        fix=_alike(fact),
    )


def _alike(fact: facts.Different) -> str:
    """How to get values that are alike."""
    activations = isinstance(fact.first, Activation | ActivationGrad)
    if fact.verb == "sum" and fact.field == "batches" and activations:
        return (
            "parts of one sum are of the same batches: the ranks that share a layer take the same batches,\n"
            'and sum over their own group alone, such as group="model"'
        )
    if fact.verb == "sum" and fact.field == "out":
        return (
            "each rank has the gradient of its own columns, so there is nothing to add: sum over the ranks that have\n"
            'the same columns and other batches, such as group="data"'
        )
    if fact.verb == "sum" and fact.field == "total" and fact.first.is_complete() != fact.other.is_complete():
        return SHARD_AND_WHOLE
    return ALIKE[fact.field]


@words.register
def _(fact: facts.Twice) -> Words:
    verb, field, both = fact.verb, fact.field, fact.both
    noun = next((kind.noun for kind in DIMS.values() if field in (kind.field, kind.role)), "shard")
    if field in REST:
        grid = both[0].place.part(field)
        of = "" if grid is None else f" of {grid.grid}"
        what = f"cannot {verb} these values: {REST[field]} {ranges(fact.items)}{of} would be counted twice"
        fix = DIMS[field].once or f"each value must have {REST[field]} that no other value has"
    elif field == "shards" and all(value.is_complete() for value in both):
        what = "there is nothing to gather: both are complete"
        fix = "leave it out, or load a shard on each rank: model.load_weights(layer, model.rank, model.RANKS)"
        if isinstance(both[0], WeightGrad):
            fix = "gradients are not gathered but summed: use scatterreduce or allreduce"
    else:
        what = f"cannot {verb} these values: {these(noun, fact.items)} would be counted twice"
        fix = f"each value must hold {field} that no other value holds"
        if verb == "sum":
            name = these("batch", fact.items)
            fix = (
                f"add the gradient of each batch once: {name} {'is' if len(fact.items) == 1 else 'are'} in both already"
            )
    whom = "the summands" if verb == "sum" else "them"
    return Words(
        what,
        expected=f"each {noun} in one of {whom} only",
        got="; ".join(map(describe, both)),
        fix=fix,
    )


@words.register
def _(fact: facts.NoSum) -> Words:
    thing = fact.thing
    return Words(
        f"{with_article(thing.kind) if isinstance(thing, Value) else repr(thing)} cannot be summed",
        expected="a part of a sum: a weight gradient, or what a layer cut into rows gives"
        if isinstance(thing, Activation) and not thing.is_complete()
        else "a weight gradient: nothing else is summed over batches",
        got=describe(thing),
        fix=_instead_of_a_sum(thing),
    )


def _instead_of_a_sum(value: object) -> str:
    if isinstance(value, Weight | OptState):
        return "sum the gradients before the update: then the weights are the same on all ranks\n" + (
            "to put the shards of a weight together, use an all-gather"
        )
    if isinstance(value, ActivationGrad):
        return "the gradient of an activation stays with its batch; sum the gradient of the weight: grad_weights[layer]"
    if isinstance(value, Activation):
        return "keep each batch of activations under its own key; what is summed is the gradient of a weight:\n" + (
            "grad_weights[layer]"
        )
    return "take the weight gradient itself: grad_weights[layer]"


@words.register
def _(fact: facts.Undivided) -> Words:
    what, size, total = fact.what, fact.size, fact.total
    few = [number for number in range(2, size + 1) if size % number == 0]
    return Words(
        f"{counted(size, what[:-1] if what != 'batches' else 'batch')} cannot be cut into {written(total)} equal parts",
        expected=f"a number that divides {size}" + (f", such as {few[0]}" if few else ""),
        got=f"{written(total)} parts" + ("" if fact.value is None else f" of the {describe(fact.value)}"),
        fix="take slices of equally many examples each"
        if what == "batches"
        else "cut it into as many parts as there are ranks that share it, and give each of them as much as the others",
    )


@words.register
def _(fact: facts.NoShard) -> Words:
    shard, total = fact.shard, fact.total
    number = "a shard" if fact.loads else "a shard number"
    none = type(total) is not int or total < 1
    fix = "shards are counted from 0; a rank's own shard is usually its place in the group"
    if total == 0 and not fact.loads:
        fix = "first which shard, and then of how many: value.shard(model.rank, model.RANKS)"
    return Words(
        f"there is no shard {written(shard)} of {written(total)}",
        expected="total >= 1" if none else f"{number} from 0 to {written(total - 1)}",
        got=f"shard {describe(shard).removeprefix('the number ')}" if fact.loads else None,
        fix=f"{CUT_ALIKE}model.load_weights(layer, model.rank, model.RANKS)" if fact.loads else fix,
    )


@words.register
def _(fact: facts.TooManyShards) -> Words:
    return Words(
        f"{written(fact.total)} shards are too many",
        expected=f"a weight cut into at most {MOST} shards: a Trace file holds no more",
        got=f"shard {written(fact.shard)} of {written(fact.total)}",
        fix="cut a weight into as many shards as ranks share it",
    )


@words.register
def _(fact: facts.Gaps) -> Words:
    return Words(
        "only shards that lie side by side can be cut",
        expected=f"all {fact.value.place.total} shards of layer {fact.value.layer}, or some without a gap",
        got=describe(fact.value),
        fix="cut each of them by itself, or gather what is missing first",
    )


@words.register
def _(fact: facts.NoKind) -> Words:
    name = type(fact.value).__name__
    return Words(
        f"{name} is not a kind of value",
        expected=f"one of {', '.join(KINDS)}",
        got=f"a value of the class {name}",
        fix=FROM_AN_OPERATION,
    )


@words.register
def _(fact: facts.NoValue) -> Words:
    value, field = fact.value, fact.field
    wrong = f"its {field} is a number from {fact.low} to {fact.most}"
    if fact.most is None:
        wrong = f"its {field} are numbers from {fact.low} up"
    elif fact.low is None:
        wrong = f"its {field} are some of {written(fact.most)}"
    fields = ", ".join(written(item)[:40] for item in fields_of(value) if not isinstance(item, frozenset))
    return Words(
        f"there is no such {value.kind}",
        expected=wrong,
        got=f"{type(value).__name__}({fields}, ...), made by hand",
        fix=FROM_AN_OPERATION,
    )


# -- one operation ------------------------------------------------------------------------------------------------


@words.register
def _(fact: facts.WrongKind) -> Words:
    wanted = with_article(fact.wanted.kind)
    return Words(
        f"the {fact.role} is not {wanted}",
        expected=wanted,
        got=describe(fact.value),
        fix="check the order of the arguments and the store that it comes from",
    )


@words.register
def _(fact: facts.NoLayer) -> Words:
    return Words(
        f"there is no layer {written(fact.layer)}",
        expected=f"a layer from 0 to {fact.layers - 1}",
        got=f"layer {written(fact.layer)}",
        fix="layers are counted from 0; the last one is model.LAYERS - 1",
    )


@words.register
def _(fact: facts.NotALayer) -> Words:
    expected = f"a layer from 0 to {fact.layers - 1}"
    return Words("the layer is not a whole number", expected=expected, got=describe(fact.layer))


@words.register
def _(fact: facts.WrongLayer) -> Words:
    return Words(
        f"the {fact.role} belongs to another layer",
        expected=definite(subject(fact.value.kind, fact.layer)),
        got=describe(fact.value),
        fix=_right_layer(fact),
    )


def _right_layer(fact: facts.WrongLayer) -> str:
    """What the operation works on instead."""
    op, layer, value = fact.op, fact.layer, fact.value
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
        return f"layer {layer} works on {before}"
    if isinstance(value, Activation):
        return f"use activation {layer}, the one that went into forward({layer}, ...)"
    if op != "backward" and value.layer == layer - 1:
        return f"both halves take the gradient of activation {layer + 1}: keep it until the weight half is done, too"
    half = "" if op == "backward" else "_input"
    if layer == value.layers - 1:
        return f"{op}({layer}, ...) is the first one: it takes the gradient that loss gave"
    return f"take the gradient of activation {layer + 1}, which backward{half}({layer + 1}, ...) gave"


def _missing(noun: str, found: Sequence[tuple[int, int]]) -> str:
    """What is not there, as runs of numbers: "; shard 3 is missing", "; batches 0, 2-5 are missing"."""
    one = sum(after - first for first, after in found) == 1
    return f"; {noun if one else plural(noun, 2)} {listed(found)} {'is' if one else 'are'} missing" if found else ""


@words.register
def _(fact: facts.Incomplete) -> Words:
    weight = fact.weight
    part = weight.place.first
    missing = part.dim.whole.minus(part).shards(weight.total) or ()
    return Words(
        f"the weight of layer {weight.layer} is not complete",
        expected=f"all {weight.total} shards",
        got=f"{these('shard', weight.shards)} of {weight.total}{_missing('shard', missing)}",
        fix="put its shards together first, with an all-gather",
    )


@words.register
def _(fact: facts.NoDim) -> Words:
    return Words(
        "a weight is cut along its rows or along its columns",
        expected='dim="in" for rows, or dim="out" for columns',
        got=f"dim={written(fact.dim)}",
        fix='write dim="out" for a column shard; without dim it is a row shard',
    )


@words.register
def _(fact: facts.Owes) -> Words:
    value = fact.value
    owed = next(DIMS[part.dim.name].owed for part in value.place.sums if not part.whole)
    if owed:
        return Words(
            f"the {fact.role} is only a part of a sum",
            expected=f"{definite(subject(value.kind, value.layer))} with all parts of the sum in it",
            got=describe(value),
            fix=owed,
        )
    parts = value.place.part("terms")
    of = "" if parts is None else f"part {ranges(parts.pieces)} of {parts.grid} of a sum: the ranks with the other "
    of += "shards of the weight have the rest" if of else ""
    return Words(
        f"the {fact.role} owes an all-reduce: it is only a part of a sum",
        expected=f"{definite(subject(value.kind, value.layer))} with all parts of the sum in it",
        got=f"{describe(value)}" if not of else f"{describe(value).rsplit(', ', 1)[0]}, {of}",
        fix="sum it over the ranks that share the weight first: await model.allreduce(value, layer, group=...);\n"
        "or scatterreduce, where each of them goes on with some of the batches",
    )


@words.register
def _(fact: facts.OtherFeatures) -> Words:
    value, weight, rows = fact.value, fact.weight, fact.of == "in"
    part = weight.place.part(fact.of)
    needs = "all features" if part is None or part.whole else f"features {ranges(part.pieces)} of {part.grid}"
    whole = needs == "all features"
    side = "takes" if rows else "gives"
    fix = "gather the features first: await model.allgather(value, layer, group=...)"
    if rows:
        fix += (
            ';\nor use a row shard of the weight, which takes just these: load_weights(layer, shard, total, dim="in")'
        )
    if not rows and not whole:
        fix = (
            "backward takes the gradient of what this shard gave in forward: do not gather or sum more than forward did"
        )
    return Words(
        f"the {fact.role} does not have the features that the weight {side}",
        expected=f"{needs}, which the {describe(weight)} {side}",
        got=describe(value) + (", which has all features" if value.place.dims[-1].whole else ""),
        fix=fix,
    )


@words.register
def _(fact: facts.NotBatches) -> Words:
    return Words(
        "batches are given as a list or a set of numbers",
        expected="for instance [0] or range(model.BATCHES)",
        got=describe(fact.batches),
        fix="for a single batch write [batch]",
    )


@words.register
def _(fact: facts.NoBatch) -> Words:
    return Words(
        f"there is no batch {_some(fact.wrong)}",
        expected=f"batches from 0 to {fact.batches - 1}"
        + (f", and {fact.batches} to {fact.batches + fact.padding - 1} for padding" if fact.padding else ""),
        got=f"{plural('batch', len(fact.named))} {_some(fact.named)}",
        fix="batches are counted from 0; the last one is model.BATCHES - 1"
        + (", and model.PADDING more are padding" if fact.padding else ""),
    )


def _some(items: Iterable[Any]) -> str:
    """The first of some things, in order."""
    numbers_first = sorted(items, key=lambda item: (not isinstance(item, int), item if isinstance(item, int) else 0))
    named = [written(item) for item in numbers_first]
    return ", ".join(named[:SHOWN]) + (", ..." if len(named) > SHOWN else "")


@words.register
def _(fact: facts.EndlessBatches) -> Words:
    return Words(
        "the batches do not come to an end",
        expected=f"each of the {fact.batches} batches once",
        got=f"more than {fact.most} items",
        fix="give a list, a set or a range: range(model.BATCHES) are all batches",
    )


@words.register
def _(_: facts.NothingToGet) -> Words:
    return Words("there are no batches to get", expected="at least one batch", got="none", fix="name a batch")


@words.register
def _(fact: facts.Unread) -> Words:
    return Words(
        f"{fact.op} takes data that nobody has read, and here reading costs something",
        expected="examples from the reader of this rank's process",
        got=f"model.{fact.op}(...), with costs.read above 0",
        fix="ask the reader, and wait for it: await model.read(batches)",
    )


@words.register
def _(fact: facts.OtherBatches) -> Words:
    return Words(
        f"the input and the gradient given to {fact.op} are of different batches",
        expected=f"the gradient of {these('batch', fact.inp.place.batches)}, as the input",
        got=f"the gradient of {these('batch', fact.grad.place.batches)}",
        fix="take the input of the same batch; messages arrive in the order in which they were passed,\n"
        "so both ranks have to go through the batches in the same order",
    )


@words.register
def _(fact: facts.OtherParts) -> Words:
    plural = DIMS[fact.role].plural
    return Words(
        f"{fact.op} got values of different {plural}",
        expected=f"the same {plural} in both",
        got=f"{describe(fact.one)}; {describe(fact.other)}",
        fix=f"gather the {plural} of the one, or cut those of the other",
    )


@words.register
def _(fact: facts.Broken) -> Words:
    return Words(
        f"{fact.op} got a part of a head, and attention mixes all {DIMS[fact.role].plural} of a head",
        expected=f"the {DIMS[fact.role].plural} of some of {fact.number} heads, each whole",
        got=describe(fact.value),
        fix="cut along the heads: into as many parts as divide their number",
    )


@words.register
def _(fact: facts.NotCut) -> Words:
    named = fact.value.place.named
    dim = written(fact.role)
    if fact.wanted is None or fact.role not in named:
        return Words(
            f"{describe(fact.value)} cannot be cut along {dim}",
            expected=f"a dim that it has: {', '.join(named)}",
            got=f"dim={dim}",
            fix="look at what the value is: print(value)",
        )
    low, high = map(written, fact.wanted)
    return Words(
        f"there are no elements {low} to {high} of {dim} here to be cut out",
        expected="a range of what the value has; of features and of weights there are shards, and no ranges",
        got=describe(fact.value),
        fix="look at what the value has: print(value)",
    )


@words.register
def _(fact: facts.NothingBeside) -> Words:
    return Words(
        f"{fact.op} of a layer of the kind {fact.kind} takes neither a weight nor another activation",
        got=describe(fact.other),
        fix=f"leave it out: model.{fact.op}(layer, ...)",
    )


@words.register
def _(fact: facts.Unweighted) -> Words:
    return Words(
        f"layer {fact.layer} is of the kind {fact.kind}, which has no weight",
        expected=f"{fact.op} of a layer with a weight",
        fix=f"leave out {fact.op} for this layer",
    )


@words.register
def _(fact: facts.Lacks) -> Words:
    kind = DIMS[fact.part.dim.name]
    return Words(
        f"the gradient of layer {fact.grad.layer} is not summed over all {kind.plural} yet",
        expected=f"the sum over all {fact.part.dim.size} {kind.plural} of all batches",
        got=describe(fact.grad),
        fix=kind.owed,
    )


@words.register
def _(fact: facts.Unsummed) -> Words:
    batches = range(fact.batches)
    there, missing = fact.grad.batches, runs(set(batches) - fact.grad.batches)
    return Words(
        f"the gradient of layer {fact.grad.layer} does not have all batches yet",
        expected=f"all {fact.batches} batches: {ranges(batches)}",
        got=(these("batch", there) if there else "no batches") + _missing("batch", missing),
        fix="sum the gradients of all batches first: `+` on one rank, allreduce or scatterreduce over ranks",
    )


def _part(value: Weight) -> str:
    """Which part of a weight a value is: "shard 0 of 4"."""
    return "the whole weight" if value.is_complete() else ", ".join(value.place.words())


@words.register
def _(fact: facts.Uncovered) -> Words:
    fix = "a rank updates the shard whose gradient it has: cut both in the same way"
    if fact.weight.is_complete():
        fix = (
            "after scatterreduce a rank has the gradient of one shard: update the shard of the weight that it loaded,\n"
            "not the gathered weight; or use allreduce, and every rank updates the whole weight"
        )
    return Words(
        "the gradient does not cover the weight",
        expected=f"a gradient of {_part(fact.weight)}"
        + ("" if fact.weight.is_complete() else ", or of the whole weight"),
        got=describe(fact.grad),
        fix=fix,
    )


LOAD_ALIKE = (
    "load both with one call, and update a shard of the weight with the same shard of the state:\n"
    "weights[layer], opt_states[layer] = "
)


@words.register
def _(fact: facts.Stateless) -> Words:
    fix = LOAD_ALIKE + "model.load_weights(layer, model.rank, model.RANKS)"
    if fact.weight.is_complete():
        fix = (
            "update the shard of the weight that this rank loaded with its optimizer state, not the gathered\n"
            "weight: "
            "model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])"
        )
    return Words(
        "the optimizer state does not cover the weight",
        expected=f"the optimizer state of {_part(fact.weight)}",
        got=describe(fact.state),
        fix=fix,
    )


@words.register
def _(fact: facts.OtherStep) -> Words:
    return Words(
        "the weight and the optimizer state are not at the same step",
        expected=f"step {fact.weight.step} for both",
        got=f"the optimizer state is at step {fact.state.step}",
        fix="keep both results of update, and update each layer once",
    )


# -- collectives --------------------------------------------------------------------------------------------------


@words.register
def _(fact: facts.NotOneForEach) -> Words:
    return Words(
        f"an {fact.row.title} takes one value for each of the {fact.members} members",
        expected=f"a list of {fact.members} values, in the order of the group",
        got=f"{fact.count} values" if fact.count else describe(fact.value),
        fix="value number i goes to member number i",
    )


SAME_BUCKETS = "every rank fills its buckets with the same layers, in the same order"


@words.register
def _(fact: facts.NoBucket) -> Words:
    single = isinstance(fact.value, Value)
    return Words(
        f"a {fact.row.title} takes a list of gradients, and got {'a single one' if single else 'none'}",
        expected="a list of gradients, of as many layers as you like",
        got=describe(fact.value),
        fix="put brackets round it: model.allreduce_bucket([gradient, another])"
        + ("; for one gradient\nthere is model.allreduce(gradient, layer)" if single else ""),
    )


@words.register
def _(fact: facts.OtherBucket) -> Words:
    return Words(
        "the buckets have different lengths",
        expected=f"as many gradients in both: {fact.count}",
        got=f"{fact.count} and {fact.other}",
        fix=SAME_BUCKETS,
    )


@words.register
def _(fact: facts.ToldLayer) -> Words:
    value = fact.value
    layer = written(fact.layer) if isinstance(fact.layer, int) else fact.layer
    return Words(
        f"{fact.op} was told layer {layer}, but the value is of another layer",
        expected=f"a value of layer {layer}",
        got=describe(value),
        fix=f"say the layer of the value, which is {value.layer}, or bring the value of layer {layer}",
    )


@words.register
def _(fact: facts.Disagree) -> Words:
    first, other = fact.first, fact.other
    fix = "every rank must make the same collective calls in the same order; look for one that is skipped or extra"
    if first.op != other.op:
        but, same = "call different ones", "the same operation"
    elif first.layer != other.layer:
        but, same = "for different layers", "the same layer"
        if COLLECTIVES[first.op].bucket:
            fix = SAME_BUCKETS
    elif first.group != other.group:
        but, same = "name its group in different orders", "the same order of ranks"
        fix = "write the group in the same way on every rank: as an axis of the mesh, or as one list of ranks;\n"
        fix += "its order says whose shard is which"
    elif first.said != other.said and COLLECTIVES[first.op].along:
        but, same = "cut along different dims", "the same dim"
        fix = "name the same dim on every rank, or on none"
    elif first.said != other.said:
        but, same = "with different roots", "the same root"
        what = (COLLECTIVES[first.op].root or ("",))[0]
        fix = f"the root is the rank {what}: name the same one on every rank"
    else:
        but, same = "with different kinds of value", "the same kind of value"
        fix = "bring the value of the same store on every rank"
    return Words(
        f"ranks {first.rank} and {other.rank} meet in a collective, but {but}",
        expected=f"{same} from every member of the group",
        got=f"rank {first.rank}: {_call(first, other)}\nrank {other.rank}: {_call(other, first)}",
        fix=fix,
    )


def _call(member: Member, beside: Member) -> str:
    row = COLLECTIVES[member.op]
    what = describe(member.value) if isinstance(member.value, Value) or row.bucket else type(member.value).__name__
    root = f", root={member.said}" if row.rooted else f', dim="{NAMES[member.said]}"' if member.said else ""
    group = "" if member.group == beside.group else f", group={list(member.group)}"
    what = what if row.bucket or isinstance(member.value, Activation) else with_article(what)
    return f"{member.op}(layer={member.layer}{root}{group}) with {what}"


@words.register
def _(fact: facts.NotSized) -> Words:
    return Words(
        "what a member brings is not as large as what the root brings",
        expected=f"a value of {amount(fact.root.elements())} elements, to be overwritten by the root's",
        got=f"{describe(fact.value)}: {amount(fact.value.elements())} elements",
        fix="bring the value that the root's replaces, of the same shape: the old weight for a new one",
    )


@words.register
def _(fact: facts.Unlawful) -> Words:
    left, right = fact.left, fact.right
    pair = fact.why if isinstance(fact.why, Words) else words(fact.why)
    return Words(
        f"the {fact.row.title} of layer {left.layer} cannot be done: {pair.what}",
        expected=pair.expected,
        got=f"rank {left.rank}: {describe(left.value)}\nrank {right.rank}: {describe(right.value)}",
        fix=pair.fix,
    )
