"""Students' functions in limited children: what comes back, and that nothing is left behind."""

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from lib import check
from lib.files import ROOT
from lib.puzzles.puzzle import AtSize, Size
from lib.puzzles.records import PUZZLES
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.messages import Limits, asked_for
from lib.suite.submissions.locations import reference
from lib.suite.submissions.source import Source


def solution(puzzle: str) -> Source:
    return Source.of("mine.py", reference(puzzle).read_text("utf-8"))


def source(body: str, puzzle: str = "basic") -> Source:
    return Source.of("mine.py", f"from lib import Model, NotSolved\nimport os\n\n\ndef {puzzle}(model):\n    {body}\n")


@pytest.mark.parametrize("puzzle", ["basic", "ddp"])
def test_a_solution_comes_back_as_a_trace_at_any_size(isolation: Isolation, puzzle: str) -> None:
    sent = isolation.run(solution(puzzle), puzzle)
    assert sent.outcome == "trace", sent.text
    assert sent.trace is not None
    assert check(sent.trace, puzzle).passed
    for size in PUZZLES[puzzle].hidden:
        sent = isolation.run(solution(puzzle), puzzle, size)
        assert sent.trace is not None
        assert Size.of(sent.trace) == size[:3]
        assert check(sent.trace).correct
        assert asked_for(sent.trace, puzzle, size) is None
        assert asked_for(sent.trace, puzzle) is not None


def test_what_does_not_end_is_ended_and_located(isolation: Isolation) -> None:
    sent = isolation.run(source("while True: pass"), "basic", limits=Limits(seconds=1))
    assert sent.outcome == "failed"
    assert "mine.py, line 6, in basic: while True: pass" in sent.text
    sent = isolation.run(source("sum(range(10**13))"), "basic", limits=Limits(seconds=1))
    assert "basic did not end within 1 seconds, so it was stopped\n  where:    mine.py, line 6, in basic" in sent.text
    assert isolation.run(solution("basic"), "basic").outcome == "trace"


def test_parts_that_every_rank_has_to_refuse_are_tried(isolation: Isolation) -> None:
    """And a mistake in a helper of the notebook is shown at the line that calls it."""
    text = reference("neighborhood_attention").read_text("utf-8")
    for old, new, said in (
        (
            "if len(parts) > 1 and (min(parts) < 3 or",
            "if high - low == 1 and (min(parts) < 3 or",
            "only rank 2 refused",
        ),
        ("        take_back(model, 2, b)\n", "        take_back(model, 0, b)\n", "attention: take_back(model, 0, b)"),
    ):
        assert text.count(old) == 1
        sent = isolation.run(Source.of("mine.py", text.replace(old, new)), "neighborhood_attention")
        assert sent.outcome == "failed"
        assert said in sent.text


@pytest.mark.parametrize("puzzle", ["checkpointing", "uneven"])
def test_schedules_that_an_answer_is_given_are_given_and_no_others(isolation: Isolation, puzzle: str) -> None:
    sent = isolation.run(solution(puzzle), puzzle)
    assert sent.outcome == "trace", sent.text
    body = "from lib.schedules.pipelines.generators import gpipe; gpipe(4, 4)"
    sent = isolation.run(source(body, puzzle), puzzle)
    assert "lib.schedules.pipelines.generators.gpipe is ours, and does not count as yours" in sent.text


def test_a_function_builds_on_the_solutions_below_it_and_answers(isolation: Isolation) -> None:
    text = (
        "from lib.suite.submissions.function_check import solution_of\n"
        "def process_map(*given): return solution_of('local_devices')(*given)\n"
    )
    given = [(((0, 1), (2, 3)),), 2, 0]
    sent = isolation.answers(Source.of("mine.py", text), "process_map", [tuple(given)])
    assert sent.outcome == "answers", sent.text
    sent = isolation.answers(
        Source.of("mine.py", text.replace("def process_map", "def local_devices")), "local_devices", [tuple(given)]
    )
    assert 'solution_of("local_devices") is' in sent.text


def test_it_is_the_same_where_the_package_lies_in_a_folder_for_temporary_files(
    isolation: Isolation, tmp_path: Path
) -> None:
    for name in ("lib", "drawing"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    asks = "import lib; from lib.suite.isolation.isolation import Isolation; print(lib.__file__, Isolation().features)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", asks], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"{tmp_path / 'lib' / '__init__.py'} {isolation.features}\n", done.stderr


def test_who_is_interrupted_hears_no_answer_to_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    with Isolation() as isolation:
        assert isolation.run(solution("basic"), "basic").outcome == "trace"
        if isolation.features == ("a new Python for each run",):
            pytest.skip("there is no server here")
        with monkeypatch.context() as patch:
            patch.setattr("lib.suite.isolation.isolation._Child.answer", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                isolation.run(solution("ddp"), "ddp")
        sent = isolation.run(source("print('this'); model.get_activation([0])"), "basic")
        assert (sent.outcome, sent.printed) == ("trace", "this\n")


def test_sizes_that_are_asked_together_do_not_know_of_each_other(isolation: Isolation) -> None:
    text = reference("basic").read_text("utf-8")
    counting = text.replace("def basic(model", "SEEN = []\n\n\ndef basic(model").replace(
        "model.storage()", "model.storage()\n    SEEN.append(1)\n    assert len(SEEN) == 1, 'asked before'"
    )
    assert counting.count("asked before") == 1
    mine = Source.of("mine.py", counting)
    with isolation.one_after_another():
        for size in [None, AtSize(1, 3, 2), AtSize(1, 1, 1)]:
            sent = isolation.run(mine, "basic", size)
            assert sent.outcome == "trace", sent.text
            assert sent.trace is not None
            assert asked_for(sent.trace, "basic", size) is None


def test_a_child_that_ends_or_says_more_than_it_was_asked_answers_nothing_else(isolation: Isolation) -> None:
    text = reference("basic").read_text("utf-8")
    ended = text.replace("model.storage()", "model.storage()\n    if model.LAYERS == 3: __import__('os')._exit(0)")
    forged = text.replace(
        "model.storage()",
        "model.storage()\n    import threading, time, os, socket\n"
        "    def forge():\n        time.sleep(0.3)\n"
        "        for fd in range(3, 30):\n"
        "            try: os.write(fd, b'null\\n{}\\n')\n"
        "            except OSError: pass\n"
        "    threading.Thread(target=forge).start()",
    )
    for changed, outcomes in ((ended, ["trace", "failed", "trace"]), (forged, ["trace", "trace", "trace"])):
        mine = Source.of("mine.py", changed)
        with isolation.one_after_another():
            found = list[str]()
            for size in [None, AtSize(1, 3, 2), AtSize(1, 1, 1)]:
                found.append(isolation.run(mine, "basic", size).outcome)
                if changed is forged and isolation._server is not None and isolation._server._child is not None:
                    select.select([isolation._server._child.link], [], [], 60)  # until it has said more
        assert found == outcomes


def test_a_plan_is_not_found_by_our_search(isolation: Isolation) -> None:
    """Nor does the import of what else is ours of plans fail."""
    text = (
        "def plan_gpt3():\n"
        "    from lib.plan import CLUSTERS, MODELS, Plan, search\n"
        '    return search(MODELS["gpt3-175b"], CLUSTERS["a100"], Plan(64, 64)).candidates[0].plan\n'
    )
    sent = isolation.answers(Source.of("mine.py", text), "plan_gpt3", [()])
    assert "lib.plan.candidates.search is ours, and does not count as yours" in sent.text
    sent = isolation.answers(
        Source.of("mine.py", "def plan_gpt3():\n    from lib.plan import Plan\n    return Plan(64, 64, tp=8)\n"),
        "plan_gpt3",
        [()],
    )
    assert sent.answers[0].value["tp"] == 8
