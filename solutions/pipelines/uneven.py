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
# It is late with every microbatch, and since the others need its gradients, so are they. Three of the four GPUs wait
# for the fourth almost a quarter of the time.
#
# > **To tell a friend:** a pipeline is as fast as its slowest stage. Make any other stage faster, and it just waits
# > longer.
#
# *Reminder.* A **stage** is the run of layers that a rank owns. In 1F1B each rank takes turns, one forward, one
# backward.

# %%
from itertools import combinations, pairwise

from drawing import compare, draw, picture_of
from lib import Model, Uneven, check_function, goal, predict, simulate, stages
from lib.cluster.layouts import Stages
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
# of 1. `ranks` says how slow each rank is: here all are alike, 1, 1, 1, 1, and on a rank of 2 everything would
# take twice as long.
#
# **To do:** return how many layers each stage has, from the first to the last. For the last goal find the cut: the
# check also tries other heavy layers, other numbers of ranks, and a slow rank.
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
# Stages of equally many layers pass. The limits answer your prediction, so guess first.

# %%
goal("uneven")

# %% [markdown]
# <!-- part: hints -->


# %%
@stages(one_f_one_b)
def uneven(layers: list[float], ranks: list[float]) -> list[int]:
    # For each stage how many layers it has: with 3, 3, 2, 2 the last has layers 8 and
    # 9. The check also tries other layers and ranks: write a search, not a list.
    # --- your code: uneven (about 7 lines) ---
    def heaviest(cut: tuple[int, ...]) -> float:
        ends = pairwise([0, *cut, len(layers)])
        stages = zip(ranks, ends, strict=True)
        return max(slow * sum(layers[begin:end]) for slow, (begin, end) in stages)

    cuts = combinations(range(1, len(layers)), len(ranks) - 1)
    ends = [0, *min(cuts, key=heaviest), len(layers)]
    return [end - begin for begin, end in pairwise(ends)]
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
# **Time.** A batch takes 2 · 12 = 24 there and back, and 2.4 for messages. The other seven follow at the pace of one
# stage: 2 · 3 for the work, and about 0.8 for messages. With 3, 3, 2, 2 the last stage weighs 4, and the pace is 2 · 4.
#
# **Memory.** Rank 0 has the highest peak: four batches in flight, of three inputs each, and as many weights as any
# rank: 9 · 262,144 for weights, states and gradients, 13 · 131,072 for those inputs and an output that is passed on.
# The heavy layer is on rank 3, where only one batch is in flight.
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
mine = uneven(weights, [1] * 4) if out else []
for counts in ([3, 3, 2, 2], mine) if out else ():
    print(counts)
    for stage, count in enumerate(counts):
        first = sum(counts[:stage])
        print(f"  stage {stage}", "█" * 6 * sum(weights[first : first + count]))


# %%
@stages(one_f_one_b)
def as_most_programs_do(layers: list[float], ranks: list[float]) -> list[int]:
    return [3, 3, 2, 2]


compare(
    equally_many=simulate(as_most_programs_do, puzzle="uneven"), yours=out
) if out else None

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
# nearly everything. Trying all cuts is over quickly here, with 84 of them; 126 layers on 16 ranks have 9 · 10¹⁸. Finding
# the partition with the smallest maximum is an old problem with a fast answer: guess a maximum, fill the stages from
# the first to the last as far as it allows, see whether the layers fit, and bisect.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *Llama 3 405B* has 126 layers, two fewer than 128. Its first and its last stage have one layer less than the
#   others, because the first also has the embedding, and the last the head and the loss [@llama3].
# - *What imbalance costs.* In the GPipe paper a Transformer, whose layers are all alike, runs 6.3 times as fast on 8
#   stages with 32 microbatches as on 2 stages with one. AmoebaNet, an image model of very different layers, runs 3.48
#   times as fast [@huang2019].
# - *Slow without a fault.* ByteDance searched five months of its training runs for stragglers. Hardware faults are
#   not the only reason; among the others is a pipeline whose stages are unequal [@lin2025].
#
# <!-- references -->

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
# **1.** Suppose all ten layers weigh 1. Is it better to have the longer stages first (3, 3, 2, 2), or last (2, 2, 3,
# 3)?
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
# The layers were uneven, and you knew it beforehand. What if a *rank* is slow? That is puzzle $number_straggler.

# %% [markdown]
# ## Deeper: when you only know how many layers there are
#
# A second puzzle, of about 15 minutes. You may skip it. A trainer that starts a run has no measured weights, only the
# number of layers. So it needs a rule. A **split point** is the number of the first layer of a stage. The first stage
# begins at layer 0, which needs no point; so 4 stages have 3 of them. Here are 8 layers with the split points 2, 4 and
# 6:

# %%
ENDS = ("embedding", "head")
cut = [range(0, 2), range(2, 4), range(4, 6), range(6, 8)]
picture_of(Stages([[0], [1], [2], [3]], cut, ENDS, title="8 layers"))

# %% [markdown]
# Nothing to decide. But with 10 layers every stage gets 2, and 2 are left. Which stage gets one more? Not the first,
# which has the embedding. So: **hand out the remaining layers one by one, starting with the second stage.**

# %%
cut = [range(0, 2), range(2, 5), range(5, 8), range(8, 10)]
picture_of(Stages([[0], [1], [2], [3]], cut, ENDS, title="10 layers"))

# %% [markdown]
# This is how torchtitan, PyTorch's own trainer, split models from October 2024 on [@torchtitan_604], and OLMo-core has
# the same rule.
#
# Look at the other end. The last stage has no extra layer either. Is that part of the rule?

# %% [markdown]
# Write `split_layers(layers, stages)`.
#
# **Given:** the number of layers of the model, and the number of stages.
#
# **To do:** return the list of the split points, from the second stage to the last.
#
# **Rules**
#
# - Every stage has `layers // stages` layers. The remaining ones are handed out one by one, starting with the second
#   stage.
# - Every stage has at least one layer. Where that is impossible, and where there is no stage at all, raise a
#   `ValueError`.

# %% [markdown]
# ### Predict
#
# 11 layers on 4 stages. Which split points? And which stage is the heaviest one, if the embedding and the head are
# counted as a layer each?
#
# <details><summary>Answer</summary>
#
# Every stage has 2, and 3 are left, for stages 1, 2 and 3. The split points are 2, 5 and 8, the same as for 10
# layers: the eleventh goes to the end. With embedding and head the stages carry 3, 3, 3 and **4**. The rule spares
# the last one only while the remaining layers do not reach it.
#
# </details>

# %% [markdown]
# | layers | stages | split points | layers of each stage |
# |---|---|---|---|
# | 8 | 4 | 2 4 6 | 2 2 2 2 |
# | 10 | 4 | 2 5 8 | 2 3 3 2 |
# | 11 | 4 | 2 5 8 | 2 3 3 3 |
# | 6 | 4 | 1 3 5 | 1 2 2 1 |
# | 12 | 8 | 1 3 5 7 9 10 11 | 1 2 2 2 2 1 1 1 |
# | 3 | 4 | `ValueError` | |
#
# Your function is tried on every number of layers up to 24, on every number of stages, and on larger models. After a
# wrong answer you see the smallest input that it fails on, as a picture.

# %%
goal("split_layers")

# %% [markdown]
# <!-- part: hints split_layers -->


# %%
def split_layers(layers, stages):
    # What every stage has, what is left, and where each stage but the last one ends.
    # --- your code: split_layers (about 8 lines) ---
    if not 1 <= stages <= layers:
        raise ValueError(f"{layers} layers cannot be cut into {stages} stages")
    size, left = divmod(layers, stages)
    points, end = [], 0
    for stage in range(stages - 1):
        end += size + (1 if 1 <= stage <= left else 0)
        points.append(end)
    return points
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(split_layers, puzzle="split_layers")
verdict

# %% [markdown]
# ### See what it is for
#
# How good is the rule? That depends on the weight of the two ends. In time the embedding weighs nothing: it looks up
# a row. The head is a matrix product over the whole vocabulary, whether the model has 32 layers or 126. In
# parameters, and so in time, it is as heavy as **2.4** layers of Llama 3 8B, 1.2 of the 70B, and 0.66 of the 405B.
# `lost` is how much longer the pipeline takes for each microbatch than with the best split there is. Change the
# numbers and run it again. (What the best split weighs is worked out in the folded cell.)


# %% jupyter={"source_hidden": true}
def best(layers, stages, before, after):
    """How heavy the heaviest stage of the best split is: the first weight with which
    all layers find a place."""
    ends = [before, *[0] * (stages - 2), after]

    def room(most):
        """For how many layers there is room, if no stage is heavier than this."""
        return sum(int(most - extra + 1e-9) for extra in ends)

    weights = sorted({count + extra for count in range(layers + 1) for extra in ends})
    return next(most for most in weights if most >= max(ends) and room(most) >= layers)


# %%
picture = None
if verdict:
    before, models = 0, {"8B": (32, 2.4), "70B": (80, 1.2), "405B": (126, 0.66)}
    print("model  layers  head  stages  heaviest  best  lost")
    for name, stages in (("8B", 4), ("8B", 8), ("8B", 16), ("70B", 16), ("405B", 16)):
        layers, after = models[name]
        points = [0, *split_layers(layers, stages), layers]
        carries = [end - begin for begin, end in pairwise(points)]
        carries[0], carries[-1] = carries[0] + before, carries[-1] + after
        most, ideal = max(carries), best(layers, stages, before, after)
        lost = f"{most / ideal - 1:.0%}"
        asked = f"{name:<5}  {layers:>6}  {after:>4}  {stages:>6}"
        print(f"{asked}  {most:>8.4g}  {ideal:>4.3g}  {lost:>4}")
    points = [0, *split_layers(11, 4), 11]
    cut = [range(*ends) for ends in pairwise(points)]
    title = "11 layers: the last stage has 3, and the head"
    picture = picture_of(Stages([[0], [1], [2], [3]], cut, ENDS, title=title))
picture

# %% [markdown]
# <details><summary>What you built: open this when your function passes</summary>
#
# torchtitan's first answer to "please find the split points for me", of October 2024 [@torchtitan_604]. With q = layers
# // stages and r = layers % stages:
#
# ```
# stage 0               q         it has the embedding
# stages 1 to r         q + 1
# the rest              q
# ```
#
# Its comment says that the stages in the *middle* get the extra layers. The code does something else: it hands them
# out from the second stage on, and with r = stages - 1 the last one gets one, too. If the embedding and the head
# weigh a layer each, no split is better: a test of this puzzle tries them all. But the rule does not know that the
# head of a small model weighs 2.4 layers. Then the last stage is the slowest, and the pipeline takes 16 to 47 %
# longer than necessary.
#
# Half a year later it was replaced. Now the embedding and the head count as layers, one each or as many as you say; the
# sum is divided evenly, and each end gets that many layers less [@torchtitan_1103]. That is Meta's 126 = 16 · 8 - 2,
# turned into a rule.
#
# </details>

# %% [markdown]
# ### Questions about the rule
#
# **1.** `torch.chunk` cuts a tensor of 10 rows into 4 pieces as 3 3 3 1. How good is that for a pipeline?
#
# <details><summary>Answer</summary>
#
# It would be as slow as with 3 3 2 2, since only the heaviest stage counts. But the first stage would carry 3 layers
# and the embedding, so 4 in all, where the rule of this puzzle needs 3. And for 9 rows it gives 3 3 3 0: a stage
# without a layer, which does nothing but pass on messages.
#
# </details>
#
# **2.** Give Llama 3 405B one layer more: 127 on 16 ranks. What does the rule do, and what would you do?
#
# <details><summary>Answer</summary>
#
# 127 = 16 · 7 + 15, so 15 layers are left for the 15 stages from the second on, and the last one carries 8 layers and
# the head, 8.66 in all. Give that layer to the *first* stage, and no stage carries more than 8: each microbatch is 8
# % faster, since the embedding costs no time. The rule spares the wrong end.
#
# </details>

# %% [markdown]
# <!-- part: links -->

# %% tags=["judge"]
from random import Random

from lib.errors.wording import counted


def split_layers_inputs():
    for layers in range(25):
        yield from ((layers, stages) for stages in range(layers + 2))
    yield 3, -1
    random = Random(0)
    for _ in range(150):
        stages = random.randint(1, 40)
        yield random.randint(max(1, stages - 3), 200), stages


def split_layers_accepts(answer, layers, stages):
    """False, or what is wrong: there is one right answer."""
    try:
        expected = split_layers(layers, stages)
    except ValueError:
        return False
    if not isinstance(answer, list) or any(type(point) is not int for point in answer):
        return False
    if stages == 1:
        return "one stage has no split point: neither its beginning nor its end is one, nor how many layers it has"
    if answer == [0, *expected] or answer == [*expected, layers]:
        return "the first stage begins at 0 and the last one ends with the model: neither is a split point"
    points, right = [0, *answer, layers], [0, *expected, layers]
    sizes = [end - begin for begin, end in pairwise(right)]
    if answer == sizes:
        return (
            f"these are the sizes of the stages; stage 1 begins at layer {expected[0]}"
        )
    if len(answer) != len(expected):
        return f"{counted(stages, 'stage')} {'have' if stages > 1 else 'has'} {counted(stages - 1, 'split point')}; this has {len(answer)}"
    stage = next(
        stage for stage in range(stages) if points[stage + 1] != right[stage + 1]
    )
    size, left = divmod(layers, stages)
    more = (
        f"{left} left, for {'stage 1' if left == 1 else f'stages 1 to {left}'}"
        if left
        else "nothing left"
    )
    begin, end = right[stage], right[stage + 1] - 1
    has = f"layer {begin}" if begin == end else f"layers {begin} to {end}"
    return f"every stage has {size}, with {more}: stage {stage} has {has}"


def split_layers_picture(answer, expected, layers, stages):
    points = [0, *(expected if answer is None else answer), layers]
    ranges = [range(begin, end) for begin, end in pairwise(points)]
    right = [0, *expected, layers]
    wrong = [
        stage
        for stage, mine in enumerate(ranges)
        if mine != range(right[stage], right[stage + 1])
    ]
    if answer is not None and (
        len(ranges) != stages or any(not mine for mine in ranges)
    ):
        raise ValueError("no split of these layers")
    title = f"{counted(layers, 'layer')}, {counted(stages, 'stage')}: "
    title += "what would be right" if answer is None else "what your function says"
    return Stages([[stage] for stage in range(stages)], ranges, ENDS, wrong, title)
