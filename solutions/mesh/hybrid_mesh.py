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
# An H100 sends 450 GB/s to the seven others in its host, and 50 GB/s through its network card: nine times less for two
# GPUs that talk across hosts, while all eight cards of a host together do 400. On a TPU v5p the border is steeper. A
# chip has six links of 90 GB/s to its neighbours, and its share of the network between slices is 6.25 GB/s: 86 times
# less, however many chips send at once.
#
# So it matters which traffic goes over which links. But look at a configuration file for such a run, and you find five
# innocent numbers, `replica_ici_axis_size: 1`, `replica_dcn_axis_size: 2`, and so on. They decide it all. Get one wrong
# and nothing crashes: the loss is right, and every step takes longer, as with the swapped axes in puzzle $number_hsdp.
#
# > **To tell a friend:** the axes of a mesh are not equal. Each has a fast part and a slow part, and you choose what is
# > sent over which.
#
# *The words, once more.* A **mesh** gives each device a place on named axes. Weights are sharded along `data` and copied along
# `replica`; along `model` each device has a part of the inside of every layer.

# %%
from drawing import draw_mesh
from lib import Mesh, check_function, goal

# %% [markdown]
# ## The idea
#
# Devices come in **slices**: within a slice links are fast, between slices they are slow. A slice is a host of eight GPUs,
# or a few hundred TPU chips. People who use TPUs call the fast links **ICI** and the slow network **DCN**. We take these
# names, because the configuration files have them.
#
# Every axis has two sizes, and they multiply. Its `ici` size says over how many devices *inside* a slice it goes, its
# `dcn` size over how many *slices*. Here are 16 devices in 4 slices (a slice is drawn as a host), with `model` 2. Each
# copy of the weights lies in two slices, so there are two copies.

# %%
mesh = Mesh({"replica": 2, "data": 4, "model": 2}, host_size=4)
draw_mesh(mesh, "data")

# %% [markdown]
# Follow the group of rank 0, in blue. Its `data` axis has 4 places: 2 inside a slice, times 2 slices. Whenever a layer is
# gathered, a part of it crosses from host 0 to host 1. Now with `replica` over all four slices:

# %%
draw_mesh(Mesh({"replica": 4, "data": 2, "model": 2}, host_size=4), "data")

# %% [markdown]
# Now no group along `data` leaves its host. Only the sums of the gradients do, along `replica`, once a step. The price:
# each device keeps half of its part of the weights and optimizer states, not a quarter.
#
# `model` is never put across slices. Its collectives come several times a layer, and the next operation waits for each
# of them.

# %% [markdown]
# ## The puzzle
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
# ### Predict first
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
# ### The goal
#
# Your function is asked for the rows of a table, for every small combination of sizes, and for large clusters. If an
# answer is wrong, you see the smallest input that it is wrong for.

# %%
goal("hybrid_mesh")

# %% [markdown]
# <!-- part: hints -->


# %%
def hybrid_mesh(devices, slices, replica_ici, replica_dcn, model):
    # First what cannot be. Then the two sizes of data, and what follows from them.
    # --- your code (about 18 lines) ---
    if min(devices, slices, replica_ici, replica_dcn, model) < 1:
        raise ValueError("every size is 1 or more")
    if devices % slices:
        raise ValueError(f"{devices} devices do not make {slices} slices of equal size")
    in_slice = devices // slices
    if in_slice % (replica_ici * model):
        raise ValueError(f"replica_ici {replica_ici} times model {model} does not divide a slice of {in_slice} devices")
    if slices % replica_dcn:
        raise ValueError(f"{slices} slices do not divide among {replica_dcn} copies")
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
# Passed? Then `reveal("hybrid_mesh")`, in a cell of its own, shows the official solution. (`from lib import reveal` first.)

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
        shards = sizes["data_ici"] * sizes["data_dcn"]
        print(f"{replica_dcn:>11}  {sizes['replica']:>6}  {shards:>6}  {sizes['data_dcn']:>7}")
    sizes = hybrid_mesh(32, 4, 1, 2, 2)
    axes = {"replica": sizes["replica"], "data": sizes["data_ici"] * sizes["data_dcn"], "model": 2}
    picture = draw_mesh(Mesh(axes, host_size=8), "data")
picture

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is how Levanter finds the sizes of its mesh [1]. JAX then multiplies the two shapes, axis by axis, and puts the
# devices in their places (`create_hybrid_device_mesh`):
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
# ## On real GPUs
#
# - **In a file.** MaxText's script for two slices of TPU v4 has `ici_fsdp_parallelism=64 dcn_data_parallelism=2`: shards
#   inside a slice, copies across [2]. That is our `data_dcn` 1.
# - **Copies of several hosts.** With one copy a host, an 8-GPU host has to hold a whole model, and 70B with its optimizer is
#   700 GB even at 10 bytes a parameter: it does not fit into 640. So people asked for groups of several hosts in PyTorch [3],
#   which is our `data_dcn` above 1.
# - **How much batch it takes** to hide the sums between slices: about 76,000 tokens for each TPU pod and step [4].
# - **Three kinds of links.** Llama 3's network has pods of 3,072 GPUs with full bandwidth, and one seventh of it between pods
#   [5]. A third size for every axis.
#
# [1] stanford-crfm/levanter,
# [src/levanter/trainer.py](https://github.com/stanford-crfm/levanter/blob/main/src/levanter/trainer.py).
# [2] AI-Hypercomputer/maxtext, MaxText/configs/2xv4-128.sh, [github.com](https://github.com/AI-Hypercomputer/maxtext).
# [3] pytorch/pytorch, *FSDP: HYBRID_SHARD Apply FULL_SHARD across multiple nodes*, 2024,
# [issue 117470](https://github.com/pytorch/pytorch/issues/117470).
# [4] Austin et al., *[How To Scale Your Model](https://jax-ml.github.io/scaling-book)*, 2025.
# [5] Grattafiori et al., *The Llama 3 Herd of Models*, 2024, [arXiv 2407.21783](https://arxiv.org/abs/2407.21783).

# %% [markdown]
# ## What is simplified here
#
# All slices are equal, and inside a slice all links are. In a TPU slice the links form a torus, so it also matters
# which chips are neighbours; in a host of GPUs each reaches every other through a switch. And our `data` axis fills a
# slice first and then goes on in the next. It need not: a mesh can have its devices in any order, and puzzle
# $number_break_the_map shows what follows from that.

# %% [markdown]
# ## Questions to think about
#
# **1.** For which `replica_dcn` does no all-gather cross slices, and what does that cost?
#
# <details><summary>Answer</summary>
#
# For `replica_dcn` = `slices`: then `data_dcn` is 1. Each slice has a whole copy of the weights, and only the
# all-reduce of the gradients crosses. It costs memory: a copy is cut into `data_ici` shards only. In the table above
# that is 4 instead of 16, so every device keeps four times as much.
#
# </details>
#
# **2.** Why does the batch count `replica` and `data`, and not `model`?
#
# <details><summary>Answer</summary>
#
# Devices along `model` compute one layer together, on the same examples. Those along `replica` and `data` have different
# ones. A batch of 512 examples on `data_axis` 32 is 16 examples for each pair of devices along `model`.
#
# </details>
#
# **3.** There are four slices and one of them breaks. With which `replica_dcn` can you go on with three, and with which not?
#
# <details><summary>Answer</summary>
#
# With 1: the weights are cut anew over three slices. With 4 if you make it 3: a copy is lost, but every slice still has
# one. With 2 you cannot, as the `ValueError` says: a copy needs two slices, and one and a half are left. You would have
# to leave one slice idle, or change the layout.
#
# </details>
#
# **4.** Levanter checks the two divisions with `assert`. We asked for a `ValueError`. Is that only taste?
#
# <details><summary>Answer</summary>
#
# No. `python -O` removes every `assert`, and then `//` rounds down without a word: 3 slices over 2 copies are
# `data_dcn` 1, and a third of the devices is on no mesh. An `assert` says what the author believes; an error says what the
# caller did wrong.
#
# </details>
#
# ## Where this leads
#
# A mesh has places, and you have decided which are near and which are far. So far each rank did whole layers on its own
# examples, except along `model`. What do the ranks of that axis do?

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from itertools import product
from random import Random

from lib.cluster.holdings import Holdings


def hybrid_mesh_inputs():
    yield from product(range(9), range(4), range(3), range(4), range(3))
    yield from ((-size, 1, 1, 1, 1) for size in (1, 8))
    random = Random(0)
    for _ in range(300):
        sizes = [random.choice((1, 1, 2, 3, 4, 8)) for _ in range(5)]
        replica_ici, replica_dcn, model, data_ici, data_dcn = sizes
        slices = replica_dcn * data_dcn + (random.random() < 0.1)
        devices = slices * replica_ici * data_ici * model * random.choice((1, 1, 4, 16)) + (random.random() < 0.1)
        yield devices, slices, replica_ici, replica_dcn, model


def hybrid_mesh_picture(answer, expected, devices, slices, replica_ici, replica_dcn, model):
    data_ici, data_dcn, ranks = expected["data_ici"], expected["data_dcn"], []
    for copy, inner, slice_, place, part in product(*map(range, (replica_dcn, replica_ici, data_dcn, data_ici, model))):
        first = (copy * data_dcn + slice_) * (devices // slices)
        ranks.append(first + (inner * data_ici + place) * model + part)
    axes = {"replica": expected["replica"], "data": data_ici * data_dcn, "model": model}
    mesh = Mesh(axes, ranks=ranks, host_size=devices // slices)
    holds = {device: f"slice {mesh.host(device)}" for device in mesh.ranks}
    return Holdings(mesh, holds, title="The mesh that these sizes make")
