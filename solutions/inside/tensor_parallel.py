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
# When Llama 3 405B was trained on 16,384 GPUs, a batch held 16 million tokens: 2,048 texts of 8,192 [@llama3]. So far
# you have split the batch: a text for you, a text for me. Here there are eight GPUs for every text, and seven of them
# would watch.
#
# So eight GPUs work on the *same* text, at the same time, in the same layer. A layer is a multiplication with a large
# matrix, and a matrix can be cut: **tensor parallelism**. Data parallelism, FSDP and pipelines get more layers done;
# this makes one layer take less time. The price: the ranks talk inside every layer, and wait for every word.
#
# > **To tell a friend:** cut the first matrix into columns and the second into rows, and two layers cost one sum.
#
# *The words, once more.* A weight has 262,144 elements (512 by 512), an activation of one batch 131,072 (256 rows of
# 512 features). An **all-reduce** adds up what all ranks bring, and gives each the sum.

# %%
from drawing import compare, draw, draw_collective, draw_curves, draw_group
from lib import Links, Model, PuzzleError, goal, predict, retime, simulate
from lib.analysis.figures import end
from lib.schedules.data_parallel import ddp, fsdp
from lib.schedules.given import backward, forward, in_turn, update
from lib.suite.course.solutions import run_of

PRICES = Links()  # 0.2 for a batch of activations from one rank to the next

# %% [markdown]
# ## The idea
#
# A layer here is `y = tanh(x) @ W`: each row of `x` is multiplied with the matrix `W`. There are two ways to cut `W`
# among four ranks.
#
# **Into columns** (`dim="out"`). A column of `W` makes one number of each row of `y`. So a rank with a quarter of the
# columns makes a quarter of the **features** of `y`, and they are right as they are. It needs all of `x`.
#
# **Into rows** (`dim="in"`): these are the shards of FSDP, and pictures and messages still call them `shard 1 of 4`. A
# row of `W` is multiplied with one feature of `x`. So a rank with a quarter of the rows needs a quarter of the features
# of `x`, and nothing else. What it makes has the full size, but every number in it is only a **part of a sum**: the
# other ranks have the other terms.
#
# Columns need everything and give a quarter. Rows need a quarter and give a part of everything. Put one after the
# other: the quarter that leaves the first is just the quarter that the second needs. Look at rank 1 of four, with one
# batch: what it holds after layer 0, then the **partial sum** that layer 1 makes of it (*partial* is PyTorch's word,
# too):


# %%
async def one_block(model: Model) -> None:
    columns, _ = model.load_weights(0, model.rank, model.RANKS, dim="out")
    rows, _ = model.load_weights(1, model.rank, model.RANKS, dim="in")
    data = model.get_activation([0])
    features = model.forward(0, data, columns)
    part = model.forward(1, features, rows)
    whole = await model.allreduce(part, 2)
    shown.append([[columns, rows, data, features], [columns, rows, part], [whole]])


shown: list = []
demo = simulate(one_block, layers=2, batches=1, ranks=4, costs=PRICES)
draw_group(shown[1][0])

# %%
draw_group(shown[1][1])

# %% [markdown]
# Pale means: a part of a sum. An all-reduce makes it whole, on all four ranks:

# %%
draw_collective(demo, "allreduce")

# %% [markdown]
# Forget the sum, and the next operation refuses. The `tanh` of a partial sum is not a part of the `tanh` of the sum.
# All you can do with partial sums is add them up:


# %%
async def too_early(model: Model) -> None:
    columns, _ = model.load_weights(0, model.rank, model.RANKS, dim="out")
    rows, _ = model.load_weights(1, model.rank, model.RANKS, dim="in")
    model.loss(
        model.forward(1, model.forward(0, model.get_activation([0]), columns), rows)
    )


try:
    simulate(too_early, layers=2, batches=1, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Two layers like this are a **block**. Backward runs through it from the other end: `backward` of the row layer, then
# `backward` of the column layer. One of the two leaves a partial sum. Which one is for you to work out.
#
# ## The puzzle
#
# | ranks | layers | batches | a layer, forward or backward | an update | all-reduce of an activation |
# |---|---|---|---|---|---|
# | 4 | 4 | 4 | 0.25 a batch on a quarter | 0.5 | 0.3 a batch |
#
# **Given:** the columns of layers 0 and 2 and the rows of layers 1 and 3 that are this rank's, with their optimizer
# states. And three helpers for what you have written often enough. They delete what nothing reads any more:
#
# | helper | what it does |
# |---|---|
# | `forward(model, layer, b)` | makes `activations[layer + 1, b]` from `activations[layer, b]`, which stays for backward |
# | `backward(model, layer, b)` | makes `grad_activations[layer, b]` from `grad_activations[layer + 1, b]`, unless no layer reads it, and adds the gradient of the weight to `grad_weights[layer]` |
# | `update(model, layer)` | updates a weight, and uses up its gradient |
#
# **To do:** one training step in which all ranks work on all batches. An all-reduce
# costs what it moves: of two batches at once it takes 0.6.
#
# 1. Write the step of one batch, `one_batch(b)`, from the data to the gradients of the weights, and await each sum that
#    something reads. One batch after the other, then the updates: that is a correct step.
# 2. Now let batches take turns. A function with a `yield` stops there, and goes on when its turn comes again;
#    `await in_turn(one_batch(b) for b in batches)` gives turns to all of them until they are over. (A function with a
#    `yield` cannot be awaited by itself.) Where should a batch stop?
# 3. How many batches need to be in flight? (There may be an odd number of batches.)
#
# **Rules**
#
# - Values live in the stores, and everything alive counts: what an all-reduce will bring takes memory from its start
#   on. Park a value in a variable while something else runs, and only the first goal counts.
# - You may keep pending calls in a dict or a list of your own.
# - `set_final_weight` gets this rank's shard.

# %% [markdown]
# ### Predict first
#
# Take one batch after the other, await every all-reduce where you call it, and sum only what something reads. How many
# all-reduces does a rank call, and when is the step over?

# %%
guess = predict("tensor_parallel", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step, the second one in which no rank waits for a sum. The third asks for that in less
# memory.

# %%
goal("tensor_parallel")

# %% [markdown]
# <!-- part: hints -->


# %%
async def tensor_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS, dim=dim
        )

    # Forward, loss and backward of every batch; then update every layer.
    # --- your code (about 22 lines) ---
    async def one_batch(b: int):
        activations[0, b] = model.get_activation([b])
        for layer in range(model.LAYERS):
            forward(model, layer, b)
            if layer % 2 == 1:  # rows give a part of a sum
                after = layer + 1, b
                coming = model.allreduce(activations.pop(after), layer + 1)
                yield
                activations[after] = await coming
        top = model.LAYERS, b
        grad_activations[top] = model.loss(activations.pop(top))
        for layer in reversed(range(model.LAYERS)):
            backward(model, layer, b)
            if layer % 2 == 0 and layer > 0:  # so do columns, on the way back
                before = layer, b
                coming = model.allreduce(grad_activations.pop(before), layer)
                yield
                grad_activations[before] = await coming

    for first in range(0, model.BATCHES, 2):
        await in_turn(one_batch(b) for b in range(first, min(first + 2, model.BATCHES)))
    for layer in range(model.LAYERS):
        update(model, layer)
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(tensor_parallel, puzzle="tensor_parallel")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# A rank computes a quarter of each layer: four layers of 0.25 for four batches are 4 forward, 4 backward, and four
# updates take 2. That is 10 in any case. Each of the two blocks owes a sum forward. Backward the second owes one; what
# the first would sum is the gradient of the data, which nothing reads. Three sums for each of four batches are 12
# all-reduces of 0.3, together 3.6: over at 13.6. Sum the gradient of the data as well, and it is 14.8.
#
# Take all four batches at once, and you call three all-reduces that take four times as long: 13.6 again, because here a
# message costs only what it carries.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="tensor_parallel")

# %% [markdown]
# ### What four ranks could do instead
#
# The same step on the same links: DDP, FSDP, and your tensor parallelism. Note what the first two need: a batch for
# every rank.

# %%
others = {
    "ddp": simulate(ddp, layers=4, batches=4, ranks=4, costs=PRICES),
    "fsdp": simulate(fsdp, layers=4, batches=4, ranks=4, costs=PRICES),
}
run, _ = run_of("tensor_parallel")  # yours, once it is correct
compare({**others, "tensor parallel": run} if out else others)

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## How fast must the link be?
#
# Every block of every batch waits for its sum, or hides it behind another batch. The slower the link, the harder that
# is. Here is your run on links of other speeds, and with a **latency**: what every message takes, however small it is.

# %%
draw_curves(
    {
        f"latency {latency}": [
            (slow, end(retime(run, Links(p2p=slow * 0.2, latency=latency))))
            for slow in (0.5, 1, 2, 4, 8)
        ]
        for latency in (0, 0.05)
    },
    across="how much slower the link is "
    "(1: a batch takes 0.2 from one rank to another)",
    title="When the step is over, by the speed of the link",
)

# %% [markdown]
# While a sum takes no longer than a block of the other batch, the curve is flat: no rank waits. Then it climbs with the
# slowness of the link. Between hosts every message starts later, and one card carries 50 GB/s where NVLink carries 450.
# This bend is one reason why tensor parallelism usually stops at the walls of a host. The others would remain with a
# faster link: every further cut makes the matrices narrower, and there are only so many heads to share out.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Tensor parallelism** as Megatron-LM does it: a column layer and a row layer make a block, and *K* blocks owe *2K -
# 1* all-reduces a batch. With *n* ranks, *B* batches, *L = 2K* layers, *u* for an update and *s* for the all-reduce of a batch:
#
# ```
# waiting for all    time: 2·L·B/n + u·L + (2K - 1)·B·s
# two in flight      time: 2·L·B/n + u·L                  if s is no more than a block of one batch, 2/n
# sent by a rank     (2K - 1)·B·2·(n - 1)/n activations
# ```
#
# The weights, gradients and optimizer states of a rank are *1/n* of the model, as in FSDP, and they never travel. The
# activations between the blocks are whole on every rank: that memory is left, for puzzle $number_sequence_parallel.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **Two in a transformer.** Attention and the network after it are a block each: the heads are the columns of the
#   first. So a transformer layer owes two all-reduces forward and two backward [@narayanan2021].
# - **Eight.** With tensor parallelism over 8 GPUs each did 10,903 tokens a second; over 16, in two hosts, 6,246; over
#   32, 2,146 [@ultrascale_playbook]. It worked best when it filled a host and went no further [@narayanan2021].
# - **Why eight, by arithmetic.** A block of *F* features computes in proportion to *F/n* and talks in proportion to
#   what is between the blocks. On H100s the two are equal at about *n* = 11 for *F* = 28,672 [@scaling_book].
# - **Nothing to go on with?** In real training a rank usually waits for the sum of a layer: it has no second batch in
#   flight. To hide the sum behind the multiplication that makes it, cut both into chunks: puzzle
#   $number_async_tensor_parallel.
# - **In PyTorch** you name it: `parallelize_module` with `ColwiseParallel` for the first layer of a block and
#   `RowwiseParallel` for the second.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Our layers are all 512 by 512; in a real block the features between the two are four times as many, so that there is
# more to compute for what is sent. An update takes 0.5 however small the shard is. The all-reduce of a batch runs
# beside the multiplications of another at full speed; on a GPU the two share its memory, and some of its cores are busy
# sending.

# %% [markdown]
# ## Questions to think about
#
# **1.** Cut all four layers into columns. What has to be sent then, and how much more is it?
#
# <details><summary>Answer</summary>
#
# After each layer every rank has a quarter of the features, and the next needs all: an all-gather a layer, which moves
# half of what an all-reduce moves. Two gathers for a block cost as much as one all-reduce, forward. Backward, a
# column layer leaves a part of a sum, and the layer before it reads a quarter of the features of that sum: a
# reduce-scatter, half an all-reduce again. Four gathers and three scatters move as much as 3.5 all-reduces; yours
# are 3. Half an all-reduce more is all, however many blocks there are; but a rank calls twice as often, and keeps the
# whole input of every layer for backward.
#
# </details>
#
# **2.** Rows first, then columns: why not?
#
# <details><summary>Answer</summary>
#
# A row layer needs a quarter of the features. Cut them out of the data: nothing to send. It gives partial sums; add
# them up, and a column layer goes on with the whole. Then there is a quarter of the features again: gather it, or let
# the next block begin with rows. So there is a sum after every row layer as before, and the blocks have just been
# shifted by one layer, which helps at the ends at most.
#
# </details>
#
# **3.** The optimizer states of a rank belong to its shards. Why is there no all-reduce of weight gradients, as in DDP?
#
# <details><summary>Answer</summary>
#
# Each rank has seen all the batches. No other rank has the gradient of its shard, so there is nothing to add up. With
# data parallelism as well, say two rows of four, each shard is on two ranks that have seen different batches, and those
# two sum its gradient: over the other axis of the mesh.
#
# </details>
#
# **4.** A layer norm needs the mean over all features of a row. Where in a block does it go?
#
# <details><summary>Answer</summary>
#
# Where the activation is whole: before the column layer. There every rank computes the same, which is little work done
# *n* times over, and keeps the same activation, which is a lot of memory *n* times over. Puzzle
# $number_sequence_parallel cuts that activation.
#
# </details>
#
# ## Where this leads
#
# Between two blocks all ranks hold the same activation, and do the same with it. How much of it could each rank drop?

# %% [markdown]
# <!-- part: links -->
