"""draw_halo: who has which rows, who lends which to whom, and whose gradients come home, however they travel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest

from drawing import Picture, draw_halo
from drawing.canvas.palette import ALARM, ALARM_PALE, ORIGINS, TRACK
from drawing.canvas.scene import Poly, Rect
from lib import Layer, Model, Trace
from tests.drawing.marks import fits, polys, rects, texts
from tests.drawing.runs import trace
from tests.support.puzzles import in_parts
from tests.values.halos import Part, step

FOUR = [4, 8, 12, 40]


def run(function: Any, sizes: Sequence[int]) -> Trace:
    """A run of two convolutions on a grid with so many rows on each rank."""
    layers = [Layer("convolution", 16, 16, sum(sizes), kernel=3, padding=1)] * 2
    return trace(function, layers=layers, ranks=len(sizes), batches=2)


UNEVEN, SIXTEEN = run(step(FOUR), FOUR), run(step([4] * 16), [4] * 16)
DROPPED = run(step(FOUR, mistake="halo's gradient dropped"), FOUR)


async def to_neighbours(part: Part, edges: list[Any]) -> list[Any]:
    """What neighbours have, by messages."""
    model = part.model
    near = [rank for rank in (model.rank - 1, model.rank + 1) if 0 <= rank < model.RANKS]
    works = [model.pass_to(rank, edge) for rank, edge in zip(near, edges, strict=True)]
    got = [await model.receive(rank) for rank in near]
    for work in works:
        await work
    return got


async def around(part: Part, x: Any, way: str) -> Any:
    """The rows of a rank, and those beside them: all of them are gathered, or all edges, or what is beside is passed
    on, or passed through a rank that has no use for it."""
    model, edges = part.model, [part.row(x, row) for row in part.edges]
    if way == "all rows gathered":
        rows = [part.low, part.high - 1, *part.halo]
        return (await model.allgather(x, 1)).cut("rows", min(rows), max(rows) + 1)
    got: list[Any] = []
    if way == "edges gathered":
        both = await model.allgather(edges[0] if len(edges) == 1 else edges[0].combine(edges[1]), 1)
        got = [part.row(both, row) for row in part.halo]
    elif way == "passed on":  # all parts go round, and each rank sends on what it got
        piece = x
        pieces = [piece := await model.shift(piece, 1) for _ in range(model.RANKS - 1)]
        for row in part.halo:
            got += [part.row(one, row) for one in pieces if row in one.place.named["rows"].pieces]
    else:
        got = await to_neighbours(part, edges)
    for edge in got:
        x = x.combine(edge)
    return x


def program(sizes: Sequence[int], way: str = "", forget: int | None = None) -> Any:
    """Forward and backward, batch after batch. Of batch `forget` no gradient goes home."""

    async def function(model: Model) -> None:
        part, weight = Part(model, sizes), model.load_weights(1)[0]
        first = model.load_weights(0)[0]
        for batch in range(model.BATCHES):
            x = model.forward(0, part.inner(model.get_activation([batch]), 0), first)
            x = await around(part, x, way)
            g = model.backward(1, x, model.loss(model.forward(1, x, weight)), weight)[1]
            if batch != forget:
                back = await to_neighbours(part, [part.row(g, row) for row in part.halo])
                for row, more in zip(part.edges, back, strict=True):
                    _ = part.row(g, row) + more

    return function


def two(rows: int) -> list[Layer]:
    """Layer 0 has a kernel of one row, for which nobody borrows anything."""
    return [Layer("convolution", 8, 8, rows, kernel=1), Layer("convolution", 8, 8, rows, kernel=3, padding=1)]


def by_batches(sizes: Sequence[int], way: str, forget: int | None = None, batches: int = 2) -> Trace:
    return trace(program(sizes, way, forget), layers=two(sum(sizes)), ranks=len(sizes), batches=batches)


def arrows(picture: Picture, back: bool) -> list[Poly]:
    return [mark for mark in polys(picture) if mark.title and mark.title.startswith("+") == back]


def lent(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Owner, borrower and row, by the sizes alone."""
    ends = [0, *accumulate(sizes)]
    some = [rank for rank, size in enumerate(sizes) if size]
    down = [(one, other, ends[one + 1] - 1) for one, other in pairwise(some)]
    return sorted([*down, *[(other, one, ends[other]) for one, other in pairwise(some)]])


def bands(picture: Picture, sizes: Sequence[int], left: bool) -> dict[int, Rect]:
    """The part of each rank, in forward on the left and in backward on the right."""
    first = min(mark.x for mark in rects(picture) if mark.title)
    found = {
        int(mark.title.split()[1][:-1]): mark
        for mark in rects(picture)
        if mark.title.startswith("rank ") and (mark.x == first) == left
    }
    assert sorted(found) == [rank for rank, size in enumerate(sizes) if size]
    return found


def shown(picture: Picture, sizes: Sequence[int], back: bool) -> list[tuple[int, int, int]]:
    """Owner, borrower and row of each arrow, by where it begins and ends on the paper."""
    found: list[tuple[int, int, int]] = []
    parts = bands(picture, sizes, left=not back)

    def nearest(y: float) -> int:
        return min(parts, key=lambda rank: max(parts[rank].y - y, y - parts[rank].y - parts[rank].height))

    for mark in arrows(picture, back):
        ends = [nearest(mark.points[at][1]) for at in ((0, -1) if not back else (-1, 0))]
        found.append((*ends, int(mark.title.split()[-1])))  # type: ignore[arg-type]
    return sorted(found)


RUNS = {
    **{
        f"{way}, {sizes}": (run(step(sizes, way), sizes), sizes)
        for way in ("halo", "alltoall")
        for sizes in (FOUR, [5, 4, 11, 4])
    },
    "overlapped": (in_parts("halo_conv", "", {"sizes": FOUR}, 2), FOUR),
    "16 ranks": (SIXTEEN, [4] * 16),
    "of many batches one picture": (by_batches([4] * 16, "messages", batches=8), [4] * 16),
    "none on rank 1": (run(step([4, 0, 5]), [4, 0, 5]), [4, 0, 5]),
    "none on the last": (run(step([3, 3, 3, 0]), [3, 3, 3, 0]), [3, 3, 3, 0]),
    **{way: (by_batches(FOUR, way), FOUR) for way in ("all rows gathered", "edges gathered", "passed on", "messages")},
}


@pytest.mark.parametrize("name", RUNS)
def test_arrows_go_from_owner_to_borrower_and_back(name: str) -> None:
    found, sizes = RUNS[name]
    picture = draw_halo(found, 1)
    assert shown(picture, sizes, back=False) == shown(picture, sizes, back=True) == lent(sizes)
    heights = bands(picture, sizes, left=True)
    scale = heights[0].height / sizes[0]
    assert [mark.height for mark in heights.values()] == pytest.approx([size * scale for size in sizes if size])
    assert fits(picture)
    assert picture.scene.width == 840
    assert "In backward each gradient goes home" in picture.words
    assert (f"Rank {sizes.index(0)} has no rows." in texts(picture)) if 0 in sizes else ("no rows" not in picture.words)


def test_a_gradient_that_stays_has_no_arrow_and_is_named() -> None:
    picture = draw_halo(DROPPED, 1)
    assert shown(picture, FOUR, back=False) == lent(FOUR)
    assert arrows(picture, back=True) == []
    assert len(rects(picture, fill=ALARM_PALE, stroke=ALARM)) == 6
    stay = ", ".join(f"row {row} on rank {borrower}" for borrower, row in sorted((b, row) for _, b, row in lent(FOUR)))
    assert f"and the owners of the rows lack them: {stay}." in " ".join(texts(picture, fill=ALARM))


def test_what_comes_home_of_one_batch_only_says_of_which() -> None:
    picture = draw_halo(by_batches(FOUR, "messages", forget=1), 1)
    assert {mark.title for mark in arrows(picture, back=False)} == {f"row {row}" for *_, row in lent(FOUR)}
    assert {mark.title for mark in arrows(picture, back=True)} == {f"+ row {row}, batch 0" for *_, row in lent(FOUR)}
    assert "lack them: row 4, batch 1 on rank 0, row 3, batch 1 on rank 1" in " ".join(texts(picture, fill=ALARM))


def test_one_that_came_and_was_not_added_is_not_home() -> None:
    async def not_added(model: Model) -> None:
        part, weight = Part(model, [4, 5]), model.load_weights(1)[0]
        x = model.forward(0, part.inner(model.get_activation([0]), 0), model.load_weights(0)[0])
        x = await around(part, x, "messages")
        g = model.backward(1, x, model.loss(model.forward(1, x, weight)), weight)[1]
        (more,) = await to_neighbours(part, [part.row(g, row) for row in part.halo])
        if model.rank:
            _ = part.row(g, 4) + more

    picture = draw_halo(trace(not_added, layers=two(9), ranks=2, batches=1), 1)
    assert shown(picture, [4, 5], back=True) == [(1, 0, 4)]
    assert texts(picture, fill=ALARM) == [
        "These gradients stay, and the owners of the rows lack them: row 3 on rank 1."
    ]


def test_the_gradient_of_the_data_may_stay() -> None:
    picture = draw_halo(run(step(FOUR, last_back=False), FOUR))
    assert arrows(picture, back=True) == []
    assert len(rects(picture, fill=TRACK)) == 6
    assert "nobody needs the gradients that stay" in picture.words


def test_a_sum_has_the_colours_of_all_who_have_a_part_in_it() -> None:
    picture = draw_halo(UNEVEN, 1)
    home = bands(picture, FOUR, left=False)[0]
    stripes = [mark for mark in polys(picture) if min(x for x, _ in mark.points) >= home.x and not mark.title]
    inside = {mark.fill for mark in stripes if all(home.y <= y <= home.y + home.height + 0.1 for _, y in mark.points)}
    assert inside >= {ORIGINS[0], ORIGINS[1]}
    assert ORIGINS[2] not in inside


def test_ranks_that_have_the_same_rows_of_other_batches_are_one_part() -> None:
    async def two_grids(model: Model) -> None:
        replica, at = divmod(model.rank, 3)
        weight, low = model.load_weights(1)[0], 4 * at
        x = model.get_activation([replica]).cut("rows", low, low + 4)
        x = model.forward(0, x, model.load_weights(0)[0])
        edges = [x.cut("rows", row, row + 1) for row, there in ((low, at > 0), (low + 3, at < 2)) if there]
        for edge in await model.halo(edges, 1, [3 * replica + other for other in range(3)]):
            x = x.combine(edge)
        model.forward(1, x, weight)

    picture = draw_halo(trace(two_grids, layers=two(12), ranks=6, batches=2), 1)
    assert {"ranks 0, 3: rows 0-3", "ranks 1, 4: rows 4-7", "ranks 2, 5: rows 8-11"} <= set(texts(picture))
    assert [mark.title for mark in arrows(picture, back=False)] == ["row 4", "row 3", "row 8", "row 7"]
    assert "rank 3 lends rank 4 row 3" in picture.words
    assert "rank 0 lends rank 4" not in picture.words
    assert "In forward 4 rows are lent. Backward of this layer has not run on ranks 0-5." in texts(picture)


def test_rows_that_came_from_another_stage_are_not_borrowed() -> None:
    """Ranks 0 and 1 work at layer 0, and send what comes of it to ranks 2 and 3, which are at layer 1."""

    async def stages(model: Model) -> None:
        stage, at = divmod(model.rank, 2)
        if not stage:
            x = model.get_activation([0]).cut("rows", 4 * at, 4 * at + 4)
            await model.pass_to(model.rank + 2, model.forward(0, x, model.load_weights(0)[0]))
            return
        x = await model.receive(model.rank - 2)
        for edge in await model.halo([x.cut("rows", 3 + at, 4 + at)], 1, [2, 3]):
            x = x.combine(edge)
        model.forward(1, x, model.load_weights(1)[0])

    picture = draw_halo(trace(stages, layers=two(8), ranks=4, batches=1), 1)
    assert "rank 2: rows 0-3; rank 3: rows 4-7; rank 3 lends rank 2 row 4; rank 2 lends rank 3 row 3." in picture.words


def test_without_a_halo_nothing_is_lent() -> None:
    picture = draw_halo(run(step(FOUR, mistake="no halo"), FOUR))
    assert "In forward nobody borrows anything." in texts(picture)
    assert arrows(picture, back=False) == []


def test_a_halo_that_is_asked_for_before_there_are_any_rows_is_borrowed() -> None:
    async def early(model: Model) -> None:
        part, other = Part(model, [4, 5]), 1 - model.rank
        coming = model.receive(other)
        x = model.forward(0, part.inner(model.get_activation([0]), 0), model.load_weights(0)[0])
        sent = model.pass_to(other, part.row(x, part.edges[0]))
        model.forward(1, x.combine(await coming), model.load_weights(1)[0])
        await sent

    picture = draw_halo(trace(early, layers=two(9), ranks=2, batches=1), 1)
    assert shown(picture, [4, 5], back=False) == lent([4, 5])
