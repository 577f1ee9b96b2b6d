"""Orders as a student writes them: what runs, and what each mistake is told."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lib import UNIT, Mesh, Model, NotSolved, PuzzleError, Trace, Uneven, check, schedule, simulate, stages
from lib.analysis.figures import end
from lib.course.child import run_of
from lib.schedules.pipelines.action import Action
from lib.schedules.pipelines.generators import breadth_first, interleaved, one_f_one_b
from lib.schedules.pipelines.lowering import with_messages
from lib.schedules.pipelines.program import program_of
from lib.submissions.load import load_function

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


def test_the_same_schedule_runs_at_every_size() -> None:
    for ranks, batches in ((1, 1), (2, 3), (4, 2), (2, 3)):
        assert check(simulate(gpipe, ranks=ranks, layers=ranks, batches=batches)).correct


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


def _nothing(rank: int, ranks: int, batches: int) -> None:
    return None


async def _coroutine(rank: int, ranks: int, batches: int) -> list[str]:
    return ["F0"]


async def _of_a_model(model: Model) -> None:
    return None


def _endless(rank: int, ranks: int, batches: int) -> Iterator[str]:
    while True:
        yield "F0"


def _raises(rank: int, ranks: int, batches: int) -> list[str]:
    order = ["F0", "B0"]
    order[3 * rank] = "F1"
    return order


KEPT: list[str] = []


def _shared(rank: int, ranks: int, batches: int) -> list[str]:
    KEPT.extend(["F0", "F1"])
    return KEPT


def _says(*words: Any) -> Callable[..., Any]:
    """A function that says the same words on every rank."""

    def same(rank: int, ranks: int, batches: int) -> list[Any]:
        return [*words]

    return same


MISTAKES: list[tuple[Callable[..., Any], str, str]] = [
    (_nothing, "rank 0: _nothing gives None", "end the function with `return` and the list"),
    (_coroutine, "_coroutine is an async function", "leave out `async`"),
    (_of_a_model, "_of_a_model is asked for the actions of one rank, and cannot be", "def _of_a_model(model)"),
    (_endless, "rank 0: more than 500 actions for one rank", "look for a loop that never ends"),
    (_raises, "rank 1: IndexError: list assignment index out of range", "line 1"),
    (_shared, "the list of rank 1 is that of a rank before it", "make the list inside the function"),
    (_says("F0", "b0"), "rank 0, position 1: 'b0' is no action", 'write "B0"'),
    (_says("F_0"), "rank 0, position 0: 'F_0' is no action", 'write "F0"'),
    (_says(("F", 0)), "rank 0, position 0: a tuple of 2: str 'F'; the number 0 is no action", 'write "F0"'),
    (_says("F{b}"), "rank 0, position 0: 'F{b}' is no action", "put an f before the quotes"),
    (_says(0, 1), "rank 0, position 0: the number 0 is no action", '"F0" or "B0"'),
    (_says("F", "B"), "rank 0, position 0: 'F' is no action", "a kind of action and the number of a microbatch"),
    (_says("F0", "1F0"), "rank 0, position 0: 'F0' is no action", "other words of this order name their stage"),
    (_says(["F0", "B0"], ["F0", "B0"]), "rank 0: these are lists in a list", "give back the list of `rank` alone"),
    (_says("F0", "B0"), "rank 0, at the end: 0F1 is missing", "count what the list has"),
    (
        _says("F0", "F0", "B0", "B0"),
        "rank 0, position 1: 0F0 (forward of microbatch 0 on stage 0) was",
        "each word: 2F0",
    ),
    (_says("UNSHARD", "F0", "RESHARD", "B0"), "rank 0, position 3: 0B0 (backward of", "UNSHARD comes before"),
    (_says("F0", "F1", "B0", "B1", "REDUCE_GRAD", "REDUCE_GRAD"), "rank 0, position 5: 0REDUCE_GRAD", "once is enough"),
    (_says("F0", "F1", "W0", "I0"), "rank 0, position 2: 0W0 needs 0I0 before it", "a W needs the I of the same"),
    (_says("F-1"), "rank 0, position 0: 'F-1' is no action", "none of them has a negative number"),
    (_says("F\u0660"), "rank 0, position 0: 'F\u0660' is no action", "a kind of action and the number"),
    (_says("F" + "9" * 10_000), f"rank 0, position 0: 'F{'9' * 59}' is no action", "no longer than that"),
    (_says(Action("0", "F", "0")), "rank 0, position 0: a tuple of 4: str '0'; str 'F'", "a kind of action"),  # pyright: ignore[reportArgumentType]
    (lambda rank, ranks, batches: "F0 " * 10**6, "rank 0: more than 500 actions", "look for a loop that never ends"),
    (_says("F0", "B0", "B1"), "rank 0, position 2: 0B1 needs 0F1 before it", "earlier in the list"),
    (_says("0F0", "0B0", "0F1", "0B1"), "rank 1, position 0: 0F0 (forward of microbatch 0", "numbered over all ranks"),
    (lambda rank, ranks, batches: {"F0": 1}, "rank 0: <lambda> gives a whole dict", "give back a list"),
    (lambda rank, ranks, batches: 4, "rank 0: <lambda> gives the number 4", "give back a list"),
]


@pytest.mark.parametrize(("function", "what", "fix"), MISTAKES, ids=[what for _, what, _ in MISTAKES])
def test_mistakes_are_told_before_anything_runs(function: Callable[..., Any], what: str, fix: str) -> None:
    KEPT.clear()
    with pytest.raises(PuzzleError) as caught:
        simulate(schedule(function), ranks=2, layers=2, batches=2, budget=500)
    assert str(caught.value).startswith(what)
    assert fix in str(caught.value)
    assert "program.py" not in str(caught.value)


def test_layers_without_end_are_not_counted_one_by_one() -> None:
    @schedule(layers_of=[range(10**12)] * 2)
    def endless(rank: int, ranks: int, batches: int) -> list[str]:
        return ["F0", "B0"]

    with pytest.raises(PuzzleError, match="these layers of the stages do not make the model"):
        simulate(endless, ranks=2, layers=2, batches=1)


def test_a_legal_order_whose_sender_waits_for_room() -> None:
    @schedule
    def says_its_messages(rank: int, ranks: int, batches: int) -> list[str]:
        return [*map(str, with_messages(breadth_first(ranks, batches, 2))[rank])]

    with pytest.raises(PuzzleError, match=r"^this order is legal, but it cannot go on") as caught:
        says_its_messages.order(4, 8)
    assert "rank 0 is at 0SEND_F7" in str(caught.value)
    assert says_its_messages.order(4, 4)


def test_a_mistake_on_a_mesh_names_the_rank_of_the_pipeline() -> None:
    with pytest.raises(PuzzleError, match=r"^rank 0, at the end: 0F1 is missing: there are microbatches 0 to 1"):
        simulate(schedule(_says("F0", "B0")), mesh=Mesh({"stage": 2, "data": 2}), layers=2, batches=4)


def test_the_decorator_in_the_wrong_place() -> None:
    with pytest.raises(PuzzleError, match='expected: messages="awaited" or messages="posted"'):
        schedule(messages="async")  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(PuzzleError, match="schedule was not given a function"):
        schedule("posted")  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(PuzzleError, match=r"fix: +simulate\(gpipe, \.\.\.\) runs it on all ranks"):
        gpipe()  # pyright: ignore[reportCallIssue]


def test_it_does_what_a_program_of_the_same_order_does() -> None:
    alternating = schedule(lambda rank, ranks, batches: [*map(str, one_f_one_b(ranks, batches)[rank])])
    size = {"ranks": 3, "layers": 6, "batches": 5}
    ours = Trace.of(simulate(program_of(one_f_one_b(3, 5)), **size))  # pyright: ignore[reportArgumentType]
    assert Trace.of(simulate(alternating, **size)).text() == ours.text()  # pyright: ignore[reportArgumentType]


# -- stages ---------------------------------------------------------------------------------------------------------


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


def test_what_goes_wrong_in_a_function_that_says_stages() -> None:
    @stages(one_f_one_b)
    def unsolved(layers: list[float], ranks: list[float]) -> list[int]:
        raise NotSolved("uneven")

    assert simulate(unsolved, ranks=2, layers=2, batches=2) == []

    @stages(one_f_one_b)
    def divides(layers: list[float], ranks: list[float]) -> list[int]:
        return [int(layers[0] // 0)]

    with pytest.raises(PuzzleError, match="ZeroDivisionError") as raised:
        simulate(divides, ranks=2, layers=2, batches=2)
    assert "int(layers[0] // 0)" in str(raised.value)
    with pytest.raises(PuzzleError, match="stages was not given a function"):
        stages(one_f_one_b)(3)  # pyright: ignore[reportArgumentType]


async def _coroutine_of_stages(layers: list[float], ranks: list[float]) -> list[int]:
    return [1, 1]


STAGES: list[tuple[Any, str, str]] = [
    (lambda model: [1, 1], "<lambda> is asked for its stages, and cannot be", "def <lambda>(layers, ranks)"),
    (_coroutine_of_stages, "_coroutine_of_stages is an async function", "leave out `async`"),
    (lambda layers, ranks: [1] * 10**6, "<lambda> gives 1000000 stages, and there are 2 ranks", "(3, 1), ..."),
    (lambda layers, ranks: [3, 6], "these stages have 9 layers together, and the model has 6", "where each stage ends"),
    (lambda layers, ranks: [5, 3], "these stages have 8 layers together, and the model has 6", "what all layers weigh"),
    (lambda layers, ranks: [5, 4], "these stages have 9 layers together, and the model has 6", "take 3 layers away"),
]


@pytest.mark.parametrize(("function", "what", "fix"), STAGES, ids=[what for _, what, _ in STAGES])
def test_mistakes_in_what_the_stages_are(function: Any, what: str, fix: str) -> None:
    with pytest.raises(PuzzleError) as caught:
        simulate(stages(one_f_one_b)(function), ranks=2, layers=6, batches=2, costs=Uneven(layers=(1, 1, 1, 1, 1, 3)))
    assert str(caught.value).startswith(what)
    assert fix in str(caught.value)


def test_stages_without_an_order() -> None:
    with pytest.raises(PuzzleError, match="stages was not given an order"):
        stages(5)  # pyright: ignore[reportArgumentType]
