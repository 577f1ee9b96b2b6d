"""What the check says of a Trace, bare and against a made-up puzzle of its size; and whether the oracle agrees."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from lib import Trace, Verdict, check, retime
from lib.analysis import figures
from lib.puzzles import records
from lib.puzzles.puzzle import Goal, Puzzle, Size
from lib.trace.json_format import decode
from lib.trace.rebuild import rebuild
from tests.adversary.oracle import Opinion, opinion
from tests.support.version_1 import encode

PUZZLE = "made up"


def ready(verdict: Verdict) -> bool:
    """Whether a run is correct, and every rank is ready for the next step: what a puzzle asks for."""
    return verdict.correct and not any("not ready for the next" in note for note in verdict.notes)


def figures_of(verdict: Verdict) -> tuple[float, float, float]:
    """Its time, as it is and as the original prints it, and its memory."""
    return verdict.time, verdict.printed, verdict.memory


@contextmanager
def puzzle_of(trace: Trace) -> Iterator[str]:
    """A puzzle of the size and the costs of a run, for as long as it is asked about."""
    goals = (Goal("any", float("inf"), float("inf")),)
    record = Puzzle(
        *(PUZZLE, 0, "", "", "schedule", PUZZLE, (), "", ("", "", ""), 0, "", "", ""),
        *Size.of(trace),
        goals=goals,
        mesh=trace.mesh,
        costs=trace.costs,
    )
    with patch.object(records, "PUZZLES", {PUZZLE: record}):
        yield PUZZLE


def judged(trace: Trace, puzzle: Trace | None = None) -> Verdict:
    """By the bare check, or as a solution of the puzzle that another run is the measure of."""
    if puzzle is None:
        return check(trace)
    with puzzle_of(puzzle) as name:
        return check(trace, name)


def sent(trace: Trace) -> list[float]:
    """What each rank sends, of values made anew: what a Trace states of its own is not believed."""
    run = rebuild(trace).run
    made = Trace(run.layers, run.batches, retime(run, run.costs).programs, run.costs, run.mesh)
    return [float(elements) for elements, _ in figures.traffic(made)]


def read(data: dict[str, Any]) -> Trace:
    """The Trace in JSON data. TraceError where it is none."""
    return decode(data)


def agree(trace: Trace, verdict: Verdict, second: Opinion) -> None:
    """That the oracle finds the same figures."""
    assert abs(verdict.time - second.time) < 1e-6, (verdict.time, float(second.time))
    assert abs(verdict.memory - second.memory) < 1e-6, (verdict.memory, float(second.memory))
    pairs = list(zip(sent(trace), second.sent, strict=True))
    assert all(abs(one - other) < 1e-3 for one, other in pairs), pairs


def honest(trace: Trace) -> None:
    """That a Trace is a correct step, with the same figures in memory, from JSON and from text, and by the oracle."""
    first = judged(trace)
    assert ready(first), (first.faults, first.notes)
    data = encode(trace)
    for again in (judged(read(data), trace), judged(Trace.parse(trace.text()))):
        assert ready(again), again.faults
        assert figures_of(again) == figures_of(first)
    second = opinion(data)
    assert second.flaw is None, second.flaw
    agree(trace, first, second)


def dishonest(trace: Trace, measure: Trace | None = None) -> bool:
    """That a Trace which the oracle refuses is no solution either, and that one which it accepts has true figures.

    Whether the oracle refuses it. `measure` is a run of the puzzle's size and costs; without one, it is its own.
    """
    measure, data = measure or trace, encode(trace)
    second = opinion(data, measure.costs.to_json())
    sizes = [(one.ranks, one.layers, one.batches) for one in (trace, measure)]
    strict = judged(trace, measure)
    if second.flaw is None and sizes[0] == sizes[1]:
        if ready(strict):
            agree(trace, strict, second)
        return False
    assert not ready(strict), f"a dishonest run is called correct; the oracle says: {second.flaw}"
    if second.flaw is not None:
        assert not ready(judged(trace)), f"a bare check calls it correct; the oracle says: {second.flaw}"
    return True


def replayed(trace: Trace, optimizer: str = "sgd") -> None:
    """That a replay gives the numbers of ordinary training, and that each event finds just the bytes that are alive
    according to the simulator. In what is sent, shards of an uneven cut are less than an element larger."""
    from lib.replay import replay
    from tests.replay.schedules import compared

    result = replay(trace, transport="local", optimizer=optimizer, hidden=12, length=4)
    assert result.ok, result.text()
    assert all(error.relative <= 1e-12 for error in result.errors)
    for at, measured, alive in compared(result):
        assert measured == alive, at
    for one, program in zip(result.ranks, trace.programs, strict=True):
        assert abs(one.sent - one.simulated_sent) <= 16 * len(program.values)
