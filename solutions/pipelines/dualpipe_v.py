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
# On its last rank your V leaves no hole between passes. DeepSeek-V3 had holes *inside* them: its experts were spread
# over 64 GPUs in 8 hosts, so in each layer tokens travel over InfiniBand to their experts, and home again. These
# all-to-alls take about as long as the computing [@deepseek_v3, section 3.2.1]. Wait for each of them, and 2,048 GPUs do
# the work of 1,024.
#
# The answer was **DualPipe**. A GPU takes two passes at a time, a forward of one microbatch and a backward of another.
# While the tokens of the one travel, it computes the other.
#
# > **To tell a friend:** a forward and a backward of different microbatches need nothing of each other. So let each of
# > them compute while the other one's tokens are on the road.
#
# *Reminder.* In the V of puzzle $number_zb_v a rank has a stage on the way **down** and one on the way **up**: `Fd` is
# a forward on the first, `Bu` a backward on the second. Experts are three layers here (puzzle $number_expert_parallel):
# **dispatch** sends each token to its expert, the experts compute, and **combine** takes what comes home.

# %%
from drawing import draw, draw_mesh
from lib import (
    Costs,
    Layer,
    Mesh,
    Model,
    goal,
    predict,
    route_by_loads,
    simulate,
)
from lib.schedules.given import (
    accumulate,
    alone,
    given,
    goes_on,
    joined,
    load_v,
    mail_of,
    run_phases,
    start_exchange,
    update_v,
)

FAIR = route_by_loads([1, 1])  # each of two experts gets half of the tokens
BLOCK = [
    Layer(),
    Layer("dispatch", experts=2, route=FAIR),
    Layer("experts", experts=2),
    Layer("combine"),
]
MESH = Mesh({"place": 2, "expert": 2})
PRICES = Costs(forward=1, backward=2, update=0, collective=1, p2p=0)

# %% [markdown]
# ## The idea
#
# Four virtual stages in a V, on two **places**: place 0 has stages 0 and 3, place 1 has stages 1 and 2. A place is two
# ranks, which share the experts of its stages. Each rank has its own microbatches.

# %%
draw_mesh(MESH)

# %% [markdown]
# A stage is one **block**: a dense layer, dispatch, experts, combine. Forward, a rank computes the dense layer (1),
# sends tokens away (1), computes its expert (1), and sends results home (1): 4, and half of it is waiting. Backward
# takes the same way in the other direction, and computing takes twice as long: 6, with 2 of waiting.
#
# Here are its two passes, as you wrote them in puzzle $number_expert_parallel. `take` and `hand_on` carry a value from
# stage to stage, and `start_exchange` starts an all-to-all. New is `yield`: both passes are **async generators**. At
# `yield` a pass stops, right after it has started an exchange, and does not go on before it is asked to. When its turn
# comes again, it awaits what arrives.


# %%
@given
def passes_of(model: Model):
    """Forward and backward of a microbatch on a stage, and what ends the step."""
    weights, _, activations, grad_activations, _ = model.storage()
    hand_on, take, all_sent = mail_of(model)
    load_v(model)

    async def forward(stage: int, b: int):
        dense, dispatch, experts, combine = range(4 * stage, 4 * stage + 4)
        await take(stage - 1, "activations", (dense, b))
        out = model.forward(dense, activations[dense, b], weights[dense])
        coming = start_exchange(model, model.forward(dispatch, out), "experts", experts)
        del out
        yield  # tokens are on their way to the experts
        activations[experts, b] = joined(await coming)
        out = model.forward(experts, activations[experts, b], weights[experts])
        coming = start_exchange(model, out, "batch", combine)
        del out
        yield  # results are on their way home
        out = model.forward(combine, joined(await coming))
        await hand_on(stage + 1, "activations", (combine + 1, b), out)

    async def backward(stage: int, b: int):
        dense, dispatch, experts, combine = range(4 * stage, 4 * stage + 4)
        await take(stage + 1, "grad_activations", (combine + 1, b))
        grad = model.backward(combine, None, grad_activations.pop((combine + 1, b)))
        coming = start_exchange(model, grad, "experts", experts)
        del grad
        yield  # gradients of the results are on their way to the experts
        grad = joined(await coming)
        inp = activations.pop((experts, b))
        of_weight, grad = model.backward(experts, inp, grad, weights[experts])
        accumulate(model, experts, of_weight)
        coming = start_exchange(model, grad, "batch", dispatch)
        del inp, grad, of_weight
        yield  # gradients of the tokens are on their way home
        grad = model.backward(dispatch, None, joined(await coming))
        inp = activations.pop((dense, b))
        of_weight, grad = model.backward(dense, inp, grad, weights[dense])
        accumulate(model, dense, of_weight)
        await hand_on(stage - 1, "grad_activations", (dense, b), grad)

    async def finish() -> None:
        await all_sent()
        await update_v(model)

    return forward, backward, finish


# %% [markdown]
# `await goes_on(one)` runs a pass until it has started its next exchange, and says False once it is over. `await
# alone(one)` asks it to go on at once, again and again, so it waits for each of its exchanges:
#
# ```python
# async def alone(one):
#     while await goes_on(one):
#         pass
# ```
#
# A V on a single place: stage 0 is layers 0 to 3, stage 1 is layers 4 to 7. A rank has two microbatches. From time 8
# it does a backward on the way up (of the first), and from 14 a forward on the way down (of the second). AA is an
# all-to-all, an exchange:


# %%
async def one_after_the_other(model: Model) -> None:
    forward, backward, finish = passes_of(model)
    first, second = model.rank, model.rank + 2  # the microbatches of this rank
    for one in (forward(0, first), forward(1, first)):
        await alone(one)
    for one in (backward(1, first), forward(0, second)):  # a pair, one after the other
        await alone(one)
    for one in (backward(0, first), forward(1, second)):
        await alone(one)
    for one in (backward(1, second), backward(0, second)):
        await alone(one)
    await finish()


single = Mesh({"place": 1, "expert": 2})
draw(
    simulate(
        one_after_the_other, layers=BLOCK * 2, batches=4, mesh=single, costs=PRICES
    )
)

# %% [markdown]
# So a pair takes 10, and 6 of them are computing. How short can it get, if the two take turns? Draw it on paper. Forward:
# compute 1, exchange 1, compute 1, exchange 1. Backward: exchange 1, compute 2, exchange 1, compute 2. An exchange
# travels while the other pass computes, and two exchanges queue. Does it matter which of the two passes begins?
#
# ## The puzzle
#
# | ranks | mesh | batches | a block, forward | backward | an exchange | a message |
# |---|---|---|---|---|---|---|
# | 4 | place 2, expert 2 | 16, so 8 in each pipeline | 1 + 1 | 2 + 2 | 1 | 0 |
#
# The phases are written as in puzzle $number_zb_v, with `B` for a whole backward: `(3, "Fd Bu")` is three times these
# two. New are pairs: for `"Fd+Bu"` your `together` is awaited with both passes, in this order. When one of the two has
# no microbatch left, the other one runs alone.
#
# **Given:** all of the above, and the place of this rank: `place` of `places` along the pipeline, which has `batches`
# microbatches.
#
# **To do:** `together`, and the phases of this place, in three steps of yours.
#
# 1. An `async def together(one, other)` that awaits `alone` for the one and then for the other, and four phases: all
#    passes of a kind, and then all of the next. That is a correct step, and a slow one.
# 2. The phases of a V, and a `together` in which the two of a pair take turns. Pairs begin when the first gradient
#    comes back on the way down; until then each `Bu` runs alone.
# 3. Which of a pair is named first?
#
# **Rules**
#
# - A pair begins with what is there already: neither of the two may need what the other one makes, so they are of
#   different microbatches.
# - Both ranks of a place start their exchanges in the same order.
# - An update takes no time, and the gradients of the dense layers are summed at the end, in one all-reduce (1).

# %% [markdown]
# ### Predict first
#
# Take your pair from the paper. When can place 1 begin its first backward? From then on it has 8 microbatches to take
# back on both ways, and all but 2 of them have a forward beside them. After its last backward, what is left to do on
# place 0? So when is the step over?

# %%
guess = predict("dualpipe_v", end=...)
guess

# %% [markdown]
# ### The goal
#
# Your first step passes, though it waits for every exchange and holds all microbatches. The second goal needs two passes
# at a time, and the order of a V for its memory. For the last one, no exchange of a pair is waited for.

# %%
goal("dualpipe_v")

# %% [markdown]
# <!-- part: hints -->


# %%
async def dualpipe_v(model: Model) -> None:
    place, places = model.coord["place"], len(model.group("place"))
    batches = model.BATCHES // len(model.group("expert"))  # of this pipeline

    # `together` runs both passes of a pair to their end. Then the phases of this place.
    # --- your code (about 10 lines) ---
    async def together(first, second) -> None:
        going = [first, second]
        while going:
            going = [one for one in going if await goes_on(one)]

    phases = [
        (2 * (places - 1 - place), "Fd"),
        (place + 1, "Fd Fu"),
        (places - 1 - place, "Bu Fu"),
        # The backward begins: it has something to send at once.
        (batches, "Bu+Fd Bd+Fu"),
    ]
    # --- end of your code ---

    await run_phases(model, passes_of, phases, together)


# %%
out = []  # forget the last run in case this one fails
out = simulate(dualpipe_v, puzzle="dualpipe_v")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# **A pair.** The backward begins: it has gradients to send at once (0 to 1), and meanwhile the forward computes its
# dense layer. Its tokens travel (1 to 2) while the backward is at the experts (1 to 3). Gradients go home (3 to 4)
# while the forward is at the experts (3 to 4). Results go home (4 to 5) while the backward is at the dense layer (4 to
# 6). All four exchanges have disappeared: 6.
#
# **The step.** The first microbatch goes through four blocks forward (16) and is back from the last one at 22. From
# there place 1 does not wait any more: 6 microbatches in two pairs each, 72, and two more that have no partner left,
# 24. The last gradient goes back through stage 0, 6, and the sum takes 1: 125.
#
# In general, with *B* microbatches on these two places, it takes 12·*B* + 29. And 12 is all that a microbatch has to
# compute on a rank.
#
# **How often.** With place *p* of *P*, as in ZB-V: down until the first microbatch comes up again, which leaves 2(*P* - 1
# - *p*) forwards and then *p* + 1 times both ways; *P* - 1 - *p* times back and up, until a gradient arrives on the way
# down; then pairs. The end needs no phase of its own: when the forwards have run out, what is left of a pair is a backward.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="dualpipe_v")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### How slow may the network be?
#
# Your step again, with slower and faster exchanges. A rank has 65 collectives to wait for in turn, if nothing hides
# them. From where on does your pair no longer hide them?

# %%
print("an exchange   the step   computing   all collectives")
for length in (0, 0.5, 1, 1.5, 2) if out else ():
    costs = Costs(forward=1, backward=2, update=0, collective=length, p2p=0)
    run = simulate(dualpipe_v, layers=BLOCK * 4, batches=16, mesh=MESH, costs=costs)
    end = max(model.time for model in run)
    print(f"{length:11} {end:10g} {96:11} {65 * length:17g}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Up to 1 a pair takes 6, and the step grows only at its two ends, where passes have no partner. The shortest stretch
# that lies beside an exchange is a forward of 1, so a longer exchange sticks out: a pair takes 7 with 1.5, and 8 with
# 2. So hiding alone is not enough: DeepSeek made the exchanges faster as well, with kernels of its own, and sends each
# token to at most four hosts [@deepseek_v3, section 3.2.2].
#
# </details>
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **DualPipe-V**, the folded half of DeepSeek's DualPipe, with whole backwards. With *F* and *B* for what a stage
# computes forward and backward, and exchanges of *x*, two in each pass:
#
# ```text
#                            for each further microbatch     here
# each exchange awaited      2·(F + B + 4·x)                   20
# two of a kind together     2·(F + B + x)                     14
# a backward and a forward   2·(F + B)                         12
# ```
#
# The last line holds as long as no exchange is longer than what is computed beside it.
#
# `together` is the heart of it, and it knows nothing of experts: whatever can stop where it would wait can take turns.
# It is the `in_turn` that puzzle $number_tensor_parallel gave you.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **DeepSeek-V3** took 16 places and 64 ranks for the experts of a layer. It cuts a pass as you did, at dispatch and
#   combine, with attention for our dense layer [@deepseek_v3]. Its backwards are cut in two halves as well. 20 of a
#   GPU's 132 multiprocessors do nothing but send and receive [@deepseek_v3, section 3.5.1].
# - **DualPipe** sends two pipelines through the same ranks, from both ends, so each rank holds two copies of its
#   weights. Cut at the fold, it is the V, with one copy [@dualpipe].
# - **PyTorch** writes such a pair as `(0F7;7B3)OVERLAP_F_B`, and leaves to you what happens inside
#   [@pytorch_schedules]. torchtitan puts the two passes into two threads, with a barrier before and after each dispatch
#   and combine: its `yield` [@torchtitan_dual_pipe_v].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - Backwards are whole. The real order splits those at the end, so that weight halves fill the gaps there.
# - Computing is not slowed down by an exchange beside it. On a GPU both want memory bandwidth, and multiprocessors.
# - The router is balanced. A busy expert makes its place wait, with pairs as without.
# - Messages between places take no time.

# %% [markdown]
# ## Questions to think about
#
# **1.** Turn your pairs round, so that the forward begins. Why does a pair take 8 now, and the step 147?
#
# <details><summary>Answer</summary>
#
# A forward begins with its dense layer, and during that nothing travels. Then both exchanges start at the same time,
# and queue for the same link. The backward begins with an exchange, so with the backward in front there is something to
# compute *and* something to send from the first moment on.
#
# </details>
#
# **2.** Two forwards can hide each other's exchanges too, and so can two backwards. Then you need no V and no DualPipe.
# What does it cost?
#
# <details><summary>Answer</summary>
#
# Time: two forwards take 5, and compute for 4; two backwards take 9, and compute for 8. Both passes of a kind begin and
# end with the same thing, so there is always an exchange at an end with nothing beside it. And memory: every microbatch
# is two, so twice as many are in flight at first. The best that we know with pairs of a kind ends at 129, and holds
# 6,422,528 elements where yours holds 5,242,880.
#
# It is simpler, though, and works without a pipeline. DeepSeek itself takes two microbatches of a kind for inference,
# where there is no backward [@deepseek_v3].
#
# </details>
#
# **3.** Why is there no pair in the third phase, `Bu+Fu`? The two are of different microbatches.
#
# <details><summary>Answer</summary>
#
# It ends at 129 instead of 125. In a pair both are over later than the backward alone would be, and for this backward
# the other place is waiting. A pair is for passes for which nobody waits.
#
# </details>
#
# **4.** DualPipe-V holds more than ZB-V. Is that the price of pairs?
#
# <details><summary>Answer</summary>
#
# Yes: the forward of a pair begins before its backward is over, so for a moment there is one microbatch more. Here that
# is 5,242,880 elements, where the order of ZB-V with every exchange awaited holds 4,980,736.
#
# </details>
#
# ## Where this leads
#
# That was the last V of this chapter. [The gallery](../00_gallery.ipynb) has all orders that have a name, with
# sliders for their times: find out when yours is not the best. And puzzle $number_plan_deepseek plans the whole run
# that DualPipe was made for.

# %% [markdown]
# <!-- part: links -->
