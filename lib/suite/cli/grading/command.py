"""`puzzles grade`: turns submissions into a gradebook and a report; and makes a zip that does so on Gradescope."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from lib.errors.wording import counted, visible
from lib.extras import need_extra
from lib.files import ROOT, ready, write_whole, zipped
from lib.puzzles.records import PUZZLES
from lib.suite.cli import console as options
from lib.suite.cli.console import argument, fail, numbers, option, progress, say, show_table
from lib.suite.course.exports import files_below
from lib.suite.grade.assignment import NEEDS, Assignment, AssignmentError, Config, read_config
from lib.suite.grade.gradebook import BY_HAND, Gradebook, Traces
from lib.suite.grade.grading import TRACES, grade, worked_on
from lib.suite.grade.intake import roster as tables
from lib.suite.grade.intake.collecting import collect
from lib.suite.grade.intake.submission import Collected, Submission
from lib.suite.grade.results import write_feedback, write_points, write_results
from lib.suite.submissions.locations import home
from lib.suite.submissions.source import STATES

SHOWN: Final = 40  # most students, and refused files, in the terminal's table


def grade_(
    submissions: Annotated[list[Path], argument("WHAT...", "Folders, archives (.zip, .tar.gz), notebooks, .py.")],
    out: Annotated[Path, option("The folder for the gradebook and the report.", "--out", "-o")] = Path("report"),
    config: Annotated[Path | None, option("What is asked, as TOML; options go before it.")] = None,
    puzzle: Annotated[
        list[str] | None, option("A puzzle that is asked, or several; else what is there.", "--puzzle", "-p")
    ] = None,
    need: Annotated[str | None, option(f"What counts as passed: {', '.join(NEEDS)}, or a goal's name.")] = None,
    hidden: Annotated[int | None, option("So many hidden sizes are drawn for each puzzle.")] = None,
    seed: Annotated[str | None, option("What they are drawn from: keep it to yourself.")] = None,
    roster: Annotated[
        Path | None, option("Everybody in the class: a CSV with id and name, or a platform's export.")
    ] = None,
    points: Annotated[
        str | None, option('Points of each puzzle, such as "correct=4 hidden=2"; else one that passed.')
    ] = None,
    marks: Annotated[
        list[Path] | None, option("A CSV of points and comments by hand, or several; written if missing.")
    ] = None,
    column: Annotated[
        str | None, option("The column of the roster for points: upload.csv is the roster with it.")
    ] = None,
    limit: Annotated[float | None, option("Seconds that one run may take.", min=0.1)] = None,
    jobs: options.Jobs = -1,
) -> None:
    """Grade a class: every student's function, at the puzzle's size and at hidden ones, each run shut in by itself.

    In the folder are then scores.csv, gradebook.json and the report, index.html. Stopped and started again
    it goes on where it was. Exit status: 0 where every student passed everything, 1 where one did not, and 2 for a
    command that makes no sense.
    """
    need_extra("grade", "puzzles grade needs")
    _apart(submissions, out)
    # Report whatever makes no sense before anything runs.
    try:
        config_ = Config() if config is None else read_config(config)
        config_ = config_.with_options(
            puzzles=puzzle or (), need=need, hidden=hidden, seed=seed, seconds=limit, points=points
        )
        config_.assignment(config_.puzzles or ())
        listed = tables.Roster() if roster is None else tables.read_roster(roster)
        by_person = [path for path in marks or () if path.exists()]
        for path in by_person:
            tables.read_table(path)
        if column is not None and column not in listed.headings:
            there = ", ".join(listed.headings) or "no roster: name it with --roster"
            raise tables.TableError(f"--column {column}: the roster has no such column\n  got: {there}")
        collected, problems = _collected(submissions, listed, config_)
        assignment = config_.assignment(worked_on(collected) if config_.puzzles is None else config_.puzzles)
    except (AssignmentError, tables.TableError) as error:
        fail(str(error), status=2)
    except OSError as error:
        fail(f"{error.filename} cannot be read: {error.strerror}", status=2)
    if not assignment.required:
        fail("nobody has handed in the function of a puzzle: name those that are asked with --puzzle", status=2)
    # Not above: it draws, and importing that would take half of any command's start.
    from lib.suite.cli.grading.report import LEADERBOARD, write_report

    try:
        with progress("Grading") as done:
            book = replace(grade(collected, assignment, out, jobs=jobs, done=done), problems=problems)
        try:
            book = tables.by_hand(book, by_person, assignment.rules)
        except (tables.TableError, OSError) as error:  # a table without the columns of marks
            book = replace(book, problems=(*problems, f"no marks by hand are used: {error}"))
        results = write_results(book, out)
        with progress("Drawing") as done:
            traces = Traces(out / TRACES)
            index = write_report(book, traces, out, jobs=jobs, tell_sizes=assignment.tell_sizes, done=done)
    except KeyboardInterrupt:
        say("Stopped. What is finished is kept: the same command goes on from there.")
        raise typer.Exit(130) from None
    _show(book, results)
    given = None if column is None else write_points(book, listed, column, out)
    for path in filter(None, (given, write_feedback(book, collected, out))):
        say(visible(f"To upload: {path}"))
    for path in marks or ():
        if path not in by_person:
            tables.to_fill_in(book, path)
            say(visible(f"To fill in: {path}, which the next run reads and never changes"))
    say(visible(f"To show to the class: {out / LEADERBOARD}"))
    say(visible(f"The report: {index}"))
    raise typer.Exit(0 if book.passed else 1)


def _apart(submissions: list[Path], out: Path) -> None:
    """Refuse a report among the submissions, or submissions in the report."""
    where = out.resolve()
    if out.exists() and not out.is_dir():
        fail(f"{out} is a file: --out names the folder for the report", status=2)
    for path in submissions:
        if not path.exists():
            if re.match(r"\w+:/", str(path)):
                fail(f"{path} is an address: download it, and name the file", status=2)
            fail(f"there is nothing at {path}: name a folder, an archive, a notebook or a .py", status=2)
        given = path.resolve()
        if where == given or given in where.parents or where in given.parents:
            fail(f"{out} and {path} lie in each other: keep the report apart, with --out", status=2)


def _collected(paths: Sequence[Path], roster: tables.Roster, config: Config) -> tuple[Collected, tuple[str, ...]]:
    """What was handed in, with everybody in the roster, and the problems in the class's files."""
    collected, problems = collect(paths), tuple[str, ...]()
    if not collected.submissions:
        first, *others = [f"; there is {one.file}" for one in collected.refused] or [""]
        more = f", and {counted(len(others), 'file')} more that cannot be graded" if others else ""
        fail(f"there is no notebook (.ipynb) and no .py in {', '.join(map(str, paths))}{first}{more}", status=2)
    if roster.people:
        collected, problems = tables.enrolled(collected, roster)
    known = {name for one in collected.submissions for name in (one.roster_id, one.id, one.student) if name}
    unknown = [one for one in config.rules.extensions if one not in known]
    strangers = (f"[extension] {one!r}: no student has that id or name" for one in unknown)
    return collected, (*roster.problems, *problems, *strangers)


def _show(book: Gradebook, results: Sequence[Path]) -> None:
    """Show the class in a table, what is refused, and where the rest is."""
    from rich.table import Table

    there = {score.state for student in book.students for score in student.scores}
    states = [state for state in STATES if state in there or STATES[state].judged]
    title = visible(f"{book.title and book.title + ': '}{counted(len(book.students), 'student')}")
    table = Table("puzzle", *numbers(*states, "hidden sizes"), title=title)
    for position, asked in enumerate(book.asked):
        have = Counter(student.scores[position].state for student in book.students)
        table.add_row(asked.puzzle, *(str(have[state] or "") for state in states), str(len(asked.hidden) or "none"))
    show_table(table)
    refused = [f"{one.file}: {one.why}" for one in book.refused]
    for label, lines in (("Refused", refused), ("To look at", book.problems)):
        for line in lines[:SHOWN]:
            say(visible(f"{label}: {line}"))
        if len(lines) > SHOWN:
            say(f"{label}: {len(lines) - SHOWN} more; the report has them all")
    say(f"What kept each run apart: {', '.join(book.isolation) or 'nothing ran'}")
    say(f"For programs: {', '.join(map(str, results))}")


# -- an autograder for Gradescope -----------------------------------------------------------------------------------

# The zip has setup.sh and run_autograder at its root, as https://gradescope-autograders.readthedocs.io/en/latest/specs/
# asks, and beside them this package and grade.toml. Gradescope unpacks it into /autograder/source, puts a submission
# into /autograder/submission, and reads /autograder/results/results.json, which is written last.
# To try it without Gradescope, set another root in AUTOGRADER, and another Python in PUZZLES_PYTHON.

TEMPLATES: Final = Path(__file__).parents[1] / "templates"
LEFT_OUT: Final = ("lib/_notebooks/", "lib/replay/")


def autograder(puzzles: list[str], config: Path | None, output: Path) -> Path:
    """Write the zip for an exercise, the same bytes every time: the named puzzles, else those of the file.
    AssignmentError for impossible requirements."""
    asked = Config() if config is None else read_config(config)
    asked.with_options(puzzles=puzzles).assignment(())
    files: dict[str, bytes] = {
        **{name: (TEMPLATES / name).read_bytes() for name in ("setup.sh", "run_autograder")},
        "grade.toml": b"" if config is None else config.read_text("utf-8").encode(),
        "puzzles.json": json.dumps(puzzles or asked.puzzles or [*PUZZLES]).encode(),
    }
    # This package, like a wheel, without what a grader does not need.
    code = files_below(ROOT, "lib") | files_below(ROOT, "drawing")
    files |= {f"package/{name}": data for name, data in code.items() if not name.startswith(LEFT_OUT)}
    solutions = files_below(home(), "solutions")
    files |= {f"package/lib/_notebooks/{name}": data for name, data in solutions.items()}
    write_whole(ready(output), zipped(files))
    return output


def in_container(root: Path) -> None:
    """Grade `root`/submission, and write `root`/results/results.json."""
    from lib.suite.cli.grading.report import write_report

    source, work = root / "source", root / "work"
    config = read_config(source / "grade.toml")
    puzzles = cast("list[str]", json.loads((source / "puzzles.json").read_text("utf-8")))
    assignment = config.with_options(puzzles=puzzles).assignment()
    collected = collect([root / "submission"])
    # All files are one student's, whatever their names.
    files = tuple(file for one in collected.submissions for file in one.files)
    notes = tuple(note for one in collected.submissions for note in one.notes)
    mine = Submission("Your submission", files, notes, more=_times(root / "submission_metadata.json"))
    refused = tuple(replace(one, student=mine.student) for one in collected.refused)
    book = grade(Collected((mine,), refused, collected.notes), assignment, work)
    traces = Traces(work / TRACES)
    write_report(book, traces, work / "report", tell_sizes=assignment.tell_sizes)
    results = _results(book, traces, work / "report" / "pictures", assignment)
    write_whole(ready(root / "results" / "results.json"), json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    print(f"What kept each run apart: {', '.join(book.isolation) or 'nothing ran'}")  # the instructor reads this


def _times(metadata: Path) -> tuple[tuple[str, str], ...]:
    """The times of submission and deadline, from the file that Gradescope writes, if there is one."""
    try:
        data: Any = json.loads(metadata.read_text("utf-8"))
        said = {tables.SUBMITTED[0]: data["created_at"], tables.DEADLINE: data["assignment"]["due_date"]}
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return tuple((name, text) for name, text in said.items() if isinstance(text, str))


def _results(book: Gradebook, traces: Traces, folder: Path, assignment: Assignment) -> dict[str, Any]:
    """The data for Gradescope: each puzzle's points, without those that a person gives there, and the leaderboard."""
    from lib.suite.cli.grading.report import part_of, text_of, unread_files
    from lib.suite.cli.grading.schedules import Pictures, puzzles_of

    def text(output: str) -> dict[str, Any]:
        return {"output": output, "output_format": "text", "visibility": "visible"}

    (student,) = book.students
    pictures = Pictures(folder, traces)
    tests, board = list[dict[str, Any]](), list[dict[str, Any]]()
    for puzzle, score, mark in zip(puzzles_of(book), student.scores, student.marks, strict=True):
        asked, passed = puzzle.asked, score.state == "passed"
        part = part_of(student, puzzle, pictures, tell_sizes=assignment.tell_sizes)
        most = round(mark.of - assignment.rules.weights(asked.puzzle).get(BY_HAND, 0.0), 4)
        test = {"name": f"{asked.number}. {asked.title}", "score": mark.points, "max_score": most}
        tests.append({**test, "status": "passed" if passed else "failed", **text(text_of(part=part))})
        for name, value in (("time", score.own.time), ("memory", score.own.memory)) if passed else ():
            if value is not None:
                board.append({"name": f"{asked.puzzle} {name}", "value": value, "order": "asc"})
    return {
        "score": round(sum(test["score"] for test in tests), 4),
        **text(text_of(student=student, unread=unread_files(book.refused_of(student)))),
        "stdout_visibility": "hidden",
        "tests": tests,
        "leaderboard": board,
        "extra_data": {"made_by": book.made_by, "isolation": list(book.isolation)},
    }


if __name__ == "__main__":
    in_container(Path(sys.argv[1]))
