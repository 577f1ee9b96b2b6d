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
# **What you learn:** to shard the gradients as well. This is FSDP, also known as ZeRO stage 3, the workhorse
# of large-model training.
#
# *Reminder.* Rank r works on **batch** r and keeps **shard** r of every weight and of every optimizer state.

# %%
from drawing import draw, draw_group
from lib import Model, PuzzleError, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# In the last puzzle each rank got the whole summed gradient and used a quarter of it. A **reduce-scatter**,
# here `scatterreduce`, delivers just that quarter: it sums over the batches and cuts the sum into shards, and
# rank r gets shard r.


# %%
async def sum_and_scatter(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["shard"] = await model.scatterreduce(grad_weights["mine"], 0)


demo = simulate(sum_and_scatter, layers=1, batches=4, ranks=4)
for m in demo:
    print("rank", m.rank, "has", m.grad_weights["mine"], "and gets", m.grad_weights["shard"])
draw_group({"rank 2 before": demo[2].grad_weights["mine"]}) | draw_group(
    {"rank 2 after": demo[2].grad_weights["shard"]}
)

# %% [markdown]
# Shard r of the gradient, shard r of the weight, shard r of the optimizer state: all that `update` needs for
# shard r is on rank r.
#
# All-reduce is reduce-scatter followed by all-gather, so on a real network the reduce-scatter moves half as
# much data. Our simple clock charges 0.3 for any collective and does not show this. What a rank sends is counted
# all the same: with *n* ranks (*n* - 1)/*n* of the layer in an all-gather or a reduce-scatter, and twice that in
# an all-reduce.
#
# Two collectives in each layer's backward are easy to mix up. Here rank 0 does the two in the wrong order:


# %%
async def mixed_up(model: Model) -> None:
    weights, opt_states, grad_weights = model.weights, model.opt_states, model.grad_weights
    weights[0], opt_states[0] = model.load_weights(0, model.rank, model.RANKS)
    grad_weights[0] = model.fake_grad(0, [model.rank])
    if model.rank == 0:
        grad_weights[0] = await model.scatterreduce(grad_weights[0], 0)
        weights[0, "full"] = await model.allgather(weights[0], 0)
    else:
        weights[0, "full"] = await model.allgather(weights[0], 0)
        grad_weights[0] = await model.scatterreduce(grad_weights[0], 0)


try:
    simulate(mixed_up, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 6 | 4 |
#
# **Given:** on rank r shard r of 4 of each weight and of each optimizer state, and the activation of layer 0
# for batch r.
#
# **To do:** gather each weight when it is needed, reduce-scatter each gradient, and update the rank's own
# shards.
#
# **Rules**
#
# - Values live in the stores; everything alive counts. The full gradient counts until the reduce-scatter is
#   over.
# - This time what a rank *sends* counts too: no goal counts for a run in which a rank sends more than the goal
#   says.
# - All ranks call the same collectives in the same order.
# - `set_final_weight` gets this rank's shard.

# %% [markdown]
# **Predict.** The number of collectives is that of the last puzzle. So what about the time? And what is alive on a rank
# at the worst moment, in elements, if you delete everything as early as you can?

# %%
guess = predict("fsdp", end=..., memory=...)
guess

# %%
goal("fsdp")

# %% [markdown]
# <!-- part: hints -->


# %%
async def fsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    # Forward: gather a weight, use it, delete it.
    # Backward: the same; then reduce-scatter the gradient and update this rank's shard.
    # --- your code (about 16 lines) ---
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await model.allgather(weights[layer], layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
        del weights[layer, "full"]

    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        weights[layer, "full"] = await model.allgather(weights[layer], layer)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer, "full"]
        )
        del activations[layer], grad_activations[layer + 1], weights[layer, "full"]
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
    del grad_activations[0]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(fsdp, puzzle="fsdp")

# %%
guess.against(out)

# %%
draw(out)

# %%
Model.check(out, puzzle="fsdp")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you saw
#
# <details><summary>Open this when you have solved the puzzle</summary>
#
# ```
# time = 2·L·B/R + L·(0.3 + 0.3 + 0.3 + 0.5)         two all-gathers, one reduce-scatter, one update for each layer
# peak = 2·L·W/R + W + (L + 1)·A                     shards + one full weight + activations of one batch
# ```
#
# If you updated every layer at once, in this puzzle and in the last, then both peaks are the same: only one
# gradient was alive in either. The difference shows as soon as gradients must be *kept* until all are there,
# for accumulation over microbatches or to clip their common norm: then they take `L·W` with all-reduce and
# `L·W/R` with reduce-scatter.
#
# **To think about:** while a layer is computed the network is idle, and while the next weight is gathered the
# rank is idle. What must happen earlier, and what does it cost?
#
# </details>

# %% [markdown]
# <!-- part: links -->
