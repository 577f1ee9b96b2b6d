"""Objects of a run that say of themselves what they please: a verdict is that of the honest run, or the run is refused.

Of each public class, and of each that a Model leads to, classes are made that lie in one name: a method, a property, or
what Python asks for, such as equality, length and hash. An object of a run is then made one of such a class.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import lib
from lib import PUZZLES, UNIT, Costs, Mesh, Model, PuzzleError, Trace, Verdict, check, simulate
from lib.puzzles.puzzle import Goal
from tests.support.changes import changed
from tests.support.profiles import THOROUGH, sample
from tests.support.puzzles import way

LIES: tuple[Any, ...] = (0, True, None, "x") if THOROUGH else (0,)
ASKED = ("__bool__", "__contains__", "__getitem__", "__iter__", "__len__")
"""What Python may ask of any object, whether its class has it or not."""
LEFT = ("__class__", "__delattr__", "__dict__", "__dir__", "__doc__", "__getattribute__", "__getstate__", "__init__",
        "__init_subclass__", "__match_args__", "__module__", "__new__", "__setattr__", "__sizeof__", "__slots__",
        "__subclasshook__", "__weakref__")  # fmt: skip
"""What makes an object be one."""
NO_RUN = ("AbsentKey", "BudgetError", "CheckError", "DeadlockError", "ForgottenAwait", "MismatchError", "NotSolved",
          "PuzzleError", "RankFailed", "RuleError", "TraceError", "FunctionVerdict", "Verdict", "Unsolved", "Work",
          "Links", "Uneven")  # fmt: skip
"""Public classes of which no object is in a run that has ended: errors, verdicts, what was awaited; and other costs."""
HAVE = ("Costs", "Dist", "Event", "Layer", "Mesh", "Model", "Part", "Place", "Recorder", "Shape", "Store", "Engine",
        "Activation", "ActivationGrad", "OptState", "Weight", "WeightGrad")  # fmt: skip


def run(puzzle: str) -> list[Model]:
    return simulate(way(puzzle), puzzle=puzzle)


def found(models: list[Model]) -> dict[str, Any]:
    """An object of each class that a Model leads to."""
    model = models[1]
    dist, program, values = model.dist, model.program, model.program.values
    event = next(event for event in program.events if event.group or event.op == "allreduce")
    objects: list[Any] = [model, dist, program, event, dist.costs, dist.shape, dist.shape.descriptions[0], dist.mesh]
    objects += [model.weights, dist.engine, *values, *[value.place for value in values if value is not None]]
    objects += [part for value in values if value is not None for part in value.place.parts]
    return {type(one).__name__: one for one in reversed(objects) if one is not None}


def liars(cls: type) -> Iterator[type]:
    """Classes like one, each of which lies in one name: some of them at a commit."""
    names = {name for name in dir(cls) if _is_asked(inspect.getattr_static(cls, name))}
    for name in sample(sorted((names | {*ASKED}) - {*LEFT})):
        for lie in LIES:
            yield type(f"{cls.__name__}.{name}={lie!r}", (cls,), {"__slots__": (), **_body(cls, name, lie)})


def _is_asked(item: object) -> bool:
    return callable(item) or inspect.isdatadescriptor(item) or isinstance(item, property | classmethod | staticmethod)


def _body(cls: type, name: str, lie: Any) -> dict[str, Any]:
    if name in ("__eq__", "__ne__", "__lt__", "__gt__", "__le__", "__ge__", "__contains__", "__bool__"):
        return {name: lambda self, *_: bool(lie), "__hash__": lambda self: 0}
    answers: dict[str, Callable[..., Any]] = {
        "__hash__": lambda self: 0,
        "__len__": lambda self: 1,
        "__iter__": lambda self: iter(()),
        "__repr__": lambda self: "x",
        "__str__": lambda self: "x",
        "__format__": lambda self, _: "x",
    }
    static = inspect.getattr_static(cls, name, None)
    if name in answers or name.startswith("__") or callable(static) or isinstance(static, classmethod | staticmethod):
        return {name: answers.get(name, lambda self, *_, **__: lie)}
    return {name: property(lambda self: lie, lambda self, value: None)}


def becomes(item: Any, cls: type) -> bool:
    """Makes an object one of another class; False where Python does not let us."""
    try:
        object.__setattr__(item, "__class__", cls)
    except TypeError:
        return False
    return True


@cache
def honest(puzzle: str) -> Verdict:
    return check(run(puzzle), puzzle)


def told(verdict: Verdict) -> tuple[bool, float, float, float, tuple[Goal, ...]]:
    return verdict.correct, verdict.time, verdict.memory, verdict.sent, verdict.goals


def accepted(ask: Callable[[], Verdict]) -> bool:
    """Whether a run is called correct; or refused without a word, which is no better."""
    try:
        return ask().correct
    except (PuzzleError, ValueError, TypeError) as error:
        return len(str(error)) < 20


def believed(ask: Callable[[], Verdict], puzzle: str) -> str | None:
    """What a lie has gained: None where the run is refused with words of ours, or the verdict is that of the honest."""
    try:
        verdict = ask()
    except (PuzzleError, ValueError, TypeError) as error:
        return None if len(str(error)) > 20 else f"{type(error).__name__}: {error}"
    if told(verdict) == told(honest(puzzle)):
        return None
    return str(told(verdict)) if verdict.correct else None if verdict.faults[0] else "no words"


def test_a_model_leads_to_all_these() -> None:
    """Each public class is tried, or is in no run."""
    names = set(found(run("hsdp"))) | set(found(run("ddp")))
    assert names >= {*HAVE}, names
    public = {name for name in lib.__all__ if inspect.isclass(getattr(lib, name))}
    assert public - {*HAVE, *NO_RUN} == {"Trace"}


@pytest.mark.parametrize("name", HAVE)
def test_an_object_of_a_run_lies(name: str) -> None:
    puzzle = "ddp" if name in found(run("ddp")) else "hsdp"
    tried = 0
    for cls in liars(type(found(run(puzzle))[name])):
        models = run(puzzle)
        if becomes(found(models)[name], cls):
            tried += 1
            assert believed(lambda models=models: check(models, puzzle), puzzle) is None, cls
    assert tried > 3


@pytest.mark.parametrize("name", HAVE)
def test_without_a_puzzle_a_lie_makes_no_step_correct(name: str) -> None:
    """What a run costs, and how large its layers are, are then its own; and nothing ends with an error of Python's."""
    puzzle = "ddp" if name in found(run("ddp")) else "hsdp"
    for cls in liars(type(found(run(puzzle))[name])):
        models = run(puzzle)
        models[0].program.events[-1].op = "load_weights"
        if becomes(found(models)[name], cls):
            assert not accepted(lambda models=models: check(models)), cls


def test_a_trace_lies() -> None:
    """Of an honest run, and of one without its updates."""
    for cls in liars(Trace):
        whole, half = Trace.of(run("ddp")), Trace.of(run("ddp"))
        for program in half.programs:
            half = changed(half, program.rank, events=[event for event in program.events if event.op != "update"])
        for trace in (whole, half):
            object.__setattr__(trace, "__class__", cls)
        assert believed(lambda trace=whole: check(trace, "ddp"), "ddp") is None, cls
        assert not accepted(lambda trace=half: check(trace, "ddp")), cls


class Changing(list[Any]):
    """A list that is another one when it is read again, and says that it is shorter than it is."""

    def __init__(self, items: list[Any], then: list[Any]) -> None:
        super().__init__(items)
        self.then = then

    def __iter__(self) -> Iterator[Any]:
        self[:], again = self.then, list(super().__iter__())
        return iter(again)

    def __len__(self) -> int:
        return max(0, super().__len__() - 1)


@pytest.mark.parametrize("name", ["events", "values", "moves"])
def test_a_list_of_a_program_changes(name: str) -> None:
    for keep in (0, 3, -1):
        models = run("ddp")
        items = getattr(models[0].program, name)
        setattr(models[0].program, name, Changing(items, items[:keep]))
        assert believed(lambda models=models: check(models, "ddp"), "ddp") is None
        assert believed(lambda models=models: check(Changing(models, models[:2]), "ddp"), "ddp") is None


@pytest.mark.parametrize("name", ["mesh", "costs"])
def test_a_mesh_or_costs_that_a_run_is_given_lie(name: str) -> None:
    record = PUZZLES["hsdp"]
    assert record.mesh is not None
    given: Mesh | Costs = record.mesh if name == "mesh" else record.costs
    for cls in liars(type(given)):
        lying = Mesh(record.mesh.axes, host_size=record.mesh.host_size) if name == "mesh" else replace(record.costs)
        assert becomes(lying, cls)
        options: dict[str, Any] = {name: lying}

        try:
            models = simulate(way("hsdp"), puzzle="hsdp", **options)
        except (PuzzleError, ValueError, TypeError, AttributeError):  # a class of costs is code of somebody's own
            continue
        assert believed(lambda models=models: check(models, "hsdp"), "hsdp") is None, cls


def test_what_a_run_has_found_out_of_its_costs_is_its_own() -> None:
    """Prices are worked out once, and kept where a Model can write."""
    models = run("ddp")
    for costs in (models[0].dist.costs, PUZZLES["ddp"].costs, UNIT):
        known: dict[Any, int] = costs._known  # pyright: ignore[reportPrivateUsage]
        before = dict(known)
        known.update(dict.fromkeys(("forward", "backward", "update"), 0))
        try:
            assert told(check(models, "ddp")) == told(honest("ddp"))
        finally:
            known.clear()
            known.update(before)
    assert models[0].dist.costs is not PUZZLES["ddp"].costs
    assert run("hsdp")[0].dist.mesh is not PUZZLES["hsdp"].mesh
