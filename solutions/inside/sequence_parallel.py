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
# A transformer layer keeps 34 bytes for backward for every number that goes through it, and more for attention. Share
# the layer among eight GPUs by tensor parallelism, and each should keep an eighth: 4.25 bytes. It keeps **13**
# [@korthikanti2022, table 2]. Three of the 13 are its eighth of the 24 that were cut. The other ten lie *between*
# the blocks, and all eight GPUs hold the same copy of them.
#
# And all eight do the same with it: the same norm, the same dropout, eight times over. So cut it. Cut its features? No:
# the column layer needs them all, and so does a norm. But each **row** stands alone. Give each rank a few rows, that
# is, a part of the text. That is **sequence parallelism**.
#
# > **To tell a friend:** an all-reduce is a reduce-scatter and an all-gather. Pause between the two, and each rank
# > holds only its own rows.
#
# *The words, once more.* An activation of one batch has 131,072 elements: 256 rows of 512 features. A
# **reduce-scatter** (the call is `scatterreduce`) adds up what all ranks bring, and gives each its own part of the sum.

# %%
from drawing import compare, draw, draw_collective, draw_curves, draw_group
from lib import Links, Model, PuzzleError, goal, predict, simulate
from lib.suite.course.solutions import run_of

PRICES = Links()  # 0.2 for a batch of activations from one rank to the next

# %% [markdown]
# ## The idea
#
# A block is still a column layer and a row layer, and its output is still a partial sum. But no rank takes the whole
# sum now: `scatterreduce(..., dim="rows")` leaves each with a quarter of the rows, all features, fully summed. Before
# the next block, an `allgather` puts the rows together. This is what rank 1 of four has between the two calls:


# %%
async def between_blocks(model: Model) -> None:
    columns, _ = model.load_weights(0, model.rank, model.RANKS, dim="out")
    rows_of_weight, _ = model.load_weights(1, model.rank, model.RANKS, dim="in")
    part = model.forward(
        1, model.forward(0, model.get_activation([0]), columns), rows_of_weight
    )
    shown.append([await model.scatterreduce(part, 2, dim="rows")])
    await model.allgather(shown[-1][0], 2)


shown: list = []
demo = simulate(between_blocks, layers=2, batches=1, ranks=4, costs=PRICES)
draw_group(shown[1])

# %% [markdown]
# A quarter of the rows, and all of their features. From the partial sum to there, the first half of an all-reduce:

# %%
draw_collective(demo, "scatterreduce")

# %% [markdown]
# And from there to the whole, the second half:

# %%
draw_collective(demo, "allgather")

# %% [markdown]
# Why gather at all? A layer takes rows one by one, so why not go on with your own? Because then each rank has put
# different rows through its share of the weights, and there is nothing to add up:


# %%
async def own_rows_only(model: Model) -> None:
    columns, _ = model.load_weights(0, model.rank, model.RANKS, dim="out")
    rows_of_weight, _ = model.load_weights(1, model.rank, model.RANKS, dim="in")
    rows = model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS)
    part = model.forward(1, model.forward(0, rows, columns), rows_of_weight)
    await model.allreduce(part, 2)


try:
    simulate(own_rows_only, layers=2, batches=1, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Backward is the mirror image. The gradient of a block's output arrives as rows, the gradient of its input leaves as a
# part of a sum. And backward reads one more thing: the *input* of the column layer. You had it whole, in forward. Do
# you still have it?
#
# ## The puzzle
#
# | ranks | layers | batches | a layer, forward or backward | an update | reduce-scatter or all-gather of an activation |
# |---|---|---|---|---|---|
# | 4 | 4 | 4 | 0.25 a batch on a quarter | 0.5 | 0.15 a batch |
#
# **Given:** the columns of layers 0 and 2 and the rows of layers 1 and 3 that are this rank's, with their optimizer
# states.
#
# **To do:** one training step in which all ranks work on all batches. The data come whole to each rank.
#
# 1. One batch at a time, and keep what was gathered. That is a correct step.
# 2. Keep your rows, let go of a block's whole input as soon as forward has used it, and gather it again for backward.
#    Do so with the data, too. They never were rows, so cut yours out: `model.shard(x, "rows", model.rank, model.RANKS)`.
# 3. That second gather needs nothing but rows that you have. When could you call it?
#
# **Rules**
#
# - Values live in the stores, and everything alive counts: what a collective will bring takes memory from its start on.
#   A run that keeps values in variables of its own while other layers are at work reaches the first goal only.
# - You may keep pending calls in a variable, a dict or a list of your own.
# - A rank loads each batch once.
# - `set_final_weight` gets this rank's shard.

# %% [markdown]
# ### Predict first
#
# Take one batch at a time, and keep rows only, of the data too: what backward reads is gathered again. How many
# collectives does a rank call? And when is the step over, if that second gather costs no time, and all other
# collectives are awaited where they are called?


# %%
guess = predict("sequence_parallel", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step, with no more memory than tensor parallelism on all batches at once. For the second,
# hold fewer batches at once. For the third, keep nothing whole from forward to backward, not even the data, and let that
# cost no time.


# %%
goal("sequence_parallel")

# %% [markdown]
# <!-- part: hints -->


# %%
async def sequence_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS, dim=dim
        )

    # For each batch: forward, loss and backward, block by block. Keep rows only.
    # --- your code (about 33 lines) ---
    for b in range(model.BATCHES):
        activations[0] = model.get_activation([b])
        rows = model.shard(activations[0], "rows", model.rank, model.RANKS)
        for block in range(0, model.LAYERS, 2):
            activations["rows", block] = rows
            if block > 0:
                activations[block] = await model.allgather(rows, block)
            middle = model.forward(block, activations.pop(block), weights[block])
            activations[block + 1] = middle
            part = model.forward(block + 1, middle, weights[block + 1])
            rows = await model.scatterreduce(part, block + 2, dim="rows")
            del middle, part

        rows = model.loss(rows)
        for block in reversed(range(0, model.LAYERS, 2)):
            grad_activations[block + 2] = await model.allgather(rows, block + 2)
            again = model.allgather(activations.pop(("rows", block)), block)
            for layer in (block + 1, block):
                if layer == block:
                    activations[layer] = await again  # it came during the layer above
                gradient, grad_activations[layer] = model.backward(
                    layer,
                    activations[layer],
                    grad_activations[layer + 1],
                    weights[layer],
                )
                del activations[layer], grad_activations[layer + 1]
                grad_weights[layer] = (
                    gradient if b == 0 else grad_weights[layer] + gradient
                )
            part = grad_activations.pop(block)
            if block > 0:
                rows = await model.scatterreduce(part, block, dim="rows")
            del part, gradient
    # --- end of your code ---

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(sequence_parallel, puzzle="sequence_parallel")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Computing takes 10, as in tensor parallelism. A gather or a scatter of one batch takes 0.15. Keep what was gathered,
# and a batch needs six of them. Forward: scatter after the first block, gather before the second, scatter after the
# second. Backward: gather the gradient, scatter it after the second block, gather it for the first. For four batches
# that is 24 collectives and 3.6: over at 13.6, as with three all-reduces.
#
# And memory? A batch keeps the inputs of four layers for backward. Two of them are features, a quarter each. The other
# two are whole: 2.5 activations in all. Keep rows of those instead, and it is 1 activation. But now each block gathers
# its input once more: 32 collectives, 4.8, over at 14.8. Start that gather before the row layer's backward, which takes
# 0.25, and it costs no time: 13.6 again.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="sequence_parallel")

# %% [markdown]
# ### Beside tensor parallelism
#
# The same step on the same links. Your tensor parallelism had two batches in flight, and hid its sums. Compare the
# memory, and what is sent. (AG is an all-gather, RS a reduce-scatter, AR an all-reduce, U an update.)

# %%
run, _ = run_of("sequence_parallel")  # yours, once it is correct
before, _ = run_of("tensor_parallel")
compare({"tensor parallel": before, "sequence parallel": run}) if out else None

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## More GPUs, less and less
#
# Back to the 34 bytes. Of a real layer, tensor parallelism on *t* GPUs leaves 10 + 24 / *t* bytes for each number that
# goes through, and with sequence parallelism it is 34 / *t* [@korthikanti2022]. What attention keeps of its own comes
# on top of both.

# %%
draw_curves(
    {
        "tensor": [(t, 10 + 24 / t) for t in (1, 2, 4, 8, 16)],
        "tensor + sequence": [(t, 34 / t) for t in (1, 2, 4, 8, 16)],
    },
    across="GPUs that share a layer",
    up="bytes kept for each number",
    title="What a transformer layer keeps for backward",
    lowest=False,
)

# %% [markdown]
# The upper curve has a floor at 10, however many GPUs you buy. The lower has none.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Sequence parallelism** as Megatron-LM has it, on top of tensor parallelism. With *n* ranks, *B* batches, *L = 2K*
# layers, *u* for an update, and *g* for the gather of a batch (a scatter takes as long):
#
# ```
# kept gathered      collectives: 4K - 2    kept of a batch: K + K/n activations    as tensor parallel, in everything
# gathered again     collectives: 5K - 2    kept of a batch: 2K/n activations
# waiting for all    time: 2·L·B/n + u·L + collectives·B·g
# sent by a rank     collectives·B·(n - 1)/n activations
# ```
#
# So it sends what tensor parallelism sends, plus one gather a block: the price of throwing away and fetching again.
# Checkpointing makes the same trade and pays with compute. Here you pay with communication, which can be hidden.
#
# The other collectives can be hidden as well, behind a second batch: `reveal("sequence_parallel")` has a way with two
# batches in flight (10.3, 1,441,792 elements; twice the code), and one in which no rank waits (10.0, 1,474,560).
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **What stands between.** A norm, a dropout, the residual connection: in a transformer, these are what each rank now
#   does on its own rows only. That saves a little time: the forward of a layer took 7.2 ms instead of 7.7
#   [@korthikanti2022, table 4].
# - **What it frees.** From 13 to 4.25 bytes on eight GPUs. Together with computing attention's own part again it was
#   five times less memory [@korthikanti2022].
# - **At 32 GPUs a layer**, the largest batch that fitted went from 20 to 100, and each GPU did 3,610 tokens a second
#   instead of 2,146 [@ultrascale_playbook].
# - **A trap: the norm's own weight.** Each rank has seen only its rows, so the gradient of that weight is a partial sum
#   over rows: all-reduce it over the ranks that share the layer. Forget it, and nothing crashes.
# - **In PyTorch**, `SequenceParallel` stands for the norm, and `ColwiseParallel` and `RowwiseParallel` get layouts that
#   say that rows come in and rows go out.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# There is no norm between our blocks, so the rows have nothing to do but wait. A real collective has a cost of its own
# to start, and two calls pay it twice. An update takes 0.5 however small the shard is. And the data come whole to each
# rank, for free; a real loader would bring the rows only, and the first block would gather them in forward as well.

# %% [markdown]
# ## Questions to think about
#
# **1.** Tensor parallelism with one batch at a time needs 1,245,184 elements, sequence parallelism 1,179,648. Why is
# that only 5 % less?
#
# <details><summary>Answer</summary>
#
# With one batch in flight, most of it is not kept, but in use: the activation that was just gathered, the gradient that
# arrives, the part of a sum. These are whole in both. What is *kept* is small. The more batches and layers wait for
# their backward, the more there is to gain; with a hundred layers, what is in use is nothing beside what is kept.
#
# </details>
#
# **2.** Weights can be gathered for each layer, as in FSDP, or rows of activations, as here. What decides?
#
# <details><summary>Answer</summary>
#
# Whichever is smaller. A weight has *F·F* elements, and an activation *rows·F*. If a rank's batch has fewer rows than
# the layer has features, moving activations is cheaper. That is why large models with small batches for each GPU share
# layers, and why the same model with a lot of data for each GPU does better with FSDP.
#
# </details>
#
# **3.** Does the loss need all rows?
#
# <details><summary>Answer</summary>
#
# No. The loss of a row depends on that row, and so does its gradient. So the last block needs no gather forward: its
# rows go into the loss, and rows of the gradient come out. They are gathered for backward of the row layer. Sum the
# numbers of the loss if you want to print them: that is one number a rank.
#
# </details>
#
# **4.** Why not keep the rows of what is between the layers *of* a block as well?
#
# <details><summary>Answer</summary>
#
# It is cut already, into features: a quarter for each rank. Between the column layer and the row layer nothing is held
# twice.
#
# </details>
#
# **5.** Scatter along the features, `dim="features"`, and the check accepts it, at the same price. Take four batches at
# once and leave `dim` out, and each rank gets one of them, whole. Why rows, then?
#
# <details><summary>Answer</summary>
#
# Because of what stands there in a real model. A norm needs all features of a row, so a quarter of them is no use.
# Whole batches would do, but then you need as many as ranks: the check also tries one batch on two, and there it ends. A
# large model on many GPUs has one batch in flight, not eight. There are always enough rows: thousands in every text.
#
# </details>
#
# ## Where this leads
#
# You hid one gather behind a multiplication. All the others still make a rank wait, and a large model often has no
# second batch to go on with. But a multiplication is made of rows, too. Which of them could it begin with? That is the
# deeper puzzle after this one.
#
# The core path asks something else. In all of this a row of an activation never needed another row. Which layer of a
# transformer does?

# %% [markdown]
# <!-- part: links -->
