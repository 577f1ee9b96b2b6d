"""The puzzles on pipelines: what their notebooks state, and that no goal is reached for nothing."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, combinations, pairwise
from typing import Any

from lib import PUZZLES, Model, Uneven, check, simulate, stages
from lib.analysis.bounds.family import Family
from lib.analysis.bounds.limits import bound_of
from lib.schedules import data_parallel
from lib.schedules.data_parallel import segments
from lib.schedules.pipelines.action import Action
from lib.schedules.pipelines.generators import gpipe, one_f_one_b
from lib.schedules.pipelines.program import Messages, program_of
from lib.schedules.pipelines.timing import time_order
from lib.suite.submissions.locations import reference
from tests.support.puzzles import came_to_goal, figures, judged, way
from tests.support.said import Said


def test_one_forward_less_at_the_beginning_starves_the_pipeline() -> None:
    puzzle = "one_f_one_b"
    text = reference(puzzle).read_text("utf-8")
    body = text[text.index("async def one_f_one_b") : text.index("# %%\nout = []")]
    given: dict[str, Any] = {"Model": Model}
    exec(body.replace("model.RANKS - model.rank)", "max(1, model.RANKS - model.rank - 1))"), given)
    assert figures(given[puzzle], puzzle) == (83.8, 2_490_368, None)
    assert not judged(program_of(gpipe(4, 8)), puzzle).passed


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


def ends(counts: Sequence[int], *weights: float) -> str:
    """When 1F1B ends with so many layers a rank, of which forward takes so long, and its memory."""
    run = stages(one_f_one_b)(lambda _, __: [*counts])
    verdict = check(simulate(run, ranks=4, layers=10, batches=8, costs=Uneven(layers=weights)))
    return f"time {verdict.time:g}, memory {verdict.memory:,.0f}"


def slow_at(place: int, messages: Messages) -> str:
    """What the puzzle says where the slow rank has that place, of equal stages; the order timer says the same time."""
    order = [0, 1, 2]
    order.insert(place, 3)
    slow = [Fraction(6, 5) if rank == 3 else Fraction(1) for rank in order]
    run = stages(one_f_one_b, messages=messages)(lambda _, __: [(rank, 5) for rank in order])
    assert judged(run, "straggler").time == ends_at((5, 5, 5, 5), slow, [0.2] * 20)
    return came_to_goal(run, "straggler")


def deep(function: Any) -> str:
    """Batches of activations beside the weights, in 64 layers."""
    verdict = check(simulate(function, ranks=1, layers=64, batches=4))
    return f"{(verdict.memory - 2 * 64 * 262_144) / 524_288:g}"


test_figures = Said(__file__, "pipelines").test(lambda: vars(data_parallel) | globals())


def shares(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
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
