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
# **What you learn:** the order of operations in one training step, and which value is needed until when.
#
# One rank, all batches at once. Every later puzzle is a rearrangement of this one.

# %%
from drawing import draw, draw_group
from lib import Model, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# A training step goes forward through the layers, takes the loss, and comes back. The backward of a layer
# needs the activation that went *into* that layer, so forward must leave it behind:
#
# ```
# forward    activations[0] ──layer 0──> activations[1] ──layer 1──> activations[2]
#                  │                           │                          │ loss
#                  v                           v                          v
# backward     grad act[0] <──layer 0── grad act[1] <──layer 1── grad act[2]
#                  │                           │
#                  v                           v
#            grad_weights[0]             grad_weights[1]
# ```
#
# In the sandbox, with a network of one layer: after forward, both its input and its output are alive.

# %%
model = Model(layers=1, batches=4)
weights, opt_states, activations, grad_activations, grad_weights = model.storage()
weights[0], opt_states[0] = model.load_weights(0)
activations[0] = model.get_activation([0, 1, 2, 3])
activations[1] = model.forward(0, activations[0], weights[0])
grad_activations[1] = model.loss(activations[1])
draw_group(activations)

# %% [markdown]
# One of the two can go now, because only the loss needed it. This is what you see when it was the wrong one:

# %%
del activations[0]
try:
    grad_weights[0], grad_activations[0] = model.backward(0, activations[0], grad_activations[1], weights[0])
except KeyError as error:  # as in any dictionary
    print(error)

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 1 | 2 | 4 |
#
# **Given:** all weights and optimizer states, and the activation of layer 0 with all four batches.
#
# **To do:** forward, loss, backward and update, such that memory is as small as it can be when all four
# batches travel together.
#
# **Rules**
#
# - Keep every value in the store of its kind.
# - A value counts as memory from the moment it is made until it has left the stores and was used for the last
#   time. The peak is the highest total at the start of any operation. Weights and optimizer states that you load were
#   there before the step, so they count from the beginning, and what an update gives counts to the end.
# - One time unit is one batch forward or backward through one layer; an update is 0.5; the loss is free.

# %% [markdown]
# **Before you write anything, predict.** Everything you need for the time is in the rules above: 2 layers, 4 batches,
# forward, backward and two updates. For the memory count what is alive at the loss. Put a number in place of each `...`;
# as a start, the weights and optimizer states alone are 4 · 262 144 elements.

# %%
guess = predict("basic", end=..., memory=...)
guess

# %%
goal("basic")

# %% [markdown]
# <!-- part: hints -->


# %%
def basic(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation(range(model.BATCHES))

    # Forward through all layers, then the loss.
    # Then backward and update, from the last layer to the first.
    # Delete what nobody needs any more.
    # --- your code (about 12 lines) ---
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])

    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
    del grad_activations[0]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(basic, puzzle="basic")

# %%
guess.against(out)

# %%
draw(out)

# %%
Model.check(out, puzzle="basic")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# ## What you saw
#
# <details><summary>Open this when you have solved the puzzle</summary>
#
# Memory climbs during forward, is highest at the loss, and falls during backward: activations pile up and are
# used in reverse. With *L* layers, *B* batches, *W* elements in a weight and *A* in the activation of one
# batch:
#
# ```
# time = 2·L·B + 0.5·L
# peak = 2·L·W + (L + 1)·B·A          weights and optimizer states + activations
# ```
#
# An update may follow its backward directly, because the layers below do not need the new weight. So a
# gradient lives only for a moment.
#
# **To think about:** twice as many batches double one of the two terms. Which one, and what could you do
# about it without a second GPU?
#
# </details>

# %% [markdown]
# <!-- part: links -->
