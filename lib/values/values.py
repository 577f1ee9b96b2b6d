"""What a rank can hold: weights, optimizer states, activations and their gradients, as metadata without numbers.

Values are immutable. A value is a kind, a layer and a *place*: which part of the tensor it is, and which part of a sum
is in it (see placement). The `shards` and `batches` that students know are views of the place. The laws determine what
happens to values. Sizes are in elements: by default a weight, its gradient and its optimizer state have HIDDEN x HIDDEN
elements a layer, an activation and its gradient LENGTH x HIDDEN elements a batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, ClassVar, Protocol, TypeVar, cast

from lib.errors.exceptions import PuzzleError, RuleError
from lib.errors.wording import described, plain
from lib.values import facts
from lib.values.dims import NAMES, RunSet
from lib.values.kinds.kind import PRICED
from lib.values.laws import cut, gather, piece, reduce
from lib.values.layers import Shape, by_hand
from lib.values.placement import MOST, ONE_PIECE, Elements, Place, Rest, Schema, give, numbers_in

HIDDEN = PRICED.inputs
LENGTH = PRICED.rows
# The module that a class names, as in `print(type(weight))`: that which exports it.
PUBLIC = "lib"


class Home(Protocol):
    """The home of a value: one rank's record of its program, which records what is made of its values."""

    values: list[Any]
    """All values of the rank, by number."""

    def derive(self, op: str, inputs: tuple[Value, ...], output: Any, arg: tuple[int, ...] = ()) -> Any: ...

    def blame(self, error: PuzzleError) -> PuzzleError: ...


class _Fields:
    """The slots of a value. Python compares the layouts of two classes from base to base before an object may switch:
    that is quick where this is the base of both (`__base__`), of drafts and of each kind."""

    __slots__ = ("home", "layer", "layers", "number", "place", "updates")


class Value:
    """Anything a store can hold. Its `home` is the rank that has it, where it has a `number`; those of a value made by
    hand are None and -1. `updates` counts its updates; it stays 0 for what is never updated.
    """

    __slots__ = ()
    home: Any
    layer: int
    layers: int
    number: int
    place: Place
    updates: int
    __match_args__: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = "value"
    tensor: ClassVar[str] = ""
    """Which tensor of its layer it is a part of."""

    @property
    def mark(self) -> tuple[Any, int] | None:
        """Return its home and its number there; None for a value without a home."""
        return None if self.home is None else (self.home, self.number)

    def at(self: V, place: Place, home: Home | None = None) -> V:
        """Return the same value in another place, with another home or none."""
        return made(type(self), self.layer, self.layers, place, self.updates, home)

    def elements(self) -> Elements:
        """Size in elements, exactly: an int wherever the shards divide the weight evenly."""
        return self.place.elements

    def memory(self) -> float:
        """Size in elements, as the figures print it."""
        return float(self.elements())

    def is_complete(self) -> bool:
        """Tell whether all shards are here; for activations, all features, with nothing left to be summed."""
        return True

    def combine(self: V, other: V) -> V:
        """Gather: join this value with `other`, which holds other shards of the same thing."""
        return _derive("combine", gather, (self, other))

    def __add__(self: V, other: V) -> V:
        """Reduce: add two weight gradients, or two parts of a sum. RuleError for other values."""
        return _derive("add", reduce, (self, other))

    def shard(self: V, shard: int, total: int, dim: str | None = None) -> V:
        """Cut: return shard `shard` of `total` equal ones of a complete value, or of what it has of a dim."""
        return _derive("shard", cut, (self,), plain(shard), plain(total), *(() if dim is None else (dim,)))

    def cut(self: V, dim: str, low: int, high: int) -> V:
        """Return the elements from `low` up to `high` of a dim, as in `x.cut("rows", 4, 12)`."""
        return _derive("cut", piece, (self,), dim, plain(low), plain(high))

    def __setattr__(self, name: str, value: object) -> None:
        # The error of frozen dataclasses, which students know, though these are none: see `_Draft`.
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}: values never change, operations make new ones")

    def __delattr__(self, name: str) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}: values never change")

    # A value never changes, so a copy is the value itself: a deep copy of a list then has only values of the rank.
    def __copy__(self: V) -> V:
        return self

    def __deepcopy__(self: V, memo: object) -> V:
        return self

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        # Not by identity: places of two runs are different objects. The home of a value does not count.
        return fields_of(self) == fields_of(other) and self.place.same(other.place)

    def __hash__(self) -> int:
        return hash(fields_of(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Without its home: a pickled value has left its run, like one in a file.
        fields = fields_of(self)
        return (value_of, (type(self), None, *fields)) if self.place.rest else (type(self), fields)

    def __repr__(self) -> str:
        """Return the words of `describe` in angle brackets, as in a printed list."""
        return f"<{describe(self)}>"

    def __str__(self) -> str:
        return describe(self)


V = TypeVar("V", bound=Value)


def _view(name: str) -> Any:
    """Return a property that is a view of the place."""
    return property(attrgetter(f"place.{name}"))


class _Sharded(Value):
    """A value with one weight's shape, split into `total` shards of which `shards` are here."""

    __slots__ = ()
    shards: frozenset[int] = _view("shards")
    total: int = _view("total")

    def is_complete(self) -> bool:
        return self.place.complete


class _Stepped(_Sharded):
    """A sharded value that changes once a training step: `step` counts its updates."""

    __slots__ = ()
    __match_args__ = ("layer", "layers", "step", "shards", "total")
    # The slot itself, under the students' name: a property would be a call for each of a million reads.
    step: int = _Fields.__dict__["updates"]

    def __init__(self, layer: int, layers: int, step: int, shards: Iterable[int] = ONE_PIECE, total: int = 1) -> None:
        _fill(self, layer=layer, layers=layers, step=step, shards=shards, total=total)


class Weight(_Stepped, _Fields):
    """The weights of one layer (HIDDEN x HIDDEN elements), or some shards of them.

    `shards` of `total` are here; forward and backward need all of them.
    """

    __module__ = PUBLIC
    __slots__ = ()
    kind, tensor = "weight", "weight"


class OptState(_Stepped, _Fields):
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
        _fill(self, layer=layer, layers=layers, batches=batches, total_batches=total_batches)

    def is_complete(self) -> bool:
        return self.place.plain


class Activation(_Batched, _Fields):
    """The input of layer `layer` (LENGTH x HIDDEN elements a batch); layer 0 is the data, layer LAYERS the output."""

    __module__ = PUBLIC
    __slots__ = ()
    kind, tensor = "activation", "activation"


class ActivationGrad(_Batched, _Fields):
    """The gradient of the loss by the *output* of layer `layer` (LENGTH x HIDDEN elements a batch)."""

    __module__ = PUBLIC
    __slots__ = ()
    kind, tensor = "activation gradient", "gradient"


class WeightGrad(_Sharded, _Fields):
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
        fields = {"batches": batches, "total_batches": total_batches, "shards": shards, "total": total}
        _fill(self, layer=layer, layers=layers, **fields)


PIECES = {"shards": "total", "batches": "total_batches"}
"""The fields that are sets of numbers, and those that bound them."""
# -1 is the layer of the gradient of the data: a gradient has the number of the layer that gave the activation.
LOWEST = {"layer": -1, "layers": 1, "total": 1, "total_batches": 1}


def _fill(value: Value, **fields: Any) -> None:
    """Set the fields of a value that is made by hand, as plain numbers of whatever class they are. RuleError if there
    is no such value, which no Trace file could hold.

    The only check: the fields of a value are not looked at again.
    """
    given: dict[str, Any] = {}
    for name, item in fields.items():
        given[name] = numbers_in(item) if name in PIECES else plain(item)
    # Bounds first, then the sets within them.
    for name in sorted(given, key=PIECES.__contains__):
        item, low, most = given[name], LOWEST.get(name, 0), MOST
        if name in PIECES:
            low, most = None, given[PIECES[name]]
            possible = all(type(number) is int and 0 <= number < most for number in item)
        else:
            possible = type(item) is int and low <= item <= most
        if not possible:
            numbers = tuple([item for name, item in given.items() if name not in PIECES])
            raise RuleError(facts.NoValue(type(value), numbers, name, low, most)).here()
    place = _placed(type(value), by_hand(given.get("total_batches", 1)), given)
    give(value, home=None, number=-1, layer=given["layer"], layers=given["layers"])
    give(value, place=place, updates=given.get("step", 0))


def _placed(kind: type[Value], shape: Shape, given: Mapping[str, Any], rest: Rest = ()) -> Place:
    """Return the place with these fields, of a tensor in a step of that shape."""
    # Never None: only a layer without a weight has no schema, and the callers have excluded that.
    schema = cast(Schema, shape.schema_of(kind.tensor, given["layer"]))
    place = schema.held(given.get("batches"), given.get("shards"), given.get("total", 1))
    for role, pieces, grid in rest:
        dim = schema.spaces[schema.roles.index(role)]
        place = place.having(role, dim.piece(grid, pieces if isinstance(pieces, RunSet) else frozenset(pieces)))
    return place


set_home, set_number = (_Fields.__dict__[name].__set__ for name in ("home", "number"))
"""Set the home of a value, and its number there. Only the record of a rank does this, once for each value."""


KINDS: dict[str, type[Value]] = {cls.kind: cls for cls in (Weight, OptState, Activation, ActivationGrad, WeightGrad)}
"""The five kinds of value by name, in the order of the stores."""


class _Draft(_Fields):
    """A value that is being made, with the fields of a Value, which can be set.

    Values are made by the hundred thousand, and never change. Setting their slots past their own `__setattr__` takes
    a call for each, twice as long as all of `made`. Here Python stores plainly; then the draft changes its class, which
    is allowed between classes of one layout.
    """

    __slots__ = ()


def made(kind: type[V], layer: int, layers: int, place: Place, updates: int = 0, home: Home | None = None) -> V:
    """Make a value of a kind, in its place; with a home, it gets its number there."""
    value: Any = _Draft()
    value.layer = layer
    value.layers = layers
    value.place = place
    value.updates = updates
    value.home = home
    if home is None:
        value.number = -1
    else:
        values = home.values
        value.number = len(values)
        values.append(value)
    # From here on nothing can set its fields.
    value.__class__ = kind
    return value


def value_of(kind: type[V], shape: Shape | None, *fields: Any) -> V:
    """Return the value of a kind with the fields of `fields_of`, in a step of that shape, or of a default one."""
    given = dict(zip(kind.__match_args__, fields, strict=False))
    shape = shape or by_hand(given.get("total_batches", 1))
    place = _placed(kind, shape, given, *fields[len(given) :])
    return made(kind, given["layer"], given["layers"], place, given.get("step", 0))


def fields_of(value: Value) -> tuple[Any, ...]:
    """Return the public fields of a value, in the order in which its class takes them, then the further dims along
    which it is cut."""
    rest = value.place.rest
    return (*[getattr(value, name) for name in value.__match_args__], *([rest] if rest else ()))


def describe(value: object) -> str:
    """Return a short phrase for a value: "weight gradient of layer 1, batches 0-2, shard 3 of 4"."""
    if not isinstance(value, Value):
        return described(value, describe)
    parts = [subject(value.kind, value.layer), *value.place.words()]
    if value.updates:
        parts.append(f"step {value.updates}")
    return ", ".join(parts)


def subject(kind: str, layer: int) -> str:
    """Return a kind of value of a layer, in words: "weight of layer 1".

    Activations lie between layers, so they are named by their own number, as in `activations[1]`: that is the input of
    layer 1 and the output of layer 0. Their gradients have the number of the activation.
    """
    if kind == Activation.kind:
        return f"activation {layer}"
    return f"gradient of activation {layer + 1}" if kind == ActivationGrad.kind else f"{kind} of layer {layer}"


def definite(phrase: str) -> str:
    """Return the phrase for a value with its article: "the weight of layer 1", but "activation 1"."""
    return phrase if re.match(rf"{Activation.kind} \d", phrase) else f"the {phrase}"


def _derive(op: str, law: Any, values: tuple[V, ...], *said: Any) -> V:  # pragma: no mutate block
    """Apply a law to values and record it on their rank. Called by methods that a student calls."""
    home: Home | None = values[0].home
    if home is None:
        # If the first was made by hand, it is recorded on the rank of the other.
        home = getattr(values[-1], "home", None)
    try:
        result = law(*values, *said) if said else law(*values)
    except PuzzleError as error:
        raise error if home is None else home.blame(error) from None
    if home is None:
        return result
    # In a Trace dims are numbers, like all arguments of an event.
    arg = tuple([NAMES.index(i) if isinstance(i, str) else i for i in said]) if said else ()
    return home.derive(op, values, result, arg)
