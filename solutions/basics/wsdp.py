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
# With Adam, Llama 3 70B needs 1,120 GB for weights, gradients and optimizer. That is fourteen H100s for *one* copy. And
# data parallel training wants a whole copy on every GPU. With 1,024 of them you would pay for 1.1 **million** gigabytes
# to store the same 1,120 GB a thousand times.
#
# Look at a single layer, though. A rank uses it for a moment in forward, and for a moment in backward. The rest of the
# time it just lies there, like a ladder in a garage. And what do neighbours do with a ladder?
#
# > **To tell a friend:** no rank owns a whole layer. Each keeps a piece, and borrows the rest for the moment it needs it.
#
# *The words, once more.* A **shard** is one of `total` equal pieces of a weight, of its gradient or of its optimizer
# state. As before, rank r works on batch r.

# %%
from drawing import compare, draw, draw_collective
from lib import Model, PuzzleError, goal, predict, simulate
from lib.schedules.steps import one_collective

# %% [markdown]
# ## The idea
#
# Every layer is cut into four shards, and **rank r keeps shard r of every layer**, with the optimizer state that belongs
# to it. That alone divides the largest part of the memory by four.
#
# But a rank's batch has to go through the *whole* layer. With a shard it gets nowhere:


# %%
def with_a_shard(model: Model) -> None:
    weights, opt_states, activations, *_ = model.storage()
    weights[0], opt_states[0] = model.load_weights(0, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])
    activations[1] = model.forward(0, activations[0], weights[0])


try:
    simulate(with_a_shard, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# So the layer has to be put together first. You know the collective for that, the **all-gather**. Every rank brings its
# shard, and every rank gets the whole weight:

# %%
draw_collective(simulate(one_collective("allgather"), layers=1, batches=4, ranks=4))

# %% [markdown]
# Notice what it costs. After an all-reduce you hold as much as before. After an all-gather you hold four times as much.
# The whole weight is a guest: it comes, it is used, and it leaves.
#
# And the update? That needs no guest at all. A shard can be updated on its own, given its optimizer state and its
# gradient. The gradient may even be a whole one: `update` takes the part that it needs.
#
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 6 | 4 |
#
# **Given:** on rank r, shard r of each weight and of each optimizer state, and `activations[0]`, the data of batch r.
#
# **To do:** one training step. In the end every rank hands in its own shards, updated.
#
# **Rules**
#
# - Keep values in the stores. Everything alive counts, so a gathered weight counts until you delete it. Park a value in
#   a variable while something else runs, and only the first goal counts. A handy key for it is `weights[layer,
#   "full"]`.
# - Gradients are all-reduced, as in the last puzzle.
# - `set_final_weight` gets this rank's shard. The check puts the shards of all ranks together.

# %% [markdown]
# ### Predict first
#
# In how many collectives does a rank take part, for 6 layers? Think of forward *and* of backward. And when is the step
# over? For comparison: plain data parallel training would end at 16.8 for these six layers.

# %%
guess = predict("wsdp", collectives=..., end=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

# %%
goal("wsdp")

# %% [markdown]
# <!-- part: hints -->


# %%
async def wsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )
    activations[0] = model.get_activation([model.rank])

    # Forward: gather a weight, use it, delete it. Backward: the same; then sum the
    # gradient over the ranks and update this rank's shard.
    # --- your code (about 23 lines) ---
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await model.allgather(weights[layer], layer)
        activations[layer + 1] = model.forward(
            layer, activations[layer], weights[layer, "full"]
        )
        del weights[layer, "full"]

    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        weights[layer, "full"] = await model.allgather(weights[layer], layer)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer,
            activations[layer],
            grad_activations[layer + 1],
            weights[layer, "full"],
        )
        del activations[layer], grad_activations[layer + 1], weights[layer, "full"]
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer], weights[layer], opt_states[layer]
        )
        del grad_weights[layer]
    del grad_activations[0]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(wsdp, puzzle="wsdp")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Each layer is gathered twice, once for forward and once for backward, because in between the whole weight has left. And
# its gradient is all-reduced once. So 3 collectives a layer, 18 in all.
#
# Time: 6 forward, 6 backward, 18 · 0.3 = 5.4 for the collectives and 6 · 0.5 = 3 for the updates. Together 20.4.
#
# </details>
# %%
draw(out)

# %%
Model.check(out, puzzle="wsdp")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### Beside plain data parallel training
#
# The same six layers, with a whole copy on each rank, and with your solution under it. What did you save, and what did
# you pay for it?

# %%
from lib.schedules.data_parallel import ddp

compare(ddp=simulate(ddp, layers=6, batches=4, ranks=4), wsdp=out)

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# ```
# time = 2·L·B/R + L·(0.3 + 0.3 + 0.3 + 0.5)         two all-gathers, one all-reduce, one update for each layer
# peak = 2·L·W/R + W + (L + 1)·A                     shards + one whole weight + activations of one batch
# ```
#
# For the first time there is an *R* in the memory. 1,966,080 elements instead of 4,194,304, for a step that takes 20.4
# instead of 16.8: half the memory for a fifth more time. And the more ranks, the better the bargain.
#
# This is the heart of what is called **ZeRO** in DeepSpeed and **FSDP** in PyTorch. One thing is still wasteful, and you
# may have noticed it: the all-reduce gave every rank the whole gradient, and then each used a quarter of it.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **What it makes possible.** Llama 3 70B over 64 GPUs is 1,120 / 64 = 17.5 GB on each, where one copy would have needed
#   fourteen H100s. The idea is called ZeRO [@rajbhandari2020].
# - **What borrowing costs.** The weights of Llama 3 405B are 810 GB in bf16. The eight network cards of an H100 host
#   bring in 400 GB a second together, so gathering all of them takes two seconds. Once for forward, and once for
#   backward.
# - **Inside one machine it is cheap.** Gathering a weight of 512 MiB over eight H100s takes 1.04 ms in theory, and
#   about 1.5 ms as measured [@scaling_book].
# - **Small pieces are expensive.** A collective has a cost of its own, however little it carries. With fewer than 33
#   million elements in each all-gather, the total time climbs quickly [@zhao2023]. So several layers are gathered together.
# - **Sharding has a floor.** Count only the weights in bf16 and Adam's two moments in fp32, 10 bytes a parameter
#   without gradients and master weights: 70B over 8 GPUs is still 87.5 GB on each, and does not fit into 80 [@scaling_book].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - A collective takes 0.3, whatever its size and its ranks. A real all-reduce moves twice as much as an all-gather. And
#   leaving the host costs: every message starts later, and two GPUs in different hosts have a card of 50 GB/s between
#   them instead of 450. Only a group that keeps all eight cards of its hosts busy gets 400.
# - The optimizer state is as large as the weight. With Adam it is six times as large (12 bytes against 2), so sharding
#   it is worth even more.
# - Activations are only what flows between layers. Those are not sharded at all, and they are the next thing to hurt.
# - As before: a backward takes as long as a forward (on a GPU twice), and gradients are added, not averaged.

# %% [markdown]
# ## Questions to think about
#
# **1.** The last layer is deleted after its forward. Right after that, it is gathered again for its backward. What if you
# keep it?
#
# <details><summary>Answer</summary>
#
# One all-gather less, so the step ends at 20.1. And the peak does not change, because at both moments this layer would
# have been whole anyway. A free lunch, if a small one. torchtitan, PyTorch's own training code,
# takes it: it leaves the last layers whole after forward.
#
# </details>
#
# **2.** Ten times as many ranks. Which terms of the peak go down, and which do not?
#
# <details><summary>Answer</summary>
#
# `2·L·W/R` goes down, towards nothing. One whole weight and the activations of one batch stay, however many GPUs you
# have. When a single layer does not fit, or a single sequence, sharding like this will not help any more. Then a layer
# has to be *computed* in pieces, too. That is tensor parallelism, and a different story.
#
# </details>
#
# **3.** Ranks now depend on each other in every layer, not once per step. What happens when one of them takes another
# path, say because it evaluates while the others train?
#
# <details><summary>Answer</summary>
#
# It misses the next all-gather, and every other rank stands still until a timeout. In data parallel training a
# rank could do what it liked between two gradients. Now every rank has to go through the same layers, in the same order,
# equally often. A layer that only some inputs need, or a text that one rank has finished generating before the others,
# is enough to stop thousands of GPUs.
#
# </details>
#
# ## Where this leads
#
# Count once more what the all-reduce moves for one layer, and how much of the answer each rank uses. Which collective
# would send just that?

# %% [markdown]
# <!-- part: links -->
