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
# Your zero bubble had a catch. It filled the end of the step, and left the beginning: rank 0 sends its microbatches
# down the pipeline and then waits until the first gradient has come all the way back. ZB-H2 fills that wait with more
# microbatches, and pays with twice the memory.
#
# A V does it for free. Each rank has an early stage *and* a late one, so the microbatch that it sends down comes up
# again on the same rank, and is work to do. What fills the wait is not a new microbatch: it is the second half of one
# that is under way. With eight microbatches on four ranks, 1F1B of this model takes 66, and interleaved 1F1B 57. How
# far down can you get, in no more memory than interleaved needs?
#
# > **To tell a friend:** in a V the first rank is also the last one. What it keeps for long on the way down, it keeps
# > only for a moment on the way up, and so all ranks hold the same.
#
# *Reminder.* `F` is a forward, `I` the input half of the backward (the rank before waits for it), `W` the weight half
# (it can wait). A **virtual stage** is one of several stages on a rank.

# %%
from drawing import compare, draw, picture_of
from lib import Costs, Model, check, goal, predict, schedule, simulate
from lib.cluster.layouts import Stages
from lib.schedules.given import in_phases
from lib.schedules.pipelines.generators import interleaved as interleaved_order
from lib.schedules.pipelines.generators import one_f_one_b as one_f_one_b_order
from lib.schedules.pipelines.generators import zb_h1 as zb_h1_order
from lib.schedules.pipelines.program import program_of

# %% [markdown]
# ## The idea
#
# Eight virtual stages on four ranks. Rank *r* has stage *r*, on the way **down**, and stage 7 - *r*, on the way **up**:

# %%
layout = [(0, 7), (1, 6), (2, 5), (3, 4)]
picture_of(Stages(layout, title="A V: down through all ranks, and up again"))

# %% [markdown]
# Follow the first microbatch, with F = I = W = 1 on every virtual stage and messages that cost nothing. Rank 0 takes it
# down at time 0, rank 3 at time 3. Rank 3 takes it up at once, and at time 7 it is back on rank 0, which has the loss.
# There it can begin the backward at once: at time 8.
#
# **Predict:** between its first `F` and the moment when the first microbatch comes up again, how many more microbatches
# can rank 0 take down? And rank 3?
#
# <details><summary>Answer</summary>
#
# Rank 0 has the times 1 to 6: six more, seven with the first. Rank 3 gets its first microbatch at time 3 and can take
# it up at time 4: none more, so one in all.
#
# </details>
#
# Such an order is best written in **phases**. Each says how often, and then what: `(3, "Fd Fu")` is `Fd Fu` three times.
# `Fd` is a forward on the rank's stage of the way down, and `Fu` one on that of the way up; `Id`, `Wd`, `Iu` and `Wu`
# are the halves of their backwards. Each word takes the next microbatch of its kind, and is left out when there is none
# left. `in_phases(rank, ranks, batches, phases)` turns phases into the list of a rank, with stages and microbatches:
# `3I0` is the input half of microbatch 0 on stage 3. For rank 0 of two, with two microbatches:

# %%
print(*in_phases(0, 2, 2, [(1, "Fd"), (3, "Fd Fu"), (2, "Iu")]))

# %% [markdown]
# ## The puzzle
#
# | ranks | layers | batches | stages |
# |---|---|---|---|
# | 4 | 8 | 8 | 8: rank *r* has stages *r* and 7 - *r* |
#
# **Given:** the decorator, and `in_phases`.
#
# **To do:** the phases of this rank.
#
# **Rules**
#
# - F, I and W take 1 each on a stage. Messages are posted. Neither they nor the update take time: only the order counts.
# - Every rank does `F`, `I` and `W` of each microbatch once, on both of its stages.
# - What a microbatch leaves on a stage stays until its weight half is over, and so does the gradient that it needs.

# %% [markdown]
# ### Predict first
#
# Two stages, eight microbatches, three passes of 1 each: every rank has 48 to do. When can the last rank begin? So when
# is the step over, if that rank does not wait once it has begun?

# %%
guess = predict("zb_v", end=...)
guess

# %% [markdown]
# ### The goal
#
# A step passes if it needs no more time and memory than interleaved 1F1B: 57, and 3,670,016 elements. In the last goal
# the last rank never waits, whatever the number of ranks: the check tries other sizes.

# %%
goal("zb_v")

# %% [markdown]
# <!-- part: hints -->


# %%
@schedule(messages="posted")
def zb_v(rank, ranks, batches):
    # How often, and what? Begin as you predicted, and end with what no rank waits for.
    # --- your code (about 9 lines) ---
    phases = [
        (2 * (ranks - rank) - 1, "Fd"),  # until the first microbatch comes up again
        (rank, "Fu Fd"),  # until its gradient comes back
        # Nothing new goes down before the first gradient does.
        (ranks - rank, "Fu Iu Wu"),
        (batches - ranks, "Fd Id Wd Fu Iu Wu"),
        (batches, "Id Iu"),  # the forwards are over: the others wait for these
        (batches, "Wd Wu"),
    ]
    return in_phases(rank, ranks, batches, phases)
    # --- end of your code ---


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(zb_v, puzzle="zb_v")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# **Time.** The first microbatch is on rank 3 at time 3, and not earlier, and rank 3 has 2 · 8 · 3 = 48 to do: 51. So no
# schedule on these stages is faster.
#
# **How often.** Rank *r* begins at *r*, and its first microbatch comes up at 2*R* - 1 - *r*: that leaves 2(*R* - *r*) -
# 1 forwards down. Its gradient takes 2*r* more, there and back to rank 0: *r* times up and down. Then *R* - *r*
# times up and at once back, `Fu Iu Wu`, before the first gradient is there for `Id`, and from there each turn has all
# six passes.
#
# **Memory.** After the first two phases a rank has done 2(*R* - *r*) - 1 + 2*r* = 2*R* - 1 forwards, and *r* cancels
# out: early ranks hold much on the way down and little on the way up, late ranks the other way round, and all hold
# equally many. The rest is weight halves that wait at the end, with an input and a gradient each.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="zb_v")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### Beside the others
#
# The same model, the same costs. Look at the holes on the left and on the right, and at the bars of memory.

# %%
free = Costs(backward=2, update=0, p2p=0)
sizes = {"layers": 8, "batches": 8, "ranks": 4, "costs": free}
others = {
    "1F1B": one_f_one_b_order(4, 8),
    "interleaved": interleaved_order(4, 8),
    "ZB-H1": zb_h1_order(4, 8),
}
runs = {}
for name, order in others.items():
    runs[name] = simulate(program_of(order, messages="posted"), **sizes)
    verdict = check(runs[name])
    print(f"{name:12} ends at {verdict.time:g}, peak {verdict.memory:,.0f} elements")

# %%
compare(zb_h1=runs["ZB-H1"], zb_v=out) if out else None

# %% [markdown]
# ## Further: a forward beside a backward
#
# The last rank does not wait any more. But inside the passes of a real model there is communication, too: an expert
# layer sends its tokens away and gets them back, and meanwhile the GPU has nothing to multiply. In your steady phase
# each turn has a forward of one way beside a backward of the other. They are of different microbatches, so neither
# needs the other: done at the same time, each can compute while the tokens of the other one travel. That is
# **DualPipe-V**, and puzzle $number_dualpipe_v.

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **ZB-V**, of *Zero Bubble Pipeline Parallelism* (2023), in PyTorch `ScheduleZBVZeroBubble`. With *R* ranks, *B*
# microbatches and F = I = W on each of two virtual stages a rank, and messages that take no time:
#
# ```text
# 1F1B           6·B + 6·(R - 1)     a microbatch takes 6 on a rank: F, I and W, on both of its stages
# interleaved    6·B + 3·(R - 1)     the same on one of them
# ZB-V           6·B + (R - 1)       one F: so much later the last rank begins
# ```
#
# What stands beside 6·*B* is the **bubble**, which no number of microbatches makes smaller.
#
# It holds while F, I and W take equally long. Where they do not, the order still works, with small gaps, or a search
# finds a better one for the times that were measured. Nor is a V always faster than a loop: the gallery's interleaved
# zero bubble ends at 51, too, and with an F of 2 it ends at 70 and ZB-V at 72.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *What it brings.* ZB-H2 needs twice the activation memory of 1F1B for a bubble of zero. ZB-V was made to get there
#   in the memory of 1F1B [@qi2023, section 6]. Your step holds a little more, as an input and a gradient stay until
#   the weight half: in a real layer that is a small part of what a forward leaves.
# - *Who uses the V.* PyTorch has ZB-V and DualPipe-V, and lays their stages out as a V by itself [@pytorch_schedules].
# - *DeepSeek-V3* was trained with DualPipe, two pipelines through the same 16 ranks in opposite directions, and a
#   forward of one beside a backward of the other to hide the all-to-alls of its experts [@deepseek_v3, section 3.2].
#   Folding it in the middle gives DualPipe-V, with one copy of the weights instead of two [@dualpipe].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - F, I and W are equal. In a transformer attention has no weight half, so I is longer than W.
# - Messages cost nothing. With real ones each phase of the beginning gets a little longer, and a V has two kinds of
#   messages on each link: activations that come up and gradients that come up too.
# - An activation is all that a forward leaves. In a real layer it leaves much more, and a deferred weight half less.

# %% [markdown]
# ## Questions to think about
#
# **1.** Leave the third phase out, and begin at once with `Fu Iu Wu Fd Id Wd` in turn. What happens?
#
# <details><summary>Answer</summary>
#
# 99 instead of 51: the first gradient is not there yet on the way down, so `Id` makes the rank wait, and with it all
# the passes behind it that could be done. An order is only as good as its first wait.
#
# </details>
#
# **2.** At the end, take everything in turn as before (`Id Wd Iu Wu`), and not the input halves first. What do you
# lose?
#
# <details><summary>Answer</summary>
#
# A weight half before an input half makes each gradient one later on each rank that it passes: the step ends at 54. It
# is the same idea as in "Zero bubble": first what others wait for.
#
# </details>
#
# **3.** The review still finds a rank that waits, though not the last one: rank 0 at time 41. Which passes would you
# move, so that no rank waits from its first pass to its last?
#
# <details><summary>Answer</summary>
#
# When the forwards are over, the last gradients come down to rank 0 one at a time, and it has nothing else to do but
# weight halves. Rank 3 gets its gradients from itself, so its weight halves can all wait. Instead of
# `(batches, "Id Iu")`:
#
# ```python
# (rank, "Id Iu"), (ranks - 1 - rank, "Iu Id Wd"), (batches, "Id Iu"),
# ```
#
# Then rank *r* works from *r* to *r* + 48 without a break. The step ends at 51 all the same.
#
# </details>
#
# **4.** Why can ZB-H1 not do this, with the same memory?
#
# <details><summary>Answer</summary>
#
# In a plain pipeline the first gradient reaches rank 0 after a forward *and* a backward through all other ranks. To
# fill that time it needs new microbatches, and each of them costs memory. In a V the last stage is on rank 0: the way
# up is work that frees memory soon after.
#
# </details>
#
# ## Where this leads
#
# The last rank has no hole left between its passes. The holes inside them are next: puzzle $number_dualpipe_v. And [the
# gallery](../00_gallery.ipynb) has all orders that have a name, with sliders for their times: find out when yours is
# not the best.

# %% [markdown]
# <!-- part: links -->
