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
# Adam keeps two moments and a master copy of each weight, in 32 bits: 12 bytes for a parameter whose weight and gradient
# take 2 each. Of the 120 GB that a model of 7.5 billion parameters needs, 90 are optimizer state. In plain data
# parallelism every GPU has all of them. With 64 GPUs that is 5.76 TB of memory for 90 GB of numbers.
#
# And what do the copies do? Every rank has the same gradients after the all-reduce, the same weights and the same
# states. So all of them compute the very same update, 64 times over.
#
# **ZeRO** (the *zero redundancy optimizer*) begins there. Its first stage cuts the optimizer state into shards, one for
# each rank. 90 GB become 1.4 GB a rank, and nothing more is sent than before.
#
# > **To tell a friend:** in the middle of every all-reduce there is a moment at which each rank has one finished piece of
# > the sum. ZeRO updates the weights in that moment.
#
# *The words, once more.* An **all-reduce** gives every rank the sum. A **reduce-scatter** gives rank r shard r of it.
# An **all-gather** puts shards together, on every rank.

# %%
from drawing import draw, draw_collective
from lib import Model, PuzzleError, goal, predict, simulate
from lib.schedules.steps import one_collective

# %% [markdown]
# ## The idea
#
# A ring all-reduce goes round twice. After the first time rank r has shard r of the sum, complete. The second time only
# tells the others. You know the two halves. The first is a reduce-scatter:

# %%
draw_collective(simulate(one_collective("scatterreduce"), layers=1, batches=4, ranks=4))

# %% [markdown]
# The second is an all-gather:

# %%
draw_collective(simulate(one_collective("allgather"), layers=1, batches=4, ranks=4))

# %% [markdown]
# Between the two, rank r has shard r of the summed gradient. **Predict:** what could it do with that right there, and
# which part of the optimizer state does it need for it? What should the second half carry then, and does a rank send
# more than before?
#
# <details><summary>Answer</summary>
#
# With shard r of the optimizer state it can update shard r of the weight. Then the second half carries **new weights**
# instead of gradients. They are just as large: every rank sends what it sent before, and keeps a quarter of the
# optimizer state.
#
# </details>
#
# Watch the sizes. The weight is whole, because forward and backward need all of it. The state is a shard, and so is the
# gradient. `update` wants three parts that fit:


# %%
def does_not_fit(model: Model) -> None:
    weight, _ = model.load_weights(0)
    _, opt_state = model.load_weights(0, model.rank, model.RANKS)
    gradient = model.fake_grad(0, range(model.BATCHES)).shard(model.rank, model.RANKS)
    model.update(0, gradient, weight, opt_state)


try:
    simulate(does_not_fit, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Whole values can be cut: `value.shard(2, 4)` is shard 2 of 4 of a value, and takes no time.
#
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 6 | 4 |
#
# **Given:** on rank r the whole weight of each layer, **shard r of 4** of each optimizer state, and the data of batch
# number r.
#
# **To do:** one training step. In the end every rank has all new weights, whole, and its shard of the new optimizer
# states.
#
# **Rules**
#
# - What a rank may *send* is limited, to what plain data parallelism sends: 2,359,296 elements. A run that sends more
#   reaches no goal.
# - Values live in the stores, and everything alive counts. A whole weight counts as long as it is in its store.
# - All ranks call the same collectives in the same order.

# %% [markdown]
# ### Predict first
#
# Plain data parallelism of this size ends at 16.8 (12 for forward and backward, six all-reduces, six updates), and holds
# 4,194,304 elements at its worst moment. Suppose you await each collective at once, do everything for a layer
# right after its backward, and free early. When is *your* step over? And what does a rank hold?

# %%
guess = predict("zero1", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# Plain data parallelism reaches none of these: it holds too much. For the second goal, ask what a rank still needs of a
# weight once its backward is done. For the third, hide what travels.

# %%
goal("zero1")

# %% [markdown]
# <!-- part: hints -->


# %%
async def zero1(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], _ = model.load_weights(layer)
        _, opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    # Forward, loss and backward, as in "Distributed data parallel". For each layer: sum up the gradient so that each
    # rank gets its shard of it, update my shard of the weight, and put the new weight together.
    # --- your code (about 23 lines) ---
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    summing, gathering = {}, {}  # the collectives in flight, by their layer

    async def finish(layer: int) -> None:  # update my shard of a layer, and start gathering the new ones
        grad_weights[layer] = await summing.pop(layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        gathering[layer] = model.allgather(weights[layer], layer)

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)  # the rest of the old weight is not read again
        summing[layer] = model.scatterreduce(grad_weights[layer], layer)
        if layer + 1 < model.LAYERS:  # its gradient travelled behind this backward
            await finish(layer + 1)
    del grad_activations[0]
    await finish(0)

    for layer in reversed(range(model.LAYERS)):
        weights[layer] = await gathering[layer]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(zero1, puzzle="zero1")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Time: forward and backward through six layers, 12. For each layer a reduce-scatter, an update and an all-gather, 0.3 +
# 0.5 + 0.3, one after the other: 6 · 1.1 = 6.6. Together 18.6. Two collectives instead of one: 1.8 more than plain data
# parallelism, until you hide them.
#
# Memory, at the first backward: six whole weights (1,572,864), six quarters of an optimizer state (393,216), and six
# activations with one gradient (917,504): 2,883,584. Plain data parallelism has six whole states, 1,179,648 more.
# One operation later there is a whole gradient (262,144) instead of an activation. If the whole weight of that layer is
# still there, that moment is the peak: 3,014,656.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="zero1")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is **ZeRO stage 1**, or optimizer-state sharding: `zero_optimization.stage = 1` in DeepSpeed, the distributed
# optimizer in Megatron-LM, and, with whole layers instead of shards, `ZeroRedundancyOptimizer` in PyTorch. With *L*
# layers, *R* ranks, *W* elements in a weight and *A* in an activation of one batch, with everything hidden that can be:
#
# ```
# time = 2·L + 0.5·L + 0.3                  all the work of a rank, and the all-gather of the last weight
# peak = L·W + L·W/R + (L + 1)·A            weights + shards of the states + activations and a gradient
# ```
#
# Neither can be improved. All weights are there until the first backward, and whatever is updated last, the other ranks
# still need the new weight.
#
# With Adam in mixed precision the same count goes like this, for *Ψ* parameters on *R* ranks, in bytes:
#
# ```
# data parallel    2·Ψ + 2·Ψ + 12·Ψ         weights, gradients, optimizer
# ZeRO stage 1     2·Ψ + 2·Ψ + 12·Ψ/R
# ```
#
# The gradients stand whole in the second line, while you used each of yours up at once. Real steps have several
# microbatches, and then gradients have to wait. That is the next puzzle.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **What it is worth.** At 16 bytes a parameter 80 GB hold 5 billion parameters. With stage 1 on many ranks it is 4 bytes
#   and a little, so nearly 20 billion. For 7.5 billion on 64 GPUs the formula above gives 31.4 GB instead of 120.
# - **What it costs.** A step of a model of 10 billion parameters in bf16 moves 40 GB for each GPU, with plain data parallelism
#   and with stage 1 alike; with everything sharded it is 60 GB [1].
# - **Who uses it.** DeepSeek-V3 was trained with a pipeline of 16 stages, experts spread over 64 GPUs, and stage 1 on
#   top [2]. It suits pipelines best: one gather and one reduction a step, however many microbatches there are. FSDP in
#   PyTorch got a switch for just that, `set_reshard_after_backward` [3].
#
# [1] Bekman, *Machine Learning Engineering Open Book*, 2026, chapter on networks,
# [github.com](https://github.com/stas00/ml-engineering/tree/master/network).
# [2] Austin et al., *[How To Scale Your Model](https://jax-ml.github.io/scaling-book)*, 2025, chapter on GPUs.
# [3] pytorch/pytorch, *FSDP2: Added `set_reshard_after_backward`*, 2024,
# [pull request 124319](https://github.com/pytorch/pytorch/pull/124319).

# %% [markdown]
# ## What is simplified here
#
# The optimizer state is as large as the weight here; with Adam in mixed precision it is six times as large,
# and cutting it matters six times as much. An update takes 0.5 for a shard as for a whole layer; on a GPU the update of a
# shard takes 1/R of the time, which is one more thing that stage 1 saves. And the norm of the gradients, which most
# training runs clip, has to be summed over the ranks now, because no rank sees all gradients any more.

# %% [markdown]
# ## Questions to think about
#
# **1.** Use an all-reduce instead of the reduce-scatter, and update your shard with it. What changes?
#
# <details><summary>Answer</summary>
#
# It is correct, and even takes the same time here. But every rank receives the whole sum and uses a quarter of it, and
# the new weights travel as well: 3·(R - 1)/R of a layer instead of 2. 3,538,944 elements are sent, half as much again
# as allowed. `reveal("zero1")` has it: it is the natural first try.
#
# </details>
#
# **2.** PyTorch's `ZeroRedundancyOptimizer` gives whole layers to ranks: rank 0 updates layers 0 and 4, rank 1 layers 1
# and 5, and so on, and broadcasts them. When is that better, and when worse?
#
# <details><summary>Answer</summary>
#
# It works with any optimizer, also with one that needs to see whole matrices, and under a plain DDP, whose all-reduce
# stays as it is. But six layers on four ranks are two for some and one for others. And on top of the all-reduce there
# is a broadcast, so it sends what question 1 sends.
#
# </details>
#
# **3.** You could keep shards of the weights between two steps, and gather them during the forward of the next. Compare.
#
# <details><summary>Answer</summary>
#
# It is the same all-gather, at the other end of the step. It hides well: each gather runs behind the forward of the layer
# before, and the last reduce-scatter is all that is left at the end. At rest a rank has a quarter of the weights
# then, which helps where evaluation or checkpoints need memory. In PyTorch this is
# `fully_shard(reshard_after_forward=False)`. `reveal("zero1")` has it.
#
# </details>
#
# **4.** Why is the end 15.3 and not 15, when all that a rank has to compute takes 15?
#
# <details><summary>Answer</summary>
#
# A rank's last operation is an update, because each update needs a gradient, and backward comes before. No other rank
# has that state, so none can have computed that new shard: it has to be sent, in one more all-gather. It could only be
# hidden behind the next step's forward (question 3).
#
# </details>
#
# ## Where this leads
#
# Weights are needed whole, states are cut. What about the third, the gradients? With one microbatch they are gone
# before they can be in the way. With several they wait, whole, on every rank. Rank r waits for four quarters, and will
# use one.

# %% [markdown]
# <!-- part: links -->
