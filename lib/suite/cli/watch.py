"""Watches notebooks while somebody works on them: every save runs the puzzle again and says what came of it."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from lib.extras import need_extra
from lib.puzzles.records import PUZZLES, puzzle_of_file
from lib.suite.cli.console import Terminal
from lib.suite.course.exercises import next_hint
from lib.suite.course.progress import known, next_puzzle, solved
from lib.suite.course.solutions import refusal
from lib.suite.course.subject import Attempt, attempt
from lib.suite.isolation.isolation import LIMIT
from lib.suite.submissions.load import SourceError, puzzles_of, source_in
from lib.suite.submissions.locations import notebook_of, shown

__all__ = ["Watched", "Watcher", "watch"]

ENDINGS = (".ipynb", ".py")


class Watched:
    """A notebook, a .py, or those of a folder.

    `puzzle` says which one a single file is about, where its name and its functions do not. SourceError for a path
    where there is nothing to watch.
    """

    def __init__(self, path: Path, puzzle: str | None = None) -> None:
        if not path.exists():
            raise SourceError(f"there is no file or folder {path}")
        if path.is_file() and path.suffix not in ENDINGS:
            raise SourceError(f"{path.name} is neither a notebook (.ipynb), nor Python (.py), nor a folder")
        self.path = path
        self.alone = path.is_file()
        self.folder = path.parent if self.alone else path
        self._puzzle = puzzle if self.alone else None
        self._known: set[str] = set()
        """Names of files that had a puzzle."""
        if not self.alone and not self.by_puzzle():
            raise SourceError(f"{path} holds no notebook of a puzzle; `puzzles lab` opens a folder of them")

    def by_puzzle(self) -> dict[str, list[Path]]:
        """The files that there are now, by puzzle, in the order of the puzzles."""
        found: dict[str, list[Path]] = {}
        for path in [self.path] if self.alone else sorted(self.folder.glob("*")):
            if self.concerns(path):
                try:
                    for puzzle in self.about(path):
                        found.setdefault(puzzle, []).append(path)
                except (SourceError, OSError):
                    continue  # one of no puzzle, or that cannot be read just now
        return {puzzle: found[puzzle] for puzzle in PUZZLES if puzzle in found}

    def concerns(self, path: Path) -> bool:
        """Check whether a change of a file is to be looked at."""
        if self.alone:
            return path.name == self.path.name
        return path.suffix in ENDINGS and not path.name.startswith(".")

    def about(self, path: Path) -> tuple[str, ...]:
        """The puzzles of a file. SourceError or OSError where it has none, or cannot be read."""
        puzzles = (self._puzzle,) if self._puzzle else puzzles_of(path)
        self._known.add(path.name)
        return puzzles

    def begun(self, path: Path) -> tuple[str, ...]:
        """Those of them in which somebody has written something; the first, where nobody has."""
        puzzles = self.about(path)
        if len(puzzles) == 1:
            return puzzles
        source = source_in(path)
        return tuple(puzzle for puzzle in puzzles if not source.untouched(puzzle)) or puzzles[:1]

    def was_known(self, path: Path) -> bool:
        """Check whether a file, which may be gone by now, had a puzzle, or is the one to watch."""
        return self.alone or path.name in self._known

    def ought_to_have_one(self, path: Path) -> bool:
        """Check whether a file without a puzzle is a mistake: it is the one to watch, or is called like one."""
        return self.alone or puzzle_of_file(path.stem) is not None


TICK = 100
"""Milliseconds after which a typed command is seen."""
KEYS = "h: a hint   r: the official answer, when it passes   n: the next puzzle   q: quit"


class Watcher:
    """Runs the puzzles of what is watched, says what came of it, and does what is typed. `once`: nobody types."""

    def __init__(
        self, path: Path, screen: Terminal, puzzle: str | None = None, limit: float = LIMIT, once: bool = False
    ) -> None:
        self.watched = Watched(path, puzzle)
        self.screen = screen
        self.limit = limit
        self.once = once
        self.current: str | None = None
        """The puzzle that was run last."""
        self.passed = set[str]()
        """Those whose last run passed."""
        self._opened: dict[str, int] = {}
        """The number of hints that were shown, by puzzle."""

    # -- running them -------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Run the puzzles in order, up to the first that does not pass. True where all of them pass."""
        if self.watched.alone and len(self.watched.by_puzzle()) <= 1:
            return self.changed([self.watched.path])
        for puzzle, paths in self.watched.by_puzzle().items():
            self.current, tried = puzzle, list[Attempt]()
            for path in paths:
                tried.append(attempt(path, puzzle, self.limit))
                if tried[-1].state == "passed":
                    break
            else:
                self._show(tried[0], paths[0])
                return False
            self.passed.add(puzzle)
            self.screen.say(f"{puzzle}: passes")
        self.screen.say("Every puzzle here passes.")
        return True

    def changed(self, paths: Iterable[Path]) -> bool:
        """Run the puzzles of files that were saved, of several in one those begun. True where the last file passes."""
        passes = False
        for path in sorted(set(paths)):
            if not path.is_file():
                if self.watched.was_known(path):
                    self.screen.say(f"{path.name} is not there any more. It is run again when it comes back.")
                continue
            try:
                begun = self.watched.begun(path)
            except (SourceError, OSError) as error:
                if self.watched.ought_to_have_one(path):
                    self.screen.say(str(error))
                continue
            passes = [self._run(path, puzzle) for puzzle in begun].count(False) == 0
        return passes

    def _run(self, path: Path, puzzle: str) -> bool:
        found = attempt(path, puzzle, self.limit)
        self.current = puzzle
        if found.state == "passed":
            self.passed.add(puzzle)
        else:
            self.passed.discard(puzzle)
        self._show(found, path)
        return found.state == "passed"

    def _show(self, found: Attempt, path: Path) -> None:
        puzzle, screen = found.puzzle, self.screen
        hint = f"puzzles hint {puzzle}" if self.once else "type h"
        screen.title(f"{puzzle} ({path.name})")
        if found.printed:
            screen.say(found.printed.rstrip("\n"))
        if found.text:
            screen.say(found.text)
        if found.state == "passed":
            screen.say(f"{puzzle} is solved. {self._next()}")
        elif found.state == "unsolved":
            screen.say(f"{puzzle} is not solved yet: {shown(path)}. For a hint: {hint}")
        elif found.state == "missed":
            screen.say(f"{puzzle} is correct, but not within its first goal yet. For a hint: {hint}")

    def _next(self) -> str:
        """Say what to do after a puzzle that is solved."""
        record = next_puzzle(self.passed | solved())
        if record is None:
            return "All puzzles are solved."
        here = self.watched.by_puzzle().get(record.id)
        return f"Next: {record.id}, {shown(here[0] if here else notebook_of(record.id))}"

    # -- what is typed ------------------------------------------------------------------------------------------

    def command(self, line: str) -> bool:
        """Do what was typed. False where that was to end."""
        match line.strip().lower():
            case "":
                pass
            case "q":
                return False
            case "h":
                self._hint()
            case "r":
                self._reveal()
            case "n":
                self._go_on()
            case other:
                self.screen.say(f"{other[:20]!r} is no command. {KEYS}")
        return True

    def _hint(self) -> None:
        if self.current is None:
            self.screen.say("There is no puzzle yet.")
            return
        hints = next_hint(self.current, self._opened.get(self.current, 0))
        self._opened[self.current] = hints.opened
        self.screen.hints(hints)

    def _reveal(self) -> None:
        if self.current is None:
            self.screen.say("There is no puzzle yet.")
            return
        passed = self.current in self.passed
        missing = None if passed else refusal(self.current, known().get(self.current))
        self.screen.reveal(self.current) if missing is None else self.screen.say(missing)

    def _go_on(self) -> None:
        """To the next puzzle here that does not pass, after the one that was run last."""
        files, done = self.watched.by_puzzle(), self.passed | solved()
        order = list(files)
        after = order.index(self.current) + 1 if self.current in order else 0
        for puzzle in [*order[after:], *order[:after]]:
            if puzzle not in done:
                self._run(files[puzzle][0], puzzle)
                return
        self.screen.say(self._next() if self.watched.alone else "Every puzzle here passes.")


def watch(watcher: Watcher) -> None:
    """Run what is saved until `q` is typed or Ctrl-C is pressed. Commands come from the standard input, if it has any.

    ImportError without watchfiles.
    """
    need_extra("cli", "watching needs")
    from watchfiles import watch as changes_of

    watched = watcher.watched
    typed: queue.SimpleQueue[str] = queue.SimpleQueue()
    changes = changes_of(
        watched.folder,
        watch_filter=lambda _, path: watched.concerns(Path(path)),
        recursive=False,
        rust_timeout=TICK,
        yield_on_timeout=True,
    )
    try:
        number = len(watched.by_puzzle())
        what = watched.path.name if watched.alone else f"{number} puzzles in {shown(watched.path)}"
        watcher.screen.say(f"Watching {what}. Ctrl-C ends it.\n{KEYS}")
        next(changes)  # from here on no save is missed, not even one during the first run
        watcher.begin()
        threading.Thread(target=_listen, args=(typed,), daemon=True).start()
        for found in changes:
            if found:
                watcher.changed(Path(path) for _, path in found)
            while not typed.empty():
                if not watcher.command(typed.get()):
                    return
            if not watched.folder.is_dir():
                raise SourceError(f"{watched.folder} is not there any more, so there is nothing to watch")
    except KeyboardInterrupt:
        return


def _listen(typed: queue.SimpleQueue[str]) -> None:
    """Pass on what is typed. At the end of the input watching goes on without commands."""
    for line in sys.stdin:
        typed.put(line)
