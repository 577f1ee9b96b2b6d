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
# Take GPipe once more, on 4 ranks with 8 microbatches. Rank 3 has nothing to do until the first microbatch has passed
# three stages, and rank 0 waits as long at the end. With 16 stages and 32 microbatches a third of the time is lost
# that way. You could take more microbatches. But there are only so many sequences in a batch.
#
# So make the way shorter. Rank 3 waits for three whole stages. Cut every stage in two, and give each rank two short
# ones that are *not* neighbours. Now the first microbatch is on rank 3 after three *half* stages. The literature
# calls such a short stage a **virtual stage** or a model chunk; PyTorch just calls it a stage.
#
# > **To tell a friend:** with two short stages on each rank instead of one long one, the pipeline fills in half the
# > time.
#
# *Reminder.* The **bubble** is the time that ranks spend waiting. A **microbatch** is a batch that travels alone.

# %%
from drawing import compare, draw
from lib import Costs, Model, check, goal, predict, schedule, simulate
from lib.schedules.formats.trace import order_of
from lib.schedules.pipelines.generators import gpipe as gpipe_order
from lib.schedules.pipelines.program import program_of
from lib.suite.course.solutions import run_of

# %% [markdown]
# ## The idea
#
# 8 layers, 4 ranks. Up to now rank 0 had layers 0 and 1, rank 1 had layers 2 and 3, and so on: 4 stages of two
# layers. Now there are 8 stages of one layer, and they go round twice, like a **loop**:
#
# | | rank 0 | rank 1 | rank 2 | rank 3 |
# |---|---|---|---|---|
# | first stage | 0 | 1 | 2 | 3 |
# | second stage | 4 | 5 | 6 | 7 |
#
# No rank has more layers than before. But a microbatch that leaves rank 3 has only seen half of the model. It goes
# back to rank 0, as if it were a new one, and round once more.
#
# ### Schedules as lists
#
# From here on you no longer write `forward`, `pass_to` and `del`: you know how. What is left is the question that
# pipelines are about: **which rank does what, and in which order?** Your 1F1B answers it. Here is its answer, read
# off its run. `2F1` is the forward of microbatch 1 on stage 2, and `2B1` its backward:

# %%
run, is_yours = run_of("one_f_one_b")
print("your 1F1B:" if is_yours else "our 1F1B (yours, once it passes):")
order = order_of(run)
for rank, words in enumerate(order):
    print(f"rank {rank}:", *words)

# %% [markdown]
# These lists are the whole schedule. `program_of` turns them into a program: it loads the layers of the stages, sends
# what another rank needs as soon as it is there, receives, adds up gradients, updates at the end, and deletes what is
# not needed any more. Is it the same run?

# %%
for name, models in {
    "the program": run,
    "its lists": simulate(program_of(order), layers=8, batches=8, ranks=4),
}.items():
    verdict = check(models)
    print(f"{name:12} ends at {verdict.time:g}, peak {verdict.memory:,.0f} elements")

# %% [markdown]
# From now on you answer with a list of words for each rank. They are PyTorch's words. Where a rank has only one
# stage, `F1` is enough. `@schedule` asks your function for the list of each rank, tells you if one is wrong, and
# makes the program. Here is GPipe:


# %%
@schedule(messages="posted")
def gpipe_as_a_list(rank, ranks, batches):
    return [f"F{b}" for b in range(batches)] + [f"B{b}" for b in range(batches)]


print("rank 0 of 4, 3 microbatches:", " ".join(gpipe_as_a_list(0, 4, 3)))
thirds = Costs(backward=2)
draw(simulate(gpipe_as_a_list, layers=8, batches=8, ranks=4, costs=thirds))

# %% [markdown]
# Two things are new, and they stay for the rest of the chapter.
#
# **Messages are posted.** Until now sender and receiver stood still while a message travelled: it was *awaited*. That
# is simple, and large pipelines avoid it where they can. Here every receive is issued as early as possible, and all
# ranks go on computing while messages travel. This GPipe ends at 69.4; with awaited messages it would end at 75. Twice
# as many stages send twice as many messages, so from now on this matters.
#
# **A backward takes 2.** It multiplies twice, a forward once: once for the gradient of its input (`I`), once for the
# gradient of its weight (`W`). So F = I = W = 1 for each layer, as in most papers on schedules.

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches | stages |
# |---|---|---|---|
# | 4 | 8 | 8 | 8: rank *r* has stages *r* and *r + 4* |
#
# **Given:** the decorator, and the numbers of the two stages of a rank.
#
# **To do:** the list of what this rank does. As in GPipe: all forwards, then all backwards. A rank takes *all*
# microbatches through one of its stages before it turns to the other.
#
# **Rules**
#
# - A layer takes 1 forward and 2 backward.
# - Messages are posted. They cost their ranks no time: the output of a pass is on the next rank 0.4 after the pass
#   ends.
# - You only give the order. It has every forward and every backward of each microbatch once, for both stages.

# %% [markdown]
# ### Predict first
#
# GPipe with one long stage on each rank ends at 69.4, and 49 of that is work. When will this one end? And what will
# the highest peak be: lower, the same, or higher than the 4,456,448 of GPipe?

# %%
guess = predict("breadth_first", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

# %%
goal("breadth_first")

# %% [markdown]
# <!-- part: hints -->


# %%
@schedule(messages="posted")
def breadth_first(rank, ranks, batches):
    first, second = rank, rank + ranks
    # Words such as f"{first}F{b}": the forward of microbatch b on your first stage.
    # --- your code (about 3 lines) ---
    forwards = [f"{stage}F{b}" for stage in (first, second) for b in range(batches)]
    backwards = [f"{stage}B{b}" for stage in (second, first) for b in range(batches)]
    return forwards + backwards
    # --- end of your code ---


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(breadth_first, puzzle="breadth_first")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# **Time.** Every rank computes 48 (8 microbatches, 2 layers, 1 forward and 2 backward), and then updates two layers:
# 49. Waiting comes on top. The first microbatch is on rank 3 after three forwards of 1 and three messages of 0.4: 4.2.
# From there on rank 3 always has something to do. When it is done, the last gradient still goes through three
# backwards of 2, with three messages: 7.2. Together 49 + 4.2 + 7.2 = 60.4. With long stages the passes on the way take
# twice as long: 49 + 7.2 + 13.2 = 69.4.
#
# **Memory.** When rank 3 begins with its first backward, it has the inputs of two layers for 8 microbatches, and the
# outputs of the last one, for which the loss is still to come, as in GPipe. Two short stages are as large as one long
# one, so the peak is the same: 4,456,448.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="breadth_first")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### Two stairs, half as deep
#
# The same work, the same memory. Look at the left edge: with long stages each rank begins 2.4
# after the one before it, with short ones 1.4 after it.

# %%
gpipe = simulate(gpipe_as_a_list, layers=8, batches=8, ranks=4, costs=thirds)
compare(gpipe=gpipe, breadth_first=out) if out else None

# %% [markdown]
# ### Is it still right when messages are awaited?
#
# Here are both again, but now sender and receiver stand still, 0.2 each. Your list is the same.

# %%
if out:
    awaited = schedule(messages="awaited")
    sizes = {"layers": 8, "batches": 8, "ranks": 4, "costs": thirds}
    waiting = simulate(awaited(breadth_first.__wrapped__), **sizes)
    one_stage = simulate(program_of(gpipe_order(4, 8), messages="awaited"), **sizes)
    print(f"GPipe         {one_stage[0].time:g}\nbreadth-first {waiting[0].time:g}")

# %% [markdown]
# A lead of 9 has shrunk to 2.6. The bubble is as small as before, but each microbatch crosses seven borders instead of
# three, and both ranks stop at each of them. More stages pay only if messages travel while ranks compute.

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Looped breadth-first**: *looped*, because the virtual stages go round the ranks more than once, and
# *breadth-first*, because all microbatches take one stage before any of them takes the rank's next one. With *V*
# stages of one layer on each of *R* ranks, *B* microbatches, and messages that are posted (*V* at least 2, *R* at
# least 3, *B* at least 1.4 · *R*):
#
# ```
# time = 3·V·B + (R - 1)·(3 + 0.8) + 0.5·V
# peak = (2·V + 1)·W + (V + 1)·B·A
# ```
# The first term is work, and the second one the bubble. Cut the same layers into long stages, and the 3 in it becomes
# 3·*V*: all layers of a rank, there and back. Without messages twice as many stages are half the bubble. The peak still
# grows with *B*, as in GPipe. That is the next thing to fix.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *Who came up with it.* Looped pipelines are from Megatron-LM, in another order [@narayanan2021] (the next puzzle).
#   Breadth-first is from a paper of 2022: with small batches, where the bubble hurts most, it trained a model of 52
#   billion parameters up to 43 % faster than Megatron-LM's order [@lamypoirier2022].
# - *Why that order.* All microbatches take a stage one after the other. If its weights are sharded, they are gathered
#   once for each direction, not once for each microbatch. That is puzzle $number_breadth_first_fsdp.
# - *In PyTorch* it is `ScheduleLoopedBFS`. Its words are those of your list.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - A message takes 0.4 and costs no rank anything. Real sends take some of a GPU's memory bandwidth, and a few of its
#   multiprocessors.
# - The link between ranks 3 and 0 is like all others. In a real cluster it may cross more switches.
# - A stage of half the size is as efficient as a whole one.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why must the second stage of rank 0 be stage 4? What if rank 0 had stages 0 and 1, rank 1 stages 2 and 3?
#
# <details><summary>Answer</summary>
#
# Then the two are one long stage in two pieces, and breadth-first takes all eight microbatches through the first
# piece before any of them goes through the second. Rank 1 gets its first microbatch after nine forwards of rank 0,
# and so on: 132.4 instead of 60.4. Virtual stages have to go round, so that every rank has something to do early.
#
# </details>
#
# **2.** PyTorch's `ScheduleLoopedBFS` takes the backwards from the last microbatch to the first. Does that change
# anything?
#
# <details><summary>Answer</summary>
#
# Try it: `reversed(range(batches))`. Neither the time nor the peak changes, because all microbatches are alike, and
# all are in flight when the first of them goes back. All that changes is which microbatch the ranks wait for at the
# turn.
#
# </details>
#
# **3.** Four virtual stages on each rank would need 16 layers. How large would the bubble be, and what stops you from
# taking as many stages as there are layers?
#
# <details><summary>Answer</summary>
#
# A quarter of GPipe's, as far as computing goes, which brings the end from 136.4 to 109.4. But the 0.4 of each message
# stays: with 16 layers the bubble is 3 · (12 + 0.8) for GPipe, 3 · (6 + 0.8) for two stages, and 3 · (3 + 0.8) for
# four. Each halving brings less, and doubles the messages. That is the price of virtual stages: the bubble divided by
# *V*, the traffic multiplied by *V* [@narayanan2021].
#
# </details>

# %% [markdown]
# ## Where this leads
#
# You have halved the bubble, and the memory is still that of GPipe: all microbatches are in flight at once. 1F1B
# fixed that for one stage a rank. Can you take turns with two?

# %% [markdown]
# <!-- part: links -->
