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
# ERA5, a record of past weather, is a grid of 721 rows and 1,440 columns [@physicsnemo_climate]. Split its rows among
# 64 GPUs by the rule of `torch.chunk`, which is also DTensor's. 60 GPUs get 12 rows each. One gets a single row. And
# **three get nothing**: they hold the model, wait in every collective, and have no weather to work on.
#
# Why cut a grid at all? Because *one* example, with all the activations kept for backward, may not fit on a GPU.
# **Domain parallelism** cuts the example itself: each rank has some rows of the image. And image sizes rarely divide
# evenly.
#
# > **To tell a friend:** if the rows of a rank follow from a rule, every rank knows all shapes without asking.
#
# *The words, once more.* An **all-gather** puts the parts of all ranks together, and gives each rank the whole.

# %%
from drawing import draw_collective, picture_of
from lib import Layer, Links, check_function, goal, simulate
from lib.analysis.figures import traffic
from lib.cluster.layouts import PhysicalBatch

# %% [markdown]
# ## The idea
#
# Two rules are common, each named after a function of PyTorch. Take 10 rows and 4 ranks.
#
# **`chunk`**: divide and round up, 3 here. Every rank gets 3 rows, as long as there are any.
#
# **`tensor_split`**: as even as possible. Every rank gets 2, and the 2 that are left go to the first ranks, one each.


# %%
def image(parts, title, wrong=()):
    """A picture of the rows of each rank, filled up to the largest part."""
    largest = max(end - begin for begin, end in parts)
    ranks = [
        [*range(begin, end)] + [None] * (largest - (end - begin))
        for begin, end in parts
    ]
    notes = [f"slots from {rank * largest} on" for rank in range(len(parts))]
    return PhysicalBatch(ranks, None, notes, wrong, title, ("rank", "row"))


chunk = [(0, 3), (3, 6), (6, 9), (9, 10)]
picture_of(image(chunk, "10 rows by chunk"))

# %%
tensor_split = [(0, 3), (3, 6), (6, 8), (8, 10)]
picture_of(image(tensor_split, "10 rows by tensor_split"))

# %% [markdown]
# The largest part has 3 rows both times, and all ranks wait for it, so both rules are equally fast. They differ at the
# small end.
#
# ### Put it together
#
# At the end of a network, or for a layer that cannot work on parts, the rows are gathered:

# %%
GRID = [Layer(rows=10, inputs=2048, outputs=2048)]


def put_together(parts, gather):
    async def run(model):
        mine = model.get_activation([0]).cut("rows", *parts[model.rank])
        if gather == "padded":
            model.activations["whole"] = await model.allgather_padded(mine, 0)
        else:
            model.activations["whole"] = await model.allgather(mine, 0)

    return run


runs = {}
for gather in ("unequal", "padded"):
    runs[gather] = simulate(
        put_together(chunk, gather), ranks=4, layers=GRID, batches=1, costs=Links()
    )
draw_collective(runs["unequal"])

# %% [markdown]
# But the fast all-gathers of real libraries want parts of *one* size. So each rank pads its part to the size of the
# largest, and sends the padding along. What does that cost?

# %%
print("parts    time      sent by rank 0, 1, 2 and 3")
for name, run in runs.items():
    sent = "  ".join(f"{int(elements):,}" for elements, _ in traffic(run[0].trace))
    print(f"{name:<7}  {max(model.time for model in run):.6f}  {sent}")

# %% [markdown]
# No time at all: in each step of the ring some link carries a large part, and the others wait for it anyway. The price
# is something else. What arrives is not the image yet. It is a line of **slots**, 3 for each rank, as in the two
# pictures above, and the hatched ones are padding. Take the rows out: on real GPUs that is your job.

# %% [markdown]
# ## The puzzle
#
# Write `scatter_rows(rows, ranks, rule)`.
#
# **Given:** how many rows the image has, how many ranks there are, and the rule, `"chunk"` or `"tensor_split"`.
#
# **To do:** return a dict with
#
# | key | what it says |
# |---|---|
# | `"parts"` | a list with `[begin, end]` for each rank: its rows are `image[begin:end]` |
# | `"slots"` | a list with the slot of the gather in which each row lies, for row 0, row 1, and so on |
#
# **Rules**
#
# - By `chunk` every rank gets `rows / ranks` rows, rounded up, as long as there are any.
# - By `tensor_split` every rank gets `rows // ranks` rows, and the first ranks get one more each until none is left.
# - Every part begins where the one before it ends. That also holds for a part without rows: for 9 rows it is `[9, 9]`.
# - Each rank pads its part to the size of the largest one, behind its rows. The gather is all these padded parts in
#   order of rank, and its slots are counted from 0.
# - Fewer than one row, fewer than one rank, or an unknown rule is a `ValueError`.

# %% [markdown]
# ### Predict first
#
# 9 rows among 4 ranks, by `tensor_split`. How many rows does each rank have, how many slots does the gather have, and
# which of them are padding? A program gathers these slots and takes `gathered[:9]` for the image. What is in it?
#
# <details><summary>Answer</summary>
#
# The ranks have 3, 2, 2 and 2 rows. The largest part has 3, so there are 12 slots, and slots 5, 8 and 11 are padding:
# the last slot of each rank but rank 0. `gathered[:9]` has rows 0 to 4, a slot of padding, rows 5 and 6, and padding
# again. Rows 7 and 8 are missing. The shape is right, and nothing raises an error.
#
# </details>

# %% [markdown]
# ### The goal
#
# | rows | ranks | rule | rows of each rank | slots of rows 0, 1, 2, ... |
# |---|---|---|---|---|
# | 10 | 4 | `"chunk"` | 3 3 3 1 | 0 1 2 3 4 5 6 7 8 9 |
# | 10 | 4 | `"tensor_split"` | 3 3 2 2 | 0 1 2 3 4 5 6 7 9 10 |
# | 9 | 4 | `"chunk"` | 3 3 3 0 | 0 1 2 3 4 5 6 7 8 |
# | 9 | 4 | `"tensor_split"` | 3 2 2 2 | 0 1 2 3 4 6 7 9 10 |
# | 5 | 4 | `"chunk"` | 2 2 1 0 | 0 1 2 3 4 |
# | 5 | 4 | `"tensor_split"` | 2 1 1 1 | 0 1 2 4 6 |
#
# The check tries every image of up to 20 rows on up to 8 ranks, and larger ones. Where you are wrong, you see the
# smallest image that breaks your answer.

# %%
goal("scatter_rows")

# %% [markdown]
# <!-- part: hints -->


# %%
def scatter_rows(rows, ranks, rule):
    # How many rows each rank has; then where its part begins and ends, and in which
    # slots its rows lie.
    # --- your code (about 14 lines) ---
    if rows < 1 or ranks < 1 or rule not in ("chunk", "tensor_split"):
        raise ValueError(f"{rows} rows cannot be cut among {ranks} ranks by {rule!r}")
    largest = -(-rows // ranks)  # rounded up
    if rule == "chunk":
        sizes = [max(0, min(largest, rows - rank * largest)) for rank in range(ranks)]
    else:
        each, left = divmod(rows, ranks)
        sizes = [each + 1 if rank < left else each for rank in range(ranks)]
    parts, slots, begin = [], [], 0
    for rank, size in enumerate(sizes):
        parts.append([begin, begin + size])
        slots += range(rank * largest, rank * largest + size)
        begin += size
    return {"parts": parts, "slots": slots}
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(scatter_rows, puzzle="scatter_rows")
verdict

# %% [markdown]
# Passed? Then `reveal("scatter_rows")`, in a cell of its own, shows the official solution. (`from lib import reveal`
# first.)

# %% [markdown]
# ### See what it is for
#
# The weather from the beginning, on more and more GPUs. `slowest` is how much longer a step takes than if the rows
# divided evenly: the largest part compared with 721 / GPUs. Change the numbers and run it again.

# %%
picture = None
if verdict:
    print("GPUs  rule          largest  smallest  with none  padding  slowest")
    for ranks in (8, 16, 32, 64, 128):
        for rule in ("chunk", "tensor_split"):
            parts = scatter_rows(721, ranks, rule)["parts"]
            sizes = [end - begin for begin, end in parts]
            most, least, none = max(sizes), min(sizes), sizes.count(0)
            print(
                f"{ranks:>4}  {rule:<12}  {most:>7}  {least:>8}  {none:>9}  "
                f"{ranks * most - 721:>7}  {most * ranks / 721 - 1:>7.1%}"
            )
    parts = scatter_rows(5, 4, "chunk")["parts"]
    picture = picture_of(image(parts, "5 rows by chunk: rank 3 has nothing to do"))
picture

# %% [markdown]
# Both rules take the same time. But with 64 GPUs `chunk` leaves three with nothing and one with a single row. With
# `tensor_split` no two parts ever differ by more than one row.
#
# Here are your parts in the simulator, with a rank that has no rows. It still takes part in the gather: every rank of a
# group has to.

# %%
picture = None
if verdict:
    parts = scatter_rows(9, 4, "chunk")["parts"]
    nine = [Layer(rows=9, inputs=2048, outputs=2048)]
    padded = put_together(parts, "padded")
    run = simulate(padded, ranks=4, layers=nine, batches=1, costs=Links())
    picture = draw_collective(run)
picture

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# `"parts"` by `chunk` is what PyTorch's `DTensor` calls `local_shard_size_and_offset`
# [@pytorch_placement_types, PyTorch 2.13]; a test of this puzzle compares the two. `"slots"` is what every library does
# after a gather: DTensor removes the padding [@pytorch_placement_types], and NVIDIA's **ShardTensor**, made for such
# grids, slices the real elements out of the slots of each rank [@physicsnemo_shard_redistribute].
#
# With c the size of the largest part, both are one formula:
#
# ```
# c = rows / ranks, rounded up               the same for both rules
# rank r sends                               c rows, its own and padding
# the k-th row of rank r lies in slot        r · c + k
# ```
#
# By `chunk` all parts are full until the rows run out. So all padding is at the end, row i lies in slot i, and
# `gathered[:rows]` is right. By `tensor_split` the padding is in the middle, and only your list knows where.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **DTensor's rule.** `Shard(dim)` follows `torch.chunk`, and its documentation says that the last few parts may be
#   empty, and that parts that do not divide evenly are experimental [@pytorch_placement_types]. `torch.chunk` itself
#   gives *fewer* pieces: three for 9 rows in 4. DTensor adds the empty one.
# - **Any parts.** ShardTensor keeps a list of the shapes of all ranks with each tensor. By default they follow from a
#   rule, with no communication; other sizes are announced with an all-gather of shapes (`sharding_shapes="infer"`)
#   [@physicsnemo_shard_tensor_spec].
# - **Padding.** The gather that ShardTensor uses needs equal shapes, so it pads every part to the largest one, gathers,
#   and slices [@physicsnemo_shard_redistribute].
# - **Handing out.** ShardTensor's `scatter_tensor` broadcasts the shape and the type first, unless all ranks pass them
#   in; then it broadcasts the whole tensor, and each rank cuts out its part. A comment says that this is not optimized,
#   and that it happens once per iteration [@physicsnemo_shard_tensor].
# - **A third rule.** The function with which ShardTensor computes the shapes rounds up as `chunk` does, unless the last
#   rank would get nothing. Then it rounds *down*, and the last rank gets all the rest: 9 rows become 2 2 2 3
#   [@physicsnemo_utils].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# An image is cut along one dimension here. ShardTensor cuts along several, one for each axis of a mesh, and then the
# rule applies to each dimension separately. Every row costs the same. And one rank reads everything, which is simple
# but slow: a data set that can be read by rows is read by each rank for itself, with the very same `"parts"`.

# %% [markdown]
# ## Questions to think about
#
# **1.** The largest part is the same by both rules, for every number of rows and ranks. Why?
#
# <details><summary>Answer</summary>
#
# Some rank has at least the average, rows / ranks, and rows are whole: so at least the average, rounded up. Neither
# rule gives any rank more than that: `chunk` rounds up for all, `tensor_split` gives one more to some ranks if anything
# is left. No rule can do better. And since the largest part is the same, so is the number of slots.
#
# </details>
#
# **2.** By the third rule above ("unless the last rank would get nothing"), how many rows do 64 GPUs get of the 721?
# How much longer does a step take than by `chunk`?
#
# <details><summary>Answer</summary>
#
# Rounded up it is 12, and 12 · 63 = 756 is more than 721, so the last rank would get nothing. Rounded down it is 11 for
# each of the first 63, and 721 - 693 = **28** for the last. A step takes as long as the largest part: 28 rows instead
# of 12, 2.3 times as long. On 128 GPUs it is 5 rows each, and 86 for the last. No part is empty, and nearly all GPUs
# wait.
#
# </details>
#
# **3.** A program takes the mean over the whole gather, and the padding is zeros. By how much is the mean wrong, for 10
# rows on 4 ranks?
#
# <details><summary>Answer</summary>
#
# The sum is right, and it is divided by 12 rows where there are 10: the mean is 10/12 of what it should be, 17 % too
# small. The same happens on each rank: the mean of a padded part is wrong, and the smaller the part, the worse. So
# padding belongs on the wire, and nowhere else.
#
# </details>
#
# **4.** A land model works on the rows over land only, so the ranks have 4, 8, 12 and 40 of 64 rows. Which parts of
# your function still hold?
#
# <details><summary>Answer</summary>
#
# Everything except the rule. The sizes are now data: each rank knows its own and has to tell the others, with one
# all-gather of a single number. After that nothing changes: every part begins where the one before ends, and rank r has
# slots from r · 40 on. But padding becomes expensive: 160 slots for 64 rows, and every rank sends 120 rows where 24 to
# 60 would do.
#
# </details>
#
# ## Where this leads
#
# Every rank has its rows. As long as a layer works row by row, no rank needs another. But a convolution looks at the
# rows above and below: the first row of a rank needs the last row of its neighbour. And by `chunk` that neighbour may
# have none.

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from random import Random

from lib.errors.wording import counted


def scatter_rows_inputs():
    sizes = [(rows, ranks) for rows in range(21) for ranks in range(9)]
    for rows, ranks in sorted(
        sizes, key=lambda size: size[0] < size[1]
    ):  # more rows than ranks are easier to understand
        yield from ((rows, ranks, rule) for rule in ("chunk", "tensor_split"))
    yield from ((10, 4, "even"), (10, -1, "chunk"), (-3, 4, "tensor_split"))
    random = Random(0)
    for _ in range(100):
        yield (
            random.randint(1, 200),
            random.randint(1, 70),
            random.choice(("chunk", "tensor_split")),
        )


def scatter_rows_accepts(answer, rows, ranks, rule):
    """False, or what is wrong: there is one right answer. Parts that are wrong explain
    the slots."""
    try:
        expected = scatter_rows(rows, ranks, rule)
    except ValueError:
        return False
    if not isinstance(answer, dict) or set(answer) != set(expected):
        return False
    if answer["parts"] != expected["parts"]:
        return scatter_rows_part(answer["parts"], expected["parts"], rows, ranks, rule)
    return scatter_rows_slot(answer["slots"], expected)


def scatter_rows_part(parts, right, rows, ranks, rule):
    """What is wrong with the parts."""
    sizes = [end - begin for begin, end in right]
    if parts == sizes:
        return f'these are the sizes; "parts" says where each begins and ends: {right[0]} for rank 0'
    if len(parts) != ranks:
        return f"every rank has a part, also one without rows: {ranks} in all, and this has {len(parts)}"
    if parts == [[begin, end - begin] for begin, end in right]:
        return "the second number of a part is the row at which it ends, not how many rows it has"
    if parts == [[begin, end - 1] for begin, end in right]:
        return f"a part ends before its second number, as a slice does: row {right[0][1] - 1} is in {right[0]}"
    rank = next(rank for rank in range(ranks) if parts[rank] != right[rank])
    (begin, end), mine = parts[rank], f"rank {rank} has {right[rank]}"
    if not sizes[rank]:
        if begin == end:
            return f"a part without rows begins where the one before it ends: {mine}"
        return f"the ranks before it have all {counted(rows, 'row')}, and nothing is left for rank {rank}: it has {right[rank]}"
    if end > rows:
        return f"the image ends after {counted(rows, 'row')}, and rank {rank} would end at {end}: it has what is left, {right[rank]}"
    each, left = divmod(rows, ranks)
    nobody = f"row {parts[-1][1]} is on no rank; " if parts[-1][1] < rows else ""
    if rule == "chunk":
        return f"{nobody}{rows} / {ranks} is rounded up, to {sizes[0]}, and every rank has that many as long as there are any: {mine}"
    more = (
        ""
        if not left
        else ", and the first has one more"
        if left == 1
        else f", and the first {left} have one more"
    )
    return f"{nobody}every rank has {each}{more}: {mine}"


def scatter_rows_slot(slots, expected):
    """What is wrong with the slots."""
    right, sizes = expected["slots"], [end - begin for begin, end in expected["parts"]]
    largest, rows = max(sizes), sum(sizes)
    total = largest * len(sizes)
    if slots == list(range(total)):
        return f"the gather has {total} slots for {counted(rows, 'row')}: {total - rows} of them padding, to be left out"
    if len(slots) != rows:
        return (
            f'"slots" has one slot for each row, {rows} in all; this has {len(slots)}'
        )
    row = next(row for row in range(rows) if slots[row] != right[row])
    rank, place = divmod(right[row], largest)
    lies = f"the slots of rank {rank} begin at {rank} · {largest}, so row {row} lies in slot {right[row]}"
    other = slots[row] // largest
    if 0 <= slots[row] < total and slots[row] % largest >= sizes[other]:
        has = f"{counted(sizes[other], 'row')} in {counted(largest, 'slot')}"
        return f"slot {slots[row]} is padding: rank {other} has {has}. And {lies}"
    return f"row {row} is at place {place} of rank {rank}, counted from 0; {lies}"


def scatter_rows_picture(answer, expected, rows, ranks, rule):
    asked = expected if answer is None else answer
    title = "What would be right" if answer is None else "What your function says"
    title = f"{title}: {counted(rows, 'row')} by {rule}"
    parts, largest = asked["parts"], -(-rows // ranks)
    if parts != expected["parts"]:
        if len(parts) != ranks or any(
            not 0 <= begin <= end <= 2 * rows + ranks for begin, end in parts
        ):
            raise ValueError("no parts of this image")
        return image(
            parts,
            title,
            [rank for rank in range(ranks) if parts[rank] != expected["parts"][rank]],
        )
    picture, taken = (
        image(parts, title),
        {slot: row for row, slot in enumerate(asked["slots"])},
    )
    slots = [
        [taken.get(rank * largest + slot) for slot in range(largest)]
        for rank in range(ranks)
    ]
    wrong = [rank for rank in range(ranks) if slots[rank] != picture.feeds[rank]]
    return PhysicalBatch(slots, None, picture.notes, wrong, title, ("rank", "row"))
