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
# **What you learn:** to store a quarter of every weight and to have the whole of it only while it is used.
#
# *Reminder.* A **shard** is one of `total` equal pieces of a weight, of its gradient or of its optimizer
# state. Rank r works on batch r.

# %%
from drawing import draw, draw_group
from lib import Model, PuzzleError, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# In data parallel training, all four ranks keep the same weights and the same optimizer states. Now each
# layer is cut into four shards and **rank r keeps shard r of every layer**:


# %%
async def gather_weight(model: Model) -> None:
    weights, opt_states = model.weights, model.opt_states
    weights["shard"], opt_states["shard"] = model.load_weights(0, model.rank, model.RANKS)
    weights["full"] = await model.allgather(weights["shard"], 0)


demo = simulate(gather_weight, layers=1, batches=4, ranks=4)
for m in demo:
    print("rank", m.rank, "has", m.weights["shard"], "and gets", m.weights["full"])
draw_group({"rank 2 before": demo[2].weights["shard"]}) | draw_group({"rank 2 after": demo[2].weights["full"]})

# %% [markdown]
# This is an **all-gather**: every rank brings its shard, every rank gets the whole weight. It is needed
# because a rank's batch has to go through the *whole* layer. A shard will not do:


# %%
async def with_a_shard(model: Model) -> None:
    weights, opt_states, activations = model.weights, model.opt_states, model.activations
    weights[0], opt_states[0] = model.load_weights(0, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])
    activations[1] = model.forward(0, activations[0], weights[0])


try:
    simulate(with_a_shard, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# So before each forward and each backward the layer is gathered, and right after it the full weight is
# deleted. The shard stays where it is.
#
# Updating is different. A shard of a weight *can* be updated on its own, if you have its optimizer state and
# the gradient. The gradient may be the whole one: `update` uses the part it needs.
#
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 6 | 4 |
#
# **Given:** on rank r shard r of 4 of each weight and of each optimizer state, and the activation of layer 0
# for batch r.
#
# **To do:** gather each weight when it is needed. Sum the gradients with an all-reduce and update the rank's
# own shards.
#
# **Rules**
#
# - Values live in the stores; everything alive counts, so a gathered weight counts until it is deleted. A
#   convenient key for it is `weights[layer, "full"]`.
# - `set_final_weight` gets this rank's shard. The check puts the shards of all ranks together.

# %% [markdown]
# **Predict.** How many collectives does a rank need for 6 layers, if it gathers each layer when it is used and sums
# each gradient? And how long does the step take then?

# %%
guess = predict("wsdp", collectives=..., end=...)
guess

# %%
goal("wsdp")

# %% [markdown]
# <!-- part: hints -->


# %%
async def wsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    # Forward: gather a weight, use it, delete it.
    # Backward: the same; then sum the gradient over the ranks and update this rank's shard.
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
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
    del grad_activations[0]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(wsdp, puzzle="wsdp")

# %%
guess.against(out)

# %%
draw(out)

# %%
Model.check(out, puzzle="wsdp")

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
# time = 2·L·B/R + L·(0.3 + 0.3 + 0.3 + 0.5)         two all-gathers, one all-reduce, one update for each layer
# peak = 2·L·W/R + W + (L + 1)·A                     shards + one full weight + activations of one batch
# ```
#
# Of the weights and optimizer states, only `1/R` is left on each rank, and one full weight at a time comes
# for a visit. Plain data parallel would need `2·L·W` for them.
#
# One thing was wasteful. The all-reduce gave every rank the full gradient, and each used a quarter of it for
# its own shard.
#
# **To think about:** the last layer's weight was deleted after forward and gathered again right away for
# backward. What do you gain if you keep it, and does the peak change?
#
# </details>

# %% [markdown]
# <!-- part: links -->
