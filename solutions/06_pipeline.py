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
# **What you learn:** the other way to share a model. Each rank owns some *layers*, and the data comes to the
# weights instead of the weights to the data.
#
# *Reminder.* A **stage** is a run of neighbouring layers that one rank takes care of. A **batch** is one
# share of the examples of this training step; here all of them travel together.

# %%
from drawing import draw
from lib import Model, PuzzleError, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# With 8 layers and 4 ranks each rank is a stage of two layers: rank 0 has layers 0 and 1, rank 1 has 2 and 3,
# and so on. No weight ever leaves its rank. What travels is the activation between two stages on the way
# forward, and its gradient on the way back:
#
# ```
# rank 0: layers 0 1  ──activations[2]──>  rank 1: layers 2 3  ──activations[4]──>  rank 2: layers 4 5  ...
#                     <──grad act[2]─────                      <──grad act[4]─────
# ```
#
# A message goes from one rank to one other: `await model.pass_to(rank, value)` on one side,
# `value = await model.receive(rank)` on the other. Here an activation goes down a line of three ranks:


# %%
async def down_the_line(model: Model) -> None:
    weights, opt_states, activations = model.weights, model.opt_states, model.activations
    layer = model.rank
    weights[layer], opt_states[layer] = model.load_weights(layer)
    if model.rank == 0:
        activations[0] = model.get_activation([0])
    else:
        activations[layer] = await model.receive(model.rank - 1)
    activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    if model.rank < model.RANKS - 1:
        await model.pass_to(model.rank + 1, activations[layer + 1])


demo = simulate(down_the_line, layers=3, batches=1, ranks=3)
draw(demo)

# %% [markdown]
# A message takes 0.2 on each side, one after the other. It makes a copy: the value stays in the sender's
# store too, until the sender deletes it.
#
# Every `receive` needs a `pass_to` somewhere. The first and the last stage are special, and if the last one
# forgets that it is the last, everybody waits for ever:


# %%
async def never_comes_back(model: Model) -> None:
    model.activations[0] = model.get_activation([0])
    if model.rank > 0:
        model.activations["from below"] = await model.receive(model.rank - 1)
    if model.rank < model.RANKS - 1:
        await model.pass_to(model.rank + 1, model.activations[0])
    model.grad_activations["from above"] = await model.receive((model.rank + 1) % model.RANKS)


try:
    simulate(never_comes_back, layers=1, batches=1, ranks=3)
except PuzzleError as error:
    print(error)

# %% [markdown]
# The last stage has nobody above it to wait for: it gets its gradient from the loss.
#
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 8 | 4 |
#
# **Given:** on each rank its layers `my_layers`, from `first` to `last`, with their weights and optimizer
# states in full.
#
# **To do:** take all batches at once through the stages, forward and back, then update.
#
# **Rules**
#
# - Values live in the stores; everything alive counts, also what has been sent, until it is deleted *and* the other
#   rank has called `receive`.
# - Messages only. No collective is needed, because no weight is on two ranks.
# - `set_final_weight` gets the weights of this rank's layers. The check collects the layers from all ranks.

# %% [markdown]
# **Predict.** All four batches go through all the ranks one after the other, and back. What share of the time (in
# percent, all ranks together) is not spent computing? And how many messages does a rank in the middle send?

# %%
guess = predict("pipeline", idle=..., messages=...)
guess

# %%
goal("pipeline")

# %% [markdown]
# <!-- part: hints -->


# %%
async def pipeline(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    per_rank = model.LAYERS // model.RANKS
    my_layers = range(model.rank * per_rank, (model.rank + 1) * per_rank)
    first, last = my_layers[0], my_layers[-1]
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # The input of this stage: data, or a message. Forward through my layers.
    # The output: to the next rank or into the loss. Its gradient: from the next rank or from the loss.
    # Backward through my layers, and a message to the rank before. Update.
    # --- your code (about 24 lines) ---
    if model.rank == 0:
        activations[0] = model.get_activation(range(model.BATCHES))
    else:
        activations[first] = await model.receive(model.rank - 1)

    for layer in my_layers:
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])

    if model.rank == model.RANKS - 1:
        grad_activations[last + 1] = model.loss(activations[last + 1])
        del activations[last + 1]
    else:
        await model.pass_to(model.rank + 1, activations[last + 1])
        del activations[last + 1]
        grad_activations[last + 1] = await model.receive(model.rank + 1)

    for layer in reversed(my_layers):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]

    if model.rank > 0:
        await model.pass_to(model.rank - 1, grad_activations[first])
    del grad_activations[first]

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
    # --- end of your code ---

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(pipeline, puzzle="pipeline")

# %%
guess.against(out)

# %%
draw(out)

# %%
Model.check(out, puzzle="pipeline")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you saw
#
# <details><summary>Open this when you have solved the puzzle</summary>
#
# A staircase down and a staircase up. At any moment one rank works and three wait. The waiting is called the
# **bubble**, and here it is three quarters of the picture. (The picture starts at the top with rank 0, so the
# way *forward* goes down.)
#
# ```
# time = 2·L·B + 2·(R - 1)·0.4 + 0.5·L/R         compute as on one device + messages + updates of one stage
# peak = 2·(L/R)·W + (L/R + 1)·B·A               weights and optimizer states of a stage + its activations
# ```
#
# In exchange there is very little communication: each rank talks to two others, twice, and no weight ever
# moves.
#
# **To think about:** rank 1 waits until rank 0 has done *all* batches. How much would it have to get before
# it could begin?
#
# </details>

# %% [markdown]
# <!-- part: links -->
