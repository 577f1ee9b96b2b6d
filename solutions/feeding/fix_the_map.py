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
# Llama 3 405B was trained on 16,384 GPUs, and its batch was cut into 128 parts [@llama3]. So 128 GPUs worked on the
# same examples. They had to: they shared each layer (puzzle $number_tensor_parallel), and had different layers of the
# same model.
#
# Now write what reads the data. It runs once on each host, in one process that feeds 8 GPUs. Which of the 128 parts
# does *this* process need? Perhaps one (its GPUs share each layer), perhaps eight (each GPU works on another part),
# perhaps something in between. Get it wrong, and nothing crashes: training goes on, with the wrong examples.
#
# You do three small things: find which rows a process feeds, break a published rule, and write one that cannot break.
#
# > **To tell a friend:** a wrong data loader never crashes. Try it on every mesh, and you see it fail.
#
# *The words of this chapter.* A **device** is a GPU; it is what we called a rank. A **process** is a Python program.
# Until now each device had one of its own. Here a process owns all devices of its host: it reads examples, and hands
# them out to these.

# %%
from drawing import draw_mesh
from lib import check_function, goal
from lib.cluster.layouts import grids, mesh_of
from lib.errors.wording import counted
from lib.suite.submissions.function_check import solution_of

# %% [markdown]
# ## The idea
#
# Along the axes `replica` and `data` the examples differ. Along `model` they are the same, because those devices share
# each layer. All devices with the same `replica` and `data` coordinates form a **row**. They work on the same
# examples: the row's **part** of the batch. Here are 16 devices of four processes, a colour for each process:

# %%
grid = [[[0, 1, 4, 5], [8, 9, 12, 13], [10, 11, 14, 15], [2, 3, 6, 7]]]
draw_mesh(mesh_of(grid, per_process=4), holds={})

# %% [markdown]
# The picture is one list of lists: `grid[replica][data][model]` is the number of a device. Process 0 owns devices 0 to
# 3, process 1 owns 4 to 7, and so on: those plugged into its host. Where they *stand* is another matter: neighbours in
# the mesh should be neighbours on the wires, so the numbers can come in any order. Rows are numbered through all
# replicas.
#
# In each step a process reads the parts of all its rows as one list. It cuts the list into equal parts, and hands part
# 0 to the devices in its first row, part 1 to those in its second row, and so on. So it needs a small table: for each
# row that it feeds, which part of its list, counted from 0, is that row's.

# %% [markdown]
# ## The puzzle
#
# It has three parts. The first: **which rows does a process feed?** Write `local_devices(grid, per_process, process)`.
#
# **Given:** the mesh as a list of lists (above), how many devices each process owns (process p owns the devices with
# `device // per_process == p`), and the number of one process.
#
# **To do:** return a dict with one entry for each row in which the process has a device: the number of the row, and the
# number of its part. The parts are counted from 0 in the order of the rows.
#
# **Rules**
#
# - A row counts once, however many devices of the process are in it.
# - Devices may stand anywhere.

# %% [markdown]
# ### Predict first
#
# In the picture above: which rows does process 1 feed, and which does process 2? What is the table of each?
#
# <details><summary>Answer</summary>
#
# Process 1 owns devices 4 to 7. They are in row 0 (4 and 5) and in row 3 (6 and 7): `{0: 0, 3: 1}`. Process 2 owns 8 to
# 11, which are in rows 1 and 2: `{1: 0, 2: 1}`. Process 0 has the same table as process 1, and process 3 the same as
# process 2.
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
# The check tries these, every small mesh, and larger ones with their devices in any order. Where you are wrong, you see
# the smallest mesh that breaks your answer, as a picture.

# %%
goal("local_devices")

# %% [markdown]
# <!-- part: hints local_devices -->


# %%
def local_devices(grid, per_process, process):
    # Number the rows through all replicas. Which of them have a device of this process?
    # --- your code: local_devices (about 6 lines) ---
    rows = [row for replica in grid for row in replica]
    parts = {}
    for number, row in enumerate(rows):
        if any(device // per_process == process for device in row):
            parts[number] = len(parts)
    return parts
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(local_devices, puzzle="local_devices")
verdict

# %% [markdown]
# ### See what you built
#
# Each device with the number of its row, and with the part of its process's list that it gets:

# %%
picture = None
if verdict:
    holds = {}
    for number, row in enumerate(grid[0]):
        for device in row:
            holds[device] = (
                f"row {number}: part {local_devices(grid, 4, device // 4)[number]}"
            )
    picture = draw_mesh(mesh_of(grid, per_process=4), holds=holds)
picture

# %% [markdown]
# ## A published rule
#
# Most data sets open as "part k of n": the examples k, k + n, k + 2n, and so on. Call that a **data shard**. Two
# processes with the same rows need the same k, two with different rows need different ones. Above, processes 0 and 1
# share rows 0 and 3, processes 2 and 3 share rows 1 and 2: two shards.
#
# In 2024 Levanter published a rule that finds them for any mesh [@levanter_588]. It names each process after the owner
# of the device in one corner:
#
# 1. Take the **smallest coordinate** of the process on each axis by itself: its smallest `replica`, its smallest
#    `data`, and `model` 0. That is its corner.
# 2. Find the device that stands there. The process that owns it gives the name.
# 3. Go through the processes from 0 on, and number the names 0, 1, 2, ... as they turn up. That is the data shard.
#
# Process 2, for example: its smallest `data` is 1, device 8 stands there at model 0, and process 2 owns it. Process 3
# starts at data 1 too, so it is named after process 2 as well: the same shard. Processes 0 and 1 are named after
# process 0. All is well here. The rule came with an argument, this example, and a claim: it works for any configuration
# of data and tensor parallelism. Is that so?

# %% [markdown]
# ## Break it
#
# Test the claim on **all** ways to give eight devices to four processes in pairs. There are 105. You need not
# understand the rule to refute it: one counterexample will do. Write a test of whether a mesh is fed correctly, and
# loop over many meshes. That is **property-based testing**, and it is how such bugs are found. `published` takes the
# rule, and says which examples each device gets:


# %%
def published(grid, per_process, batch):
    """The examples of a batch that each device gets by the published rule,
    {device: [examples]}."""
    rows = [row for replica in grid for row in replica]
    if batch % len(rows):
        raise ValueError(
            f"{len(rows)} rows need equal parts of the batch: "
            f"{batch} examples cannot be divided so"
        )
    shards = solution_of("process_map")(grid, per_process)
    each, held = batch // len(rows), {}
    for number, row in enumerate(rows):
        for device in row:
            process = device // per_process
            read = list(range(shards[process], batch, max(shards.values()) + 1))
            part = solution_of("local_devices")(grid, per_process, process)[number]
            held[device] = read[part * each : (part + 1) * each]
    return held


def in_words(held):
    return {device: " ".join(map(str, examples)) for device, examples in held.items()}


grid = [[[0, 1, 4, 5], [8, 9, 12, 13], [10, 11, 14, 15], [2, 3, 6, 7]]]
holds = in_words(published(grid, 4, batch=16))
draw_mesh(mesh_of(grid, 4), holds=holds, title="The published example: all is well")

# %% [markdown]
# What is "fed correctly"? Look at one example: **it is on all devices of one row, and on no others.** If that holds for
# every example of the batch, the mesh is fed correctly. Where it fails, the example may be in two rows (it counts
# twice), in none (it is never trained on), or on some devices of a row while the others hold something else (the row
# computes nonsense).

# %% [markdown]
# Write `break_the_map(grid, per_process, batch)`.
#
# **Given:** a mesh, the number of devices of each process, the size of a batch, which the rows divide evenly, and
# `published(grid, per_process, batch)`, as above.
#
# **To do:** return the number of one example (0 to batch - 1), any one, that is *not* on exactly the devices of one
# row. Where the rule is right, return `None`.

# %% [markdown]
# ### Predict
#
# Of the 105 ways to give eight devices (four rows of two) to four processes in pairs, for how many is the rule right?
# Write a number down. The claim says 105.

# %% [markdown]
# The check tries all 105, every small mesh, and larger ones.

# %%
goal("break_the_map")

# %% [markdown]
# <!-- part: hints break_the_map -->


# %%
def break_the_map(grid, per_process, batch):
    # For each example: which devices have it? Are they exactly the devices of one row?
    # --- your code: break_the_map (about 7 lines) ---
    held = published(grid, per_process, batch)
    rows = [set(row) for replica in grid for row in replica]
    for example in range(batch):
        holders = {device for device, examples in held.items() if example in examples}
        if holders not in rows:
            return example
    return None
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(break_the_map, puzzle="break_the_map")
verdict

# %% [markdown]
# ### Count
#
# Now run your function on the 105: four rows of two devices, and a batch of 16.


# %%
def rows_with(example, grid, held):
    """The rows in which some device has an example."""
    rows = [row for replica in grid for row in replica]
    return [
        number
        for number, row in enumerate(rows)
        if any(example in held[device] for device in row)
    ]


def is_twice(grid, per_process, batch):
    """Whether some example is in more than one row."""
    held = published(grid, per_process, batch)
    return any(len(rows_with(example, grid, held)) > 1 for example in range(batch))


if verdict:
    meshes = list(grids(1, 4, 2, per_process=2))
    broken = [grid for grid in meshes if break_the_map(grid, 2, 16) is not None]
    twice = [grid for grid in broken if is_twice(grid, 2, 16)]
    print(f"of {len(meshes)} meshes the rule is wrong for {len(broken)}:")
    print(f"  {len(twice)} in which two rows get the same example")
    lacking = len(broken) - len(twice)
    print(f"  {lacking} in which none do, but some process lacks what its rows need")

# %% [markdown]
# ### The smallest
#
# Fewer rows are easier to look at. How few are enough?

# %%
picture = None
if verdict:
    for data in (1, 2, 3, 4):
        meshes = list(grids(1, data, 2, per_process=2))
        twice = [grid for grid in meshes if is_twice(grid, 2, 2 * data)]
        share = f"{len(twice)} of {len(meshes)}"
        print(f"{counted(data, 'row')}: {share} in which two rows get the same example")
    grid = [[[0, 2], [3, 4], [1, 5]]]
    held = published(grid, 2, batch=6)
    rows = {example: rows_with(example, grid, held) for example in range(6)}
    example = next(example for example in rows if len(rows[example]) > 1)
    # All devices of both rows: some have it, and the others do not.
    one, other = rows[example]
    title = f"One of the smallest: example {example} is in rows {one} and {other}"
    wrong = grid[0][one] + grid[0][other]
    picture = draw_mesh(
        mesh_of(grid, 2), holds=in_words(held), wrong=wrong, title=title
    )
picture

# %% [markdown]
# ## Fix it
#
# The rule guesses: it looks at one corner of a process, and hopes that processes with the same corner have the same
# rows. There is a fix that is shorter than the mistake and cannot fail. It must not make a process read more than it
# needs, though: on 2,048 hosts that each need 1/128 of a batch, reading all of it is 128 times too much.
#
# Look at the small mesh again. "Part k of n" cannot work here: processes 0 and 1 both feed row 0, and 1 and 2 both feed
# another one. All three would have to open one shard, and each needs a different part of it.

# %%
grid = [[[0, 2], [3, 4], [1, 5]]]
draw_mesh(mesh_of(grid, per_process=2), holds={})

# %% [markdown]
# So read **by index** ("give me examples 8 to 11") instead of "part k of n". Then who reads what?

# %% [markdown]
# Write `fix_the_map(grid, per_process, batch)`.
#
# **Given:** a mesh, how many devices each process owns, and the size of a batch, which the rows divide evenly.
#
# **To do:** return a dict: for each process the list of examples that it reads, in the order in which it cuts them into
# parts for its rows.
#
# **Rules**
#
# - **Every row right.** All devices of a row get the same examples in the same order, and every example of the batch
#   goes to exactly one row.
# - **Reads minimal.** A process reads exactly as many examples as its rows need: batch / rows for each of them.
# - Which row gets which examples is up to you.

# %% [markdown]
# ### Predict
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
# The check tries all 105, every small mesh, and larger ones.

# %%
goal("fix_the_map")

# %% [markdown]
# <!-- part: hints -->


# %%
def fix_the_map(grid, per_process, batch):
    # Which examples belong to row 0, to row 1, ...? Who feeds a row has to read them.
    # --- your code: fix_the_map (about 8 lines) ---
    rows = [row for replica in grid for row in replica]
    each, reads = batch // len(rows), {}
    for number, row in enumerate(rows):
        for process in {device // per_process for device in row}:
            reads.setdefault(process, []).extend(
                range(number * each, (number + 1) * each)
            )
    return reads
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(fix_the_map, puzzle="fix_the_map")
verdict

# %% [markdown]
# ### See it
#
# The smallest failure, fixed. `handed_out` cuts what each process reads into parts, one for each of its rows:


# %%
def handed_out(reads, grid, per_process):
    """What each device gets: {device: [examples]}."""
    rows, held, used = [row for replica in grid for row in replica], {}, {}
    for row in rows:
        for process in {device // per_process for device in row}:
            mine = sum(
                any(device // per_process == process for device in other)
                for other in rows
            )
            each, first = len(reads[process]) // mine, used.get(process, 0)
            used[process] = first + each
            held |= {
                d: reads[process][first : first + each]
                for d in row
                if d // per_process == process
            }
    return held


picture = None
if verdict:
    held = handed_out(fix_the_map(grid, 2, 6), grid, 2)
    picture = draw_mesh(
        mesh_of(grid, 2), holds=in_words(held), title="Read by index: every row right"
    )
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
        right += all(
            any(all(e in held[d] for d in row) for row in rows) for e in range(16)
        )
        read.append(sum(map(len, reads.values())))
    print(f"right for {right} of 105")
    mean = sum(read) / len(read)
    print(f"read in all: {min(read)} to {max(read)} examples, {mean:.1f} on average")
    print(f"if every process read the whole batch: {4 * 16}")

# %% [markdown]
# ### Write the broken rule (optional)
#
# You had it ready-made. To write it yourself: `process_map(grid, per_process)` returns a dict with the data shard of
# every process, by the published rule exactly as it stands above, mistakes and all.

# %% [markdown]
# <!-- part: hints process_map -->


# %%
def process_map(grid, per_process):
    # First: the smallest replica and the smallest data of each process. Then the names,
    # and their numbers.
    # --- your code: process_map (about 12 lines) ---
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
# ### With real processes (optional)
#
# `torchrun --nproc-per-node 3 docs/examples/feeding.py`, in the folder of the puzzles, feeds three real processes: by
# the published rule, and then by index, as you do. They open files, count the examples, and compare what their
# devices hold.

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solutions pass</summary>
#
# **The table of a process.** Levanter, a training library for JAX, calls it `local_devices_mapping` [@levanter_588]. In
# PyTorch the same question hides in one line: `DistributedSampler(num_replicas=..., rank=...)` wants the number of rows
# and the number of *your* row. World size and global rank are right only as long as no two ranks share a row.
#
# **A counterexample.** The rule is right for 13 of the 105 meshes and wrong for 92. In 80 of these, two rows get the
# same example. In the other 12 no example appears twice, but two processes read more than they should and two read too
# little. Look at the small failure: each process has two of the three rows, and no two have the same two. The rule only
# looks at the corner, so it gives processes 0 and 1, which both start at row 0, the same shard. It is right where any
# two processes have **the same rows or none in common**, and all have the same number: as in every mesh in order whose
# sizes are powers of two, and most sizes are.
#
# **A loader by index,** as JAX programs use it today. Do not ask which shard belongs to a process. Ask which examples
# belong to a row: the answer mentions no process, so no two processes can disagree. Levanter's loader asks the mesh
# which indices of the batch each device of this process holds, and reads only these [@levanter_loader]; the rule is
# gone. With R rows, and a process that feeds r of them:
#
# ```
# reads of a process = r·B/R          the union of its rows, and nothing else
# ```
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **Devices in any order.** `jax.make_mesh` on 8 TPU v3 cores gives the order 0, 1, 2, 3, 6, 7, 4, 5, so that the
#   devices of a line form a ring [@jax_make_mesh]. Assume 0 to 7, and four devices are fed wrongly.
# - **The same mistake, elsewhere.** Forked workers of PyTorch's loader shared NumPy's seed, and all made the same
#   "random" changes to their images; fixed in version 1.9 [@pytorch_5059].
# - **By index.** A map-style data set in PyTorch (`__getitem__`), memory-mapped token files and JAX's
#   `make_array_from_callback` all read by index. A stream does not: with a stream you need a mesh for which shards
#   work, or you read more than you need.
# - **One reader a host.** MegaScale found that the workers of a tensor parallel group on one host read identical data,
#   and gave each host one reader with shared memory [@jiang2024].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# The batch divides evenly, and there is one step. For step s, add s · batch to every number; for a shuffled data set
# look the number up in the permutation, which all processes make from the same seed. That reads small pieces from all
# over the files, so real loaders shuffle blocks instead.

# %% [markdown]
# ## Questions to think about
#
# **1.** Processes 0 and 1 have the same table. Do they need the same examples?
#
# <details><summary>Answer</summary>
#
# Yes, exactly the same: each of them has two devices in row 0 and two in row 3. If they are on different hosts, the
# examples are read twice, unless you send them over the network. If they are on one host, one of them could read for
# both. (If they had the same *parts* of different rows, like processes 0 and 2, they would need different examples.)
#
# </details>
#
# **2.** How would you notice, during training, that two of four rows share their examples?
#
# <details><summary>Answer</summary>
#
# The gradient is the mean over three quarters of the batch, with one quarter counted twice. It is a little noisier than
# it should be, as if the batch were smaller, and an epoch does not cover the data. The loss looks like that of a
# slightly worse run. To see it, log which examples each device got, and count.
#
# </details>
#
# **3.** With two replicas four devices are enough for a failure. Find it: which process has to stand where?
#
# <details><summary>Answer</summary>
#
# Replica 2, data 2, model 1, and two processes that stand on the diagonals: `[[[0], [2]], [[3], [1]]]`. The smallest
# replica of process 0 is 0 and its smallest data is 0, and that is its own device; the smallest coordinates of process
# 1 are 0 and 0 as well, where it has no device at all. Both get the name 0 and the same shard, although they have no
# row in common. That is the price of taking the smallest coordinate on each axis separately.
#
# </details>
#
# **4.** On average over the 105 meshes the four processes read 29.7 examples of a batch of 16. Which meshes read the
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
# **5.** You could also give row r the examples r, r + R, r + 2R, ... (R rows). When is one better than the other?
#
# <details><summary>Answer</summary>
#
# Both are right. Blocks are contiguous in a file stored in order, which is faster to read. With every R-th example,
# neighbours in the file, which are often alike (pages of one book), go to different rows. The gradient is the same: the
# sum over the batch does not change.
#
# </details>
#
# **6.** What if the batch has fewer examples than there are rows?
#
# <details><summary>Answer</summary>
#
# Then batch / rows is less than one, and no row can have a whole example. Either you pad the batch, and some rows
# compute on zeros, or several rows share an example. Two of the next puzzles are about that.
#
# </details>
#
# ## Where this leads
#
# Every process now knows what to read. So far reading took no time. What if it does, and what do you save by reading
# once for all devices of a process? That is puzzle $number_loader.

# %% [markdown]
# <!-- part: links -->

# %% tags=["judge"]
from lib.cluster.layouts import Holdings, random_grids, small_grids
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
    mine = [
        number
        for number, row in enumerate(rows)
        if any(mesh.process(device) == process for device in row)
    ]
    if not isinstance(answer, dict):
        return False
    for place, number in enumerate(mine):
        if number not in answer:
            device = next(
                device for device in rows[number] if mesh.process(device) == process
            )
            return f"device {device} of process {process} stands in row {number}: that row needs an entry"
        if answer[number] != place:
            before = (
                f"comes after {place} other row{'s' * (place > 1)}"
                if place
                else "is the first"
            )
            return f"of the rows of process {process} row {number} {before}: it gets part {place}"
    (more, *_) = [number for number in answer if number not in mine]
    return (
        f"process {process} has no device in row {more!r}"
        if more in range(len(rows))
        else f"there is no row {more!r}"
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
            holds |= dict.fromkeys(mine, f"part {expected[number]}{yours}")
    title = f"Process {process} feeds {these('row', expected)}; each gets a part of its list"
    return Holdings(mesh_of(grid, per_process), holds, wrong, title, processes=True)


# %% tags=["judge"]
def process_map_inputs():
    yield from small_grids(6)
    yield from (
        (grid, 2) for shape in ((1, 4, 2), (2, 2, 2)) for grid in grids(*shape, 2)
    )
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
    process = next(
        process for process in expected if answer[process] != expected[process]
    )
    places = [mesh.coordinates(device) for device in mesh.devices(process)]
    corner = {
        axis: min(place[axis] for place in places) for axis in ("replica", "data")
    } | {"model": 0}
    device = mesh.rank(**corner)
    return (
        f"the smallest replica of process {process} is {corner['replica']} and its smallest data is {corner['data']}; device "
        f"{device} stands there at model 0, so it is named after process {mesh.process(device)}"
    )


def process_map_picture(answer, expected, grid, per_process):
    mesh, asked = mesh_of(grid, per_process), expected if answer is None else answer
    wrong = [
        device
        for device in mesh.ranks
        if asked.get(mesh.process(device)) != expected[mesh.process(device)]
    ]
    holds = {}
    for device in mesh.ranks:
        process = mesh.process(device)
        yours = f", not {asked.get(process)}" if device in wrong else ""
        holds[device] = f"shard {expected[process]}{yours}"
    return Holdings(
        mesh,
        holds,
        wrong,
        "The data shard of each process, by the published rule",
        processes=True,
    )


# %% tags=["judge"]
def break_the_map_inputs():
    for grid, per_process in small_grids(6):
        yield grid, per_process, 2 * sum(map(len, grid))
    for grid in grids(1, 4, 2, 2):
        yield grid, 2, 16
    for number, (grid, per_process) in enumerate(random_grids(60, [2, 4, 4])):
        yield grid, per_process, (1 + number % 3) * sum(map(len, grid))


def break_the_map_fault(answer, grid, per_process, batch):
    """What is wrong with an answer, in a sentence; nothing where it is right."""
    held = published(grid, per_process, batch)
    rows = [row for replica in grid for row in replica]

    def misplaced(example):
        return {device for device in held if example in held[device]} not in [
            set(row) for row in rows
        ]

    if answer is None:
        example = next(filter(misplaced, range(batch)), None)
        return (
            ""
            if example is None
            else f"here the rule is wrong: {break_the_map_place(example, grid, held)}"
        )
    if type(answer) is not int:
        return "return the number of one example, or None"
    if not 0 <= answer < batch:
        return f"return the number of one example, 0 to {batch - 1}, or None where all are right"
    if misplaced(answer):
        return ""
    (row,) = [number for number, row in enumerate(rows) if answer in held[row[0]]]
    more = (
        "and so is every other one, so the answer is None"
        if not any(map(misplaced, range(batch)))
        else ""
    )
    return (
        f"example {answer} is just where it should be, on all devices of row {row}"
        + (f", {more}" if more else "")
    )


def break_the_map_place(example, grid, held):
    """Where an example is, in words."""
    holders = [device for device in held if example in held[device]]
    if not holders:
        return f"example {example} is on no device"
    numbers = rows_with(example, grid, held)
    if len(numbers) > 1:
        return f"example {example} is in {these('row', numbers)}"
    (number,) = numbers
    if len(holders) == len([row for replica in grid for row in replica][number]):
        return f"all devices of row {number} have example {example}, as it should be"
    return f"of row {number} only {these('device', holders)} {'has' if len(holders) == 1 else 'have'} example {example}"


def break_the_map_accepts(answer, grid, per_process, batch):
    return break_the_map_fault(answer, grid, per_process, batch) or True


def break_the_map_picture(answer, expected, grid, per_process, batch):
    held = published(grid, per_process, batch)
    example = answer if type(answer) is int and 0 <= answer < batch else expected
    if example is None:
        title, holders = (
            f"By the rule, with a batch of {batch}: each example in one row",
            [],
        )
    else:
        title = f"By the rule, with a batch of {batch}: {break_the_map_place(example, grid, held)}"
        holders = (
            [device for device in held if example in held[device]]
            if example == expected
            else []
        )
    return Holdings(
        mesh_of(grid, per_process), in_words(held), holders, title, processes=True
    )


# %% tags=["judge"]
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
        return "return a dict: for each process the list of the examples that it reads"
    if missing := sorted({*range(len(mesh.processes))} - {*answer}):
        device = mesh.devices(missing[0])[0]
        row = next(number for number, row in enumerate(rows) if device in row)
        return (
            f"process {missing[0]} is missing: its device {device} stands in row {row}"
        )
    if len(answer) > len(mesh.processes):
        return f"the answer has one entry for each process; there {'is' if len(mesh.processes) == 1 else 'are'} {len(mesh.processes)}, counted from 0"
    for process, reads in answer.items():
        if not isinstance(reads, list) or any(
            type(example) is not int for example in reads
        ):
            return f"for process {process} give a list of examples, each a number: their order says which row gets which"
        if strange := [example for example in reads if not 0 <= example < batch]:
            return f"process {process} reads example {strange[0]}; those of this batch are 0 to {batch - 1}"
        feeds = sum(
            any(mesh.process(device) == process for device in row) for row in rows
        )
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
                where = (
                    f"row {number} twice"
                    if home[example] == number
                    else f"rows {home[example]} and {number}"
                )
                return f"example {example} goes to {where}"
            home[example] = number
    return ""


def fix_the_map_accepts(answer, grid, per_process, batch):
    return fix_the_map_fault(answer, grid, per_process, batch) or True


def fix_the_map_picture(answer, expected, grid, per_process, batch):
    mesh, fault = (
        mesh_of(grid, per_process),
        fix_the_map_fault(answer, grid, per_process, batch),
    )
    right = handed_out(expected, grid, per_process)
    if answer is None:
        return Holdings(
            mesh,
            in_words(right),
            [],
            f"A batch of {batch}: one way to be right",
            processes=True,
        )
    held = handed_out(answer, grid, per_process)
    counts, wrong = {}, []
    for row in mesh.rows("replica", "data"):
        for example in {example for device in row for example in held[device]}:
            counts[example] = counts.get(example, 0) + 1
    for row in mesh.rows("replica", "data"):
        torn = any(held[device] != held[row[0]] for device in row)
        for device in row:
            short = len(held[device]) != len(right[device]) or len(
                set(held[device])
            ) < len(held[device])
            if torn or short or any(counts[example] > 1 for example in held[device]):
                wrong.append(device)
    return Holdings(
        mesh, in_words(held), wrong, f"A batch of {batch}: {fault}", processes=True
    )
