"""A graded notebook: what is only said in others is raised, once for each cause."""

import inspect
from collections.abc import Callable

import pytest

from lib import CheckError, Model, NotSolved, Unsolved, check_function, expect, simulate
from lib.errors import graded
from lib.suite.course import progress
from tests.support.drivers import python
from tests.support.puzzles import way


@pytest.fixture(autouse=True)
def grading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(graded.VARIABLE, "1")
    monkeypatch.setattr(graded, "_stubs", set())
    monkeypatch.setattr(graded, "_left", [])


def stub(model: Model) -> None:
    raise NotSolved("ddp")


def unanswered(*given: object) -> None:
    raise NotSolved("parallel_dims")


def solved(puzzle: str) -> Callable[[Model], object]:
    return way(puzzle)


def test_a_stub_is_an_error() -> None:
    with pytest.raises(NotSolved, match="ddp is not solved yet"):
        simulate(stub, puzzle="ddp")
    with pytest.raises(NotSolved, match="parallel_dims is not solved yet"):
        check_function(unanswered, puzzle="parallel_dims")


def test_a_check_of_nothing_is_an_error() -> None:
    for ask in (lambda: Model.check([], puzzle="ddp"), lambda: Model.check(Unsolved("ddp")), lambda: expect([])):
        with pytest.raises(CheckError, match=r"^(No run: simulate|Not solved yet: ddp)"):
            ask()


def test_a_correct_run_within_no_goal_is_an_error_in_the_words_of_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    out = simulate(solved("grad_accum"), puzzle="ddp")
    with pytest.raises(CheckError) as missed:
        Model.check(out, puzzle="ddp")
    assert capsys.readouterr().out == ""
    with pytest.MonkeyPatch.context() as before:
        before.setenv(graded.VARIABLE, "0")
        Model.check(out, puzzle="ddp")
    assert f"{missed.value}\n" == capsys.readouterr().out
    assert str(missed.value).startswith("Correct, but not within the goal yet.")
    with pytest.raises(CheckError, match="not within the goal yet"):
        Model.check(out, time=16)


def test_what_passes_is_said_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    out = simulate(solved("ddp"), puzzle="ddp")
    verdict = Model.check(out, puzzle="ddp")
    assert verdict is not None
    assert verdict.passed
    Model.check(out)
    expect(out, end=100)
    check_function(way("parallel_dims"), puzzle="parallel_dims")
    assert [line.split("!")[0] for line in capsys.readouterr().out.splitlines() if "!" in line] == [
        "Correct",
        "Correct",
        "Right",
        "Correct",
    ]


def test_an_exercise_that_did_not_come_out_is_an_error() -> None:
    with pytest.raises(CheckError, match=r"^Not yet: the run ends at 5\.\d, and it can end at 1$"):
        expect(simulate(solved("ddp"), puzzle="ddp"), end=1)


@pytest.mark.parametrize(("value", "on"), [("1", True), ("yes", True), ("0", False), ("", False), ("Off", False)])
def test_the_variable(value: str, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(graded.VARIABLE, value)
    assert graded.is_on() == on
    if not on:
        assert isinstance(simulate(stub, puzzle="ddp"), Unsolved)
        assert Model.check([], puzzle="ddp") is None


def test_what_is_graded_is_nobodys_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress.VARIABLE, "progress.json")
    assert progress.is_off()
    assert progress.place() is None


CELLS = '''
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
def failed(*cells):
    """The cells that fail: their numbers, and with what."""
    found = []
    for number, cell in enumerate(cells):
        result = shell.run_cell(cell, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            found.append((number, type(error).__name__))
    return found

IMPORTS = "from lib import *"
STUB = """def ddp(model):
    raise NotSolved("ddp")
"""
RUN = "out = []\\nout = simulate(ddp, puzzle='ddp')"
CHECK = "Model.check(out, puzzle='ddp')"
EXPECT = "expect(out, end=4)"
AFTER = [
    "predict(end=3).against(out)",
    "from drawing import draw; draw(out)",
    CHECK,
    "review(out, puzzle='ddp')",
    "from drawing import step_through; step_through(out)",
]
'''


def shown(code: str) -> str:
    """What is printed last by code about cells, in a Python in which notebooks are graded."""
    return python(f"import os; os.environ['PUZZLES_GRADING'] = '1'\n{CELLS}\n{inspect.cleandoc(code)}").splitlines()[-1]


def test_one_cause_is_one_cell_that_fails() -> None:
    """Stubs, twice simulated; a mistake in the run; a cell that is not Python; and all is well."""
    code = """
        imports = "from lib.suite.submissions import load, locations"
        solved = RUN.replace("(ddp", "(load.load_function(locations.reference('ddp'), 'ddp')")
        four = failed(IMPORTS, imports, solved, *AFTER, "expect(out, end=100)")
        one = failed(IMPORTS, STUB, RUN, *AFTER, "again = simulate(ddp, puzzle='ddp')", EXPECT)
        two = failed("def ddp(model):\\n    model.update(0, None, None, None)", RUN, *AFTER, EXPECT)
        three = failed("del ddp", "def ddp(model) return", RUN, *AFTER)
        print(one, two, three, four)
    """
    assert shown(code) == "[(2, 'NotSolved')] [(1, 'RuleError')] [(1, 'SyntaxError'), (2, 'NameError')] []"


def test_an_error_that_somebody_caught_is_none_and_an_empty_list_of_their_own_is_no_run() -> None:
    code = """
        caught = "out = []\\ntry:\\n    out = simulate(ddp, puzzle='ddp')\\nexcept NotSolved:\\n    pass"
        print(failed(IMPORTS, STUB, caught, CHECK, EXPECT), failed("out = []", "1 / 0", CHECK))
    """
    assert shown(code) == "[(3, 'CheckError'), (4, 'CheckError')] [(1, 'ZeroDivisionError'), (2, 'CheckError')]"
