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
# The rule that you broke guesses. It looks at one corner of a process and hopes that processes with the same corner
# have the same rows. On 92 of the 105 meshes they do not. You could add a special case for each way in which it fails.
# But there is a fix that is shorter than the mistake and cannot fail.
#
# The fix must not make any process read more than it needs, though. The brute-force way is to let every process read
# the whole batch and keep what it needs. A batch of Llama 3 405B is 16 million tokens [1]; with 128 rows, a host with
# one row needs 1/128 of it. Reading all of it on 2,048 hosts would be 128 times as much as needed.
#
# > **To tell a friend:** ask for examples by the row they belong to, and no two processes can disagree.
#
# *Reminder.* A **row of data** is all devices with the same `replica` and `data` coordinates; they need the same
# examples. A process reads one list and cuts it into as many equal pieces as it has rows: the first for its first row,
# and so on.

# %%
from drawing import draw_mesh
from lib import check_function, goal
from lib.cluster.grids import grids, mesh_of

# %% [markdown]
# ## The idea
#
# Here is the small mesh on which the rule gave two rows the same example: three rows of two devices. Every process has
# two rows, and no two processes have the same two.

# %%
grid = [[[0, 2], [3, 4], [1, 5]]]
draw_mesh(mesh_of(grid, per_process=2), holds={})

# %% [markdown]
# "Part k of n" cannot work here. The data shards would have to be the same for processes 0 and 1, because both feed row
# 0, and for 1 and 2 because of row 1; so all three would open one shard, and each would need a different part of it.
#
# Turn it round. Do not ask which shard belongs to a **process**. Ask which examples belong to a **row**. The answer
# mentions no process, so it is the same for every process that asks. A process then reads the examples of its rows, one
# after the other: the union, and not one more.
#
# The price: the data set must be read **by index** ("give me examples 8 to 11") instead of as "part k of n".

# %% [markdown]
# ## The puzzle
#
# Write `fix_the_map(grid, per_process, batch)`.
#
# **Given:** a mesh, how many devices each process owns, and the size of a batch, which the rows can divide among them.
#
# **To do:** return a dict with one entry for each process: the list of examples that it reads, in the order in which it
# cuts them into pieces for its rows.
#
# **Rules**
#
# - *Every row right.* All devices of a row get the same examples in the same order, and every example of the batch goes
#   to exactly one row.
# - *Reads minimal.* A process reads exactly as many examples as its rows need: batch / rows for each of them.
# - Which row gets which examples is up to you.

# %% [markdown]
# ### Predict first
#
# In the mesh above, with a batch of 6: how many examples does each process have to read, and how many do all three read
# together?
#
# <details><summary>Answer</summary>
#
# Each row gets 2 examples. Each process has two rows, so it reads 4, and all three read 12: every example twice. No
# fewer are possible, because every row has devices of two processes, and both need its examples.
#
# </details>

# %% [markdown]
# ### The goal
#
# The check tries all 105 ways to give eight devices to four processes, every small mesh, and larger ones. You may
# divide the examples among the rows as you like. If an answer is wrong, you see the smallest mesh that breaks it, with
# what each device would get.

# %%
goal("fix_the_map")

# %% [markdown]
# <!-- part: hints -->


# %%
def fix_the_map(grid, per_process, batch):
    # Which examples belong to row 0, to row 1, ...? Who feeds a row has to read them.
    # --- your code (about 6 lines) ---
    rows = [row for replica in grid for row in replica]
    each, reads = batch // len(rows), {}
    for number, row in enumerate(rows):
        for process in {device // per_process for device in row}:
            reads.setdefault(process, []).extend(range(number * each, (number + 1) * each))
    return reads
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(fix_the_map, puzzle="fix_the_map")
verdict

# %% [markdown]
# ### See it
#
# The smallest failure, fixed. `handed_out` cuts what each process reads into pieces, as a loader does:


# %%
def handed_out(reads, grid, per_process):
    """What each device gets: {device: [examples]}."""
    rows, held, used = [row for replica in grid for row in replica], {}, {}
    for row in rows:
        for process in {device // per_process for device in row}:
            mine = sum(any(device // per_process == process for device in other) for other in rows)
            each, first = len(reads[process]) // mine, used.get(process, 0)
            used[process] = first + each
            held |= {d: reads[process][first : first + each] for d in row if d // per_process == process}
    return held


def in_words(held):
    return {device: " ".join(map(str, examples)) for device, examples in held.items()}


picture = None
if verdict:
    held = handed_out(fix_the_map(grid, 2, 6), grid, 2)
    picture = draw_mesh(mesh_of(grid, 2), holds=in_words(held), title="Read by index: every row right")
picture

# %% [markdown]
# And the 105, counted as before. How many examples of a batch of 16 do the four processes read together?

# %%
if verdict:
    right, read = 0, []
    for mesh in grids(1, 4, 2, per_process=2):
        reads = fix_the_map(mesh, 2, 16)
        held = handed_out(reads, mesh, 2)
        rows = [row for replica in mesh for row in replica]
        right += all(any(all(e in held[d] for d in row) for row in rows) for e in range(16))
        read.append(sum(map(len, reads.values())))
    print(f"right for {right} of 105")
    print(f"read in all: {min(read)} to {max(read)} examples, {sum(read) / len(read):.1f} on average")
    print(f"if every process read the whole batch: {4 * 16}")

# %% [markdown]
# ### With real processes (optional)
#
# `torchrun --nproc-per-node 3 docs/examples/feeding.py`, in the folder of the puzzles, feeds three real processes: by
# the rule of the last puzzle, and then by index, as you do. They open files, count the examples, and compare what their
# devices hold.

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# A loader by index, as JAX programs use it today. Levanter's loader asks the mesh which indices of the batch each
# device of this process holds, and reads only these [2]; the rule that you broke is gone. With R rows, and a process
# that feeds r of them:
#
# ```
# reads of a process = r·B/R          the union of its rows, and nothing else
# ```
#
# Data shards are not wrong in themselves. "Part k of n" is right exactly where any two processes have **the same set of
# rows, or no row in common**, and all sets have the same size: then a set of rows is a shard. So a correct rule would
# compare the *sets*, not the corners, and fall back to reading by index where they overlap. It could use shards for 13
# of the 105 meshes. Reading by index handles all 105 without a special case.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *By index.* Levanter's loader works out which indices each device needs, and reads them [2]. A map-style data set in
#   PyTorch (`__getitem__`), memory-mapped token files and JAX's `make_array_from_callback` all read by index. A stream
#   does not: with a stream you need a mesh for which shards work, or you read more than you need.
# - *What reading costs.* The storage behind Llama 3 gave 2 TB/s sustained to 16,384 GPUs [1]. You would feel an
#   unnecessary factor of 128.
# - *Start-up is part of it.* Process groups for 2,048 GPUs once took MegaScale 1,047 seconds; under 5 after some
#   engineering [3]. A map that every process can work out alone needs no communication at all.
#
# [1] Grattafiori et al., *The Llama 3 Herd of Models*, 2024, [arXiv:2407.21783](https://arxiv.org/abs/2407.21783).
# [2] marin-community/levanter,
# [src/levanter/data/loader.py](https://github.com/marin-community/levanter/blob/main/src/levanter/data/loader.py),
# 2025.
# [3] Jiang et al., *MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs*, NSDI 2024,
# [arXiv:2402.15627](https://arxiv.org/abs/2402.15627).

# %% [markdown]
# ## What is simplified here
#
# The batch divides evenly, and there is one step. For step s, add s · batch to every number; for a shuffled data set
# look the number up in the permutation, which all processes make from the same seed. That reads small pieces from all
# over the files, so real loaders shuffle blocks instead.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why does it not matter that the processes never talk to each other?
#
# <details><summary>Answer</summary>
#
# The examples of row r follow from r, the number of rows and the batch. Every process knows these, and none of them
# depends on the process that asks. Two processes in one row evaluate the same line with the same numbers.
#
# </details>
#
# **2.** On average over the 105 meshes the four processes read 29.7 examples of a batch of 16. Which meshes read the
# least, and what is the least?
#
# <details><summary>Answer</summary>
#
# 16, when each process has a row to itself. That is one mesh of the 105, the one in order. The most is 32: no process
# has both devices of any row, and each example is read twice. A mesh in which hosts own whole rows is not only good for
# the traffic inside a row; it also halves the reading.
#
# </details>
#
# **3.** You could also give row r the examples r, r + R, r + 2R, ... (R rows). When is one better than the other?
#
# <details><summary>Answer</summary>
#
# Both are right. Blocks are contiguous in a file stored in order, which is faster to read. With every R-th example,
# neighbours in the file, which are often alike (pages of one book), go to different rows. The gradient is the same: the
# sum over the batch does not change.
#
# </details>
#
# **4.** What if the batch has fewer examples than there are rows?
#
# <details><summary>Answer</summary>
#
# Then batch / rows is less than one, and no row can have a whole example. Either you pad the batch, and some rows
# compute on zeros, or you group the rows, and each group shares an example. Two of the next puzzles are about that.
#
# </details>
#
# ## Where this leads
#
# Every process now knows what to read. So far reading took no time. What if it does, and what do you save by reading
# once for all devices of a process?

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from lib.cluster.grids import random_grids, small_grids
from lib.cluster.holdings import Holdings


def fix_the_map_inputs():
    for grid, per_process in small_grids(6):
        yield grid, per_process, 2 * sum(map(len, grid))
    for shape in ((1, 4, 2), (2, 2, 2)):
        yield from ((grid, 2, 16) for grid in grids(*shape, 2))
    for number, (grid, per_process) in enumerate(random_grids(60, [2, 4, 4])):
        yield grid, per_process, (1 + number % 3) * sum(map(len, grid))


def fix_the_map_fault(answer, grid, per_process, batch):
    """What is wrong with an answer, in a sentence; nothing where it is right."""
    mesh = mesh_of(grid, per_process)
    rows = mesh.rows("replica", "data")
    if not isinstance(answer, dict):
        return "give back a dict: for each process the list of the examples that it reads"
    if set(answer) != set(range(len(mesh.processes))):
        return f"the answer has one entry for each process; there {'is' if len(mesh.processes) == 1 else 'are'} {len(mesh.processes)}, counted from 0"
    for process, reads in answer.items():
        if not isinstance(reads, list) or any(type(example) is not int for example in reads):
            return (
                f"for process {process} give a list of examples, each a number: their order says which row gets which"
            )
        if strange := [example for example in reads if not 0 <= example < batch]:
            return f"process {process} reads example {strange[0]}; those of this batch are 0 to {batch - 1}"
        feeds = sum(any(mesh.process(device) == process for device in row) for row in rows)
        if len(reads) != feeds * batch // len(rows):
            needs = f"its {'row needs' if feeds == 1 else f'{feeds} rows need'} {feeds * batch // len(rows)}"
            return f"process {process} reads {len(reads)} example{'s' * (len(reads) != 1)}; {needs}"
    held, home = handed_out(answer, grid, per_process), {}
    for number, row in enumerate(rows):
        for device in row:
            if held[device] != held[row[0]]:
                return f"in row {number} device {row[0]} gets {held[row[0]]}, and device {device} gets {held[device]}"
        for example in held[row[0]]:
            if example in home:
                where = f"row {number} twice" if home[example] == number else f"rows {home[example]} and {number}"
                return f"example {example} goes to {where}"
            home[example] = number
    return ""


def fix_the_map_accepts(answer, grid, per_process, batch):
    return fix_the_map_fault(answer, grid, per_process, batch) or True


def fix_the_map_picture(answer, expected, grid, per_process, batch):
    mesh, fault = mesh_of(grid, per_process), fix_the_map_fault(answer, grid, per_process, batch)
    right = handed_out(expected, grid, per_process)
    if answer is None:
        return Holdings(mesh, in_words(right), [], f"A batch of {batch}: one way to be right", processes=True)
    held = handed_out(answer, grid, per_process)
    counts, wrong = {}, []
    for row in mesh.rows("replica", "data"):
        for example in {example for device in row for example in held[device]}:
            counts[example] = counts.get(example, 0) + 1
    for row in mesh.rows("replica", "data"):
        torn = any(held[device] != held[row[0]] for device in row)
        for device in row:
            short = len(held[device]) != len(right[device]) or len(set(held[device])) < len(held[device])
            if torn or short or any(counts[example] > 1 for example in held[device]):
                wrong.append(device)
    return Holdings(mesh, in_words(held), wrong, f"A batch of {batch}: {fault}", processes=True)
