# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# <!-- part: setup -->

# %% [markdown]
# <!-- part: top -->

# %% [markdown]
# # $heading
#
# A scan of a brain with 512³ points is half a gigabyte. The eight GPUs of a host share the first layer of your model,
# and each of them needs the **whole** scan. Copy it to every GPU over PCIe, at 64 GB/s, and all of them wait for 8
# milliseconds. Or copy an eighth to each, 1 ms, and let the GPUs gather the rest from each other over NVLink, at 450
# GB/s: 1 ms more. The same layer, the same input, a quarter of the wait. Where the links between GPUs are slow, it is
# the other way round.
#
# AXLearn, Apple's training library, lets you choose the **placement** of the input. **FULL** gives each device a part,
# and the devices gather the rest. **BATCH** gives each device all that it needs. **REPLICATED** gives every device
# everything, and each picks its part. On the four devices of this puzzle these are 131,072 elements a device, twice as
# many, and four times as many. When is which faster? Measure it.
#
# > **To tell a friend:** what the loader does not bring to a device, its neighbours must.
#
# *The words, once more.* A **mesh** arranges ranks along named axes. The ranks of one line along an axis are a
# **group**. A weight has 262,144 elements, an activation of one batch 131,072.

# %%
from drawing import compare, draw, draw_curves, draw_mesh
from lib import Links, Mesh, Model, Trace, check, goal, predict, retime, simulate
from lib.analysis.figures import end
from lib.schedules.given import accumulate, forward, in_turn
from lib.schedules.mesh_parallel import tensor_parallel

# %% [markdown]
# ## The idea
#
# Four ranks, two axes. Along `data` the batches differ, as always. Along `model` the ranks share the *same* batches,
# and each layer is cut between them:

# %%
mesh = Mesh({"data": 2, "model": 2})
draw_mesh(mesh)

# %% [markdown]
# You did that in puzzle $number_tensor_parallel: columns (`dim="out"`), then rows (`dim="in"`), and one all-reduce over
# `model` for each pair, forward and backward. A rank computes half of each layer, in half the time. The gradient of a
# weight shard covers the batches of its row; it only has to be summed over `data`.
#
# Layer 0 is cut into columns, and a column shard needs **all features of all batches of its row**. The
# row has two batches and two devices:
#
# | placement | each device is given | then |
# |---|---|---|
# | `"full"` | its own part of the row's batches | an all-gather along `model`: the batch is **resharded** |
# | `"batch"` | all batches of its row | nothing |
# | `"replicated"` | all batches there are | it cuts out those of its row, `.shard(row, rows)` |
#
# Copying a batch to a device takes time, here 0.05 (the price is called `to_device`), and every device has its own
# connection to its host.

# %% [markdown]
# ## The puzzle
#
# | ranks | mesh | layers | batches | batches of a row | to_device |
# |---|---|---|---|---|---|
# | 4 | data 2, model 2 | 4 | 4 | 2 | 0.05 a batch |
#
# **Given:** the place of the rank (`data`, `member`), the size of both axes (`rows`, `members`), columns of layers 0 and 2
# and rows of layers 1 and 3 with their optimizer states, and `my_batches`, those of its row of data: `each` of them. And
# three helpers, which delete what is not needed any more:
#
# | helper | what it does |
# |---|---|
# | `take_apart(model, pieces)` | cuts `activations["row"]`, all batches of the row, into so many pieces, `activations[0, i]` |
# | `forward(model, layer, i)` | makes `activations[layer + 1, i]` from `activations[layer, i]` |
# | `backward(model, layer, i)` | makes `grad_activations[layer, i]` from `grad_activations[layer + 1, i]`, and adds the gradient of the weight shard to `grad_weights[layer]` |


# %%
def take_apart(model, pieces):
    """The batches of the row in equal pieces."""
    row = model.activations.pop("row")
    for i in range(pieces):
        model.activations[0, i] = row.shard(i, pieces)


def backward(model, layer, i):
    """Backward of a layer for a piece."""
    x = model.activations.pop((layer, i))
    gradient = model.grad_activations.pop((layer + 1, i))
    of_weight, gradient = model.backward(layer, x, gradient, model.weights[layer])
    accumulate(model, layer, of_weight)
    model.grad_activations[layer, i] = gradient


# %% [markdown]
# **To do:** three placements and one training step. The way of a piece, in which each `!` is a sum over `model` that the
# next layer waits for:
#
# ```
# forward    0  1 ! 2  3 ! loss
# backward   3  2 ! 1  0
# ```
#
# 1. Take the input as `placement` says, and put all batches of the row into `activations["row"]`. The check runs your
#    step with `"batch"`; the cells after it run all three.
# 2. Write the step of piece `i`, `one_piece(i)`. Begin with a single piece, and await each sum: that is correct, and
#    reaches the second goal.
# 3. Which sums does nobody wait for before the updates? Start them early.
# 4. While one piece waits at a `!`, another one can be computed. Put a `yield` there: a function with a `yield` stops, and
#    goes on when its turn comes again. `await in_turn(one_piece(i) for i in range(pieces))` gives turns to all of them,
#    until they are over.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts.
# - Partial sums are summed with `group="model"`, gradients of weights with `group="data"`.
# - `set_final_weight` gets this rank's shard.

# %% [markdown]
# ### Predict first
#
# Suppose you take the batches of your row, await every collective where you call it, and sum only what is needed. When
# is the step over? (Forward and backward of a whole layer take 1 a batch, an update 0.5, any collective 0.3.)

# %%
guess = predict("place_inputs", end=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step, and tolerates one collective too many; the second does not. For the third, hide the
# sums over `data`. For the fourth, hide those over `model` as well, as in puzzle $number_tensor_parallel.

# %%
goal("place_inputs")

# %% [markdown]
# <!-- part: hints -->


# %%
async def place_inputs(model: Model, placement: str = "batch") -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    data, member = model.coord["data"], model.coord["model"]
    rows, members = len(model.group("data")), len(model.group("model"))
    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(
            layer, member, members, dim=dim
        )
    each = model.BATCHES // rows
    my_batches = range(data * each, (data + 1) * each)

    # The input first: "full" takes my part of my_batches and gathers, "batch" takes
    # them all, "replicated" takes every batch and cuts. Then forward, loss, backward,
    # sums, updates.
    # --- your code (about 35 lines) ---
    if placement == "full":
        activations["row"] = model.get_activation(my_batches[member::members])
        activations["row"] = await model.allgather(activations.pop("row"), 0, "model")
    elif placement == "batch":
        activations["row"] = model.get_activation(my_batches)
    else:
        activations["row"] = model.get_activation(range(model.BATCHES))
        activations["row"] = activations.pop("row").shard(data, rows)
    pieces, sums = each, {}
    take_apart(model, pieces)

    async def one_piece(i):
        for first in range(0, model.LAYERS, 2):  # columns, then rows
            forward(model, first, i)
            forward(model, first + 1, i)
            out = first + 2, i
            coming = model.allreduce(activations.pop(out), first + 2, "model")
            yield
            activations[out] = await coming
        grad_activations[out] = model.loss(activations.pop(out))
        for layer in reversed(range(model.LAYERS)):
            backward(model, layer, i)
            if i == pieces - 1:
                sums[layer] = model.allreduce(grad_weights.pop(layer), layer, "data")
            if layer % 2 == 0 and layer > 0:
                inp = layer, i
                coming = model.allreduce(grad_activations.pop(inp), layer, "model")
                yield
                grad_activations[inp] = await coming
        del grad_activations[0, i]  # of the data: nothing needs it

    await in_turn(one_piece(i) for i in range(pieces))
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(place_inputs, puzzle="place_inputs")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# The copy of two batches takes 0.1. A rank computes half of each layer for two batches: 4 forward, 4 backward. Four
# updates take 2. That is 10.1 whatever you do. The collectives that you wait for: two sums forward, one backward (layer
# 2; for layer 0 it would be the gradient of the data, which is not needed), four sums over `data`. Seven times 0.3 is
# 2.1, and 12.2 in all.
#
# With `"full"` there is one more collective and one batch less to copy: 12.45. With `"replicated"`, two more batches to
# copy: 12.3. If you also sum the gradient of the data, the three take 12.75, 12.5 and 12.6.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="place_inputs")

# %% [markdown]
# ### The three side by side
#
# The same function, three placements. Look at the beginning: the rest is the same. The cell after the picture also
# checks that each of the three is one correct step.


# %%
def placed(placement: str):
    async def run(model: Model) -> None:
        await place_inputs(model, placement)

    return simulate(run, puzzle="place_inputs")


three = {placement: placed(placement) for placement in ("full", "batch", "replicated")}
compare(three)

# %%
for placement, models in three.items():
    for program in [model.program for model in models[:1]]:
        given = [event for event in program.events if event.op == "get_activation"]
        given = [program.values[event.outputs[0]] for event in given]
        collectives = [event for event in program.events if event.group]
        elements = sum(value.elements() for value in given)
        right = "correct" if check(Trace.of(models)).correct else "WRONG"
        print(
            f"{placement:>10}, {right}: rank 0 is given {elements:,} elements "
            f"and calls {len(collectives)} collectives"
        )

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## How much does the avoided reshard save?
#
# A simulation can answer that. The three schedules below wait for every collective; `Links` prices a collective by what
# it moves, 0.2 for a batch of activations, so the all-gather costs what it should. Each schedule runs once. `retime`
# then computes its times under other costs:

# %%
runs = {
    placement: Trace.of(
        simulate(tensor_parallel(placement), layers=4, batches=4, mesh=mesh)
    )
    for placement in ("full", "batch", "replicated")
}


def ends(prices: dict) -> dict:
    return {
        name: [(x, end(retime(run, costs))) for x, costs in prices.items()]
        for name, run in runs.items()
    }


draw_curves(
    ends({price / 10: Links(to_device=price / 10) for price in range(6)}),
    across="to_device: the time to copy a batch from the host to a device",
    title="When the step is over, by the price of the way to the device",
)

# %% [markdown]
# **Predict** before you open this: the curves cross where a batch takes as long over the link between two devices (0.2)
# as from the host. What moves the crossing: four devices along `model` instead of two? Eight batches in a row instead
# of two?
#
# <details><summary>Answer</summary>
#
# Neither. Let a row have *b* batches and *M* devices. FULL saves each device the copies of *b - b/M* batches, and an
# all-gather moves just these *b - b/M* batches to it. So
#
# ```
# saved by the placement BATCH = (b - b/M)·(link - to_device) + (M - 1)·latency
# ```
#
# Both sizes only appear in the factor. They say how *much* is at stake; the two prices decide which wins: the link if
# it is faster than the way from the host, otherwise the host. REPLICATED also copies the batches of the other rows, so
# it never beats BATCH. It exists because it is easy to write.
#
# </details>
#
# One thing does depend on the size: the **latency**. An all-gather of *M* devices sends *M - 1* messages, however
# little is in them. With a slow way from the host (0.3 a batch) and a latency of 0.2 a message, it is better to copy a
# few batches and to gather many:


# %%
def of_the_input(placement: str, batches: int) -> float:
    """How much later the step is over than one whose input comes free."""
    given, free = (
        Trace.of(
            simulate(tensor_parallel(way), layers=2, batches=2 * batches, mesh=mesh)
        )
        for way in (placement, "batch")
    )
    return end(retime(given, Links(to_device=0.3, latency=0.2))) - end(
        retime(free, Links(latency=0.2))
    )


draw_curves(
    {
        way: [(batches, of_the_input(way, batches)) for batches in (2, 4, 6, 8)]
        for way in ("full", "batch")
    },
    across="batches of a row of data",
    title="What the input takes, by the batches of a row (to_device 0.3, latency 0.2)",
)

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# A row of **tensor parallel** ranks, fed in three ways. With *b* batches in a row, *D* rows, *M* devices along `model`
# and *L* layers, waiting for every collective:
#
# ```
# FULL          input = to_device·b/M + gather
# BATCH         input = to_device·b
# REPLICATED    input = to_device·b·D
# all           step  = input + 2·L·b/M + 0.3·(L - 1) + 0.3·L + 0.5·L
# ```
#
# With the sums hidden, everything except the input shrinks to what is computed: *2·L·b/M + 0.5·L*. The input cannot be
# hidden: at the beginning of a step there is nothing to hide it behind. (Unless you copy the batch of the *next* step
# during this one, as every good data loader does.)
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **Eight.** Tensor parallelism stays inside a host. From 8 GPUs to 16 the speed of each falls by 43 %, from 10,903
#   tokens a second to 6,246; with 32 it is 2,146 [@ultrascale_playbook]. A transformer layer has two such pairs, so two
#   all-reduces forward and two backward [@narayanan2021].
# - **How fast is the link?** An H100 sends 450 GB/s over NVLink. Its network card sends 50 GB/s, and the eight cards of
#   a host 400 together. So two devices of one row on two hosts gather nine times more slowly than inside a host,
#   because the pair has a single card on each side. There, let every host read its own copy.
# - **How large is the input?** In a language model it is token numbers: 4 bytes each. The activation of one token has
#   8,192 features in a 70B model, 16,384 bytes. Gather the token numbers instead of the features, and all this is about
#   kilobytes. For video, weather or pathology slides it is about gigabytes.
# - **Who has it.** AXLearn's `DataPartitionType` has the three; the function that turns the arrays of a host into one
#   over the mesh defaults to FULL [@axlearn_utils].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Here a copy keeps its device from computing; a real copy from pinned memory runs in parallel. Real devices of a host
# share the bandwidth of its memory, so eight copies at once are each slower than one. And our inputs are as large as
# activations, which real inputs rarely are.

# %% [markdown]
# ## Questions to think about
#
# **1.** What happens to the gradient of the data? With `"full"` it would have to travel the other way.
#
# <details><summary>Answer</summary>
#
# The first column shard gives a partial sum of it, which is not needed: data is not trained. A framework that does not
# know this sums it anyway. That is the 0.3 between 12.5 and 12.2. If there were a stage before layer 0, that stage
# would need it, and the opposite of the all-gather would be a reduce-scatter over the batches.
#
# </details>
#
# **2.** In which placements do two devices get the same example, and does it matter which of them draws the random
# augmentation?
#
# <details><summary>Answer</summary>
#
# In BATCH and REPLICATED. If each device crops or flips its copy by its own random numbers, the two halves of a layer
# work on different pictures, and no shape is wrong: the loss is just worse. With FULL each example is prepared once and
# then copied, so the two agree by themselves. Give all devices of a row the same seed.
#
# </details>
#
# **3.** Why can a sum over `model` and a sum over `data` be in flight at the same time here, and when can they not?
#
# <details><summary>Answer</summary>
#
# They have different members, and so separate queues. Inside a host, though, they share the same links: weight
# gradients then delay the activations that some rank is waiting for. Good schedules send gradients when the link is
# free.
#
# </details>
#
# **4.** Prefetching FSDP over all four ranks ends at 10.35 in this puzzle, with the same peak. Why split layers at all?
#
# <details><summary>Answer</summary>
#
# FSDP needs a batch for every rank. Give the four ranks two batches, and two of them are idle, while in a
# tensor-parallel row both devices work on the same batch, each for half as long. That makes a step shorter when the
# batch must not get larger. And FSDP sends weights where this sends activations: the larger the layers and the smaller
# the batches, the better the case for splitting layers.
#
# </details>
#
# ## Where this leads
#
# Each device now has its examples, and each example is where it is needed. What if a device cannot hold the activations
# of all of them at once?

# %% [markdown]
# <!-- part: links -->
