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
# The engineers of MegaScale looked at a host with eight GPUs and found eight data loaders in it, all reading the same
# file at the same time [@jiang2024, section 3.4]. The eight GPUs shared one model by tensor parallelism, so all of them
# needed the same examples, and each had a loader of its own to read them. Seven of eight reads were wasted, and every
# GPU waited for the disk.
#
# This puzzle has sixteen devices, out of order, four processes and sixteen examples. If a process reads for each of its
# devices alone, it reads 16 examples. Read fewer, and hide the rest behind computation.
#
# > **To tell a friend:** read each example once for all the GPUs of a host, and never let them wait for the disk.
#
# *The words, once more.* A **device** is a GPU, and what you write runs on each: `model.rank` is its number. A
# **process** owns the devices of its host and reads for them. A **row** is the devices that work on the same examples:
# `model.coord["data"]` is the number of mine. The devices of a row share each layer (**tensor parallelism**), and each
# needs all the examples of its row.

# %%
from drawing import draw, draw_curves, draw_mesh
from lib import Costs, Mesh, Model, goal, predict, simulate
from lib.analysis.feeding import examples_read

# %% [markdown]
# ## The idea
#
# Here are the sixteen devices. Process 0 owns the devices 0 to 3, process 1 the devices 4 to 7, and so on. Process 0
# has two devices in row 0 and two in row 3.

# %%
order = [0, 1, 4, 5, 8, 9, 12, 13, 10, 11, 14, 15, 2, 3, 6, 7]
mesh = Mesh({"data": 4, "model": 4}, ranks=order, processes=4)
draw_mesh(mesh, holds={})

# %% [markdown]
# Each row takes 4 of the 16 examples, so a process with devices in two rows has to read 8. For each device alone it
# reads 4 · 4 = 16. Read the whole batch and throw most of it away, and that is 16 as well.
#
# Reading takes time. The data loader of a process is its **reader**, and there is one. It reads an example in 0.5 and
# keeps it for all devices of its process. Copying an example from there to a device takes 0.1. You ask for examples with
#
# ```python
# activation = await model.read(batches)
# ```
#
# The call starts the read, and `await` waits for it. A reader serves requests in order. Once one device has asked for
# an example, the others only wait for the copy. What reading once saves, for rows of 4 examples and processes of 2, 4
# and 8 devices:


# %%
def seconds(devices: int, rows: int, shared: bool) -> float:
    """When everything is read, for one process of so many devices, which lie in so many
    rows."""
    host = Mesh({"data": rows, "model": devices // rows}, processes=devices)

    async def reads(model: Model) -> None:
        mine = model.coord["data"] if shared else model.rank
        await model.read(range(4 * mine, 4 * mine + 4))

    models = simulate(reads, mesh=host, batches=4 * devices, costs=Costs(read=0.5))
    return max(model.time for model in models)


counts = (2, 4, 8)
draw_curves(
    {
        "each device alone": [(n, seconds(n, 1, shared=False)) for n in counts],
        "two rows, once": [(n, seconds(n, 2, shared=True)) for n in counts],
        "one row, once": [(n, seconds(n, 1, shared=True)) for n in counts],
    },
    across="devices a process",
    title="When a process has read everything, with 4 examples a row",
)

# %% [markdown]
# A process with *d* devices in *r* different rows reads for *r* rows instead of *d* devices: half as much here, an
# eighth on MegaScale's hosts, and just as much where each device is a row of its own.
#
# Reading less is the first half. The second half is **when**. Fetch all four examples with one call, and the devices of
# row 3 wait until those of row 0 have everything. When would you ask?
#
# ## The puzzle
#
# | devices | mesh | processes | layers | batches | read | to the device |
# |---|---|---|---|---|---|---|
# | 16 | data 4, model 4, out of order | 4 | 2 | 16 | 0.5 | 0.1 |
#
# A batch is one example here.
#
# **Given:** the shards of the two weights: layer 0 is cut into columns, layer 1 into rows, so that one all-reduce along
# `model` makes the output whole. Two helpers: `forward(b)` takes `activations[0, b]` through both layers, starts that
# all-reduce and returns it; `backward(b, coming)` awaits it and adds to the gradients. And, below your code, the sum of
# the gradients along `data` and the updates.
#
# **To do:** find out which examples belong to this device's row, read them, and take each forward and backward.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts; data in flight to a device counts from the call on. Park a
#   value in a variable while something else runs, and only the first goal counts.
# - Data comes from `read`: `get_activation` is not allowed where reading has a price. Ask for each example once: a second
#   request copies it a second time.
# - You may keep a pending operation in a variable.
# - Other meshes are tried as well, in which a row has another number of examples.

# %% [markdown]
# ### Predict first
#
# Suppose each device asks for all 4 examples of its row with one call, and then takes them through the model together.
# A quarter of a weight takes a quarter of the time: 4 examples need 1 forward through a layer and 1 backward. When is
# the step over, and how many collectives does a device take part in?

# %%
guess = predict("loader", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# Let every process read all 16 examples: that takes 15.2 and passes. For the second goal a process reads 8, and its
# devices wait only for the first one. For the third, no device waits for a sum either.

# %%
goal("loader")

# %% [markdown]
# <!-- part: hints -->


# %%
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
                layer,
                activations.pop((layer, b)),
                grad_activations.pop(layer + 1),
                weights[layer],
            )
            grad_weights[layer] = (
                grad_weights[layer] + gradient if layer in grad_weights else gradient
            )
        del grad_activations[0]

    # Which examples are those of my row? Read them, and take each forward and backward.
    # --- your code (about 11 lines) ---
    row, rows = model.coord["data"], len(model.group("data"))
    mine = range(row, model.BATCHES, rows)

    reading, coming = model.read([mine[0]]), {}
    for b in mine:
        activations[0, b] = await reading
        if b + rows in mine:  # on its way while this one is computed
            reading = model.read([b + rows])
        coming[b] = forward(b)
        if b - rows in mine:  # the sum of the one before is there by now
            await backward(b - rows, coming[b - rows])
    await backward(b, coming[b])
    # --- end of your code ---

    sums = {
        layer: model.allreduce(grad_weights[layer], layer, group="data")
        for layer in (1, 0)
    }
    for layer in (1, 0):
        grad_weights[layer] = await sums[layer]
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(loader, puzzle="loader")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# With one call for the whole row, the reader of a process serves the first row, 4 · 0.5 = 2, and then the second, until
# 4. The devices of the second row then copy 4 · 0.1 = 0.4 and begin at 4.4. Forward takes 4 examples through 2 quarter
# layers, 2; the all-reduce of the output 0.3; backward 2 again: 8.7. The gradients are summed in 0.3, and two updates
# take 0.5 each: 10.0. That is one all-reduce along `model` and two along `data`, so 3 collectives.
#
# The naive run reads 16 examples, which takes 8, and every device copies all of them, 1.6: it begins at 9.6 and ends at
# 15.2.
#
# One example at a time, each requested one ahead: the second row begins at 2 · 0.5 + 0.1 = 1.1. Each of its examples
# takes 0.5 + 0.3 + 0.5, so it is done at 1.1 + 5.2 = 6.3, and the run at 7.6. Now three quarters of the reading is
# hidden. What is left to hide is the all-reduce of each example.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="loader")

# %% [markdown]
# How many examples did each process read?

# %%
if out:
    print(examples_read(out[0].trace))

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## When the batch does not divide
#
# Sixteen examples divide nicely among four rows. What about six examples for two devices that want four each?
# Frameworks fill up the batch with **padding**: examples of zeros that do not count. In this simulator `simulate(...,
# batches=6, padding=2)` gives the numbers 6 and 7 to padding. `model.BATCHES` stays 6, `model.PADDING` is
# 2. Padding takes time and memory like any example, but a gradient is complete as soon as it has the six real ones.


# %%
async def padded(model: Model) -> None:
    weight, state = model.load_weights(0)
    data = await model.read(range(4 * model.rank, 4 * model.rank + 4))
    gradient, _ = model.backward(
        0, data, model.loss(model.forward(0, data, weight)), weight
    )
    weight, state = model.update(0, await model.allreduce(gradient, 0), weight, state)
    model.set_final_weight(0, weight)


draw(simulate(padded, ranks=2, layers=1, batches=6, padding=2, costs=Costs(read=0.5)))

# %% [markdown]
# The hatched half of the boxes of rank 1 is wasted work. It has a purpose all the same: both devices run the same
# shapes, as a compiled program requires. Without padding device 1 would finish earlier and wait in the all-reduce.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is a **sharded data loader with prefetching**. Levanter reads the indices that the mesh assigns to each process,
# Megatron-LM reads on one GPU of a tensor-parallel group and broadcasts, MegaScale has one data loader on each host.
# With *r* rows of *n* examples in a process:
#
# ```
# read = r·n·0.5                        time that the reader of a process needs
# wait = r·0.5 + 0.1                    what the last row waits for its first example
# ```
#
# The reader stays hidden as long as it keeps up: it must read *r* examples while a device works on one, 2 · 0.5 against
# 1.3 here, or 1.0 once the sums are hidden. If it cannot keep up, no schedule helps: give a process fewer rows, or more
# readers.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **Once a host.** In MegaScale the GPUs of a tensor-parallel group need the same data, so one data loader on each
#   host puts it into shared memory for all eight [@jiang2024].
# - **How much there is to read.** Llama 3 was trained from 240 PB of storage that delivers 2 TB/s, and the hard part
#   was the bursts: all GPUs write their checkpoints at the same moment [@llama3, section 3.3.1]. Reading text is small
#   beside that; images and video are not.
# - **What goes wrong.** Until version 1.9 PyTorch's forked workers all inherited the same NumPy seed, so every worker
#   "augmented" in the same way [@pytorch_5059]. And forked workers can grow: one user watched the memory of a host
#   go from 5 to 17 GB within half an hour [@pytorch_5902].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# A reader reads one example after the other, always in the same time. Real ones have several workers in a process, a
# queue of finished batches, and slow moments. Copies to the devices of a host do not slow each other down here; on a
# real host they share its memory bandwidth. And an example that was read stays in host memory for free.

# %% [markdown]
# ## Questions to think about
#
# **1.** Call `model.read([b])` for all four examples before the loop, and await each in turn. No request is late. Why
# is the step slower than with one ahead?
#
# <details><summary>Answer</summary>
#
# A reader serves requests in order. At time 0 device 0 asks for four examples and device 2, of the other row, for four;
# the first four come first, and the second row gets its first example at 2.5 instead of 1.0. The step ends at 9.1
# instead of 7.6. A queue that is too long is as bad as one that is too short: real readers limit it (`prefetch_factor`
# in PyTorch).
#
# </details>
#
# **2.** The same devices, but the mesh in order: process p owns row p. What does each process read, and when does the
# step of our solution end?
#
# <details><summary>Answer</summary>
#
# Four examples, which take 2. No row waits for another: each begins at 0.6, waits 0.1 for its second example, and for
# no other. The step ends at 6.0 instead of 6.9. The order of devices matters for more than fast links.
#
# </details>
#
# **3.** Processes 0 and 1 feed the same two rows, and in each process one row waits at the start until the other has
# its example. Can they help each other?
#
# <details><summary>Answer</summary>
#
# Yes. Process 0 reads the first example of row 0 only, process 1 that of row 3, and each passes what it has read to the
# devices of that row in the other process. All rows begin at once, a process reads 7 examples, and the step ends at 6.5
# instead of 6.9. A message between hosts takes 0.2 here, less than half of a read; with a slow network or a fast disk
# it does not pay. `reveal("loader")` has this schedule.
#
# </details>
#
# **4.** When does reading once per process save nothing?
#
# <details><summary>Answer</summary>
#
# When all devices of a process are in different rows, as in plain data parallel: *d/r* is 1. The picture above has no
# line for that case, because it would coincide with the first one. The more axes a mesh has that do not cut the data
# (tensor, sequence or pipeline parallel inside a host), the more is saved.
#
# </details>
#
# ## Where this leads
#
# Every device of a row copied all examples of its row from the host. It could have copied a few and taken the rest from
# its neighbours. When is the way from the host faster, and when the way between devices?

# %% [markdown]
# <!-- part: links -->
