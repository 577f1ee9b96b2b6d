"""An answer that only knows the size on the page does not pass: a check runs it at the hidden sizes of its puzzle."""

import ast
import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any, cast

import pytest

from lib import PUZZLES, CheckError, Dist, Model, NotSolved, PuzzleError, Trace, check, schedule, simulate, stages
from lib.puzzles.puzzle import Puzzle, Task
from lib.schedules.pipelines.generators import one_f_one_b
from lib.suite.course import progress
from lib.suite.submissions.load import function_of, load_function
from lib.suite.submissions.locations import reference
from lib.suite.submissions.source import Source
from tests.support.puzzles import SCHEDULES, way
from tests.support.said import Said

WITHOUT = {"straggler": "its answer is numbers that were found for one machine, and there is no other where they hold"}
"""The schedules without hidden sizes, and why."""
SEARCHES = ("uneven",)
"""Puzzles whose answer takes no sizes, but the layers and ranks themselves."""


class OnThePage(ast.NodeTransformer):
    """Writes the numbers on the page of a puzzle wherever our answer asks for them."""

    def __init__(self, puzzle: str) -> None:
        record = PUZZLES[puzzle]
        stages = record.ranks if record.mesh is None else record.mesh.axes.get("stage", record.ranks)
        self.puzzle = puzzle
        self.sizes = {"RANKS": record.ranks, "LAYERS": record.layers, "BATCHES": record.batches}
        self.of_an_order = {"ranks": stages, "batches": record.batches * stages // record.ranks}
        self.in_an_order = False
        self.written = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.in_an_order = node.name == self.puzzle and [arg.arg for arg in node.args.args][1:] == [*self.of_an_order]
        self.generic_visit(node)
        self.in_an_order = False
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return self._number(self.sizes[node.attr]) if node.attr in self.sizes else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._number(self.of_an_order[node.id]) if self.in_an_order and node.id in self.of_an_order else node

    def _number(self, number: int) -> ast.Constant:
        self.written += 1
        return ast.Constant(number)


def written_for_the_page(puzzle: str) -> Callable[..., Any]:
    """Our answer, with the numbers on the page in it."""
    path, page = reference(puzzle), OnThePage(puzzle)
    tree = ast.fix_missing_locations(page.visit(ast.parse(path.read_text("utf-8"))))
    assert page.written
    return function_of(Source.of(path.name, ast.unparse(tree)), puzzle)


def checked(function: Any, puzzle: str) -> None:
    Model.check(simulate(function, puzzle=puzzle), puzzle=puzzle)


@pytest.mark.parametrize("puzzle", [name for name in SCHEDULES if name not in (*WITHOUT, *SEARCHES)])
def test_our_own_answer_with_the_numbers_on_the_page_in_it_does_not_pass(puzzle: str) -> None:
    record, function = PUZZLES[puzzle], written_for_the_page(puzzle)
    with pytest.raises(PuzzleError) as wrong:
        checked(function, puzzle)
    sizes = re.fullmatch(r"right at (.*), but not at (.*):", str(wrong.value).splitlines()[0])
    assert sizes is not None
    assert sizes[1] == record.size.words()
    assert sizes[2] in [Task(replace(record, **hidden.given())).size() for hidden in record.hidden]
    assert wrong.value.trace.ranks in [hidden.ranks for hidden in record.hidden]


TIMED = [record for record in PUZZLES.values() if any(isfinite(hidden.time) for hidden in record.hidden)]


@pytest.mark.parametrize("record", TIMED, ids=lambda record: record.id)
def test_the_time_of_the_last_goal_at_another_size_is_that_of_our_own_answer(record: Puzzle) -> None:
    for hidden in (one for one in record.hidden if isfinite(one.time)):
        run = simulate(way(record.id), puzzle=record.id, **hidden.given())
        assert check(run).time == hidden.time


PHASES_FOR_FOUR = """
from lib import schedule
from lib.schedules.given import in_phases

@schedule(messages="posted")
def zb_v(rank, ranks, batches):
    down, pause = 7 - 2 * rank, 4 - rank
    phases = [(down, "Fd"), (rank, "Fu Fd"), (pause, "Fu Iu Wu"), (batches - 4, "Fd Id Wd Fu Iu Wu")]
    return in_phases(rank, ranks, batches, [*phases, (batches, "Id Iu"), (batches, "Wd Wu")])
"""


def test_numbers_that_fit_the_page_do_not_reach_the_last_goal_where_they_are_slow_elsewhere() -> None:
    zb_v = function_of(Source.of("mine.py", PHASES_FOR_FOUR), "zb_v")
    verdict = cast(Any, Model.check(simulate(zb_v, puzzle="zb_v"), puzzle="zb_v"))
    assert verdict.best == "passes"
    assert verdict.passed
    assert verdict.notes[-1].startswith(
        "'the last rank never waits' has to hold at other sizes, too: at 2 ranks, 4 layers, 3 batches "
    )
    assert "the last rank never waits - does not count: see the note above" in verdict.text()


def test_stages_by_what_does_not_count_do_not_reach_the_last_goal() -> None:
    def by_number(layers: Any, ranks: Any) -> list[int]:
        each, left = divmod(len(layers) - 1, len(ranks) - 1)
        return [*[each] * (len(ranks) - 1), left + 1]

    def as_if_ranks_were_alike(layers: Any, ranks: Any) -> list[int]:
        return cast(Any, way("uneven"))(layers, [1] * len(ranks))

    heavy, slow = "layers=(1, 1, 1, 3, 1, 1, 1, 1, 1, 1) yours ends at 97.1, where 75.1 ", "ranks=(1, 1, 2, 1) yours"
    for answer, told in ((by_number, heavy), (as_if_ranks_were_alike, slow)):
        verdict = cast(Any, Model.check(simulate(stages(one_f_one_b)(answer), puzzle="uneven"), puzzle="uneven"))
        assert (verdict.best, told in verdict.notes[-1]) == ("passes", True)


def test_every_placement_is_tried_and_what_ranks_are_given_is_counted() -> None:
    ours = way("place_inputs")

    async def place_inputs(model: Model, placement: str = "batch") -> None:
        await ours(model, "batch")

    with pytest.raises(CheckError) as wrong:
        checked(place_inputs, "place_inputs")
    first, second, third = str(wrong.value).splitlines()[:3]
    assert first == "right at 4 ranks, 4 layers, 4 batches, but not with placement='full':"
    assert (second, third) == ("rank 0 is given 2 batches", "  expected: 1 batch on each rank")


def test_every_puzzle_is_tried_elsewhere_or_there_is_a_reason() -> None:
    alone = {record.id for record in PUZZLES.values() if not (record.hidden or record.draws or record.runs[1:])}
    assert alone == {*WITHOUT}


@pytest.mark.parametrize("puzzle", ["ddp", "hsdp", "breadth_first_fsdp", "straggler"])
def test_how_many_sizes_a_right_answer_is_right_at(puzzle: str, capsys: pytest.CaptureFixture[str]) -> None:
    checked(way(puzzle), puzzle)
    count = len(PUZZLES[puzzle].hidden)
    words = f" Also right at {count} other size{'s' * (count > 1)}." if count else ""
    assert capsys.readouterr().out.splitlines()[0] == f"Correct!{words}"


@schedule(messages="posted")
def groups_of_six_and_five(rank: int, ranks: int, batches: int) -> Any:
    return load_function(reference("ragged"), "shuffled")(rank, ranks, [range(6), range(6, 11)])


@schedule(messages="posted")
def stages_of_four_ranks(rank: int, ranks: int, batches: int) -> list[str]:
    forwards = [f"{stage}F{b}" for stage in (rank, rank + 4) for b in range(batches)]
    return forwards + [f"{stage}B{b}" for stage in (rank + 4, rank) for b in range(batches)]


@stages(one_f_one_b)
def three_three_three_one(layers: Any, ranks: Any) -> list[int]:
    return [3, 3, 3, 1]


async def two_layers(model: Model) -> None:
    """Data parallelism of the layers on the page; the others are handed in as they were loaded."""
    states = {layer: model.load_weights(layer) for layer in range(model.LAYERS)}
    first = model.forward(0, data := model.get_activation([model.rank]), states[0][0])
    grads: dict[int, Any] = {}
    if model.LAYERS == 2:
        loss = model.loss(model.forward(1, first, states[1][0]))
        grads[1], loss = model.backward(1, first, loss, states[1][0])
        grads[0], _ = model.backward(0, data, loss, states[0][0])
    for layer, (weight, state) in states.items():
        if layer in grads:
            weight, state = model.update(layer, await model.allreduce(grads[layer], layer), weight, state)
        model.opt_states[layer] = state
        model.set_final_weight(layer, weight)


def ends_where_it_is_not_solved(model: Model) -> Any:
    print("a rank of", model.RANKS)
    if model.RANKS != 4:
        raise NotSolved("ddp")
    return way("ddp")(model)


test_texts = Said(__file__, "hidden_sizes").test(lambda: globals())


def test_what_ranks_print_elsewhere_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CheckError):
        checked(ends_where_it_is_not_solved, "ddp")
    assert capsys.readouterr().out == "a rank of 4\n" * 4


def test_such_an_answer_is_no_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "progress.json"))
    with pytest.raises(CheckError):
        checked(two_layers, "ddp")
    assert not progress.known()["ddp"].passed
    checked(way("ddp"), "ddp")
    assert progress.known()["ddp"].passed


def test_nothing_is_tried_where_there_is_no_function_or_no_puzzle(capsys: pytest.CaptureFixture[str]) -> None:
    async def by_hand() -> list[Any]:
        dist = Dist(4)
        models = [Model(rank, dist, 2, 4) for rank in range(4)]
        await asyncio.gather(*map(two_layers, models))
        return models

    models = asyncio.run(by_hand())
    simulated = simulate(two_layers, puzzle="ddp")
    for run, puzzle in ((models, "ddp"), (models, None), (simulated, None), (Trace.of(simulated), "ddp")):
        verdict = Model.check(run, puzzle=puzzle)  # pyright: ignore[reportArgumentType]
        assert verdict is not None
        assert verdict.passed
    assert "other size" not in capsys.readouterr().out


class Liar:
    """Whatever it is asked, it fails with an error of a class that nobody expects."""

    def __getattr__(self, name: str) -> Any:
        raise ArithmeticError(name)


def test_a_record_that_was_spoiled_at_another_size_is_no_run_there() -> None:
    ours = load_function(reference("ddp"), "ddp")

    async def ddp(model: Model) -> None:
        await ours(model)
        if PUZZLES["ddp"].layers != model.LAYERS:
            model.program.values[0] = cast("Any", Liar())

    with pytest.raises(CheckError, match=r"but not at .*(?s:.*)its record is not a run"):
        Model.check(simulate(ddp, puzzle="ddp"), puzzle="ddp")
