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
# A Fourier transform looks at a whole line of the grid at once: each wave that comes out depends on every point that
# went in. A grid is transformed along each row first, and then along each column of the result. Spectral weather models
# do this in every layer, there and back.
#
# Now share the rows among ranks. Along a row the transform is easy: each rank has whole rows. But no rank has a single
# whole column. Give every rank everything, and on 64 GPUs you move 64 times as much as needed, and each GPU must hold
# the whole grid, which you cut because it did not fit.
#
# So trade: each rank gives its few whole rows for a few whole *columns*. That is a distributed transpose, and it takes
# one collective.
#
# > **To tell a friend:** to go from rows to columns, swap one small piece with every other rank.
#
# *The words, once more.* In an **all-to-all**, each rank hands in a list with a value for every rank, and gets a list
# with a value from every rank: number i is from rank i.

# %%
from functools import partial

from drawing import draw, draw_collective, draw_curves
from lib import Layer, Links, Model, PuzzleError, Trace, goal, predict, retime, simulate
from lib.analysis.figures import busiest, end, traffic
from lib.schedules.given import accumulate, by_chunk, given, in_turn, joined, update
from lib.suite.course.solutions import run_of, schedule_of

# 2.0 for 131,072 elements from one rank to the next.
PRICES = Links(p2p=2.0, forward=16, backward=16, update=25.6)
GRID = {"rows": 64, "columns": 64, "inputs": 32, "outputs": 32}
LAYERS = [
    Layer(**GRID),  # layer 0: a weight that mixes the 32 numbers of each point
    Layer("transform", along="columns", **GRID),  # layer 1
    Layer("transform", along="rows", **GRID),  # layer 2: now each "point" is a wave
    Layer(**GRID),  # layer 3: a weight that mixes the 32 numbers of each wave
    Layer("transform", along="rows", **GRID),  # layer 4: back again
    Layer("transform", along="columns", **GRID),  # layer 5
]

# %% [markdown]
# ## The idea
#
# `along="columns"` means: all 64 columns of a row are mixed. So layers 1 and 5 need all columns of some rows, and
# layers 2 and 4 need all rows of some columns. Layers 0 and 3 work point by point and take whatever they are given. Try
# layer 2 with the rows of this rank (`by_chunk` deals them out, as in puzzle $number_scatter_rows):


# %%
def parts_of(sizes):
    """Where the part of each rank begins and ends, from the sizes of all parts."""
    return [(sum(sizes[:rank]), sum(sizes[: rank + 1])) for rank in range(len(sizes))]


async def with_rows(model):
    low, high = parts_of(by_chunk(64, model.RANKS))[model.rank]
    x = model.get_activation([0]).cut("rows", low, high)
    x = model.forward(1, model.forward(0, x, model.load_weights(0)[0]))
    model.forward(2, x)


try:
    simulate(with_rows, layers=LAYERS, ranks=4, batches=1)
except PuzzleError as error:
    print(error)

# %% [markdown]
# ### Pieces
#
# So before layer 2, rank j wants its columns from you: **piece j**. The ranks have 4, 8, 12 and 40 rows of the grid, and
# 16 columns each are to come. How large are the pieces that rank 1 hands in, and how large those that it receives? And
# which one need not travel?
#
# <details><summary>Answer</summary>
#
# Your rows times *its* columns, so all ranks know all sizes:
#
# ```
# from \ to    rank 0    rank 1    rank 2    rank 3
# rank 0       4 x 16    4 x 16    4 x 16    4 x 16
# rank 1       8 x 16    8 x 16    8 x 16    8 x 16
# rank 2      12 x 16   12 x 16   12 x 16   12 x 16
# rank 3      40 x 16   40 x 16   40 x 16   40 x 16
# ```
#
# A line is what a rank hands in, and a column what it receives: 64 rows of its columns. The diagonal stays where it is.
#
# </details>
#
# Here is such a swap, with even parts: 16 rows and 16 columns of the grid each. Each small box is a piece. Before the
# swap, a box says which columns of its rank's rows it has; after it, which rows of its rank's columns. So all pieces
# that a rank hands in have the same rows, and all that it receives the same columns:

# %%
draw_collective(schedule_of("redistribute"), "alltoall")

# %% [markdown]
# In backward the gradient of a grid goes the other way. Is there anything to add up, as with a halo? (Question 3 has the
# answer.)
#
# ## The puzzle
#
# | ranks | grids | numbers | layers 0 and 3, of a grid | layers 1, 2, 4, 5, of a grid | a swap of a grid | sum of a weight's gradient | update |
# |---|---|---|---|---|---|---|---|
# | 4 | 4 | 64 × 64 points of 32 | 0.25 | 0.5 | 0.375 | 0.0234 | 0.1 |
#
# These are times forward on a rank, for its part of a grid; backward takes the same again.
#
# **Given:** the weights of layers 0 and 3, whole on every rank; where the part of each rank begins and ends, a list for
# each dim, `parts["rows"]` and `parts["columns"]`; and helpers, which leave nothing in the stores that is not needed any
# more:
#
# | helper | what it does for grid b |
# |---|---|
# | `forward(model, layer, b)` | makes `activations[layer + 1, b]` of `activations[layer, b]` |
# | `backward(model, layer, b)` | makes `grad_activations[layer, b]` of `grad_activations[layer + 1, b]`, and adds the gradient of a weight to `grad_weights[layer]` |
# | `update(model, layer)` | exchanges a weight for the new one, and uses up `grad_weights[layer]` |
# | `joined(pieces)` | puts a list of pieces together, to one value |
#
# `value.cut("rows", low, high)` and `value.cut("columns", low, high)` are parts of a value, and `model.alltoall(pieces,
# layer)` is the collective. Where a helper marked `@given` fails, the message shows the line that calls it.


# %%
@given
def forward(model, layer, b):
    """One layer of a grid. Only layers 0 and 3 have a weight, and need their input in
    backward."""
    if layer in (0, 3):
        output = model.forward(layer, model.activations[layer, b], model.weights[layer])
    else:
        output = model.forward(layer, model.activations.pop((layer, b)))
    model.activations[layer + 1, b] = output


@given
def backward(model, layer, b):
    """The same backward. The gradient of the data is not kept."""
    grad = model.grad_activations.pop((layer + 1, b))
    if layer in (0, 3):
        x = model.activations.pop((layer, b))
        grad_weight, grad = model.backward(layer, x, grad, model.weights[layer])
        accumulate(model, layer, grad_weight)
    else:
        grad = model.backward(layer, None, grad)
    if layer > 0:
        model.grad_activations[layer, b] = grad


# %% [markdown]
# **To do:** one training step. Here is the way of a grid forward, with the layers that work on this rank's rows above, and
# those that work on its columns below. Each slanted line is a swap. How does it go on?
#
# ```
# rows        0  1          5   loss   backward: ...
#                 \        /
# columns           2  3  4
# ```
#
# Write that for *one* grid, await each swap, and run it for one grid after the other. Then look at the picture of your
# run: on a slanted line this grid gives the rank nothing to do. Another one could.
#
# ### Taking turns
#
# An async function with a `yield` in it is a **generator**: it stops there, and goes on when its turn comes again.
# `in_turn` gives turns to several of them, until all are over:


# %%
async def two_journeys(model):
    async def journey(name):
        print(name, "leaves")
        yield
        print(name, "arrives")

    await in_turn(journey(name) for name in ("grid 0", "grid 1"))


on_one_rank = simulate(two_journeys, layers=1, ranks=1)

# %% [markdown]
# **Rules**
#
# - Values live in the stores, and everything alive counts. Park a value in a variable while something else runs, and
#   only the first goal counts. You may keep pending operations in variables of your own.
# - The same function has to be right on any number of ranks: 3 ranks have 22, 22 and 20 rows, and as many columns. On
#   12 ranks the last one has nothing, and its pieces are empty. It makes the same calls as all others.
# - `rows` and `columns` are for later, when you try your function on parts of any sizes.

# %% [markdown]
# ### Predict first
#
# Take one grid after the other, and await each swap where you call it. How many collectives does a rank call, and when
# is the step over?

# %%
guess = predict("redistribute", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step, even with all-gathers. The second sends only what is needed; one grid after the other,
# each swap awaited, is enough for it. For the third, no rank waits for a swap. The fourth is as fast in half the memory:
# how many grids must a rank have at once?

# %%
goal("redistribute")

# %% [markdown]
# <!-- part: hints -->


# %%
async def redistribute(
    model: Model, rows: list[int] | None = None, columns: list[int] | None = None
) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 3):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    parts = {
        "rows": parts_of(rows or by_chunk(64, model.RANKS)),
        "columns": parts_of(columns or by_chunk(64, model.RANKS)),
    }

    # Forward, loss and backward of all grids, this rank's part of each; then update
    # layers 0 and 3.
    # --- your code (about 27 lines) ---
    forth, back, sums = {2: "columns", 5: "rows"}, {5: "columns", 2: "rows"}, {}

    def swap(value, layer, dim):
        pieces = [value.cut(dim, *part) for part in parts[dim]]
        return model.alltoall(pieces, layer)

    async def one_grid(b):
        rows = parts["rows"][model.rank]
        activations[0, b] = model.get_activation([b]).cut("rows", *rows)
        for layer in range(model.LAYERS):
            if layer in forth:
                coming = swap(activations.pop((layer, b)), layer, forth[layer])
                yield
                activations[layer, b] = joined(await coming)
            forward(model, layer, b)
        grad_activations[6, b] = model.loss(activations.pop((6, b)))
        for layer in reversed(range(model.LAYERS)):
            backward(model, layer, b)
            if layer in back:
                coming = swap(grad_activations.pop((layer, b)), layer, back[layer])
                yield
                grad_activations[layer, b] = joined(await coming)
            if layer in (3, 0) and b == model.BATCHES - 1:
                sums[layer] = model.allreduce(grad_weights.pop(layer), layer)

    for first in range(0, model.BATCHES, 2):
        await in_turn(one_grid(b) for b in range(first, min(first + 2, model.BATCHES)))
    for layer in (3, 0):
        grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
    # --- end of your code ---

    for layer in (0, 3):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(redistribute, puzzle="redistribute")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# A grid takes 2 · 0.25 + 4 · 0.5 = 2.5 forward on a rank; four grids, forward and backward, are 20. A rank has a
# quarter of a grid, 32,768 elements, and sends three quarters of that: 24,576 elements at 2.0 for 131,072 are 0.375.
# A grid is swapped four times: from rows to columns before layer 2, from columns to rows before layer 5, and both again
# in backward. 16 swaps take 6: that is 26. Two sums of 1,024 elements take 0.047, and the updates 0.2: **18**
# collectives, over at **26.247**.
#
# An all-gather brings each rank three quarters of the whole *grid*, four times as much: 44.247.
#
# If one grid travels while another is computed, those 6 disappear. The sum for layer 3 travels while layers 1 and 0 go
# backward, and that for layer 0 while layer 3 is updated: 20 + 0.2 = 20.2. No schedule can be faster as long as each
# rank does its share.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="redistribute")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What a machine pays
#
# Run your function on other parts. `computing` is how long the busiest rank computes, updates included: its rows count
# for layers 0, 1 and 5, its columns for layers 2, 3 and 4. `waiting` is the rest of the step. Change the sizes and run
# it again.

# %%
PARTS = {
    "even": ([16, 16, 16, 16], [16, 16, 16, 16]),
    "uneven rows": ([4, 8, 12, 40], [16, 16, 16, 16]),
    "uneven, the same way": ([4, 8, 12, 40], [4, 8, 12, 40]),
    "uneven, crosswise": ([4, 8, 12, 40], [40, 12, 8, 4]),
    "a rank without columns": ([16, 16, 16, 16], [22, 22, 20, 0]),
}
if out:
    print(f"{'parts':<24}{'computing':>10}{'waiting':>10}   sent by rank 0, 1, 2 and 3")
    for name, (rows, columns) in PARTS.items():
        step = partial(redistribute, rows=rows, columns=columns)
        run = simulate(step, layers=LAYERS, ranks=4, batches=4, costs=PRICES)
        computing = busiest(Trace.of(run))
        waiting = end(Trace.of(run)) - computing
        sent = [f"{int(elements):>7,}" for elements, _ in traffic(Trace.of(run))]
        print(f"{name:<24}{computing:>10.2f}{waiting:>10.2f}   {'  '.join(sent)}")

# %% [markdown]
# With uneven rows and even columns, all ranks wait for the same one in half of the layers. If a rank has many rows
# *and* many columns, it gets worse, although fewer elements travel: the largest piece of all stays where it is.
# Crosswise looks fair, 44 rows and columns together for ranks 0 and 3, and yet ranks wait: in every stage some rank is
# the slowest.
#
# How slow may the link be? Here is that run on slower links, next to the time it would take with all swaps awaited.

# %%
run, _ = run_of("redistribute")  # yours, once it is correct
SLOW = (1, 1.5, 2, 2.5, 3, 4, 6)


def slower(slow):
    return Links(p2p=2.0 * slow, forward=16, backward=16, update=25.6)


draw_curves(
    {
        "this run": [(slow, end(retime(run, slower(slow)))) for slow in SLOW],
        "everything awaited": [
            (slow, 20.2 + slow * (4 * 1.5 + 0.046875)) for slow in SLOW
        ],
    },
    across="how much slower the link is (1: a swap of a grid takes 0.375)",
    title="When the step is over, by the speed of the link",
)

# %% [markdown]
# ## Gather or swap?
#
# One grid, by an all-gather from which each rank cuts out its columns, and by an all-to-all. First with even rows, then
# with 4, 8, 12 and 40 rows:


# %%
async def swap(model, rows, way):
    low, high = parts_of(rows)[model.rank]
    x = model.get_activation([0]).cut("rows", low, high)
    if way == "all-gather":
        whole = await model.allgather(x, 0)
        mine = parts_of(by_chunk(64, 4))[model.rank]
        model.activations[0] = whole.cut("columns", *mine)
    else:
        pieces = [x.cut("columns", *part) for part in parts_of(by_chunk(64, 4))]
        model.activations[0] = joined(await model.alltoall(pieces, 0))


print("rows           way          time   sent by rank 0, 1, 2 and 3")
for rows in ([16, 16, 16, 16], [4, 8, 12, 40]):
    for way in ("all-gather", "all-to-all"):
        step = partial(swap, rows=rows, way=way)
        run = Trace.of(simulate(step, layers=LAYERS, ranks=4, batches=1, costs=PRICES))
        sent = "  ".join(f"{int(elements):>7,}" for elements, _ in traffic(run))
        print(f"{' '.join(map(str, rows)):<13}  {way:<10}  {end(run):>6.4f}   {sent}")

# %% [markdown]
# Four times less with 4 ranks. With uneven rows all ranks wait for the busiest link: rank 3 has 40 of 64 rows and gives
# three quarters of them away. On the way back, from columns to rows, the same rank *receives* as much, and the wait is
# just as long.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# The **redistribution** of a tensor from one shard dimension to another, and with it a parallel Fourier transform:
# transform what is whole, swap, transform the rest. With *n* ranks and even parts, a grid of *S* elements:
#
# ```
# piece from rank i to rank j      rows_i x columns_j
# all-to-all, a rank sends         S·(n - 1)/n²
# all-gather, a rank sends         S·(n - 1)/n             n times as much
# with uneven parts                the time of the rank that sends or gets the most
# swaps of a step                  4: two forward, two backward
# ```
#
# In PyTorch's DTensor this is `Shard(0)` to `Shard(1)`. You have met it before: Ulysses swaps rows of a text for heads
# in the same way.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **PhysicsNeMo.** A redistribution from one dimension to another cuts the local part along the new dimension and runs
#   an all-to-all, which a comment calls more efficient than a gather and a scatter. But before it comes another
#   all-to-all, in which the ranks tell each other the *shapes*. A to-do says to drop that one, because the shapes are
#   known [@physicsnemo_shard_redistribute].
# - **In which order?** What arrives is a list of tensors, and the library joins it in the order of the ranks, along the
#   dimension that was cut before [@physicsnemo_shard_redistribute]. Here `combine` knows which rows it has. A real
#   tensor does not: in another order all shapes are right and the image is shuffled.
# - **On the sphere.** torch-harmonics transforms grids that are cut along both dimensions. It swaps longitudes for
#   *channels* within a row of ranks, does its Fourier transforms, and swaps back; then the same for latitudes within a
#   column of ranks [@nvidia_torch_harmonics]. So a transform takes four all-to-alls, each of fewer ranks. The function
#   that swaps is *told* the sizes on all ranks [@torch_harmonics].
# - **Without any swap.** PhysicsNeMo's distributed Fourier operator (AFNO) cuts the channels, and each rank has the
#   whole grid of some of them [@physicsnemo_afno]. That is simple as long as a whole grid fits and there are enough
#   channels for all ranks.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# The transform is a product with a matrix of cosines, and takes 64 multiplications for each number. A fast Fourier
# transform takes far fewer, so in practice there is less to hide a swap behind. A message costs nothing but its
# elements; with many ranks the pieces are small, and the number of messages would dominate. Between the two transforms
# there is one weight for all waves. And memory is measured when an operation begins: it misses the whole grid that an
# all-gather leaves for a moment until it is cut. Your GPU does not.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why does layer 4 go along the rows and layer 5 along the columns, and not the other way round?
#
# <details><summary>Answer</summary>
#
# After layer 3 each rank has whole columns, with all rows of the grid, and that is what layer 4 needs. The other order
# would take a swap before layer 4 and another one before layer 5, for the same result. What you could save is the way
# home: the network may end in columns if the next layer accepts that, and then it begins with the other transform.
#
# </details>
#
# **2.** Rows are 4, 8, 12 and 40, and you choose the columns. Which choice makes a swap fastest?
#
# <details><summary>Answer</summary>
#
# Rank 3 is the busiest. With c columns it sends 40 · (64 - c) points and receives 24 · c. Both are 960 with **c = 40**,
# half of what it sends with even columns, 40 · 48 = 1,920. So sharing the columns like the rows gives the fastest swap.
# But then rank 3 has most of the work in layers 2, 3 and 4 as well. A swap is a chance to even out the work, and that
# is worth more.
#
# </details>
#
# **3.** Why is there nothing to add up in backward, where a halo exchange had to add?
#
# <details><summary>Answer</summary>
#
# A row of a halo is on *two* ranks, and both use it, so its gradient has two parts. In a swap each element leaves one
# rank and arrives at one other. It is a permutation of the elements, and its backward is the inverse permutation. An
# all-gather is not: it puts each element on all ranks. But here each rank cuts out what it uses, and no two ranks use
# the same element, so again there is nothing to add.
#
# </details>
#
# **4.** With 16 ranks, would you rather cut the grid into 16 strips, or 4 × 4 tiles?
#
# <details><summary>Answer</summary>
#
# With strips one swap among 16 ranks is enough, and a rank sends 15/16 of what it has, in 15 messages. With tiles
# neither rows nor columns are whole: you need a swap before *each* transform, and one after it if you want your tile
# back, but each is among 4 ranks, with 3 messages and 3/4 of what a rank has. Tiles move more, in fewer messages. And
# with more ranks than rows only tiles are left.
#
# </details>
#
# ## Where this leads
#
# So far all ranks have worked on the same grids. With many ranks you want both: some ranks share a grid, others work on
# different grids. Then a gradient is summed over some ranks and averaged over others. Which are which?

# %% [markdown]
# <!-- part: links -->
