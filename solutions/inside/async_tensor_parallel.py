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
# Eight GPUs share each layer of a Llama model, and at the end of each block they wait for a sum. How long? PyTorch hid
# that wait, and forward of the 70B model became up to 20 % faster, of the small one up to 29 % [@he2024]. So for up to
# a sixth of forward the 70B model's GPUs had been watching a link.
#
# In tensor parallelism you hid the sum of one batch behind the multiplications of the next. Now there is one batch, and
# no next. But look at a multiplication: a row of its output needs one row of its input, not the other 255. So multiply
# the first before the last arrives. That is **async tensor parallelism**.
#
# > **To tell a friend:** don't gather and then multiply. Multiply the rows you have while the next ones travel.
#
# *The words, once more.* Sequence parallelism calls the two halves of an all-reduce separately: a **reduce-scatter**
# leaves each rank with the sum of its own rows, and an **all-gather** brings the rows together again.
# `model.shift(value, layer)` passes a value to the next rank, and the last one passes it to the first.

# %%
from drawing import draw, draw_curves, draw_group
from lib import Links, Model, PuzzleError, goal, predict, retime, simulate
from lib.analysis.figures import end
from lib.schedules.given import backward, forward, given, update
from lib.suite.course.solutions import run_of

PRICES = Links()  # 0.2 for a batch of activations from one rank to the next

# %% [markdown]
# ## The idea
#
# Four ranks, and rank 2 has its own quarter of the rows: a **chunk**. Layer 0 is cut into columns, and needs all rows.
# An all-gather takes 0.15, and then comes a multiplication of 0.25. Take both apart: three shifts of 0.05, four
# multiplications of 0.0625. The first multiplication needs no shift at all.
#
# The first two chunks. Each rank sends its own off, multiplies it, and then multiplies the one that has arrived:


# %%
async def two_chunks(model: Model) -> None:
    columns, _ = model.load_weights(0, model.rank, model.RANKS, dim="out")
    data = model.get_activation([0])
    own = model.shard(data, "rows", model.rank, model.RANKS)
    passing = model.shift(own, 0)  # sent off: no await
    first = model.forward(0, own, columns)
    arrived = await passing
    second = model.forward(0, arrived, columns)
    shown[model.rank] = [[own, columns, first], [arrived, columns, second]]


shown: dict = {}
demo = simulate(two_chunks, layers=1, batches=1, ranks=4, costs=PRICES)
draw(demo)

# %% [markdown]
# The shift is there, and no rank waited for it. What rank 2 multiplied first, and what second:

# %%
draw_group(shown[2][0])

# %%
draw_group(shown[2][1])

# %% [markdown]
# Two more shifts, and it has its features of all rows: the same numbers as after a gather.
#
# The row layer is the other half. It makes a part of a sum for all rows, and each rank wants the whole sum of its own.
# So let the *sum* travel: make your part for one chunk, send it on, and make the part for another chunk meanwhile. Add
# what arrives to what you have just made. In the end each sum has been on all four ranks. It should end on the rank
# that owns those rows, and that depends on where it starts. With your own rows, for instance?


# %%
async def own_rows_first(model: Model) -> None:
    columns, _ = model.load_weights(0, model.rank, model.RANKS, dim="out")
    rows_of_weight, _ = model.load_weights(1, model.rank, model.RANKS, dim="in")
    features = model.forward(0, model.get_activation([0]), columns)
    own = model.shard(features, "rows", model.rank, model.RANKS)
    part = model.forward(1, own, rows_of_weight)
    part + await model.shift(part, 2)


try:
    simulate(own_rows_first, layers=2, batches=1, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Backward has the same two halves. Which of its two layers takes chunks as they come, and which sends sums home? Each
# chunk gives a part of the gradient of a weight, and these add up.
#
# ## The puzzle
#
# | ranks | layers | batches | a layer on a quarter of the weight | on a chunk of it | a shift of a chunk | an update |
# |---|---|---|---|---|---|---|
# | 4 | 4 | 1 | 0.25 | 0.0625 | 0.05 | 0.5 |
#
# Forward and backward take the same time. An all-reduce of all rows takes 0.3, each of its halves 0.15.
#
# **Given:** the columns of layers 0 and 2 and the rows of layers 1 and 3 that are this rank's, with their optimizer
# states. The data come whole to each rank, as `activations[0]`. A chunk lies under the key `[layer, owner]`, where `owner`
# is the rank that the rows belong to. And helpers, which delete what nothing reads any more:
#
# | helper | what it does |
# |---|---|
# | `cut(layer)` | cuts `activations[layer]` into the chunks of all ranks, `activations[layer, owner]` |
# | `forward(model, layer, owner)` | makes `activations[layer + 1, owner]` from `activations[layer, owner]`, which stays for backward |
# | `backward(model, layer, owner)` | makes `grad_activations[layer, owner]` from `grad_activations[layer + 1, owner]`, unless no layer reads it, and adds the gradient of the weight to `grad_weights[layer]` |
# | `update(model, layer)` | updates a layer, and uses up the gradient of its weight |
# | `await gather_and(work, layer, store, rows)` | the first half, as above: `work(model, layer, owner)` for one chunk after the other, while the next chunk of `store[rows, ...]` travels. Afterwards all of them are here. `work` is `forward` or `backward`, and `rows` is the number under which the chunks lie, such as 2 for activation 2 |
#
# Without `owner` the first three take all rows at once. `coming` lists the owners as `gather_and` takes them: your own
# rows first, then those that arrive.
#
# **To do:** one training step in which all ranks work on all rows.
#
# 1. Write the other half as a function with the same arguments: `work` makes the parts of sums `store[rows, ...]`, and
#    the sums travel until each is at home.
# 2. Make the step of these two, each time with a shift that is called before a multiplication and awaited after it.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts: what a shift will bring takes memory from its start on. Park
#   a value in a variable while something else runs, and only the first goal counts.
# - You may keep pending calls in a dict or a list of your own.
# - A layer may be updated as soon as the gradient of its weight is whole.
# - `set_final_weight` gets this rank's shard.

# %% [markdown]
# ### Predict first
#
# Cut each of the three all-reduces into shifts of a chunk, six of them, and await each shift where you call it. How
# many collectives does a rank call, and when is the step over?

# %%
guess = predict("async_tensor_parallel", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step, with any collectives. For the second, no rank waits for a chunk; keep for backward
# what you like. For the third, keep only your own rows of each block's input, as in sequence parallelism, and gather
# them again. Find something to hide *that* behind.

# %%
goal("async_tensor_parallel")

# %% [markdown]
# <!-- part: hints -->


# %%
async def async_tensor_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS, dim=dim
        )
    activations[0] = model.get_activation(range(model.BATCHES))

    me = model.rank

    def cut(layer):  # all rows, into the chunks of all ranks
        for owner in range(model.RANKS):
            activations[layer, owner] = model.shard(
                activations[layer], "rows", owner, model.RANKS
            )
        del activations[layer]

    coming = [(me - step) % model.RANKS for step in range(model.RANKS)]
    passing = {}

    @given
    async def gather_and(work, layer, store, rows):
        for owner in coming:
            if rows > 0 and owner != me:  # the data are all here
                store[rows, owner] = await passing.pop("rows")
            if rows > 0 and owner != coming[-1]:
                passing["rows"] = model.shift(store[rows, owner], rows)
            work(model, layer, owner)

    # The other half. Then forward, loss and backward, chunk by chunk; update every
    # layer.
    # --- your code (about 24 lines) ---
    # In the order in which rows come; but own rows last, to end at home.
    async def and_send_home(work, layer, store, rows):
        for owner in coming[1:] + coming[:1]:
            work(model, layer, owner)
            if rows == 0:  # nothing reads the gradient of the data
                continue
            if owner != coming[1]:
                store[rows, owner] += await passing.pop("sum")
            if owner != me:
                passing["sum"] = model.shift(store.pop((rows, owner)), rows)

    cut(0)
    for block in range(0, model.LAYERS, 2):
        await gather_and(forward, block, activations, block)
        for owner in coming[1:]:
            del activations[block, owner]
        await and_send_home(forward, block + 1, activations, block + 2)

    grad_activations[model.LAYERS, me] = model.loss(activations.pop((model.LAYERS, me)))
    for block in reversed(range(0, model.LAYERS, 2)):
        await gather_and(backward, block + 1, grad_activations, block + 2)
        again = model.allgather(activations.pop((block, me)), block)
        update(model, block + 1)
        activations[block] = await again
        cut(block)
        await and_send_home(backward, block, grad_activations, block)
        update(model, block)
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(async_tensor_parallel, puzzle="async_tensor_parallel")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Computing takes 4: four layers forward and backward, 0.25 each, and four updates. Three all-reduces take 0.9, so a
# step that awaits them is over at 4.9. Each is six shifts of 0.05 (three to scatter the sum, three to gather the rows):
# 18 collectives for three. If each is awaited where it is called, they take 0.9 as well, and the step is over at 4.9.
# More collectives, and no gain. The gain is in *what you do* between the call and the `await`.
#
# Sent chunk by chunk and not awaited, each 0.05 fits behind a multiplication of 0.0625: 4.0, all of it computing.
# Gathering two inputs again for backward makes it 20 collectives.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="async_tensor_parallel")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What a shift costs
#
# Until now a shift cost only what it moves. On real links each one has a start-up cost too, its **latency**. Here is
# that run with more and more of it, beside a training step that awaits everything.

# %%
run, _ = run_of("async_tensor_parallel")  # yours, once it is correct
LATENCIES = (0, 0.005, 0.01, 0.0125, 0.015, 0.02, 0.03, 0.04)
draw_curves(
    {
        "this run": [
            (latency, end(retime(run, Links(latency=latency)))) for latency in LATENCIES
        ],
        "everything awaited": [(latency, 4.9 + 18 * latency) for latency in LATENCIES],
    },
    across="latency of a shift",
    title="When the step is over, by the latency of a shift",
)

# %% [markdown]
# Up to 0.0125 a shift still fits behind a chunk, and costs nothing. From there on a rank waits for the rest of each of
# the 18 shifts. With a latency of 0.02 a shift takes 0.07 and a chunk 0.0625: 18 times 0.0075 is waited for, and the
# step is over at 4.135. Everything awaited, it is 5.26.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Async tensor parallelism**, which the field also calls a **collective matmul** or overlapped tensor parallelism.
# With *n* ranks, *B* batches, *L = 2K* layers, updates of *u* and a latency of *a*:
#
# ```
# a chunk is multiplied in     c = B/n²
# a shift of a chunk takes     p = 0.2·B/n + a
# everything awaited           2·L·B/n + u·L + (2K - 1)·2(n - 1)·p      in chunks or not
# chunks that travel           2·L·B/n + u·L                           if p is no more than c
#                              ... + (2K - 1)·2(n - 1)·(p - c)        if it is more
# ```
#
# Without latency p is no more than c up to five ranks, however many batches there are. The more ranks, the smaller a
# rank's share of a layer, and the smaller the chunk: *c* falls with the square of *n*, and *p* only with *n*. At eight
# ranks the ring turns at the pace of the links.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **How much.** Up to 29 % of forward for the small Llama and up to 20 % for 70B; of a whole step, about 8 %
#   [@he2024]. On 256 H100s each did 876 tokens of the 70B model a second instead of 829
#   [@torchtitan_llama3_h100, in float8].
# - **Who writes it.** The compiler. `torch.compile` looks for a gather before a multiplication, and for a
#   multiplication before a reduce-scatter, and fuses each pair: `fused_all_gather_matmul` is the first half of what you
#   wrote [@vllm]. In torchtitan it is an option, and refuses to run without `torch.compile`
#   [@torchtitan_tensor_parallel].
# - **A trap.** It looks for a pattern. Write the layer as a batched product, `torch.bmm`, and nothing matches, nothing
#   is hidden, and nothing tells you [@automodel_docs, `tp_linear`].
# - **Elsewhere.** Megatron-LM has it as `--tp-comm-overlap`, and used it on up to 6,144 H100s, at an MFU of 47 to 48 %
#   [@megatron].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Four multiplications of a quarter take as long as one of the whole. On a GPU they take longer: a small matrix does not
# fill it, and each is a kernel to launch. A shift takes nothing from the multiplication beside it; on a GPU both use
# memory bandwidth, and a shift that runs as a kernel occupies processors, too. An update takes 0.5 here, as long as two
# layers forward, and so it hides a gather with ease. And many trainers clip gradients by their norm: nothing is updated
# until all are known.

# %% [markdown]
# ## Questions to think about
#
# **1.** A rank begins a gather with its own rows, and a sum with those of the rank before it. Why is that the only
# order in which no rank waits?
#
# <details><summary>Answer</summary>
#
# Its own rows are the only ones that it has. After one shift come those of the rank before, then of the one before
# that. A sum travels the same way round, and after three shifts it is on the rank before the one where it began. So on
# rank *r* the sum for rank *r* - 1 begins, and its own sum comes by last, with every part but its own.
#
# </details>
#
# **2.** Cut the rows into two halves, treat them as two batches, and hide the all-reduce of the one behind the other,
# as you did with batches. No ring, no shift, 4.0. Why go to the trouble?
#
# <details><summary>Answer</summary>
#
# In this network it is a good idea. Written simply it needs 1,032,192 elements, as activations are whole on each rank,
# and with some care no more than the ring. With a latency of 0.02 it is over at 4.12, a little before the ring. But in
# a transformer every other block is attention, in which a row asks all rows before it: two halves of a text are not two
# batches. The ring stays inside one multiplication, whatever comes before or after it. With several texts, halves of
# the batch do work.
#
# </details>
#
# **3.** Cut each chunk in two, so that there are eight: shifts of half the size, and twice as many. What do you gain?
#
# <details><summary>Answer</summary>
#
# Here, nothing: a half is sent in 0.025 and multiplied in 0.03125, and all shifts are hidden already. With latency it
# gets worse, because there are twice as many to start. It would help if two shifts could run at once: the halves could
# go round in opposite directions, and use both directions of the links.
#
# </details>
#
# **4.** Your third goal hides an all-gather in one piece behind an update. Could you hide the 18 shifts like that, and
# do without chunks?
#
# <details><summary>Answer</summary>
#
# In backward, nearly: update layer 3 and then layer 2 while the sum for layer 1 is on its way, as a plain all-reduce.
# What an update cannot hide is what comes before the first of them: the sums of forward, and the gather of the loss's
# gradient.
#
# </details>
#
# ## Where this leads
#
# You have cut weights, sums and rows, and hidden what travels between the parts. In all of that a row of an activation
# never needed another row. Which layer of a transformer does?

# %% [markdown]
# <!-- part: links -->
