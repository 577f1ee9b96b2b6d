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
# A model of 70 billion parameters, trained with Adam in mixed precision, keeps 16 bytes for each of them: 2 for the
# weight, 2 for its gradient, 12 for the optimizer. That is 1,120 GB, the memory of fourteen 80 GB GPUs.
#
# In the last puzzle you cut two of the three into shards. One thing was still whole on every rank: **the gradient**.
# You never noticed, because each was used up the moment it was made. But real training takes several microbatches
# a step, and then the sum of the gradients has to *wait* until the last of them is in. For 70 billion parameters the
# waiting sum takes 140 GB on every GPU. An H100 has 80, and all of them would hold the same numbers.
#
# This puzzle cuts the third one as well. PyTorch calls it **FSDP**, *fully sharded data parallel*; the paper that first
# described it calls it ZeRO stage 3. Many large models are trained with what you are about to write.
#
# > **To tell a friend:** in FSDP a GPU owns a slice of everything, and anything whole is a guest.
#
# *The words, once more.* Rank r keeps **shard** r of every weight and optimizer state. A **microbatch** is a batch that travels
# through the network on its own. A gradient that is *reduced* is summed over the ranks.

# %%
from drawing import draw, draw_collective
from lib import Model, PuzzleError, goal, predict, simulate
from lib.schedules.steps import one_collective

# %% [markdown]
# ## The idea
#
# After an all-reduce, each rank has the whole summed gradient, and then uses one quarter of it: the quarter that
# belongs to its shard of the weight. A **reduce-scatter** (here `scatterreduce`) skips the detour. It adds up what the
# ranks bring, cuts the sum into shards, and rank r gets shard r. Here it is for one layer on four ranks:

# %%
demo = simulate(one_collective("scatterreduce"), layers=1, batches=4, ranks=4)
draw_collective(demo)

# %% [markdown]
# Shard r of the gradient meets shard r of the weight and shard r of the optimizer state: rank r has all that `update`
# asks for, and nothing else.
#
# Two facts make this work for several microbatches:
#
# - **Shards can be added.** The sum of two reduced shards is the shard of the sum. So what waits for the next
#   microbatch is a quarter of a gradient, not a whole one.
# - **A weight can be gathered again.** It is needed twice in each microbatch, once forward and once backward. Keep all
#   of them in between, and every rank holds the whole model after all. So a guest leaves as soon as its layer is done,
#   and comes back for backward.
#
# Two collectives a layer are easy to swap. Here rank 0 runs its two in the wrong order:


# %%
async def mixed_up(model: Model) -> None:
    shard, _ = model.load_weights(0, model.rank, model.RANKS)
    gradient = model.fake_grad(0, [model.rank])
    if model.rank == 0:
        await model.scatterreduce(gradient, 0)
        await model.allgather(shard, 0)
    else:
        await model.allgather(shard, 0)
        await model.scatterreduce(gradient, 0)


try:
    simulate(mixed_up, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches | microbatches a rank |
# |---|---|---|---|
# | 4 | 6 | 8 | 2 |
#
# **Given:** on rank r, shard r of 4 of each weight and optimizer state, and `my_batches`: rank 0 has batches 0 and 4,
# rank 1 has 1 and 5, and so on. The data is not given; take it one batch at a time.
#
# **To do:** take each of your batches forward and backward. Gather each weight when it is needed, reduce-scatter each
# gradient, add the shards of the two microbatches, and update your shards at the end.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts. Park a value in a variable while something else runs, and
#   only the first goal counts. A whole gradient counts until its reduce-scatter is over.
# - What a rank *sends* counts too: a run in which a rank sends more than the goals allow reaches none of them.
# - All ranks call the same collectives in the same order.
# - `set_final_weight` gets this rank's shard.

# %% [markdown]
# ### Predict first
#
# Gather each layer right before you use it, forward and backward, for each microbatch, and delete everything as early
# as you can. When is the step over? And what does a rank hold at its worst moment?
# (A weight has 262,144 elements, an activation of one batch half of that.)

# %%
guess = predict("fsdp", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal has room for both microbatches at once, if you reduce-scatter each gradient right after its backward.
# Whole gradients that wait, or guests that stay from forward to backward, are too much for either goal. The second
# needs sums of shards. (The limits come close to what you predict, so guess first.)

# %%
goal("fsdp")

# %% [markdown]
# <!-- part: hints -->


# %%
async def fsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )
    my_batches = range(model.rank, model.BATCHES, model.RANKS)

    # For each of my batches: forward and backward, as in the last puzzle. Reduce-
    # scatter each gradient, and add the shard to the one of the batch before. When all
    # batches are in, update my shards.
    # --- your code (about 33 lines) ---
    for b in my_batches:
        activations[0] = model.get_activation([b])
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
            grad_weights[layer, b], grad_activations[layer] = model.backward(
                layer,
                activations[layer],
                grad_activations[layer + 1],
                weights[layer, "full"],
            )
            del activations[layer], grad_activations[layer + 1], weights[layer, "full"]
            grad_weights[layer, b] = await model.scatterreduce(
                grad_weights[layer, b], layer
            )
            if b > model.rank:
                grad_weights[layer, b] = (
                    grad_weights[layer, b] + grad_weights[layer, b - model.RANKS]
                )
                del grad_weights[layer, b - model.RANKS]
        del grad_activations[0]

    for layer in range(model.LAYERS):  # b is still the last of my batches
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer, b], weights[layer], opt_states[layer]
        )
        del grad_weights[layer, b]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(fsdp, puzzle="fsdp")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Time: each rank computes 2 batches forward and backward through 6 layers, 24. Each microbatch has 6 all-gathers
# forward, 6 backward and 6 reduce-scatters, 18 · 0.3 = 5.4, twice. Six updates take 3. Together 24 + 10.8 + 3 = 37.8.
#
# Memory, at the worst moment: the first backward of the second microbatch. The shards of weights and optimizer states
# (12 quarters of a layer: 786,432), the sum of the first microbatch (6 quarters: 393,216), one whole weight as a guest
# (262,144), 6 activations and one gradient of an activation (917,504): 2,359,296. The second goal has room for one more
# guest.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="fsdp")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is **fully sharded data parallel**: `fully_shard` in PyTorch, ZeRO stage 3 in DeepSpeed. Nothing is duplicated
# longer than it is in use. With *L* layers, *R* ranks, *m* microbatches a rank (two or more), *W* elements in a weight
# and *A* in an activation of one batch:
#
# ```
# time = 2·L·m + 3·0.3·L·m + 0.5·L          gather, gather, reduce-scatter for each layer and microbatch
# peak = 3·L·W/R + W + (L + 1)·A            shards of weights, states and gradients + one guest + activations
# ```
#
# Look at what *R* divides: everything that stays. Double the number of GPUs, and each needs half as much for the model.
# That is why one recipe serves 8 GPUs and 512.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **What fits.** At 16 bytes a parameter, 7B need 112 GB, 70B 1,120 GB and 405B 6,480 GB: 2, 14 and 81 GPUs of 80 GB,
#   before a single activation. With FSDP over 64 GPUs the 70B model takes 17.5 GB on each.
# - **How fast.** A 175B model on A100s ran at 173 to 186 TFLOP/s on each, 55 to 60 % of the peak (the **MFU**, model
#   FLOPs utilization), from 128 to 512 GPUs without loss [@zhao2023]. Llama-2 7B on 128 A100s: 3,700 tokens a second on each,
#   an MFU of 57 % [@research_pytorch_fsdp].
# - **What went wrong.** An evaluation called `generate()` under FSDP, and all ranks hung in an all-gather until the
#   watchdog ended the run after ten minutes [@llm_foundry_423]. That happens when texts end at different lengths: a rank that is done
#   gathers nothing any more, and the others wait for it [@transformers_33483]. In the introduction you saw that error at once.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# A collective takes 0.3 whatever its size. On a network it takes longer the more it moves: in an H100 host gathering
# 512 MiB takes about 1.5 ms, and small gathers are inefficient, so FSDP groups layers into units. Our backward takes as
# long as our forward; on a GPU it takes about twice as long, which leaves more room to hide a gather in. And the
# optimizer state here is as large as the weight, where Adam's is six times as large (12 bytes against 2).

# %% [markdown]
# ## Questions to think about
#
# **1.** Who sends less in all, plain data parallel (puzzle $number_ddp) or FSDP?
#
# <details><summary>Answer</summary>
#
# Plain data parallel. An all-reduce moves each gradient out and back: 2·(R - 1)/R of a layer for each rank. FSDP gathers
# twice and reduces once: 3·(R - 1)/R, one and a half times as much, and again for every microbatch. FSDP trades network
# for memory. That is a good trade only while the network keeps up.
#
# </details>
#
# **2.** If you keep the gathered weights from the forward of a microbatch to its backward, what do you save, and what
# does it cost?
#
# <details><summary>Answer</summary>
#
# You save the second all-gather of each layer: a third of what is sent. It costs (L - 1) more guests at the start of
# backward, 5 · 262,144 elements here, more than all shards together. In PyTorch this is one argument,
# `reshard_after_forward=False`, and it is what ZeRO calls stage 2. In between you can shard over fewer ranks (the 8 GPUs
# of a host, say) after the forward: the gather is then a fast one.
#
# </details>
#
# **3.** Of the 37.8 time units, a rank spends 10.8 waiting for the network. Which of the collectives could run while it
# computes, and what would that cost?
#
# <details><summary>Answer</summary>
#
# Nearly all of them. Which weight comes next is known long before it is needed, so its gather could be under way by
# then; and a reduce-scatter is needed by nothing but the update. The price is memory: a weight that comes early is a
# second guest, and a gradient on its way stays alive for another backward. Puzzle $number_fsdp_prefetch,
# "FSDP that looks ahead", is about that trade.
#
# </details>
#
# ## Where this leads
#
# So far every rank computes every layer, and so the weights of all layers travel to all ranks. What if a rank had only
# a few layers, and never asked for any other?

# %% [markdown]
# <!-- part: links -->
