"""Schedules on a mesh that cut the tensors of each layer: tensor parallel and domain parallel.

**Tensor parallel**: rows of data along one axis, and along the other each layer cut among the ranks. Layers come in
pairs: the first of a pair is cut into columns, the second into rows (Shoeybi et al. 2019, arXiv 1909.08053), so that a
pair owes one all-reduce forward and one backward.

**Domain parallel**: each rank has a part of every grid, fetches the edges of its neighbours, and gives gradients back.
An axis of the mesh named "rows", "columns" or "planes" cuts that dim of the grids. Along each in turn neighbours
exchange their edges, with what has come along those before, so that corners come by themselves; and backwards in the
other order (ShardTensor of NVIDIA PhysicsNeMo, https://github.com/NVIDIA/physicsnemo).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple

from lib.errors.wording import numbered
from lib.schedules.given import by_chunk, summed
from lib.schedules.steps import forward, loss, step
from lib.simulator.model import Model
from lib.values.dims import AVERAGED, DIMS, SPACE, RunSet
from lib.values.kinds.attention import NeighborhoodAttention
from lib.values.kinds.grid import Mean, Moments, Stencil, Swept
from lib.values.kinds.kind import LayerKind, Sum
from lib.values.values import Activation, ActivationGrad

PLACEMENTS = ("full", "batch", "replicated")
"""Which batches a device is given: a part of those of its row of data, those of its row, or all."""


def tensor_parallel(
    placement: str = "batch", first_input: bool = False
) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """Make a tensor parallel step on a mesh with the axes "data" and "model": each row of data has its share of the
    batches, placed as PLACEMENTS says. `first_input`: it also sums the gradient of the data, which nobody needs."""

    async def cut(model: Model) -> None:
        member, members = model.coord["model"], len(model.group("model"))
        for layer in range(model.LAYERS):
            loaded = model.load_weights(layer, member, members, "in" if layer % 2 else "out")
            model.weights[layer], model.opt_states[layer] = loaded
        activations, grads = model.activations, model.grad_activations
        activations[0] = await _take(model, placement)
        for layer in range(model.LAYERS):
            forward(model, layer)
            if layer % 2:
                activations[layer + 1] = await model.allreduce(activations[layer + 1], layer, "model")
        loss(model)
        for layer in reversed(range(model.LAYERS)):
            x, grad, weight = activations.pop(layer), grads.pop(layer), model.weights[layer]
            model.grad_weights[layer], grad = model.backward(layer, x, grad, weight)
            if layer % 2 == 0 and (layer or first_input):
                grad = await model.allreduce(grad, layer, "model")
            grads[layer - 1] = grad
        del grads[-1]
        for layer in range(model.LAYERS):
            model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer, "data")
            step(model, layer)

    return cut


async def _take(model: Model, placement: str) -> Activation:
    rows = len(model.group("data"))
    each = model.BATCHES // rows
    first = model.coord["data"] * each
    if placement == "batch":
        return model.get_activation(range(first, first + each))
    if placement == "replicated":
        return model.get_activation(range(model.BATCHES)).shard(model.coord["data"], rows)
    assert placement == "full", f"there are the placements {PLACEMENTS}"
    mine = each // len(model.group("model"))
    first += model.coord["model"] * mine
    return await model.allgather(model.get_activation(range(first, first + mine)), 0, "model")


Ends = tuple[int, int]


class Edges(NamedTuple):
    """The edges of the places along a dim: what each has of a grid, and what it takes for a layer, its own and its
    halo. Places without rows take none, and are beside no other."""

    own: list[Ends]
    takes: list[Ends]

    @classmethod
    def of(cls, stencil: Stencil, own: list[Ends], layer: int, role: str) -> Edges:
        """Return what each place takes: of what its own outputs need, all. ValueError where a place has rows and none
        of the outputs, or where those beside it do not have what it needs."""
        edges, outputs = cls(own, [*own]), _outputs(stencil, own)
        for place, ((low, high), (first, after)) in enumerate(zip(own, outputs, strict=True)):
            if first < after:
                needs = max(stencil.needs(first)[0], 0), min(stencil.needs(after - 1)[-1] + 1, stencil.rows)
                edges.takes[place] = min(low, needs[0]), max(high, needs[1])
        for place, (first, after) in enumerate(outputs):
            here = RunSet.span(*own[place])
            lent = [RunSet.span(*edges.lent(one, place)) for one in edges.beside(place)]
            missing = [row for row in range(*edges.takes[place]) if row not in RunSet.union([here, *lent])]
            if here and first == after:
                why = f"none of its {stencil.outputs} outputs along {role} belongs to place {place}, which has "
                why += f"{numbered(DIMS[role].noun, here)}: no kernel has its middle there"
            elif here and missing:
                rows = numbered(DIMS[role].noun, missing)
                why = f"the part at place {place} along {role} needs {rows}, which those beside it do not have"
            else:
                continue
            raise ValueError(f"layer {layer}: {why}. Cut the grid into fewer parts, or more evenly")
        return edges

    def beside(self, place: int) -> list[int]:
        """Return the places before and after one that has rows, of those that have some."""
        members = [one for one, (low, high) in enumerate(self.own) if low < high]
        at = bisect_left(members, place)
        return members[max(at - 1, 0) : at] + members[at + 1 : at + 2] if place in members else []

    def lent(self, owner: int, borrower: int) -> Ends:
        """Return which of its own rows one place lends another."""
        low, high = max(self.own[owner][0], self.takes[borrower][0]), min(self.own[owner][1], self.takes[borrower][1])
        return low, max(low, high)


def domain_parallel(
    parts: Mapping[str, Sequence[int]] | None = None, data: str = "data"
) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """Make a step in which every exchange is awaited, and the sums of the weights' gradients travel behind it.
    `parts` are the sizes of the parts of a dim, by the rule of torch.chunk where it does not say. The mesh may have an
    axis `data`, along which ranks share the batches. ValueError where a part needs rows of others than its neighbours,
    or has none of the outputs of a layer."""

    async def cut(model: Model) -> None:
        grid = _Grid(model, parts or {}, data)
        weights, opt_states, activations, grads, sums = model.storage()
        place, places = model.coord.get(data, 0), len(model.group(data)) if data in model.coord else 1
        mine = range(model.BATCHES * place // places, model.BATCHES * (place + 1) // places)
        activations[0] = grid.cut(model.get_activation(mine), grid.own[0])
        kinds, of = model.shape.kinds, model.shape.of
        taken: dict[int, list[Any]] = {}
        under_way: dict[int, Any] = {}
        for layer, kind in enumerate(kinds):
            taken[layer] = [activations[one] for one in of(layer)]
            if kind.weight is not None:
                weights[layer], opt_states[layer] = model.load_weights(layer)
                taken[layer].append(weights[layer])
            if layer in grid.edges:
                at = grid.widened(kind)
                taken[layer][at] = await grid.borrow(taken[layer][at], layer)
            out = grid.cut(model.forward(layer, *taken[layer]), grid.own[layer + 1])
            activations[layer + 1] = await grid.summed(out, kind.opens, layer)
        grads[model.LAYERS] = model.loss(activations[model.LAYERS])
        activations.clear()
        for layer in reversed(range(model.LAYERS)):
            found = model.backward(layer, taken[layer][0], grads.pop(layer + 1), *taken.pop(layer)[1:])
            given: list[Any] = [found] if isinstance(found, ActivationGrad) else [found[1], found[0]]
            if kinds[layer].weight is not None:
                sums[layer] = given.pop()
                if owed := grid.owed(layer, data):
                    under_way[layer] = model.allreduce(sums.pop(layer), layer, owed)
            for at, (number, grad) in enumerate(zip(of(layer), given, strict=True)):
                if number and layer in grid.edges and at == grid.widened(kinds[layer]):
                    grad = await grid.give_back(grad, layer)
                else:
                    grad = await grid.summed(grad, kinds[layer].owes[at], layer)
                if number:  # the gradient of the data is not needed
                    grads[number] = grads[number] + grad if number in grads else grad
        for layer, kind in enumerate(kinds):
            if kind.weight is not None:
                if layer in under_way:
                    sums[layer] = await under_way[layer]
                step(model, layer)

    return cut


class _Grid:
    """A rank's part of every grid of a step, and what it exchanges with its neighbours for which layer."""

    def __init__(self, model: Model, parts: Mapping[str, Sequence[int]], data: str) -> None:
        shape, axes = model.shape, model.mesh.axes
        self.model, self.coord, self.axes = model, model.coord, [role for role in SPACE if role in axes]
        first = shape.kinds[0].layer.space
        if unknown := [axis for axis in axes if axis not in (*SPACE, data)]:
            raise ValueError(
                f"axes of the mesh are {', '.join(SPACE)}, which cut the grid, and {data}, along which batches are "
                f"shared; got {unknown[0]}"
            )
        if missing := [role for role in {*self.axes, *parts} if role not in first or role not in axes]:
            raise ValueError(
                f"the mesh cuts {', '.join(self.axes) or 'nothing'}, and the data is a grid of {' and '.join(first)}: "
                f"there is no {missing[0]} to cut"
            )
        self.own = [{role: _parts(role, first[role], axes[role], parts.get(role)) for role in self.axes}]
        self.edges: dict[int, dict[str, Edges]] = {}
        for layer, kind in enumerate(shape.kinds):
            before = self.own[shape.of(layer)[-1 if self.widened(kind) else 0]]
            after = before
            if stencils := _stencils(kind):
                found = {role: Edges.of(stencils[role], before[role], layer, role) for role in self.axes}
                self.edges[layer] = {role: edges for role, edges in found.items() if edges.takes != edges.own}
                after = {role: _outputs(stencils[role], ends) for role, ends in before.items()}
            if isinstance(kind, Mean | Moments):  # of what is of the whole grid all ranks have all
                if self.axes and prod(sum(low < high for low, high in ends) for ends in before.values()) == 1:
                    raise ValueError(
                        f"layer {layer}: one rank has all of its input, and the others wait for a part of the sum. Cut "
                        "the grid more evenly"
                    )
                after = {role: [(0, 1)] * len(ends) for role, ends in before.items()}
            self.own.append(after)

    def widened(self, kind: LayerKind) -> int:
        """Return which of the activations that a layer takes needs a halo."""
        return int(isinstance(kind, NeighborhoodAttention))

    def cut(self, value: Any, ends: Mapping[str, Sequence[Ends]]) -> Any:
        """Return this rank's part of what it has, which may be more."""
        for role, every in ends.items():
            low, high = every[self.coord[role]]
            if value.place.named[role].pieces != RunSet.span(low, high):
                value = value.cut(role, low, high)
        return value

    def owed(self, layer: int, data: str) -> list[str]:
        """Return the axes along which others have a part of the gradient of a weight: of what is of the whole grid,
        none."""
        own = self.own[layer + 1]
        return [axis for axis in self.coord if axis == data or (axis in own and len({*own[axis]}) > 1)]

    async def summed(self, value: Any, sums: Sequence[Sum], layer: int) -> Any:
        """Return a value that is of the whole grid, with what all ranks of the domain have of it."""
        of_the_grid = self.axes and any(one.dim.name in AVERAGED.values() for one in sums)
        return await self.model.allreduce(value, layer, self.axes) if of_the_grid else value

    async def borrow(self, value: Activation, layer: int) -> Activation:
        """Return a value with its halo."""
        for role, edges in self.edges[layer].items():
            for edge in await self._exchange(value, layer, role, edges.lent):
                value = value.combine(edge)
        return value

    async def give_back(self, grad: ActivationGrad, layer: int) -> ActivationGrad:
        """Return the gradient of its own part, with what others have for that, of a gradient that has the halo's
        besides."""
        for role, edges in reversed(self.edges[layer].items()):
            due = await self._exchange(grad, layer, role, lambda place, one, edges=edges: edges.lent(one, place))
            rows = [more.place.named[role].pieces.runs[0] for more in due]
            grad = summed(*edges.own[self.coord[role]], grad, rows, due, role)
        return grad

    async def _exchange(self, value: Any, layer: int, role: str, ends: Callable[[int, int], Ends]) -> list[Any]:
        """Return what neighbours along a dim have for this rank, which sends them what `ends` says of its place and of
        theirs."""
        edges, place = self.edges[layer][role], self.coord[role]
        if not (beside := edges.beside(place)):
            return []
        members = [rank for rank, (low, high) in zip(self.model.group(role), edges.own, strict=True) if low < high]
        got = await self.model.halo([value.cut(role, *ends(place, one)) for one in beside], layer, members)
        return [one for one in got if one.place.named[role].pieces]


def _stencils(kind: LayerKind) -> Mapping[str, Stencil]:
    if isinstance(kind, Swept):
        return kind.stencils
    return kind.windows if isinstance(kind, NeighborhoodAttention) else {}


def _parts(role: str, size: int, places: int, sizes: Sequence[int] | None) -> list[Ends]:
    """Return where the part of each place along a dim begins and ends."""
    given = by_chunk(size, places) if sizes is None else sizes
    whole = isinstance(given, list | tuple) and all(type(one) is int and one >= 0 for one in given)
    if not whole or len(given) != places or sum(given) != size:
        raise ValueError(f"parts of {role} are {places} whole numbers that add up to {size}; got {given!r}")
    return [*pairwise([0, *accumulate(given)])]


def _outputs(stencil: Stencil, own: Sequence[Ends]) -> list[Ends]:
    """Return which outputs belong to each place: those whose middle row it has."""
    every = range(stencil.outputs)
    low, high = ([bisect_left(every, both[end], key=stencil.centre) for both in own] for end in (0, 1))
    return [*zip(low, high, strict=True)]
