"""A physical batch: its slots, what is padding, and which device has which."""

from hypothesis import given
from hypothesis import strategies as st

from lib.cluster.batch import PhysicalBatch
from tests.support.said import Said


def test_examples_lie_in_the_feeds_that_count_in_their_order() -> None:
    batch = PhysicalBatch.filled(4, 4, 2, [3, 1], 8)
    assert [*batch.feeds] == [[None] * 4, [2, 3, None, None], [None] * 4, [0, 1, None, None]]
    assert (batch.size, batch.padding) == (16, 12)
    assert [batch.device(1, slot) for slot in range(4)] == [2, 2, 3, 3]
    assert repr(batch) == "<16 slots from 4 feeds on 8 devices: 4 with an example, 12 padding>"


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.data())
def test_every_example_is_there_once(feeds: int, devices: int, each: int, data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, feeds - 1), unique=True, min_size=1))
    slots = each * devices
    batch = PhysicalBatch.filled(feeds, slots, each, order, devices)
    examples = [int(slot) for row in batch.feeds for slot in row if slot is not None]
    assert sorted(examples) == list(range(each * len(order)))
    assert batch.padding == batch.size - len(examples)
    owners = [batch.device(feed, slot) for feed in range(feeds) for slot in range(slots)]
    assert owners == sorted(owner for owner in owners if owner is not None)
    assert {owners.count(device) for device in range(devices)} == {batch.size // devices}


test_what_cannot_be_laid_out_is_said = Said(__file__, "batches").test(lambda: globals())
