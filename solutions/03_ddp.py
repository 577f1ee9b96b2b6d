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
# **What you learn:** the first schedule for several GPUs. Each has the whole model and its own batch, and the
# gradients are summed over the network.
#
# *Reminder.* A **rank** is one GPU with its own memory. All ranks run the same function; `model.rank` tells
# them apart. A **batch** is one share of the examples of this training step.

# %%
from drawing import draw, draw_group
from lib import Model, PuzzleError, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# There are four batches and now there are four ranks, so nothing has to wait: **rank r works on batch r**.
# That is one line,
#
# ```python
# activations[0] = model.get_activation([model.rank])
# ```
#
# and from there on each rank runs the training step you know, on one batch. (With more batches than ranks
# each rank would take several. In these puzzles there are as many of one as of the other.)
#
# But then rank r only has the gradient of batch r, and nobody may update a weight with it:


# %%
async def too_early(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    weights[0], opt_states[0] = model.load_weights(0)
    activations[0] = model.get_activation([model.rank])
    activations[1] = model.forward(0, activations[0], weights[0])
    grad_activations[1] = model.loss(activations[1])
    grad_weights[0], grad_activations[0] = model.backward(0, activations[0], grad_activations[1], weights[0])
    weights[0], opt_states[0] = model.update(0, grad_weights[0], weights[0], opt_states[0])


try:
    simulate(too_early, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# In reality nothing would stop you: each rank would update with its own gradient, and the four copies of the
# model would drift apart.
#
# The remedy is an **all-reduce**: every rank brings its gradient, every rank gets the sum.


# %%
async def sum_gradients(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["sum"] = await model.allreduce(grad_weights["mine"], 0)


demo = simulate(sum_gradients, layers=1, batches=4, ranks=4)
for m in demo:
    print("rank", m.rank, "has", m.grad_weights["mine"], "and gets", m.grad_weights["sum"])
draw_group({"rank 2 before": demo[2].grad_weights["mine"]}) | draw_group({"rank 2 after": demo[2].grad_weights["sum"]})

# %% [markdown]
# The `await` says: wait until all ranks have come and the sum is there. It takes 0.3 time steps after the
# last rank has arrived.
#
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 2 | 4 |
#
# **Given:** on every rank all weights and optimizer states, and the activation of layer 0 for the rank's own
# batch.
#
# **To do:** forward, loss, backward, all-reduce, update. Every rank ends with the same new weights.
#
# **Rules**
#
# - Values live in the stores; everything alive counts. The peak is that of the rank that needs most.
# - All ranks must call the same collectives in the same order.
# - A collective takes 0.3, and the time that counts is the end of the last operation on any rank.

# %% [markdown]
# **Predict.** Four times as many ranks. Will the step be four times as short as the 17 time steps on one device? What
# does each layer add to it, on every rank? And in how many collectives does a rank take part?

# %%
guess = predict("ddp", end=..., collectives=...)
guess

# %%
goal("ddp")

# %% [markdown]
# <!-- part: hints -->


# %%
async def ddp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    # Forward and loss on this rank's batch.
    # Backward; the gradient of a layer has to be summed over the ranks before the layer is updated.
    # --- your code (about 13 lines) ---
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])

    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
    del grad_activations[0]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(ddp, puzzle="ddp")

# %%
guess.against(out)

# %%
draw(out)

# %%
Model.check(out, puzzle="ddp")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you saw
#
# <details><summary>Open this when you have solved the puzzle</summary>
#
# Four identical rows: every rank does the same at the same time, and only their batches differ. With *R*
# ranks:
#
# ```
# time = 2·L·B/R + (0.3 + 0.5)·L
# peak = 2·L·W + W + L·A             weights and optimizer states + one gradient + activations of one batch
# ```
#
# Compute is divided by *R*. Communication and update are not.
#
# The weights and optimizer states are on every rank in full, `2·L·W`. That is now nearly all of the memory,
# and it is the same four times over. The next puzzles attack this.
#
# **To think about:** the network was idle during backward, and the ranks were idle during the all-reduce.
# With `work = model.allreduce(...)` now and `await work` later, how early can the step end? What does it cost
# in memory?
#
# </details>

# %% [markdown]
# <!-- part: links -->
