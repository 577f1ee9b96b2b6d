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
# # The gallery: pipelines on one axis
#
# Between GPipe (2018) and DualPipe (2024) lie a dozen papers about the same question: in which order does a GPU take
# what comes by? Each has a name, a picture and a way of counting of its own. Here they all are on one time axis,
# counted in one way.
#
# **Seven of them are one loop.** A rank takes some forwards to warm up, then forwards and backwards in turn, then the
# backwards that are left. Four sliders say how:
#
# | slider | what it says |
# |---|---|
# | stages of a rank | how many stages a rank has; they go round like a loop |
# | microbatches in a row | how many take one stage before the rank turns to its next |
# | forwards ahead | how many more forwards a rank has done before its first backward, for each rank that follows |
# | weight halves | whether the backward is split, and how far its weight halves lag behind, for each rank before |
#
# Each forward, input half and weight half takes 1 for a whole rank's share of the layers, so a backward takes 2, as on
# real GPUs. Messages take no time. Memory is counted in **microbatches**: the activations of one microbatch for all
# layers of a rank.

# %%
from drawing import draw_gallery
from lib import schedule
from lib.schedules.gallery import gallery

draw_gallery(gallery(ranks=4, batches=8, chunks=(1, 2)))

# %% [markdown]
# ## Things to find
#
# Try to say what will happen before you move a slider.
#
# **1.** Begin with GPipe. Which single slider turns it into 1F1B? What changes, and what does not?
#
# <details><summary>Answer</summary>
#
# *Forwards ahead*, from everything to 1. The end stays at 33, and so does the bubble, 27.3 %. The peaks go down from 8,
# 8, 8, 8 to 4, 3, 2, 1.
#
# </details>
#
# **2.** From 1F1B: make the bubble smaller with one slider, and without more memory. There are two ways.
#
# <details><summary>Answer</summary>
#
# Two *stages of a rank*: 28.5. Or *weight halves* 1 behind, which is ZB-H1: 27. The highest peak stays at 4 in both,
# but all ranks come closer to it: what the later ranks did not need is now used.
#
# </details>
#
# **3.** Now both at once. Can you get below 26, with peaks of at most 4?
#
# <details><summary>Answer</summary>
#
# Two stages, four in a row, 1 ahead, 1 behind: the interleaved zero bubble, 25.5. ZB-V, which the sliders cannot make,
# is as good. And it has been proved that no schedule with two stages a rank does better in that memory.
#
# </details>
#
# **4.** ZB-H2 ends when ZB-H1 ends, and takes much more memory. Why would you want it? (There are two bubbles in
# the figures.)
#
# <details><summary>Answer</summary>
#
# Look at the second one, of a rank's own time: 0 %. Each rank works without a gap from its first action to its last.
# They only begin and end at different times. In training one step follows the next, so a rank that ends early begins
# early. If nothing forces the ranks to wait for each other between two steps (no norm of all gradients, no check for
# overflow), then all of that time is won.
#
# </details>
#
# **5.** Find a position of the sliders in which the ranks wait for each other in a circle. Can you see from the message why?
#
# <details><summary>Answer</summary>
#
# For example two stages, two in a row, 2 ahead: fewer microbatches go round than there are ranks on the way. To run
# further ahead a rank wants microbatches that cannot have come round yet.
#
# </details>
#
# **6.** Who needs the least memory? What does it cost?
#
# <details><summary>Answer</summary>
#
# V-min, with 2: half of 1F1B's first rank. And still it ends at 29.5, earlier than 1F1B. In a V each rank has one stage
# that holds its activations for long, and one that holds them only briefly.
#
# </details>

# %% [markdown]
# ## When messages take time
#
# The same with messages of 0.2 that travel while ranks compute, and again with messages for which both sides stand still,
# each for half of that time. Compare 1F1B with the interleaved one.

# %%
for messages in ("posted", "awaited"):
    found = gallery(ranks=4, batches=8, chunks=(1, 2), message=0.2, messages=messages)
    print(f"{found.world()}:")
    for name, piece in found.named().items():
        end = "waits for room" if piece.timed is None else f"{piece.timed.end:6.2f}"
        print(f"    {name:26} {end}")

# %% [markdown]
# ## Beat it
#
# In the page above, the line on the plane of time and memory is proved: a solver has shown that no schedule of that
# kind is to its left. Where a dot does not touch the line, the best schedule is not known, or
# only the solver has found it.
#
# Write one of your own. It begins as 1F1B. Then run both cells, and find it in the page under the name *yours*.


# %%
@schedule(messages="posted")
def yours(rank, ranks, batches):
    ahead = ranks - 1 - rank
    order = [f"F{b}" for b in range(min(ahead, batches))]
    for b in range(batches):
        if b + ahead < batches:
            order.append(f"F{b + ahead}")
        order.append(f"B{b}")
    return order


# %%
draw_gallery(
    gallery(ranks=4, batches=8, chunks=(1, 2), own={"yours": yours.order(4, 8)})
)

# %% [markdown]
# Larger ones are made by a command: `puzzles schedule gallery --ranks 8 --batches 16 -o gallery.html`.

# %% [markdown]
# ## What is simplified here
#
# - All stages are alike, and all microbatches.
# - Only activations are counted. Weights, gradients and optimizer states are the same in all of these, except that
#   the original DualPipe has two copies of the weights; its V, shown here, has one.
# - An activation is there from the start of its forward to the end of its backward, or of its weight half.
# - DualPipe's point is to hide communication between experts behind computation. There is none here.

# %% [markdown]
# <!-- part: links -->
