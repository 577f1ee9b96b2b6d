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
# A U-Net for weather or for images has a norm after nearly every convolution. PhysicsNeMo, NVIDIA's library for
# physics, can cut the grid of such a network among GPUs. Until February 2026 its **group norm** let PyTorch normalize
# the rows of each GPU separately and corrected the result afterwards. That was numerically unstable and did not work
# for uneven parts; it was rewritten with sums over the whole grid and one all-reduce [@physicsnemo_1421].
#
# Which sums? A norm needs the mean and the variance of a grid that no GPU has. You know how to combine means: weight each
# by how many numbers it is the mean of. Combine variances in that way, and you get 0.51 where 1.07 is right.
#
# And in backward the gradient of a norm depends on the whole grid *again*. So a U-Net with 50 norms has 100 exchanges a
# step, and in each of them all GPUs wait for a handful of numbers.
#
# > **To tell a friend:** variances do not add up, even if you weight them.
#
# *The words, once more.* A group norm cuts the features of each image into groups. Each group, over all points of the
# grid, is shifted and scaled so that its mean is 0 and its variance 1.

# %%
from functools import partial
from itertools import islice, pairwise

from drawing import draw, draw_collective, draw_curves, draw_group
from lib import Layer, Links, Model, PuzzleError, Trace, goal, predict, retime, simulate
from lib.analysis.figures import busiest, end
from lib.schedules.given import accumulate, backward, by_chunk, forward, given, update
from lib.suite.course.solutions import run_of

PRICES = Links(
    latency=0.02, forward=8, backward=8
)  # 0.02 for each message, and 0.2 for 131,072 elements
GRID = {"rows": 64, "columns": 32}
LAYERS = [
    Layer(inputs=64, outputs=64, **GRID),  # layer 0: linear, point by point
    # Layer 1: two numbers for each of 8 groups.
    Layer("moments", inputs=64, outputs=16, **GRID),
    # Layer 2: activation 1, by activation 2.
    Layer("group_norm", inputs=64, outputs=64, **GRID, of=(1, 2)),
    Layer(inputs=64, outputs=64, **GRID),  # layer 3: linear
]

# %% [markdown]
# ## The idea
#
# One group: 3 features of 64 rows, noise on a slope, so that rows further down have larger values. The ranks have 4, 8,
# 12 and 40 rows of it.


# %%
def noise(seed):
    """Numbers between -1 and 1, the same ones every time."""
    x = (seed * 2654435761 + 12345) % 2**32
    while True:
        x = (1664525 * x + 1013904223) % 2**32
        yield x / 2**31 - 1


def variance(numbers):
    mean = sum(numbers) / len(numbers)
    return sum((number - mean) ** 2 for number in numbers) / len(numbers)


# Feature by feature.
numbers = [value + 3 * (i % 64) / 63 for i, value in enumerate(islice(noise(51), 192))]
parts = [
    [number for i, number in enumerate(numbers) if low <= i % 64 < high]
    for low, high in pairwise([0, 4, 12, 24, 64])
]

for rank, part in enumerate(parts):
    mean = sum(part) / len(part)
    var = variance(part)
    print(f"rank {rank}: {len(part):>3} numbers, mean {mean:.4f}, variance {var:.4f}")
print(f"\nvariance of all:                       {variance(numbers):.4f}")
print(f"mean of the four variances:            {sum(map(variance, parts)) / 4:.4f}")
weighted = sum(variance(part) * len(part) for part in parts) / 192
print(f"weighted by how many numbers each has: {weighted:.4f}")

# %% [markdown]
# Two ways to combine four variances, and both are wrong. The plain mean, 0.4465, counts the 12 numbers of rank 0 as much
# as the 120 of rank 3. The weighted mean, 0.5135, counts each number once, as you do with means. It is still less than
# half of 1.0736: the variance of a part measures how far its numbers are from the mean *of that part*, and the four
# means lie far apart, -0.27 on rank 0 and 1.93 on rank 3.
#
# **Before you go on:** which numbers can be added up over the ranks, so that one sum gives mean and variance? (The
# variance is the mean of the squares, less the square of the mean.)
#
# <details><summary>Answer</summary>
#
# **A count, a sum and a sum of squares for each group, in one all-reduce.**
#
# ```python
# pieces = [(len(part), sum(part), sum(x * x for x in part)) for part in parts]
# count, total, squares = (sum(numbers) for numbers in zip(*pieces))
# mean, var = total / count, squares / count - (total / count) ** 2
# ```
#
# This gives mean 1.3809, variance 1.0736, the same as all numbers at once. Mean and mean of the squares are the first
# two **moments**.
#
# </details>
#
# ### Forward
#
# In the simulator a norm is two layers. `"moments"` computes two numbers for each group and carries the count with
# them. Given only some of the rows, it is a partial sum. `"group_norm"` takes its input and the moments of all rows:
# `model.forward(2, input, moments)`.


# %%
def my_rows(model, sizes=None):
    """Where this rank's rows begin and end: by chunk, or in these sizes, which all
    ranks know."""
    sizes = sizes or by_chunk(64, model.RANKS)
    low = sum(sizes[: model.rank])
    return low, low + sizes[model.rank]


async def one_norm(model):
    weight, _ = model.load_weights(0)
    x = model.forward(
        0, model.get_activation(range(4)).cut("rows", *my_rows(model)), weight
    )
    mine = model.forward(1, x)
    moments = await model.allreduce(mine, 1)
    normalized = model.forward(2, x, moments)
    shown[model.rank] = {"input": x, "own moments": mine, "normalized": normalized}


shown = {}
demo = simulate(one_norm, layers=LAYERS, batches=4, ranks=4, costs=PRICES)
draw_group(shown[1])

# %%
draw_collective(demo)

# %% [markdown]
# Four images with 8 groups each are 32 groups. Here are three ways to their moments, and what the ranks wait for in each:


# %%
def all_reduce(numbers):
    return 2 * 3 * (0.02 + numbers / 4 * 0.2 / 131_072)


groups = 4 * 8
gather = 3 * (0.02 + 16 * 32 * 64 * 4 * 0.2 / 131_072)
print(f"all rows gathered:                              {gather:.5f}")
print(
    f"the mean, and then the variance around it:      {2 * all_reduce(2 * groups):.5f}"
)
print(f"three numbers for each group, all at once:      {all_reduce(3 * groups):.5f}")

# %% [markdown]
# The second is the textbook way: first the mean of all, then the distance of each number from it. Each of its two
# exchanges costs six messages. A third number for each group costs next to nothing.
#
# Normalize with the moments of your own rows, and a real program says nothing: the same value just comes out
# differently above and below the edge between two ranks. Ours refuses:


# %%
async def own_moments(model):
    weight, _ = model.load_weights(0)
    x = model.forward(
        0, model.get_activation(range(4)).cut("rows", *my_rows(model)), weight
    )
    model.forward(2, x, model.forward(1, x))


try:
    simulate(own_moments, layers=LAYERS, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# ### Backward
#
# Increase one number, and the output changes in three ways: at that point, because the mean grows, and because the
# variance changes. The last two change *every* point of the group, on all ranks. With g the arriving gradient, x̂ the
# output of the norm, σ the root of the variance, and N points in the group:
#
# ```
# gradient of x  =  (g  -  Σg / N  -  x̂ · Σ(g·x̂) / N) / σ     Σ: over all points of the group
# ```
#
# What must the ranks exchange to compute this? Decide before you open the answer.
#
# <details><summary>Answer</summary>
#
# Two sums for each group, Σg and Σ(g·x̂), of which each rank knows a part. N is known from forward, so it need not
# travel again.
#
# </details>
#
# In the simulator backward of the norm gives two gradients:
#
# ```python
# by_moments, by_itself = model.backward(2, input, gradient, moments)
# ```
#
# The input reaches the loss in two ways, through the norm itself and through the moments, so its gradient has two
# parts: `by_itself`, and what `model.backward(1, input, ...)` makes of the gradient of the moments. `by_moments` is a
# partial sum. For 32 groups it is 64 numbers:

# %%
print(f"backward:  {all_reduce(2 * groups):.5f}")

# %% [markdown]
# ## The puzzle
#
# | ranks | images | grid | layers 0 and 3 | moments, norm | exchange of moments | exchange of their gradients | sum of a weight's gradient | an update |
# |---|---|---|---|---|---|---|---|---|
# | 4 | 4 | 64 × 32 points, so 16 rows each | 1 each | 0.015625 each | 0.12022 | 0.12015 | 0.129375 | 0.0078125 |
#
# These are times on a rank, forward; backward takes as long. The way of an image through the layers, where each `!` is an
# exchange that the next layer waits for:
#
# ```
# forward    0  1 ! 2  3  loss          1: moments, 2: norm
# backward   3  2 ! 1  0
# ```
#
# **Given:** the weights of layers 0 and 3, whole on every rank; where this rank's rows begin and end, `low` and `high`;
# and helpers for layers 0 and 3. You may take the images in portions, several together or one after the other: `i`
# counts the portions, and the keys are `[layer, i]`.
#
# - `forward(model, layer, i)` makes `activations[layer + 1, i]` from `activations[layer, i]`, which stays for backward.
# - `backward(model, layer, i)` makes `grad_activations[layer, i]` from `grad_activations[layer + 1, i]`, and adds the
#   gradient of the weight to `grad_weights[layer]`. Of layer 0 that is all: nothing needs the gradient of the data.
# - `input_half(model, layer, i)` makes `grad_activations[layer, i]` from `grad_activations[layer + 1, i]`.
# - `weight_half(model, layer, i)` adds the gradient of the weight to `grad_weights[layer]`, and deletes what backward
#   of this layer needed: `activations[layer, i]` and `grad_activations[layer + 1, i]`.
# - `update(model, layer)` exchanges a weight for the new one, and uses up `grad_weights[layer]`.
#
# `input_half`, and after it `weight_half`, are `backward` in two halves, 0.5 each. Where a helper marked `@given` fails,
# the message shows the line that calls it.


# %%
@given
def input_half(model, layer, i):
    """The gradient of the input."""
    x, gradient = model.activations[layer, i], model.grad_activations[layer + 1, i]
    gradient = model.backward_input(layer, x, gradient, model.weights[layer])
    model.grad_activations[layer, i] = gradient


@given
def weight_half(model, layer, i):
    """The gradient of the weight, added to that of other images."""
    x = model.activations.pop((layer, i))
    gradient = model.grad_activations.pop((layer + 1, i))
    accumulate(model, layer, model.backward_weight(layer, x, gradient))


# %% [markdown]
# **To do:** one training step. First take all images together, as portion 0, and await what you call: that reaches the
# first goal. Then ask at each `!`: what can this rank compute meanwhile, of the same images, or of others?
#
# **Rules**
#
# - Values live in the stores, and everything alive counts. Park a value in a variable while something else runs, and
#   only the first goal counts. You may keep pending operations in a dict of your own.
# - The same function has to be right on any number of ranks from 2 on, and for any number of images, even a single one.
#   On 12 ranks the last one has no rows; it makes the same calls as the others.
# - `sizes` is for later, when you try your function on other parts. Pass it on to `my_rows`.

# %% [markdown]
# ### Predict first
#
# All images at once, everything awaited where it is called. How many collectives does a rank call, and when is the step
# over?

# %%
guess = predict("group_norm", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step, with one exchange forward and one in backward. For the second, hide the exchange in
# backward and the sum of layer 3's gradient; for the third, also the exchange in forward. The fourth takes as long in
# less memory: how many images may be in flight?

# %%
goal("group_norm")

# %% [markdown]
# <!-- part: hints -->


# %%
async def group_norm(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 3):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    low, high = my_rows(model, sizes)

    # Forward, loss and backward of this rank's rows of all images; then update layers 0
    # and 3.
    # --- your code (about 31 lines) ---
    batches = [[b] for b in range(model.BATCHES)]  # what is taken together
    moments, sums = {}, {}

    def begin(i):
        activations[0, i] = model.get_activation(batches[i]).cut("rows", low, high)
        forward(model, 0, i)
        moments[i] = model.allreduce(model.forward(1, activations[1, i]), 1)

    async def finish(i):
        activations[2] = await moments.pop(i)
        activations[3, i] = model.forward(2, activations[1, i], activations[2])
        forward(model, 3, i)
        grad_activations[4, i] = model.loss(activations.pop((4, i)))
        input_half(model, 3, i)
        grad_activations[2], grad_activations[1, i] = model.backward(
            2, activations[1, i], grad_activations.pop((3, i)), activations.pop(2)
        )
        coming = model.allreduce(grad_activations.pop(2), 2)
        weight_half(model, 3, i)
        if i == len(batches) - 1:
            sums[3] = model.allreduce(grad_weights.pop(3), 3)
        by_moments = model.backward(1, activations.pop((1, i)), await coming)
        grad_activations[1, i] += by_moments
        backward(model, 0, i)

    begin(0)
    for i in range(len(batches)):
        if i + 1 < len(batches):
            begin(i + 1)  # while the moments of the one before are in flight
        await finish(i)
    sums[0] = model.allreduce(grad_weights.pop(0), 0)
    for layer in (3, 0):
        grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
    # --- end of your code ---

    for layer in (0, 3):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(group_norm, puzzle="group_norm")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Layers 0 and 3, forward and backward, are 4; moments and norm 4 · 0.015625: 4.0625. Two exchanges of 0.12022 and
# 0.12015, two sums of 0.129375, and two updates of 0.0078125, all awaited: four collectives, over at **4.57724**.
#
# Of the two halves of layer 3's backward, the gradient of its input comes first. It goes through the norm, the exchange
# starts, and the other half of layer 3 hides it. The sum for layer 3 hides behind backward of layer 0. What remains is
# the exchange of the moments, the last sum, and an update: 4.0625 + 0.12022 + 0.129375 + 0.0078125 = 4.31991.
#
# With another image to compute meanwhile, the exchange of the moments is hidden as well: 4.0625 + 0.129375 + 0.0078125
# = 4.19969. Two images in flight are enough for that.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="group_norm")

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
    "even": [16, 16, 16, 16],
    "land only": [4, 8, 12, 40],
    "a rank without rows": [22, 22, 20, 0],
    "8 ranks": [8] * 8,
    "16 ranks": [4] * 16,
}
if out:
    print(f"{'parts':<22}{'computing':>10}{'waiting':>10}")
    for name, parts in PARTS.items():
        step = partial(group_norm, sizes=parts)
        run = simulate(step, layers=LAYERS, ranks=len(parts), batches=4, costs=PRICES)
        computing = busiest(Trace.of(run))
        print(f"{name:<22}{computing:>10.4f}{end(Trace.of(run)) - computing:>10.4f}")

# %% [markdown]
# Uneven parts wait no longer than even ones. But on 16 ranks a rank computes for one time unit and waits for five and a
# half: each exchange is 30 messages, and there is too little computing to hide them. How slow may a message be on 4
# ranks?

# %%
run, _ = run_of("group_norm")  # yours, once it is correct
LATENCY = (0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12)


def awaited(latency):
    """The step if everything is awaited: its computing, and 24 messages with the
    numbers that they carry."""
    return 4.577241 - 24 * 0.02 + 24 * latency


draw_curves(
    {
        "this run": [
            (each, end(retime(run, Links(latency=each, forward=8, backward=8))))
            for each in LATENCY
        ],
        "everything awaited": [(each, awaited(each)) for each in LATENCY],
    },
    across="time of a message",
    title="When the step is over, by the time that a message takes",
)

# %% [markdown]
# Taken image by image there are twice as many exchanges as with halves, and four times as many as with all images at
# once. With 0.02 a message they are just hidden: half of layer 3's backward for one image takes 0.125, and an exchange
# 0.12004. With slower messages each image waits for its own exchange, and soon a single exchange for all images is
# better, awaited or not. So the price of a message decides how many images to take at a time.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# A **group norm over a sharded grid**. With n ranks, images · groups = G, and α a message:
#
# ```
# forward              (count, Σx, Σx²) of each group    2·(n - 1)·(α + 3·G·β/n)
# variance             Σx²/N - (Σx/N)²
# backward             (Σg, Σg·x̂) of each group          2·(n - 1)·(α + 2·G·β/n)
# gradient of x        (g - Σg/N - x̂·Σ(g·x̂)/N) / σ
# ```
#
# Which norms need this when rows are shared? An *instance norm* is a group norm with one feature in each group. A
# *batch norm* also sums over all images, so over all data-parallel ranks as well as all that share an image. A *layer
# norm* over the features of a point, as in transformers, needs no exchange.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *ShardTensor*, since 2026: sums and sums of squares in one all-reduce forward; Σg and Σg·x̂ in one all-reduce
#   backward; and one more for the gradients of scale and shift, which our norm does not have. The number of points
#   follows from the shape of the whole tensor and does not travel [@physicsnemo_normalization_patches].
# - *SyncBatchNorm*, in PyTorch: mean, 1/σ and count of each process, in one all-gather; in backward two sums for each
#   channel, in one all-reduce. Everything is awaited right away, and a process without elements has a branch of its own
#   that merely takes part [@pytorch_sync_batch_norm].
# - *DDP and FSDP* do not synchronize the buffers of a norm over the ranks that share an image, says the documentation
#   of ShardTensor [@physicsnemo, part 5].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Our norm has no scale and no shift. With them there are two more numbers for each feature, whose gradients are summed
# like those of any weight. Σx²/N - (Σx/N)² loses digits if the mean is large compared with the spread, as temperatures
# in kelvin are; see question 2. A norm is hardly any work here; on a GPU it moves as much memory as a layer does. And
# one image at a time fills a GPU less well than all of them at once.

# %% [markdown]
# ## Questions to think about
#
# **1.** A rank has no rows. What does it bring to each exchange, and what would happen if it skipped them?
#
# <details><summary>Answer</summary>
#
# Zeros: no points, no sum, no squares, and in backward no gradient. If it skipped all exchanges, the others would wait
# forever. If it skipped only the first, its second would meet the first of the others: numbers of the wrong kind, and
# 64 where 96 are expected. That is why PyTorch has a branch for it.
#
# </details>
#
# **2.** Temperatures around 300 with a spread of 0.1, in floats with 7 digits. What does Σx²/N - (Σx/N)² give, and what
# would you exchange instead?
#
# <details><summary>Answer</summary>
#
# Both terms are about 90,000, so 7 digits resolve them to about 0.01. Their difference, which should be 0.01, drowns in
# that; it may even come out negative. Better: each rank brings its count, its mean, and the sum of the squared
# distances from *its* mean. Two such parts combine exactly: add the two sums, plus the squared distance between the two
# means times n·m/(n + m). These are three numbers as well, but no plain sum, so you gather them and each rank combines
# them. SyncBatchNorm gathers such triples too.
#
# </details>
#
# **3.** In backward, what goes wrong if every rank uses its own Σg and Σg·x̂? When would you not notice?
#
# <details><summary>Answer</summary>
#
# The loss of this step is right, because forward is. The gradient is not: it should have no component that shifts or
# scales the whole group; now it has none that shifts or scales *each rank's rows*. Where the parts look alike the two
# are nearly the same, so training continues and looks fine. The smaller the parts, the worse it gets.
#
# </details>
#
# **4.** Could you skip the exchange of the moments by using those of the previous step?
#
# <details><summary>Answer</summary>
#
# For a batch norm that is conceivable: its moments cover many images and change slowly. Those of a group norm belong to
# *this* image, which was never seen before. You can use a norm that needs no exchange, such as a layer norm over the
# features of each point, but that is a different model.
#
# </details>
#
# ## Where this leads
#
# A mean needs two numbers from every rank. A convolution needs whole rows, but only from its neighbours. Attention
# needs everything from every rank, unless it only looks at what is near.

# %% [markdown]
# <!-- part: links -->
