"""The puzzles whose answer is an order: what their notebooks state, and that no goal is reached for nothing."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lib import PUZZLES, Costs, PuzzleError, Trace, check, schedule, simulate
from lib.analysis.figures import traffic
from lib.checker.verdict import Verdict
from lib.schedules.pipelines import generators, legality, lowering
from lib.schedules.pipelines.action import parse
from lib.schedules.pipelines.generators import breadth_first as breadth_first_order
from lib.schedules.pipelines.generators import gpipe, interleaved, one_f_one_b
from lib.schedules.pipelines.lowering import posted
from lib.schedules.pipelines.program import program_of
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from tests.support.puzzles import came_to_goal, figures, way
from tests.support.said import Said

ORDERS = ("breadth_first", "interleaved", "ragged", "zero_bubble", "breadth_first_fsdp")
Words = list[str]


def run(order: Any, messages: Any = "posted", **more: Any) -> Verdict:
    """An order on 8 layers and as many batches as it has."""
    sizes = {"ranks": len(order), "layers": 8, "batches": 1 + max(action.microbatch for action in order[0])}
    sizes |= {"costs": Costs(backward=2)} | more
    verdict = check(Trace.of(simulate(program_of(order, messages=messages), **sizes)))
    assert verdict.correct
    return verdict


def came_to(order: Any, messages: Any = "posted", **more: Any) -> str:
    verdict = run(order, messages, **more)
    return f"time {verdict.time:g}, memory {verdict.memory:,.0f}"


def sent(function: Any) -> str:
    """How often weights are gathered, and what is sent, in the puzzle of FSDP."""
    models = simulate(function, puzzle="breadth_first_fsdp")
    trace = Trace.of(models)
    most = max(float(elements) for elements, _ in traffic(trace))
    return f"{gathers(models)} gathers, {most:,.0f} elements sent; {came_to_goal(function, 'breadth_first_fsdp')}"


def neighbours(rank: int, ranks: int, batches: int) -> Words:
    stages = (2 * rank, 2 * rank + 1)
    forwards = [f"{stage}F{b}" for stage in stages for b in range(batches)]
    return forwards + [f"{stage}B{b}" for stage in reversed(stages) for b in range(batches)]


def lagging(lag: Callable[[int, int, int], int]) -> Any:
    def order_of_a_rank(rank: int, ranks: int, batches: int) -> Words:
        ahead, late = min(batches, ranks - rank), lag(rank, ranks, batches)
        order = [f"F{b}" for b in range(ahead)]
        for b in range(batches):
            order += [f"I{b}"] + [f"W{b - late}"] * (b >= late) + [f"F{b + ahead}"] * (b + ahead < batches)
        return order + [f"W{b}" for b in range(max(0, batches - late), batches)]

    return schedule(messages="posted")(order_of_a_rank)


def gathers(models: Any) -> int:
    return sum(event.op == "allgather" for event in Trace.of(models).programs[0].events)


@pytest.mark.parametrize("puzzle", ORDERS)
def test_no_goal_for_an_order_that_a_student_had_before(puzzle: str) -> None:
    record = PUZZLES[puzzle]
    ranks = record.ranks if record.mesh is None else record.mesh.axes["stage"]
    batches = record.batches * ranks // record.ranks
    for order in (gpipe, one_f_one_b):
        assert figures(program_of(order(ranks, batches), messages="posted"), puzzle)[2] is None


def otherwise(puzzle: str, change: Callable[[Words, int], Any]) -> Any:
    """The order of the reference, with each rank's list changed."""
    function = way(puzzle)
    return schedule(messages="posted")(lambda rank, ranks, batches: change(function(rank, ranks, batches), rank))


def nothing(change: Callable[[Words, int], Any]) -> str:
    """What is said of the orders of the references, each changed in this way."""
    said: list[str] = []
    for puzzle in ORDERS:
        with pytest.raises(PuzzleError) as caught:
            simulate(otherwise(puzzle, change), puzzle=puzzle)
        said.append(f"{puzzle}: {caught.value.what}")
    return "\n".join(said)


test_figures = Said(__file__, "orders").test(
    lambda: vars(generators) | vars(legality) | vars(lowering) | globals() | {"Costs": Costs}
)


def test_the_formulas_hold_for_more_stages() -> None:
    for chunks, ranks, batches in ((2, 3, 5), (3, 4, 8), (4, 5, 10)):
        sizes = {"layers": ranks * chunks}
        verdict = run(breadth_first_order(ranks, batches, chunks), **sizes)
        assert verdict.time == pytest.approx(3 * chunks * batches + 3.8 * (ranks - 1) + 0.5 * chunks)
        assert verdict.memory / 131_072 == 2 * (2 * chunks + 1) + (chunks + 1) * batches
        verdict = run(interleaved(ranks, 3 * ranks, chunks), **sizes)
        around = 0.8 * ranks * (chunks - 1)
        assert verdict.time == pytest.approx(9 * chunks * ranks + 3.8 * (ranks - 1) + around + 0.5 * chunks)
        assert verdict.memory / 131_072 == 6 * chunks + ranks * (chunks + 1) + 4


def short_last(ranks: int, batches: int) -> list[range]:
    return [range(start, min(start + ranks, batches)) for start in range(0, batches, ranks)]


def shared_out(ranks: int, batches: int) -> list[range]:
    groups, start = max(1, batches // ranks), 0
    found: list[range] = []
    for group in range(groups):
        size = batches // groups + (group < batches % groups)
        found.append(range(start, start + size))
        start += size
    return found


def in_groups(groups: Callable[[int, int], Sequence[range]]) -> Any:
    shuffled: Any = load_function(reference("ragged"), "shuffled")
    return schedule(messages="posted")(lambda rank, ranks, batches: shuffled(rank, ranks, groups(ranks, batches)))


def test_which_groups_end_in_a_circle() -> None:
    circles: list[str] = []
    for ranks in range(2, 9):
        for batches in range(1, 4 * ranks + 1):
            assert in_groups(shared_out).order(ranks, batches)
            try:
                in_groups(short_last).order(ranks, batches)
            except PuzzleError as error:
                circles.append(str(error))
    assert len(circles) == 30
    assert all("wait for each other" in text for text in circles)


@pytest.mark.parametrize("puzzle", ORDERS)
def test_in_which_world_messages_travel_is_for_the_puzzle_to_say(puzzle: str) -> None:
    """Its goals are for that world: posted messages would reach those of awaited ones for nothing."""
    world = PUZZLES[puzzle].messages
    other = "posted" if world == "awaited" else "awaited"
    function = way(puzzle).__wrapped__
    with pytest.raises(PuzzleError, match=f"^in this puzzle messages are {world}, and here they are {other}"):
        simulate(schedule(messages=other)(function), puzzle=puzzle)


def test_an_order_does_not_say_its_messages_itself() -> None:
    function = way("zero_bubble").__wrapped__

    @schedule(messages="awaited")
    def by_hand(rank: int, ranks: int, batches: int) -> Words:
        order = tuple(parse(function(one, ranks, batches), one) for one in range(ranks))
        return [str(action) for action in posted(order)[rank]]

    verdict = check(Trace.of(simulate(by_hand, ranks=4, layers=8, batches=8)))
    assert verdict.correct
    assert verdict.time < 46.6
    with pytest.raises(PuzzleError, match="this order says its messages itself"):
        simulate(schedule(messages="posted")(vars(by_hand)["__wrapped__"]), puzzle="zero_bubble")
