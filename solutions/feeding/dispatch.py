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
# You evaluate a model on 16 hosts with one feed each, and two examples are left. Two examples, sixteen hosts. But the
# hosts run one program together, and in that program a batch is **one array, cut into equal pieces**. No piece may be
# empty. So the array has 16 rows: two are examples, and fourteen are zeros. For this step 87.5 % of the computation is
# wasted.
#
# That is the price. The danger is elsewhere: which of the 16 rows count, and what do the hosts read for the other
# fourteen? If a zero row is taken for an example, or an example is read twice, nothing raises an error. The loss is a
# little off, and that is all.
#
# > **To tell a friend:** there are two batches, the one you mean and the one the devices run, and your code must
# > record which row of the second is which row of the first.
#
# *The words, once more.* A **process** runs on each host and reads the data for its devices. A **data shard** is part k
# of n of a data set: examples k, k + n, k + 2n, and so on.
#
# *On a first pass you may skip this puzzle:* only puzzle $number_less_than_one builds on it, and that one may wait too.

# %%
from drawing import picture_of
from lib import check_function, goal
from lib.cluster.layouts import PhysicalBatch

# %% [markdown]
# ## The idea
#
# The batch you mean is the **logical** one. The array on the devices is the **physical** one: its rows, the **slots**,
# must divide evenly among all devices. A **feed** is a process that brings a part of the array. All bring the same
# number of slots. Slots without an example are **padding**.
#
# Here are 8 examples in 16 slots, from two feeds, on eight devices:

# %%
title = "8 examples, 2 feeds: each brings 4, and 4 slots of padding"
picture_of(PhysicalBatch.filled(2, 8, 4, [0, 1], 8, title=title))

# %% [markdown]
# Not every feed has to bring examples that count. Here only feeds 1 and 3 of four do:

# %%
title = "8 examples, and feeds 1 and 3 bring them"
picture_of(PhysicalBatch.filled(4, 4, 4, [1, 3], 8, title=title))

# %% [markdown]
# Feeds 0 and 2 still have to bring *something*: an array of the same shape, because all processes run the same program.
# So they read some part of the data set through the same reader, and the result is thrown away.
#
# And what do they read? The data set has as many shards as feeds count. Here feeds 4 and 1 do, in this order, and read
# shards 0 and 1. The others take turns, so that no shard gets all the extra readers:

# %%
title = "2 examples, and feeds 4 and 1 bring them"
notes = [f"reads shard {shard}" for shard in (0, 1, 1, 0, 0)]
picture_of(PhysicalBatch.filled(5, 2, 1, [4, 1], 10, notes=notes, title=title))

# %% [markdown]
# ## The puzzle
#
# Write `dispatch(logical, physical, feeds, indices, devices)`.
#
# **Given:** the size of the logical batch; that of the physical one, or `None`; how many feeds there are; a list of the
# feeds that count, or `None`; how many devices.
#
# **To do:** three things, one after the other.
#
# 1. **Which feeds count?** Where `indices` is None, make it the list of the first feeds, as many as possible: no more
#    than there are feeds, and no more than there are examples.
# 2. **How large is the array?** Where `physical` is None, make it the smallest size that divides evenly among the
#    devices and among the feeds, with room in each feed for its examples. The feeds that count bring equally many.
# 3. **Who reads what?** Make the list `shards`: the data shard that each feed reads. Those that count read shards 0, 1,
#    2, ... in the order of `indices`. The others do so in the order of their numbers, and go on from 0 again after the
#    last shard.
#
# The rest follows, and two functions do it for you. `refuse_nonsense` has an error for numbers below 1 and for
# `indices` that name no feed. `described` has one for what does not divide or does not fit, and else returns
#
# | key | what it says |
# |---|---|
# | `"logical_feeds"`, `"logical_per_feed"` | how many feeds count, and how many examples each of them brings |
# | `"physical"`, `"physical_per_feed"` | how many slots there are, and how many each feed brings |
# | `"padding"` | how many slots in all are only padding |
# | `"shards"` | your list |

# %% [markdown]
# ### Predict first
#
# 8 examples in 16 slots, four feeds, `indices` [1, 3], eight devices: the second picture. Which data shard does each of
# the four feeds read?
#
# <details><summary>Answer</summary>
#
# Two feeds count, so there are two shards. Feed 1 is the first in the list and reads shard 0, feed 3 reads shard 1. The
# others are feed 0 with shard 0 and feed 2 with shard 1. In the order of the feeds: `[0, 0, 1, 1]`.
#
# </details>

# %% [markdown]
# ### The goal
#
# The check tries the rows of a table, every small combination, and larger ones. If an answer is wrong, you see the
# smallest input that breaks it.

# %%
goal("dispatch")

# %% [markdown]
# <!-- part: hints -->


# %%
def refuse_nonsense(logical, physical, feeds, indices, devices):
    """Refuse numbers below 1, and indices that name no feed, a feed twice, or one that
    does not exist."""
    numbers = [logical, feeds, devices, *([] if physical is None else [physical])]
    if min(numbers) < 1:
        raise ValueError("every number is 1 or more")
    if indices is not None and (
        not indices
        or len(set(indices)) < len(indices)
        or not set(indices) <= set(range(feeds))
    ):
        raise ValueError(
            f"indices names feeds 0 to {feeds - 1}, each once; got {indices}"
        )


def described(logical, physical, feeds, indices, devices, shards):
    """The dict to return, once it is sure that everything divides and fits."""
    if logical % len(indices):
        raise ValueError(f"indices {indices}: {logical} do not divide among them")
    if physical % feeds or physical % devices:
        among = f"{feeds} feeds and {devices} devices"
        raise ValueError(f"physical {physical} does not divide among {among}")
    examples, slots = logical // len(indices), physical // feeds
    if slots < examples:
        raise ValueError(
            f"physical {physical} is {slots} a feed, and one brings {examples}"
        )
    return {
        "logical_feeds": len(indices),
        "logical_per_feed": examples,
        "physical": physical,
        "physical_per_feed": slots,
        "padding": physical - logical,
        "shards": shards,
    }


# %%
def dispatch(logical, physical, feeds, indices, devices):
    from math import lcm  # the smallest number that several numbers divide

    refuse_nonsense(logical, physical, feeds, indices, devices)
    # `indices` and `physical`, where they are None, and `shards`.
    # --- your code (about 10 lines) ---
    if indices is None:
        indices = list(range(min(logical, feeds)))

    if physical is None:
        slots = logical // len(indices) * feeds  # at least
        together = lcm(feeds, devices)
        physical = -(-slots // together) * together

    others = [feed for feed in range(feeds) if feed not in indices]
    reads = {feed: shard for shard, feed in enumerate(indices)}
    reads |= {feed: number % len(indices) for number, feed in enumerate(others)}
    shards = [reads[feed] for feed in range(feeds)]
    # --- end of your code ---
    return described(logical, physical, feeds, indices, devices, shards)


# %%
verdict = None
verdict = check_function(dispatch, puzzle="dispatch")
verdict

# %% [markdown]
# Passed? Then `reveal("dispatch")`, in a cell of its own, shows the official solution. (`from lib import reveal`
# first.)

# %% [markdown]
# ### See what it is for
#
# The two examples and sixteen feeds from the beginning, on sixteen devices; feeds 7 and 11 count. Change the numbers as
# you like.

# %%
picture = None
if verdict:
    indices, feeds, devices = [7, 11], 16, 16
    sizes = dispatch(2, None, feeds, indices, devices)
    batch = PhysicalBatch.filled(
        feeds,
        sizes["physical_per_feed"],
        sizes["logical_per_feed"],
        indices,
        devices,
        notes=[
            f"reads shard {shard}" + ("" if feed in indices else ", for nothing")
            for feed, shard in enumerate(sizes["shards"])
        ],
        title=f"2 examples in {sizes['physical']} slots, "
        f"{sizes['padding']} of them padding",
    )
    picture = picture_of(batch)
picture

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# This is the `InputDispatcher` of AXLearn, the system with which Apple trains its foundation models
# [@axlearn_input_dispatch]. It does one thing more: each feed sends, beside its slots, a small table that says which
# example each slot holds. Inside the program that table picks the logical batch out of the physical one, by a matrix
# product with ones and zeros:
#
# ```
# logical[l] = sum over all slots p of  physical[p] · (1 if slot p is example l else 0)
# ```
#
# A padding slot has a row of zeros, so it contributes nothing. You can safely shuffle the feeds: the table travels with
# them.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **Evaluation is where it happens.** In training you choose a batch that divides. You cannot choose the size of a
#   test set.
# - **Some ranks have more than others.** In PyTorch each process has its own loader, and if one has a batch more than
#   the others, it waits in an all-reduce that no other process joins [@pytorch_38174].
# - **Dividing by the wrong number.** A mean over 16 slots of which 8 are examples is half of what it should be. A
#   related bug surfaced in October 2024: with gradient accumulation, the mean of means is wrong where microbatches have
#   different numbers of tokens, and more than one library had it [@transformers_34191].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Where you give no size, AXLearn takes the larger of two numbers: the slots that the examples need, and one for each
# device. It does not check whether that divides. With 12 examples from 3 feeds on 8 devices it returns 12, and the
# array cannot be built. Ours agrees wherever theirs works, and finds 24 here. And our slots are rows of one array; a
# real batch is a tree of arrays (tokens, labels, masks), all padded alike.

# %% [markdown]
# ## Questions to think about
#
# **1.** Feeds that do not count contribute zeros. Why do they read at all?
#
# <details><summary>Answer</summary>
#
# Because only the reader knows what an example looks like. It returns arrays with names, shapes and types, and the
# program needs the same from every process. The easiest way is to read anything and set it to zero. And they are spread
# over the shards so that no part of the storage gets all the extra readers.
#
# </details>
#
# **2.** How much of the computation is wasted with 8 examples in 16 slots? With 2 in 16?
#
# <details><summary>Answer</summary>
#
# Half, and 87.5 %. The share is padding / physical. It is like the bubble of a pipeline: devices that you pay for and
# that do nothing useful. Only here they look busy.
#
# </details>
#
# **3.** Six examples and four feeds are a `ValueError`, although three of the feeds could bring two each. Would you
# rather have the function find that out?
#
# <details><summary>Answer</summary>
#
# It could take the largest number of feeds that divides the batch. But for a batch of 7 that is one feed, which then
# reads everything while three wait, and you never asked for that. An error makes you decide: `indices` [0, 1, 2], or
# another batch.
#
# </details>
#
# **4.** Why must the slots divide among the devices *and* among the feeds?
#
# <details><summary>Answer</summary>
#
# A feed cannot bring half a slot, and a device cannot have half of one. With 3 feeds and 8 devices both hold only for
# 24, 48, ... In practice each process owns the same number of devices, so the number of devices is a multiple of the
# number of feeds, and slots that divide among the devices also divide among the feeds.
#
# </details>
#
# ## Where this leads
#
# Padding is waste that grows with the cluster. When a batch has fewer examples than there are hosts, there is something
# better than zeros: several hosts can share one example.

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from itertools import permutations, product
from random import Random

from lib.errors.wording import counted


def dispatch_inputs():
    for feeds in range(4):
        lists = [
            list(chosen)
            for count in range(feeds + 1)
            for chosen in permutations(range(feeds), count)
        ]
        for logical, physical, devices in product(
            range(5), (None, 0, 2, 3, 4, 6, 12), range(4)
        ):
            for indices in (
                [None, *lists, [0, 0], [feeds]] if logical and devices else [None]
            ):
                yield logical, physical, feeds, indices, devices
    for logical, physical, feeds, devices in (
        (0, None, 2, 2),
        (-2, None, 2, 2),
        (-2, 4, 2, 2),
        (2, 4, 2, -2),
        (2, 4, -2, 2),
    ):
        yield from (
            (logical, physical, feeds, indices, devices)
            for indices in (None, [0], [1, 0])
        )
    random = Random(0)
    for _ in range(400):
        feeds = random.choice((1, 2, 3, 4, 6, 8, 16))
        devices = feeds * random.choice((1, 2, 4, 8)) + (random.random() < 0.2)
        indices = (
            random.sample(range(feeds), random.randint(1, feeds))
            if random.random() < 0.6
            else None
        )
        logical = random.randint(1, 6) * (
            feeds if indices is None else len(indices)
        ) + (random.random() < 0.1)
        physical = (
            devices * feeds * random.randint(1, 3) if random.random() < 0.4 else None
        )
        yield logical, physical, feeds, indices, devices


def dispatch_accepts(answer, logical, physical, feeds, indices, devices):
    """False, or what is wrong: there is one right answer. The first key that is wrong
    explains those after it."""
    try:
        expected = dispatch(logical, physical, feeds, indices, devices)
    except ValueError:
        most = min(feeds, logical)
        if indices is None and answer["logical_feeds"] != most:
            return f"the first {counted(most, 'feed')} count, whether or not the examples divide among them: what does not is for `described` to refuse"
        return False
    if not isinstance(answer, dict) or set(answer) != set(expected):
        return False
    key = next((key for key in expected if answer[key] != expected[key]), "")
    right, counting, slots = (
        expected.get(key),
        expected["logical_feeds"],
        expected["physical"],
    )
    if key == "shards":
        return dispatch_shard(
            answer[key],
            right,
            list(range(counting)) if indices is None else indices,
            indices is None,
        )
    if physical is None:
        needed = feeds * expected["logical_per_feed"]
        size = f"the least that divides among {counted(feeds, 'feed')} and {counted(devices, 'device')} and is not below {needed}, so it is {slots}"
    else:
        size = f"given, and is {physical}"
    return {
        "logical_feeds": f"with {counted(logical, 'example')} and {counted(feeds, 'feed')}, {right} can count"
        if indices is None
        else f"the feeds that count are those in `indices`: {right}",
        "logical_per_feed": f"{logical} examples, shared by the {counted(counting, 'feed')} that count{'s' * (counting == 1)}, make {right} each",
        "physical": f"the physical batch is {size}",
        "physical_per_feed": f"{slots} slots, shared by all {counted(feeds, 'feed')}, make {right} each",
        "padding": f"{logical} of all {slots} slots have an example, so padding is {right}",
    }.get(key, False)


def dispatch_shard(shards, right, counting, first):
    """What is wrong with the shards."""
    if not isinstance(shards, list) or len(shards) != len(right):
        return f'"shards" is a list with an item for each feed, {len(right)} in all: those that do not count read, too'
    feed = next(feed for feed in range(len(right)) if shards[feed] != right[feed])
    if feed in counting and first:
        return f"where `indices` is None the first {counted(len(counting), 'feed')} count: feed {feed} reads shard {feed}"
    if feed in counting:
        return f"feed {feed} is at place {counting.index(feed)} of {counting}, counted from 0: that is its shard"
    place = sum(other not in counting for other in range(feed))
    again = (
        ""
        if place < len(counting)
        else f", and there are only {counted(len(counting), 'shard')}, so they begin again at 0"
    )
    return f"feed {feed} does not count; of those that do not it is at place {place}, counted from 0{again}: its shard is {right[feed]}"


def dispatch_picture(answer, expected, logical, physical, feeds, indices, devices):
    asked = expected if answer is None else answer
    order = list(range(expected["logical_feeds"])) if indices is None else indices
    wrong = [
        feed
        for feed in range(feeds)
        if asked["shards"][feed] != expected["shards"][feed]
    ]
    return PhysicalBatch.filled(
        feeds,
        asked["physical_per_feed"],
        min(asked["logical_per_feed"], asked["physical_per_feed"]),
        order,
        devices,
        notes=[
            f"reads shard {shard} of {asked['logical_feeds']}"
            for shard in asked["shards"]
        ],
        wrong=wrong,
        title="What would be right" if answer is None else "What your function says",
    )
