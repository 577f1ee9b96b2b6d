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
# In its last stage Llama 3 405B was trained on texts of 131,072 tokens, with 16 million tokens a batch. That is 128
# texts. There were 16,384 GPUs, in 2,048 hosts: **one sixteenth of a text for each host**.
#
# With what you have built so far, 128 hosts would bring a text each, and the other 1,920 zeros: 94 % padding. Instead,
# 128 GPUs shared a text, 16 hosts, each host with a part of its tokens and each GPU with a slice of each layer
# [@llama3]. Then every host computes something that counts.
#
# But now 16 hosts must open *the same* text at the same moment, and the next 16 a different one. If a host reads the
# wrong text, its 8 GPUs hold the middle of one story inside another, and you still get a loss.
#
# > **To tell a friend:** when several hosts share an example, they read in groups, and the mesh, not the host number,
# > decides which hosts form a group.
#
# *The words, once more.* A **row** is all devices with the same `replica` and `data` coordinates. A **process** runs on
# each host and owns `per_process` devices by number: process p has those from p · `per_process` on, wherever they
# stand. A **data shard** is part k of n of a data set.

# %%
from drawing import draw_mesh
from lib import check_function, goal
from lib.cluster.layouts import mesh_of

# %% [markdown]
# ## The idea
#
# There are `replica` times `data` rows, numbered through all replicas, and the batch is laid over them in order. With 4
# rows and 8 examples each row has two of them. With 4 rows and 2 examples it is the other way round: **two rows share
# an example**, and each takes half of its tokens. That is **context parallelism**. Here are two examples on four hosts
# of two devices, a process on each:

# %%
in_order = [[[0, 1], [2, 3], [4, 5], [6, 7]]]
holds = {device: f"example {device // 4}" for device in range(8)}
title = "2 examples, 4 processes: half an example each"
draw_mesh(mesh_of(in_order, per_process=2), holds=holds, title=title)

# %% [markdown]
# Processes 0 and 1 read example 0, processes 2 and 3 read example 1. They form two groups, and the processes of a group
# open the same data shard. On a mesh in order that is `process * batch // processes`, and it is tempting to
# write just that. On the next mesh it is wrong: the devices are in a different order, and processes 0 and 2 share an
# example.

# %%
crossed = [[[0, 1], [4, 5], [2, 3], [6, 7]]]
rows = enumerate(crossed[0])
holds = {device: f"example {number // 2}" for number, row in rows for device in row}
title = "The same batch, with the devices in another order"
draw_mesh(mesh_of(crossed, per_process=2), holds=holds, title=title)

# %% [markdown]
# ## The puzzle
#
# Write `less_than_one(grid, per_process, batch)`.
#
# **Given:** the mesh, `grid[replica][data][model]`, how many devices each process owns, and how many examples the batch
# has.
#
# **To do:** return a dict: for each process the list of the examples that it reads, in order.
#
# **Rules**
#
# - A process reads the examples of all rows in which it has a device, each once.
# - The batch fits the rows: it is a multiple of their number, or it divides their number. Anything else is a
#   `ValueError`.
# - Groups are clean: two processes read the same examples or have none in common. Where the mesh does not allow that,
#   no data shard suits both, and that is a `ValueError`, too.
# - A batch below 1, and devices that do not divide among processes, are refused for you.

# %% [markdown]
# ### Predict first
#
# Sixteen devices stand like this in four rows: 0 1 4 5 · 8 9 12 13 · 10 11 14 15 · 2 3 6 7. Four processes of four.
# What do they read of a batch of 4? Of a batch of 2?
#
# <details><summary>Answer</summary>
#
# Of 4 each row has one. Processes 0 and 1 have devices in rows 0 and 3, so they read `[0, 3]`; processes 2 and 3 read
# `[1, 2]`. Two groups. Of 2 examples rows 0 and 1 share the first, rows 2 and 3 the second. Every process has a row of
# each, so all four read `[0, 1]`: one group.
#
# </details>

# %% [markdown]
# ### The goal
#
# The check tries the meshes of a table, every small mesh with every batch, and larger ones with their devices in any
# order. If an answer is wrong, you see the smallest mesh that breaks it, as a picture.

# %%
goal("less_than_one")

# %% [markdown]
# <!-- part: hints -->


# %%
def less_than_one(grid, per_process, batch):
    rows = [row for replica in grid for row in replica]

    devices = sum(len(row) for row in rows)
    if batch < 1 or per_process < 1 or devices % per_process:
        raise ValueError(f"no batch of {batch} for processes of {per_process} devices")

    # Does the batch fit the rows? Then the examples of each row, and of each process.
    # At the end: are the groups clean?
    # --- your code (about 14 lines) ---
    if batch % len(rows) and len(rows) % batch:
        raise ValueError(f"a batch of {batch} does not fit {len(rows)} rows")

    reads = {process: set() for process in range(devices // per_process)}
    for number, row in enumerate(rows):
        first, end = (place * batch // len(rows) for place in (number, number + 1))
        for device in row:
            reads[device // per_process].update(range(first, max(first + 1, end)))

    for one in reads.values():
        for other in reads.values():
            if one & other and one != other:
                raise ValueError(
                    f"one process reads {sorted(one)}, another {sorted(other)}"
                )
    return {process: sorted(examples) for process, examples in reads.items()}
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(less_than_one, puzzle="less_than_one")
verdict

# %% [markdown]
# Passed? Then `reveal("less_than_one")`, in a cell of its own, shows the official solution. (`from lib import reveal`
# first.)

# %% [markdown]
# ### See what it is for
#
# The lists give the groups, and the groups tell each process which shard of its data set to open: "shard k of n". Try
# other batches: 1, 4, 8.

# %%
picture = None
if verdict:
    batch = 2
    reads = less_than_one(crossed, 2, batch)
    groups = sorted({tuple(examples) for examples in reads.values()})
    for process, examples in reads.items():
        shard = groups.index(tuple(examples))
        print(f"process {process} reads {examples}: shard {shard} of {len(groups)}")
    holds = {device: f"reads {reads[device // 2]}" for device in range(8)}
    picture = draw_mesh(
        mesh_of(crossed, per_process=2),
        holds=holds,
        title=f"What the processes read of a batch of {batch}",
    )
picture

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# AXLearn's `SpmdInputDispatcher` asks JAX the same question: given the mesh and how the batch is laid over it, how many
# different groups are there, and which one am I in [@axlearn_input_dispatch]? With *R* rows and *B* examples:
#
# ```
# row r holds    examples r·B/R ... (r + 1)·B/R - 1        where B is a multiple of R
# row r holds    a part of example r·B/R, rounded down     where B divides R
# ```
#
# It is the process map once more, and this time it is right for every mesh, because it looks at all devices of a
# process and not at one corner. Where groups cannot be clean it raises an error, which the published map did not. JAX
# does too: its error is called `NonUniformShardingError`, and it is a `ValueError`.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **Long texts.** Llama 3's last stage had 8-way tensor and 16-way context parallelism: 128 GPUs of a stage for one
#   text, and 128 texts a batch [@llama3].
# - **Reading it sixteen times costs next to nothing.** 131,072 tokens of four bytes are half a megabyte. So each of the
#   16 hosts can read the whole text and keep its part. With images it is a different matter.
# - **Numbers first, groups later.** A later version of AXLearn derives the groups from the mesh; the first one gave
#   every host a number and padded [@axlearn_input_dispatch] [@axlearn_input_dispatch_test].
# - **Cut along the wrong dimension.** In torchtitan context parallelism once gathered keys and values along the
#   dimension that held the tokens before a transpose, and the heads after it [@torchtitan_3206]. The author of the slip
#   called it a mistake in a refactoring.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Half an example is half of its tokens, and we do not say which half: with a causal mask, contiguous halves are unequal
# work, and real programs give each device one from the front and one from the back (puzzle $number_zigzag). And there
# is no pipeline axis here. Llama 3 had 16 pipeline stages, so 16 groups of hosts worked on the same texts one after the
# other, and only the first and the last of them read.

# %% [markdown]
# ## Questions to think about
#
# **1.** When is `process * batch // processes` right?
#
# <details><summary>Answer</summary>
#
# When the devices are in order, and each process lies within the rows of one example. Then consecutive processes share,
# and the division finds them. Cloud machines do not promise such an order: JAX puts eight TPU v3 cores in the order 0,
# 1, 2, 3, 6, 7, 4, 5, because that follows the ring of links.
#
# </details>
#
# **2.** Six rows and a batch of 4: why an error, when 4 is less than 6?
#
# <details><summary>Answer</summary>
#
# Four examples on six rows are two thirds of an example for each row. Row 1 would have the last third of example 0 and
# the first third of example 1. That is possible, but every row would be cut differently, and every layer that looks at
# a whole text would have different partners in every row. With padding to 6, each row has one example.
#
# </details>
#
# **3.** Three processes of two devices, three rows: 0 2 · 3 4 · 1 5. What happens for a batch of 3, and what for a
# batch of 1?
#
# <details><summary>Answer</summary>
#
# Process 0 is in rows 0 and 2, process 1 in rows 0 and 1, process 2 in rows 1 and 2. With 3 examples any two processes
# share one and differ in another: no clean groups, so a `ValueError`. Reading by index would still work, with each
# process reading its two examples. With 1 example all read `[0]`, one group: sharing with all is easy.
#
# </details>
#
# **4.** Two examples, sixteen hosts: padding (puzzle $number_dispatch), or eight hosts an example? What does each cost?
#
# <details><summary>Answer</summary>
#
# Padding wastes 14 of 16 hosts, but needs no communication that you do not already have. Eight hosts on an example
# compute up to eight times as fast, but attention needs all tokens, so keys and values travel between the hosts in
# every layer (puzzle $number_ring_attention). For the last batch of an evaluation, pad. For a training run, use groups.
#
# </details>
#
# ## Where this leads
#
# Every GPU now has its place on the mesh, its shards, and the right examples. What is left is waiting. In a pipeline
# some GPUs always wait, and the memory of GPipe grows with the number of microbatches. The next chapter is about the
# order of the work: what a pipeline does when.

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from random import Random

from lib.cluster.layouts import Holdings, grids, random_grids, small_grids


def less_than_one_inputs():
    small = [
        (grid, per_process, batch)
        for grid, per_process in small_grids(6)
        for batch in range(2 * sum(map(len, grid)) + 1)
    ]
    # What the puzzle is about stands first: rows that share an example.
    yield from sorted(small, key=lambda one: not 0 < one[2] <= sum(map(len, one[0])))
    for shape in ((1, 4, 2), (2, 2, 2), (2, 4, 1)):
        yield from (
            (grid, 2, batch) for grid in grids(*shape, 2) for batch in (1, 2, 4)
        )
    yield from (([[[0, 1], [2, 3]]], size, 2) for size in (0, 3, -2))
    random = Random(0)
    for grid, per_process in random_grids(200, [3, 6, 4]):
        rows = sum(map(len, grid))
        yield (
            grid,
            per_process,
            random.choice(
                [1, rows, 2 * rows, *(n for n in range(1, rows) if rows % n == 0)]
            ),
        )


def less_than_one_accepts(answer, grid, per_process, batch):
    """False, or what is wrong: there is one right answer."""
    try:
        expected = less_than_one(grid, per_process, batch)
    except ValueError:
        return False
    if not isinstance(answer, dict) or set(answer) != set(expected):
        return False
    rows, held = [row for replica in grid for row in replica], []
    for number in range(len(rows)):
        first, end = (place * batch // len(rows) for place in (number, number + 1))
        held.append(range(first, max(first + 1, end)))
    for process, right in expected.items():
        reads = answer[process]
        if not isinstance(reads, list) or any(
            type(example) is not int for example in reads
        ):
            return f"for process {process} give a list of examples, each a number"
        mine = [
            number
            for number, row in enumerate(rows)
            if any(device // per_process == process for device in row)
        ]
        for example in right:
            if example not in reads:
                row = next(number for number in mine if example in held[number])
                part = "a part of " if batch < len(rows) else ""
                return f"process {process} has a device in row {row}, which holds {part}example {example}"
        for example in reads:
            if not 0 <= example < batch:
                return f"process {process} reads example {example}; those of this batch are 0 to {batch - 1}"
            if example not in right:
                return f"process {process} has no device in a row that holds example {example}"
        if len(reads) > len(right):
            return f"process {process} reads an example once, for all its devices"
        if reads != right:
            return f"process {process} reads its examples in order, {right}"
    return False


def less_than_one_picture(answer, expected, grid, per_process, batch):
    mesh, asked = (
        mesh_of(grid, per_process),
        answer if isinstance(answer, dict) else expected,
    )
    reads = {
        device: ", ".join(map(str, asked[mesh.process(device)]))
        for device in mesh.ranks
    }
    holds = {
        device: f"reads {examples or 'nothing'}" for device, examples in reads.items()
    }
    wrong = [
        device
        for device in mesh.ranks
        if asked[mesh.process(device)] != expected[mesh.process(device)]
    ]
    return Holdings(
        mesh, holds, wrong, f"What each process reads of a batch of {batch}"
    )
