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
# A model of 20 billion parameters, ZeRO stage 1, 64 GPUs. The optimizer takes 3.75 GB on each, down from 240. The weights
# take 40 GB, and they are needed. And the gradients take another 40 GB, from the first microbatch of a step to the last.
# Together that is 84 GB, on a GPU that has 80.
#
# Of these 40 GB a rank uses 0.6: the shard that it will update. All the rest is a partial sum, kept for other ranks.
#
# The second stage of ZeRO does not keep it. It sums up each gradient over the ranks **as soon as it is made**, in every
# microbatch, and keeps one shard. You know the move from "Fully sharded data parallel". Here you use it while the weights
# stay whole, and see what each of the two is worth on its own.
#
# > **To tell a friend:** stage 1 cuts what only the update needs, stage 2 also what only waits for it, and stage 3 cuts
# > everything.
#
# *The words, once more.* A **microbatch** is a batch that goes through the network on its own. Each rank has two of
# them here, and both gradients go into the same sum.

# %%
from drawing import draw, draw_collective, draw_figures
from lib import Model, goal, predict, simulate
from lib.schedules.data_parallel import zero
from lib.schedules.steps import one_collective

# %% [markdown]
# ## The idea
#
# There are two ways to add up gradients over two microbatches and four ranks. **Wait and reduce:** each rank adds up
# its own gradients, whole, and at the end there is one reduce-scatter for each layer. That is stage 1. **Reduce and
# wait:** there is a reduce-scatter for each layer and each microbatch, and each rank adds up shards.
#
# The sum is the same. In one case a whole gradient waits, in the other a quarter. In one case you send one
# reduce-scatter a layer, in the other two. This is the one that you will call in every microbatch:

# %%
draw_collective(simulate(one_collective("scatterreduce"), layers=1, batches=4, ranks=4))

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches | microbatches a rank |
# |---|---|---|---|
# | 4 | 6 | 8 | 2 |
#
# **Given:** on rank r the whole weight of each layer, shard r of 4 of each optimizer state, and `my_batches`: rank 0 has
# batches 0 and 4, rank 1 has 1 and 5, and so on. The data is not given; take it one batch at a time.
#
# **To do:** one training step. In the end every rank has all new weights, whole, and its shard of the new optimizer
# states.
#
# **Rules**
#
# - A rank may send 3,538,944 elements: one all-gather and two reduce-scatters of everything. Gathering
#   weights in every microbatch, as in "Fully sharded data parallel", is more.
# - Values live in the stores, and everything alive counts.
# - All ranks call the same collectives in the same order.

# %% [markdown]
# ### Predict first
#
# Suppose you await each collective at once and free early, and in the last microbatch you cut each weight to your shard
# when its backward is done. When is the step over? And what does a rank hold at its worst moment?

# %%
guess = predict("zero2", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# With whole gradients waiting a rank holds 4,456,448 elements, and with both batches at once 3,801,088. All three goals
# ask for less. For the third, hide every collective that can run behind something else.

# %%
goal("zero2")

# %% [markdown]
# <!-- part: hints -->


# %%
async def zero2(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], _ = model.load_weights(layer)
        _, opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    my_batches = range(model.rank, model.BATCHES, model.RANKS)

    # For each of my batches: forward, loss, backward; sum up each gradient over the ranks as it is made, and add my
    # shard of it to that of the batch before. In the last batch, update my shards and gather the new weights.
    # --- your code (about 36 lines) ---
    summing, gathering = [], {}  # the collectives in flight

    async def finish() -> None:  # add the oldest shard that travels to its sum; in the last batch, update and gather
        layer, b, work = summing.pop(0)
        grad_weights[layer, b] = await work
        if b > model.rank:
            grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - model.RANKS]
            del grad_weights[layer, b - model.RANKS]
        if b == my_batches[-1]:
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights[layer, b], weights[layer], opt_states[layer]
            )
            del grad_weights[layer, b]
            gathering[layer] = model.allgather(weights[layer], layer)

    for b in my_batches:
        activations[0] = model.get_activation([b])
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
            if summing:  # the last gradient of the batch before
                await finish()
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer, b], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]
            if b == my_batches[-1]:  # the rest of the old weight is not read again
                weights[layer] = weights[layer].shard(model.rank, model.RANKS)
            work = model.scatterreduce(grad_weights[layer, b], layer)
            summing.append((layer, b, work))
            if len(summing) > 1:  # the gradient of the layer above travelled behind this backward
                await finish()
        del grad_activations[0]
    await finish()

    for layer in reversed(range(model.LAYERS)):
        weights[layer] = await gathering[layer]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(zero2, puzzle="zero2")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Time: each rank takes two batches forward and backward through six layers, 24. Twelve reduce-scatters take 3.6, six
# updates 3, six all-gathers 1.8: 32.4. Hidden is everything but the last all-gather: 24 + 3 + 0.3 = 27.3.
#
# Memory, at the first backward of the second microbatch: six whole weights (1,572,864), six quarters of an optimizer
# state (393,216) and six quarters of a gradient (393,216), six activations and one gradient (917,504): 3,276,800. With
# stage 1 the six gradients are whole: 1,179,648 more. If the weight of layer 5 is not cut after that backward, the next
# moment is the peak, with a whole gradient more and an activation less: 3,407,872.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="zero2")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## The ladder
#
# Plain data parallelism, ZeRO 1, ZeRO 2 and FSDP (which is ZeRO 3), on the same two microbatches, with every collective
# awaited at once. Look at the peaks first: from row to row one colour shrinks to a quarter. Then look at
# what is sent.

# %%
ladder = {}
for stage, name in enumerate(("data parallel", "ZeRO 1", "ZeRO 2", "FSDP")):
    ladder[name] = simulate(zero(stage), layers=6, batches=8, ranks=4)
draw_figures(ladder)

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is **ZeRO stage 2**: `zero_optimization.stage = 2` in DeepSpeed, and `reshard_after_forward=False` in PyTorch's
# `fully_shard`, which gathers at the beginning of the step instead of its end. With *m* = 2 microbatches a rank, *L*
# layers and *R* ranks (at least four, and fewer than layers), *W* elements in a weight and *A* in an activation of one
# batch:
#
# ```
# time = 2·L·m + 0.5·L + 0.3                all the work of a rank, and the all-gather of the last weight
# peak = L·W + 2·L·W/R + (L + 1)·A          weights + shards of states and gradients + activations and a gradient
# ```
#
# And this is the whole ladder. Each stage divides one thing more by *R*:
#
# ```
# nothing is cut     peak = 3·L·W + (L + 1)·A
# states             peak = 2·L·W + L·W/R + (L + 1)·A
# and gradients      peak = L·W + 2·L·W/R + (L + 1)·A
# and weights        peak = 3·L·W/R + W + (L + 1)·A      a whole weight is there as a guest
# ```
#
# With Adam in mixed precision, for *Ψ* parameters, the first three terms are 2·Ψ + 2·Ψ + 12·Ψ bytes: stage 1 needs
# 4·Ψ + 12·Ψ/R, stage 2 needs 2·Ψ + 14·Ψ/R, and stage 3 needs 16·Ψ/R. What is sent in a step, in layers a rank:
#
# ```
# data parallel, stage 1    2·(R - 1)/R·L
# stage 2                   (m + 1)·(R - 1)/R·L
# stage 3                   3·m·(R - 1)/R·L
# ```
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **The ladder in gigabytes.** By the formulas above, 7.5 billion parameters on 64 GPUs take 120 GB each without sharding,
#   31.4 with stage 1, 16.6 with stage 2 and 1.9 with stage 3. They are the figures with which ZeRO was introduced [1].
# - **The ladder in traffic.** 10 billion parameters in bf16: 40 GB a step for plain data parallelism and stage 1, and 60 GB
#   for stage 3 [2].
# - **Why not always stage 3.** A 175B model with a fixed batch ran at 144 TFLOP/s for each GPU with stage 3 on 384 A100s,
#   and at 44 on 1,536. Tensor and pipeline parallelism with plain data parallelism held 141 there [3].
# - **Pick your stage.** In PyTorch `reshard_after_forward=True` is stage 3, `False` is stage 2, and a number such as 8
#   shards over so many ranks only [4]. Llama 3 was trained with weights that stay whole between forward and backward
#   [5]: that saves one all-gather for each layer and microbatch.
#
# [1] Rajbhandari et al., *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, 2020,
# [arXiv 1910.02054](https://arxiv.org/abs/1910.02054).
# [2] Bekman, *Machine Learning Engineering Open Book*, 2026, chapter on networks,
# [github.com](https://github.com/stas00/ml-engineering/tree/master/network).
# [3] Narayanan et al., *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM*, 2021,
# [arXiv 2104.04473](https://arxiv.org/abs/2104.04473).
# [4] pytorch/pytorch, *FSDP2: Added `reshard_after_forward`*, 2024,
# [pull request 118017](https://github.com/pytorch/pytorch/pull/118017).
# [5] Grattafiori et al., *The Llama 3 Herd of Models*, 2024, [arXiv 2407.21783](https://arxiv.org/abs/2407.21783).

# %% [markdown]
# ## What is simplified here
#
# A reduce-scatter takes 0.3 whatever its size, and a second one for the same layer is nearly always hidden here. On a
# busy network twice the reduce-scatters cost time, and stage 1 is the better choice for many microbatches. Gradients
# are often summed in 32 bits, so the stages that keep them whole cost even more than the bars show. And activations are
# small here: in real models they are often the largest bar, and no stage of ZeRO touches them.

# %% [markdown]
# ## Questions to think about
#
# **1.** With one microbatch a rank, what is the difference between stage 1 and stage 2?
#
# <details><summary>Answer</summary>
#
# None: a gradient that is made can be summed up and used for its update at once, and nothing waits. Your solution of
# "ZeRO, stage 1" is stage 2 as well. Frameworks differ even then, because their optimizer comes after the whole
# backward, so stage 1 holds all gradients whole for a moment.
#
# </details>
#
# **2.** Take both batches at once, as one of twice the size. What happens to the three bars?
#
# <details><summary>Answer</summary>
#
# No gradient has to wait, so 1.5 layers of shards are saved, and only one reduce-scatter is needed: 2,359,296 elements sent.
# But activations are 14 halves of a layer instead of 7: 3,801,088 in all, 524,288 more than yours. With
# larger activations, or more microbatches, that becomes hopeless, which is why there are microbatches at all.
# `reveal("zero2")` has this one too.
#
# </details>
#
# **3.** A pipeline runs 32 microbatches in a step. Which ZeRO stage would you combine with it?
#
# <details><summary>Answer</summary>
#
# Stage 1, most likely. Stage 2 would send 33 times (R - 1)/R of the model and stage 3 96 times, where stage 1 sends 2. And
# the gradients that it keeps whole are only those of one stage of the pipeline, which are few.
#
# </details>
#
# **4.** When does stage 2 need the whole weight, and when does stage 3? What does that cost?
#
# <details><summary>Answer</summary>
#
# At the same moments: in its forward and its backward. Stage 2 keeps it whole in between as well, L - 1 more weights at
# the worst moment. Stage 3 drops it and gathers it again: two all-gathers for each layer and microbatch, instead of one
# for each layer and step.
#
# </details>
#
# **5.** Your summed shards are in 16 bits, and there are 64 microbatches. What may go wrong?
#
# <details><summary>Answer</summary>
#
# A sum that has grown large swallows what is added to it: bf16 has 8 bits of precision, so 256 + 1 is still 256. Llama 3
# adds up the gradients of its microbatches in 32 bits, and reduce-scatters them in 32 bits too. For a shard that is
# affordable; for whole gradients it would be 4 bytes for each parameter on every GPU.
#
# </details>
#
# ## Where this leads
#
# One colour of the ladder is left: the weights. You have cut them already, and it was the gathering that cost time.
# What if it cost none?

# %% [markdown]
# <!-- part: links -->
