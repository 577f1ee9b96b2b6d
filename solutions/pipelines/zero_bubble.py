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
# 28.3 billion parameters, 32 A100s, 96 microbatches, 1F1B: each GPU processes 0.76 samples a second, and 26.5 % of
# its time is bubble. The same model on the same GPUs, with nearly the same memory, in another order: 0.87 samples a
# second, and nearly half of the bubble is gone. With more memory 0.99, and a bubble of 0.4 %. No work was left out
# [@qi2023, tables 4 and 5].
#
# The trick: look closely at what the other ranks are waiting for.
#
# > **To tell a friend:** the backward of a layer is two matrix products. The rank before you waits for one; the other
# > can wait for you. So do it when you would otherwise be idle.

# %%
from drawing import compare, draw
from lib import Costs, Model, Trace, check, goal, predict, schedule, simulate
from lib.schedules.formats.orders import to_csv
from lib.schedules.formats.trace import order_of
from lib.schedules.pipelines.generators import one_f_one_b as one_f_one_b_order
from lib.schedules.pipelines.program import program_of

# %% [markdown]
# ## The idea
#
# A layer computes `out = x @ w`. From the gradient of `out`, backward computes two matrix products:
#
# ```text
# gradient of x = gradient of out @ w.T       the rank before waits for it
# gradient of w = x.T @ gradient of out       needed for the update, at the very end
# ```
#
# They take the same work, and neither needs the other. PyTorch does both in one call. Here they are one by one, on
# one device:


# %%
def in_halves(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    weights[0], opt_states[0] = model.load_weights(0)
    activations[0] = model.get_activation([0])
    activations[1] = model.forward(0, activations[0], weights[0])
    grad_activations[1] = model.loss(activations[1])
    grad_activations[0] = model.backward_input(
        0, activations[0], grad_activations[1], weights[0]
    )
    # ... the rank before could have grad_activations[0] now ...
    grad_weights[0] = model.backward_weight(0, activations[0], grad_activations[1])
    weights[0], opt_states[0] = model.update(
        0, grad_weights[0], weights[0], opt_states[0]
    )
    model.set_final_weight(0, weights[0])


thirds = Costs(backward=2)
draw(simulate(in_halves, layers=1, batches=1, ranks=1, costs=thirds))

# %% [markdown]
# Each takes 1, as long as the forward. In schedule notation `I3` is the **input half** of the backward of microbatch 3
# (dgrad; the paper calls it B), and `W3` its **weight half** (wgrad; W). `B3` is both at once.
#
# Now look at 1F1B, and look at its end.

# %%
sizes = {"layers": 8, "batches": 8, "ranks": 4, "costs": thirds}
one_f_one_b = simulate(program_of(one_f_one_b_order(4, 8), messages="posted"), **sizes)
draw(one_f_one_b)

# %% [markdown]
# At the end ranks wait for gradients. Rank 0 gets its last one when three ranks have gone back through two layers
# each, and half of that was work that rank 0 does not need. It ends at 73.4.
#
# If all ranks do only the input halves on that way, each gradient arrives earlier. The weight halves are left over,
# and go into the holes: they **lag** behind. With a lag of 2, `W0` comes right after `I2`, and `W1` after `I3`; with a
# lag of 0 each follows its own input half. But not for free: a microbatch is in flight until its weight half is over.
#
# **Predict:** which rank should defer the most, the first or the last? In 1F1B rank *r* has *R - r* microbatches in
# flight. How large may the lag of rank *r* be, if none is to have more of them than rank 0? You need this number below.
#
# <details><summary>Not sure which one? A question in return</summary>
#
# Imagine the end of the step. Who sends the last gradient, and then has nothing to do while the others go back? And who
# gets the last gradient of all, so that everything it has put off makes the step longer?
#
# </details>
#
# ## The puzzle
#
# | ranks | layers | batches | stages |
# |---|---|---|---|
# | 4 | 8 | 8 | 4: rank *r* has stage *r* |
#
# **Given:** the length of the warm-up, as in 1F1B.
#
# **To do:** the list of this rank: 1F1B with `I` and `W` instead of `B`. The input halves come where 1F1B has its
# backwards; the weight halves lag as you predicted, and those that are left come last.
#
# **Rules**
#
# - A layer takes 1 for each of `F`, `I` and `W`. Messages are posted: they take 0.4, and no rank stands still.
# - Activations of a microbatch stay until its weight half is over, and so do the gradients that it needs.
# - Every rank does `F`, `I` and `W` of each microbatch once.

# %% [markdown]
# ### Predict first
#
# 1F1B ends at 73.4 with a peak of 3,145,728. When will it end with halves? And will the peak be higher?

# %%
guess = predict("zero_bubble", end=..., memory=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

# %%
goal("zero_bubble")

# %% [markdown]
# <!-- part: hints -->


# %%
@schedule(messages="posted")
def zero_bubble(rank, ranks, batches):
    ahead = min(batches, ranks - rank)
    order = [f"F{b}" for b in range(ahead)]
    # Then, for each batch: its input half, perhaps a weight half, perhaps a forward. At
    # the end the weight halves that are left.
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
# **The lag** is *r* on rank *r*: the last rank has the time at the end, and *R - r* forwards ahead and a lag of *r*
# make *R* microbatches in flight everywhere, as many as rank 0 had anyway. The others had that memory and did not use
# it.
#
# **Time.** Follow rank 0. It works for 49, updates included. Its first microbatch comes back to it after three forwards
# with messages (7.2), a forward and an input half on rank 3 (4), and two input halves with three messages (5.2): at
# 16.4. With whole backwards it would be 6 later. Rank 0 has done four forwards by 8, so it waits for 8.4. Then it has
# all it needs, until the last three gradients: each makes it wait for 0.8, two messages that nothing hides. 49 + 8.4 +
# 2.4 = 59.8.
#
# **Memory.** Every rank has four microbatches in flight now, of two inputs each. Those that wait for their weight half
# also keep the gradients of the outputs of both layers: a weight half needs them beside the input. So late ranks hold
# most, in spite of having as many in flight.
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
# Look at the right edge. In 1F1B the ranks end one after the other; now they end almost together.

# %%
compare(one_f_one_b=one_f_one_b, zero_bubble=out) if out else None

# %% [markdown]
# ### The bubble that is left
#
# It is at the left: rank 3 gets its first microbatch after three stages, and then rank 0 waits for the first
# gradient. Ranks cannot start earlier, but the wait can be filled. If early ranks send more microbatches ahead (and
# have the memory for it), they have enough to do until the first gradient is there. This is **ZB-H2**; yours is
# **ZB-H1**.

# %%
from lib.schedules.pipelines.generators import zb_h1 as zb_h1_order
from lib.schedules.pipelines.generators import zb_h2 as zb_h2_order

if out:
    h2 = simulate(program_of(zb_h2_order(4, 8), messages="posted"), **sizes)
    for name, run in (("1F1B", one_f_one_b), ("ZB-H1, yours", out), ("ZB-H2", h2)):
        verdict = check(run)
        print(f"{name:12} ends at {verdict.time:g}, peak {verdict.memory:,.0f}")

# %% [markdown]
# None of them has a zero bubble, because messages take time here. Take the case of the paper: they cost nothing. How
# long is each rank idle between its first pass and its last?

# %%
no_bubble = None
if out:
    free = sizes | {"costs": Costs(backward=2, update=0, p2p=0)}
    orders = {
        "1F1B": one_f_one_b_order(4, 8),
        "ZB-H1": zb_h1_order(4, 8),
        "ZB-H2": zb_h2_order(4, 8),
    }
    for name, order in orders.items():
        run = simulate(program_of(order, messages="posted"), **free)
        work = 8 * 2 * 3  # eight microbatches, two layers, F + I + W
        waits = [f"{model.time - 2 * rank - work:g}" for rank, model in enumerate(run)]
        print(f"{name:6} ends at {check(run).time:g}, ranks idle {', '.join(waits)}")
    no_bubble = draw(run)
no_bubble

# %% [markdown]
# There it is: with ZB-H2 no rank waits once it has begun. The ranks still begin and end one after the other, so the
# gain shows only if each of them begins the next step as soon as it is done with this one.
#
# ### Hand it to PyTorch
#
# PyTorch has no ZB-H1. But its pipeline executor runs any list of `F`, `I` and `W`. Here is yours, as the CSV that it
# loads, a line for each rank:

# %%
if out:
    print(to_csv(order_of(Trace.of(out))).text)

# %% [markdown]
# Set `IN_PYTORCH = True`: the executor then runs your list on four processes of this machine, beside our replay of it,
# and both are compared with ordinary training. It takes about ten seconds.

# %%
IN_PYTORCH = False
if IN_PYTORCH:
    from lib.replay import replay

    print(replay(out, hidden=64, length=32, against=("torch-pipelining",)).text())

# %% [markdown]
# On GPUs of your own: save the CSV (`puzzles schedule export`, with your notebook), load it there, and record a few
# steps with `torch.profiler`. Then `puzzles profile rank*.json --schedule mine.csv -o both.svg` draws what the GPUs did
# beside what they were to do.

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **ZB-H1**, from *Zero Bubble Pipeline Parallelism* (2023). Let *F*, *I* and *W* be the times of a forward and of the
# two halves on a stage. With *R* ranks and messages that take no time, the bubble of rank 0, from its first pass to
# its last, is
#
# ```text
# 1F1B     (R - 1) · (F + I + W)
# ZB-H1    (R - 1) · (F + I - W)
# ZB-H2    (R - 1) · (F + I - 2·W)
# ```
#
# With F = I = W the third is zero: hence the name. The paper says that ZB-H1 needs no more memory than the first rank
# of 1F1B, and ZB-H2 about twice as much. That holds for real layers, where what a weight half needs is at most as
# large as what a forward leaves. Our layers keep nothing but their input, so a deferred weight half (input and
# gradient) takes twice as much, and your screen says 3,932,160 against 3,145,728.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *What it brings.* Up to 23 % more throughput than 1F1B in the same memory, and up to 31 % with more [@qi2023].
# - *28.3 billion parameters on 32 A100s,* 96 microbatches: 0.76 samples a second on each GPU with 1F1B (43 GB), 0.87
#   with an order that a search found for the same memory (44 GB), 0.99 with more (74 GB). The bubbles are 26.5 %,
#   14.2 % and 0.4 % [@qi2023].
# - *The optimizer is in the way.* Clipping gradients needs a norm over all stages, so all ranks wait for each other
#   before the update, and cannot begin the next step one after the other. The authors update first, validate
#   afterwards, and roll back if they have to. Without that about 8 % is lost [@zero_bubble].
# - *DeepSeek-V3* also splits its backward, and runs forwards and backwards of different microbatches side by side, so
#   that the communication of one hides behind the computation of the other. Its pipeline had 16 ranks, on 2,048 H800s
#   [@deepseek_v3, section 3.2].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - The halves take 1 each. In a real transformer the input half is longer, because the backward of attention scores
#   has no weight half: 18.1 and 9.3 ms for a stage of a model of 1.5 billion parameters [@qi2023].
# - PyTorch cannot split every layer without computing something twice.
# - Each rank updates as soon as it is done. Real clipping and loss scaling stand in the way (see above).

# %% [markdown]
# ## Questions to think about
#
# **1.** Split the backward, but do not lag at all: `W` right behind each `I`. What do you still gain, and why?
#
# <details><summary>Answer</summary>
#
# 63.4 instead of 73.4: most of it, with the peak of 1F1B. It is enough that `I` comes *first*: the gradient leaves each
# rank half a backward earlier. The lag is only for the last 3.6.
#
# </details>
#
# **2.** And the other extreme: defer all weight halves to the very end, on all ranks?
#
# <details><summary>Answer</summary>
#
# 67.4, and all eight microbatches stay in flight until then. On rank 0 nothing is left to hide the weight halves
# behind. Deferring work helps only a rank that would otherwise be idle at the end.
#
# </details>
#
# **3.** What if the lag of rank *r* is *R - 1 - r*, so that the first rank defers the most?
#
# <details><summary>Answer</summary>
#
# 69.4, and rank 0 has seven microbatches in flight. It is exactly the wrong way round: the rank with the most memory
# in use and the least time at the end defers the most.
#
# </details>
#
# **4.** Four microbatches in flight on every rank, and the ranks end within 1.2 of each other. Is that a coincidence?
#
# <details><summary>Answer</summary>
#
# No. Its warm-up (*R - r*) and its lag (*r*) make *R* together on every rank. Early ranks use their memory for the
# one, late ranks for the other. V schedules go further: each rank has an early *and* a late stage, and everything
# evens out (puzzle $number_zb_v).
#
# </details>

# %% [markdown]
# ## Where this leads
#
# You know where a pipeline's time goes, and how to get it back. What is left is to put everything on one mesh: data,
# weights, layers, tokens and stages, five sizes and sixteen ranks. That is the next chapter.
#
# There is more to do with pipelines, if you like them: a layer that is heavier than the others, a rank that is slower,
# stages that lie in a V, and stages whose weights are sharded.

# %% [markdown]
# <!-- part: links -->
