"""Round the ring: everyone ends with what the law says and sends what the table says; the page."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from drawing import Picture, draw_ring
from drawing.canvas.picture import Page
from drawing.canvas.scene import SMALL, TEXT
from drawing.diagrams.exchange import Exchange, exchanges
from drawing.diagrams.ring import Rounds, rounds
from lib import Model, Trace
from lib.values.laws import gather, reduce
from tests.drawing.diagrams.exchanges import EXCHANGES, allgather, allreduce, broadcast, scatterreduce, small
from tests.drawing.marks import written
from tests.drawing.shown import data_of

RINGS = {"allreduce": allreduce, "allgather": allgather, "scatterreduce": scatterreduce, "broadcast": broadcast}


def steps_of(run: Trace) -> tuple[Exchange, Rounds]:
    one = exchanges(run)[0]
    found = rounds(one)
    assert found is not None
    return one, found


async def unequal(model: Model) -> None:
    """The last rank has half of the shards."""
    parts = [model.rank] if model.rank < model.RANKS - 1 else range(model.RANKS - 1, 2 * model.RANKS - 2)
    weight = None
    for part in parts:
        other, _ = model.load_weights(0, part, 2 * model.RANKS - 2)
        weight = other if weight is None else weight.combine(other)
    assert weight is not None
    await model.allgather(weight, 0)


@given(st.sampled_from(sorted(RINGS)), st.integers(2, 9))
def test_pieces_go_from_who_has_them_to_the_next_rank_until_everyone_has_what_the_law_says(
    name: str, ranks: int
) -> None:
    one, found = steps_of(small(RINGS[name], ranks=ranks))
    for before, hops in zip(found.states, found.steps, strict=False):
        assert len({hop.source for hop in hops}) == len(hops)
        for hop in hops:
            assert hop.target == (hop.source + 1) % ranks
            assert before[hop.source][hop.piece] == hop.members
            if hop.adds:  # nothing is added twice
                assert hop.members.isdisjoint(before[hop.target][hop.piece])
    everybody = frozenset(range(ranks))
    assert one.row is not None
    for member, (seat, has) in enumerate(zip(one.seats, found.states[-1], strict=True)):
        share = sum(Fraction(found.sizes[piece]) for piece in has)
        assert share == sum(Fraction(value.elements()) for value in seat.got)
        if one.row.law is reduce:
            assert all(members == everybody for members in has.values())
            assert set(has) in ({member}, set(range(ranks)))
        elif one.row.law is gather:
            assert has == {piece: frozenset([piece]) for piece in range(ranks)}
        else:
            assert has == {0: frozenset([one.root])}


@given(st.sampled_from([*sorted(RINGS), "unequal"]), st.integers(2, 9))
def test_what_is_sent_is_what_the_table_says(name: str, ranks: int) -> None:
    """Exactly in a ring, and on the average along a chain, which is what the table speaks of."""
    one, found = steps_of(small({**RINGS, "unequal": unequal}[name], ranks=ranks))
    sent = [found.sent(member) for member in range(ranks)]
    assert sum(map(Fraction, sent)) == sum(Fraction(seat.sent) for seat in one.seats)
    if len(found.sizes) > 1:
        assert sent == [seat.sent for seat in one.seats]
        assert one.row is not None
        assert len(found.steps) == one.row.messages(ranks)


def test_a_step_is_a_picture() -> None:
    run = EXCHANGES["allreduce"]
    for step in range(7):
        picture = draw_ring(run, step=step)
        assert isinstance(picture, Picture)
        assert picture.scene.width <= 840
        assert all(text.size in (SMALL, TEXT) for text in written(picture))
        assert f"round {step} of 6" in picture.words.lower() or not step
    assert "Rank 2 has piece 2 (the whole sum)." in draw_ring(run, step=3).words
    assert "that was a reduce-scatter. An all-gather follows." in draw_ring(run, step=3).words
    assert "Sent so far by each rank: 393,216 of 393,216 elements." in draw_ring(run, step=6).words


def test_pieces_have_the_numbers_of_the_shards_whoever_brings_them() -> None:
    async def backwards(model: Model) -> None:
        weight, _ = model.load_weights(0, model.RANKS - 1 - model.rank, model.RANKS)
        await model.allgather(weight, 0)

    picture = draw_ring(small(backwards, ranks=3), step=0)
    assert "Rank 0 has piece 2. Rank 1 has piece 1. Rank 2 has piece 0." in picture.words


def page(name: str) -> Page:
    found = draw_ring(EXCHANGES[name])
    assert isinstance(found, Page)
    return found


def test_the_page_has_every_step_and_the_same_bytes_each_time() -> None:
    for name in ("allreduce", "allgather", "scatterreduce", "broadcast", "many"):
        _, found = steps_of(EXCHANGES[name])
        assert page(name).html() == page(name).html()
        assert len(page(name).html()) < 60_000
        for has, state in zip(data_of(page(name).html())["steps"], found.states, strict=True):
            assert [sum(bin(bits).count("1") for bits in rows) for rows in has["has"]] == [
                sum(map(len, pieces.values())) for pieces in state
            ]
    assert "http" not in page("allreduce").html().replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_the_page_says_in_words_what_it_shows() -> None:
    bundle = page("allreduce")._repr_mimebundle_()
    assert "sandbox='allow-scripts'" in bundle["text/html"]
    assert bundle["text/plain"] == page("allreduce").words
    assert "Rank 3 has piece 0 (the whole sum)" in page("allreduce").words
    assert all(step["words"] and step["holdings"] for step in data_of(page("broadcast").html())["steps"])
