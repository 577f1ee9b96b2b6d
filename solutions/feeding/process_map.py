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
# Eight GPUs of a host that share each layer work on the same text. If each reads for itself, storage delivers every
# byte eight times. MegaScale, training on 12,288 GPUs, found just that, and now has one reader on each host, which puts
# the text into shared memory for all eight [1].
#
# Between hosts the problem is the opposite. Two processes on different hosts cannot share a reader, but they may need
# the same examples, and then they must read *exactly* the same ones. No process hands them out. Each must work out from
# the mesh alone which part of the data set is its own, and all answers must agree.
#
# > **To tell a friend:** no process hands out the data. Each works out its share from the same map, and a wrong map
# > does not crash.
#
# *Reminder.* A **row of data** is all devices with the same `replica` and `data` coordinates: they need the same
# examples. A **process** owns several devices, reads for all of them, and cuts what it reads into one piece for each of
# its rows.

# %%
from drawing import draw_mesh
from lib import check_function, goal
from lib.cluster.grids import mesh_of

# %% [markdown]
# ## The idea
#
# Most data sets can be opened as "part k of n": part k has the examples k, k + n, k + 2n, and so on. We call it a
# **data shard**. So a process needs two numbers, its k and the n. Two processes with the same rows need the same k, and
# two with different rows need different ones. Here is the mesh of puzzle $number_local_devices again. Four processes,
# but how many data shards?

# %%
grid = [[[0, 1, 4, 5], [8, 9, 12, 13], [10, 11, 14, 15], [2, 3, 6, 7]]]
draw_mesh(mesh_of(grid, per_process=4), holds={})

# %% [markdown]
# Processes 0 and 1 both have rows 0 and 3. Processes 2 and 3 both have rows 1 and 2. Two shards.
#
# In 2024 a rule was published that finds them for any mesh [2]. It names each group of processes after the owner of the
# device in one corner:
#
# 1. Take the **smallest place** of the process on each axis by itself: its smallest `replica`, its smallest `data`. And
#    `model` 0, whatever its own places there are.
# 2. Find the device that stands there, and the process that owns it. The group is named after that process. (It may be
#    the process itself or another one.)
# 3. Go through the processes from 0 on, and number the names 0, 1, 2, ... in order of appearance. That number is the
#    data shard.

# %% [markdown]
# ## The puzzle
#
# Write `process_map(grid, per_process)`.
#
# **Given:** the mesh, `grid[replica][data][model]`, and how many devices each process owns.
#
# **To do:** return a dict with the data shard of every process, by the published rule.
#
# **Rules**
#
# - Follow the rule exactly as it stands above. Whether it is a good one is the question of the next puzzle; start
#   looking for a mesh on which you would not trust it.
# - Take the smallest place on each axis separately. The process may have no device where they meet.

# %% [markdown]
# ### Predict first
#
# Which shards does the rule give to the four processes above? Trace the three steps by hand for each.
#
# <details><summary>Answer</summary>
#
# All have replica 0. Process 0: its smallest row is 0, the device there at model 0 is device 0, of process 0 itself:
# the first name, shard 0. Process 1: smallest row 0, device 0 again, so process 0 again: shard 0. Process 2: smallest
# row 1, device 8, process 2: a new name, shard 1. Process 3: smallest row 1, device 8, process 2: shard 1. `{0: 0, 1:
# 0, 2: 1, 3: 1}`.
#
# </details>

# %% [markdown]
# ### The goal
#
# | mesh | devices of a process | data shards |
# |---|---|---|
# | the 16 devices above | 4 | `{0: 0, 1: 0, 2: 1, 3: 1}` |
# | in order: replica 1, data 4, model 2 | 4 | `{0: 0, 1: 1}` |
# | in order: replica 1, data 2, model 4 | 2 | `{0: 0, 1: 0, 2: 1, 3: 1}` |
# | in order: replica 2, data 2, model 2 | 2 | `{0: 0, 1: 1, 2: 2, 3: 3}` |
# | in order: replica 1, data 1, model 8 | 2 | `{0: 0, 1: 0, 2: 0, 3: 0}` |
# | in order: replica 1, data 8, model 1 | 4 | `{0: 0, 1: 1}` |
#
# The check tries these, every small mesh, and larger ones with their devices in any order. If an answer is wrong, you
# see the smallest mesh that breaks it, as a picture.

# %%
goal("process_map")

# %% [markdown]
# <!-- part: hints -->


# %%
def process_map(grid, per_process):
    # First: the smallest replica and the smallest data of each process. Then the names, and their numbers.
    # --- your code (about 12 lines) ---
    smallest = {}
    for r, replica in enumerate(grid):
        for d, row in enumerate(replica):
            for device in row:
                before = smallest.setdefault(device // per_process, (r, d))
                smallest[device // per_process] = min(before[0], r), min(before[1], d)

    numbers, shards = {}, {}
    for process in sorted(smallest):
        r, d = smallest[process]
        name = grid[r][d][0] // per_process
        shards[process] = numbers.setdefault(name, len(numbers))
    return shards
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(process_map, puzzle="process_map")
verdict

# %% [markdown]
# ### See what it is for
#
# With these two functions you have all that a loader needs. Take a batch of 16 examples. A process opens its data shard
# and cuts it into pieces, and each device gets the piece of its row:

# %%
from lib.suite.submissions.function_check import solution_of

picture = None
if verdict:
    holds, shards = {}, process_map(grid, 4)
    for number, row in enumerate(grid[0]):
        for device in row:
            read = range(shards[device // 4], 16, 2)
            piece = solution_of("local_devices")(grid, 4, device // 4)[number]
            holds[device] = " ".join(str(example) for example in read[4 * piece : 4 * piece + 4])
    picture = draw_mesh(mesh_of(grid, per_process=4), holds=holds, title="What each device gets of a batch of 16")
picture

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is Levanter's `process_mesh_mapping`, as merged in May 2024 [2]. In the picture all is well: the four devices of
# a row have the same four examples, and the rows have different ones. Row 0 has 0, 2, 4, 6 and row 3 has 8, 10, 12, 14,
# all from data shard 0; row 1 has 1, 3, 5, 7 and row 2 has 9, 11, 13, 15, from data shard 1.
#
# Notice what a process does *not* need: it asks no other process and sends nothing. Each runs the same few lines on the
# same mesh, and the answers agree. That is fast, and it is the danger: if they do not agree, nothing tells you.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *The rule* went into Levanter in May 2024, with the mesh above as its example [2].
# - *The same text eight times.* MegaScale found that the workers of a tensor parallel group on one host read identical
#   data, and gave each host one reader with shared memory [1].
# - *What it takes from the storage.* Llama 3's cluster had 240 PB behind it, with 2 TB/s sustained [3]. For 16,384 GPUs
#   that is 122 MB/s each, if all read at once: text is small, but images are not.
# - *Who is "process 3"?* Llama 3 numbers its ranks [tensor, context, pipeline, data], so that ranks with neighbouring
#   numbers read the same data [3]. With another order the same formula gives every rank different examples.
#
# [1] Jiang et al., *MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs*, NSDI 2024,
# [arXiv:2402.15627](https://arxiv.org/abs/2402.15627).
# [2] marin-community/levanter, [pull request
# 588](https://github.com/marin-community/levanter/pull/588), *Partially-sharded-data-parallel*, 2024.
# [3] Grattafiori et al., *The Llama 3 Herd of Models*, 2024, [arXiv:2407.21783](https://arxiv.org/abs/2407.21783).

# %% [markdown]
# ## What is simplified here
#
# Our data set is a list of numbers, and a data shard is every n-th of them. Real ones are shuffled first, with a seed
# that all processes share, and are read ahead while the GPUs compute. And a real loader continues from batch to batch;
# here there is one step.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why `model` 0, and not the smallest `model` of the process?
#
# <details><summary>Answer</summary>
#
# Because the devices along `model` need the same examples. Process 1 stands at model 2 and 3; by its own smallest place
# it would get a name of its own, and with it a different data shard from process 0, which has the same rows. With
# `model` 0 all processes with the same smallest row arrive at the same device.
#
# </details>
#
# **2.** A mesh in order has `data` 8, `model` 1, and processes of 4 devices. What does the rule give? And `data` 1,
# `model` 8, with processes of 2?
#
# <details><summary>Answer</summary>
#
# The first: processes 0 and 1 with rows 0 to 3 and 4 to 7, `{0: 0, 1: 1}`, two data shards. The second has one row, and
# all four processes are in it: `{0: 0, 1: 0, 2: 0, 3: 0}`. Every process reads the whole batch.
#
# </details>
#
# **3.** Step 2 looks at a single device, the one in the corner. What does it silently assume about the processes in a
# group?
#
# <details><summary>Answer</summary>
#
# That processes with the same corner have the same rows. If process 0 has rows 0 and 1 and process 1 has rows 0 and 2,
# both start at row 0, both get the name of the process that owns its first device, and both open the same data shard.
# But they need different examples. The next puzzle starts here.
#
# </details>
#
# ## Where this leads
#
# The rule came with the claim that it works for every mix of data and tensor parallelism. It works for the mesh above,
# and for any mesh in order with sizes like 2, 4 and 8. Does it work for all?

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from lib.cluster.grids import grids, random_grids, small_grids
from lib.cluster.holdings import Holdings


def process_map_inputs():
    yield from small_grids(6)
    yield from ((grid, 2) for shape in ((1, 4, 2), (2, 2, 2)) for grid in grids(*shape, 2))
    yield from random_grids(200, [3, 6, 4])


def process_map_accepts(answer, grid, per_process):
    """False, or what is wrong: there is one right answer."""
    mesh, expected = mesh_of(grid, per_process), process_map(grid, per_process)
    if not isinstance(answer, dict) or set(answer) != set(expected):
        return False
    numbers = list(dict.fromkeys(answer[process] for process in sorted(answer)))
    if any(type(number) is not int for number in numbers):
        return "a data shard is a number"
    if numbers != list(range(len(numbers))):
        return f"number the names 0, 1, 2, ... in the order in which they come up; these come up as {', '.join(map(str, numbers))}"
    process = next(process for process in expected if answer[process] != expected[process])
    places = [mesh.coordinates(device) for device in mesh.devices(process)]
    corner = {axis: min(place[axis] for place in places) for axis in ("replica", "data")} | {"model": 0}
    device = mesh.rank(**corner)
    return (
        f"the smallest replica of process {process} is {corner['replica']} and its smallest data is {corner['data']}; device "
        f"{device} stands there at model 0, so its group is named after process {mesh.process(device)}"
    )


def process_map_picture(answer, expected, grid, per_process):
    mesh, asked = mesh_of(grid, per_process), expected if answer is None else answer
    wrong = [device for device in mesh.ranks if asked.get(mesh.process(device)) != expected[mesh.process(device)]]
    holds = {}
    for device in mesh.ranks:
        process = mesh.process(device)
        yours = f", not {asked.get(process)}" if device in wrong else ""
        holds[device] = f"shard {expected[process]}{yours}"
    return Holdings(mesh, holds, wrong, "The data shard of each process, by the published rule", processes=True)
