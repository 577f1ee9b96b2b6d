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
# A model of a trillion parameters needs 16 TB for its weights, gradients and optimizer states: 250 GB for each of 64
# GPUs in a pipeline. So each stage gets several GPUs that share its weights, as in FSDP: each has a shard, and before
# a pass they gather the whole. That is cheap if you do it once. But a pipeline takes microbatches one by one, and if
# each of them gathers the weights and frees them again, 8 microbatches gather everything 16 times.
#
# In puzzle $number_pp_fsdp_keep you kept the weights instead, and paid with memory for all of a rank's layers at
# once. Is there an order in which you neither keep them nor gather them again?
#
# > **To tell a friend:** if all microbatches take a stage one after the other, its weights are gathered once, used by
# > all, and freed.

# %%
from drawing import compare, draw
from lib import Costs, Mesh, Model, Trace, check, goal, predict, schedule, simulate

# %% [markdown]
# ## The idea
#
# Three new words. They are about a stage, not a microbatch, so they have no number at the end:
#
# | word | what happens |
# |---|---|
# | `2UNSHARD` | the all-gathers of the weights of stage 2 are *issued*. The first pass that needs them waits for them |
# | `2RESHARD` | the whole weights of stage 2 are freed. Each rank keeps its shard |
# | `2REDUCE_GRAD` | the gradients of stage 2 are summed up over the ranks that share it, and each gets its shard of the sum (a reduce-scatter) |
#
# A pass needs the weights of its stage whole. Here is the most careful way: gather before each pass, free right after
# it.


# %%
@schedule(messages="posted")
def careful(rank, ranks, batches):
    first, second = rank, rank + ranks
    order = []
    for stage in (first, second):
        for b in range(batches):
            order += [f"{stage}UNSHARD", f"{stage}F{b}", f"{stage}RESHARD"]
    for stage in (second, first):
        for b in range(batches):
            order += [f"{stage}UNSHARD", f"{stage}B{b}", f"{stage}RESHARD"]
        order += [f"{stage}REDUCE_GRAD"]
    return order


def gathers(run):
    """All-gathers of one rank."""
    return sum(event.op == "allgather" for event in Trace.of(run).programs[0].events)


mesh = Mesh({"stage": 4, "data": 2})
sizes = {"layers": 8, "batches": 16, "mesh": mesh, "costs": Costs(backward=2)}
often = simulate(careful, **sizes)
verdict = check(often)
print(f"{gathers(often)} all-gathers a rank, ends at {verdict.time:g}")
draw(often)

# %% [markdown]
# 32 all-gathers on each rank, of 0.3 each, all in the open. You see them between the passes.
#
# In breadth-first all microbatches take a stage in a row, so nothing has to be freed and gathered between them.
# **Predict:** how many all-gathers does a rank need, with two stages of one layer each?
#
# <details><summary>Answer</summary>
#
# One for each stage and direction makes four. But look at the turn: the last stage that a rank takes forward is the
# first one that it takes backward. Keep it in between, and three are enough.
#
# </details>

# %% [markdown]
# ## The puzzle
#
# | ranks | mesh | layers | batches | stages |
# |---|---|---|---|---|
# | 8 | stage 4 x data 2 | 8 | 16: 8 microbatches for each of two pipelines | 8: rank *r* of a pipeline has *r* and *r + 4* |
#
# **Given:** the forwards and the backwards of a stage as lists. Two pipelines run side by side, with the same list,
# and share the weights of their stages.
#
# **To do:** put them in order, with `UNSHARD`, `RESHARD` and `REDUCE_GRAD` in the right places.
#
# **Rules**
#
# - A layer takes 1 forward and 2 backward, and messages are posted.
# - Between passes a rank needs only shards of its two layers. A whole weight takes memory until you free it, used or
#   not.
# - The second and the third goal have a limit on what is sent, too.
# - A list without any of the three words is legal: every rank then has its weights whole, and gradients are
#   all-reduced. It needs more memory than any goal allows. Without `REDUCE_GRAD` alone, all gradients are reduced at
#   the very end.

# %% [markdown]
# ### Predict first
#
# Without any sharding, breadth-first ends at 61 on this mesh (with an all-reduce of the gradients at the end). When
# will it end with sharded weights, at best?

# %%
guess = predict("breadth_first_fsdp", end=...)
guess

# %% [markdown]
# ### The goal
#
# What to reach. The limits answer your prediction, so guess first.

# %%
goal("breadth_first_fsdp")

# %% [markdown]
# <!-- part: hints -->


# %%
@schedule(messages="posted")
def breadth_first_fsdp(rank, ranks, batches):
    first, second = rank, rank + ranks

    def forwards(stage):
        return [f"{stage}F{b}" for b in range(batches)]

    def backwards(stage):
        return [f"{stage}B{b}" for b in range(batches)]

    # Both stages forward, both back, and the weights gathered, freed and reduced in
    # between.
    # --- your code (about 7 lines) ---
    order = [f"{first}UNSHARD"]
    order += [*forwards(first)[:-1], f"{second}UNSHARD", *forwards(first)[-1:]]
    order += [f"{first}RESHARD", *forwards(second)]
    order += [*backwards(second)[:-1], f"{first}UNSHARD", *backwards(second)[-1:]]
    order += [f"{second}RESHARD", f"{second}REDUCE_GRAD"]
    order += [*backwards(first), f"{first}RESHARD", f"{first}REDUCE_GRAD"]
    return order
    # --- end of your code ---


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(breadth_first_fsdp, puzzle="breadth_first_fsdp")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# **Time.** Breadth-first alone: 48 of work, 1 of updates, 4.2 of waiting at the beginning and 7.2 at the end: 60.4.
# What is added? Rank 0 begins with an all-gather, 0.3, and all others get their first microbatch that much later. The
# other ranks gather while they wait for it. At the end comes the last reduce-scatter, 0.3. All other collectives run
# while the rank computes, if they are issued in time: 61.0.
#
# **Memory.** The peak is where it is without sharding, on the last rank when its first backward begins: the inputs of
# both stages for eight microbatches, and the outputs of the last one, for which the loss is still
# to come. At that moment one layer is whole, and of the
# other there is only a shard.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="breadth_first_fsdp")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ### Beside interleaved
#
# Interleaved takes a group of four microbatches through a stage, then four through the other, and so on. If only one
# stage is whole at a time, its weights are gathered again at each change:

# %%
from lib.schedules.pipelines.generators import interleaved as interleaved_order
from lib.schedules.pipelines.lowering import with_weights
from lib.schedules.pipelines.program import program_of

order = with_weights(interleaved_order(4, 8))
changes = simulate(program_of(order, messages="posted"), **sizes)
print(" ".join(map(str, order[0])))
for name, run in {"interleaved": changes, "yours": out}.items():
    if run:
        print(
            f"{name:11} {gathers(run)} all-gathers a rank, ends at {check(run).time:g}"
        )
compare(interleaved=changes, breadth_first=out) if out else None

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Breadth-first pipeline parallelism with fully sharded data parallelism**, the combination for which breadth-first
# was invented. With *V* stages on each rank, and one layer in each, a rank gathers
#
# ```
# gathers = 2·V - 1
# ```
#
# times, however many microbatches there are. The price is GPipe's old weakness, activation memory: all microbatches
# are in flight at once. So it suits *few* microbatches in each pipeline, where interleaved pipelines have large
# bubbles and sharded ones would gather all the time.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *What it is for.* With a small batch on each GPU a model of 52 billion parameters trained up to 43 % faster than
#   with Megatron-LM's order. The point of the paper is that this order can be combined with fully sharded data
#   parallelism [@lamypoirier2022].
# - *What others do.* torchtitan would gather the weights for each microbatch if it freed them after forward, so with
#   a pipeline it keeps them by default: `reshard_after_forward=False` [@torchtitan_446].
# - *Llama 3 405B* has 16 pipeline ranks with several stages each. It shards optimizer states and gradients, but keeps
#   its weights whole from forward to backward, for the same reason [@llama3].
# - *In PyTorch* `UNSHARD`, `RESHARD` and `REDUCE_GRAD` are actions of the pipeline's executor, under these names.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - An all-gather takes 0.3 for a layer, however many ranks there are and whatever else is on the links.
# - There is one layer in each stage. With more, an all-gather could be hidden behind the layer before it, and not
#   only behind the microbatch before.
# - The two pipelines are always at the same point. Really the slower one sets the pace of both at each all-gather.

# %% [markdown]
# ## Questions to think about
#
# **1.** Where is the latest place for `UNSHARD` at which nothing is lost? And why not at the very beginning?
#
# <details><summary>Answer</summary>
#
# Before the last microbatch of the stage before: one pass takes 1, and the all-gather 0.3. Earlier you would lose no
# time either, but one more layer would be whole. In the forwards that happens to fit below the peak. On the way back
# it does not: with the first stage gathered at the turn, it is 4,456,448 elements instead of 4,194,304. Prefetching
# costs memory: as early as needed, not as early as possible.
#
# </details>
#
# **2.** Why is the gradient of a stage reduced only once, when eight microbatches make one each?
#
# <details><summary>Answer</summary>
#
# Because each rank can add them up first, as in gradient accumulation: the sum over microbatches and the sum over
# ranks can be taken in any order. It costs the memory of whole gradients of a stage. ZeRO-2 makes the other choice,
# and pays in traffic.
#
# </details>
#
# **3.** What does recomputation of activations do for breadth-first?
#
# <details><summary>Answer</summary>
#
# It cuts what breadth-first has too much of: with checkpointing a stage keeps only its inputs. The paper does just
# that: sharded weights, recomputed activations, and a small bubble. Weights, activations and gradients each have
# their own trick, and the tricks combine.
#
# </details>

# %% [markdown]
# ## Where this leads
#
# You have written many pipelines by now. [The gallery](../00_gallery.ipynb) puts all that have a name on one time axis,
# with sliders to make more. Can you beat them?

# %% [markdown]
# <!-- part: links -->
