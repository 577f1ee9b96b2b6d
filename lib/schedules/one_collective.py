"""A schedule of one collective and nothing else, to see what it does to the values of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from lib.simulator.model import Model
from lib.values.collectives import COLLECTIVES
from lib.values.laws import average, gather

__all__ = ["one_collective"]


def one_collective(name: str) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The collective of that name (as Model's method is called) on layer 0, by all ranks.

    What gathers is given a shard of a weight by each rank. All others are given a gradient, for the batch with the
    rank's own number; where a rank has something for each of the others, that is a shard of its gradient. What averages
    is given a mean of some of the rows by each, of a model whose layer 0 is of the kind mean.
    """
    row = COLLECTIVES[name]

    async def alone(model: Model) -> None:
        store = cast("dict[Any, Any]", model.weights if row.law is gather else model.grad_weights)
        if row.law is gather:
            brought, model.opt_states["mine"] = model.load_weights(0, model.rank, model.RANKS)
        elif row.law is average:
            store = cast("dict[Any, Any]", model.activations)
            brought = model.forward(0, model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS))
        else:
            brought = model.fake_grad(0, [model.rank])
        run = cast("Callable[[Any, int], Any]", getattr(model, name))
        if row.bucket:
            bucket = [model.fake_grad(layer, [model.rank]) for layer in range(model.LAYERS)]
            store.update((("gets", layer), value) for layer, value in enumerate(await model.allreduce_bucket(bucket)))
            return
        if row.many:
            count = row.takes(model.rank, model.RANKS)
            parts = await run([brought.shard(part, model.RANKS) for part in range(count)], 0)
            store.update((("gets", part), value) for part, value in enumerate(parts))
            return
        store["brings"] = brought
        store["gets"] = await run(brought, 0)

    return alone
