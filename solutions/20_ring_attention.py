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
# On eight H100s an 8-billion-parameter model can be trained on texts of 262,144 tokens [1]. In attention each token looks at
# all tokens before it: 34 billion pairs, in every head of every layer. No GPU has the time for them, and no GPU has the room
# for the activations of such a text.
#
# So the *text* is cut: each GPU takes an eighth of the tokens. Almost nothing in a model minds, because a linear layer takes
# row by row. Attention minds. A token in the last eighth asks all those before it, and seven of eight of these are somewhere
# else.
#
# > **To tell a friend:** queries stay at home, keys and values go round, and nobody ever has the whole text.
#
# *Reminder.* For each token, attention makes a **query**, a **key** and a **value**. A query is compared with the keys of
# all tokens up to its own. Each comparison gives a **score**; the result is the mean of the values, weighted by the
# exponentials of the scores. That weighting is the **softmax**.

# %%
from math import exp

from drawing import draw, draw_attention, draw_collective, draw_curves, draw_group
from lib import Layer, Links, Model, PuzzleError, goal, predict, retime, simulate
from lib.analysis.figures import end
from lib.suite.course.solutions import run_of

PRICES = Links()  # 0.2 for 131,072 elements from one rank to the next
TOKENS = 4096
LAYERS = [
    Layer(outputs=1024, rows=TOKENS),  # layer 0: the data gives keys and values, 512 numbers each
    Layer("attention", rows=TOKENS, heads=4, kv_heads=4, of=(0, 1)),  # layer 1: the data asks, activation 1 is asked
    Layer(rows=TOKENS),  # layer 2
]

# %% [markdown]
# ## The idea
#
# Four ranks, each with a quarter of the tokens. Cut the pairs of queries and keys in the same way, and you get 16 **blocks**:
#
# | | keys of rank 0 | of rank 1 | of rank 2 | of rank 3 |
# |---|---|---|---|---|
# | **queries of rank 0** | half | | | |
# | **of rank 1** | all | half | | |
# | **of rank 2** | all | all | half | |
# | **of rank 3** | all | all | all | half |
#
# A token looks at no token after it, so above the diagonal there is nothing to do, and on it half. Each row of the table is
# one rank's work. It can begin with its own block. For the others it needs keys and values that it does not have.
#
# Let them go round. Each rank passes its keys and values to the next one, and gets those of the one before: a **shift**.
# After one shift rank 2 has the keys of rank 1, after two those of rank 0. After three it gets those of rank 3, which come
# later in the text: there is nothing to compute with them, and that takes no time.
#
# That leaves one question: a softmax over keys that come bit by bit? The weights of a softmax add up to 1 over *all* keys.
# Here is one query with four keys, two at a time:

# %%
scores, values = [0.0, 1.0, 4.0, 2.0], [1.0, 2.0, 3.0, 4.0]


def attend(keys: range) -> tuple[float, float]:
    """The sum of the weighted values, and that of the weights."""
    weights = [exp(scores[key]) for key in keys]
    return sum(weight * values[key] for weight, key in zip(weights, keys, strict=True)), sum(weights)


whole, first, second = attend(range(4)), attend(range(2)), attend(range(2, 4))
print(f"all four keys at once:        {whole[0] / whole[1]:.4f}")
print(f"mean of the two results:      {(first[0] / first[1] + second[0] / second[1]) / 2:.4f}")
print(f"both sums added, then divided: {(first[0] + second[0]) / (first[1] + second[1]):.4f}")

# %% [markdown]
# The mean of two results is wrong: keys with high scores should count for more, in whichever part they are. So a result that
# is not done keeps the *sums*, of weighted values and of weights, and they are divided when all keys have been seen. (To be
# exact, it keeps the highest score too, because the exponential of a high one is too large for a float. It is two numbers
# more for each query and head.)
#
# You need not write this. `forward(1, queries, keys)` gives such sums for the keys that are there, and `+` adds them up as it
# should be. Here is rank 2, first with its own keys, then after one shift:


# %%
async def one_shift(model: Model) -> None:
    weight, _ = model.load_weights(0)
    queries = model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS)
    keys = model.forward(0, queries, weight)  # and values
    result = model.forward(1, queries, keys)
    shown[model.rank] = [{"queries": queries, "keys and values": keys, "result": result}]
    keys = await model.shift(keys, 1)
    result = result + model.forward(1, queries, keys)
    shown[model.rank].append({"queries": queries, "keys and values": keys, "result": result})


shown: dict = {}
demo = simulate(one_shift, layers=LAYERS, batches=1, ranks=4, costs=PRICES)
draw_group(shown[2][0])

# %%
draw_group(shown[2][1])

# %% [markdown]
# Pale means: not done yet, there are keys it has not seen. The shift between the two:

# %%
draw_collective(demo, "shift")

# %% [markdown]
# Go on with a result that has not seen all its keys, and the next operation notices:


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
# In backward the blocks are the same, and each gives two things. The gradient of the queries is this rank's own; here the
# queries are the data, so nobody wants it. The gradient of keys and values is a part of a sum: **each rank that
# asked a key owes it something.** The rank that the key belongs to needs all of that sum.
#
# ## The puzzle
#
# | ranks | tokens | layer 0 | a block of attention | your own block | layer 2 | a pass of keys and values |
# |---|---|---|---|---|---|---|
# | 4 | 4,096, so 1,024 each | 8 | 16 | 8.008 | 4 | 1.6 |
#
# These are times forward on a rank; backward takes the same again. An update takes 1 for layer 0 and 0.5 for layer 2, and the
# all-reduces of their weights' gradients 1.2 and 0.6. Why 4,096 tokens and not the 256 of other puzzles? Twice the tokens
# are four times the pairs, but only twice the keys to pass on. With 64 tokens on a rank a block takes 0.0625, a pass 0.1, and
# there is nothing to hide a pass behind. Ring attention is for long texts.
#
# **Given:** the weights of layers 0 and 2, whole on every rank, and the data of this rank's tokens.
#
# **To do:** one training step. Attention, layer 1, has no weight: `model.forward(1, queries, keys)` takes activation 0 and
# activation 1, and `model.backward(1, queries, gradient, keys)` gives the gradient of the keys (and values) and that of the
# queries, in this order.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts: what a shift will bring takes memory from its start on.
# - Works may wait in a dict or a list of your own.
# - `model.shift(value, layer)` passes a value to the next rank, from the last one to the first.

# %% [markdown]
# ### Predict first
#
# Await every shift and every all-reduce where you call it, and begin with your own block, forward and backward. The gradient
# of the keys follows them round, and then goes home. How many collectives does a rank call, and when is the step over?

# %%
guess = predict("ring_attention", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step. For the second, nobody waits for keys: they travel while others are in use. For the third,
# look for a pass in backward that nothing hides, and for one that nobody needs.

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

    # Forward, loss and backward of this rank's tokens; then update layers 0 and 2.
    # --- your code (about 33 lines) ---
    last = model.RANKS - 1
    activations[1, 0] = model.forward(0, activations[0], weights[0])  # the keys and values of these rows
    passing = {"keys": model.shift(activations[1, 0], 1)}
    activations[2] = model.forward(1, activations[0], activations[1, 0])
    for step in range(1, model.RANKS):
        activations[1, step] = await passing.pop("keys")
        if step < last:
            passing["keys"] = model.shift(activations[1, step], 1)
        activations[2] = activations[2] + model.forward(1, activations[0], activations.pop((1, step)))

    passing["keys"] = model.shift(activations[1, 0], 1)  # backward needs them again
    activations[3] = model.forward(2, activations[2], weights[2])
    grad_activations[3] = model.loss(activations.pop(3))
    grad_weights[2], grad_activations[2] = model.backward(2, activations.pop(2), grad_activations.pop(3), weights[2])
    sums = {2: model.allreduce(grad_weights.pop(2), 2)}

    for step in range(1, model.RANKS):
        activations[1, step] = await passing.pop("keys")
        if step < last:
            passing["keys"] = model.shift(activations[1, step], 1)
        part, _ = model.backward(1, activations[0], grad_activations[2], activations.pop((1, step)))
        if step > 1:
            part = part + await passing["gradient"]
        passing["gradient"] = model.shift(part, 1)
        del part, _
    grad_activations[1], _ = model.backward(1, activations[0], grad_activations.pop(2), activations.pop((1, 0)))
    grad_activations[1] = grad_activations[1] + await passing["gradient"]
    del _

    grad_weights[0], _ = model.backward(0, activations.pop(0), grad_activations.pop(1), weights[0])
    del _
    sums[0] = model.allreduce(grad_weights.pop(0), 0)
    for layer in (2, 0):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
    # --- end of your code ---

    for layer in (0, 2):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(ring_attention, puzzle="ring_attention")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>Where do these numbers come from?</summary>
#
# Rank 3 has the most to do: three whole blocks and its own, 56.008, forward and backward. With 8 and 4 for the other layers,
# twice, and 1.5 for the updates that is 137.516: as long as rank 3 has these tokens, it computes for that long. Awaited, there
# are three shifts forward, three in backward and four of gradients: ten of 1.6. And two all-reduces, 1.8 together:
# 12 collectives, over at 155.316.
#
# With passes before computing all are hidden but the last, in which the gradients come home, and of the all-reduces what is
# longer than an update: 137.516 + 1.6 + 0.7 = 139.816. The own block last, and that 1.6 is gone as well.
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
# The table of blocks again, as this run filled it forward: queries down, keys across, each block in the colour of the rank that
# worked on it, paler when it is done. After each shift the blocks lie one further from the diagonal, and one rank more has
# nothing to do. The bars say how long each works.

# %%
run, _ = run_of("ring_attention")  # yours, once it is correct
draw_attention(run)

# %% [markdown]
# ## How slow may the link be?
#
# A pass takes a tenth of a block here. Forward there is one pass to hide behind each block, in backward there are two: keys
# and a gradient. Here is that run under slower links, and beside it what it would take if all were awaited.

# %%
SLOW = (1, 2, 4, 5, 6, 8, 10, 12)
draw_curves(
    {
        "this run": [(slow, end(retime(run, Links(p2p=slow * 0.2)))) for slow in SLOW],
        "every pass awaited": [(slow, 137.516 + slow * (10 * 1.6 + 1.8)) for slow in SLOW],
    },
    across="how much slower the link is (1: a pass of keys and values takes 1.6)",
    title="When the step is over, by the speed of the link",
)

# %% [markdown]
# Up to five times slower, two passes fit behind a block, and only the all-reduce at the end grows. Then the ring turns at the
# pace of the link. With longer texts the bend comes later, because blocks grow faster than passes.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Ring attention**, one way to do **context parallelism**. With *n* ranks and *t* tokens on each, 512 features, and a block of
# *b* = *t*²/65,536, a pass of *p* = *t*/640 time units:
#
# ```
# attention, forward, awaited      (n - 1)·(b + p) + b/2
# attention, forward, overlapped   (n - 1)·b + b/2          if p is no more than b, from t = 103 on
# backward, overlapped             the same                 if 2·p is no more than b, from t = 205 on
# keys and values on a rank        own, in use, coming: 3 parts, and with n·t tokens gathered n parts
# ```
#
# The last line is why the ring exists. With twice as many ranks a text may be twice as long, and each rank has as much as
# before.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *How long.* An 8B model on 8 H100s, the text cut in 8: 262,144 tokens, with 84.5 GiB on each GPU [1].
# - *Where it comes from.* Ring attention with blocks, forward and backward, is of 2023 [2]. Within a block a kernel like
#   FlashAttention does the same with smaller blocks, and keeps the same two numbers.
# - *Or gathered.* Llama 3 gathers keys and values of all ranks before attention, in place of a ring [3]. Its keys and values
#   are small: several heads of queries share one head of keys.
# - *How well.* Of what eight H800s could do, a plain ring reached 53.9 % in forward and backward [4]. Look at the
#   timeline of rank 0, and think of eight ranks.
# - *Which dim?* Gather or shift along a dim that is not the tokens, and all shapes may still fit. It has happened, after a
#   transpose [5].
#
# [1] pytorch/torchtitan, *benchmarks/llama3_h100_202412_torchtitan.md*, 2024. [2] Liu et al., *Ring Attention with Blockwise
# Transformers for Near-Infinite Context*, 2023, arXiv 2310.01889. [3] Grattafiori et al., *The Llama 3 Herd of Models*, 2024,
# arXiv 2407.21783. [4] zhuzilin/ring-flash-attention, README. [5] pytorch/torchtitan, issue 3206.

# %% [markdown]
# ## What is simplified here
#
# The queries are the data itself; a real layer makes them with a matrix of their own, and wants their gradient. Backward of a
# block takes as long as forward, and on a GPU more than twice as long: five products for two, as the scores are worked out
# anew. A shift that travels takes nothing from the block that is computed. The weights are whole on every rank, with their
# optimizer states; add FSDP over the same ranks, and they need not be.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why do keys and values travel, and not the queries?
#
# <details><summary>Answer</summary>
#
# A query that travels has to take its result with it, or what there is of it, with the two numbers of each head: as much as
# a key and a value. And then it has to go home. With grouped heads, as in Llama 3, keys and values are a quarter or an eighth
# of the queries, so it is clear which to send.
#
# </details>
#
# **2.** An all-gather of all keys takes 4.8, and your own block takes 8. So it can be hidden, in one piece. Why a ring?
#
# <details><summary>Answer</summary>
#
# For the memory. The gathered keys and values of 4,096 tokens are 4.2 million elements on each rank, those of 262,144 tokens
# 268 million, in each layer, and it does not help to take more ranks. In backward it takes room for as many gradients, and a
# reduce-scatter of them all can only begin when the last block is done. Forward alone, with few heads of keys, gathering is
# simple and good.
#
# </details>
#
# **3.** On this ring a rank gets keys of tokens later than its own, passes them on, and does nothing with them. Who needs them?
#
# <details><summary>Answer</summary>
#
# Nobody. The keys of rank 3 go through ranks 0, 1 and 2 in vain, and those of rank 2 through 0 and 1: half of all passes. With
# `pass_to` you could leave them out. It would send half as much, and be over at the same time, because rank 3 does not wait
# for its passes anyway. Without the causal mask all are needed.
#
# </details>
#
# **4.** Count: how much of the time does rank 0 compute attention, and how much rank 3?
#
# <details><summary>Answer</summary>
#
# Rank 0 has its own block, 8.008 forward, and rank 3 has 56.008: 7 times as much. In the middle of the step rank 0 waits. All four
# together have 128.03, which would be 32.008 for each. The lower bound in your review shares the whole step out that evenly, and
# is 89.02: this ring takes 49 time units longer.
#
# </details>
#
# ## Where this leads
#
# Everybody has as many tokens, and somebody has seven times the work. Does a rank's share have to be in one piece?

# %% [markdown]
# <!-- part: links -->
