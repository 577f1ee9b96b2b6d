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
# CosmoFlow is a convolutional network that looks at cubes of the universe. In 2020 it was trained on cubes 64 times as
# large as before, on about 2,000 GPUs [@oyama2020]. No GPU can hold the activations of such a cube, so several GPUs
# share *one* cube, each working on a part.
#
# A layer that works row by row does not notice. A **convolution** does: for each row of its output it looks at a few
# rows of its input, three in most networks. At the edge of a part, one of them is on another GPU. A rank with a
# thousand rows lacks *two*, one on each side: its **halo**. Fetching them is the easy half. NVIDIA's library for
# physics, PhysicsNeMo, got the other half wrong at first [@physicsnemo_784]: backward.
#
# > **To tell a friend:** what a rank borrows in forward, it owes in backward.
#
# *The words, once more.* The row in the middle of the **kernel** is the one that the output row belongs to. **Padding**
# is rows of zeros around the image. Here a kernel has 3 rows and the padding is 1, so an image has as many rows after a
# layer as before it.

# %%
from functools import partial

from drawing import draw, draw_collective, draw_curves, draw_group, draw_halo
from lib import Layer, Links, Model, PuzzleError, Trace, goal, predict, retime, simulate
from lib.analysis.figures import busiest, end, most_sent
from lib.schedules.given import (
    accumulate,
    by_chunk,
    exchange,
    given,
    joined,
    summed,
    update,
)
from lib.suite.course.solutions import run_of
from lib.values.kinds.grid import Sweep

PRICES = Links(
    p2p=0.6, latency=0.06, forward=4, backward=4
)  # 0.6 for 131,072 elements, and 0.06 for each message
CONVOLUTION = {"inputs": 128, "outputs": 128, "rows": 64, "kernel": 3, "padding": 1}
LAYERS = [Layer("convolution", **CONVOLUTION)] * 4

# %% [markdown]
# ## The idea
#
# ### Fetch it
#
# Either side of an edge could compute the output row there. The usual rule: **the rank that has the middle row of the
# kernel computes the output row.** So a kernel of 3 rows needs one row from each side. Here is a small part, rows 4 to 7
# of a larger image:
#
# ```
#                 row of the input
#                  3 | 4  5  6  7 | 8
# output row 4     o | #  #       |
#            5       | #  #  #    |         # its own
#            6       |    #  #  # |         o a neighbour's
#            7       |       #  # | o
# ```
#
# Read a line, and you see what an output row needs: that is forward. Read a column, and you see where the gradient of an
# input row comes from: that is backward. Column 3 belongs to the rank before, and column 4 is not complete: output row 3
# used it, too, on the other rank.
#
# In a **halo exchange** each rank hands in the rows that its neighbours need, and receives theirs. The first and the
# last rank have only one neighbour. Which rows these are:


# %%
def my_rows(model, sizes=None):
    """Where this rank's rows begin and end, which of them neighbours need, which of
    theirs it needs, and the group of the ranks that have rows. Rows are shared out by
    chunk, or in these sizes, which all ranks know."""
    sizes = sizes or by_chunk(64, model.RANKS)
    low = sum(sizes[: model.rank])
    high = low + sizes[model.rank]
    edges, halo = [], []
    if 0 < low < high:  # somebody has the rows before
        edges.append((low, low + 1))
        halo.append((low - 1, low))
    if low < high < 64:
        edges.append((high - 1, high))
        halo.append((high, high + 1))
    group = [rank for rank, size in enumerate(sizes) if size]
    return low, high, edges, halo, group


# %% [markdown]
# And the exchange for one layer and one image of 64 rows. (The code of this run is folded: a part of it is yours to
# write.)


# %% jupyter={"source_hidden": true}
async def one_layer(model):
    low, high, edges, _, group = my_rows(model)
    weight, _ = model.load_weights(0)
    x = model.get_activation([0]).cut("rows", low, high)
    with_halo = joined([x, *await exchange(model, x, edges, 0, group)])
    output = model.forward(0, with_halo, weight)
    _, gradient = model.backward(0, with_halo, model.loss(output), weight)
    shown[model.rank] = {"with the halo": with_halo, "output": output}
    if model.rank == 1:
        for first, last in ((15, 15), (16, 16), (17, 30), (31, 31), (32, 32)):
            name = f"row {first}" if first == last else f"rows {first} to {last}"
            gradients[name] = gradient.cut("rows", first, last + 1)


shown, gradients = {}, {}
demo = simulate(one_layer, layers=LAYERS[:1], ranks=4, batches=1, costs=PRICES)
draw_collective(demo, "halo")

# %% [markdown]
# Each arrow brings a row to a neighbour. Rank 1 has rows 16 to 31, and fetches rows 15 and 32. That gives it its 16 rows
# of the output:

# %%
draw_group(shown[1])

# %% [markdown]
# ### Give it back
#
# In backward rank 1 gets a gradient for every row that it *used*, so also for rows 15 and 32. Cut into pieces:

# %%
draw_group(gradients)

# %% [markdown]
# Pale, marked "of a sum", means partial; before it stands which rows of the output have contributed so far. Rows 17 to
# 30 are complete: no other rank has used them. **Before you go on:** which ranks used row 15, and which used row 16?
# What is missing from each gradient, where is it, and where must it go?
#
# <details><summary>Answer</summary>
#
# Row 15 was used three times: for output rows 14 and 15, on rank 0, and for output row 16, on rank 1. Rank 0 owns it
# and lacks the last. Row 16 belongs to rank 1, which lacks the part of output row 15, on rank 0. So each sends the
# other what it has for a row that it borrowed, and the owner adds it at its edge.
#
# </details>
#
# Forget it, and all shapes are still right: 16 rows of gradient for 16 rows. That is why the bug survives. In
# PhysicsNeMo it showed most with small images [@physicsnemo_784]: of 1,000 rows on a rank two are wrong, of 4 rows
# half.
#
# ## The puzzle
#
# | ranks | images | rows of an image | layers | a layer | a halo exchange | the sum of a weight's gradient | an update |
# |---|---|---|---|---|---|---|---|
# | 4 | 64 | 64, so 16 each | 4 | 3 | 0.195 | 0.6975 | 0.09375 |
#
# A layer takes 3 forward on a rank, for its 16 rows of all images, and 3 backward. Fewer rows take less. A halo
# exchange takes 0.195 on 4 ranks and on 4,000: two messages, and two rows.
#
# **Given:** all weights, whole on every rank, and this rank's rows of all images. And these helpers. A block of rows
# is a pair, its first row and the row after its last: `(16, 17)` is row 16.
#
# | helper | what it gives |
# |---|---|
# | `my_rows(model)` | `low, high, edges, halo, group`: your rows are `low` to `high - 1`; neighbours need your rows `edges`, you need theirs, `halo` |
# | `exchange(model, value, rows, layer, group)` | a halo exchange, to be awaited: it cuts these rows out of a value, one for each neighbour, and gives a list of theirs |
# | `joined([value, ...])` | these values as one: your rows, and those that have come |
# | `summed(low, high, gradient, edges, arrived)` | the gradient of your rows: the halo is cut off, and what has arrived is added at the edges |
# | `blocks(low, high)` | `inner, needy`: the output rows that need no halo, and a list of those that do |
# | `compute(model, layer, first, after)` | forward of these output rows, from as much of `activations[layer]` as they need; they join `activations[layer + 1]` |
# | `input_half(model, layer)` | a half of backward: makes `grad_activations[layer]` from `grad_activations[layer + 1]`, but not for layer 0 |
# | `weight_half(model, layer)` | the other half: adds to `grad_weights[layer]`, and uses up `activations[layer]` and `grad_activations[layer + 1]` |
# | `update(model, layer)` | updates a weight, and uses up its gradient |


# %% jupyter={"source_hidden": true}
def blocks(low, high):
    """The rows of the output that need no halo, and a list of the others. In a part of
    one or two rows every output row needs the halo."""
    if high - low < 3:
        return (low, low), [(low, high)] if low < high else []
    needy = [(low, low + 1)] if low > 0 else []
    needy += [(high - 1, high)] if high < 64 else []
    return (low + (low > 0), high - (high < 64)), needy


@given  # a message about what it does shows the line that calls it
def compute(model, layer, first, after):
    """Some rows of the output of a layer, of the rows of its input that they need."""
    need = (max(first - 1, 0), min(after + 1, 64)) if first < after else (first, after)
    rows = model.activations[layer].cut("rows", *need)
    rows, there = model.forward(layer, rows, model.weights[layer]), model.activations
    there[layer + 1] = there[layer + 1].combine(rows) if layer + 1 in there else rows


@given
def input_half(model, layer):
    """The gradient of the input. That of the data is not kept."""
    x, gradient = model.activations[layer], model.grad_activations[layer + 1]
    gradient = model.backward_input(layer, x, gradient, model.weights[layer])
    if layer > 0:
        model.grad_activations[layer] = gradient


@given
def weight_half(model, layer):
    """The gradient of the weight. Nothing needs the input any more."""
    x, gradient = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
    accumulate(model, layer, model.backward_weight(layer, x, gradient))


# %% [markdown]
# **To do:** one training step. Begin with everything awaited, and all rows of a layer in one call of `model.forward` and
# one of `model.backward`. Each rank has seen only some rows, so the gradients of the weights are summed over all ranks.
# That passes.
#
# Then hide what travels. While an exchange is in flight, which rows of the picture above can be computed forward? And in
# backward, whose halves take 1.5 each: which half do your neighbours wait for?
#
# **Rules**
#
# - Values live in the stores, and everything alive counts. Park a value in a variable while something else runs, and
#   only the first goal counts. You may keep pending sums in a dict of your own.
# - The same function has to be right on any number of ranks up to 32 whose parts have two rows or more, by `chunk`, and
#   where the last ranks have no rows at all: 12 ranks get 6 rows each, then 4, then none. A rank without rows still
#   takes part in the sums. It calls forward and backward like all others, on values without rows, which takes no time.
# - `sizes` is for later, when you try your function on parts of any size. Pass it on to `my_rows`.

# %% [markdown]
# ### Predict first
#
# Await everything where you call it, and give back every halo. How many collectives does a rank call, and when is the
# step over?

# %%
guess = predict("halo_conv", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step with halo exchanges. For the second, hide the sums of the weights' gradients, and
# leave out the exchange that nothing needs. For the third, no rank waits for a neighbour.

# %%
goal("halo_conv")

# %% [markdown]
# <!-- part: hints -->


# %%
async def halo_conv(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    low, high, edges, halo, group = my_rows(model, sizes)
    activations[0] = model.get_activation(range(model.BATCHES)).cut("rows", low, high)

    # Forward, loss and backward of this rank's rows; then update all layers.
    # --- your code (about 22 lines) ---
    inner, needy = blocks(low, high)
    sums = {}

    for layer in range(model.LAYERS):
        coming = exchange(model, activations[layer], edges, layer, group)
        compute(model, layer, *inner)
        activations[layer] = joined([activations[layer], *await coming])
        for block in needy:
            compute(model, layer, *block)
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        input_half(model, layer)
        if layer > 0:  # nothing needs the gradient of the data
            coming = exchange(model, grad_activations[layer], halo, layer, group)
        weight_half(model, layer)
        sums[layer] = model.allreduce(grad_weights.pop(layer), layer)
        if layer > 0:
            grad_activations[layer] = summed(
                low, high, grad_activations[layer], edges, await coming
            )

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(halo_conv, puzzle="halo_conv")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Four layers forward and four backward are 8 · 3 = 24. There are 8 halo exchanges. In each a rank sends two messages
# and two rows: 2 · 0.06 + 2 · 64 · 128 elements at 0.6 for 131,072 are 0.195. All awaited, forward and backward take
# 25.56. Then there are four sums of 0.6975, three quarters of 49,152 elements twice and six messages, and four updates
# of 0.09375: 12 collectives, over at **28.725**.
#
# Started early, the sums travel while earlier layers go backward, and only the last one is exposed, with three updates
# beside it: 26.35125. And the data is not trained, so the exchange that brings its gradient home is wasted: 26.15625.
#
# For the third goal, the halo travels while the inner rows are computed, 2.625, or backward behind the half that gives
# the gradient of the weight, 1.5. The sums travel while earlier layers go backward. What remains is the last sum and an
# update after it: 24 + 0.6975 + 0.09375 = 24.79125.
#
# </details>

# %%
draw(out)

# %% [markdown]
# And here is which rank lends what to which, in one layer. The tall boxes are the ranks' rows, a colour for each rank;
# the thin strips between them are borrowed. On the right, stripes of two colours mark a gradient that came home: a sum
# of what both ranks computed.

# %%
draw_halo(out, layer=1)

# %% [markdown]
# Beside it PhysicsNeMo's bug: the gradient of the halo is cut off, and each rank keeps its own 16 rows. On the right
# nothing is striped, and each dashed strip is a gradient that one rank has and another lacks.


# %% jupyter={"source_hidden": true}
async def cut_off(model):
    low, high, edges, _, group = my_rows(model)
    weights = [model.load_weights(layer)[0] for layer in range(2)]
    x = [model.get_activation([0]).cut("rows", low, high)]
    for layer in range(2):
        x[layer] = joined(
            [x[layer], *await exchange(model, x[layer], edges, layer, group)]
        )
        x.append(model.forward(layer, x[layer], weights[layer]))
    _, gradient = model.backward(1, x[1], model.loss(x[2]), weights[1])
    gradient = gradient.cut("rows", low, high)  # the halo's rows never go home
    model.backward(0, x[0], gradient, weights[0])


picture = None
try:
    if out:
        simulate(cut_off, layers=LAYERS[:2], ranks=4, batches=1, costs=PRICES)
except PuzzleError as error:
    print(error)
    picture = draw_halo(error.trace, layer=1)
picture

# %%
Model.check(out, puzzle="halo_conv")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What a machine pays
#
# Run your function on other parts. `computing` is how long the busiest rank computes, updates included, and `waiting` is
# the rest of the step. Change the sizes and run it again. A rank at an end needs at least two rows: with one, its
# neighbour borrows all of it, and `forward` there computes that row of the output a second time.

# %%
PARTS = {
    "even": [16, 16, 16, 16],
    "as few as it gets": [2, 1, 1, 60],
    "land only": [4, 8, 12, 40],
    "a rank without rows": [22, 22, 20, 0],
    "16 ranks": [4] * 16,
}
if out:
    print(f"{'parts':<22}{'computing':>10}{'waiting':>10}")
    for name, sizes in PARTS.items():
        step = partial(halo_conv, sizes=sizes)
        run = Trace.of(
            simulate(step, layers=LAYERS, ranks=len(sizes), batches=64, costs=PRICES)
        )
        print(f"{name:<22}{busiest(run):>10.2f}{end(run) - busiest(run):>10.2f}")

# %% [markdown]
# In the picture of the land, a thin part lends as much as a thick one:

# %%
picture = None
if out:
    step = partial(halo_conv, sizes=PARTS["land only"])
    land = simulate(step, layers=LAYERS, ranks=4, batches=64, costs=PRICES)
    picture = draw_halo(land, layer=1)
picture

# %% [markdown]
# With 4 8 12 40 rows a step takes two and a half times as long as with even parts: all ranks wait for the one with 40,
# and it waits for none. The halo is rarely the expensive part; uneven parts are. On 16 ranks the sums of the weights'
# gradients hurt: 30 messages for each layer, and ever less to compute beside them.
#
# How slow may the link be? Here is that run on slower links, next to the time it would take with every exchange and
# every sum awaited:

# %%
run, _ = run_of("halo_conv")  # yours, once it is correct
SLOW = (1, 2, 4, 6, 8, 10, 12, 16)


def slower(slow):
    return Links(p2p=0.6 * slow, latency=0.06 * slow, forward=4, backward=4)


draw_curves(
    {
        "this run": [(slow, end(retime(run, slower(slow)))) for slow in SLOW],
        "everything awaited": [
            (slow, 24.375 + slow * (8 * 0.195 + 4 * 0.6975)) for slow in SLOW
        ],
    },
    across="how much slower the link is (1: a halo exchange takes 0.195)",
    title="When the step is over, by the speed of the link",
)

# %% [markdown]
# The halo alone would stay hidden for long: an exchange of 0.195 may become 13 times slower forward, behind 14 inner rows
# (2.625), and 7 times in backward, behind the half for the weight (1.5). The bend comes earlier, where the link is four
# times slower: there the sum of a weight's gradient takes nearly as long as a layer, and from then on the link is never
# free.
#
# ## Other ways, other kernels
#
# Three ways to get the halo of 64 images: gather all rows everywhere (**all-gather**); an **all-to-all**, in which
# every rank has a message for every other, most of them empty; and the exchange with neighbours.


# %%
async def fetch(model, way):
    low, high, edges, _, group = my_rows(model)
    x = model.get_activation(range(model.BATCHES)).cut("rows", low, high)
    if way == "all-gather":
        await model.allgather(x, 0)
    elif way == "all-to-all":
        beside = [rank for rank in range(model.RANKS) if abs(rank - model.rank) == 1]
        rows = [x.cut("rows", *edge) for edge in edges]
        for_whom = dict(zip(beside, rows, strict=True))
        empty = x.cut("rows", low, low)
        await model.alltoall(
            [for_whom.get(rank, empty) for rank in range(model.RANKS)], 0
        )
    else:
        await exchange(model, x, edges, 0, group)


print("ranks  way          time   elements sent")
for ranks in (4, 16, 32):
    for way in ("all-gather", "all-to-all", "halo"):
        step = partial(fetch, way=way)
        run = simulate(step, layers=LAYERS[:1], ranks=ranks, batches=64, costs=PRICES)
        time, sent = end(Trace.of(run)), most_sent(Trace.of(run))
        print(f"{ranks:>5}  {way:<11}{time:>6.3f}{int(sent):>16,}")

# %% [markdown]
# The all-gather moves everything, and more ranks only make it worse. The all-to-all moves no more than the halo
# exchange, but it pays 0.06 for a message to every rank, even for the empty ones.

# %% [markdown]
# How wide is the halo of another convolution? Each column is a rank and each line a convolution:


# %%
def shares(sizes, **how):
    """Of each rank: its output rows, and how many rows it needs from before and after
    its own."""
    stencil, low, found = Sweep(sum(sizes), **how), 0, []
    for size in sizes:
        high, middle = low + size, (stencil.kernel - 1) // 2
        mine = [
            row
            for row in range(stencil.outputs)
            if low <= min(max(stencil.needs(row)[middle], 0), stencil.rows - 1) < high
        ]
        needed = {row for output in mine for row in stencil.needs(output)}
        needed = [row for row in needed if 0 <= row < stencil.rows]
        before = max(0, low - min(needed, default=low))
        after = max(0, max(needed, default=low) - (high - 1))
        found.append(f"{len(mine):>2} rows, {before}+{after}")
        low = high
    return found


ranks = "".join(f"{f'rank {rank}':>14}" for rank in range(4))
print(f"{'rows of the ranks':<18}{'convolution':<34}{ranks}")
for sizes, how in (
    ([16, 16, 16, 16], {"kernel": 3, "padding": 1}),
    ([16, 16, 16, 16], {"kernel": 3}),
    ([16, 16, 16, 16], {"kernel": 7, "padding": 3}),
    ([16, 16, 16, 16], {"kernel": 3, "padding": 2, "dilation": 2}),
    ([16, 16, 16, 16], {"kernel": 3, "padding": 1, "stride": 2}),
    ([16, 4, 7, 13], {"kernel": 3}),
    ([16, 4, 7, 13], {"kernel": 3, "padding": 1, "stride": 2}),
    ([4, 8, 12, 40], {"kernel": 3, "padding": 1}),
):
    words = ", ".join(f"{name} {number}" for name, number in how.items())
    found = "".join(f"{share:>14}" for share in shares(sizes, **how))
    print(f"{' '.join(map(str, sizes)):<18}{words:<34}{found}")

# %% [markdown]
# `16 rows, 1+1`: the rank computes 16 rows of the output, and lacks one row before its own and one after.
#
# - *Kernel and dilation* set the width of the halo: half of what a kernel spans. A kernel of 3 rows needs 1; of 7 rows,
#   3; of 3 rows with dilation 2 (every second row skipped), 2.
# - *Without padding* the image shrinks, and the first and the last rank lose a row each: 15 16 16 15.
# - *Stride 2* centres the kernel on every second row, so half as many rows come out. And some halos become unnecessary:
#   here no rank needs a row from below.
# - *Uneven parts* do not change the halo: the rank with 4 rows fetches as much as the rank with 40.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Domain parallelism** for convolutions, also called spatial parallelism. With *n* ranks, a kernel of *k* rows with
# dilation *d*, images of *L* rows, and a row of all images taking *p* on the link, α a message:
#
# ```
# halo on each side                 h = d·(k - 1)/2 rows, for odd k and "same" padding
# halo exchange                     2·(α + h·p)              whatever n
# all-to-all                        (n - 1)·α + 2·h·p
# all-gather                        (n - 1)·(α + L/n·p)      with the largest part for L/n, where parts are uneven
# exchanges of a step with m layers 2·m - 1                  m forward, m - 1 back
# hidden forward                    as long as the inner rows of a layer take no less than an exchange
# hidden in backward                as long as the half for the weight does
# ```
#
# What a rank sends does not depend on how many rows it has; what it computes does. So halos are cheap while parts are
# thick. Twice as many ranks halve the work and keep the halo.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **PhysicsNeMo.** A `ShardTensor` has a part of a tensor and the sizes of all parts. Its convolution pads each part
#   by `dilation · (kernel - 1) + 1` over 2 rows on each side, rounded down, sets the padding to 0, and convolves
#   [@physicsnemo_conv_patches].
# - **Which exchange?** An all-to-all by default, in which all sizes except those for the two neighbours are 0; messages
#   between neighbours are the other choice [@physicsnemo_halo]. What goes to a neighbour and what comes from it are
#   assumed to have the same size.
# - **The way back.** The backward of the padding cuts the halo off the gradient, exchanges it, and adds what arrives to
#   the first and the last rows [@physicsnemo_halo]. The pull request that brought it says that an earlier version did
#   not, and that the error was more pronounced with smaller data [@physicsnemo_784].
# - **Not hidden.** The convolution begins when the halo is there [@physicsnemo_halo]. To hide the exchange, the library
#   would have to call the convolution three times for a layer, for two thin strips and the rest, as you did, and a thin
#   strip does not fill a GPU. Backward is easier to hide: the gradients of input and weight are separate kernels anyway.
# - **What it refuses.** Even kernels, unless the stride equals the kernel, the dilation is 1, and there is no padding
#   [@physicsnemo_conv_patches].
# - **One rank.** With a domain of one rank both neighbours are missing, which raised an error until 2026
#   [@physicsnemo_1400].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# A row of an image has 128 numbers here, and the kernel mixes all of them. Real images have columns too, and kernels of
# 3 × 3, so that a row is much more data than a weight. Cut rows *and* columns, and you exchange rows first, then
# columns together with the halo that has arrived: the corners come along by themselves. A thin block takes as long as
# its share of the rows here. Backward takes as long as forward, and on a GPU about twice as long. And all images are
# processed at once; with one image at a time there would be a halo exchange for each.

# %% [markdown]
# ## Questions to think about
#
# **1.** With dilation 2, which rows does a rank need from its neighbours, and which output rows can it compute early?
#
# <details><summary>Answer</summary>
#
# Two on each side: output row 16 needs rows 14, 16 and 18. So two output rows at each edge wait for the halo, and 12 of
# 16 can be computed at once. The gradients of two rows on each side go home. With dilation 16 a rank of 16 rows needs
# *all* rows of both neighbours, and has no inner row at all.
#
# </details>
#
# **2.** Parts of 4 rows and a kernel of 11: what changes?
#
# <details><summary>Answer</summary>
#
# The halo is 5 rows wide, and the neighbour has only 4. The fifth is on the rank after the next, and an exchange
# between neighbours cannot bring it. A library that cuts 5 rows off a tensor of 4 fails on *that* rank, and the others
# wait in the exchange forever. So every rank should check the sizes of all parts, which all ranks know, and refuse
# before any of them sends.
#
# </details>
#
# **3.** For two layers, could you exchange two rows once instead of one row twice?
#
# <details><summary>Answer</summary>
#
# Yes. With a halo of 2 a rank computes layer 0 for its own rows and one more on each side, and layer 1 needs nothing.
# Half as many messages, the same amount of data, and each rank between two others computes two more rows in layer 0.
# That pays where α is large and rows are cheap. But it adds up: for eight layers at once the halo is 8 rows on each
# side, and the first layer computes 14 extra rows. The gradients of all these rows go home the same way.
#
# </details>
#
# **4.** The lower bound in your review is 24.375. Where is the rest, and which work in this step is wasted?
#
# <details><summary>Answer</summary>
#
# The last sum takes 0.6975, and only three updates are left to hide it: 0.41625 is exposed. And the gradient of the
# data, which is never used, was computed all the same: `model.backward_weight` for layer 0 leaves it out and saves 1.5.
# The bound and the goals do not cover such steps, as the check will tell you.
#
# </details>
#
# ## Where this leads
#
# Each rank has a part of the image, and the parts are uneven. Now you need the *mean* of the image, or of the loss.
# Each of four ranks has the mean of its part. Is the mean of the four the mean of all?

# %% [markdown]
# <!-- part: links -->
