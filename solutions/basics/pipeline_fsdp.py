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
# Llama 3 405B was trained on 16,384 GPUs. A pipeline cannot use that many: the model has 126 layers, so the 127th stage
# would have nothing to do. FSDP alone cannot either: a gather round a ring of 16,384 is a chain of 16,383 messages, each
# layer waits for the slowest GPU of all, and each GPU needs a batch of its own.
#
# So large runs combine them. The GPUs are laid out in a **grid**. Along one axis the layers are divided, along another
# the data, along a third the inside of a layer. Each axis has its own way of sharing, and along it a rank talks only to
# the ranks of its own line. This is what people mean by "3D parallelism", and two axes are enough to see all of it.
#
# > **To tell a friend:** a rank in a big training run is a point on a grid, and each axis of the grid is one of the
# > puzzles that you have solved.
#
# *The words, once more.* A **stage** is the run of layers that a rank takes care of. A **shard** is one of several
# equal pieces of a weight. A **microbatch** travels through the pipeline on its own.

# %%
from drawing import draw, draw_collective, draw_mesh
from lib import Mesh, Model, PuzzleError, goal, predict, simulate
from lib.schedules.given import backward, forward, update

# %% [markdown]
# ## Meshes and groups
#
# We have 16 ranks and 4 layers. A **mesh** arranges the ranks in a grid and gives its axes names. We call them `data`
# and `stage`:

# %%
mesh = Mesh({"data": 4, "stage": 4})
draw_mesh(mesh)

# %% [markdown]
# Two numbers now say where a rank is: rank 6 is at data 1, stage 2.
#
# - **Along `stage` the layers differ** (the rows on the right). Each row is a pipeline: stage 0 has layer 0, stage 1 has
#   layer 1, and so on. Its ranks pass activations and gradients to their neighbours.
# - **Along `data` the batches differ** (the columns on the left). The four ranks of a column have the same layer, and each
#   works on other batches. They shard that layer among themselves, as in FSDP.
#
# The ranks of one line along an axis are a **group**; PyTorch says *process group*. You tell a collective which axis
# its group lies on: `group="data"` means "with the ranks that differ from me in `data` only".
#
# **Predict:** rank 6 has layer 2. Which ranks keep shards of that layer, and how large is each shard?
#
# <details><summary>Answer</summary>
#
# The ranks of stage 2, which are 2, 6, 10 and 14, and a quarter each. Only they ever need layer 2. It is tempting to cut
# each layer into sixteen pieces instead, one for every rank. But then all sixteen would have to take part whenever a layer
# is gathered, and twelve of them would do it for a layer that they never compute.
#
# </details>
#
# Inside a function, `model.coord["stage"]` is the place of a rank on an axis, and `model.group("stage")` lists the ranks
# of its line in order. So the next rank of my pipeline is `model.group("stage")[stage + 1]`. Every column gathers its
# own layer, and no column waits for another:


# %%
async def gather_columns(model: Model) -> None:
    stage, data = model.coord["stage"], model.coord["data"]
    if model.rank == 6:
        print("rank 6 is at", model.coord)
        print("its layer is on ranks", model.group("data"))
        print("its pipeline is", model.group("stage"))
    weights, opt_states, *_ = model.storage()
    weights["shard"], opt_states["shard"] = model.load_weights(stage, data, 4)
    weights["whole"] = await model.allgather(weights["shard"], stage, group="data")


demo = simulate(gather_columns, layers=4, batches=4, mesh=mesh)
draw_collective(demo, layer=2)

# %% [markdown]
# Leave the `group` out, and all 16 ranks meet in one collective, each stage with a different layer:


# %%
async def gather_everything(model: Model) -> None:
    stage, data = model.coord["stage"], model.coord["data"]
    weights, opt_states, *_ = model.storage()
    weights["shard"], opt_states["shard"] = model.load_weights(stage, data, 4)
    weights["whole"] = await model.allgather(weights["shard"], stage)


try:
    simulate(gather_everything, layers=4, batches=4, mesh=mesh)
except PuzzleError as error:
    print(error)

# %% [markdown]
# ## When to gather
#
# In FSDP you gathered a weight just before you used it, and again for each microbatch. In a pipeline there is more
# choice, because a stage waits anyway, and because it has few layers.
#
# - **Before the message or after it?** A stage has to receive before its first forward, and to gather. Which of the two
#   first? Count what the stages behind it wait.
# - **Once, or for every microbatch?** Gathering again costs time. Keeping the weight costs its memory. Here a stage has
#   one layer: count what is alive during a backward with either choice.
# - **All four or none.** A collective needs its whole group, and the four ranks of a column are in four different
#   pipelines. What makes sure that they arrive together?
# - **Who is waiting?** After a backward, the stage before is waiting for the gradient of the activation. Is any rank
#   waiting for the gradient of the weight?
#
# ## The puzzle
#
# | ranks | mesh | layers | batches | batches of a pipeline |
# |---|---|---|---|---|
# | 16 | data 4, stage 4 | 4 | 16 | 4 |
#
# **Given:** on each rank its place (`stage`, `data`), the ranks of its `pipeline`, its layers `my_layers` from `first`
# to `last`, its batches `my_batches`, and shard number `data` of each of its layers with the optimizer state. And three
# helpers for what you have written often enough. They delete what nothing reads any more:
#
# | helper | what it does |
# |---|---|
# | `forward(model, layer, b, weight)` | makes `activations[layer + 1, b]` from `activations[layer, b]`, which stays for backward |
# | `backward(model, layer, b, weight)` | makes `grad_activations[layer, b]` from `grad_activations[layer + 1, b]`, unless no layer reads it, and adds the gradient of the weight to `grad_weights[layer]` |
# | `update(model, layer)` | updates the shard `weights[layer]`, and uses up `grad_weights[layer]` |
#
# **To do:** one training step: a pipeline along `stage`, FSDP along `data`. Start from your function of puzzle
# $number_pipeline or $number_gpipe: most of its lines stay as they are, and the helpers take the place of others.
#
# **Rules**
#
# - Keep values in the stores: everything alive counts. Park a value in a variable while something else runs, and only
#   the first goal counts.
# - Collectives with `group="data"`; messages along the pipeline.
# - `set_final_weight` gets this rank's shard of this rank's layers.
# - The check also tries meshes with several layers on a stage: go through `my_layers`.
#
# For the first goal, all batches of a pipeline may travel together, as in puzzle $number_pipeline: then leave out `b`, in
# the keys and in `forward(model, layer, weight=...)`. For the others they travel one by one, as in puzzle $number_gpipe.

# %% [markdown]
# ### Predict first
#
# Each rank has one layer and four batches, so it computes for 4 + 4 and updates for 0.5. How long does the
# step take if the batches travel one by one, with all the messages and collectives on the way? And which share of the
# time (in percent, over all ranks) is then not spent computing?

# %%
guess = predict("pipeline_fsdp", end=..., idle=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. Sixteen ranks, but only four kinds of rows: the ranks of a column do the same at the same time. The last
# goal also limits what a rank sends. The limits answer your prediction, so guess first.

# %%
goal("pipeline_fsdp")

# %% [markdown]
# <!-- part: hints -->


# %%
async def pipeline_fsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    stage, data = model.coord["stage"], model.coord["data"]
    pipeline, shards = model.group("stage"), len(model.group("data"))
    per_stage = model.LAYERS // len(pipeline)
    my_layers = range(stage * per_stage, (stage + 1) * per_stage)
    first, last = my_layers[0], my_layers[-1]
    my_batches = range(data, model.BATCHES, shards)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer, data, shards)

    # A pipeline along `stage`, FSDP along `data`.
    # --- your code (about 29 lines) ---
    for layer in my_layers:
        weights[layer, "full"] = await model.allgather(
            weights[layer], layer, group="data"
        )

    for b in my_batches:
        if stage == 0:
            activations[0, b] = model.get_activation([b])
        else:
            activations[first, b] = await model.receive(pipeline[stage - 1])
        for layer in my_layers:
            forward(model, layer, b, weights[layer, "full"])
        out = last + 1, b
        if stage == len(pipeline) - 1:
            grad_activations[out] = model.loss(activations.pop(out))
        else:
            await model.pass_to(pipeline[stage + 1], activations.pop(out))

    for b in my_batches:
        if stage < len(pipeline) - 1:
            grad_activations[last + 1, b] = await model.receive(pipeline[stage + 1])
        for layer in reversed(my_layers):
            backward(model, layer, b, weights[layer, "full"])
        if stage > 0:
            await model.pass_to(pipeline[stage - 1], grad_activations.pop((first, b)))

    for layer in my_layers:
        del weights[layer, "full"]
        grad_weights[layer] = await model.scatterreduce(
            grad_weights[layer], layer, group="data"
        )
        update(model, layer)
    # --- end of your code ---

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(pipeline_fsdp, puzzle="pipeline_fsdp")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# Follow one pipeline. The gather takes 0.3. Batch 0 needs 1.4 for each of three stages, a forward and a message of 0.2 +
# 0.2, until the last stage has it. The other three follow every 1.4, because that is what a stage in the middle needs for
# one: receive, forward, pass on. The last forward takes 1. So the way there is 3 · 1.4 + 3 · 1.4 + 1 = 9.4, and the way
# back is as long. A reduce-scatter and an update take 0.8. Together 0.3 + 9.4 + 9.4 + 0.8 = 19.9.
#
# Of these 19.9 a rank computes 8.5, so 57.3 % of the time it does not. Microbatches have brought that down from 76 %: with all
# four batches together the step takes 35.5.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="pipeline_fsdp")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# Four equal pipelines side by side, and across them four groups that share a layer each. With *S* stages, *D* ranks
# along `data`, *m* microbatches in each pipeline and one layer a stage:
#
# ```
# all together    time = 2·S·m + 0.8·(S - 1) + 0.3 + 0.3 + 0.5
#                 peak = 2·W/D + W + 2·m·A                shards + the whole weight + activations and gradients
# one by one      time = 2·(S + m - 1) + 0.8·(S + m - 2) + 0.3 + 0.3 + 0.5
#                 peak = 2·W/D + 2·W + (2·m - 1)·A        after the first backward: its weight gradient is there, too
# ```
#
# The microbatches shorten the bubble, and they keep a whole gradient alive, from the first backward to the last: the sum
# of the batches. You can reduce-scatter after each microbatch instead, which is what FSDP does. Here that is 0.9 slower
# and saves nothing at the peak: the last stage is there with its very first gradient, before any sum waits. With many
# layers on a stage it is the other way round. This is exactly the point at which real systems differ.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **Llama 3 405B:** a grid of tensor 8 × pipeline 16 × data 64 is 8,192 GPUs at an MFU of 43 % (the share of their
#   peak that goes into the model); with data 128 it is 16,384 GPUs and 41 % [@llama3]. Tensor parallelism, which cuts the
#   inside of a layer, is the innermost axis: it needs the fastest links.
# - **Which axis goes where.** Over NVLink an H100 sends 450 GB/s to the 7 others in its host. Over its network card it
#   sends 50 to a GPU elsewhere: 9 to 1, for a message and for a group with one rank a host. Only a group that fills
#   whole hosts has all eight cards, 400 GB/s. And every message between hosts starts later. So the axis that talks in
#   every layer stays inside the host; a pipeline sends little and rarely, and may cross hosts.
# - **Keep or gather again?** FSDP would gather each weight for every microbatch, so torchtitan has switched that off
#   under a pipeline from the beginning (`reshard_after_forward=False`) [@torchtitan_318]. Llama 3 keeps its weights from
#   forward to backward as well [@llama3].
# - **Things break.** In 54 days of training, 419 unexpected stops, one every three hours; more than 90 % of the time was
#   useful work all the same [@llama3].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Every link is equally fast: a message is 0.2 and a collective 0.3, wherever it goes and whatever it carries. With
# `from lib import LINKS`, `simulate(pipeline_fsdp, puzzle="pipeline_fsdp", costs=LINKS)` prices communication by what it
# moves; puzzle $number_hsdp is about that. And here no GPU ever fails.

# %% [markdown]
# ## When is which the right one?
#
# | | saves | costs |
# |---|---|---|
# | gradient accumulation | activations | waiting gradients |
# | data parallel | time | a full copy of the model on each rank |
# | FSDP | weights, optimizer states, gradients | three collectives for each layer and microbatch |
# | pipeline | weights, optimizer states, gradients; hardly any traffic | the bubble |
# | microbatches | the bubble | activations of many batches |
#
# How fast the network is, how large a layer, how many batches there are: these three decide.
#
# ## Questions to think about
#
# **1.** Swap the axes of the mesh: `Mesh({"stage": 4, "data": 4})`. Your function gives the same figures. Why does it matter on
# a real cluster?
#
# <details><summary>Answer</summary>
#
# The last axis is the one along which rank numbers are neighbours, and GPUs with neighbouring numbers are in the same
# host. With four GPUs in a host, `stage` last puts each pipeline into one host and every all-gather on the network;
# `data` last puts the all-gathers on NVLink and the few small messages on the network. Llama 3 orders its axes by how
# much they talk: tensor first, then context, pipeline and data.
#
# </details>
#
# **2.** With two layers on each stage (`simulate(pipeline_fsdp, layers=8, batches=16, mesh=mesh)`), is it still right to
# keep the whole weights from the first forward to the last backward?
#
# <details><summary>Answer</summary>
#
# It depends on what is scarce. Keeping them costs one more whole weight for each further layer, at every moment.
# Gathering them again costs 0.3 for each layer, twice for each microbatch. With few microbatches and many layers,
# gather again; with many microbatches, keep: puzzle $number_pp_fsdp_keep. Between the two there is a third way, which
# Lamy-Poirier describes [@lamypoirier2022]: take all microbatches through one layer before the next is gathered.
#
# </details>
#
# **3.** How could the last stage need less memory, without delaying any other?
#
# <details><summary>Answer</summary>
#
# It holds four activations and four gradients because it takes all four batches forward before the first goes back. It
# could take each back at once, in the order of puzzle $number_one_f_one_b. Then only the stages before it have several
# batches in flight, because theirs take longer to come back. The step is over at 19.5, and the highest peak falls from
# 1,572,864 to 1,179,648 elements.
#
# </details>
#
# **4.** All-reduce the gradients along `data` instead of reduce-scattering them. It is one correct step, and neither time
# nor memory changes. Then why not the last goal?
#
# <details><summary>Answer</summary>
#
# Look at the wire: each rank sends twice as much for it, 393,216 elements of each layer instead of 196,608, to receive
# a sum of which it uses a quarter. It takes no more time here only because a collective takes 0.3 whatever it carries.
#
# </details>
#
# ## Where this leads
#
# You have the building blocks now: what DDP, FSDP and the pipelines of PyTorch, DeepSpeed and Megatron-LM do, in a few
# lines each. But every one of your schedules still waits. Look at a picture of puzzle $number_ddp once more: while an
# all-reduce runs, the rank does nothing. What could it compute in that time?
#
# The next chapter gives links a price, lets you hide it, and climbs the ladder of ZeRO to a mesh of hosts. Later ones
# cut a single layer (puzzle $number_tensor_parallel) and take the bubble of a pipeline apart (puzzles
# $number_interleaved and $number_zero_bubble).

# %% [markdown]
# <!-- part: links -->
