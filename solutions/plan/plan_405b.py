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
# Llama 3 405B, 16,384 H100s, 16 million tokens a step. Meta's plan: 8-way tensor parallel, 16 pipeline ranks, and
# 128-way data parallel with FSDP, at 41 % MFU [@llama3, sections 3.3.2 and 3.3.4, table 4]. Then the sequences got
# sixteen times as long, 131,072 tokens, with the same number of tokens a step. Meta added context parallelism. Because
# long sequences do not fit, you might think.
#
# Something else breaks first. A step has only 128 long sequences, so each of 128 pipelines gets one: **one microbatch
# for 16 stages**. It fits, in 69 GiB. It takes 221.5 seconds, and 94 % of that is bubble.
#
# > **To tell a friend:** context parallelism feeds the pipeline. It takes ranks from data parallelism, so each
# > pipeline has microbatches again.
#
# *Reminder.* `zero` 2 with a pipeline: weights stay whole, gradients and optimizer states are sharded. `zero` 3 would
# gather each weight again for every microbatch, so we do not combine it with a pipeline (puzzle
# $number_pp_fsdp_keep).

# %%
from dataclasses import replace

from drawing import draw_memory, draw_plan
from lib import check_function, goal
from lib.plan import CLUSTERS, MODELS, Plan, memory_of, step
from lib.plan.judge import Task, plan_of
from lib.plan.pipeline import timeline

# %% [markdown]
# ## The idea
#
# Try the obvious first: no pipeline, 8-way tensor parallel, and FSDP over 2,048 hosts. It fits easily:

# %%
llama, h100 = MODELS["llama3-405b"], CLUSTERS["h100-llama3"]
flat = Plan(16384, 2048, 8192, tp=8, zero=3, recompute="selective")
one = step(llama, h100, flat)
print(f"{one.seconds:.1f} s, {one.mfu:.0%} of the peak; {one.memory}")
for name, time in sorted(one.parts.items(), key=lambda part: -part[1])[:3]:
    print(f"  {name:<8} {time:5.1f} s")

# %% [markdown]
# You know why from puzzle $number_hidden_from: 1,024 tokens a GPU, where 1,218 would hide the gather in forward
# alone. And every host makes a ring a little later: by an amount that was fitted on up to 64 hosts, and for 2,048 is
# a guess. Take it out:

# %%
one = step(llama, replace(h100, hop=0), flat)
share = one.parts["fsdp"] / one.seconds
print(f"{one.seconds:.1f} s, {share:.0%} of it gathers and scatters that nothing hides")

# %% [markdown]
# Still more than half of the step. A pipeline helps twice: each rank has fewer layers, small enough to stay whole for
# the step, and each layer sees more tokens.

# %% [markdown]
# ## The puzzle
#
# Write `plan_405b()`: a plan for 16,384 H100s, 2,048 sequences of 8,192 tokens a step.
#
# **Rules**
#
# - 126 layers have few divisors. Stages that get a layer less are at the two ends, as in Meta's run, so `pp` times
#   `v` may be up to 128.
# - It fits into 76 GiB.
# - Any plan within a goal counts. It must also work on half of the GPUs, with the same batch.

# %% [markdown]
# ### Predict first
#
# 16 pipeline ranks and 16 microbatches: what share of the time is bubble with one stage a rank, and with eight?
#
# <details><summary>Answer</summary>
#
# With one 15 of 31, nearly half. With eight an eighth of 15, so 1.9 of 17.9: a tenth. It comes out a little lower,
# because Llama 3's first and last stages have a layer less.
#
# </details>

# %% [markdown]
# ### The goal

# %%
goal("plan_405b")

# %% [markdown]
# <!-- part: hints -->


# %%
def plan_405b():
    # Tensor parallelism inside the host; a pipeline so that gathers need no hiding; v
    # so that the bubble is small.
    # --- your code (about 12 lines) ---
    return {
        "tp": 4,
        "cp": 2,
        "pp": 8,
        "ep": 1,
        "micro": 1,
        "v": 8,
        "schedule": "1f1b",
        "zero": 2,
        "recompute": "selective",
        "sp": True,
    }
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(plan_405b, puzzle="plan_405b")
verdict

# %% [markdown]
# Passed? Then `reveal("plan_405b")`, in a cell of its own, shows the official solution. (`from lib import reveal`
# first.)

# %% [markdown]
# ### See what you planned

# %%
picture = None
if verdict:
    mine = plan_of(Task("llama3-405b", "h100-llama3", 16384, 2048, 8192), plan_405b())
    meta = Plan(16384, 2048, 8192, tp=8, pp=16, v=8, zero=2)
    bars = {"yours": memory_of(llama, mine), "Meta's": memory_of(llama, meta)}
    picture = draw_memory(bars, h100.memory, "Llama 3 405B on 16,384 H100")
picture

# %%
picture = None
if verdict:
    picture = draw_plan(timeline(llama, h100, mine), f"Llama 3 405B: {mine.mesh}")
picture

# %% [markdown]
# ### The long text
#
# 128 sequences of 131,072 tokens. First Meta's mesh for short sequences (with `v` 1: interleaving needs microbatches
# in groups of 16), then the one that Meta took for long ones.

# %%
if verdict:
    print(f"{'plan':<34}microbatches   seconds   bubble   MFU   causal")
    for name, cp in (("as for short texts", 1), ("with context parallel 16", 16)):
        how = {"v": 8 if cp > 1 else 1, "zero": 2, "recompute": "selective"}
        long = Plan(16384, 128, 131072, tp=8, cp=cp, pp=16, **how)
        one = step(llama, h100, long)
        share = one.parts["bubble"] / one.seconds
        print(
            f"{name:<33} {long.microbatches:>12}   {one.seconds:7.1f}   "
            f"{share:6.0%}  {one.mfu:4.0%}   {one.mfu_causal:6.0%}"
        )

# %% [markdown]
# The same step has 35 % MFU or 25 %: it depends on whether the masked half of attention counts as work. Ask which one
# a paper means. (Meta reports 38 %. Our 35 is 8 % too slow.)
#
# And memory? With 16 microbatches in flight and no context parallelism a GPU would hold 680 GiB of activations. So
# both are true: the empty pipeline comes first, and once you fill it, memory asks for context parallelism too.

# %% [markdown]
# ## A case for a detective
#
# Meta printed the mesh, but not `v`. On 8,192 GPUs they reached 43 % MFU, on 16,384 with the same batch 41 %. Which
# `v` did they run?

# %%
if verdict:
    print("v    8,192 GPUs   16,384 GPUs")
    for v in (1, 2, 4, 8):
        shares = [
            step(llama, h100, Plan(gpus, 2048, 8192, tp=8, pp=16, v=v, zero=2)).mfu
            for gpus in (8192, 16384)
        ]
        print(f"{v}    {shares[0]:>10.1%}   {shares[1]:>11.1%}")

# %% [markdown]
# Only with 8 does doubling the GPUs cost so little: one layer in each stage. It stays a guess: Meta does not say, one
# constant was fitted to the first of these two runs, and on 8,192 GPUs our bytes come to 78 GiB with `v` 8, more than
# the 76 we allow.

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# The four-dimensional parallelism of Llama 3 [@llama3]. Meta's own plan takes 6.6 seconds by our formulas. The best of
# 4,176 possible plans takes 6.4, which is 3 % better and hardly more than we can tell apart. `search` of `lib.plan`
# finds it in seconds.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *Order of ranks.* Llama 3 puts tensor parallelism innermost, then context, pipeline and data: those that
#   communicate most are nearest [@llama3].
# - *Failures.* In 54 days the job stopped unexpectedly 419 times, once every three hours. More than 90 % of the time
#   was still effective training [@llama3].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# The network of 16,384 GPUs is not flat: pods of 3,072 are joined with 7:1 oversubscription. We hide all of data
# parallelism's traffic behind one microbatch, and charge nothing for sharding gradients with `zero` 2. And the cost
# of a hop was fitted on up to 64 hosts, and extrapolated to 2,048.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why not `tp` 16?
#
# <details><summary>Answer</summary>
#
# It leaves the host. With `pp` 8 and `v` 8 the step takes 7.6 seconds, and 1.4 of them are all-reduces over the
# network, in the open. And 8 key-value heads divide among 8 ranks, not among 16: two ranks would have to keep the
# same one.
#
# </details>
#
# **2.** How much time does it cost to save memory?
#
# <details><summary>Answer</summary>
#
# `draw_plans(search(llama, h100, meta).front())` draws the plans that no other beats in both (`draw_plans` is in
# `drawing`, `search` in `lib.plan`). 6.7 seconds at 49 GiB, 7.2 at 31, and with full recomputation 9.1 at 11.
#
# </details>
#
# **3.** Meta's plan and the best one of our formulas differ by 3 %. Should Meta have taken the other?
#
# <details><summary>Answer</summary>
#
# Not on our word. `tp` 4 and `pp` 8 put four times the weights on each GPU, 24.7 GiB instead of 6.4, and with the same
# selective recomputation Meta's plan needs 49 GiB, not 68. And 3 % is close to what our formulas cannot tell apart.
# Meta could measure; we cannot.
#
# </details>
#
# ## Where this leads
#
# A dense model wants tensor parallelism. What if most of the weights are experts, and NVLink is slow?

# %% [markdown]
# <!-- part: links -->
