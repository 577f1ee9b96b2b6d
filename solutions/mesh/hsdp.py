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
# On four hosts of one cluster, FSDP over all GPUs trained on 55 samples a second. A small change of layout made it 74
# [@oumi_213]. Nothing was computed faster. The GPUs only stopped talking to the other hosts so often.
#
# Bandwidth alone does not explain it. Eight H100s in a host talk at 450 GB/s, and eight network cards lead out of it, 50
# GB/s each, 400 together. A huge gather that keeps all eight busy hardly notices the border. These do:
#
# - **Many small messages.** A gather over 512 GPUs is a ring of 511 messages, one after the other. Each carries a 512th of
#   a layer and pays its latency in full, and that twice for each layer.
# - **One pair, one card.** Two GPUs in different hosts have one card between them, 50 GB/s instead of 450. Many hosts have
#   fewer cards than GPUs.
# - **Oversubscribed networks.** Between the pods of 3,072 GPUs of Llama 3 there is one seventh of the bandwidth that
#   there is inside [@llama3].
#
# So keep the chatty part inside a host. Each host has a complete model, cut into shards for its own GPUs; between hosts
# only one thing travels, the sums of the gradients. PyTorch calls it **HSDP**, *hybrid sharded data parallel*.
#
# > **To tell a friend:** shard where links are fast and messages short, replicate where they are not. It is as much
# > about waiting for many small messages as about bandwidth.
#
# *The words, once more.* FSDP **gathers** each weight twice, forward and backward, and **reduce-scatters** its
# gradient. A **mesh** arranges the ranks along named axes, and `group="axis"` is a collective with the ranks of my line
# along that axis.

# %%
from drawing import draw, draw_mesh, draw_trade_off
from lib import (
    LINKS,
    UNIT,
    Links,
    Mesh,
    Model,
    check,
    check_function,
    goal,
    predict,
    simulate,
    what_if,
)

# %% [markdown]
# ## The idea
#
# Two hosts with four ranks each. One axis of the mesh is `shard`: along it weights are cut into four. The other is
# `replica`: along it ranks are **twins**, which have the same shard.

# %%
mesh = Mesh({"replica": 2, "shard": 4}, host_size=4)
draw_mesh(mesh)

# %% [markdown]
# Along `shard` a group lies in one host. Along `replica` every group has one rank in each host, so one card.
#
# What does a collective cost? Up to now 0.3, whatever it moved. From here on **links have a bandwidth**. Inside a host a
# batch of activations (131,072 elements) takes 0.2, so that gathering one weight over the four ranks of a host takes the
# 0.3 that you know. Between hosts everything takes ten times as long: a ring passes **one card** of each host. (After the
# puzzle you give it more cards.) These costs are called `LINKS`. For one layer of *W* elements (262,144) and a ring of
# *n* ranks:
#
# | | moves, per rank | in a host, n = 4 | one ring over all 8 | between hosts, n = 2 |
# |---|---|---|---|---|
# | all-gather, reduce-scatter | (n - 1)/n · W | 0.3 | 3.5 | 2.0 |
# | all-reduce | 2 · (n - 1)/n · W | 0.6 | 7.0 | 4.0 |
#
# (A part of a layer takes that part of the time: there is no latency yet.) FSDP over all eight ranks needs three
# collectives of 3.5 for each layer, 10.5 in all. What does HSDP need for each layer, which of it crosses the slow links,
# and how little can that be? You need the answer for your prediction below.
#
# ## The puzzle
#
# | ranks | mesh | hosts | layers | batches | batches a rank | costs |
# |---|---|---|---|---|---|---|
# | 8 | replica 2, shard 4 | 2 | 6 | 8 | 1 | `LINKS` |
#
# **Given:** on each rank its place along `shard`, shard number `shard` of 4 of each weight and optimizer state, and
# `my_batches`: one batch here; take all of them at once, `get_activation(my_batches)`.
#
# **To do:** one training step: FSDP along `shard`, and the gradients summed along `replica`.
#
# **Rules**
#
# - Keep values in the stores: everything alive counts. Park a value in a variable while something else runs, and only
#   the first goal counts. Works may wait in a dict of your own.
# - Each group has its own queue: collectives along `shard` and along `replica` can run at the same time.
# - `set_final_weight` gets this rank's shard.
# - The check also tries other meshes, two batches a rank, and a model of a single layer.

# %% [markdown]
# ### Predict first
#
# Suppose you await every collective at once. A rank computes 6 + 6, and updates for 3. When is the step over? And how
# many collectives does a rank call?

# %%
guess = predict("hsdp", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is what you have just worked out. For the second the all-reduces have to run behind backward, and for
# the last everything but the very first gather is hidden. (The limits answer your prediction, so guess first.)

# %%
goal("hsdp")

# %% [markdown]
# <!-- part: hints -->


# %%
async def hsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    shard, shards = model.coord["shard"], len(model.group("shard"))
    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, shard, shards)

    # FSDP inside the host; then sum what the twins in the other hosts have, and update.
    # --- your code: hsdp (about 45 lines) ---
    last = model.LAYERS - 1
    reducing, summing = {}, {}  # on their way: inside the host, and between hosts

    async def sum_up(layer: int) -> None:
        if layer in reducing:
            grad_weights[layer] = await reducing.pop(layer)
            summing[layer] = model.allreduce(
                grad_weights[layer], layer, group="replica"
            )

    activations[0] = model.get_activation(my_batches)
    coming = model.allgather(weights[0], 0, group="shard")
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await coming
        if layer < last:
            coming = model.allgather(weights[layer + 1], layer + 1, group="shard")
        activations[layer + 1] = model.forward(
            layer, activations[layer], weights[layer, "full"]
        )
        if layer < last:
            del weights[layer, "full"]

    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer, "full"] = await coming
        if layer > 0:
            coming = model.allgather(weights[layer - 1], layer - 1, group="shard")
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer,
            activations[layer],
            grad_activations[layer + 1],
            weights[layer, "full"],
        )
        del activations[layer], grad_activations[layer + 1], weights[layer, "full"]
        reducing[layer] = model.scatterreduce(grad_weights[layer], layer, group="shard")
        del grad_weights[layer]
        await sum_up(layer + 1)
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        await sum_up(layer)
        grad_weights[layer] = await summing.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer], weights[layer], opt_states[layer]
        )
        del grad_weights[layer]
        await sum_up(0)  # its reduce-scatter is over: the slow links need not wait
    # --- end of your code ---

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(hsdp, puzzle="hsdp")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# For each layer two gathers and a reduce-scatter inside the host, 0.3 each. Then rank r of one host and its twin in the
# other each have a quarter of the gradient, summed over their own host only. They sum that quarter for 1.0, and nothing
# else crosses the network: 1.9 a layer instead of 10.5.
#
# With every collective awaited: 12 for the computing, 6 · 3 · 0.3 = 5.4 inside the host, 6 · 1.0 between hosts, 3 for
# the updates: 26.4. These are 12 gathers, 6 reduce-scatters and 6 all-reduces, 24 collectives.
#
# The all-reduces are as long as a backward, so they fit behind the next one, and the last fits behind the updates of the
# other layers: 20.4. One weight ahead, and reduce-scatters behind the next backward, take another 17 · 0.3 off. What is
# left is the first gather: 0.3 + 12 + 3 = 15.3. (The last layer then stays whole at the turn: 23 collectives.)
#
# Memory, when each collective is awaited: 12 quarters of weights and optimizer states (786,432), one whole weight
# (262,144), 6 activations and a gradient of one (917,504): 1,966,080, the same as FSDP on one host of four.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="hsdp")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### The same step in other shapes
#
# Here are five ways to train this model on these eight ranks, each the simplest of its kind, every collective awaited
# at once. One of them is **the classic mistake**: the same HSDP on a mesh with its axes swapped, so that the shards lie
# across the hosts and the replicas inside.

# %%
from lib.schedules.data_parallel import ddp, fully_sharded

hybrid = fully_sharded("shard", "replica")
turned = Mesh({"shard": 2, "replica": 4}, host_size=4)
ways = {
    "HSDP": (hybrid, mesh),
    "HSDP, axes swapped": (hybrid, turned),
    "HSDP 4 x 2": (hybrid, Mesh({"replica": 4, "shard": 2}, host_size=4)),
    "FSDP over 8": (fully_sharded(), None),
    "DDP": (ddp, None),
}


def runs(costs):
    sizes = {"layers": 6, "batches": 8, "ranks": 8, "costs": costs}
    return {name: simulate(run, mesh=on, **sizes) for name, (run, on) in ways.items()}


found = runs(LINKS)
draw_trade_off(found)

# %% [markdown]
# Nothing fails when the axes are swapped. The loss goes down as it should, and the step takes twice as long. How would
# you find out? Ask **what if**: time the run again as if one thing took no time, here the collectives along one axis.

# %%
what_if(found["HSDP, axes swapped"], group="shard")

# %% [markdown]
# 36 of 52.8 time units go to the gathers and reduce-scatters along `shard`: they cross the hosts. Ask the same of
# `found["HSDP"]`, and it is 5.4.
#
# ### How many cards?
#
# `LINKS` lets a ring through one card of a host. NCCL opens a ring through each card that it has. `Links(cards=4)` gives a
# host one for each of its four ranks, `cards=1` one for all of them. Guess before you run the next cell (it waits for
# your own run): which of the five gain from four cards, and which one suffers most from a single one?

# %%
prices = {
    "LINKS": LINKS,
    "four cards": Links(host_size=4, cards=4),
    "one card": Links(host_size=4, cards=1),
    "flat": UNIT,
}
if out:
    print(f"{'':10}", *(f"{name:>18}" for name in ways))
    for label, costs in prices.items():
        ends = [check(run).time for run in runs(costs).values()]
        print(f"{label:10}", *(f"{end:18.1f}" for end in ends))

# %% [markdown]
# <details><summary>Row by row</summary>
#
# - **Four cards.** FSDP over all eight falls from 78 to 30.8: its one ring becomes four. HSDP 4 x 2 falls from 36.6 to
#   27.6. HSDP stays at 26.4, because its four all-reduces had a card each from the start. Plain DDP, down from 57 to
#   25.5, is even a little faster, for twice the memory. On an H100 host the ratio is 450 to 400, and bandwidth
#   hardly favours the hybrid.
# - **One card.** The four all-reduces of HSDP share it. With the axes swapped everything shares it.
# - **Flat.** This is what the costs of earlier puzzles would have told you: never use HSDP.
#
# </details>
#
# So with enough cards, what is left of the argument? Latency. Sixteen such hosts, four cards each, and 0.05 for each message
# before anything arrives:

# %%
sizes = {"layers": 6, "batches": 64, "ranks": 64}
late = Links(host_size=4, cards=4, latency=0.05)
many = Mesh({"replica": 16, "shard": 4}, host_size=4)
for name, run, on in (("HSDP", hybrid, many), ("FSDP over 64", fully_sharded(), None)):
    print(f"{name:13}{check(simulate(run, mesh=on, costs=late, **sizes)).time:6.1f}")

# %% [markdown]
# A gather over 64 ranks waits for 63 messages. Inside the host it waits for three, however many hosts you add. The
# all-reduces of HSDP do cross the hosts and wait for 30, but there is only one a layer, and no layer waits for it. It takes
# 3.4 now, and a backward 1, so they no longer all fit (question 4). How many of the 43.4 does your overlap save?

# %%
if out:
    yours = check(simulate(hsdp, mesh=many, costs=late, **sizes))
    print(f"{'HSDP, yours':13}{yours.time:6.1f}")

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **HSDP**: `fully_shard(model, mesh=mesh_2d)` in PyTorch, with the shards along the second axis. DeepSpeed has it as
# MiCS. With *S* ranks in a shard group and *R* replicas, *b* time units for a batch of activations on a fast link, and *k*
# for how much slower the network is (a weight is two batches large):
#
# ```
# in the host      time: 3 · 2·b · (S - 1)/S           for each layer: gather, gather, reduce-scatter
# between hosts    time: 2 · 2·b·k · (R - 1)/R / S     for each layer: an all-reduce of one part in S
# FSDP over all    time: 3 · 2·b·k · (R·S - 1)/(R·S)
# held             2·L·W/S                             weights and states: as if the other hosts were not there
# ```
#
# Look at the *S* in the second line. The more GPUs a host has, the less each of them sends over the network: sharding
# inside the host makes the traffic between hosts small, for free. And count messages: a gather waits for S - 1 of them
# instead of R·S - 1, whatever the bandwidth.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **How much less.** Counted for each GPU, as the FSDP paper does, HSDP in hosts of eight sends a twelfth of what full
#   sharding sends between hosts: twice an eighth of the model instead of three times all of it [@zhao2023]. Counted for a
#   whole host it is twice the model against three times: all eight cards of the hybrid carry an eighth at the same time,
#   while a ring's gathers pass the border of a host once.
# - **What it is worth.** The run of the first paragraph, on four hosts of Google's cloud (the report names neither GPU
#   nor network): 74.4 samples a second with the hybrid, 55.3 fully sharded [@oumi_213]. Qwen3-30B-A3B on 64 H100s:
#   392,000 tokens a second instead of 293,000, for 54 GB a GPU instead of 48 [@pith_train_40].
# - **What went wrong.** An early version in PyTorch all-reduced **whole** gradients between hosts and reduce-scattered
#   after that. Its authors knew that it sent too much, but the cheap order lost accuracy, and they did not know why
#   [@pytorch_84590]. Later the all-reduce got a stream of its own, so that it no longer queued behind the
#   reduce-scatters [@pytorch_106080].
# - **When a host is too small.** A model that needs 16 GPUs needs shard groups of two hosts. That was asked for in 2024
#   [@pytorch_117470]; with a mesh you just say so.
# - **Microbatches.** With gradient accumulation the all-reduce is only needed after the last one; the shards can wait
#   [@veomni_781].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - **A ring passes one card, and messages have no latency,** in the puzzle itself. "How many cards?" takes both back.
# - **Latency is the same everywhere.** A message between hosts really starts later than one inside.
# - **The network is yours alone.** Real switches are shared, and often have less bandwidth at the top.

# %% [markdown]
# ## Questions to think about
#
# **1.** A colleague all-reduces the whole gradient between the hosts, and reduce-scatters inside the host after that. Is
# it still correct? What does it cost?
#
# <details><summary>Answer</summary>
#
# It is correct: sums can be taken in any order. But the twins now exchange a whole gradient, 262,144 elements, where a
# quarter would do: 4.0 on the slow links instead of 1.0. With every collective awaited the step takes 44.4 instead of
# 26.4. An early version of HSDP in PyTorch did this.
#
# </details>
#
# **2.** What does HSDP cost in memory, compared with FSDP over all eight? Why is it worth it?
#
# <details><summary>Answer</summary>
#
# Twice the shards: 12 quarters of a layer instead of 12 eighths, 393,216 elements more, 1,966,080 instead of 1,572,864.
# For that the step takes 26.4, where one ring over all eight takes 78, and four rings 30.8. With sixteen hosts HSDP still
# holds 1,966,080, where FSDP goes on shrinking: HSDP stops saving memory at the host boundary. If the model fits there,
# its gathers stay short however many hosts you add.
#
# </details>
#
# **3.** Take four replicas of two instead: `Mesh({"replica": 4, "shard": 2}, host_size=4)`. Gathers get cheaper. Why is the
# step slower, and why does it need more memory?
#
# <details><summary>Answer</summary>
#
# A gather over two costs 0.2 instead of 0.3. But a rank now all-reduces half a gradient with three others, 3.0 instead of
# 1.0, although two of these four are in its own host: 36.6 in all. And each rank holds halves instead of quarters,
# 2,752,512 elements. Make the shard groups as large as the host.
#
# </details>
#
# **4.** How many hosts can you add before the all-reduces no longer fit behind backward? Each new host brings its own
# four batches.
#
# <details><summary>Answer</summary>
#
# None: two just fit. With *R* replicas an all-reduce takes 2.0 · (R - 1)/R, and it has one backward to hide behind, 1.0.
# With two hosts it takes 1.0. With three it takes 1.33, and the same program ends at 16.8 instead of 15.3; with sixteen,
# 1.875 and 20.05. It never takes 2.0, though (as long as links have no latency). So give each rank two batches: backward
# then takes 2.0, the gradient does not get larger, and only the last sums show: 27.3 with two hosts, and 28.7 with
# sixty-four. On TPU pods, data parallelism over the data-centre network wants some 76,000 tokens in each pod for that
# [@scaling_book].
#
# </details>
#
# ## Where this leads
#
# So far each rank did whole layers, on its own examples. That ends where a single layer is too large, or a batch cannot
# be cut any further. The next chapter goes inside the layer.
#
# One thing you may still mind: each host has all optimizer states, which are touched once a step, for a moment. Must
# every host have all of them? That is puzzle $number_hsdp_zero, deeper than this one.
#
# **The puzzle ends here.** The links to what comes next are at the end of the page; what lies in between is a second,
# smaller puzzle, which you may skip.

# %% [markdown]
# ## Deeper: the two sizes of an axis
#
# The file of a run on TPUs has three innocent numbers, `replica_ici_axis_size: 1`, `replica_dcn_axis_size: 2` and
# `model_axis_size: 2`. Two more follow, and together they decide which traffic goes over which links. Get one wrong and
# nothing crashes: the loss is right, and every step takes longer, as with the swapped axes above.
#
# Devices come in **slices**: links are fast inside a slice (TPU people call them **ICI**) and slow between slices
# (**DCN**). A slice is a host of eight GPUs, or a few hundred TPU chips. Every axis has two sizes, and they multiply. Its
# `ici` size says over how many devices *inside* a slice it goes, its `dcn` size over how many *slices*. Here are 16
# devices in 4 slices (a slice is drawn as a host), with an axis `model` of 2. Each copy of the weights lies in two
# slices, so there are two copies.

# %%
draw_mesh(Mesh({"replica": 2, "data": 4, "model": 2}, host_size=4), "data")

# %% [markdown]
# Follow the group of rank 0, in blue. Its `data` axis has 4 places: 2 inside a slice, times 2 slices. Whenever a layer is
# gathered, a part of it crosses from host 0 to host 1. With four copies instead, one in each slice, only the sums of the
# gradients would cross, once a step. The price: each device keeps half of its part of the weights and optimizer states,
# not a quarter.
#
# `model` is never put across slices. Its collectives come several times a layer, and the next operation waits for each
# of them.
#
# Write `hybrid_mesh(devices, slices, replica_ici, replica_dcn, model)`. Its caller says how the copies lie and how
# large `model` is; `data` gets the rest.
#
# **Given:** how many devices there are, and in how many slices of equal size. Over how many devices of a slice the axis
# `replica` goes (`replica_ici`), and over how many slices (`replica_dcn`). The size of the axis `model`, which stays
# inside a slice.
#
# **To do:** return a dict with
#
# | key | what it says |
# |---|---|
# | `"data_ici"` | over how many devices of a slice the axis `data` goes |
# | `"data_dcn"` | over how many slices it goes |
# | `"replica"` | how many copies of the weights there are in all |
# | `"data_axis"` | among how many the *batch* is divided: all that have examples of their own |
#
# **Rules**
#
# - Every device has exactly one place on the mesh. If the sizes do not allow it, raise a `ValueError` that says why.
# - A size below 1 is a `ValueError`, too.

# %% [markdown]
# ### Predict
#
# 64 devices in 4 slices, `replica_ici` 1, `replica_dcn` 2, `model` 2. What are the four numbers? And with 3 slices?
#
# <details><summary>Answer</summary>
#
# A slice has 16 devices. Two of them share the inside of a layer, so there are 16 / 2 = 8 places for `data` in a slice:
# `data_ici` is 8. Two copies over four slices: each copy has 2 slices, `data_dcn` is 2. The weights are there twice,
# `replica` is 2, and each copy is cut into 8 · 2 = 16 shards. The batch is divided along `replica` too: `data_axis` is
# 2 · 16 = 32.
#
# With 3 slices it is impossible: each of two copies would need one and a half. (And 64 devices do not make three equal slices
# in the first place.)
#
# </details>

# %% [markdown]
# Your function is asked for the rows of a table, for every small combination of sizes, and for large clusters. If an
# answer is wrong, you see the smallest input that it is wrong for.

# %%
goal("hybrid_mesh")

# %% [markdown]
# <!-- part: hints hybrid_mesh -->


# %%
def hybrid_mesh(devices, slices, replica_ici, replica_dcn, model):
    # First what cannot be. Then the two sizes of data, and what follows from them.
    # --- your code: hybrid_mesh (about 21 lines) ---
    if min(devices, slices, replica_ici, replica_dcn, model) < 1:
        raise ValueError("every size is 1 or more")
    if devices % slices:
        raise ValueError(f"slices {slices} does not divide devices {devices}")
    in_slice = devices // slices
    if in_slice % (replica_ici * model):
        raise ValueError(
            f"replica_ici {replica_ici} times model {model} "
            f"does not divide a slice of {in_slice} devices"
        )
    if slices % replica_dcn:
        raise ValueError(f"replica_dcn {replica_dcn} does not divide slices {slices}")
    data_ici = in_slice // (replica_ici * model)
    data_dcn = slices // replica_dcn
    replica = replica_ici * replica_dcn
    return {
        "data_ici": data_ici,
        "data_dcn": data_dcn,
        "replica": replica,
        "data_axis": replica * data_ici * data_dcn,
    }
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(hybrid_mesh, puzzle="hybrid_mesh")
verdict

# %% [markdown]
# ### See what it is for
#
# 32 devices in 4 slices, `model` 2, and every way to lay out the copies. `crosses` says over how many slices a weight is
# gathered, and `shards` into how many pieces a copy is cut. Change the sizes and run it again.

# %%
picture = None
if verdict:
    print("replica_dcn  copies  shards  crosses")
    for replica_dcn in (1, 2, 4):
        sizes = hybrid_mesh(32, 4, 1, replica_dcn, 2)
        copies, crosses = sizes["replica"], sizes["data_dcn"]
        shards = sizes["data_ici"] * crosses
        print(f"{replica_dcn:>11}  {copies:>6}  {shards:>6}  {crosses:>7}")
    sizes = hybrid_mesh(32, 4, 1, 2, 2)
    data = sizes["data_ici"] * sizes["data_dcn"]
    axes = {"replica": sizes["replica"], "data": data, "model": 2}
    picture = draw_mesh(Mesh(axes, host_size=8), "data")
picture

# %% [markdown]
# <details><summary>What this part built: open it when your function passes</summary>
#
# This is how Levanter finds the sizes of its mesh. JAX then multiplies the two shapes, axis by axis, and puts the devices
# in their places (`create_hybrid_device_mesh`):
#
# ```
#            replica        data        model
# in a slice (replica_ici,  data_ici,   model)      product: devices of a slice
# slices     (replica_dcn,  data_dcn,   1)          product: slices
# ```
#
# Each line has its own product to keep. That is why there are two ways to be wrong, one inside a slice and one between
# slices, and why only one number on each line is left to `data`.
#
# </details>

# %% [markdown]
# Two questions about these sizes.
#
# *For which `replica_dcn` does no all-gather cross slices, and what does that cost?*
#
# <details><summary>Answer</summary>
#
# For `replica_dcn` = `slices`: then `data_dcn` is 1. Each slice has a whole copy of the weights, and only the
# all-reduce of the gradients crosses. It costs memory: a copy is cut into `data_ici` shards only. In the table above
# that is 4 instead of 16, so every device keeps four times as much.
#
# </details>
#
# *There are four slices and one of them breaks. With which `replica_dcn` can you go on with three, and with which not?*
#
# <details><summary>Answer</summary>
#
# With 1: the weights are cut anew over three slices. With 4 if you make it 3: a copy is lost, but every slice still has
# one. With 2 you cannot, as the `ValueError` says: a copy needs two slices, and one and a half are left. You would have
# to leave one slice idle, or change the layout.
#
# </details>

# %% [markdown]
# <!-- part: links -->

# %% tags=["judge"]
from itertools import product
from random import Random

from lib.cluster.layouts import Holdings


def hybrid_mesh_inputs():
    yield from product(range(9), range(4), range(3), range(4), range(3))
    yield from ((-size, 1, 1, 1, 1) for size in (1, 8))
    random = Random(0)
    for _ in range(300):
        sizes = [random.choice((1, 1, 2, 3, 4, 8)) for _ in range(5)]
        replica_ici, replica_dcn, model, data_ici, data_dcn = sizes
        slices = replica_dcn * data_dcn + (random.random() < 0.1)
        devices = slices * replica_ici * data_ici * model * random.choice(
            (1, 1, 4, 16)
        ) + (random.random() < 0.1)
        yield devices, slices, replica_ici, replica_dcn, model


def hybrid_mesh_picture(
    answer, expected, devices, slices, replica_ici, replica_dcn, model
):
    data_ici, data_dcn, ranks = expected["data_ici"], expected["data_dcn"], []
    for copy, inner, slice_, place, part in product(
        *map(range, (replica_dcn, replica_ici, data_dcn, data_ici, model))
    ):
        first = (copy * data_dcn + slice_) * (devices // slices)
        ranks.append(first + (inner * data_ici + place) * model + part)
    axes = {"replica": expected["replica"], "data": data_ici * data_dcn, "model": model}
    mesh = Mesh(axes, ranks=ranks, host_size=devices // slices)
    holds = {device: f"slice {mesh.host(device)}" for device in mesh.ranks}
    return Holdings(mesh, holds, title="The mesh that these sizes make")
