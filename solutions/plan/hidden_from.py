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
# 70 billion weights in bf16 are 140 GB. FSDP sends all of them into every host twice a step, and a gradient for each
# of them out. A host of eight H100s takes in 400 GB/s, 50 on each of its cards. That makes a third of a second for
# each pass over the weights, *whatever the batch*.
#
# With a large batch you never see it: the GPUs compute for seconds, and the gather of the next layer runs beside
# them. With a small batch every GPU waits. Somewhere in between is the number of tokens a GPU that hides the network.
# How large is it for an 8B model? For a 70B? For a 405B?
#
# > **To tell a friend:** FSDP's communication is free while each GPU has enough tokens. With a fixed batch, every GPU
# > you add takes some away.
#
# *Reminder.* **FSDP** (puzzle $number_fsdp) gathers the weights of a layer before its forward and again before its
# backward, and reduce-scatters its gradients; with prefetching (puzzle $number_fsdp_prefetch) that runs beside the work
# of the layer before.

# %%
from drawing import draw_roofline
from lib import check_function, goal
from lib.plan import CLUSTERS, MODELS, Plan
from lib.plan.resources import layer_time, roofline

# %% [markdown]
# ## The idea
#
# Take one layer with $W$ weights, and $T$ tokens on each GPU. How long does it compute, and how long does it
# communicate?
#
# - **Work.** Each token multiplies each weight once and adds once: $2WT$ FLOP forward, and twice as many backward.
# - **Wire.** A weight in bf16 is 2 bytes. A ring over many hosts brings all of them into each host once, and NVLink
#   hands them on inside. All network cards of a host take part, so the rate is that of a *host*: 8 cards of 50 GB/s
#   make 400.
# - In backward the weights come in once more, and a gradient for each goes out, at 2 or 4 bytes, as you sum it.
#
# Communication is **hidden** where the work takes at least as long as the wire.

# %%
for gpu in ("a100", "h100", "h800", "b200"):
    machine = CLUSTERS[gpu]
    host = machine.nic * machine.host_size
    print(
        f"{gpu:<4}  {machine.flops / 1e12:5.0f} TFLOP/s a GPU   "
        f"{host / 1e9:3.0f} GB/s into a host of {machine.host_size}"
    )

# %% [markdown]
# ## The puzzle
#
# Write `hidden_from(weights, flops, rate, gradient)`.
#
# **Given:** the weights of a layer; the FLOP/s of a GPU; the bytes/s that enter (or leave) a whole host; and the
# bytes of a gradient on the wire, 2 or 4. All are whole numbers.
#
# **To do:** return two numbers of tokens a GPU, rounded up: the smallest with which forward hides its gather, and the
# smallest with which backward hides its gather and its reduce-scatter.
#
# **Rules**
#
# - Every GPU of a host needs the same weights at the same time: what enters the host once serves all of them.
# - In backward count both directions one after the other: the gradient goes out after the weights came in.

# %% [markdown]
# ### Predict first
#
# Twice as many weights in a layer: twice as many tokens, half as many, or the same?
#
# <details><summary>Answer</summary>
#
# The same. Twice as much to send, and twice as much to compute with it.
#
# </details>

# %% [markdown]
# ### The goal

# %%
goal("hidden_from")

# %% [markdown]
# <!-- part: hints -->


# %%
def hidden_from(weights, flops, rate, gradient):
    # FLOP over FLOP/s is the work, bytes over bytes/s the wire. Which T makes them
    # equal?
    # --- your code (about 3 lines) ---
    forward = -(-2 * weights * flops // (2 * weights * rate))
    backward = -(-(2 + gradient) * weights * flops // (4 * weights * rate))
    return forward, backward
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(hidden_from, puzzle="hidden_from")
verdict

# %% [markdown]
# Passed? Then `reveal("hidden_from")`, in a cell of its own, shows the official solution. (`from lib import reveal`
# first.)

# %% [markdown]
# ### See what it is for
#
# At the peak of an H100 it is 2,473 tokens, for any model. But no kernel reaches the peak. **Are more tokens needed to
# hide the gather, or fewer?** Decide before you look. Here is the forward of a layer over the gather of its weights,
# with matrix products that reach at most four fifths of the peak, less when they are small, with attention and norms,
# and with rings over 64 hosts that have a latency. Change the model and the GPU, and run it again.

# %%
MODEL, GPU = "llama3-70b", "h100"
TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16384)
picture = None
if verdict:
    curves = roofline(MODELS[MODEL], CLUSTERS[GPU], TOKENS)
    picture = draw_roofline(
        curves, f"{MODEL} on {GPU}: the forward of a layer over what it sends"
    )
picture

# %% [markdown]
# 1,140 tokens hide the gather in forward, less than half of 2,473: a slower kernel computes longer, so it hides *more*.
# It is 1,127 for the 8B and 1,218 for the 405B, which is fifty times as large. (Backward with fp32 gradients needs half
# as many again.) Now take Llama 3 405B on 16,384 GPUs: a step of
# 2,048 sequences of 8,192 tokens leaves 1,024 for each GPU. FSDP alone would wait for the network in every layer,
# however much memory it saves.
#
# **Tensor parallelism is different.** Its all-reduces grow with the tokens, as its work does, so more tokens help
# little once the products are large. And above 1 does not mean hidden: the next product needs the sum, so nothing runs
# beside it. What counts is how thin the slices get. A layer of the 70B model with its all-reduces in the open, by
# tensor-parallel size:

# %%
if verdict:
    model, h100 = MODELS["llama3-70b"], CLUSTERS["h100"]
    alone = layer_time(model, h100, Plan(512, 512, 8192)).total
    print("tp   efficiency of a layer")
    for tp in (1, 2, 4, 8, 16, 32):
        sliced = layer_time(model, h100, Plan(512, 512, 8192, tp=tp)).total
        print(f"{tp:>2}   {alone / tp / sliced:>6.0%}")

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# $T \ge C/B$, the FLOP/s of a GPU over the bytes/s of its host, is the data-parallel roofline of *How to Scale Your
# Model* [@scaling_book_gpus]. The weights cancel: the number belongs to the machine, not to the model. An H100 needs
# 2,473 tokens a GPU forward, and 3,709 backward with gradients in fp32. It counts tokens a **GPU**, so with a fixed
# batch more GPUs make it worse: scaling out with FSDP ends here, and tensor, context and pipeline parallelism begin.
#
# </details>

# %% [markdown]
# ## A case for a detective
#
# In 2021 ZeRO-3 was measured with GPT-3 on A100s, at a fixed batch of 1,536 sequences [@narayanan2021, table 2]. On 384
# GPUs it reached 144 TFLOP/s a GPU, on 1,536 only 44. Our formulas say 209 and 158. One number of `CLUSTERS["a100"]`
# explains nearly all of it. Which one, and what might have happened?
#
# <details><summary>Answer</summary>
#
# The network. Eight cards of 25 GB/s bring 200 into a host. With 25 instead, one card's worth, the formulas say 153
# and 57; with 20 they say 140 and 48. As if one card of eight had been used. That is our hypothesis, not a finding of
# the paper.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *The same number elsewhere.* How to Scale Your Model computes 2,475 tokens a GPU for data parallelism across hosts
#   of H100s [@scaling_book_gpus].
# - *FSDP on many hosts.* Llama 3 8B on 128 H100s: 6,514 tokens a second on each GPU, 98 % of what 8 GPUs reach
#   [@torchtitan_llama3_h100, tables 1 and 3]. Each GPU has 16,384 tokens: fourteen times the 1,127 that hide the gather
#   in forward.
# - *Tensor parallelism stays in the host.* Hugging Face measured it: from 8-way to 16-way, out of the host,
#   throughput fell by 43 % [@ultrascale_playbook].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# A gather beside the work slows the work down: both want memory bandwidth and multiprocessors. In the runs on H100s
# that our constants were fitted to, a hidden gather of 10 ms makes the work beside it 7 ms longer. A network card sends and receives at the same time, so
# the gather and the scatter of backward could overlap, which makes our second number pessimistic. And the square of
# attention is work that moves no weights, so long sequences hide a little more.

# %% [markdown]
# ## Questions to think about
#
# **1.** An oversubscribed network, 7 to 1 between pods. What happens to the number, and what would you do?
#
# <details><summary>Answer</summary>
#
# Up to sevenfold, 17,000 tokens a GPU, where the rings of all hosts cross pods at the same time. (One ring over all
# ranks in order crosses each border only once, and hardly notices. With tensor and pipeline parallelism there are
# many rings, and every host has some that cross.) So let no gather cross: shard within a pod and replicate between
# pods (puzzle $number_hsdp). Then only shards of gradients cross, once a step.
#
# </details>
#
# **2.** In a mixture of experts a token uses 8 of 256. What changes?
#
# <details><summary>Answer</summary>
#
# FSDP would gather all experts, and each token multiplies with a thirty-second of them: 32 times as many tokens to
# hide it. That is why experts stay where they are, and tokens travel.
#
# </details>
#
# **3.** B200s compute 2.3 times as fast as H100s, and their hosts have the same network cards. What happens to the
# number?
#
# <details><summary>Answer</summary>
#
# 2.3 times as many tokens: 5,625. FLOP/s grow faster than bytes/s, so what was hidden last year shows this year.
#
# </details>
#
# ## Where this leads
#
# You know what fits and what hides. Now choose a whole configuration: GPT-3, 64 A100s, and a clock.

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from math import ceil


def hidden_from_inputs(draw):
    weights = draw.choice([218_103_808, 855_638_016, 3_187_671_040, 1])
    return (
        weights,
        draw.integer(50, 2500) * 10**12,
        draw.choice([1, 5, 25, 50, 200, 400]) * 10**9,
        draw.choice([2, 4]),
    )


def hidden_from_accepts(answer, weights, flops, rate, gradient):
    """True where both numbers are right, or what is wrong with the first that is
    not."""
    right = hidden_from(weights, flops, rate, gradient)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return "return two numbers, for forward and for backward"
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in answer):
        return False
    if tuple(answer) == right:
        return True
    if tuple(answer) == right[::-1]:
        return "both are right, in the other order: forward first, then backward"
    for name, mine, one in zip(("forward", "backward"), answer, right, strict=True):
        if mine == one:
            continue
        if mine != int(mine) and ceil(mine) == one:
            return (
                f"{name}: there are no parts of a token; {mine:g} is to be rounded up"
            )
        if mine == one - 1:
            return f"{name}: with {mine:,} tokens the wire still takes longer than the work: round up"
        if name == "backward" and mine == right[0]:
            return (
                "backward also sends a gradient out, and has twice the work of forward"
            )
        if name == "backward" and abs(mine - 2 * one) <= 2:
            return "backward: 4 FLOP a weight and token, twice those of forward"
        if abs(mine - 8 * one) <= 8 or abs(8 * mine - one) <= 8:
            return f"{name}: the rate is that of the host already, and each of its GPUs gets all that comes in"
        work, wire = (2, 2) if name == "forward" else (4, 2 + gradient)
        if weights > 1 and abs(mine - one * weights) <= weights:
            why = "W is on both sides, and cancels"
        elif abs(mine - ceil(work * rate / (wire * flops))) <= 1:
            why = "the other way round"
        elif name == "backward" and abs(mine * wire - one * gradient) <= wire:
            why = "weights are gathered for backward again"
        elif abs(mine - 2 * one) <= 2:
            why = "too many bytes, or too few FLOP"
        else:
            why = "set both equal, and solve for T"
        return (
            f"{name} should be {one:,} tokens, and {mine:,} came: {why}. Work is {work}·W·T over FLOP/s, the wire "
            f"{wire}·W over bytes/s"
        )
    return False
