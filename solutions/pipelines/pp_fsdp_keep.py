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
# torchtitan trains Llama 3 405B on 512 H100s: tensor parallel 8, pipeline 8, and FSDP over the remaining 8. So a rank
# holds 1/64 of the model when its weights are whole, 12.7 GB, and keeps an eighth of that. Tensor parallelism fills
# the host, so FSDP goes over the network, and each GPU gathers its own 1/64 with its own card: 50 GB/s, 0.22 seconds.
#
# FSDP gathers a weight before each forward and before each backward. With 16 microbatches that is 32 times: **seven
# seconds** in every step, for weights that do not change before the step is over.
#
# > **To tell a friend:** in a pipeline a gather costs what the other stages wait for it.
#
# *Reminder.* On a mesh with the axes `stage` and `data` each row is a pipeline, and the ranks of a stage share its
# weights. They **gather** them (an all-gather), use them, and free all but their shards. PyTorch calls these
# `unshard` and `reshard`.

# %%
from drawing import draw, draw_mesh
from lib import Mesh, Model, goal, predict, simulate

# %% [markdown]
# ## The idea
#
# Eight ranks: two pipelines of four stages, two layers on each.

# %%
draw_mesh(Mesh({"stage": 4, "data": 2}))

# %% [markdown]
# In puzzle $number_pipeline_fsdp a stage had one layer, and it was whole all the time. FSDP is made for models of
# which only a layer or two can be whole at a time, so it frees each layer right after its use. Here is what that
# looks like on one stage, for two microbatches, forward only:


# %%
async def to_pieces(model: Model) -> None:
    shard = model.coord["data"]
    model.weights[0], model.opt_states[0] = model.load_weights(0, shard, 2)
    for b in (shard, shard + 2):
        model.activations["in"] = model.get_activation([b])
        model.weights["whole"] = await model.allgather(
            model.weights[0], 0, group="data"
        )
        model.activations["out"] = model.forward(
            0, model.activations["in"], model.weights["whole"]
        )
        del model.weights["whole"]


draw(simulate(to_pieces, layers=1, batches=4, mesh=Mesh({"data": 2})))

# %% [markdown]
# The same weight, gathered twice. **Predict:** with two layers, four microbatches, forward and backward, how many
# all-gathers does a rank call in a step?
#
# <details><summary>Answer</summary>
#
# 2 · 4 · 2 = 16. Each takes 0.3. Worse, each stage gathers between the message it has received and the message that
# the next stage is waiting for, so the whole pipeline waits for every one of them.
#
# </details>
#
# ## The puzzle
#
# | ranks | mesh | layers | batches | batches of a pipeline |
# |---|---|---|---|---|
# | 8 | stage 4, data 2 | 8 | 8 | 4 |
#
# **Given:** on each rank its shards of its two layers, and everything that it does for a batch *b*, in pieces:
#
# | | |
# |---|---|
# | `await take_input(b)` | reads the batch, or receives it from the stage before |
# | `forward(b)` | takes it through the layers of this stage, with whole weights |
# | `await hand_on(b)` | passes the output on, or takes the loss |
# | `await take_gradient(b)` | receives the gradient of the output, unless this is the last stage |
# | `backward(b)` | goes back through the layers, and adds up the gradients of the weights |
# | `await hand_back(b)` | passes the gradient of the input back, unless this is the first stage |
# | `await unshard()` | gathers both layers: the whole weight takes the place of the shard |
# | `reshard()` | keeps the shards of the whole weights and frees the rest |
#
# Below your code the sums of the gradients are reduce-scattered, and the shards are updated.
#
# **To do:** 1F1B along `stage`, as in puzzle $number_one_f_one_b. And decide when the weights are whole. FSDP itself
# would unshard before each `forward(b)` and each `backward(b)`, and reshard after it. Start there.
#
# **Rules**
#
# - All messages and collectives are **awaited**. A message takes 0.2 on each side, a collective 0.3, with one layer in
#   it.
# - A whole weight takes memory as long as it is whole, and at the end every rank has shards again.
# - For the last two goals a rank may send 1,572,864 elements. FSDP itself sends 3,407,872.

# %% [markdown]
# ### Predict first
#
# 1F1B alone, on four ranks, with four batches, takes 33.4. Add what has to be added: when does the step end at best, if
# every collective is awaited? And how many collectives does a rank then call?

# %%
guess = predict("pp_fsdp_keep", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# Plain FSDP, which gathers after each message arrives, reaches the first goal. The limits of the last one answer your
# prediction, so guess first.

# %%
goal("pp_fsdp_keep")

# %% [markdown]
# <!-- part: hints -->


# %%
async def pp_fsdp_keep(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    stage, data = model.coord["stage"], model.coord["data"]
    pipeline, shards = model.group("stage"), len(model.group("data"))
    per_stage = model.LAYERS // len(pipeline)
    my_layers = range(stage * per_stage, (stage + 1) * per_stage)
    first, last = my_layers[0], my_layers[-1]
    my_batches = range(data, model.BATCHES, shards)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer, data, shards)

    async def unshard() -> None:
        for layer in my_layers:
            weights[layer] = await model.allgather(weights[layer], layer, group="data")

    def reshard() -> None:
        for layer in my_layers:
            weights[layer] = weights[layer].shard(data, shards)

    async def take_input(b: int) -> None:
        if stage == 0:
            activations[first, b] = model.get_activation([b])
        else:
            activations[first, b] = await model.receive(pipeline[stage - 1])

    def forward(b: int) -> None:
        for layer in my_layers:
            activations[layer + 1, b] = model.forward(
                layer, activations[layer, b], weights[layer]
            )

    async def hand_on(b: int) -> None:
        if stage == len(pipeline) - 1:
            grad_activations[last + 1, b] = model.loss(activations[last + 1, b])
        else:
            await model.pass_to(pipeline[stage + 1], activations[last + 1, b])
        del activations[last + 1, b]

    async def take_gradient(b: int) -> None:
        if stage < len(pipeline) - 1:
            grad_activations[last + 1, b] = await model.receive(pipeline[stage + 1])

    def backward(b: int) -> None:
        for layer in reversed(my_layers):
            grad_weights[layer, b], grad_activations[layer, b] = model.backward(
                layer,
                activations[layer, b],
                grad_activations[layer + 1, b],
                weights[layer],
            )
            del activations[layer, b], grad_activations[layer + 1, b]
            if b != my_batches[0]:
                grad_weights[layer, b] = (
                    grad_weights[layer, b] + grad_weights[layer, b - shards]
                )
                del grad_weights[layer, b - shards]

    async def hand_back(b: int) -> None:
        if stage > 0:
            await model.pass_to(pipeline[stage - 1], grad_activations[first, b])
        del grad_activations[first, b]

    # 1F1B with the pieces above. When are the weights whole?
    # --- your code (about 17 lines) ---
    async def there(b: int) -> None:
        await take_input(b)
        forward(b)
        await hand_on(b)

    async def back(b: int) -> None:
        await take_gradient(b)
        backward(b)
        await hand_back(b)

    await unshard()
    ahead = min(len(my_batches), len(pipeline) - stage)
    for b in my_batches[:ahead]:
        await there(b)
    for place, b in enumerate(my_batches):
        await back(b)
        if place + ahead < len(my_batches):
            await there(my_batches[place + ahead])
    reshard()
    # --- end of your code ---

    for layer in my_layers:
        total = grad_weights.pop((layer, my_batches[-1]))
        grad_weights[layer] = await model.scatterreduce(total, layer, group="data")
        del total
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # nothing of an earlier run, should this one fail
out = simulate(pp_fsdp_keep, puzzle="pp_fsdp_keep")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>Where do these numbers come from?</summary>
#
# Two gathers before everything, and two reduce-scatters at the end, 0.3 each: 33.4 + 0.6 + 0.6 = 34.6, in 4
# collectives. Rank 0 needs its two gathers before it can begin. All the others gather while they would only have
# waited.
#
# If each stage gathers *after* its first message, the four stages gather one after the other: 3 · 0.6 more, 36.4. If
# it gathers for each microbatch, before the message, 38.0. For each microbatch, after the message: 42.4. 16 gathers
# of 0.3 are 4.8, yet they cost nearly twice that, because stages wait for each other's gathers.
#
# **Memory:** 2 · 262,144 for the weights of the stage, whole, and half of that for the shards of the optimizer
# states; 2 · 262,144 for the sums of gradients; and on rank 0 seven times 131,072 (three batches in flight, with two
# inputs each, and a gradient just came in): 2,228,224. Keeping the weights costs nothing at the peak: in the middle
# of a backward they have to be whole anyway.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="pp_fsdp_keep")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# In PyTorch it is one argument: `fully_shard(module, reshard_after_forward=False)`, and no reshard after backward
# until the last microbatch. In ZeRO's terms: optimizer states are sharded, weights are whole while you compute, so
# this is stage 1 (stage 2 if gradients were sharded, too). With *k* layers on a stage and *M* microbatches a rank
# calls
#
# ```
# as FSDP    2·k·M gathers    and every stage waits for those of the others
# kept       k gathers        and only the first stage waits
# ```
#
# and in both cases *k* reduce-scatters, since the sums wait for the last microbatch.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *Who does it.* torchtitan switches resharding off as soon as there is a pipeline, because otherwise each microbatch
#   would gather every weight again [@torchtitan_446]. Llama 3 keeps its weights between forward and backward as well
#   [@llama3].
# - *How you say it.* One gather and one reduce-scatter in a step: PyTorch has had `set_reshard_after_backward` for it
#   since 2024 [@pytorch_124319].
# - *Where.* FSDP 8 × tensor 8 × pipeline 8 is torchtitan's mesh for 405 billion parameters on 512 H100s
#   [@torchtitan_llama3_h100].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# - `unshard` makes all layers of the stage whole. FSDP has one or two whole at a time, so with many layers a stage,
#   keeping them does cost memory: all of the stage's weights instead of two layers.
# - Every collective takes 0.3, whatever it moves, and all links are equally fast.
# - Everything is awaited. Real gathers run behind the computation, if there is enough of it; question 2 does that.

# %% [markdown]
# ## Questions to think about
#
# **1.** Why does it matter on which side of the message you gather, when you gather only once?
#
# <details><summary>Answer</summary>
#
# Because a stage has nothing to do before its first message. Rank 2 can gather while it waits. If it gathers after
# the message has come, rank 4 waits for that too, and rank 6 for both: 36.4 instead of 34.6. Issue what you can before
# you wait.
#
# </details>
#
# **2.** What is left at 34.6, and could you hide it?
#
# <details><summary>Answer</summary>
#
# The two gathers of the first stage and the two reduce-scatters at the end are in the open. Stage 0 needs only one
# layer to begin with, so the second gather can run behind the first forward. And the sum of layer 1 is complete when
# its last backward is over: reduce-scatter it while layer 0 goes back, and that of layer 0 while layer 1 is updated.
# It ends at 33.7. `puzzles reveal pp_fsdp_keep` has it. What is left then are messages: let them travel behind the
# computation, too, as in question 4 of puzzle $number_one_f_one_b, and you are at 31.7, where nothing can be better.
#
# </details>
#
# **3.** Would you rather let each rank keep all of its stage's weights, and drop the gathers altogether?
#
# <details><summary>Answer</summary>
#
# That is plain data parallelism across the pipelines: an all-reduce at the end, no gathers, 34.0. It sends as much,
# since an all-reduce is a reduce-scatter and a gather. But each rank keeps whole optimizer states: 2,490,368 elements
# instead of 2,228,224, with two ranks in a group. With eight the difference is larger still. The optimizer states are
# what is worth sharding.
#
# </details>
#
# **4.** And if the stage is too large to be whole? Is there a schedule that uses each weight for all microbatches
# before it frees it?
#
# <details><summary>Answer</summary>
#
# Yes: take all microbatches through one stage before the next stage of the same rank begins. With several short
# stages on each rank a weight is gathered once for each direction, whatever the number of microbatches. That is
# *breadth-first*, from puzzle $number_breadth_first ([arXiv 2211.05953](https://arxiv.org/abs/2211.05953)). Its price
# is activation memory.
#
# </details>
#
# ## Where this leads
#
# You decided by hand what stays whole. The less fits, the more the order of the work decides how often you gather.
# One order is made for it.

# %% [markdown]
# <!-- part: links -->
