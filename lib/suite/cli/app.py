"""The `puzzles` command: what each of its commands is called, takes and says. The work is done elsewhere."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from lib.checker.checker import check as judge
from lib.errors import fixes
from lib.errors.exceptions import PuzzleError
from lib.puzzles.records import PUZZLES, by_chapter
from lib.puzzles.records import goal as goal_of
from lib.replay.options import ReplayOptions
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.suite.cli.compare import compare_command
from lib.suite.cli.console import (
    Door,
    Terminal,
    as_json,
    chapter_row,
    console,
    fail,
    say,
    show,
    show_hints,
    show_table,
    show_way,
    show_ways,
    status_table,
)
from lib.suite.cli.gallery import gallery_command
from lib.suite.cli.grading.command import grade_command
from lib.suite.cli.options import (
    SHORT,
    WHAT,
    Batches,
    Layers,
    Limit,
    MeshOption,
    Output,
    Puzzle,
    PuzzleArgument,
    Ranks,
    Subject,
    argument,
    option,
    takes_fields_of,
)
from lib.suite.cli.pipelines import expected, explore_command, recorded, schedules, write_order
from lib.suite.cli.plan import plan_command, predictions_command
from lib.suite.course.exercises import hint as open_hints
from lib.suite.course.exercises import next_hint
from lib.suite.course.progress import Standing, known
from lib.suite.course.solutions import refusal
from lib.suite.course.subject import Outcome, Run, attempt, feedings, outcome, subjects
from lib.suite.course.subject import run as run_subject
from lib.suite.isolation.isolation import LIMIT
from lib.suite.submissions.locations import home, is_checkout, mine, prepared, yours

app = typer.Typer(cls=Door, context_settings=SHORT, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(schedules, name="schedule")
app.command("explore")(explore_command)
app.command("compare")(compare_command)
app.command("gallery")(gallery_command)
app.command("grade")(grade_command)
app.command("plan")(plan_command)
app.command("predictions")(predictions_command)


@app.callback(invoke_without_command=True)
def puzzles(context: typer.Context) -> None:
    """Puzzles about training a large language model on many accelerators. Alone it says how far you are."""
    if context.invoked_subcommand is None:
        status_table(known())


@app.command("list")
def list_() -> None:
    """The puzzles by chapter, and how far you are: their sizes and their goals."""
    puzzle = Column("puzzle", overflow="fold", min_width=max(map(len, PUZZLES)))  # a title folds, and an id does not
    table = Table("", puzzle, "sizes", "goals", "time", "memory", caption="sizes: ranks, layers, batches")
    standings = known()
    for chapter, records in by_chapter():
        table.add_section()
        table.add_row("", *chapter_row(chapter, records, standings))
        for record in records:
            name = f"{record.id}\n{record.title}"
            if record.is_function:
                table.add_row(str(record.number), name, "a function")
                continue
            limits = [(goal.name, f"{goal.time:g}", f"{goal.memory:,}") for goal in record.goals]
            columns = ("\n".join(column) for column in zip(*limits, strict=True))
            table.add_row(str(record.number), name, ", ".join(map(str, record.size)), *columns)
    show_table(table)


@app.command()
def run(
    whats: Annotated[list[str], argument("WHAT...", f"What to run: {WHAT}.")],
    puzzle: Puzzle = None,
    ranks: Ranks = None,
    layers: Layers = None,
    batches: Batches = None,
    mesh: MeshOption = None,
    save: Annotated[Path | None, option("Write the Trace here, as JSON.")] = None,
    perfetto: Annotated[Path | None, option("Write the timeline here, for ui.perfetto.dev.")] = None,
    chakra: Annotated[Path | None, option("Write execution traces for MLCommons Chakra into a folder.")] = None,
    json: Annotated[bool, option("Print one JSON document and nothing else.", "--json")] = False,
    limit: Limit = None,
) -> None:
    """Run a function, or those of several files, and say how good it is. Of a file with several puzzles all are run.

    Exit status: 0 where each reaches its first goal, 1 where one does not, for whatever reason, and 2 for a command
    that makes no sense. With --ranks, --layers, --batches or --mesh there are no goals, and 0 is for what is correct.
    """
    options: dict[str, Any] = {"limit": limit, "ranks": ranks, "layers": layers, "batches": batches, "mesh": mesh}
    files = {"save": save, "perfetto": perfetto, "chakra": chakra}
    asked = [(what, one) for what in whats for one in ([puzzle] if puzzle else subjects(what))]
    if len(asked) > 1 and (one := next((name for name, path in files.items() if path is not None), None)):
        raise typer.BadParameter(f"--{one} takes the Trace of one run")
    if len(asked) == 1 and not json:
        found = outcome(whats[0], puzzle=puzzle, **options)
        _write(found.run, **files)
        _tell(found)
        return
    attempts = [attempt(what, one, **options) for what, one in asked]
    names = [what for what, _ in asked]
    if (found := attempts[0].outcome) is not None:
        _write(found.run, **files)
    if json:
        print(as_json(names, attempts))
    else:
        show(names, attempts)
    raise typer.Exit(0 if all(found.state == "passed" for found in attempts) else 1)


@app.command()
def fix(what: Subject, puzzle: Puzzle = None) -> None:
    """Run one function and show how to mend its mistake: the line itself, where the message names only the idea."""
    with fixes.shown():
        _tell(outcome(what, puzzle=puzzle))


@app.command()
def goal(puzzle: PuzzleArgument, output: Output = None) -> None:
    """Say what a puzzle asks for; as a picture with a schedule that reaches it, where you name a file."""
    task = goal_of(puzzle)
    say(task.text())
    _draw(task, output)


@app.command()
def hint(
    puzzle: PuzzleArgument,
    number: Annotated[int | None, typer.Argument(help="Open the hints up to this one.")] = None,
    every: Annotated[bool, option("Open all hints.", "--all")] = False,
) -> None:
    """Open the next hint for a puzzle: a question, then an idea, then nearly the code."""
    last = len(PUZZLES[puzzle].hints)
    if number is not None and not 1 <= number <= last:
        raise typer.BadParameter(f"{puzzle} has hints 1 to {last}; got {number}")
    number = last if every else number
    show_hints(next_hint(puzzle) if number is None else open_hints(puzzle, number))


@app.command()
def reveal(
    puzzle: PuzzleArgument,
    way: Annotated[str | None, typer.Argument(help="Show the code of this alternative.", show_default=False)] = None,
    file: Annotated[
        Path | None, option("A notebook or .py in which the puzzle passes.", exists=True, dir_okay=False)
    ] = None,
    limit: Limit = None,
) -> None:
    """Show the official answer and others, once the puzzle is passed."""
    if file is None:
        standing, own = known().get(puzzle), mine(puzzle, yours(Path.cwd()))
        # Where no pass is recorded, the student's own notebook is asked, too.
        if (standing is None or not standing.passed) and own.is_file() and attempt(own, puzzle).state == "passed":
            standing = Standing(runs=1, passed=True)
    else:
        standing = Standing.of(outcome(str(file), puzzle=puzzle, limit=limit).verdict)
    missing = refusal(puzzle, standing)
    if missing is not None:
        say(missing)
        raise typer.Exit(1)
    show_ways(puzzle) if way is None else show_way(puzzle, way)


@app.command()
def watch(
    path: Annotated[Path | None, typer.Argument(help="A notebook, a .py, or a folder.", show_default=False)] = None,
    puzzle: Puzzle = None,
    once: Annotated[bool, option("Run once; exit status 0 where it is solved, else 1.", "--once")] = False,
    limit: Annotated[float, option("Seconds that a run may take.", min=0.1)] = LIMIT,
) -> None:
    """Run a puzzle again whenever its notebook is saved, and say what came of it. Without a path: all of them."""
    from lib.suite.cli.watch import Watcher
    from lib.suite.cli.watch import watch as keep_watching

    watcher = Watcher(path or _workplace(), Terminal(), puzzle, limit, once)
    if once:
        raise typer.Exit(0 if watcher.begin() else 1)
    keep_watching(watcher)


@app.command()
def check(
    what: Annotated[str | None, typer.Argument(metavar="[WHAT]", help=f"Check only this: {WHAT}.")] = None,
    puzzle: Puzzle = None,
    limit: Limit = None,
    stored: Annotated[
        bool, option("Believe the outputs of the solved notebooks: `make unit` runs them.", "--stored")
    ] = False,
) -> None:
    """Check one run; or, without an argument, that every puzzle, notebook and reference is in order.

    Exit status: 0 where it reaches its first goal (or all is in order), else 1.
    """
    if what is not None:
        return _tell(outcome(what, puzzle=puzzle, limit=limit))
    from lib.suite.notebooks.verify import CHECKS, verify

    with console().status("Running every notebook, solved and unsolved"):
        findings = verify(home(), stored=stored)
    table, problems = Table("", *CHECKS), [finding for finding in findings if finding.problem]
    for stem in sorted({finding.stem for finding in findings}):
        cells = {f.check: "FAIL" if f.problem else "ok" for f in findings if f.stem == stem}
        table.add_row(stem, *(Text(cells.get(c, "-"), "red" if cells.get(c) == "FAIL" else "") for c in CHECKS))
    show_table(table)
    if problems:
        fail("\n".join(f"{finding.stem}, {finding.check}: {finding.problem}" for finding in problems))
    say("All is in order.")


@app.command()
def draw(what: Subject, output: Output = None, puzzle: Puzzle = None, limit: Limit = None) -> None:
    """Draw a run, even one that fails: up to where it did."""
    path = output or Path(f"{Path(what).stem}.svg")
    try:
        trace = run_subject(what, puzzle=puzzle, limit=limit).trace
    except PuzzleError as error:
        if error.trace is not None:
            _draw(error.trace, path, "Drew what happened before the error:")
        raise
    _draw(trace, path)


@app.command()
def review(what: Subject, output: Output = None, puzzle: Puzzle = None, limit: Limit = None) -> None:
    """Say how far a run is from the best, where its ranks wait, and what fills its memory."""
    from lib.suite.course.review import review as look

    found = run_subject(what, puzzle=puzzle, limit=limit)
    name = found.puzzle
    if name is None:
        fail(f"{found.name} is no run of a puzzle at its own size; name the puzzle with --puzzle")
    _answer(lambda: look(found.trace, puzzle=name), output)


@app.command()
def why(
    what: Subject,
    rank: Annotated[int | None, option("The rank that waits.")] = None,
    at: Annotated[float | None, option("The moment, in time units.")] = None,
    output: Output = None,
    puzzle: Puzzle = None,
    limit: Limit = None,
) -> None:
    """Say why a rank waits at a moment, followed back to what held it up; or, without them, why the run ends when it
    does."""
    from lib.analysis.waiting.critical_path import critical_path
    from lib.analysis.waiting.why import why as explain

    if (rank is None) != (at is None):
        raise typer.BadParameter("say which rank waits and when: --rank 2 --at 5")
    trace = run_subject(what, puzzle=puzzle, limit=limit).trace
    _answer(lambda: critical_path(trace) if rank is None or at is None else explain(trace, rank, at), output)


@app.command("what-if")
def what_if(
    what: Subject,
    rank: Annotated[list[int] | None, option("What this rank computes (or these).")] = None,
    op: Annotated[str | None, option("An operation, or compute, messages, collectives.")] = None,
    layer: Annotated[int | None, option("This layer.")] = None,
    link: Annotated[
        tuple[int, int] | None, option("What these two ranks send each other.", metavar="RANK RANK")
    ] = None,
    group: Annotated[str | None, option("Collectives along this axis of the mesh.")] = None,
    faster: Annotated[float | None, option("How many times as fast; else it takes no time.")] = None,
    output: Output = None,
    puzzle: Puzzle = None,
    limit: Limit = None,
) -> None:
    """Time a run anew with something faster, its order as it is. Say what; or nothing, to see what would help most."""
    from lib.analysis.waiting.what_if import what_helps
    from lib.analysis.waiting.what_if import what_if as suppose

    trace = run_subject(what, puzzle=puzzle, limit=limit).trace
    chosen: dict[str, Any] = {"rank": rank or None, "op": op, "layer": layer, "link": link, "group": group}
    some = any(one is not None for one in chosen.values())
    _answer(lambda: suppose(trace, **chosen, faster=faster) if some else what_helps(trace, faster), output)


@app.command()
def build(
    check: Annotated[bool, option("Write nothing; fail where one is not current.", "--check")] = False,
    force: Annotated[bool, option("Overwrite notebooks that somebody has worked in.", "--force")] = False,
) -> None:
    """Make the notebooks in puzzles/ and solutions/ from solutions/NN_name.py, and renumber what needs it."""
    from lib.suite.notebooks import build as notebooks

    if not is_checkout():
        fail("Notebooks are built in a checkout of the repository; this is an installed copy.")
    if check and (moves := notebooks.misnumbered(home())):
        fail("Puzzles have other numbers now; mend with `puzzles build`:\n" + "\n".join(moves))
    for old, new in ({} if check else notebooks.renumber(home())).items():
        say(f"Renamed {old} to {Path(new).name}")
    with console().status("Running every notebook"):
        files = notebooks.build(home())
    old = notebooks.stale(files, home())
    if check and old:
        fail("Not what solutions/*.py give; mend with `puzzles build`:\n" + "\n".join(old))
    if not check and not force and (worked_on := notebooks.worked_on(old, home())):
        fail("Somebody has worked in these; move them away, or use --force:\n" + "\n".join(worked_on))
    if not check:
        for name in notebooks.write(files, home()):
            say(f"Wrote {name}")
    say(f"{sum(name.endswith('.ipynb') for name in files)} notebooks are current.")


@app.command()
def export(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Puzzles, `introduction`, or notebooks (.ipynb); else all."),
    ] = None,
    colab: Annotated[bool, option("As notebooks that carry the package inside.", "--colab")] = False,
    nbgrader: Annotated[bool, option("As an assignment of nbgrader.", "--nbgrader")] = False,
    gradescope: Annotated[bool, option("An autograder for Gradescope, a zip.", "--gradescope")] = False,
    config: Annotated[Path | None, option("What Gradescope asks: as in `puzzles grade`.")] = None,
    output: Annotated[
        Path | None,
        option("A folder; with --colab also one .ipynb for all.", "--output", "-o", show_default=False),
    ] = None,
    assignment: Annotated[str, option("What nbgrader calls the assignment.")] = "puzzles",
    need: Annotated[str, option("The goal that nbgrader gives points for: as in `puzzles grade`.")] = "first",
    hidden: Annotated[int | None, option("So many hidden sizes, for nbgrader.")] = None,
    seed: Annotated[str | None, option("What they are drawn from.")] = None,
) -> None:
    """Write notebooks for elsewhere: to mail, or to open in Colab; or for nbgrader, with our answers and tests;
    or the autograder that Gradescope runs."""
    from lib.suite.cli.grading.autograder import autograder
    from lib.suite.grade.assignment import AssignmentError, Config
    from lib.suite.notebooks.exports import chosen, export_colab, export_nbgrader

    if colab + nbgrader + gradescope != 1:
        raise typer.BadParameter("say what to export to: --colab, --nbgrader or --gradescope")
    try:
        if gradescope:
            written = [autograder(names or [], config, output or Path("autograder.zip"))]
        elif nbgrader:
            asked = [name for name in names or PUZZLES if name in PUZZLES]
            Config().with_options(puzzles=asked, need=need, hidden=hidden, seed=seed).assignment()
            notebooks, folder = chosen(names or list(PUZZLES)), output or Path("nbgrader")
            written = export_nbgrader(notebooks, folder, assignment, need=need, hidden=hidden, seed=seed)
        else:
            written = export_colab(chosen(names or []), output or Path("colab"))
    except AssignmentError as error:  # what is asked cannot be asked
        fail(str(error), status=2)
    except FileNotFoundError:
        if not gradescope:
            raise
        fail(f"there is no file {config}", status=2)
    for path in written:
        say(f"Wrote {path} ({path.stat().st_size / 1000:,.0f} kB)")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context) -> None:
    """Open the puzzles in JupyterLab; what else you say is passed on to it."""
    from lib.suite.notebooks import lab as jupyter

    program = jupyter.command(context.args)
    place = _workplace()
    jupyter.trust(place.glob("*.ipynb"))
    raise typer.Exit(_become(program, place, jupyter.environment()))


@app.command()
@takes_fields_of(ReplayOptions)
def replay(
    what: Subject,
    output: Output = None,
    calibrate: Annotated[str | None, option("Fit costs, and predict this other run.")] = None,
    json: Annotated[Path | None, option("Write the figures here.")] = None,
    save: Annotated[Path | None, option("Write the measured Trace here.")] = None,
    perfetto: Annotated[Path | None, option("Write both timelines here, for ui.perfetto.dev.")] = None,
    limit: Limit = None,
    **chosen: Any,
) -> None:
    """Run a schedule with real tensors on torch.distributed; or feed a mesh from files, as a puzzle's map says."""
    from lib.replay.__main__ import Outputs, replay_and_tell
    from lib.replay.feeding import feed_and_tell

    if (fed := feedings(what, limit=limit)) is not None:
        raise typer.Exit(feed_and_tell(fed))

    def paint(result: Any) -> None:
        if output is not None:
            from drawing import compare as draw_both

            _draw(draw_both(simulated=result.simulated, measured=result.measured), output)

    outputs = Outputs(calibrate, json, save, perfetto)
    raise typer.Exit(replay_and_tell(what, chosen, outputs, lambda name: run_subject(name, limit=limit).trace, paint))


@app.command()
def profile(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Traces of torch.profiler, one for each rank.")
    ],
    schedule: Annotated[
        str | None, option(f"What it was to be: one of {', '.join(SCHEDULES)}; a file of an order; {WHAT}.")
    ] = None,
    order: Annotated[Path | None, option("Write the order that was run into this file.")] = None,
    step: Annotated[int | None, option("Which of the recorded steps; else the last.", min=0)] = None,
    output: Output = None,
    limit: Limit = None,
) -> None:
    """Show what torch.profiler recorded of a real run beside the schedule that it was to be.

    Ranges that are named as torch's pipeline executor names them (PP:3F1), and as `puzzles replay --profile` does, are
    compared with the order of the schedule. Files that `--perfetto` wrote are read, too.
    """
    from drawing.comparing.recordings import draw_recordings
    from lib.analysis.recording import figures, told

    found = recorded(files, step)
    try:
        if order is not None:
            say(write_order(order, found[0]))
        if schedule is not None:
            found.insert(0, expected(schedule, found[0], lambda what: run_subject(what, limit=limit).trace))
    except ValueError as error:
        fail(str(error))
    for line in (*map(figures, found), *told(found[0], found[1:])):
        say(line)
    if output is not None:
        _draw(draw_recordings(*found), output)


@app.command()
def demo(
    output: Annotated[Path | None, option("The folder to write to; else demo, or class.", "--output", "-o")] = None,
    made_up: Annotated[
        bool, option("Write what a made-up class hands in, to try `puzzles grade` on.", "--class")
    ] = False,
    students: Annotated[
        int, option("With --class: so many students, and their roster.", min=0, max=2000, show_default=False)
    ] = 0,
) -> None:
    """Run, check and draw the reference solution of every puzzle. Or write an exercise that a class hands in."""
    if made_up:
        return _made_up_class(output or Path("class"), students)
    from drawing.timeline.schedule import picture_of_trace

    output = output or Path("demo")
    output.mkdir(parents=True, exist_ok=True)
    table = Table("puzzle", "verdict", "time", "memory", "reached", "picture", caption=f"pictures in {output}")
    correct = True
    for puzzle, record in PUZZLES.items():
        if record.is_function:
            continue  # which there is nothing to draw of
        found, path = run_subject(puzzle), output / f"{record.stem}.svg"
        picture_of_trace(found.trace).save(path)
        verdict = judge(found.trace, puzzle)
        correct &= verdict.correct
        figures = (f"{verdict.time:g}", f"{verdict.memory:,.0f}", verdict.best or "no goal")
        table.add_row(puzzle, "Correct!" if verdict.correct else "not correct", *figures, path.name)
    show_table(table)
    raise typer.Exit(0 if correct else 1)


def _made_up_class(folder: Path, number: int) -> None:
    from lib.suite.notebooks.example_class import ASKED, STUDENTS, write_class

    files = write_class(folder, number)
    people = number or len(STUDENTS)
    say(f"Wrote {len(files)} files of {people} students who do not exist to {folder}: {', '.join(ASKED)}.")
    roster = f" --roster {folder / 'roster.csv'}" if number else ""
    say(f"Grade them: puzzles grade {folder}{roster} --out report")


def _tell(found: Outcome) -> None:
    say(found.text(console().width))
    if not found.passed:
        raise typer.Exit(1)


def _answer(ask: Callable[[], Any], output: Path | None) -> None:
    """Say the answer to a question about a run, and draw it; or why the question makes no sense."""
    try:
        found = ask()
    except ValueError as error:
        fail(str(error))
    if found is not None:
        say(found.text())
        _draw(found, output)


def _draw(thing: Any, output: Path | None, said: str = "Drew") -> None:
    """Draw anything that shows itself as a picture, where a file was named."""
    if output is not None:
        from drawing import picture_of

        picture_of(thing).save(output)
        say(f"{said} {output}")


def _write(found: Run | None, save: Path | None, perfetto: Path | None, chakra: Path | None) -> None:
    """Write the files of a run that were asked for."""
    if found is None:
        if any(path is not None for path in (save, perfetto, chakra)):
            raise typer.BadParameter("a plain function has no run, so there is no Trace of it to write")
        return
    if save is not None:
        found.trace.save(save)
    if perfetto is not None:
        from lib.schedules.formats.perfetto import write_perfetto

        write_perfetto(perfetto, {found.name: found.trace})
    if chakra is not None:
        from lib.schedules.formats.chakra import write_chakra

        write_chakra(chakra, found.trace)


def _workplace() -> Path:
    """The folder of the student's own copies, made and brought up to date where needed, which it says."""
    place = prepared(Path.cwd())
    for line in place.news():
        say(line)
    return place.folder


def _become(command: list[str], folder: Path, environment: dict[str, str]) -> int:
    """Run a program in a folder, and instead of this one where that is possible, so that Ctrl-C reaches it alone."""
    if os.name == "posix":
        os.chdir(folder)
        os.execve(command[0], command, environment)
    return subprocess.call(command, cwd=folder, env=environment)
