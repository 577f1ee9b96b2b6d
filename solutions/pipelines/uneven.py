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
# At the very end Llama 3 8B computes 128,256 logits for each token, a score for every word. The matrix for that (the
# **head**) has as many parameters as 2.4 of its 32 layers. Put eight layers on each of four stages, and the last
# stage has 10.4 layers' worth of work.
#
# It is late with every microbatch, and since the others need its gradients, so are they. Three of the four GPUs spend
# the day waiting for the fourth.
#
# > **To tell a friend:** a pipeline is as fast as its slowest stage. Make any other stage faster, and it just waits
# > longer.
#
# *Reminder.* A **stage** is the run of layers that a rank owns. In 1F1B each rank takes turns, one forward, one backward.

# %%
from drawing import compare, draw
from lib import Model, Uneven, goal, predict, simulate, stages
from lib.schedules.pipelines.generators import one_f_one_b

# %% [markdown]
# ## The idea
#
# `one_f_one_b(ranks, batches)` gives the order of 1F1B as lists, one for each rank.

# %%
for rank, actions in enumerate(one_f_one_b(ranks=4, batches=6)):
    print(f"rank {rank}:", *actions)

# %% [markdown]
# (`2F1` is the forward of microbatch 1 on stage 2, `2B1` its backward.) An order does not say how many layers a stage
# has. Here you do. `@stages(one_f_one_b)` makes a pipeline of it, which runs, is checked and drawn like any other.
# Six layers, of which the last is as heavy as three, on three ranks, two layers each:


# %%
@stages(one_f_one_b)
def equally_many(layers: list[float], ranks: list[float]) -> list[int]:
    return [2, 2, 2]


heavy_head = Uneven(layers=(1, 1, 1, 1, 1, 3))
draw(simulate(equally_many, ranks=3, layers=6, batches=5, costs=heavy_head))

# %% [markdown]
# Rank 2 never stops, and the others keep waiting for it. **Predict:** what if rank 2 has only the heavy layer?
#
# <details><summary>Answer</summary>
#
# Then its stage weighs 3, and the others share five layers, 2 and 3. The slowest stage weighs 3 instead of 4, so each
# further batch takes a quarter less.
#
# </details>
#
# ## The puzzle
#
# | ranks | layers | batches | layers 0 to 8 weigh | layer 9 weighs |
# |---|---|---|---|---|
# | 4 | 10 | 8 | 1 | 3 |
#
# **Given:** the order of 1F1B. `layers` says how heavy each layer is: forward and backward of layer 9 take 3 instead
# of 1. (`ranks` says how slow each rank is. Here all are alike: 1, 1, 1, 1.)
#
# **To do:** return how many layers each stage has, from the first to the last.
#
# **Rules**
#
# - Each layer is on one stage, in order, and each stage has one layer or more. Stage 0 is on rank 0, and so on.
# - All messages are **awaited**, 0.2 on each side. Weights are equally large, and so are activations.

# %% [markdown]
# ### Predict first
#
# Ten layers on four ranks do not divide. Split evenly, the first ranks get one more: 3, 3, 2, 2. That ends at 86.7.
# What can you reach? And which rank will then have the highest peak?

# %%
guess = predict("uneven", end=..., rank=...)
guess

# %% [markdown]
# ### The goal
#
# Stages of equally many layers pass. The picture answers your prediction, so guess first.

# %%
goal("uneven")

# %% [markdown]
# <!-- part: hints -->


# %%
@stages(one_f_one_b)
def uneven(layers: list[float], ranks: list[float]) -> list[int]:
    # For each stage how many layers it has: with 3, 3, 2, 2 the last has layers 8 and 9.
    # --- your code (about 1 line) ---
    return [3, 3, 3, 1]
    # --- end of your code ---


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(uneven, puzzle="uneven")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>Where do these numbers come from?</summary>
#
# The layers weigh 12 together, so four equal stages weigh 3, and layer 9 alone weighs that. With 3, 3, 3, 1 they all
# do. No stage can be lighter without another one being heavier.
#
# **Time.** A batch takes 2 · 12 = 24 there and back, and 2.4 for messages. The other seven follow at the pace of one stage:
# 2 · 3 for the work, and about 0.8 for messages. With 3, 3, 2, 2 the last stage weighs 4, and the pace is 2 · 4.
#
# **Memory.** Rank 0 has the highest peak: four batches in flight, of three inputs each, and as many weights as any
# rank: 9 · 262,144 for weights, states and gradients, 13 · 131,072 for activations and a gradient. The heavy layer is
# on rank 3, where only one batch is in flight.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="uneven")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### The tall bar
#
# What each stage weighs, in both:

# %%
weights = [1] * 9 + [3]
for counts in ([3, 3, 2, 2], [3, 3, 3, 1]) if out else ():
    print(counts)
    for stage, count in enumerate(counts):
        first = sum(counts[:stage])
        print(f"  stage {stage}", "█" * 6 * sum(weights[first : first + count]))


# %%
@stages(one_f_one_b)
def as_most_programs_do(layers: list[float], ranks: list[float]) -> list[int]:
    return [3, 3, 2, 2]


compare(equally_many=simulate(as_most_programs_do, puzzle="uneven"), yours=out) if out else None

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# A **partition** of a model. With *w* what each stage takes for a microbatch, forward and backward together, and *B*
# microbatches, 1F1B takes about
#
# ```
# one batch through all stages, and the others behind it on the slowest     sum(w) + (B - 1)·max(w)
# ```
#
# and messages on top. You cannot change the first term; you can shrink the second, and with many microbatches it is
# nearly everything. Finding the partition with the smallest maximum is an old problem with a fast answer: guess a
# maximum, fill the stages from the first to the last as far as it allows, see whether the layers fit, and bisect.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *Llama 3 405B* has 126 layers, two fewer than 128. Its first and its last stage have one layer less than the
#   others, because the first also has the embedding, and the last the head and the loss [1].
# - *What imbalance costs.* In the GPipe paper a Transformer, whose layers are all alike, runs 6.3 times as fast on 8
#   stages with 32 microbatches as on 2 stages with one. AmoebaNet, an image model of very different layers, runs 3.48
#   times as fast [2].
# - *Slow without a fault.* ByteDance searched five months of its training runs for stragglers. Hardware faults are
#   not the only reason; among the others is a pipeline whose stages are unequal [3].
#
# [1] Grattafiori et al., *The Llama 3 Herd of Models*, 2024, [arXiv 2407.21783](https://arxiv.org/abs/2407.21783).
# [2] Huang et al., *GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism*, 2019, [arXiv
# 1811.06965](https://arxiv.org/abs/1811.06965).
# [3] Lin et al., *Understanding Stragglers in Large Model Training Using What-if Analysis*, OSDI 2025, [arXiv
# 2505.05713](https://arxiv.org/abs/2505.05713).

# %% [markdown]
# ## What is simplified here
#
# - The heavy layer takes longer, but no more memory. A real head is also large: its weight, gradient and optimizer
#   state take memory in proportion.
# - Forward and backward are heavier by the same factor.
# - Here the layers divide evenly by weight. In real models they never quite do.

# %% [markdown]
# ## Questions to think about
#
# **1.** Suppose all ten layers weigh 1. Is it better to have the longer stages first (3, 3, 2, 2), or last (2, 2, 3, 3)?
#
# <details><summary>Answer</summary>
#
# First, if it is time that counts: 67.1 against 70.6. Last, if it is memory: 3,276,800 elements against 4,063,232,
# because the first ranks have the most batches in flight, so a layer costs the most there. 2, 3, 3, 2 lies in
# between, with 68.6 and 3,670,016.
#
# </details>
#
# **2.** The heavy layer weighs 2 instead of 3: eleven units on four ranks. What now?
#
# <details><summary>Answer</summary>
#
# Some stage has to weigh 3, so 3, 3, 3, 1 and 3, 3, 2, 2 are equally good: 71.1, both of them. And 2, 3, 3, 2 ends at
# 72.6 with 393,216 elements less. When the weights do not divide evenly you can still choose.
#
# </details>
#
# **3.** Would you rather cut the heavy layer in two?
#
# <details><summary>Answer</summary>
#
# People do, but not across stages: tensor parallelism shards the head among the ranks of the last stage. That makes
# every layer lighter by the same factor, though, so the head stays as heavy as 2.4 layers. To make the last stage
# lighter you give it fewer layers.
#
# </details>
#
# ## Where this leads
#
# The layers were uneven, and you knew it beforehand. What if a *rank* is slow?

# %% [markdown]
# <!-- part: links -->
