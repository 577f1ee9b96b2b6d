"""Two forwards at a time, and two backwards, with the phases of ZB-V.

A forward hides behind another one, too, and that needs no way back. But both begin and end with the same thing, so in each
pair an exchange at either end is waited for, and twice as many microbatches are in flight.
"""

from lib import Model, PuzzleError
from lib.schedules.given import accumulate, joined


def start_exchange(model: Model, value, dim: str, layer: int):
    """Cuts a value along a dim, and starts to send a part to each rank along
    "expert"."""
    ranks = len(model.group("expert"))
    parts = [model.shard(value, dim, rank, ranks) for rank in range(ranks)]
    return model.alltoall(parts, layer, group="expert")


def mail_of(model: Model):
    """Three functions: hand a value on to a stage, take what has come from one, and
    wait until all is sent."""
    ranks, sent = model.group("place"), []
    at = [*ranks, *reversed(ranks), ranks[0]]  # the rank of each stage, and of the loss

    async def hand_on(stage: int, store: str, key) -> None:
        if at[stage] == model.rank:
            return  # it lies where that stage takes it from
        if len(sent) == 4:  # no more than four in flight
            await sent.pop(0)
        value = getattr(model, store).pop(key)
        sent.append(model.pass_to(at[stage], (store, key, value)))

    async def take(stage: int, store: str, key) -> None:
        while at[stage] != model.rank and key not in getattr(model, store):
            name, of, value = await model.receive(at[stage])
            getattr(model, name)[of] = value

    async def all_sent() -> None:
        for one in sent:
            await one

    return hand_on, take, all_sent


def passes_of(model: Model):
    """Forward and backward of a microbatch on a stage, and what ends the step."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    hand_on, take, all_sent = mail_of(model)
    shard = model.coord["expert"], len(model.group("expert"))
    last = model.LAYERS // 4 - 1
    stages = model.coord["place"], last - model.coord["place"]
    for layer in (4 * stage for stage in stages):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        weights[layer + 2], opt_states[layer + 2] = model.load_weights(layer + 2, *shard)

    async def forward(stage: int, b: int):
        dense, dispatch, experts, combine = range(4 * stage, 4 * stage + 4)
        if stage == 0:
            activations[dense, b] = model.get_activation([b])
        else:
            await take(stage - 1, "activations", (dense, b))
        out = model.forward(dense, activations[dense, b], weights[dense])
        coming = start_exchange(model, model.forward(dispatch, out), "experts", experts)
        del out
        yield  # tokens are on their way to the experts
        activations[experts, b] = joined(await coming)
        out = model.forward(experts, activations[experts, b], weights[experts])
        coming = start_exchange(model, out, "batch", combine)
        del out
        yield  # results are on their way home
        out = model.forward(combine, joined(await coming))
        if stage == last:
            grad_activations[combine + 1, b] = model.loss(out)
        else:
            activations[combine + 1, b] = out
            await hand_on(stage + 1, "activations", (combine + 1, b))

    async def backward(stage: int, b: int):
        dense, dispatch, experts, combine = range(4 * stage, 4 * stage + 4)
        await take(stage + 1, "grad_activations", (combine + 1, b))
        grad = model.backward(combine, None, grad_activations.pop((combine + 1, b)))
        coming = start_exchange(model, grad, "experts", experts)
        del grad
        yield  # gradients of the results are on their way to the experts
        grad = joined(await coming)
        inp = activations.pop((experts, b))
        of_weight, grad = model.backward(experts, inp, grad, weights[experts])
        accumulate(model, experts, of_weight)
        coming = start_exchange(model, grad, "batch", dispatch)
        del inp, grad, of_weight
        yield  # gradients of the tokens are on their way home
        grad = model.backward(dispatch, None, joined(await coming))
        inp = activations.pop((dense, b))
        of_weight, grad = model.backward(dense, inp, grad, weights[dense])
        accumulate(model, dense, of_weight)
        if stage > 0:
            grad_activations[dense, b] = grad
            await hand_on(stage - 1, "grad_activations", (dense, b))

    async def finish() -> None:
        await all_sent()
        layers = [4 * stage for stage in stages]  # the dense ones: all ranks have them
        sums = await model.allreduce_bucket([grad_weights.pop(layer) for layer in layers], group="expert")
        grad_weights.update(zip(layers, sums, strict=True))
        for layer in [*layers, *(layer + 2 for layer in layers)]:
            gradient = grad_weights.pop(layer)
            weights[layer], opt_states[layer] = model.update(layer, gradient, weights[layer], opt_states[layer])
            model.set_final_weight(layer, weights[layer])

    return forward, backward, finish


async def goes_on(one) -> bool:
    """Runs a pass up to its next `yield`; False once it is over."""
    try:
        await anext(one)
    except StopAsyncIteration:
        return False
    return True


async def alone(one) -> None:
    """A pass that waits for each of its exchanges."""
    while await goes_on(one):
        pass


async def in_phases(model: Model, phases, together) -> None:
    """Runs the phases of a rank; (3, "Fd Fu+Bd") is three times these words."""
    forward, backward, finish = passes_of(model)
    place = model.coord["place"]
    stages = {"d": place, "u": model.LAYERS // 4 - 1 - place}
    pipelines, done = len(model.group("expert")), {}
    mine = range(model.coord["expert"], model.BATCHES, pipelines)
    for times, words in phases:
        for word in words.split() * times:
            passes = []
            for part in word.split("+"):
                kind, way = part
                number = done[part] = done.get(part, -1) + 1
                if number < len(mine):
                    run = forward if kind == "F" else backward
                    passes.append(run(stages[way], mine[number]))
            if len(passes) == 2:
                await together(*passes)
                # The frame of a pass is gone once it is over.
                if any(one.ag_frame for one in passes):
                    raise PuzzleError(
                        f"rank {model.rank}: a pass of {word!r} is not over",
                        expected="`together` runs both to their end",
                        fix="let each of them go on until `goes_on` says False of it",
                    )
            elif passes:
                await alone(*passes)
    for part in ("Fd", "Fu", "Bu", "Bd"):
        times = done.get(part, -1) + 1
        if times < len(mine):
            raise PuzzleError(
                f"rank {model.rank}, of place {place}, runs {part} {times} times",
                expected=f"{len(mine)} times: it has {len(mine)} microbatches",
                fix=f"add a phase to the end, such as (batches, {part!r})",
            )
    await finish()


async def dualpipe_v(model: Model) -> None:
    place, places = model.coord["place"], len(model.group("place"))
    batches = model.BATCHES // len(model.group("expert"))

    async def together(first, second) -> None:
        going = [first, second]
        while going:
            going = [one for one in going if await goes_on(one)]

    phases = [
        (2 * (places - place) - 1, "Fd+Fd"),
        (place, "Fu+Fu Fd+Fd"),
        (places - place, "Fu+Fu Bu+Bu"),
        (batches, "Fd+Fd Bd+Bd Fu+Fu Bu+Bu"),
    ]
    await in_phases(model, phases, together)
