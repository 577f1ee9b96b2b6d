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
# AIFS, the weather model of the European weather centre ECMWF, is trained on 64 GPUs for about a week, and one copy of
# it covers *four* of them [@aifs_single].
#
# So far you have shared rows. A grid has columns too. Cut a 64 x 64 grid into strips for 64 ranks, and each
# has one row and borrows two: 128 points, twice as many as it owns. Cut it into **tiles** of 8 by 8, and a rank owns
# the same 64 points and borrows 36.
#
# But a tile has eight neighbours, and four of them touch it at a single point, the corner. Do you need eight messages
# in each layer?
#
# > **To tell a friend:** a tile has eight neighbours, and talks to four.
#
# *The words, once more.* A **halo** is what a rank borrows around its own part. Its gradient goes home and is added
# there.

# %%
from dataclasses import replace

from drawing import draw, draw_curves, draw_halo
from lib import Layer, Links, Mesh, Model, Trace, goal, predict, simulate
from lib.analysis.figures import end, peak
from lib.schedules.given import (
    backward,
    exchange,
    forward,
    given,
    joined,
    summed,
    update,
)

PRICES = Links(latency=0.02, forward=8, backward=8)

# %% [markdown]
# ## The idea
#
# ### Corners
#
# Four ranks have a tile each. Rank 0 has the upper left one. For a kernel of 3 x 3 it needs a row from rank 2, below
# it, a column from rank 1, beside it, and one point from rank 3. How does that point get there, without a message of
# its own?
#
# Exchange rows first. Now rank 1 has *its* row from rank 3. Then exchange columns, *with* the borrowed row: the corner
# comes along.
#
# Here are two layers, there and back. (The code is folded: a part of it is yours to write.)


# %% jupyter={"source_hidden": true}
def conv(rows, inputs, outputs):
    return Layer(
        "convolution", inputs, outputs, rows, columns=rows, kernel=3, padding=1
    )


async def corners(model):
    """Forward and backward of two layers, in tiles."""
    weights, _, activations, grad_activations, _ = model.storage()
    activations[0] = model.get_activation([0])
    for dim in ("rows", "columns"):
        activations[0] = activations[0].cut(dim, *ends(model, 0, dim))
    for layer in (0, 1):
        weights[layer], _ = model.load_weights(layer)
        await borrow(model, layer, "rows", "columns")
        forward(model, layer)
    grad_activations[2] = model.loss(activations.pop(2))
    backward(model, 1)
    await give_back(model, 1, "columns", "rows")
    backward(model, 0)


# %% [markdown]
# Its helpers say where a tile begins and ends, and exchange along rows, columns, or one after the other: a list below
# says how to call them.


# %% jupyter={"source_hidden": true}
def size(number):
    """The rows of an activation, and the columns."""
    return 32 if number in (2, 3) else 64


@given  # a message about what it does shows the line that calls it
def ends(model, number, dim):
    """Where this rank's part of an activation begins and ends, in rows or in
    columns."""
    place, places = model.coord[dim], len(model.group(dim))
    return size(number) * place // places, size(number) * (place + 1) // places


@given
def at_edges(model, number, dim, outside):
    """What lies at the edges to neighbours: one row or column `outside` of this rank's
    part, or inside."""
    low, high = ends(model, number, dim)
    before = [(low - outside, low + 1 - outside)] if low > 0 else []
    after = [(high - 1 + outside, high + outside)] if high < size(number) else []
    return before + after


@given
async def borrow(model, layer, *dims):
    """Put a row, or a column, of each neighbour around activations[layer], along these
    dims: what has come along one travels on along the next."""
    activations = model.activations
    for dim in dims:
        edges = at_edges(model, layer, dim, outside=False)
        arriving = exchange(model, activations[layer], edges, layer, dim, dim)
        activations[layer] = joined([activations[layer], *await arriving])


@given
async def give_back(model, layer, *dims):
    """Cut the halo off grad_activations[layer], along these dims, and add what the
    neighbours have for it."""
    grads = model.grad_activations
    for dim in dims:
        halo = at_edges(model, layer, dim, outside=True)
        edges = at_edges(model, layer, dim, outside=False)
        low, high = ends(model, layer, dim)
        arriving = exchange(model, grads[layer], halo, layer, dim, dim)
        grads[layer] = summed(low, high, grads[layer], edges, await arriving, dim)


@given
def backward_and_sum(model, layer):
    """Take a layer with a weight back, and start to sum the weight's gradient over all
    ranks: to be awaited."""
    backward(model, layer)
    return model.allreduce(model.grad_weights.pop(layer), layer)


TILES = Mesh({"rows": 2, "columns": 2})
demo = simulate(
    corners, layers=[conv(64, 8, 8)] * 2, mesh=TILES, batches=1, costs=PRICES
)
draw_halo(demo, layer=1)

# %% [markdown]
# Each tile has the colour of its rank. Beside it lie the strips that it borrows, in the colours of those who lend them.
# The crossing arrows are corner points, which travel in two steps. In backward the gradient of a corner goes home in two
# steps, too: the same film run backwards. Stripes are sums of what both ranks computed.
#
# ### What needs no halo
#
# A U-Net goes down and up again. A **pooling** of 2 x 2 takes the mean of four points. A **transposed convolution** of
# 2 x 2 turns one point into four. The **skip connection** adds the activation before the pooling to the one after the
# way up: a tile of 32 points across became one of 16, and is one of 32 again. Which of the three borrow from
# neighbours?

# %%
WIDE, LOW = {"rows": 64, "columns": 64}, {"rows": 32, "columns": 32}
UNET = [
    conv(64, 8, 32),
    Layer("pooling", 32, 32, **WIDE, kernel=2, stride=2),
    conv(32, 32, 32),
    Layer("transposed_convolution", 32, 32, **LOW, kernel=2, stride=2),
    Layer("add", 32, 32, **WIDE, of=(4, 1)),
    conv(64, 32, 8),
]
for number, layer in enumerate(UNET):
    takes = " and ".join(f"activation {one}" for one in layer.of or (number,))
    print(f"layer {number}  {layer.kind:<23}takes {takes}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# None of them, as long as a tile begins at an even row and an even column: the four points of a pooling, or of a
# transposed convolution, are on one rank then. And an addition looks at one point. Only the convolutions, layers 0, 2
# and 5, borrow.
#
# </details>
#
# ## The puzzle
#
# | ranks | images | grid | layers | whose weights | an exchange |
# |---|---|---|---|---|---|
# | 4, two by two | 4 | 64 x 64, 8 numbers a point | the six above | 0, 2, 3 and 5 | 0.02 and a little |
#
# **Given:** the weights of layers 0, 2, 3 and 5, whole on every rank, and `activations[0]`: the data, whole images. And
# helpers; `dim` is `"rows"` or `"columns"`, and `*dims` is one of them, or both.
#
# - `ends(model, number, dim)`: where this rank's part of activation `number` begins and ends.
# - `await borrow(model, layer, *dims)` puts what the neighbours lend around `activations[layer]`, along one dim after
#   the other.
# - `await give_back(model, layer, *dims)` cuts the halo off `grad_activations[layer]`, along these dims, and adds what
#   the neighbours had for it.
# - `forward(model, layer)`, for a layer with a weight, makes `activations[layer + 1]` from `activations[layer]`.
# - `backward_and_sum(model, layer)`, for a layer with a weight, uses up `activations[layer]` and
#   `grad_activations[layer + 1]`, and makes `grad_activations[layer]` (layer 0 makes none). Its call starts the sum of
#   the weight's gradient over all ranks: `await` gives the sum.
# - `update(model, layer)` updates a weight, and uses up `grad_weights[layer]`.
#
# **To do:** one training step.
#
# - Layers 1 and 4 take no weight: `model.forward(1, x)`, `model.forward(4, x, skip)`.
# - `model.backward(1, x, grad)` gives one gradient. `model.backward(4, x, grad, skip)` gives two: that of the skip, and
#   that of x.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts. Park a value in a variable while something else runs, and
#   only the first goal counts.
# - The function has to be right on other meshes too: 1 x 1, 4 x 1, 1 x 2 and 4 x 4 tiles. `borrow` and `give_back`
#   exchange nothing where there is no neighbour.
# - A rank may read any part of the data.

# %% [markdown]
# ### Predict first
#
# Borrow for each convolution, including the first, and give back every gradient that is needed. Await everything. How
# many collectives does a rank call? Each exchange along one dim is one.

# %%
guess = predict("unet_or_vit", collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step. For the second, hide the sums of the gradients. For the third, look at the very
# first exchange: do you need it?

# %%
goal("unet_or_vit")

# %% [markdown]
# <!-- part: hints -->


# %%
async def unet_or_vit(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 2, 3, 5):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    activations[0] = model.get_activation(range(model.BATCHES))

    # Cut this rank's part out of the data. Then forward, loss and backward; update
    # layers 0, 2, 3 and 5.
    # --- your code (about 26 lines) ---
    for dim in ("rows", "columns"):  # with its halo: what can be read need not travel
        low, high = ends(model, 0, dim)
        activations[0] = activations[0].cut(dim, max(low - 1, 0), min(high + 1, 64))

    forward(model, 0)
    activations[2] = model.forward(1, activations[1])
    await borrow(model, 2, "rows", "columns")
    forward(model, 2)
    forward(model, 3)
    activations[5] = model.forward(4, activations[4], activations[1])
    await borrow(model, 5, "rows", "columns")
    forward(model, 5)
    grad_activations[6] = model.loss(activations.pop(6))

    sums = {5: backward_and_sum(model, 5)}
    await give_back(model, 5, "columns", "rows")
    grad_activations["skip"], grad_activations[4] = model.backward(
        4, activations.pop(4), grad_activations.pop(5), activations[1]
    )
    for layer in (3, 2):
        sums[layer] = backward_and_sum(model, layer)
    await give_back(model, 2, "columns", "rows")
    grad_activations[1] = model.backward(1, activations.pop(1), grad_activations.pop(2))
    grad_activations[1] += grad_activations.pop("skip")
    sums[0] = backward_and_sum(model, 0)

    for layer in (5, 3, 2, 0):
        grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
    # --- end of your code ---

    for layer in (0, 2, 3, 5):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(unet_or_vit, puzzle="unet_or_vit")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>Where does this number come from?</summary>
#
# Three convolutions, each with an exchange of rows and one of columns forward: 6. Two of them give back rows and
# columns: 4. The gradient of the data is not needed. Four sums of weights' gradients: **14** in all. If the first halo
# is read instead of fetched, 12 remain.
#
# </details>

# %%
draw(out)

# %% [markdown]
# The tiles of the smaller grid, before layer 2:

# %%
draw_halo(out, layer=2)

# %%
Model.check(out, puzzle="unet_or_vit")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What a machine pays
#
# ### Strips or tiles?
#
# A rank between others borrows 128 points in 16 strips, with two messages; 74 in 8 by 2 tiles, with three; and 68 in 4
# by 4 tiles, with four. Here is one exchange of four images, with more and more numbers a point:


# %%
async def borrow_once(model):
    x = model.get_activation(range(model.BATCHES))
    for dim in ("rows", "columns"):
        x = x.cut(dim, *ends(model, 0, dim))
    model.activations[0] = x
    await borrow(model, 0, "rows", "columns")


print("numbers a point   16 x 1    8 x 2    4 x 4")
for numbers in (8, 32, 128, 512):
    print(f"{numbers:>15}", end="")
    for rows, columns in ((16, 1), (8, 2), (4, 4)):
        mesh = Mesh({"rows": rows, "columns": columns})
        layers = [conv(64, numbers, 8)]
        run = simulate(borrow_once, layers=layers, mesh=mesh, batches=4, costs=PRICES)
        print(f"{end(Trace.of(run)):>9.4f}", end="")
    print()

# %% [markdown]
# The fewest messages win where edges are short, and the fewest points where they are long. A message is 0.02 here, as
# much as 13,107 elements. With 8 numbers a point, of four images, the 54 points that 8 by 2 saves are 1,728 elements:
# not worth one more message. With 128 numbers they are 27,648. Four by four saves hardly anything more.
#
# ### Batch, domain, or both?
#
# Eight images, and more and more GPUs. You may share the images (**batch**), cut each image (**domain**), or do both.
# `domain_parallel` is a step like yours for any network of a grid, on a mesh with axes `rows`, `columns` and `data`.
# How much of the GPU time you pay for is lost, because a GPU waits or has nothing to do? (With `FAST` a message costs a
# fifth of what it did above.)

# %%
from lib.schedules.mesh_parallel import domain_parallel

FAST = Links(latency=0.004, forward=8, backward=8)
RANKS = (1, 2, 4, 8, 16, 32)
TILES_OF = {1: (1, 1), 2: (2, 1), 4: (2, 2), 8: (4, 2), 16: (4, 4), 32: (8, 4)}


def step(layers, images, **axes):
    mesh, step = Mesh(axes), domain_parallel()
    return Trace.of(
        simulate(step, layers=layers, mesh=mesh, batches=images, costs=FAST)
    )


def lost(ranks, layers=UNET, images=8, **axes):
    """How much of the time of so many ranks is lost, compared with one that does all of
    it and never waits."""
    return 1 - end(step(layers, images, data=1)) / (
        ranks * end(step(layers, images, **axes))
    )


draw_curves(
    {
        "batch alone": [(n, lost(n, data=min(n, 8))) for n in RANKS],
        "both": [(n, lost(n, data=min(n, 8), rows=max(n // 8, 1))) for n in RANKS],
        "tiles alone": [
            (n, lost(n, rows=TILES_OF[n][0], columns=TILES_OF[n][1])) for n in RANKS
        ],
        "strips alone": [(n, lost(n, rows=n)) for n in RANKS],
    },
    across="ranks for a step of 8 images",
    up="lost share",
    title="How much of the ranks' time is lost",
    doublings=True,
)

# %% [markdown]
# Up to eight ranks, sharing images loses least. Beyond that, batch alone has no work for more ranks, and *both* is
# best: one group of ranks for each image, which they cut into strips. Cutting images while whole ones are left to
# share, as tiles alone and strips alone do, costs a few per cent.
#
# ### How thin may a part be?
#
# A halo is one row on each side, however few rows a rank has. And each weight's gradient is summed over all ranks,
# however little there is to compute meanwhile. Here is one image in strips, on grids of two sizes:


# %%
def unet(rows):
    """The layers of UNET, for a grid of so many rows and columns."""
    return [
        replace(layer, rows=layer.rows * rows // 64, columns=layer.columns * rows // 64)
        for layer in UNET
    ]


def halos(trace):
    """How much of its time a rank waits in halo exchanges."""
    events = [event for event in trace.programs[1].events if event.op == "halo"]
    return sum(event.end - event.start for event in events) / 1e9 / end(trace)


ROWS, thin = (4, 8, 16, 32), {}
for grid in (64, 128):
    name, net = f"{grid} x {grid}", unet(grid)
    ranks = {rows: grid // rows for rows in ROWS}
    thin[name] = [(rows, lost(n, net, 1, rows=n)) for rows, n in ranks.items()]
    thin[f"{name}, in halos"] = [
        (rows, halos(step(net, 1, rows=n))) for rows, n in ranks.items()
    ]
draw_curves(
    thin,
    across="rows of a rank",
    up="lost share",
    title="How much of the ranks' time is lost, by how many rows each of them has",
    lowest=False,
    doublings=True,
)

# %% [markdown]
# The number of rows counts, and the size of the grid hardly does: with 32 rows 2 or 3 % is lost, with 16 rows 7 or 9 %,
# with 8 rows more than a fifth, and with 4 rows half. Halos are the smaller part of it. The larger part is the sums of
# the weights' gradients: twice as many ranks send twice as many messages, with half as much work to hide them behind.
#
# And memory? Eight images again, in eight groups of 1, 2 or 4 ranks:

# %%
print("ranks  rows of a rank   lost   highest memory")
for rows in (1, 2, 4):
    memory = float(peak(step(UNET, 8, data=8, rows=rows)).elements)
    share = lost(8 * rows, data=8, rows=rows)
    print(f"{8 * rows:>5}{64 // rows:>16}{share:>7.0%}{memory:>17,.0f}")

# %% [markdown]
# With 16 rows it is 18 % here, and not 9 %: each gradient is now summed over 32 ranks instead of 4. Halos still take
# less than 4 %. And `domain_parallel` keeps an activation with its halo and without, as long as there are several
# ranks. Your step keeps one of the two, so it saves more.
#
# **What to take home**, if you ever set the sizes of a mesh for ShardTensor:
#
# 1. *Share the batch first.* Make the data axis as long as there are images in a step. Only ranks beyond that cut
#    images.
# 2. *Cut earlier only for memory*: use the smallest domain with which a step fits.
# 3. *Stop at 16 rows a rank*, on a machine like this one. ShardTensor awaits its halos as we do here. For another
#    machine, read two times off a profile: an exchange, and the convolution that waits for it. With 16 rows an exchange
#    took a twentieth of layer 5, with 8 rows a tenth. If it takes more than a twentieth, do not cut further.
# 4. *Then look at the sums.* They were the larger part. DDP packs many gradients into one message, which we have not
#    done.
# 5. *Strips first, tiles later*, when an edge of the grid costs more than two messages.
#
# Change `UNET`, the grid and `FAST`, and ask for your own machine.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# A **2-D domain decomposition** with two exchanges for each layer, as weather and fluid codes have done it for decades,
# plus its backward. In *d* dims it takes *d* exchanges, two messages each, instead of 3^d - 1 messages: 4 instead of 8,
# 6 instead of 26. Any order will do, in backward too, as long as the second exchange includes what the first one
# brought.
#
# A part of *r* rows and *c* columns with a halo of *h* borrows 2h(r + c) + 4h² points. Strips of an n x n grid on p
# ranks borrow 2hn points, tiles 4hn/√p: fewer from 5 ranks on.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *ECMWF's AIFS* puts one copy of its network onto four A100 GPUs, and trains on 64 [@aifs_single].
# - *PhysicsNeMo's ShardTensor* records the shape of every rank's part, so parts may be uneven, while PyTorch's DTensor
#   deals out chunks by a rule [@physicsnemo_docs].
# - **Plain DTensor does not fetch halos.** Give PyTorch 2.13 an image with `Shard(2)` or `Shard(3)`, and `conv2d`
#   convolves each part as if it were alone, with zeros at its edges. There is no error, and the result states the right
#   shape (measured: `pytest tests/replay/test_dtensor.py` of this project).
# - **Beside data parallelism.** DDP and FSDP know nothing about the domain and do not sum over it [@physicsnemo_docs].
#   Your sum over all ranks does.
# - *CosmoFlow* used cubes 64 times as large as before, cut in space, on about 2,000 V100 GPUs [@oyama2020].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# The U-Net has one step down, and no norms: a group norm would add an all-reduce of a few numbers forward and one
# backward, as you have seen. A point of a thin halo costs as much as a point of a whole tile. On a GPU it costs more: a
# column is not contiguous in memory and has to be copied before it can be sent.

# %% [markdown]
# ## Questions to think about
#
# **1.** A vision transformer cuts the image into patches of 16 x 16, with a convolution whose stride is as large as its
# kernel. Which halo does that need? And its attention?
#
# <details><summary>Answer</summary>
#
# None, if each tile begins at a multiple of 16. Attention to all patches needs all keys and values: gather them, or use
# a ring. Attention to a window needs a halo of half a window. The residual connections, the norms and the MLP work on
# each patch by itself, and need nothing.
#
# </details>
#
# **2.** Your tile has 3 rows, and the kernel is 9 x 9. Where does it go wrong?
#
# <details><summary>Answer</summary>
#
# The halo is 4 rows, and the neighbour has 3. Exchange twice (passing on what has arrived), or use an all-to-all. It
# happens first on the smallest grid of a U-Net: after three poolings a tile of 24 rows has 3.
#
# </details>
#
# **3.** You have read the halo of the data instead of fetching it. Why not do the same for every layer?
#
# <details><summary>Answer</summary>
#
# You can, by computing it: read a wider part, and let each convolution compute a little more than its own tile. Count
# from the end: layer 5 needs 1 point around its tile, which the smaller grid rounds up to one of its own, 2 here; layer
# 2 adds another one of those, so 4; layer 0 adds 1. That is five points around the tile, and no exchange in forward at
# all. But the work done twice grows with every layer, and backward must sum the weight gradients without counting the
# margin twice.
#
# </details>
#
# ## Where this leads
#
# Every rank has its tile. But which process read the image, and how did four processes agree on which one? The next
# chapter feeds the machine.

# %% [markdown]
# <!-- part: links -->
