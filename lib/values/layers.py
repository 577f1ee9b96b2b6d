"""The layers of a training step, each with its inputs and outputs, and the tables of their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, cast

from lib.errors.wording import counted
from lib.record import record, replace
from lib.values.dims import SPACE
from lib.values.kinds.kind import PRICED, SIZES, USUAL, Dims, Layer, LayerKind, Sum, schema
from lib.values.placement import MOST, Dim, Schema, give, keep

_MODULES = {
    "linear": "linear norm layer_norm add embedding cross_entropy",
    "attention": "attention neighborhood_attention",
    "experts": "dispatch experts combine",
    "grid": "convolution transposed_convolution pooling mean moments group_norm transform",
}
LAYER_KINDS: Final = MappingProxyType({name: module for module, names in _MODULES.items() for name in names.split()})
"""The module of `kinds` with the class of each kind of layer, loaded for the first layer of the kind."""
LISTS = ("of", "route", "groups")


def _kind(name: object) -> type[LayerKind]:
    """Return the class of a kind of layer: for group_norm, GroupNorm."""
    if not isinstance(name, str) or name not in LAYER_KINDS:
        raise ValueError(f"there is no kind of layer {str(name)[:40]!r}; there is {', '.join(LAYER_KINDS)}")
    return getattr(import_module(f"lib.values.kinds.{LAYER_KINDS[name]}"), name.title().replace("_", ""))


def layer_from(data: object) -> Layer:
    """Return the description that `to_json` wrote. ValueError if it is none, or of an unknown kind."""
    given = dict(cast("dict[str, Any]", data)) if isinstance(data, dict) else {}
    kind = _kind(given["kind"]) if "kind" in given else None
    wanted = [*SIZES, *(kind.options if kind is not None else ())]
    wanted += [name for name in (kind.optional if kind is not None else ()) if name in given]
    if given.keys() - {"of"} != set(wanted):
        raise ValueError(f"a layer is described by its {', '.join(wanted[:-1])} and {wanted[-1]}")
    for name in LISTS:
        if not isinstance(given.get(name, []), list):
            raise ValueError(f"{name} of a layer is a list; got {str(given[name])[:40]}")
    layer = Layer(**given)
    _refuse(layer)
    return layer


def _refuse(layer: Layer) -> None:
    """Raise ValueError for an impossible layer, whether a student describes it or a file."""
    if not isinstance(layer, Layer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"each layer is described by a Layer, such as Layer(outputs=2048); got {str(layer)[:40]}")
    kind = _kind(layer.kind)
    for name in Layer.__match_args__:
        item, usual = getattr(layer, name), getattr(PRICED, name)
        left_out = item == usual and type(item) is type(usual)
        if name in ("kind", "of") or (left_out and name not in kind.options):
            continue
        if name not in (*SIZES, *kind.options, *kind.optional):
            raise ValueError(f"a layer of the kind {layer.kind} has no {name}; got {name}={repr(item)[:40]}")
        least = int(name != "padding")
        if name not in (*LISTS, "capacity", "along") and (type(item) is not int or not least <= item <= MOST):
            raise ValueError(f"{name} of a layer is a whole number from {least} to {MOST}; got {repr(item)[:40]}")
    if not all(type(one) is int and 0 <= one <= MOST for one in layer.of):
        raise ValueError(
            f"of= names the activations that a layer takes, by number, such as (0, 1); got {repr(layer.of)[:40]}"
        )
    # A capacity below 1 has an error of its own, as has a route without experts.
    if layer.capacity is not None and (type(layer.capacity) is not int or layer.capacity > MOST):
        raise ValueError(f"the capacity of an expert is a whole number up to {MOST}; got {repr(layer.capacity)[:40]}")
    if not all(type(one) is int and one <= MOST for one in layer.groups):
        raise ValueError(f"groups= says how many tokens each has, up to {MOST}; got {repr(layer.groups)[:40]}")
    if sum(map(len, layer.route)) > MOST or not all(type(one) is int for chosen in layer.route for one in chosen):
        raise ValueError(f"a route says the experts of each token, by number, at most {MOST} in all")


@record(eq=False)
class Shape:
    """The size of the training step: layers of the model, batches of the step, and descriptions of the layers.

    `descriptions` has one for each layer, or one for all. After the batches come `padding` more: they take time and
    memory like others, but no gradient needs them. `items` counts both.

    It has the tables of the step's places: values of one run share them, and they live as long as the run.
    """

    layers: int
    batches: int
    padding: int
    items: int
    descriptions: tuple[Layer, ...]
    kinds: Sequence[LayerKind]
    by_number: dict[int, tuple[LayerKind, int, int]]
    """Of each layer its kind, and the numbers of its operands: its input, and another activation or its weight."""
    usual: bool
    """Whether all layers have the size to which prices apply."""
    activations: Sequence[Schema]
    gradients: Sequence[Schema]
    _whole: dict[frozenset[int], bool]

    def __init__(
        self, layers: int, batches: int, descriptions: Layer | Sequence[Layer] = USUAL, padding: int = 0
    ) -> None:
        described = (descriptions,) if isinstance(descriptions, Layer) else tuple(descriptions)
        for number, layer in enumerate(described):
            if not number or layer != described[number - 1]:
                _refuse(layer)
        if len(described) not in (1, layers):
            raise ValueError(
                f"a model of {counted(layers, 'layer')} has one description for all of them, or one for each"
            )
        # `of` names activations by number, so layers with it are never alike, even with equal descriptions.
        if len(described) == 1 and described[0].of:
            described *= layers
        elif len(set(described)) == 1 and not described[0].of:
            described = described[:1]
        give(self, layers=layers, batches=batches, padding=padding, items=batches + padding if padding else batches)
        give(self, descriptions=described, _whole={})
        # One object for each dim of the step: parts are compared by identity first, and it has their tables.
        dim = cache(Dim)
        kinds, edges = self._made(dim)
        # Only now: gradients depend on all layers that take an activation.
        self._wire(kinds, edges, dim)
        give(self, kinds=kinds * layers if len(described) == 1 else kinds)
        give(self, by_number={n: (kind, *(*self.of(n), n)[:2]) for n, kind in enumerate(self.kinds)})
        give(self, usual=all(kind.usual and kind.step == 1 for kind in kinds))

    def of(self, number: int) -> tuple[int, ...]:
        """Return the activations that a layer takes: by default that of its own number, perhaps twice."""
        layer = self.descriptions[number if len(self.descriptions) > 1 else 0]
        return layer.of or (number,) * (1 + (_kind(layer.kind).takes == "activation"))

    def _made(self, dim: Callable[[str, int], Dim]) -> tuple[list[LayerKind], list[Dims]]:
        """Return the layers and the dims of all activations. One layer stands for all if they are alike."""
        first = self.descriptions[0]
        data = {"batch": self.items, **first.space, "features": _kind(first.kind).width(first)}
        edges: list[Dims] = [{role: dim(role, size) for role, size in data.items()}]
        kinds: list[LayerKind] = []
        for number, layer in enumerate(self.descriptions):
            cls, of = _kind(layer.kind), self.of(number)
            if len(of) != 1 + (cls.takes == "activation"):
                raise ValueError(f"layer {number}, {layer.kind}, takes {1 + (cls.takes == 'activation')} activations")
            # Only outputs of earlier layers: so the graph has no cycle, and the order of layers is a schedule.
            if not all(0 <= one <= number for one in of):
                raise ValueError(f"layer {number} takes activations from 0 to {number}; got of={of}")
            dims = [edges[one] for one in of]
            sizes = {role: one.size for role, one in dims[0].items() if role in (*SPACE, "features")}
            if sizes != (takes := {**layer.space, "features": cls.width(layer)}):
                raise ValueError(f"layer {number} takes {_size_words(takes)}, and is given {_size_words(sizes)}")
            try:
                kinds.append(cls(layer, dims, dim))
            except ValueError as error:
                raise ValueError(f"layer {number}: {error}") from None
            edges.append(kinds[-1].gives)
        if "experts" in edges[-1]:
            raise ValueError(
                "tokens that are dispatched to experts are combined again: give a layer of the kind combine"
            )
        if len(kinds) == 1 and self.layers > 1 and kinds[0].gives != kinds[0].dims:
            raise ValueError(
                "layers that are all alike have as many outputs as inputs: each takes what the last one gave"
            )
        return kinds, edges

    def _wire(self, kinds: list[LayerKind], edges: list[Dims], dim: Callable[[str, int], Dim]) -> None:
        """Make the schemas of all activations and their gradients, which two or more layers share."""
        alike = len(kinds) == 1 and kinds[0].gives == kinds[0].dims
        used: list[list[tuple[LayerKind, int]]] = [[] for _ in edges]
        for number, kind in enumerate(kinds):
            for place, one in enumerate(self.of(number)):
                used[one].append((kind, place))
        if [] in used[:-1]:
            raise ValueError(
                f"activation {used.index([])} is taken by no layer: name it in of= of a later one, or leave it out"
            )
        activations: list[Schema] = []
        gradients: list[Schema] = []
        once = cache(schema)  # equal schemas are one object: values of many layers have the same places
        for number, (dims, uses) in enumerate(zip(edges, used, strict=True)):
            before = kinds[number - 1] if number or alike else None
            owes = [one for kind, place in uses for one in kind.owes[place]]
            owes += [Sum(dim("uses", len(uses)))] if len(uses) > 1 else []
            spaces = tuple(dims.values())
            activations.append(once(spaces, before.opens if before else (), before.running if before else 0))
            gradients.append(once(spaces, tuple(owes), 0))
        # One layer stands for all, so its output is the next one's input: one schema, with one table.
        if alike:
            activations[1], gradients[1] = activations[0], gradients[0]
        # A hundred blocks of a transformer are a few kinds of layers, which share their tables.
        known: dict[tuple[object, ...], LayerKind] = {}
        for number, kind in enumerate(kinds):
            of = self.of(number)
            kind.activations, kind.gradients = [activations[one] for one in of], [gradients[one] for one in of]
            kind.output, kind.output_gradient = activations[number + 1], gradients[number + 1]
            kind.uses = [
                gradients[one].spaces[-1].shard(used[one].index((kind, place)), len(used[one]))
                if len(used[one]) > 1
                else None
                for place, one in enumerate(of)
            ]
            # Layers that are alike are one, with one table of places.
            wired = *kind.activations, *kind.gradients, *kind.uses, kind.output, kind.output_gradient
            kinds[number] = known.setdefault((replace(kind.layer, of=()), *wired), kind)
        give(self, activations=activations, gradients=gradients)

    def schema_of(self, tensor: str, layer: int) -> Schema | None:
        """Return the schema of a tensor of a layer, or of the nearest layer; None for a weight if it has none."""
        if len(self.descriptions) == 1 and self.layers > 1:
            layer = 0
        if tensor in ("weight", "weight_gradient"):
            # A file may name an unknown layer; the rules refuse such a value, with words.
            return getattr(self.kinds[min(max(layer, 0), len(self.kinds) - 1)], tensor)
        edges = self.activations if tensor == "activation" else self.gradients
        return edges[min(max(layer + (tensor == "gradient"), 0), len(edges) - 1)]

    def whole(self, batches: frozenset[int]) -> bool:
        """Tell whether these are all batches of the step, with any padding."""
        if not self.padding:
            return len(batches) == self.items
        # With padding a set has to be gone through, and updates ask for the same few again and again.
        found = self._whole.get(batches)
        return keep(self._whole, batches, batches.issuperset(range(self.batches))) if found is None else found

    def __repr__(self) -> str:
        return f"Shape(layers={self.layers}, batches={self.batches})"


def _size_words(sizes: Mapping[str, int]) -> str:
    """Return a size in words: "64 rows of 512 features", "64 x 32 points of 8 features"."""
    *space, features = sizes.values()
    return f"{' x '.join(map(str, space))} {'points' if space[1:] else 'rows'} of {features} features"


@lru_cache(maxsize=16)
def by_hand(batches: int = 1) -> Shape:
    """Return the step of values that are made by hand, with the tensors of a default layer. A few are kept."""
    return Shape(1, batches)
