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
# For every number that goes through a transformer layer, the layer keeps 34 bytes for backward, and more for attention. Give
# the layer to eight GPUs by tensor parallelism, and each should keep 34 / 8 = 4.25. It keeps 13 [@korthikanti2022, tables 2 and 4]. Three bytes are its
# eighth of what was cut. The other ten are what lies *between* the blocks, and of that all eight have the same copy.
#
# They do the same with it, too: the same norm, the same dropout, eight times over. So cut it. Not its features, because
# the column layer needs them all, and a norm does as well. But no row of it has to do with any other. Let each rank
# have a few **rows**, that is, a part of the text. That is **sequence parallelism**, and it sends no byte more than
# before. At least not at first.
#
# > **To tell a friend:** an all-reduce is a reduce-scatter and an all-gather. Pause between the two, and you hold only your
# > own rows. But you save only what you are ready to gather again.
#
# *The words, once more.* An activation of one batch has 131,072 elements: 256 rows of 512 features. A
# **reduce-scatter** adds up what all ranks bring, and gives each its own part of the sum.

# %%
from drawing import compare, draw, draw_collective, draw_curves, draw_group
from lib import Links, Model, PuzzleError, goal, predict, simulate
from lib.suite.course.solutions import run_of

PRICES = Links()  # 0.2 for a batch of activations from one rank to the next

# %% [markdown]
# ## The idea
#
# A block is still a column layer and a row layer, and what comes out is still a partial sum. But now not every rank
# gets the whole sum: `scatterreduce(..., dim="rows")` leaves each rank with a quarter of the rows, all features, and
# the sum done. Before the next block, an `allgather` puts the rows together. Here is what rank 1 of four holds between
# the two calls:


# %%
async def between_blocks(model: Model) -> None:
    columns, _ = model.load_weights(0, model.rank, model.RANKS, dim="out")
    rows_of_weight, _ = model.load_weights(1, model.rank, model.RANKS, dim="in")
    part = model.forward(1, model.forward(0, model.get_activation([0]), columns), rows_of_weight)
    rows = await model.scatterreduce(part, 2, dim="rows")
    await model.allgather(rows, 2)
    shown.append([rows])


shown: list = []
demo = simulate(between_blocks, layers=2, batches=1, ranks=4, costs=PRICES)
draw_group(shown[1])

# %% [markdown]
# From the part to the rows, the first half of an all-reduce:

# %%
draw_collective(demo, "scatterreduce")

# %% [markdown]
# From the rows to the whole, the second half:

# %%
draw_collective(demo, "allgather")

# %% [markdown]
# Why gather at all? A layer takes rows one by one, so a rank could go on with its own. But then each rank has put
# different rows through its share of the weights, and the next sum has nothing to add up:


# %%
async def own_rows_only(model: Model) -> None:
    columns, _ = model.load_weights(0, model.rank, model.RANKS, dim="out")
    rows_of_weight, _ = model.load_weights(1, model.rank, model.RANKS, dim="in")
    rows = model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS)
    part = model.forward(1, model.forward(0, rows, columns), rows_of_weight)
    await model.scatterreduce(part, 2, dim="rows")


try:
    simulate(own_rows_only, layers=2, batches=1, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Backward is the mirror of it. The gradient of a block's output arrives as rows, and the row layer needs it whole:
# gather. The gradient of a block's input is a part of a sum: scatter. And backward also reads the *input* of the column
# layer. You had it whole, in forward. Whether you still have it is what this puzzle is about.
#
# ## The puzzle
#
# | ranks | layers | batches | a layer, forward or backward | an update | reduce-scatter or all-gather of an activation |
# |---|---|---|---|---|---|
# | 4 | 4 | 4 | 0.25 a batch on a quarter | 0.5 | 0.15 a batch |
#
# **Given:** the columns of layers 0 and 2 and the rows of layers 1 and 3 that are this rank's, with their optimizer states.
#
# **To do:** one training step in which all ranks work on all batches. The data come whole to each rank.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts: what a collective will bring takes memory from its start on.
# - Works may wait in a dict or a list of your own.
# - Each example is read once on a rank.
# - `set_final_weight` gets this rank's shard.

# %% [markdown]
# ### Predict first
#
# Take all four batches at once and await every collective where you call it. From forward to backward keep only rows of the
# two blocks' inputs, the data too, and gather them again. How many collectives does a rank call, and when is the step over?

# %%
guess = predict("sequence_parallel", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step with no more memory than tensor parallelism that takes all batches at once. For the
# second you keep a quarter of each block's input. (Tensor parallelism with one batch at a time gets there, too: fewer
# batches are another way to save, but no way to the third.) In the third, two batches are in flight and hide each
# other's collectives, with less memory than two batches of tensor parallelism, which are 1,703,936 elements.

# %%
goal("sequence_parallel")

# %% [markdown]
# <!-- part: hints -->


# %%
async def sequence_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS, dim=dim)

    # Forward, loss and backward, block by block, keeping rows only; then update every layer.
    # --- your code (about 56 lines) ---
    scattered, gathered = {}, {}  # calls by layer and batch: rows on their way, and what is whole again
    again = {}  # the same for inputs that backward needs once more

    async def hand_on(keep=False):
        for number, b in list(scattered):
            rows = await scattered.pop((number, b))
            if number == model.LAYERS:
                rows = model.loss(rows)
            elif keep:
                activations["rows", number, b] = rows
            gathered[number, b] = model.allgather(rows, number)
            del rows

    def take_back(layer, b):
        grad_weights[layer, b], grad_activations[layer, b] = model.backward(
            layer, activations[layer, b], grad_activations[layer + 1, b], weights[layer]
        )
        del activations[layer, b], grad_activations[layer + 1, b]
        if b > 0:
            grad_weights[layer, b] = grad_weights[layer, b] + grad_weights.pop((layer, b - 1))

    def gather_again(block, b):
        if ("rows", block, b) in activations:
            again[block, b] = model.allgather(activations.pop(("rows", block, b)), block)

    for first in range(0, model.BATCHES, 2):
        batches = range(first, min(first + 2, model.BATCHES))
        forward = [(block, b) for block in range(0, model.LAYERS, 2) for b in batches]
        backward = [(block, b) for block in reversed(range(0, model.LAYERS, 2)) for b in batches]

        for block, b in forward:
            if block == 0:
                activations[0, b] = model.get_activation([b])
                activations["rows", 0, b] = model.shard(activations[0, b], "rows", model.rank, model.RANKS)
            else:
                if (block, b) not in gathered:
                    await hand_on(keep=True)
                activations[block, b] = await gathered.pop((block, b))
            activations[block + 1, b] = model.forward(block, activations[block, b], weights[block])
            del activations[block, b]
            await hand_on(keep=True)  # what the batch before has left: scattered by now
            activations[block + 2, b] = model.forward(block + 1, activations[block + 1, b], weights[block + 1])
            scattered[block + 2, b] = model.scatterreduce(activations.pop((block + 2, b)), block + 2, dim="rows")

        for (block, b), following in zip(backward, [*backward[1:], None], strict=True):
            if (block + 2, b) not in gathered:
                await hand_on()
            grad_activations[block + 2, b] = await gathered.pop((block + 2, b))
            take_back(block + 1, b)
            gather_again(block, b)
            await hand_on()
            if following:
                gather_again(*following)  # so that it is there in time
            activations[block, b] = await again.pop((block, b))
            take_back(block, b)
            if block > 0:
                scattered[block, b] = model.scatterreduce(grad_activations[block, b], block, dim="rows")
            del grad_activations[block, b]

    for layer in range(model.LAYERS):
        grad_weights[layer] = grad_weights.pop((layer, model.BATCHES - 1))
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
    # --- end of your code ---

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
# Computing takes 10 as in tensor parallelism. A gather or a scatter of all four batches takes 0.6. Forward there are three:
# scatter after the first block, gather before the second, scatter after the second. Backward, without gathering anything
# again: gather the gradient, scatter it after the second block, gather it for the first. Six are 3.6: over at 13.6, as with
# three all-reduces. Now gather the inputs of both blocks again: eight collectives, 4.8, over at 14.8.
#
# And memory? A batch keeps, from forward to backward, the inputs of four layers. Two of them are features, a quarter each. The
# other two are whole in tensor parallelism: 2.5 activations. As rows they are a quarter each, too: 1 activation.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="sequence_parallel")

# %% [markdown]
# ### Beside tensor parallelism
#
# The same step, the same links. Look at the memory, and at how much more is sent.

# %%
run, _ = run_of("sequence_parallel")  # yours, once it is correct
before, _ = run_of("tensor_parallel")
compare({"tensor parallel": before, "sequence parallel": run})

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## More GPUs, less and less
#
# Back to the 34 bytes. Of a real layer, tensor parallelism on *t* GPUs leaves 10 + 24 / *t* bytes for each number that goes
# through, and with sequence parallelism it is 34 / *t* [@korthikanti2022]. What attention keeps of its own comes on top of both.

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
# **Sequence parallelism** as Megatron-LM has it, on top of tensor parallelism. With *n* ranks, *B* batches, *L = 2K* layers,
# and *g* for the gather of a batch (a scatter takes as long):
#
# ```
# kept gathered      collectives: 4K - 2    kept of a batch: K + K/n activations    as tensor parallel, in everything
# gathered again     collectives: 5K - 2    kept of a batch: 2K/n activations
# waiting for all    time: 2·L·B/n + u·L + collectives·B·g
# sent by a rank     collectives·B·(n - 1)/n activations
# ```
#
# So the bytes are those of tensor parallelism, plus one gather a block: the price of throwing away and fetching again.
# Checkpointing makes the same trade and pays with compute. Here you pay with communication, which can be hidden.
#
# Two batches at a time wait only 0.3, at the turn from forward to backward: there the sum of the one batch, the
# gradient of the other and the rows of both want the link at once. Start the first of these gathers a block earlier, while
# forward still runs, and no rank waits: 10.0, with a quarter of an activation more, 1,474,560 elements.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **What stands between.** A norm, a dropout, the residual connection: in a transformer, these are what each rank now does on
#   its own rows only. That saves a little time: the forward of a layer took 7.2 ms instead of 7.7 [@korthikanti2022].
# - **What it frees.** From 13 to 4.25 bytes on eight GPUs. Together with computing attention's own part again it was five times
#   less memory [@korthikanti2022].
# - **At 32 GPUs a layer**, the largest batch that fitted went from 20 to 100, and each GPU did 3,610 tokens a second
#   instead of 2,146 [@ultrascale_playbook].
# - **A trap: the norm's own weight.** Each rank has seen only its rows, so the gradient of that weight is a partial sum
#   over rows: all-reduce it over the ranks that share the layer. Forget it, and nothing crashes.
# - **In PyTorch**, `SequenceParallel` stands for the norm, and `ColwiseParallel` and `RowwiseParallel` get layouts that say
#   that rows come in and rows go out.
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
# **1.** Tensor parallelism with one batch at a time needs 1,245,184 elements, sequence parallelism 1,179,648. Why so little
# less?
#
# <details><summary>Answer</summary>
#
# With one batch in flight, most of it is not kept, but in use: the activation that was just gathered, the gradient that
# arrives, the part of a sum. These are whole in both. What is *kept* is small. The more batches and layers wait for their
# backward, the more there is to gain; with a hundred layers, what is in use is nothing beside what is kept.
#
# </details>
#
# **2.** Weights can be gathered for each layer, as in FSDP, or rows of activations, as here. What decides?
#
# <details><summary>Answer</summary>
#
# Whichever is smaller. A weight has *F·F* elements, and an activation *rows·F*. If a rank's batch has fewer rows than the layer
# has features, moving activations is cheaper. That is why large models with small batches for each GPU share layers, and
# why the same model with a lot of data for each GPU does better with FSDP.
#
# </details>
#
# **3.** Does the loss need all rows?
#
# <details><summary>Answer</summary>
#
# No. The loss of a row depends on that row, and so does its gradient. So the last block needs no gather forward: its rows go
# into the loss, and rows of the gradient come out. They are gathered for backward of the row layer. Sum the numbers of the
# loss if you want to print them: that is one number a rank.
#
# </details>
#
# **4.** Why not keep the rows of what is between the layers *of* a block as well?
#
# <details><summary>Answer</summary>
#
# It is cut already, into features: a quarter for each rank. Between the column layer and the row layer nothing is held twice.
#
# </details>
#
# **5.** Scatter along the features, `dim="features"`, or leave `dim` out, so that each rank gets a batch: the check
# accepts both, at the same price. Why rows, then?
#
# <details><summary>Answer</summary>
#
# Because of what stands there in a real model. A norm needs all features of a row, so a quarter of them is no use.
# Whole batches would do, but then you need as many as ranks, and a large model on many GPUs has one batch in flight,
# not eight. There are always enough rows: thousands in every text.
#
# </details>
#
# ## Where this leads
#
# You hid the gathers of one batch behind the multiplications of another. A GPU that trains a large model often has no
# second batch. But a multiplication is made of rows, too. Which of them could it begin with?

# %% [markdown]
# <!-- part: links -->
