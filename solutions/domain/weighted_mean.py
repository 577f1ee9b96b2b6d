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
# In September 2025 a user took the numbers 0 to 11, as 3 rows of 4, split the rows between two GPUs, and asked
# PyTorch's DTensor for the mean [@pytorch_162692]. It is 5.5, and the answer was wrong. By `chunk` one GPU has two rows
# with the mean 3.5, and the other one row with the mean 9.5. The mean of *these* is 6.5. With a single row the answer
# was NaN: one GPU had no rows to average.
#
# Nothing fails, nothing looks odd, and with parts of equal size nothing is even wrong. Many models take a mean over a
# grid: at the end of a network that classifies a whole image, in every norm, in the loss.
#
# > **To tell a friend:** never send a mean without its count.
#
# *The words, once more.* An **all-reduce** adds up what all ranks bring, and gives each rank the sum.

# %%
from functools import partial

from drawing import draw, draw_collective, draw_curves, draw_group
from lib import Layer, Links, Model, PuzzleError, Trace, goal, predict, simulate
from lib.analysis.figures import busiest, end
from lib.schedules.given import backward, forward, update

PRICES = Links(
    latency=0.02, forward=2, backward=2
)  # 0.02 for each message, and 0.2 for 131,072 elements

# %% [markdown]
# ## The idea
#
# Four ranks have 4, 8, 12 and 16 rows of one number each, 40 in all, and each has computed the mean of its own:

# %%
means, sizes = [0.0, 1.0, 2.0, 3.0], [4, 8, 12, 16]

sums = [mean * size for mean, size in zip(means, sizes, strict=True)]
print(f"mean of the four means:   {sum(means) / 4}")
print(f"sum of all, by how many:  {sum(sums) / sum(sizes)}")

# %% [markdown]
# The second is right. The first lets each of the 4 rows of rank 0 count as much as four rows of rank 3.
#
# ### Forward
#
# For the second a rank brings **a sum and a count**; without rows, two zeros. In the simulator `"mean"` is a kind of
# layer, without a weight. Given some of the rows it computes a **partial mean**, which carries its count. Rank 3:

# %%
ONE = [Layer("mean", inputs=1, outputs=1, rows=40)]


def my_rows(model, sizes=None):
    """Where this rank's rows begin and end. Rank 1 has twice as many as rank 0, rank 2
    three times as many, and so on, in whole rows; or they have these sizes, which all
    ranks know."""
    ranks = model.RANKS
    if sizes is None:
        ends = [
            40 * rank * (rank + 1) // (ranks * (ranks + 1)) for rank in range(ranks + 1)
        ]
    else:
        ends = [sum(sizes[:rank]) for rank in range(ranks + 1)]
    return ends[model.rank], ends[model.rank + 1]


async def mean_of_all(model):
    rows = model.get_activation([0]).cut("rows", *my_rows(model))
    mine = model.forward(0, rows)
    shown[model.rank] = {"rows": rows, "their mean": mine}
    shown[model.rank]["mean of all"] = await model.allreduce(mine, 0)


shown = {}
demo = simulate(mean_of_all, layers=ONE, batches=1, ranks=4, costs=PRICES)
for name, value in shown[3].items():
    print(f"{name + ':':<12} {value}")

# %%
draw_group({name: shown[3][name] for name in ("rows", "their mean")})

# %% [markdown]
# Pale, marked "of a sum", means partial. An all-reduce adds up the sums and the counts, and divides:

# %%
draw_collective(demo)

# %%
events = demo[3].trace.programs[3].events
reduce = next(event for event in events if event.op == "allreduce")
took = (reduce.end - reduce.start) / 1e9
print(f"2 numbers: {took:.9f}, of which messages: {2 * 3 * 0.02:.2f}")

# %% [markdown]
# The time is that of the 6 messages of the ring: the count is free.
#
# Libraries also have an averaging all-reduce, which divides the sum by the number of ranks. Ours checks what it is
# given:


# %%
async def average(model):
    rows = model.get_activation([0]).cut("rows", *my_rows(model))
    await model.allreduce_mean(model.forward(0, rows), 0)


try:
    simulate(average, layers=ONE, batches=1, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Real libraries just do it.
#
# ### Backward
#
# A gradient says by how much the mean of all changes if one number changes by 1. Here is a number of rank 0, and one of
# rank 3:

# %%
for rank in (0, 3):
    # A number of this rank is larger by 1.
    nudged = [mine + (number == rank) for number, mine in enumerate(sums)]
    by = sum(nudged) / sum(sizes) - sum(sums) / sum(sizes)
    own = nudged[rank] / sizes[rank] - means[rank]
    print(
        f"a number of rank {rank} changes the mean of all by {by:.4f}, "
        f"and that of its rank by {own:.4f}"
    )

# %% [markdown]
# By 1/40, whichever rank it is on: **the gradient of each row is that of the mean, divided by the number of rows in
# all**. Call `.mean()` on each rank and average afterwards, and it is 1/4 · 1/4 on rank 0 and 1/4 · 1/16 on rank 3.
# Such a model learns four times as much from a row of rank 0 as from a row of rank 3.
#
# Each rank knows that there are 40 rows in all, so `model.backward(2, rows, gradient)` needs no communication.
#
# ## The puzzle
#
# Each of 64 images has 40 rows of 128 numbers, and the network computes 128 numbers for the whole image:
#
# | layer | what | rows | takes forward on rank 3 | an update |
# |---|---|---|---|---|
# | 0 and 1 | linear, row by row | 40, so 4, 8, 12 and 16 | 0.5 | 0.03125 |
# | 2 | mean, no weight | 40, and gives 1 | 0.00390625 | |
# | 3 | linear | 1 | 0.03125 on every rank | 0.03125 |
#
# Backward takes as long as forward. An all-reduce of the gradient of a weight takes 0.1575, and that of the means of all
# images 0.1389. The rank with the most rows has the most to do, and the others wait for it. So rank
# 3 itself should never wait for a mean.
#
# **Given:** the weights, whole on every rank, `my_rows` above, and helpers for layers 0, 1 and 3. Their keys are
# `[layer, i]`, where `i` counts the portions of images that you take one after the other:
#
# - `forward(model, layer, i)` makes `activations[layer + 1, i]` from `activations[layer, i]`.
# - `backward(model, layer, i)` uses up `activations[layer, i]` and `grad_activations[layer + 1, i]`, makes
#   `grad_activations[layer, i]` where something needs it, and adds the gradient of the weight to `grad_weights[layer]`.
# - `update(model, layer)` updates a weight, and uses up its gradient.
#
# **To do:** one training step. First take all images at once, as portion 0. For layer 2 it is `model.forward(2, rows)`,
# and `model.backward(2, rows, gradient)` gives the gradient of the rows.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts. Park a value in a variable while something else runs, and
#   only the first goal counts. You may keep pending operations in a dict of your own.
# - Each rank has seen only some rows, so most weight gradients are partial sums. Find the one that is not.
# - The same function has to be right for any number of ranks from 2 on, and for any number of images, even a single
#   one. Of 12 ranks the first has no rows. It makes the same calls as the others.
# - `sizes` is for later, when you try your function on other parts. Pass it on to `my_rows`.

# %% [markdown]
# ### Predict first
#
# All images at once, and everything awaited where it is called. How many collectives does a rank call, and when is the
# step over?

# %%
guess = predict("weighted_mean", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step. For the second, the sum of a weight's gradient travels while another layer is
# computed. For the third, rank 3 does not wait for the mean: what else can it do while the mean is in flight?

# %%
goal("weighted_mean")

# %% [markdown]
# <!-- part: hints -->


# %%
async def weighted_mean(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 1, 3):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    low, high = my_rows(model, sizes)

    # Forward, loss and backward of this rank's rows of all images; then update layers
    # 0, 1 and 3.
    # --- your code (about 25 lines) ---
    middle = (model.BATCHES + 1) // 2
    halves = [half for half in (range(middle), range(middle, model.BATCHES)) if half]
    means, sums = {}, {}

    for number, half in enumerate(halves):
        activations[0, number] = model.get_activation(half).cut("rows", low, high)
        for layer in (0, 1):
            forward(model, layer, number)
        activations[3, number] = model.forward(2, activations[2, number])
        means[number] = model.allreduce(activations.pop((3, number)), 2)

    for number in range(len(halves)):
        activations[3, number] = await means.pop(number)
        forward(model, 3, number)
        grad_activations[4, number] = model.loss(activations.pop((4, number)))
        backward(model, 3, number)
        grad_activations[2, number] = model.backward(
            2, activations.pop((2, number)), grad_activations.pop((3, number))
        )
        for layer in (1, 0):
            backward(model, layer, number)
            if number == len(halves) - 1:
                sums[layer] = model.allreduce(grad_weights.pop(layer), layer)

    for layer in (3, 1, 0):
        if layer in sums:  # layer 3 has seen the mean of all rows, on every rank
            grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
    # --- end of your code ---

    for layer in (0, 1, 3):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(weighted_mean, puzzle="weighted_mean")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Rank 3 computes 4 · 0.5 for layers 0 and 1, forward and backward, twice 0.03125 for layer 3, and twice 0.00390625 for
# the mean: 2.0703125. The means of 64 images are 64 · 129 numbers, 128 sums and a count each: 0.1389 for their
# all-reduce. Then 0.1575 for each of two gradients, and three updates. That is three collectives, over at **2.61796**.
#
# Started early, the sum of layer 1 hides behind backward of layer 0. Beside that of layer 0 only two updates are left:
# 2.0703125 + 0.1389 + 0.1575 + 0.03125 = 2.39796.
#
# The mean of half of the images travels while the other half is computed, forward or backward: 2.259 is what rank 3
# computes, the last sum, and an update.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="weighted_mean")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What a machine pays
#
# Run your function on other parts. `computing` is how long the busiest rank computes, updates included, and `waiting` is
# the rest of the step.

# %%
PARTS = {
    "as in the puzzle": [4, 8, 12, 16],
    "even": [10, 10, 10, 10],
    "land only": [1, 2, 3, 34],
    "a rank without rows": [14, 13, 13, 0],
    "16 ranks": [3] * 8 + [2] * 8,
}
net = [Layer(inputs=128, outputs=128, rows=40)] * 2
net += [
    Layer("mean", inputs=128, outputs=128, rows=40),
    Layer(inputs=128, outputs=128, rows=1),
]
if out:
    print(f"{'parts':<22}{'computing':>10}{'waiting':>10}")
    for name, parts in PARTS.items():
        step = partial(weighted_mean, sizes=parts)
        run = Trace.of(
            simulate(step, layers=net, ranks=len(parts), batches=64, costs=PRICES)
        )
        print(f"{name:<22}{busiest(run):>10.4f}{end(run) - busiest(run):>10.4f}")

# %% [markdown]
# Once you have reached the third goal, the busiest of four ranks only waits for the last sum, however uneven the parts
# are. What differs is how much that rank has to compute. And with 16 ranks there is little to compute, while the sums
# take 30 messages each, one after the other: 0.6 for next to nothing. A mean costs no bytes, it costs messages:

# %%
RANKS = (2, 4, 8, 16, 32)


def reduced(ranks, numbers):
    return 2 * (ranks - 1) * (0.02 + numbers / ranks * 0.2 / 131_072)


def gathered(ranks, numbers):
    return (ranks - 1) * (0.02 + numbers * 0.2 / 131_072)


draw_curves(
    {
        "pairs, added up": [(ranks, reduced(ranks, 64 * 129)) for ranks in RANKS],
        "pairs, gathered": [(ranks, gathered(ranks, 64 * 129)) for ranks in RANKS],
        "rows, gathered": [
            (ranks, gathered(ranks, 64 * 128 * 40 / ranks)) for ranks in RANKS
        ],
    },
    across="ranks that share 64 images of 40 rows",
    doublings=True,
    title="How long it takes until all have the mean",
)

# %% [markdown]
# A pair is a sum and its count. With few ranks, gathering rows is the expensive way. With many ranks the messages cost
# most, and an all-gather in a ring has half as many as an all-reduce. So a library may well gather the pairs and let
# each rank add them up for itself.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Global average pooling** over a sharded grid, and a **weighted mean**. With n ranks, rank r having s(r) of S rows:
#
# ```
# mean of all         Σ sum(r) / Σ s(r) = Σ mean(r) · s(r)/S      the two forms that libraries use
# gradient of a row   that of the mean, by S                        on every rank, whatever it has
# all-reduce          2·(n - 1)·(α + (features + 1)·images·β/n)     β for each number, α for each message
# before the mean     gradients of weights are parts of a sum
# after the mean      all is the same on every rank, and nothing needs a sum
# ```
#
# The second form needs no count beside the sum if every rank knows S: multiply each mean by s(r)/S and add up. But a
# mean of no rows is 0/0, and NaN times 0 is NaN.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *DTensor* made a mean of sharded rows a plain average over ranks, even where the last part was smaller or empty
#   [@pytorch_162692]. It now gathers the tensor first if its parts are uneven, and takes the mean of all of it
#   [@pytorch_163241]. That is right, and it is the third curve.
# - *ShardTensor*, of NVIDIA's PhysicsNeMo, multiplies the mean of each rank by its share of all elements, and marks it
#   as a partial sum. Its backward divides by the number of elements of the whole tensor [@physicsnemo_reductions].
# - *SyncBatchNorm* of PyTorch is a mean over all ranks of data parallelism. It gathers mean, spread and count of each
#   rank; a comment explains that an all-reduce would be wrong, as counts may differ. A process without elements
#   contributes zeros, because the others wait for it [@pytorch_sync_batch_norm].
# - **In a loss.** With class weights, a mean divides by the sum of the weights, and that differs from rank to rank even
#   if the parts are equal. DTensor was off by several percent there [@pytorch_185167].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Our collectives travel in a ring. For a few numbers real libraries use trees, in which the number of messages in a row
# grows with the logarithm of the number of ranks. Floating-point sums are rounded, so a mean over other parts differs
# in the last digits. And there is a single mean in this network; with one in each norm there is such an exchange each
# time.

# %% [markdown]
# ## Questions to think about
#
# **1.** Which weight gradient needs no all-reduce here, and what would an all-reduce do to it?
#
# <details><summary>Answer</summary>
#
# That of layer 3. Its input is the mean of all rows, the same on every rank, and so is its gradient. An all-reduce
# would add up four copies: a gradient four times as large, and here an error, as the same batches are counted several
# times. If the all-reduce averaged, as DDP's does, it would be right for layer 3, and layers 0 and 1 would have a
# quarter of their gradient. A framework has to know for each weight which of the two applies.
#
# </details>
#
# **2.** All parts are equal. Is a mean of means right then?
#
# <details><summary>Answer</summary>
#
# Yes, and `model.allreduce_mean` takes them. That is the trap: it passes every test with 8 GPUs and 64 rows, and is
# wrong with 721 rows, or with 7 GPUs. So a good test has parts that do not divide, and one that is empty.
#
# </details>
#
# **3.** In data parallelism each rank has the mean loss of its own examples, and gradients are averaged over the ranks.
# When is this the same mistake?
#
# <details><summary>Answer</summary>
#
# When ranks hold different numbers of the items that the loss averages over. With the same number of examples on each
# rank it is right. With texts, the loss is usually a mean over *tokens*, and those differ: padding does not count. Then
# the tokens of a rank with short texts count for more than others. The way out is the same: sums and counts. Divide by
# the number of tokens on all ranks, which takes one all-reduce of a single number before backward.
#
# </details>
#
# **4.** Which of these can you compute from one number per rank, which from a few, and which only from all rows:
# maximum, variance, median?
#
# <details><summary>Answer</summary>
#
# The maximum of maxima is the maximum: one number, and no count. The variance needs three: count, sum, and sum of
# squares. The median needs all rows, or several rounds of counting how many rows are below a guess. The mean needs two
# numbers and looks as if it needed one.
#
# </details>
#
# ## Where this leads
#
# Here the mean came once, at the end of the network. A norm sits in the middle, takes the mean and the variance of a
# whole image in forward, and needs something similar in backward. How many exchanges does that take?

# %% [markdown]
# <!-- part: links -->
