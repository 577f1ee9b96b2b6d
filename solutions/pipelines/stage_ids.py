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
# Give every rank two small stages instead of one large one, and the bubble of a pipeline halves: a microbatch gets
# round sooner, so every rank has something to do sooner. Megatron-LM gained 10 % and more, for twice the messages
# [@narayanan2021].
#
# But which two? With eight stages on four ranks, rank 0 could have 0 and 4, or 0 and 1, or 0 and 7. It looks like a
# matter of taste. It decides how many messages there are, which ranks hold the memory, and whether the first and the
# last layer of the model are on the same GPU.
#
# > **To tell a friend:** in a loop the microbatch comes round again; in a V it turns round and comes back, and the
# > turn is free.
#
# *Reminder.* A **stage** is a run of layers. Stage s works on what stage s - 1 gives. Forward a microbatch goes from
# stage 0 to the last one, and its gradient comes back the same way.

# %%
from drawing import picture_of
from lib import check_function, goal
from lib.cluster.layouts import Stages

# %% [markdown]
# ## The idea
#
# Both layouts go through all ranks once, and then through all of them again. In a **loop** the second round begins at
# rank 0, as the first did:

# %%
loop = [(0, 4), (1, 5), (2, 6), (3, 7)]
picture_of(Stages(loop, title="A loop: eight stages on four ranks"))

# %% [markdown]
# Look at the long arrow in the middle: from rank 3 the microbatch has to get back to rank 0. In a **V** it turns
# round instead. Rank 3 has stage 3 and also stage 4, and hands the microbatch to itself:

# %%
v = [(0, 7), (1, 6), (2, 5), (3, 4)]
picture_of(Stages(v, title="A V: the same stages, the other way round"))

# %% [markdown]
# Nothing is sent at the turn. And rank 0 has both ends now: the first stage, with the embedding, and the last, with the
# head and the loss.
#
# With three rounds a loop goes round three times, and a V goes there, back, and there again. (Drawn, that is an N;
# with four rounds a W.)

# %% [markdown]
# ## The puzzle
#
# Write `stage_ids(rank, ranks, stages, style)`.
#
# **Given:** the number of a rank; how many ranks and how many stages there are; and the style, `"loop"` or `"v"`.
#
# **To do:** return the list of the stages of this rank, the smallest first.
#
# **Rules**
#
# - Every rank has one stage of each round. There are as many rounds as `stages // ranks`.
# - If the stages do not divide among the ranks, or the style is neither of the two, raise a `ValueError`.

# %% [markdown]
# ### Predict first
#
# Three ranks and nine stages. Which stages does rank 0 have in a loop, and which in a V?
#
# <details><summary>Answer</summary>
#
# In a loop 0, 3 and 6. In a V the second round comes back, so rank 0 is the last of it and the first of the third: 0,
# 5 and 6. From 5 to 6 it hands the microbatch to itself.
#
# </details>

# %% [markdown]
# ### The goal
#
# | 4 ranks, 8 stages | rank 0 | rank 1 | rank 2 | rank 3 |
# |---|---|---|---|---|
# | `"loop"` | 0, 4 | 1, 5 | 2, 6 | 3, 7 |
# | `"v"` | 0, 7 | 1, 6 | 2, 5 | 3, 4 |
#
# Your function is tried on these, and on every rank of every pipeline of up to six ranks and five rounds. After a
# wrong answer you see the smallest input that it fails on, as a picture.

# %%
goal("stage_ids")

# %% [markdown]
# <!-- part: hints -->


# %%
def stage_ids(rank, ranks, stages, style):
    # In each round a rank has one stage. In a V every second round goes backwards.
    # --- your code (about 9 lines) ---
    if style not in ("loop", "v"):
        raise ValueError(f'a style is "loop" or "v"; got {style!r}')
    if stages % ranks:
        raise ValueError(f"{stages} stages do not divide among {ranks} ranks")
    found = []
    for turn in range(stages // ranks):
        place = ranks - 1 - rank if style == "v" and turn % 2 else rank
        found.append(turn * ranks + place)
    return found
    # --- end of your code ---


# %%
verdict = None
verdict = check_function(stage_ids, puzzle="stage_ids")
verdict

# %% [markdown]
# Passed? Then `reveal("stage_ids")`, in a cell of its own, shows the official solution. (`from lib import reveal`
# first.)

# %% [markdown]
# ### See what it is for
#
# A stage must keep a microbatch's activations until the gradient returns. Stage s of S waits while the microbatch
# goes through the later stages, and while the gradient comes back through them: 2 · (S - 1 - s) stages' work. Add
# that up for the two stages of each rank. **Before you run it:** in which style will the four sums differ more?

# %%
if verdict:
    ranks, stages = 4, 8
    print("       messages  waits of the stages of ranks 0, 1, 2, 3")
    for style in ("loop", "v"):
        mine = [stage_ids(rank, ranks, stages, style) for rank in range(ranks)]
        waits = [sum(2 * (stages - 1 - stage) for stage in own) for own in mine]
        print(f"{style:<5}  {Stages(mine).messages():>8}  {', '.join(map(str, waits))}")

# %% [markdown]
# With two rounds the V is level, so pipelines whose stages lie like this, **V schedules**, need equal memory everywhere.
# A rank with an early stage, which waits long, also has a late one, which hardly waits at all. That is the real reason
# for the V, not the one message that it saves. Try three rounds, and other numbers of ranks; then have a look:

# %%
picture = None
if verdict:
    ranks, stages, style = 4, 12, "v"
    mine = [stage_ids(rank, ranks, stages, style) for rank in range(ranks)]
    picture = picture_of(
        Stages(mine, title=f"{stages} stages on {ranks} ranks: {style}")
    )
picture

# %% [markdown]
# ## What you built
#
# <details><summary>Open this when your solution passes</summary>
#
# The first function that an interleaved pipeline calls. torchtitan takes a V for the schedules ZB-V and DualPipe-V, and
# a loop for all others [@torchtitan_pipeline_parallel]. PyTorch has the same table the other way round, from a stage to
# its rank (`style="loop"` or `"v"`) [@pytorch_pipelining_utils]. Megatron-LM calls these stages *model chunks*, papers
# *virtual stages*. With R ranks, for rank r in round k:
#
# ```
# loop           k·R + r
# V, k even      k·R + r
# V, k odd       k·R + R - 1 - r
#
# messages       loop  v·R - 1        V  v·R - v        for v rounds on two ranks or more
# ```
#
# In the table above the loop has 7 messages and waits of 20, 16, 12 and 8; the V has 6, and 14 on every rank. That
# does not make a V faster: how long a step takes is up to the order, and to how long F, I and W are.
#
# </details>

# %% [markdown]
# ## On real GPUs
#
# - *Twice the stages, twice the messages.* In Megatron-LM a loop with v stages on each rank has a bubble that is v
#   times smaller, and sends v times as much [@narayanan2021].
# - *Level memory.* ZB-V needs no more activation memory than 1F1B, and has no bubble if a forward and the two halves of
#   a backward take equally long [@zero_bubble_demo].
# - *The same V from another side.* DeepSeek-V3 runs two pipelines through the same ranks in opposite directions, with
#   two copies of every weight. Cut that in half, and you have a V on half of the ranks, DualPipe-V, with one copy
#   [@dualpipe].
# - *Both ends on one GPU.* In many models the head and the embedding share one table. In a V both of its gradients
#   are on rank 0. In a loop two ranks have to keep their copies equal, and OLMo-core refuses to split such a model at
#   all [@olmo_core_config].
#
# <!-- references -->

# %% [markdown]
# ## What is simplified here
#
# The stages of a rank are half of a schedule; the other half is their order, and puzzle $number_zb_v has one for a V.
# The sums of waits count every stage as one unit of work, and no microbatch ever waits for another. In a real schedule
# a rank has several microbatches in flight, and holds the activations of all of them.

# %% [markdown]
# ## Questions to think about
#
# **1.** Rank 0 with stages 0 and 1, rank 1 with 2 and 3, and so on: half of the messages are gone! What is wrong with
# that?
#
# <details><summary>Answer</summary>
#
# It is the plain pipeline again: stages 0 and 1 together are one stage of twice the size. A microbatch is on rank 0
# for as long as before, rank 1 begins as late as before, and the bubble is what it was. The next rank can begin
# sooner only *because* the microbatch leaves after half the work.
#
# </details>
#
# **2.** In a loop, on which pairs of ranks does a message travel from stage to stage? In a V?
#
# <details><summary>Answer</summary>
#
# In a loop from each rank to the next, and from the last one to the first: a ring. In a V between neighbours only,
# but in both directions: activations go down, and in the second round they come up again, on the same links as the
# gradients of the first round. That is a trap: two messages of the same shape between the same two ranks, one an
# activation and one a gradient. Receive them in the wrong order, and you get wrong numbers without an error.
#
# </details>
#
# **3.** Why are the waits of a V the same on all ranks? Show it for two rounds.
#
# <details><summary>Answer</summary>
#
# Rank r has stages r and S - 1 - r. They wait 2 · (S - 1 - r) and 2 · r, together 2 · (S - 1), and r is gone. With
# three rounds one stage on each rank has no partner, and the sums differ by as much as in a plain pipeline.
#
# </details>
#
# **4.** Eight stages on four ranks, and you may choose any layout with two stages a rank. What is the smallest number
# of messages, if every rank is to begin as soon as it can?
#
# <details><summary>Answer</summary>
#
# To begin as soon as they can, the first four stages must be on four different ranks. That is 3 messages. The other
# four stages are on four different ranks as well, another 3. Between stages 3 and 4 there may be none. So 6: the V
# has them, and so has any order of the second half that begins on the rank of stage 3.
#
# </details>
#
# ## Where this leads
#
# A V has its first and its last stage on one rank. Which order makes the most of that? You write it next.

# %% [markdown]
# <!-- part: links -->


# %% tags=["judge"]
from lib.errors.wording import counted, listed


def stage_ids_inputs():
    for ranks in range(1, 7):
        for stages in range(1, 5 * ranks + 1):
            for style in ("v", "loop"):
                if stages % ranks == 0:
                    yield from ((rank, ranks, stages, style) for rank in range(ranks))
                elif stages < 2 * ranks:
                    yield 0, ranks, stages, style
    for ranks in (8, 16, 64):
        yield from (
            (rank, ranks, 2 * ranks, style)
            for style in ("loop", "v")
            for rank in (0, 1, ranks - 1)
        )
    yield 0, 2, 4, "V"


def stage_ids_accepts(answer, rank, ranks, stages, style):
    """False, or what is wrong: there is one right answer."""
    try:
        expected = stage_ids(rank, ranks, stages, style)
    except ValueError:
        return False
    if not isinstance(answer, list) or any(type(stage) is not int for stage in answer):
        return False
    rounds = stages // ranks
    if len(answer) != rounds:
        made = f"{counted(stages, 'stage')} on {counted(ranks, 'rank')}: {counted(rounds, 'round')}"
        return f"{made}, so every rank has {counted(rounds, 'stage')}; this has {len(answer)}"
    if sorted(answer) == expected:
        return "the right stages, and the smallest comes first"
    turn = next(turn for turn in range(rounds) if answer[turn] != expected[turn])
    there = [*range(turn * ranks, (turn + 1) * ranks)]
    if ranks == 1:
        return f"round {turn} has one stage, {expected[turn]}, and one rank is there to have it"
    if style == "v" and turn % 2:
        return (
            f"round {turn} has the stages {listed(there)}, and in a V it goes backwards, from rank {ranks - 1} to rank 0: "
            f"rank {rank} has stage {expected[turn]}"
        )
    return f"round {turn} has the stages {listed(there)}, from rank 0 to rank {ranks - 1}: rank {rank} has stage {expected[turn]}"


def stage_ids_picture(answer, expected, rank, ranks, stages, style):
    mine = set() if answer is None else set(answer) ^ set(expected)
    layout = [stage_ids(one, ranks, stages, style) for one in range(ranks)]
    said = "" if answer is None else f", not {', '.join(map(str, answer))}"
    title = f"{'A loop' if style == 'loop' else 'A V'}: rank {rank} has {', '.join(map(str, expected))}{said}"
    return Stages(layout, wrong=sorted(mine & set(range(stages))), title=title)
