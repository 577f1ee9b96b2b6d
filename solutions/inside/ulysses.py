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
# In a ring, each rank gets nearly all keys and values of the text from others: 75 % of them with 4 ranks, 98 % with 64.
# Add GPUs, and each has less to compute, but just as much to pass on. At some point passing on takes all the time.
#
# DeepSpeed went another way and called it Ulysses. For a text of *N* tokens with *h* features, on *P* GPUs, each link
# carries 4*Nh*/*P* for the attention of a layer. With the sequence parallelism that they compare it with, it is 4*Nh*,
# however many GPUs there are. They report up to 2.5 times the speed [@jacobs2023].
#
# > **To tell a friend:** tokens need each other, heads do not. So for attention, swap some tokens of all heads for all
# > tokens of some heads.

# %%
from drawing import draw, draw_attention, draw_collective, draw_curves, draw_group
from lib import Layer, Links, Model, PuzzleError, goal, predict, simulate
from lib.schedules.given import backward, forward, given, joined, update

PRICES = Links()  # 0.2 for 131,072 elements from one rank to the next


def layers(tokens: int) -> list[Layer]:
    """A layer, its keys and values, attention with 8 heads, and a layer."""
    return [
        Layer(rows=tokens),  # layer 0: gives the queries, 512 numbers each
        # Layer 1: gives keys and values of activation 1.
        Layer(outputs=1024, rows=tokens),
        # Layer 2: activation 1 asks activation 2.
        Layer("attention", rows=tokens, heads=8, kv_heads=8, of=(1, 2)),
        Layer(rows=tokens),  # layer 3
    ]


# %% [markdown]
# ## The idea
#
# Cut the text among four ranks, and most layers need nothing from other ranks: they work row by row. Attention needs
# other rows, because a query attends to the keys of all rows before it. But only to those of its own **head**: the 512
# features of a query are 8 heads of 64, and heads do not interact.
#
# | | heads 0 1 | heads 2 3 | heads 4 5 | heads 6 7 |
# |---|---|---|---|---|
# | **rows of rank 0** | stays | to rank 1 | to rank 2 | to rank 3 |
# | **of rank 1** | to rank 0 | stays | to rank 2 | to rank 3 |
# | **of rank 2** | to rank 0 | to rank 1 | stays | to rank 3 |
# | **of rank 3** | to rank 0 | to rank 1 | to rank 2 | stays |
#
# Before the swap a rank has a row of this table, afterwards a column: 2 of the 8 heads, for all rows. Every rank has
# something different for every other rank: an **all-to-all**. Three functions for it, which you get in the puzzle:


# %%
@given
def to_heads(model: Model, value, turns: int = 1) -> list:
    """Starts a swap: some rows of all heads for all rows of this rank's heads. With
    several `turns`, one for each, with its part of this rank's heads."""
    swaps, count = [], turns * model.RANKS
    for turn in range(turns):
        mine = range(turn, count, turns)  # a part for each rank
        parts = [model.shard(value, "features", place, count) for place in mine]
        swaps.append(model.alltoall(parts, 2))
    return swaps


@given
def to_rows(model: Model, value):
    """Starts the swap that brings rows home: all rows of some heads for some rows of
    all heads."""
    ranks = range(model.RANKS)
    parts = [model.shard(value, "rows", rank, model.RANKS) for rank in ranks]
    return model.alltoall(parts, 2)


@given
async def arrived(swaps):
    """What a swap brings, or those in a list, as one value. It empties the list."""
    swaps, parts = swaps if isinstance(swaps, list) else [swaps], []
    while swaps:
        parts.append(joined(await swaps.pop(0)))
    return joined(parts)


# %% [markdown]
# The queries of rank 1, before a swap and after it:


# %%
async def attention(model: Model) -> None:
    model.weights[0], _ = model.load_weights(0)
    model.weights[1], _ = model.load_weights(1)
    data = model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS)
    queries = model.forward(0, data, model.weights[0])
    keys = model.forward(1, queries, model.weights[1])  # and values
    model.activations["before"] = queries
    model.activations["after"] = await arrived(to_heads(model, queries))
    keys = await arrived(to_heads(model, keys))
    model.forward(2, model.activations["after"], keys)


demo = simulate(attention, layers=layers(4096), batches=1, ranks=4, costs=PRICES)
draw_group({"before": demo[1].activations["before"]})

# %%
draw_group({"after": demo[1].activations["after"]})

# %%
draw_collective(demo, "alltoall")

# %% [markdown]
# A rank keeps a quarter of what it has and sends three quarters. An all-gather, which gives every rank all rows, would
# send four times as much.
#
# Swap queries, keys and values, and attention is ordinary attention on one rank: all pairs, the mask, the softmax, no
# partial sums. It is also even: all heads have the same triangle, and every rank has the same number of heads:

# %%
draw_attention(demo)

# %% [markdown]
# The result has all rows and some features, and the next layer wants it the other way round. And backward? You decide.
#
# One condition: cut between heads, and each rank has a complete attention of its own. Cut through a head, and no score
# is right. 16 ranks for 8 heads:

# %%
try:
    simulate(attention, layers=layers(4096), batches=1, ranks=16, costs=PRICES)
except PuzzleError as error:
    print(error)

# %% [markdown]
# ## The puzzle
#
# | ranks | tokens | layer 0 | layer 1 | attention | layer 3 | swap of queries, of the result, or of the gradient of either | of keys and values |
# |---|---|---|---|---|---|---|---|
# | 4 | 4,096, so 1,024 each | 4 | 8 | 32.008 | 4 | 0.6 | 1.2 |
#
# These are times forward on a rank; backward takes the same again. Updates take 0.5, 1 and 0.5, and the all-reduces of
# the weights' gradients 0.6, 1.2 and 0.6. To swap half of the features takes half as long. Below, "keys" are keys and
# values.
#
# **Given:** the weights of layers 0, 1 and 3, whole on every rank, and the data of this rank's tokens. And helpers:
#
# | helper | what it does |
# |---|---|
# | `to_heads(model, value)`, `to_rows(model, value)` | start a swap, as above. The first gives a list, of one, and cuts `value` anew for each turn: delete that after the call, not before |
# | `await arrived(swaps)` | gives what a swap brings, or the swaps in a list, as one value |
# | `attend(model, i)` | attention: `activations[3, i]` from the queries `activations[1, i]` and the keys `activations[2, i]` |
# | `attend_back(model, i)` | uses up these two and `grad_activations[3, i]`; gives `grad_activations[1, i]` and `grad_activations[2, i]` |
# | `forward(model, layer)`, for layers 0, 1 and 3 | makes `activations[layer + 1]` from `activations[layer]` |
# | `backward(model, layer)`, for layers 0, 1 and 3 | uses up `activations[layer]` and `grad_activations[layer + 1]`; gives `grad_weights[layer]` and, but for layer 0, `grad_activations[layer]`, which replaces what is there |
# | `update(model, layer)` | updates a weight, and uses up its gradient |
#
# **To do:** one training step, in three steps of yours.
#
# 1. All heads of a rank in one turn, so *i* is 0, and each swap awaited where you call it. Activation 1 is used twice,
#    by layer 1 and by attention: add the gradients that both give for it. Each gradient of a weight is summed over the
#    ranks.
# 2. Which values are there long before any rank needs them swapped?
# 3. A rank has two heads. With two turns, `to_heads(model, value, turns)` gives a list of two swaps, one for each head.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts. Park a value in a variable while something else runs, and
#   only the first goal counts.
# - You may keep pending operations in a dict or a list of your own. Functions inside yours are fine.
# - A run that sends more than 4,718,592 elements per rank reaches no goal. A ring sends more than twice that.


# %%
@given
def attend(model: Model, i: int) -> None:
    """Attention forward, in turn i: with its part of this rank's heads."""
    queries, keys = model.activations[1, i], model.activations[2, i]
    model.activations[3, i] = model.forward(2, queries, keys)


@given
def attend_back(model: Model, i: int) -> None:
    """Attention backward, in turn i."""
    queries, keys = model.activations.pop((1, i)), model.activations.pop((2, i))
    gradient = model.grad_activations.pop((3, i))
    of_keys, of_queries = model.backward(2, queries, gradient, keys)
    model.grad_activations[2, i], model.grad_activations[1, i] = of_keys, of_queries


# %% [markdown]
# ### Predict first
#
# Swap all heads at once, and await every all-to-all and every all-reduce where you call it. How many collectives does a
# rank call, and when is the step over?

# %%
guess = predict("ulysses", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step. For the second, hide every swap that has something to hide behind. For the third,
# remember that a rank has two heads.

# %%
goal("ulysses")

# %% [markdown]
# <!-- part: hints -->


# %%
async def ulysses(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 1, 3):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    data = model.get_activation(range(model.BATCHES))
    activations[0] = model.shard(data, "rows", model.rank, model.RANKS)
    del data

    turns = 8 // model.RANKS  # for step 3: as many as this rank has heads
    # Forward, loss and backward; then update layers 0, 1 and 3.
    # --- your code (about 32 lines) ---
    forward(model, 0)
    queries = to_heads(model, activations[1], turns)
    forward(model, 1)
    keys = to_heads(model, activations[2], turns)
    del activations[2]
    results = []
    for i in range(turns):
        activations[1, i] = await arrived(queries.pop(0))
        activations[2, i] = await arrived(keys.pop(0))
        attend(model, i)
        results.append(to_rows(model, activations.pop((3, i))))
    activations[3] = await arrived(results)

    forward(model, 3)
    grad_activations[4] = model.loss(activations.pop(4))
    backward(model, 3)
    gradients = to_heads(model, grad_activations[3], turns)
    del grad_activations[3]
    sums = {3: model.allreduce(grad_weights.pop(3), 3)}

    for i in range(turns):
        grad_activations[3, i] = await arrived(gradients.pop(0))
        attend_back(model, i)
        keys.append(to_rows(model, grad_activations.pop((2, i))))
        queries.append(to_rows(model, grad_activations.pop((1, i))))
    grad_activations[2] = await arrived(keys)
    backward(model, 1)
    sums[1] = model.allreduce(grad_weights.pop(1), 1)
    grad_activations[1] += await arrived(queries)
    backward(model, 0)
    sums[0] = model.allreduce(grad_weights.pop(0), 0)
    for layer in (3, 1, 0):
        grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
    # --- end of your code ---

    for layer in (0, 1, 3):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(ulysses, puzzle="ulysses")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Layers 0, 1 and 3 take 16, attention 32.008, twice, and the updates 2: 98.016 to compute. Awaited there are three
# swaps forward, of queries, keys and results, 2.4, three of their gradients, 2.4 again, and three all-reduces, 2.4:
# nine collectives, over at 105.216.
#
# (The lower bound in your review is 97.516, 0.5 less than 98.016. It lets ranks share the update of layer 1, whose
# weight is twice as large as the others: each a part of it, as in ZeRO. That would take 0.5, the least that an update
# takes, instead of 1.)
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="ulysses")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## When is it better than a ring?
#
# A ring sends more, but it hides that behind the blocks. For long texts that is free. How short must a text be for
# Ulysses to win? Here is attention forward in the usual form of each: the rings pass before they compute, and Ulysses
# awaits its swaps.


# %%
async def ring(model: Model, pieces: int = 1) -> float:
    """Attention over a ring: of the text in contiguous pieces, or dealt out as in
    zigzag (two pieces)."""
    weights = [model.load_weights(layer)[0] for layer in (0, 1)]
    data, total = model.get_activation([0]), pieces * model.RANKS
    mine = model.shard(data, "rows", model.rank, total)
    if pieces == 2:
        mine = mine.combine(model.shard(data, "rows", total - 1 - model.rank, total))
    queries = model.forward(0, mine, weights[0])
    keys = model.forward(1, queries, weights[1])
    began = model.time
    for step in range(model.RANKS):
        coming = model.shift(keys, 2) if step < model.RANKS - 1 else None
        model.forward(2, queries, keys)  # a part of the result
        keys = await coming if coming else None
    return model.time - began


async def zigzag(model: Model) -> float:
    return await ring(model, 2)


async def swapped(model: Model) -> float:
    """Attention on heads, with the results swapped back."""
    weights = [model.load_weights(layer)[0] for layer in (0, 1)]
    data = model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS)
    queries = model.forward(0, data, weights[0])
    keys = model.forward(1, queries, weights[1])
    began = model.time
    queries = await arrived(to_heads(model, queries))
    keys = await arrived(to_heads(model, keys))
    await arrived(to_rows(model, model.forward(2, queries, keys)))
    return model.time - began


def longest(way, tokens: int, ranks: int = 4) -> float:
    """How long attention takes, on the rank where it takes longest."""
    took = []

    async def timed(model: Model) -> None:
        took.append(await way(model))

    simulate(timed, layers=layers(tokens), batches=1, ranks=ranks, costs=PRICES)
    return max(took)


TEXTS = (64, 128, 192, 256, 320, 384, 400, 408, 416, 448, 512, 576, 640)
draw_curves(
    {
        "ring, one piece each": [(tokens, longest(ring, tokens)) for tokens in TEXTS],
        "ring, zigzag": [(tokens, longest(zigzag, tokens)) for tokens in TEXTS],
        "Ulysses": [(tokens, longest(swapped, tokens)) for tokens in TEXTS],
    },
    across="tokens of the text, on 4 ranks",
    title="Attention forward, by the length of the text",
)

# %% [markdown]
# Up to about 408 tokens, 102 on each rank, Ulysses wins: a block of zigzag is then too short to hide a pass behind.
# Beyond that zigzag wins, because the swaps here are awaited. Against contiguous pieces Ulysses wins at every length:
# it waits for its swaps, but the ring waits for its last rank.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Ulysses**: sequence parallelism by all-to-all, with *n* ranks, *t* tokens on each and 512 features:
#
# ```
# sent by a rank, forward    Ulysses: 4·(n - 1)/n·512·t    ring: 2·(n - 1)·512·t    so 2/n of it
# waiting, forward           Ulysses: (n - 1)/n·t/320      zigzag: (n - 1)·(t/640 - t²/131,072) while that is more than 0
# Ulysses is first           for t up to 204.8·(1 - 2/n)
# ranks                      as many as divide the heads; a ring has no such limit
# ```
#
# In your step, queries travel behind layer 1, their gradients behind its backward, and the all-reduces behind what is
# computed after them. What remains are the keys and results forward, and their gradients: 3.6, so 101.616. Taken head by
# head, half of that hides behind the other head: 99.816.
#
# With twice as many ranks for the same text, a rank of Ulysses sends about half as much, and a rank of a ring as much
# as before. And attention is a single call: any kernel will do, with any mask.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **How well.** On up to 64 A100s with 40 GB, DeepSpeed reports more than 175 TFLOP/s per GPU, over 54 % of the peak
#   [@jacobs2023].
# - **How many ranks.** Llama 3 has 8 heads of keys and values [@llama3]. Swap those as they are, and Ulysses stops at 8
#   ranks. Beyond that, send each key head to several ranks, or build a ring of groups with Ulysses inside each.
# - **In one host.** Between hosts an all-to-all is several times as slow: puzzle $number_expert_parallel has a figure
#   for it. So the ranks that swap heads share a host.
# - **What a ring can do.** On eight H800s zigzag reached 90 % of the speed of attention with nothing to send
#   [@ring_flash_attention]. Which of the two is better on your machines? Measure it.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# A real all-to-all pays a latency for each part; here there is none. Cutting features out of an activation and joining
# rows again costs memory bandwidth on a GPU, and nothing here. The queries are activation 1 itself. And attention on a
# quarter of the heads takes as long as on an even quarter of the pairs.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why are queries swapped here, when in a ring they stay where they are?
#
# <details><summary>Answer</summary>
#
# In a ring a rank is responsible for its own rows and needs the keys and values of all others: 2·(*n* - 1) parts as
# large as its own. Here it is responsible for its heads. It needs queries, keys and values of all rows and sends the
# result back: four things, but only (*n* - 1)/*n* of a part of each.
#
# </details>
#
# **2.** With 8 heads of queries but 2 of keys and values, on 4 ranks: what can you do?
#
# <details><summary>Answer</summary>
#
# You cannot deal two heads to four ranks. Each pair of ranks needs the same key head, so send it to both: twice the
# traffic, but for a quarter of the heads. Or let pairs of ranks swap heads, and make a ring of two such pairs. What you
# cannot do is cut a head: the scores of half a head are partial sums, and the softmax would have to wait for the rest.
#
# </details>
#
# **3.** Could the swap of the keys be hidden too, without more heads?
#
# <details><summary>Answer</summary>
#
# Yes, by rows. Let layer 1 take half of your rows, start the swap of their keys, and take the other half meanwhile.
# From each rank you get the keys of some rows, and combine them with those of the others when they come. Then only the
# second swap is exposed. Each cut makes the messages smaller, which costs nothing here.
#
# </details>
#
# **4.** Tensor parallelism cuts attention by heads as well. What is different?
#
# <details><summary>Answer</summary>
#
# It cuts the weights: each rank has the columns of its heads, and all rows. So the queries of its heads are computed
# where they are needed, and nothing is swapped. But the input is on every rank, and the output is a partial sum for all
# rows. Ulysses keeps all weights everywhere, which FSDP can fix, and moves only activations. *Sequence parallel* is in
# between: rows are gathered and scattered where here they are swapped.
#
# </details>
#
# ## Where this leads
#
# So far every token takes the same path. What if each token chooses which weights work on it?

# %% [markdown]
# <!-- part: links -->
