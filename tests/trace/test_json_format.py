"""A Trace as a file: what was saved comes back, and whatever else lies there is a TraceError and nothing else."""

import copy
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import UNIT, Links, Mesh, Model, Trace, TraceError, check, retime, simulate
from lib.analysis import figures
from lib.trace import json_format as serial
from lib.trace import validation as reader
from lib.values import placement
from lib.values.kinds.kind import PRICED as LINEAR
from lib.values.kinds.kind import Layer
from tests.support.damage import DATA, TRACES, damaged, ddp_lean
from tests.support.inside import PROGRAMS
from tests.support.random_programs import RUNS, Schedule, traced
from tests.support.said import Said
from tests.support.schedules import Case


def load(data: Any, folder: Path) -> Trace:
    path = folder / "trace.json"
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return Trace.load(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@given(RUNS)
def test_what_is_saved_comes_back(folder: Path, one: Case | Schedule) -> None:
    trace = traced(one)
    trace.save(folder / "trace.json")
    again = Trace.load(folder / "trace.json")
    assert serial.encode(again) == serial.encode(trace)
    assert (again.mesh, again.costs, again.layers, again.batches) == (one.mesh, one.costs, trace.layers, trace.batches)
    assert [(p.values, p.moves) for p in again.programs] == [(p.values, p.moves) for p in trace.programs]
    assert figures.end(again) == figures.end(trace)
    assert figures.peak(again).elements == figures.peak(trace).elements
    assert check(again) == check(trace)
    again.save(folder / "again.json")
    assert (folder / "again.json").read_bytes() == (folder / "trace.json").read_bytes()


@given(RUNS)
def test_columns_of_ranks_that_say_the_same_are_those_made_for_each(one: Case | Schedule) -> None:
    def anew(_: object, name: str, said: Any, make: Any = None) -> Any:
        return said if make is None else make()

    trace = traced(one)
    data = serial.encode(trace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serial._Writer, "once", anew)
        assert serial.encode(trace) == data


@given(RUNS)
def test_events_of_ranks_with_the_same_columns_are_those_read_for_each(one: Case | Schedule) -> None:
    data = serial.encode(traced(one))
    alone = copy.deepcopy(data)
    for program in alone["programs"]:
        for name, column in program.items():
            program[name] = [*(alone["programs"][column][name] if isinstance(column, int) else column)]
    shared, apart = reader.decode(data), reader.decode(alone)
    assert [*shared.events()] == [*apart.events()]


def test_the_file_is_json_that_anybody_can_read(tmp_path: Path) -> None:
    async def say(model: Model) -> None:
        await model.allreduce(model.fake_grad(0), 0)  # grüße

    trace = Trace.of(simulate(say, ranks=2, mesh=Mesh({"ä": 2}, ranks=[1, 0]), costs=Links(host_size=1)))
    trace.save(tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_text("utf-8")
    data = json.loads(text)
    assert text.endswith("}\n")
    assert data == serial.encode(trace)
    assert data["format"] == "llm-training-puzzles trace"
    assert data["version"] == 2
    assert data["mesh"] == {"axes": [["ä", 2]], "ranks": [1, 0], "host_size": None}
    assert data["costs"]["model"] == "links"
    line = say.__code__.co_firstlineno + 1
    code = "await model.allreduce(model.fake_grad(0), 0)  # grüße"
    assert data["places"][-1:] == [["test_json_format.py", line, "say", code]]
    place = Trace.load(tmp_path / "trace.json").place(trace.programs[0].events[-1])
    assert place == trace.place(trace.programs[0].events[-1])
    assert str(place) == f"test_json_format.py, line {line}, in say: {code}"
    assert str(tmp_path) not in text
    assert os.getcwd() not in text


@pytest.mark.parametrize("name", ["hsdp", "ddp_overlap"])
def test_files_of_both_versions_are_read_for_ever(name: str, folder: Path) -> None:
    """A row for each event, and columns: the same run, which is written as columns now."""
    files = Path(__file__).parent / "files"
    old, new = (Trace.load(files / f"{name}_{version}.json") for version in (1, 2))
    assert serial.encode(old) == serial.encode(new) == json.loads((files / f"{name}_2.json").read_text("utf-8"))
    assert check(old).correct
    old.save(folder / "again.json")
    assert (folder / "again.json").read_bytes() == (files / f"{name}_2.json").read_bytes()


def column(name: str, *path: Any, to: Any) -> Any:
    data = json.loads(json.dumps(serial.encode(TRACES[name])))
    here = data
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = to
    return data


@given(st.data())
def test_damaged_columns_are_a_trace_or_a_trace_error(folder: Path, draw: st.DataObject) -> None:
    whole = serial.encode(TRACES[draw.draw(st.sampled_from(sorted(TRACES)))])
    data = draw.draw(damaged(of=json.loads(json.dumps(whole))))
    try:
        trace = load(data, folder)
    except TraceError:
        return
    use(trace)


def test_a_short_file_does_not_share_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that do the same have their columns from one; but a file cannot say more by that than so much."""
    wide = simulate(ddp_lean, ranks=8, layers=4, batches=8)[0].trace
    whole = serial.encode(wide)
    assert whole["programs"][5]["inputs"] == 0
    monkeypatch.setattr(reader, "MAX_SHARED", 100)
    with pytest.raises(TraceError, match="more than 100 numbers are columns of other ranks"):
        load(whole, folder)
    monkeypatch.setattr(serial, "MAX_SHARED", 100)
    assert serial.encode(serial.decode(serial.encode(wide))) == serial.encode(wide) != whole


def test_a_disk_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    TRACES["star"].save(path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        TRACES["ddp_lean"].save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_made_and_a_file_is_in_the_way(tmp_path: Path) -> None:
    TRACES["star"].save(tmp_path / "new" / "trace.json")
    assert Trace.load(tmp_path / "new" / "trace.json").text() == TRACES["star"].text()
    with pytest.raises(OSError, match="no folder"):
        TRACES["star"].save(tmp_path / "new" / "trace.json" / "trace.json")


def use(trace: Trace) -> None:
    """Everything that reads a Trace: none may fail but with a TraceError, and check not at all."""
    verdict = check(trace)
    assert verdict.correct == (not verdict.faults)
    verdict.text()
    check(trace, "ddp")
    assert figures.end(trace) >= 0
    figures.printed(trace)
    figures.peak(trace)
    figures.bubbles(trace)
    figures.traffic(trace)
    figures.hidden(trace)
    trace.text()
    for costs in (UNIT, Links(host_size=1, latency=0.1)):
        try:
            retime(trace, costs)
        except TraceError:
            continue
    assert serial.encode(serial.decode(serial.encode(trace))) == serial.encode(trace)


@given(damaged())
def test_damaged_rows_are_a_trace_or_a_trace_error(folder: Path, data: Any) -> None:
    try:
        trace = load(data, folder)
    except TraceError:
        return
    use(trace)


@given(st.sampled_from(sorted(DATA)), st.data())
def test_a_truncated_file_is_a_trace_error(folder: Path, name: str, data: st.DataObject) -> None:
    whole = json.dumps(DATA[name]).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(TraceError, match=r"trace\.json"):
        load(whole[:cut], folder)


@given(st.sampled_from(sorted(DATA)), st.data())
def test_damaged_bytes_are_a_trace_or_a_trace_error(folder: Path, name: str, data: st.DataObject) -> None:
    whole = bytearray(json.dumps(DATA[name]).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        use(load(bytes(whole), folder))
    except TraceError:
        return


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_other_json_is_a_trace_error(folder: Path, data: Any) -> None:
    with pytest.raises(TraceError):
        load(data, folder)


def changed(name: str, *path: Any, to: Any) -> Any:
    data = copy.deepcopy(DATA[name])
    here = data
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = to
    return data


LATER = DATA["ddp_overlap"]["programs"][0]["events"]
WAIT = [event[0] for event in LATER].index("wait")
AT_ONCE = DATA["ddp_lean"]["programs"][0]["events"]
BLOCKING = [event[12] for event in AT_ONCE].index(True)


def waited(name: str, place: int, target: int) -> Any:
    data = copy.deepcopy(DATA[name])
    wait = ["wait", None, "", [], [], 0, 0, 0, -1, [target], -1, None, False]
    data["programs"][0]["events"].insert(place, wait)
    return data


SAID = Said(__file__, "damage")


@pytest.mark.parametrize("call", SAID.texts)
def test_damage_is_named(call: str, folder: Path) -> None:
    SAID.check(call, {**globals(), "folder": folder, "LINEAR": LINEAR})


def test_many_large_sets_are_refused_before_they_fill_the_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_SET_ITEMS", 10**5)
    data = copy.deepcopy(DATA["star"])
    data["programs"][0]["values"] += [["activation", 0, 1, f"{i}-99999", 10**5] for i in range(3)]
    with pytest.raises(TraceError, match="out of bounds"):
        load(data, folder)


@pytest.mark.parametrize("name", ["ring", "zigzag", "ulysses"])
def test_parts_of_many_rows_are_read_as_runs_like_parts_of_a_few(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more numbers are listed for a million tokens than for sixteen; but runs are limited too."""
    one = PROGRAMS[name]
    layers = [dataclasses.replace(layer, rows=10**6) for layer in one.layers]
    trace = one.run(layers=layers, batches=1)[0].trace
    monkeypatch.setattr(reader, "MAX_SET_ITEMS", 100)
    trace.save(folder / "trace.json")
    for again in (Trace.load(folder / "trace.json"), Trace.parse(trace.text())):
        assert [program.values for program in again.programs] == [program.values for program in trace.programs]
        assert check(again).correct
    monkeypatch.setattr(reader, "MAX_SET_ITEMS", 5)
    with pytest.raises(TraceError, match="out of bounds"):
        Trace.load(folder / "trace.json")


@pytest.mark.timeout(20)
def test_a_long_set_in_many_events_is_read_checked_and_written_once() -> None:
    """In a second. Where each event has to look at its set, each of the three steps takes a minute."""
    data = copy.deepcopy(DATA["star"])
    size = 10**6
    data["batches"] = size
    data["programs"] = [
        {
            "values": [
                ["weight", 0, data["layers"], 0, "0", 1],
                ["optimizer state", 0, data["layers"], 0, "0", 1],
                *[["activation", layer, data["layers"], f"0-{size - 2}", size] for layer in [0] + [1] * 300],
            ],
            "events": [
                ["load_weights", 0, "", [], [0, 1], 0, 0, 0, -1, [0, 1], -1, None, False],
                ["get_activation", 0, f"0-{size - 2}", [], [2], 0, 0, 0, -1, [], -1, None, False],
                *[
                    ["forward", 0, f"0-{size - 2}", [2, 0], [3 + at], 0, 0, 0, -1, [], -1, None, False]
                    for at in range(300)
                ],
            ],
            "moves": [],
        }
    ]
    data.update(groups=[], places=[], mesh=None)
    trace = reader.decode(data)
    assert check(trace).faults[0].startswith("no update and no final weight of layer")
    assert serial.encode(trace)["sets"] == ["", f"0-{size - 2}"]


@pytest.mark.parametrize("field", ["values", "events"])
def test_what_was_right_before_is_wrong_with_other_types(field: str) -> None:
    """What repeats in a file is checked once; but true is not 1, and 1.0 is not."""
    for one in (True, 1.0):
        data = copy.deepcopy(DATA["ddp_lean"])
        items = data["programs"][0][field]
        again = copy.deepcopy(items[0])
        at = (again if field == "values" else again[9]).index(1)
        (again if field == "values" else again[9])[at] = one
        items.append(again)
        with pytest.raises(TraceError, match="expected a whole number"):
            reader.decode(data)


def test_a_thousand_different_numbers_of_shards_are_enough(folder: Path) -> None:
    values = [["weight", 0, 1, 0, "0", total] for total in range(2, 1500)]
    wide = [["load_weights", 0, "", [], [], 0, 0, 0, -1, [0, total], -1, None, False] for total in range(2, 1500)]
    for field, more in (("values", values), ("events", wide)):
        data = copy.deepcopy(DATA["star"])
        data["programs"][0][field] += more
        with pytest.raises(TraceError, match="values cut into more than 1000 different numbers of shards"):
            load(data, folder)


def test_a_file_that_is_too_large_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial, "MAX_BYTES", 2**20)
    with pytest.raises(TraceError) as raised:
        load(b" " * (2**20 + 1), folder)
    assert str(raised.value) == "trace.json is larger than 1 MiB: that is not a Trace of ours"


def test_a_file_says_what_its_layers_are_where_they_are_not_the_usual_ones() -> None:
    """The usual ones are left out, and a file without them is read as that: an older version reads it too."""

    def forward(model: Model) -> None:
        weight, _ = model.load_weights(0, 1, 4)
        model.weights[0] = weight
        model.activations[0] = model.get_activation([0])

    run = simulate(forward, layers=1)[0].trace
    assert "layer_descriptions" not in serial.encode(run)
    assert reader.decode(serial.encode(run)).descriptions == run.descriptions == (LINEAR,)
    small = dataclasses.replace(run, descriptions=(Layer("linear", 8, 8, 2),))
    again = reader.decode(json.loads(json.dumps(serial.encode(small))))
    assert again.descriptions == small.descriptions
    values = [value for value in again.programs[0].values if value is not None]
    assert [value.elements() for value in values] == [16, 16, 16]
    assert [value.elements() for value in again.rebuilt().run.programs[0].values if value] == [16, 16, 16]
    (fault,) = [fault for fault in check(again, puzzle="basic").faults if "other sizes" in fault] or [""]
    assert fault.startswith("the layers of the puzzle basic have other sizes than those of this run")


def test_what_many_ranks_bring_together_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MOST_NUMBERS", 0)

    async def shared(model: Model) -> None:
        await model.allreduce(model.fake_grad(0, [model.rank]), 0)

    assert not any("put together" in fault for fault in check(simulate(shared, ranks=1000, batches=1000)).faults)
