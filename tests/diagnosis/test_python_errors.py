"""Python's own errors: what the usual ones mean here, beside those that the corpus shows in full."""

import asyncio
import inspect
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lib import Model, PuzzleError, RankFailed, simulate
from lib.values.operations import COMMUNICATION, signatures
from tests.support.said import Said


def recurse(model: Model) -> None:
    recurse(model)


SAID = Said(__file__, "slips")


def fix_of(slip: Callable[[Any], Any]) -> None:
    """What a student is told of an error of Python, whose own words are shown as they are."""
    with pytest.raises(RankFailed) as raised:
        simulate(lambda model: slip(model))
    cause = raised.value.__cause__
    assert raised.value.what == f"{type(cause).__name__}: {cause}"
    assert raised.value.rank == 0
    raise RuntimeError(str(raised.value.fix).replace(", ".join(signatures()), "ALL OF THEM"))


@pytest.mark.parametrize("slip", SAID.texts)
def test_what_it_means_here(slip: str) -> None:
    SAID.check(slip, {"fix_of": fix_of, "recurse": recurse})


@pytest.mark.parametrize(
    ("message", "told"), [("one\ntwo", "ValueError: one"), (10**5000, "ValueError")], ids=["lines", "digits"]
)
def test_an_error_is_told_by_its_first_line_or_named_where_it_cannot_be_shown(message: Any, told: str) -> None:
    """Python writes no number as long as that."""

    def fail(model: Model) -> None:
        raise ValueError(message)

    with pytest.raises(RankFailed, match=f"^rank 0: {told}\n") as raised:
        simulate(fail)
    assert raised.value.what == told


def test_every_operation_has_a_signature_that_is_true() -> None:
    """The names are those of a student's values; how many there are, and what has to be awaited, is the Model's."""
    for name, call in signatures().items():
        parameters = list(inspect.signature(getattr(Model, name)).parameters.values())[1:]
        given = call[call.index("(") + 1 : -1].split(", ")
        needed = [p for p in parameters if p.default is inspect.Parameter.empty]
        assert len(needed) <= len(given) <= len(parameters)
        assert call.startswith("await ") == (name in COMMUNICATION)


def test_warnings_of_others_come_through_and_the_module_is_as_it_was() -> None:
    filters, show = list(warnings.filters), warnings.showwarning
    simulate(lambda model: None)
    with pytest.raises(PuzzleError):
        simulate(lambda model: model.weights[0])
    assert (list(warnings.filters), warnings.showwarning) == (filters, show)
    with pytest.warns(UserWarning, match="mine"):
        simulate(lambda model: warnings.warn("mine", UserWarning, stacklevel=1))


def test_what_has_defaults_can_be_called() -> None:
    def student(model: Model, times: int = 2, *more: int, **other: int) -> None:
        for _ in range(times):
            model.fake_grad(0)

    assert len(simulate(student)[0].program.events) == 2


def a_notebook(monkeypatch: pytest.MonkeyPatch, *cells: str) -> Any:
    """A function called ddp that some cells of a notebook define, of which the last that can be read has run."""

    def ddp(model: Model) -> None:
        pass

    ddp.__module__ = "__main__"
    shell = SimpleNamespace(user_ns={"In": ["", *cells, "simulate(ddp)"]})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    return ddp


BROKEN = "async def ddp(model)\n    pass"


@pytest.mark.parametrize(
    ("cells", "stops"),
    [
        (["def ddp(model):\n    pass", BROKEN], True),
        (["def ddp(model):\n    pass", "import asyncio\n\n" + BROKEN, "x = 1"], True),
        (["def ddp(model):\n    pass", "def ddp(model):\n    await model.receive(0)"], True),
        ([BROKEN, "def ddp(model):\n    pass"], False),
        (["def ddp(model):\n    pass", "x = = 1"], False),
        (["def ddp(model):\n    pass\nawait something()", "def ddp_2(model)"], False),
        ([], False),
    ],
)
def test_a_function_from_before_a_broken_cell_is_not_run(
    cells: list[str], stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ddp = a_notebook(monkeypatch, *cells)
    if stops:
        with pytest.raises(PuzzleError, match="the last cell that defines ddp did not run"):
            simulate(ddp)
    else:
        simulate(ddp)


def test_a_function_of_a_module_is_no_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    ddp = a_notebook(monkeypatch, BROKEN)
    ddp.__module__ = "mine"
    simulate(ddp)


@pytest.mark.parametrize(
    "words", ["object WeightGrad can't be used in 'await' expression", "'WeightGrad' object can't be awaited"]
)
def test_a_second_await_is_known_by_the_words_of_every_python(words: str) -> None:
    """Those of 3.14 are the second ones."""
    loop = asyncio.new_event_loop()
    coming: asyncio.Future[None] = asyncio.Future(loop=loop)
    coming.set_exception(TypeError(words))

    async def again(model: Model) -> None:
        await coming

    with pytest.raises(RankFailed) as raised:
        simulate(again)
    loop.close()
    assert str(raised.value.fix).startswith("coming is a result already: leave out one `await`")


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("it has no words")


@pytest.mark.parametrize("key", [5, [5]])
def test_keys_that_cannot_be_written_or_compared_hide_no_error(key: Any) -> None:
    def fail(model: Model, mine: dict[Any, Any]) -> None:
        raise KeyError(key, mine[0])

    with pytest.raises(RankFailed, match=r"^rank 0: KeyError: \(") as raised:
        simulate(lambda model: fail(model, {0: 0, Mute(): 1}))
    assert str(raised.value.fix).startswith("nothing is stored under that key on this rank")
