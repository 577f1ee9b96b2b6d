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
# Nothing crashes when two GPUs read the same examples by mistake. The loss goes down, only a little less than it
# should, because a part of each batch is seen twice and another part never. You do not find out. For years PyTorch's
# own loader invited a similar mistake: its workers were forks of one process with the same NumPy random state, so they
# all made the same "random" changes to their images. Version 1.9 fixed it [1].
#
# The rule of puzzle $number_process_map decides who reads what. It was published with an argument, an example, and the
# claim that it works for any configuration of data and tensor parallelism [2]. The example is right. Now test the
# claim, on **all** ways to give eight devices to four processes in pairs. There are 105.
#
# > **To tell a friend:** a data map can be right for your mesh and wrong for most others, and training will not tell
# > you.
#
# *Reminder.* A **row of data** is all devices with the same `replica` and `data` coordinates; they need the same
# examples. **Data shard** k of n has the examples k, k + n, k + 2n, ... A process opens one shard, and cuts what it
# reads into one piece for each of its rows.

# %%
from drawing import draw_mesh
from lib import check_function, goal
from lib.cluster.grids import grids, mesh_of
from lib.errors.wording import counted
from lib.suite.submissions.function_check import solution_of

# %% [markdown]
# ## The idea
#
# One counterexample refutes a claim about all meshes. You can find it without understanding the rule. You need two
# things: a test of whether a mesh is fed correctly, and a loop over many meshes. That is **property-based testing**,
# and it is how such bugs are found.
#
# First, the rule at work. `published` combines our solutions of the last two puzzles and says which examples each
# device gets:


# %%
def published(grid, per_process, batch):
    """The examples of a batch that each device gets by the published rule: {device: [examples]}."""
    rows = [row for replica in grid for row in replica]
    if batch % len(rows):
        raise ValueError(f"{len(rows)} rows need equal parts of the batch: {batch} examples cannot be divided so")
    shards = solution_of("process_map")(grid, per_process)
    each, held = batch // len(rows), {}
    for number, row in enumerate(rows):
        for device in row:
            process = device // per_process
            read = list(range(shards[process], batch, max(shards.values()) + 1))
            place = solution_of("local_devices")(grid, per_process, process)[number]
            held[device] = read[place * each : (place + 1) * each]
    return held


def in_words(held):
    return {device: " ".join(map(str, examples)) for device, examples in held.items()}


grid = [[[0, 1, 4, 5], [8, 9, 12, 13], [10, 11, 14, 15], [2, 3, 6, 7]]]
draw_mesh(mesh_of(grid, 4), holds=in_words(published(grid, 4, batch=16)), title="The published example: all is well")

# %% [markdown]
# Now, what is "fed correctly"? Every row has one set of examples, and no two rows share any. Seen from one example:
# **it is on all devices of one row, and on no others.** If that holds for every example of the batch, the mesh is fed
# correctly. An example for which it fails proves the opposite. It may be in two rows (it counts twice in the step), in
# none (it is never trained on), or on some devices of a row while the others hold something else (then the row computes
# nonsense).

# %% [markdown]
# ## The puzzle
#
# Write `break_the_map(grid, per_process, batch)`.
#
# **Given:** a mesh, the number of devices of each process, and the size of a batch, which the rows can divide among
# them. And `published(grid, per_process, batch)`, as above.
#
# **To do:** return the number of one example of the batch (0 to batch - 1) that is *not* on exactly the devices of one
# row. Where the rule is right there is no such example; then return `None`.
#
# **Rules**
#
# - Any such example will do.

# %% [markdown]
# ### Predict first
#
# Guess first: of the 105 ways to give eight devices (four rows of two) to four processes in pairs, for how many is the
# rule right? Write the number down. The claim says 105.

# %% [markdown]
# ### The goal
#
# The check tries all 105, every small mesh, and larger ones. If an answer is wrong, you see the smallest mesh that
# breaks it, with what each device gets there.

# %%
goal("break_the_map")

# %% [markdown]
# <!-- part: hints -->


# %%
def break_the_map(grid, per_process, batch):
    # For each example: which devices have it? Are they exactly the devices of one row?
    # --- your code (about 7 lines) ---
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
    return [number for number, row in enumerate(rows) if any(example in held[device] for device in row)]


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
    print(f"  {len(broken) - len(twice)} in which none do, but some process lacks what its rows need")

# %% [markdown]
# ### The smallest
#
# Fewer rows are easier to look at. How few are enough, with rows of two devices and processes of two as before?

# %%
picture = None
if verdict:
    for data in (1, 2, 3, 4):
        meshes = list(grids(1, data, 2, per_process=2))
        twice = [grid for grid in meshes if is_twice(grid, 2, 2 * data)]
        print(f"{counted(data, 'row')}: {len(twice)} of {len(meshes)} in which two rows get the same example")
    grid = [[[0, 2], [3, 4], [1, 5]]]
    held = published(grid, 2, batch=6)
    example = next(example for example in range(6) if len(rows_with(example, grid, held)) > 1)
    one, other = rows_with(example, grid, held)  # all their devices: some have it, and the others do not
    title = f"One of the smallest: example {example} is in rows {one} and {other}"
    picture = draw_mesh(mesh_of(grid, 2), holds=in_words(held), wrong=grid[0][one] + grid[0][other], title=title)
picture

# %% [markdown]
# ### With real processes (optional)
#
# This happens for real, too: `torchrun --nproc-per-node 3 docs/examples/feeding.py`, in the folder of the puzzles,
# starts three processes on this machine. They open the files of a small data set, read what the rule tells them to, and
# compare what their devices hold.

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# A counterexample, and a proof by exhaustion. The rule is right for 13 of the 105 and wrong for 92. In 80 of these, two
# rows get the same example. In the other 12 no example appears twice. But two processes own a whole row each and read a
# third of the data where a quarter would do; the other two share two rows, for which the remaining third is too little.
#
# Look at the small failure: three rows of two devices, three processes. Each process has two of the three rows, and no
# two have the same two. The rule only looks at the corner: processes 0 and 1 start at row 0, so it takes them for a
# group that needs the same examples. Both open the same shard and cut it in two. The second piece goes to row 2 in one
# of them, and to row 1 in the other.
#
# So on these meshes the rule is right where any two processes have **the same rows or none in common**, and all have
# the same number. The published example is like that. And the rule is right for every mesh in order whose sizes are
# powers of two, as most sizes are.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *The rule* was part of Levanter [2]. Its loader works differently today: that is the next puzzle.
# - *The same mistake, elsewhere.* Forked workers of PyTorch's loader shared NumPy's seed; fixed in version 1.9 [1].
# - *Unequal shares do make noise,* sometimes: with DDP, ranks with different numbers of batches wait for each other
#   forever [3].
# - *Meshes out of order are real.* `jax.make_mesh` gives 8 TPU v3 cores as 0, 1, 2, 3, 6, 7, 4, 5 [4]; and a cluster
#   that assigns hosts as they become free hands you them in any order.
#
# [1] pytorch/pytorch, [issue 5059](https://github.com/pytorch/pytorch/issues/5059), *np.random generates the same
# random numbers for each data batch*, 2018.
# [2] marin-community/levanter, [pull request
# 588](https://github.com/marin-community/levanter/pull/588), *Partially-sharded-data-parallel*, 2024.
# [3] pytorch/pytorch, [issue 38174](https://github.com/pytorch/pytorch/issues/38174), *Join-based API to support uneven
# inputs in DDP*, 2020.
# [4] jax-ml/jax, *jax.make_mesh*, documentation, [docs.jax.dev](https://docs.jax.dev/en/latest/_autosummary/jax.make_mesh.html).

# %% [markdown]
# ## What is simplified here
#
# A shard that is too short leaves a device with fewer examples here. The real loader continues into the next batch:
# then processes that should read in step drift apart, by a few examples with every step. And meshes are not laid out at
# random: most of the 105 would be slow, because the devices of a row should be close together. But a library that
# accepts any mesh will meet any mesh.

# %% [markdown]
# ## Questions to think about
#
# **1.** How would you notice, during training, that two of four rows share their examples?
#
# <details><summary>Answer</summary>
#
# The gradient is the mean over three quarters of the batch, with one quarter counted twice. It is a little noisier than
# it should be, as if the batch were smaller, and an epoch does not cover the data. The loss looks like that of a
# slightly worse run. To see it, log which examples each device got, and count.
#
# </details>
#
# **2.** With two replicas four devices are enough for a failure. Find it: which process has to stand where?
#
# <details><summary>Answer</summary>
#
# Replica 2, data 2, model 1, and two processes that stand on the diagonals: `[[[0], [2]], [[3], [1]]]`. The smallest
# replica of process 0 is 0 and its smallest data is 0, and that is its own device; the smallest places of process 1 are
# 0 and 0 as well, where it has no device at all. Both get the name 0 and the same shard, although they have no row in
# common. That is the price of taking the smallest place on each axis separately.
#
# </details>
#
# **3.** Why is "each example on all devices of one row, and on no others" enough? Could a mesh pass it and still have
# rows with different numbers of examples?
#
# <details><summary>Answer</summary>
#
# Not here. A device never gets more than batch / rows examples, since that is how long a piece is. If every example of
# the batch is in exactly one row, the rows have `batch` examples together, and so each has its full share.
#
# </details>
#
# **4.** Meshes in order, with 1, 2, 4 or 8 on each axis and in each process: the rule is right for all of them. Which
# test would still have found the error, without knowing what to look for?
#
# <details><summary>Answer</summary>
#
# The one you have written: a property ("every example in exactly one row") tried on random meshes, or on all small
# ones. With eight devices the rule is wrong 92 times out of 105, so a single random mesh finds the error with a
# probability of 88 %. Other sizes find it even in order: with three rows of two and processes of three, `[[[0, 1], [2,
# 3], [4, 5]]]`, both processes are in the row in the middle, and example 0 is in rows 0 and 1.
#
# </details>
#
# ## Where this leads
#
# A rule that guesses groups from corners cannot be rescued. What would a rule look like that cannot be wrong?

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from lib.cluster.grids import random_grids, small_grids
from lib.cluster.holdings import Holdings
from lib.errors.wording import these


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
        return {device for device in held if example in held[device]} not in [set(row) for row in rows]

    if answer is None:
        example = next(filter(misplaced, range(batch)), None)
        return "" if example is None else f"here the rule is wrong: {break_the_map_place(example, grid, held)}"
    if type(answer) is not int:
        return "give back the number of one example, or None"
    if not 0 <= answer < batch:
        return f"give back the number of one example, 0 to {batch - 1}, or None where all are right"
    if misplaced(answer):
        return ""
    (row,) = [number for number, row in enumerate(rows) if answer in held[row[0]]]
    more = "and so is every other one, so the answer is None" if not any(map(misplaced, range(batch))) else ""
    return f"example {answer} is just where it should be, on all devices of row {row}" + (f", {more}" if more else "")


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
        title, holders = f"By the rule, with a batch of {batch}: each example in one row", []
    else:
        title = f"By the rule, with a batch of {batch}: {break_the_map_place(example, grid, held)}"
        holders = [device for device in held if example in held[device]] if example == expected else []
    return Holdings(mesh_of(grid, per_process), in_words(held), holders, title, processes=True)
