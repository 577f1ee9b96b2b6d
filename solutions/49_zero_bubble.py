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
# 28.3 billion parameters, 32 A100s, 96 microbatches, 1F1B: each GPU learns from 0.76 samples a second, and 26.5 % of
# its time is bubble. The same model on the same GPUs, with nearly the same memory, in another order: 0.87 samples a
# second, and nearly half of the bubble is gone. With more memory 0.99, and a bubble of 0.4 %. No work was left out.
#
# There is a trick, and it is older than pipelines: look closely at what others are waiting for.
#
# > **To tell a friend:** the backward of a layer is two things. Somebody is waiting for one of them, and nobody for
# > the other. So do the other when you would otherwise wait.

# %%
from drawing import compare, draw
from lib import Model, check, goal, predict, schedule, simulate
from lib.schedules.pipelines.generators import one_f_one_b as one_f_one_b_order
from lib.schedules.pipelines.generators import zb_h2 as zb_h2_order
from lib.schedules.pipelines.program import program_of

# %% [markdown]
# ## The idea
#
# A layer computes `out = x @ w`. From the gradient of `out`, backward makes two products of matrices:
#
# ```text
# gradient of x = gradient of out @ w.T       the rank before waits for it
# gradient of w = x.T @ gradient of out       needed for the update, at the very end
# ```
#
# They need the same work, and neither needs the other. PyTorch does both in one call. Here they are one by one, on
# one device:


# %%
def in_halves(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    weights[0], opt_states[0] = model.load_weights(0)
    activations[0] = model.get_activation([0])
    activations[1] = model.forward(0, activations[0], weights[0])
    grad_activations[1] = model.loss(activations[1])
    grad_activations[0] = model.backward_input(0, activations[0], grad_activations[1], weights[0])
    # ... somebody could get grad_activations[0] now ...
    grad_weights[0] = model.backward_weight(0, activations[0], grad_activations[1])
    weights[0], opt_states[0] = model.update(0, grad_weights[0], weights[0], opt_states[0])
    model.set_final_weight(0, weights[0])


draw(simulate(in_halves, layers=1, batches=1, ranks=1))

# %% [markdown]
# Each half takes 0.5. In the words of orders they are `I3`, the **input half** of the backward of microbatch 3, and
# `W3`, its **weight half**. `B3` would be both at once.
#
# Now look at 1F1B, with messages that are **awaited** (0.2 for the sender, 0.2 for the receiver), and think of what
# is in the way.

# %%
one_f_one_b = simulate(program_of(one_f_one_b_order(4, 8)), layers=8, batches=8, ranks=4)
draw(one_f_one_b)

# %% [markdown]
# At the end everybody waits for gradients. Rank 0 gets its last one when three ranks have gone back through two
# layers each, and half of that was work that rank 0 does not need. It ends at 52.6.
#
# If all ranks do only the input halves on that way, each gradient is there earlier. The weight halves are left over.
# Where do they go? Into the holes. **Predict:** which rank can put off the most of them to the end, the first or the
# last?
#
# <details><summary>Answer</summary>
#
# The last. It sends off its last gradient when the others have yet to get it, and then it has nothing to do, so it
# has time for weight halves. When rank 0 gets its last gradient, everything but its own work is over, and each weight
# half that it has put off makes the step longer. So the later a rank, the more it puts off: rank *r* lags *r*
# microbatches behind.
#
# And memory? A microbatch stays open until its weight half is over. Rank 3 has one open microbatch in 1F1B and lags
# three behind, which makes four. Rank 0 has four and lags none behind. So now all ranks have four: what rank 0 had
# anyway. The others had that memory, and did not use it.
#
# </details>
#
# ## The puzzle
#
# | ranks | layers | batches | stages |
# |---|---|---|---|
# | 4 | 8 | 8 | 4: rank *r* has stage *r* |
#
# **Given:** how many forwards to warm up with, as in 1F1B.
#
# **To do:** the list of this rank: 1F1B with `I` and `W` in place of `B`. The weight halves of rank *r* lag *r*
# microbatches behind its input halves.
#
# **Rules**
#
# - Messages are awaited.
# - A microbatch's activations are there until its weight half is over, and so are the gradients that it needs.
# - Every rank does `F`, `I` and `W` of each microbatch once.

# %% [markdown]
# ### Predict first
#
# 1F1B ends at 52.6 with a peak of 2,752,512. When will it end with halves? And will the peak be higher?

# %%
guess = predict("zero_bubble", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach, and the run of a solution that reaches it. It answers your prediction as well, so guess first.

# %%
goal("zero_bubble")

# %% [markdown]
# <!-- part: hints -->


# %%
@schedule(messages="awaited")
def zero_bubble(rank, ranks, batches):
    ahead = min(batches, ranks - rank)
    order = [f"F{b}" for b in range(ahead)]
    # Then, for each batch: its input half, perhaps a weight half, perhaps a forward. Then the weight halves that are left.
    # --- your code (about 8 lines) ---
    for b in range(batches):
        order.append(f"I{b}")
        if b >= rank:
            order.append(f"W{b - rank}")
        if b + ahead < batches:
            order.append(f"F{b + ahead}")
    order += [f"W{b}" for b in range(max(0, batches - rank), batches)]
    return order
    # --- end of your code ---


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(zero_bubble, puzzle="zero_bubble")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# **Time.** Follow rank 3. Its first input half is over at 10.2, where 1F1B's first backward takes until 11.2. In its
# next three turns it puts off the weight half, so they are shorter by 1 each. After that its turns are as long as in
# 1F1B: one forward, two halves. So its last input half is over at 40.4, in place of 44.4. The last gradient then goes
# through three more stages, 1.4 each and not 2.4, and rank 0 has a weight half and two updates left: 40.4 + 3 · 1.4 +
# 1 + 1 = 46.6.
#
# **Memory.** Every rank has four open microbatches now, of two inputs each. For those that wait for their weight half
# there are also the gradients of the outputs of both layers: a weight half works on those, beside the input. Rank 3
# has three of them, so its peak is the highest.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="zero_bubble")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### Beside 1F1B
#
# Look at the right edge. In 1F1B the ranks end one after the other, and now they all end within a moment of each
# other.

# %%
compare(one_f_one_b=one_f_one_b, zero_bubble=out) if out else None

# %% [markdown]
# ### The bubble that is left
#
# It is at the left edge: rank 3 gets its first microbatch after three stages. That cannot be mended, but it can be
# filled. If the ranks in front send more microbatches ahead (and have the memory for it), there is enough to do until
# the first gradient is there. This is called **ZB-H2**; yours is **ZB-H1**.

# %%
if out:
    h2 = simulate(program_of(zb_h2_order(4, 8)), layers=8, batches=8, ranks=4)
    for name, run in (("1F1B", one_f_one_b), ("ZB-H1, yours", out), ("ZB-H2", h2)):
        verdict = check(run)
        print(f"{name:14} ends at {verdict.time:g}, peak {verdict.memory:,.0f} elements")

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **ZB-H1**, from *Zero Bubble Pipeline Parallelism* (2023). Let *F*, *I* and *W* be the times of a forward and of the
# two halves on a stage. Without the time of messages, of a pipeline of *R* ranks, the bubbles are
#
# ```text
# 1F1B     (R - 1) · (F + I + W)
# ZB-H1    (R - 1) · (F + I - W)
# ZB-H2    (R - 1) · (F + I - 2·W)
# ```
#
# With F = I = W the third is zero, and that is where the name comes from. ZB-H1 costs no more memory than the first
# rank of 1F1B has, ZB-H2 about twice that.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *What it brings.* Up to 23 % more throughput than 1F1B in the same memory, and up to 31 % with more [1].
# - *28.3 billion parameters on 32 A100s,* 96 microbatches: 0.76 samples a second on each GPU with 1F1B (43 GB), 0.87
#   with the order that a search found for the same memory (44 GB), 0.99 with twice the memory (74 GB). The bubbles
#   are 26.5 %, 14.2 % and 0.4 % [1].
# - *The optimizer is in the way.* Clipping gradients needs a norm over all stages, so everybody waits for everybody
#   before the update, and the ranks cannot begin with the next step one after the other. The authors update first,
#   check afterwards, and roll back if need be. Without that about 8 % is lost [2].
# - *DeepSeek-V3* split its backward as well, and put forwards and backwards of different microbatches side by side,
#   so that communication of the one hides behind computation of the other. Its pipeline had 16 stages, on 2,048 H800s
#   [3].
# - *In PyTorch* there is no ZB-H1. But its executor takes any list of `F`, `I` and `W`: you can give it yours.
#
# [1] Qi et al., *Zero Bubble Pipeline Parallelism*, 2023, arXiv 2401.10241, tables 4 and 5.
# [2] sail-sg/zero-bubble-pipeline-parallelism, README. [3] DeepSeek-AI, *DeepSeek-V3 Technical Report*, 2024,
# arXiv 2412.19437, section 3.2.

# %% [markdown]
# ## What is simplified here
#
# - The halves take 0.5 each. In a real transformer the input half is longer, because attention has no weights: 18.1
#   and 9.3 ms for a stage of a model of 1.5 billion parameters [1].
# - Not all layers can be split in PyTorch without computing something twice.
# - Each rank updates as soon as it is done. See above for what stands in the way.

# %% [markdown]
# ## Questions to think about
#
# **1.** Split the backward, but do not lag at all: `W` right behind each `I`. What do you still win, and why?
#
# <details><summary>Answer</summary>
#
# 48.6 in place of 52.6, most of it, and with a peak of 3,014,656. It is enough that `I` comes *first*: the gradient
# leaves half a backward earlier on each rank. The lag is for the last two time units only.
#
# </details>
#
# **2.** And the other end: put off all weight halves to the very end, on all ranks?
#
# <details><summary>Answer</summary>
#
# 49.6, and all eight microbatches are open until then. On rank 0 nothing is left to hide the weight halves behind. To
# put off work is only good for who would wait at the end.
#
# </details>
#
# **3.** What if rank *r* lags *R - 1 - r* behind, the first the most?
#
# <details><summary>Answer</summary>
#
# 51.2, and rank 0 has seven microbatches open. Everything is the wrong way round: the one with the most memory in use
# and the least time at the end puts off the most.
#
# </details>
#
# **4.** Four open microbatches on every rank, and the ranks end within 1 of each other. Is that a coincidence?
#
# <details><summary>Answer</summary>
#
# No. How many microbatches a rank sends ahead (*R - r*), and how many weight halves it lags behind (*r*), are *R*
# together on every rank. Early ranks use their memory for the one, late ranks for the other. Schedules in the shape
# of a V go further: give each rank an early *and* a late stage, and everything evens out.
#
# </details>

# %% [markdown]
# ## Where this leads
#
# You have seen where time goes in a pipeline. Now each stage is a group of GPUs that share its weights. They gather
# them for each pass. How often is that?

# %% [markdown]
# <!-- part: links -->
