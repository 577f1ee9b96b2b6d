"""Small runs with one collective or message each, which the tests of `drawing.diagrams` draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lib import Layer, Mesh, Model, Trace
from tests.drawing.runs import trace


async def allreduce(model: Model) -> None:
    model.grad_weights["sum"] = await model.allreduce(model.fake_grad(0, [model.rank]), 0)


async def allreduce_bucket(model: Model) -> None:
    await model.allreduce_bucket([model.fake_grad(layer, [model.rank]) for layer in reversed(range(model.LAYERS))])


async def allgather(model: Model) -> None:
    model.weights[0], _ = model.load_weights(0, model.rank, model.RANKS)
    model.weights["whole"] = await model.allgather(model.weights[0], 0)


async def scatterreduce(model: Model) -> None:
    model.grad_weights["part"] = await model.scatterreduce(model.fake_grad(0, [model.rank]), 0)


async def broadcast(model: Model) -> None:
    weight, _ = model.load_weights(0)
    model.weights[0] = await model.broadcast(weight, 0, 1)


async def alltoall(model: Model) -> None:
    mine = [model.get_activation([model.RANKS * model.rank + other]) for other in range(model.RANKS)]
    await model.alltoall(mine, 0)


async def allgather_padded(model: Model) -> None:
    """Of three parts, of which the last rank has two."""
    parts = [model.load_weights(0, part, model.RANKS + 1)[0] for part in range(model.RANKS + 1)]
    mine = parts[model.rank] if model.rank < model.RANKS - 1 else parts[-2].combine(parts[-1])
    model.weights["whole"] = await model.allgather_padded(mine, 0)


async def alltoall_padded(model: Model) -> None:
    mine = [model.get_activation(range(other + 1)) for other in range(model.RANKS)]
    await model.alltoall_padded(mine, 0)


async def halo(model: Model) -> None:
    edges = [model.get_activation([model.rank, model.RANKS + model.rank]), model.get_activation([model.rank])]
    await model.halo(edges[model.rank == 0 :][: 1 + (0 < model.rank < model.RANKS - 1)], 0)


async def allreduce_mean(model: Model) -> None:
    mine = model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS)
    model.activations[1] = await model.allreduce_mean(model.forward(0, mine), 0)


async def shift(model: Model) -> None:
    model.activations[0] = await model.shift(model.get_activation([model.rank]), 0)


async def message(model: Model) -> None:
    if model.rank == 0:
        await model.pass_to(1, model.get_activation([0, 2]))
    elif model.rank == 1:
        model.activations[0] = await model.receive(0)


async def missing(model: Model) -> None:
    if model.rank != 2:
        await model.allreduce(model.fake_grad(0, [model.rank]), 0)


async def different(model: Model) -> None:
    layer = 1 if model.rank == 2 else 0
    await model.allreduce(model.fake_grad(layer, [model.rank]), layer)


async def unreceived(model: Model) -> None:
    if model.rank == 0:
        await model.pass_to(1, model.get_activation([0]))
    else:
        await model.receive(2)


async def grid(model: Model) -> None:
    """Shards are gathered along one axis, and gradients added up along the other."""
    data, shard = model.mesh.coordinates(model.rank).values()
    model.weights[0], _ = model.load_weights(0, shard, 2)
    await model.allgather(model.weights[0], 0, group=model.mesh.group(model.rank, "shard"))
    await model.allreduce(model.fake_grad(1, [data]), 1, group=model.mesh.group(model.rank, "data"))


MESH = Mesh({"data": 2, "shard": 2})


def small(function: Callable[[Model], Any], ranks: int = 4, **sizes: Any) -> Trace:
    return trace(function, **{"ranks": ranks, "layers": 2, "batches": ranks * ranks, **sizes})


SMALL = (allreduce, allreduce_bucket, allgather, scatterreduce, broadcast, alltoall, shift, message)
SMALL += (allgather_padded, alltoall_padded, halo, missing, different, unreceived)
EXCHANGES: dict[str, Trace] = {
    **{each.__name__: small(each) for each in SMALL},
    "allreduce_mean": small(allreduce_mean, layers=[Layer("mean"), Layer(rows=1)]),
    "grid": small(grid, mesh=MESH),
    "many": small(allgather, ranks=12),
}
