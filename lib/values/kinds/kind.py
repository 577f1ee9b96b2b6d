"""A kind of layer: its tensors, what forward and backward need and give, and what they cost.

A layer is described by data, a `Layer`, and each layer of a training step is a `LayerKind`: the schemas of its tensors,
with rules that derive places from places. All that is done to an activation is a layer, so the number of an activation
tells what has been done to it: a schedule that leaves out a layer has no input for the next one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from lib.errors.exceptions import RuleError
from lib.record import record
from lib.values import facts
from lib.values.dims import SPACE, Relation
from lib.values.placement import Dim, Elements, Part, Place, Schema, keep, simplest

if TYPE_CHECKING:
    from lib.values.kinds.experts import Choices
    from lib.values.values import Value

Dims = dict[str, Dim]
"""The dims along which an activation extends, by their roles, in order: the features last."""
GRID: Final = SPACE[1:]
"""The optional dims of a grid, beside its rows."""
_set = object.__setattr__


@record()
class Layer:
    """The description of a layer. Sizes in elements. Its input and output are rows, or a grid with `columns`, and
    perhaps `planes`.

    `of`: the activations that it takes, by number; by default that of its own number, the output of the layer before.
    `route`, `capacity` and `groups`: the experts to which tokens go (see `routes`); by default each batch is a group.
    `kernel`, `stride`, `dilation` and `padding`: the rows that a row of the output needs, likewise along each other dim
    of the grid (see `stencils`). `along`: the dim that is transformed.

    >>> Layer(inputs=1024, outputs=4096).inputs
    1024
    """

    kind: str = "linear"
    inputs: int = 512
    outputs: int = 512
    rows: int = 256
    heads: int = 0
    kv_heads: int = 0
    of: tuple[int, ...] = ()
    experts: int = 0
    capacity: int | None = None
    route: Choices = ()
    groups: tuple[int, ...] = ()
    kernel: int = 0
    stride: int = 1
    dilation: int = 1
    padding: int = 0
    columns: int = 0
    planes: int = 0
    along: str = ""

    def __post_init__(self) -> None:
        try:
            for name, items in (("of", self.of), ("groups", self.groups), ("route", map(tuple, self.route))):
                _set(self, name, tuple(items))
        except TypeError:
            raise ValueError(
                "of= and groups= are lists of numbers, and route= is a list of the experts of each token, such as "
                "[[0, 1], [1, 2]]"
            ) from None

    @property
    def space(self) -> dict[str, int]:
        """The sizes of the grid that it takes, by dim."""
        return {role: size for role in SPACE if (size := getattr(self, role))}

    @property
    def points(self) -> int:
        """Points of that grid: without columns, its rows."""
        return prod(self.space.values())

    @property
    def weight(self) -> int:
        """Elements of its weight, and so of the weight's gradient and optimizer state."""
        return self.inputs * self.outputs * max(self.kernel, 1) ** len(self.space)

    @property
    def batch(self) -> int:
        """Elements of its input, and so of the input's gradient, for one batch."""
        return self.points * self.inputs

    def to_json(self) -> dict[str, Any]:
        """Return the fields: what `layer_from` reads."""
        said = {name: getattr(self, name) for name in self.__match_args__}
        lists = {"of": [*self.of], "route": [*map(list, self.route)], "groups": [*self.groups]}
        return {
            name: (said | lists)[name] for name in said if name in SIZES or said[name] not in (getattr(PRICED, name), 0)
        }


SIZES: Final = ("kind", "inputs", "outputs", "rows")
"""The fields of every description."""
PRICED: Final = Layer()
"""The layer to which prices apply: `Costs.forward` is the time of one batch through it, and so on."""
USUAL: Final = (PRICED,)
"""The layers of a run, or a puzzle, that describes none: one description stands for all."""


@record()
class Sum:
    """A dim that a tensor may be a partial sum over. `relation`: which of its elements those of the dim `of` need; by
    default all."""

    dim: Dim
    relation: Relation | None = None
    of: str = ""


class LayerKind(ABC):
    """A layer of a step: the schemas of its tensors, and the places of the results of forward and backward.

    A subclass is a kind of layer. `takes` is what forward takes beside its input: "weight", "activation" or nothing;
    `keeps`: backward needs the input; else it may be given the gradient alone. `square`: it gives as many features as
    it takes. `free`: the dims in which the gradient of its output may have other parts than its input. `routed`: it
    takes tokens by their experts. `softmax`: backward needs the running sums of its output, which no value has.
    `options` are further fields of its description, and `optional` those that it may have. `describe` makes its
    tensors, `output_of` and `gradients_of` derive the results; they or `fit` refuse with a fact what it cannot work on.
    What they are given beside the input is of the kind in `takes`: the rules check that.
    """

    name: ClassVar[str]
    takes: ClassVar[str] = "weight"
    keeps: ClassVar[bool] = True
    square: ClassVar[bool] = False
    free: ClassVar[tuple[str, ...]] = ()
    routed: ClassVar[bool] = False
    softmax: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = GRID
    gives: Dims
    """The dims of its output: those of its input, with features of its own."""
    opens: tuple[Sum, ...] = ()
    """The sums over which its output may be partial."""
    running: Fraction | int = 0
    """How many further numbers its output has for each element while it is partial."""
    owes: tuple[tuple[Sum, ...], ...] = ((), ())
    """The sums over which the gradients of its input, and of its other activation, may be partial."""
    weight_dims: tuple[Dim, ...] = ()
    """Of its weight, if it has one, whose gradient is a sum over all other dims of the input."""
    work: Fraction | int
    """Multiplications for one batch, on average."""
    activations: list[Schema]
    """The activations that it takes, and the gradient of each."""
    gradients: list[Schema]
    uses: list[Part | None]
    """Its number among the uses of each of these, if there are several."""
    output: Schema
    output_gradient: Schema
    weight: Schema | None = None
    weight_gradient: Schema | None = None

    def __init__(self, layer: Layer, dims: Sequence[Dims], dim: Callable[[str, int], Dim]) -> None:
        self.layer, self.dims, self.other, self.dim = layer, dims[0], dims[-1], dim
        if any(self.routed != ("experts" in one) for one in dims):
            taken, given = ("by expert", "row by row") if self.routed else ("row by row", "by expert")
            raise ValueError(
                f"a layer of the kind {self.name} takes its tokens {taken}, and is given them {given}: dispatch, "
                "experts and combine are three layers, in this order"
            )
        if self.square and layer.outputs != layer.inputs:
            raise ValueError(f"{self.name} gives as many features as it takes")
        self.gives = {**self.dims, "features": dim("features", layer.outputs)}
        self.work = layer.points * layer.inputs
        # Tables of the layer, not of the process: they live as long as the run, and no run sees another's.
        self.known_loads: dict[tuple[int, int, int], Place] = {}
        self.known: dict[tuple[Place, Place | None], Place] = {}
        self.known_back: dict[tuple[Place, Place, Place | None], tuple[Place | None, Place | None]] = {}
        self._shares: dict[tuple[Place, ...], Elements] = {}
        self.describe()
        if self.weight_dims:
            self.weight = schema(self.weight_dims)  # of an optimizer state too
            # dW is a sum over all dims that the input has and the weight does not: batches, rows, columns.
            own = {"features", *(one.name for one in self.weight_dims)}
            summed = [Sum(one) for role, one in self.gives.items() if role not in own]
            self.weight_gradient = schema(self.weight_dims, summed)
        # Prices are those of a linear layer of the usual size; others cost in proportion to multiplications.
        self.cost = simplest(Fraction(self.work, PRICED.rows * PRICED.weight))
        self.step = simplest(Fraction(self.weight.size if self.weight is not None else 0, PRICED.weight))
        self.usual = self.cost == 1 and not self.routed

    @classmethod
    def width(cls, layer: Layer) -> int:
        """Return the features that it takes."""
        return layer.inputs

    @abstractmethod
    def describe(self) -> None:
        """Make its tensors, and its cost if that is not one multiplication a feature."""

    def fit(self, op: str, inp: Value, other: Any) -> None:  # noqa: B027
        """Check that it can work on an input, with what it takes besides: None for a weight that half of backward does
        not need."""

    def given(self, op: str, inp: Value) -> dict[str, Part]:
        """Return the parts of a grid that follow from an input, if they differ from its own."""
        return {}

    def sums_of(self, op: str, inp: Value, grad: Value) -> dict[str, Part]:
        """Return the parts of a gradient over which that of the input is a sum, if they follow from the input."""
        return {}

    def output_of(self, inp: Value, other: Any) -> Place:
        """Return the place of the result of forward: by default that of its input."""
        return self.output.at({**inp.place.named, **self.given("forward", inp)})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Any) -> tuple[Place | None, Place | None]:
        """Return the places of the results of backward: the gradients of what it takes besides, and of its input. None
        for a gradient that does not exist."""
        return None, self.back(0, {**inp.place.named, **self.sums_of(op, inp, grad)})

    def share(self, places: Sequence[Place]) -> Fraction:
        """Return the fraction of the work on a batch with values in these places: its input, perhaps a gradient, and
        perhaps what it takes besides."""
        return self.share_of_points(places) * fraction(places[0].part("features"))

    def share_of_points(self, places: Sequence[Place]) -> Fraction:
        """Return the fraction of the points of a grid to work on."""
        return prod([fraction(places[0].part(role)) for role in SPACE], start=Fraction(1))

    # -- called by the rules: each combination of places is worked out once, then looked up

    def forward(self, inp: Value, other: Value | None) -> Place:
        """Return the place of the result of forward, which is kept in `known`."""
        key = (inp.place, other and other.place)
        # Rules depend only on places, which layers that are alike share: each pair is worked out once a step.
        if key not in self.known:
            self._done("forward", inp, None, other)
            self.fit("forward", inp, other)
            keep(self.known, key, self.output_of(inp, other))
        return self.known[key]

    def backward(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place | None]:
        """Return the places of the results of backward, which are kept in `known_back`."""
        key = (inp.place, grad.place, other and other.place)
        if key not in self.known_back:
            # A kind that needs no input is given the gradient in its place (`rules._back_alone`).
            if inp is not grad and inp.place.batches != grad.place.batches:
                raise RuleError(facts.OtherBatches(op, inp, grad))
            self._done(op, inp, grad, other)
            if inp.place is not grad.place:  # else all of it is alike
                self.alike(op, inp, grad, *[role for role in inp.place.named if role not in self.free])
            self.fit(op, inp, other)
            keep(self.known_back, key, self.gradients_of(op, inp, grad, other))
        return self.known_back[key]

    def _done(self, op: str, inp: Value, grad: Value | None, other: Value | None) -> None:
        """Check that no operand of a layer waits for the rest of a sum; a weight never does."""
        for value, role in (inp, "input of"), (grad, "gradient given to"), (other, f"{self.takes} of"):
            if value is not None and value.place.open:
                done(f"{role} {op}", value)

    def batches_of(self, count: int, values: Sequence[Value]) -> Elements:
        """Return what an operation on a number of batches costs, in batches of the layer to which prices apply."""
        places = tuple([value.place for value in values])
        found = self._shares.get(places)
        if found is None:
            found = keep(self._shares, places, simplest(self.cost * self.share(places)))
        return count * found

    def updates(self, values: Sequence[Value]) -> Elements:
        """Return what an update costs, in updates of the weight to which prices apply. Up to that size, a part of a
        weight costs as much as the whole; a larger part in proportion."""
        # In the original an update takes half a unit, for a shard as for a whole weight.
        if self.step <= 1 or not values:
            return self.step
        return max(1, simplest(Fraction(values[1].place.elements) / PRICED.weight))

    # -- for the rules of the kinds

    def back(self, number: int, parts: Mapping[str, Part]) -> Place:
        """Return the place of the gradient of one of its activations, by number."""
        # An activation that several layers take (a residual) has a gradient from each, which are parts of a sum.
        use = self.uses[number]
        return self.gradients[number].at(parts if use is None else {**parts, "uses": use})

    def by_weight(self, parts: Mapping[str, Part]) -> Place:
        """Return the place of the gradient of its weight, which it has."""
        return cast(Schema, self.weight_gradient).at(parts)

    def alike(self, op: str, one: Value, other: Value, *roles: str) -> None:
        """Check that two values have the same parts of some dims."""
        these, those = one.place.named, other.place.named
        for role in roles:
            mine, theirs = these.get(role), those.get(role)
            if mine is not theirs and (mine is None or theirs is None or not mine.alike(theirs)):
                raise RuleError(
                    facts.OtherBatches(op, one, other) if role == "batch" else facts.OtherParts(op, role, one, other)
                )

    def unbroken(self, op: str, value: Value, role: str, number: int, noun: str = "head") -> None:
        """Check that a value has only whole pieces, of `number`, of a dim: of features, whole heads or other groups."""
        here = part(value, role)
        if not here.whole and not here.shards(number):
            raise RuleError(facts.Broken(op, role, value, number, noun))


def schema(dims: Sequence[Dim], sums: Sequence[Sum] = (), running: Fraction | int = 0) -> Schema:
    """Return the schema with these dims and sums; a sum that two layers have in common is there once."""
    once = {one.dim.name: one.dim for one in sums}
    related = {(one.dim.name, one.of): one.relation for one in sums if one.relation}
    return Schema(dims, [*once.values()], [(*names, relation) for names, relation in related.items()], running)


def done(role: str, value: Value) -> None:
    """Check that a value is not a partial sum, which has to wait for the rest of the sum."""
    if value.place.open:
        raise RuleError(facts.PartialSum(role, value))


def fits(role: str, value: Value, weight: Any, side: str) -> None:
    """Check that an activation or a gradient has the features that belong to its part of a weight: rows (in) or
    columns."""
    features = value.place.dims[-1]
    if not features.alike(part(weight, side)):
        # All features and a part of the rows: more likely the weight was not gathered than the activation not cut.
        if features.whole and side == "in":
            raise RuleError(facts.Incomplete(weight))
        raise RuleError(facts.OtherFeatures(role, value, weight, side))


def part(value: Any, role: str) -> Part:
    """Return a value's part of a dim."""
    return value.place.part(role)


def fraction(here: Part | None) -> Fraction:
    """Return a part's fraction of its dim; 1 without a dim."""
    return Fraction(1) if here is None else Fraction(here.size) / here.dim.size
