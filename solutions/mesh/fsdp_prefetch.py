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
# One setting of PyTorch's FSDP made a T5 model train up to five times as fast, and another model 5 % slower. The
# setting is a limit: never more than two all-gathers in flight.
#
# In puzzle $number_fsdp you waited for every weight, for 7.2 of 37.8 time units. Yet which weight comes next is known
# long before: ask for it while this one computes, and its gather runs beside the work. That is **prefetching**. With
# layers that are all alike one weight ahead would do: each computes for a whole time unit, and a gather takes 0.3.
#
# Real models are not so even. An attention layer on a long text computes for ages with few weights; an embedding, or a
# layer of many experts, has huge weights and hardly anything to compute. Then some gathers take longer than the layer
# behind which you wanted to hide them. You could look further ahead. But every weight that is fetched early sits in
# memory, and every gather that is started early stands in a queue, in front of something else.
#
# So: how far ahead is far enough?
#
# > **To tell a friend:** prefetching turns waiting time into memory; the art is to stop as soon as no rank waits.
#
# *The words, once more.* In FSDP each rank keeps a **shard** of every weight. To use a layer it **gathers** the whole
# weight, a guest that it deletes afterwards. A **work** is what the call of a collective returns: it is in flight until
# you `await` it.

# %%
from drawing import draw, draw_trade_off
from lib import PUZZLES, Model, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# Here is our model. Layers 0 and 3 are heavy, the others light. Backward takes twice as long as forward, as it does on
# a GPU. All weights are of the same size, so every all-gather and every reduce-scatter takes the same 0.9.
#
# | layer | 0 | 1 | 2 | 3 | 4 | 5 |
# |---|---|---|---|---|---|---|
# | forward | 2 | 0.5 | 0.5 | 2 | 0.5 | 0.5 |
# | backward | 4 | 1 | 1 | 4 | 1 | 1 |
# | all-gather | 0.9 | 0.9 | 0.9 | 0.9 | 0.9 | 0.9 |
#
# A light layer cannot hide a gather: 0.5 is less than 0.9. But on the whole there is time enough: forward takes 6, and
# its gathers 5.4. A heavy layer just has to fetch for the light ones behind it. That means **fetching several weights
# ahead**.
#
# The network is a **queue**: the collectives of a group run one after another, in the order in which you start them.
# Here is FSDP with 0 to 4 gathers started ahead; every reduce-scatter is awaited at once. Does it get faster
# with each weight that you fetch ahead?


# %%
def fetched(depth: int) -> list[Model]:
    from lib.schedules.data_parallel import fetching

    costs = PUZZLES["fsdp_prefetch"].costs
    return simulate(fetching(depth), layers=6, batches=4, ranks=4, costs=costs)


ahead = {f"{depth} ahead": fetched(depth) for depth in range(5)}
draw_trade_off(ahead)

# %% [markdown]
# From 0 to 1 you save 7.8 time units, from 1 to 2 another 1.2. Each step costs one whole weight, 262,144 elements. Then
# the trend reverses: **with 3 ahead you pay for one more weight and finish later.** Look where the time goes:

# %%
draw(ahead["4 ahead"])

# %% [markdown]
# In backward the queue is full of gathers that are not needed yet, and a reduce-scatter, for which the rank waits, has
# to stand behind them. Fetching earlier is not the same as finishing sooner.
#
# So there are three things to choose:
#
# - **How many ahead?** As many as a heavy layer must fetch for the light ones after it. And if nothing waits for the
#   reduce-scatters?
# - **Who waits for a reduce-scatter?** Only the update. It can run behind the backward of other layers, if you can
#   afford a whole gradient that stays alive meanwhile.
# - **What goes first into the queue?** After a backward you have two collectives to start: the reduce-scatter of this
#   gradient, and the gather of a weight. The order in which you write these two lines is the order in which they run.
#
# ## The puzzle
#
# | ranks | layers | batches | batches a rank | gather, reduce-scatter |
# |---|---|---|---|---|
# | 4 | 6 | 4 | 1 | 0.9 each |
#
# **Given:** on rank r, shard r of 4 of each weight and optimizer state, and `my_batches`: one batch here. Take all of
# them at once, `get_activation(my_batches)`: the check also tries sizes at which a rank has two.
#
# **To do:** one step of FSDP in which as little as possible waits for the network. Start from your solution of puzzle
# $number_fsdp: it reaches the first goal as it is.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts: a gathered weight from the moment its gather starts, and a
#   gradient until its reduce-scatter is over. Park a value in a variable while something else runs, and only the first
#   goal counts.
# - Works may wait in a dict or a list of your own.
# - All ranks call the same collectives in the same order.
# - `set_final_weight` gets this rank's shard.

# %% [markdown]
# ### Predict first
#
# Add up what a rank computes: six layers forward and backward, and six updates of 0.5. What is the earliest that the
# step can be over, if no rank waits for the network while it could compute? (One gather has nothing to hide behind.)
# And how many collectives does a rank call, if the last layer is gathered only once?

# %%
guess = predict("fsdp_prefetch", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The second goal is one weight ahead, with the last layer's kept at the turn. For the third the reduce-scatters have to
# get out of the way, and for the last a rank may wait only once: at the very beginning. (The limits answer your
# prediction, so guess first.)

# %%
goal("fsdp_prefetch")

# %% [markdown]
# <!-- part: hints -->


# %%
async def fsdp_prefetch(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )
    my_batches = range(model.rank, model.BATCHES, model.RANKS)

    # Forward and backward through all layers, with gathers that were started long
    # enough before. Reduce-scatter each gradient, and update each shard when its
    # gradient is there.
    # --- your code (about 43 lines) ---
    last = model.LAYERS - 1
    # Gathers in the order of use; the last layer stays.
    to_come = [*range(model.LAYERS), *reversed(range(last))]
    coming, leaving = [], {}

    def fetch(most: int) -> None:
        while to_come and len(coming) < most:
            layer = to_come.pop(0)
            coming.append(model.allgather(weights[layer], layer))

    async def finish(layer: int) -> None:
        grad_weights[layer] = await leaving.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer], weights[layer], opt_states[layer]
        )
        del grad_weights[layer]

    fetch(1)
    activations[0] = model.get_activation(my_batches)
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await coming.pop(0)
        fetch(2)
        activations[layer + 1] = model.forward(
            layer, activations[layer], weights[layer, "full"]
        )
        if layer < last:
            del weights[layer, "full"]

    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer, "full"] = await coming.pop(0)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer,
            activations[layer],
            grad_activations[layer + 1],
            weights[layer, "full"],
        )
        del activations[layer], grad_activations[layer + 1], weights[layer, "full"]
        # Before the reduce-scatter: this one is awaited sooner.
        fetch(2)
        leaving[layer] = model.scatterreduce(grad_weights[layer], layer)
        del grad_weights[layer]
        if layer + 2 in leaving:
            await finish(layer + 2)
    del grad_activations[0]
    for layer in list(leaving):
        await finish(layer)
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(fsdp_prefetch, puzzle="fsdp_prefetch")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# A rank computes 6 forward, 12 backward, and updates for 3: 21. The first gather takes 0.9 and nothing can hide it, so
# no rank is done before 21.9. The network has 11 gathers and 6 reduce-scatters to run, 17 · 0.9 = 15.3. That is less
# than 21, so there is room for all of them, if each starts early enough.
#
# Memory, at the turn: the shards of weights and optimizer states (12 quarters: 786,432), three whole weights (the last
# layer's and two that are coming: 786,432), 6 activations and one gradient of an activation (917,504). That is 2,490,368.
# The peak is two backwards later: the reduce-scatters of two gradients are still in flight then.
#
# </details>

# %%
draw(out)

# %% [markdown]
# Among the runs from above, and the goals:

# %%
draw_trade_off({**ahead, "yours": out}, puzzle="fsdp_prefetch")

# %%
Model.check(out, puzzle="fsdp_prefetch")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# You wrote a small **scheduler**: a list of what is needed next, a limit on what may be in flight, and a rule for what
# goes first. With *F* and *B* for all forwards and backwards of a rank, *c* for a collective, *u* for an update and *L*
# layers:
#
# ```
# nothing hidden   time: F + B + L·u + 3·c·L          gather, gather, reduce-scatter, each waited for
# all but one      time: c + F + B + L·u              if 3·c·L is less than the rest, and no layer comes too soon
# ```
#
# The second line asks two things. **Enough bandwidth**: no depth in the world helps a queue that is always full. And
# **enough depth**: the queue must run on through every heavy layer. How deep that is depends on how uneven the model is,
# and for layers that are all alike it is one: with the costs of puzzle $number_fsdp, and one batch a rank, one ahead
# already ends at 15.3, which is 0.3 + 12 + 3.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **The limit.** A GPU's queue is filled by the CPU, which runs far ahead. Without a limit FSDP would start every
#   gather of the forward at once and fill the memory with guests. Its **rate limiter** lets two be in flight; that made
#   T5 up to five times as fast, because memory no longer ran full, and slowed DeepViT by 5 %, which it throttled for
#   nothing [@zhao2023]. Since 2023 it is on unless you switch it off [@pytorch_104900].
# - **Before or after?** In backward, FSDP starts the next gather **before** it computes a gradient (`BACKWARD_PRE`), and
#   looking ahead was worth 18 % [@zhao2023]. `BACKWARD_POST` starts it after the gradient: later, but with one guest fewer in memory.
# - **Your own schedule.** FSDP2 keeps two gathered weights alive by default; for a model whose layers are not alike you can
#   say for each module what to fetch during it (`set_modules_to_forward_prefetch`, `set_modules_to_backward_prefetch`) [@pytorch_128884].
# - **One weight at a time is not small.** Cut the same bytes into gathers of fewer than 33 million elements, and they
#   take longer and longer [@zhao2023]. So layers are wrapped in units, and a guest is a whole transformer block.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# The prices of this model were chosen so that depth matters. With layers that are all alike one gather ahead is as good
# as three, and the best depth for a model of yours is found by measuring. There is one queue for all collectives of a
# group. FSDP has a stream of its own for gathers and one for reduce-scatters, but both share the same links, so a deep
# prefetch slows the other down instead of stopping it. Nothing here takes a different time from step to step; on a real
# network it does, and a bit of depth is also insurance. And a collective costs no computing power, where on a GPU it
# occupies some of the cores.

# %% [markdown]
# ## Questions to think about
#
# **1.** In puzzle $number_fsdp all layers were alike: forward 1, backward 1, collectives 0.3. How many gathers can nothing
# hide there, and does it help to fetch two ahead?
#
# <details><summary>Answer</summary>
#
# One per direction: the first in forward and the first in backward, because backward begins with the weight that
# forward has just thrown away. Keep that one weight over the turn, and only the very first gather is left. Two ahead
# are no better than one, since each gather of 0.3 is over long before its layer is needed; the second just costs
# 262,144 elements.
#
# </details>
#
# **2.** After a backward, start the reduce-scatter first and the gathers after it. Better or worse?
#
# <details><summary>Answer</summary>
#
# Later, and smaller: the step ends at 22 instead of 21.9, and the peak is 2,621,440. With one gather ahead the choice
# is larger. Start it before the backward, and the step (with each reduce-scatter awaited one backward later) ends at
# 23.9 with 2,424,832; start it after the backward, and it ends at 25.1 with 2,293,760. In a queue, start first what
# will be awaited first. If you await every reduce-scatter at once, that is the reduce-scatter.
#
# </details>
#
# **3.** At the turn, three whole weights are on each rank anyway. Why not keep layers 3 to 5 from forward to backward and
# never gather them again?
#
# <details><summary>Answer</summary>
#
# Good idea: three gathers fewer, the same end (21.9), and a peak of 2,490,368, one whole weight less. It works because
# the peak is near the turn, where the activations are; down in the lower layers there is room again, for gathers and for
# gradients that are on their way. `reveal("fsdp_prefetch")` has it. In PyTorch you would say
# `reshard_after_forward=False` for the upper half of the blocks. Keep all six, and the peak is 3,276,800.
#
# </details>
#
# **4.** What if a collective took 1.5 instead of 0.9?
#
# <details><summary>Answer</summary>
#
# Then the network has 17 · 1.5 = 25.5 to do, more than the 21 of computing. It is full all the time, however far ahead you
# look, and the only way to be earlier is to send less: keep weights over the turn, or share them among fewer ranks, or
# give each rank more batches to compute between two gathers.
#
# </details>
#
# ## Where this leads
#
# FSDP over many hosts fills the queue in another way. A ring over 512 GPUs is 511 messages, one after the other, for
# each gather, through switches that other jobs use as well; no looking ahead makes a full queue faster. So keep the
# gathers inside a host. But then what adds up the gradients of the hosts?

# %% [markdown]
# <!-- part: links -->
