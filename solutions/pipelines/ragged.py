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
# Llama 3 405B had 16 microbatches for each of its pipelines of 16 ranks [@llama3]. That divides. Change the batch, the
# length of the sequences or the number of GPUs, and it no longer does. Your interleaved pipeline takes groups of as
# many microbatches as there are ranks: with 7 microbatches on 5 ranks one group is full, and one has two.
#
# A short last group sounds harmless. We tried it on 140 sizes, from 2 to 8 ranks, and **30 of these runs never end**.
# Megatron-LM refuses a last group with fewer microbatches than ranks. You are about to see why.
#
# > **To tell a friend:** when things do not divide, a small remainder at the end can stop everybody.

# %%
from drawing import draw
from lib import Costs, Model, PuzzleError, check, goal, predict, schedule, simulate

# %% [markdown]
# ## The idea
#
# Here is the previous puzzle again, with the groups as an argument. `shuffled` makes the list of a rank: a warm-up,
# then forward and backward in turn. And `short_last` cuts the microbatches into groups in the obvious way.


# %%
def shuffled(rank, ranks, groups):
    stages = (rank, rank + ranks)
    forwards = [f"{stage}F{b}" for group in groups for stage in stages for b in group]
    backwards = [
        f"{stage}B{b}" for group in groups for stage in reversed(stages) for b in group
    ]
    warm_up = len(groups[0]) + 2 * (ranks - 1 - rank)
    order = forwards[:warm_up]
    for turn, backward in enumerate(backwards):
        order += forwards[warm_up + turn : warm_up + turn + 1]
        order.append(backward)
    return order


def short_last(ranks, batches):
    starts = range(0, batches, ranks)
    return [range(start, min(start + ranks, batches)) for start in starts]


@schedule(messages="posted")
def with_a_short_one(rank, ranks, batches):
    return shuffled(rank, ranks, short_last(ranks, batches))


# %% [markdown]
# On 4 ranks with 6 microbatches (groups of 4 and of 2) it runs. A layer takes 1 forward and 2 backward:

# %%
thirds = Costs(backward=2)
draw(simulate(with_a_short_one, layers=8, batches=6, ranks=4, costs=thirds))

# %% [markdown]
# It ends at 63.2, which is a lot: 8 microbatches take 63.6. Do you see the hole in the middle? The second group has
# only two microbatches. After two forwards a rank is done with them on its first stage, turns to its second one, and
# has to wait until they come round.
#
# With 7 microbatches on 5 ranks it is worse:

# %%
try:
    simulate(with_a_short_one, layers=10, batches=7, ranks=5)
except PuzzleError as error:
    print(error)

# %% [markdown]
# The ranks wait for each other in a circle: a **deadlock**. In a real training run nothing tells you. The GPUs look
# busy, all of them wait, and minutes later a watchdog ends the run.
#
# **Predict:** why is the hole harmless, and why does a circle close here?
#
# <details><summary>Answer</summary>
#
# In the hole a rank waits for a *forward* that is on its way round. The ranks on that way are busy with the first group,
# but none of them waits for this rank. Now read the message. Rank 0 is at `5F6`: it waits for microbatch 6 to come round. Rank 4 would send it on with
# `4F6`, but its list has a backward before that, `4B0`. And `4B0` needs `5B0` of rank 0, which comes right after `5F6`
# in the list of rank 0. So each waits for the other. With larger groups `4F6` is long done when the turns begin.
#
# </details>
#
# So a short group is bad. Not every one closes a circle: a single microbatch left over gets through, as its `4F5` stands
# before `4B0`. But each makes a hole. How would you cut 7 into groups, then? Or 9, or 11?

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches | stages |
# |---|---|---|---|
# | 5 | 10 | 11 | 10: rank *r* has stages *r* and *r + 5* |
#
# **Given:** `shuffled` from above.
#
# **To do:** the groups: consecutive ranges that together contain every microbatch exactly once. How many microbatches
# does a group need, so that the first is back from its round when the last has left, if messages take no time? Let no
# group have fewer, where that is possible, for any number of microbatches: your function is tried with others, too.
# Give the groups to `shuffled`.
#
# **Rules**
#
# - A layer takes 1 forward and 2 backward. Messages are posted: the output of a pass is on the next rank 0.4 after the
#   pass ends.
# - A larger group has more microbatches in flight at once, so it needs more memory. One group for everything is too
#   much for the last goal.

# %% [markdown]
# ### Predict first
#
# 5 microbatches end at 50.2, and each further one adds 6 of work to every rank. With a short last group 11 end at
# 102. With groups of your own, and memory for the last goal, when do they end?

# %%
guess = predict("ragged", end=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

# %%
goal("ragged")

# %% [markdown]
# <!-- part: hints -->


# %%
@schedule(messages="posted")
def ragged(rank, ranks, batches):
    # How many groups? How large is each? Then hand their ranges to `shuffled`, as
    # above.
    # --- your code (about 7 lines) ---
    count = max(1, batches // ranks)
    groups, start = [], 0
    for group in range(count):
        size = batches // count + (group < batches % count)
        groups.append(range(start, start + size))
        start += size
    return shuffled(rank, ranks, groups)
    # --- end of your code ---


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(ragged, puzzle="ragged")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# 11 // 5 is 2: there is room for two full groups, so two groups, of 6 and of 5. A rank works for 11 · 6 = 66, and 1
# for its updates. The first microbatch reaches rank 4 after 4 · 1.4 = 5.6, and the last gradient takes 4 · 2.4 = 9.6
# back to rank 0: together 82.2. Once round takes 5 · 1.4 = 7. The first group keeps a rank busy for 6, so rank 4 waits
# for 1 on the way in. Back it takes 5 · 2.4 = 12. The last group keeps a rank busy for 10, so it waits for 2 on the way
# out: 85.2.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="ragged")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### Other numbers
#
# Your groups, a short last group, and one group for everything, on 4 ranks. Time, and the peak in millions of
# elements:


# %%
@schedule(messages="posted")
def one_group(rank, ranks, batches):
    return shuffled(rank, ranks, [range(batches)])


def figures(function, ranks, batches):
    try:
        sizes = {"layers": 2 * ranks, "batches": batches, "ranks": ranks}
        verdict = check(simulate(function, **sizes, costs=thirds))
    except PuzzleError as error:
        circle = "wait for each other" in str(error)
        return "waits in a circle" if circle else "not a legal list"
    return f"{verdict.time:4g} / {verdict.memory / 1e6:.2f}"


if out:
    print(f"{'':24}{'a short last group':>20}{'one group':>20}{'yours':>20}")
    for ranks, batches in ((4, 5), (4, 7), (4, 9), (4, 11), (5, 7), (5, 9), (5, 11)):
        ways = (with_a_short_one, one_group, ragged)
        line = "".join(f"{figures(way, ranks, batches):>20}" for way in ways)
        print(f"{ranks} ranks, {batches:2} microbatches {line}")

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# Groups for any number of microbatches. With *B* microbatches on *R* ranks:
#
# ```
# groups  = max(1, B // R)
# longest = ceil(B / groups)
# ```
#
# and the sizes of two groups differ by one at most. No group is shorter than *R* (if *B* is at least *R*), so a
# microbatch is nearly back from its round when its rank has nothing else to do. PyTorch's `ScheduleInterleaved1F1B`
# computes exactly your first line, `max(1, n_microbatches // pp_group_size)`, and then asks that this number of
# groups divides the microbatches. You do not need that. We tried all sizes from 2 to 8 ranks with up to four times as
# many microbatches, 140 in all: with a short last group 30 of them deadlock, those with 2 to *R* - 3 microbatches left
# over; with groups like these none.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *Megatron-LM* asked for a multiple of the number of pipeline ranks in 2021 [@narayanan2021, section 2.2]. Today the
#   size of a group is an option, `microbatch_group_size_per_vp_stage`, and what is left for the last group must be
#   nothing, or at least as many microbatches as there are ranks [@megatron_schedules].
# - *Llama 3* made the size of a group free: fewer microbatches than pipeline ranks, or more, up to all of them if
#   memory allows [@llama3, section 3.3.2].
# - *PyTorch* makes as many groups as you do, and then asks that their number divides the microbatches [@pytorch_129597]
#   [@pytorch_schedules]. Yours need not.
# - *Deadlocks are found late.* In an evaluation of llm-foundry ranks hung in an all-gather, and the watchdog took 10
#   minutes to end the run [@llm_foundry_423].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - All microbatches are equally long. In real batches sequences differ in length, and the longest of a group sets the
#   pace.
# - Each rank always has 2 virtual stages. That number could change with the number of microbatches, too.

# %% [markdown]
# ## Questions to think about
#
# **1.** What if there are fewer microbatches than ranks, say 3 on 5?
#
# <details><summary>Answer</summary>
#
# Then there is one group, shorter than the number of ranks, and it has a hole: there is nothing to do while the three
# go round. It is legal.
#
# </details>
#
# **2.** On 4 ranks 9 microbatches are groups of 5 and 4. One group of 9 ends at 66.4 and yours at 68.6. Why not
# always one group?
#
# <details><summary>Answer</summary>
#
# Look at the other number: 4.19 million elements instead of 3.80, and it grows with each microbatch. One group is
# breadth-first in forward: all microbatches of the first stages are in flight before the second ones begin. With the
# size of a group you trade memory for time.
#
# </details>
#
# **3.** Could you put the shorter group first?
#
# <details><summary>Answer</summary>
#
# If it is only one shorter, yes, as long as the warm-up fits the *longest* group. A rank that warms up for a short
# first group has too few forwards done when it starts to take turns: some backward comes before its own forward in
# the list. The message says which.
#
# </details>

# %% [markdown]
# ## Where this leads
#
# Microbatches that do not divide are one thing. What about layers that do not?

# %% [markdown]
# <!-- part: links -->
