"""Let the messages travel behind the computation, and run one forward further ahead for the time on their way.

It ends as early as any pipeline of this kind can, for a few more activations: those of one more open batch, and what is on
its way. Each receive is issued one step before its value is needed, and a send is awaited only before the next one.
"""

from typing import Any

from lib import Model


async def one_f_one_b(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    last_rank = model.RANKS - 1
    per_rank = model.LAYERS // model.RANKS
    my_layers = range(model.rank * per_rank, (model.rank + 1) * per_rank)
    first, last = my_layers[0], my_layers[-1]
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    ahead = min(model.BATCHES, model.RANKS - model.rank + (model.rank < last_rank))
    steps = [("forward", b) for b in range(ahead)]
    for b in range(model.BATCHES):
        steps.append(("backward", b))
        if b + ahead < model.BATCHES:
            steps.append(("forward", b + ahead))

    coming: dict[tuple[str, int], Any] = {}
    sending: list[Any] = []

    def ask(step: tuple[str, int]) -> None:
        source = model.rank - 1 if step[0] == "forward" else model.rank + 1
        if 0 <= source < model.RANKS:
            coming[step] = model.receive(source)

    async def send(to: int, value: Any) -> None:
        if sending:
            await sending.pop()
        sending.append(model.pass_to(to, value))

    async def forward(b: int) -> None:
        if model.rank == 0:
            activations[first, b] = model.get_activation([b])
        else:
            activations[first, b] = await coming.pop(("forward", b))
        for layer in my_layers:
            activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer])
        if model.rank == last_rank:
            grad_activations[last + 1, b] = model.loss(activations.pop((last + 1, b)))
        else:
            await send(model.rank + 1, activations.pop((last + 1, b)))

    async def backward(b: int) -> None:
        if model.rank < last_rank:
            grad_activations[last + 1, b] = await coming.pop(("backward", b))
        for layer in reversed(my_layers):
            made, grad_activations[layer, b] = model.backward(
                layer, activations.pop((layer, b)), grad_activations.pop((layer + 1, b)), weights[layer]
            )
            grad_weights[layer] = grad_weights[layer] + made if b else made
            del made
        if model.rank > 0:
            await send(model.rank - 1, grad_activations.pop((first, b)))
        else:
            del grad_activations[first, b]

    ask(steps[0])
    for place, (what, b) in enumerate(steps):
        if place + 1 < len(steps):
            ask(steps[place + 1])
        await (forward(b) if what == "forward" else backward(b))

    for work in sending:
        await work
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
