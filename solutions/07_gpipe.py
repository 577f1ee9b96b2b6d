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
# **What you learn:** to shrink the bubble of a pipeline with microbatches.
#
# *Reminder.* A **microbatch** is a batch that travels alone. A **stage** is the run of layers that one rank
# owns. The **bubble** is the time in which ranks wait.

# %%
from drawing import compare as compare
from drawing import draw
from lib import Model, PuzzleError, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# In the last puzzle rank 1 waited until rank 0 had finished all four batches. But batches are independent, so
# let each travel alone: as soon as rank 0 is done with batch 0 it passes it on and begins with batch 1, while
# rank 1 works on batch 0.
#
# Here are four batches on the way forward, first together, then one by one:


# %%
async def forward_only(model: Model, parts: list[list[int]]) -> None:
    weights, opt_states, activations = model.weights, model.opt_states, model.activations
    layer = model.rank
    weights[layer], opt_states[layer] = model.load_weights(layer)
    for b, batches in enumerate(parts):
        if model.rank == 0:
            activations[layer, b] = model.get_activation(batches)
        else:
            activations[layer, b] = await model.receive(model.rank - 1)
        activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer])
        if model.rank < model.RANKS - 1:
            await model.pass_to(model.rank + 1, activations[layer + 1, b])


async def together(model: Model) -> None:
    await forward_only(model, [[0, 1, 2, 3]])


async def one_by_one(model: Model) -> None:
    await forward_only(model, [[0], [1], [2], [3]])


compare(
    together=simulate(together, layers=4, batches=4, ranks=4),
    one_by_one=simulate(one_by_one, layers=4, batches=4, ranks=4),
)

# %% [markdown]
# GPipe does this in both directions: all microbatches forward, then all microbatches backward, then one
# update. It is the pipeline of puzzle $number_pipeline and the gradient accumulation of puzzle $number_grad_accum in one.
#
# There are now several values of each kind on a rank, so give them a key with two parts,
# `activations[layer, b]`. Messages between two ranks arrive in the order in which they were sent. If you take
# them for something else, you hear of it when the batches do not match:


# %%
async def wrong_order(model: Model) -> None:
    weights, opt_states = model.weights, model.opt_states
    activations, grad_activations = model.activations, model.grad_activations
    weights[0], opt_states[0] = model.load_weights(0)
    for b in (0, 1):
        activations[0, b] = model.get_activation([b])
        activations[1, b] = model.forward(0, activations[0, b], weights[0])
        grad_activations[1, b] = model.loss(activations[1, b])
    model.backward(0, activations[0, 0], grad_activations[1, 1], weights[0])


try:
    simulate(wrong_order, layers=1, batches=2, ranks=1)
except PuzzleError as error:
    print(error)

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 8 | 4 |
#
# **Given:** on each rank its layers `my_layers`, from `first` to `last`, with their weights and optimizer
# states in full.
#
# **To do:** take each batch on its own through the stages: all of them forward, then all of them backward.
# Sum the weight gradients and update.
#
# **Rules**
#
# - Values live in the stores; everything alive counts.
# - Messages only.
# - There is room for one message on the way to each rank. A second `pass_to` waits until the first has been
#   received.

# %% [markdown]
# **Predict.** The last puzzle took 67.4 time units. How long will it take when the batches travel one by one? And
# which rank will hold the most memory at its peak, if every rank deletes what it does not need?

# %%
guess = predict("gpipe", end=..., rank=...)
guess

# %%
goal("gpipe")

# %% [markdown]
# <!-- part: hints -->


# %%
async def gpipe(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    per_rank = model.LAYERS // model.RANKS
    my_layers = range(model.rank * per_rank, (model.rank + 1) * per_rank)
    first, last = my_layers[0], my_layers[-1]
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # For each batch: input, forward, output to the next rank or into the loss.
    # For each batch: gradient, backward, sum of the weight gradients, message to the rank before.
    # Update.
    # --- your code (about 31 lines) ---
    for b in range(model.BATCHES):
        if model.rank == 0:
            activations[0, b] = model.get_activation([b])
        else:
            activations[first, b] = await model.receive(model.rank - 1)
        for layer in my_layers:
            activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer])
        if model.rank < model.RANKS - 1:
            await model.pass_to(model.rank + 1, activations[last + 1, b])
        else:
            grad_activations[last + 1, b] = model.loss(activations[last + 1, b])
        del activations[last + 1, b]

    for b in range(model.BATCHES):
        if model.rank < model.RANKS - 1:
            grad_activations[last + 1, b] = await model.receive(model.rank + 1)
        for layer in reversed(my_layers):
            grad_weights[layer, b], grad_activations[layer, b] = model.backward(
                layer, activations[layer, b], grad_activations[layer + 1, b], weights[layer]
            )
            del activations[layer, b], grad_activations[layer + 1, b]
            if b > 0:
                grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - 1]
                del grad_weights[layer, b - 1]
        if model.rank > 0:
            await model.pass_to(model.rank - 1, grad_activations[first, b])
        del grad_activations[first, b]

    # b is still the last batch, so grad_weights[layer, b] is the sum over all of them.
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer, b], weights[layer], opt_states[layer]
        )
        del grad_weights[layer, b]
    # --- end of your code ---

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(gpipe, puzzle="gpipe")

# %%
guess.against(out)

# %%
draw(out)

# %%
Model.check(out, puzzle="gpipe")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you saw
#
# <details><summary>Open this when you have solved the puzzle</summary>
#
# The same staircases with much smaller steps. A rank still has to wait for the ranks before it to fill the
# pipeline, and for those after it to come back, but only for one microbatch on each of them and no longer for
# all batches. If messages were free:
#
# ```
# time   = 2·(L/R)·(B + R - 1)
# bubble = (R - 1) / (B + R - 1)          the share of time that a rank waits
# ```
#
# So more microbatches mean less waiting. But every microbatch leaves its activations on each rank until its
# backward, and that is the memory you saw growing in the first half.
#
# **To think about:** the last stage could begin with the backward of batch 0 as soon as it has its loss. What
# would that do to the number of batches whose activations are alive? (This schedule is called 1F1B: one
# forward, one backward.)
#
# </details>

# %% [markdown]
# <!-- part: links -->
