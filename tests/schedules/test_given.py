"""What notebooks give a learner: passes that take turns, and gradients that are put together of overlapping parts."""

import pytest

from lib import Layer, Model, PuzzleError, simulate
from lib.schedules.given import by_chunk, exchange, given, in_turn, summed


@pytest.mark.parametrize("alone", [False, True])
def test_passes_take_turns(alone: bool) -> None:
    said: list[str] = []

    async def stops(name: str, times: int):
        for number in range(times):
            said.append(f"{name}{number}")
            yield

    async def runs_through():
        said.append("c")

    async def rank(model: Model) -> None:
        await in_turn(stops("a", 2) if alone else [stops("a", 3), runs_through(), stops("b", 1)])

    simulate(rank, ranks=1, layers=1)
    assert said == (["a0", "a1"] if alone else ["a0", "c", "b0", "a1", "a2"])


def test_gradients_of_edges_that_overlap_are_added_row_by_row() -> None:
    """Three ranks with 3, 2 and 3 rows lend two rows each way: both rows of rank 1 go to both sides."""
    layer = Layer("convolution", inputs=2, outputs=2, rows=8, kernel=5, padding=2)
    ends = {0: (0, 3, [(1, 3)], [(3, 5)]), 1: (3, 5, [(3, 5)] * 2, [(1, 3), (5, 7)]), 2: (5, 8, [(5, 7)], [(3, 5)])}

    async def rank(model: Model) -> None:
        low, high, edges, halo = ends[model.rank]
        weight, group = model.load_weights(0)[0], range(model.RANKS)
        x = model.get_activation([0]).cut("rows", low, high)
        for rows in await exchange(model, x, edges, 0, group):
            x = x.combine(rows)
        gradient = model.backward(0, x, model.loss(model.forward(0, x, weight)), weight)[1]
        arrived = await exchange(model, gradient, halo, 0, group)
        whole = summed(low, high, gradient, edges, arrived)
        assert not whole.place.open
        assert [*whole.place.named["rows"].pieces] == [*range(low, high)]

    simulate(rank, ranks=3, layers=[layer], batches=1)
    assert by_chunk(8, 3) == [3, 3, 2]
    assert by_chunk(4, 6) == [1, 1, 1, 1, 0, 0]


def test_an_error_in_what_is_marked_given_shows_the_line_that_calls_it() -> None:
    @given
    def helpers(model: Model):
        on_the_way: dict[int, object] = {}

        async def arrived(part: int) -> object:
            return on_the_way.pop(part)

        return arrived

    async def rank(model: Model) -> None:
        arrived = helpers(model)
        await arrived(3)

    with pytest.raises(PuzzleError) as caught:
        simulate(rank, ranks=1, layers=1)
    assert [place.text for _, place in caught.value.where if place is not None] == ["await arrived(3)"]
    assert str(caught.value.fix).startswith(
        "arrived finds nothing under this key:\non_the_way has no 3 on this rank now;"
    )
