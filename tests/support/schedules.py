"""Schedules to test with: the classic eight, pipelines, overlap, meshes, messages. Correct ones, unless they say so.

Each of the classic eight keeps exactly so much that its figures are those of the original's own solution. The others
free everything as early as they can: those of `lib.schedules`, and some that only tests need.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from lib import LINKS, UNIT, Activation, Costs, Links, Mesh, Model, Uneven, WeightGrad
from lib.schedules.data_parallel import checkpointed, fetching, fully_sharded, zero
from lib.schedules.data_parallel import ddp as ddp_lean
from lib.schedules.mesh_parallel import tensor_parallel
from lib.schedules.pipelines.generators import gpipe as gpipe_order
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.schedules.steps import accumulate, backward, compute, forward, load, loss, mine, step, update

Function = Callable[[Model], Any]


class Case(NamedTuple):
    name: str
    function: Function
    ranks: int
    layers: int
    batches: int
    mesh: Mesh | None = None
    costs: Costs = UNIT

    def run(self, driver: Callable[..., list[Model]], **more: Any) -> list[Model]:
        sizes = {key: value for key, value in self._asdict().items() if key not in ("name", "function")}
        return driver(self.function, **(sizes | more))


def basic(model: Model) -> None:
    load(model)
    compute(model, range(model.BATCHES))
    for layer in range(model.LAYERS):
        step(model, layer)


def grad_accum(model: Model) -> None:
    load(model)
    for batch in range(model.BATCHES):
        compute(model, [batch])
    for layer in range(model.LAYERS):
        step(model, layer)


async def ddp(model: Model) -> None:
    load(model)
    model.activations[0] = model.get_activation(mine(model))
    for layer in range(model.LAYERS):
        forward(model, layer)
    loss(model)
    for layer in reversed(range(model.LAYERS)):
        weight, grad = model.weights[layer], model.grad_activations.pop(layer)
        model.grad_weights[layer], before = model.backward(layer, model.activations[layer], grad, weight)
        if layer:
            model.grad_activations[layer - 1] = before
    for layer in range(model.LAYERS):
        model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer)
    model.activations.clear()
    for layer in range(model.LAYERS):
        step(model, layer)


async def ddp_overlap(model: Model) -> None:
    """Every all-reduce behind the backward of the layer before; updates in the order of arrival."""
    load(model)
    model.activations[0] = model.get_activation(mine(model))
    for layer in range(model.LAYERS):
        forward(model, layer)
    loss(model)
    works: dict[int, Awaitable[WeightGrad]] = {}
    for layer in reversed(range(model.LAYERS)):
        model.grad_weights[layer] = backward(model, layer)
        works[layer] = model.allreduce(model.grad_weights[layer], layer)
    for layer in reversed(range(model.LAYERS)):
        model.grad_weights[layer] = await works[layer]
        step(model, layer)


async def ddp_fed(model: Model) -> None:
    """Asks for the next batch before it computes this one; neighbours of one process share their first one's data."""
    load(model)
    batches = list(mine(model))
    ahead = model.read(batches[:1])
    for place in range(len(batches)):
        model.activations[0] = await ahead
        if place + 1 < len(batches):
            ahead = model.read([batches[place + 1]])
        for layer in range(model.LAYERS):
            forward(model, layer)
        loss(model)
        for layer in reversed(range(model.LAYERS)):
            accumulate(model, layer, backward(model, layer))
    for layer in range(model.LAYERS):
        model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer)
        step(model, layer)


async def two_of_a_row(model: Model) -> None:
    """The ranks along "model" work on the same examples, read once a process; the first of them hands in."""
    load(model)
    data = model.read(range(model.coord["data"], model.BATCHES, model.mesh.axes["data"]))
    model.activations[0] = await data
    for layer in range(model.LAYERS):
        forward(model, layer)
    loss(model)
    for layer in reversed(range(model.LAYERS)):
        accumulate(model, layer, backward(model, layer))
        model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer, group="data")
        step(model, layer)


async def forward_gathered(model: Model) -> None:
    """Loads shards, gathers each weight for its forward alone, and comes to the loss."""
    load(model, shard=model.rank, total=model.RANKS)
    model.activations[0] = model.get_activation(mine(model))
    for layer in range(model.LAYERS):
        model.weights["whole"] = await model.allgather(model.weights[layer], layer)
        forward(model, layer, weight=model.weights["whole"])
        del model.weights["whole"]
    loss(model)


async def wsdp(model: Model) -> None:
    """Weights and optimizer sharded, gradients whole. Keeps the whole weight during the all-reduce."""
    await forward_gathered(model)
    for layer in reversed(range(model.LAYERS)):
        model.weights["whole"] = await model.allgather(model.weights[layer], layer)
        activation, grad = model.activations.pop(layer), model.grad_activations.pop(layer)
        made = model.backward(layer, activation, grad, model.weights["whole"])
        model.grad_weights[layer], model.grad_activations[layer - 1] = made
        model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer)
        del model.weights["whole"]
    for layer in range(model.LAYERS):
        step(model, layer)


async def fsdp(model: Model) -> None:
    """Frees the whole weight, the activation and its gradient only after the reduce-scatter."""
    await forward_gathered(model)
    for layer in reversed(range(model.LAYERS)):
        model.weights["whole"] = await model.allgather(model.weights[layer], layer)
        activation, grad = model.activations[layer], model.grad_activations[layer]
        made = model.backward(layer, activation, grad, model.weights["whole"])
        model.grad_weights[layer], model.grad_activations[layer - 1] = made
        model.grad_weights[layer] = await model.scatterreduce(model.grad_weights[layer], layer)
        del model.weights["whole"], model.activations[layer], model.grad_activations[layer]
    for layer in range(model.LAYERS):
        step(model, layer)


class Stage:
    """A rank's consecutive layers in a pipeline over all ranks. Keys in the stores are (layer, microbatch)."""

    def __init__(self, model: Model) -> None:
        each = model.LAYERS // model.RANKS
        self.model = model
        self.layers = range(model.rank * each, (model.rank + 1) * each)
        self.first, self.last = model.rank == 0, model.rank == model.RANKS - 1

    async def forward(self, key: int, batches: Iterable[int], keep: bool = False) -> None:
        """All layers on a microbatch. `keep`: the output stays here, too, when it is passed on."""
        model, layers = self.model, self.layers
        inp: Activation = model.get_activation(batches) if self.first else await model.receive(model.rank - 1)
        model.activations[layers[0], key] = inp
        for layer in layers:
            output = model.forward(layer, model.activations[layer, key], model.weights[layer])
            model.activations[layer + 1, key] = output
        if not self.last:
            output = model.activations[layers[-1] + 1, key] if keep else model.activations.pop((layers[-1] + 1, key))
            await model.pass_to(model.rank + 1, output)

    async def start_backward(self, key: int, keep: bool = False) -> None:
        model, end = self.model, self.layers[-1]
        if self.last:
            output = model.activations[end + 1, key] if keep else model.activations.pop((end + 1, key))
            model.grad_activations[end, key] = model.loss(output)
        else:
            model.grad_activations[end, key] = await model.receive(model.rank + 1)


async def pipeline(model: Model) -> None:
    """All batches at once. A layer's output is freed after its backward."""
    stage = Stage(model)
    load(model, stage.layers)
    await stage.forward(0, range(model.BATCHES), keep=True)
    await stage.start_backward(0, keep=True)
    for layer in reversed(stage.layers):
        grad = model.grad_activations[layer, 0]
        made = model.backward(layer, model.activations[layer, 0], grad, model.weights[layer])
        model.grad_weights[layer], model.grad_activations[layer - 1, 0] = made
        del model.activations[layer + 1, 0], model.grad_activations[layer, 0]
    if not stage.first:
        await model.pass_to(model.rank - 1, model.grad_activations[stage.layers[0] - 1, 0])
    model.activations.clear()
    model.grad_activations.clear()
    for layer in stage.layers:
        step(model, layer)


async def gpipe(model: Model) -> None:
    """Keeps all activations and all gradients but the one that comes in."""
    stage = Stage(model)
    load(model, stage.layers)
    for batch in range(model.BATCHES):
        await stage.forward(batch, [batch], keep=True)
    for batch in range(model.BATCHES):
        await stage.start_backward(batch, keep=True)
        coming = model.grad_activations.pop((stage.layers[-1], batch))
        for layer in reversed(stage.layers):
            grad = model.grad_activations[layer, batch] if layer < stage.layers[-1] else coming
            made = model.backward(layer, model.activations[layer, batch], grad, model.weights[layer])
            accumulate(model, layer, made[0])
            model.grad_activations[layer - 1, batch] = made[1]
        if not stage.first:
            await model.pass_to(model.rank - 1, model.grad_activations[stage.layers[0] - 1, batch])
    for layer in stage.layers:
        step(model, layer)


async def pipeline_fsdp(model: Model) -> None:
    """Four pipelines side by side, one batch each; every layer's weight is sharded over all ranks.

    Keeps the output of the stage and the gradient of its input.
    """
    load(model, shard=model.rank, total=model.RANKS)
    stage, batch = model.rank % model.LAYERS, model.rank // model.LAYERS
    for layer in range(model.LAYERS):
        if layer == stage:
            inp = model.get_activation([batch]) if stage == 0 else await model.receive(model.rank - 1)
            model.activations[layer] = inp
        model.weights["whole"] = await model.allgather(model.weights[layer], layer)
        if layer == stage:
            forward(model, layer, weight=model.weights["whole"])
        del model.weights["whole"]
        if layer == stage and layer + 1 < model.LAYERS:
            await model.pass_to(model.rank + 1, model.activations[layer + 1])
    if stage == model.LAYERS - 1:
        model.grad_activations[stage] = model.loss(model.activations[model.LAYERS])
    for layer in reversed(range(model.LAYERS)):
        if layer == stage and layer + 1 < model.LAYERS:
            model.grad_activations[layer] = await model.receive(model.rank + 1)
        model.weights["whole"] = await model.allgather(model.weights[layer], layer)
        grad = model.fake_grad(layer, [])
        if layer == stage:
            activation, before = model.activations.pop(layer), model.grad_activations.pop(layer)
            made = model.backward(layer, activation, before, model.weights["whole"])
            grad, model.grad_activations[layer - 1] = made
        model.grad_weights[layer] = grad
        model.grad_weights[layer] = await model.scatterreduce(model.grad_weights[layer], layer)
        del model.weights["whole"]
        if layer == stage and layer > 0:
            await model.pass_to(model.rank - 1, model.grad_activations[layer - 1])
    for layer in range(model.LAYERS):
        step(model, layer)


async def star(model: Model) -> None:
    """Rank 0 receives everybody's gradients in whatever order they come, sums, updates, and broadcasts the weights."""
    load(model)
    compute(model, mine(model))
    if model.rank == 0:
        for _ in range((model.RANKS - 1) * model.LAYERS):
            grad: WeightGrad = await model.receive()
            accumulate(model, grad.layer, grad)
        for layer in range(model.LAYERS):
            update(model, layer)
    else:
        for layer in range(model.LAYERS):
            await model.pass_to(0, model.grad_weights.pop(layer))
    for layer in range(model.LAYERS):
        model.weights[layer] = await model.broadcast(model.weights[layer], layer)
        model.set_final_weight(layer, model.weights[layer])


async def buckets(model: Model, sizes: Sequence[int] | None = None) -> None:
    """Data parallel, with all-reduces of so many layers each behind backward; of two each, where nothing is said."""
    load(model)
    model.activations[0] = model.get_activation(mine(model))
    for layer in range(model.LAYERS):
        forward(model, layer)
    loss(model)
    ends = {*range(2, model.LAYERS, 2), model.LAYERS} if sizes is None else {*itertools.accumulate(sizes)}
    bucket: list[int] = []
    works: list[tuple[list[int], Awaitable[list[WeightGrad]]]] = []
    for done, layer in enumerate(reversed(range(model.LAYERS)), 1):
        model.grad_weights[layer] = backward(model, layer)
        bucket.append(layer)
        if done in ends:
            works.append((bucket, model.allreduce_bucket([model.grad_weights[i] for i in bucket])))
            bucket = []
    for layers, work in works:
        for layer, total in zip(layers, await work, strict=True):
            model.grad_weights[layer] = total
        for layer in layers:
            step(model, layer)


async def all_to_all(model: Model) -> None:
    """A reduce-scatter by hand: cut the gradient, exchange the shards, sum them up; then everybody gets the weight."""
    for layer in range(model.LAYERS):
        model.weights[layer], _ = model.load_weights(layer)
        _, model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    compute(model, mine(model))
    for layer in reversed(range(model.LAYERS)):
        whole = model.grad_weights.pop(layer)
        shards = await model.alltoall([whole.shard(i, model.RANKS) for i in range(model.RANKS)], layer)
        for shard in shards:
            accumulate(model, layer, shard)
        model.weights[layer] = model.weights[layer].shard(model.rank, model.RANKS)
        step(model, layer)
        model.weights[layer] = await model.allgather(model.weights[layer], layer)


async def split_features(model: Model) -> None:
    """Two ranks share each layer in ways of their own: columns whose features are gathered, and rows whose partial sums
    are scattered over the batches and gathered again; then both halves of a cut weight, put together."""
    for layer in range(model.LAYERS):
        dim = "in" if layer == 1 else "out"
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, 2, dim)
    acts, grads = model.activations, model.grad_activations
    acts[0] = model.get_activation(range(model.BATCHES))
    acts[1] = model.forward(0, acts[0], model.weights[0])
    acts[2] = await model.scatterreduce(model.forward(1, acts[1], model.weights[1]), 1)
    acts[2] = await model.allgather(acts[2], 2)
    acts[3] = await model.allgather(model.forward(2, acts[2], model.weights[2]), 2)
    grads[3] = model.loss(acts.pop(3))
    # Of a gradient of all features each rank takes those of its columns: there is no cutting them, so it makes them.
    inner = model.forward(2, acts[2], model.weights[2])
    del grads[3]
    grads[3] = model.loss(inner)
    model.grad_weights[2], grads[2] = model.backward(2, acts.pop(2), grads.pop(3), model.weights[2])
    grads[2] = await model.allreduce(grads[2], 2)
    model.grad_weights[1], grads[1] = model.backward(1, acts[1], grads.pop(2), model.weights[1])
    model.grad_weights[0], _ = model.backward(0, acts.pop(0), grads.pop(1), model.weights[0])
    del acts[1]
    for layer in range(model.LAYERS):
        update(model, layer)
        if layer != 1:
            model.weights[layer] = await model.allgather(model.weights[layer], layer)
        model.set_final_weight(layer, model.weights[layer])


CLASSIC = [
    Case("basic", basic, 1, 2, 4),
    Case("grad_accum", grad_accum, 1, 2, 4),
    Case("ddp", ddp, 4, 2, 4),
    Case("wsdp", wsdp, 4, 6, 4),
    Case("fsdp", fsdp, 4, 6, 4),
    Case("pipeline", pipeline, 4, 8, 4),
    Case("gpipe", gpipe, 4, 8, 4),
    Case("pipeline_fsdp", pipeline_fsdp, 16, 4, 4),
]

HOSTS = Links(host_size=4)
REPLICA_SHARD = Mesh({"replica": 2, "shard": 4})
PAIRS = {"data": 2, "model": 2}
PARTS = Mesh({"data": 2, "model": 4})

ROWS = Mesh({"data": 2, "model": 2}, ranks=[0, 2, 3, 1], processes=2)
OTHERS = [
    Case("ddp_lean", ddp_lean, 4, 2, 4),
    Case("ddp_overlap", ddp_overlap, 4, 8, 4),
    Case("ddp_overlap on links", ddp_overlap, 8, 3, 8, None, LINKS),
    Case("fsdp_prefetch", fetching(1, 5), 4, 6, 4),
    Case("fetching", fetching(2, 1), 4, 4, 4, None, Uneven(layers=(2, 0.5), collective=0.7)),
    Case("fetching, the last layer too", fetching(1, keep=False), 4, 3, 4),
    Case("ddp_fed", ddp_fed, 4, 2, 8, Mesh({"data": 4}, processes=2), Costs(read=0.5, to_device=0.1)),
    Case("ddp_fed, slowly", ddp_fed, 2, 1, 6, None, Costs(read=7, to_device=0.3)),
    Case("two_of_a_row", two_of_a_row, 4, 3, 6, ROWS, Costs(read=0.5, to_device=0.25)),
    Case("zero, stage 1", zero(1), 3, 2, 6),
    Case("zero, stage 2", zero(2), 2, 3, 4),
    Case("buckets", buckets, 4, 5, 4, None, Links(latency=0.15)),
    Case("checkpointed", checkpointed(3), 1, 7, 2),
    Case("gpipe, freeing early", program_of(gpipe_order(4, 4)), 4, 8, 4),
    Case("one_f_one_b", program_of(one_f_one_b(4, 8)), 4, 8, 8),
    Case("star", star, 4, 3, 4),
    Case("star on links", star, 5, 2, 5, None, Links(host_size=2, latency=0.07)),
    Case("all_to_all", all_to_all, 4, 2, 4),
    Case("hsdp", fully_sharded("shard", "replica"), 8, 3, 8, REPLICA_SHARD, HOSTS),
    Case("hsdp, other order", fully_sharded("shard", "replica"), 8, 2, 8, Mesh({"shard": 4, "replica": 2}), HOSTS),
    Case("tensor_parallel", tensor_parallel("full"), 4, 4, 4, Mesh({"data": 2, "model": 2})),
    Case("tensor_parallel over links", tensor_parallel("batch", first_input=True), 8, 2, 4, PARTS, HOSTS),
    Case("tensor_parallel, other order", tensor_parallel("replicated"), 4, 2, 2, Mesh(PAIRS, ranks=[3, 0, 2, 1])),
    Case("split_features", split_features, 2, 3, 2),
]

EVERYTHING = CLASSIC + OTHERS
"""All cases. Each is one correct training step."""
