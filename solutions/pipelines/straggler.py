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
# One of ten thousand GPUs has dust in its heat sink. It gets hot, lowers its clock, and needs a fifth more time than the
# others. Nothing fails, and no log says so. Only the step takes longer: for all ten thousand, because in the end they
# all wait for each other.
#
# You could replace it. That takes until tomorrow. But this is a *pipeline*: its ranks do different things, and some
# have more time than others. Where does a slow rank do the least harm?
#
# > **To tell a friend:** what a slow GPU costs a pipeline depends on where it stands. Measure which stages have time to
# > spare before you replace it.
#
# *Reminder.* A **stage** is a run of layers. Which rank has which stage is up to you.

# %%
from drawing import compare, draw
from lib import (
    Model,
    Uneven,
    check,
    critical_path,
    goal,
    predict,
    simulate,
    stages,
    what_if,
)
from lib.schedules.pipelines.generators import one_f_one_b

# %% [markdown]
# ## The idea
#
# In this puzzle `@stages` takes pairs: for each stage, from the first to the last, its rank and how many layers it
# has. Three stages, three ranks, of which rank 1 takes 1.5 times as long as the others. First in the middle, then at
# the end:


# %%
@stages(one_f_one_b)
def in_the_middle(layers: list[float], ranks: list[float]) -> list[tuple[int, int]]:
    return [(0, 2), (1, 2), (2, 2)]


@stages(one_f_one_b)
def at_the_end(layers: list[float], ranks: list[float]) -> list[tuple[int, int]]:
    return [(0, 2), (2, 2), (1, 2)]


slow = Uneven(p2p=0, update=0, ranks=(1, 1.5, 1))
compare(
    in_the_middle=simulate(in_the_middle, ranks=3, layers=6, batches=5, costs=slow),
    at_the_end=simulate(at_the_end, ranks=3, layers=6, batches=5, costs=slow),
)

# %% [markdown]
# The slow rank computes the same in both. What differs is how long it waits for its first batch, and how much the
# others still have to do when it is done.
#
# ## In the lab
#
# You need not build a pipeline to ask what a slow rank does to it. `what_if` takes a run and times it anew, in the same
# order, as if something were faster, or slower: `faster=1 / 1.2` is a fifth slower. Here is the pipeline of this puzzle
# with four ranks that are all alike. **Guess first:** which rank would you slow down, if it had to be one? Write it down,
# and the next cell measures all four.

# %%
slowed = None  # your guess: 0, 1, 2 or 3
alike = Uneven(forward=0.2, backward=0.4, update=0, p2p=0)
five_each = stages(one_f_one_b)(lambda layers, ranks: [5, 5, 5, 5])
even = simulate(five_each, ranks=4, layers=20, batches=8, costs=alike)
for rank in range(4) if slowed is not None else ():
    print(str(what_if(even, rank=rank, faster=1 / 1.2)).splitlines()[0])

# %% [markdown]
# <details><summary>What it prints</summary>
#
# On ranks 0 to 3 the step takes 36, 36.6, 37.2 and 37.8 instead of 33: equal steps, and the last rank is the worst place.
# A slow rank takes 0.6 longer for each microbatch, 4.8 for all eight. On the last rank all 4.8 delay the step. On the
# first only 3 do, those of five microbatches; the other three may be late.
#
# </details>
#
# What may be late without delaying the step has **slack**, and you have measured which ranks have it. But `what_if`
# only times an order that is there. It cannot give the slow rank less to do; you can.

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches | forward | backward | messages, updates | rank 3 |
# |---|---|---|---|---|---|---|
# | 4 | 20 | 8 | 0.2 a layer | 0.4 a layer | free | takes 1.2 times as long |
#
# So a stage of five layers takes 1 forward and 2 backward, and 1.2 and 2.4 on rank 3. Messages are **free**, so it
# makes no difference whether they are awaited or posted.
#
# **Given:** the order of 1F1B, and `ranks`, which says how slow each rank is: 1, 1, 1, 1.2. (`layers` says how heavy
# each layer is. Here all are alike, so it is 1 everywhere.)
#
# **To do:** say for each stage its rank and how many layers it has.
#
# **Rules**
#
# - Each rank has one stage, and each layer is on one stage, in order.
# - The first two goals need a pencil. For the last one there are 969 cuts and four places for rank 3: let the loop
#   below the goals try those that seem good to you.
# - Time is what counts. The goals leave enough memory for any sensible answer.

# %% [markdown]
# ### Predict first
#
# If all four ranks were equally fast, the step would take 33: that of the first batch, 4 · 3, and 3 for each of the
# seven others. With the slow rank at the end, five layers on each, you have measured 37.8. Put it where you like, and
# give it fewer layers, if you like: what is the best that you can reach?

# %%
guess = predict("straggler", end=...)
guess

# %% [markdown]
# ### The goal
#
# Rank 3 where it stands, five layers on each rank, ends at 37.8 and does not pass. The limits answer your prediction,
# so guess first.

# %%
goal("straggler")


# %%
def ends(placement: list[tuple[int, int]]) -> float:
    """When the step is over, with these stages."""
    tried = stages(one_f_one_b)(lambda layers, ranks: placement)
    return check(simulate(tried, puzzle="straggler")).time


for last in (4, 5, 6):
    placement = [(0, 5), (1, 5), (2, 10 - last), (3, last)]
    print(placement, ends(placement))

# %% [markdown]
# <!-- part: hints -->


# %%
@stages(one_f_one_b)
def straggler(layers: list[float], ranks: list[float]) -> list[tuple[int, int]]:
    # For each stage its rank and how many layers it has: (3, 5) is rank 3, five layers.
    # --- your code (about 1 line) ---
    return [(0, 6), (1, 6), (3, 3), (2, 5)]
    # --- end of your code ---


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(straggler, puzzle="straggler")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>Where do these numbers come from?</summary>
#
# **Where rank 3 stands**, with five layers on each rank. It computes for 8 · 3 · 1.2 = 28.8, wherever it is. As the
# last stage it waits 3 until the first batch has come through the other three, and when it is done its last gradient
# goes back through them, 6 more: 28.8 + 9 = 37.8. As the first stage it can begin at once, and no rank waits for what
# it does last. It waits only while batches are on their way through the others, which are quicker: 7.2 in all, and
# 28.8 + 7.2 = 36.0. In between there are 36.6 and 37.2.
#
# **How many layers.** A rank that is slow should have less to do. But who gets what you take from it? A layer more on
# the last stage would be 4.8 more there, and the last stage has no time to spare. So give it to the first ones. With
# 6, 6, 3, 5 the first two have most to do, 8 · 3.6 = 28.8 each, the last one 24, and rank 3 in between has 8 · 1.8 ·
# 1.2 = 17.28. With three layers rank 3 is the *fastest* of the four, so it need not be in front any more: the front
# belongs to the stage with the most work, slow machine or not. (Most of the gain comes from the place: 37.8 to 36.0.
# The search over all splits adds 1.3 %.)
#
# There are 969 ways to cut 20 layers into four stages, and four places for rank 3. None of them ends before 35.52.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="straggler")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### What would a repair bring?
#
# Now ask of your best run what ByteDance asked of its jobs: what if rank 3 were as fast as the others? `what_if` times
# the same run anew. And with five layers everywhere and rank 3 at the end? **Guess first:** in which of the two does
# the repair gain more?

# %%
if out:
    five_each = [(rank, 5) for rank in range(4)]
    at_the_back = stages(one_f_one_b)(lambda layers, ranks: five_each)
    last = simulate(at_the_back, puzzle="straggler")
    for name, models in {"yours": out, "rank 3 last": last}.items():
        print(f"{name}:", str(what_if(models, rank=3, faster=1.2)).splitlines()[0])

# %% [markdown]
# A repair would gain 4.8 at the end of the pipeline. The best placement gains 2.28 of these, without a repair.
#
# Why so much at the end? Follow the **critical path**: the operations that wait for each other from the beginning of a
# run to its end. Only what is on it can make the step shorter. What has no slack must not be late at all.

# %%
if out:
    for name, models in {"yours": out, "rank 3 last": last}.items():
        print(f"{name}:", critical_path(models), "", sep="\n")

# %% [markdown]
# At the end all that rank 3 does is on it. In the best placement the path runs mostly through a rank that is fast, and few
# passes of rank 3 have no slack: the others may be late.

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# A placement for unequal machines. Let *w* be what a stage takes for one of *B* microbatches, forward and backward,
# on its rank. No pipeline of this kind ends before
#
# ```
# for each stage: what lies before it, there and back, for one batch; and all of its own   sum(w before) + B·w
# ```
#
# Every stage has such a limit, and the largest counts. For the first stage there is nothing before it. The later a
# stage, the larger the first term, so the smaller *w* should be. 1F1B does not always get there: with rank 3 in front
# the largest limit is 33.6, and the run ends at 36, because stage 0 has only four microbatches in flight. **Slack** is
# what may be late. With equal stages and at least *R* microbatches, *R* - 1 - *s* of those on stage *s* have it: three
# on stage 0, none on the last.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *What-if analysis.* ByteDance took five months of traces from its training cluster and simulated each job without
#   its stragglers. One finding: hardware faults are only one of many causes [@lin2025]. `puzzles what-if straggler
#   --rank 3 --faster 2` asks the same of your run.
# - *Slack by that name.* Wu and others define the slack between two stages as how many more forwards the first one
#   runs in its warm-up. When a link gets slow, they give the pipeline more of it there [@wu2025].
# - *Ask before you start.* DLRover lets every node run a small task before training, to find the slow ones. Before
#   that, people bisected by hand [@dlrover_688] [@dlrover_718].
# - *Why the first stages have it.* In 1F1B a stage has as many batches in flight as there are stages from it to the
#   end [@narayanan2021]. While one of them is late, the first stage has three others to go on with, the last none.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - Messages are free. With messages that take time, the way there and back uses up the slack of the first stages.
# - The rank is slow all the time. Real stragglers come and go, so you would not move layers by hand: the machine is
#   replaced, or gets less work automatically.
# - Data parallel ranks wait for each other, too. A slow rank in one of 128 pipelines slows down all 128.

# %% [markdown]
# ## Questions to think about
#
# **1.** Rank 3 takes twice as long, not 1.2 times. Five layers on each rank: what is the difference between the first
# stage and the last?
#
# <details><summary>Answer</summary>
#
# 51 in front, and 57 at the end. At the end it is 48 of work and the same 9 that every last stage has before and
# behind it. In front only 3 come on top of the 48.
#
# </details>
#
# **2.** How far is 35.52 from the best that any placement could do?
#
# <details><summary>Answer</summary>
#
# Rank 3 does 1/1.2 of the work of another, so together they are as fast as 3.83 ranks. The 20 layers and 8 batches
# are 96 time units of work, and 96 / 3.83 = 25.0. The rest, 10.5, is bubble, and no other placement of these stages
# has less. With four equally fast ranks it is 24 and 9.
#
# </details>
#
# **3.** What does the answer cost in memory?
#
# <details><summary>Answer</summary>
#
# The first stages have six layers now, and the most batches in flight: 7,995,392 elements on rank 0, instead of
# 6,684,672. Time and memory want opposite things here: the stages with time to spare are those with no memory to
# spare.
#
# </details>
#
# ## Where this leads
#
# You have moved stages and layers, and the order stayed 1F1B. One more thing can be moved: half of every backward is
# in no hurry at all.

# %% [markdown]
# <!-- part: links -->
