"""Facts of the laws and of collectives: values that cannot be put together, cut or exchanged, or cannot be at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from lib.errors.arguments import written
from lib.errors.exceptions import Fact, Words, fact
from lib.errors.wording import amount, counted, exact, numbered, ranges, these, with_article
from lib.values.collectives import COLLECTIVES, Collective
from lib.values.dims import AVERAGED, DIMS, NAMES, REST, SPACE, RunSet
from lib.values.placement import MOST, ROUTED, Part, Place
from lib.values.rules import Member
from lib.values.values import KINDS, Activation, ActivationGrad, OptState, Value, Weight, WeightGrad, describe

__all__ = ["Different", "Disagree", "Gaps", "MeanOfMeans", "NoBucket", "NoKind", "NoMean", "NoShard", "NoSum"]
__all__ += ["NoValue", "NotCut", "NotOneForEach", "NotSized", "OtherBucket", "OtherKind", "ToldLayer", "TooManyShards"]
__all__ += ["Twice", "Undivided", "Unlawful", "tokens"]

MADE_BY_HAND = "take it from an operation: load_weights, forward, backward, update or a collective"
ALIKE = {
    "layer": "use values of one layer: a layer has its own weight, gradient and optimizer state",
    "batches": "gradients of different batches are summed: with `+`, scatterreduce or allreduce",
    "shards": "sum the same shard of each gradient: reduce-scatter them, or cut them in the same way",
    "total": "give load_weights or shard the same total everywhere: how many ranks share the weight",
    "step": "gather all shards before the update, or all of them after it",
}
CUT_ALIKE = "cut a weight into as many shards as ranks share it, and give each rank its own:\n"
SAME_BUCKETS = "every rank fills its buckets with the same layers, in the same order"


def tokens(place: Place, role: str, items: Iterable[int]) -> str:
    """The tokens at experts that some batches, rows or experts stand for, in a place of what is routed: how many, and
    those of the first batch and expert. Nothing where there are none."""
    parts = {name: part for name, part in zip(place.schema.roles, place.parts, strict=True) if name in ROUTED}
    route = parts["experts"].dim.route if role in parts and "experts" in parts else None
    if route is None:
        return ""
    batches, rows, experts = pieces = [RunSet.of(items if name == role else parts[name].pieces) for name in ROUTED]
    first = next(((one, batch) for batch in batches for one in experts if route.rows_of(one, batch, rows)), None)
    if first is None:
        return ""
    there = numbered("row", route.rows_of(*first, rows))
    return f"{counted(route.count(*pieces), 'token', ',')}, such as {there} of batch {first[1]} at expert {first[0]}"


@fact
def OtherKind(verb: str, first: Value, other: object) -> Words:
    """Two values of different kinds are to be put together (`verb`: gather or sum)."""
    fix = "look at the stores that they come from: both values have to be of the same kind"
    what = f"cannot {verb} two different kinds of value"
    return Words(what, f"another {first.kind}", describe(other), fix)


@fact
def Different(verb: str, field: str, first: Value, other: Value) -> Words:
    """Two values differ in a field (layer, batches, shards, total, step, or a dim) in which they have to be alike."""
    different, same = f"of different {field}", f"of the same {field}"
    if field in ("layer", "step"):
        different += "s"
    elif field == "total":
        different = "that are cut into different numbers of shards"
        same = "that are cut into the same number of shards"
    elif field in REST and DIMS[field].partial:
        different = "that are not parts of one sum"
        same = "that are parts of one sum, or sums that are done"
    elif field in REST:
        different, same = f"of different {REST[field]}", f"of the same {REST[field]}"
    got = f"{describe(first)}; {describe(other)}"
    what = f"cannot {verb} {first.kind}s {different}"
    return Words(what, f"values {same}", got, _made_alike(verb, field, first, other))


def _made_alike(verb: str, field: str, first: Value, other: Value) -> str:
    """Tell how to get values that are alike in a field."""
    if verb == "sum":
        if field == "batches" and isinstance(first, Activation | ActivationGrad):
            return (
                "parts of one sum are of the same batches: the ranks that share a layer take the same batches,\n"
                'and sum over their own group alone, such as group="model"'
            )
        if field == "rows" and any(first.place.part(role) is not None for role in ("keys", "queries")):
            why = "a result of attention belongs to the rows that ask, and a gradient to the rows that it is of"
            return f"{why}:\nwhere rows go round, theirs goes with them, and is added to what is of the same rows"
        if field == "features" and not first.place.open:
            return "values with different features are put together and not added: first.combine(second)"
        if field == "out":
            return (
                "each rank has the gradient of its own columns, so there is nothing to add. If other ranks have the "
                'same\ncolumns and other batches, sum over those, such as group="data"'
            )
        if field == "total" and first.is_complete() != other.is_complete():
            return "one is a shard of a sum, the other is whole: reduce-scatter that one too, and then add the shards"
    elif field in REST and isinstance(first, WeightGrad):
        return f"gradients of different {REST[field]} are parts of a sum: first + second"
    elif field == "rows":
        why = "what is put together differs in one thing: rows of the same batches, or batches of the same rows"
        return f"{why}.\nWhere rows come from other ranks, all go through them in the same order"
    if field == "layer" and isinstance(first, Activation | ActivationGrad):
        back = isinstance(first, ActivationGrad)
        low, high = sorted(value.layer + back for value in (first, other))
        between = these("layer", range(low, high))
        if back:
            return f"the gradient of activation {high} goes back through {between} first, and is then one of {low}"
        return f"activation {high} is activation {low} after {between}: only parts of the same one belong together"
    if field in ("shards", "total") and first.place.first.dim.counted:
        return DIMS[first.place.first.dim.name].alike
    if field in REST:
        return DIMS[field].alike or f"cut both along their {REST[field]} in the same way"
    return ALIKE[field]


@fact
def Twice(verb: str, field: str, items: frozenset[int], both: tuple[Value, ...]) -> Words:
    """Some batches or shards (`field`) are in two of the values that are to be put together."""
    kind = next((kind for kind in DIMS.values() if field in (kind.field, kind.role)), None)
    noun, role = ("shard", field) if kind is None else (kind.noun, kind.role)
    if field in REST:
        grid = both[0].place.part(field)
        of = "" if grid is None else f" of {grid.grid}"
        what = f"cannot {verb} these values: {REST[field]} {ranges(items)}{of} would be counted twice"
        fix = DIMS[field].once or f"each value must have {REST[field]} that no other value has"
    elif field == "shards" and all(value.is_complete() for value in both):
        what = "there is nothing to gather: both are complete"
        fix = "leave it out, or load a shard on each rank: model.load_weights(layer, model.rank, model.RANKS)"
        if isinstance(both[0], WeightGrad):
            fix = "gradients are not gathered but summed: use scatterreduce or allreduce"
    else:
        what = f"cannot {verb} these values: {these(noun, items)} would be counted twice"
        fix = f"each value must hold {field} that no other value holds"
        if verb == "sum":
            are = f"{these('batch', items)} {'is' if len(items) == 1 else 'are'}"
            fix = f"add the gradient of each batch once: {are} in both already"
    if found := tokens(both[0].place, role, items):
        what += f": {found}"
    whom = "the summands" if verb == "sum" else "them"
    return Words(what, f"each {noun} in one of {whom} only", "; ".join(map(describe, both)), fix)


@fact
def NoMean(thing: Value) -> Words:
    """A value to be averaged is no mean of a part of a grid."""
    fix = "take it as it is"
    if isinstance(thing, WeightGrad | ActivationGrad):
        fix = "the loss is a sum over the batches and their rows here, and so is every gradient: add them up, and "
        fix += "divide by nothing:\nawait model.allreduce(gradient, layer)"
    elif thing.place.open:
        fix = "it is a part of a sum: add up the parts with await model.allreduce(value, layer)"
    expected = "what a layer of the kind mean, or moments, gave of a part of a grid"
    return Words(f"{with_article(thing.kind)} that is no mean cannot be averaged", expected, describe(thing), fix)


@fact
def MeanOfMeans(one: Value, other: Value, role: str) -> Words:
    """Means over different numbers of rows, or of another dim, are to be averaged."""
    plural = next(of for of, averaged in AVERAGED.items() if averaged == role)
    mine, its = (len(cast(Part, value.place.part(role)).pieces) for value in (one, other))
    few, many = sorted((mine, its))
    why = "the mean of nothing is no number"
    if few:
        why = f"each of the {few} {plural} would count {exact(many / few)} times as much as each of the {many}"
    return Words(
        f"a mean of means is not the mean: the one is over {mine} {plural}, the other over {its}",
        expected="means over as much each, or a sum in which each counts as often as it has rows",
        got=f"{describe(one)}; {describe(other)}",
        fix=f"{why}.\nA partial mean knows how many {plural} are in it, and + and all-reduce weigh by that:\n"
        "await model.allreduce(mean, layer)",
    )


@fact
def NoSum(thing: object) -> Words:
    """A value to be summed is not a sum over anything, so there is nothing to add up."""
    what = f"{with_article(thing.kind) if isinstance(thing, Value) else repr(thing)} cannot be summed"
    expected = "a weight gradient: nothing else is summed over batches"
    fix = "take the weight gradient itself: grad_weights[layer]"
    if isinstance(thing, Weight | OptState):
        fix = "sum the gradients before the update: then the weights are the same on all ranks\n"
        fix += "to put the shards of a weight together, use an all-gather"
    elif isinstance(thing, ActivationGrad) and not thing.is_complete():
        what = "the gradient of an activation cannot be summed"
        if cut := [role for role, *_ in thing.place.rest if role in SPACE]:
            fix = f"only this rank has these {cut[0]}, and their gradient is complete: there is nothing to add"
            return Words(what, "a part of a sum", describe(thing), fix)
        expected = "a part of a sum: a weight gradient, or what backward of a layer cut into columns gives"
        fix = "this rank has the gradient of some features, each of them whole: there is nothing to add.\n"
        fix += 'Backward of a layer cut into columns, dim="out", takes it, and gives a part of a sum'
    elif isinstance(thing, ActivationGrad):
        fix = "the gradient of an activation stays with its batch; sum the gradient of the weight: grad_weights[layer]"
    elif isinstance(thing, Activation):
        fix = "keep each batch of activations under its own key; what is summed is the gradient of a weight:\n"
        fix += "grad_weights[layer]"
        if not thing.is_complete():
            expected = "a part of a sum: a weight gradient, or what a layer cut into rows gives"
        if cut := [role for role, *_ in thing.place.rest]:
            fix = f"values with different {REST[cut[0]]} are put together and not added: first.combine(second)"
    return Words(what, expected, describe(thing), fix)


@fact
def Undivided(value: Value | None, what: str, size: int, total: int) -> Words:
    """So many things (`what`: batches, columns) cannot be cut into `total` equal parts."""
    parts = written(total)
    few = next((number for number in range(2, size + 1) if size % number == 0), None)
    fix = "cut it into as many parts as there are ranks that share it, and give each of them as much as the others"
    if what == "batches":
        fix = "take slices of equally many examples each"
        if size < total and (dims := [name for name in SPACE if value is not None and name in value.place.named]):
            fix = f'where nothing is said, a value is cut along its batches: say along what else, dim="{dims[0]}"'
    elif what == "experts" and value is not None:
        fix = "tokens are cut along their experts on the way to these, and on the way home along what each rank\n"
        fix += "has of its own: batches, or rows"
    return Words(
        f"{counted(size, 'batch' if what == 'batches' else what[:-1])} cannot be cut into {parts} equal parts",
        expected=f"a number that divides {size}" + ("" if few is None else f", such as {few}"),
        got=f"{parts} parts" + ("" if value is None else f" of the {describe(value)}"),
        fix=fix,
    )


@fact
def NoShard(shard: Any, total: Any, loads: bool) -> Words:
    """There is no such shard. `loads`: of a weight that is loaded, and not cut out of one that is there."""
    what = f"there is no shard {written(shard)} of {written(total)}"
    expected = f"{'a shard' if loads else 'a shard number'} from 0 to "
    expected = "total >= 1" if type(total) is not int or total < 1 else expected + written(total - 1)
    if loads:
        got = f"shard {describe(shard).removeprefix('the number ')}"
        return Words(what, expected, got, f"{CUT_ALIKE}model.load_weights(layer, model.rank, model.RANKS)")
    fix = "shards are counted from 0; a rank's own shard is usually its place in the group"
    if total == 0:
        fix = "first which shard, and then of how many: value.shard(model.rank, model.RANKS)"
    return Words(what, expected, fix=fix)


@fact
def TooManyShards(shard: int, total: int) -> Words:
    """A weight is cut into more shards than there may be."""
    expected = f"a weight cut into at most {MOST} shards: a Trace file holds no more"
    got = f"shard {written(shard)} of {written(total)}"
    return Words(
        f"{written(total)} shards are too many", expected, got, "cut a weight into as many shards as ranks share it"
    )


@fact
def Gaps(value: Value) -> Words:
    """Shards that do not lie side by side are to be cut."""
    expected = f"all {value.place.total} shards of layer {value.layer}, or some without a gap"
    fix = "cut each of them by itself, or gather what is missing first"
    return Words("only shards that lie side by side can be cut", expected, describe(value), fix)


@fact
def NotCut(value: Value, role: object, wanted: tuple[object, object] | None) -> Words:
    """A value is to be cut along a dim (`role`) that it does not have, or where it has not all of `wanted`."""
    named, got, dim = value.place.named, describe(value), written(role)
    if wanted is None or role not in named:
        has = f"a dim that it has: {', '.join(named)}"
        return Words(f"{got} cannot be cut along {dim}", has, f"dim={dim}", "look at what the value is: print(value)")
    low, high = wanted
    what = f"there are no elements {written(low)} to {written(high)} of {dim} here to be cut out"
    if role in SPACE and isinstance(low, int) and isinstance(high, int) and low < high:
        are = "is not" if high == low + 1 else "are not all"
        what = f"{numbered(DIMS[str(role)].noun, range(low, high))} {are} here to be cut out"
    expected = "a range of what the value has; of features and of weights there are shards, and no ranges"
    whole = [name for name in SPACE if name in named and name != role and named[name].whole]
    fix = "look at what the value has: print(value)"
    if role in SPACE and whole and not named[str(role)].whole:
        fix = f'it has all of its {DIMS[whole[0]].plural}, and can be cut along those: dim="{whole[0]}"'
    return Words(what, expected, got, fix)


@fact
def NoKind(value: Value) -> Words:
    """A value is of none of the five kinds, but of a class of the student's."""
    name = type(value).__name__
    expected = f"one of {', '.join(KINDS)}"
    return Words(f"{name} is not a kind of value", expected, f"a value of the class {name}", MADE_BY_HAND)


@fact
def NoValue(kind: type[Value], fields: tuple[object, ...], field: str, low: int | None, most: object) -> Words:
    """There is no value of a kind with these fields: `field` has to be a number from `low` up, or some of `most`."""
    wrong = f"its {field} is a number from {low} to {most}"
    if most is None:
        wrong = f"its {field} are numbers from {low} up"
    elif low is None:
        wrong = f"its {field} are some of {written(most)}"
    made = f"{kind.__name__}({', '.join(written(item)[:40] for item in fields)}, ...), made by hand"
    return Words(f"there is no such {kind.kind}", wrong, made, MADE_BY_HAND)


@fact
def NotOneForEach(row: Collective, value: object, count: int, members: int, place: int) -> Words:
    """An exchange takes a value for each member, and got something else."""
    title, got = with_article(row.title), counted(count, "value") if count else describe(value)
    wanted = row.takes(place, members)
    if not wanted:
        what = f"{title} is between neighbours, and a group of one member has none"
        fix = "leave the exchange out where there is one rank: if model.RANKS > 1"
        return Words(what, "a group of two members or more", f"a group of {members}", fix)
    if row.origins is not None:
        beside = "before and for the one after" if wanted > 1 else "before" if place else "after"
        expected = f"a list of {counted(wanted, 'value')}, for the member {beside} it"
        fix = "the first and the last member of a group have one neighbour, and bring one edge"
        return Words(f"{title} takes one value for each neighbour of a member", expected, got, fix)
    what = f"an {row.title} takes one value for each of the {members} members"
    expected = f"a list of {members} values, in the order of the group"
    return Words(what, expected, got, "value number i goes to member number i")


@fact
def NoBucket(row: Collective, value: object) -> Words:
    """A bucket is a list of values, and this is none, or an empty one."""
    single = isinstance(value, Value)
    fix = "put brackets round it: model.allreduce_bucket([gradient, another])"
    if single:
        fix += "; for one gradient\nthere is model.allreduce(gradient, layer)"
    what = f"a {row.title} takes a list of gradients, and got {'a single one' if single else 'none'}"
    return Words(what, "a list of gradients, of as many layers as you like", describe(value), fix)


@fact
def OtherBucket(count: int, other: int) -> Words:
    """Two members bring buckets of different lengths."""
    expected = f"as many gradients in both: {count}"
    return Words("the buckets have different lengths", expected, f"{count} and {other}", SAME_BUCKETS)


@fact
def ToldLayer(op: str, value: Value, layer: object) -> Words:
    """A collective was told another layer than that of the value."""
    told = written(layer) if isinstance(layer, int) else layer
    what = f"{op} was told layer {told}, but the value is of another layer"
    fix = f"say the layer of the value, which is {value.layer}, or bring the value of layer {told}"
    return Words(what, f"a value of layer {told}", describe(value), fix)


@fact
def Disagree(first: Member, other: Member) -> Words:
    """Two members of a group call different collectives, or the same one of different things."""
    row = COLLECTIVES[first.op]
    fix = "every rank must make the same collective calls in the same order; look for one that is skipped or extra"
    if first.op != other.op:
        but, same = "call different ones", "the same operation"
    elif first.layer != other.layer:
        but, same = "for different layers", "the same layer"
        fix = SAME_BUCKETS if row.bucket else fix
    elif first.group != other.group:
        but, same = "name its group in different orders", "the same order of ranks"
        fix = "write the group in the same way on every rank: as an axis of the mesh, or as one list of ranks;\n"
        fix += "its order says whose shard is which"
    elif first.said != other.said and row.along:
        but, same = "cut along different dims", "the same dim"
        fix = "name the same dim on every rank, or on none"
    elif first.said != other.said:
        but, same = "with different roots", "the same root"
        fix = f"the root is the rank {(row.root or ('',))[0]}: name the same one on every rank"
    else:
        but, same = "with different kinds of value", "the same kind of value"
        fix = "bring the value of the same store on every rank"
    what = f"ranks {first.rank} and {other.rank} meet in a collective, but {but}"
    got = f"rank {first.rank}: {_call(first, other)}\nrank {other.rank}: {_call(other, first)}"
    return Words(what, f"{same} from every member of the group", got, fix)


def _call(member: Member, beside: Member) -> str:
    row = COLLECTIVES[member.op]
    what = describe(member.value) if isinstance(member.value, Value) or row.bucket else type(member.value).__name__
    root = f", root={member.said}" if row.root else f', dim="{NAMES[member.said]}"' if member.said else ""
    group = "" if member.group == beside.group else f", group={list(member.group)}"
    what = what if row.bucket or isinstance(member.value, Activation) else with_article(what)
    return f"{member.op}(layer={member.layer}{root}{group}) with {what}"


@fact
def NotSized(value: Value, root: Value) -> Words:
    """A member brings a value to be overwritten that is not as large as the root's."""
    return Words(
        "what a member brings is not as large as what the root brings",
        expected=f"a value of {amount(root.elements())} elements, to be overwritten by the root's",
        got=f"{describe(value)}: {amount(value.elements())} elements",
        fix="bring the value that the root's replaces, of the same shape: the old weight for a new one",
    )


@fact
def Unlawful(row: Collective, left: Member, right: Member, why: Fact | Words) -> Words:
    """The values of two members cannot be put together: `why` is the law's own complaint."""
    pair = why if isinstance(why, Words) else why.words()
    what = f"the {row.title} of layer {left.layer} cannot be done: {pair.what}"
    got = f"rank {left.rank}: {describe(left.value)}\nrank {right.rank}: {describe(right.value)}"
    return Words(what, pair.expected, got, pair.fix)
