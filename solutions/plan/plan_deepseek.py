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
# DeepSeek-V3 has 671 billion weights and was trained on 2,048 H800s: 14.8 trillion tokens in 2.664 million GPU hours
# [@deepseek_v3]. That makes 19.9 seconds for a step of 63 million tokens. And the paper says that they used no tensor
# parallelism at all.
#
# Why not? Look at the machine first. An H800 is an H100 with less than half of its NVLink: 200 GB/s instead of 450.
#
# > **To tell a friend:** "no tensor parallelism" is half about the model, and half about NVLink.
#
# *Reminder.* In a **mixture of experts** like this one a token uses 8 of 256 experts and travels to them by
# all-to-all (puzzle $number_expert_parallel). **DualPipe** feeds a pipeline from both ends, and runs the forward of one
# microbatch beside the backward of another: the messages of each are hidden behind the computation of the other (puzzle
# $number_dualpipe_v).

# %%
from drawing import draw_memory, draw_plan
from lib import check_function, goal
from lib.plan import CLUSTERS, MODELS, STACKS, Plan, memory_of, search, step
from lib.plan.judge import Task, error, plan_of, published
from lib.plan.timing import timeline

# %% [markdown]
# ## The idea
#
# `ep` is the number of ranks that share the experts of a layer. It is not another axis of the mesh: it borrows the
# data, context and tensor ranks of a stage, so it has to divide their number. With a larger `ep` each rank holds
# fewer experts, but tokens cross more hosts. DeepSeek lets a token go to four hosts at most.
#
# With `ep` 8 the experts of a layer share one host, and tokens travel over NVLink only. Even so, without DualPipe
# their all-to-alls are in the open:

# %%
deepseek, h800 = MODELS["deepseek-v3"], CLUSTERS["h800"]
base = {"pp": 16, "ep": 8, "recompute": "selective", "stack": STACKS["deepseek"]}
for schedule in ("1f1b", "dualpipe"):
    one = step(deepseek, h800, Plan(2048, 15360, 4096, schedule=schedule, **base))
    exposed = one.parts.get("ep", 0)
    time = f"{schedule:<9} {one.seconds:5.1f} s"
    print(f"{time}, of it experts in the open {exposed:4.1f} s")

# %% [markdown]
# ## The puzzle
#
# Write `plan_deepseek()`: a plan for 2,048 H800s, 15,360 sequences of 4,096 tokens a step. It is a dict as in puzzle
# $number_plan_gpt3, and may leave keys out. All keys and their defaults:
#
# | `tp`, `cp`, `pp`, `ep` | `micro` | `v` | `schedule` | `zero` | `recompute` | `sp` |
# |---|---|---|---|---|---|---|
# | 1 | 1 | 1 | `"1f1b"` | 1 | `"none"` | `True` |
#
# **Rules**
#
# - DualPipe needs an even `pp` and at least `2 · pp` microbatches. A rank has a stage of each of the two ways, so it
#   holds the weights of two.
# - It fits into 76 GiB. Most activations are stored in fp8, as in DeepSeek's run.
# - Any plan within a goal counts. It must also work on H100s.

# %% [markdown]
# ### Predict first
#
# The run above takes 20.8 seconds with DualPipe, and no token crosses the network. Does it fit? And would it be faster
# or slower with a larger `ep`, where tokens do cross the network?
#
# <details><summary>Answer</summary>
#
# It does not fit. Each rank holds 32 of the 256 experts in every layer of two stages: 123 GiB in all. As for the
# second: what does a rank with fewer experts gain, if DualPipe hides what is sent? Fewer experts with as many tokens
# are larger matrix products. Try it.
#
# </details>

# %% [markdown]
# ### The goal

# %%
goal("plan_deepseek")

# %% [markdown]
# <!-- part: hints -->


# %%
def plan_deepseek():
    # Which schedule hides the experts' messages? How many ranks share the experts, so
    # that it fits? And tp?
    # --- your code (about 6 lines) ---
    return {
        "pp": 16,
        "ep": 64,
        "schedule": "dualpipe",
        "recompute": "selective",
    }
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(plan_deepseek, puzzle="plan_deepseek")
verdict

# %% [markdown]
# Passed? Then `reveal("plan_deepseek")`, in a cell of its own, shows the official solution. (`from lib import reveal`
# first.)

# %% [markdown]
# ### See what it is for
#
# The best plan for each `tp`, on H800s and on H100s. The two differ in nothing but NVLink.

# %%
if verdict:
    mine = plan_of(
        Task("deepseek-v3", "h800", 2048, 15360, 4096, "deepseek"), plan_deepseek()
    )
    start = Plan(2048, 15360, 4096, stack=STACKS["deepseek"])
    print("tp   H800     H100")
    for tp in (1, 2, 4, 8):
        axes = {"tp": (tp,), "cp": (1,), "pp": (8, 16, 32)}
        axes |= {"micro": (1, 2), "v": (1,), "zero": (1,)}
        found = [
            search(deepseek, CLUSTERS[gpu], start, axes) for gpu in ("h800", "h100")
        ]
        best = [one.candidates[0].seconds for one in found]
        print(f"{tp}   {best[0]:5.1f} s  {best[1]:5.1f} s")

# %%
picture = None
if verdict:
    memory = {"your plan": memory_of(deepseek, mine)}
    picture = draw_memory(memory, h800.memory, "DeepSeek-V3 on 2,048 H800")
picture

# %% [markdown]
# Your pipeline, a row for each rank. For DualPipe the picture shows DualPipe-V, which is DualPipe folded in the middle:
# half as many ranks, with the same bubble.

# %%
picture = None
if verdict and mine.pp > 1:
    picture = draw_plan(timeline(deepseek, h800, mine), f"DeepSeek-V3: {mine.mesh}")
picture

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# The parallelism of DeepSeek-V3 [@deepseek_v3]: 16 pipeline ranks with DualPipe, experts over 64 ranks on 8 hosts,
# ZeRO-1 for the rest. For DeepSeek's plan our formulas say 18.7 seconds where 19.9 were published. That DualPipe wins
# is built in: we assume that it hides all of the experts' messages, which is what its authors built it for.
#
# And tensor parallelism? On H100s `tp` 2 costs nothing that we can tell (18.7 seconds instead of 18.6). On H800s it costs 4
# %, and `tp` 4 17 %. So NVLink is half of the answer. The other half is the model: experts and 63 million tokens a
# step leave enough to share without it.
#
# </details>

# %% [markdown]
# ## Guess, then look
#
# NVIDIA published runs in fp8 on newer software [@megatron_bridge_performance, 25.09 and 26.04]. Our formulas were
# fitted to kernels of up to 2024. Write down what you expect before you run the cell: will the predicted times be too
# long or too short, and by how much?

# %%
if verdict:
    for run in published():
        if run.set == "nemo":
            print(
                f"{run.model_name:<13} {run.plan.gpus:>5} {run.cluster_name}: "
                f"predicted {error(run):+4.0%} of the time"
            )

# %% [markdown]
# For dense models our times are 5 to 53 % too long: kernels get better every year, and a fit to old ones cannot know.
# For DeepSeek-V3 they are too short, by 2 % on H100s and 16 % on B200s. Something waits there that is not in these
# formulas. An honest model says where it fails: `puzzles predictions` shows these rows in red.

# %% [markdown]
# ## On real GPUs
#
# - *Four hosts.* By our formulas the all-to-alls of a layer take 12 milliseconds for each microbatch, forward and
#   backward. If a token could go to all eight hosts they would take 24.
# - *What DualPipe costs.* The weights twice, and 20 of 132 multiprocessors that do nothing but communicate
#   [@deepseek_v3].
# - *1:1.* With experts across hosts the paper puts computation and communication at about one to one [@deepseek_v3].
#   Our formulas say that communication takes a third of the time of the computation. They may be too kind to the
#   network.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# All experts are equally popular. How much faster fp8 products are, and which activations are stored in fp8, are
# assumptions: no paper prints them. `zero` 2 costs nothing here (question 3).

# %% [markdown]
# ## Questions to think about
#
# **1.** 256 experts over 128 ranks instead of 64: faster or slower?
#
# <details><summary>Answer</summary>
#
# About the same: 18.6 seconds or 18.7 is less than we can tell apart. It needs 66 GiB instead of 70, because each rank has
# 2 experts of a layer, not 4. A token still goes to four hosts at most.
#
# </details>
#
# **2.** Why is `v` more than 1 no help here?
#
# <details><summary>Answer</summary>
#
# DualPipe has its own two stages a rank. And with 120 microbatches on 16 ranks the bubble is only 6 % of the step.
#
# </details>
#
# **3.** Why `zero` 1 and not 2 or 3? Try 2: our formulas say the same time, and 57 GiB instead of 70.
#
# <details><summary>Answer</summary>
#
# Do not believe them there: they charge nothing for it. A rank sums the gradients of 120 microbatches in fp32. To
# keep only a shard of that sum, it has to reduce-scatter the gradient of every microbatch, 120 times a step instead
# of once (or a few times, if it collects some first). `zero` 3 would gather the weights as often. Sharding Adam's
# state is free: it is needed once a step.
#
# </details>
#
# ## Where this leads
#
# Next is your own cluster. `puzzles plan --model config.json --gpus 256 --gpu mine.toml` takes a model from Hugging
# Face and a machine that you measured, and `puzzles predictions` says how far to trust it. And on [the
# map](../00_index.ipynb) there may be deeper puzzles that you have passed by.

# %% [markdown]
# <!-- part: links -->
