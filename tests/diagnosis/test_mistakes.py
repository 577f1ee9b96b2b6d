"""Every mistake of the corpus teaches: who, what, where, the likely fix, and a picture of the run up to there."""

import html
import inspect
import re
from dataclasses import replace
from functools import cache

import pytest

from drawing import draw
from lib import NotSolved, PuzzleError, RankFailed, Trace, TraceError
from lib.errors import exceptions as errors
from lib.errors.fixes import HOW
from lib.errors.fixes import shown as shown_lines
from lib.trace.event import Event, event_words
from lib.trace.json_format import plain
from lib.values.operations import COMMUNICATION, TIMED
from tests.diagnosis.corpus import Outcome, cases, run, run_in_asyncio
from tests.support.profiles import sample

CASES = {case.name: case for case in cases()}
every_case = pytest.mark.parametrize("name", CASES)
some_cases = pytest.mark.parametrize("name", sample(CASES))


@cache
def outcome(name: str) -> Outcome:
    """Each case is run once."""
    return run(CASES[name])


@every_case
def test_the_message(name: str) -> None:
    assert outcome(name).text == CASES[name].message
    assert outcome(name).fix == CASES[name].fix


@some_cases
def test_fix_shows_the_line_that_the_message_does_not_have(name: str) -> None:
    case = CASES[name]
    if case.fix is not None:
        assert case.fix.splitlines()[-1] not in case.message
        with shown_lines():
            assert case.fix.splitlines()[-1].strip() in run(case).text


@some_cases
def test_it_says_who_where_and_how_to_mend_it(name: str) -> None:
    case = CASES[name]
    if not case.fields.get("rank", "").startswith("none, because "):
        assert re.search(r"\branks? \d", case.message), "it names a rank"
    assert any(line in case.message for line in case.lines), "it shows a line of the student's"
    assert re.search(r"^ *fix: +\S", case.message, re.MULTILINE), "it says how to mend it"
    assert case.thought.endswith((".", "?"))


@some_cases
def test_under_asyncio_gather_it_says_the_same(name: str) -> None:
    case = CASES[name]
    if "driver" in case.fields:
        assert case.fields["driver"].startswith("simulate, because ")
        return
    there = run_in_asyncio(case)
    if HOW in there.text and case.fix is None:  # a run of asyncio has no puzzle, so it hides what others may show
        with shown_lines():
            there = run_in_asyncio(case)
    if isinstance(outcome(name).error, RankFailed) and there.error is None and "\n" not in there.text:
        # A rank that raised before it came to an operation of ours: asyncio shows Python's own error.
        assert case.message.partition("\n")[0].endswith(there.text)
    else:  # asyncio shows the rank that raised first as it steps them, simulate the first in simulated time
        assert without_numbers(there.text) == without_numbers(case.message)


def without_numbers(message: str) -> str:
    return re.sub(r"\d+(?:(?:, |-)\d+)*", "N", message)


@some_cases
def test_ordinary_python_errors_keep_their_cause(name: str) -> None:
    error = outcome(name).error
    if isinstance(error, RankFailed):
        assert error.__cause__ is not None
        assert re.sub(r"^rank \d+: ", "", error.what).startswith(type(error.__cause__).__name__)  # where none runs yet


def shown(svg: str, words: str) -> bool:
    return html.escape(words, quote=False) in svg or html.escape(words) in svg


def drawn(event: Event) -> bool:
    return event.op in TIMED and event.start is not None and event.op != "loss"


@some_cases
def test_the_picture_up_to_the_failure(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = outcome(name).error
    if error is None or CASES[name].fields.get("rank", "").startswith("none, because no rank has begun"):
        return
    assert isinstance(error.trace, Trace)
    assert error.trace.error == CASES[name].message
    assert plain(error.trace).ranks == error.trace.ranks, "a run that failed can be saved, and comes out of a sandbox"
    svg = draw(error.trace, fold=False).svg()
    capsys.readouterr()
    assert shown(svg, CASES[name].message.partition("\n")[0][:40]), "the headline says what happened, and on which rank"
    for program in error.trace.programs:  # of each rank the last operation that was over when the run failed
        for event in [event for event in program.events if drawn(event)][-1:]:
            assert shown(svg, event_words(event, error.trace.ranks))
    if error.rank is not None and (events := error.trace.programs[error.rank].events):
        assert shown(svg, f"failed here, after {event_words(events[-1], error.trace.ranks)}")
    if isinstance(error, errors.DeadlockError):
        waiting = [e for p in error.trace.programs for e in p.events[-1:] if e.op in COMMUNICATION and e.start is None]
        assert waiting, "somebody waits"
        assert svg.count("waits for ever") >= len(waiting)


@some_cases
def test_a_run_that_ends_but_is_wrong_is_a_check_error(name: str) -> None:
    found = outcome(name)
    if found.verdict is None or found.verdict.correct or CASES[name].sizes:  # a size is only wrong for the puzzle
        return
    if all("not ready for the next training step" in fault for fault in found.verdict.faults):
        return  # a fault of a puzzle; a bare check notes it
    assert found.wrong is not None
    assert isinstance(found.wrong.trace, Trace)
    assert str(found.wrong).startswith("this is not one correct training step\n  got:      ")
    lines = [line.strip() for line in str(found.wrong).splitlines()]
    lines[1] = lines[1].removeprefix("got:").strip()
    assert [line.strip() for fault in found.verdict.faults for line in fault.splitlines()] == lines[1:]


def kind(message: str) -> str:
    """A message without its numbers and without the lines of the student's: what it says to everybody."""
    lines = [line for line in message.splitlines() if "notebook cell, line" not in line and "[#" not in line]
    return re.sub(r"\d+|\{[^}]*\}", "N", "\n".join(lines))


def test_there_are_enough_mistakes_and_no_two_are_alike() -> None:
    assert len(CASES) >= 100
    assert len({name.partition("_")[0] for name in CASES}) == len(CASES), "numbers are distinct"
    assert len({name.partition("_")[2] for name in CASES}) == len(CASES), "names are distinct"
    kinds: dict[str, str] = {}
    for name, case in CASES.items():
        assert kinds.setdefault(kind(case.message), name) == name
    assert len({case.thought for case in CASES.values()}) == len(CASES)


def test_every_puzzle_has_mistakes() -> None:
    classic = {"basic", "grad_accum", "ddp", "wsdp", "fsdp", "pipeline", "gpipe", "pipeline_fsdp"}
    assert classic <= {case.puzzle for case in CASES.values()}


def test_every_error_that_a_student_can_meet_occurs() -> None:
    """All of lib.errors but those about files (TraceError), and PuzzleError itself, of which all others are."""
    tree = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)}
    met: set[type] = set()
    for name in CASES:
        found = outcome(name)
        met |= set() if found.error is None else {type(found.error)}
        met |= set() if found.wrong is None else {type(found.wrong)}
        met |= {NotSolved} if found.models is not None and not found.models else set()
    assert {cls for cls in tree if not issubclass(cls, TraceError)} - {PuzzleError} <= met


TALK = """
    if model.rank + 1 < model.RANKS:
        await model.pass_to(model.rank + 1, "a text, and no value")
    if model.rank:
        await model.receive(model.rank - 1)
"""


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.message.startswith("Correct, but")])
def test_ranks_that_talk_besides_are_told_why_a_goal_is_missed(name: str) -> None:
    """A message of text has no inputs and no outputs, and gives no advice anything to stumble over."""
    case = CASES[name]
    head = re.search(rf"^async def {case.puzzle}\(model.*:$", case.source, re.MULTILINE)
    if head is not None and case.puzzle is not None:
        at = head.end()
        assert run(replace(case, code=case.source[:at] + TALK + case.source[at:])).text
