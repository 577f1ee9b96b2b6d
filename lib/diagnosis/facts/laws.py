"""Facts of the laws: values that cannot be put together or cut, and values that there cannot be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lib.errors.arguments import written
from lib.errors.exceptions import Fact, Words
from lib.errors.wording import counted, exact, numbered, ranges, these, with_article
from lib.values.dims import AVERAGED, DIMS, REST, SPACE, RunSet
from lib.values.placement import MOST, ROUTED, Place
from lib.values.values import KINDS, Activation, ActivationGrad, OptState, Value, Weight, WeightGrad, describe

__all__ = ["Different", "Gaps", "MeanOfMeans", "NoKind", "NoMean", "NoShard", "NoSum", "NoValue", "NotCut", "OtherKind"]
__all__ += ["TooManyShards", "Twice", "Undivided", "tokens"]

MADE_BY_HAND = "take it from an operation: load_weights, forward, backward, update or a collective"
ALIKE = {
    "layer": "use values of one layer: a layer has its own weight, gradient and optimizer state",
    "batches": "gradients of different batches are summed: with `+`, scatterreduce or allreduce",
    "shards": "sum the same shard of each gradient: reduce-scatter them, or cut them in the same way",
    "total": "give load_weights or shard the same total everywhere: how many ranks share the weight",
    "step": "gather all shards before the update, or all of them after it",
}
CUT_ALIKE = "cut a weight into as many shards as ranks share it, and give each rank its own:\n"


def tokens(place: Place, role: str, items: Iterable[int]) -> str:
    """The tokens at experts that some batches, rows or experts stand for, in a place of what is routed: how many, and
    those of the first batch and expert. Nothing where there are none."""
    parts = {name: part for name, part in zip(place.schema.roles, place.parts, strict=True) if name in ROUTED}
    route = parts["experts"].dim.route if role in parts and "experts" in parts else None
    if route is None:
        return ""
    pieces = [RunSet.of(items if name == role else parts[name].pieces) for name in ROUTED]
    batches, rows, experts = pieces
    first = next(((one, batch) for batch in batches for one in experts if route.rows_of(one, batch, rows)), None)
    if first is None:
        return ""
    there = numbered("row", route.rows_of(*first, rows))
    return f"{counted(route.count(*pieces), 'token', ',')}, such as {there} of batch {first[1]} at expert {first[0]}"


class OtherKind(Fact):
    """Two values of different kinds are to be put together (`verb`: gather or sum)."""

    verb: str
    first: Value
    other: object

    def words(self) -> Words:
        return Words(
            f"cannot {self.verb} two different kinds of value",
            expected=f"another {self.first.kind}",
            got=describe(self.other),
            fix="look at the stores that they come from: both values have to be of the same kind",
        )


class Different(Fact):
    """Two values differ in a field (layer, batches, shards, total, step, or a dim) in which they have to be alike."""

    verb: str
    field: str
    first: Value
    other: Value

    def words(self) -> Words:
        field = self.field
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
        return Words(
            f"cannot {self.verb} {self.first.kind}s {different}",
            expected=f"values {same}",
            got=f"{describe(self.first)}; {describe(self.other)}",
            fix=self._fix(),
        )

    def _fix(self) -> str:
        """Tell how to get values that are alike."""
        if self.verb == "sum":
            if self.field == "batches" and isinstance(self.first, Activation | ActivationGrad):
                return (
                    "parts of one sum are of the same batches: the ranks that share a layer take the same batches,\n"
                    'and sum over their own group alone, such as group="model"'
                )
            if self.field == "rows" and any(self.first.place.part(role) is not None for role in ("keys", "queries")):
                return (
                    "a result of attention belongs to the rows that ask, and a gradient to the rows that it is of:\n"
                    "where rows go round, theirs goes with them, and is added to what is of the same rows"
                )
            if self.field == "features" and not self.first.place.open:
                return "values with different features are put together and not added: first.combine(second)"
            if self.field == "out":
                return (
                    "each rank has the gradient of its own columns, so there is nothing to add. If other ranks have "
                    'the same\ncolumns and other batches, sum over those, such as group="data"'
                )
            if self.field == "total" and self.first.is_complete() != self.other.is_complete():
                return (
                    "one is a shard of a sum, the other is whole: reduce-scatter that one too, and then add the shards"
                )
        if self.field in REST and isinstance(self.first, WeightGrad) and self.verb == "gather":
            return f"gradients of different {REST[self.field]} are parts of a sum: first + second"
        if self.verb == "gather" and self.field == "rows":
            return (
                "what is put together differs in one thing: rows of the same batches, or batches of the same rows.\n"
                "Where rows come from other ranks, all go through them in the same order"
            )
        if self.field == "layer" and isinstance(self.first, Activation | ActivationGrad):
            back = isinstance(self.first, ActivationGrad)
            low, high = sorted(value.layer + back for value in (self.first, self.other))
            between = these("layer", range(low, high))
            if back:
                return f"the gradient of activation {high} goes back through {between} first, and is then one of {low}"
            return f"activation {high} is activation {low} after {between}: only parts of the same one belong together"
        if self.field in ("shards", "total") and self.first.place.first.dim.counted:
            return DIMS[self.first.place.first.dim.name].alike
        if self.field in REST:
            return DIMS[self.field].alike or f"cut both along their {REST[self.field]} in the same way"
        return ALIKE[self.field]


class Twice(Fact):
    """Some batches or shards (`field`) are in two of the values that are to be put together."""

    verb: str
    field: str
    items: frozenset[int]
    both: tuple[Value, ...]

    def words(self) -> Words:
        verb, field, both = self.verb, self.field, self.both
        noun = next((kind.noun for kind in DIMS.values() if field in (kind.field, kind.role)), "shard")
        if field in REST:
            grid = both[0].place.part(field)
            of = "" if grid is None else f" of {grid.grid}"
            what = f"cannot {verb} these values: {REST[field]} {ranges(self.items)}{of} would be counted twice"
            fix = DIMS[field].once or f"each value must have {REST[field]} that no other value has"
        elif field == "shards" and all(value.is_complete() for value in both):
            what = "there is nothing to gather: both are complete"
            fix = "leave it out, or load a shard on each rank: model.load_weights(layer, model.rank, model.RANKS)"
            if isinstance(both[0], WeightGrad):
                fix = "gradients are not gathered but summed: use scatterreduce or allreduce"
        else:
            what = f"cannot {verb} these values: {these(noun, self.items)} would be counted twice"
            fix = f"each value must hold {field} that no other value holds"
            if verb == "sum":
                are = f"{these('batch', self.items)} {'is' if len(self.items) == 1 else 'are'}"
                fix = f"add the gradient of each batch once: {are} in both already"
        role = next((kind.role for kind in DIMS.values() if field in (kind.field, kind.role)), field)
        if found := tokens(both[0].place, role, self.items):
            what += f": {found}"
        whom = "the summands" if verb == "sum" else "them"
        return Words(what, f"each {noun} in one of {whom} only", "; ".join(map(describe, both)), fix)


class NoMean(Fact):
    """A value to be averaged is no mean of a part of a grid."""

    thing: Value

    def words(self) -> Words:
        fix = "take it as it is"
        if isinstance(self.thing, WeightGrad | ActivationGrad):
            fix = "the loss is a sum over the batches and their rows here, and so is every gradient: add them up, and "
            fix += "divide by nothing:\nawait model.allreduce(gradient, layer)"
        elif self.thing.place.open:
            fix = "it is a part of a sum: add up the parts with await model.allreduce(value, layer)"
        return Words(
            f"{with_article(self.thing.kind)} that is no mean cannot be averaged",
            expected="what a layer of the kind mean, or moments, gave of a part of a grid",
            got=describe(self.thing),
            fix=fix,
        )


class MeanOfMeans(Fact):
    """Means over different numbers of rows, or of another dim, are to be averaged."""

    one: Value
    other: Value
    role: str

    def words(self) -> Words:
        plural = next(of for of, averaged in AVERAGED.items() if averaged == self.role)
        mine, its = (len(value.place.part(self.role).pieces) for value in (self.one, self.other))  # pyright: ignore[reportOptionalMemberAccess]
        few, many = sorted((mine, its))
        often = exact(many / few) if few else ""
        why = f"each of the {few} {plural} would count {often} times as much as each of the {many}"
        return Words(
            f"a mean of means is not the mean: the one is over {mine} {plural}, the other over {its}",
            expected="means over as much each, or a sum in which each counts as often as it has rows",
            got=f"{describe(self.one)}; {describe(self.other)}",
            fix=f"{why if few else 'the mean of nothing is no number'}.\n"
            f"A partial mean knows how many {plural} are in it, and + and all-reduce weigh by that:\n"
            "await model.allreduce(mean, layer)",
        )


class NoSum(Fact):
    """A value to be summed is not a sum over anything, so there is nothing to add up."""

    thing: object

    def words(self) -> Words:
        thing = self.thing
        expected, fix = "a weight gradient: nothing else is summed over batches", "take the weight gradient itself: "
        if isinstance(thing, Weight | OptState):
            fix = "sum the gradients before the update: then the weights are the same on all ranks\n"
        elif isinstance(thing, ActivationGrad) and not thing.is_complete():
            if cut := [role for role, *_ in thing.place.rest if role in SPACE]:
                return Words(
                    "the gradient of an activation cannot be summed",
                    expected="a part of a sum",
                    got=describe(thing),
                    fix=f"only this rank has these {cut[0]}, and their gradient is complete: there is nothing to add",
                )
            return Words(
                "the gradient of an activation cannot be summed",
                expected="a part of a sum: a weight gradient, or what backward of a layer cut into columns gives",
                got=describe(thing),
                fix="this rank has the gradient of some features, each of them whole: there is nothing to add.\n"
                'Backward of a layer cut into columns, dim="out", takes it, and gives a part of a sum',
            )
        elif isinstance(thing, ActivationGrad):
            fix = "the gradient of an activation stays with its batch; sum the gradient of the weight: "
        elif isinstance(thing, Activation):
            fix = "keep each batch of activations under its own key; what is summed is the gradient of a weight:\n"
            if not thing.is_complete():
                expected = "a part of a sum: a weight gradient, or what a layer cut into rows gives"
        gather = "to put the shards of a weight together, use an all-gather"
        fix += gather if isinstance(thing, Weight | OptState) else "grad_weights[layer]"
        if isinstance(thing, Activation) and (cut := [role for role, *_ in thing.place.rest]):
            fix = f"values with different {REST[cut[0]]} are put together and not added: first.combine(second)"
        return Words(
            f"{with_article(thing.kind) if isinstance(thing, Value) else repr(thing)} cannot be summed",
            expected,
            describe(thing),
            fix,
        )


class Undivided(Fact):
    """So many things (`what`: batches, columns) cannot be cut into `total` equal parts."""

    value: Value | None
    what: str
    size: int
    total: int

    def words(self) -> Words:
        size, parts = self.size, written(self.total)
        few = [number for number in range(2, size + 1) if size % number == 0]
        fix = "cut it into as many parts as there are ranks that share it, and give each of them as much as the others"
        if self.what == "batches":
            fix = "take slices of equally many examples each"
        elif self.what == "experts" and self.value is not None:
            fix = "tokens are cut along their experts on the way to these, and on the way home along what each rank\n"
            fix += "has of its own: batches, or rows"
        return Words(
            f"{counted(size, 'batch' if self.what == 'batches' else self.what[:-1])} cannot be cut into {parts} "
            "equal parts",
            expected=f"a number that divides {size}" + (f", such as {few[0]}" if few else ""),
            got=f"{parts} parts" + ("" if self.value is None else f" of the {describe(self.value)}"),
            fix=fix,
        )


class NoShard(Fact):
    """There is no such shard. `loads`: of a weight that is loaded, and not cut out of one that is there."""

    shard: Any
    total: Any
    loads: bool

    def words(self) -> Words:
        shard, total = self.shard, self.total
        number = "a shard" if self.loads else "a shard number"
        none = type(total) is not int or total < 1
        fix = "shards are counted from 0; a rank's own shard is usually its place in the group"
        if total == 0 and not self.loads:
            fix = "first which shard, and then of how many: value.shard(model.rank, model.RANKS)"
        return Words(
            f"there is no shard {written(shard)} of {written(total)}",
            expected="total >= 1" if none else f"{number} from 0 to {written(total - 1)}",
            got=f"shard {describe(shard).removeprefix('the number ')}" if self.loads else None,
            fix=f"{CUT_ALIKE}model.load_weights(layer, model.rank, model.RANKS)" if self.loads else fix,
        )


class TooManyShards(Fact):
    """A weight is cut into more shards than there may be."""

    shard: int
    total: int

    def words(self) -> Words:
        return Words(
            f"{written(self.total)} shards are too many",
            expected=f"a weight cut into at most {MOST} shards: a Trace file holds no more",
            got=f"shard {written(self.shard)} of {written(self.total)}",
            fix="cut a weight into as many shards as ranks share it",
        )


class Gaps(Fact):
    """Shards that do not lie side by side are to be cut."""

    value: Value

    def words(self) -> Words:
        return Words(
            "only shards that lie side by side can be cut",
            expected=f"all {self.value.place.total} shards of layer {self.value.layer}, or some without a gap",
            got=describe(self.value),
            fix="cut each of them by itself, or gather what is missing first",
        )


class NotCut(Fact):
    """A value is to be cut along a dim (`role`) that it does not have, or where it has not all of `wanted`."""

    value: Value
    role: object
    wanted: tuple[object, object] | None

    def words(self) -> Words:
        named, got, dim = self.value.place.named, describe(self.value), written(self.role)
        if self.wanted is None or self.role not in named:
            has = f"a dim that it has: {', '.join(named)}"
            return Words(
                f"{got} cannot be cut along {dim}", has, f"dim={dim}", "look at what the value is: print(value)"
            )
        low, high = self.wanted
        what = f"there are no elements {written(low)} to {written(high)} of {dim} here to be cut out"
        if self.role in SPACE and isinstance(low, int) and isinstance(high, int) and low < high:
            are = "is not" if high == low + 1 else "are not all"
            what = f"{numbered(DIMS[str(self.role)].noun, range(low, high))} {are} here to be cut out"
        return Words(
            what,
            "a range of what the value has; of features and of weights there are shards, and no ranges",
            got,
            "look at what the value has: print(value)",
        )


class NoKind(Fact):
    """A value is of none of the five kinds, but of a class of the student's."""

    value: Value

    def words(self) -> Words:
        name = type(self.value).__name__
        kinds = ", ".join(KINDS)
        return Words(f"{name} is not a kind of value", f"one of {kinds}", f"a value of the class {name}", MADE_BY_HAND)


class NoValue(Fact):
    """There is no value of a kind with these fields: `field` has to be a number from `low` up, or some of `most`."""

    kind: type[Value]
    fields: tuple[object, ...]
    field: str
    low: int | None
    most: object

    def words(self) -> Words:
        field = self.field
        wrong = f"its {field} is a number from {self.low} to {self.most}"
        if self.most is None:
            wrong = f"its {field} are numbers from {self.low} up"
        elif self.low is None:
            wrong = f"its {field} are some of {written(self.most)}"
        fields = ", ".join(written(item)[:40] for item in self.fields)
        made = f"{self.kind.__name__}({fields}, ...), made by hand"
        return Words(f"there is no such {self.kind.kind}", wrong, made, MADE_BY_HAND)
