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
# Of some ten thousand GPUs one has a fan full of dust. It gets warm, lowers its clock, and computes a fifth more slowly
# than the others. Nothing fails, and nobody is told. Only the step takes longer: for all ten thousand, since in the end
# everybody waits for everybody.
#
# You could replace it. That takes until tomorrow. But it is a *pipeline*: its ranks do not all do the same, and not all of them are in
# the same hurry. Where does a slow rank do the least harm?
#
# > **To tell a friend:** in a pipeline the first rank has time to spare, and the last has none. Put your slow machine where the
# > time is.
#
# *Reminder.* A **stage** is a run of layers, and it lies on a rank. Which stage lies on which rank is up to you.

# %%
from drawing import compare, draw
from lib import Model, Uneven, check, goal, predict, simulate, stages
from lib.schedules.pipelines.generators import one_f_one_b

# %% [markdown]
# ## The idea
#
# In this puzzle `@stages` takes pairs: for each stage, from the first to the last, its rank and how many layers it has. Three
# stages, three ranks, of which rank 1 takes half as long again as the others. First in the middle, then at the end:


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
# The slow rank computes the same in both. What differs is how long it takes until it has something to do, and how much is left
# for the others to do when it is done.
#
# ## The puzzle
#
# | ranks | layers | batches | forward | backward | messages, updates | rank 3 |
# |---|---|---|---|---|---|---|
# | 4 | 20 | 8 | 0.2 a layer | 0.4 a layer | free | takes 1.2 times as long |
#
# So a stage of five layers takes 1 forward and 2 backward, and 1.2 and 2.4 on rank 3. Messages are **free**, so that it makes
# no difference whether they are awaited or posted.
#
# **Given:** the order of 1F1B, and `ranks`, which says how slow each rank is: 1, 1, 1, 1.2. (`layers` says how heavy each layer is.
# Here all are alike, so it is 1 everywhere.)
#
# **To do:** say for each stage its rank and how many layers it has.
#
# **Rules**
#
# - Each rank has one stage, and each layer is on one stage, in order.
# - Time is what counts. The goals leave room for the memory of any sensible answer.

# %% [markdown]
# ### Predict first
#
# If all four ranks were equally fast, the step would take 33: that of the first batch, 4 · 3, and 3 for each of the seven
# others. What does it take when rank 3 is the last stage, five layers on each rank? It has 8 · 3 to compute, and everything that it
# computes takes a fifth longer. Write that down, and then predict what is the best that you can reach.

# %%
guess = predict("straggler", end=...)
guess

# %% [markdown]
# ### The goal
#
# Rank 3 where it stands, five layers on each rank, ends at 37.8 and does not pass. The picture answers your prediction, so
# guess first.

# %%
goal("straggler")

# %% [markdown]
# <!-- part: hints -->


# %%
@stages(one_f_one_b)
def straggler(layers: list[float], ranks: list[float]) -> list[tuple[int, int]]:
    # For each stage its rank and how many layers it has: (3, 5) are five layers on rank 3.
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
# **Where rank 3 lies**, with five layers on each rank. It computes for 8 · 3 · 1.2 = 28.8, wherever it is. As the last stage it
# waits 3 until the first batch has come through the other three, and when it is done its last gradient goes back through
# them, 6 more: 28.8 + 9 = 37.8. As the first stage it can begin at once, and nobody has to wait for what it does last. It waits
# only while batches are on their way through the others, which are quicker: 7.2 in all, and 28.8 + 7.2 = 36.0. In between
# there are 36.6 and 37.2.
#
# **How many layers.** A rank that is slow should have less to do. But who gets what you take from it? A layer more on the last stage
# would be 4.8 more there, and the last stage has no time to spare. So give it to the first ones. With 6, 6, 3, 5 the first two
# have most to do, 8 · 3.6 = 28.8 each, the last one 24, and rank 3 in between has 8 · 1.8 · 1.2 = 17.28.
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
# ### Where it lies
#
# Five layers on each rank, and the slow one on each stage in turn:

# %%
for stage in range(4) if out else ():
    order = [0, 1, 2]
    order.insert(stage, 3)
    place = stages(one_f_one_b)(lambda layers, ranks, order=tuple(order): [(rank, 5) for rank in order])
    print(f"rank 3 as stage {stage}: {check(simulate(place, puzzle='straggler')).time:g}")

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# A placement for machines that are not alike. With *B* microbatches and *w* for what a stage takes for one of them, there and back,
# on the rank where it lies, no pipeline of this kind ends before
#
# ```
# for each stage: what lies before it, there and back, for one batch, and all that it has to do itself     sum(w before) + B·w
# ```
#
# Every stage has such a limit, and the largest counts. For the first stage there is nothing before it. The further back a stage is,
# the larger is the first summand, so the smaller *w* should be. That is the **slack** of a stage: what it could be slower
# without anybody noticing. Stage 0 has the most of it, the last stage none.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *How common.* ByteDance looked for ranks that keep others waiting in five months of its training, and asked for each job what it
#   would have taken without them. Their finding: they are not always broken hardware, there are many other reasons [1].
# - *Slack, by its name.* A group at Hong Kong University of Science and Technology and Alibaba defines the slack between two stages as
#   how many more forwards the first one runs at the beginning. When a link gets slow, they give a pipeline more of it where it is
#   needed [2].
# - *Ask before you start.* DLRover lets every node run a small task before the training, to find the slow one among
#   them. Before that, people searched by hand, by bisection [3].
# - *Why the first stages have it.* In 1F1B a stage has as many batches open as there are stages from it to the end [4]: the first
#   can be late with one of four, the last with none.
#
# [1] Lin et al., *Understanding Stragglers in Large Model Training Using What-if Analysis*, OSDI 2025, arXiv 2505.05713.
# [2] Wu et al., *Straggler-Resilient Hybrid-Parallel Training with Pipeline Adaptation*, 2025, arXiv 2504.19232.
# [3] intelligent-machine-learning/dlrover, pull request 688. [4] Narayanan et al., *Efficient Large-Scale Language Model
# Training on GPU Clusters Using Megatron-LM*, 2021, arXiv 2104.04473.

# %% [markdown]
# ## What is simplified here
#
# - Messages are free. With messages that take time the slack of the first stages is used up by the way there and back.
# - The rank is slow in the same way all the time. Real ones come and go, so nobody moves layers by hand: machines are
#   exchanged, or other work is given to them.
# - Data parallel ranks wait for each other, too. A slow rank in one of 128 pipelines slows down all 128.

# %% [markdown]
# ## Questions to think about
#
# **1.** Rank 3 takes twice as long, and not 1.2 times. Five layers on each rank: what is the difference between the first stage and
# the last?
#
# <details><summary>Answer</summary>
#
# 51 in front, and 57 at the end. At the end it is 48 of work and the same 9 that every last stage has before and behind
# it. In front only 3 come on top of the 48. The slower a rank is, the more it matters where it is.
#
# </details>
#
# **2.** Is 35.52 far from what could be had?
#
# <details><summary>Answer</summary>
#
# Rank 3 does 1/1.2 of the work of another, so together they are as fast as 3.83 ranks. The 20 layers and 8 batches are 96 time units of
# work, and 96 / 3.83 = 25.0. The rest, 10.5, is the bubble, which no placing removes. With four equally fast ranks it
# is 24 and 9.
#
# </details>
#
# **3.** What does the answer cost in memory?
#
# <details><summary>Answer</summary>
#
# The first stages have six layers now, and the most open batches: 7,995,392 elements on rank 0, in place of 6,684,672.
# Time and memory want opposite things here: those with time to spare are those with no memory to spare.
#
# </details>
#
# ## Where this leads
#
# You have moved stages and layers about, and the order stayed 1F1B. There is one more thing that can be moved. Half of every
# backward is not in a hurry at all.

# %% [markdown]
# <!-- part: links -->
