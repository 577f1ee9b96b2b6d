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
# The paper on Llama 3 has a table with the sizes that its largest model was trained with. In the last line, for long
# sequences, it says: tensor 8, context 16, pipeline 16, data 4 (table 4 of the first version [@llama3]). Multiply. That
# makes 8,192 GPUs, and the same line says 16,384. Half of them have no work. (It looks like a misprint: with data 8
# it fits.)
#
# In a paper this costs a footnote. In a configuration file the same five numbers decide for every GPU which layers it
# has, which shard of them, which part of the text, and which ranks it communicates with. So before a trainer loads a
# single weight it multiplies them. Then it works out the place of each rank.
#
# > **To tell a friend:** a rank has an address with one number for each axis. Your group along an axis is all ranks
# > whose address differs from yours in that number only.
#
# *Reminder.* A **mesh** arranges the ranks along named axes. Along each axis a rank has a **group**: the ranks on its
# line, with which it does its collectives.

# %%
from drawing import draw_mesh
from lib import Mesh, Trace, check, check_function, goal, simulate
from lib.schedules.steps import compute, load, mine, step

# %% [markdown]
# ## The idea
#
# Five ways to share the work, each with an axis of its own, in the order of torchtitan, PyTorch's trainer
# [@torchtitan_parallel_dims]:
#
# | axis | its ranks have | and send each other |
# |---|---|---|
# | `pp` | different stages of the **pipeline** | activations, once a microbatch |
# | `dp_replicate` | copies of the model, on different data | sums of gradients, once a step |
# | `dp_shard` | shards of the weights, on different data (FSDP) | every weight, twice a step and more |
# | `cp` | parts of one text (**context** parallel) | keys and values, in every layer |
# | `tp` | parts of the inside of a layer (**tensor** parallel) | activations, several times in every layer |
#
# From top to bottom they communicate more often. So the last axis gets the neighbours: ranks 0 and 1 differ in `tp`
# only, and are in the same host. Ranks count up along the last axis first, like the last digit of a number. Here are
# 16 ranks, and the groups of rank 0:

# %%
mesh = Mesh({"pp": 2, "dp_replicate": 2, "dp_shard": 2, "cp": 1, "tp": 2})
draw_mesh(mesh, groups_of=0)

# %% [markdown]
# Rank 0 has the address 0 0 0 0 0. Its neighbour along `tp` is the next rank, the one along `dp_shard` is two ranks
# further, along `dp_replicate` four, and along `pp` eight. (An axis of size 1, as `cp` here, has no direction, and a
# group of one.)
#
# Usually you leave one number out. You choose the stages, the copies and the parts of a layer, and write **-1** for
# `dp_shard`: whatever is left.

# %% [markdown]
# ## The puzzle
#
# Write `parallel_dims(world, sizes, rank)`.
#
# **Given:** how many ranks there are, `world`; a dict with the sizes of the five axes, in the order above; and a
# rank.
#
# **To do:** return a dict with
#
# | key | what it says |
# |---|---|
# | `"sizes"` | the five sizes, with a number for the -1 |
# | `"place"` | the place of this rank on each axis: its address |
# | `"groups"` | for each axis the list of the ranks in its group, in the order of their places |
#
# Each of the three is a dict with the five axes as keys.
#
# **Rules**
#
# - Ranks count along `tp` first, then `cp`, `dp_shard`, `dp_replicate`, and `pp` last.
# - `dp_shard` may be -1. Any other size below 1 is a mistake, and so is a -1 elsewhere.
# - Every rank has exactly one address. Where the sizes do not allow it, raise a `ValueError` and say why.

# %% [markdown]
# ### Predict first
#
# In the mesh above, what is the address of rank 7? And who is in its group along `dp_replicate`?
#
# <details><summary>Answer</summary>
#
# 7 is 0 · 8 + 1 · 4 + 1 · 2 + 1: pp 0, dp_replicate 1, dp_shard 1, cp 0, tp 1. In short 0 1 1 0 1. Along `dp_replicate`
# it is the rank with 0 0 1 0 1, which is 3: the group is [3, 7].
#
# </details>

# %% [markdown]
# ### The goal
#
# The 16 ranks above:
#
# | rank | 0 | 1 | 2 | 4 | 8 | 15 |
# |---|---|---|---|---|---|---|
# | address | 0 0 0 0 0 | 0 0 0 0 1 | 0 0 1 0 0 | 0 1 0 0 0 | 1 0 0 0 0 | 1 1 1 0 1 |
#
# And what becomes of the sizes:
#
# | world | pp | dp_replicate | dp_shard | cp | tp | |
# |---|---|---|---|---|---|---|
# | 16 | 2 | 2 | -1 | 1 | 2 | `dp_shard` is 2 |
# | 64 | 2 | 2 | -1 | 2 | 2 | `dp_shard` is 4 |
# | 16 | 2 | 2 | 4 | 1 | 2 | `ValueError`: that makes 32 |
# | 16 | 2 | 2 | -1 | 1 | 3 | `ValueError`: 12 do not divide 16 |
#
# Your function is tried on these and others, for every rank of every mesh of up to eight ranks, and for larger ones.
# After a wrong answer you see the smallest input that it fails on, as a picture.

# %%
goal("parallel_dims")

# %% [markdown]
# <!-- part: hints -->


# %%
def parallel_dims(world, sizes, rank):
    from math import prod  # the product of several numbers

    # First the sizes: what cannot be, and what -1 is. Then the address, from the last
    # axis to the first.
    # --- your code (about 20 lines) ---
    for axis, size in sizes.items():
        if size < 1 and (axis, size) != ("dp_shard", -1):
            raise ValueError(
                f"{axis} is {size}; a size is 1 or more, and only dp_shard may be -1"
            )
    sizes = dict(sizes)
    if sizes["dp_shard"] == -1:
        others = prod(size for axis, size in sizes.items() if axis != "dp_shard")
        sizes["dp_shard"] = world // others
    if prod(sizes.values()) != world:
        raise ValueError(
            f"{sizes} make {prod(sizes.values())} ranks, and there are {world}"
        )

    place, groups, left, stride = dict(sizes), dict(sizes), rank, 1
    for axis in reversed(sizes):
        left, place[axis] = divmod(left, sizes[axis])
        first = rank - place[axis] * stride
        groups[axis] = [first + stride * i for i in range(sizes[axis])]
        stride *= sizes[axis]
    return {"sizes": sizes, "place": place, "groups": groups}
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(parallel_dims, puzzle="parallel_dims")
verdict

# %% [markdown]
# Passed? Then `reveal("parallel_dims")`, in a cell of its own, shows the official solution. (`from lib import reveal`
# first.)

# %% [markdown]
# ### See what it is for
#
# Llama 3 405B on texts of 131,072 tokens: 16,384 GPUs, and -1 for the data. Where are the groups of rank 5,000, with
# eight GPUs to a host? `apart` is by how much the numbers of neighbours differ, and `hosts` in how many hosts the group
# is. Change the sizes and run it again.

# %%
if verdict:
    sizes = {"pp": 16, "dp_replicate": 1, "dp_shard": -1, "cp": 16, "tp": 8}
    who = parallel_dims(16_384, sizes, rank=5_000)
    print(f"{'axis':<13} {'size':>5} {'place':>6} {'apart':>6} {'hosts':>6}")
    for axis, group in who["groups"].items():
        apart = group[1] - group[0] if len(group) > 1 else "-"
        hosts = len({member // 8 for member in group})
        size, place = who["sizes"][axis], who["place"][axis]
        print(f"{axis:<13} {size:>5} {place:>6} {apart:>6} {hosts:>6}")

# %% [markdown]
# Only `tp` stays in its host, so it can afford to communicate most. And here is a rank of your choice, on a smaller
# mesh of 32:

# %%
picture = None
if verdict:
    sizes = {"pp": 2, "dp_replicate": 2, "dp_shard": -1, "cp": 2, "tp": 2}
    who = parallel_dims(32, sizes, rank=13)
    address = " ".join(str(place) for place in [who["place"][axis] for axis in sizes])
    mesh = Mesh([(axis, who["sizes"][axis]) for axis in sizes], host_size=8)
    picture = draw_mesh(mesh, groups_of=13, title=f"Rank 13 has the address {address}")
picture

# %% [markdown]
# ### Your groups at work
#
# With these groups you need no group of all ranks: a sum over all ranks with different data is a sum along one axis,
# then along the next, then along the third. Here is a training step of eight ranks that does that, with the groups of
# your function. If one were wrong, some rank would miss a batch, and the check would say which.


# %%
async def along_three_axes(model):
    groups = parallel_dims(model.RANKS, sizes, model.rank)["groups"]
    load(model)
    compute(model, mine(model))
    for layer in range(model.LAYERS):
        for axis in ("cp", "dp_shard", "dp_replicate"):
            total = model.allreduce(
                model.grad_weights[layer], layer, group=groups[axis]
            )
            model.grad_weights[layer] = await total
        step(model, layer)


out = None
if verdict:
    sizes = {"pp": 1, "dp_replicate": 2, "dp_shard": -1, "cp": 2, "tp": 1}
    out = simulate(along_three_axes, ranks=8, layers=2, batches=8)
    print(check(Trace.of(out)).text())

# %% [markdown]
# **With real tensors (optional).** The same step on torch.distributed: eight processes of this machine, each of which
# makes its process groups from your lists. Gradients and weights are compared with ordinary training. It takes a few
# seconds. Set `REPLAY = True`.

# %%
REPLAY = False
if REPLAY and out is not None:
    from lib.replay import replay

    print(replay(out, hidden=32, length=8).text())

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# Mixed-radix arithmetic, as with hours, minutes and seconds. With the sizes P, R, S, C and T:
#
# ```
# rank   = (((pp · R + dp_replicate) · S + dp_shard) · C + cp) · T + tp
# stride = 1 for tp,  T for cp,  C·T for dp_shard,  S·C·T for dp_replicate,  R·S·C·T for pp
# ```
#
# torchtitan's `ParallelDims` does the first half: the same checks, and the same division for `dp_shard`
# [@torchtitan_parallel_dims]. PyTorch's `DeviceMesh` does the second: it counts the ranks up along the last axis first,
# and makes a process group for every line. Your function and `DeviceMesh` agree rank by rank; a test of this puzzle
# compares them.
#
# A rank is in five groups. Altogether there are world / size groups along each axis: for the 16 ranks above 8 + 8 + 8 +
# 16 + 8.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *Sizes that were used.* Llama 3 405B: tensor 8, pipeline 16 and data 64 on 8,192 GPUs, at 43 % MFU (model FLOPs
#   utilization); data 128 on 16,384, at 41 %; and with context 16, for long sequences, 38 % [@llama3].
# - *Five, and then six.* Mixture-of-experts models add an axis. torchtitan takes no extra GPUs for it: it borrows
#   `dp_shard`, `cp`, and if necessary `tp` [@torchtitan_parallel_dims].
# - *Another order.* Llama 3 counts [tensor, context, pipeline, data], with tensor first: the pipeline is nearer than
#   the data there [@llama3], and in torchtitan it is farther [@torchtitan_parallel_dims].
# - *Creating groups takes time.* MegaScale needed 1,047 seconds for the groups of 2,048 GPUs at first, and less than
#   5 in the end [@jiang2024].
# - *How far it goes.* Megatron-LM reports 41 % MFU for its smallest model and 47 to 48 % for the largest, with up to
#   462 billion parameters on 6,144 H100s [@megatron].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Our mesh has its ranks in order. Real clusters hand out hosts as they become free, and the scheduler has to sort
# them, so that neighbours in number are neighbours in the network. And `dp_shard` and `cp` are two axes here. For the
# weights they are one: a library that shards weights merges them, because ranks with different parts of a text have
# different gradients, just like ranks with different texts.

# %% [markdown]
# ## Questions to think about
#
# **1.** You write `tp: 3` on 16 GPUs, with -1 for `dp_shard`. What does `16 // 3` make of it, and what notices?
#
# <details><summary>Answer</summary>
#
# It makes 5, and 5 · 3 = 15: rank 15 would be left over. The division does not complain, it rounds. So compare the
# product *after* it, not only when all five sizes are given.
#
# </details>
#
# **2.** How many different batches does one step of this mesh work on, with one batch for each rank that has data of
# its own?
#
# <details><summary>Answer</summary>
#
# dp_replicate · dp_shard: 4, for 16 ranks. Along `tp` and `cp` ranks share a text, and along `pp` they share a batch,
# one after the other. Compute this first when you hear "we have 16,384 GPUs": with 8 · 16 · 16 for the rest, that is
# 8 batches.
#
# </details>
#
# **3.** A host with eight GPUs breaks and is replaced. With `tp` 8, how many other hosts need new groups?
#
# <details><summary>Answer</summary>
#
# For `tp` none: that group is inside the host. But each of its eight ranks is in a group along `cp`, `dp_shard`,
# `dp_replicate` and `pp`, and the eight ranks have the same places there. So it is one line along each of these axes:
# (C - 1) + (S - 1) + (R - 1) + (P - 1) hosts. In the Llama mesh 15 + 7 + 0 + 15 = 37 of 2,048.
#
# </details>
#
# **4.** The same groups, but `tp` counted last instead of first: `["tp", "cp", "dp_shard", "dp_replicate", "pp"]`.
# Which numbers in the answers change, and what does it cost?
#
# <details><summary>Answer</summary>
#
# Addresses and groups, not the sizes. Ranks that share a layer would be world / T apart, each in another host, and
# the collectives that come several times in every layer would go over the network, at a ninth of the speed for an
# H100. Everything would still be *correct*, only slow. That is why the order matters although no result depends on
# it.
#
# </details>
#
# ## Where this leads
#
# You know where each rank stands, and what it has. Now for the question before all others: which sizes? The last
# chapter plans whole runs, before a single GPU is booked, and begins with whether they fit.

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from itertools import combinations, product
from math import prod
from random import Random

from lib.cluster.layouts import Neighbours
from lib.errors.wording import listed

DIMS = ("pp", "dp_replicate", "dp_shard", "cp", "tp")


def parallel_dims_inputs():
    for world in range(1, 9):
        for sizes in product(
            [size for size in range(1, world + 1) if world % size == 0], repeat=5
        ):
            if prod(sizes) == world:
                named = dict(zip(DIMS, sizes, strict=True))
                yield from ((world, named, rank) for rank in range(world))
                yield world, named | {"dp_shard": -1}, world - 1
    for axis, size in product(DIMS, (0, -1, -2)):
        yield 2, dict.fromkeys(DIMS, 1) | {"dp_shard": 2} | {axis: size}, 0
    for world, axis, size in (
        (3, "tp", 2),
        (2, "cp", 4),
        (8, "pp", 3),
        (1, "dp_replicate", 2),
    ):
        yield world, dict.fromkeys(DIMS, 1) | {axis: size}, 0
        yield world, dict.fromkeys(DIMS, 1) | {"dp_shard": -1, axis: size}, 0
    for axis, size in product(("pp", "dp_replicate", "cp", "tp"), (0, -1, -2)):
        yield 2, dict.fromkeys(DIMS, 1) | {"dp_shard": -1, axis: size}, 0
    for pair in combinations(DIMS, 2):  # of which the product is right
        yield 4, dict.fromkeys(DIMS, 1) | dict.fromkeys(pair, -2), 0
        yield 1, dict.fromkeys(DIMS, 1) | dict.fromkeys(pair, -1), 0
    random = Random(0)
    for _ in range(300):
        sizes = [random.choice((1, 1, 2, 2, 3, 4, 8)) for _ in DIMS]
        named, world = dict(zip(DIMS, sizes, strict=True)), prod(sizes)
        if random.random() < 0.4:
            named["dp_shard"] = -1
        yield world + (random.random() < 0.1), named, random.randrange(world)


def parallel_dims_accepts(answer, world, sizes, rank):
    """False, or what is wrong: there is one right answer. What is wrong first explains
    the rest."""
    try:
        expected = parallel_dims(world, sizes, rank)
    except ValueError:
        return False
    if not isinstance(answer, dict) or set(answer) != set(expected):
        return False
    for key, right in expected.items():
        mine = answer[key]
        if not isinstance(mine, dict) or set(mine) != set(right):
            return f'"{key}" is a dict with the five axes as keys'
    axis = next(
        (axis for axis in DIMS if answer["sizes"][axis] != expected["sizes"][axis]), ""
    )
    if axis:
        rest = " · ".join(str(sizes[other]) for other in DIMS if other != "dp_shard")
        left = f"what is left for it is {world} / ({rest}) = {expected['sizes'][axis]}"
        return left if sizes[axis] == -1 else f"{axis} is given, and is {sizes[axis]}"
    axis = next(
        (
            axis
            for axis in reversed(DIMS)
            if answer["place"][axis] != expected["place"][axis]
        ),
        "",
    )
    if axis:
        stride = prod(
            expected["sizes"][other] for other in DIMS[DIMS.index(axis) + 1 :]
        )
        return (
            f"neighbours along {axis} are {stride} apart, and it has {expected['sizes'][axis]} places, so rank {rank} is at "
            f"place {rank} // {stride} % {expected['sizes'][axis]} = {expected['place'][axis]}"
        )
    axis = next(
        (
            axis
            for axis in reversed(DIMS)
            if answer["groups"][axis] != expected["groups"][axis]
        ),
        "",
    )
    if not axis:
        return False
    mine, right = answer["groups"][axis], expected["groups"][axis]
    if not isinstance(mine, list):
        return f"the group along {axis} is a list of ranks"
    if sorted(map(repr, mine)) == sorted(map(repr, right)):
        return f"the group along {axis} is in the order of the places: {listed(right)}"
    others = [
        f"{other} {expected['place'][other]}"
        for other in DIMS
        if other != axis and expected["sizes"][other] > 1
    ]
    same = f"all ranks with {', '.join(others)}" if others else "all ranks"
    return f"the group of rank {rank} along {axis} is {same}: {listed(right)}"


def parallel_dims_picture(answer, expected, world, sizes, rank):
    mesh = Mesh([(axis, expected["sizes"][axis]) for axis in DIMS])
    address = " ".join(str(expected["place"][axis]) for axis in DIMS)
    wrong = set()
    for axis in DIMS if answer is not None else ():
        wrong |= set(answer["groups"][axis]) ^ set(expected["groups"][axis])
    title = f"The groups of rank {rank}, whose address is {address}"
    return Neighbours(mesh, rank, wrong=sorted(wrong & set(mesh.ranks)), title=title)
