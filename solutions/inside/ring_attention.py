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
# On eight H100s you can train an 8-billion-parameter model on texts of 262,144 tokens [@torchtitan_llama3_h100]. In
# attention each token looks at all tokens before it: 34 billion pairs, in every head of every layer. No single GPU has
# the time for them, or the memory for the activations of such a text.
#
# So cut the *text*: each GPU takes an eighth of the tokens. Most of the model does not notice, because a linear layer
# works row by row. Attention does. A token in the last eighth attends to all tokens before it, and nearly all of those
# are on other GPUs.
#
# > **To tell a friend:** queries stay at home, keys and values go round, and no GPU ever holds the whole text.
#
# *The words, once more.* For each token, attention makes a **query**, a **key** and a **value**. A query is compared
# with the keys of all tokens up to its own. Each comparison gives a **score**; the result is the mean of the values,
# weighted by the exponentials of the scores. That weighting is the **softmax**.

# %%
from math import exp

from drawing import draw, draw_attention, draw_collective, draw_curves, draw_group
from lib import Layer, Links, Model, PuzzleError, goal, predict, retime, simulate
from lib.analysis.figures import end
from lib.schedules.given import backward, forward, given, update
from lib.suite.course.solutions import run_of

PRICES = Links()  # 0.2 for 131,072 elements from one rank to the next
TOKENS = 4096
LAYERS = [
    # Layer 0: the data gives keys and values, 512 numbers each.
    Layer(outputs=1024, rows=TOKENS),
    # Layer 1: the data asks, activation 1 is asked.
    Layer("attention", rows=TOKENS, heads=4, kv_heads=4, of=(0, 1)),
    Layer(rows=TOKENS),  # layer 2
]

# %% [markdown]
# ## The idea
#
# Give each of four ranks a quarter of the tokens. Cut the pairs of queries and keys the same way, and you get 16
# **blocks**:
#
# | | keys of rank 0 | of rank 1 | of rank 2 | of rank 3 |
# |---|---|---|---|---|
# | **queries of rank 0** | half | | | |
# | **of rank 1** | all | half | | |
# | **of rank 2** | all | all | half | |
# | **of rank 3** | all | all | all | half |
#
# A token attends to no later token (the **causal mask**), so blocks above the diagonal are empty, and those on it are
# half full. Each row of the table is one rank's work. A rank starts with its own block. For the others it lacks the
# keys and values.
#
# Let them go round. Each rank passes its keys and values to the next one, and gets those of the one before: a
# **shift**. After one shift rank 2 has the keys of rank 1, after two those of rank 0. After three it has those of rank
# 3, which come later in the text: the mask leaves nothing to compute, and that takes no time.
#
# But how do you take a softmax over keys that arrive bit by bit? Its weights add up to 1 over *all* keys. Try one query
# with four keys, two at a time:

# %%
scores, values = [0.0, 1.0, 4.0, 2.0], [1.0, 2.0, 3.0, 4.0]


def attend(keys: range) -> tuple[float, float]:
    """The sum of the weighted values, and that of the weights."""
    weights = [exp(scores[key]) for key in keys]
    return sum(
        weight * values[key] for weight, key in zip(weights, keys, strict=True)
    ), sum(weights)


whole, first, second = attend(range(4)), attend(range(2)), attend(range(2, 4))
print(f"all four keys at once:        {whole[0] / whole[1]:.4f}")
mean = (first[0] / first[1] + second[0] / second[1]) / 2
divided = (first[0] + second[0]) / (first[1] + second[1])
print(f"mean of the two results:      {mean:.4f}")
print(f"both sums added, then divided: {divided:.4f}")

# %% [markdown]
# The mean of two results is wrong: keys with high scores must count for more, whichever part they are in. So keep two
# *sums*, of the weighted values and of the weights, and divide once you have seen all keys. (A real kernel also keeps
# the highest score so far, because the exponential of a large score overflows. That is the **online softmax**: two
# extra numbers for each query and head.)
#
# You need not write this: `forward(1, queries, keys)` gives these sums for the keys that you hand it, and `+` adds them
# up correctly. Rank 2, first with its own keys, then after one shift:


# %%
async def one_shift(model: Model) -> None:
    weight, _ = model.load_weights(0)
    queries = model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS)
    keys = model.forward(0, queries, weight)  # and values
    result = model.forward(1, queries, keys)
    shown[model.rank] = [
        {"queries": queries, "keys and values": keys, "result": result}
    ]
    keys = await model.shift(keys, 1)
    result = result + model.forward(1, queries, keys)
    shown[model.rank].append(
        {"queries": queries, "keys and values": keys, "result": result}
    )


shown: dict = {}
demo = simulate(one_shift, layers=LAYERS, batches=1, ranks=4, costs=PRICES)
draw_group(shown[2][0])

# %%
draw_group(shown[2][1])

# %% [markdown]
# Pale means partial: some keys are still missing. The shift between the two:

# %%
draw_collective(demo, "shift")

# %% [markdown]
# Use a result before it has seen all its keys, and the next operation refuses it:


# %%
async def too_early(model: Model) -> None:
    weight, _ = model.load_weights(0)
    last, _ = model.load_weights(2)
    queries = model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS)
    result = model.forward(1, queries, model.forward(0, queries, weight))
    model.loss(model.forward(2, result, last))


try:
    simulate(too_early, layers=LAYERS, batches=1, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Backward has the same blocks, and each gives two gradients. The one of the queries belongs to this rank; here the
# queries are the data, and nothing reads it. The one of the keys and values is a partial sum: **every rank that attended to a key
# owes it a gradient**, and the rank that owns the key needs the whole sum.
#
# ## The puzzle
#
# | ranks | tokens | layer 0 | a block of attention | your own block | layer 2 | a pass of keys and values |
# |---|---|---|---|---|---|---|
# | 4 | 4,096, so 1,024 each | 8 | 16 | 8.008 | 4 | 1.6 |
#
# These are times forward on a rank; backward takes the same again. An update takes 1 for layer 0 and 0.5 for layer 2,
# and the all-reduces of their weights' gradients 1.2 and 0.6. Why 4,096 tokens and not the 256 of other puzzles? Twice
# the tokens are four times the pairs, but only twice the keys to pass on. With 64 tokens on a rank a block takes
# 0.0625, a pass 0.1, and there is nothing to hide a pass behind. Ring attention is for long texts.
#
# **Given:** the weights of layers 0 and 2, whole on every rank; the data of this rank's tokens, `activations[0]`; and
# their keys and values, `activations[1, 0]`, so layer 0 is done. Keys that have come `step` passes far go under
# `activations[1, step]`. And helpers, which delete what nothing reads any more:
#
# | helper | what it does |
# |---|---|
# | `take_back(step)` | backward of attention with the keys and values `activations[1, step]`, which it uses up: makes the gradient that this rank owes them, `grad_activations[1, step]`, from `grad_activations[2]`, which stays |
# | `forward(model, layer)` | for layer 2: makes `activations[3]` from `activations[2]` |
# | `backward(model, layer)` | for layers 2 and 0: makes `grad_weights[layer]` and, if something reads it, `grad_activations[layer]` from `grad_activations[layer + 1]` |
# | `update(model, layer)` | updates a weight, and uses up its gradient |
#
# **To do:** one training step. Attention forward is `model.forward(1, queries, keys)`: it takes the data and keys and
# values, and gives a part of activation 2.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts: what a shift will bring takes memory from its start on. Park
#   a value in a variable while something else runs, and only the first goal counts.
# - You may keep pending operations in a dict or a list of your own.
# - `model.shift(value, layer)` passes a value to the next rank, from the last one to the first.

# %% [markdown]
# ### Predict first
#
# Await every shift and every all-reduce where you call it. Begin with your own block, forward and backward, and keep no
# keys but your own in between. How many collectives does a rank call, and when is the step over?

# %%
guess = predict("ring_attention", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step. For the second, no rank waits for keys: they travel while others are in use. One
# pass in backward is still exposed; for the third, do without it.

# %%
goal("ring_attention")

# %% [markdown]
# <!-- part: hints -->


# %%
async def ring_attention(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 2):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    data = model.get_activation(range(model.BATCHES))
    activations[0] = model.shard(data, "rows", model.rank, model.RANKS)
    del data

    activations[1, 0] = model.forward(0, activations[0], weights[0])

    @given
    def take_back(step):  # backward of attention, with keys that came `step` passes far
        grad_activations[1, step], _ = model.backward(
            1, activations[0], grad_activations[2], activations.pop((1, step))
        )

    # Attention, layer 2 and the loss, and all the way back; then update layers 0 and 2.
    # --- your code (about 28 lines) ---
    passing = {"keys": model.shift(activations[1, 0], 1)}
    activations[2] = model.forward(1, activations[0], activations[1, 0])
    for step in range(1, model.RANKS):
        activations[1, step] = await passing.pop("keys")
        if step < model.RANKS - 1:
            passing["keys"] = model.shift(activations[1, step], 1)
        activations[2] += model.forward(1, activations[0], activations.pop((1, step)))

    passing["keys"] = model.shift(activations[1, 0], 1)  # backward needs them again
    forward(model, 2)
    grad_activations[3] = model.loss(activations.pop(3))
    backward(model, 2)
    sums = {2: model.allreduce(grad_weights.pop(2), 2)}

    for step in range(1, model.RANKS):
        activations[1, step] = await passing.pop("keys")
        if step < model.RANKS - 1:
            passing["keys"] = model.shift(activations[1, step], 1)
        take_back(step)
        if step > 1:
            grad_activations[1, step] += await passing.pop("gradient")
        passing["gradient"] = model.shift(grad_activations.pop((1, step)), 1)
    take_back(0)
    grad_activations[1] = grad_activations[1, 0] + await passing.pop("gradient")
    del grad_activations[1, 0], grad_activations[2]

    backward(model, 0)
    sums[0] = model.allreduce(grad_weights.pop(0), 0)
    for layer in (2, 0):
        grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
    # --- end of your code ---

    for layer in (0, 2):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(ring_attention, puzzle="ring_attention")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Rank 3 has the most to do: three whole blocks and its own, 56.008, forward and backward. With 8 and 4 for the other
# layers, twice, and 1.5 for the updates that is 137.516: with these tokens rank 3 computes for that long, whatever the
# schedule. Awaited, there are three shifts forward, three in backward and four of gradients: ten of 1.6. And two
# all-reduces, 1.8 together: 12 collectives, over at 155.316.
#
# With passes before computing all are hidden but the last, in which the gradients come home, and of the all-reduces
# what is longer than an update: 137.516 + 1.6 + 0.7 = 139.816. Do your own block last, and that 1.6 is gone as well.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="ring_attention")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## The table fills up
#
# The table of blocks again, as your run filled it: queries down, keys across, each block in the colour of the rank that
# worked on it, paler when it is done. After each shift the blocks lie one step further from the diagonal, and one more
# rank is idle. The bars show how long each rank works.

# %%
run, _ = run_of("ring_attention")  # yours, once it is correct
draw_attention(run)

# %% [markdown]
# ## How slow may the link be?
#
# A pass takes a tenth of a block here. Forward, one pass hides behind each block; backward, two: keys and a gradient.
# Behind your own block, which is half full, one hides at most. Here is your run on slower links, next to the time with
# every pass awaited.

# %%
SLOW = (1, 2, 4, 5, 6, 8, 10, 12)
draw_curves(
    {
        "this run": [(slow, end(retime(run, Links(p2p=slow * 0.2)))) for slow in SLOW],
        "every pass awaited": [
            (slow, 137.515625 + slow * (10 * 1.6 + 1.8)) for slow in SLOW
        ],
    },
    across="how much slower the link is (1: a pass of keys and values takes 1.6)",
    title="When the step is over, by the speed of the link",
)

# %% [markdown]
# Up to five times slower, two passes fit behind a block and one behind half of it, and only the all-reduce at the end
# grows. Beyond that the ring turns at the pace of the link. With longer texts the bend comes later, because blocks grow
# faster than passes.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Ring attention**, one way to do **context parallelism**. With *n* ranks and *t* tokens on each, 512 features, and a
# block of *b* = *t*²/65,536, a pass of *p* = *t*/640 time units:
#
# ```
# attention, forward, awaited      (n - 1)·(b + p) + b/2
# attention, forward, overlapped   (n - 1)·b + b/2          if p is no more than b/2, from t = 205 on
# backward, overlapped             the same                 likewise: keys and a gradient behind each block
# keys and values on a rank        own, in use, coming: 3 parts, and with n·t tokens gathered n parts
# ```
#
# The last line is why the ring exists: double the ranks, and you can double the text without using more memory on any
# rank.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **How long.** An 8B model on 8 H100s, the text cut in 8: 262,144 tokens, with 84.5 GiB on each GPU
#   [@torchtitan_llama3_h100]. Those H100s have 96 GB; the usual ones have 80.
# - **Where it comes from.** Blockwise ring attention, forward and backward, dates from 2023 [@liu2023]. Inside a block,
#   a kernel like FlashAttention does the same with smaller blocks and keeps the same two numbers.
# - **Or gathered.** Llama 3 gathers the keys and values of all ranks before attention, without a ring [@llama3]. Its
#   keys and values are small: several query heads share one key head.
# - **How well.** On eight H800s a plain ring reached 53.9 % of the speed of FlashAttention with a perfectly even eighth
#   of the work, forward and backward [@ring_flash_attention]. Look at the timeline of rank 0, and imagine eight ranks:
#   waiting alone would explain a loss of almost half.
# - **Which dim?** Gather or shift along a dim other than the tokens, and all shapes may still fit. In torchtitan a
#   transpose had moved the heads to where the tokens used to be, and the all-gather followed the number
#   [@torchtitan_3206].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# The queries are the data itself; a real layer computes them with a weight of their own, and needs their gradient.
# Backward of a block takes as long as forward here. On a GPU it takes more than twice as long: five matrix products
# instead of two, because the scores are recomputed. A shift in flight takes nothing away from the block being computed.
# The weights are whole on every rank, with their optimizer states; add FSDP over the same ranks, and they need not be.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why do keys and values travel, and not the queries?
#
# <details><summary>Answer</summary>
#
# A query that travels must carry its partial result and two numbers for each head: about as much as a key and a value.
# And then it must return home. With grouped heads the case is clear: in Llama 3 8B, keys and values together are half
# as large as the queries (8 heads each, against 32), and in 405B an eighth (8 each, against 128).
#
# </details>
#
# **2.** An all-gather of all keys takes 4.8, and your own block takes 8. So it can be hidden, in one piece. Why a ring?
#
# <details><summary>Answer</summary>
#
# Because of memory. The gathered keys and values of 4,096 tokens are 4.2 million elements on each rank, those of
# 262,144 tokens 268 million, in each layer, and more ranks do not help. Backward needs room for as many gradients, and
# their reduce-scatter can only start once the last block is done. For few key heads and forward alone, gathering is
# simple and good.
#
# </details>
#
# **3.** In this ring a rank receives keys of tokens later than its own, does nothing with them, and passes them on. Who
# needs them?
#
# <details><summary>Answer</summary>
#
# No rank does. The keys of rank 3 visit ranks 0, 1 and 2 for nothing, those of rank 2 visit 0 and 1, and those of
# rank 1 visit 0: six of the twelve passes forward. With `pass_to` you could leave them out. That would send half as
# much and end at the same time, because rank 3 does not wait for its passes anyway. Without the causal mask all are
# needed.
#
# </details>
#
# **4.** Count: how much of the time does rank 0 compute attention, and how much rank 3?
#
# <details><summary>Answer</summary>
#
# Rank 0 has its own block, 8.008 forward, and rank 3 has 56.008: 7 times as much. In the middle of the step rank 0
# waits. All four together have 128.03, which would be 32.008 for each. The lower bound in your review spreads the whole
# step that evenly, and is 89.02: this ring takes 49 time units longer.
#
# </details>
#
# ## Where this leads
#
# All ranks have the same number of tokens, and one has seven times the work of another. Must a rank's share be a single
# piece of the text? That is the deeper puzzle, zigzag. The core path goes on with experts: what if not every token
# needs every weight?

# %% [markdown]
# <!-- part: links -->
