"""Damage: small changes to a valid Trace, as data or as text, of the kind that accidents and cheats make."""

import copy
from typing import Any

from hypothesis import strategies as st

from lib import Links, Mesh, Trace, simulate
from lib.schedules.data_parallel import ddp as ddp_lean
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from tests.support.schedules import Case, all_to_all, ddp_overlap, grad_accum, star
from tests.support.version_1 import encode

SMALL = [
    Case("grad_accum", grad_accum, 1, 1, 2),
    Case("ddp_lean", ddp_lean, 2, 1, 2),
    Case("ddp_overlap", ddp_overlap, 2, 2, 2),
    Case("one_f_one_b", program_of(one_f_one_b(2, 2)), 2, 2, 2),
    Case("star", star, 2, 1, 2),
    Case("all_to_all", all_to_all, 2, 1, 2),
    Case("hsdp", fully_sharded("shard", "replica"), 4, 1, 4, Mesh({"replica": 2, "shard": 2}), Links(host_size=2)),
]
TRACES = {case.name: Trace.of(case.run(simulate)) for case in SMALL}
DATA = {name: encode(trace) for name, trace in TRACES.items()}

junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 5),
    st.sampled_from([10**6, 10**7, 2**60, 2**70, -(2**70), 10**30]),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(
        ["", "0", "0-3", "0-999999", "3-0", "0,0", "-1", "forward", "allreduce", "weight", "wait", "foreign"]
    ),
    st.lists(st.integers(-1, 3), max_size=3),
    st.just({}),
)


def paths(data: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a tree of lists and dictionaries but the root."""
    if isinstance(data, dict):
        items: list[Any] = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    else:
        return []
    return [path for key, item in items for path in [(*here, key), *paths(item, (*here, key))]]


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


PATHS = {name: paths(data) for name, data in DATA.items()}


def _rewired(draw: st.DrawFn, data: Any) -> Any:
    """One more wait, an await taken away or put in, or results that an event does not have."""
    try:
        program = data["programs"][draw(st.integers(0, len(data["programs"]) - 1))]
        events = program["events"]
        event = events[draw(st.integers(0, len(events) - 1))]
        match draw(st.integers(0, 3)):
            case 0:
                target = draw(st.integers(0, len(events) - 1))
                wait = ["wait", None, "", [], [], 0, 0, 0, -1, [target], -1, None, False]
                events.insert(draw(st.integers(target + 1, len(events))), wait)
            case 1:
                event[12] = not event[12]
            case 2:
                event[4] = []
            case _:
                event[4] = [*event[4], len(program["values"])]
                program["values"].append(copy.deepcopy(program["values"][0]))
    except (LookupError, TypeError, ValueError, AttributeError):
        pass  # a change before this one took it away
    return data


@st.composite
def damaged(draw: st.DrawFn, of: Any = None) -> Any:
    """A Trace as JSON data, of rows where no other data is given, with a change or two anywhere."""
    name = draw(st.sampled_from(sorted(DATA)))
    whole, places = (DATA[name], PATHS[name]) if of is None else (of, paths(of))
    data = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(places))
        try:
            parent, key = at(data, path[:-1]), path[-1]
            was = parent[key]
        except (LookupError, TypeError):
            continue  # a change before this one took it away
        if not isinstance(parent, list | dict):
            continue
        match draw(st.integers(0, 6)):
            case 6:
                data = _rewired(draw, data)
            case 0:
                del parent[key]
            case 1:
                parent[key] = draw(junk)
            case 2 if isinstance(parent, list):
                parent.insert(key, copy.deepcopy(was))
            case 3 if isinstance(parent, list):
                other = draw(st.integers(0, len(parent) - 1))
                parent[key], parent[other] = parent[other], was
            case 4 if type(was) is int:
                parent[key] = was + draw(st.integers(-2, 2))
            case _:
                parent[key] = copy.deepcopy(at(whole, draw(st.sampled_from(places))))
    return data
