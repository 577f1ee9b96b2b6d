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
# Llama 3 knows 128,000 words, or pieces of words [@llama3]. So the last layer turns each token into 128,000 numbers,
# the **logits**: how likely is each word to come next? A text of 8,192 tokens has a billion of them, 2 GB in half
# precision. The layer's input took 0.27 GB.
#
# Cut the last layer into columns, like any other. Each of eight GPUs has the logits of an eighth of the words, 262 MB,
# and that fits. Then comes the loss, and it wants to see all words. The obvious way is to gather the logits: all of the
# 2 GB to all of the GPUs, and all of it at once in the memory of each.
#
# But the loss is *one* number for a token. Do 128,000 have to travel for that?
#
# > **To tell a friend:** the loss needs all 128,000 logits of a token, and not one of them has to travel.
#
# *The words, once more.* An activation of one batch has 131,072 elements (256 rows, here tokens, of 512 features). A
# layer that is cut into columns gives a part of the features, right as they are; one that is cut into rows gives a
# partial sum.

# %%
from math import exp, log

from drawing import draw, draw_collective, draw_curves, draw_group
from lib import Layer, Links, Model, PuzzleError, goal, predict, simulate
from lib.schedules.given import backward, forward, given, in_turn, update

PRICES = Links()  # 0.2 for a batch of activations from one rank to the next
# The last two layers of this puzzle.
LAST = [Layer(outputs=2048), Layer("cross_entropy", inputs=2048, outputs=1)]

# %% [markdown]
# ## The idea
#
# The loss of a token, its **cross entropy**, is large when the right word got a small logit, compared with the others:
#
# ```
# loss  =  log( exp(logit 0) + exp(logit 1) + ... over all words )  -  logit of the right word
# ```
#
# Each rank has the logits of a quarter of the words. Here are 16 tokens and 32 words on four ranks, in plain Python:


# %%
def random_numbers(seed: int, count: int) -> list[float]:
    x, found = (seed * 2654435761 + 12345) % 2**32, []
    for _ in range(count):
        x = (1664525 * x + 1013904223) % 2**32
        found.append(x / 2**31 - 1)
    return found


TOKENS, WORDS, RANKS = 16, 32, 4
numbers = random_numbers(5, TOKENS * WORDS)
logits = [
    [4 * numbers[token * WORDS + word] for word in range(WORDS)]
    for token in range(TOKENS)
]
right = [(7 * token + 3) % WORDS for token in range(TOKENS)]


def loss_of(token: int, words: range, answer: int) -> float:
    return log(sum(exp(logits[token][word]) for word in words)) - logits[token][answer]


# %% [markdown]
# A tempting mistake: each rank gives its own logits to the usual loss, as if its 8 words were the vocabulary, and the
# loss is the mean over the ranks. (Word 19 of 32 becomes word 3 of 8.)

# %%
parts = [
    range(first, first + WORDS // RANKS) for first in range(0, WORDS, WORDS // RANKS)
]
every, own = 0.0, 0.0
for token in range(TOKENS):
    every += loss_of(token, range(WORDS), right[token]) / TOKENS
    for p in parts:
        own += loss_of(token, p, p[right[token] % len(p)]) / TOKENS / RANKS

print(f"all words at once: {every:.4f}   own words only: {own:.4f}")

# %% [markdown]
# The mistake has a *smaller* loss, because each word had a quarter of the rivals. Training runs, the loss goes down, and
# the model learns something else.
#
# **Before you go on:** which numbers should each rank bring for each token, so that the loss follows from their *sums*
# over the ranks? How few will do?
#
# <details><summary>Answer</summary>
#
# **Two numbers a token.** Each rank adds up the exponentials of its own words; and the rank that has the right word
# brings its logit, the others 0:
#
# ```python
# exponentials = sum(exp(logits[token][word]) for word in mine)
# logit = logits[token][right[token]] if right[token] in mine else 0
# ```
#
# Summed over the ranks, `log(exponentials) - logit` is the loss of the token, over all words.
#
# </details>
#
# In the puzzle the loss is the last layer, and it has no weight. `forward` of it takes your logits, whatever part of
# the words they are for, and gives just what a rank brings: a part of a sum. (A sum of exponentials may be too large for
# a float. So a rank brings its *logarithm*, and the all-reduce knows how to add those up.) Rank 1 of four, with one
# batch, in a model of just these two layers: its logits, what the loss makes of them, the sum over all ranks:


# %%
async def one_loss(model: Model) -> None:
    columns, _ = model.load_weights(0, model.rank, model.RANKS, dim="out")
    data = model.get_activation([0])
    logits = model.forward(0, data, columns)
    part = model.forward(1, logits)
    losses = await model.allreduce(part, 2)
    shown.append([[columns, data, logits], [logits, part], [logits, losses]])


shown: list = []
demo = simulate(one_loss, layers=LAST, batches=1, ranks=4, costs=PRICES)
draw_group(shown[1][0])

# %%
draw_group(shown[1][1])

# %%
draw_collective(demo, "allreduce")

# %% [markdown]
# Forget this sum, and the next operation refuses:


# %%
async def own_words_only(model: Model) -> None:
    columns, _ = model.load_weights(0, model.rank, model.RANKS, dim="out")
    logits = model.forward(0, model.get_activation([0]), columns)
    model.loss(model.forward(1, logits))


try:
    simulate(own_words_only, layers=LAST, batches=1, ranks=4)
except PuzzleError as error:
    print(error)

# %% [markdown]
# Then backward. The gradient of a logit is the probability of its word, `exp(logit) / sum of all exponentials`, minus 1
# if it is the right word. What does a rank need from the others for that? And what does backward of the
# output layer leave?
#
# ## The puzzle
#
# | layer | what it is | forward or backward, a batch, on a rank |
# |---|---|---|
# | 0, 1 | a block: columns, then rows, 512 by 512, as in Tensor parallel | 0.25 each |
# | 2 | the **output layer**: 512 features to 2,048 logits, cut into columns | 1 (a rank's part is as large as a whole layer) |
# | 3 | the **loss**: cross entropy, without a weight | 0 |
#
# There are 4 ranks and 4 batches. An update takes 0.5, the all-reduce of an activation 0.3 a batch, that of the losses
# 0.0012.
#
# **Given:** the columns of layers 0 and 2 and the rows of layer 1 that are this rank's, with their optimizer states.
# `output` is the number of the output layer, `loss` that of the last layer. And helpers, which delete what nothing needs
# any more:
#
# | helper | what it does |
# |---|---|
# | `through_blocks(model, b)` | takes `activations[0, b]` through all blocks, with their sums: it makes `activations[output, b]`, whole |
# | `back_through_blocks(model, b)` | takes `grad_activations[output, b]` back through them, with their sums |
# | `forward(model, layer, b)` | makes `activations[layer + 1, b]` from `activations[layer, b]`, which stays for backward |
# | `backward(model, layer, b)` | makes `grad_activations[layer, b]` from `grad_activations[layer + 1, b]`, and adds the gradient of the weight to `grad_weights[layer]` |
# | `update(model, layer)` | updates a weight, and uses up its gradient |
#
# The first two are what you wrote in puzzle $number_tensor_parallel. Each stops where it waits for a sum. Inside a batch
# of yours, hand these stops on: `async for _ in through_blocks(model, b): yield`.


# %% jupyter={"source_hidden": true}
@given
async def through_blocks(model, b):
    for layer in range(model.LAYERS - 2):
        forward(model, layer, b)
        if layer % 2 == 1:  # rows give a part of a sum
            coming = model.allreduce(model.activations.pop((layer + 1, b)), layer + 1)
            yield
            model.activations[layer + 1, b] = await coming


@given
async def back_through_blocks(model, b):
    for layer in reversed(range(model.LAYERS - 2)):
        backward(model, layer, b)
        if layer % 2 == 0 and layer > 0:  # so do columns, on the way back
            coming = model.allreduce(model.grad_activations.pop((layer, b)), layer)
            yield
            model.grad_activations[layer, b] = await coming


# %% [markdown]
# **To do:** one training step in which all ranks work on all batches: the output layer and the loss of each batch, there
# and back. Which sums do the next steps wait for?
#
# ```
# forward    blocks  output  loss
# backward   loss  output  blocks
# ```
#
# 1. Write the step of batch `b`, `one_batch(b)`, from the data to the gradients of all weights. Then one batch after the
#    other: `await in_turn([one_batch(b)])`. That is correct, and reaches the second goal.
#    - Forward of the last layer takes no weight: `model.forward(loss, logits)`.
#    - Its backward gives *one* gradient, that of the logits: `model.backward(loss, logits, gradient)`.
#    - `model.loss(losses)` begins the way back, with one number for each token.
# 2. Let batches take turns, as in puzzle $number_tensor_parallel: a `yield` between the call of a sum and its `await`,
#    and `await in_turn(one_batch(b) for b in batches)`.
#
# There may be more blocks than one: layers 0 and 1, 2 and 3, and so on, and then the output layer. And there may be an
# odd number of batches.
#
# **Rules**
#
# - Values live in the stores, and everything alive counts: what an all-reduce will bring takes memory from its start
#   on. Park a value in a variable while something else runs, and only the first goal counts.
# - You may keep pending calls in a dict or a list of your own.
# - `set_final_weight` gets this rank's shard, of each layer that has a weight.

# %% [markdown]
# ### Predict first
#
# Take one batch after the other, await every collective where you call it, and sum the losses. How many collectives does
# a rank call, and when is the step over?

# %%
guess = predict("loss_parallel", end=..., collectives=...)
guess

# %% [markdown]
# ### The goal
#
# The first goal is a correct step, even if logits travel. For the second they stay where they are. For the third no
# rank waits for a sum. The fourth is as fast in less memory: how many batches must be in flight?

# %%
goal("loss_parallel")

# %% [markdown]
# <!-- part: hints -->


# %%
async def loss_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    # The blocks are the layers before these two.
    output, loss = model.LAYERS - 2, model.LAYERS - 1

    for layer in range(loss):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS, dim=dim
        )

    # Forward, loss and backward; then update every layer that has a weight.
    # --- your code (about 21 lines) ---
    async def one_batch(b: int):
        activations[0, b] = model.get_activation([b])
        async for _ in through_blocks(model, b):
            yield
        forward(model, output, b)
        coming = model.allreduce(model.forward(loss, activations[loss, b]), loss + 1)
        yield
        grad_activations[loss + 1, b] = model.loss(await coming)
        grad_activations[loss, b] = model.backward(
            loss, activations.pop((loss, b)), grad_activations.pop((loss + 1, b))
        )
        backward(model, output, b)
        coming = model.allreduce(grad_activations.pop((output, b)), output)
        yield
        grad_activations[output, b] = await coming
        async for _ in back_through_blocks(model, b):
            yield

    for first in range(0, model.BATCHES, 2):
        await in_turn(one_batch(b) for b in range(first, min(first + 2, model.BATCHES)))
    for layer in range(loss):
        update(model, layer)
    # --- end of your code ---

    for layer in range(loss):
        model.set_final_weight(layer, weights[layer])


# %%
out = []  # forget the last run in case this one fails
out = simulate(loss_parallel, puzzle="loss_parallel")

# %%
guess.against(out)

# %% [markdown]
# <details><summary>How to get there with a pencil</summary>
#
# A rank computes a quarter of the two layers of the block, 0.5 a batch, and of the output layer as much as a whole
# layer, 1 a batch. Forward and backward of four batches: 12. Three updates take 1.5. That is 13.5 in any case.
#
# Three sums a batch: after the block, of the losses, and of the gradient that the output layer leaves. The first and the
# last are whole activations, 1.2 each for four batches. Those of the losses have 512 numbers each and take 0.0047
# together: **12** sums, over at **15.9047**. All batches at once take just as long, in 3. Gather the logits instead, and
# this 0.0047 becomes 2.4. With all batches at once each rank then holds all of their logits, 2,097,152 elements: more than
# all the rest of its activations.
#
# </details>

# %%
draw(out)

# %%
Model.check(out, puzzle="loss_parallel")

# %% [markdown]
# <!-- part: review -->

# %% [markdown]
# <!-- part: replay -->

# %% [markdown]
# ## How much does a larger vocabulary cost?
#
# Here is how long a rank waits at the loss of one batch, and how many elements it then holds, with more and more words:
# for logits, and for two numbers a token.


# %%
def at_the_loss(words: int, gathers: bool) -> tuple[float, float]:
    async def loss_alone(model: Model) -> None:
        columns, _ = model.load_weights(0, model.rank, model.RANKS, dim="out")
        model.activations[1] = model.forward(0, model.get_activation([0]), columns)
        before = model.time
        if gathers:
            model.activations[1] = await model.allgather(model.activations[1], 1)
        else:
            model.activations[2] = await model.allreduce(
                model.forward(1, model.activations[1]), 2
            )
        found.append((model.time - before, model.memory()))

    found: list[tuple[float, float]] = []
    layers = [Layer(outputs=words), Layer("cross_entropy", inputs=words, outputs=1)]
    simulate(loss_alone, layers=layers, batches=1, ranks=4, costs=PRICES)
    return max(found)


VOCABULARIES = (512, 1024, 2048, 4096, 8192)
measured = {
    name: [(words, at_the_loss(words, gathers)) for words in VOCABULARIES]
    for name, gathers in (("logits gathered", True), ("two numbers a token", False))
}
draw_curves(
    {
        name: [(words, time) for words, (time, _) in found]
        for name, found in measured.items()
    },
    across="words in the vocabulary",
    title="What a batch waits for at the loss",
)

# %%
draw_curves(
    {
        name: [(words, elements) for words, (_, elements) in found]
        for name, found in measured.items()
    },
    across="words in the vocabulary",
    up="elements",
    title="What a rank holds after it",
)

# %% [markdown]
# The wait for the logits grows with the vocabulary; the other stays the same. And a rank holds
# its own quarter of the logits, not all four. What is left to wait for in this puzzle is the sums of whole activations,
# before and after the output layer, and those you can hide.
#
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# **Loss parallelism**, or in Megatron-LM's words the *vocabulary parallel cross entropy*. With *n* ranks, *T* tokens
# and *V* words:
#
# ```
# logits gathered        sent by a rank    T·V·(n - 1)/n        at the peak    T·V logits
# two numbers a token    sent by a rank    2·T·2·(n - 1)/n      at the peak    T·V/n logits
# ```
#
# It sends *V/4* times less: 512 here, 32,000 with 128,000 words. And a rank never holds the logits of other ranks'
# words, forward or backward.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - **Three sums.** Megatron-LM all-reduces three numbers a token, one after the other: the maximum, so that no
#   exponential overflows; then the logit of the right word; then the sum of the exponentials [@megatron_cross_entropy].
#   Ours merges the first and the last into one, the logarithm of the sum.
# - **In PyTorch** it is a context: `with loss_parallel(): loss = F.cross_entropy(logits, labels); loss.backward()`,
#   where the logits are a DTensor that is sharded along the words. It also sums three numbers a token forward, and
#   backward it does not communicate at all [@pytorch_loss].
# - **How much it is.** The 8,192 tokens of a text and 128,000 words make 1.05 billion logits. Cross entropy is mostly
#   done in 32-bit floats, 4.2 GB, and the gradient has as many again. An eighth of that is 0.5 GB each.
# - **And the other end.** The embedding is a table with a row for each word, and it is cut among the ranks too: each
#   looks up the words that it has, 0 for the others, and an all-reduce makes it whole.
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# The loss itself takes no time: it is work on each logit, not a multiplication of matrices, and next to the output
# layer it is little. Real kernels overwrite the logits with the probabilities, and those with the gradient; here the
# gradient of the logits is a value of its own while both are needed. And our vocabulary is four times as wide as the
# model, that of Llama 3 405B eight times. A smaller model with the same words has more of its work, and of its memory,
# in this one layer.

# %% [markdown]
# ## Questions to think about
#
# **1.** Each rank could send the largest of its logits, too. Why?
#
# <details><summary>Answer</summary>
#
# `exp(100)` is larger than any 32-bit float. So before taking exponentials each rank subtracts the largest logit of the
# token, over all words, from all of its logits; the loss stays the same. That is Megatron's first all-reduce, of a
# maximum. The logarithm of a sum does the same job in another way: two of them, *a* and *b*, are added as `max(a, b) +
# log(1 + exp(-|a - b|))`, and nothing in there is ever large.
#
# </details>
#
# **2.** Why does the gradient need no collective of its own?
#
# <details><summary>Answer</summary>
#
# The gradient of a logit is `exp(logit - L)`, minus 1 for the right word, where `L` is the logarithm of the sum over
# all words. The all-reduce in forward has told every rank `L`, and the logit is a rank's own. Forward has already paid
# for what backward needs: keep it, and there is nothing to ask for again.
#
# </details>
#
# **3.** You could also cut the tokens at the end: a quarter of them for each rank, with all words. What would travel?
#
# <details><summary>Answer</summary>
#
# To have all words a rank needs the logits of the other three for its tokens: an all-to-all, in which a rank sends
# three quarters of its own logits, where a gather sends them three times. The gradients go back the same way. Each rank
# then sends 786,432 elements here, instead of 3,072. Or it has all columns of the output layer, gathered: 1 million
# elements, and the gradient of them all to be summed.
#
# </details>
#
# **4.** The loss goes down, and the model is bad. How would you find out that the sum over the ranks is missing?
#
# <details><summary>Answer</summary>
#
# At the start all words are about equally likely, so the loss should be `log(words)`: 11.76 for 128,000. If it is
# `log(words / ranks)`, 9.68 with eight ranks, each rank compares with its own words only. A check that costs nothing,
# before the first step.
#
# </details>
#
# ## Where this leads
#
# A rank now holds its own part of each weight, and of the logits. What every rank still holds whole is the activation
# between two blocks. How much of that could each of them drop?

# %% [markdown]
# <!-- part: links -->
