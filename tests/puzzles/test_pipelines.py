"""The puzzles on pipelines: what their notebooks state, and that no goal is reached for nothing."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, combinations, pairwise
from typing import Any

import pytest

from lib import PUZZLES, Model, Uneven, check, simulate, stages
from lib.analysis.bounds.family import Family
from lib.analysis.bounds.puzzle_bounds import bound_of
from lib.schedules.data_parallel import checkpointed, segments
from lib.schedules.pipelines.action import Action
from lib.schedules.pipelines.generators import gpipe, one_f_one_b
from lib.schedules.pipelines.program import Messages, program_of
from lib.schedules.pipelines.timing import time_order
from lib.submissions.locations import reference
from tests.support.puzzles import figures, judged, way

# -- 1F1B -----------------------------------------------------------------------------------------------------------


def test_one_forward_less_at_the_beginning_starves_the_pipeline() -> None:
    puzzle = "one_f_one_b"
    text = reference(puzzle).read_text("utf-8")
    body = text[text.index("async def one_f_one_b") : text.index("# %%\nout = []")]
    given: dict[str, Any] = {"Model": Model}
    exec(body.replace("model.RANKS - model.rank)", "max(1, model.RANKS - model.rank - 1))"), given)
    assert figures(given[puzzle], puzzle) == (83.8, 2_490_368, None)
    assert not judged(program_of(gpipe(4, 8)), puzzle).passed


# -- checkpointing --------------------------------------------------------------------------------------------------


def test_the_valley() -> None:
    found = [figures(checkpointed(k), "checkpointing") for k in range(1, 9)]
    assert [time for time, _, _ in found] == [68, 80, 84, 80, 80, 76, 72, 68]
    assert [(memory - 4_194_304) / 524_288 for _, memory, _ in found] == [9, 6, 5, 6, 6, 7, 8, 9]


def test_segments_are_as_long_as_each_other_or_longer_by_one() -> None:
    for layers in range(1, 20):
        for k in range(1, 25):
            found = segments(layers, k)
            assert [layer for segment in found for layer in segment] == [*range(layers)]
            assert len(found) == min(k, layers)
            assert max(map(len, found)) - min(map(len, found)) <= 1


def test_no_goal_of_checkpointing_is_reached_without_it() -> None:
    """Whoever computes nothing twice, and groups and orders batches in any way, needs more than any goal allows."""
    record = PUZZLES["checkpointing"]
    least = bound_of(Family(record.ranks, record.layers, record.batches)).memory.value
    assert least == 7_471_104
    assert all(goal.memory < least for goal in record.goals)
    accumulated = check(simulate(way("grad_accum"), ranks=1, layers=8, batches=4))
    assert accumulated.memory == least


def test_halves_are_better_in_deep_networks() -> None:
    for function, activations in ((way("checkpointing", "by_halves"), 8), (checkpointed(8), 16)):
        verdict = check(simulate(function, ranks=1, layers=64, batches=4))
        assert (verdict.memory - 2 * 64 * 262_144) / 524_288 == activations


# -- layers and ranks that are not alike -----------------------------------------------------------------------------


def shares(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """All ways to cut layers into stages."""
    for cuts in combinations(range(1, layers), stages - 1):
        borders = (0, *cuts, layers)
        yield tuple(end - first for first, end in pairwise(borders))


def ends_at(counts: Sequence[int], slow: Sequence[Fraction], weights: Sequence[float], message: float = 0.0) -> float:
    """When 1F1B of 8 batches ends with stages of so many layers, of which forward takes `weights` and backward twice as
    long, on ranks that are so slow."""
    borders = [0, *accumulate(counts)]
    heavy = [sum(Fraction(str(w)) for w in weights[first:end]) for first, end in pairwise(borders)]

    def cost(action: Action, rank: int) -> Fraction:
        return heavy[action.stage] * slow[rank] * (1 if action.kind == "F" else 2)

    return time_order(one_f_one_b(len(counts), 8), cost=cost, message=message).end


def test_of_all_ways_to_share_out_uneven_layers_the_reference_is_the_fastest() -> None:
    """A stage that weighs w computes for 16 · w, so that none of more than 4 can come into question."""
    record = PUZZLES["uneven"]
    found: dict[tuple[int, ...], tuple[float, float]] = {}
    for counts in shares(10, 4):
        if max(*counts[:3], counts[3] + 2) <= 4:
            verdict = judged(stages(one_f_one_b)(lambda _, __, counts=counts: [*counts]), "uneven")
            found[counts] = verdict.time, verdict.memory
    best = min(found.values())
    assert best == found[3, 3, 3, 1] == (record.goals[-1].time, record.goals[-1].memory)
    assert [counts for counts, known in found.items() if known[0] == best[0]] == [(3, 3, 3, 1)]
    assert (found[3, 3, 2, 2], found[2, 3, 3, 2]) == ((86.7, 4_063_232), (86.2, 3_670_016))


def test_where_longer_stages_are_better() -> None:
    """What the questions of that notebook say, of layers that are alike, and of a last one that weighs 2."""
    for weights, wanted in (
        ((1,), {(3, 3, 2, 2): (67.1, 4_063_232), (2, 2, 3, 3): (70.6, 3_276_800), (2, 3, 3, 2): (68.6, 3_670_016)}),
        (
            (*[1] * 9, 2),
            {(3, 3, 3, 1): (71.1, 4_063_232), (3, 3, 2, 2): (71.1, 4_063_232), (2, 3, 3, 2): (72.6, 3_670_016)},
        ),
    ):
        for counts, known in wanted.items():
            run = stages(one_f_one_b)(lambda _, __, counts=counts: [*counts])
            verdict = check(simulate(run, ranks=4, layers=10, batches=8, costs=Uneven(layers=weights)))
            assert (verdict.time, verdict.memory) == known


@pytest.mark.parametrize(("place", "time"), [(0, 36.0), (1, 36.6), (2, 37.2), (3, 37.8)])
def test_the_later_the_slow_rank_the_worse(place: int, time: float) -> None:
    """With the order timer, and with the simulator in both worlds."""
    order = [0, 1, 2]
    order.insert(place, 3)
    slow = [Fraction(6, 5) if rank == 3 else Fraction(1) for rank in order]
    assert ends_at((5, 5, 5, 5), slow, [0.2] * 20) == time
    messages: Messages
    for messages in ("awaited", "posted"):
        run = stages(one_f_one_b, messages=messages)(lambda _, __: [(rank, 5) for rank in order])
        assert judged(run, "straggler").time == time


def test_of_all_ways_to_place_a_slow_rank_the_reference_is_the_fastest() -> None:
    even = [Fraction(1)] * 4
    assert ends_at((5, 5, 5, 5), even, [0.2] * 20) == 33
    least = min(
        ends_at(counts, [*even[:place], Fraction(6, 5), *even[place + 1 :]], [0.2] * 20)
        for counts in shares(20, 4)
        if 24 * 0.2 * max(counts) < 36
        for place in range(4)
    )
    assert least == PUZZLES["straggler"].goals[-1].time == 35.52
    run = simulate(way("straggler"), puzzle="straggler")
    assert check(run, "straggler").time == least
