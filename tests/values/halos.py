"""Steps of convolutions of three rows whose grid is dealt out by rows, by each way to fetch those of neighbours, and
with mistakes. Other ways are those of the puzzle halo_conv."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from lib import Model

__all__ = ["Part", "step"]

Value = Any


class Part:
    """The rows of a rank, and what it shares with its neighbours."""

    def __init__(self, model: Model, sizes: Sequence[int]) -> None:
        ends, place = [0, *accumulate(sizes)], model.rank
        self.model, self.rows, self.low, self.high = model, ends[-1], ends[place], ends[place + 1]
        self.members = [rank for rank, size in enumerate(sizes) if size]
        self.first, self.last = place <= self.members[0], place >= self.members[-1]

    def beside(self, before: int, after: int) -> list[int]:
        """The row that counts at the edge to the rank before, and that at the edge to the rank after."""
        if self.model.rank not in self.members:
            return []
        return [row for row, none in ((before, self.first), (after, self.last)) if not none]

    @property
    def edges(self) -> list[int]:
        return self.beside(self.low, self.high - 1)

    @property
    def halo(self) -> list[int]:
        return self.beside(self.low - 1, self.high)

    def row(self, value: Value, row: int) -> Value:
        return value.cut("rows", row, row + 1)

    def inner(self, value: Value, by: int) -> Value:
        """Its rows, but for so many at each edge to a neighbour."""
        by = by if self.high > self.low else 0
        return value.cut("rows", self.low + (0 if self.first else by), self.high - (0 if self.last else by))


async def exchange(part: Part, way: str, edges: list[Value], layer: int) -> list[Value]:
    """What neighbours have for this rank; nothing where it has no rows."""
    model = part.model
    if way == "halo":
        return await model.halo(edges, layer, part.members) if edges else []
    first = edges[0].place.part("rows").pieces.runs[0][0]
    nothing = edges[0].cut("rows", first, first)
    parts = [nothing] * model.RANKS
    near = [rank for rank in range(model.RANKS) if abs(rank - model.rank) == 1]
    for rank, edge in zip(near, edges, strict=True):
        parts[rank] = edge
    got = await model.alltoall(parts, layer)
    return [got[rank] for rank in near]


def step(sizes: Sequence[int], way: str = "halo", *, last_back: bool = True, mistake: str = "") -> Any:
    """Forward, backward and update with so many rows on each rank; edges travel by "halo" or "alltoall". `last_back`:
    the gradient of the data's halo goes home too, though nobody needs it. `mistake`: what is not done."""

    async def function(model: Model) -> Model:
        part, states, kept = Part(model, sizes), dict[int, Value](), dict[int, Value]()
        for layer in range(model.LAYERS):
            model.weights[layer], states[layer] = model.load_weights(layer)
        x = part.inner(model.get_activation(range(model.BATCHES)), 0)
        for layer in range(model.LAYERS):
            if mistake != "no halo":
                for edge in await exchange(part, way, [part.row(x, row) for row in part.edges], layer):
                    x = x.combine(edge)
            kept[layer] = x
            x = model.forward(layer, x, model.weights[layer])
        g = model.loss(x)
        for layer in reversed(range(model.LAYERS)):
            dw, g = model.backward(layer, kept.pop(layer), g, model.weights[layer])
            if layer and mistake == "halo's gradient dropped":
                g = part.inner(g, 0)
            elif layer or last_back:
                back = await exchange(part, way, [part.row(g, row) for row in part.halo], layer)
                own = part.inner(g, 1)
                for row, more in zip(part.edges, back, strict=True):
                    own = own.combine(part.row(g, row) + more)
                g = own
            dw = await model.allreduce(dw, layer)
            model.set_final_weight(layer, model.update(layer, dw, model.weights[layer], states[layer])[0])
        return model

    return function
