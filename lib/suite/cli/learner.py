"""Commands for learners: lists of puzzles, hints, answers, and `puzzles watch`, which runs what is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from lib.errors import graded
from lib.errors.wording import amount
from lib.extras import need_extra
from lib.puzzles.puzzle import HINTS
from lib.puzzles.puzzle import Puzzle as Record
from lib.puzzles.records import PUZZLES, by_chapter, chapters, minutes_of_core, puzzle_of_file
from lib.puzzles.records import goal as goal_of
from lib.suite.cli import console as options
from lib.suite.cli.console import console, draw_thing, numbers, option, say, show_table, title
from lib.suite.course.exercises import hint as open_hints
from lib.suite.course.exercises import next_hint
from lib.suite.course.progress import Standing, is_off, known, next_puzzle, solved
from lib.suite.course.solutions import OFFICIAL, refusal, revealed
from lib.suite.course.subject import Attempt, attempt, outcome
from lib.suite.isolation.isolation import LIMIT
from lib.suite.submissions.load import SourceError, puzzles_of, source_in
from lib.suite.submissions.locations import mine, notebook_of, prepared, shown, yours


def status() -> None:
    """Show what is solved and how well, and what comes next."""
    standings = known()
    passed = {puzzle for puzzle, standing in standings.items() if standing.passed}

    def row(record: Record) -> Sequence[Text | str]:
        standing = standings.get(record.id, Standing())
        state = Text("solved", "green") if standing.passed else Text("tried" if standing.runs else "", "yellow")
        time = "" if standing.time is None else f"{standing.time:g}"
        memory = "" if standing.memory is None else amount(standing.memory)
        hints = f"{standing.hints} of {len(record.hints)}" if standing.hints else ""
        return record.id, state, standing.goal or "", time, memory, hints

    _by_chapter(Table("", "puzzle", "", "best goal reached", *numbers("time", "memory", "hints")), passed, row)
    following = "There is nothing left to solve."
    if (record := next_puzzle(passed)) is not None:
        notebook = notebook_of(record.id)
        how = "" if notebook.is_file() else " (`puzzles lab` makes it, and opens the map)"
        following = f"Next: {record.id} ({record.title}), {shown(notebook)}{how}"
    say(f"{len(passed & {*PUZZLES})} of {len(PUZZLES)} solved. {following}")
    if is_off():
        why = f"{graded.VARIABLE} is set" if graded.is_on() else "PUZZLES_PROGRESS is off"
        say(f"Progress is not recorded: {why}.")
    say("puzzles --help lists the commands.")


def list_() -> None:
    """List the puzzles by chapter, and how far you are: their sizes and their goals."""

    def row(record: Record) -> Sequence[str]:
        skipped = f"\n(deepens {record.deepens}: may be skipped)" if record.deepens else ""
        name = f"{record.id}\n{record.title}{skipped}"
        if record.is_function:
            return name, "a function"
        limits = [(goal.name, f"{goal.time:g}", f"{goal.memory:,}") for goal in record.goals]
        columns = ("\n".join(column) for column in zip(*limits, strict=True))
        return name, ", ".join(map(str, record.size)), *columns

    puzzle = Column("puzzle", overflow="fold", min_width=max(map(len, PUZZLES)))  # a title folds, an id does not
    _by_chapter(
        Table("", puzzle, "sizes", "goals", "time", "memory", caption="sizes: ranks, layers, batches"), solved(), row
    )


def _by_chapter(table: Table, passed: set[str], row: Callable[[Record], Sequence[Text | str]]) -> None:
    """Show a table of all puzzles, with each chapter's title, and how much of it is solved, above its puzzles."""
    for chapter, records in by_chapter(parts=True):
        table.add_section()
        so_far = f"{sum(record.id in passed for record in records)} of {len(records)} solved"
        table.add_row("", Text(chapter.title, "bold"), "", Text(so_far, "bold"))
        for record in records:
            table.add_row(record.label, *row(record))
    core = [record for record in PUZZLES.values() if not record.deepens]
    done = sum(record.id in passed for record in core)
    show_table(table)
    say(f"The core path: {done} of {len(core)} solved, about {round(minutes_of_core() / 60)} hours in all.")


def goal(puzzle: options.PuzzleArgument, output: options.Output = None) -> None:
    """Say what a puzzle asks for; as a picture where you name a file, after hint 2 with a schedule that reaches it."""
    task = goal_of(puzzle)
    say(task.text())
    draw_thing(task, output)


def hint(
    puzzle: options.PuzzleArgument,
    number: Annotated[int | None, typer.Argument(help="Open the hints up to this one.", min=1, max=len(HINTS))] = None,
    every: Annotated[bool, option("Open all hints.", "--all")] = False,
) -> None:
    """Open the next hint for a puzzle: a question, then an idea, then nearly the code."""
    from rich.markdown import Markdown  # not above: other commands start faster without

    number = len(HINTS) if every else number
    hints = next_hint(puzzle) if number is None else open_hints(puzzle, number)
    console().print(Markdown(hints.body))
    say(f"\n{hints.onwards(f'puzzles hint {puzzle}')}")


def reveal(
    puzzle: options.PuzzleArgument,
    way: Annotated[str, typer.Argument(help="Show the code of this alternative.", show_default=False)] = OFFICIAL,
    file: Annotated[
        Path | None, option("A notebook or .py in which the puzzle passes.", exists=True, dir_okay=False)
    ] = None,
    limit: options.Limit = None,
) -> None:
    """Show the official answer and others, once the puzzle is passed."""
    if file is None:
        standing, own = known().get(puzzle), mine(puzzle, yours(Path.cwd()))
        # If no pass is recorded, try the student's own notebook, too.
        if (standing is None or not standing.passed) and own.is_file() and attempt(own, puzzle).state == "passed":
            standing = Standing(runs=1, passed=True)
    else:
        judged = outcome(str(file), puzzle=puzzle, limit=limit).verdict
        standing = judged and Standing.of(judged)
    if (missing := refusal(puzzle, standing)) is not None:
        say(missing)
        raise typer.Exit(1)
    from rich.markdown import Markdown

    found = revealed(puzzle, way, f"puzzles reveal {puzzle} {{}}")
    say(f"From {shown(found.path)}:")
    terminal = console()
    if terminal.is_terminal:
        return terminal.print(Markdown(found.markdown))
    say(found.markdown)  # which cuts no line of code


def workplace() -> Path:
    """Return the folder of the student's own copies, made and updated if needed, and print what was done."""
    place = prepared(Path.cwd())
    for line in place.news():
        say(line)
    return place.folder


# -- watching -------------------------------------------------------------------------------------------------------

ENDINGS = (".ipynb", ".py")
TICK = 1000  # milliseconds until a deleted folder is noticed


def watch(
    path: Annotated[Path | None, typer.Argument(help="A notebook, a .py, or a folder.", show_default=False)] = None,
    puzzle: options.Puzzle = None,
    once: Annotated[bool, option("Run once; exit status 0 where it is solved, else 1.", "--once")] = False,
    limit: Annotated[float, option("Seconds that a run may take.", min=0.1)] = LIMIT,
) -> None:
    """Run a puzzle again whenever its notebook is saved, and say what came of it. Without a path: all of them."""
    watcher = Watcher(path or workplace(), puzzle, limit)
    if once:
        raise typer.Exit(0 if watcher.begin() else 1)
    keep_watching(watcher)


class Watcher:
    """Runs the puzzles of a notebook, a .py or a folder, and prints the results.

    `puzzle` is that of a single file, if its name and functions do not tell. SourceError for a path with nothing to
    watch.
    """

    def __init__(self, path: Path, puzzle: str | None = None, limit: float = LIMIT) -> None:
        if not path.exists():
            raise SourceError(f"there is no file or folder {path}")
        if path.is_file() and path.suffix not in ENDINGS:
            raise SourceError(f"{path.name} is neither a notebook (.ipynb), nor Python (.py), nor a folder")
        self.path, self.limit, self.alone = path, limit, path.is_file()
        self.folder = path.parent if self.alone else path
        self._puzzle = puzzle if self.alone else None
        if not self.alone and not self.files():
            raise SourceError(f"{path} holds no notebook of a puzzle; `puzzles lab` opens a folder of them")

    def concerns(self, path: Path) -> bool:
        """Tell whether a change of a file matters."""
        if self.alone:
            return path.name == self.path.name
        return path.suffix in ENDINGS and not path.name.startswith(".")

    def files(self) -> dict[str, Path]:
        """Return the current file of each puzzle, in the order of the puzzles; of several files the first."""
        found: dict[str, Path] = {}
        below = (path for folder in self.folders() for path in sorted(folder.glob("*")))
        for path in filter(self.concerns, below):
            with suppress(SourceError, OSError):  # it has no puzzle, or cannot be read just now
                found = dict.fromkeys(self._about(path), path) | found
        return {puzzle: found[puzzle] for puzzle in PUZZLES if puzzle in found}

    def folders(self) -> list[Path]:
        """Return the folders to watch: that of a single file, or one with its chapters."""
        chosen = () if self.alone else (self.folder / chapter for chapter in chapters())
        return [self.folder, *filter(Path.is_dir, chosen)]

    def _about(self, path: Path, begun: bool = False) -> tuple[str, ...]:
        """The puzzles of a file; or, with `begun`, only those worked on, else the first. SourceError or OSError if it
        has none, is gone, or cannot be read."""
        if not path.is_file():
            raise SourceError(f"{path.name} is not there any more. It is run again when it comes back.")
        puzzles = (self._puzzle,) if self._puzzle else puzzles_of(path)
        if len(puzzles) == 1 or not begun:
            return puzzles
        source = source_in(path)
        return tuple(puzzle for puzzle in puzzles if not source.untouched(puzzle)) or puzzles[:1]

    def begin(self) -> bool:
        """Run the puzzles in order, up to the first that does not pass. Return whether all of them pass."""
        files = self.files()
        if self.alone and len(files) <= 1:
            return self.changed([self.path])
        for puzzle, path in files.items():
            tried = attempt(path, puzzle, self.limit)
            if tried.state != "passed":
                self._show(tried, path)
                return False
            say(f"{puzzle}: passes")
        say("Every puzzle here passes.")
        return True

    def changed(self, paths: Iterable[Path]) -> bool:
        """Run the puzzles of saved files; if a file has several, those begun. Return whether the last file passes."""
        passes = False
        for path in sorted(set(paths)):
            try:
                begun = self._about(path, begun=True)
            except (SourceError, OSError) as error:
                # A file without a puzzle is a mistake if it is the one to watch, or is named like one.
                if self.alone or puzzle_of_file(path.stem) is not None:
                    say(str(error))
                continue
            tries = [attempt(path, puzzle, self.limit) for puzzle in begun]
            for tried in tries:
                self._show(tried, path)
            passes = all(tried.state == "passed" for tried in tries)
        return passes

    def _show(self, tried: Attempt, path: Path) -> None:
        puzzle = tried.puzzle
        title(f"{puzzle} ({path.name})")
        if tried.printed:
            say(tried.printed.rstrip("\n"))
        if tried.state != "unsolved":
            say(tried.text())
        if tried.state == "passed":
            following = "All puzzles are solved."
            if (record := next_puzzle({str(puzzle), *solved()})) is not None:
                here = self.files().get(record.id)
                following = f"Next: {record.id}, {shown(here or notebook_of(record.id))}"
            say(f"{puzzle} is solved. {following}")
        elif tried.state == "unsolved":
            say(f"{puzzle} is not solved yet: {shown(path)}. For a hint: puzzles hint {puzzle}")
        elif tried.state == "missed":
            say(f"{puzzle} is correct, but not within its first goal yet. For a hint: puzzles hint {puzzle}")


def keep_watching(watcher: Watcher) -> None:
    """Run what is saved until Ctrl-C is pressed. ImportError without watchfiles."""
    need_extra("cli", "watching needs")
    from watchfiles import watch as changes_of

    def concerns(_: object, path: str) -> bool:
        return watcher.concerns(Path(path))

    changes = changes_of(
        *watcher.folders(), watch_filter=concerns, recursive=False, rust_timeout=TICK, yield_on_timeout=True
    )
    try:
        number = len(watcher.files())
        what = watcher.path.name if watcher.alone else f"{number} puzzles in {shown(watcher.path)}"
        say(f"Watching {what}. Ctrl-C ends it.")
        next(changes)  # from here on no save is missed, even during the first run
        watcher.begin()
        for saved in changes:
            if saved:
                watcher.changed(Path(path) for _, path in saved)
            if not watcher.folder.is_dir():
                raise SourceError(f"{watcher.folder} is not there any more, so there is nothing to watch")
    except KeyboardInterrupt:
        return
