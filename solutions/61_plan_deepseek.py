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
# DeepSeek-V3 has 671 billion weights, trained on 2,048 H800s: 14.8 trillion tokens in 2.664 million GPU hours [1]. That is
# 19.9 seconds for a step of 63 million tokens. And the paper says that they used no tensor parallelism at all.
#
# Why not? Because they were clever? Look at the machine first. An H800 is an H100 with half the NVLink: 200 GB/s for 450.
#
# > **To tell a friend:** "no tensor parallelism" is half an answer about the model, and half an answer about NVLink.
#
# *Reminder.* In a **mixture of experts** a token uses 8 of 256 experts and travels to them by all-to-all (puzzle
# $number_expert_parallel). **DualPipe** runs a forward beside each backward, so that what one of them sends is hidden
# behind what the other computes.

# %%
from drawing import draw_memory, draw_plan
from lib import check_function, goal
from lib.plan import CLUSTERS, MODELS, STACKS, Plan, memory_of, search, step
from lib.plan.judge import Task, plan_of
from lib.plan.pipeline import timeline
from lib.plan.published import error, published

# %% [markdown]
# ## The idea
#
# `ep` says over how many ranks the experts of a layer are spread. It is no further axis: these ranks are those of data and
# tensor parallelism, so `ep` has to divide their number. More of them, and each holds fewer experts; but tokens cross more
# hosts. DeepSeek allows a token four hosts at most.
#
# Without DualPipe the all-to-alls are in the open:

# %%
deepseek, h800 = MODELS["deepseek-v3"], CLUSTERS["h800"]
base = {"pp": 16, "ep": 64, "recompute": "selective", "stack": STACKS["deepseek"]}
for schedule in ("1f1b", "dualpipe"):
    one = step(deepseek, h800, Plan(2048, 15360, 4096, schedule=schedule, **base))
    print(
        f"{schedule:<9} {one.seconds:5.1f} s, of it experts in the open {one.parts.get('ep', 0):4.1f} s; {one.memory}"
    )

# %% [markdown]
# ## The puzzle
#
# Write `plan_deepseek()`: a plan for 2,048 H800s, 15,360 sequences of 4,096 tokens a step.
#
# **Rules**
#
# - DualPipe takes an even `pp` and at least twice as many microbatches. Each rank has a stage of both directions, so the
#   weights twice.
# - It fits into 76 GiB. Activations wait in fp8 for the most part, as in DeepSeek's run.
# - Any plan within a goal counts. It has to work on H100s, too.

# %% [markdown]
# ### Predict first
#
# With `ep` 8 all experts of a token are inside a host, and no token crosses the network. Why did nobody do that?
#
# <details><summary>Answer</summary>
#
# It does not fit. An eighth of 256 experts, 32 of them in every layer of two stages, is 123 GiB.
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
    # Which schedule hides the experts' messages? How many ranks share the experts, so that it fits? And tp?
    # --- your code (about 12 lines) ---
    return {
        "tp": 1,
        "cp": 1,
        "pp": 16,
        "ep": 64,
        "micro": 1,
        "v": 1,
        "schedule": "dualpipe",
        "zero": 1,
        "recompute": "selective",
        "sp": True,
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
# The best plan with so much tensor parallelism, on H800s and on H100s, which differ in nothing but NVLink.

# %%
if verdict:
    mine = plan_of(Task("deepseek-v3", "h800", 2048, 15360, 4096, "deepseek"), plan_deepseek())
    start = Plan(2048, 15360, 4096, stack=STACKS["deepseek"])
    print("tp   H800     H100")
    for tp in (1, 2, 4, 8):
        axes = {"tp": (tp,), "cp": (1,), "pp": (8, 16, 32), "micro": (1, 2), "v": (1,), "zero": (1,)}
        best = [search(deepseek, CLUSTERS[gpu], start, axes).candidates[0].seconds for gpu in ("h800", "h100")]
        print(f"{tp}   {best[0]:5.1f} s  {best[1]:5.1f} s")

# %%
picture = None
if verdict:
    picture = draw_memory({"your plan": memory_of(deepseek, mine)}, h800.memory, "DeepSeek-V3 on 2,048 H800")
picture

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
# The parallelism of DeepSeek-V3 [1]: 16 stages of DualPipe, experts over 64 ranks, so 8 hosts, ZeRO-1 for the rest. Our
# formulas say 18.7 seconds where 19.9 were published. That DualPipe wins is built in: it is assumed to hide all of the
# experts' messages, which is what its authors built it for.
#
# </details>

# %% [markdown]
# ## Seal and open
#
# NVIDIA published runs in fp8 on newer software [2]. Our formulas were fitted to kernels of 2024. Write down what you expect
# before you run the cell: too slow or too fast, and by how much?

# %%
if verdict:
    for run in published():
        if run.set == "nemo":
            print(
                f"{run.model_name:<13} {run.plan.gpus:>5} {run.cluster_name}: predicted {error(run):+4.0%} of the time"
            )

# %% [markdown]
# The dense models are up to half again as fast as we say: kernels get better every year, and a model of the past does not
# know. DeepSeek-V3 is slower than we say, most of all on B200s. Something waits there that is not in these formulas. An
# honest model says where it fails: `puzzles predictions` shows these rows in red.

# %% [markdown]
# ## On real GPUs
#
# - *Four hosts.* With eight hosts a token, the network would be busy twice as long: 24 milliseconds a layer for 12.
# - *What DualPipe costs.* Weights twice, and 20 of 132 multiprocessors do nothing but send [1].
# - *1:1.* The paper puts communication and computation of experts across hosts at about one to one [1]. Our formulas say a
#   third. They may be too kind to the network.
#
# [1] DeepSeek-AI, *DeepSeek-V3 Technical Report*, 2024, arXiv 2412.19437, sections 3.1, 3.2 and 4.2.
# [2] NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary-archive.md, 25.09 and 26.04.

# %% [markdown]
# ## What is simplified here
#
# All experts are equally popular. The factor of fp8 and what waits in it are assumed, as nobody printed them. And the
# picture is DualPipe-V's order, half of DualPipe: the same bubble, on half of the ranks.

# %% [markdown]
# ## Questions to think about
#
# **1.** 256 experts over 128 ranks in place of 64: faster or slower?
#
# <details><summary>Answer</summary>
#
# About the same, 18.6 seconds: within what we can tell. Fewer experts a rank leave room, and a token still crosses four
# hosts.
#
# </details>
#
# **2.** Why is `v` more than 1 no help here?
#
# <details><summary>Answer</summary>
#
# DualPipe has its own stages, two a rank. And with 120 microbatches on 16 stages there is little bubble to save.
#
# </details>
#
# **3.** Why is `zero` 1 and not 2 or 3?
#
# <details><summary>Answer</summary>
#
# With a pipeline gradients of 120 microbatches are summed up on the rank, in fp32; to shard them, each would have to be
# sent, 120 times a step. And `zero` 3 would gather weights as often. Sharding Adam's state is for nothing: it is needed
# once a step.
#
# </details>
#
# ## Where this leads
#
# To your own cluster. `puzzles plan --model config.json --gpus 256 --gpu mine.toml` takes a model from Hugging Face and a
# machine that you measured, and `puzzles predictions` says how far to trust it.

# %% [markdown]
# <!-- part: links -->
