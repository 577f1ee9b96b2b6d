"""The lower bounds: nothing of the family is below them, and the schedules that reach them do."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from lib import Model, Trace, Uneven, check, simulate
from lib.analysis.bounds import limits
from lib.analysis.bounds.family import Family
from lib.analysis.bounds.limits import Bound, alive, bound_of, has_bound, lower_bound, memory
from lib.analysis.figures import end, peak, traffic
from lib.puzzles.records import PUZZLES
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.suite.course.solutions import owner
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import home, reference
from tests.replay.schedules import CASES
from tests.support.schedules import EVERYTHING
from tests.support.witnesses import sharded, together, witness

BOUNDED = [name for name in PUZZLES if has_bound(name)]
STAGED = [name for name in BOUNDED if isinstance(lower_bound(name).family, Family)]
FIGURES = ("time", "memory", "sent")
DUST = 1e-9


class Run(NamedTuple):
    name: str
    puzzle: str
    function: Callable[[Model], Any]


def _runs() -> Iterator[Run]:
    """Every schedule that we have, in every puzzle whose size it fits."""
    for puzzle in STAGED:
        yield Run("reference", puzzle, load_function(reference(puzzle), puzzle))
    for path in sorted((home() / "solutions" / "alternatives").glob("*.py")):
        puzzle = owner(path)
        if puzzle in STAGED:
            yield Run(path.stem, puzzle, load_function(path, puzzle))
    others: list[tuple[str, Any]] = [(case.name, case) for case in EVERYTHING] + list(CASES.items())
    for name, case in others:
        for puzzle in STAGED:
            record = PUZZLES[puzzle]
            same = (case.ranks, case.layers, case.batches) == (record.ranks, record.layers, record.batches)
            if same and (case.mesh is None or (record.mesh is not None and case.mesh.axes == record.mesh.axes)):
                yield Run(name, puzzle, case.function)


def _figures(trace: Trace) -> tuple[float, float, float]:
    return end(trace), float(peak(trace).elements), float(max(sent for sent, _ in traffic(trace)))


def _limits(bound: Bound) -> tuple[float, float, float]:
    return bound.time.value, bound.memory.value, bound.sent.value


def test_no_schedule_of_the_family_is_below_and_most_of_ours_are_of_it() -> None:
    runs, excused = [*_runs()], set[tuple[str, str]]()
    for run in runs:
        trace = Trace.of(simulate(run.function, puzzle=run.puzzle))
        bound = lower_bound(run.puzzle)
        if bound.excuse(trace) is not None:
            excused.add((run.name, run.puzzle))
            continue
        for figure, limit in zip(_figures(trace), _limits(bound), strict=True):
            assert figure >= limit - DUST, run
    assert not any(name == "reference" for name, _ in excused)
    assert len(excused) < len(runs) / 2
    assert {("ddp_sharded_update", "ddp"), ("gpipe_interleaved", "gpipe")} <= excused
    assert ("gpipe_one_f_one_b", "gpipe") not in excused


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("puzzle", STAGED)
def test_every_bound_that_claims_it_is_reached(puzzle: str, figure: str) -> None:
    bound = lower_bound(puzzle)
    trace = Trace.of(simulate(witness(puzzle, figure), puzzle=puzzle))
    verdict = check(trace, puzzle)
    assert verdict.correct, verdict.faults
    assert bound.excuse(trace) is None
    assert getattr(bound, figure).optimal
    assert _figures(trace)[FIGURES.index(figure)] == pytest.approx(getattr(bound, figure).value, abs=DUST)


@pytest.mark.parametrize("puzzle", STAGED)
def test_the_best_that_is_known_of_one_run(puzzle: str) -> None:
    trace = Trace.of(simulate(together(puzzle), puzzle=puzzle))
    verdict = check(trace, puzzle)
    assert verdict.correct
    assert lower_bound(puzzle).excuse(trace) is None
    assert (verdict.time, verdict.memory) == lower_bound(puzzle).together


@pytest.mark.parametrize("collective", ["scatterreduce", "allreduce"])
def test_the_least_memory_does_not_depend_on_how_gradients_are_summed(collective: str) -> None:
    trace = Trace.of(simulate(sharded(sum_up=collective), puzzle="wsdp"))
    assert check(trace, "wsdp").correct
    assert peak(trace).elements == lower_bound("wsdp").memory.value


@pytest.mark.parametrize("puzzle", BOUNDED)
def test_the_parts_are_the_whole(puzzle: str) -> None:
    bound = lower_bound(puzzle)
    for limit in (bound.time, bound.memory, bound.sent):
        assert sum(part.amount for part in limit.parts) == pytest.approx(limit.value, abs=DUST)
        assert all(part.amount > 0 and part.what for part in limit.parts)
        assert limit.kind in ("critical path", "work", "what has to be in memory", "what has to be sent")
        assert limit.proof.endswith(".")
    assert bound.premise.endswith(".")
    assert bound.puzzle == puzzle


def test_goals_are_not_below_what_is_possible() -> None:
    for puzzle in BOUNDED:
        bound = lower_bound(puzzle)
        for goal in PUZZLES[puzzle].goals:
            assert goal.time >= bound.time.value - DUST
            assert goal.memory >= bound.memory.value


def test_the_proof_for_gpipe_names_the_solver_and_what_one_schedule_cannot_have() -> None:
    bound = lower_bound("gpipe")
    assert "CP-SAT" in bound.time.proof
    assert "32.6" in bound.time.proof
    assert "CP-SAT" in bound.memory.proof
    assert "So no schedule has the least time and the least memory" in bound.memory.proof


def test_a_bound_of_another_size_claims_no_witness() -> None:
    bound = bound_of(Family(2, 4, 3, stages=2, grouping="one"))
    assert not bound.time.optimal
    assert bound.time.value == pytest.approx(2 + 0.4 + 12 + 2 + 0.4 + 1)


@pytest.mark.parametrize(
    ("family", "when", "proof"),
    [
        (Family(4, 6, 4, sharded=True), "start", "first backward starts, nothing has been updated yet"),
        (Family(4, 4, 4, stages=4, grouping="all"), "start", "first backward starts, "),
        (Family(1, 2, 4), "last batch", "At the last batch's first backward"),
        (Family(4, 16, 4), "over", "first backward is over, "),
    ],
)
def test_a_proof_speaks_of_the_moment_and_not_of_words(
    family: Family, when: str, proof: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which moment it is used to be looked for in the words of its parts."""
    moment = alive(family)
    assert moment.when == when
    assert proof in memory(family, reached=True).proof
    reworded = moment._replace(parts=tuple(part._replace(what="x") for part in moment.parts))
    monkeypatch.setattr(limits, "alive", lambda family: reworded)
    assert proof in memory(family, reached=True).proof


@pytest.mark.parametrize("costs", [Uneven(ranks=(1.2,)), Uneven(ranks=(1, 1, 1, 1.5)), Uneven(layers=(1,) * 7 + (3,))])
def test_a_slow_rank_and_a_heavy_last_layer_are_not_below(costs: Uneven) -> None:
    """And what a solver proved with other costs is not said of them."""
    family = Family(4, 8, 4, 4, grouping="one")
    bound = bound_of(family, costs)
    trace = Trace.of(simulate(program_of(one_f_one_b(4, 4)), ranks=4, layers=8, batches=4, costs=costs))
    assert bound.excuse(trace) is None
    for figure, limit in zip(_figures(trace), _limits(bound), strict=True):
        assert figure >= limit - DUST
    assert (bound.time.value > bound_of(family).time.value) == (costs.layers != (1,))
    assert bound.frontier == ()
    assert bound_of(family).frontier != ()
    assert "solver" not in bound.time.proof + bound.memory.proof
