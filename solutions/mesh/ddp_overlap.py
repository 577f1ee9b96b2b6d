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
# Plain data parallelism, measured: with 8 GPUs, each trained on 40,150 tokens a second. With 256, each managed 15,700
# [@ultrascale_playbook, data parallel scaling]. Same model, same GPUs, and 2.6 times slower. They spent the rest of
# their time waiting for the sum of their gradients.
#
# You know that sum. In "Distributed data parallel" you awaited an all-reduce after each backward, and it took 0.3. In
# this puzzle you pay for what you send, and one all-reduce takes longer than the backward before it: 1.5 against 1. A
# step that computes for 20 lasts 32.
#
# None of that waiting is necessary. While the gradient of layer 7 travels, you can compute that of layer 6.
#
# > **To tell a friend:** a gradient can travel as soon as it is made: send it off, keep computing, and ship small ones
# > together.
#
# *The words, once more.* A collective is two things: the call starts it, `await` waits until it is over. What lies
# between the two runs at the same time.

# %%
from drawing import draw, draw_collective
from lib import Links, Model, critical_path, goal, predict, simulate, why
from lib.schedules.data_parallel import ddp
from lib.schedules.steps import one_collective

# %% [markdown]
# ## The idea
#
# Take your plain data parallel step on 8 layers, with each all-reduce awaited at once. (What one costs here is explained
# below.) There are two questions to ask of any schedule that is slower than it should be.
#
# First, **why does this rank idle?** Point at a gap, say rank 0 at time 9.5, and `why` follows it back to what held the
# rank up. It also says what the rank could have done in the meantime:

# %%
costs = Links(latency=0.15)
awaited = simulate(ddp, layers=8, batches=4, ranks=4, costs=costs)
why(awaited, rank=0, time=9.5)

# %% [markdown]
# Second, **what decides when the step ends?** Closing a gap helps only if the end was waiting for it. The chain of
# operations in which each waits for the one before, all the way to the end, is the **critical path**:

# %%
critical_path(awaited)

# %% [markdown]
# Of 32 time units 12 are all-reduces, and there is no slack anywhere: make any operation later by a little, and the step
# ends later. If you take all 12 off that path, the step ends at 20.
#
# **What an all-reduce costs.** So far a collective took 0.3, whatever its size. In this puzzle a message takes 0.15
# before anything arrives (its **latency**), and then the time that its bytes need. A ring all-reduce over 4 ranks sends
# 6 messages one after another, so the latencies alone are 6 · 0.15 = 0.9. The bytes of one layer take 0.6:
#
# | layers in one all-reduce | 1 | 2 | 4 | 8 |
# |---|---|---|---|---|
# | time | 1.5 | 2.1 | 3.3 | 5.7 |
# | time for each layer | 1.5 | 1.05 | 0.83 | 0.71 |
#
# You pay the latency once for each all-reduce, not for each layer. That is why real programs put the gradients of
# several layers into one flat buffer, a **bucket**, and all-reduce that. Here it is a call of its own, which takes a
# list of gradients and gives a list of sums:
#
# ```python
# sums = await model.allreduce_bucket([gradient, another_gradient])
# ```
#
# This is what it does, with the gradients of two layers:

# %%
two = one_collective("allreduce_bucket")
draw_collective(simulate(two, layers=2, batches=4, ranks=4, costs=costs))

# %% [markdown]
# **How large should a bucket be?** Two forces pull at it:
#
# - **Small buckets leave early.** The first gradient is there after the first backward, and travels behind the second.
#   But it travels for 1.5, and a backward takes 1.
# - **Large buckets are cheap, and late.** One bucket with everything takes 5.7, and eight small ones 12. But it can
#   only leave when the last backward is over, and then nothing is left to hide it behind.
#
# Which size is best? And is a backward the only thing to hide behind?

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches | latency of a message |
# |---|---|---|---|
# | 4 | 8 | 4 | 0.15 |
#
# **Given:** on every rank all weights and optimizer states, and the data of batch number `model.rank`.
#
# **To do:** the training step of "Distributed data parallel": forward, loss, backward, sum up the gradients over the
# ranks, update. Decide when each gradient travels, with which others, and where you wait for it.
#
# **Rules**
#
# - All ranks make the same calls in the same order, with the same layers in each bucket.
# - Keep values in the stores: everything alive counts. Park a value in a variable while something else runs, and only
#   the first goal counts. Store each sum under the key of its gradient, or both take memory. Works may wait in a list
#   of your own.
# - A gradient in flight takes memory until its sum has arrived and is used.
# - Collectives of the same ranks follow each other: the second one starts when the first one is over.

# %% [markdown]
# ### Predict first
#
# Suppose you start one all-reduce for each layer right after its backward, and await all of them when the backward of
# layer 0 is done, each one just before its update. When is the step over, in time units? And what does a rank hold at
# its worst moment? (A weight has 262,144 elements, an activation half of that.)

# %%
guess = predict("ddp_overlap", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is the step with every all-reduce awaited at once. For the second, the all-reduces run behind the
# backwards. For the third, they have to become fewer.

# %%
goal("ddp_overlap")

# %% [markdown]
# <!-- part: hints -->


# %%
async def ddp_overlap(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    # Forward and loss, as in "Distributed data parallel". Then backward, layer by
    # layer: start the sum of each gradient, alone or in a bucket with others, and wait
    # for it as late as you can. Update all layers.
    # --- your code (about 30 lines) ---
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(
            layer, activations[layer], weights[layer]
        )
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    bucket = []  # the layers whose gradients wait for company
    travelling = []  # the layers of each bucket that has left, and its all-reduce
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer,
            activations.pop(layer),
            grad_activations.pop(layer + 1),
            weights[layer],
        )
        grad_activations.pop(0, None)  # the gradient of the data is not read again
        bucket.append(layer)
        if len(bucket) == 2 or layer == 0:
            work = model.allreduce_bucket([grad_weights[i] for i in bucket])
            travelling.append((bucket, work))
            bucket = []

    # The first bucket arrived long ago; the last one travels behind these updates.
    for bucket, work in travelling:
        sums = await work
        for layer in bucket:
            grad_weights[layer] = sums.pop(0)
        for layer in bucket:
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights[layer], weights[layer], opt_states[layer]
            )
            del grad_weights[layer]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(ddp_overlap, puzzle="ddp_overlap")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Time, with one all-reduce a layer in the background: forward takes 8, and the first backward one more. At 9 the first
# all-reduce starts. There are eight, each takes 1.5, and they follow each other without a gap: 9 + 12 = 21. Then the
# last update: 21.5. The backwards were over at 16, and the other seven updates at 19.5, so the network was what you
# waited for.
#
# With buckets of two layers the all-reduces take 2.1 each. They are called at 10, 12, 14 and 16, and run one after the
# other: they are over at 12.1, 14.2, 16.3 and 18.4. Six updates run from 16 to 19, and the last two from 19 to 20: the
# rank never waits.
#
# Memory, when the last all-reduce starts: all weights and optimizer states (16 · 262,144) and eight gradients (8 ·
# 262,144): 6,291,456 elements. The sums of the first layers arrived long ago, but they wait for their updates, which
# come after the backwards. If the gradient of the data is still there, which the last backward has just made (131,072),
# it is 6,422,528: the third goal asks you to notice it.
#
# </details>

# %%
draw(out)

# %% [markdown]
# What decides the end now? Before, it was 8 forward, 8 backward, 4 update and 12 all-reduce. Look which of these are left
# on your critical path. If one is an all-reduce, the network decides; if none is, no better network will help you.

# %%
critical_path(out)

# %%
Model.check(out, puzzle="ddp_overlap")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is what `DistributedDataParallel` in PyTorch does, down to the word **bucket**. It hooks into the backward pass,
# fills buckets in the order in which gradients are made, starts the all-reduce of a full bucket, and waits at the end of
# `backward()`. Its optimizer then updates all layers, as yours does.
#
# With *k* layers in a bucket, *R* ranks, a latency α of a message and a time β for the bytes of one layer (0.4 here):
#
# ```
# one all-reduce   = 2·(R - 1)·α + k·2·(R - 1)/R·β           0.9 + 0.6·k here
# all of them      = L/k of these, one after the other
# at the very end  = what is left of the last one, and its k updates
# ```
#
# These are the ends for all sizes of buckets, in this puzzle:
#
# | layers in a bucket | 1 | 2 | 3 | 4 | 8 |
# |---|---|---|---|---|---|
# | step over at | 21.5 | 20 | 20 | 21.3 | 25.7 |
# | bound by | latency | compute | compute | the last bucket | the only bucket |
#
# And 20 is as fast as it gets: a rank computes for 8 + 8 + 4, so a step that ends at 20 has hidden every all-reduce.
# `critical_path` says the same with one layer in a bucket: 8 forward, 1 backward, 0.5 update and 12 all-reduce. With two
# there is no all-reduce left on it.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **How large a bucket is.** PyTorch's DDP has buckets of 25 MiB, and the first one has 1 MiB, so that something
#   travels early [@pytorch_reducer]. A weight matrix of 4,096 x 4,096 in bf16 has 32 MiB: large models have about one
#   bucket for each matrix.
# - **What it is worth.** The authors of DDP report near-linear scaling to 256 GPUs for models that fit [@li2020].
# - **When it is no longer enough.** The run of the first paragraph: 26,446 tokens a second for each of 128 GPUs, 15,700
#   for each of 256. Memory was 36.7 GB each time [@ultrascale_playbook]. With twice the GPUs each has half the tokens
#   behind which to hide the same all-reduce.
# - **How much work it takes to hide it.** Across H100 hosts about 2,475 tokens a GPU and step, with the 400 GB/s
#   of all eight cards of a host [@scaling_book, chapters on GPUs and on training].
# - **Size counts inside a host, too.** On one H100 host an all-reduce of 10 GB reaches 370 of 450 GB/s, and one of 58
#   MB only about 150 [@scaling_book].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Backward takes as long as forward here; on a GPU it takes about twice as long, which leaves more to hide behind. A
# collective runs beside the computation for free; real ones take a few of the GPU's processors and part of its memory
# bandwidth. All layers are equally large, so "two layers" is a size; real buckets are counted in bytes. And packing
# gradients into a flat buffer costs nothing here: PyTorch saves that copy by making gradients views of the bucket
# (`gradient_as_bucket_view=True`).

# %% [markdown]
# ## Questions to think about
#
# **1.** The latency of your network drops to zero. What is the best bucket then? And if it doubles, to 0.3?
#
# <details><summary>Answer</summary>
#
# At zero, one layer in each: 0.6 a layer is less than a backward, so every all-reduce is over before the next gradient
# is there, and large buckets could only be late. At 0.3 an all-reduce of *k* layers takes 1.8 + 0.6·k. Two in each
# bucket: 10 + 4 · 3 = 22 and two updates, 23. Three, three, two: 11 + 3.6 + 3.6 + 3 = 21.2 and two updates, 22.2.
# The larger the latency, the larger the best bucket, as always when each trip has a fixed price.
#
# </details>
#
# **2.** Why does PyTorch make the first bucket small, and not the last?
#
# <details><summary>Answer</summary>
#
# Before the first bucket is full, the network idles: a small one ends that sooner. A small *last* bucket would
# also be good, because it has nothing left to hide behind. Try it: buckets of 1, 2, 2, 2 and 1 layers end at 20 as
# well. But buckets are filled by size, in the order in which gradients are made, and what is left for the last one is
# luck.
#
# </details>
#
# **3.** Your updates all come after the last backward. What do you gain and lose if each follows the sum of its gradient?
#
# <details><summary>Answer</summary>
#
# Memory: a gradient that was used for its update is gone, so fewer of them wait. But an update in the middle
# of backward delays every backward after it, and with them the last bucket. With buckets of two there is room for one
# such update: the step still ends at 20, and the peak falls from 6,291,456 to 6,029,312. PyTorch can do this for its own
# optimizers, under the name of *optimizer in backward*. `reveal("ddp_overlap")` has this schedule.
#
# </details>
#
# **4.** You accumulate gradients over four microbatches. When should the all-reduces run?
#
# <details><summary>Answer</summary>
#
# Behind the backward of the last microbatch only: until then sums grow on each rank alone. In PyTorch you say so with
# `no_sync()` around the first three. One sum for every four microbatches is a quarter of the traffic, and there is as
# much to hide it behind as here.
#
# </details>
#
# **5.** A ring sends 6 messages one after another, for 4 ranks. Is there a way with fewer?
#
# <details><summary>Answer</summary>
#
# Yes: ranks 0 and 1 add up theirs, so do 2 and 3; then 0 and 2, and 1 and 3. That is two rounds of all-reduces over
# pairs, with 2 latencies each, 4 in all, and with *n* ranks it grows with log n, not with n. The price is bytes: a rank
# sends 2 layers instead of 1.5. That is why communication libraries use trees for small buffers and rings for large
# ones. `reveal("ddp_overlap")` has it too, without buckets: it ends at 22.8, so here it does not pay. Rounds of
# different layers run at the same time, and share the link.
#
# </details>
#
# ## Where this leads
#
# The network is hidden now as well as it can be. But look at the memory once more: four ranks hold the same optimizer
# states, and do the same eight updates on the same numbers. Four times the same work, and four times the same memory.
# Would you miss three of the four copies?

# %% [markdown]
# <!-- part: links -->
