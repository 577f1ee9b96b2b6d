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
# To learn from **one** sequence of 2,048 tokens, GPT-3 keeps 275 GB of activations. That is three and a half H100s
# full, before a single weight is stored. To *answer* the same sequence it keeps a cache of keys and values, under 10
# GB. Everything else is computed, handed on and forgotten, layer by layer.
#
# Why the difference? Because learning goes there **and back**. Forward runs through the layers, the loss looks at the
# result, and backward returns the same way. And on the way back every layer asks for what went into it on the way there.
#
# > **To tell a friend:** a model that answers forgets as it goes. A model that learns has to remember every layer until
# > it comes back.
#
# This puzzle is about that memory. There is one GPU, and all batches travel together. All later puzzles are variations
# of it.

# %%
from drawing import draw, draw_step
from lib import Model, goal, predict, simulate
from lib.schedules.steps import forward, load

# %% [markdown]
# ## The idea
#
# Here is a network of six layers that only answers. As soon as a layer has been computed, its input is deleted. Look at
# the yellow band in the memory: it stays thin, whatever the depth of the network. (`load` and `forward` are
# helpers, so that you can look at the picture instead of at the code.)


# %%
def answer(model: Model) -> None:
    load(model)
    model.activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        forward(model, layer)
        del model.activations[layer]


draw(simulate(answer, layers=6, batches=4, ranks=1))

# %% [markdown]
# And the same network on its way to learn something. Nothing may be deleted, because backward will ask for it:


# %%
def begin_to_learn(model: Model) -> None:
    load(model)
    model.activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        forward(model, layer)


draw(simulate(begin_to_learn, layers=6, batches=4, ranks=1))

# %% [markdown]
# Now the whole step, there and back, for a network of two layers. Here `act 1` is `activations[1]`, and `grad 1` is its
# gradient, `grad_activations[1]`. Follow the numbers, and at each box look at the arrows that lead to it:


# %%
def whole_step(model: Model) -> None:
    from lib.schedules.steps import compute, step

    load(model)
    compute(model, range(model.BATCHES))  # forward, loss and backward
    for layer in range(model.LAYERS):
        step(model, layer)  # update, and hand in


run = simulate(whole_step, layers=2, batches=4, ranks=1)
del whole_step  # writing one is your task
draw_step(run)

# %% [markdown]
# The backward of a layer reads what went in, the gradient of what came out, and the weight. It is the last one to read
# the first two. So the mountain that forward piles up can be taken down again, layer by layer, if you delete at the right
# moment.
#
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 1 | 2 | 4 |
#
# **Given:** all weights and optimizer states, and `activations[0]`, the data of all four batches.
#
# **To do:** forward, loss, backward and update, with as little memory as you can while all four batches travel together.
#
# **Rules**
#
# - Keep values in the stores. Park a value in a variable while something else runs, and only the first goal counts. A
#   value takes memory from the moment it is made until you delete it.
# - What counts is the peak, the highest total at any moment.
# - Forward and backward take 1 for each batch and layer, an update takes 0.5, and the loss takes no time.

# %% [markdown]
# ### Predict first
#
# Everything you need for the time is in the rules: 2 layers, 4 batches, forward, backward, two updates. For the memory,
# count what is alive when the loss has just been computed. As a start, the weights and optimizer states alone are
# 4 · 262,144 elements. An activation takes 131,072 for each batch. Replace each `...` with a number.

# %%
guess = predict("basic", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

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
    # Delete everything that is not read again.
    # --- your code (about 16 lines) ---
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(
            layer, activations[layer], weights[layer]
        )

    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer], weights[layer], opt_states[layer]
        )
        del grad_weights[layer]
    del grad_activations[0]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(basic, puzzle="basic")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Time: 4 batches go forward through 2 layers (8), and backward (8). Two updates make 1 more: 17.
#
# Memory: weights and optimizer states are 4 · 262,144 = 1,048,576. At the loss two inputs are waiting for backward, and
# there is the gradient of the output. Each is 4 · 131,072 for its four batches, so 3 · 524,288 = 1,572,864. Together
# 2,621,440.
#
# </details>
# %%
draw(out)

# %%
Model.check(out, puzzle="basic")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is what `loss.backward()` does for you in PyTorch, with all the bookkeeping that you never see. Memory climbs
# during forward, is highest around the loss, and falls during backward: what went in last comes out first.
#
# With *L* layers and *B* batches (two or more), *W* elements in a weight and *A* in the activation of one batch:
#
# ```
# time = 2·L·B + 0.5·L
# peak = 2·L·W + (L + 1)·B·A          weights and optimizer states + activations
# ```
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **What a parameter costs.** With Adam in mixed precision it takes 16 bytes: 2 for the weight, 2 for the gradient, 12
#   for the optimizer. Inference needs only the 2 bytes of the weight. The weights of a 7B model fit in 14 GB; training
#   it takes 112 GB, more than an H100 has (80 GB).
# - **What a layer remembers.** A transformer layer keeps `s·b·h·(34 + 5·a·s/h)` bytes, for `b` sequences of `s` tokens,
#   `h` numbers a token and `a` attention heads [@korthikanti2022]. For GPT-3 (h = 12,288, a = 96, 96 layers) this gives the 275 GB
#   above.
# - **Forgetting on purpose.** You can throw activations away and compute them again on the way back. This is
#   **activation checkpointing**. Doing it for everything made a layer of a 22B model 39 % slower. Doing it only for the
#   part that is large and cheap, inside attention, 7 % [@korthikanti2022]. A ResNet with 1,000 layers went from 48 GB to 7 GB, for 30 %
#   more time [@chen2016].
# - **What goes wrong.** `total += loss` in a training loop. Each loss holds on to its whole graph, so nothing is freed,
#   step after step. `total += loss.item()` is what you want.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - A backward takes as long as a forward. On a GPU it takes about twice as long.
# - Only what flows *between* the layers is kept. A real layer keeps some fifty times that inside, says the formula above.
# - The optimizer state is as large as the weight, like a momentum. Adam keeps two such moments, and mixed precision adds
#   a copy of the weight in fp32.
# - The loss takes no time. With a vocabulary of 128,000 tokens, as in Llama 3, it is one of the heaviest parts.

# %% [markdown]
# ## Questions to think about
#
# **1.** PyTorch first runs all of backward, and then `optimizer.step()`. You could update each layer right after its
# backward. What does that change?
#
# <details><summary>Answer</summary>
#
# At this size, nothing: the peak is at the loss, before there is a single gradient. Try it: both ways reach 2,621,440.
# But with one batch and many layers the weights are the larger part, and keeping all gradients until the end costs *L·W*
# that you do not need. Doing the update inside backward is an old trick for fine-tuning on a small GPU. Its price: you
# can no longer clip by the norm of *all* gradients, because you never have them all.
#
# </details>
#
# **2.** Keep only `activations[0]`, and compute the others again when backward needs them. What do you gain, and what
# does it cost?
#
# <details><summary>Answer</summary>
#
# With *L* layers you would keep one activation instead of *L*, and run forward from the start again for almost every
# layer: about *L²/2* layers of extra compute. The usual compromise is to keep every √L-th one. Then each activation is
# computed at most twice: about a third more compute (three passes become four, as backward counts for two), for a
# memory that grows with √L only.
#
# </details>
#
# **3.** Twice as many batches double one of the two terms of the peak. Which one?
#
# <details><summary>Answer</summary>
#
# The activations, `(L + 1)·B·A`. Weights and optimizer states do not know how much data there is. So a large batch is a
# problem of activations, and of nothing else. That is good news, and it is the next puzzle.
#
# </details>
#
# ## Where this leads
#
# Your peak grows with the batch, and large models want large batches: 16 million tokens, for Llama 3 405B. What could
# you do about it without buying a second GPU?

# %% [markdown]
# <!-- part: links -->
