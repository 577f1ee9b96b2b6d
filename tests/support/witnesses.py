"""Schedules that reach a lower bound: for each puzzle and figure one of which the figure is exactly the bound."""

from collections.abc import Callable, Iterable
from typing import Any

from lib import Model
from lib.analysis.bounds.optima import Size
from lib.puzzles.records import PUZZLES
from lib.schedules.pipelines.action import parse
from lib.schedules.pipelines.program import program_of
from tests.support import optima
from tests.support.puzzles import way
from tests.support.schedules import ddp_overlap

Function = Callable[[Model], Any]


def sharded(
    *,
    keep: bool = False,
    ahead: bool = False,
    apart: bool = False,
    sum_up: str = "scatterreduce",
    axis: str | None = None,
    replica: str | None = None,
) -> Function:
    """FSDP, or HSDP over the axes of a mesh, in which a gathered weight takes the place of the rank's shard, which is
    cut out of it again: least memory.

    `keep` keeps what was gathered until backward: least elements sent. `ahead` gathers the next layer while one is
    computed and sums up in the background: least time. `apart` takes the batches of a rank one by one, and keeps shards
    of their sums: least memory where there are several.
    """

    async def run(model: Model) -> None:
        weights, states, _, _, _ = model.storage()
        mine = range(model.rank, model.BATCHES, model.RANKS)
        group = model.group(axis)
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer, group.index(model.rank), len(group))
        sums: dict[int, Any] = {}
        for batches in [[b] for b in mine] if apart else [mine]:
            await there_and_back(model, batches, sums)
            if apart:
                await add(model, sums)
        for layer in list(sums):
            await add(model, {layer: sums.pop(layer)})
            await finish(model, layer)
        for layer in [*model.grad_weights]:
            await finish(model, layer)

    def shrink(model: Model, layer: int) -> None:
        group = model.group(axis)
        model.weights[layer] = model.weights[layer].shard(group.index(model.rank), len(group))

    async def there_and_back(model: Model, batches: Iterable[int], sums: dict[int, Any]) -> None:
        weights, _, acts, grads, _ = model.storage()
        layers, last = range(model.LAYERS), model.LAYERS - 1
        acts[0] = model.get_activation(batches)
        coming: dict[int, Any] = {}

        def gather(layer: int) -> None:
            coming[layer] = model.allgather(weights[layer], layer, axis)

        gather(0)
        for layer in layers:
            weights[layer] = await coming.pop(layer)
            if ahead and layer < last:
                gather(layer + 1)
            acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
            if layer < last:
                if not keep:
                    shrink(model, layer)
                if not ahead:
                    gather(layer + 1)
        grads[last + 1] = model.loss(acts.pop(last + 1))
        for layer in reversed(layers):
            if layer in coming:
                weights[layer] = await coming.pop(layer)
            if ahead and layer > 0 and not keep:
                gather(layer - 1)
            made, before = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
            if layer > 0:
                grads[layer] = before
            del before
            shrink(model, layer)
            sums[layer] = getattr(model, sum_up)(made, layer, axis)
            del made
            if not ahead:
                await add(model, sums)
                if not apart:
                    await finish(model, layer)
                if layer > 0 and not keep:
                    gather(layer - 1)

    async def add(model: Model, sums: dict[int, Any]) -> None:
        totals = model.grad_weights
        for layer in list(sums):
            made = await sums.pop(layer)
            if replica is not None:
                made = await model.allreduce(made, layer, replica)
            totals[layer] = totals[layer] + made if layer in totals else made

    async def finish(model: Model, layer: int) -> None:
        weights, states = model.weights, model.opt_states
        weights[layer], states[layer] = model.update(
            layer, model.grad_weights.pop(layer), weights[layer], states[layer]
        )
        model.set_final_weight(layer, weights[layer])

    return run


async def sharded_best(model: Model) -> None:
    """FSDP of the least memory that hides what communication it can: the next gather behind a forward or an update,
    and a reduce-scatter behind the next backward where the activations that are gone leave room for it."""
    weights, states, acts, grads, sums = model.storage()
    last = model.LAYERS - 1

    def gather(layer: int) -> Any:
        return model.allgather(weights[layer], layer)

    def shrink(layer: int) -> None:
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)

    def step(layer: int) -> None:
        weights[layer], states[layer] = model.update(layer, sums.pop(layer), weights[layer], states[layer])
        model.set_final_weight(layer, weights[layer])

    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    acts[0] = model.get_activation([model.rank])
    coming = gather(0)
    for layer in range(model.LAYERS):
        weights[layer] = await coming
        if layer < last:
            coming = gather(layer + 1)
        acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
        if layer < last:
            shrink(layer)
    grads[last + 1] = model.loss(acts.pop(last + 1))
    summing: dict[int, Any] = {}
    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer] = await coming
        ahead = layer == last - 2 and layer > 0  # just enough room for one more weight
        if ahead:
            coming = gather(layer - 1)
        sums[layer], grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
        shrink(layer)
        if layer == 0:
            del grads[0]
        if layer > last - 2:  # the memory is full: sum up at once, and gather behind the update
            sums[layer] = await model.scatterreduce(sums[layer], layer)
            coming = gather(layer - 1) if layer > 0 else coming
            step(layer)
            continue
        if layer + 1 in summing:
            sums[layer + 1] = await summing.pop(layer + 1)
        if layer > 0 and not ahead:
            coming = gather(layer - 1)
        summing[layer] = model.scatterreduce(sums[layer], layer)
        if layer + 1 in sums:
            step(layer + 1)
    for layer in list(summing):
        sums[layer] = await summing.pop(layer)
        step(layer)


def staged(*, lean: bool) -> Function:
    """Pipelines with FSDP across, one layer a stage or several. The gathered weight takes the place of the shard.

    `lean` takes one batch through the whole pipeline before the next, gathers each layer when it is used, and keeps
    shards of the sums: least memory. Else it is 1F1B with a batch more on the way, messages are posted, and all
    collectives but the first run behind computation: least time.
    """

    async def run(model: Model) -> None:
        weights, states, acts, grads, sums = model.storage()
        stage, data = model.coord["stage"], model.coord["data"]
        line, shards = model.group("stage"), len(model.group("data"))
        each = model.LAYERS // len(line)
        layers, mine = range(stage * each, (stage + 1) * each), range(data, model.BATCHES, shards)
        first, end = layers[0], layers[-1] + 1
        for layer in layers:
            weights[layer], states[layer] = model.load_weights(layer, data, shards)
        gathers: dict[int, Any] = {}
        reduces: dict[int, Any] = {}
        coming: dict[tuple[int, int], Any] = {}
        sending: list[Any] = []

        def ask(source: int, b: int) -> None:
            if 0 <= source < len(line):
                coming[source, b] = model.receive(line[source])

        async def got(source: int, b: int) -> Any:
            if (source, b) not in coming:
                ask(source, b)
            return await coming.pop((source, b))

        async def give(to: int, value: Any) -> None:
            while sending:
                await sending.pop()
            sending.append(model.pass_to(line[to], value))
            if lean:
                await sending.pop()

        async def whole(layer: int) -> None:
            if lean:
                gathers[layer] = model.allgather(weights[layer], layer, group="data")
            if layer in gathers:
                weights[layer] = await gathers.pop(layer)

        def cut(layer: int) -> None:
            weights[layer] = weights[layer].shard(data, shards)

        async def add(layer: int) -> None:
            total = await reduces.pop(layer)
            sums[layer] = sums[layer] + total if layer in sums and lean else total

        async def there(b: int) -> None:
            acts[first, b] = model.get_activation([b]) if stage == 0 else await got(stage - 1, b)
            for layer in layers:
                await whole(layer)
                acts[layer + 1, b] = model.forward(layer, acts[layer, b], weights[layer])
                if lean:
                    cut(layer)
            if stage == len(line) - 1:
                grads[end, b] = model.loss(acts.pop((end, b)))
            else:
                await give(stage + 1, acts.pop((end, b)))

        async def back(b: int) -> None:
            if stage < len(line) - 1:
                grads[end, b] = await got(stage + 1, b)
            for layer in reversed(layers):
                await whole(layer)
                made, grads[layer, b] = model.backward(
                    layer, acts.pop((layer, b)), grads.pop((layer + 1, b)), weights[layer]
                )
                if lean or b == mine[-1]:
                    cut(layer)
                if lean:
                    reduces[layer] = model.scatterreduce(made, layer, group="data")
                    del made
                    await add(layer)
                    continue
                sums[layer] = sums[layer] + made if layer in sums else made
                del made
                if b == mine[-1]:
                    reduces[layer] = model.scatterreduce(sums.pop(layer), layer, group="data")
            grad = grads.pop((first, b))
            if stage:
                await give(stage - 1, grad)

        if not lean:
            for layer in layers:
                gathers[layer] = model.allgather(weights[layer], layer, group="data")
        ahead = 1 if lean else min(len(mine), len(line) - stage + (stage < len(line) - 1))
        steps = [(there, stage - 1, b) for b in mine[:ahead]]
        for place, b in enumerate(mine):
            steps += [(back, stage + 1, b), *((there, stage - 1, later) for later in mine[place + ahead :][:1])]
        if not lean:
            ask(*steps[0][1:])
        for place, (do, _, b) in enumerate(steps):
            if not lean and place + 1 < len(steps):
                ask(*steps[place + 1][1:])
            await do(b)
        while sending:
            await sending.pop()
        for layer in reversed(layers):
            if layer in reduces:
                await add(layer)
            weights[layer], states[layer] = model.update(layer, sums.pop(layer), weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

    return run


OTHER_WAYS = {
    ("ddp_overlap", "memory"): "one_by_one",
    ("zero2", "sent"): "one_large_batch",
    ("one_f_one_b", "time"): "behind",
}
"""The alternatives that reach a bound which the reference does not reach."""


def _pipeline() -> Size:
    record = PUZZLES["gpipe"]
    return Size(record.ranks, record.layers, record.batches, overlap=True)


def witness(puzzle: str, figure: str) -> Function:
    """A schedule that reaches the bound of a puzzle: of its "time", "memory" or "sent"."""
    if puzzle == "ddp":
        return ddp_overlap
    if puzzle == "fsdp_prefetch" and figure == "time":
        return way(puzzle)
    if puzzle in ("wsdp", "fsdp", "fsdp_prefetch"):
        return sharded(ahead=figure == "time", keep=figure == "sent", apart=figure == "memory")
    if puzzle == "hsdp" and figure != "time":
        return sharded(keep=figure == "sent", axis="shard", replica="replica")
    if puzzle == "one_f_one_b" and figure == "memory":
        batches, stages = range(PUZZLES[puzzle].batches), range(PUZZLES[puzzle].ranks)
        return program_of(tuple(parse(f"{s}{kind}{b}" for b in batches for kind in "FB") for s in stages))
    if puzzle == "pipeline_fsdp" or (puzzle == "pp_fsdp_keep" and figure != "sent"):
        return staged(lean=figure == "memory")
    if puzzle == "gpipe" and figure != "sent":
        return optima.witness(optima.find(_pipeline(), "fastest" if figure == "time" else "leanest"))
    return way(puzzle, OTHER_WAYS.get((puzzle, figure), ""))


def together(puzzle: str) -> Function:
    """The run that has the best time and memory at once that we know, as the record says."""
    if puzzle == "fsdp":
        return witness(puzzle, "memory")
    if puzzle == "fsdp_prefetch":
        return way(puzzle, "keep_half")
    if puzzle == "ddp_overlap":
        return way(puzzle, "update_early")
    return sharded_best if puzzle == "wsdp" else witness(puzzle, "time")
