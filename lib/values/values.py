"""What a rank can hold: weights, optimizer states, activations and their gradients, as metadata without numbers.

Values are immutable. Two laws do everything that happens to them:

- **gather** (`combine`): the union over the set along which a value is *split* (shards), all else equal;
- **reduce** (`+`): the *disjoint* union over the set over which it is *summed* (batches), all else equal.

`shard` undoes a gather. Sizes are in elements: a weight, its gradient and its optimizer state have HIDDEN x HIDDEN
elements a layer, an activation and its gradient LENGTH x HIDDEN elements a batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import FrozenInstanceError, dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol, TypeVar, cast

from lib.errors.arguments import is_awaitable, plain, written
from lib.errors.exceptions import PuzzleError, RuleError
from lib.errors.forgotten_await import forgotten_await
from lib.errors.wording import numbers, runs, these, with_article
from lib.values.regions import MOST, Interval, Region

__all__ = [
    "HIDDEN",
    "KINDS",
    "LENGTH",
    "Activation",
    "ActivationGrad",
    "Elements",
    "OptState",
    "Value",
    "Weight",
    "WeightGrad",
    "covers",
    "gather",
    "numbers",
    "reduce",
]

HIDDEN = 512
LENGTH = 256
WEIGHT_ELEMENTS = HIDDEN * HIDDEN
BATCH_ELEMENTS = HIDDEN * LENGTH

Elements = int | Fraction
ONE_SHARD = frozenset([0])
# The one name a class has for the outside, as in `print(type(weight))`: where it is exported from.
PUBLIC = "lib"


class Home(Protocol):
    """Where a value lives: one rank's record of its program, which wants to know what is made of its values."""

    def derive(self, op: str, inputs: tuple[Value, ...], output: Any, arg: tuple[int, ...] = ()) -> Any: ...

    def blame(self, error: PuzzleError) -> PuzzleError: ...


class Value:
    """Anything a store can hold. `mark` is (home, id) once a rank has it, and None for a value made by hand."""

    __slots__ = ("mark",)
    __match_args__: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = "value"
    layer: int
    layers: int
    mark: tuple[Any, int] | None

    def elements(self) -> Elements:
        """Size in elements, exactly: an int wherever the shards divide the weight evenly."""
        raise NotImplementedError

    def memory(self) -> float:
        """Size in elements, as the figures print it."""
        return float(self.elements())

    def is_complete(self) -> bool:
        """Whether all shards are here. Values that have no shards always are."""
        return True

    def combine(self: V, other: V) -> V:
        """Gather: this value and `other`, which holds other shards of the same thing."""
        return _derive("combine", gather, self, other)

    def __add__(self: V, other: V) -> V:
        """Reduce: the sum of two weight gradients. Other kinds of value are refused, with the reason."""
        return _derive("add", reduce, self, other)

    def shard(self: V, shard: int, total: int) -> V:
        """Shard number `shard` of `total` equal ones, cut from a complete value."""
        return _derive("shard", cut, self, plain(shard), plain(total))

    # Not dataclass(frozen=True): with slots its __setattr__ only knows the fields, and values are made through the
    # slots' own descriptors anyway (see the end of the classes).
    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}: values never change, operations make new ones")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}: values never change")

    def __copy__(self: V) -> V:
        return self

    def __deepcopy__(self: V, memo: object) -> V:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), fields_of(self)

    def __repr__(self) -> str:
        parts: list[str] = []
        for name, item in zip(self.__match_args__, fields_of(self), strict=True):
            parts.append(f"{name}={_set_repr(cast('frozenset[int]', item)) if isinstance(item, frozenset) else item}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __str__(self) -> str:
        return describe(self)


V = TypeVar("V", bound=Value)


def _frozen(items: Iterable[int]) -> frozenset[int]:
    return frozenset(items)


def _set_repr(items: Iterable[int]) -> str:
    inside = ", ".join(map(str, sorted(items)))
    return f"frozenset({{{inside}}})" if inside else "frozenset()"


class _Sharded(Value):
    """A value with one weight's shape, split into `total` shards of which `shards` are here."""

    __slots__ = ()
    shards: frozenset[int]
    total: int

    def elements(self) -> Elements:
        size = WEIGHT_ELEMENTS * len(self.shards)
        return size // self.total if size % self.total == 0 else Fraction(size, self.total)

    def is_complete(self) -> bool:
        return len(self.shards) == self.total


@dataclass(unsafe_hash=True, slots=True, init=False, repr=False)
class _Stepped(_Sharded):
    """A sharded value that changes once a training step: `step` counts the updates it has had."""

    layer: int
    layers: int
    step: int
    shards: frozenset[int]
    total: int

    def __init__(self, layer: int, layers: int, step: int, shards: Iterable[int] = ONE_SHARD, total: int = 1) -> None:
        _stepped[0](self, layer)
        _stepped[1](self, layers)
        _stepped[2](self, step)
        _stepped[3](self, shards if type(shards) is frozenset else _frozen(shards))
        _stepped[4](self, total)
        SET_MARK(self, None)


class Weight(_Stepped):
    """The weights of one layer (HIDDEN x HIDDEN elements), or some shards of them.

    `shards` of `total` are here; forward and backward need all of them.
    """

    __module__ = PUBLIC
    __slots__ = ()
    kind = "weight"


class OptState(_Stepped):
    """The optimizer's state of one layer, as large as its weight (one moment, as in SGD with momentum)."""

    __module__ = PUBLIC
    __slots__ = ()
    kind = "optimizer state"


@dataclass(unsafe_hash=True, slots=True, init=False, repr=False)
class _Batched(Value):
    """A value with one activation's shape for each of `batches` out of `total_batches`."""

    layer: int
    layers: int
    batches: frozenset[int]
    total_batches: int

    def __init__(self, layer: int, layers: int, batches: Iterable[int], total_batches: int) -> None:
        _batched[0](self, layer)
        _batched[1](self, layers)
        _batched[2](self, batches if type(batches) is frozenset else _frozen(batches))
        _batched[3](self, total_batches)
        SET_MARK(self, None)

    def elements(self) -> Elements:
        return BATCH_ELEMENTS * len(self.batches)


class Activation(_Batched):
    """The input of layer `layer` (LENGTH x HIDDEN elements a batch); layer 0 is the data, layer LAYERS the output."""

    __module__ = PUBLIC
    __slots__ = ()
    kind = "activation"


class ActivationGrad(_Batched):
    """The gradient of the loss by the *output* of layer `layer` (LENGTH x HIDDEN elements a batch)."""

    __module__ = PUBLIC
    __slots__ = ()
    kind = "activation gradient"


@dataclass(unsafe_hash=True, slots=True, init=False, repr=False)
class WeightGrad(_Sharded):
    """The gradient of the loss by one layer's weight, summed over `batches` (HIDDEN x HIDDEN elements, or shards)."""

    __module__ = PUBLIC
    kind = "weight gradient"
    layer: int
    layers: int
    batches: frozenset[int]
    total_batches: int
    shards: frozenset[int]
    total: int

    def __init__(
        self,
        layer: int,
        layers: int,
        batches: Iterable[int],
        total_batches: int,
        shards: Iterable[int] = ONE_SHARD,
        total: int = 1,
    ) -> None:
        _weight_grad[0](self, layer)
        _weight_grad[1](self, layers)
        _weight_grad[2](self, batches if type(batches) is frozenset else _frozen(batches))
        _weight_grad[3](self, total_batches)
        _weight_grad[4](self, shards if type(shards) is frozenset else _frozen(shards))
        _weight_grad[5](self, total)
        SET_MARK(self, None)


SET_MARK: Any = Value.__dict__["mark"].__set__
"""Writes where a value lives, as (home, id). Only the record of a rank does this, once for each value."""


KINDS: dict[str, type[Value]] = {cls.kind: cls for cls in (Weight, OptState, Activation, ActivationGrad, WeightGrad)}
"""The five kinds of value by name, in the order of the stores."""


# Values are made by the hundred thousand. Writing through the slots' own descriptors passes by the __setattr__ that
# refuses, at half the price of object.__setattr__.
def _setters(cls: type[Value], *names: str) -> tuple[Any, ...]:
    return tuple(cls.__dict__[name].__set__ for name in names)


_stepped = _setters(_Stepped, "layer", "layers", "step", "shards", "total")
_batched = _setters(_Batched, "layer", "layers", "batches", "total_batches")
_weight_grad = _setters(WeightGrad, "layer", "layers", "batches", "total_batches", "shards", "total")


def fields_of(value: Value) -> tuple[Any, ...]:
    """The public fields of a value, in the order its class takes them."""
    return tuple(getattr(value, name) for name in value.__match_args__)


def describe(value: object) -> str:
    """One short English phrase for a value: "weight gradient of layer 1, batches {0-2}, shard {3} of 4"."""
    if not isinstance(value, Value):
        return _describe_other(value)
    parts = [subject(value.kind, value.layer)]
    if isinstance(value, _Batched | WeightGrad):
        parts.append(f"batches {numbers(value.batches)}")
    if isinstance(value, _Sharded) and value.total > 1:
        parts.append(f"shards {numbers(value.shards)} of {value.total}")
    if isinstance(value, _Stepped) and value.step:
        parts.append(f"step {value.step}")
    return ", ".join(parts)


def _describe_other(thing: object) -> str:
    """What stands where a value belongs, in few words: a whole store would fill the screen."""
    if isinstance(thing, int | float) and not isinstance(thing, bool):
        return f"the number {written(thing)}"
    if isinstance(thing, tuple | list):
        items, name = cast("Sequence[object]", thing), "tuple" if isinstance(thing, tuple) else "list"
        inside = "; ".join(describe(item) for item in items[:3]) + ("; ..." if len(items) > 3 else "")
        return f"a {name} of {len(items)}" + (f": {inside}" if items else "")
    if isinstance(thing, dict):
        name = getattr(cast("object", thing), "name", None)
        return "a whole dict" if name is None else f"the whole store {name}"
    if callable(thing) and (called := getattr(thing, "__name__", None)) is not None:
        return f"{called} itself, which is not called"
    if hasattr(type(thing), "__await__"):
        return f"what {getattr(thing, '__name__', 'a call')} returned, which is not awaited"
    text = re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(thing))  # no two runs have the same addresses
    return text if thing is None else f"{type(thing).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def subject(kind: str, layer: int) -> str:
    """A kind of value of a layer, in words: "weight of layer 1".

    The gradient by a layer's output is named after the activation that it belongs to, which the next layer takes: there
    is no layer -1 to speak of.
    """
    return f"gradient of activation {layer + 1}" if kind == ActivationGrad.kind else f"{kind} of layer {layer}"


def gather(*values: V) -> V:
    """The first law: the union over the split set, all else equal. The sets must not overlap.

    Split are the shards of a weight, of its gradient and of its optimizer state, and the batches of activations.
    """
    first = values[0]
    for other in values[1:]:
        _same_kind("gather", first, other)
        _same("gather", first, other, "layer")
        if isinstance(first, _Sharded):
            _same("gather", first, other, "total")
            _same("gather", first, other, "batches" if isinstance(first, WeightGrad) else "step")
    if isinstance(first, _Sharded):
        return _with(first, shards=_union("gather", values, "shards"))
    return _with(first, batches=_union("gather", values, "batches"))


def reduce(*values: V) -> V:
    """The second law: the disjoint union over the summed set, all else equal. Only weight gradients are summed."""
    first = values[0]
    if not isinstance(first, WeightGrad):
        raise RuleError(
            f"{with_article(first.kind)} is not something to sum"
            if isinstance(first, Value)  # pyright: ignore[reportUnnecessaryIsInstance]
            else f"{first!r} is not something to sum",
            expected="weight gradients: the only values that are sums over batches",
            got=describe(first),
            fix=_instead_of_a_sum(first),
        )
    shards = first.shards
    for other in values[1:]:
        if type(other) is WeightGrad and other.layer == first.layer and other.total == first.total:
            if other.shards is shards or other.shards == shards:
                continue
            _same("sum", first, other, "shards")
        _same_kind("sum", first, other)
        _same("sum", first, other, "layer")
        _same("sum", first, other, "total")
    batches = _union("sum", values, "batches")
    return WeightGrad(first.layer, first.layers, batches, first.total_batches, shards, first.total)  # type: ignore[return-value]


def _instead_of_a_sum(value: object) -> str:
    if isinstance(value, Weight | OptState):
        return "sum the gradients before the update: then the weights are the same on all ranks\n" + (
            "to put the shards of a weight together, use an all-gather"
        )
    if isinstance(value, ActivationGrad):
        return "the gradient of an activation stays with its batch; sum the gradient of the weight: grad_weights[layer]"
    if isinstance(value, _Batched):
        return "keep each batch under a key of its own; what is summed over batches is the gradient of a weight"
    return "take the weight gradient itself: grad_weights[layer]"


def cut(value: V, shard: int, total: int) -> V:
    """Shard `shard` of `total` of a complete value."""
    if not isinstance(value, _Sharded):
        raise RuleError(
            f"{with_article(value.kind)} has no shards", fix="shard weights, their gradients or optimizer states"
        )
    if not (isinstance(shard, int) and isinstance(total, int) and 0 <= shard < total):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RuleError(
            f"there is no shard {written(shard)} of {written(total)}",
            expected="total >= 1"
            if type(total) is not int or total < 1
            else f"a shard number from 0 to {written(total - 1)}",
            fix="shards are counted from 0; a rank's own shard is usually its place in the group",
        )
    if not value.is_complete():
        raise RuleError(
            "only a complete value can be cut into shards",
            expected=f"all {value.total} shards of layer {value.layer}",
            got=describe(value),
            fix="gather the shards first",
        )
    if total > MOST:
        raise too_many_shards(shard, total)
    return _with(value, shards=frozenset([shard]), total=total)


def too_many_shards(shard: int, total: int) -> RuleError:
    """A weight is cut into more shards than there may be."""
    return RuleError(
        f"{written(total)} shards are too many",
        expected=f"a weight cut into at most {MOST} shards: a Trace file holds no more",
        got=f"shard {written(shard)} of {written(total)}",
        fix="cut a weight into as many shards as ranks share it",
    )


def covers(outer: _Sharded, inner: _Sharded) -> bool:
    """Whether every element of `inner` lies in `outer`, whatever each is cut into."""
    if outer.is_complete():
        return True
    if outer.total == inner.total:
        return inner.shards <= outer.shards
    return region(inner) <= region(outer)


def overlap(left: Value, right: Value) -> bool:
    """Whether two values of one kind and layer have an element in common (of the weight, or of the batches)."""
    if isinstance(left, _Batched) and isinstance(right, _Batched):
        return bool(left.batches & right.batches)
    assert isinstance(left, _Sharded), "values of one kind"
    assert isinstance(right, _Sharded), "values of one kind"
    if left.total == right.total:
        return bool(left.shards & right.shards)
    return region(left).meets(region(right))


def region(*values: _Sharded) -> Region:
    """Which part of the weight some values are together, whatever each is cut into."""
    return Region.of(*{(value.shards, value.total) for value in values})


def extent(value: Value) -> Sequence[Interval]:
    """What a value has of a layer, as intervals: of the weight, or of the batches."""
    if isinstance(value, _Batched):
        return runs(value.batches)
    assert isinstance(value, _Sharded), "every kind of value has shards or batches"
    return region(value).intervals


def _derive(op: str, law: Any, value: V, *rest: Any) -> V:  # pragma: no mutate block
    """Applies a law to a value and tells the rank that it lives on. Called by methods that a student calls."""
    mark = value.mark or (getattr(rest[0], "mark", None) if op != "shard" else None)
    try:
        if op == "combine" or (op == "add" and isinstance(value, WeightGrad)):
            _same_kind("sum" if op == "add" else "gather", value, rest[0])
        result = law(value, *rest)
        if op != "shard" and mark is not None and (value.mark is None or rest[0].mark is None):
            result = law(clean(value), clean(rest[0]))  # made by hand: once more, with what they are
    except PuzzleError as error:
        raise error if mark is None else mark[0].blame(error) from None
    if mark is None:
        return result
    return mark[0].derive(op, (value,) if op == "shard" else (value, *rest), result, rest if op == "shard" else ())


def _with(value: V, **changes: Any) -> V:
    """A copy of a value with some fields changed, without a home."""
    if isinstance(value, _Stepped):
        result: Value = type(value)(
            value.layer,
            value.layers,
            value.step,
            changes.get("shards", value.shards),
            changes.get("total", value.total),
        )
    elif isinstance(value, WeightGrad):
        result = WeightGrad(
            value.layer,
            value.layers,
            value.batches,
            value.total_batches,
            changes.get("shards", value.shards),
            changes.get("total", value.total),
        )
    else:
        batched = cast(_Batched, value)
        result = type(batched)(batched.layer, batched.layers, changes["batches"], batched.total_batches)
    return cast(V, result)


def _union(verb: str, values: Sequence[Value], field: str) -> frozenset[int]:
    """The union of a field of all values, which must be disjoint: that is what both laws ask for."""
    sets: list[frozenset[int]] = [getattr(value, field) for value in values]
    union = frozenset[int]().union(*sets)
    if len(union) == sum(map(len, sets)):
        return union
    seen: set[int] = set()
    for value in values:
        twice = seen & getattr(value, field)
        if twice:
            both = [v for v in values if getattr(v, field) & twice]
            raise _twice(verb, field, twice, both)
        seen |= getattr(value, field)
    raise AssertionError("sets with repeated items were found disjoint")


def _twice(verb: str, field: str, twice: set[int], both: Sequence[Value]) -> RuleError:
    """Some batches or shards are in two of the values."""
    if field == "shards" and all(value.is_complete() for value in both):
        what = "there is nothing to gather: both are complete"
        fix = "leave it out, or load a shard on each rank: model.load_weights(layer, model.rank, model.RANKS)"
        if isinstance(both[0], WeightGrad):
            fix = "gradients are not gathered but summed: use scatterreduce or allreduce"
    else:
        what = f"cannot {verb} these values: {field} {numbers(twice)} would be counted twice"
        fix = f"each must hold {field} that no other one holds"
        if verb == "sum":
            name = these("batch", twice)
            fix = f"add the gradient of each batch once: {name} {'is' if len(twice) == 1 else 'are'} in both already"
    whom = "the summands" if verb == "sum" else "them"
    error = RuleError(
        what,
        expected=f"each {'batch' if field == 'batches' else 'shard'} in one of {whom} only",
        got="; ".join(map(describe, both)),
        fix=fix,
    )
    error.clue = ("twice", field, *both[:2])
    return error


def _same_kind(verb: str, first: Value, other: object) -> None:
    if type(first) is type(other):
        return
    if is_awaitable(other):
        raise forgotten_await(f"cannot {verb} what was not awaited", f"another {first.kind}", other)
    raise RuleError(
        f"cannot {verb} two different kinds of value",
        expected=f"another {first.kind}",
        got=describe(other),
        fix="look at the stores that the two come from: both have to be of one kind",
    )


DIFFERENT = {
    "layer": "of different layers",
    "batches": "of different batches",
    "shards": "of different shards",
    "total": "that are cut into different numbers of shards",
    "step": "of different steps",
}
SAME = {
    "layer": "of the same layer",
    "batches": "of the same batches",
    "shards": "of the same shards",
    "total": "that are cut into the same number of shards",
    "step": "of the same step",
}
ALIKE = {
    "layer": "use values of one layer: a layer has its own weight, gradient and optimizer state",
    "batches": "gradients of different batches are summed: with `+`, scatterreduce or allreduce",
    "shards": "sum the same shard of each gradient: reduce-scatter them, or shard them alike",
    "total": "give load_weights or shard the same total everywhere: how many ranks share the weight",
    "step": "gather all shards before the update, or all of them after it",
}


def _same(verb: str, first: Value, other: Value, field: str) -> None:
    mine, theirs = getattr(first, field), getattr(other, field)
    if mine is not theirs and mine != theirs:
        raise RuleError(
            f"cannot {verb} {first.kind}s {DIFFERENT[field]}",
            expected=f"values {SAME[field]}",
            got=f"{describe(first)}; {describe(other)}",
            fix=ALIKE[field],
        )


def total_elements(values: Iterable[Value]) -> Elements:
    """Elements of all values together. Sums shards of equal size as whole numbers: ten thousand fractions are slow."""
    shards: dict[int, int] = {}
    total: Elements = 0
    for value in values:
        if isinstance(value, _Sharded):
            shards[value.total] = shards.get(value.total, 0) + len(value.shards)
        else:
            total += value.elements()
    for parts, count in shards.items():
        size = Fraction(WEIGHT_ELEMENTS * count, parts)
        total += size.numerator if size.denominator == 1 else size
    return total


def clean(value: V) -> V:
    """The value itself where a rank made it. One made by hand as a plain copy: of one of the five kinds, and of plain
    ints, whatever its class and fields make of themselves. RuleError where there is no such value."""
    if value.mark is not None:
        return value
    kind = next((cls for cls in KINDS.values() if isinstance(value, cls)), None)
    if kind is None:
        raise RuleError(
            f"{type(value).__name__} is not a kind of value",
            expected=f"one of {', '.join(KINDS)}",
            got=f"a value of the class {type(value).__name__}",
            fix=FROM_AN_OPERATION,
        )
    fields: list[Any] = []
    for name in kind.__match_args__:
        item = getattr(kind, name).__get__(value)  # the slot itself: a class of the student's may say something else
        fields.append(
            frozenset(map(plain, cast("frozenset[Any]", item))) if isinstance(item, frozenset) else plain(item)
        )
    made = cast("V", kind(*fields))
    _possible(made)
    return made


def _possible(value: Value) -> None:
    """Whether the fields of a value are such as a Trace file may hold."""
    low, wrong = {"layer": -1, "layers": 1, "total": 1, "total_batches": 1}, ""
    for name in value.__match_args__:
        item = getattr(value, name)
        if name in ("shards", "batches"):
            most = getattr(value, "total" if name == "shards" else "total_batches")
            if not all(type(number) is int and number >= 0 for number in item):
                wrong = wrong or f"its {name} are numbers from 0 up"
            elif type(most) is int and max(item, default=0) >= most:
                wrong = wrong or f"its {name} are some of {written(most)}"
        elif type(item) is not int or not low.get(name, 0) <= item <= MOST:
            wrong = wrong or f"its {name} is a number from {low.get(name, 0)} to {MOST}"
    if wrong:
        shown = ", ".join(written(item)[:40] for item in fields_of(value) if not isinstance(item, frozenset))
        raise RuleError(
            f"there is no such {value.kind}",
            expected=wrong,
            got=f"{type(value).__name__}({shown}, ...), made by hand",
            fix=FROM_AN_OPERATION,
        )


FROM_AN_OPERATION = "take it from an operation: load_weights, forward, backward, update or a collective"


def renew(value: V) -> V:
    """An equal value without a home: what another rank gets when this one is sent."""
    if isinstance(value, _Batched):
        return type(value)(value.layer, value.layers, value.batches, value.total_batches)
    return _with(value)
