"""What simulate, Dist, the costs, the check and the files are given by mistake: each says what it takes."""

import warnings
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import lib
from drawing import compare as compare
from drawing import draw, step_through
from lib import Costs, Dist, Links, Mesh, Model, Trace, TraceError, check, review, simulate
from tests.support.said import Said
from tests.support.schedules import ddp


async def alone(model: Model) -> None:
    model.load_weights(0)


def message(make: Any) -> str:
    """What the error says, which is a ValueError or a TypeError."""
    with pytest.raises((ValueError, TypeError)) as raised:
        make()
    return str(raised.value)


test_what_a_run_cannot_be_made_of = Said(__file__, "arguments").test(
    lambda: {**globals(), "Dist": Dist, "Links": Links, "Mesh": Mesh}
)


WRONG = Said(__file__, "wrong_types", kinds=True)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("call", WRONG.texts)
def test_an_argument_of_a_wrong_type_is_told_what_belongs_there(call: str) -> None:
    WRONG.check(call, {**vars(lib), **{name: getattr(lib, name) for name in lib.__all__}, "count": count})


@pytest.mark.parametrize("puzzle", [3, ["ddp"]])
def test_a_puzzle_is_called_by_its_name(puzzle: Any) -> None:
    assert message(lambda: simulate(alone, puzzle=puzzle)).startswith(f"there is no puzzle {puzzle}; there are basic, ")


def test_a_run_longer_than_any_trace_can_hold(tmp_path: Path) -> None:
    async def long(model: Model) -> None:
        weight, _ = model.load_weights(0)
        for batch in range(4):
            model.forward(0, model.get_activation([batch]), weight)

    assert message(lambda: simulate(long, batches=4, costs=Costs(forward=9e8))) == (
        "this run takes longer than 1152921504 time units, which no Trace can hold: lower the costs"
    )
    models = simulate(long, batches=1 + 3, costs=Costs(forward=1e8))
    models[0].trace.save(tmp_path / "long.json")
    assert Trace.load(tmp_path / "long.json").text() == models[0].trace.text()
    models[0].program.events[-1].start = 2**60
    with pytest.raises(TraceError, match="a Trace holds times up to 1152921504 time units; this run takes longer"):
        models[0].trace.save(tmp_path / "long.json")


RUN = "takes a Trace, a Model or a list of Models; got "
WHO: dict[str, tuple[Any, str]] = {
    "Model.check": (Model.check, "Model.check takes the Models that simulate returned, or one Model; got "),
    "check": (check, "check takes a Trace, or the Models that simulate returned; got "),
    "review": (
        lambda thing: review(thing, puzzle="ddp"),
        "review takes the Models that simulate returned, or a Trace; got ",
    ),
    **{function.__name__: (function, f"{function.__name__} {RUN}") for function in (draw, compare, step_through)},
}
CALLED = "coroutine; did you forget `await`? models = simulate(ddp, ...) runs it on every rank"
THINGS: dict[str, tuple[Any, str]] = {
    "a number": (lambda: 3, "int"),
    "a number in a list": (lambda: [3], "int"),
    "nothing": (lambda: None, "NoneType; does your function end with `return model`?"),
    "a file's name": (lambda: "run.json", "str; Trace.load(...) reads a saved run"),
    "a path": (lambda: [Path("run.json")], f"{type(Path()).__name__}; Trace.load(...) reads a saved run"),
    "the function": (lambda: ddp, "function; run it first: models = simulate(ddp, ...)"),
    "a call of the function": (lambda: ddp(Model()), CALLED),
    "calls of the function": (lambda: [ddp(Model())], CALLED),
}


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("who", WHO)
def test_what_is_no_run(who: str, thing: str) -> None:
    (take, head), (make, tail) = WHO[who], THINGS[thing]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a coroutine that is refused is closed, so Python does not complain of it
        assert message(lambda: take(make())) == head + tail


@pytest.mark.parametrize("time", ["3", float("nan"), True, [3]])
@pytest.mark.parametrize("name", ["time", "memory"])
def test_a_limit_is_a_number(name: str, time: Any) -> None:
    models = simulate(ddp, ranks=4, layers=2, batches=4)
    wanted = f"{name}= is the most {name} that the run may take, a number; got {name}={time!r}"
    assert message(lambda: check(models, **{name: time})) == wanted
    assert message(lambda: Model.check(models, **{name: time})) == wanted


def test_where_there_is_no_file(tmp_path: Path) -> None:
    absent = tmp_path / "absent.json"
    wanted = f"there is no file {absent}: models[0].trace.save('run.json') writes one"
    with pytest.raises(TraceError) as raised:
        Trace.load(absent)
    assert str(raised.value) == wanted
    assert isinstance(raised.value, OSError)
    assert message(lambda: Trace.load(str(absent))) == wanted
    assert (
        message(lambda: Trace.load(tmp_path))
        == f"{tmp_path} is a directory, and a Trace is a file: name the .json file in it"
    )
    assert message(lambda: Trace.load("run\0.json")).startswith("run\0.json cannot be read: ")
    assert message(lambda: Trace.load(3)) == "load takes the path of a file, such as 'run.json'; got int"  # type: ignore[arg-type]
    trace = simulate(alone)[0].trace
    assert message(lambda: trace.save(None)) == "save takes the path of a file, such as 'run.json'; got NoneType"  # type: ignore[arg-type]
