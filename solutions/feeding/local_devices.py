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
# Llama 3 405B was trained on 16,384 GPUs, and its batch was cut into 128 parts [1]. So 128 GPUs worked on the same
# examples. They had to: they held different parts of the same layers, and different layers of the same model.
#
# Now you write the data loader. It runs once on each host, in one process that feeds 8 GPUs. Which of the 128 parts
# does *this* process need? Perhaps one (its GPUs share each layer), perhaps eight (each GPU has a part of its own),
# perhaps something in between. A wrong answer makes no noise: training continues, on the wrong examples.
#
# > **To tell a friend:** a process does not need "its share" of the data; it needs the rows that its devices are in.
#
# *Reminder.* A **mesh** arranges devices in a grid with named axes. Until now a rank was a process with one device.
# From here on a **process** is a Python program on a host that owns several devices: it reads data and hands each
# device what it needs.

# %%
from drawing import draw_mesh
from lib import check_function, goal
from lib.cluster.grids import mesh_of

# %% [markdown]
# ## The idea
#
# Three axes are enough for most machines. Along `replica` and `data` the examples differ. Along `model` they are the
# same, because those devices hold different parts of the same layers. All devices with the same `replica` and `data`
# coordinates form a **row of data**. Here are 16 devices of four processes, with a colour for each process:

# %%
grid = [[[0, 1, 4, 5], [8, 9, 12, 13], [10, 11, 14, 15], [2, 3, 6, 7]]]
draw_mesh(mesh_of(grid, per_process=4), holds={})

# %% [markdown]
# This picture is one list of lists: `grid[replica][data][model]` is the number of a device. Process 0 owns devices 0 to
# 3, process 1 owns 4 to 7, and so on: that depends on the host they are plugged into. Where they *stand* in the mesh is
# chosen so that neighbours in the mesh are neighbours on the wires, and then the numbers can come in any order.
#
# Rows are numbered through all replicas: with D rows in a replica, the row at replica r and data d has number r · D +
# d.
#
# A process does two things in each step. It reads the examples of all its rows as one list. Then it cuts the list into
# as many equal pieces as it has rows, and hands the first piece to the devices in its first row, the second piece to
# those in its second row, and so on. So it needs a small table: for each row that it feeds, the **place** of the piece
# in its list.

# %% [markdown]
# ## The puzzle
#
# Write `local_devices(grid, per_process, process)`.
#
# **Given:** the mesh as a list of lists (above), how many devices each process owns (process p owns the devices with
# `device // per_process == p`), and the number of one process.
#
# **To do:** return a dict with one entry for each row in which the process has a device: the number of the row, and its
# place among the rows of the process, counted from 0 in the order of the rows.
#
# **Rules**
#
# - A row counts once, however many devices of the process are in it.
# - The devices of a process may stand anywhere.

# %% [markdown]
# ### Predict first
#
# In the picture above: which rows does process 1 feed, and which does process 2? What is the table of each?
#
# <details><summary>Answer</summary>
#
# Process 1 owns devices 4 to 7. They are in row 0 (4 and 5) and in row 3 (6 and 7): `{0: 0, 3: 1}`. Process 2 owns 8 to
# 11, which are in rows 1 and 2: `{1: 0, 2: 1}`. Process 0 has the same table as process 1, and process 3 the same as
# process 2. Remember that for the next puzzle.
#
# </details>

# %% [markdown]
# ### The goal
#
# | mesh | devices of a process | process | table |
# |---|---|---|---|
# | the 16 devices above | 4 | 0, 1 | `{0: 0, 3: 1}` |
# | the 16 devices above | 4 | 2, 3 | `{1: 0, 2: 1}` |
# | in order: replica 1, data 4, model 2 | 4 | 0 | `{0: 0, 1: 1}` |
# | in order: replica 1, data 2, model 4 | 2 | 0 | `{0: 0}` |
# | in order: replica 2, data 2, model 2 | 2 | 0 | `{0: 0}` |
# | in order: replica 1, data 8, model 1 | 4 | 0 | `{0: 0, 1: 1, 2: 2, 3: 3}` |
#
# The check tries these, the processes of every small mesh, and larger meshes with their devices in any order. If an
# answer is wrong, you see the smallest mesh that breaks it, as a picture.

# %%
goal("local_devices")

# %% [markdown]
# <!-- part: hints -->


# %%
def local_devices(grid, per_process, process):
    # Number the rows through all replicas. Which of them have a device of this process?
    # --- your code (about 6 lines) ---
    rows = [row for replica in grid for row in replica]
    places = {}
    for number, row in enumerate(rows):
        if any(device // per_process == process for device in row):
            places[number] = len(places)
    return places
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(local_devices, puzzle="local_devices")
verdict

# %% [markdown]
# ### See what you built
#
# Each device with the number of its row, and with the piece of its process's list that it gets:

# %%
picture = None
if verdict:
    holds = {}
    for number, row in enumerate(grid[0]):
        for device in row:
            holds[device] = f"row {number}: piece {local_devices(grid, 4, device // 4)[number]}"
    picture = draw_mesh(mesh_of(grid, per_process=4), holds=holds)
picture

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# Levanter, a training library for JAX, calls this function `local_devices_mapping` [2]. The mesh with 16 devices is the
# example from the pull request that proposed it. In PyTorch the same question hides in one line:
# `DistributedSampler(num_replicas=..., rank=...)` wants the number of rows and the number of *your* row. World size and
# global rank are right only as long as no two ranks share a row.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *Devices in any order.* `jax.make_mesh` on 8 TPU v3 cores gives the order 0, 1, 2, 3, 6, 7, 4, 5, so that the
#   devices of a line form a ring [3]. A loader that assumes 0 to 7 feeds four devices wrongly. So Levanter searches the
#   mesh for the devices of a process, as you have done [2].
# - *Innermost is closest.* Llama 3 orders its ranks [tensor, context, pipeline, data], tensor innermost: those eight
#   GPUs share the links inside a host, and all GPUs of a host are in one row [1].
# - *Making the groups is work, too.* MegaScale at first needed 1,047 seconds to set up the process groups of 2,048
#   GPUs, and under 5 after some engineering [4].
#
# [1] Grattafiori et al., *The Llama 3 Herd of Models*, 2024, [arXiv:2407.21783](https://arxiv.org/abs/2407.21783).
# [2] marin-community/levanter, [pull request
# 588](https://github.com/marin-community/levanter/pull/588), *Partially-sharded-data-parallel*, 2024.
# [3] jax-ml/jax, *jax.make_mesh*, documentation, [docs.jax.dev](https://docs.jax.dev/en/latest/_autosummary/jax.make_mesh.html).
# [4] Jiang et al., *MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs*, NSDI 2024,
# [arXiv:2402.15627](https://arxiv.org/abs/2402.15627).

# %% [markdown]
# ## What is simplified here
#
# JAX runs one process for each host; PyTorch starts one for each GPU, each with loader workers of its own. Here each
# process owns the same number of devices, numbered consecutively. Every device of a row needs whole examples; with
# sequence or context parallelism it needs a part of each of them. And a pipeline feeds examples only to its first stage
# (and labels to its last), so some processes need none at all.

# %% [markdown]
# ## Questions to think about
#
# **1.** How many rows can a process with 8 devices feed, at least and at most? What decides that?
#
# <details><summary>Answer</summary>
#
# Between 1 and 8. If `model` has 8 or more along the devices of a host, it is one row; with `model` 1 it is 8. The
# order of the axes decides: the last one changes fastest from device to device. A mesh in order with `model` last and
# of size 2 gives each process 4 rows.
#
# </details>
#
# **2.** Processes 0 and 1 have the same table. Do they need the same examples?
#
# <details><summary>Answer</summary>
#
# Yes, exactly the same: each of them has two devices in row 0 and two in row 3. If they are on different hosts, the
# examples are read twice, unless you send them over the network. If they are on one host, one of them could read for
# both. (If they had the same *places* but different rows, like processes 0 and 2, they would need different examples.)
#
# </details>
#
# **3.** The table orders rows by number. What would go wrong if each process chose its own order, say by the numbers of
# its devices?
#
# <details><summary>Answer</summary>
#
# Two processes with the same rows read the same list. If one of them gives the first piece to row 0 and the other gives
# it to row 3, then the devices of one row have different examples, and they compute one layer from two different
# inputs. Nothing fails. Any order will do, as long as all processes use the same one.
#
# </details>
#
# **4.** What is the table of a process without a device in the mesh?
#
# <details><summary>Answer</summary>
#
# An empty table, `{}`: it reads nothing. That happens when the mesh covers only some of the machines, and in a
# pipeline, where only the first stage needs examples (and the last stage the labels).
#
# </details>
#
# ## Where this leads
#
# You know which rows a process feeds. But a data set is rarely read by rows: you ask for "part k of n". Which k and
# which n belong to which process, so that processes with the same rows read the same part?

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from lib.cluster.grids import grids, random_grids, small_grids
from lib.cluster.holdings import Holdings
from lib.errors.wording import these


def local_devices_inputs():
    pairs = [(grid, 2) for grid in grids(1, 4, 2, 2)]
    for grid, per_process in [*small_grids(6), *pairs, *random_grids(60, [2, 6, 4])]:
        devices = sum(len(row) for replica in grid for row in replica)
        for process in range(devices // per_process):
            yield grid, per_process, process


def local_devices_accepts(answer, grid, per_process, process):
    """False, or what is wrong: there is one right answer."""
    mesh = mesh_of(grid, per_process)
    rows = mesh.rows("replica", "data")
    mine = [number for number, row in enumerate(rows) if any(mesh.process(device) == process for device in row)]
    if not isinstance(answer, dict):
        return False
    for place, number in enumerate(mine):
        if number not in answer:
            device = next(device for device in rows[number] if mesh.process(device) == process)
            return f"device {device} of process {process} stands in row {number}: that row needs an entry"
        if answer[number] != place:
            before = f"comes after {place} other row{'s' * (place > 1)}" if place else "is the first"
            return f"of the rows of process {process} row {number} {before}: its place is {place}"
    (more, *_) = [number for number in answer if number not in mine]
    return (
        f"process {process} has no device in row {more!r}" if more in range(len(rows)) else f"there is no row {more!r}"
    )


def local_devices_picture(answer, expected, grid, per_process, process):
    rows = [row for replica in grid for row in replica]
    holds, wrong, asked = {}, [], expected if answer is None else answer
    for number, row in enumerate(rows):
        mine = [device for device in row if device // per_process == process]
        is_wrong = asked.get(number) != expected.get(number)
        wrong += (mine or row) if is_wrong else []
        if mine:
            yours = f", not {asked[number]}" if is_wrong and number in asked else ""
            holds |= dict.fromkeys(mine, f"piece {expected[number]}{yours}")
    title = f"Process {process} feeds {these('row', expected)}; each gets a piece of its list"
    return Holdings(mesh_of(grid, per_process), holds, wrong, title, processes=True)
