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
# Training Llama 3 70B takes about 6.3 · 10²⁴ floating-point operations. One H100 that reaches 40 % of its peak would
# be busy with that for **505 years**. If Magellan had switched one on when he sailed, it would be finishing about now.
#
# So we use more than one. And the simplest way to use four GPUs is to change almost nothing: give each of them a copy
# of the whole model, and a quarter of the data. Most training runs in the world contain this somewhere.
#
# > **To tell a friend:** copy the model, split the batch, add up the gradients. That is all of data parallel training.
#
# *The words, once more.* A **rank** is one GPU with its own memory. All ranks run the same function, and `model.rank`
# tells them apart. A **batch** is one share of the examples of this training step.

# %%
from drawing import draw, draw_collective, draw_ring
from lib import Model, PuzzleError, goal, predict, simulate
from lib.schedules.steps import one_collective

# %% [markdown]
# ## The idea
#
# Four batches, four ranks: **rank r takes batch r**. No rank waits for another. Each goes forward and backward on its
# own, exactly as a single GPU would, only on one batch instead of four.
#
# The trouble starts one line later. After backward each rank has a gradient, and each gradient has only seen a
# quarter of the data. Here are all four (made up with `fake_grad`, to keep it short):


# %%
def alone(model: Model) -> None:
    model.grad_weights[0] = model.fake_grad(0, [model.rank])


demo = simulate(alone, layers=1, batches=4, ranks=4)
for m in demo:
    print("rank", m.rank, "has", m.grad_weights[0])

# %% [markdown]
# What if rank 0 simply updates with what it has?


# %%
def too_early(model: Model) -> None:
    weights, opt_states = model.weights, model.opt_states
    weights[0], opt_states[0] = model.load_weights(0)
    gradient = model.fake_grad(0, [model.rank])
    weights[0], opt_states[0] = model.update(0, gradient, weights[0], opt_states[0])


try:
    simulate(too_early, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# The simulator refuses. A real GPU would not: each rank would update with its own gradient, and after one step you
# would have four different models that drift further apart with every step. Nothing
# would crash, and that makes it one of the nastier bugs to find.
#
# So before any rank updates, all of them need the sum of all four gradients. You met the collective for that in the
# introduction. Every rank brings a gradient, and every rank leaves with the sum: an **all-reduce**.

# %%
demo = simulate(one_collective("allreduce"), layers=1, batches=4, ranks=4)
draw_collective(demo)

# %% [markdown]
# No rank collects all the gradients. The ranks form a ring, the gradient is cut into four pieces, and in
# each round every rank passes one piece to its neighbour. Run the next cell, and step through the rounds.

# %%
draw_ring(demo)

# %% [markdown]
# Twice round the ring, and every rank has the sum. Now count what one rank has sent: six pieces, each a quarter of the
# gradient. With more ranks there are more rounds and smaller pieces, and the total hardly changes. A rank sends about
# **twice the size of the gradient, however many ranks there are**. Four GPUs or four thousand, the bill for each of them
# stays the same.
#
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 2 | 4 |
#
# **Given:** on every rank all weights and optimizer states, and `activations[0]`, the data of the rank's own batch.
#
# **To do:** one training step. In the end every rank holds the same new weights.
#
# **Rules**
#
# - Keep values in the stores. Everything alive counts, on the rank with the highest peak. Park a value in a variable
#   while something else runs, and only the first goal counts.
# - All ranks call the same collectives in the same order.
# - A collective takes 0.3 from the moment the last rank arrives. The step is over when the last rank is done.

# %% [markdown]
# ### Predict first
#
# One device needed a time of 17 for this step. You now have four. When will the step be over, and in how many
# collectives will each rank take part? Replace each `...` with a number before you look any further. Being wrong
# here is the best way to remember it.

# %%
guess = predict("ddp", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

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
    # Backward; a gradient has to be summed over the ranks before its layer is updated.
    # --- your code (about 17 lines) ---
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
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
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
out = simulate(ddp, puzzle="ddp")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Each rank takes one batch through 2 layers: 2 forward, 2 backward. Then, for each layer, one all-reduce (0.3) and one
# update (0.5). So 2 + 2 + 2 · 0.3 + 2 · 0.5 = 5.6, with 2 collectives, one a layer.
#
# Four GPUs are only three times as fast (17 / 5.6 = 3.04). Forward and backward did become four times shorter,
# from 16 to 4. But every rank does the *same* update, so that did not shrink at all, and the all-reduce is new. What
# does not shrink is what you will be fighting from now on.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="ddp")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is **distributed data parallel**: `DistributedDataParallel`, or DDP, in PyTorch. In your picture the four rows
# are identical. Every rank does the same thing at the same moment; only the batches differ.
#
# With *L* layers, *B* batches and *R* ranks, *W* elements in a weight and *A* in the activation of one batch:
#
# ```
# time = 2·L·B/R + (0.3 + 0.5)·L          compute shared by R; all-reduce and update are not
# peak = 2·L·W + W + L·A                  weights and optimizer states + one gradient + activations of one batch
# ```
#
# Look at the second line: there is no *R* in it. More GPUs make data parallel training faster, and never smaller.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **Speed.** PyTorch's DDP scales almost perfectly to 256 GPUs [@li2020], if the network keeps up. It does not always:
#   in another set of measurements each GPU handled 40,150 tokens a second when there were 8 of them, 26,446 among 128,
#   and 15,700 among 256. Memory was 36.7 GB each time [@ultrascale_playbook].
# - **The wire.** The gradients of an 8B model in bf16 are 16 GB, so each GPU sends nearly 32 GB. Eight H100s in one
#   host (450 GB/s each way) need 0.06 s for their all-reduce. Between hosts the network cards decide. Such a host has
#   eight, 50 GB/s each, and NCCL sends a ring through every one of them: 400 GB/s, so 32 GB leave it in 0.08 s. A host
#   with a single card would need 0.64 s. (A ring is what NCCL takes for much data. For little it has trees, with fewer
#   messages one after the other.)
# - **Hiding it.** DDP does not wait as you did. It collects gradients in buckets of 25 MiB and starts the all-reduce of
#   a bucket while backward is still busy with the layers below.
# - **The limit.** With Adam in mixed precision a parameter takes 16 bytes: 2 for the weight, 2 for the gradient, 12 for
#   the optimizer. An 80 GB H100 holds 5 billion parameters like that, with no room for activations. Llama 3 70B would
#   need 1,120 GB, on every single GPU.
# - **What goes wrong.** Give one rank fewer batches than the others and it leaves early. The others wait in their
#   all-reduce for a rank that never comes [@pytorch_38174].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - A backward takes as long as a forward. On a GPU it takes about twice as long: it makes two gradients.
# - A collective takes 0.3, whatever its size. A real one takes longer the more there is to send.
# - Gradients are added up. DDP divides by the number of ranks to get a mean, so that the learning rate keeps its
#   meaning.
# - The optimizer state is as large as the weight. Adam's is larger: two moments, and a copy of the weight in fp32.
# - Only what flows *between* layers is kept for backward. A real layer keeps much more inside.

# %% [markdown]
# ## Questions to think about
#
# **1.** While the ranks computed, the network had nothing to do. While they all-reduced, the ranks had nothing to do.
# Start with `work = model.allreduce(...)`, and `await work` later: how early can the step end?
#
# <details><summary>Answer</summary>
#
# At 5.0. The all-reduce of layer 1 runs behind the backward of layer 0, and that of layer 0 runs behind the update of
# layer 1. Communication has disappeared: 2 + 2 + 2 · 0.5. The price is memory, because a second gradient is alive
# while the first is still on its way. With two layers you get away with it, if you delete `grad_activations[0]` in
# time: the peak stays at 1,572,864 elements. With six it goes from 4,194,304 to 4,325,376. This is what PyTorch's DDP
# does. Try it: your solution is three lines away from it.
#
# </details>
#
# **2.** You have 1,024 GPUs and keep the total batch as it is. Does the time of a step go to zero?
#
# <details><summary>Answer</summary>
#
# No. `2·L·B/R` does, `(0.3 + 0.5)·L` stays. Every GPU computes less and less between two all-reduces of the same size,
# until there is nothing left to hide the network behind. For H100s in several hosts, with all eight cards of each in
# use, this happens below about 2,500 tokens per GPU [@scaling_book]. It is why the measurements above fall from 40,150
# to 15,700. The way out is a larger batch, and that works until the optimizer no longer learns more from it.
#
# </details>
#
# **3.** Nothing ever compares the four copies of the weights. Why do they stay equal?
#
# <details><summary>Answer</summary>
#
# They start equal, they get the same sum, and they run the same update. So whatever breaks one of the three goes
# unnoticed: a different random seed when the model is made, or the running statistics of a BatchNorm, which are no
# gradients and are never all-reduced. That is why DDP begins by copying the weights of rank 0 to all the others.
#
# </details>
#
# ## Where this leads
#
# Look at the memory in your picture once more. Two thirds of the peak are weights and optimizer states, and they are
# on all four ranks: the same numbers, four times. Does rank 3 need its own copy of a layer that it uses for a moment,
# twice a step?

# %% [markdown]
# <!-- part: links -->
