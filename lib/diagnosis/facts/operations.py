"""Facts of one operation and what it is given, and of keys that stores do not have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lib.diagnosis.facts.laws import tokens
from lib.errors.arguments import written
from lib.errors.exceptions import Fact, Words
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


class WrongKind(Fact):
    """An operation was given something that is not of the kind that it needs in this role."""

    role: str
    wanted: type[Value]
    value: object
    op: str

    def words(self) -> Words:
        wanted = with_article(self.wanted.kind)
        return Words(
            f"the {self.role} is not {wanted}",
            expected=wanted,
            got=describe(self.value),
            fix="check the order of the arguments and the store that it comes from",
        )


class NoLayer(Fact):
    """The model has no layer of that number."""

    layer: int
    layers: int

    def words(self) -> Words:
        return Words(
            f"there is no layer {written(self.layer)}",
            expected=f"a layer from 0 to {self.layers - 1}",
            got=f"layer {written(self.layer)}",
            fix="layers are counted from 0; the last one is model.LAYERS - 1",
        )


class NotALayer(Fact):
    """Something else stands where the layer belongs; or a rank, where a message goes (`layers` 0)."""

    op: str
    layer: object
    layers: int

    def words(self) -> Words:
        expected = f"a layer from 0 to {self.layers - 1}"
        return Words("the layer is not a whole number", expected=expected, got=describe(self.layer))


class WrongLayer(Fact):
    """A value belongs to another layer than `layer`, the one that the operation needs in this role."""

    op: str
    role: str
    value: Value
    layer: int

    def words(self) -> Words:
        return Words(
            f"the {self.role} belongs to another layer",
            expected=definite(subject(self.value.kind, self.layer)),
            got=describe(self.value),
            fix=self._right_layer(),
        )

    def _right_layer(self) -> str:
        """Tell what the operation works on instead."""
        op, layer, value = self.op, self.layer, self.value
        if op == "loss":
            return f"run forward up to layer {layer - 1} first"
        if op == "update":
            return f"update({layer}, ...) takes everything of layer {layer}"
        if op == "set_final_weight":
            return f"hand it in as what it is: set_final_weight({value.layer}, ...)"
        if isinstance(value, Weight):
            return f"use the weight of layer {layer}, or run layer {value.layer}"
        if op == "forward" and self.role.startswith("activation"):
            return f"it takes two activations, the second is activation {layer}: look at the order of the two"
        if op == "forward":
            before = f"activation {layer}, which forward({layer - 1}, ...) gave" if layer else "the data"
            return f"layer {layer} works on {before}"
        if isinstance(value, Activation):
            return f"use activation {layer}, the one that went into forward({layer}, ...)"
        if op != "backward" and value.layer == layer - 1:
            return (
                f"both halves take the gradient of activation {layer + 1}: keep it until the weight half is done, too"
            )
        half = "" if op == "backward" else "_input"
        if layer == value.layers - 1:
            return f"{op}({layer}, ...) is the first one: it takes the gradient that loss gave"
        return f"take the gradient of activation {layer + 1}, which backward{half}({layer + 1}, ...) gave"


class Incomplete(Fact):
    """A shard where the whole weight is needed."""

    weight: Weight

    def words(self) -> Words:
        weight = self.weight
        taps, part = weight.place.part("taps"), weight.place.first
        if taps is not None and not taps.whole:
            return Words(
                f"the weight of layer {weight.layer} lacks a part of its kernel",
                expected=f"all {taps.dim.size} taps",
                got=describe(weight),
                fix="a kernel is used whole: cut a weight along in or out, and not along its taps",
            )
        missing = part.dim.whole.minus(part).shards(weight.total) or ()
        return Words(
            f"the weight of layer {weight.layer} is not complete",
            expected=f"all {weight.total} shards",
            got=f"{these('shard', weight.shards)} of {weight.total}{_missing('shard', missing)}",
            fix="put its shards together first, with an all-gather",
        )


class NoDim(Fact):
    """A weight is cut along its rows or its columns, and along nothing else."""

    dim: object

    def words(self) -> Words:
        return Words(
            "a weight is cut along its rows or along its columns",
            expected='dim="in" for rows, or dim="out" for columns',
            got=f"dim={written(self.dim)}",
            fix='write dim="out" for a column shard; without dim it is a row shard',
        )


class Owes(Fact):
    """A partial sum, where an operation needs the sum."""

    role: str
    value: Value

    def words(self) -> Words:
        value = self.value
        lacks = next(part for part in value.place.sums if not part.whole)
        whole = f"{definite(subject(value.kind, value.layer))} with all parts of the sum in it"
        if owed := DIMS[lacks.dim.name].owed:
            got = describe(value)
            if lacks.dim.route is not None:
                rest = frozenset(range(lacks.dim.size)) - frozenset(lacks.pieces)
                got += f"; without {tokens(value.place, lacks.dim.name, rest) or 'any token'}"
            return Words(f"the {self.role} is only a part of a sum", whole, got, owed)
        terms = f"part {ranges(lacks.pieces)} of {lacks.grid} of a sum: "
        return Words(
            f"the {self.role} owes an all-reduce: it is only a part of a sum",
            whole,
            f"{describe(value).rsplit(', ', 1)[0]}, {terms}the ranks with the other shards of the weight have the rest",
            "sum it over the ranks that share the weight first: await model.allreduce(value, layer, group=...);\n"
            "or scatterreduce, where each of them goes on with some of the batches",
        )


class OtherFeatures(Fact):
    """A value has other features than the part of the weight that it is for (`of`: in or out)."""

    role: str
    value: Value
    weight: Weight
    of: str

    def words(self) -> Words:
        value, weight, rows = self.value, self.weight, self.of == "in"
        part = weight.place.part(self.of)
        whole = part is None or part.whole
        needs = "all features" if part is None or part.whole else f"features {ranges(part.pieces)} of {part.grid}"
        side = "takes" if rows else "gives"
        fix = "gather the features first: await model.allgather(value, layer, group=...)"
        if rows and value.place.part("keys") is not None:
            fix = "attention gave some heads of all rows: swap them for all heads of some rows, by an all-to-all"
        elif rows:
            fix += ";\nor use a row shard of the weight, which takes just these: "
            fix += 'load_weights(layer, shard, total, dim="in")'
        elif not whole:
            fix = "backward takes the gradient of what this shard gave in forward: "
            fix += "do not gather or sum more than forward did"
        return Words(
            f"the {self.role} does not have the features that the weight {side}",
            expected=f"{needs}, which the {describe(weight)} {side}",
            got=describe(value) + (", which has all features" if value.place.dims[-1].whole else ""),
            fix=fix,
        )


class NotBatches(Fact):
    """Batches are named by something that is not a collection of numbers."""

    batches: object

    def words(self) -> Words:
        return Words(
            "batches are given as a list or a set of numbers",
            expected="for instance [0] or range(model.BATCHES)",
            got=describe(self.batches),
            fix="for a single batch write [batch]",
        )


class NoBatch(Fact):
    """Some of the batches that are named are not there, nor among the `padding` after them."""

    wrong: frozenset[Any]
    named: frozenset[Any]
    batches: int
    padding: int

    def words(self) -> Words:
        return Words(
            f"there is no batch {_some(self.wrong)}",
            expected=f"batches from 0 to {self.batches - 1}"
            + (f", and {self.batches} to {self.batches + self.padding - 1} for padding" if self.padding else ""),
            got=f"{plural('batch', len(self.named))} {_some(self.named)}",
            fix="batches are counted from 0; the last one is model.BATCHES - 1"
            + (", and model.PADDING more are padding" if self.padding else ""),
        )


class EndlessBatches(Fact):
    """More than `most` batches are named, which does not end."""

    batches: int
    most: int

    def words(self) -> Words:
        return Words(
            "the batches do not come to an end",
            expected=f"each of the {self.batches} batches once",
            got=f"more than {self.most} items",
            fix="give a list, a set or a range: range(model.BATCHES) are all batches",
        )


class NothingToGet(Fact):
    """The input data of no batch at all is asked for."""

    def words(self) -> Words:
        return Words("there are no batches to get", expected="at least one batch", got="none", fix="name a batch")


class Unread(Fact):
    """Input data is taken for nothing (`op`) where reading it costs something."""

    op: str

    def words(self) -> Words:
        return Words(
            f"{self.op} takes data that nobody has read, and here reading costs something",
            expected="examples from the reader of this rank's process",
            got=f"model.{self.op}(...), with costs.read above 0",
            fix="ask the reader, and wait for it: await model.read(batches)",
        )


class OtherBatches(Fact):
    """The input and the gradient that backward, or half of it (`op`), got are of different batches; or two activations
    that forward got (the second one is `grad`)."""

    op: str
    inp: Value
    grad: Value

    def words(self) -> Words:
        fix = "take the input of the same batch; messages arrive in the order in which they were passed,\n"
        fix += "so both ranks have to go through the batches in the same order"
        if "experts" in self.inp.place.named:
            fix = "the gradient of a result goes to the rank whose expert made it, as the result came from there:\n"
            fix += "cut it along its experts, and exchange the parts: await model.alltoall(parts, layer)"
        elif "experts" in self.grad.place.named:
            fix = "the gradient of a token goes home, as the token came from there: cut it along what each rank has,\n"
            fix += "its batches or its rows, and exchange the parts: await model.alltoall(parts, layer)"
        what = "gradient"
        if isinstance(self.grad, Activation):
            what, fix = (
                "activation beside it",
                "take both of the same batches, from under a key that says which these are",
            )
        return Words(
            f"the input and the {what} given to {self.op} are of different batches",
            expected=f"the {what} of {these('batch', self.inp.place.batches)}, as the input",
            got=f"the {what} of {these('batch', self.grad.place.batches)}",
            fix=fix,
        )


class OtherParts(Fact):
    """Two values that an operation takes are of different parts of a dim (`role`)."""

    op: str
    role: str
    one: Value
    other: Value

    def words(self) -> Words:
        plural = DIMS[self.role].plural
        mine, its = (value.place.part(self.role) for value in (self.one, self.other))
        fix = f"gather the {plural} of the one, or cut those of the other"
        apart = mine is not None and its is not None and not mine.meets(its)
        if apart and self.role == "experts":
            fix = "a rank works on the tokens of the experts that it has loaded, and each loads experts of its own:\n"
            fix += "model.load_weights(layer, place, ranks), by its place among the ranks that exchange tokens"
        elif self.role == "experts":
            fix = "tokens go where their experts are: cut what dispatch gave along its experts, a part for each rank,\n"
            fix += "and exchange the parts: await model.alltoall(parts, layer)"
        elif mine is not None and its is not None and not (mine.covers(its) or its.covers(mine)):
            differ = f"they have no {plural} in common" if apart else f"each has {plural} that the other has not"
            fix = f"{differ}: what is of the same {plural} has to come to the same rank"
        return Words(
            f"{self.op} got values of different {plural}",
            expected=f"the same {plural} in both",
            got=f"{describe(self.one)}; {describe(self.other)}",
            fix=fix,
        )


class NoRows(Fact):
    """A layer needs several rows for one of its output, and has too few that lie together (`stencil`, of a dim)."""

    op: str
    inp: Value
    stencil: Stencil
    role: str

    def words(self) -> Words:
        kind = DIMS[self.role]
        row = min(self.stencil.users(self.inp.place.named[self.role].pieces), default=0)
        return Words(
            f"{self.op} has too few {kind.plural} for one of the output",
            expected=f"all that a {kind.noun} of the output needs, as {kind.noun} {row} needs "
            f"{_span(self.stencil, self.role, row)}",
            got=describe(self.inp),
            fix=f"put the {kind.plural} of the neighbours that it lacks, the halo, together with its own first: "
            "x = x.combine(halo)",
        )


class OtherRows(Fact):
    """A gradient is of rows that the input does not give (`stencil`, of a dim)."""

    op: str
    inp: Value
    grad: Value
    stencil: Stencil
    role: str

    def words(self) -> Words:
        kind = DIMS[self.role]
        mine = self.stencil.given(self.inp.place.named[self.role].pieces)
        its = self.grad.place.named[self.role].pieces
        row = next(row for row in its if row not in mine)
        return Words(
            f"the input and the gradient given to {self.op} are of different {kind.plural}",
            expected=f"the gradient of {numbered(kind.noun, mine) if mine else f'no {kind.plural}'}, which are those "
            "that this input gives, or of some of them",
            got=f"the gradient of {numbered(kind.noun, its)}",
            fix=f"{kind.noun} {row} of the output needs {_span(self.stencil, self.role, row)} of the input: give "
            "backward what forward\nwas given, with its halo",
        )


class NoWindow(Fact):
    """Some queries attend to keys that are not here (`window`, of a dim)."""

    op: str
    inp: Value
    keys: Value
    window: Window
    role: str

    def words(self) -> Words:
        kind = DIMS[self.role]
        mine, here = (RunSet.of(value.place.named[self.role].pieces) for value in (self.inp, self.keys))
        given = self.window.given(here)
        row = next(row for row in mine if row not in given)
        needs = self.window.needs(row)
        lacks = RunSet.of(one for one in needs if one not in here)
        fix = "put the keys and values of the neighbours, the halo, together with its own first: kv = kv.combine(halo)"
        if needs[len(needs) // 2] != row:
            fix = (
                "at an edge of the grid a window does not shrink but stays inside, so it reaches further than others:\n"
                "where the first or the last rank has few rows, further than what a neighbour lends. If no halo has "
                "come at all,\nput it together with its own first: kv = kv.combine(halo)"
            )
        elif mine & given:
            fix += f".\nThe keys that are here are enough for queries of {numbered(kind.noun, mine & given)}"
        return Words(
            f"{self.op} lacks keys and values of {numbered(kind.noun, lacks)}",
            expected=f"the whole window of each query, as {kind.noun} {row} attends to {numbered(kind.noun, needs)}",
            got=f"{describe(self.inp)}; {describe(self.keys)}",
            fix=fix,
        )


def _span(stencil: Stencil, role: str, row: int) -> str:
    """The rows of the input that a row of the output needs."""
    inside = range(stencil.rows)
    return numbered(DIMS[role].noun, [one for one in stencil.needs(row) if one in inside])


class Broken(Fact):
    """An operation mixes what belongs together along a dim (`number` pieces of it), and got a part of a piece."""

    op: str
    role: str
    value: Value
    number: int
    noun: str

    def words(self) -> Words:
        things = DIMS[self.role].plural
        if self.number == 1:
            return Words(
                f"{self.op} got some of the {things}, and this layer mixes all of them",
                expected=f"all {self.value.place.named[self.role].dim.size} {things}",
                got=describe(self.value),
                fix=f"gather the {things} first; or exchange parts: some {things} of everything for all {things} of "
                "some, by an all-to-all",
            )
        return Words(
            f"{self.op} got a part of a {self.noun}, and this layer mixes all {things} of a {self.noun}",
            expected=f"the {things} of some of {self.number} {self.noun}s, each whole",
            got=describe(self.value),
            fix=f"cut along the {self.noun}s: into as many parts as divide their number",
        )


class Besides(Fact):
    """A layer that takes a weight, or one of the activations `of`, besides its input got nothing, or something else."""

    op: str
    layer: int
    kind: str
    takes: str
    of: tuple[int, ...]
    other: object

    @property
    def lacks(self) -> str:
        """Name what it takes besides, from its store."""
        return f"weights[{self.layer}]" if self.takes == "weight" else f"activations[{self.of[1]}]"

    def call(self, given: Sequence[str] = ()) -> str:
        """The call as it should be, with what it was given."""
        stored = [str(self.layer), f"activations[{self.of[0]}]", f"grad_activations[{self.layer + 1}]"]
        arguments = given or stored[: 2 if self.op == "forward" else 3]
        return f"model.{self.op}({', '.join([*arguments, self.lacks])})"

    def words(self) -> Words:
        wanted = "a weight" if self.takes == "weight" else f"activation {self.of[1]}"
        other = with_article(self.other.kind) if isinstance(self.other, Value) else None
        return Words(
            f"{self.op} of layer {self.layer} got {other or 'nothing'} where it needs {wanted}",
            expected=f"{wanted} besides its input: layer {self.layer} is of the kind {self.kind}",
            got=describe(self.other) if other else "nothing",
            fix=f"write {self.call()}" if other else f"give it one more argument: {self.call()}",
        )


class NothingBeside(Fact):
    """Something is given beside the input to a layer of a kind that takes nothing besides."""

    op: str
    kind: str
    other: object

    def words(self) -> Words:
        return Words(
            f"{self.op} of a layer of the kind {self.kind} takes neither a weight nor another activation",
            got=describe(self.other),
            fix=f"leave it out: model.{self.op}(layer, ...)",
        )


class Unweighted(Fact):
    """A layer of a kind without a weight is asked for one."""

    op: str
    layer: int
    kind: str

    def words(self) -> Words:
        return Words(
            f"layer {self.layer} is of the kind {self.kind}, which has no weight",
            expected=f"{self.op} of a layer with a weight",
            fix=f"leave out {self.op} for this layer"
            if "backward" not in self.op
            else f"write model.backward({self.layer}, ...), which gives each gradient of this layer",
        )


class Unsummed(Fact):
    """A gradient lacks batches in an update."""

    grad: WeightGrad
    batches: int

    def words(self) -> Words:
        batches = range(self.batches)
        there, missing = self.grad.batches, runs(set(batches) - self.grad.batches)
        return Words(
            f"the gradient of layer {self.grad.layer} does not have all batches yet",
            expected=f"all {self.batches} batches: {ranges(batches)}",
            got=(these("batch", there) if there else "no batches") + _missing("batch", missing),
            fix="sum the gradients of all batches first: `+` on one rank, allreduce or scatterreduce over ranks",
        )


class Lacks(Fact):
    """A gradient has all batches in an update, but only `part` of something else that it is a sum over."""

    grad: WeightGrad
    part: Part

    def words(self) -> Words:
        size, kind = self.part.dim.size, DIMS[self.part.dim.name]
        fix = kind.owed
        if self.grad.place.first.dim.counted:
            fix = f"the tokens of all {kind.plural} come to this rank's {self.grad.place.noun}s: add up the gradients"
            fix += "\nthat its backwards give, grad_weights[layer] + gradient, and update when all are there"
        return Words(
            f"the gradient of layer {self.grad.layer} is not summed over all {kind.plural} yet",
            expected=f"the sum over all {size} {kind.plural} of all batches",
            got=describe(self.grad),
            fix=fix,
        )


class Uncovered(Fact):
    """The gradient is not that of all of the weight that is to be updated."""

    grad: WeightGrad
    weight: Weight

    def words(self) -> Words:
        expected = f"a gradient of {_part(self.weight)}, or of the whole weight"
        fix = "a rank updates the shard whose gradient it has: cut both in the same way"
        if self.weight.is_complete():
            expected = "a gradient of the whole weight"
            fix = "after scatterreduce a rank has the gradient of one shard: update the shard of the weight that it "
            fix += "loaded,\nnot the gathered weight; or use allreduce, and every rank updates the whole weight"
        return Words("the gradient does not cover the weight", expected, describe(self.grad), fix)


class Stateless(Fact):
    """The optimizer state is not that of all of the weight that is to be updated."""

    state: OptState
    weight: Weight

    def words(self) -> Words:
        fix = LOAD_ALIKE + "model.load_weights(layer, model.rank, model.RANKS)"
        if self.weight.is_complete():
            fix = "update the shard of the weight that this rank loaded with its optimizer state, not the gathered\n"
            fix += "weight: model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])"
        return Words(
            "the optimizer state does not cover the weight",
            expected=f"the optimizer state of {_part(self.weight)}",
            got=describe(self.state),
            fix=fix,
        )


class OtherStep(Fact):
    """The weight and the optimizer state have had different numbers of updates."""

    weight: Weight
    state: OptState

    def words(self) -> Words:
        return Words(
            "the weight and the optimizer state are not at the same step",
            expected=f"step {self.weight.step} for both",
            got=f"the optimizer state is at step {self.state.step}",
            fix="keep both results of update, and update each layer once",
        )


class Deleted(Fact):
    """A value is asked for that was in a store under a key, and was deleted. `fix`: what to do about that alone."""

    store: int
    key: object
    number: int
    fix: str


class Missing(Fact):
    """A value is asked for that never was in a store under this key."""

    store: int
    key: object


class NotStored(Fact):
    """Something that is no value was put into a store of values of a kind, as `name`: with its key."""

    name: str
    kind: type[Value]
    thing: object

    def words(self) -> Words:
        wanted = with_article(self.kind.kind)
        return Words(f"{self.name} was given something that is not a value", wanted, describe(self.thing))
