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
# In 2021 Megatron-LM ran a model of a trillion parameters on 3,072 A100s, with a pipeline of 64 ranks. It had 512
# microbatches, so even GPipe and 1F1B would wait only 11 % of the time there. But keep the batch and take four times
# the GPUs, 24 pipelines instead of 6: 128 microbatches each, and a third of the time is bubble.
#
# 1F1B fixed the memory, virtual stages the bubble. Now do both at once. What is "one forward, one backward" when a
# rank has two stages, and a microbatch comes by four times?
#
# > **To tell a friend:** interleaving takes a few microbatches at a time all the way round before it lets in the next
# > few. Half the bubble, and the number in flight does not grow with the batch.

# %%
from drawing import compare, draw
from lib import Costs, Model, check, goal, predict, schedule, simulate
from lib.schedules.pipelines.generators import breadth_first as breadth_first_order
from lib.schedules.pipelines.generators import one_f_one_b as one_f_one_b_order
from lib.schedules.pipelines.program import program_of

# %% [markdown]
# ## The idea
#
# Here are your last two schedules, for 8 microbatches on 4 ranks. Messages are **posted**: they travel while their
# ranks compute. A layer takes 1 forward and 2 backward.

# %%
sizes = {"layers": 8, "batches": 8, "ranks": 4, "costs": Costs(backward=2)}
orders = {"1F1B": one_f_one_b_order(4, 8), "breadth-first": breadth_first_order(4, 8)}
runs = {}
for name, order in orders.items():
    runs[name] = simulate(program_of(order, messages="posted"), **sizes)
    verdict = check(runs[name])
    print(f"{name:14} ends at {verdict.time:g}, peak {verdict.memory:,.0f} elements")

# %% [markdown]
# One is lean, the other is fast. Breadth-first must hold everything, because *all* microbatches take the first stage
# before any of them takes the second, so none is back early.
#
# So take fewer at a time: a **group** of as many microbatches as there are ranks. Microbatches 0 to 3 go through
# stage 0, and then at once through stage 4. When rank 0 is done with the fourth on stage 0, the first is about to
# come back from rank 3, for stage 4. After that, microbatches 4 to 7 do the same. The forwards of rank 0 are
#
# ```text
# 0F0 0F1 0F2 0F3   4F0 4F1 4F2 4F3   0F4 0F5 0F6 0F7   4F4 4F5 4F6 4F7
# ```
#
# and its backwards follow the same pattern, stage 4 first. What is left to decide is **how to merge the two lists.**
#
# As in 1F1B: a warm-up of some forwards, then a forward and a backward in turn, then the backwards that are left.
# Only the length of the warm-up is new. **Predict:** how many forwards must rank 3 have done, at least, before it can
# do its first backward?
#
# <details><summary>Answer</summary>
#
# Its first backward is `7B0`, of its second stage. Before it comes `7F0`, and before that the four forwards of
# stage 3. So five: a warm-up of four, and the fifth is the forward of its first turn.
#
# </details>
#
# And the rank before it? In 1F1B it was one more. **Predict again:** how many more here? Follow one turn of rank 3. Its
# forward is done on rank 2 first, and its backward is done on rank 2 afterwards. How long does that take, from the
# beginning of the first to the end of the last of these four passes, with messages of 0.4? If it is longer than rank 2
# has something to do, rank 2 waits, turn after turn. A turn takes 3. With a warm-up that is one forward longer, rank 2
# has two turns to fill that time; with each further forward it has one turn more.

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches | stages |
# |---|---|---|---|
# | 4 | 8 | 8 | 8: rank *r* has stages *r* and *r + 4* |
#
# **Given:** the decorator, the two stages of a rank, and the groups of microbatches: as many in each group as there
# are ranks.
#
# **To do:** the list of what this rank does, with a warm-up of your own.
#
# **Rules**
#
# - A layer takes 1 forward and 2 backward.
# - Messages are posted: the output of a pass is on the next rank 0.4 after the pass ends, and no rank stands still.
# - The list has every forward and every backward of each microbatch once, for both stages.

# %% [markdown]
# ### Predict first
#
# 1F1B ends at 73.4 and breadth-first at 60.4. Where will this one be? And which rank has the highest peak?

# %%
guess = predict("interleaved", end=..., rank=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

# %%
goal("interleaved")

# %% [markdown]
# <!-- part: hints -->


# %%
@schedule(messages="posted")
def interleaved(rank, ranks, batches):
    stages = (rank, rank + ranks)
    groups = [range(start, start + ranks) for start in range(0, batches, ranks)]
    # All forwards in their order, and all backwards in theirs. How long is the warm-up?
    # Then merge the two lists.
    # --- your code (about 10 lines) ---
    forwards = [f"{stage}F{b}" for group in groups for stage in stages for b in group]
    backwards = [
        f"{stage}B{b}" for group in groups for stage in reversed(stages) for b in group
    ]
    warm_up = ranks + 2 * (ranks - 1 - rank)
    order = forwards[:warm_up]
    for turn, backward in enumerate(backwards):
        # No forward, when there are no more.
        order += forwards[warm_up + turn : warm_up + turn + 1]
        order.append(backward)
    return order
    # --- end of your code ---


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(interleaved, puzzle="interleaved")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# **The warm-up.** The four passes and two messages take 1 + 1 + 2 + 2 + 0.8 = 6.8. Two turns take 6: too few. Three
# take 9. So each rank warms up with two forwards more than the next one.
#
# **Time.** Each rank works for 49, updates included, so all else is waiting. Rank 3 begins at 3 · 1.4 = 4.2, as in
# breadth-first, and when it is done the last gradient still has 3 · 2.4 = 7.2 to go. That makes 60.4. Our run ends at
# 63.6, so 3.2 are lost in between. A group of four keeps a rank busy for 4. But once round the loop, through four
# stages and four messages, takes 4 · 1.4 = 5.6. So rank 3 waits for 1.6 on the way in. Backwards keep it busy for 8,
# and the loop takes 4 · 2.4 = 9.6: it waits for 1.6 on the way out, too. In the middle it always has something of the
# other kind to do.
#
# **Memory.** Rank 0 warms up with 4 + 2 · 3 = 10 forwards, and one more comes in its first turn: 11 inputs of virtual
# stages, instead of the 16 of breadth-first. Rank 3 has 5. These are 1F1B's stairs, a little longer.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="interleaved")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### Three schedules, one below the other

# %%
before, after = runs["1F1B"], runs["breadth-first"]
compare(one_f_one_b=before, interleaved=out, breadth_first=after) if out else None

# %% [markdown]
# ### One loop, two sliders
#
# Two numbers describe all these schedules: how many microbatches take a stage in a row (the **group**), and how many
# more forwards a rank does in its warm-up than the next one (**ahead**). Here are some, for 4 ranks, 2 stages each, 8
# microbatches.

# %%
from lib.schedules.pipelines.generators import in_turn

for group in (4, 8) if out else ():
    for ahead in (1, 2, None):
        order = in_turn(4, 8, chunks=2, group=group, ahead=ahead)
        verdict = check(simulate(program_of(order, messages="posted"), **sizes))
        name = f"groups of {group}, {'everything' if ahead is None else ahead} ahead"
        print(f"{name:30} ends at {verdict.time:4g}, peak {verdict.memory:,.0f}")

# %% [markdown]
# Which of these would you train with? And why do *groups of 8, 1 ahead* hold more than *2 ahead*, with a shorter warm-up?
#
# <details><summary>Answer</summary>
#
# Megatron-LM's choice is *groups of 4, 2 ahead*: 63.6, and only 3,670,016. For 262,144 elements more, *groups of 8, 2
# ahead* ends with breadth-first, at 60.4. Llama 3 made the group free for that reason: if you have memory to spare,
# take a larger one.
#
# With 1 ahead rank 0 falls behind the others, and gradients pile up there: six have arrived and wait for their
# backward, where with 2 ahead three do.
#
# </details>
#
# ### And when messages are awaited?
#
# Then sender and receiver stand still for 0.2 each, and an interleaved pipeline has twice as many messages.

# %%
for batches in (4, 8, 16):
    line = []
    for name, order in (
        ("1F1B", one_f_one_b_order(4, batches)),
        ("interleaved", in_turn(4, batches, chunks=2, ahead=2)),
    ):
        for messages in ("awaited", "posted"):
            program = program_of(order, messages=messages)
            run = simulate(program, **sizes | {"batches": batches})
            line.append(f"{name} {messages} {check(run).time:g}")
    print(f"{batches:2} microbatches: {', '.join(line)}")

# %% [markdown]
# With 16 microbatches and awaited messages 1F1B wins, 129 to 130.4. The bubble that interleaving saves does not grow
# with the number of microbatches, and the time in which ranks stand still for messages does.

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Interleaved 1F1B**, Megatron-LM's *virtual pipeline*. Its warm-up is `ranks + 2 · (ranks - 1 - rank)` forwards
# with two stages a rank, and `(V - 1) · ranks` instead of `ranks` with *V*. With *V* stages of one layer on each of
# *R* ranks (3 or more), *B* microbatches (a multiple of *R*, and more than *R*), and messages that are posted:
#
# ```
# time = 3·V·B + (R - 1)·(3 + 0.8) + 0.8·R·(V - 1) + 0.5·V
# peak = 3·V·W + (R·(V + 1) + 4)·A
# ```
#
# The third term of the time is the way round that a group of *R* does not fill, and with messages that take no time
# it is gone. There is no *B* in the peak. Rank 0 has R · (V + 1) - 1 virtual stages in flight, 11 of the 16 here.
# Divide by *V* to compare with 1F1B's *R* long ones: 5.5 instead of 4. Half the bubble for a little more memory.
#
# If messages took no time, 1 ahead would be as fast as 2 (both end at 58), with 8 virtual stages in flight instead
# of 11. The second forward is there for the message alone. Above you see what happens without it: 70 instead of 63.6.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *What it brings.* Megatron-LM measured at least 10 % more throughput than with 1F1B, and another 11 % from sending
#   each message only once to a host and spreading it there [@narayanan2021].
# - *At the largest size.* A model of a trillion parameters on 3,072 A100s, 64 pipeline ranks of 8 GPUs, 6 pipelines
#   with 512 microbatches each: 163 TFLOP/s on each GPU, 52 % of the peak. (Recomputed work counts: HFU, not MFU.)
#   [@narayanan2021]
# - *Llama 3 405B in torchtitan,* 512 H100s with float8: from 100 tokens a second on each GPU with 1F1B to 128. The peak
#   fell from 82.5 to 72.7 GiB [@torchtitan_llama3_h100], although you have just seen that interleaving holds *more*
#   activations. The table does not say why; something else must have changed, too.
# - *Uneven on purpose.* Llama 3 put one layer less on the first and the last stage, which also have the embedding and
#   the head [@llama3].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - Messages take 0.4 whatever else is on the link. With twice the traffic that is optimistic.
# - Megatron-LM sends and receives in pairs at fixed points of its loop. Here each message leaves when it is ready.

# %% [markdown]
# ## Questions to think about
#
# **1.** What happens with 3 forwards ahead for each rank that follows?
#
# <details><summary>Answer</summary>
#
# A deadlock. Rank 0 would warm up with 13 forwards, and its first turn would be `4F5`, and then `4B0`. For `4F5` it
# needs `3F5` of rank 3. But rank 3 does that right after `3B0`, for which it needs `4B0` of rank 0. Each waits for
# the other. A group of eight makes room for it.
#
# </details>
#
# **2.** The groups have as many microbatches as there are ranks. Why not fewer, say 2?
#
# <details><summary>Answer</summary>
#
# Because the loop is longer than that: after two microbatches on stage 0, rank 0 would turn to stage 4, and the first
# of them is still on rank 2. It waits at each turn. With one forward ahead the run ends at 83.6, later than 1F1B;
# with two ahead the ranks wait in a circle.
#
# </details>
#
# **3.** Megatron-LM used to refuse to interleave when the number of microbatches was not a multiple of the number of
# ranks. Could you do better with, say, 7 microbatches on 4 ranks?
#
# <details><summary>Answer</summary>
#
# You could let the last group be short: 4 and 3. Sometimes that works and leaves gaps, and sometimes the ranks
# deadlock. That is puzzle $number_ragged.
#
# </details>

# %% [markdown]
# ## Where this leads
#
# Both ways to shrink the bubble so far cost messages or memory. But look into a backward: it makes two gradients, one
# that the stage before is waiting for, and one that only the update reads. What if you split it?
#
# (And microbatches rarely come in multiples of the number of ranks. What happens to the groups then is a deeper
# puzzle.)

# %% [markdown]
# <!-- part: links -->
