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
# GPT-3 has 175 billion weights. In 2022 NVIDIA ran it on 64 A100s, 80 GiB each: 8-way tensor parallel, and a pipeline
# of 8 ranks with 3 stages each [@korthikanti2022]. Written down naively, that run needs 113.7 GiB on a GPU. It does not
# start.
#
# With sequence parallelism it needs 88.3 GiB. With the scores of attention, a number for every pair of tokens, computed
# again in backward instead, 84.9. Neither fits. With both it needs 59.5 GiB, and the run that did not start has 20 GiB
# to spare.
#
# You can know all of that before you book the GPUs. It takes one page of arithmetic, and you write it.
#
# > **To tell a friend:** training holds a weight nine times over, 18 bytes for one that takes 2. And activations can
# > take more than that: without any savings GPT-3's do.
#
# *Reminder.* **ZeRO** shards over the data-parallel ranks: stage 1 Adam's state, 2 the gradients too, 3 the weights
# too (puzzle $number_zero1 and after). **Sequence parallelism** shards what tensor parallelism leaves whole (puzzle
# $number_sequence_parallel). A **pipeline** rank has several microbatches in flight, and holds the activations of
# each (puzzle $number_one_f_one_b).

# %%
from drawing import draw_memory
from lib import check_function, goal
from lib.plan import CLUSTERS, MODELS, STACKS, Plan, memory_of

# %%
gpt3, a100 = MODELS["gpt3-175b"], CLUSTERS["a100"]
sizes = {"tp": 8, "pp": 8, "v": 3, "zero": 0, "stack": STACKS["megatron"]}
naive = Plan(64, 64, **sizes, sp=False)
bars = {"as written down": memory_of(gpt3, naive)}
draw_memory(bars, a100.memory, "GPT-3 on 64 A100")

# %% [markdown]
# ## The idea
#
# **State.** A weight in bf16 takes 2 bytes. Its gradient, summed in fp32, takes 4. Adam keeps an fp32 copy of the
# weight and two moments: 12. Tensor parallelism and the pipeline divide the weights. ZeRO shards what they leave.
#
# **Activations.** Here is a layer of GPT. A microbatch has $b$ sequences of $s$ tokens; the hidden size is $h$, and
# there are $a$ heads. Everything that backward reads again is kept:
#
# ```text
#                                     backward reads               how many numbers
# n = norm(x)                         x                            s·b·h
# q, k, v = n @ W_qkv                 n                            s·b·h
# scores = q @ k.T                    q, k                         s·b·h each
# p = softmax(scores)                 p                            a·s·s·b
# d = dropout(p)                      a mask                       a·s·s·b
# o = d @ v                           d, v                         a·s·s·b, s·b·h
# x = x + dropout(o @ W_o)            o, a mask                    s·b·h each
# n = norm(x)                         x                            s·b·h
# u = n @ W_1                         n                            s·b·h
# g = gelu(u)                         u                            4·s·b·h
# x = x + dropout(g @ W_2)            g, a mask                    4·s·b·h, s·b·h
# ```
#
# A number takes 2 bytes, an entry of a mask 1. **Count:** how many bytes are $s \cdot b \cdot h$ multiplied with, and
# how many $a \cdot s^2 \cdot b$? You know whether you counted right: for GPT-3 on one GPU, the second sum is 2.35 times
# the first (96 heads, hidden size 12,288, 2,048 tokens).
#
# **Who divides what.** Tensor parallelism cuts `W_qkv` and `W_1` into columns, `W_o` and `W_2` into rows. So between
# these two products each rank has $1/t$ of everything, and outside of them it has all of it. Sequence parallelism
# divides what is outside. **Selective recomputation** keeps none of the three squares (`p`, its mask, `d`) and computes
# them again in backward. So split your first sum in two: what is inside, and what is outside?
#
# **In flight.** How many layers' worth of activations does the first of $p$ pipeline ranks hold? With 1F1B it has $L/p$
# layers and $p$ microbatches in flight. And interleaved, with $v$ stages a rank? You counted the virtual stages in
# flight in puzzle $number_interleaved: with two on each of four ranks, 11 of the 16 that 8 microbatches make. In
# general it is the warm-up of rank 0, and one more.

# %% [markdown]
# ## The puzzle
#
# Write `will_it_fit(model, plan)`.
#
# **Given:** two dicts. `model` has `layers`, `hidden`, `heads` and `sequence`. `plan` has `tp`, `pp`, `dp`, `v` (stages
# a rank), `micro` (sequences of a microbatch), `zero` (0 to 3), and `sp` and `selective`, which are true or false.
#
# **To do:** return a dict with the bytes on the first rank: `weights`, `gradients`, `optimizer`, `activations`.
#
# **Rules**
#
# - Only the matrices of layers count: in a layer `W_qkv`, `W_o`, `W_1` and `W_2` have $12h^2$ weights together.
#   Embeddings, norms and logits are left out.
# - The pipeline runs 1F1B, interleaved where `v` is more than 1, and has enough microbatches to be full.

# %% [markdown]
# ### Predict first
#
# A model of 22 billion weights on 8 GPUs: 48 layers, hidden size 6,144, 64 heads, 8-way tensor parallel, microbatches
# of 4 sequences of 2,048 tokens. Which takes more memory, its state or its activations?
#
# <details><summary>Answer</summary>
#
# Its activations: 59.25 GiB, against 45.6 GiB of state. With sequence parallelism and selective recomputation 9.56
# GiB of activations are left.
#
# </details>

# %% [markdown]
# ### The goal
#
# The first four lines of the table are the 22B and GPT-3 of the paper [@korthikanti2022], each without and with the two
# savings.

# %%
goal("will_it_fit")

# %% [markdown]
# <!-- part: hints -->


# %%
def will_it_fit(model, plan):
    # The state in three kinds, each sharded from its stage of ZeRO on. Then a layer's
    # activations: outside, inside, the squares. And how many layers
    # are in flight at once?
    # --- your code (about 16 lines) ---
    layers, h, a, s = (model[key] for key in ("layers", "hidden", "heads", "sequence"))
    t, p, v = plan["tp"], plan["pp"], plan["v"]
    weights = 12 * h * h * layers / (t * p)

    def shard(zero):
        return plan["dp"] if plan["zero"] >= zero else 1

    entries = s * plan["micro"] * h
    outside = 10 * entries / (t if plan["sp"] else 1)
    inside = 24 * entries / t
    square = 0 if plan["selective"] else 5 * a * s * s * plan["micro"] / t
    deep = layers * (1 + (p - 1) / (p * v)) if v > 1 else layers
    return {
        "weights": 2 * weights / shard(3),
        "gradients": 4 * weights / shard(2),
        "optimizer": 12 * weights / shard(1),
        "activations": deep * (outside + inside + square),
    }
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(will_it_fit, puzzle="will_it_fit")
verdict

# %% [markdown]
# Passed? Then `reveal("will_it_fit")`, in a cell of its own, shows the official solution. (`from lib import reveal`
# first.)

# %% [markdown]
# ### See what it is for
#
# GPT-3 on 64 A100s, and the two savings. `memory_of` is what `puzzles plan` uses: your formulas, plus embeddings and
# logits, and for Llama and DeepSeek the rows of their layers.

# %%
picture = None
if verdict:
    ways = {
        "as written down": naive,
        "sequence parallel": Plan(64, 64, **sizes),
        "selective": Plan(64, 64, **sizes, sp=False, recompute="selective"),
        "both": Plan(64, 64, **sizes, recompute="selective"),
    }
    memories = {name: memory_of(gpt3, plan) for name, plan in ways.items()}
    picture = draw_memory(memories, a100.memory, "GPT-3 on 64 A100")
picture

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# The memory model of Megatron-LM, as Korthikanti and others published it in 2022 [@korthikanti2022]. A layer keeps the
# famous
#
# $$ sbh \left( 34 + 5 \frac{as}{h} \right) $$
#
# bytes with no parallelism at all, $sbh\,(10 + 24/t + 5as/(ht))$ with tensor parallelism, and the whole sum over $t$
# with sequence parallelism as well. In flight are $L$ layers' worth with 1F1B, *whatever p is*. Interleaved, $pv + p -
# 1$ virtual stages of $L/(pv)$ layers make $L \left(1 + \frac{p-1}{pv}\right)$. Flash attention never stores the square
# [@dao2022]; then the question is what else is cheap to recompute.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *What it was worth.* For the 530B model on 2,240 A100s the share of the peak (MFU) rose from 42.1 to 54.2 %: with
#   sequence parallelism and selective recomputation the run fitted without full recomputation [@korthikanti2022].
# - *18 bytes or 16?* ZeRO's paper counts 16 bytes a weight, with gradients in fp16: 7.5 billion weights are 120 GB,
#   and 1.9 GB on each of 64 GPUs with everything sharded [@rajbhandari2020].
# - *80 GB means 80 GiB here.* An H100 reports 81,559 MiB, which is 85.5 billion bytes. Divide by 80e9 and you give 7
#   % away.
# - *It is a lower bound.* torchtitan measured 77.0 GiB for Llama 3 8B on 8 H100s, where these formulas say 75.4
#   [@torchtitan_llama3_h100, table 1, with compile]. The rest is the allocator's cache and the workspace of kernels.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# The first rank does not always hold the most: the last one has the logits, 10 bytes for each token and word of the
# vocabulary. `memory_of` takes the larger of the two. A layer with grouped-query attention, a gated MLP or experts
# keeps other things; the idea is the same. And FSDP keeps no weights in bf16 beside its fp32 shard, so
# `memory_of` counts 16 bytes a weight there, not 18.

# %% [markdown]
# ## Questions to think about
#
# **1.** Twice as many pipeline ranks, all else equal. What happens to the activations of the first rank?
#
# <details><summary>Answer</summary>
#
# Nothing: half of the layers, twice as many microbatches in flight. A pipeline divides state, not activations.
# Activations are the job of tensor, sequence and context parallelism.
#
# </details>
#
# **2.** At which sequence length is GPT-3's square of attention as large as all the rest, on one GPU?
#
# <details><summary>Answer</summary>
#
# Where $5as/h = 34$: with 96 heads and a hidden size of 12,288 at 870 tokens. At 2,048 it is 80 against 34.
#
# </details>
#
# **3.** ZeRO-3 on 64 ranks, or 8-way tensor parallel with 8 stages: both divide the state by 64. What is the
# difference?
#
# <details><summary>Answer</summary>
#
# ZeRO-3 leaves the activations whole, and gathers every layer's weights for each microbatch. Tensor parallelism
# divides activations too, and pays with all-reduces inside every layer, in the open. That is why it stays inside a
# host.
#
# </details>
#
# ## Where this leads
#
# Now you can say what fits. But where exactly do 80 GiB go, and why do 16 times as many GPUs save so little of them?

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from math import isclose

KINDS = ("weights", "gradients", "optimizer", "activations")


def will_it_fit_inputs(draw):
    heads = draw.choice([8, 16, 32, 64, 96])
    model = {
        "layers": draw.choice([24, 48, 96]),
        "hidden": heads * draw.choice([64, 128]),
        "heads": heads,
        "sequence": draw.choice([512, 2048, 4096]),
    }
    pp = draw.choice([1, 2, 4, 8])
    plan = {
        "tp": draw.choice([1, 2, 4, 8]),
        "pp": pp,
        "dp": draw.choice([1, 2, 8]),
        "v": draw.choice([1, 2, 3]) if pp > 1 else 1,
        "micro": draw.choice([1, 2, 4]),
        "zero": draw.choice([0, 1, 2, 3]),
        "sp": draw.choice([False, True]),
        "selective": draw.choice([False, True]),
    }
    return model, plan


def will_it_fit_accepts(answer, model, plan):
    """True where all kinds are right to a billionth, or what is wrong with the first
    that is not."""
    right = will_it_fit(model, plan)
    if not isinstance(answer, dict) or set(answer) != set(KINDS):
        return f"return a dict of {', '.join(KINDS)}, in bytes"
    if bad := [
        kind
        for kind in KINDS
        if isinstance(answer[kind], bool) or not isinstance(answer[kind], int | float)
    ]:
        return f"{bad[0]} is a number of bytes; it is {answer[bad[0]]!r}"

    def same(kind, value):
        return isclose(answer[kind], value, rel_tol=1e-9)

    wrong = [kind for kind in KINDS if not same(kind, right[kind])]
    if not wrong:
        return True
    kind = wrong[0]
    fine = [one for one in KINDS if one not in wrong]
    start = (
        f"{', '.join(fine)} {'is' if len(fine) == 1 else 'are'} right; " if fine else ""
    )
    start += f"{kind}: "
    if same(kind, right[kind] / 2**30) or same(kind, right[kind] / 1e9):
        return start + "the answer is in bytes, and not in GiB or GB"
    unit = {"weights": 2, "gradients": 4, "optimizer": 12}.get(kind)
    if unit is not None:
        from_zero = {"weights": 3, "gradients": 2, "optimizer": 1}[kind]
        if plan["dp"] > 1 and any(
            same(kind, right[kind] * factor) for factor in (plan["dp"], 1 / plan["dp"])
        ):
            return (
                start
                + f"{unit} bytes a weight, and only from zero {from_zero} on divided by dp; this plan has zero {plan['zero']}"
            )
        if kind == "gradients" and same(kind, right[kind] / 2):
            return start + "they are summed in fp32, in 4 bytes"
        if same(kind, right[kind] * plan["pp"]):
            return start + "pp divides the layers: a rank has L/p of them"
        return (
            start
            + f"{unit} bytes for each of the 12·h² weights of a layer that this rank has"
        )
    with_factor = model["layers"] * (1 + (plan["pp"] - 1) / (plan["pp"] * plan["v"]))
    if (
        plan["v"] == 1
        and plan["pp"] > 1
        and same(kind, right[kind] / model["layers"] * with_factor)
    ):
        return (
            start
            + "1 + (p - 1)/(p·v) is for interleaved schedules; with v = 1 it is the layers of the model, whatever p is"
        )
    virtual = right[kind] / with_factor * model["layers"] / plan["pp"] / plan["v"]
    stages = answer[kind] / virtual if plan["v"] > 1 else 0
    if answer[kind] == 0 or (stages and isclose(stages, round(stages), rel_tol=1e-9)):
        return (
            start
            + f"that is {stages:.0f} virtual stages in flight; rank 0 has those of its warm-up, and one more"
        )
    if same(kind, will_it_fit(model, plan | {"sp": not plan["sp"]})[kind]):
        return (
            start
            + "sp divides what is outside the cut matrices by tp, and nothing else does"
        )
    if same(
        kind, will_it_fit(model, plan | {"selective": not plan["selective"]})[kind]
    ):
        return (
            start
            + "selective recomputation drops the square of attention, and nothing but that"
        )
    kept = will_it_fit(model, plan | {"selective": False})[kind] - right[kind]
    if plan["selective"] and any(
        same(kind, right[kind] + kept * part / 5) for part in (1, 2, 3, 4)
    ):
        return (
            start
            + "selective recomputation keeps none of the three squares: p, its mask, d"
        )
    b = plan["micro"]
    if b > 1 and same(kind, right[kind] / b):
        return (
            start
            + f"micro is b, and that is {b} here: {b} texts at once, so s·b tokens, and b squares of s·s"
        )
    square = right[kind] - will_it_fit(model, plan | {"selective": True})[kind]
    if b > 1 and square and same(kind, right[kind] - square * (1 - 1 / b)):
        return (
            start
            + f"micro is {b} here, and each of the {b} texts has a square of attention of its own"
        )
    if same(kind, right[kind] + square * (plan["tp"] - 1)):
        return (
            start + "the square of attention is divided by tp too: heads are shared out"
        )
    if same(kind, right[kind] / plan["pp"]):
        return start + "a rank has L/p layers, and p microbatches of them in flight"
    entries = model["sequence"] * plan["micro"] * model["hidden"]
    layers = with_factor if plan["v"] > 1 else model["layers"]
    off = (answer[kind] - right[kind]) / (layers * entries)
    if plan["tp"] == 1 and off == round(off):
        square = model["heads"] * model["sequence"] / model["hidden"]
        start += f"{abs(off):g}·s·b·h too {'much' if off > 0 else 'little'} a layer, and a·s·s·b is {square:g} of these here; "
    moved = 0 if plan["sp"] or plan["tp"] == 1 else off / (1 - 1 / plan["tp"])
    if moved and abs(moved - round(moved)) < 1e-6 and -10 <= moved <= 24:
        return (
            start
            + f"the bytes of a layer are right with tp 1, and cut in the wrong place: {abs(moved):.0f}·s·b·h too "
            f"{'many' if moved > 0 else 'few'} are outside of the cut matrices"
        )
    return start + (
        "count what backward reads of one layer (2 bytes a number, 1 for a mask), inside the cut matrices, outside of "
        "them, and the squares; then multiply by the layers' worth that are in flight"
    )
