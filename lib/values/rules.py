"""What one operation may do to values: from inputs to outputs, or an error that teaches.

The only copy of the rules. Model asks here while a student's function runs, and check asks here again when it rebuilds
a Trace from nothing. Every function is pure: no clock, no rank, no store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from lib.errors.arguments import is_awaitable, plain, written
from lib.errors.exceptions import MismatchError, PuzzleError, RuleError
from lib.errors.forgotten_await import forgotten_await
from lib.errors.wording import numbers, plural, these, with_article
from lib.values.collectives import COLLECTIVES, Collective
from lib.values.regions import MOST, WHOLE, listed
from lib.values.values import (
    Activation,
    ActivationGrad,
    OptState,
    Value,
    Weight,
    WeightGrad,
    covers,
    describe,
    region,
    subject,
    too_many_shards,
)

__all__ = [
    "Shape",
    "backward",
    "collective",
    "fake_grad",
    "final",
    "forward",
    "get_activation",
    "load_weights",
    "loss",
    "update",
]

T = TypeVar("T", bound=Value)
SHOWN = 40
"""Batches that a message lists."""
REPEATED, SOME = 2, 1000
"""Whoever gives batches may repeat them: as often as this, and as many more."""


class Shape(NamedTuple):
    """The size of the training step: layers of the model, batches of the step."""

    layers: int
    batches: int


def need(kind: type[T], value: Any, role: str, op: str) -> T:
    """The value itself if it is of the kind that an operation needs in this role.

    The operations look at the type themselves first: they run a million times, and this call is for the rare rest.
    """
    if isinstance(value, kind):
        return value
    wanted = with_article(kind.kind)
    if is_awaitable(value):
        raise forgotten_await(f"the {role} was not awaited", wanted, value)
    error = RuleError(
        f"the {role} is not {wanted}",
        expected=wanted,
        got=describe(value),
        fix="check the order of the arguments and the store that you took it from",
    )
    error.clue = ("kind", kind, op, value)
    raise error


def need_layer(shape: Shape, layer: Any, op: str) -> int:
    """The layer as a plain int if the model has it."""
    if type(layer) is int and 0 <= layer < shape.layers:
        return layer
    if type(layer) is not int and type(plain(layer)) is int:
        return need_layer(shape, plain(layer), op)
    if type(layer) is int:
        raise RuleError(
            f"there is no layer {written(layer)}",
            expected=f"a layer from 0 to {shape.layers - 1}",
            got=f"layer {written(layer)}",
            fix="layers are counted from 0; the last one is model.LAYERS - 1",
        )
    error = RuleError(
        "the layer is not a whole number", expected=f"a layer from 0 to {shape.layers - 1}", got=describe(layer)
    )
    error.clue = ("kind", None, op, layer)
    raise error


def named_layer(shape: Shape, layer: Any, op: str) -> None:
    """Whether a collective may name this layer: it may be of activations too, which go up to LAYERS."""
    if layer is not None and not (type(layer) is int and -1 <= layer <= shape.layers):
        need_layer(shape, layer, op)


def _on_layer(value: Value, layer: int, role: str, hint: str) -> None:
    if value.layer != layer:
        error = RuleError(
            f"the {role} belongs to another layer",
            expected=f"the {subject(value.kind, layer)}",
            got=describe(value),
            fix=hint,
        )
        error.clue = ("layer", value, layer)
        raise error


def _complete(weight: Weight) -> None:
    if not weight.is_complete():
        missing = (WHOLE - region(weight)).shards(weight.total) or ()
        error = RuleError(
            f"the weight of layer {weight.layer} is not complete",
            expected=f"all {weight.total} shards",
            got=f"{these('shard', weight.shards)} of {weight.total}; {{{listed(missing)}}} missing",
            fix='gather its shards first: weights[layer, "full"] = await model.allgather(weights[layer], layer)',
        )
        error.clue = ("incomplete", weight)
        raise error


def load_weights(shape: Shape, layer: int, shard: int, total: int) -> tuple[Weight, OptState]:
    """The initial weight and optimizer state of a layer (step 0), or shard `shard` of `total` of both."""
    layer = need_layer(shape, layer, "load_weights")
    if not (isinstance(total, int) and total >= 1 and isinstance(shard, int) and 0 <= shard < total):  # pyright: ignore[reportUnnecessaryIsInstance]
        error = RuleError(
            f"there is no shard {written(shard)} of {written(total)}",
            expected="total >= 1" if type(total) is not int or total < 1 else f"a shard from 0 to {written(total - 1)}",
            got=f"shard {describe(shard).removeprefix('the number ')}",
            fix="cut a weight into as many shards as ranks share it, and give each rank its own:\n"
            "model.load_weights(layer, model.rank, model.RANKS)",
        )
        lead = "cut a weight into as many shards as ranks share it, and give each rank its own:\n"
        error.clue = ("shard", lead, total)
        raise error
    if total > MOST:
        raise too_many_shards(shard, total)
    shards = frozenset([shard])
    return Weight(layer, shape.layers, 0, shards, total), OptState(layer, shape.layers, 0, shards, total)


def _batches(shape: Shape, batches: Iterable[int]) -> frozenset[int]:
    """The batches that are asked for. Takes no more of them than there can be, and few of those that there are not."""
    most = REPEATED * shape.batches + SOME
    found: set[Any] = set()
    wrong: set[Any] = set()
    try:
        for number, item in enumerate(batches):
            batch = plain(item)
            found.add(batch)
            if type(batch) is not int or not 0 <= batch < shape.batches:
                wrong.add(batch)
                if len(wrong) > SHOWN or not isinstance(batches, Collection):
                    break
            if number >= most:
                raise _endless(shape, most)
    except TypeError:
        raise RuleError(
            "batches are given as a list or a set of numbers",
            expected="for instance [0] or range(model.BATCHES)",
            got=describe(batches),
            fix="for a single batch write [batch]",
        ) from None
    if wrong:
        error = RuleError(
            f"there is no batch {_some(wrong)}",
            expected=f"batches from 0 to {shape.batches - 1}",
            got=f"{plural('batch', len(found))} {_some(found)}",
            fix="batches are counted from 0; the last one is model.BATCHES - 1",
        )
        error.clue = ("batch",)
        raise error
    return frozenset(found)


def _some(items: Iterable[Any]) -> str:
    """The first of some things, in order."""
    numbers_first = sorted(items, key=lambda item: (not isinstance(item, int), item if isinstance(item, int) else 0))
    words = [written(item) for item in numbers_first]
    return ", ".join(words[:SHOWN]) + (", ..." if len(words) > SHOWN else "")


def _endless(shape: Shape, most: int) -> RuleError:
    return RuleError(
        "the batches do not come to an end",
        expected=f"each of the {shape.batches} batches once",
        got=f"more than {most} items",
        fix="give a list, a set or a range: range(model.BATCHES) are all batches",
    )


def get_activation(shape: Shape, batches: Iterable[int]) -> Activation:
    """The input data of some batches: the activation of layer 0."""
    found = _batches(shape, batches)
    if not found:
        raise RuleError("there are no batches to get", expected="at least one batch", got="none", fix="name a batch")
    return Activation(0, shape.layers, found, shape.batches)


def forward(shape: Shape, layer: int, inp: Any, weight: Any) -> Activation:
    """Layer `layer` on its input: the activation of layer + 1, for the same batches."""
    layer = need_layer(shape, layer, "forward")
    if type(inp) is not Activation:
        need(Activation, inp, "input of forward", "forward")
    if type(weight) is not Weight:
        need(Weight, weight, "weight of forward", "forward")
    if weight.layer != layer:
        _on_layer(weight, layer, "weight of forward", f"use the weight of layer {layer}, or run layer {weight.layer}")
    if inp.layer != layer:
        before = f"activation {layer}, which forward({layer - 1}, ...) gave" if layer else "the data"
        _on_layer(inp, layer, "input of forward", f"layer {layer} works on {before}")
    if len(weight.shards) != weight.total:
        _complete(weight)
    return Activation(layer + 1, shape.layers, inp.batches, shape.batches)


def loss(shape: Shape, inp: Any) -> ActivationGrad:
    """The gradient of the loss by the output of the last layer."""
    inp = need(Activation, inp, "input of loss", "loss")
    if inp.layer != shape.layers:
        _on_layer(inp, shape.layers, "input of loss", f"run forward up to layer {shape.layers - 1} first")
    return ActivationGrad(shape.layers - 1, shape.layers, inp.batches, shape.batches)


def backward(shape: Shape, layer: int, inp: Any, grad: Any, weight: Any) -> tuple[WeightGrad, ActivationGrad]:
    """Layer `layer` backwards: from its input, the gradient of its output and its weight to the gradients of both."""
    layer = need_layer(shape, layer, "backward")
    if type(inp) is not Activation:
        need(Activation, inp, "input of backward", "backward")
    if type(grad) is not ActivationGrad:
        need(ActivationGrad, grad, "gradient given to backward", "backward")
    if type(weight) is not Weight:
        need(Weight, weight, "weight of backward", "backward")
    if weight.layer != layer:
        _on_layer(weight, layer, "weight of backward", f"use the weight of layer {layer}, or run layer {weight.layer}")
    if inp.layer != layer:
        _on_layer(
            inp, layer, "input of backward", f"use activation {layer}, the one that went into forward({layer}, ...)"
        )
    if grad.layer != layer:
        hint = f"take the gradient of activation {layer + 1}, which backward({layer + 1}, ...) gave"
        last = f"backward({layer}, ...) is the first one: it takes the gradient that loss gave"
        _on_layer(grad, layer, "gradient given to backward", last if layer == shape.layers - 1 else hint)
    if inp.batches != grad.batches:
        error = RuleError(
            "input and gradient of backward are of different batches",
            expected=f"the gradient of {these('batch', inp.batches)}, as the input",
            got=f"the gradient of {these('batch', grad.batches)}",
            fix="take the input of the same batch; messages arrive in the order in which they were passed,\n"
            "so both ranks have to go through the batches in the same order",
        )
        error.clue = ("other batch", inp, grad)
        raise error
    if len(weight.shards) != weight.total:
        _complete(weight)
    return (
        WeightGrad(layer, shape.layers, inp.batches, shape.batches),
        ActivationGrad(layer - 1, shape.layers, inp.batches, shape.batches),
    )


def update(shape: Shape, layer: int, grad: Any, weight: Any, state: Any) -> tuple[Weight, OptState]:
    """The optimizer's step: a weight and its state, one step on, from a gradient that has every batch once.

    Of a state that is more than the weight, only the part that the weight is goes one step on, and is given back.
    """
    layer = need_layer(shape, layer, "update")
    if type(grad) is not WeightGrad:
        need(WeightGrad, grad, "gradient given to update", "update")
    if type(weight) is not Weight:
        need(Weight, weight, "weight given to update", "update")
    if type(state) is not OptState:
        need(OptState, state, "optimizer state given to update", "update")
    if grad.layer != layer or weight.layer != layer or state.layer != layer:
        for value, role in ((grad, "gradient"), (weight, "weight"), (state, "optimizer state")):
            _on_layer(
                value, layer, f"{role} given to update", f"update({layer}, ...) takes everything of layer {layer}"
            )
    if len(grad.batches) != shape.batches or grad.total_batches != shape.batches:
        missing = set(range(shape.batches)) - grad.batches
        error = RuleError(
            f"the gradient of layer {layer} does not have all batches yet",
            expected=f"all {shape.batches} batches: {numbers(range(shape.batches))}",
            got=f"batches {numbers(grad.batches)}; {numbers(missing)} missing",
            fix="sum the gradients of all batches first: `+` on one rank, allreduce or scatterreduce over ranks",
        )
        error.clue = ("unsummed", grad)
        raise error
    if not covers(grad, weight):
        raise _uncovered(grad, weight)
    if not covers(state, weight):
        raise _stateless(state, weight)
    if weight.step != state.step:
        raise RuleError(
            "the weight and the optimizer state are not at the same step",
            expected=f"step {weight.step} for both",
            got=f"the optimizer state is at step {state.step}",
            fix="keep both results of update, and update each layer once",
        )
    step = weight.step + 1
    return (
        Weight(layer, shape.layers, step, weight.shards, weight.total),
        OptState(layer, shape.layers, step, weight.shards, weight.total),
    )


def _part(value: Weight) -> str:
    """Which part of a weight a value is: "shard 0 of 4"."""
    return "the whole weight" if value.is_complete() else f"{these('shard', value.shards)} of {value.total}"


def _uncovered(grad: WeightGrad, weight: Weight) -> RuleError:
    fix = "a rank updates the shard whose gradient it has: load_weights and scatterreduce must cut alike"
    if weight.is_complete():
        fix = (
            "after scatterreduce a rank has the gradient of one shard: update the shard of the weight that it loaded,\n"
        )
        fix += "not the gathered weight; or use allreduce, and every rank updates the whole weight"
    return RuleError(
        "the gradient does not cover the weight",
        expected=f"a gradient of {_part(weight)}" + ("" if weight.is_complete() else ", or of the whole weight"),
        got=describe(grad),
        fix=fix,
    )


def _stateless(state: OptState, weight: Weight) -> RuleError:
    lead = (
        "load both with one call, and update a shard of the weight with the same shard of the state:\n"
        "weights[layer], opt_states[layer] = "
    )
    error = RuleError(
        "the optimizer state does not cover the weight",
        expected=f"the optimizer state of {_part(weight)}",
        got=describe(state),
        fix=lead + "model.load_weights(layer, model.rank, model.RANKS)",
    )
    if weight.is_complete():
        error.fix = (
            "update the shard of the weight that this rank loaded with its optimizer state, not the gathered\n"
            "weight: "
            "model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])"
        )
    else:
        error.clue = ("shard", lead, weight.total)
    return error


def fake_grad(shape: Shape, layer: int, batches: Iterable[int]) -> WeightGrad:
    """A made-up gradient. Without batches it is a zero contribution; with batches only a sandbox accepts it."""
    return WeightGrad(need_layer(shape, layer, "fake_grad"), shape.layers, _batches(shape, batches), shape.batches)


def final(shape: Shape, layer: int, weight: Any) -> Weight:
    """The weight that a rank hands in as its final weight of a layer."""
    layer = need_layer(shape, layer, "set_final_weight")
    weight = need(Weight, weight, "final weight", "set_final_weight")
    if weight.layer != layer:
        _on_layer(weight, layer, "final weight", f"hand it in as what it is: set_final_weight({weight.layer}, ...)")
    return weight


def bring(row: Collective, value: Any, layer: Any, members: int) -> None:
    """Whether one member may bring this value to this collective."""
    if row.many:
        if is_awaitable(value):
            need(Value, value, f"list given to {row.name}", row.name)
        brought = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()
        if len(brought) != members:
            raise RuleError(
                f"an {row.title} takes one value for each of the {members} members",
                expected=f"a list of {members} values, in the order of the group",
                got=f"{len(brought)} values" if brought else describe(cast("object", value)),
                fix="value number i goes to member number i",
            )
    else:
        brought = (value,)
    for item in brought:
        need(Value, item, f"first argument of {row.name}", row.name)
        if isinstance(item, Weight | OptState | WeightGrad) and item.layer != layer:
            raise RuleError(
                f"{row.name} was told layer {layer}, but the value is of another layer",
                expected=f"a value of layer {layer}",
                got=describe(item),
                fix=f"say the layer of the value, which is {item.layer}, or bring the value of layer {layer}",
            )


class Member(NamedTuple):
    """One member's part in a collective: its rank, what it called, with what."""

    rank: int
    op: str
    layer: int | None
    value: Any
    root: int
    group: tuple[int, ...] = ()


def agree(members: Sequence[Member | None]) -> None:
    """Whether those who have joined called the same collective of the same layer. Names the first two that differ."""
    joined = [m for m in members if m is not None]
    first = joined[0]
    for other in joined[1:]:
        if (first.op, first.layer, first.root, first.group) != (other.op, other.layer, other.root, other.group):
            raise _mismatch(first, other)
        if type(first.value) is not type(other.value):
            raise _mismatch(first, other)


def _call(member: Member, beside: Member) -> str:
    what = describe(member.value) if isinstance(member.value, Value) else type(member.value).__name__
    root = f", root={member.root}" if COLLECTIVES[member.op].rooted else ""
    group = "" if member.group == beside.group else f", group={list(member.group)}"
    return f"{member.op}(layer={member.layer}{root}{group}) with {with_article(what)}"


def _mismatch(first: Member, other: Member) -> MismatchError:
    fix = "every rank must make the same collective calls in the same order; look for one that is skipped or extra"
    if first.op != other.op:
        but, same = "call different ones", "the same operation"
    elif first.layer != other.layer:
        but, same = "for different layers", "the same layer"
    elif first.group != other.group:
        but, same = "name its group in different orders", "the same order of ranks"
        fix = "write the group alike on every rank: as an axis of the mesh, or as one list of ranks; its order says\n"
        fix += "whose shard is which"
    elif first.root != other.root:
        but, same = "with different roots", "the same root"
        what = (COLLECTIVES[first.op].root or ("",))[0]
        fix = f"the root is the rank {what}: name the same one on every rank"
    else:
        but, same = "with different kinds of value", "the same kind of value"
        fix = "bring the value of the same store on every rank"
    error = MismatchError(
        f"ranks {first.rank} and {other.rank} meet in a collective, but {but}",
        expected=f"{same} from every member of the group",
        got=f"rank {first.rank}: {_call(first, other)}\nrank {other.rank}: {_call(other, first)}",
        fix=fix,
    )
    error.ranks = (first.rank, other.rank)
    if first.layer != other.layer or first.op != other.op:
        error.clue = ("meeting", first, other)
    return error


def collective(row: Collective, members: Sequence[Member]) -> list[Any]:
    """What each member gets, in the order of the group; or a MismatchError that names the two who differ."""
    first = members[0]
    op, layer, root, kind = first.op, first.layer, first.root, cast("type[Any]", type(first.value))
    group = first.group
    for m in members:
        if (
            m.op != op
            or m.layer != layer
            or m.root != root
            or type(m.value) is not kind
            or (m.group is not group and m.group != group)
        ):
            agree(members)
    try:
        return row.results([m.value for m in members], root)
    except PuzzleError as error:
        raise _spread(error, row, members) from None


def _spread(error: PuzzleError, row: Collective, members: Sequence[Member]) -> PuzzleError:
    """The law's own complaint, with the names of the two ranks between which it arose."""
    values = [member.value for member in members]
    if not _fits(row, values[0]):
        return error  # what one brings is wrong by itself
    for one, other in row.pairs(values, members[0].root):
        left, right = members[one], members[other]
        try:
            row.law(left.value, right.value)
        except PuzzleError as pair:
            found = MismatchError(
                f"the {row.title} of layer {left.layer} cannot be done: {pair.what}",
                expected=pair.expected,
                got=f"rank {left.rank}: {describe(left.value)}\nrank {right.rank}: {describe(right.value)}",
                fix=pair.fix,
            )
            found.ranks, found.clue = (left.rank, right.rank), pair.clue
            return found
    return error


def _fits(row: Collective, value: Any) -> bool:
    """Whether a value can be brought to a collective at all, whatever the others bring."""
    try:
        row.law(value)
    except PuzzleError:
        return False
    return True
