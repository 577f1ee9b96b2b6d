"""What a layer is: its kind and sizes, and the tensors that follow from them.

All layers of a step are alike today, and of one kind: a linear one, which takes `rows` rows of `inputs` features for
each batch and has a weight of inputs x outputs elements.

Of a part of its weight a layer makes a part: with some columns (`out`) its output has those features; with some rows
(`in`), of an input that has those features, it is a partial sum, open over the `terms` that it lacks. Backwards it is
the other way round: the input's gradient is open over the columns that are not here, and has the features of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import FrozenInstanceError, asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from lib.errors.exceptions import RuleError
from lib.values.facts import Incomplete, OtherFeatures, Owes
from lib.values.placement import MOST, ONE_PIECE, Axis, Part, Place, Schema, keep

if TYPE_CHECKING:
    from lib.values.values import Value, Weight

__all__ = ["LINEAR", "Layer", "Shape", "Tensors", "by_hand", "done", "layer_from"]

_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class Layer:
    """The description of a layer. Sizes in elements."""

    kind: str = "linear"
    inputs: int = 512
    outputs: int = 512
    rows: int = 256

    @property
    def weight(self) -> int:
        """Elements of its weight, of the gradient of that, and of its optimizer state."""
        return self.inputs * self.outputs

    @property
    def batch(self) -> int:
        """Elements of the activation that it takes, and of the gradient of that, for one batch."""
        return self.rows * self.inputs

    def to_json(self) -> dict[str, Any]:
        """The fields: what `layer_from` reads."""
        return asdict(self)


LINEAR = Layer()
KINDS_OF_LAYER = ("linear",)


def layer_from(data: object) -> Layer:
    """The description that `to_json` wrote. ValueError where it is none, or of a kind that there is not."""
    fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    if set(fields) != {"kind", "inputs", "outputs", "rows"}:
        raise ValueError("a layer is described by its kind, inputs, outputs and rows")
    if fields["kind"] not in KINDS_OF_LAYER:
        raise ValueError(
            f"there is no kind of layer {str(fields['kind'])[:40]!r}; there is {', '.join(KINDS_OF_LAYER)}"
        )
    for name in ("inputs", "outputs", "rows"):
        if type(fields[name]) is not int or not 1 <= fields[name] <= MOST:
            raise ValueError(f"{name} of a layer is a whole number from 1 to {MOST}; got {str(fields[name])[:40]}")
    if fields["inputs"] != fields["outputs"]:
        raise ValueError("layers that are all alike have as many outputs as inputs: each takes what the last one gave")
    return Layer(**fields)


class Tensors:
    """The tensors of a layer in a step of so many batches: a schema for each, with the tables of their places."""

    __slots__ = ("_cut", "_gradients", "activation", "layer", "weight", "weight_gradient")

    def __init__(self, layer: Layer, batches: int) -> None:
        batch, rows, features = Axis("batch", batches), Axis("rows", layer.rows), Axis("features", layer.inputs)
        weight = (("in", Axis("in", layer.inputs)), ("out", Axis("out", layer.outputs)))
        self.layer = layer
        self.weight = Schema(weight)  # of an optimizer state too
        terms = Axis("terms", layer.inputs)  # of an activation the rows of the weight before it, of a gradient columns
        self.activation = Schema((("batch", batch), ("rows", rows), ("features", features)), sums=(("terms", terms),))
        self.weight_gradient = Schema(weight, sums=(("batch", batch), ("rows", rows)))
        self._gradients: dict[Place, Place] = {}
        self._cut: dict[tuple[Place, ...], tuple[Place, ...]] = {}

    def batches(self, items: frozenset[int]) -> Part:
        """A part of the batches, which are known to be those of the step."""
        batch = self.activation.axes[0]
        return batch.piece(batch.size, items)

    def weight_at(self, shards: frozenset[int], total: int) -> Place:
        """The place of some shards of a weight, whoever names them."""
        return self.weight.cut(self.weight.axes[0].named(total, shards))

    def activation_at(self, batches: frozenset[int]) -> Place:
        """The place of an activation, or the gradient of one, of some batches."""
        batch = self.activation.axes[0]
        return self.activation.cut(batch.named(batch.size, batches))

    def gradient_at(self, batches: frozenset[int], shards: frozenset[int] = ONE_PIECE, total: int = 1) -> Place:
        """The place of a part of a weight's gradient, summed over some batches."""
        split, rest, batch, rows = self.weight_gradient.axes
        return self.weight_gradient.place(
            split.named(total, shards), rest.whole, batch.named(batch.size, batches), rows.whole
        )

    def output_of(self, inp: Value, weight: Weight) -> Place:
        """The place of what forward gives of an input with a part of a weight, whose rows are the input's features."""
        key = (inp.place, weight.place)
        found = self._cut.get(key)
        if found is None:
            _fits("input of forward", inp, weight, 0)
            found = keep(self._cut, key, (self._activation(inp.place, weight.place, 0),))
        return found[0]

    def gradients_of(self, op: str, inp: Value, grad: Value, weight: Weight) -> Sequence[Place]:
        """The places of what backward gives: the gradients of the part of the weight, and of the input."""
        key = (inp.place, grad.place, weight.place)
        found = self._cut.get(key)
        if found is None:
            _fits(f"input of {op}", inp, weight, 0)
            _fits(f"gradient given to {op}", grad, weight, 1)
            by_input = self._activation(inp.place, weight.place, 1)
            found = keep(self._cut, key, (self.weight_gradient_of(inp.place, grad.place), by_input))
        return found

    def weight_gradient_of(self, inp: Place, grad: Place) -> Place:
        """The place of the gradient of a weight: its rows are the features of the input, its columns those of the
        gradient of the output."""
        whole = self.gradient_of(inp)
        if inp.plain and grad.plain:
            return whole
        split, columns, _, _ = self.weight_gradient.axes
        rows, out = (place.dims[-1] for place in (inp, grad))
        return whole.having("in", split.like(rows)).having("out", columns.like(out))

    def _activation(self, inp: Place, weight: Place, takes: int) -> Place:
        """What comes out of a weight that takes its rows (0), or backwards its columns (1)."""
        _, _, features, terms = self.activation.axes
        gives = features.like(weight.parts[1 - takes])
        return inp.having("features", gives).having("terms", terms.like(weight.parts[takes]))

    def gradient_of(self, place: Place) -> Place:
        """The place of the gradient of a whole weight that a backward pass over an activation gives: summed over the
        batches that the activation is split into."""
        found = self._gradients.get(place)
        if found is None:
            split, rest, batch, rows = self.weight_gradient.axes
            part = place.first
            part = part if part.axis is batch else batch.named(batch.size, place.batches)
            found = self.weight_gradient.place(split.whole, rest.whole, part, rows.whole)
            keep(self._gradients, place, found)
        return found


def done(role: str, value: Value) -> None:
    """Whether a value is no partial sum: whatever is done to it has to wait for the rest of the sum."""
    if value.place.open:
        raise RuleError(Owes(role, value))


def _fits(role: str, value: Value, weight: Weight, dim: int) -> None:
    """Whether an activation or a gradient has the features that the part of a weight is for: rows (0) or columns."""
    done(role, value)
    features, part = value.place.dims[-1], weight.place.parts[dim]
    if not features.alike(part):
        if features.whole and not dim:
            raise RuleError(Incomplete(weight))
        raise RuleError(OtherFeatures(role, value, weight, weight.place.schema.roles[dim]))


def by_hand(batches: Any = 1) -> Tensors:
    """Where values belong that are made by hand, without a step: the default layer's tensors. A few are kept."""
    return _by_hand(batches) if type(batches) is int else Tensors(LINEAR, batches)


@lru_cache(maxsize=16)
def _by_hand(batches: int) -> Tensors:
    return Tensors(LINEAR, batches)


class Shape:
    """The size of the training step: layers of the model, batches of the step, and what a layer is.

    Batches from the number `batches` on, `padding` of them, are padding: they take time and memory as others do, and no
    gradient needs them. `items` are all together.

    It has the tables of the step's places: values of one run share them, and they go when the run goes.
    """

    __slots__ = ("_whole", "batches", "items", "layer", "layers", "padding", "tensors")
    layers: int
    batches: int
    padding: int
    items: int
    layer: Layer
    tensors: Tensors
    _whole: dict[frozenset[int], bool]

    def __init__(self, layers: int, batches: int, layer: Layer = LINEAR, padding: int = 0) -> None:
        items = batches + padding
        for name, value in (("layers", layers), ("batches", batches), ("layer", layer), ("padding", padding)):
            _set(self, name, value)
        _set(self, "items", items)
        _set(self, "_whole", {})
        _set(self, "tensors", Tensors(layer, items))

    def whole(self, batches: frozenset[int]) -> bool:
        """Whether these are all batches of the step, with whatever padding."""
        if len(batches) == self.items or not self.padding:
            return len(batches) == self.items
        found = self._whole.get(batches)
        return keep(self._whole, batches, batches.issuperset(range(self.batches))) if found is None else found

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}: the size of a step never changes")

    def __repr__(self) -> str:
        return f"Shape(layers={self.layers}, batches={self.batches})"
