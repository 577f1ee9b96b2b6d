"""A student's function in a process of its own: whatever it does, we hear what came of it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lib import PuzzleError, Trace, simulate
from lib.puzzles.puzzle import Size
from lib.suite.course.progress import Standing, known
from lib.suite.course.subject import attempt
from lib.suite.isolation.isolation import run_of
from lib.suite.isolation.messages import MAX_PRINTED, Limits, Request, read
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from tests.support.functions import run, wrong
from tests.support.version_1 import encode

pytestmark = pytest.mark.usefixtures("warm")
HEAD = "from lib import Model, NotSolved\nimport os\n\n\n"


@pytest.fixture
def write(tmp_path: Path, file: Path) -> Path:
    return tmp_path / "01_basic.py"


def tried(path: Path, body: str, limit: float = 30) -> tuple[str, str, str]:
    path.write_text(f"{HEAD}def basic(model):\n    {body}\n", "utf-8")
    found = attempt(path, "basic", limit)
    assert found.puzzle == "basic"
    return found.state, found.text(), found.printed


def test_what_is_no_training_step_fails_with_its_verdict(write: Path) -> None:
    state, text, printed = tried(write, "print('here'); model.get_activation([0])")
    assert state == "failed"
    assert text.startswith("Not one correct training step.")
    assert printed == "here\n"
    assert known() == {"basic": Standing(runs=1)}


def test_a_loop_that_never_ends_is_stopped_and_located(write: Path) -> None:
    state, text, printed = tried(write, "print('before')\n    while True:\n        model.rank", limit=0.5)
    assert state == "failed"
    assert text.startswith("basic did not end within 0.5 seconds, so it was stopped\n")
    assert "where:    01_basic.py, line 7, in basic: while True:" in text or "line 8, in basic: model.rank" in text
    assert printed == "before\n"


def test_one_long_operation_is_stopped_from_outside(write: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.suite.isolation.isolation.GRACE", -0.1)  # sooner than it can say itself where it is
    state, text, _ = tried(write, "sum(range(10**13))", limit=0.4)
    assert (state, text.splitlines()[0]) == ("failed", "basic did not end within 0.4 seconds, so it was stopped")


def test_a_fresh_python_says_what_one_that_is_forked_says(write: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others here are forked, which is faster."""
    bodies = ("print('here'); model.get_activation([0])", "os._exit(4)")
    forked = [tried(write, body) for body in bodies]
    monkeypatch.setattr("lib.suite.isolation.isolation.Popen", subprocess.Popen)
    assert [tried(write, body) for body in bodies] == forked


def test_what_it_prints_is_kept_up_to_a_limit(write: Path) -> None:
    state, _, printed = tried(write, "for n in range(10**5): print('all work and no play', n)")
    assert state == "failed"
    assert printed.startswith("all work and no play 0\n")
    assert printed.endswith("(and more)")
    assert len(printed) < MAX_PRINTED + 20


def test_a_file_called_as_a_module_of_pythons_is_in_nobodys_way(write: Path) -> None:
    for name in ("random", "json", "lib"):
        (write.parent / f"{name}.py").write_text("raise RuntimeError\n", "utf-8")
    write.write_text("def basic(model):\n    model.get_activation([0])\n", "utf-8")
    assert attempt(write, "basic", 30).text().startswith("Not one correct training step.")


def test_a_file_that_is_gone(file: Path, tmp_path: Path) -> None:
    found = attempt(tmp_path / "01_basic.ipynb", "basic", 30)
    assert (found.state, found.text()) == ("failed", f"there is no file {tmp_path / '01_basic.ipynb'}")


FORGED = encode(Trace.of(run(wrong)))
"""A run of the puzzle's size that is no training step, as data."""
EVENTS = len(FORGED["programs"][0]["events"])
WHOLE = {"outcome": "trace", "text": "", "printed": "", "answers": [], "places": [], "lines": []}


def whole(trace: object = None, **changes: object) -> str:
    return f"{json.dumps(trace)}\n{json.dumps({**WHOLE, **changes})}"


def forge(write: Path, code: str) -> tuple[str, str]:
    """What comes of a function that writes the result itself, and ends Python before ours is written."""
    body = f"""results = [fd for fd in range(3, 64) if os.path.exists(f'/proc/self/fd/{{fd}}')]
    for result in results:
        try: {code}
        except OSError: pass
    os._exit(0)"""
    return tried(write, body)[:2]


@pytest.mark.parametrize(
    "result",
    [
        *("", "[]", "{", '{"state": "passed"}', json.dumps(WHOLE), '{"outcome": NaN}', whole(), whole([])),
        *(whole(outcome=odd) for odd in ("passed", "answers", ["trace"])),
        *(whole(outcome="unsolved", answers=3), whole(answers=[[1]])),
        *(whole(more=1), whole(text=1), whole(printed="x" * 10**5)),
        whole({"format": "llm-training-puzzles trace"}),
        *(whole(FORGED, lines=odd) for odd in (3, [[]], [[0] * EVENTS], [[-2] * EVENTS], [["0"] * EVENTS])),
        whole(FORGED, places=[["a.py", "3", "f", "x"]], lines=[[0] * EVENTS]),
        "[" * 10**5 + "\n" + json.dumps(WHOLE),
        "null\n" + "[" * 10**5,
        "null\n" + json.dumps(WHOLE).replace('""', "NaN", 1),
    ],
)
def test_a_forged_result_is_none(result: str) -> None:
    assert read(result.encode(), Request("basic", Limits())) is None


@pytest.mark.skipif(sys.platform != "linux", reason="it looks for open files in /proc")
@pytest.mark.parametrize(
    "code",
    [
        "os.write(result, b'[' * 10**5)",
        "os.write(result, bytes([255]))",
        "os.truncate(result, 400 * 2**20)",
        "os.close(result)",
        "os.lseek(result, 2**40, 0); os.write(result, b'x')",
    ],
)
def test_a_result_that_is_no_answer_is_none(write: Path, code: str) -> None:
    assert forge(write, code) == ("failed", "basic ended Python itself (exit status 0)")
    assert known() == {}


def test_a_trace_that_says_that_it_is_right_is_judged_here(write: Path) -> None:
    """Whatever it is called: an empty run at the puzzle's size, with figures that would reach every goal."""
    forged = whole(FORGED, lines=[[-1] * len(program["events"]) for program in FORGED["programs"]])
    state, text = forge(write, f"os.write(result, {forged.encode()!r})")
    assert (state, text.splitlines()[0]) == ("failed", "Not one correct training step.")
    assert known() == {"basic": Standing(runs=1)}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork there")
def test_what_it_starts_ends_with_it(write: Path, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    code = f"import time\n    if os.fork() == 0: time.sleep(0.4); open({str(sign)!r}, 'w').close(); os._exit(0)"
    assert tried(write, code)[0] == "failed"
    time.sleep(0.8)
    assert not sign.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such limit")
def test_memory_has_a_limit(write: Path) -> None:
    state, text, _ = tried(write, "bytearray(2**34)")
    assert state == "failed"
    assert "MemoryError" in text


def test_a_run_of_another_size_and_a_run_that_fails_come_back_as_traces(write: Path) -> None:
    write.write_text(reference("basic").read_text("utf-8"), "utf-8")
    sent = run_of(write, "basic", layers=3, batches=2)
    assert sent.outcome == "trace"
    assert sent.trace is not None
    assert Size.of(sent.trace) == (1, 3, 2)
    write.write_text(f"{HEAD}def basic(model):\n    model.load_weights(0)\n    model.loss(3)\n", "utf-8")
    sent = run_of(write, "basic")
    assert (sent.outcome, sent.answers) == ("failed", ())
    assert sent.trace is not None
    assert sent.trace.error == sent.text
    with pytest.raises(PuzzleError) as caught:
        simulate(load_function(write, "basic"), puzzle="basic")
    assert str(caught.value) == sent.text
    assert caught.value.trace.text() == sent.trace.text()
