"""What students get wrong in the puzzles of meshes, stages and old bugs: what they thought, and what they wrote."""

from __future__ import annotations

import textwrap

from tests.submissions.map_mistakes import Mistake

__all__ = ["MISTAKES", "histories"]

AS_IT_WAS = {
    "axes_of": """
        if sizes["cp"] > 1:
            return ["dp_replicate", "dp_shard", "cp"], []
        return ["dp_shard"], ["dp_replicate"]
    """,
    "training_step": """
        loss = mean_loss(weight, batch)
        loss.backward()
        return loss / calls
    """,
    "pipeline_step": """
        for batch in microbatches:
            mean_loss(weight, batch).backward()
        weight.grad /= len(microbatches)
    """,
}
MENDED = {
    "axes_of": 'return ["dp_shard", "cp"], ["dp_replicate"]',
    "training_step": """
        loss = mean_loss(weight, batch) / calls
        loss.backward()
        return loss
    """,
    "pipeline_step": """
        for batch in microbatches:
            (mean_loss(weight, batch) / len(microbatches)).backward()
    """,
}
ARGUMENTS = {"axes_of": "sizes", "training_step": "weight, batch, calls", "pipeline_step": "weight, microbatches"}
TAIL = """
if history == 1:
    return groups(given[0], given[1], axes_of)
if history == 3:
    return after_each_call(given, pipeline_step)
weight = Weight()
logged = sum(training_step(weight, batch, len(given)).value for batch in given)
return {"logged": logged, "grad": weight.grad}
"""


def histories(**changed: str) -> str:
    """The body of find_the_bug: all mended but those functions that are given otherwise."""
    parts: list[str] = []
    for name, code in (MENDED | changed).items():
        body = textwrap.indent(textwrap.dedent(code).strip(), "    ")
        parts.append(f"def {name}({ARGUMENTS[name]}):\n{body}\n")
    return "\n".join([*parts, TAIL])


DIMS = """
from math import prod
sizes = dict(sizes)
if sizes["dp_shard"] == -1:
    sizes["dp_shard"] = world // prod(size for axis, size in sizes.items() if axis != "dp_shard")
if min(sizes.values()) < 1 or prod(sizes.values()) != world:
    raise ValueError("no")
place, groups, left, stride = {}, {}, rank, 1
for axis in reversed(sizes):
    left, place[axis] = divmod(left, sizes[axis])
    first = rank - place[axis] * stride
    groups[axis] = [first + stride * i for i in range(sizes[axis])]
    stride *= sizes[axis]
return {"sizes": sizes, "place": place, "groups": groups}
"""
"""Right, to start from."""


def dims(old: str, new: str) -> str:
    """The right answer with one place changed."""
    assert DIMS.count(old) == 1, old
    return DIMS.replace(old, new)


MISTAKES = (
    Mistake(
        "parallel_dims",
        "pipeline_counts_first",
        "The axes are counted in the order in which they are written.",
        dims("for axis in reversed(sizes)", "for axis in sizes"),
    ),
    Mistake(
        "parallel_dims",
        "groups_of_neighbours",
        "A group is ranks that follow each other.",
        dims("[first + stride * i for i", "[rank - place[axis] + i for i"),
    ),
    Mistake(
        "parallel_dims",
        "without_myself",
        "The group is whom I talk to.",
        dims("for i in range(sizes[axis])]", "for i in range(sizes[axis]) if i != place[axis]]"),
    ),
    Mistake(
        "parallel_dims",
        "nothing_inferred",
        "The product shows whether the sizes are right.",
        dims('if sizes["dp_shard"] == -1', 'if sizes["dp_shard"] == 0'),
    ),
    Mistake(
        "parallel_dims",
        "rounded_down",
        "What is left is left: world divided by the others.",
        dims("if min(sizes.values()) < 1 or prod(sizes.values()) != world", "if min(sizes.values()) < 1"),
    ),
    Mistake(
        "parallel_dims",
        "pipeline_left_out_of_the_others",
        "dp_shard is what is left of the data ranks.",
        dims('if axis != "dp_shard")', 'if axis not in ("dp_shard", "pp"))'),
    ),
    Mistake(
        "parallel_dims",
        "address_as_a_list",
        "The five places in order.",
        dims('"place": place', '"place": list(place.values())[::-1]'),
    ),
    Mistake(
        "split_layers",
        "as_torch_chunk",
        "Every stage gets the same, rounded up, and the last one the rest.",
        """
        if not 1 <= stages <= layers:
            raise ValueError("no")
        size = -(-layers // stages)
        return [size * stage for stage in range(1, stages)]
        """,
    ),
    Mistake(
        "split_layers",
        "first_come_first_served",
        "What is left goes to the first stages.",
        """
        if not 1 <= stages <= layers:
            raise ValueError("no")
        size, left = divmod(layers, stages)
        return [size * stage + min(stage, left) for stage in range(1, stages)]
        """,
    ),
    Mistake(
        "split_layers",
        "spared_at_both_ends",
        "The extra layers are for the stages in the middle, once round and then again.",
        """
        if not 1 <= stages <= layers:
            raise ValueError("no")
        sizes = [layers // stages] * stages
        for extra in range(layers % stages):
            sizes[1 + extra % max(1, stages - 2) if stages > 1 else 0] += 1
        return [sum(sizes[:stage]) for stage in range(1, stages)]
        """,
    ),
    Mistake(
        "split_layers",
        "begins_with_0",
        "Every stage has a layer at which it begins.",
        """
        if not 1 <= stages <= layers:
            raise ValueError("no")
        size, left = divmod(layers, stages)
        return [0] + [size * stage + min(max(stage - 1, 0), left) for stage in range(1, stages)]
        """,
    ),
    Mistake(
        "split_layers",
        "sizes_of_the_stages",
        "A split says how large the stages are.",
        """
        if not 1 <= stages <= layers:
            raise ValueError("no")
        size, left = divmod(layers, stages)
        return [size + (1 <= stage <= left) for stage in range(stages)]
        """,
    ),
    Mistake(
        "split_layers",
        "stages_without_layers",
        "With fewer layers than stages some stages have nothing to do.",
        """
        size, left = divmod(layers, stages)
        return [size * stage + min(max(stage - 1, 0), left) for stage in range(1, stages)]
        """,
    ),
    Mistake(
        "stage_ids",
        "blocks",
        "A rank has stages that follow each other.",
        """
        if stages % ranks or style not in ("loop", "v"):
            raise ValueError("no")
        each = stages // ranks
        return list(range(rank * each, (rank + 1) * each))
        """,
    ),
    Mistake(
        "stage_ids",
        "always_a_loop",
        "The style is a matter of the schedule.",
        """
        if stages % ranks or style not in ("loop", "v"):
            raise ValueError("no")
        return list(range(rank, stages, ranks))
        """,
    ),
    Mistake(
        "stage_ids",
        "only_one_turn",
        "A V has two legs.",
        """
        if stages % ranks or style not in ("loop", "v"):
            raise ValueError("no")
        if style == "v" and stages > ranks:
            return [rank, stages - 1 - rank]
        return list(range(rank, stages, ranks))
        """,
    ),
    Mistake(
        "stage_ids",
        "one_too_far",
        "Backwards from the end of the round: ranks - rank.",
        """
        if stages % ranks or style not in ("loop", "v"):
            raise ValueError("no")
        return [
            turn * ranks + (ranks - rank if style == "v" and turn % 2 else rank) for turn in range(stages // ranks)
        ]
        """,
    ),
    Mistake(
        "stage_ids",
        "whatever_is_left_out",
        "A rank takes every so manyth stage, as far as there are any.",
        """
        turns = range(-(-stages // ranks))
        found = [turn * ranks + (ranks - 1 - rank if style == "v" and turn % 2 else rank) for turn in turns]
        return [stage for stage in found if stage < stages]
        """,
    ),
    Mistake("find_the_bug", "all_as_it_was", "It runs, so it is right.", histories(**AS_IT_WAS)),
    Mistake(
        "find_the_bug",
        "shards_without_cp",
        "Context parallelism has nothing to do with weights.",
        histories(axes_of='return ["dp_shard"], ["dp_replicate"]'),
    ),
    Mistake(
        "find_the_bug",
        "copies_along_cp",
        "Ranks that share a text have the same weights.",
        histories(axes_of='return ["dp_shard"], ["dp_replicate", "cp"]'),
    ),
    Mistake(
        "find_the_bug",
        "still_sharded_over_the_copies",
        "The copies were missing, so they are added.",
        histories(axes_of='return ["dp_replicate", "dp_shard", "cp"], ["dp_replicate"]'),
    ),
    Mistake(
        "find_the_bug",
        "divided_twice",
        "The loss for the log is divided, too.",
        histories(
            training_step="""
            loss = mean_loss(weight, batch) / calls
            loss.backward()
            return loss / calls
            """
        ),
    ),
    Mistake(
        "find_the_bug",
        "whole_loss_in_the_log",
        "The log wants the loss, and the weights want a part of it.",
        histories(
            training_step="""
            loss = mean_loss(weight, batch)
            (loss / calls).backward()
            return loss
            """
        ),
    ),
    Mistake(
        "find_the_bug",
        "gradient_divided_each_time",
        "Divide the gradient in place of the loss.",
        histories(
            training_step="""
            loss = mean_loss(weight, batch)
            loss.backward()
            weight.grad /= calls
            return loss / calls
            """
        ),
    ),
    Mistake(
        "find_the_bug",
        "never_divided",
        "Nothing is to be divided any more.",
        histories(pipeline_step="for batch in microbatches: mean_loss(weight, batch).backward()"),
    ),
    Mistake(
        "find_the_bug",
        "emptied_first",
        "Every call begins with an empty gradient.",
        histories(pipeline_step="weight.grad = 0\n" + textwrap.dedent(AS_IT_WAS["pipeline_step"]).strip()),
    ),
)
