"""What simulate, Dist, the costs, the check and the files are given by mistake: each says what it takes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from drawing import compare as compare
from drawing import draw, step_through
from lib import Costs, Dist, Links, Mesh, Model, Trace, TraceError, check, review, simulate
from tests.support.schedules import ddp


async def alone(model: Model) -> None:
    model.load_weights(0)


def message(make: Any) -> str:
    """What the error says, which is a ValueError or a TypeError."""
    with pytest.raises((ValueError, TypeError)) as raised:
        make()
    return str(raised.value)


ARGUMENTS: dict[str, tuple[Any, str]] = {
    "no budget": (
        lambda: simulate(alone, budget=0),
        "the budget is how many events a rank may record, at least 1; got budget=0",
    ),
    "a negative budget": (
        lambda: simulate(alone, budget=-3),
        "the budget is how many events a rank may record, at least 1; got budget=-3",
    ),
    "half a budget": (
        lambda: Dist(1, budget=1.5),  # type: ignore[arg-type]
        "the budget is how many events a rank may record, at least 1; got budget=1.5",
    ),
    "ranks that are true": (lambda: simulate(alone, ranks=True), "a run has at least one of its ranks; got ranks=True"),
    "layers that are true": (
        lambda: simulate(alone, layers=True),
        "a run has at least one of its layers; got layers=True",
    ),
    "a Dist of true": (lambda: Dist(True), "a world has at least one rank; got True"),
    "ranks and a half": (lambda: simulate(alone, ranks=1.5), "a world has at least one rank; got 1.5"),  # type: ignore[arg-type]
    "a mesh that is a dict": (
        lambda: simulate(alone, mesh={"a": 2}),  # type: ignore[arg-type]
        "mesh= takes a mesh, such as Mesh({\"data\": 2}); got {'a': 2}",
    ),
    "costs that are a number": (
        lambda: simulate(alone, costs=3),  # type: ignore[arg-type]
        "costs= takes costs, such as Costs(p2p=0.1) or LINKS; got 3",
    ),
    "an order that is a list": (
        lambda: simulate(alone, order=[0]),  # type: ignore[arg-type]
        "order= is a function that permutes the ranks that can run; got [0]",
    ),
    "a cost that is text": (
        lambda: Costs(forward="1"),  # type: ignore[arg-type]
        "forward is a time, such as 1 or 0.3; got forward='1'",
    ),
    "a cost that is true": (
        lambda: Costs(update=True),
        "update is a time, such as 1 or 0.3; got update=True",
    ),
    "no cost": (
        lambda: Costs(loss=None),  # type: ignore[arg-type]
        "loss is a time, such as 1 or 0.3; got loss=None",
    ),
    "a cost beyond all times": (
        lambda: Costs(forward=1e300),
        "a cost is less than 1000000000 time units, so that times can be counted; got forward=1e+300",
    ),
    "a cost at the limit": (
        lambda: Costs(update=10**9),
        "a cost is less than 1000000000 time units, so that times can be counted; got update=1000000000",
    ),
    "a cost without end": (
        lambda: Costs(p2p=float("inf")),
        "costs are times, so at least 0, and a host has a rank; got p2p=inf",
    ),
    "a host of a rank and a half": (
        lambda: Links(host_size=1.5),  # type: ignore[arg-type]
        "host_size is a whole number of ranks; got host_size=1.5",
    ),
    "a ratio that is text": (lambda: Links(ratio="10"), "ratio is a number, such as 10; got ratio='10'"),  # type: ignore[arg-type]
    "a mesh without names": (
        lambda: Mesh([2, 2]),  # type: ignore[arg-type]
        'a mesh has named axes, such as Mesh({"data": 2, "stage": 4}); got [2, 2]',
    ),
    "axes that are numbers": (
        lambda: Mesh({0: 2}),  # type: ignore[dict-item]
        'the axes of a mesh have names, such as "data"; got [0]',
    ),
    "an axis of text": (
        lambda: Mesh({"a": "2"}),  # type: ignore[dict-item]
        "a mesh needs at least one axis, each of size 1 or more; got {'a': '2'}",
    ),
    "an axis of true": (
        lambda: Mesh({"a": True}),
        "a mesh needs at least one axis, each of size 1 or more; got {'a': True}",
    ),
    "ranks of a mesh that are a number": (
        lambda: Mesh({"a": 2}, ranks=2),  # type: ignore[arg-type]
        "ranks= lists the rank at each place of the mesh; got 2",
    ),
    "ranks of a mesh that are text": (
        lambda: Mesh({"a": 2}, ranks=["0", "1"]),  # type: ignore[list-item]
        "axes {'a': 2} need each rank from 0 to 1 once; got ['0', '1']",
    ),
    "half a host": (
        lambda: Mesh({"a": 2}, host_size=0.5),  # type: ignore[arg-type]
        "a host has at least one rank; got host_size=0.5",
    ),
    "a puzzle by number": (
        lambda: simulate(alone, puzzle=3)[0],  # type: ignore[arg-type]
        "there is no puzzle 3; there are",
    ),
    "a puzzle in a list": (
        lambda: simulate(alone, puzzle=["ddp"]),  # type: ignore[arg-type]
        "there is no puzzle ['ddp']; there are",
    ),
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_what_a_run_cannot_be_made_of(what: str) -> None:
    make, said = ARGUMENTS[what]
    assert message(make).startswith(said)


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


# -- what is no run -----------------------------------------------------------------------------------------------

WHO: dict[str, tuple[Any, str]] = {
    "Model.check": (Model.check, "Model.check takes the Models that simulate returned, or one Model; got "),
    "check": (check, "check takes a Trace, or the Models that simulate returned; got "),
    "review": (
        lambda thing: review(thing, puzzle="ddp"),
        "review takes the Models that simulate returned, or a Trace; got ",
    ),
    "draw": (draw, "draw takes a Trace, a Model or a list of Models; got "),
    "compare": (compare, "compare takes a Trace, a Model or a list of Models; got "),
    "step_through": (step_through, "step_through takes a Trace, a Model or a list of Models; got "),
}
THINGS: dict[str, tuple[Any, str]] = {
    "a number": (lambda: 3, "int"),
    "a number in a list": (lambda: [3], "int"),
    "nothing": (lambda: None, "NoneType; does your function end with `return model`?"),
    "a file's name": (lambda: "run.json", "str; Trace.load(...) reads a saved run"),
    "a path": (lambda: [Path("run.json")], f"{type(Path()).__name__}; Trace.load(...) reads a saved run"),
    "the function": (lambda: ddp, "function; run it first: models = simulate(ddp, ...)"),
    "a call of the function": (
        lambda: ddp(Model()),
        "coroutine; did you forget `await`? models = simulate(ddp, ...) runs it on every rank",
    ),
    "calls of the function": (
        lambda: [ddp(Model())],
        "coroutine; did you forget `await`? models = simulate(ddp, ...) runs it on every rank",
    ),
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


# -- what is no file ----------------------------------------------------------------------------------------------


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
