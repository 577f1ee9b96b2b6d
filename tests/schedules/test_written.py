"""Orders as a student writes them: what runs, and what each mistake is told."""

import inspect
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lib import UNIT, Model, NotSolved, Trace, Uneven, check, schedule, simulate, stages
from lib.analysis.figures import end
from lib.schedules.pipelines.generators import interleaved, one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.suite.isolation.isolation import run_of
from lib.suite.submissions.load import load_function

SOURCE = '''\
from lib import Mesh, Model, NotSolved, schedule


@schedule(messages="awaited")
def gpipe(rank, ranks, batches):
    """All forwards, then all backwards."""
    return [f"F{b}" for b in range(batches)] + [f"B{b}" for b in range(batches)]
'''


@schedule
def gpipe(rank: int, ranks: int, batches: int) -> list[str]:
    """All forwards, then all backwards."""
    return [f"F{b}" for b in range(batches)] + [f"B{b}" for b in range(batches)]


@schedule(messages="posted")
def by_words(rank: int, ranks: int, batches: int) -> Iterator[str]:
    """Two stages a rank, said with their numbers; a generator will do."""
    yield from map(str, interleaved(ranks, batches, 2)[rank])


def test_a_list_of_words_is_a_schedule_like_any_other() -> None:
    out = simulate(gpipe, puzzle="gpipe")
    verdict = Model.check(out, puzzle="gpipe")
    assert verdict is not None
    assert (verdict.time, verdict.memory) == (33.8, 2_883_584)
    assert gpipe.name == "gpipe"
    assert gpipe.__doc__ == "All forwards, then all backwards."
    assert str(inspect.signature(gpipe)) == "(model)"


def test_the_words_may_name_their_stages_and_messages_may_travel() -> None:
    trace = Trace.of(simulate(by_words, ranks=4, layers=8, batches=16))
    assert check(trace).correct
    assert end(trace) == 76.6


def test_the_order_can_be_had_without_a_run() -> None:
    assert gpipe(1, 4, 2) == gpipe(rank=1, ranks=4, batches=2) == ["F0", "F1", "B0", "B1"]
    assert [" ".join(map(str, actions)) for actions in gpipe.order(2, 1)] == ["0F0 0B0", "1F0 1B0"]


def test_what_happens_is_at_the_word_that_says_it() -> None:
    """Messages are at the word that they are for, by its position in the student's list."""
    trace = Trace.of(simulate(gpipe, ranks=2, layers=2, batches=2))
    found = [(event.op, str(trace.place(event))) for event in trace.programs[1].events]
    assert found[1:5] == [
        ("receive", "position 0: 1F0"),
        ("forward", "position 0: 1F0"),
        ("receive", "position 1: 1F1"),
        ("forward", "position 1: 1F1"),
    ]
    assert found[-5:-2] == [("backward", "position 3: 1B1"), ("add", "position 3: 1B1"), ("pass_to", "position 3: 1B1")]
    assert {place for op, place in found if op in ("load_weights", "update", "set_final_weight")} == {"None"}
    posted = Trace.of(simulate(by_words, ranks=2, layers=4, batches=3))
    for program in posted.programs:
        order = by_words.order(2, 3)[program.rank]
        for event in program.events:
            if (place := posted.place(event)) is not None:
                assert place.text == str(order[place.line])


def test_a_function_is_asked_for_all_ranks_once_a_run() -> None:
    asked: list[int] = []
    dice = random.Random(3)

    @schedule
    def anyhow(rank: int, ranks: int, batches: int) -> list[str]:
        asked.append(rank)
        order = [f"F{b}" for b in range(batches)]
        dice.shuffle(order)
        return order + [f"B{b}" for b in range(batches)]

    for _ in range(2):
        assert check(simulate(anyhow, ranks=3, layers=3, batches=2)).correct
    assert asked == [0, 1, 2, 0, 1, 2]


def test_a_notebook_s_function_is_loaded_and_runs_in_a_child(tmp_path: Path) -> None:
    path = tmp_path / "gpipe.py"
    path.write_text(SOURCE)
    assert check(simulate(load_function(path, "gpipe"), puzzle="gpipe")).correct
    sent = run_of(path, "gpipe")
    assert sent.outcome == "trace", sent.text
    assert sent.trace is not None
    assert end(sent.trace) == 33.8


def test_one_that_is_not_solved_says_so_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gpipe.py"
    head = SOURCE.partition("    return")[0]
    path.write_text(
        f'{head}    # --- your code (about 2 lines) ---\n    raise NotSolved("gpipe")\n    # --- end of your code ---\n'
    )
    out = simulate(load_function(path, "gpipe"), puzzle="gpipe")
    assert out == []
    assert "gpipe is not solved yet" in capsys.readouterr().out
    assert run_of(path, "gpipe").outcome == "unsolved"
    with pytest.raises(NotSolved):
        load_function(path, "gpipe").order(4, 4)  # pyright: ignore[reportFunctionMemberAccess]


def test_it_does_what_a_program_of_the_same_order_does() -> None:
    alternating = schedule(lambda rank, ranks, batches: [*map(str, one_f_one_b(ranks, batches)[rank])])
    size = {"ranks": 3, "layers": 6, "batches": 5}
    ours = Trace.of(simulate(program_of(one_f_one_b(3, 5)), **size))  # pyright: ignore[reportArgumentType]
    assert Trace.of(simulate(alternating, **size)).text() == ours.text()  # pyright: ignore[reportArgumentType]


def test_a_function_may_say_the_stages_alone() -> None:
    given: list[tuple[list[float], list[float]]] = []

    @stages(one_f_one_b, messages="posted")
    def anyhow(layers: list[float], ranks: list[float]) -> list[Any]:
        given.append((layers, ranks))
        return [(2, 1), (0, 3), (1, 2)]

    costs = Uneven(layers=(1, 2, 3), ranks=(1, 1.5))
    trace = Trace.of(simulate(anyhow, ranks=3, layers=6, batches=4, costs=costs))
    assert check(trace).correct
    assert given == [([1, 2, 3, 1, 2, 3], [1, 1.5, 1])]
    mine = [{event.layer for event in program.events if event.op == "forward"} for program in trace.programs]
    assert mine == [{1, 2, 3}, {4, 5}, {0}]
    assert anyhow([1.0], [1.0]) == [(2, 1), (0, 3), (1, 2)]
    assert repr(anyhow) == "<stages anyhow>"
    assert str(inspect.signature(anyhow)) == "(model)"


def test_equal_stages_are_the_order_itself() -> None:
    whole = stages(one_f_one_b)(lambda layers, ranks: [len(layers) // len(ranks)] * len(ranks))
    for costs in (UNIT, Uneven(ranks=(1, 2))):
        runs = [
            Trace.of(simulate(function, ranks=4, layers=8, batches=8, costs=costs))
            for function in (whole, program_of(one_f_one_b(4, 8)))
        ]
        assert len({end(run) for run in runs}) == 1
