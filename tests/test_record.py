"""A record is a dataclass to all others, though it is made without `dataclasses`."""

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest

from lib import Costs, Layer, Links, Uneven
from lib.record import record, replace


@pytest.mark.parametrize("thing", [Layer(inputs=8), Costs(read=1), Links(host_size=4), Uneven(layers=(2, 0.5))])
def test_copies_of_all_kinds_are_equal(thing: Costs | Layer) -> None:
    assert {copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing)), replace(thing)} == {thing}
    assert eval(repr(thing)) == thing


def test_dataclasses_take_it_for_one_of_theirs() -> None:
    assert dataclasses.is_dataclass(Costs)
    assert [(one.name, one.default) for one in dataclasses.fields(Layer)[:2]] == [("kind", "linear"), ("inputs", 512)]
    assert dataclasses.asdict(Links(host_size=4))["host_size"] == 4

    @dataclasses.dataclass(frozen=True)
    class Own(Costs):
        extra: float = 1.0

    assert (Own(extra=2.0, forward=5).extra, Own(forward=5).backward_input) == (2.0, 0.5)


def test_its_error_names_the_argument() -> None:
    with pytest.raises(TypeError, match=r"Costs.__init__\(\) got an unexpected keyword argument 'forwards'"):
        Costs(forwards=2.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_without_eq_each_equals_itself_alone() -> None:
    @record(eq=False)
    class Thing:
        size: int

    assert Thing(1) != Thing(1)


def test_a_run_begins_without_dataclasses_and_inspect() -> None:
    told = "from lib import Model, simulate, check; import sys; print({'dataclasses', 'inspect'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout == "set()\n"
