"""What the functions of the chapters on meshes answer, asked in other ways than their tables do."""

from collections.abc import Callable
from typing import Any

import pytest

from lib.cluster.layouts import mesh_of, random_grids, small_grids
from lib.suite.submissions.function_check import judge_answers, judge_of, solution_of
from lib.suite.submissions.locations import reference
from lib.suite.submissions.table import Answer, ask_here
from tests.support.profiles import sample
from tests.support.said import Said


def asked(puzzle: str) -> list[tuple[tuple[Any, ...], Any]]:
    """The inputs of a puzzle that are not to be refused, with their answers."""
    judge = judge_of(puzzle, reference(puzzle))
    assert judge.inputs is not None
    inputs = [tuple(given) for given in judge.inputs()]
    answers = ask_here(judge.answer)(inputs)
    return [(given, answer.value) for given, answer in zip(inputs, answers, strict=True) if not answer.raised]


def test_a_hybrid_mesh_has_a_place_for_every_device() -> None:
    for (devices, slices, replica_ici, replica_dcn, model), sizes in asked("hybrid_mesh"):
        assert sizes["data_ici"] * replica_ici * model * slices == devices
        assert sizes["data_dcn"] * replica_dcn == slices
        assert sizes["data_axis"] * model == devices
        assert sizes["replica"] == replica_ici * replica_dcn


def test_a_physical_batch_is_the_smallest_that_divides_and_the_published_one_where_that_works() -> None:
    """AXLearn takes the larger of what the feeds need and one slot for each device."""
    compared = 0
    for (logical, physical, feeds, _, devices), sizes in asked("dispatch"):
        each, size = sizes["logical_per_feed"], sizes["physical"]
        assert each * sizes["logical_feeds"] == logical
        assert size == sizes["physical_per_feed"] * feeds == sizes["padding"] + logical
        assert size % devices == 0
        assert sizes["physical_per_feed"] >= each
        if physical is None:
            smaller = (one for one in range(each * feeds, size) if one % devices == 0 and one % feeds == 0)
            assert next(smaller, None) is None
            published = max(each * feeds, devices)
            if published % feeds == 0 and published % devices == 0:
                compared += 1
                assert size == published
    assert compared > 200


def test_data_shards_are_read_by_the_feeds_that_count_and_spread_over_the_others() -> None:
    for (_, _, feeds, indices, _), sizes in asked("dispatch"):
        order = range(sizes["logical_feeds"]) if indices is None else indices
        assert [sizes["shards"][feed] for feed in order] == list(range(len(order)))
        others = [sizes["shards"][feed] for feed in range(feeds) if feed not in order]
        counts = [others.count(shard) for shard in range(len(order))]
        assert max(counts) - min(counts) <= 1


def test_of_less_than_one_example_every_row_is_read_and_groups_are_clean() -> None:
    for (grid, per_process, batch), reads in asked("less_than_one"):
        mesh, rows = mesh_of(grid, per_process), [row for replica in grid for row in replica]
        assert {example for examples in reads.values() for example in examples} == set(range(batch))
        for example in range(batch):
            readers = {process for process, examples in reads.items() if example in examples}
            assert len({tuple(reads[process]) for process in readers}) == 1
        for number, row in enumerate(rows):
            share = range(number * batch, (number + 1) * batch)  # of the batch, in parts of a row
            needs = {part // len(rows) for part in share}
            assert all(needs <= set(reads[mesh.process(device)]) for device in row)


@pytest.mark.parametrize("meshes", [small_grids(5), random_grids(60, [2, 4, 4])], ids=["small", "large"])
def test_with_an_example_a_row_a_group_has_the_same_rows(meshes: Any) -> None:
    """The process map, as it should be."""
    for grid, per_process in meshes:
        mesh, rows = mesh_of(grid, per_process), [row for replica in grid for row in replica]
        owned = {
            process: {number for number, row in enumerate(rows) if {*mesh.devices(process)} & {*row}}
            for process in range(len(mesh.processes))
        }
        clean = all(one == other or not one & other for one in owned.values() for other in owned.values())
        (answer,) = ask_here(solution_of("less_than_one"))([(grid, per_process, len(rows))])
        assert (answer.raised == "") == clean
        if clean:
            assert answer.value == {process: sorted(examples) for process, examples in owned.items()}


SAID = Said(__file__, "feeding")


def told(puzzle: str, change: Callable[[Any], Any]) -> str:
    """How to fix answers that are the right ones, but for a change."""
    right = solution_of(puzzle)
    (fault,) = judge_answers(puzzle, ask_here(lambda *given: change(right(*given)))).faults
    return fault.partition("fix:")[2].strip()


def refuses(right: Any) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("expression", sample(SAID.texts))
def test_a_wrong_answer_is_told_what_is_wrong_with_it(expression: str) -> None:
    SAID.check(expression, {"told": told, "refuses": refuses})


def test_a_row_may_hold_a_part_of_an_example() -> None:
    judge = judge_of("less_than_one", reference("less_than_one"))
    failure = judge.failure(([[[0], [1]]], 1, 1), Answer({0: [0], 1: []}))
    assert failure is not None
    assert failure.why == "process 1 has a device in row 1, which holds a part of example 0"
    assert "reads nothing" in judge.shown(failure).holds.values()
