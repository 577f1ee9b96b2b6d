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
# **What you learn:** to combine two ways of sharing on a grid of ranks, with a process group for each.
#
# *Reminder.* A **stage** is the part of the layers that a rank takes care of. A **shard** is one of several
# equal pieces of a weight. A **group** is the part of the ranks that a collective is for.

# %%
from drawing import draw, draw_group
from lib import Mesh, Model, PuzzleError, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# 16 ranks, 4 layers, 4 batches. A pipeline alone could use 4 ranks, one for each layer. FSDP alone could use
# 4, one for each batch. Together they use 16: for **each layer and each batch** there is one rank.
#
# So a rank has two coordinates, and it is best to give them names at once:
#
# - `stage`: which layers it has. It talks to the stages before and after it, with messages.
# - `batch`: which batch it works on. It shares its layer with the ranks that work on the other batches, with
#   collectives. Its batch also says which shard of the layer it keeps.
#
# A mesh does the arithmetic. Its axes have names: along `stage` the layers differ, and along `data` the batches
# (as in *data* parallel):

# %%
mesh = Mesh({"data": 4, "stage": 4})
for rank in (0, 1, 2, 3, 4, 15):
    print("rank", rank, "is at", mesh.coordinates(rank))

# %% [markdown]
# ```
#             stage 0       stage 1       stage 2       stage 3
#             (layer 0)     (layer 1)     (layer 2)     (layer 3)
# batch 0      rank  0  ───  rank  1  ───  rank  2  ───  rank  3      each row is a pipeline:
# batch 1      rank  4  ───  rank  5  ───  rank  6  ───  rank  7      it takes one batch through all layers
# batch 2      rank  8  ───  rank  9  ───  rank 10  ───  rank 11
# batch 3      rank 12  ───  rank 13  ───  rank 14  ───  rank 15
#
#             each column is a group: four ranks that share one layer
# ```
#
# There are four groups for collectives because there are four stages, and only the four ranks of a stage ever
# need its layer. Each of them keeps one quarter of it. Rank r of 16 does *not* keep a sixteenth of
# everything: then all ranks would have to take part in gathering layers that 12 of them never compute.
#
# Each column gathers its own layer:


# %%
async def gather_columns(model: Model) -> None:
    stage, batch = model.coord["stage"], model.coord["data"]
    model.weights["shard"], model.opt_states["shard"] = model.load_weights(stage, batch, 4)
    model.weights["full"] = await model.allgather(model.weights["shard"], stage, group="data")


demo = simulate(gather_columns, layers=4, batches=4, mesh=mesh)
for m in demo[2::4]:
    print("rank", m.rank, "has", m.weights["shard"], "and gets", m.weights["full"])
draw_group({"rank 6 before": demo[6].weights["shard"]}) / draw_group({"rank 6 after": demo[6].weights["full"]})

# %% [markdown]
# These are ranks 2, 6, 10 and 14, the group of stage 2: they are at the four places along the axis `data`, and
# that is what `group="data"` means. Leave it out, and all 16 ranks meet in one collective, each stage with a
# different layer:


# %%
async def gather_everything(model: Model) -> None:
    stage, batch = model.coord["stage"], model.coord["data"]
    model.weights["shard"], model.opt_states["shard"] = model.load_weights(stage, batch, 4)
    model.weights["full"] = await model.allgather(model.weights["shard"], stage)


try:
    simulate(gather_everything, layers=4, batches=4, mesh=mesh)
except PuzzleError as error:
    print(error)

# %% [markdown]
# The other coordinate is for messages. `model.group("stage")` is the row of a rank, the pipeline it belongs
# to, in order: the next rank of my pipeline is `model.group("stage")[stage + 1]`.


# %%
def show_pipeline(model: Model) -> None:
    if model.rank == 6:
        print("rank", model.rank, "is at", model.coord)
        print("it shares its layer with ranks", model.group("data"))
        print("its pipeline is", model.group("stage"))


demo = simulate(show_pipeline, layers=4, batches=4, mesh=mesh)

# %% [markdown]
# ### When to gather
#
# In FSDP you gathered just before use, twice. In a pipeline there is more choice, because stages wait anyway.
#
# - **Before the message, not after it.** A stage that first receives and then gathers makes everybody behind
#   it wait 0.3 longer. Gathered while waiting, it costs no time at all.
# - **Keep it or gather it again?** Between its forward and its backward a stage can delete the full weight
#   and gather it anew. This pays when the rank has several layers, or when the peak lies in between. Count
#   what is alive at the backward of a stage with one layer, with either choice, before you decide.
# - **All four or none.** A collective needs the whole group. The four ranks of a stage are at the same point
#   of their four pipelines, so they arrive together.
#
# And after backward: the rank before is waiting for the gradient of the activation, and nobody is waiting for
# the gradient of the weight. Which of the two goes out first?
#
# ## The puzzle
#
# | ranks | mesh | layers | batches |
# |---|---|---|---|
# | 16 | data 4, stage 4 | 4 | 4 |
#
# **Given:** on each rank its `stage` and its `batch`, the ranks of its `pipeline`, its layers `my_layers`
# from `first` to `last`, and of each of these shard number `batch` with its optimizer state.
#
# **To do:** one training step: a pipeline in each row, FSDP in each column.
#
# **Rules**
#
# - Values live in the stores; everything alive counts.
# - Collectives with `group="data"`, messages along the pipeline.
# - `set_final_weight` gets this rank's shard of this rank's layers.

# %% [markdown]
# **Predict.** Each rank has one layer and one batch, so it computes for 1 + 1 time units and updates for 0.5. How long
# does the whole step take, with all the messages and collectives on the way? How many collectives does a rank take part
# in?

# %%
guess = predict("pipeline_fsdp", end=..., collectives=...)
guess

# %%
goal("pipeline_fsdp")

# %% [markdown]
# <!-- part: hints -->


# %%
async def pipeline_fsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    stage, batch = model.coord["stage"], model.coord["data"]
    pipeline, shards = model.group("stage"), len(model.group("data"))
    per_stage = model.LAYERS // len(pipeline)
    my_layers = range(stage * per_stage, (stage + 1) * per_stage)
    first, last = my_layers[0], my_layers[-1]
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer, batch, shards)

    # As in the pipeline: input, forward, output, gradient, backward, message to the stage before.
    # As in FSDP: gather the weights before they are used, reduce-scatter the gradients, update shards.
    # --- your code (about 27 lines) ---
    for layer in my_layers:
        weights[layer, "full"] = await model.allgather(weights[layer], layer, group="data")

    if stage == 0:
        activations[0] = model.get_activation([batch])
    else:
        activations[first] = await model.receive(pipeline[stage - 1])

    for layer in my_layers:
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])

    if stage == len(pipeline) - 1:
        grad_activations[last + 1] = model.loss(activations[last + 1])
        del activations[last + 1]
    else:
        await model.pass_to(pipeline[stage + 1], activations[last + 1])
        del activations[last + 1]
        grad_activations[last + 1] = await model.receive(pipeline[stage + 1])

    for layer in reversed(my_layers):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer, "full"]
        )
        del activations[layer], grad_activations[layer + 1], weights[layer, "full"]

    if stage > 0:
        await model.pass_to(pipeline[stage - 1], grad_activations[first])
    del grad_activations[first]

    for layer in my_layers:
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="data")
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
    # --- end of your code ---

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(pipeline_fsdp, puzzle="pipeline_fsdp")

# %%
guess.against(out)

# %%
draw(out)

# %%
Model.check(out, puzzle="pipeline_fsdp")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you saw
#
# <details><summary>Open this when you have solved the puzzle</summary>
#
# Four equal staircases, one for each batch. The four ranks of a stage do the same at the same time.
#
# With *S* stages and *D* ranks a stage, *R* = *S*·*D*, and one layer a stage:
#
# ```
# time = 2·L·B/D + 2·(S - 1)·0.4 + 0.3 + 0.3 + 0.5      compute of one batch + messages + all-gather, reduce-scatter, update
# peak = 2·W/D + W + 2·A                                shards + one full weight + an activation and a gradient
# ```
#
# The bubble is still there: at each moment one stage in four works. Microbatches within each row would fill
# it, but then the weights are needed more often. Keep them gathered, or gather them for every microbatch?
# That is the point at which real systems differ.
#
# </details>
#
# ## When is which the right one?
#
# There is no schedule that is best everywhere. What you have met so far:
#
# | | saves | costs |
# |---|---|---|
# | accumulation | activations | gradients are kept |
# | data parallel | time | a full copy of the model on each rank |
# | FSDP | weights, optimizer states, gradients | three collectives a layer, all ranks in lockstep |
# | pipeline | weights, optimizer states, gradients | the bubble |
# | microbatches | the bubble | activations of many batches |
#
# A fast network inside a host favours collectives there. A slow network between hosts favours messages. Which
# of them you have, how large a layer is, and how many batches there are, decides.
#
# ## Where to go from here
#
# You have solved the eight. None of their solutions is the last word, and everything is here to look further:
#
# - `puzzles reveal gpipe` in a terminal (or the folder `solutions/alternatives/`) shows other schedules for each
#   puzzle: 1F1B and an interleaved pipeline, a prefetched FSDP, an overlapped all-reduce. Run one in the notebook
#   of its puzzle, and look at its review.
# - The reviews name lower bounds that your runs are above. For GPipe the best end is 31.4. What has to be
#   received earlier than it is needed?
# - Change the sizes: `simulate(pipeline_fsdp, layers=8, batches=4, mesh=mesh)` gives each stage two layers. Is it
#   still right to keep the full weights from forward to backward?
# - Change the network. With `from lib import LINKS`, `simulate(fsdp, puzzle="fsdp", costs=LINKS)` prices
#   collectives by what they move: the schedule of puzzle $number_fsdp ends at 20.4 as before, and that of puzzle $number_wsdp,
#   with its all-reduces, 22.2.
# - Take four microbatches through each row of this last puzzle, in the order of 1F1B, and gather each layer once.
#   This is near to how the largest models are trained.

# %% [markdown]
# <!-- part: links -->
