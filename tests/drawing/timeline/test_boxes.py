"""Timelines as data: what is a box, where it lies, what it is called, and which label goes first."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawing import draw
from drawing.canvas.scene import TEXT, text_width
from drawing.timeline.boxes import LANES, Box, boxes
from drawing.timeline.memory import levels
from drawing.timeline.paint import place_label
from lib import Model, Trace, simulate
from lib.analysis import figures
from lib.cluster.costs import units
from lib.trace.event import Event
from lib.values.operations import COMMUNICATION, TIMED
from tests.drawing.marks import texts
from tests.drawing.runs import RUNS, ddp, trace
from tests.support.changes import changed


@pytest.mark.parametrize("name", RUNS)
def test_every_timed_event_is_one_box_of_its_own_times_inside_the_axis_and_a_lane_does_one_thing(name: str) -> None:
    run = RUNS[name]
    timeline = boxes(run)
    assert all(0 <= box.start <= box.end <= timeline.end for box in timeline.boxes)
    assert all(0 <= box.lane < timeline.lanes[box.rank] <= LANES + 1 for box in timeline.boxes)
    found = {(b.rank, b.number): (b.start, b.end) for b in timeline.boxes if b.look not in ("wait", "pending")}
    assert found == {
        (program.rank, number): (event.start, event.end)
        for program in run.programs
        for number, event in enumerate(program.events)
        if event.op in TIMED and event.start is not None
    }
    lanes: dict[int, list[Box]] = defaultdict(list)
    for box in sorted(timeline.boxes, key=lambda box: (box.start, box.end)):
        if box.lane == 0:
            lanes[box.rank].append(box)
    assert all(before.end <= after.start for mine in lanes.values() for before, after in pairwise(mine))
    for box in timeline.boxes:
        event = run.programs[box.rank].events[box.number]
        waited = (event.start, event.end) if event.op == "wait" else (event.issued, event.start)
        assert box.look != "wait" or waited == (box.start, box.end)
    received = sum(event.op == "receive" and event.start is not None for _, event in run.events())
    assert len(timeline.messages) == received
    assert all(message.sent <= message.received for message in timeline.messages)
    highest = max(level.sums[-1] for program in run.programs for level in levels(run, program.rank))
    assert highest == figures.peak(run).elements


def test_overlapping_communications_take_several_lanes_and_then_share_the_last() -> None:
    async def flood(model: Model) -> None:
        value = model.get_activation([model.rank])
        works = [model.pass_to(0, value)] if model.rank else [model.receive(other) for other in range(1, 9)]
        model.forward(0, value, model.load_weights(0)[0])
        for work in works:
            await work

    assert boxes(trace(flood, ranks=9, layers=1, batches=9)).lanes == [LANES + 1, *[2] * 8]


def test_memory_changes_when_an_operation_is_issued_and_shows_the_highest_of_equal_times() -> None:
    late = [(units(level.time), level.sums[-1]) for level in levels(RUNS["late"], 0)]
    # Both weights are at rest from the beginning, and nothing is after the end.
    assert late[:2] == [(0, 655_360), (1, 655_360)]
    assert [elements for _, elements in late[2:]] == [0, 0]

    def shrink(model: Model) -> None:
        weight, inp = model.load_weights(0)[0], model.get_activation([0, 1])
        model.loss(model.forward(0, inp, weight))  # at time 2, with input and output; then the output is gone
        model.forward(0, inp, weight)

    curve = [(units(level.time), level.sums[-1]) for level in levels(trace(shrink, ranks=1, layers=1, batches=2), 0)]
    assert curve == [(0, 524_288), (2, 786_432), (4, 786_432)]


def test_operations_of_the_future_are_boxes_too_and_a_rank_without_a_program_is_empty() -> None:
    run = trace(lambda model: None, ranks=1, layers=1, batches=1)
    run = changed(run, 0, events=[Event("recompute", 0, frozenset([0]), (), (), 0, 0, 10**9, None)])
    assert [(box.look, box.end) for box in boxes(run).boxes] == [("other", 10**9)]
    models = simulate(lambda model: model.load_weights(0), ranks=3)
    assert boxes(Trace.of(models[:1])).boxes == []
    assert levels(Trace.of(models[:1]), 2) == []
    assert COMMUNICATION <= TIMED


@given(
    st.lists(st.text("abcdef 0123-,", min_size=1), max_size=3),
    st.sampled_from(["", "L3"]),
    st.floats(0, 90),
    st.floats(0, 40),
)
def test_a_label_stays_inside_its_box(words: list[str], layer: str, width: float, height: float) -> None:
    words = sorted(words, key=lambda text: -text_width(text, TEXT))
    lines = place_label(words, layer, width, height)
    for line in lines:
        long = text_width(line.text, line.size)
        across, along = (line.size / 2, long) if line.turned else (long, line.size / 2)  # letters are half their size
        assert across <= width
        assert abs(line.below) + along / 2 <= height / 2
    assert [line.text for line in lines if line.text in words] == [line.text for line in lines if line.text != layer]
    spare = [text for text in words if text_width(text, TEXT) + 3 <= width]
    if spare and height >= 22:
        assert lines  # the longest of these, or a longer one that just fits
        assert words.index(lines[-1].text) <= words.index(spare[0])


def test_a_layer_is_the_last_label_to_go_but_for_what_no_colour_says_and_where_it_is_always_the_same() -> None:
    lines = [place_label(["0 1 2 3"], "L3", width, 30, kept=True) for width in (60, 17, 10, 7)]
    assert [[line.text for line in some] for some in lines] == [["L3", "0 1 2 3"], ["L3"], ["L3"], []]
    assert [line.turned for some in lines for line in some] == [False, False, False, True]
    assert [line.text for line in place_label(["all-reduce", "AR"], "L3", 17, 22)] == ["AR"]
    assert [place_label(["7"], "L1", 12, 20, kept=kept)[0].text for kept in (False, True)] == ["7", "L1"]


def test_batches_have_labels_but_for_those_of_which_each_rank_has_one() -> None:
    assert {"0", "1"} <= {*texts(draw(RUNS["relay"], fold=True))}
    found = texts(draw(trace(ddp, ranks=4, layers=8, batches=4), fold=True))
    assert {f"L{layer}" for layer in range(8)} <= {*found}
    assert not [text for text in found if text.startswith("own")]
    assert "forward (each rank on its own batch)" in found
