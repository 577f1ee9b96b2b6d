"""Ranks that are alike share a row, and a difference that matters is never hidden in one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawing import draw
from drawing.timeline.boxes import Fold, boxes, labels
from drawing.timeline.memory import levels
from drawing.timeline.rows import fold, groups, names, shown_rows
from lib import Mesh, Model, Trace, simulate
from lib.trace.event import Program
from lib.values.operations import OPERATIONS
from tests.drawing.marks import texts
from tests.drawing.runs import RUNS, ddp, quietly, solved, trace
from tests.support.profiles import sample
from tests.support.schedules import CLASSIC, OTHERS, Case


def ranks(run: Trace) -> list[tuple[int, ...]]:
    return [row.ranks for row in fold(run)]


@pytest.mark.parametrize("case", sample([*CLASSIC, *OTHERS]), ids=lambda case: case.name)
def test_ranks_in_a_row_have_the_same_boxes_and_memory_and_own_batches_where_it_says_so(case: Case) -> None:
    run = Trace.of(case.run(simulate))
    alike: dict[int, list[Any]] = defaultdict(list)
    for box in boxes(run).boxes:
        layer = run.programs[box.rank].events[box.number].layer
        alike[box.rank].append((box.number, box.look, box.start, box.end, box.lane, layer))
    assert sorted(rank for row in fold(run) for rank in row.ranks) == [*range(run.ranks)]
    for row in fold(run):
        for rank in row.ranks[1:]:
            assert alike[rank] == alike[row.rank]
            assert levels(run, rank) == levels(run, row.rank)
        for number, event in enumerate(run.programs[row.rank].events):
            batches = [run.programs[rank].events[number].batches for rank in row.ranks]
            if event.op not in OPERATIONS or not OPERATIONS[event.op].has_batches:
                assert number not in row.own
                continue
            assert (number in row.own) == (len(set(batches)) > 1)
            if number in row.own:
                assert sum(map(len, batches)) == len(frozenset[int]().union(*batches))
            else:
                assert set(batches) == {event.batches}


def test_the_classic_schedules_fold_along_their_data() -> None:
    found = {case.name: ranks(Trace.of(case.run(simulate))) for case in [*CLASSIC, *OTHERS]}
    assert found["hsdp"] == [(0, 1, 2, 3, 4, 5, 6, 7)]  # along both axes: where they shard and where they replicate
    # Quarters of weights and eighths of optimizer states.
    assert ranks(solved("hsdp_zero")) == [tuple(range(8))]
    assert found["basic"] == [(0,)]
    assert found["ddp"] == found["wsdp"] == found["fsdp"] == [(0, 1, 2, 3)]
    assert found["pipeline"] == found["gpipe"] == [(0,), (1,), (2,), (3,)]
    assert found["pipeline_fsdp"] == [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]


def compute(batch: Callable[[Model], int], more: Callable[[Model], int] | None = None) -> Trace:
    def function(model: Model) -> None:
        weight = model.load_weights(0)[0]
        for which in filter(None, (batch, more)):
            model.forward(0, model.get_activation([which(model)]), weight)

    return trace(function, ranks=4, layers=1, batches=8)


def test_batches_that_ranks_share_are_told_from_their_own_which_are_counted() -> None:
    assert fold(compute(lambda model: model.rank)) == [Fold((0, 1, 2, 3), {1: "own", 2: "own"})]
    assert fold(compute(lambda model: 0)) == [Fold((0, 1, 2, 3))]
    assert ranks(compute(lambda model: max(model.rank, 1))) == [(0, 1), (2, 3)]
    other = compute(lambda model: model.rank, lambda model: model.rank)
    assert set(fold(other)[0].own.values()) == {"own"}
    mixed = compute(lambda model: model.rank, lambda model: model.rank + 4 if model.rank else 0)
    assert ranks(mixed) == [(0,), (1, 2, 3)]
    for first in (0, 1):
        run = compute(lambda model, first=first: model.rank + first, lambda model: model.rank + 4)
        (row,) = fold(run)
        events = run.programs[0].events
        said = {box.number: labels(box, events[box.number], row.own)[0] for box in boxes(run).boxes if box.rank == 0}
        assert {"#0", "#1"} == {text for number in row.own for text in said.get(number, [])}
        assert not [text for number in row.own for text in said.get(number, []) if text.isdigit()]


def test_who_holds_more_or_passes_the_others_messages_has_a_row_of_its_own() -> None:
    def uneven(model: Model) -> None:
        weight = model.load_weights(0)[0]
        model.activations[0] = model.get_activation([model.rank])
        if model.rank == 1:
            model.weights[1] = model.load_weights(1)[0]
        model.forward(0, model.activations[0], weight)
        if model.rank != 1:
            model.weights[0] = weight

    async def ring(model: Model) -> None:
        await model.pass_to((model.rank + 1) % model.RANKS, model.get_activation([model.rank]))
        await model.receive((model.rank - 1) % model.RANKS)

    assert ranks(trace(uneven, ranks=4, layers=2, batches=4)) == [(0, 2, 3), (1,)]
    assert ranks(trace(ring, ranks=4, batches=4)) == [(0,), (1,), (2,), (3,)]


def test_few_ranks_keep_their_rows_in_the_timeline_and_not_in_the_memory() -> None:
    run = RUNS["ddp"]
    picture, _ = quietly(draw, run)
    words = texts(picture)
    assert [words.count(f"rank {rank}") for rank in range(4)] == [1, 1, 1, 1]
    assert words.count("ranks 0-3") == 1
    apart = draw(run, fold=False).svg()
    assert "ranks 0-3" not in apart
    assert apart.count(">rank 3</text>") == 2
    together = draw(run, fold=True).svg()
    assert together.count(">ranks 0-3</text>") == 2
    assert ">rank 3</text>" not in together
    assert ">own" not in together
    assert "so do ranks 1-3, on batches of their own" in together


def test_many_ranks_are_folded_and_messages_go_from_row_to_row() -> None:
    case = next(case for case in CLASSIC if case.name == "pipeline_fsdp")
    assert draw(case.run(simulate)).svg().count(">ranks 2, 6, 10, 14</text>") == 2
    run = Trace.of(case.run(simulate, mesh=Mesh({"data": 4, "stage": 4})))
    svg = draw(run).svg()
    assert svg.count(">stage 2</text>") == 2
    assert svg.count(">ranks 2, 6, 10, 14</text>") == 2
    assert ">rank 6</text>" not in svg
    line = boxes(run, [row.rank for row in fold(run)])
    ends = sorted((message.source, message.target) for message in line.messages)
    assert ends == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]


def test_ranks_that_did_nothing_are_named_in_one_line_and_of_many_rows_the_first_are_shown() -> None:
    def half(model: Model) -> None:
        if model.rank < 2:
            model.forward(0, model.get_activation([model.rank]), model.load_weights(0)[0])

    run = trace(half, ranks=6, layers=1, batches=6)
    shown = shown_rows(run)
    assert [row.ranks for row in shown.rows] == [(0, 1)]
    assert shown.idle == [2, 3, 4, 5]
    for fold_ in (None, False):
        svg = draw(run, fold=fold_).svg()
        assert "ranks 2-5 did nothing" in svg
        assert ">rank 4</text>" not in svg
    assert "did nothing" not in draw(RUNS["ddp"]).svg()
    nobody = trace(lambda model: None, ranks=3)
    assert [row.ranks for row in shown_rows(nobody).rows] == [(0, 1, 2)]
    first = shown_rows(RUNS["relay"], most=2)
    assert [row.ranks for row in first.rows] == [(0,), (1,)]
    assert first.rest == 1


def test_a_mesh_names_its_rows_and_groups_them_along_the_first_axis() -> None:
    mesh = Mesh({"data": 2, "stage": 3}, ranks=[5, 4, 3, 2, 1, 0])
    run = Trace(1, 1, [Program(rank) for rank in range(6)], mesh=mesh)
    rows = shown_rows(run, folded=False).rows
    found = names(run, rows)
    assert [row.rank for row in rows] == [5, 4, 3, 2, 1, 0]
    assert [(name.group, name.place, name.ranks) for name in found[2:4]] == [
        ("data 0", "stage 2", "rank 3"),
        ("data 1", "stage 0", "rank 2"),
    ]
    assert groups(found) == [("data 0", 0, 3), ("data 1", 3, 6)]
    assert [name.place for name in names(run, [Fold((0, 3)), Fold((1, 2))])] == ["stage 2", "data 1 · stage 0, 1"]
    (alone,) = names(run, [Fold((0, 1, 2, 3, 4, 5))])
    assert alone.lines(40) == ["ranks 0-5"]
    assert found[2].lines(40) == ["stage 2", "rank 3"]
    assert found[2].lines(20) == ["stage 2 · rank 3"]


@given(st.integers(2, 6), st.integers(1, 3), st.randoms(use_true_random=False))
def test_rows_cover_all_ranks_once_however_the_mesh_lies(data: int, stages: int, random: Any) -> None:
    order = list(range(data * stages))
    random.shuffle(order)
    mesh = Mesh({"data": data, "stage": stages}, ranks=order)
    run = trace(lambda model: ddp(model), ranks=data * stages, mesh=mesh, layers=1, batches=data * stages)
    for folded in (True, False):
        shown = shown_rows(run, folded)
        assert sorted(rank for row in shown.rows for rank in row.ranks) == [*range(run.ranks)]
        assert len(names(run, shown.rows)) == len(shown.rows)
    spans = groups(names(run, shown_rows(run, False).rows))
    assert all(one[2] == two[1] for one, two in pairwise(spans))
