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
# Adam keeps two moments and a master copy of each weight, in 32 bits: 12 bytes for a parameter whose weight and gradient
# take 2 each. Of the 120 GB that a model of 7.5 billion parameters needs, 90 are optimizer state. In plain data
# parallelism every GPU has all of them. With 64 GPUs that is 5.76 TB of memory for 90 GB of numbers.
#
# And what do the copies do? Every rank has the same gradients after the all-reduce, the same weights and the same states.
# So all of them compute the very same update, 64 times over.
#
# **ZeRO** (the *zero redundancy optimizer*) removes the copies, in three stages. You write two of them here. The third
# you have written already: it is FSDP.
#
# > **To tell a friend:** stage 1 cuts what only the update needs, stage 2 also what only waits for it, and stage 3 cuts
# > everything.
#
# *The words, once more.* An **all-reduce** gives every rank the sum. A **reduce-scatter** gives rank r shard r of it.
# An **all-gather** puts shards together, on every rank.

# %%
from drawing import draw, draw_collective, draw_figures
from lib import Model, PuzzleError, goal, predict, simulate
from lib.schedules.steps import one_collective

# %% [markdown]
# ## The idea
#
# This is the whole ladder: plain data parallelism, ZeRO 1, ZeRO 2 and FSDP (which is ZeRO 3) on four ranks, each with two
# microbatches, every collective awaited at once. Look at the peaks first: from row to row one colour shrinks to a
# quarter (in the last row, beside the one weight that is gathered at the moment). Then look at what is sent. The first step
# down sends not one element more; the others do.


# %%
def step_of(stage: int) -> list[Model]:
    from lib.schedules.data_parallel import zero

    return simulate(zero(stage), layers=6, batches=8, ranks=4)


names = "data parallel", "ZeRO 1", "ZeRO 2", "FSDP"
draw_figures({name: step_of(stage) for stage, name in enumerate(names)})

# %% [markdown]
# ## Stage 1: shard the optimizer
#
# A ring all-reduce goes round twice. After the first round trip rank r has shard r of the sum, complete. The second only
# tells the others. You know the two halves. The first is a reduce-scatter:

# %%
draw_collective(simulate(one_collective("scatterreduce"), layers=1, batches=4, ranks=4))

# %% [markdown]
# The second is an all-gather:

# %%
draw_collective(simulate(one_collective("allgather"), layers=1, batches=4, ranks=4))

# %% [markdown]
# Between the two, rank r has shard r of the summed gradient. **Predict:** what could it do with that right there, and
# which part of the optimizer state does it need for it? What should the second half carry then, and does a rank send
# more than before? The puzzle is your answer.
#
# Watch the sizes. The weight is whole, because forward and backward need all of it. The state is a shard, and so is the
# gradient. `update` wants three parts that fit:


# %%
def does_not_fit(model: Model) -> None:
    weight, _ = model.load_weights(0)
    _, opt_state = model.load_weights(0, model.rank, model.RANKS)
    gradient = model.fake_grad(0, range(model.BATCHES)).shard(model.rank, model.RANKS)
    model.update(0, gradient, weight, opt_state)


try:
    simulate(does_not_fit, layers=1, batches=4, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Whole values can be cut: `value.shard(2, 4)` is shard 2 of 4 of a value, and takes no time.
#
# ## The puzzle
#
# | ranks | layers | batches |
# |---|---|---|
# | 4 | 6 | 4 |
#
# **Given:** on rank r the whole weight of each layer, **shard r of 4** of each optimizer state, and the data of batch
# number r.
#
# **To do:** one training step. In the end every rank has all new weights, whole, and its shard of the new optimizer
# states.
#
# **Rules**
#
# - A rank may *send* what it sends in plain data parallelism, 2,359,296 elements. A run that sends more reaches no goal.
# - Keep values in the stores: everything alive counts. Park a value in a variable while something else runs, and only
#   the first goal counts. A whole weight counts as long as it is in its store.
# - All ranks call the same collectives in the same order.

# %% [markdown]
# ### Predict first
#
# Plain data parallelism of this size ends at 16.8 (12 for forward and backward, six all-reduces, six updates), and
# holds 4,194,304 elements at its peak. Suppose you await each collective at once, do everything for a layer right after
# its backward, and free early. When is *your* step over? And what does a rank hold?

# %%
guess = predict("zero1", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# Plain data parallelism reaches none of these: it holds too much. For the second goal, ask what a rank still needs of a
# weight once its backward is done. For the third, hide what travels.

# %%
goal("zero1")

# %% [markdown]
# <!-- part: hints zero1 -->


# %%
async def zero1(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], _ = model.load_weights(layer)
        _, opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    # Forward, loss and backward, as in "Distributed data parallel". For each layer: sum
    # up the gradient, update what this rank has the state for, and see that every rank
    # ends up with the whole new weight.
    # --- your code: zero1 (about 27 lines) ---
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(
            layer, activations[layer], weights[layer]
        )
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    summing, gathering = {}, {}  # the collectives in flight, by their layer

    # Update my shard of a layer, and start gathering the new ones.
    async def finish(layer: int) -> None:
        grad_weights[layer] = await summing.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer], weights[layer], opt_states[layer]
        )
        del grad_weights[layer]
        gathering[layer] = model.allgather(weights[layer], layer)

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        # The rest of the old weight is not read again.
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        summing[layer] = model.scatterreduce(grad_weights[layer], layer)
        if layer + 1 < model.LAYERS:  # its gradient travelled behind this backward
            await finish(layer + 1)
    del grad_activations[0]
    await finish(0)

    for layer in reversed(range(model.LAYERS)):
        weights[layer] = await gathering[layer]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(zero1, puzzle="zero1")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Time: forward and backward through six layers, 12. For each layer a reduce-scatter, an update and an all-gather, 0.3 +
# 0.5 + 0.3, one after the other: 6 · 1.1 = 6.6. Together 18.6. Two collectives instead of one: 1.8 more than plain data
# parallelism, until you hide them.
#
# Memory, at the first backward: six whole weights (1,572,864), six quarters of an optimizer state (393,216), and six
# activations with one gradient (917,504): 2,883,584. Plain data parallelism has six whole states, 1,179,648 more.
# One operation later there is a whole gradient (262,144) instead of an activation. If the whole weight of that layer is
# still there, that moment is the peak: 3,014,656.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="zero1")

# %% [markdown]
# ## Stage 2: shard the gradients too
#
# A model of 20 billion parameters, ZeRO stage 1, 64 GPUs. The optimizer takes 3.75 GB on each, down from 240. The
# weights take 40 GB, and they are needed. And the gradients take another 40 GB, from the first microbatch of a step to
# the last. Together that is 84 GB, on a GPU that has 80. Of these 40 GB of gradients a rank uses 0.6: the shard that it
# will update. All the rest is a partial sum, kept for other ranks.
#
# There are two ways to add up gradients over two microbatches and four ranks. **Wait and reduce:** each rank adds up its
# own gradients, whole, and at the end there is one reduce-scatter for each layer. That is stage 1. **Reduce and wait:**
# each gradient is reduce-scattered as it is made, and each rank adds up shards. That is stage 2: you know the move from
# "Fully sharded data parallel".
#
# The sum is the same. What waits is a whole gradient in one case, a quarter in the other. What is sent is one
# reduce-scatter a layer, or two.

# %% [markdown]
# ### The task
#
# | ranks | layers | batches | microbatches a rank |
# |---|---|---|---|
# | 4 | 6 | 8 | 2 |
#
# **Given:** on rank r the whole weight of each layer, shard r of 4 of each optimizer state, and `my_batches`: rank 0
# has batches 0 and 4, rank 1 has 1 and 5, and so on. The data is not given; take it one batch at a time.
#
# **To do:** one training step. In the end every rank has all new weights, whole, and its shard of the new optimizer
# states.
#
# **Rules**
#
# - A rank may send 3,538,944 elements: one all-gather and two reduce-scatters of everything. Gathering
#   weights in every microbatch, as in "Fully sharded data parallel", is more.
# - Keep values in the stores: everything alive counts. Park a value in a variable while something else runs, and only
#   the first goal counts.
# - All ranks call the same collectives in the same order.

# %% [markdown]
# ### Predict first
#
# Suppose you await each collective at once and free early, and in the last microbatch you cut each weight to your shard
# when its backward is done. When is the step over? And what does a rank hold at its worst moment?

# %%
guess = predict("zero2", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# With whole gradients waiting a rank holds 4,456,448 elements, and with both batches at once 3,801,088. All three goals
# ask for less. For the third, hide every collective that can run behind something else.

# %%
goal("zero2")

# %% [markdown]
# <!-- part: hints -->


# %%
async def zero2(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], _ = model.load_weights(layer)
        _, opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    my_batches = range(model.rank, model.BATCHES, model.RANKS)

    # For each of my batches: forward, loss, backward; sum up each gradient over the
    # ranks as it is made, and add my shard of it to that of the batch before. In the
    # last batch, update my shards and gather the new weights.
    # --- your code: zero2 (about 40 lines) ---
    summing, gathering = [], {}  # the collectives in flight

    # Add the oldest shard that travels to its sum; in the last batch, update and
    # gather.
    async def finish() -> None:
        layer, b, work = summing.pop(0)
        grad_weights[layer, b] = await work
        if b > model.rank:
            grad_weights[layer, b] = (
                grad_weights[layer, b] + grad_weights[layer, b - model.RANKS]
            )
            del grad_weights[layer, b - model.RANKS]
        if b == my_batches[-1]:
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights[layer, b], weights[layer], opt_states[layer]
            )
            del grad_weights[layer, b]
            gathering[layer] = model.allgather(weights[layer], layer)

    for b in my_batches:
        activations[0] = model.get_activation([b])
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(
                layer, activations[layer], weights[layer]
            )
            if summing:  # the last gradient of the batch before
                await finish()
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer, b], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]
            if b == my_batches[-1]:  # the rest of the old weight is not read again
                weights[layer] = weights[layer].shard(model.rank, model.RANKS)
            work = model.scatterreduce(grad_weights[layer, b], layer)
            summing.append((layer, b, work))
            # The gradient of the layer above travelled behind this backward.
            if len(summing) > 1:
                await finish()
        del grad_activations[0]
    await finish()

    for layer in reversed(range(model.LAYERS)):
        weights[layer] = await gathering[layer]
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(zero2, puzzle="zero2")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Time: each rank takes two batches forward and backward through six layers, 24. Twelve reduce-scatters take 3.6, six
# updates 3, six all-gathers 1.8: 32.4. Hidden is everything but the last all-gather: 24 + 3 + 0.3 = 27.3.
#
# Memory, at the first backward of the second microbatch: six whole weights (1,572,864), six quarters of an optimizer
# state (393,216) and six quarters of a gradient (393,216), six activations and one gradient (917,504): 3,276,800. With
# stage 1 the six gradients are whole: 1,179,648 more. If the weight of layer 5 is not cut after that backward, the next
# moment is the peak, with a whole gradient more and an activation less: 3,407,872.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="zero2")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solutions pass</summary>
#
# **ZeRO stage 1**, or optimizer-state sharding, is `zero_optimization.stage = 1` in DeepSpeed, the distributed optimizer
# in Megatron-LM, and, with whole layers instead of shards, `ZeroRedundancyOptimizer` in PyTorch. With one microbatch,
# *L* layers, *R* ranks, *W* elements in a weight and *A* in an activation of one batch, with everything hidden that can
# be:
#
# ```
# time = 2·L + 0.5·L + 0.3                  all the work of a rank, and the all-gather of the last weight
# peak = L·W + L·W/R + (L + 1)·A            weights + shards of the states + activations and a gradient
# ```
#
# Neither can be improved, unless you compute activations again. All weights are there until the first backward, and whatever is updated last, the other ranks
# still need the new weight.
#
# The second is **ZeRO stage 2**: `zero_optimization.stage = 2` in DeepSpeed, and `reshard_after_forward=False` in PyTorch's
# `fully_shard`, which gathers at the beginning of the step instead of its end. With *m* = 2 microbatches a rank, *L*
# layers and *R* ranks (at least four, and fewer than layers), *W* elements in a weight and *A* in an activation of one
# batch:
#
# ```
# time = 2·L·m + 0.5·L + 0.3                all the work of a rank, and the all-gather of the last weight
# peak = L·W + 2·L·W/R + (L + 1)·A          weights + shards of states and gradients + activations and a gradient
# ```
#
# And this is the whole ladder. Each stage divides one thing more by *R*:
#
# ```
# nothing is cut     peak = 3·L·W + (L + 1)·A
# states             peak = 2·L·W + L·W/R + (L + 1)·A
# and gradients      peak = L·W + 2·L·W/R + (L + 1)·A
# and weights        peak = 3·L·W/R + W + (L + 1)·A      a whole weight is there as a guest
# ```
#
# With Adam in mixed precision, for *Ψ* parameters, the first three terms are 2·Ψ + 2·Ψ + 12·Ψ bytes: stage 1 needs
# 4·Ψ + 12·Ψ/R, stage 2 needs 2·Ψ + 14·Ψ/R, and stage 3 needs 16·Ψ/R. What is sent in a step, in layers a rank:
#
# ```
# data parallel, stage 1    2·(R - 1)/R·L
# stage 2                   (m + 1)·(R - 1)/R·L
# stage 3                   3·m·(R - 1)/R·L
# ```
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **The ladder in gigabytes.** By the formulas above, 7.5 billion parameters on 64 GPUs take 120 GB each without sharding,
#   31.4 with stage 1, 16.6 with stage 2 and 1.9 with stage 3. They are the figures with which ZeRO was introduced [@rajbhandari2020].
# - **The ladder in traffic.** 10 billion parameters in bf16: 40 GB a step for plain data parallelism and stage 1, and 60 GB
#   for stage 3 [@ml_engineering_network, chapter on networks].
# - **Why not always stage 3.** A 175B model with a fixed batch ran at 144 TFLOP/s for each GPU with stage 3 on 384 A100s,
#   and at 44 on 1,536. Tensor and pipeline parallelism with plain data parallelism held 141 there [@narayanan2021].
# - **Pick your stage.** In PyTorch `reshard_after_forward=True` is stage 3, `False` is stage 2, and a number such as 8
#   shards over so many ranks only [@pytorch_118017]. Llama 3 was trained with weights that stay whole between forward and backward
#   [@llama3]: that saves one all-gather for each layer and microbatch.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# A reduce-scatter takes 0.3 whatever its size, and a second one for the same layer is nearly always hidden here. On a
# busy network twice the reduce-scatters cost time, and stage 1 is the better choice for many microbatches. Gradients
# are often summed in 32 bits, so the stages that keep them whole cost even more than the bars show. And activations are
# small here: in real models they are often the largest bar, and no stage of ZeRO touches them.

# %% [markdown]
# ## Questions to think about
#
# **1.** Use an all-reduce instead of the reduce-scatter, and update your shard with it. What changes?
#
# <details><summary>Answer</summary>
#
# It is correct, and even takes the same time here. But every rank receives the whole sum and uses a quarter of it, and
# the new weights travel as well: 3·(R - 1)/R of a layer instead of 2. 3,538,944 elements are sent, half as much again
# as allowed. `reveal("zero1")` has it: it is the natural first try.
#
# </details>
#
# **2.** Why is the end 15.3 and not 15, when all that a rank has to compute takes 15?
#
# <details><summary>Answer</summary>
#
# A rank's last operation is an update, because each update needs a gradient, and backward comes before. No other rank
# has that state, so none can have computed that new shard: it has to be sent, in one more all-gather. It could only be
# hidden behind the next step's forward (question 3).
#
# </details>
#
# **3.** With one microbatch a rank, what is the difference between stage 1 and stage 2?
#
# <details><summary>Answer</summary>
#
# None: a gradient can be summed up and used for its update as soon as it is made, and nothing waits. Your `zero1` is
# stage 2 as well. Frameworks differ even then, because their optimizer comes after the whole backward, so stage 1 holds
# all gradients whole for a moment.
#
# </details>
#
# **4.** Take both batches at once, as one of twice the size. What happens to the three bars?
#
# <details><summary>Answer</summary>
#
# No gradient has to wait, so 1.5 layers of shards are saved, and only one reduce-scatter is needed: 2,359,296 elements
# sent. But activations are 14 halves of a layer instead of 7: 3,801,088 in all, 524,288 more than yours. With
# larger activations, or more microbatches, that becomes hopeless, which is why there are microbatches at all.
# `reveal("zero2")` has this one too.
#
# </details>
#
# **5.** A pipeline runs 32 microbatches in a step. Which ZeRO stage would you combine with it?
#
# <details><summary>Answer</summary>
#
# Stage 1, most likely. Stage 2 would send 33 times (R - 1)/R of the model and stage 3 96 times, where stage 1 sends 2. And
# the gradients that it keeps whole are only those of one stage of the pipeline, which are few.
#
# </details>
#
# **6.** Your summed shards are in 16 bits, and there are 64 microbatches. What may go wrong?
#
# <details><summary>Answer</summary>
#
# A sum that has grown large swallows what is added to it: bf16 has 8 bits of precision, so 256 + 1 is still 256. Llama 3
# adds up the gradients of its microbatches in 32 bits, and reduce-scatters them in 32 bits too. For a shard that is
# affordable; for whole gradients it would be 4 bytes for each parameter on every GPU.
#
# </details>
#
# ## Where this leads
#
# One colour of the ladder is left: the weights. You have cut them already, over all ranks. On many hosts that means a
# gather through the slow network for every layer. What if the shards stayed inside a host?

# %% [markdown]
# <!-- part: links -->
