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
# DeepSeek-V3 was trained on 2,048 GPUs, and each of them had three kinds of partners [@scaling_book]: its neighbours in
# a pipeline of 16 stages; 63 others, with which it shared the experts of its layers; and those that had the same
# weights and other data.
#
# You know all three ways to share. Now they meet, and whatever a GPU sends, only one kind of partner is right. Sum the
# gradient of an expert with the wrong ones, and no shape tells you.
#
# > **To tell a friend:** every gradient has its own answer to "with whom do I sum?". Ask whose tokens it has seen.

# %%
from drawing import draw, draw_experts, draw_mesh
from lib import Layer, Links, Mesh, Model, goal, predict, route_by_loads, simulate
from lib.schedules.given import accumulate, given, joined, update
from lib.suite.course.solutions import run_of

MESH = Mesh({"stage": 2, "data": 2, "expert": 2})
PRICES = Links()  # 0.2 for 131,072 elements from one rank to the next
FAIR = route_by_loads([1, 1])  # a token has one expert, and each gets half of them
BLOCK = [
    Layer(),
    Layer("dispatch", experts=2, route=FAIR),
    Layer("experts", experts=2),
    Layer("combine"),
]

# %% [markdown]
# ## The idea
#
# Eight ranks, three axes. The first axis is the pipeline: ranks 0 to 3 are stage 0, ranks 4 to 7 are stage 1.

# %%
draw_mesh(MESH)

# %% [markdown]
# A stage has one **block**: a dense layer, which all tokens pass through, and an MoE layer with two experts, which is
# three layers here, as in puzzle $number_expert_parallel. Stage 0 has layers 0 to 3, stage 1 has layers 4 to 7.
#
# | layer | what it is | on a rank |
# |---|---|---|
# | 0 and 4 | a dense layer | all of it, on the 4 ranks of its stage |
# | 1 and 5 | dispatch: each token to its expert | no weight |
# | 2 and 6 | two experts | the one with this rank's place along `expert`: 2 ranks have the same |
# | 3 and 7 | combine: each token where it came from | no weight |
#
# Now the three kinds of partners. Take rank 1, with the coordinates stage 0, data 0, expert 1:
#
# | along | partners of rank 1 | what goes there |
# |---|---|---|
# | `stage` | 5 | activations forward, their gradients backward |
# | `expert` | 0 | tokens that want the other expert, and their way home |
# | `data` | 3 | gradients, but of which layer? |

# %%
draw_mesh(MESH, groups_of=1)

# %% [markdown]
# In puzzle $number_expert_parallel you wrote what a batch does inside a stage. Here it is given, with exchanges
# along `expert` alone, as three functions. You need not read their code, which is in the folded cell below, only what
# they take from the stores and what they leave there. `dense`, `experts` and `combine` are this stage's numbers of those
# layers:
#
# | function | takes | leaves | returns |
# |---|---|---|---|
# | `await through(b)` | `activations[dense, b]`; on stage 0 the data of batch *b* | what backward needs; on stage 1 `grad_activations[combine + 1, b]`, from the loss | on stage 0 the activation after `combine` |
# | `await back_to_dense(b)` | `grad_activations[combine + 1, b]` | the gradient of the expert's weight | |
# | `back_through_dense(b)` | what `back_to_dense` has left | the gradient of the dense weight | the gradient of `activations[dense, b]` |
#
# Gradients of weights add up in `grad_weights`, and `update(model, layer)` updates a weight with what is there.


# %% jupyter={"source_hidden": true}
@given
async def exchange(model: Model, value, dim: str, layer: int):
    """Cuts a value along a dim, sends a part to each rank along "expert", and joins
    what comes."""
    ranks = len(model.group("expert"))
    parts = [model.shard(value, dim, rank, ranks) for rank in range(ranks)]
    coming = model.alltoall(parts, layer, group="expert")
    del value, parts
    return joined(await coming)


@given
def block_of(model: Model):
    """Three functions, for a batch in the four layers of this stage: forward, backward
    down to the dense layer, and backward of that one. The first stage gets the data,
    the last has the loss. Gradients of weights add up."""
    weights, _, activations, grad_activations, _ = model.storage()
    first = 4 * model.coord.get("stage", 0)
    dense, dispatch, experts, combine = range(first, first + 4)

    async def through(b: int):
        if dense == 0:
            activations[dense, b] = model.get_activation([b])
        out = model.forward(dense, activations[dense, b], weights[dense])
        out = model.forward(dispatch, out)
        activations[experts, b] = await exchange(model, out, "experts", experts)
        out = model.forward(experts, activations[experts, b], weights[experts])
        out = await exchange(model, out, "batch", combine)
        out = model.forward(combine, out)
        if combine + 1 < model.LAYERS:
            return out
        grad_activations[combine + 1, b] = model.loss(out)

    async def back_to_dense(b: int) -> None:
        grad = model.backward(combine, None, grad_activations.pop((combine + 1, b)))
        grad = await exchange(model, grad, "experts", experts)
        tokens = activations.pop((experts, b))
        of_expert, grad = model.backward(experts, tokens, grad, weights[experts])
        accumulate(model, experts, of_expert)
        del tokens, of_expert
        grad = await exchange(model, grad, "batch", dispatch)
        grad_activations[dense + 1, b] = model.backward(dispatch, None, grad)

    def back_through_dense(b: int):
        tokens, grad = activations.pop((dense, b)), grad_activations.pop((dense + 1, b))
        of_dense, grad = model.backward(dense, tokens, grad, weights[dense])
        accumulate(model, dense, of_dense)
        return grad

    return through, back_to_dense, back_through_dense


# %% [markdown]
# A single stage, with one batch for each rank. The four exchanges are where no rank computes:


# %%
async def one_stage(model: Model) -> None:
    model.weights[0], _ = model.load_weights(0)
    model.weights[2], _ = model.load_weights(2, model.coord["expert"], 2)
    through, back_to_dense, back_through_dense = block_of(model)
    await through(model.rank)  # the batch with this number
    await back_to_dense(model.rank)
    back_through_dense(model.rank)


SMALL = Mesh({"data": 2, "expert": 2})
stage = simulate(one_stage, layers=BLOCK, mesh=SMALL, batches=4, costs=PRICES)
draw(stage)

# %% [markdown]
# Now look at what each rank has at the end:

# %%
for model in stage:
    of_dense, of_expert = model.grad_weights[0], model.grad_weights[2]
    print(f"rank {model.rank}   layer 0: {of_dense}   expert: {of_expert}")

# %% [markdown]
# Which batches are in each gradient, and which are missing? Which other ranks have those, and the same weight?

# %% [markdown]
# ## The puzzle
#
# | ranks | mesh | batches | a block, forward | an exchange | a message between stages | all-reduce | an update |
# |---|---|---|---|---|---|---|---|
# | 8 | stage 2, data 2, expert 2 | 16, so 4 a rank | 1 + 1 | 0.1 | 0.2 at each end | 0.6 of four ranks, 0.4 of two | 0.5 |
#
# Backward takes as long as forward. Dispatch and combine take no time.
#
# **Given:** on each rank its `stage`, the rank in the `other` stage with which it exchanges messages, the numbers of its
# layers, the batches of its pipeline, `mine`, its weights, and the functions above. Then `forward(b)`, which takes batch
# *b* through the stage. It gets what the other stage has sent with `await model.receive(other)`, and calls a function
# that you write: `await send(value)` sends a value to the other stage. Begin with `await model.pass_to(other, value)`,
# which goes on when the value has arrived. The `group` of a collective is an axis of the mesh, or a list of axes.
#
# **To do:** one training step, in three steps of yours.
#
# 1. `send(value)`, and `backward(b)`, which does for gradients what `forward` does for activations.
# 2. All batches forward, all back, two sums, two updates. Now the step is correct.
# 3. What waits, and for whom? First the order of the batches, then the sums, then the messages.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts. Park a value in a variable while something else runs, and
#   only the first goal counts. You may keep pending messages and sums in a dict or a list of your own.
# - A rank sends one message at a time. Messages and sums that travel at the same time share its link, and both take
#   longer.
# - `set_final_weight` gets the whole weight of the dense layer, and this rank's expert.

# %% [markdown]
# ### Predict first
#
# The simplest pipeline: all four batches forward, then all backward, and everything awaited where it is called. How
# many collectives does a rank call, and when is the step over?

# %%
guess = predict("moe_pipeline", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step. The second takes as long as the step you predicted, with fewer activations. For the
# third, look at what a rank still has to do once its expert has gone back with the last batch; for the last, at which
# rank waits while a message is in flight.

# %%
goal("moe_pipeline")

# %% [markdown]
# <!-- part: hints -->


# %%
async def moe_pipeline(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    through, back_to_dense, back_through_dense = block_of(model)

    stage, other = model.coord["stage"], model.group("stage")[1 - model.coord["stage"]]
    # This stage's layers; dispatch has no weight.
    dense, _, experts, combine = range(4 * stage, 4 * stage + 4)
    first = model.coord["data"] * len(model.group("expert")) + model.coord["expert"]
    mine = range(first, model.BATCHES, model.RANKS // len(model.group("stage")))
    weights[dense], opt_states[dense] = model.load_weights(dense)
    weights[experts], opt_states[experts] = model.load_weights(
        experts, model.coord["expert"], len(model.group("expert"))
    )

    async def forward(b: int) -> None:
        if stage == 1:
            activations[dense, b] = await model.receive(other)
        out = await through(b)
        if stage == 0:
            await send(out)

    # `send` and `backward`; batches `mine`, forward and backward; then sum the
    # gradients of `dense` and `experts`, and update both.
    # --- your code (about 25 lines) ---
    messages, sums = [], {}  # that are on their way

    async def send(value) -> None:
        if messages:
            await messages.pop()  # the one before, which has had time to arrive
        messages.append(model.pass_to(other, value))

    async def backward(b: int) -> None:
        if stage == 0:
            grad_activations[combine + 1, b] = await model.receive(other)
        await back_to_dense(b)
        if b == mine[-1]:  # sum this expert's gradients while layer `dense` goes back
            sums[experts] = model.allreduce(grad_weights.pop(experts), experts, "data")
        grad = back_through_dense(b)
        if stage == 1:
            await send(grad)

    ahead = 1 - stage  # the first stage is one batch ahead of the second, and no more
    for number in range(len(mine) + ahead):
        if number < len(mine):
            await forward(mine[number])
        if number >= ahead:
            await backward(mine[number - ahead])
    await messages.pop()

    sums[dense] = model.allreduce(grad_weights.pop(dense), dense, ["data", "expert"])
    for layer in (experts, dense):
        grad_weights[layer] = await sums.pop(layer)
        update(model, layer)
    # --- end of your code ---

    for layer in (dense, experts):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(moe_pipeline, puzzle="moe_pipeline")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# A batch takes 2.2 through a block, forward and again backward: 1 + 1, and two exchanges. Stage 0 has four of them,
# 17.6. At the turn it waits until its last batch has been through stage 1 and back, 4.4. Messages take 2.0: 0.2 for
# each that it sends or receives, and for the two of stage 1 at the turn. Then come the sums, 0.4 and 0.6, and two
# updates of 0.5: over at 26.0. A rank calls 4 exchanges a batch and two all-reduces: 18 collectives.
#
# Elements sent by a rank: 16 exchanges of half of 131,072, 4 messages of 131,072, and 262,144 + 393,216 in two sums:
# 2,228,224.
#
# Memory: two weights and two optimizer states are 1,048,576. Stage 1 has the most when it sends its first gradient:
# both gradients of weights, 524,288, the one that it sends, 131,072, and of each of the three other batches two
# activations and a gradient, 393,216. That is 2,883,584.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="moe_pipeline")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Pipeline × expert × data parallelism**, the shape in which large MoE models are trained. With *p* stages, *e* ranks
# along `expert`, and *d* along `data`:
#
# ```
# a dense layer              on e·d ranks, gradient summed over data and expert
# an expert                  on d ranks, gradient summed over data
# tokens                     exchanged along expert, inside a stage
# activations, gradients     sent along stage, between ranks with the same other coordinates
# batches in flight          p - stage, in the order 1F1B
# ```
#
# With two batches in flight instead of four, stage 0 has the most: two activations of each, both gradients of weights
# (524,288) and one that goes back, 2,228,224. A message in flight makes it 2,359,296. The expert's sum runs while layer
# `dense` goes back, and the sum of `dense` beside the update of the expert: that saves 0.4 + 0.5, so 25.1. With messages
# that no rank waits for it is 24.9.
#
# The order in which stage 0 is one batch ahead, and each backward makes room for the next forward, is called **1F1B**:
# one forward, one backward. You wrote it in puzzle $number_one_f_one_b.
#
# </details>

# %% [markdown]
# Here are the tokens of stage 0 on their way to its experts and home, over all four batches of a rank. Bands lead from
# rank 0 to ranks 0 and 1, and never to 2 or 3: an exchange stays inside a pair along `expert`. So each expert is there
# twice, once for each place along `data`, and neither has seen a token of the other.

# %%
run, _ = run_of("moe_pipeline")  # yours, once it is correct
draw_experts(run, layer=1)

# %% [markdown]
# ## On real GPUs
#
# - **Three axes.** DeepSeek-V3: 16 stages, experts on 64 GPUs in 8 hosts, and optimizer states sharded among the
#   data-parallel ranks (ZeRO-1), on 2,048 H800s [@scaling_book].
# - **Exchanges stay in a host** where they can: between hosts they are several times as slow, as puzzle
#   $number_expert_parallel says. So `expert` is usually the last axis of a mesh, whose neighbours share a host.
# - **Not all stages are alike.** In torchtitan a stage without any MoE layer crashed in the step that balances the
#   loads [@torchtitan_1689].
# - **Zero bubble.** Splitting backward in two made pipelines up to 23 % faster in the memory of 1F1B, and 31 % with
#   more [@qi2023].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# Two stages and two experts instead of 16 and 256, and one block in a stage. The router is given and balanced. All
# links are equally fast: see puzzle $number_hsdp for meshes where they are not. Each expert knows the number of its
# tokens beforehand, at no cost.

# %% [markdown]
# ## Questions to think about
#
# **1.** Which gradients are summed over which ranks if `expert` has one rank? And if `data` has one?
#
# <details><summary>Answer</summary>
#
# With one rank along `expert` each rank has both experts, nothing is exchanged, and both gradients are summed along
# `data`: a pipeline with data parallelism. With one rank along `data` the expert's gradient is already complete, and
# nothing is summed; that of the dense layer is summed along `expert`. Your function should be right for both without an
# `if`.
#
# </details>
#
# **2.** Keep both experts of a stage on all of its ranks: no token travels. What does that cost?
#
# <details><summary>Answer</summary>
#
# One more weight, gradient and optimizer state on each rank, and an all-reduce of both experts' gradients over four
# ranks instead of one over two. The step ends at 23.7, earlier than any of these goals, but a rank holds 3,145,728
# elements. With two small experts that may be the better choice. With 256 it is impossible.
#
# </details>
#
# **3.** In the timeline, all ranks of a stage do the same thing at the same time. What would change if expert 0 got
# three tokens of four?
#
# <details><summary>Answer</summary>
#
# In each stage the two ranks with expert 0 would take 1.5 for it, and the two with expert 1 would wait for them twice a
# batch, forward and backward. The other stage would wait as well: a pipeline is as slow as its slowest stage, and a
# stage is as slow as its busiest expert.
#
# </details>
#
# **4.** A rank computes for 17 of the 24.9. Where does the rest go, and how much of it could you save?
#
# <details><summary>Answer</summary>
#
# On stage 0: 16 exchanges, 1.6, which the other half of the tokens could hide, as in puzzle $number_expert_parallel.
# The turn, 4.4: a pipeline of two stages waits for one batch, forward and backward. Splitting backward in two, as
# zero-bubble schedules do, would save some of that. Messages, 1.8. And the last all-reduce, 0.1 longer than the update
# beside it.
#
# </details>
#
# ## Where this leads
#
# Whatever is inside a layer, some GPUs of a pipeline always wait. The chapter on pipelines asks how few. But first two
# other questions: what if a single example is too large for a GPU? And where do all those batches come from?

# %% [markdown]
# <!-- part: links -->
