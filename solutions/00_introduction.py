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
# # Introduction: from one training step to many GPUs
#
# A large language model does not fit on one GPU, and one GPU would need centuries to train it. So training is
# spread over many, and somebody has to decide what each of them stores, computes and sends. That somebody is
# now you.
#
# In the eight puzzles that follow you write what **each GPU does in one training step**. A simulator runs
# your function once for every GPU, checks that all of them together did one correct training step, and shows
# when each one computed, when it waited and how much memory it held.
#
# No GPU is needed and no tensor is ever computed. A value here is a *label*, such as "gradient of layer 2,
# from batches 0 and 1". What makes a schedule right or wrong is exactly how such labels may be combined, and
# this is what the simulator checks.
#
# This notebook has no puzzle. It shows every word, every value and every operation that the puzzles use, so
# you never need to open the library.

# %%
from drawing import draw, draw_group, step_through
from lib import Mesh, Model, PuzzleError, predict, simulate

# %% [markdown]
# ## The words
#
# | word | meaning |
# |---|---|
# | **layer** | One weight matrix of the network. The network is a stack of `model.LAYERS` layers, numbered from 0. |
# | **batch** | One share of the examples that belong to this training step, always of the same size. There are `model.BATCHES` of them, numbered from 0. All of them must contribute before a weight may change. |
# | **microbatch** | A batch that travels through the network on its own instead of together with the others. |
# | **step** | One update of every weight. Weights start with `step` 0; when you are done each has `step` 1. |
# | **activation** | What flows into a layer on the forward pass. `activations[0]` is the data, `activations[LAYERS]` goes into the loss. |
# | **gradient** | The derivative of the loss. There is one for each activation (needed to go back through the layers) and one for each weight (needed to update it). |
# | **optimizer state** | What the optimizer remembers about a weight between steps, such as the momentum. Here it is as large as the weight. |
# | **rank** | One GPU with its own memory, and the number it goes by. There are `model.RANKS` of them, numbered from 0. |
# | **shard** | One of `total` equal pieces of a weight, of its gradient or of its optimizer state. Different ranks can hold different shards. |
# | **stage** | A run of neighbouring layers that one rank (or one group of ranks) takes care of in a pipeline. |
#
# Time is counted in units of "one batch forward through one layer". A training *step* takes many of these **time
# units**.

# %% [markdown]
# ## One device
#
# `Model(...)` without anything else is a sandbox: one rank, on which you can try every operation by hand. We
# take a network of 2 layers and a training step of 4 batches.

# %%
model = Model(layers=2, batches=4)
weights, opt_states, activations, grad_activations, grad_weights = model.storage()

# %% [markdown]
# `model.storage()` returns the five **stores** of this rank. Each is a dictionary, and you choose the keys.
#
# | store | holds | size of one value, in elements |
# |---|---|---|
# | `weights` | the weight of a layer | 512 · 512 = 262 144 |
# | `opt_states` | the optimizer state of a layer | 262 144 |
# | `grad_weights` | the gradient of a weight, for some batches | 262 144, however many batches are summed in it |
# | `activations` | the input of a layer, for some batches | 256 · 512 = 131 072 for **each** batch |
# | `grad_activations` | the gradient of an activation, for some batches | 131 072 for **each** batch |
#
# A shard `1/total` of a weight, gradient or optimizer state has `1/total` of the size.
#
# Keep these sizes in mind: sharding weights and splitting batches are two different ways to save memory, and
# most of the puzzles are about which of them helps where.

# %% [markdown]
# ### Forward
#
# First the data. We take batches 2 and 3 only. A value shows itself as a picture of the network with the part
# that you hold.

# %%
activations[0] = model.get_activation([2, 3])
activations[0]

# %% [markdown]
# Then the weights. `load_weights` gives the weight of a layer together with its optimizer state.

# %%
for layer in range(model.LAYERS):
    weights[layer], opt_states[layer] = model.load_weights(layer)
weights[0]

# %% [markdown]
# `forward` takes the input of a layer and the layer's weight and makes the input of the next layer. Two
# layers, two calls. After the last one `activations[2]` is the output of the network.

# %%
activations[1] = model.forward(0, activations[0], weights[0])
activations[2] = model.forward(1, activations[1], weights[1])
draw_group(activations)

# %% [markdown]
# ### Backward
#
# `loss` turns the output of the network into its gradient, and `backward` then goes back through one layer at
# a time. It needs three things: the **activation that went into** the layer (so that one had to be kept), the
# **gradient of what came out** of it, and the weight. It makes two: the gradient of the weight, and the
# gradient of the layer's input.
#
# A good habit for the keys: `grad_activations[k]` is the gradient of `activations[k]`. So the backward of a
# layer reads `activations[layer]` and `grad_activations[layer + 1]`, and writes `grad_weights[layer]` and
# `grad_activations[layer]`.

# %%
grad_activations[2] = model.loss(activations[2])
grad_weights[1], grad_activations[1] = model.backward(1, activations[1], grad_activations[2], weights[1])
grad_weights[0], grad_activations[0] = model.backward(0, activations[0], grad_activations[1], weights[0])
draw_group(grad_activations)

# %% [markdown]
# ### Memory
#
# `status()` lists what the rank holds and `memory()` adds up the sizes. Nothing is ever freed for you: a
# value takes memory until you `del` it from its store.

# %%
model.status()
print("memory:", model.memory())

# %% [markdown]
# After backward nothing needs the activations or their gradients any more.

# %%
for k in range(model.LAYERS + 1):
    del activations[k], grad_activations[k]
model.status()
print("memory:", model.memory())

# %% [markdown]
# The puzzles speak of the **peak**: the highest memory at the *start* of any operation that takes time. (What
# an operation makes is there when the next one starts. So the 3 145 728 above, after the last operation, are no
# peak.)
#
# What about a value in a plain variable, `x = model.forward(...)`? You may write that, but it does not hide
# anything: **every value that is still alive counts**, from the moment it is made until it has left the
# stores *and* has been used for the last time. The stores are the place where you can see it, list it and
# delete it. A value that waits in a variable while other operations run is named by the check, and then only
# the first goal of a puzzle counts.
#
# ### A step begins and ends at rest
#
# Training repeats this step a million times. So what one step leaves behind is what the next one starts from:
#
# - **At rest.** The weights and optimizer states that a rank loads were on it *before* the step. They count from
#   the first moment on, in whatever line you load them. What comes out of an update counts to the end.
# - **Ready for the next step.** Every weight, optimizer state or shard that a rank had before, it has afterwards,
#   updated exactly once: handed in with `set_final_weight`, or in a store. A puzzle does not accept a run that
#   leaves a rank with old weights, or without its optimizer state.
# - **In flight.** Nothing is on nobody's account. A message belongs to the rank that sent it until the other
#   one calls `receive`, and to that one from then on.
#
# **When to delete what.** Ask of each value who still needs it:
#
# | value | last needed by |
# |---|---|
# | `activations[layer]` | the backward of that layer (the output, `activations[LAYERS]`: by the loss) |
# | `grad_activations[layer + 1]` | the backward of that layer |
# | `grad_weights[layer]` | the update of that layer |
# | a weight gathered from shards | the forward or backward you gathered it for |

# %% [markdown]
# ### Update
#
# A gradient remembers which batches it is the sum of. Ours covers batches 2 and 3 of 4, so it is too early to
# update:

# %%
try:
    model.update(0, grad_weights[0], weights[0], opt_states[0])
except PuzzleError as error:
    print(error)

# %% [markdown]
# Every mistake is reported like that: what happened, what was expected, what came instead, and where in your
# code.
#
# We would now run batches 0 and 1. In the sandbox there is a short cut: `fake_grad` invents a gradient. (In a
# puzzle that does not count as training.) Gradients of *different* batches are put together with `+`.

# %%
for layer in range(model.LAYERS):
    grad_weights[layer, "other"] = model.fake_grad(layer, [0, 1])
    grad_weights[layer] = grad_weights[layer] + grad_weights[layer, "other"]
    del grad_weights[layer, "other"]
grad_weights[0]

# %%
for layer in range(model.LAYERS):
    weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
    del grad_weights[layer]
weights[0]

# %% [markdown]
# `set_final_weight` hands in the result. This is the end of a training step.

# %%
for layer in range(model.LAYERS):
    model.set_final_weight(layer, weights[layer])
draw_group(model.final_weights)

# %% [markdown]
# ## The timeline
#
# Each operation takes time:
#
# | operation | time |
# |---|---|
# | `forward`, `backward` | 1 for each batch |
# | `update` | 0.5 |
# | `loss`, `load_weights`, `get_activation`, `fake_grad`, `+` | 0 |
# | a collective (`allreduce`, `allgather`, `scatterreduce`) | 0.3 |
# | a message | 0.2 for the sender and 0.2 for the receiver |
#
# **Predict before you look:** our rank ran 2 batches forward and backward through 2 layers and updated both.
# When was it done? Put your number in place of the `...`, and run both cells. In every puzzle some numbers are
# asked of you like this, before you see them; leave the dots where you have no idea.

# %%
guess = predict(end=...)
guess

# %%
guess.against([model])

# %% [markdown]
# <details><summary>How to count it</summary>
#
# 2 layers · 2 batches forward, the same backward, and 2 updates: 4 + 4 + 2 · 0.5 = 9.
#
# </details>

# %%
draw(model)

# %% [markdown]
# How to read this picture: time runs to the right, and there is one row for each rank (here only one).
#
# - A filled box is a **forward**, a pale box of the same colour the **backward** of that layer. The colour,
#   and `L0`, `L1`, ... where there is room, say which layer; the number says which batches.
# - `U` is an **update**, and the thin dark line after the last forward is the **loss**.
# - You will soon see narrow boxes for communication: `AR` all-reduce, `AG` all-gather, `RS` reduce-scatter,
#   grey ones for sending and receiving a message. A dotted line means that the rank **waits**.
# - Below is the **memory** of each rank at each moment, stacked by kind of value, and a red mark at the peak.
#
# Two figures stand in the picture, and the goals of the puzzles speak of both: the **end**, when the last operation
# is over, and the **peak**, the most that a rank ever holds, with the rank and the time.
#
# And the verdict:

# %%
Model.check([model])

# %% [markdown]
# Correct, though half of these gradients were invented: a sandbox lets that pass, a puzzle does not.
#
# ### Nothing hides
#
# A value that you keep in a variable of your own instead of a store is found and named. Here the output of
# the layer waits in `secret` for the loss, while another batch is computed:

# %%
small = Model(layers=1, batches=2)
small.weights[0], small.opt_states[0] = small.load_weights(0)
for b in range(2):
    small.activations[0, b] = small.get_activation([b])
secret = small.forward(0, small.activations[0, 0], small.weights[0])
small.activations[1, 1] = small.forward(0, small.activations[0, 1], small.weights[0])
small.grad_activations[1, 0] = small.loss(secret)
small.grad_activations[1, 1] = small.loss(small.activations[1, 1])
for b in range(2):
    small.grad_weights[0, b], small.grad_activations[0, b] = small.backward(
        0, small.activations[0, b], small.grad_activations[1, b], small.weights[0]
    )
small.grad_weights[0] = small.grad_weights[0, 0] + small.grad_weights[0, 1]
small.weights[0], small.opt_states[0] = small.update(0, small.grad_weights[0], small.weights[0], small.opt_states[0])
small.set_final_weight(0, small.weights[0])
verdict = Model.check([small])

# %% [markdown]
# ## Many ranks
#
# Now to several GPUs. They all run **the same function**, each with a `model` of its own. Each has its own
# stores, its own clock, and its own number `model.rank`; that number is all that makes them behave
# differently.
#
# `simulate` runs a function on each of `ranks` ranks and returns the list of their models.


# %%
def hello(model: Model) -> None:
    activations = model.activations
    activations[0] = model.get_activation([model.rank])
    print("rank", model.rank, "of", model.RANKS, "works on", activations[0])


out = simulate(hello, layers=1, batches=4, ranks=4)

# %% [markdown]
# This is the usual agreement when there are as many batches as ranks: **rank r works on batch r**. It is
# nothing more than the line `get_activation([model.rank])`.
#
# ### `async` and `await`
#
# When ranks talk to each other they have to wait for each other, and so the function becomes an `async def`.
# You need two facts:
#
# 1. **Calling starts it.** `work = model.allreduce(...)` hands the operation to the network and returns at
#    once.
# 2. **`await` waits for it.** `result = await work` waits until it is over and gives the result.
#
# Mostly you do both on one line: `result = await model.allreduce(...)`. `forward`, `backward`, `loss` and
# `update` are computed by the rank itself, so they are never awaited.
#
# ### All-reduce: the sum, for everyone
#
# Each rank has the gradient of layer 0 for its own batch. After `allreduce` each rank has the sum over all
# batches. The second argument is the layer that the operation is for.


# %%
async def sum_gradients(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["sum"] = await model.allreduce(grad_weights["mine"], 0)


out = simulate(sum_gradients, layers=1, batches=4, ranks=4)
for m in out:
    print("rank", m.rank, "has", m.grad_weights["mine"], "and gets", m.grad_weights["sum"])

# %%
draw_group({"rank 2 before": out[2].grad_weights["mine"]}) | draw_group({"rank 2 after": out[2].grad_weights["sum"]})

# %% [markdown]
# The picture shows rank 2: before, it has one batch of four; after, it has all. (`|` puts pictures side by
# side.)
#
# Operations like this, in which all ranks of a group take part, are called **collectives**. A collective
# starts when its *last* member has arrived, and it ends for all of them at once.
#
# **Predict:** four ranks, and rank r runs `forward` on r + 1 batches before it comes to the all-reduce. When
# is it over? And what share of the time (in percent, all four ranks together) is not spent computing?

# %%
guess = predict(end=..., idle=...)
guess


# %%
async def late(model: Model) -> None:
    weights, opt_states = model.weights, model.opt_states
    activations, grad_weights = model.activations, model.grad_weights
    weights[0], opt_states[0] = model.load_weights(0)
    activations[0] = model.get_activation(range(model.rank + 1))
    activations[1] = model.forward(0, activations[0], weights[0])
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["sum"] = await model.allreduce(grad_weights["mine"], 0)


out = simulate(late, layers=1, batches=4, ranks=4)
guess.against(out)

# %%
draw(out)

# %% [markdown]
# Rank 3 arrives at time 4, the others wait for it, and the collective takes 0.3: it is over at 4.3, on every
# rank. Rank 0 computed for one time unit and rank 3 for four, so 10 of the 4 · 4.3 are used.

# %% [markdown]
# ### Overlap
#
# Since calling only *starts* a collective, a rank can compute while the network is busy, and `await` the
# result when it needs it. The function below does the same as the last one, with the all-reduce started
# first.


# %%
async def overlapped(model: Model) -> None:
    weights, opt_states = model.weights, model.opt_states
    activations, grad_weights = model.activations, model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    work = model.allreduce(grad_weights["mine"], 0)  # starts here ...
    weights[0], opt_states[0] = model.load_weights(0)
    activations[0] = model.get_activation(range(model.rank + 1))
    activations[1] = model.forward(0, activations[0], weights[0])
    grad_weights["sum"] = await work  # ... and is over long before this line


out = simulate(overlapped, layers=1, batches=4, ranks=4)
for m in out:
    print("rank", m.rank, "is done at", m.time)

# %%
draw(out)

# %% [markdown]
# The eight puzzles do not ask for overlap: `await` on the same line is always good enough to pass. Real
# frameworks live on it, and nothing stops you from trying. (A work is not a value: keep it in a variable or a
# dictionary of your own until you await it. The stores take values only.)
#
# What happens when the `await` is forgotten altogether? Then there is a *work* where a value should be:


# %%
async def forgot_await(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["sum"] = model.allreduce(grad_weights["mine"], 0)


try:
    simulate(forgot_await, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# ### Sharding and all-gather: the pieces, for everyone
#
# A rank may load one shard of a weight instead of the whole: `load_weights(layer, shard, total)`. That is a
# quarter of the memory with 4 shards. (In the pictures, shards are stacked in the slot of the weight.) But
# `forward` and `backward` need the whole weight. `allgather` brings the shards together.


# %%
async def gather_weight(model: Model) -> None:
    weights, opt_states = model.weights, model.opt_states
    weights["shard"], opt_states["shard"] = model.load_weights(0, model.rank, model.RANKS)
    weights["full"] = await model.allgather(weights["shard"], 0)


out = simulate(gather_weight, layers=1, batches=4, ranks=4)
for m in out:
    print("rank", m.rank, "has", m.weights["shard"], "and gets", m.weights["full"])

# %%
draw_group({"rank 2 before": out[2].weights["shard"]}) | draw_group({"rank 2 after": out[2].weights["full"]})

# %% [markdown]
# Note the difference. All-*reduce* **adds** values that are all of full size: the batches grow, the size
# stays. All-*gather* **puts together** pieces: the shards grow, and so does the memory. A gathered weight is
# therefore a guest: use it, and delete it.
#
# ### Reduce-scatter: the sum, one piece for each
#
# Each rank brings the whole gradient for its own batch. Each leaves with *one shard* of the sum over all
# batches: rank r with shard r. It is what an all-reduce does, except that nobody keeps more than a shard. In
# the puzzles it is called `scatterreduce`.


# %%
async def sum_and_scatter(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["shard"] = await model.scatterreduce(grad_weights["mine"], 0)


out = simulate(sum_and_scatter, layers=1, batches=4, ranks=4)
for m in out:
    print("rank", m.rank, "has", m.grad_weights["mine"], "and gets", m.grad_weights["shard"])

# %%
draw_group({"rank 2 before": out[2].grad_weights["mine"]}) | draw_group({"rank 2 after": out[2].grad_weights["shard"]})

# %% [markdown]
# A reduce-scatter followed by an all-gather gives the same as an all-reduce. That is worth remembering: the
# all-reduce is the convenient one, the other two are its halves.
#
# | collective | a rank brings | a rank gets |
# |---|---|---|
# | `allreduce` | whole gradient, its batch | whole gradient, all batches |
# | `allgather` | its shard | all shards |
# | `scatterreduce` | whole gradient, its batch | its shard, all batches |

# %% [markdown]
# ### Point-to-point: one rank to one other
#
# `pass_to(rank, value)` sends a value to one rank, `receive(rank)` takes one from it. Here the activation of
# layer 0 moves down a line of four ranks, and each of them computes one layer.


# %%
async def relay(model: Model) -> None:
    weights, opt_states, activations = model.weights, model.opt_states, model.activations
    layer = model.rank
    weights[layer], opt_states[layer] = model.load_weights(layer)
    if model.rank == 0:
        activations[layer] = model.get_activation([0])
    else:
        activations[layer] = await model.receive(model.rank - 1)
    activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    if model.rank < model.RANKS - 1:
        await model.pass_to(model.rank + 1, activations[layer + 1])
        del activations[layer + 1]


out = simulate(relay, layers=4, batches=1, ranks=4)
draw(out)

# %% [markdown]
# A picture of what happened is good; walking through it is better. `step_through` gives a page on which you
# move through time with the slider or the arrow keys, point at an operation, and see what each rank holds at
# that moment. It works for every run in these notebooks: `step_through(out)`.

# %%
step_through(out)

# %% [markdown]
# A message takes 0.2 on the sender's clock and then 0.2 on the receiver's. The receiver waits until there is
# something to receive. The sender does not wait, unless an earlier message of its own has not been taken yet:
# there is room for **one** message on the way to each rank. The value that was sent is still in the sender's
# store until it is deleted there, and if the receiver has not called `receive` by then, it still counts as the
# sender's memory.
#
# ### When everybody waits
#
# Ranks 0 and 1 want to exchange values, and both wait for the other's message first. On real GPUs such a
# program hangs until a timeout many minutes later, and then says little that helps. The simulator notices at
# once:


# %%
async def after_you(model: Model) -> None:
    other = 1 - model.rank
    model.activations["theirs"] = await model.receive(other)
    model.activations["mine"] = model.get_activation([model.rank])
    await model.pass_to(other, model.activations["mine"])


try:
    simulate(after_you, layers=1, batches=2, ranks=2)
except PuzzleError as error:
    print(error)

# %% [markdown]
# This is a **deadlock**. The message says for each rank what it waits for and on which line. The second
# classic is a collective in which one rank does not take part:


# %%
async def without_rank_2(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    if model.rank != 2:
        grad_weights["sum"] = await model.allreduce(grad_weights["mine"], 0)


try:
    simulate(without_rank_2, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Collectives have no names on the wire: a rank's first collective meets everybody else's first, its second
# meets the second, and so on. So all ranks of a group must call **the same collectives in the same order**.
# If they come together with different operations or different layers, that is an error too, and both lines
# are shown.

# %% [markdown]
# ## Groups
#
# So far a collective was for all ranks. Often it should be for some. A **mesh** arranges the ranks in a grid
# with named axes:


# %%
mesh = Mesh({"replica": 2, "shard": 4})
for rank in range(8):
    print("rank", rank, "is at", mesh.coordinates(rank))

# %% [markdown]
# Think of two rows of four. A rank's row along `"shard"` is one **group**, its column along `"replica"` is
# another. `model.coord["shard"]` is a rank's place on the axis, `model.group("shard")` are the ranks of its
# group in order, and every collective takes `group="shard"`.
#
# Below, each row gathers a weight of its own from four shards. The two rows do not wait for each other.


# %%
async def gather_in_rows(model: Model) -> None:
    weights, opt_states = model.weights, model.opt_states
    row, place = model.coord["replica"], model.coord["shard"]
    weights["shard"], opt_states["shard"] = model.load_weights(row, place, 4)
    weights["full"] = await model.allgather(weights["shard"], row, group="shard")
    if model.rank in (0, 4):
        print("rank", model.rank, "shares a group with", model.group("shard"), "and holds", weights["full"])


out = simulate(gather_in_rows, layers=2, batches=4, mesh=mesh)

# %%
draw_group({"rank 1": out[1].weights["full"]}) | draw_group({"rank 5": out[5].weights["full"]})

# %% [markdown]
# **Predict:** in this mesh, which ranks are in a collective with `group="replica"` together with rank 6?
#
# <details><summary>Answer</summary>
#
# Rank 6 is at replica 1, shard 2. Its column has all ranks with shard 2: ranks 2 and 6.
#
# </details>


# %%
def show_column(model: Model) -> None:
    if model.rank == 6:
        print(model.group("replica"))


out = simulate(show_column, layers=1, batches=1, mesh=mesh)

# %% [markdown]
# ## How a puzzle works
#
# Each notebook has one function with a gap, marked by `your code`. What stands around the gap is given: you
# do not have to change it. Then these cells follow:
#
# - `simulate(...)` runs your function on all ranks;
# - `draw(out)` shows what they did;
# - `Model.check(out, ...)` says whether it was one correct training step, and how close it came to the goals;
# - `review(out, ...)` says where your ranks wait and why, what filled the memory at its peak, and how far you are
#   from the best that is possible.
#
# Until the gap is filled they only say that it is not solved yet. While you work on it, `model.status()` and
# `print(model.rank, model.memory())` inside your function show what a rank holds at that moment.
#
# Before you begin, `predict(...)` asks what you expect and `goal(...)` shows the goals, in this order: do not run
# the second before you have answered the first. When you are stuck, `hint(...)` opens one hint at a time.
#
# | goal | what it asks for |
# |---|---|
# | passes | a correct step that uses the idea of the puzzle; this is enough to go on |
# | as good as the classic | time and memory of the solution in the *LLM Training Puzzles* of Sasha Rush, the model for these eight |
# | as good as our reference | the solution that comes with these notebooks; where there is no such line it is the same |
#
# The review adds a **lower bound**: no schedule of that kind can be below it. For the time it is often a
# **critical path**, a chain of operations each of which needs the one before it. The time in which ranks wait is
# called the **bubble**.
#
# A run that fails leaves nothing in `out`: the cells below it have nothing to show until it comes to its end.

# %% [markdown]
# <!-- part: links -->
