"""grade: who passes and who does not, in classes of many; and that it comes out the same, however it was run."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from lib.files import child_environment
from lib.suite.grade import grading
from lib.suite.grade.gradebook import STATES
from lib.suite.grade.judging import judge_source
from lib.suite.grade.results import write_results
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.messages import Limits
from lib.suite.submissions.source import Source
from tests.suite.grade.classes import (
    ENDLESS,
    HARD_CODED,
    RAISES,
    STUB,
    WRONG,
    alternative,
    asked,
    graded,
    scores,
    solution,
)
from tests.suite.grade.intake.trees import folder as hand_in
from tests.suite.grade.isolation.attempts import Attempt
from tests.support.processes import descendants
from tests.support.profiles import examples, sample
from tests.support.variants import VARIANTS

CLASS = {
    "ana/ddp.py": solution("ddp"),
    "ben/ddp.py": alternative("ddp_sharded_update"),
    "cleo/ddp.py": HARD_CODED,
    "dan/ddp.py": STUB,
    "eva/ddp.py": WRONG,
    "fay/ddp.py": RAISES,
    "gus/fsdp.py": solution("fsdp"),
}


def test_each_gets_the_score_that_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # in a server of its own, which is gone afterwards
    book = graded(hand_in(tmp_path / "in", CLASS), tmp_path / "out", asked("ddp"))
    found = scores(book, "ddp")
    states = {name: (score.own.state, score.hidden_passed, score.state) for name, score in found.items()}
    assert states == {
        "ana": ("passed", 2, "passed"),
        "ben": ("missed", 2, "missed"),
        "cleo": ("passed", 0, "partly"),
        "dan": ("unsolved", 0, "unsolved"),
        "eva": ("failed", 0, "failed"),
        "fay": ("failed", 0, "failed"),
        "gus": ("unrelated", 0, "unrelated"),
    }
    assert "At 2 ranks, 3 layers, 2 batches" in found["cleo"].message
    assert "KeyError" in found["fay"].message
    assert found["ana"].own.schedule == book.asked[0].reference.schedule if book.asked[0].reference else False
    assert not book.passed
    assert grading._isolation()._server is None


def test_what_ends_nowhere_is_ended(tmp_path: Path) -> None:
    book = graded(hand_in(tmp_path / "in", {"ida/ddp.py": ENDLESS}), tmp_path / "out", asked("ddp", seconds=0.5))
    assert scores(book, "ddp")["ida"].state == "failed"
    assert "did not end within 0.5 seconds" in scores(book, "ddp")["ida"].message


def test_what_is_finished_is_not_done_again_and_gives_the_same(tmp_path: Path) -> None:
    folder = hand_in(tmp_path / "in", CLASS)
    first = graded(folder, tmp_path / "out", asked("ddp"))
    journal = tmp_path / "out" / "work" / "journal.jsonl"
    before = journal.read_bytes()
    assert graded(folder, tmp_path / "out", asked("ddp")) == first
    assert journal.read_bytes() == before
    journal.write_bytes(before[:-30])  # a line that was cut off
    assert graded(folder, tmp_path / "out", asked("ddp")) == first


# -- interrupted ---------------------------------------------------------------------------------------------------

STUDENTS = 12
GRADER = """
import sys
from pathlib import Path
from tests.suite.grade.classes import asked, graded
print("begun", flush=True)
graded(Path(sys.argv[1]), Path(sys.argv[2]), asked("ddp", hidden=1, seed=3), jobs=int(sys.argv[3]))
"""


def a_class(folder: Path) -> Path:
    """Students who all hand in something else."""
    kinds = [solution("ddp"), alternative("ddp_sharded_update"), HARD_CODED, STUB, WRONG, RAISES]
    files = {f"s{n:02d}/ddp.py": f"{kinds[n % len(kinds)]}\n# {n}\n" for n in range(STUDENTS)}
    return hand_in(folder, files)


def results(folder: Path, out: Path, jobs: int | None = None) -> dict[str, bytes]:
    """The bytes of all files that a grading leaves for others, and of all schedules."""
    book = graded(folder, out, asked("ddp", hidden=1, seed=3), jobs)
    write_results(book, out)
    files = [out / "scores.csv", out / "gradebook.json", *sorted((out / "work" / "traces").iterdir())]
    return {path.name: path.read_bytes() for path in files}


def lines(out: Path) -> list[dict[str, Any]]:
    """The journal's lines that are whole."""
    text = (out / "work" / "journal.jsonl").read_text("utf-8")
    return [cast("dict[str, Any]", json.loads(line)) for line in text.splitlines() if line.endswith("}")]


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_who_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = a_class(tmp_path / "in")
    whole = results(folder, tmp_path / "whole")
    out = tmp_path / "out"
    program = [sys.executable, "-c", GRADER, str(folder), str(out), "2"]
    with subprocess.Popen(program, env=child_environment(PUZZLES_PROGRESS="off"), stdout=subprocess.PIPE) as grader:
        journal = out / "work" / "journal.jsonl"
        deadline = time.monotonic() + 300
        while grader.poll() is None and time.monotonic() < deadline:
            if journal.exists() and journal.read_bytes().count(b"\n"):
                break
            time.sleep(0.01)
        under_way = descendants(grader.pid)
        grader.kill()
        grader.wait()
    finished = {line["key"] for line in lines(out)}
    assert finished
    deadline = time.monotonic() + 300
    while any(Path("/proc", str(one)).exists() for one in under_way) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [one for one in under_way if Path("/proc", str(one)).exists()] == []
    assert results(folder, out) == whole
    keys = [line["key"] for line in lines(out)]
    assert len(keys) == len(set(keys)) == STUDENTS
    assert not [path for path in out.rglob("*") if path.name.startswith(".")]


def test_one_process_or_two_give_the_same_bytes(tmp_path: Path) -> None:
    folder = a_class(tmp_path / "in")
    assert results(folder, tmp_path / "one") == results(folder, tmp_path / "two", jobs=2)


def test_what_was_not_handed_in_twice_is_run_once(tmp_path: Path) -> None:
    folder = hand_in(tmp_path / "in", {f"s{n}/ddp.py": solution("ddp") for n in range(5)})
    book = graded(folder, tmp_path / "out", asked("ddp"))
    assert book.passed
    assert len(lines(tmp_path / "out")) == 1


def test_code_is_run_once_for_all_who_write_the_same(isolation: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    def run(self: Isolation, source: Source, puzzle: str, **more: Any) -> Any:
        runs.append(source.name)
        return plainly(self, source, puzzle, **more)

    plainly = Isolation.run
    monkeypatch.setattr(Isolation, "run", run)
    (required,) = asked("ddp").required

    def judged(name: str, comment: str, text: str) -> Any:
        code = text.replace("\n    ", f"\n    # {comment}\n    ", 1)
        cells = f"# of {name}\nmine = {name!r}", code, f"def other(model:  # no Python, and {name}'s"
        numbered = tuple((f"in.ipynb, code cell {number}", cell) for number, cell in enumerate(cells, 1))
        return judge_source(Source(numbered, name="in.ipynb"), required, isolation, Limits())

    def forget() -> None:
        monkeypatch.setattr("lib.suite.grade.judging._ran_here", WeakKeyDictionary())
        runs.clear()

    for text in (solution("ddp"), RAISES):
        forget()
        first = judged("ana", "my own", text)
        once = len(runs)
        assert judged("ben", "what I think", text) == first
        assert len(runs) == once  # his is not run
        forget()
        assert judged("ben", "what I think", text) == first  # and gives the same where it is
        assert len(runs) == once
        judged("cleo", "more", text.replace("model", "mine"))
        assert len(runs) == 2 * once


def test_what_a_function_leaves_behind_reaches_nobody(tmp_path: Path) -> None:
    """Neither another function of the student, nor who has the same source as that one, and hears the same of it."""
    spoils = (
        "import lib.suite.isolation.running as running\n"
        "    run = running.simulate\n"
        "    def simulate(function, *, puzzle, **size):\n"
        "        if puzzle == 'ddp': raise RuntimeError('by another file')\n"
        "        return run(function, puzzle=puzzle, **size)\n"
        "    running.simulate = simulate\n"
        "    weights, opt_states"
    )
    spoiling = solution("grad_accum").replace("weights, opt_states", spoils, 1)
    files = {"ana/grad_accum.py": spoiling, "ana/ddp.py": solution("ddp"), "ben/ddp.py": solution("ddp")}
    book = graded(hand_in(tmp_path / "in", files), tmp_path / "out", asked("grad_accum", "ddp"))
    assert scores(book, "grad_accum")["ana"].state == "passed"
    assert {name: score.state for name, score in scores(book, "ddp").items()} == {"ana": "passed", "ben": "passed"}


def test_two_do_not_grade_into_one_folder(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    from lib.suite.grade.gradebook import Journal

    journal = Journal(tmp_path / "out" / "work" / "journal.jsonl")
    try:
        with pytest.raises(OSError, match="another process is grading into"):
            graded(a_class(tmp_path / "in"), tmp_path / "out", asked("ddp"))
    finally:
        journal.close()


def test_a_schedule_that_is_gone_is_made_again(tmp_path: Path) -> None:
    folder = hand_in(tmp_path / "in", {"ana/ddp.py": solution("ddp"), "ida/ddp.py": RAISES})
    first = graded(folder, tmp_path / "out", asked("ddp"))
    for path in (tmp_path / "out" / "work" / "traces").iterdir():
        path.unlink()
    assert graded(folder, tmp_path / "out", asked("ddp")) == first
    assert list((tmp_path / "out" / "work" / "traces").iterdir())


# -- whole classes -------------------------------------------------------------------------------------------------


def test_every_honest_solution_passes(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    some = sample(VARIANTS)
    for number, variant in enumerate(some):
        files[f"student {number:02d}/{variant.file}"] = variant.text()
        files |= {f"student {number:02d}/{path}": text for path, text in variant.modules}
    puzzles = dict.fromkeys(variant.puzzle for variant in some)
    book = graded(hand_in(tmp_path / "in", files), tmp_path / "out", asked(*puzzles, hidden=1, seed="spring"))
    for number, variant in enumerate(some):
        score = scores(book, variant.puzzle)[f"student {number:02d}"]
        assert score.state == "passed", f"{variant.name}: {score.message}"
    assert not book.refused


def test_a_run_that_is_made_to_be_long_is_not_checked(isolation: Isolation) -> None:
    """Its stores change so often that a check, and a picture, would take minutes."""
    forged = Attempt(
        "",
        """
        found = data(good)
        moves = found["programs"][0]
        for column in ("before", "store", "stored"):
            moves[column] = [moves[column][0]] * 20_000 + moves[column]
        forge(whole(found))
        """,
    ).text
    (required,) = asked("basic", hidden=0).required
    score, _ = judge_source(Source((("basic.py", forged),), name="basic.py"), required, isolation, Limits())
    assert score.state == "failed"
    assert "basic records 20,0" in score.message
    assert "changes of its stores" in score.message


LINES = st.lists(
    st.sampled_from([*HARD_CODED.splitlines(), "", "    ", "x = (", "return", "\ufeff", "def ddp(model):"])
)
TEXTS = st.one_of(
    st.text(max_size=200),
    LINES.map("\n".join),
    st.tuples(LINES, st.text(max_size=20)).map(
        lambda pair: "async def ddp(model):\n    " + "\n    ".join(pair[0]) + pair[1]
    ),
    st.integers(1, 3000).map(lambda depth: "def ddp(model):\n    return " + "(" * depth),
    st.integers(1, 3000).map(lambda depth: "def ddp(model):\n    return " + "-" * depth + "1"),
)


@examples(100, 8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_nothing_that_is_handed_in_crashes_the_grader(isolation: Isolation, text: str) -> None:
    (required,) = asked("ddp", hidden=0).required
    score, _ = judge_source(Source((("ddp.py", text),), name="ddp.py"), required, isolation, Limits(seconds=10.0))
    assert score.state in STATES
    assert score.state != "passed" or "allreduce" in text
    assert score.message
