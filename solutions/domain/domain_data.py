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
# The European weather centre trained its model AIFS on 64 A100s, with a batch of 16 [@aifs_single]. That is a quarter
# of an example for each GPU: the four GPUs of a host share one state of the atmosphere, and 16 such groups have
# different ones.
#
# So two things are cut at once. Along one axis GPUs have *different examples*, as in data parallelism. Along the other
# they have *different rows of the same example*. Mix the two up in forward, and you get rows of another day's weather.
# Mix them up in the gradient, and you get a fraction of it. In neither case does anything fail: put DDP over all 64
# GPUs, and training goes on without an error.
#
# > **To tell a friend:** one neighbour shares your image, the other has an image of its own. Mix them up, and nothing
# > fails.
#
# *The words, once more.* A convolution with a kernel of 3 rows needs one row from each neighbour, the **halo**. In
# backward the gradient of a borrowed row goes home to its owner, who adds it (puzzle $number_halo_conv).
# `group="domain"` means a collective along that axis of the mesh: with the ranks that differ from me in that coordinate
# alone (puzzle $number_hsdp).

# %%
from drawing import draw, draw_mesh
from lib import Layer, Links, Mesh, Model, PuzzleError, Trace, goal, predict, simulate
from lib.analysis.figures import busiest, end, most_sent
from lib.schedules.given import exchange, forward, given, joined, summed, update

MESH = Mesh({"data": 2, "domain": 2})
PRICES = Links(
    p2p=0.6, latency=0.06, forward=4, backward=4
)  # 0.6 for 131,072 elements, and 0.06 for each message
LAYERS = [
    Layer("convolution", inputs=128, outputs=128, rows=64, kernel=3, padding=1)
] * 4

# %% [markdown]
# ## The idea
#
# ### Two kinds of neighbours
#
# Four ranks on a mesh: `data` 2, `domain` 2. `data` splits the images into even and odd ones; `domain` splits their
# rows.

# %%
HOLDS = {
    0: "even, rows 0-31",
    1: "even, rows 32-63",
    2: "odd, rows 0-31",
    3: "odd, rows 32-63",
}
draw_mesh(MESH, holds=HOLDS, title="Who has which images, and which of their rows")

# %% [markdown]
# A box is the GPU of a rank, a **device**. Ranks on one line have the same images, those in one column the same rows.
# The boxes have four colours, because no two of them hold the same.
#
# Look at rank 1, with the even images and the rows from 32 on. The ranks in its column are its group along `data`, and
# those in its line are its group along `domain`, each with a colour:

# %%
draw_mesh(MESH, groups_of=1)

# %% [markdown]
# So it has two partners:
#
# | along | partner of rank 1 | has |
# |---|---|---|
# | `domain` | 0 | the same images, other rows |
# | `data` | 3 | the same rows of other images |
#
# These functions exchange rows and run the backward of a layer, and you get them in the puzzle. They are simpler than those of
# puzzle $number_halo_conv: every rank has rows, and all of them wait for their halo.


# %%
@given  # a message about what it does shows the line that calls it
def my_rows(place, places):
    """Where the rows of a rank begin and end, the blocks of them that its neighbours
    need, and the blocks of theirs that it needs. A block is one row."""
    low, high = 64 * place // places, 64 * (place + 1) // places
    beside = [(low, low - 1)] if place > 0 else []
    beside += [(high - 1, high)] if place < places - 1 else []
    edges, halo = ([(pair[i], pair[i] + 1) for pair in beside] for i in (0, 1))
    return low, high, edges, halo


@given
async def borrow(model, layer, rows, group):
    """Neighbours in a group hand in rows, which join this rank's activation."""
    own, (_, _, edges, _) = model.activations[layer], rows
    arrived = await exchange(model, own, edges, layer, group)
    model.activations[layer] = joined([own, *arrived])


@given
async def give_back(model, layer, rows, group):
    """The gradients of borrowed rows go home, and are added there."""
    low, high, edges, halo = rows
    arrived = await exchange(model, model.grad_activations[layer], halo, layer, group)
    gradient = model.grad_activations.pop(layer)
    model.grad_activations[layer] = summed(low, high, gradient, edges, arrived)


@given
def backward(model, layer, weight):
    """Backward of a layer, with the gradients of its weight and its input."""
    model.grad_weights[layer], model.grad_activations[layer] = model.backward(
        layer,
        model.activations.pop(layer),
        model.grad_activations.pop(layer + 1),
        weight,
    )


# %% [markdown]
# What a rank loads, and whom it borrows from, is for you to find out. So the function `take`, which does both for the
# pictures here, is folded.


# %% jupyter={"source_hidden": true}
@given
async def take(model, group="domain"):
    images = range(model.coord["data"], model.BATCHES, len(model.group("data")))
    rows = my_rows(model.coord["domain"], len(model.group("domain")))
    model.activations[0] = model.get_activation(images).cut("rows", *rows[:2])
    await borrow(model, 0, rows, group)


# %% [markdown]
# Suppose that every rank exchanges rows with the wrong partner, that along `data`. It has as many rows, of the same
# shape:


# %%
async def borrow_along_data(model):
    await take(model, group="data")


try:
    simulate(borrow_along_data, layers=LAYERS[:1], mesh=MESH, batches=64, costs=PRICES)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Our values know their rows and images (a **batch** is an image). In PyTorch a row is a row: the shapes agree, and the
# loss is wrong.
#
# ### Whose gradient is missing?
#
# Every rank has all weights (for now). After backward, its gradient of a weight has seen what this rank has. Read what
# each of two sums adds to it, for 4 images:


# %%
async def one_layer(model):
    await take(model)  # along the right axis
    x, (weight, _) = model.activations[0], model.load_weights(0)
    gradient, _ = model.backward(0, x, model.loss(model.forward(0, x, weight)), weight)
    print(f"rank {model.rank}, on its own:   {gradient}")
    gradient = await model.allreduce(gradient, 0, group="domain")
    print(f"rank {model.rank}, over domain:  {gradient}")
    gradient = await model.allreduce(gradient, 0, group="data")
    print(f"rank {model.rank}, over both:    {gradient}")


demo = simulate(one_layer, layers=LAYERS[:1], mesh=MESH, batches=4, costs=PRICES)

# %% [markdown]
# Each sum restores what was cut along its axis. Where a value names no rows, it is of all rows.
#
# ### Sums and means
#
# In this course the loss is a sum over all images, so gradients are only ever summed. In PyTorch the loss of a batch is
# a **mean** over its images. Each `data` rank takes the mean over *its* images, and DDP then takes the mean of these
# gradients over the ranks: it divides by their number [@pytorch_ddp]. For `data` that is right. And for `domain`?
#
# Take two images, each in two halves. The loss of an image is a sum over its rows. Each number is what one half
# contributes to the gradient of some weight. **Predict** which of the three lines is right:

# %%
PIECES = {
    ("image 0", "top"): 1,
    ("image 0", "bottom"): 3,
    ("image 1", "top"): 5,
    ("image 1", "bottom"): 7,
}
images = {}
for (image, _), piece in PIECES.items():
    images[image] = images.get(image, 0) + piece
print(f"mean over all four ranks         {sum(PIECES.values()) / 4:>4.0f}")
print(f"sum over domain, mean over data  {sum(images.values()) / 2:>4.0f}")
print(f"sum over all four ranks          {sum(PIECES.values()):>4.0f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The gradient of image 0 is 1 + 3 = 4: its halves are *parts* of one image, and parts are added. That of image 1 is 12.
# The loss of the batch is the mean of two images, so its gradient is (4 + 12) / 2 = **8**, the second line.
#
# The first line is 4: **half the gradient.** It is what DDP over all four ranks gives. It divides by 4, and there are
# only 2 sets of images. With four ranks along `domain`, as in AIFS, it would be a quarter. The third line is the
# gradient of the *sum* of the losses, which is what this course has.
#
# </details>
#
# ### Where may a shard lie?
#
# FSDP shards a weight over ranks that would otherwise hold the *same* weight. Which ranks are these here: those along
# `data`, those along `domain`, or all four? And which collective then gives each rank the gradient of its shard, over
# all rows and images? Decide before you write the third goal.
#
# <details><summary>Answer</summary>
#
# All four. Ranks along `domain` have different rows, but the same weights as all others. So a weight can be cut into
# **four** shards, over both axes, and one reduce-scatter over all four sums over rows and images and leaves each rank
# with the shard that it updates.
#
# </details>

# %% [markdown]
# ## The puzzle
#
# | ranks | mesh | images | rows of an image | layers | a layer | a halo exchange | all-reduce of a gradient | gather, reduce-scatter | an update |
# |---|---|---|---|---|---|---|---|---|---|
# | 4 | data 2, domain 2 | 64, so 32 a rank | 64, so 32 a rank | 4 | 3 | 0.07875 | 0.6975 | 0.34875 each | 0.09375 |
#
# All-reduce, gather and reduce-scatter are over all four ranks. A layer takes 3 forward and 3 backward.
#
# **Given:** `model.coord` says where on the mesh this rank is, and `model.group("data")` which ranks are in
# its group along `data`. Shards are loaded, gathered and summed as in FSDP, with `model.load_weights(layer, shard,
# total)`, `model.allgather(shard, layer)` and `model.scatterreduce(gradient, layer)`: without a `group` over all ranks.
# And helpers:
#
# - `my_rows(place, places)` gives `rows`; its first two numbers say where this rank's rows begin and end, and
#   `value.cut("rows", low, high)` is that part of a value. The helpers below take `rows` whole.
# - `await borrow(model, layer, rows, group)` adds the halo to `activations[layer]`.
# - `await give_back(model, layer, rows, group)` sends home what `grad_activations[layer]` has for borrowed rows, and
#   adds what arrives.
# - `forward(model, layer, weight=weight)` makes `activations[layer + 1]` from `activations[layer]`, with this weight;
#   with `forward(model, layer)` it is `weights[layer]`.
# - `backward(model, layer, weight)` makes `grad_weights[layer]`, and `grad_activations[layer]` from
#   `grad_activations[layer + 1]`, and uses up what it reads.
# - `update(model, layer)` updates a weight, or its shard, and uses up the gradient.
#
# **To do:** one training step, in which each rank finds its images and its rows, and each weight gets the gradient of all
# rows of all images.
#
# 1. Whole weights on every rank, and everything awaited where you call it.
# 2. Let the sums travel. And what is sent for nothing?
# 3. Cut the weights. A rank has a whole weight only for as long as it needs that (the peak counts), and the step takes no longer.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts. Park a value in a variable while something else runs, and
#   only the first goal counts. You may keep pending operations in a dict of your own, but what you await from it goes
#   into a store: `weights[layer, "full"] = await ...`.
# - Collectives without a `group` go over all ranks. Those along an axis and those over all share a rank's link.
# - `set_final_weight` gets the whole weight, or this rank's shard, as you loaded it.
# - The same function has to be right on any mesh with these two axes: three data ranks, a single one, a domain of one
#   rank, and axes in the other order.

# %% [markdown]
# ### Predict first
#
# Keep whole weights on every rank, await everything where you call it, give back every halo, and sum each gradient over
# all four ranks at once. When is the step over, and how many collectives does a rank call? (A halo exchange is one.)

# %%
guess = predict("domain_data", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step. For the second, never wait for a sum while there is something to compute, and send
# nothing that is not needed. The third takes no longer, with a quarter of each weight and optimizer state at rest.

# %%
goal("domain_data")

# %% [markdown]
# <!-- part: hints -->


# %%
async def domain_data(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    # Which images, which rows, which part of the weights? Then forward, loss, backward,
    # and the updates.
    # --- your code (about 29 lines) ---
    images = range(model.coord["data"], model.BATCHES, len(model.group("data")))
    rows = my_rows(model.coord["domain"], len(model.group("domain")))
    last, sums, shard = model.LAYERS - 1, {}, (model.rank, model.RANKS)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, *shard)

    activations[0] = model.get_activation(images).cut("rows", *rows[:2])
    coming = model.allgather(weights[0], 0)
    for layer in range(model.LAYERS):
        await borrow(model, layer, rows, "domain")
        weights[layer, "full"] = await coming
        if layer < last:  # the next weight travels while this layer is computed
            coming = model.allgather(weights[layer + 1], layer + 1)
        forward(model, layer, weight=weights[layer, "full"])
        if layer < last:
            del weights[layer, "full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer, "full"] = await coming
        if layer > 0:
            coming = model.allgather(weights[layer - 1], layer - 1)
        backward(model, layer, weights.pop((layer, "full")))
        if layer > 0:  # the gradient of the data is not needed
            await give_back(model, layer, rows, "domain")
        # Over rows and images at once.
        sums[layer] = model.scatterreduce(grad_weights.pop(layer), layer)
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(domain_data, puzzle="domain_data")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Four layers forward and four backward are 24. A halo exchange is one message and one row of 32 images, 32 · 128 =
# 4,096 elements: 0.06 + 0.01875 = 0.07875, and 8 of them are 0.63. That makes 24.63 and 32,768 elements, as in the
# table below. Four all-reduces of 0.6975 are 2.79, four updates 0.375: over at **27.795**, after 8 + 4 = **12**
# collectives.
#
# The first layer's input is data, and its gradient is not needed: 7 exchanges, and 28,672 elements. With the sums
# hidden behind layers, only the last one is exposed, and one update after it: 24 + 7 · 0.07875 + 0.6975 + 0.09375 =
# 25.3425.
#
# With shards, a gather and a reduce-scatter cost as much as an all-reduce: 2 · 0.34875. What cannot be hidden is the
# first gather and the last reduce-scatter, together again 0.6975. So the third goal takes the same 25.3425. It sends
# more: each weight is gathered twice, except that of the last layer, and 7 gathers and 4 reduce-scatters of 36,864
# elements are 405,504. With the halos that is 434,176, where four all-reduces and the halos are 323,584.
#
# Memory: four weights and four optimizer states of 49,152 are 393,216, and a quarter of that is 98,304. Activations are
# the same in both: 4 inputs with their halos and a gradient, 671,744. So 1,064,960 with whole weights, and 868,352 with
# shards, two whole weights included.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="domain_data")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What a machine pays
#
# Run your function on 16 ranks in every mesh shape. A rank has the same work in all of them. `computing` is how long the
# busiest rank computes, updates included, and `waiting` is the rest of the step.

# %%
if out:
    print("data  domain  images  rows  computing  waiting     sent")
    for data in (1, 2, 4, 8, 16):
        mesh = Mesh({"data": data, "domain": 16 // data})
        run = Trace.of(
            simulate(domain_data, layers=LAYERS, mesh=mesh, batches=64, costs=PRICES)
        )
        shape = f"{data:>4}{16 // data:>8}{64 // data:>8}{4 * data:>6}"
        computing, waiting = busiest(run), end(run) - busiest(run)
        print(f"{shape}{computing:>11.3f}{waiting:>9.3f}{most_sent(run):>9,.0f}")

# %% [markdown]
# More ranks along `domain` cost halos; more along `data` need more images. But most of the waiting is for collectives
# over all 16 ranks: a gather or a reduce-scatter has 15 messages and takes 1.11, and the layer that should hide it takes
# 0.75. Whole weights are hardly better: each of their all-reduces takes 2.22, and the step ends only 0.33 earlier.
# Shorter rings help: see question 4.
#
# ## What each shape costs
#
# Four GPUs and 64 images of 64 rows each. Every mesh shape gives a rank the same work, 1/4 of all rows of all images. A
# layer takes 3, so four layers forward and backward take 24. Added to that are 8 halo exchanges:

# %%
print("data  domain  images  rows   exchange   all 8 sent   forward and backward")
for data, domain in ((1, 4), (2, 2), (4, 1)):
    mesh = Mesh({"data": data, "domain": domain})
    run = simulate(take, layers=LAYERS[:1], mesh=mesh, batches=64, costs=PRICES)
    one, sent = end(Trace.of(run)), 8 * most_sent(Trace.of(run))
    shape = f"{data:>4}{domain:>8}{64 // data:>8}{64 // domain:>6}"
    print(f"{shape}{one:>11.5f}{sent:>13,.0f}{24 + 8 * one:>23.2f}")

# %% [markdown]
# Data parallelism alone is the fastest: no rank waits for a row. Why not always use it? It needs a batch of at least as
# many images as there are GPUs, and a GPU that can hold a whole one. So the advice is: **as few ranks along `domain` as
# memory allows, and all others along `data`** [@anemoi_training]. With two ranks along `domain` each has one neighbour and not
# two, and a halo of half as many images.
#
# ## One sum or two?
#
# Is it cheaper to sum over all four ranks at once, or first over `domain` and then over `data`? Here is a weight of
# 9,216 elements, and one of 49,152, as in the puzzle:


# %%
async def sum_up(model, groups):
    gradient = model.fake_grad(0)
    for group in groups:
        gradient = await model.allreduce(gradient, 0, group=group)


print("elements  summed over               time     sent")
ORDERS = {"all four": [["data", "domain"]], "domain, then data": ["domain", "data"]}
smaller = Layer("convolution", inputs=48, outputs=64, rows=64, kernel=3, padding=1)
for layer in (smaller, LAYERS[0]):
    for words, groups in ORDERS.items():

        async def summing(model, groups=groups):
            await sum_up(model, groups)

        run = simulate(summing, layers=[layer], mesh=MESH, costs=PRICES)
        time, sent = end(Trace.of(run)), most_sent(Trace.of(run))
        print(f"{layer.weight:>8,}  {words:<18}{time:>12.5f}{sent:>9,.0f}")

# %% [markdown]
# Two small rings have four messages, and one ring of four has six. So two sums are quicker while weights are small, but
# they always send a third more.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Domain × data parallelism, with FSDP over both axes.** With *d* ranks along `domain` and *r* along `data`, a layer
# of *W* elements, *p* for sending one element, and α for a message:
#
# ```
# images of a rank      B / r           rows of a rank     L / d
# halos                 along domain    (1 or 2) · (α + row · B/r · p), twice a layer
# gradients             summed over domain, and over data (or averaged, where the loss is a mean over images)
# weights, states       W / (d·r) at rest on each rank
# gather, scatter       over all d·r ranks, (d·r - 1) · (α + W/(d·r) · p)
# ```
#
# A mesh axis says *what is cut*, and that decides everything: which rank has your halo, and what a gradient lacks.
# Neither axis cuts the weights, which is why their shards may lie along both.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **AIFS.** One instance of the model over four A100s with 40 GB in one host, a batch of 16, 64 GPUs, about one week
#   [@aifs_single]. The documentation of Anemoi, with which it is trained, says to shard a model only where it does not
#   fit, as more data parallelism is more efficient [@anemoi_training].
# - **Who sums over the domain?** PhysicsNeMo's `ShardTensor` does it in backward: where a plain weight meets a sharded
#   activation, the weight counts as replicated over the domain, and its gradient is reduced there. DDP or FSDP2 is
#   added for the data axis only [@physicsnemo_docs, version 26.08].
# - **What no wrapper does for you.** DDP synchronizes weights within its own process group, which does not include the
#   domain axis. So you have to make the weights equal along that axis once, before training starts, and keep changing
#   buffers equal, such as the running mean of a batch norm [@physicsnemo_1682].
# - **A mesh of two axes means HSDP.** Give PyTorch's `fully_shard` a mesh of two axes, and it takes the second for the shards
#   and the first for copies: HSDP. NeMo Automodel passed its axes for data and context that way, and on 8 GPUs kept
#   four copies of what was meant to be sharded over all of them. The fix flattens both axes into one [@automodel_2768].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# All links are equally fast; in a real machine `domain` stays inside a host, where messages are fast, because all ranks
# wait for halos and hardly any for a sum. All images are processed at once, 32 on each rank. With one image at a time,
# as in AIFS, the halo is a single row of one image, and α is most of its price. Weights are small here, as they are in
# convolutions. The loss is a sum, so nothing is ever divided. And an update takes as long for a shard as for a whole
# weight.

# %% [markdown]
# ## Questions to think about
#
# **1.** DDP over all four ranks gives half the gradient. With which optimizers would you notice?
#
# <details><summary>Answer</summary>
#
# With SGD each step is half as large, as if the learning rate were halved. Adam divides the mean of the gradients by
# the root of the mean of their squares, and the half cancels: the steps are the same except for ε. It shows elsewhere:
# the norm of the gradient that you log is half of what it was on one GPU, and clipping at 1.0 clips less often. So
# compare *gradients* with those of one GPU, not losses.
#
# </details>
#
# **2.** You compute the loss as a mean over rows, on each rank over its own rows. Is the mean over all four ranks right
# then?
#
# <details><summary>Answer</summary>
#
# With even rows, yes: the mean over an image is the mean of the means of its halves, and DDP over all four happens to
# be right. With 40 and 24 rows it is not: each of the 24 counts for more than each of the 40. And the right way to
# average the gradient now depends on a line in the loss. Sum the rows and count them, and divide by the count of *all*
# rows: then gradients are summed over the domain, always.
#
# </details>
#
# **3.** Up to which size of weight are two small sums quicker than one over all four?
#
# <details><summary>Answer</summary>
#
# One ring of four: 6 messages, 6 · (α + W/4 · p). Two rings of two: 4 messages, 4 · (α + W/2 · p). They are equal where
# 2·α = W/2 · p. Here α is 0.06 and p is 0.6 / 131,072, so that is at about 52,400 elements. The 49,152 of the puzzle
# are just below: 0.69 and 0.6975. Small weights can also share messages, as in DDP's buckets.
#
# </details>
#
# **4.** Shards along `domain` only, copies along `data`, as `fully_shard` with two axes would have it. What changes?
#
# <details><summary>Answer</summary>
#
# Halves at rest instead of quarters, 98,304 elements more. Gathers go over two ranks and have one message. A gradient
# is reduce-scattered along `domain`, and the half that is left is all-reduced along `data`: HSDP. With everything
# awaited, `solutions/alternatives/domain_data_shards_along_domain.py` is over at 27.92625, where shards over both axes
# are over at 29.11125.
#
# On 16 ranks, `data` 8 and `domain` 2, the same file ends at 13.05 and beats the reference, 13.52, although it hides
# nothing. So HSDP may well be what you want, as long as you know that you have it.
#
# </details>
#
# **5.** Every rank still waits for halos. How long, and how do you get rid of it?
#
# <details><summary>Answer</summary>
#
# In 7 exchanges of 0.07875 each, together 0.55125. With shards it is 0.63 on each rank: the first exchange shares its
# link with the gather of layer 0, and takes twice as long. As in puzzle $number_halo_conv, rows 0 to 30 of rank 0 need
# no halo: compute them while it travels, and the last row once it has arrived. In backward begin with the row at the
# edge, and send what belongs to the neighbour while you compute the rest.
# `solutions/alternatives/domain_data_inner_rows_first.py` does it, and is over at 24.79125, with 61,440 elements more.
#
# And the first exchange is of data. Without it the step of the third goal would be over at 25.26375. Does a rank need
# it? Puzzle $number_unet_or_vit asks that again.
#
# </details>
#
# ## Where this leads
#
# Every rank now has its own images, its own rows, and a quarter of the weights. Next, real networks: a U-Net cuts rows
# *and* columns, and a tile has eight neighbours. How many exchanges does a layer need then?

# %% [markdown]
# <!-- part: links -->
