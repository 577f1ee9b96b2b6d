"""Where values are, against the figures of memory."""

import pytest

from lib.analysis import figures
from lib.analysis.memory import PLACES, whereabouts
from lib.trace.event import STORES, Program
from tests.drawing.pages.runs import TRACES

PROGRAMS = [(name, program) for name, trace in TRACES.items() for program in trace.programs[:4]]


@pytest.mark.parametrize(("name", "program"), PROGRAMS, ids=[f"{name}-{program.rank}" for name, program in PROGRAMS])
def test_the_values_alive_at_every_event_are_those_of_the_figures(name: str, program: Program) -> None:
    trace = TRACES[name]
    values = trace.lifetimes()[program.rank].values
    found = whereabouts(trace, program.rank)
    for index in range(len(program.events) + 1):
        here = [life for life in found if life.start <= index < life.stop]
        wanted = figures.alive_at(trace, program.rank, index)
        assert [values[life.value] for life in here] == [alive.value for alive in wanted]
        assert [life.hidden for life in here] == [alive.hidden for alive in wanted]
        assert [program.events[life.made] if life.made >= 0 else None for life in here] == [a.born for a in wanted]


def test_a_value_is_in_one_place_at_a_time() -> None:
    for name, program in PROGRAMS:
        last: dict[int, int] = {}
        for life in whereabouts(TRACES[name], program.rank):
            assert 0 <= life.start < life.stop <= len(program.events) + 1
            assert life.start >= last.get(life.value, 0)
            last[life.value] = life.stop


def test_where_a_value_is() -> None:
    program = TRACES["prefetch"].programs[0]
    places = {(str(program.values[life.value]), PLACES[life.place]) for life in whereabouts(TRACES["prefetch"], 0)}
    gathered = "weight of layer 1, shards 0-2 of 3"
    assert (gathered, "a communication under way") in places  # its buffer, before it is awaited
    assert (gathered, "weights") in places
    assert ("weight of layer 1, shard 0 of 3", "a local variable") in places
    program = TRACES["overlapped"].programs[0]
    places = {(str(program.values[life.value]), PLACES[life.place]) for life in whereabouts(TRACES["overlapped"], 0)}
    assert ("weight of layer 0, step 1", "handed in as final") in places
    assert PLACES[1:6] == STORES
