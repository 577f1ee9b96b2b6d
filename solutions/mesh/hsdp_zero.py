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
# Take a 70-billion-parameter model and HSDP with 16 GPUs to a shard group. At 16 bytes a parameter each GPU holds 70 GB:
# 17.5 GB for weights and gradients, and **52.5 GB of Adam's optimizer states**. Now add a second group, and a third. Every
# GPU still holds 70 GB, because every group keeps a full set of optimizer states. They are three quarters of all
# that is stored, they are touched once a step, and all groups compute the very same update with them.
#
# The weights have to be near: they are gathered twice a microbatch. The states do not. So let every group keep all the
# weights, and divide the optimizer among **all** the ranks there are.
#
# > **To tell a friend:** an all-reduce has a middle, and the optimizer fits into it.
#
# *The words, once more.* In HSDP rank r of one host and its **twin** in the other host have the same shard. They
# all-reduce its gradient along `replica`, and then both update it.

# %%
from drawing import draw, draw_collective, draw_mesh
from lib import LINKS, Mesh, Model, goal, predict, simulate
from lib.schedules.given import backward, forward, update

# %% [markdown]
# ## The idea
#
# The same two hosts, and the same costs (`LINKS`) as in puzzle $number_hsdp:

# %%
mesh = Mesh({"replica": 2, "shard": 4}, host_size=4)
draw_mesh(mesh, "replica")

# %% [markdown]
# Ranks 1 and 5 are twins: each keeps quarter 1 of every layer. After the reduce-scatter in their hosts, each has quarter
# 1 of the gradient, summed over four of the eight batches. So far they all-reduce it, 1.0 over the slow links. Here are
# eight ranks whose host sums are there already:


# %%
async def both_the_same(model: Model) -> None:
    my_host = range(4 * model.coord["replica"], 4 * model.coord["replica"] + 4)
    quarter = model.fake_grad(0, my_host).shard(model.coord["shard"], 4)
    await model.allreduce(quarter, 0, group="replica")


demo = simulate(both_the_same, layers=1, batches=8, mesh=mesh, costs=LINKS)
draw_collective(demo)

# %% [markdown]
# Both now have the same quarter of the sum, and do the same update with it. Let them share that work: a quarter is cut
# in two, into **eighths**, and each twin updates one. Then it needs an optimizer state for an eighth only.
#
# A shard can be cut again: with `weights[layer]` shard 1 of 4, `weights[layer].shard(0, 2)` is shard 2 of 8.
#
# **Before you go on:** what does a twin need of the gradient now, and what does it lack after its update? Which
# collectives bring that, and how much more time than 1.0 do they take?
#
# ## The puzzle
#
# | ranks | mesh | hosts | layers | batches | costs |
# |---|---|---|---|---|---|
# | 8 | replica 2, shard 4 | 2 | 6 | 8 | `LINKS` |
#
# **Given:** on each rank its place on both axes, a quarter of each weight, **an eighth of each optimizer state**, and
# `my_batches`, which is one batch. Forward and loss are done, and the `last` layer still has its whole weight, as
# `weights[last, "full"]`: its backward is next. And two helpers, which delete what nothing reads any more:
#
# | helper | what it does |
# |---|---|
# | `backward(model, layer, weight=...)` | makes `grad_activations[layer]` from `grad_activations[layer + 1]`, unless no layer reads it, and adds the gradient of the weight to `grad_weights[layer]` |
# | `update(model, layer)` | updates `weights[layer]` with the gradient and the optimizer state of that shard, and uses up the gradient |
#
# **To do:** the rest of HSDP: backward inside the host, and what the twins do, so that each rank updates an eighth of
# each layer and has its quarter again at the end.
#
# **Rules**
#
# - Keep values in the stores: everything alive counts. Park a value in a variable while something else runs, and only
#   the first goal counts. Works may wait in a dict of your own.
# - The next step begins with quarters: a rank that ends with an eighth of a weight cannot go on, and the check says so.
# - `set_final_weight` gets this rank's quarter, updated. A whole weight passes, too, but the third goal has
#   no room for what that sends.

# %% [markdown]
# ### Predict first
#
# HSDP needs 1,966,080 elements at its peak when every collective is awaited. How many are they now? And how many
# collectives does a rank call in the whole step? (A weight has 262,144 elements. Six layers are gathered for forward,
# and all but the last once more for backward.)

# %%
guess = predict("hsdp_zero", memory=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# All goals have the same memory: that is what this puzzle is about. The first allows for a detour, the second is as
# early as HSDP, and for the third no rank waits for another host while it has something to compute, or sends what no
# rank uses.

# %%
goal("hsdp_zero")

# %% [markdown]
# <!-- part: hints -->


# %%
async def hsdp_zero(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    shard, shards = model.coord["shard"], len(model.group("shard"))
    replica, replicas = model.coord["replica"], len(model.group("replica"))
    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    for layer in range(model.LAYERS):
        weights[layer], _ = model.load_weights(layer, shard, shards)
        _, opt_states[layer] = model.load_weights(
            layer, shard * replicas + replica, shards * replicas
        )

    last = model.LAYERS - 1

    activations[0] = model.get_activation(my_batches)
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await model.allgather(
            weights[layer], layer, group="shard"
        )
        forward(model, layer, weight=weights[layer, "full"])
        if layer < last:  # the last layer turns round at once and keeps its weight
            del weights[layer, "full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    # Backward and reduce-scatter inside the host; then the twins.
    # --- your code (about 20 lines) ---
    summing, returning = {}, {}  # gradients and weights on their way between the hosts
    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer, "full"] = await model.allgather(
                weights[layer], layer, group="shard"
            )
        backward(model, layer, weight=weights.pop((layer, "full")))
        grad_weights[layer] = await model.scatterreduce(
            grad_weights[layer], layer, group="shard"
        )
        summing[layer] = model.scatterreduce(
            grad_weights.pop(layer), layer, group="replica"
        )

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await summing.pop(layer)
        weights[layer] = weights[layer].shard(replica, replicas)
        update(model, layer)
        returning[layer] = model.allgather(weights[layer], layer, group="replica")
    for layer in reversed(range(model.LAYERS)):
        weights[layer] = await returning.pop(layer)
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(hsdp_zero, puzzle="hsdp_zero")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Memory: each of six optimizer states is an eighth instead of a quarter, so 6 · 262,144 · (1/4 - 1/8) = 196,608 elements
# fewer, on every rank: 1,769,472.
#
# Collectives: 11 gathers and 6 reduce-scatters in the host, 6 reduce-scatters and 6 gathers between the hosts, 29. HSDP
# has 6 all-reduces where these last 12 are.
#
# Time, with everything awaited: 12 + 17 · 0.3 + 6 · (0.5 + 0.5) + 3 = 26.1, as in HSDP. (In puzzle $number_hsdp that was
# 26.4, because there the last layer was gathered twice.) In the background, the last layer to arrive decides: computing and the host's collectives
# take 12 + 17 · 0.3 = 17.1, then the network needs 0.5 for the last gradient, and 6 · 0.5 for the weights that come back
# while the updates are made: 20.6.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="hsdp_zero")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# Two ways of sharding on one mesh: the weights over *S* ranks of a host, the optimizer states over all *S·R*.
#
# ```
# HSDP       held: 2·L·W/S                    weights and states of L layers
# this       held: L·W/S + L·W/(S·R)          the states shrink with every host
# FSDP       held: 2·L·W/(S·R)                the weights too, and every gather crosses the network
# ```
#
# DeepSpeed has a relative of it in ZeRO++ (`zero_hpz_partition_size`: a second copy of the weights in each host, for the
# gathers of the backward). In the words of ZeRO yours is stage 3 inside a host and stage 1 between hosts.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **How much.** With Adam in mixed precision 12 of 16 bytes are optimizer state [@rajbhandari2020]. A model of 70
#   billion parameters over four groups of 16 GPUs: 70 GB on each GPU in HSDP, and 17.5 + 52.5/4 = 30.6 GB with the
#   optimizer divided.
# - **Stages by choice.** FSDP2's `reshard_after_forward` takes a number: with 8, a weight is re-sharded after forward over 8
#   ranks only, so the gather of the backward stays in the host. Its authors compare this with ZeRO++ [@pytorch_118017].
# - **What goes over the network.** With full sharding a host sends three times the size of the model in each step, with
#   the hybrid twice: its eight GPUs have an eighth of that each [@zhao2023]. Dividing the optimizer adds nothing.
# - **Accumulate first.** With microbatches, sum the quarters in the host and cross the network after the last one: hybrid
#   sharding does so with its all-reduce [@veomni_781].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Here an optimizer state is as large as its weight, and an eighth less of it saves one tenth of the peak. Adam's states
# are six times as large as the weights in 16 bits. An update takes 0.5 whatever its size; on a GPU half a quarter takes
# half the time, so the new way is faster, too. And links have no latency: six collectives more would cost a little.

# %% [markdown]
# ## Questions to think about
#
# **1.** Suppose you leave the all-reduce as it was, update an eighth, and gather. What does that cost?
#
# <details><summary>Answer</summary>
#
# 6 · 0.5 = 3.0: 29.1 instead of 26.1. The all-reduce has brought the whole quarter to both twins, and each throws one
# half of it away. This happens where the optimizer is bolted onto a training loop that already sums gradients, as
# PyTorch's `ZeroRedundancyOptimizer` is.
#
# </details>
#
# **2.** Why not shard the weights over all eight as well, as FSDP does?
#
# <details><summary>Answer</summary>
#
# It would save as much again, 196,608 elements. But then the 11 gathers and the 6 reduce-scatters of a step all cross the
# slow links, 3.5 each: 12 + 17 · 3.5 + 3 = 74.5 instead of 26.1. A weight that returns crosses the network once a step,
# as an eighth; a weight that is gathered crosses it twice, and seven eighths of it.
#
# Unless you gather in two moves, as you reduce-scatter: first the eighths of the twins, 0.5, then the quarters in the
# host, 0.3. That step ends at 28.6, and is the smallest of all; `reveal("hsdp_zero")` has it, with the sums between the
# hosts in the background: 28.1. Communication libraries split their collectives over two kinds of links in the same way.
#
# </details>
#
# **3.** The goal does not let you fetch ahead: there is no room for a second whole weight at the peak. Where is there room?
#
# <details><summary>Answer</summary>
#
# Early in forward, where few activations are alive, and late in backward, where they are gone again. A gather that is
# started while layers 0 to 3 go forward costs nothing at the peak. And with more memory everything can be hidden:
# `reveal("hsdp_zero")` has a schedule that ends at 16.3 and needs 2,228,224.
#
# </details>
#
# **4.** Your function also runs with `Mesh({"replica": 1, "shard": 8})` and with `Mesh({"replica": 8, "shard": 1})`. What is it
# then?
#
# <details><summary>Answer</summary>
#
# With one replica there are no twins, and a shard is an eighth already: FSDP over all eight. With shard groups of one,
# every rank has whole weights and only the optimizer is divided: ZeRO stage 1. Everything in between is a choice of how
# far away the weights may live.
#
# </details>
#
# ## Where this leads
#
# You have chosen between a fast axis and a slow one, with one axis for each. So far each rank did whole layers, on its own
# examples. What if it did a part of each layer? The next chapter goes inside.

# %% [markdown]
# <!-- part: links -->
