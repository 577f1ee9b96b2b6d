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
# Llama 3 405B has 126 layers, on a pipeline of 16 ranks. Why 126, and not 128, which would be 8 for each? Because a
# model is more than its layers. Before the first one comes the **embedding**, a table that turns each token into a
# vector. After the last one come the **head**, which turns each vector into 128,256 logits, and the loss. Some rank
# has to hold them. So the first and the last stage got one layer less [1].
#
# Most of us cannot choose how many layers our model has. Then some stage gets more than the others, and the pipeline
# goes at the pace of the slowest: one layer too many on one of 16 GPUs, and the other 15 wait for it in every
# microbatch.
#
# > **To tell a friend:** a pipeline is as fast as its heaviest stage, and the first and the last stage carry
# > something that is not counted as a layer.
#
# *Reminder.* In a **pipeline** each rank has some consecutive layers, its **stage**. You balanced stages in puzzle
# $number_uneven by measured weights; here is the rule that a trainer uses when it only knows the number of layers.
# The first stage reads the data, the last one computes the loss.

# %%
from itertools import pairwise

from drawing import picture_of
from lib import check_function, goal
from lib.cluster.stages import Stages

# %% [markdown]
# ## The idea
#
# A **split point** is the number of the first layer of a stage. The first stage begins at layer 0, which needs no point;
# so 4 stages have 3 of them. Here are 8 layers with the split points 2, 4 and 6:

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
# This is how torchtitan, PyTorch's own trainer, split models from October 2024 on [2], and OLMo-core has the same
# rule [3].
#
# Look at the other end. The last stage has no extra layer either. Is that part of the rule?

# %% [markdown]
# ## The puzzle
#
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
# ### Predict first
#
# 11 layers on 4 stages. Which split points? And which stage is the heaviest one, if the embedding and the head are counted
# as a layer each?
#
# <details><summary>Answer</summary>
#
# Every stage has 2, and 3 are left, for stages 1, 2 and 3. The split points are 2, 5 and 8, the same as for 10
# layers: the eleventh goes to the end. With embedding and head the stages carry 3, 3, 3 and **4**. The rule spares
# the last one only while the remaining layers do not reach it.
#
# </details>

# %% [markdown]
# ### The goal
#
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
# <!-- part: hints -->


# %%
def split_layers(layers, stages):
    # What every stage has, what is left, and where each stage but the last one ends.
    # --- your code (about 8 lines) ---
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
# Passed? Then `reveal("split_layers")`, in a cell of its own, shows the official solution. (`from lib import reveal` first.)

# %% [markdown]
# ### See what it is for
#
# How good is the rule? That depends on the weight of the two ends. In time the embedding weighs nothing: it looks up
# a row. The head is a matrix product over the whole vocabulary, whether the model has 32 layers or 126. In
# parameters, and so in time, it is as heavy as **2.4** layers of Llama 3 8B, 1.2 of the 70B, and 0.66 of the 405B.
# `lost` is how much longer the pipeline takes for each microbatch than with the best split there is. Change the
# numbers and run it again.


# %%
def best(layers, stages, before, after):
    """How heavy the heaviest stage of the best split is: the first weight with which all layers find a place."""
    ends = [before, *[0] * (stages - 2), after]

    def room(most):
        """For how many layers there is room, if no stage is heavier than this."""
        return sum(int(most - extra + 1e-9) for extra in ends)

    weights = sorted({count + extra for count in range(layers + 1) for extra in ends})
    return next(most for most in weights if most >= max(ends) and room(most) >= layers)


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
        print(f"{name:<5}  {layers:>6}  {after:>4}  {stages:>6}  {most:>8.4g}  {ideal:>4.3g}  {lost:>4}")
    points = [0, *split_layers(11, 4), 11]
    cut = [range(*ends) for ends in pairwise(points)]
    title = "11 layers: the last stage has 3, and the head"
    picture = picture_of(Stages([[0], [1], [2], [3]], cut, ENDS, title=title))
picture

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# torchtitan's first answer to "please find the split points for me", of October 2024 [2]. With q = layers // stages and r
# = layers % stages:
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
# Half a year later it was replaced. Now the embedding and the head count as layers, one each or as many as you say;
# the sum is divided evenly, and each end gets that many layers less [4]. That is Meta's 126 = 16 · 8 - 2, turned into
# a rule.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *Two layers less.* Llama 3 left out one layer at each end of its pipeline [1].
# - *How heavy is the head?* For Llama 3 405B it is 128,256 · 16,384 = 2.1 billion numbers, two thirds of one of its layers
#   (3.2 billion). For the 8B it is 128,256 · 4,096 = 525 million, and a layer has 218 million.
# - *Time and memory differ.* The embedding is as large as the head and needs as much memory, with its gradients and
#   its optimizer state. But it computes next to nothing. So spare the *last* stage for time, and both for memory.
# - *Uneven models.* From two devices and one microbatch to eight devices and 32, GPipe got 6.3 times as fast with a
#   Transformer, whose layers are all alike, and only 3.5 times with AmoebaNet, whose layers are not [5].
# - *What you can set.* torchtitan has an option for how many layers the first stage has less, and one for the last
#   [4].
#
# [1] Grattafiori et al., *The Llama 3 Herd of Models*, 2024, [arXiv 2407.21783](https://arxiv.org/abs/2407.21783).
# [2] pytorch/torchtitan, [pull request 604](https://github.com/pytorch/torchtitan/pull/604), 2024.
# [3] allenai/OLMo-core,
# [config.py](https://github.com/allenai/OLMo-core/blob/main/src/olmo_core/train/train_module/transformer/config.py).
# [4] pytorch/torchtitan, [pull request 1103](https://github.com/pytorch/torchtitan/pull/1103), 2025, and
# [pipeline_parallel.py](https://github.com/pytorch/torchtitan/blob/main/torchtitan/distributed/pipeline_parallel.py).
# [5] Huang et al., *GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism*, 2019, [arXiv
# 1811.06965](https://arxiv.org/abs/1811.06965).

# %% [markdown]
# ## What is simplified here
#
# All layers are alike here. In a real model some are mixtures of experts and some are not, or some attend to the
# whole text and others to a window; then you measure, and split by the measured times. And memory wants another split
# than time: with 1F1B the first stage has the most microbatches in flight, so it runs out first.

# %% [markdown]
# ## Questions to think about
#
# **1.** `torch.chunk` cuts a tensor of 10 rows into 4 pieces as 3 3 3 1. How good is that for a pipeline?
#
# <details><summary>Answer</summary>
#
# It would be as slow as with 3 3 2 2, since only the heaviest stage counts. But the first stage would carry 3 layers and
# the embedding, so 4 in all, where the rule of this puzzle needs 3. And for 9 rows it gives 3 3 3 0: a stage without a
# layer, which does nothing but pass on messages.
#
# </details>
#
# **2.** For 8 layers on 4 stages: find the split that is best if the embedding and the head weigh a layer each. How much
# faster is the pipeline?
#
# <details><summary>Answer</summary>
#
# 10 layers' worth on 4 stages is 2.5 each, so some stage has to carry 3: no split of whole layers is faster than 2 2
# 2 2, which carries 3 2 2 3. With 6 layers it works out: 8 in all, 2 each, as 1 2 2 1. Look what the rule gives for 6
# layers!
#
# </details>
#
# **3.** Interleaved schedules cut the model into more stages than there are ranks. 32 layers, 8 ranks, 2 stages each:
# does that make the rule better or worse?
#
# <details><summary>Answer</summary>
#
# Coarser: 16 stages of 2 layers. The last stage carries 2 and the head, half as much again as the others, where with
# 8 stages it carries 4 and the head, a quarter more. But its rank has another, lighter stage as well, and 2 + 2 and
# the head are the same 5. What counts for the pace is the rank; what counts for the order of the microbatches is the
# stage.
#
# </details>
#
# **4.** Give Llama 3 405B one layer more: 127 on 16 ranks. What does the rule do, and what would you do?
#
# <details><summary>Answer</summary>
#
# 127 = 16 · 7 + 15, so 15 layers are left for the 15 stages from the second on, and the last one carries 8 layers and
# the head, 8.66 in all. Give that layer to the *first* stage, and no stage carries more than 8: each microbatch is 8
# % faster, since the embedding costs no time. The rule spares the wrong end.
#
# </details>
#
# ## Where this leads
#
# The model is split. If there are more stages than ranks, which rank gets which? There are two famous answers.

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
    if answer == [0, *expected] or answer == [*expected, layers]:
        return "the first stage begins at 0 and the last one ends with the model: neither is a split point"
    points, right = [0, *answer, layers], [0, *expected, layers]
    sizes = [end - begin for begin, end in pairwise(right)]
    if answer == sizes:
        return f"these are the sizes of the stages; stage 1 begins at layer {expected[0]}" if expected else False
    if len(answer) != len(expected):
        return f"{counted(stages, 'stage')} {'have' if stages > 1 else 'has'} {counted(stages - 1, 'split point')}; this has {len(answer)}"
    stage = next(stage for stage in range(stages) if points[stage + 1] != right[stage + 1])
    size, left = divmod(layers, stages)
    more = f"{left} left, for {'stage 1' if left == 1 else f'stages 1 to {left}'}" if left else "nothing left"
    begin, end = right[stage], right[stage + 1] - 1
    has = f"layer {begin}" if begin == end else f"layers {begin} to {end}"
    return f"every stage has {size}, with {more}: stage {stage} has {has}"


def split_layers_picture(answer, expected, layers, stages):
    points = [0, *(expected if answer is None else answer), layers]
    ranges = [range(begin, end) for begin, end in pairwise(points)]
    right = [0, *expected, layers]
    wrong = [stage for stage, mine in enumerate(ranges) if mine != range(right[stage], right[stage + 1])]
    if answer is not None and (len(ranges) != stages or any(not mine for mine in ranges)):
        raise ValueError("no split of these layers")
    title = f"{counted(layers, 'layer')}, {counted(stages, 'stage')}: "
    title += "what would be right" if answer is None else "what your function says"
    return Stages([[stage] for stage in range(stages)], ranges, ENDS, wrong, title)
