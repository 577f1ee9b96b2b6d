"""An autograder for Gradescope: the zip that it takes, and what runs in its container for each submission.

The zip has setup.sh and run_autograder at its root, as https://gradescope-autograders.readthedocs.io/en/latest/specs/
asks, beside them this package and grade.toml. Gradescope unpacks it into /autograder/source, puts what a student hands
in into /autograder/submission, and reads /autograder/results/results.json, which is written last of all. Another root,
for a trial without Gradescope, is said by AUTOGRADER, and another Python by PUZZLES_PYTHON.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from lib.errors.wording import visible
from lib.files import ROOT, ready, write_whole
from lib.puzzles.records import PUZZLES
from lib.suite.cli.grading.report import write_report
from lib.suite.cli.grading.schedules import Pictures, puzzles_of
from lib.suite.cli.grading.students import feedback_parts, head_text, part_text, unread_files
from lib.suite.grade.assignment import Config, read_config
from lib.suite.grade.gradebook import BY_HAND, Gradebook, Mark, Score, Traces
from lib.suite.grade.grading import TRACES, grade
from lib.suite.grade.intake.collecting import collect
from lib.suite.grade.intake.roster import DEADLINE, SUBMITTED
from lib.suite.grade.intake.submission import Collected, Submission
from lib.suite.submissions.locations import home

__all__ = ["autograder", "run"]

LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)
ENDINGS: Final = (".py", ".toml", ".json", ".css", ".js", ".html")
LEFT_OUT: Final = ("lib/_notebooks", "lib/replay", "__pycache__")
LIBRARIES: Final = "chalk-diagrams>=0.2.2,<0.3 jinja2>=3.1,<4 joblib>=1.4,<2 nbformat>=5.10,<6 pyseccomp typer rich"
"""Packages that pip installs when the image is built; Gradescope allows a network there."""
SETUP: Final = f"""\
#!/usr/bin/env bash
# Runs once, when Gradescope builds the image. The package needs Python 3.11, and Ubuntu 22.04 has 3.10.
set -euo pipefail
root="${{AUTOGRADER:-/autograder}}"
python=python3
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    apt-get update
    apt-get install -y python3.11 python3.11-venv
    python=python3.11
fi
if ! "$python" -m venv "$root/python"; then
    apt-get update
    apt-get install -y python3-venv
    "$python" -m venv "$root/python"
fi
echo '{LIBRARIES}' | xargs "$root/python/bin/pip" install --quiet
"""
RUN: Final = """\
#!/usr/bin/env bash
# Runs for each submission.
root="${AUTOGRADER:-/autograder}"
cd "$root/source/package"
exec "${PUZZLES_PYTHON:-$root/python/bin/python}" -m lib.suite.cli.grading.autograder "$root"
"""
METADATA: Final = "submission_metadata.json"


def autograder(puzzles: list[str], config: Path | None, output: Path) -> Path:
    """Write the zip for an exercise: the puzzles that are named, else those of the file. AssignmentError for what
    cannot be asked. The same bytes every time."""
    asked = Config() if config is None else read_config(config)
    asked.with_options(puzzles=puzzles).assignment(())
    text = "" if config is None else config.read_text("utf-8")
    files: dict[str, bytes] = {
        "setup.sh": SETUP.encode(),
        "run_autograder": RUN.encode(),
        "grade.toml": text.encode(),
        "puzzles.json": json.dumps(puzzles or asked.puzzles or [*PUZZLES]).encode(),
        **{f"package/{name}": data for name, data in _package()},
    }
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, LONG_AGO)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o755 if data.startswith(b"#!") else 0o644) << 16
            archive.writestr(info, data)
    write_whole(ready(output), held.getvalue())
    return output


def _package() -> Iterator[tuple[str, bytes]]:
    """The files of this package that a grader needs, by their paths: as a wheel has them."""
    for folder, root, to in (
        (ROOT / "lib", ROOT, ""),
        (ROOT / "drawing", ROOT, ""),
        (home() / "solutions", home(), "lib/_notebooks/"),
    ):
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in ENDINGS and not any(part in name for part in LEFT_OUT):
                yield f"{to}{name}", path.read_bytes()


# -- in the container -------------------------------------------------------------------------------------------


def run(root: Path) -> Path:
    """Grade what is in `root`/submission, and writes `root`/results/results.json."""
    source, work = root / "source", root / "work"
    config = read_config(source / "grade.toml")
    puzzles = cast("list[str]", json.loads((source / "puzzles.json").read_text("utf-8")))
    assignment = config.with_options(puzzles=puzzles).assignment()
    book = grade(_one(collect([root / "submission"]), _metadata(root)), assignment, work)
    traces = Traces(work / TRACES)
    write_report(book, traces, work / "report", tell_sizes=assignment.tell_sizes)
    pictures = Pictures(work / "report" / "pictures", traces)
    by_hand = {one.puzzle: assignment.rules.weights(one.puzzle).get(BY_HAND, 0.0) for one in book.asked}
    path = root / "results" / "results.json"
    results = _results(book, pictures, assignment.tell_sizes, by_hand)
    write_whole(ready(path), json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    print(f"What kept each run apart: {', '.join(book.isolation) or 'nothing ran'}")  # the instructor reads this
    return path


def _one(collected: Collected, more: tuple[tuple[str, str], ...]) -> Collected:
    """All that there is as one student's, whatever its files are called."""
    files = tuple(file for one in collected.submissions for file in one.files)
    notes = tuple(note for one in collected.submissions for note in one.notes)
    name = "Your submission"
    refused = tuple(replace(one, student=name) for one in collected.refused)
    return Collected((Submission(name, files, notes, more=more),), refused, collected.notes)


def _metadata(root: Path) -> tuple[tuple[str, str], ...]:
    """The times at which it was handed in and is due, from the file that Gradescope writes, if there is one."""
    try:
        data: Any = json.loads((root / METADATA).read_text("utf-8"))
        said = {SUBMITTED[0]: data["created_at"], DEADLINE: data["assignment"]["due_date"]}
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return tuple((name, text) for name, text in said.items() if isinstance(text, str))


def _results(book: Gradebook, pictures: Pictures, tell_sizes: bool, by_hand: dict[str, float]) -> dict[str, Any]:
    """The data for Gradescope: points of each puzzle, less those that a person gives there, and the leaderboard."""
    (student,) = book.students
    unread = unread_files(book.refused_of(student))
    parts = list(feedback_parts(student, puzzles_of(book), pictures, tell_sizes))
    tests: list[dict[str, Any]] = []
    board: list[dict[str, Any]] = []
    for asked, score, mark, part in zip(book.asked, student.scores, student.marks, parts, strict=True):
        tests.append(
            _test(f"{asked.number}. {asked.title}", score, mark, by_hand[asked.puzzle], _text(part_text(part)))
        )
        figures = {"time": score.own.time, "memory": score.own.memory} if score.state == "passed" else {}
        board += [
            {"name": f"{asked.puzzle} {name}", "value": value, "order": "asc"}
            for name, value in figures.items()
            if value is not None
        ]
    return {
        "score": round(sum(test["score"] for test in tests), 4),
        "output": _text(head_text(student, unread)),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
        "leaderboard": board,
        "extra_data": {"made_by": book.made_by, "isolation": list(book.isolation)},
    }


def _text(lines: Iterable[str]) -> str:
    return "\n".join(map(visible, lines))


def _test(name: str, score: Score, mark: Mark, by_hand: float, words: str) -> dict[str, Any]:
    return {
        "name": name,
        "score": mark.points,
        "max_score": round(mark.of - by_hand, 4),
        "status": "passed" if score.state == "passed" else "failed",
        "output": words,
        "output_format": "text",
        "visibility": "visible",
    }


if __name__ == "__main__":
    run(Path(sys.argv[1]))
