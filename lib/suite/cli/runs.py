"""Commands about one run, or the runs of several files: verdicts, pictures, and answers to questions."""

from __future__ import annotations

import json as json_format
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lib.checker.verdict import Verdict
from lib.errors import fixes
from lib.errors.exceptions import PuzzleError
from lib.errors.wording import amount
from lib.replay.options import ReplayOptions
from lib.suite.cli import console as options
from lib.suite.cli.console import argument, draw_thing, fail, numbers, option, say, show_table, title, width
from lib.suite.course.subject import Attempt, attempt, outcome, subjects
from lib.suite.course.subject import run as run_subject
from lib.suite.submissions.locations import home, is_checkout

COLOURS = {"passed": "green", "missed": "yellow", "unsolved": "yellow"}


def run(
    whats: Annotated[list[str], argument("WHAT...", f"What to run: {options.WHAT}.")],
    puzzle: options.Puzzle = None,
    ranks: options.Ranks = None,
    layers: options.Layers = None,
    batches: options.Batches = None,
    mesh: options.MeshOption = None,
    save: Annotated[Path | None, option("Write the Trace here, as JSON.")] = None,
    json: Annotated[bool, option("Print one JSON document and nothing else.", "--json")] = False,
    limit: options.Limit = None,
) -> None:
    """Run a function, or those of several files, and say how good it is. Of a file with several puzzles all are run.

    Exit status: 0 where each reaches its first goal, 1 where one does not, for any reason, and 2 for a command
    that makes no sense. With --ranks, --layers, --batches or --mesh there are no goals, and 0 is for what is correct.
    """
    given: dict[str, Any] = {"limit": limit, "ranks": ranks, "layers": layers, "batches": batches, "mesh": mesh}
    asked = [(what, one) for what in whats for one in ([puzzle] if puzzle else subjects(what))]
    if len(asked) > 1 and save is not None:
        raise typer.BadParameter("--save takes the Trace of one run")
    if is_one := len(asked) == 1 and not json:
        attempts = [(whats[0], outcome(whats[0], puzzle=puzzle, **given))]
    else:
        attempts = [(what, attempt(what, one, **given)) for what, one in asked]
    first = attempts[0][1]
    if save is not None and first.verdict is not None:
        if first.run is None:
            raise typer.BadParameter("a plain function has no run, so there is no Trace of it to write")
        first.run.trace.save(save)
    if is_one:
        return _tell(first)
    passed = all(tried.state == "passed" for _, tried in attempts)
    if json:
        print(_as_json(attempts, passed))
    else:
        _show(attempts)
    raise typer.Exit(0 if passed else 1)


def _tell(tried: Attempt) -> None:
    say(tried.text(width()))
    if tried.state != "passed":
        raise typer.Exit(1)


def _measured(tried: Attempt) -> Verdict | None:
    """The verdict on a correct run; others have no meaningful figures."""
    return tried.verdict if isinstance(tried.verdict, Verdict) and tried.verdict.correct else None


def _show(attempts: Sequence[tuple[str, Attempt]]) -> None:
    from rich.table import Column, Table
    from rich.text import Text

    table = Table(Column("file", overflow="fold"), "puzzle", "", "best goal reached", *numbers("time", "memory"))
    for file, tried in attempts:
        title(f"{tried.puzzle} ({file})" if tried.puzzle else file)
        if tried.printed:
            say(tried.printed.rstrip("\n"))
        say(tried.text())
        best = _measured(tried)
        figures = () if best is None else (best.best or "none", f"{best.time:g}", amount(best.memory))
        table.add_row(file, tried.puzzle or "", Text(tried.state, COLOURS.get(tried.state, "red")), *figures)
    show_table(table)
    say(f"{sum(tried.state == 'passed' for _, tried in attempts)} of {len(attempts)} passed.")


def _as_json(attempts: Sequence[tuple[str, Attempt]], passed: bool) -> str:
    """Return the result for each file as the JSON document that docs/commands.md describes."""

    def whole(elements: float) -> float:  # as nearly always
        return int(elements) if elements == int(elements) else elements

    runs: list[dict[str, Any]] = []
    for file, tried in attempts:
        verdict = tried.verdict
        row: dict[str, Any] = {"file": file, "puzzle": tried.puzzle, "state": tried.state}
        row |= {"passed": tried.state == "passed", "correct": verdict and verdict.correct, "goals": []}
        row |= dict.fromkeys(("best", "time", "memory", "rank", "sent"))
        row |= {"faults": [*verdict.faults] if verdict else [], "notes": []}
        row |= {"error": None if verdict else tried.why, "printed": tried.printed}
        if isinstance(verdict, Verdict):
            goals = (goal._replace(reached=goal.reached and verdict.correct) for goal in verdict.goals)
            row |= {"goals": [goal._asdict() for goal in goals], "notes": [*verdict.notes]}
        if (best := _measured(tried)) is not None:
            row |= {"best": best.best, "time": best.time, "memory": whole(best.memory), "rank": best.rank}
            row["sent"] = whole(best.sent)
        runs.append(row)
    document = {"format": "llm-training-puzzles run", "version": 1, "passed": passed, "runs": runs}
    return json_format.dumps(document, indent=1)


def fix(what: options.Subject, puzzle: options.Puzzle = None) -> None:
    """Run one function and show how to fix its mistake: the line itself, where the message names only the idea."""
    with fixes.shown():
        _tell(outcome(what, puzzle=puzzle))


def check(
    what: Annotated[str | None, typer.Argument(metavar="[WHAT]", help=f"Check only this: {options.WHAT}.")] = None,
    puzzle: options.Puzzle = None,
    limit: options.Limit = None,
    stored: Annotated[
        bool, option("Believe the outputs of the solved notebooks: `make unit` runs them.", "--stored")
    ] = False,
) -> None:
    """Check one run; or, without an argument, that every puzzle, notebook and reference is in order.

    Exit status: 0 where it reaches its first goal (or all is in order), else 1.
    """
    if what is not None:
        return _tell(outcome(what, puzzle=puzzle, limit=limit))
    if not is_checkout():
        fail("All puzzles are checked in a checkout of the repository; this is an installed copy: say what to check.")
    from tools.notebooks.commands import check_all  # no part of the package

    check_all(home(), stored=stored)


# -- pictures of a run, and questions about it ----------------------------------------------------------------------


def _answer(ask: Callable[[], Any], output: Path | None) -> None:
    """Print the answer to a question about a run, and draw it; or say why the question makes no sense."""
    try:
        answer = ask()
    except ValueError as error:
        fail(options.as_typed(error).replace("--time ", "--at "))
    if answer is not None:
        say(answer.text())
        draw_thing(answer, output)


def draw(
    what: options.Subject, output: options.Output = None, puzzle: options.Puzzle = None, limit: options.Limit = None
) -> None:
    """Draw a run, even one that fails: up to where it did."""
    path = output or Path(f"{Path(what).stem}.svg")
    try:
        draw_thing(run_subject(what, puzzle=puzzle, limit=limit).trace, path)
    except PuzzleError as error:
        if error.trace is not None:
            draw_thing(error.trace, path, "Drew what happened before the error:")
        raise


def review(
    what: options.Subject, output: options.Output = None, puzzle: options.Puzzle = None, limit: options.Limit = None
) -> None:
    """Say how far a run is from the best, where its ranks wait, and what fills its memory."""
    from lib.suite.course.review import review as look

    ran = run_subject(what, puzzle=puzzle, limit=limit)
    if (name := ran.puzzle) is None:
        fail(f"{ran.name} is not a run of a puzzle at its own size; name the puzzle with --puzzle")
    _answer(lambda: look(ran.trace, puzzle=name), output)


def why(
    what: options.Subject,
    rank: Annotated[int | None, option("The rank that waits.")] = None,
    at: Annotated[float | None, option("The moment, in time units.")] = None,
    output: options.Output = None,
    puzzle: options.Puzzle = None,
    limit: options.Limit = None,
) -> None:
    """Say why a rank waits at a moment, followed back to what held it up; or, without them, why the run ends when it
    does."""
    from lib.analysis.waiting.critical_path import critical_path
    from lib.analysis.waiting.why import why as explain

    if (rank is None) != (at is None):
        raise typer.BadParameter("say which rank waits and when: --rank 2 --at 5")
    trace = run_subject(what, puzzle=puzzle, limit=limit).trace
    _answer(lambda: critical_path(trace) if rank is None or at is None else explain(trace, rank, at), output)


def what_if(
    what: options.Subject,
    rank: Annotated[list[int] | None, option("What this rank computes (or these).")] = None,
    op: Annotated[str | None, option("An operation, or compute, messages, collectives.")] = None,
    layer: Annotated[int | None, option("This layer.")] = None,
    link: Annotated[tuple[int, int] | None, option("What these two send each other.", metavar="RANK RANK")] = None,
    group: Annotated[str | None, option("Collectives along this axis of the mesh.")] = None,
    faster: Annotated[float | None, option("How many times as fast; else it takes no time.")] = None,
    output: options.Output = None,
    puzzle: options.Puzzle = None,
    limit: options.Limit = None,
) -> None:
    """Time a run anew with something faster, its order as it is. Say what."""
    from lib.analysis.waiting.what_if import what_if as suppose

    chosen: dict[str, Any] = {"rank": rank or None, "op": op, "layer": layer, "link": link, "group": group}
    if all(value is None for value in chosen.values()):
        raise typer.BadParameter("say what is to be faster: --rank, --op, --layer, --link or --group")
    trace = run_subject(what, puzzle=puzzle, limit=limit).trace
    _answer(lambda: suppose(trace, **chosen, faster=faster), output)


@options.takes_fields_of(ReplayOptions)
def replay(
    what: options.Subject,
    output: options.Output = None,
    json: Annotated[Path | None, option("Write the figures here.")] = None,
    save: Annotated[Path | None, option("Write the measured Trace here.")] = None,
    perfetto: Annotated[Path | None, option("Write both timelines here, for ui.perfetto.dev.")] = None,
    limit: options.Limit = None,
    **chosen: Any,
) -> None:
    """Run a schedule with real tensors on torch.distributed."""
    from lib.replay.__main__ import Outputs, replay_and_tell

    def paint(result: Any) -> None:
        if output is not None:
            from drawing import compare as draw_both

            draw_thing(draw_both(simulated=result.simulated, measured=result.measured), output)

    outputs = Outputs(json, save, perfetto)
    try:
        ReplayOptions(**chosen)
    except ValueError as error:
        raise typer.BadParameter(options.as_typed(error)) from None
    raise typer.Exit(replay_and_tell(what, chosen, outputs, lambda name: run_subject(name, limit=limit).trace, paint))


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
    if not is_checkout():
        fail("The demo is made in a checkout of the repository; this is an installed copy.")
    from tools.demo import draw_references, hand_in  # no part of the package

    if made_up:
        hand_in(output or Path("class"), students)
    else:
        draw_references(output or Path("demo"))
