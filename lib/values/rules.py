"""What an operation does to values: outputs for inputs, or an error that teaches.

The only copy of the rules. Model asks here while a student's function runs (unless one comparison shows that a value
fits), and check asks again, each time, when it rebuilds a Trace. Every function is pure: no clock, no store, and of a
rank only the `home` that it may give to what it makes, once nothing can go wrong any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

from lib.errors.exceptions import Fact, MismatchError, PuzzleError, RuleError, forgotten_await
from lib.errors.wording import is_awaitable, plain, with_article
from lib.record import record
from lib.values import facts
from lib.values.collectives import Collective
from lib.values.dims import DIMS, RunSet
from lib.values.kinds.kind import LayerKind, done
from lib.values.layers import Shape
from lib.values.placement import MOST, Place, Schema, keep
from lib.values.values import Activation, ActivationGrad, Home, OptState, Value, Weight, WeightGrad, made

T = TypeVar("T", bound=Value)
OPERANDS: dict[str, type[Any]] = {"weight": Weight, "activation": Activation, "": type(None)}
"""The type of what a kind of layer takes beside its input."""


def need(kind: type[T], value: Any, role: str, op: str) -> T:
    """Return the value itself if it is of the kind that an operation needs in this role.

    Operations run a million times and compare types themselves; this call is for the rare rest.
    """
    if isinstance(value, kind):
        return value
    if is_awaitable(value):
        raise forgotten_await(f"the {role} was not awaited", with_article(kind.kind), value)
    raise RuleError(facts.WrongKind(role, kind, value, op))


def need_layer(shape: Shape, layer: Any, op: str) -> int:
    """Return the layer as a plain int if the model has it."""
    if type(layer) is int and 0 <= layer < shape.layers:
        return layer
    # Such as one of numpy's integers: what Python takes as an index is a number here.
    if type(layer) is not int and type(plain(layer)) is int:
        return need_layer(shape, plain(layer), op)
    is_number = type(layer) is int
    raise RuleError(facts.NoLayer(layer, shape.layers) if is_number else facts.NotALayer(op, layer, shape.layers))


def named_layer(shape: Shape, layer: Any, op: str) -> None:
    """Check that a collective may name this layer: it may be that of activations, which go up to LAYERS."""
    if layer is not None and not (type(layer) is int and -1 <= layer <= shape.layers):
        need_layer(shape, layer, op)


def _on_layer(op: str, role: str, value: Value, layer: int, taker: int | None = None) -> None:
    if value.layer != layer:
        raise RuleError(facts.WrongLayer(op, role, value, layer, layer if taker is None else taker))


def load_weights(
    shape: Shape, layer: int, shard: int, total: int, dim: int = 0, home: Home | None = None
) -> tuple[Weight, OptState]:
    """Return the initial weight and optimizer state of a layer (step 0), or shard `shard` of `total` of both: of its
    rows (`dim` 0) or of its columns (1)."""
    if type(layer) is not int or layer not in shape.by_number:
        layer = need_layer(shape, layer, "load_weights")
    kind = shape.kinds[layer]
    try:
        # All layers of a kind load the same few places, on every rank of the run.
        place = kind.known_loads[shard, total, dim]
    except (KeyError, TypeError):  # a new one, or no numbers
        place = keep(kind.known_loads, (shard, total, dim), _loaded(shape, layer, shard, total, dim))
    return made(Weight, layer, shape.layers, place, 0, home), made(OptState, layer, shape.layers, place, 0, home)


def _loaded(shape: Shape, layer: int, shard: int, total: int, dim: int) -> Place:
    """Return the place of a shard of the weight of a layer."""
    if not (isinstance(total, int) and total >= 1 and isinstance(shard, int) and 0 <= shard < total):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RuleError(facts.NoShard(shard, total, loads=True))
    if total > MOST:
        raise RuleError(facts.TooManyShards(shard, total))
    kind = shape.kinds[layer]
    weight = kind.weight
    if weight is None:
        raise RuleError(facts.Unweighted("load_weights", layer, kind.name))
    if dim and "out" not in weight.roles:
        raise RuleError(facts.NotCut(made(Weight, layer, shape.layers, weight.whole), "out", None))
    cut = weight.spaces[weight.roles.index("out") if dim else 0]
    # Only shards of a weight's first dim may end within a row; experts stay whole, and a shard is some of them.
    if (dim or cut.counted) and cut.size % total:
        raise RuleError(facts.Undivided(None, DIMS[cut.name].plural, cut.size, total))
    if not cut.counted:
        return weight.whole.having(cut.name, cut.shard(shard, total))
    each = cut.size // total
    return weight.whole.having(cut.name, cut.piece(cut.size, RunSet.span(shard * each, (shard + 1) * each)))


def _batches(shape: Shape, batches: Iterable[int]) -> frozenset[int]:
    """Return the named batches as a set. Takes only as many as there can be, as an iterator may be endless."""
    most = 2 * shape.items + 1000  # they may be repeated; `facts.NoBatch` knows that more are cut off
    try:
        given = list(islice(batches, most + 1))
        # A step of n microbatches may ask for sets of n batches: no Python step for each plain number.
        if not {*map(type, given)} <= {int}:
            given = [*map(plain, given)]
        numbers = frozenset(given)
    except TypeError:
        raise RuleError(facts.NotBatches(batches)) from None
    if numbers and not ({*map(type, numbers)} == {int} and 0 <= min(numbers) <= max(numbers) < shape.items):
        wrong = [one for one in given if type(one) is not int or not 0 <= one < shape.items]
        if not isinstance(batches, Collection):  # of an endless one, the first will do
            numbers, wrong = frozenset(given[: given.index(wrong[0]) + 1]), wrong[:1]
        raise RuleError(facts.NoBatch(frozenset(wrong), numbers, shape.batches, shape.padding))
    if len(given) > most:
        raise RuleError(facts.EndlessBatches(shape.items, most))
    shape.activations[0].spaces[0].may_make(numbers)
    return numbers


def get_activation(shape: Shape, batches: Iterable[int]) -> Activation:
    """Return the input data of some batches: the activation of layer 0."""
    found = _batches(shape, batches)
    if not found:
        raise RuleError(facts.NothingToGet())
    return made(Activation, 0, shape.layers, shape.activations[0].held(found))


def forward(shape: Shape, layer: int, inp: Any, other: Any = None, home: Home | None = None) -> Activation:
    """Return the activation of layer + 1, of a layer's input and what its kind takes besides."""
    if type(layer) is not int or layer not in shape.by_number:
        layer = need_layer(shape, layer, "forward")
    kind, first, second = shape.by_number[layer]
    if type(inp) is not Activation or type(other) is not Weight or inp.layer != first or other.layer != second:
        _need_operands("forward", shape, layer, inp, other)
    try:
        # Places that fitted once fit again, so most calls are one look-up and no rule.
        place = kind.known[inp.place, other.place]  # pyright: ignore[reportOptionalMemberAccess]
    except (KeyError, AttributeError):  # a new pair; and None has no place
        if kind.takes != "weight":  # a weight may have come all the same
            _need_operands("forward", shape, layer, inp, other)
        place = kind.forward(inp, other)
    return made(Activation, layer + 1, shape.layers, place, 0, home)


def _need_operands(op: str, shape: Shape, layer: int, inp: Any, other: Any) -> None:
    """Check that the input, and what is given beside it, are what a layer takes."""
    need(Activation, inp, f"input of {op}", op)
    if type(other) is not OPERANDS[shape.kinds[layer].takes]:
        _need_other(op, shape, layer, inp, other)
    _on_its_layers(op, shape, layer, inp, other)


def _need_other(op: str, shape: Shape, layer: int, inp: Value, other: Any) -> None:
    """Check that what is given beside the input is of the kind that this layer takes."""
    kind = _with_weight(shape, layer, op) if op == "backward_input" else shape.kinds[layer]
    if kind.takes == "activation" and other is None:
        _on_its_layers(op, shape, layer, inp)
    if kind.takes and (other is None or (kind.takes == "activation" and type(other) in (Weight, ActivationGrad))):
        raise RuleError(facts.Besides(op, layer, kind.name, kind.takes, shape.of(layer), other))
    if kind.takes:
        need(OPERANDS[kind.takes], other, f"{kind.takes} of {op}", op)
    elif other is not None:
        raise RuleError(facts.NothingBeside(op, kind.name, other))


def _on_its_layers(op: str, shape: Shape, layer: int, inp: Value, other: Value | None = None) -> None:
    """Check that the input, and what is given beside it, belong to a layer."""
    _, first, second = shape.by_number[layer]
    if other is not None:
        _on_layer(op, f"{shape.kinds[layer].takes} of {op}", other, second, layer)
    _on_layer(op, f"input of {op}", inp, first, layer)


def loss(shape: Shape, inp: Any) -> ActivationGrad:
    """Return the gradient of the loss by the output of the last layer."""
    inp = need(Activation, inp, "input of loss", "loss")
    _on_layer("loss", "input of loss", inp, shape.layers)
    done("input of loss", inp)
    schema = shape.kinds[-1].output_gradient
    place = inp.place if inp.place.schema is schema else schema.at(inp.place.named)
    return made(ActivationGrad, shape.layers - 1, shape.layers, place)


def _back(op: str, shape: Shape, layer: int, inp: Any, grad: Any, *others: Any) -> int:
    """Return the layer as a plain int, if all that backward, or half of it, is given belongs to it."""
    layer = need_layer(shape, layer, op)
    takes = OPERANDS[shape.kinds[layer].takes]
    if inp is None and not shape.kinds[layer].keeps:  # the gradient is missing, which would do alone
        need(ActivationGrad, grad, f"gradient given to {op}", op)
    inp = need(Activation, inp, f"input of {op}", op)
    need(ActivationGrad, grad, f"gradient given to {op}", op)
    for other in others:
        if type(other) is not takes:
            _need_other(op, shape, layer, inp, other)
    _on_its_layers(op, shape, layer, inp, *others)
    _on_layer(op, f"gradient given to {op}", grad, layer)
    return layer


def backward(shape: Shape, layer: int, inp: Any, grad: Any = None, other: Any = None, home: Home | None = None) -> Any:
    """Return the gradients of a layer's weight (or other activation) and of its input, from its input, the gradient of
    its output, and what it takes besides. A kind that takes nothing besides has one gradient. A kind that does not need
    its input may be given the gradient of its output alone."""
    # An event has no holes among its values: if the input is left out, the gradient comes first.
    if type(inp) is ActivationGrad and grad is None:
        return _back_alone(shape, layer, inp)
    if type(layer) is not int or layer not in shape.by_number:
        layer = need_layer(shape, layer, "backward")
    kind, first, _ = shape.by_number[layer]
    if (
        # One test, as all of it holds in nearly every call; `_back` finds out what does not, and raises.
        type(inp) is not Activation
        or type(grad) is not ActivationGrad
        or type(other) is not Weight
        or not grad.layer == other.layer == layer
        or inp.layer != first
    ):
        _back("backward", shape, layer, inp, grad, other)
    layers = shape.layers
    try:
        besides, place = kind.known_back[inp.place, grad.place, other.place]
    except (KeyError, AttributeError):
        if kind.takes != "weight":
            _back("backward", shape, layer, inp, grad, other)
        besides, place = kind.backward("backward", inp, grad, other)
    if besides is None:
        by_besides = None
    elif type(other) is Weight:
        by_besides = made(WeightGrad, layer, layers, besides, 0, home)
    else:
        by_besides = made(ActivationGrad, other.layer - 1, layers, besides, 0, home)
    # An embedding: token numbers have no gradient.
    if place is None:
        return by_besides
    by_input = made(ActivationGrad, inp.layer - 1, layers, place, 0, home)
    return by_input if by_besides is None else (by_besides, by_input)


def _back_alone(shape: Shape, layer: int, grad: ActivationGrad) -> ActivationGrad:
    """Return the gradient of the input of a layer whose backward does not need the input."""
    layer = need_layer(shape, layer, "backward")
    kind = shape.kinds[layer]
    if kind.keeps:
        need(Activation, None, "input of backward", "backward")
    _on_layer("backward", "gradient given to backward", grad, layer)
    _, place = kind.backward("backward", grad, grad, None)
    return made(ActivationGrad, shape.of(layer)[0] - 1, shape.layers, cast("Any", place))


def backward_input(shape: Shape, layer: int, inp: Any, grad: Any, weight: Any = None) -> ActivationGrad:
    """Return the input half of backward: the gradient of the layer's input alone. A layer without a weight, as in a
    forged Trace, is refused in words."""
    layer = _back("backward_input", shape, layer, inp, grad, weight)
    _, place = _with_weight(shape, layer, "backward_input").backward("backward_input", inp, grad, weight)
    return made(ActivationGrad, inp.layer - 1, shape.layers, cast("Any", place))


def backward_weight(shape: Shape, layer: int, inp: Any, grad: Any) -> WeightGrad:
    """Return the weight half of backward: the gradient of the layer's weight, which does not need the weight."""
    layer = _back("backward_weight", shape, layer, inp, grad)
    place, _ = _with_weight(shape, layer, "backward_weight").backward("backward_weight", inp, grad, None)
    return made(WeightGrad, layer, shape.layers, cast("Any", place))


def _with_weight(shape: Shape, layer: int, op: str) -> LayerKind:
    kind = shape.kinds[layer]
    if kind.weight is None:
        raise RuleError(facts.Unweighted(op, layer, kind.name))
    return kind


def update(
    shape: Shape, layer: int, grad: Any, weight: Any, state: Any, home: Home | None = None
) -> tuple[Weight, OptState]:
    """Return a weight and its state after an optimizer step, from a gradient that has every batch once.

    Of a state that is larger than the weight, only the weight's part is updated and returned.
    """
    if type(layer) is not int or layer not in shape.by_number:
        layer = need_layer(shape, layer, "update")
    if type(grad) is not WeightGrad:
        need(WeightGrad, grad, "gradient given to update", "update")
    if type(weight) is not Weight:
        need(Weight, weight, "weight given to update", "update")
    if type(state) is not OptState:
        need(OptState, state, "optimizer state given to update", "update")
    if grad.layer != layer or weight.layer != layer or state.layer != layer:
        for value, role in ((grad, "gradient"), (weight, "weight"), (state, "optimizer state")):
            _on_layer("update", f"{role} given to update", value, layer)
    place = weight.place
    # Missing batches are looked for only here: an all-reduce cannot know that it is the last one.
    if grad.place.open or grad.place.schema is not shape.kinds[layer].weight_gradient:
        if grad.place.total_batches != shape.items or not shape.whole(grad.place.batches):
            raise RuleError(facts.Unsummed(grad, shape.batches))
        for part in grad.place.sums:  # batches that are missing are padding
            if not part.whole and part.pieces is not grad.place.batches:
                raise RuleError(facts.Lacks(grad, part))
    # An optimizer works element by element, so a gradient or a state may be larger than the weight.
    if not grad.place.complete and not grad.place.covers(place):
        raise RuleError(facts.Uncovered(grad, weight))
    if state.place is not place and not state.place.covers(place):
        raise RuleError(facts.Stateless(state, weight))
    # A stale state is a silent mistake: with real numbers the loss would only be a little worse.
    if weight.updates != state.updates:
        raise RuleError(facts.OtherStep(weight, state))
    updates, layers = weight.updates + 1, shape.layers
    return made(Weight, layer, layers, place, updates, home), made(OptState, layer, layers, place, updates, home)


def fake_grad(shape: Shape, layer: int, batches: Iterable[int]) -> WeightGrad:
    """Return a made-up gradient. Without batches it is a zero; with batches only a sandbox accepts it."""
    layer = need_layer(shape, layer, "fake_grad")
    gradient = _with_weight(shape, layer, "fake_grad").weight_gradient
    return made(WeightGrad, layer, shape.layers, cast(Schema, gradient).held(_batches(shape, batches)))


def final(shape: Shape, layer: int, weight: Any) -> tuple[()]:
    """Check the weight that a rank hands in as its final weight of a layer. Returns no values."""
    if type(layer) is not int or layer not in shape.by_number:
        layer = need_layer(shape, layer, "set_final_weight")
    if type(weight) is not Weight:
        need(Weight, weight, "final weight", "set_final_weight")
    if weight.layer != layer:
        _on_layer("set_final_weight", "final weight", weight, layer)
    return ()


def bring(row: Collective, value: Any, layer: Any, members: int, place: int = 0) -> None:
    """Check that the member at a place may bring this value to this collective."""
    if row.many:
        if is_awaitable(value):
            need(Value, value, f"list given to {row.name}", row.name)
        brought = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()
        if row.bucket and not brought:
            raise RuleError(facts.NoBucket(row, cast("object", value)))
        if not row.bucket and (not brought or len(brought) != row.takes(place, members)):
            raise RuleError(facts.NotOneForEach(row, cast("object", value), len(brought), members, place))
    else:
        brought = (value,)
    for item in brought:
        if not isinstance(item, Value):
            need(Value, item, f"first argument of {row.name}", row.name)
        # Only numbers are compared: numpy's arrays, for one, answer a comparison with an array.
        other = item.layer != layer if type(layer) is int or isinstance(layer, int | float) else True
        # An activation lies between two layers and may be named by either, so only weights' tensors are checked.
        if other and item.place.sharded and not row.bucket:
            raise RuleError(facts.ToldLayer(row.name, item, layer))


@record(frozen=False)
class Member:
    """One member's part in a collective: its rank, what it called, with what."""

    rank: int
    op: str
    layer: int | None
    value: Any
    said: int
    group: tuple[int, ...] = ()


def agree(members: Sequence[Member | None]) -> None:
    """Check that all members that have joined called the same collective of the same layer. MismatchError names the
    first two that differ."""
    first, *others = [m for m in members if m is not None]
    kind = cast("type[Any]", type(first.value))
    said = first.op, first.layer, first.said, kind, first.group
    for other in others:
        if (other.op, other.layer, other.said, type(other.value), other.group) != said:
            raise _between(facts.Disagree(first, other), first, other)


def _between(fact: Fact, one: Member, other: Member) -> MismatchError:
    error = MismatchError(fact)
    error.ranks = (one.rank, other.rank)
    return error


def collective(row: Collective, members: Sequence[Member]) -> list[Any]:
    """Return what each member gets, in the order of the group. MismatchError names two that differ."""
    agree(members)
    return agreed(row, [member.value for member in members], members[0].said, lambda: members)


def agreed(row: Collective, values: Sequence[Any], said: int, members: Callable[[], Sequence[Any]]) -> list[Any]:
    """Return what each member gets, in the order of the group, if all have called the same."""
    try:
        return row.results(values, said)
    except PuzzleError as error:
        raise _spread(error, row, members()) from None


def _spread(error: PuzzleError, row: Collective, members: Sequence[Member]) -> PuzzleError:
    """Return the error of a law with the two ranks between which it arose."""
    # The law was applied to all values at once, so its error does not name ranks.
    for member in members:
        try:
            row.law(member.value)
        except PuzzleError as own:  # its value is wrong by itself
            own.rank = member.rank
            return own
    for at, to in row.pairs([member.value for member in members], members[0].said):
        one, other = members[at], members[to]
        try:
            row.law(one.value, other.value)
        except PuzzleError as pair:
            return _between(facts.Unlawful(row, one, other, pair.fact or pair.words()), one, other)
    return error
