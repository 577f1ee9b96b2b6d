"""What a rank can hold: weights, optimizer states, activations and their gradients, as metadata without numbers.

Values are immutable. A value is a kind, a layer and a *place*: which part of the tensor it is, and which part of a sum
is in it (see placement). What students know of it, `shards` and `batches`, are views of the place. The laws say what
happens to values. Sizes are in elements: a weight, its gradient and its optimizer state have HIDDEN x HIDDEN elements
a layer, an activation and its gradient LENGTH x HIDDEN elements a batch, where nothing else is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import FrozenInstanceError
from operator import attrgetter
from typing import Any, ClassVar, Protocol, TypeVar, cast

from lib.errors.arguments import described, plain
from lib.errors.exceptions import PuzzleError, RuleError
from lib.values import facts
from lib.values.dims import NAMES, REST
from lib.values.kinds.kind import PRICED
from lib.values.laws import cut, gather, piece, reduce
from lib.values.layers import Shape, batches_at, by_hand, gradient_at, weight_at
from lib.values.placement import MOST, ONE_PIECE, Elements, Place, Schema, numbers_in

__all__ = ["HIDDEN", "KINDS", "LENGTH", "Activation", "ActivationGrad", "Elements", "OptState", "Value", "Weight"]
__all__ += ["WeightGrad", "made", "value_of"]

HIDDEN = PRICED.inputs
LENGTH = PRICED.rows
# The one name a class has for the outside, as in `print(type(weight))`: where it is exported from.
PUBLIC = "lib"


class Home(Protocol):
    """Where a value lives: one rank's record of its program, which wants to know what is made of its values."""

    def derive(self, op: str, inputs: tuple[Value, ...], output: Any, arg: tuple[int, ...] = ()) -> Any: ...

    def blame(self, error: PuzzleError) -> PuzzleError: ...


class Value:
    """Anything a store can hold. `mark` is (home, id) once a rank has it, and None for a value made by hand."""

    __slots__ = ("layer", "layers", "mark", "place")
    __match_args__: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = "value"
    tensor: ClassVar[str] = ""
    """Which tensor of its layer it is a part of."""
    layer: int
    layers: int
    place: Place
    mark: tuple[Any, int] | None

    def at(self: V, place: Place) -> V:
        """The same in another place, without a home."""
        return made(type(self), self.layer, self.layers, place)

    def elements(self) -> Elements:
        """Size in elements, exactly: an int wherever the shards divide the weight evenly."""
        return self.place.elements

    def memory(self) -> float:
        """Size in elements, as the figures print it."""
        return float(self.elements())

    def is_complete(self) -> bool:
        """Whether all shards are here; of activations whether all features are, with nothing left to be summed."""
        return True

    @property
    def updates(self) -> int:
        """How many updates it has had; none of what is not updated."""
        return 0

    def combine(self: V, other: V) -> V:
        """Gather: this value and `other`, which holds other shards of the same thing."""
        return _derive("combine", gather, self, other)

    def __add__(self: V, other: V) -> V:
        """Reduce: the sum of two weight gradients, or of two parts of a sum. Others are refused, with the reason."""
        return _derive("add", reduce, self, other)

    def shard(self: V, shard: int, total: int, dim: str | None = None) -> V:
        """Shard number `shard` of `total` equal ones, cut from a complete value, or from what it has of a dim."""
        if dim is None:
            return _derive("shard", cut, self, plain(shard), plain(total))
        return _derive("shard", cut, self, plain(shard), plain(total), dim)

    def cut(self: V, dim: str, low: int, high: int) -> V:
        """The elements from `low` up to `high` of a dim, as in `x.cut("rows", 4, 12)`."""
        return _derive("cut", piece, self, dim, plain(low), plain(high))

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}: values never change, operations make new ones")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}: values never change")

    def __copy__(self: V) -> V:
        return self

    def __deepcopy__(self: V, memo: object) -> V:
        return self

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return fields_of(self) == fields_of(other) and self.place.same(other.place)

    def __hash__(self) -> int:
        return hash(fields_of(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), fields_of(self))

    def __repr__(self) -> str:
        """As in a list of values that is printed: the words of `describe` between angle brackets."""
        return f"<{describe(self)}>"

    def __str__(self) -> str:
        return describe(self)


V = TypeVar("V", bound=Value)


def _view(name: str) -> Any:
    """What a student knows a part of the place by."""
    return property(attrgetter(f"place.{name}"))


class _Sharded(Value):
    """A value with one weight's shape, split into `total` shards of which `shards` are here."""

    __slots__ = ()
    shards: frozenset[int] = _view("shards")
    total: int = _view("total")

    def is_complete(self) -> bool:
        return self.place.complete


class _Stepped(_Sharded):
    """A sharded value that changes once a training step: `step` counts the updates it has had."""

    __slots__ = ("step",)
    __match_args__ = ("layer", "layers", "step", "shards", "total")
    step: int

    def __init__(self, layer: int, layers: int, step: int, shards: Iterable[int] = ONE_PIECE, total: int = 1) -> None:
        _fill(self, layer, layers, weight_at(_schema(type(self)), numbers_in(shards), total))
        _set_step(self, step)

    @property
    def updates(self) -> int:
        return self.step

    def at(self: S, place: Place) -> S:
        return made_step(type(self), self.layer, self.layers, place, self.step)


S = TypeVar("S", bound=_Stepped)


class Weight(_Stepped):
    """The weights of one layer (HIDDEN x HIDDEN elements), or some shards of them.

    `shards` of `total` are here; forward and backward need all of them.
    """

    __module__ = PUBLIC
    __slots__ = ()
    kind, tensor = "weight", "weight"


class OptState(_Stepped):
    """The optimizer's state of one layer, as large as its weight (one moment, as in SGD with momentum)."""

    __module__ = PUBLIC
    __slots__ = ()
    kind, tensor = "optimizer state", "weight"


class _Batched(Value):
    """A value with one activation's shape for each of `batches` out of `total_batches`."""

    __slots__ = ()
    __match_args__ = ("layer", "layers", "batches", "total_batches")
    batches: frozenset[int] = _view("batches")
    total_batches: int = _view("total_batches")

    def __init__(self, layer: int, layers: int, batches: Iterable[int], total_batches: int) -> None:
        _fill(self, layer, layers, batches_at(_schema(type(self), total_batches), numbers_in(batches)))

    def is_complete(self) -> bool:
        return self.place.plain


class Activation(_Batched):
    """The input of layer `layer` (LENGTH x HIDDEN elements a batch); layer 0 is the data, layer LAYERS the output."""

    __module__ = PUBLIC
    __slots__ = ()
    kind, tensor = "activation", "activation"


class ActivationGrad(_Batched):
    """The gradient of the loss by the *output* of layer `layer` (LENGTH x HIDDEN elements a batch)."""

    __module__ = PUBLIC
    __slots__ = ()
    kind, tensor = "activation gradient", "gradient"


class WeightGrad(_Sharded):
    """The gradient of the loss by one layer's weight, summed over `batches` (HIDDEN x HIDDEN elements, or shards)."""

    __module__ = PUBLIC
    __slots__ = ()
    __match_args__ = ("layer", "layers", "batches", "total_batches", "shards", "total")
    kind, tensor = "weight gradient", "weight_gradient"
    batches: frozenset[int] = _view("batches")
    total_batches: int = _view("total_batches")

    def __init__(
        self,
        layer: int,
        layers: int,
        batches: Iterable[int],
        total_batches: int,
        shards: Iterable[int] = ONE_PIECE,
        total: int = 1,
    ) -> None:
        place = gradient_at(_schema(type(self), total_batches), numbers_in(batches), numbers_in(shards), total)
        _fill(self, layer, layers, place)


# Values are made by the hundred thousand. Writing through the slots' own descriptors passes by the __setattr__ that
# refuses, at half the price of object.__setattr__.
SET_MARK: Any = Value.__dict__["mark"].__set__
"""Writes where a value lives, as (home, id). Only the record of a rank does this, once for each value."""
_LAYER, _LAYERS, _PLACE = (Value.__dict__[name] for name in ("layer", "layers", "place"))
_STEP: Any = _Stepped.__dict__["step"]
_set_layer, _set_layers, _set_place, _set_step = _LAYER.__set__, _LAYERS.__set__, _PLACE.__set__, _STEP.__set__
_new: Any = object.__new__


def _fill(value: Value, layer: int, layers: int, place: Place) -> None:
    """Writes what every value has."""
    _set_layer(value, layer)
    _set_layers(value, layers)
    _set_place(value, place)
    SET_MARK(value, None)


def _schema(kind: type[Value], batches: Any = 1) -> Schema:
    """The tensor of a value that is made by hand."""
    return cast(Schema, by_hand(batches).schema_of(kind.tensor, 0))


KINDS: dict[str, type[Value]] = {cls.kind: cls for cls in (Weight, OptState, Activation, ActivationGrad, WeightGrad)}
"""The five kinds of value by name, in the order of the stores."""


def made(kind: type[V], layer: int, layers: int, place: Place) -> V:
    """A value of a kind without steps, in its place, without a home."""
    value = _new(kind)
    _set_layer(value, layer)
    _set_layers(value, layers)
    _set_place(value, place)
    SET_MARK(value, None)
    return value


def made_step(kind: type[V], layer: int, layers: int, place: Place, step: int) -> V:
    """The same for a weight or an optimizer state, which counts its updates."""
    value = _new(kind)
    _set_layer(value, layer)
    _set_layers(value, layers)
    _set_place(value, place)
    _set_step(value, step)
    SET_MARK(value, None)
    return value


def value_of(kind: type[V], shape: Shape, *fields: Any) -> V:
    """The value of a kind with these public fields, in a step of that shape."""
    given: dict[str, Any] = dict(zip((*kind.__match_args__, "rest"), fields, strict=False))
    layer, layers, rest = given["layer"], given["layers"], given.get("rest", ())
    schema = cast(Schema, shape.schema_of(kind.tensor, layer))
    if "step" in given:
        place = weight_at(schema, given["shards"], given["total"]).cut_more(rest)
        return made_step(kind, layer, layers, place, given["step"])
    if "shards" in given:
        place = gradient_at(schema, given["batches"], given["shards"], given["total"])
    else:
        place = batches_at(schema, given["batches"])
    return made(kind, layer, layers, place.cut_more(rest))


def _again(kind: type[V], fields: Sequence[Any]) -> V:
    """The value with these fields, of no step in particular."""
    given = dict(zip(kind.__match_args__, fields, strict=False))
    return value_of(kind, by_hand(given.get("total_batches", 1)), *fields)


def fields_of(value: Value) -> tuple[Any, ...]:
    """The public fields of a value, in the order its class takes them; behind them whatever else it is cut along."""
    fields, rest = tuple(getattr(value, name) for name in value.__match_args__), value.place.rest
    return (*fields, rest) if rest else fields


def describe(value: object) -> str:
    """One short English phrase for a value: "weight gradient of layer 1, batches 0-2, shard 3 of 4"."""
    if not isinstance(value, Value):
        return described(value, describe)
    parts = [subject(value.kind, value.layer), *value.place.words()]
    if isinstance(value, _Stepped) and value.step:
        parts.append(f"step {value.step}")
    return ", ".join(parts)


def subject(kind: str, layer: int) -> str:
    """A kind of value of a layer, in words: "weight of layer 1".

    Activations lie between layers, so they are named by their own number, as in `activations[1]`: that is the input of
    layer 1 and the output of layer 0. Their gradients have the number of the activation.
    """
    if kind == Activation.kind:
        return f"activation {layer}"
    return f"gradient of activation {layer + 1}" if kind == ActivationGrad.kind else f"{kind} of layer {layer}"


def definite(phrase: str) -> str:
    """A value in a sentence: "the weight of layer 1", and "activation 1", which has a number in place of a name."""
    return phrase if re.match(rf"{Activation.kind} \d", phrase) else f"the {phrase}"


def _derive(op: str, law: Any, value: V, *rest: Any) -> V:  # pragma: no mutate block
    """Applies a law to a value and tells the rank that it lives on. Called by methods that a student calls."""
    alone = law is cut or law is piece
    mark = value.mark or (getattr(rest[0], "mark", None) if not alone else None)
    try:
        result = law(value, *rest)
        if not alone and mark is not None and (value.mark is None or rest[0].mark is None):
            result = law(clean(value), clean(rest[0]))  # made by hand: once more, with what they are
    except PuzzleError as error:
        raise error if mark is None else mark[0].blame(error) from None
    if mark is None:
        return result
    if not alone:
        return mark[0].derive(op, (value, *rest), result)
    said = tuple([NAMES.index(item) if isinstance(item, str) else item for item in rest])
    return mark[0].derive(op, (value,), result, said)


def clean(value: V) -> V:
    """The value itself where a rank made it. One made by hand as a plain copy: of one of the five kinds, and of plain
    ints, whatever its class and fields make of themselves. RuleError where there is no such value."""
    if value.mark is not None:
        return value
    kind = next((cls for cls in KINDS.values() if isinstance(value, cls)), None)
    if kind is None:
        raise RuleError(facts.NoKind(value))
    # The slots themselves: a class of the student's may say something else.
    place: Any = _PLACE.__get__(value)
    layer, layers = (plain(slot.__get__(value)) for slot in (_LAYER, _LAYERS))
    fields: dict[str, Any] = {
        "layer": layer,
        "layers": layers,
        "step": plain(_STEP.__get__(value)) if kind in (Weight, OptState) else 0,
    }
    for name in ("shards", "total", "batches", "total_batches"):
        item = getattr(Place, name).__get__(place) if type(place) is Place else None
        fields[name] = (
            frozenset(map(plain, cast("frozenset[Any]", item))) if isinstance(item, frozenset) else plain(item)
        )
    rest: Any = place.rest if type(place) is Place else ()
    rest = [(role, frozenset(map(plain, pieces)), plain(grid)) for role, pieces, grid in rest]
    made = cast("V", _again(kind, [*[fields[name] for name in kind.__match_args__], rest]))
    _possible(made)
    return made


def _possible(value: Value) -> None:
    """Whether the fields of a value are such as a Trace file may hold."""
    low = {"layer": -1, "layers": 1, "total": 1, "total_batches": 1}
    for name in value.__match_args__:
        item = getattr(value, name)
        if name in ("shards", "batches"):
            most = getattr(value, "total" if name == "shards" else "total_batches")
            if not all(type(number) is int and number >= 0 for number in item):
                raise RuleError(facts.NoValue(value, name, 0, None))
            if type(most) is int and max(item, default=0) >= most:
                raise RuleError(facts.NoValue(value, name, None, most))
        elif type(item) is not int or not low.get(name, 0) <= item <= MOST:
            raise RuleError(facts.NoValue(value, name, low.get(name, 0), MOST))
    for role, pieces, grid in value.place.rest:
        if type(grid) is not int or not pieces <= frozenset(range(grid)):
            raise RuleError(facts.NoValue(value, REST[role], None, grid))
