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
# Llama 3 8B on 8 H100s, fully sharded: torchtitan measured 77.0 GiB on each [@torchtitan_llama3_h100, tables 1 and 3].
# You get 128 GPUs. With 16 times as many to share the state, how much of the 77 is left?
#
# 62.0. Sixteen times the GPUs, a fifth less memory on each. Where do 80 GiB go?
#
# > **To tell a friend:** more GPUs shrink only what is sharded. The rest stays, and soon it is all you have.
#
# *Reminder.* **FSDP** (puzzle $number_fsdp) shards weights, gradients and Adam's state over all data-parallel ranks.
# It does not shard the activations of a rank's own microbatch, the logits, or the layers that are gathered at the
# moment.

# %%
from drawing import draw_memory
from lib import check_function, goal
from lib.plan import CLUSTERS, GIB, MODELS, Plan, memory_of
from lib.plan.resources import Memory

# %% [markdown]
# ## Predict, then look
#
# Two sequences of 8,192 tokens on each of 8 GPUs; backward recomputes every other matrix product, as torchtitan does.
# **What is the largest part of the 77 GiB?** The state: an eighth of the weights, gradients and Adam's moments of 8
# billion weights? The activations of 32 layers? Or the **logits**: a number for each of 16,384 tokens and each of
# 128,256 words of the vocabulary, of which the loss keeps an fp32 copy and a gradient?
#
# Write your guess into the first line, in GiB for each, and run the cell: it is the last bar, with all of your state
# in the colour of the optimizer. (Without a guess nothing is drawn.)

# %%
state, activations, logits = 0, 0, 0  # GiB on each of 8 GPUs: your guess
llama, h100 = MODELS["llama3-8b"], CLUSTERS["h100"]
small = Plan(8, 16, 8192, micro=2, zero=3, recompute="half")
large = Plan(128, 256, 8192, micro=2, zero=3, recompute="half")
bars = {"8 GPUs": memory_of(llama, small), "128 GPUs": memory_of(llama, large)}
picture = None
if guess := state + activations + logits:
    guessed = Memory(0, 0, state * GIB, activations * GIB, logits * GIB)
    bars[f"your guess, {guess:g}"] = guessed
    picture = draw_memory(bars, h100.memory, "Llama 3 8B, fully sharded")
picture

# %% [markdown]
# <details><summary>What the bars say: 75.4 GiB on 8 GPUs, 61.4 on 128</summary>
#
# The activations come first, with 38.1 GiB. The logits take 19.6 GiB, more than weights, gradients and optimizer
# together (17.7). Of the 17.7, 15.0 are sharded state: FSDP keeps an fp32 copy, an fp32 gradient and two moments of
# each weight, 16 bytes (the bf16 weights are gathered and freed). On 128 GPUs that shrinks by 16, and the bar gets 14
# GiB shorter. The rest does not care how many GPUs there are.
#
# </details>
#
# **A second guess.** Llama 3 405B on 16,384 GPUs: 8-way tensor parallel, a pipeline of 16 ranks with 8 stages each,
# gradients and optimizer states sharded. A GPU needs 70.3 GiB. How much of that is state?

# %%
state = 0  # GiB: your guess
big = MODELS["llama3-405b"]
mesh = {"tp": 8, "pp": 16, "v": 8, "zero": 2}
kept = memory_of(big, Plan(16384, 2048, 8192, **mesh))
again = memory_of(big, Plan(16384, 2048, 8192, **mesh, recompute="selective"))
picture = None
if state:
    right = (kept.total - kept.activations - kept.logits) / GIB
    print(f"You guessed {state:g} GiB of state. It is {right:.1f}.")
    bars = {"keep everything": kept, "recompute a little": again}
    picture = draw_memory(bars, h100.memory, "Llama 3 405B on 16,384 H100")
picture

# %% [markdown]
# <details><summary>What the bars say</summary>
#
# Nine tenths are activations. Nearly all the rest is weights: the 128 ranks of a model share 405 billion of them, two
# bytes each, about 6 GiB a rank. `zero` 2 keeps these whole, and cuts gradients and optimizer states into 128 shards:
# 0.4 GiB.
#
# </details>

# %% [markdown]
# ## The puzzle
#
# Write `where_do_80_go(state, rest, room)`.
#
# **Given:** three whole numbers of GiB. `state`, at least 1, is everything that can be sharded, all of it; `rest` is
# what every GPU holds, however many there are; `room` is the memory of a GPU.
#
# **To do:** return the smallest number of GPUs on which it fits, or `None` where no number is enough. What fits exactly
# fits.

# %% [markdown]
# ### Predict first
#
# 128 GiB of state, and 60 GiB of rest. You go from one GPU to two, from 8 to 16, from 64 to 128. How much less does a
# GPU hold after each of these steps? And which number does it never get below?
#
# <details><summary>Answer</summary>
#
# 64, 8 and 1 GiB less: each doubling gives half of what is sharded, and that is soon next to nothing. It stays above 60,
# on however many GPUs.
#
# </details>

# %% [markdown]
# ### The goal

# %%
goal("where_do_80_go")

# %% [markdown]
# <!-- part: hints -->


# %%
def where_do_80_go(state, rest, room):
    # The smallest number of GPUs, or None.
    # --- your code (about 3 lines) ---
    if rest >= room:
        return None
    return -(-state // (room - rest))
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(where_do_80_go, puzzle="where_do_80_go")
verdict

# %% [markdown]
# Passed? Then `reveal("where_do_80_go")`, in a cell of its own, shows the official solution. (`from lib import reveal`
# first.)

# %% [markdown]
# ### See what it is for
#
# Llama 3 8B with more and more tokens a GPU. `state` is 16 bytes a weight, `rest` is what the formulas say of one GPU.
# Of 80 GiB we plan with 76, because they are a lower bound.

# %%
if verdict:
    print("sequences   rest a GPU   GPUs")
    for micro in (1, 2, 3, 4):
        plan = Plan(8, 8 * micro, 8192, micro=micro, zero=3, recompute="half")
        memory = memory_of(llama, plan)
        rest = round((memory.activations + memory.logits) / 2**30)
        state = round(16 * llama.weights / 2**30)
        needed = where_do_80_go(state, rest, 76) or "no number will do"
        print(f"{micro:>9}   {rest:>6} GiB   {needed}")

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# The floor of FSDP. Memory on $n$ GPUs is $\text{state}/n + \text{rest}$: the first few GPUs save nearly all there is
# to save, and `rest` stays. Everything else in this chapter lowers the floor: microbatches, sequence and context
# parallelism, recomputation, tensor parallelism for the logits.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *Predicted and measured.* 75.4 and 61.4 GiB here; torchtitan measured 77.0 on 8 GPUs and 62.0 on 128, compiled
#   [@torchtitan_llama3_h100]. Without compilation it was 82.4 and 67.0: kernels that are not fused keep more.
# - *Logits are a real problem.* A loss over a sharded vocabulary (puzzle $number_loss_parallel) divides them by the
#   tensor-parallel size; others compute the loss chunk by chunk and never hold all logits at once [@wijmans2024].
# - *Where these formulas are wrong.* Llama 3 70B with 8-way tensor parallelism needed 71.9 GiB, and they say 48.8.
#   Buffers of NCCL and tensors that live between two collectives are not in them; whether these are the 23 GiB, we do
#   not know.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# FSDP holds two gathered layers at a time (0.8 GiB of this model) and the embedding and the head (2.0 GiB). Both are
# in the bars, under weights, and not in your `rest`. And weights that do not divide among the GPUs are padded.

# %% [markdown]
# ## Questions to think about
#
# **1.** On 8 GPUs: one sequence in a microbatch instead of two, or full recomputation? Which saves more?
#
# <details><summary>Answer</summary>
#
# Full recomputation, by a little: 43.4 GiB against 46.6. It takes 32 of the 38.1 GiB of activations and leaves the
# 19.6 of logits alone; half the tokens take half of both. The price differs: full recomputation
# runs all of forward twice, smaller microbatches cost efficiency and hide less (puzzle $number_hidden_from).
#
# </details>
#
# **2.** Suppose gradients are kept in bf16. What changes in the two bars?
#
# <details><summary>Answer</summary>
#
# 2 bytes less for each of 8 billion weights: 1.9 GiB on 8 GPUs, 0.1 on 128. To save memory on many GPUs, do not look
# at what is sharded.
#
# </details>
#
# **3.** The measurement is 1.6 GiB above the formulas. Where do they go?
#
# <details><summary>Answer</summary>
#
# The honest answer: we do not know exactly. The allocator's cache, buffers of NCCL, workspaces of kernels. A memory
# snapshot of PyTorch shows it for one run. A plan leaves five percent for it.
#
# </details>
#
# ## Where this leads
#
# So shard everything, over as many GPUs as there are? The bytes say yes. The network has its own opinion: that is the
# deeper puzzle after this one. A plan has to satisfy both. Now you make one.

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from math import ceil


def where_do_80_go_inputs(draw):
    room = draw.choice([40, 76, 80, 141])
    return draw.integer(1, 2000), draw.integer(0, room + 10), room


def where_do_80_go_accepts(answer, state, rest, room):
    """False, or what is wrong: there is one right answer."""
    right = where_do_80_go(state, rest, room)
    if answer is None:
        free = f"{room - rest} GiB are free beside the rest, for {state} GiB of state"
        return f"{free}: {right} GPU{'s' * (right != 1)} will do, and None came"
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        return False
    if right is None:
        return f"{rest} GiB stay on each GPU, and it has {room}: no number of GPUs will do, so return None"
    if answer == 0:
        return "something is to be held: at least one GPU, so round up"
    if isinstance(answer, float) and answer != int(answer) and ceil(answer) == right:
        return f"there are no parts of a GPU: {answer:g} is {right} GPU{'s' * (right != 1)}"
    if answer == state // max(1, room - rest) and answer < right:
        each, there = (
            state / max(1, answer),
            f"{answer} GPU{'' if answer == 1 else 's'}",
        )
        why = f"{state} GiB on {there} are {each:.4g} each, and beside the rest there is room for {room - rest}"
        return why if answer == -(-state // room) else f"{why}: round up"
    if answer == right + 1 and state and state % (room - rest) == 0:
        return f"what fits exactly fits: {state} GiB on {right} are {room - rest} each; add a GPU only where something is left"
    if answer == -(-state // room):
        return f"the {rest} GiB of rest are on each GPU too: only {room - rest} of {room} are left for the state"
    return False
