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
# AXLearn, Apple's training library, lets you choose the **placement** of the input, named after how the batch is cut:
# **FULL**, over all devices, and these gather the rest; **BATCH**, among the replicas, so that each device is given all
# that it needs; **REPLICATED**, not at all, and each device picks its part. On the four devices of this puzzle these
# are 131,072 elements a device, twice as many, and four times as many. When is which faster? Measure it.
#
# > **To tell a friend:** what the loader does not bring to a device, its neighbours must.
#
# *The words, once more.* A **device** is a GPU: what you write runs on each, and `model.rank` is its number. A **mesh**
# arranges them along named axes, and those of one line along an axis are a **group**. A weight has 262,144 elements, an
# activation of one batch 131,072. The devices that work on the same examples, the *row* of puzzle $number_local_devices,
# hold one copy of the model between them. Here they are a **replica**, because weights have rows too.

# %%
from drawing import compare, draw, draw_curves, draw_mesh
from lib import Links, Mesh, Model, Trace, check, goal, predict, retime, simulate
from lib.analysis.figures import end
from lib.schedules.given import backward, forward, given, in_turn, update

# %% [markdown]
# ## The idea
#
# Four devices, two axes. Along `data` the batches differ, as always. Along `model` the devices share the *same*
# batches, and each layer is cut between them. Each pair along `model` is a replica:

# %%
mesh = Mesh({"data": 2, "model": 2})
draw_mesh(mesh)

# %% [markdown]
# You did that in puzzle $number_tensor_parallel: columns (`dim="out"`), then rows (`dim="in"`), and one sum for each such
# pair of layers, forward and backward. A device computes half of each layer, in half the time. What is new is a second
# replica, with batches of its own, and the question of how the input comes to the devices.
#
# Layer 0 is cut into columns, and a column shard needs **all features of all batches of its replica**. Here these are
# two batches, for two devices:
#
# | placement | each device is given | then |
# |---|---|---|
# | `"full"` | its own part of the replica's batches | the devices of the replica gather the rest: the batch is **resharded** |
# | `"batch"` | all batches of its replica | nothing |
# | `"replicated"` | all batches there are | it cuts out those of its replica: `value.shard(number, total)` is part `number` of `total` |
#
# Copying a batch to a device takes time, here 0.05 (the price is called `to_device`), and every device has its own
# connection to its host.

# %% [markdown]
# ## The puzzle
#
# | devices | mesh | layers | batches | batches of a replica | to_device |
# |---|---|---|---|---|---|
# | 4 | data 2, model 2 | 4 | 4 | 2 | 0.05 a batch |
#
# **Given:** the number of the replica (`data`) and of this device in it (`member`), how many there are of both
# (`replicas`, `members`), columns of layers 0 and 2 and rows of layers 1 and 3 with their optimizer states. And the
# tensor parallel step of a replica, `train`. (Where a helper marked `@given` fails, the message shows the line that
# calls it.)


# %%
@given
async def train(model, pieces, start_sum, complete=None):
    """Forward, loss and backward of activations[0], cut into so many pieces
    that take turns."""
    whole = model.activations.pop(0)
    for i in range(pieces):
        model.activations[0, i] = whole.shard(i, pieces)
    del whole
    passes = [one_piece(model, i, start_sum, None) for i in range(pieces - 1)]
    # With the last piece a gradient is complete.
    await in_turn([*passes, one_piece(model, pieces - 1, start_sum, complete)])


@given
async def one_piece(model, i, start_sum, complete):
    """A piece on its way. Where it waits for a sum, others have their turn."""
    for layer in range(model.LAYERS):
        forward(model, layer, i)
        if layer % 2 == 1:
            here = layer + 1, i
            coming = start_sum(model.activations.pop(here), layer + 1)
            yield
            model.activations[here] = await coming
    model.grad_activations[here] = model.loss(model.activations.pop(here))
    for layer in reversed(range(model.LAYERS)):
        backward(model, layer, i)
        if complete:
            complete(layer)
        if layer % 2 == 0 and layer > 0:
            here = layer, i
            coming = start_sum(model.grad_activations.pop(here), layer)
            yield
            model.grad_activations[here] = await coming


# %% [markdown]
# What it cannot know is which device has what. That follows from the placement, and you tell it:
#
# | you give it | what that is |
# |---|---|
# | `pieces` | into how many equal pieces the input is cut. While one waits for a sum, another one is computed |
# | `start_sum(value, layer)` | your function that starts the all-reduce of a partial sum, over the devices that have its other parts, and returns the call: a plain `def`, without `await`. The value is an activation or the gradient of one |
# | `complete(layer)` | your function, also a plain `def`, that it calls in backward, as soon as `grad_weights[layer]` has all batches of this replica. You may leave it out |
#
# Afterwards `grad_weights[layer]` has the gradient of the batches of this replica, and `update(model, layer)` exchanges a
# weight for the new one. It uses up the gradient, which has to be that of *all* batches.
#
# **To do:**
#
# 1. Work out which batches are those of this replica: each batch belongs to one. Take the input as `placement` says,
#    and put all batches of the replica into `activations[0]`. The check runs all three, and counts what each device is
#    given.
# 2. Train with a single piece. Then sum the gradients and update, everything awaited: that reaches the second goal. With
#    whom does a device share a layer, and with whom does it share a weight shard?
# 3. Some of these sums are not needed before the updates. Start them early.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts. Park a value in a variable while something else runs, and
#   only the first goal counts. You may keep pending calls in a dict of your own.
# - An all-reduce or all-gather without `group` is one of all devices; `group="data"` and `group="model"` are those
#   along an axis.
# - `set_final_weight` gets this device's shard.

# %% [markdown]
# ### Predict first
#
# Suppose you take the batches of your replica in a single piece, and await every collective where you call it. When is
# the step over? (Forward and backward of a whole layer take 1 a batch, an update 0.5, any collective 0.3. `train` sums
# only what is needed.)

# %%
guess = predict("place_inputs", end=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step, and tolerates one collective too many; the second does not. For the third, hide the
# sums of the weights' gradients. For the fourth, hide the partial sums as well, as in puzzle $number_tensor_parallel.

# %%
goal("place_inputs")

# %% [markdown]
# <!-- part: hints -->


# %%
async def place_inputs(model: Model, placement: str = "batch") -> None:
    weights, opt_states, activations, _, grad_weights = model.storage()

    data, member = model.coord["data"], model.coord["model"]
    replicas, members = len(model.group("data")), len(model.group("model"))
    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(
            layer, member, members, dim=dim
        )

    # The input of this replica, as `placement` says: "full", "batch" or "replicated".
    # Then train, sum and update.
    # --- your code (about 19 lines) ---
    each = model.BATCHES // replicas
    my_batches = range(data * each, (data + 1) * each)
    if placement == "full":
        activations[0] = model.get_activation(my_batches[member::members])
        activations[0] = await model.allgather(activations[0], 0, group="model")
    elif placement == "batch":
        activations[0] = model.get_activation(my_batches)
    else:
        activations[0] = model.get_activation(range(model.BATCHES))
        activations[0] = activations[0].shard(data, replicas)

    def start_sum(value, layer):
        return model.allreduce(value, layer, group="model")

    def complete(layer):
        sums[layer] = model.allreduce(grad_weights.pop(layer), layer, group="data")

    sums = {}
    await train(model, each, start_sum, complete)
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
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
# The copy of two batches takes 0.1. A device computes half of each layer for two batches: 4 forward, 4 backward. Four
# updates take 2. That is 10.1 whatever you do. The collectives that you wait for: two sums forward, one backward (layer
# 2; for layer 0 it would be the gradient of the data, which is not needed), four sums over `data`. Seven times 0.3 is
# 2.1, and 12.2 in all.
#
# With `"full"` there is one more collective and one batch less to copy: 12.45. With `"replicated"`, two more batches to
# copy: 12.3. A step that also sums the gradient of the data takes 12.75, 12.5 and 12.6.
#
# </details>

# %%
draw(out)

# %% [markdown]
# ### The three side by side
#
# The same function, three placements. Look at the beginning: the rest is the same. The cell after the picture checks
# that each of the three is one correct step. Does a device get as many elements as the introduction says?


# %%
def placed(placement: str):
    async def run(model: Model) -> None:
        await place_inputs(model, placement)

    return simulate(run, puzzle="place_inputs")


three = {}  # nothing of an earlier run, should one of these fail
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

# %%
Model.check(out, puzzle="place_inputs")

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
from lib.schedules.mesh_parallel import tensor_parallel

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
# as from the host. What moves the crossing: four devices along `model` instead of two? Eight
# batches for a replica instead of two?
#
# <details><summary>Answer</summary>
#
# Neither. Let a replica have *b* batches and *M* devices. FULL saves each device the copies of *b - b/M* batches, and an
# all-gather moves just these *b - b/M* batches to it. So
#
# ```
# saved by the placement BATCH = (b - b/M)·(link - to_device) + (M - 1)·latency
# ```
#
# Both sizes only appear in the factor. They say how *much* is at stake; the two prices decide which wins: the link if
# it is faster than the way from the host, otherwise the host. REPLICATED also copies the batches of other replicas, so
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
    across="batches of a replica",
    title="What the input takes, if to_device is 0.3 and a message 0.2",
)

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Tensor parallel** replicas, fed in three ways. With *b* batches for each, *D* replicas, *M* devices along `model` and
# *L* layers, waiting for every collective:
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
#   a host 400 together. So two devices of one replica on two hosts gather nine times more slowly than inside a host,
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
# then copied, so the two agree by themselves. Give all devices of a replica the same seed.
#
# </details>
#
# **3.** Why can a sum over `model` and a sum over `data` be in flight at the same time here, and when can they not?
#
# <details><summary>Answer</summary>
#
# They have different members, and so separate queues. Inside a host, though, they share the same links: weight
# gradients then delay the activations that some device is waiting for. Good schedules send gradients when the link is
# free.
#
# </details>
#
# **4.** Prefetching FSDP over all four devices ends at 10.35 in this puzzle, with the same peak. Why split layers at all?
#
# <details><summary>Answer</summary>
#
# FSDP needs a batch for every device. Give the four two batches, and two of them are idle, while in a replica both
# devices work on the same batch, each for half as long. That makes a step shorter when the batch must not get larger. And FSDP sends weights where this sends activations: the larger the layers and the smaller
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
