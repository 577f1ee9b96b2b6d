"""What came of running one file or several: in words with a table at the end, or as one JSON document.

    {"format": "llm-training-puzzles run", "version": 1, "passed": false, "runs": [
        {"file": "03_ddp.py", "puzzle": "ddp", "state": "missed", "passed": false, "correct": true,
         "goals": [{"name": "passes", "time": 6.0, "memory": 2000000, "reached": false}, ...], "best": null,
         "time": 5.6, "memory": 2097152, "rank": 0, "sent": 786432, "faults": [], "notes": ["..."],
         "error": null, "printed": ""}]}

`passed` is what the exit status says. `state` is "passed", "missed" (correct, and no goal reached), "unsolved" or
"failed"; or, where there is no function to run, "renamed", "unreadable", "empty" or "unrelated". Where there is no
verdict, `error` says why, and `correct` is null. `faults` are what is wrong with a run, and `notes` what else is to be
said of it. Figures are those of a correct run: `memory` is the highest peak in elements, on `rank`, and `sent` the
elements sent by the rank that sends most. The answers of a plain function have none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from lib.analysis.figures import traffic
from lib.checker.verdict import Verdict
from lib.errors.exceptions import NotSolved
from lib.errors.wording import amount
from lib.suite.cli.console import rule, say, show_table
from lib.suite.course.subject import Attempt, Outcome

__all__ = ["as_json", "show"]

FORMAT = "llm-training-puzzles run"
VERSION = 1
COLOURS = {"passed": "green", "missed": "yellow", "unsolved": "yellow"}


def show(files: Sequence[str], attempts: Sequence[Attempt]) -> None:
    """What came of each file, and a table of all."""
    figures = (Column("time", justify="right"), Column("memory", justify="right"))
    table = Table(Column("file", overflow="fold"), "puzzle", "", "best goal reached", *figures)
    for file, found in zip(files, attempts, strict=True):
        rule(f"{found.puzzle} ({file})" if found.puzzle else file)
        if found.printed:
            say(found.printed.rstrip("\n"))
        say(str(NotSolved(found.puzzle or file)) if found.state == "unsolved" else found.text)
        verdict = _measured(found)
        measured = (
            ("", "", "") if verdict is None else (verdict.best or "none", f"{verdict.time:g}", amount(verdict.memory))
        )
        table.add_row(file, found.puzzle or "", Text(found.state, COLOURS.get(found.state, "red")), *measured)
    show_table(table)
    passed = sum(found.state == "passed" for found in attempts)
    say(f"{passed} of {len(attempts)} passed.")


def as_json(files: Sequence[str], attempts: Sequence[Attempt]) -> str:
    """All of it as JSON: see above."""
    passed = all(found.state == "passed" for found in attempts)
    runs = [_run(file, found) for file, found in zip(files, attempts, strict=True)]
    return json.dumps({"format": FORMAT, "version": VERSION, "passed": passed, "runs": runs}, indent=1)


def _run(file: str, found: Attempt) -> dict[str, Any]:
    outcome, verdict = found.outcome, _measured(found)
    right = outcome is not None and outcome.verdict.correct
    trace = outcome.run.trace if outcome is not None and outcome.run is not None else None
    return {
        "file": file,
        "puzzle": found.puzzle,
        "state": found.state,
        "passed": found.state == "passed",
        "correct": None if outcome is None else right,
        "goals": [] if outcome is None else _goals(outcome),
        "best": None if verdict is None else verdict.best,
        "time": None if verdict is None else verdict.time,
        "memory": None if verdict is None else _elements(verdict.memory),
        "rank": None if verdict is None else verdict.rank,
        "sent": None if trace is None or verdict is None else _elements(max(float(sent) for sent, _ in traffic(trace))),
        "faults": [] if outcome is None else list(outcome.verdict.faults),
        "notes": [] if outcome is None or not isinstance(outcome.verdict, Verdict) else list(outcome.verdict.notes),
        "error": _error(found),
        "printed": found.printed,
    }


def _goals(outcome: Outcome) -> list[dict[str, Any]]:
    """The goals, easiest first. No goal is reached by a run that is not correct."""
    verdict = outcome.verdict
    goals = verdict.goals if isinstance(verdict, Verdict) else ()
    return [goal._replace(reached=goal.reached and verdict.correct)._asdict() for goal in goals]


def _elements(number: float) -> float:
    """A number of elements, which is nearly always whole."""
    return int(number) if number == int(number) else number


def _measured(found: Attempt) -> Verdict | None:
    """The verdict on a correct run: that of any other has no figures to speak of."""
    verdict = None if found.outcome is None else found.outcome.verdict
    return verdict if isinstance(verdict, Verdict) and verdict.correct else None


def _error(found: Attempt) -> str | None:
    """Why there is no verdict."""
    if found.outcome is not None:
        return None
    return str(NotSolved(found.puzzle or "this")) if found.state == "unsolved" else found.text
