"""Two processes that feed the same two rows share the first reading.

Both rows wait for their first example, and of each process one row waits for the other. Here a process reads the first
example for one of its rows only, and passes it to the devices of that row in the other process, which does the same
for the other row. Then all rows begin at once, and a process reads 7 examples. The way between two hosts has to be as
quick as it is here.
"""

from lib import Model


async def loader(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    member, members = model.coord["model"], len(model.group("model"))
    weights[0], opt_states[0] = model.load_weights(0, member, members, "out")
    weights[1], opt_states[1] = model.load_weights(1, member, members, "in")

    def forward(b):
        activations[1, b] = model.forward(0, activations[0, b], weights[0])
        activations[2, b] = model.forward(1, activations[1, b], weights[1])
        return model.allreduce(activations[2, b], 1, group="model")

    async def backward(b, coming):
        activations[2, b] = await coming
        grad_activations[2] = model.loss(activations.pop((2, b)))
        for layer in (1, 0):
            gradient, grad_activations[layer] = model.backward(
                layer, activations.pop((layer, b)), grad_activations.pop(layer + 1), weights[layer]
            )
            grad_weights[layer] = grad_weights[layer] + gradient if layer in grad_weights else gradient
        del grad_activations[0]

    row, rows = model.coord["data"], len(model.group("data"))
    mine = range(row, model.BATCHES, rows)
    # My row's devices by process, and how many rows of lower number my process feeds.
    process = model.mesh.process
    by_process = {}
    for rank in model.group("model"):
        by_process.setdefault(process(rank), []).append(rank)
    owners = sorted(by_process)
    here = by_process[process(model.rank)]
    fed = sorted({model.mesh.row(rank, "data") for rank in model.mesh.devices(process(model.rank))})
    reader = owners[fed.index(row) % len(owners)]
    shared = len(owners) > 1 and len({len(ranks) for ranks in by_process.values()}) == 1

    sent = []
    if not shared or reader == process(model.rank):
        activations[0, mine[0]] = await model.read([mine[0]])
        if shared:
            place = here.index(model.rank)
            others = [by_process[owner][place] for owner in owners if owner != reader]
            sent = [model.pass_to(rank, activations[0, mine[0]]) for rank in others]
    else:
        activations[0, mine[0]] = await model.receive(by_process[reader][here.index(model.rank)])

    coming, reading = {}, None
    for number, b in enumerate(mine):
        if number:
            activations[0, b] = await reading
        if number + 1 < len(mine):
            reading = model.read([mine[number + 1]])
        while sent:
            await sent.pop()
        coming[b] = forward(b)
        if number:
            await backward(mine[number - 1], coming[mine[number - 1]])
    await backward(b, coming[b])

    sums = {layer: model.allreduce(grad_weights[layer], layer, group="data") for layer in (1, 0)}
    for layer in (1, 0):
        grad_weights[layer] = await sums[layer]
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
