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
# Llama 3 was trained on 16 million tokens a step. No GPU processes its share of that in one pass: the activations would
# fill it many times over. So the batch is cut into microbatches, as in puzzle $number_grad_accum, and their gradients
# are summed.
#
# On one GPU that is a loop. On many, write `batch[:half]` for the first microbatch, and the program is right, and slow.
# The batch is spread over the GPUs: its first half is on the first half of them. To give all GPUs some work, examples
# have to **travel** through the network, twice a step. In a framework that places data for you (JAX, or DTensor in
# PyTorch) the code does not show it. It is one innocent slice.
#
# > **To tell a friend:** cut the batch where it lies: every GPU slices what it already has.
#
# *The words, once more.* A **microbatch** goes through the network on its own, and the gradients of all microbatches
# are summed. The order of the terms of a sum does not matter. A **device** is a GPU: what you write runs on each, and
# `model.rank` is its number. A **process** reads for the devices of its host.

# %%
from drawing import draw, draw_curves
from lib import Costs, Model, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# Four devices and a batch of 8 examples. Device 0 has read the examples 0 and 1, device 1 has 2 and 3, and so on. Here
# is the innocent slice: the first microbatch is examples 0 to 3, one for each device, and the second one the rest.


# %%
async def first_half(model: Model) -> None:
    weight, _ = model.load_weights(0)
    two = await model.read([2 * model.rank, 2 * model.rank + 1])
    mine = {2 * model.rank: two.shard(0, 2), 2 * model.rank + 1: two.shard(1, 2)}
    for half in (0, 1):
        wanted = 4 * half + model.rank  # the example that this device gets
        for example in [one for one in mine if one // 4 == half and one != wanted]:
            await model.pass_to(example % 4, mine.pop(example))
        if wanted not in mine:
            mine[wanted] = await model.receive(wanted // 2)
        model.forward(0, mine.pop(wanted), weight)


COSTS = Costs(read=0.1, to_device=0.05)
draw(simulate(first_half, ranks=4, layers=1, batches=8, costs=COSTS))

# %% [markdown]
# Every arrow is an example that travels. Six of the eight do; device 1 gives both of its own away to receive two
# others. All of it is wasted: a microbatch need not be the *first half* of anything. Take a slice of what each device has:
# example 0 of device 0, 2 of device 1, 4 and 6. That is a microbatch as well, and nothing travels:


# %%
async def in_place(model: Model) -> None:
    weight, _ = model.load_weights(0)
    two = await model.read([2 * model.rank, 2 * model.rank + 1])
    for half in (0, 1):
        model.forward(0, two.shard(half, 2), weight)


draw(simulate(in_place, ranks=4, layers=1, batches=8, costs=COSTS))

# %% [markdown]
# `activation.shard(i, n)` is slice *i* of *n* equal ones of an activation: some of its examples. Like any value, the
# slice takes memory, and so does the value it was cut from until you delete that.
#
# ## The puzzle
#
# | devices | mesh | processes | layers | examples | examples a device | read | to the device |
# |---|---|---|---|---|---|---|---|
# | 4 | data 4 | 2 | 4 | 32 | 8 | 0.1 | 0.05 |
#
# **Given:** all weights and optimizer states on every device, and `activations["batch"]`: the 8 examples of this
# device, which its process has read. Below your code gradients are summed over the devices, and all weights updated.
#
# **To do:** take the 8 examples through the network in as many microbatches as you like, and leave the sum of their
# gradients in `grad_weights[layer]`.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts, including examples that wait for their turn. Park a value in
#   a variable while something else runs, and only the first goal counts. Messages call an example a batch.
# - The examples are on the device already. Read one again, and it is copied again.
# - Other sizes are tried as well, in which a device has another even number of examples, `each`: let the number of
#   microbatches follow from that.

# %% [markdown]
# ### Predict first
#
# Suppose you take two microbatches of 4 examples each, and delete everything as early as you can. When is the step
# over, and what does a device hold at its peak? (A weight has 262,144 elements, an example half of that. Forward and
# backward of a layer take 1 each for an example, an update 0.5, an all-reduce 0.3.) Then guess: with 1, 2, 4 or 8
# microbatches, which has the lowest peak, and what stops it from going lower?

# %%
guess = predict("accumulate_in_place", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# All 8 examples together pass, and so does the innocent slice: it ends at 73.4. Two microbatches in place reach the
# second goal. For the third, find the number of microbatches with the lowest peak.

# %%
goal("accumulate_in_place")

# %% [markdown]
# <!-- part: hints -->


# %%
async def accumulate_in_place(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    each = model.BATCHES // model.RANKS
    first = each * model.coord["data"]
    activations["batch"] = await model.read(range(first, first + each))

    # Cut what I have into microbatches. Take each forward and backward, and add up the
    # gradients.
    # --- your code (about 19 lines) ---
    for i in range(each):
        activations["waits", i] = activations["batch"].shard(i, each)
    del activations["batch"]  # all of it is in the slices now

    for i in range(each):
        activations[0] = activations.pop(("waits", i))
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(
                layer, activations[layer], weights[layer]
            )
        grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            gradient, grad_activations[layer] = model.backward(
                layer,
                activations.pop(layer),
                grad_activations.pop(layer + 1),
                weights[layer],
            )
            grad_weights[layer] = grad_weights[layer] + gradient if i else gradient
        del grad_activations[0]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(accumulate_in_place, puzzle="accumulate_in_place")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# A process reads 16 examples, 1.6, and its second device then copies its 8 in 0.4: it begins at 2.0. Forward and
# backward of 8 examples through 4 layers take 64, in whatever slices. Four all-reduces take 1.2 and four updates 2:
# 69.2. Only gradients are sent, so the number of microbatches does not change the time.
#
# Memory with two microbatches, at the worst moment, the first backward of the second one: weights and optimizer states
# (8 · 262,144), the sums of the first microbatch (4 · 262,144), four activations of 4 examples and one gradient of such
# an activation (20 · 131,072): 5,767,168. With slices of one example the worst moment is the first backward of the
# second one: there 6 examples wait, and 4 activations and a gradient of one example are there, 11 · 131,072 instead of
# 20: 4,587,520.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="accumulate_in_place")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is **gradient accumulation on a sharded batch**. AXLearn and Levanter reshape the batch so that a microbatch is
# every n-th example of each device, and never a contiguous part of the whole. With *L* layers, *s* examples in a slice,
# *n* on a device, *W* elements in a weight and *A* in an example:
#
# ```
# sums     = 2·L·W + L·W                    weights and optimizer states + sums of gradients
# work     = (L + 1)·s·A                    activations and a gradient of one slice
# waiting  = (n - 2·s)·A                    examples of later slices, at the worst moment
# ```
#
# The first line does not depend on *s*. And with *s* = 1 more examples wait (6·*A*) than are at work (5·*A*), so the peak
# does not go much lower. On a GPU small slices also run less efficiently: a matrix multiplication needs some thousand
# rows to keep it busy.
#
# </details>
#
# How much travels if you take the first half instead, with *n* examples on each of *R* devices? Every example that does
# not happen to be where it is needed. The picture counts them for microbatches that are contiguous halves:


# %%
def travelling(ranks: int, each: int = 8) -> int:
    """Examples that change their device in one step of two microbatches."""
    half, count = ranks * each // 2, 0
    for example in range(ranks * each):
        count += example // each != example % half // (each // 2)
    return count


counts = (2, 4, 8, 16)
draw_curves(
    {
        "contiguous halves": [(n, travelling(n)) for n in counts],
        "slices in place": [(n, 0) for n in counts],
    },
    across="devices, with 8 examples each",
    up="examples",
    title="Examples that travel in a step of two microbatches",
)

# %% [markdown]
# ## On real GPUs
#
# - **How large a step is.** Llama 3 405B began with 4 million tokens a step and ended with 16 million
#   [@llama3, sections 3.3.2 and 3.4.1]. It summed the gradients of microbatches in 32 bits: with 16 bits, small
#   gradients vanish in a large sum.
# - **What it saves.** Summing gradients over the ranks once for 8 microbatches takes an eighth of the traffic
#   [@ml_engineering].
# - **What went wrong.** Summing is not the whole story: the mean over microbatches is not the mean of their means where
#   they have different numbers of tokens. In October 2024 this was found in the trainers of Hugging Face and torchtune
#   at the same time [@transformers_34191] [@torchtune_1878]; half a year later the loss of one model was still four
#   times too large, at four microbatches [@transformers_37197].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Our slices cost nothing to make. On a GPU a slice of every n-th example may need a copy, which is why frameworks
# reshape the batch once, on the host. An example here is 131,072 elements, as large as any activation; tokens are far
# smaller than their activations, so waiting examples would take next to nothing. And the loss is a sum over examples:
# with means you would have to weight the microbatches, as in [@transformers_34191] [@torchtune_1878].

# %% [markdown]
# ## Questions to think about
#
# **1.** Does a batch norm, or a shuffle, notice which examples are in a microbatch?
#
# <details><summary>Answer</summary>
#
# The gradient of a sum does not. Batch norm does: it computes statistics over the examples of a microbatch, which are
# now different ones. The examples were shuffled before they were read, so one choice is as random as the other.
#
# </details>
#
# **2.** The batch has 30 examples. Device 3 has only 6 of them, and you want 4 microbatches of 2 examples everywhere.
# What do you do?
#
# <details><summary>Answer</summary>
#
# Pad: `simulate(..., batches=30, padding=2)` gives device 3 two examples that do not count, and all devices the same
# loop. Without padding device 3 would run one microbatch less than the others. That is harmless here, where gradients
# are summed once; with FSDP, where each microbatch gathers weights, the others would wait for a collective that device
# 3 never calls. "When the batch does not divide" in puzzle $number_loader shows padding.
#
# </details>
#
# **3.** Read slice by slice, as in puzzle $number_loader, instead of everything up front. What would you gain?
#
# <details><summary>Answer</summary>
#
# Time: the second device of a process would begin after 2 examples instead of 16, at 0.25 instead of 2.0, and the step
# would end at 67.45. And memory: hardly an example waits on the device. A loader that knows the number of microbatches
# can do that; many do not, and hand over the whole batch of a step at once.
#
# </details>
#
# ## Where this leads
#
# The number of examples that you *mean* and the number that the devices *run* are no longer the same: there is
# padding, and there are devices that get less than one example. Your code has to keep track.

# %% [markdown]
# <!-- part: links -->
