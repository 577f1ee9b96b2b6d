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
# **What you learn:** the same training step with less memory, by running one batch at a time.
#
# *Reminder.* A **batch** is one share of the examples of this training step. A **microbatch** is a batch that
# travels alone. A training **step** updates every weight once, with gradients from all batches.

# %%
from drawing import draw, draw_group
from lib import Model, PuzzleError, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# In the last puzzle the activations of all four batches were alive at the same time. But batches do not need
# each other: their gradients are simply summed in the end. So run batch 0 forward and backward, *then* batch
# 1, and so on. Only the activations of one batch are ever alive.
#
# What has to survive from one batch to the next is the sum of the weight gradients. It does not grow: a
# gradient has the size of its weight, however many batches are in it.

# %%
model = Model(layers=1, batches=4)
model.grad_weights["batch 0"] = model.fake_grad(0, [0])
model.grad_weights["batch 1"] = model.fake_grad(0, [1])
model.grad_weights["sum"] = model.grad_weights["batch 0"] + model.grad_weights["batch 1"]
for name, value in model.grad_weights.items():
    print(name, "has", value.memory(), "elements")
draw_group(model.grad_weights)

# %% [markdown]
# Each batch counts once. Adding one that is in the sum already is an error:

# %%
try:
    model.grad_weights["sum"] + model.grad_weights["batch 1"]
except PuzzleError as error:
    print(error)

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 1 | 2 | 4 |
#
# **Given:** all weights and optimizer states. The data is not given: take it batch by batch with
# `get_activation([b])`.
#
# **To do:** for each batch forward, loss, backward, and add its weight gradients to what you have. Update
# when all batches are in.
#
# **Rules**, as before: values live in the stores; everything alive counts; `+` takes no time.

# %% [markdown]
# **Predict.** One batch at a time instead of four: does the step take longer? And how much less is the peak than the
# 2 621 440 elements of the last puzzle? Put a number in place of each `...`.

# %%
guess = predict("grad_accum", end=..., memory=...)
guess

# %%
goal("grad_accum")

# %% [markdown]
# <!-- part: hints -->


# %%
def grad_accum(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # For each batch: its data, forward, loss, backward; sum the weight gradients.
    # When all batches are in, update.
    # --- your code (about 20 lines) ---
    for b in range(model.BATCHES):
        activations[0] = model.get_activation([b])
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])

        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer, b], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]
            if b > 0:
                grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - 1]
                del grad_weights[layer, b - 1]
        del grad_activations[0]

    # b is still the last batch, so grad_weights[layer, b] is the sum over all of them.
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer, b], weights[layer], opt_states[layer]
        )
        del grad_weights[layer, b]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(grad_accum, puzzle="grad_accum")

# %%
guess.against(out)

# %%
draw(out)

# %%
Model.check(out, puzzle="grad_accum")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# ## What you saw
#
# <details><summary>Open this when you have solved the puzzle</summary>
#
# Four small hills of activations instead of one big one, and below them the sum of the gradients, which
# stays.
#
# ```
# time = 2·L·B + 0.5·L                     the same
# peak = 2·L·W + L·W + (L + 1)·A           weights and optimizer states + gradients + activations of one batch
# ```
#
# The price is that all gradients now have to be kept until the last batch. With one large batch a layer could
# be updated at once. Activations no longer depend on *B*: this is how a large effective batch is trained on a
# small GPU.
#
# **To think about:** for which number of batches does accumulation *not* pay in memory? (Compare the two
# formulas.)
#
# </details>

# %% [markdown]
# <!-- part: links -->
