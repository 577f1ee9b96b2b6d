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
# Llama 3 405B learned from **16 million tokens at a time**: two thousand sequences of 8,192 tokens, before a single weight
# changed. In the last puzzle you saw what a single one costs: for a quarter of that length, GPT-3 keeps 275 GB of
# activations. No GPU holds two thousand of those. Neither do a thousand GPUs.
#
# But look at what all those activations are for. Each sequence makes a gradient, and in the end the gradients are simply
# added up. And a sum is no larger than one of its parts.
#
# > **To tell a friend:** activations grow with the batch, gradients do not. So let the batches take turns.
#
# *The words, once more.* A **batch** is one share of the examples of this training step. When it travels through the
# network on its own, it is also called a **microbatch**. A **step** updates every weight once, with the gradients of all
# batches.

# %%
from drawing import draw, draw_group
from lib import Model, PuzzleError, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# Run batch 0 forward and backward, all the way. *Then* batch 1, and so on. When a batch is done, its activations are
# gone, and all that is left of it is its gradient. What does the sum of two gradients cost?

# %%
model = Model(layers=1, batches=4)
store = model.grad_weights
store["first"], store["second"] = model.fake_grad(0, [0]), model.fake_grad(0, [1])
store["both"] = store["first"] + store["second"]
for name, value in store.items():
    print(f"{name:<6} has {value.memory():,.0f} elements")
draw_group(store)

# %% [markdown]
# The sum of two is as large as one. So you could add a million batches, and the memory would not notice. Each batch
# counts once. Add one twice, and the simulator notices:

# %%
try:
    store["both"] + store["second"]
except PuzzleError as error:
    print(error)

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 1 | 2 | 4 |
#
# **Given:** all weights and optimizer states. The data is not given: take it batch by batch, with `get_activation([b])`.
#
# **To do:** the same training step as before, one batch at a time, and an update when all batches are in.
#
# **Rules** as before: keep values in the stores, the peak counts, and `+` takes no time.

# %% [markdown]
# ### Predict first
#
# One batch at a time instead of all four: does the step take longer? And what is the peak now? In the last puzzle it was
# 2,621,440 elements. Careful: something has to be kept that you could throw away at once before.

# %%
guess = predict("grad_accum", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

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
    # --- your code (about 24 lines) ---
    for b in range(model.BATCHES):
        activations[0] = model.get_activation([b])
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(
                layer, activations[layer], weights[layer]
            )

        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer, b], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]
            if b > 0:
                grad_weights[layer, b] = (
                    grad_weights[layer, b] + grad_weights[layer, b - 1]
                )
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
out = []  # forget the last run in case this one fails
out = simulate(grad_accum, puzzle="grad_accum")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Time: the same work in another order, so 17 again.
#
# Memory: weights and optimizer states, 4 · 262,144 = 1,048,576. The sums of the gradients of both layers, which stay
# until the last batch: 2 · 262,144 = 524,288. And the activations of *one* batch at its loss: 3 · 131,072 = 393,216.
# Together 1,966,080, a quarter less than before.
#
# </details>
# %%
draw(out)

# %%
Model.check(out, puzzle="grad_accum")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is **gradient accumulation**: `loss.backward()` several times, and `optimizer.step()` once. In PyTorch you get
# the sum for free, because `backward` adds to `.grad` instead of replacing it. Your picture shows four small hills of
# activations instead of one mountain, on a floor of gradients that stays.
#
# ```
# time = 2·L·B + 0.5·L                     the same as before
# peak = 2·L·W + L·W + (L + 1)·A           weights and optimizer states + gradients + activations of one batch
# ```
#
# There is no *B* in the second line. On a GPU that can hold one batch you can train with any number of them. You only
# have to wait for it.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **How large batches are.** Llama 3 405B began with 4 million tokens a step, and went on to 8 and then 16 million. The
#   gradients of the microbatches are added up in fp32, because many small numbers are added to a large one [@llama3].
# - **Together with many GPUs.** No GPU needs the gradients of the others before the last microbatch. With 8 microbatches a
#   step, one all-reduce instead of eight is 1/8 of the traffic [@ml_engineering]. In PyTorch that is `no_sync()`.
# - **What goes wrong.** In October 2024 people noticed that gradient accumulation had been wrong for years, in many
#   libraries at once. They took the mean loss of each microbatch, and then the mean of these means. With sequences of
#   different lengths that is not the mean over all tokens: the tokens of a short microbatch counted for more. It was
#   fixed in Hugging Face transformers [@transformers_34191], and the same bug was found in torchtune [@torchtune_1878].
#   In 2025 a loss still came out four times too large with four microbatches [@transformers_37197].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - Gradients are added, and there is no question of a mean: all batches have the same size. The bug above cannot happen
#   to you here.
# - A small batch runs as efficiently as a large one. A real GPU likes large matrices. With microbatches that are too
#   small it spends its time on moving weights from memory, instead of computing.
# - As before: a backward takes as long as a forward (on a GPU twice), and the optimizer keeps one moment (Adam: two).

# %% [markdown]
# ## Questions to think about
#
# **1.** For which number of batches is accumulation *not* worth it?
#
# <details><summary>Answer</summary>
#
# Compare the two peaks. Together: `(L + 1)·B·A` for activations. One by one: `(L + 1)·A`, and `L·W` for the gradients
# that now have to wait. With *W = 2·A*, as here, taking turns needs less memory when
#
# ```
# (B - 1)·(L + 1) > 2·L
# ```
#
# For two layers that means three batches or more. With two, the mountain was cheaper than the floor. For real models the
# floor is usually there anyway, because most training loops keep all gradients until `optimizer.step()`.
#
# </details>
#
# **2.** Instead of taking one batch through all layers, you could take all batches through one layer, one after the
# other, and then go on to the next layer. Same time, same sum. Why is it never done on one GPU?
#
# <details><summary>Answer</summary>
#
# Because all activations are alive at the loss again. Its peak is 2,752,512 elements, more than that of the last puzzle.
# It has one advantage: each weight is needed in two stretches only, one forward and one backward, instead of twice for
# every batch. That is worth nothing as long as the weights lie in your own memory. When they have to be fetched from
# somewhere else, it suddenly is. Keep it in mind.
#
# </details>
#
# **3.** The gradients of 1,000 microbatches are added up in bf16, which keeps 8 significant bits. What
# happens to the last ones?
#
# <details><summary>Answer</summary>
#
# They disappear. Once the sum is more than 256 times as large as what you add, bf16 rounds the addition away. That is
# why the sum is kept in fp32, at 4 bytes a parameter instead of 2. Llama 3 does so [@llama3].
#
# </details>
#
# ## Where this leads
#
# The activations of one batch are all that is left, and in a real model even they are too many: for GPT-3 you saw 275 GB
# of them. What if you did not keep them at all?

# %% [markdown]
# <!-- part: links -->
