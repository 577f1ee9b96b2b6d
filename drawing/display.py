"""Makes notebooks show values, Traces, verdicts and errors by themselves. Nothing happens where IPython is not running.

IPython is not imported, only asked for where it is there already: `import drawing` works, and is as quick, without.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

from chalk.core import BaseDiagram

from drawing.canvas.picture import bundle
from drawing.registry import PICTURES, Shown, picture_of
from drawing.timeline.schedule import picture_of_trace
from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import OURS, is_students, notebook
from lib.trace.trace import Trace
from lib.values.operations import TIMED

__all__ = ["error_text", "register", "student_frames"]

Bundle = dict[str, str]
FRAMES: Final = 8
"""Lines of a student's code that an error shows at most; of more, the first two and the last ones."""


def register() -> None:
    """Tells a running IPython how to show what is ours. Doing it twice changes nothing."""
    shell = notebook()
    if shell is None:
        return
    formatter = shell.display_formatter.mimebundle_formatter
    for kind, shown in PICTURES.items():
        formatter.for_type(kind, partial(_bundle, shown=shown))
    formatter.for_type(BaseDiagram, bundle)
    for kind in ("text/html", "image/svg+xml"):
        shell.display_formatter.formatters[kind].for_type(BaseDiagram, _nothing)
    shell.set_custom_exc((Exception, KeyboardInterrupt), _on_error)


def _nothing(diagram: BaseDiagram) -> None:
    return None


def _bundle(thing: Any, shown: Shown) -> Bundle:
    picture = bundle(shown.picture(thing))
    return picture if shown.text is None else {**picture, "text/plain": shown.text(thing)}


def _on_error(
    shell: Any, kind: type[BaseException], error: BaseException, tb: TracebackType | None, tb_offset: int | None = None
) -> list[str] | None:
    """Shows an error of ours, or one that came through our code: the student's own lines, the message, and the run up
    to there. It stays an error. All others are shown as IPython does."""
    if not _is_ours(error, tb):
        _as_usual(shell, kind, error, tb, tb_offset)
        return None
    shell._get_exc_info((kind, error, tb))  # keeps %debug and %tb working
    colour = str(shell.colors).lower() != "nocolor"
    lines = error_text(error, tb, getattr(shell.compile, "format_code_name", None), colour=colour).split("\n")
    shell._showtraceback(kind, error, lines)
    trace = getattr(error, "trace", None)
    if isinstance(trace, Trace) and trace.error is not None and any(event.op in TIMED for _, event in trace.events()):
        shell.display_pub.publish(bundle(picture_of_trace(trace)))
    if (shown := getattr(error, "shown", None)) is not None:
        shell.display_pub.publish(bundle(picture_of(shown)))
    if shell.call_pdb:
        shell.debugger(force=True)
    return lines


def _as_usual(
    shell: Any, kind: type[BaseException], error: BaseException, tb: TracebackType | None, tb_offset: int | None
) -> None:
    """What IPython does with an error if nobody else asks for it. A cell that is no Python has not run at all."""
    has_run = next(student_frames(tb), None) is not None
    if isinstance(error, IndentationError) and not has_run:
        shell.showindentationerror()
    else:
        shell.showtraceback((kind, error, tb), tb_offset=tb_offset, running_compiled_code=has_run)


def _is_ours(error: BaseException, tb: TracebackType | None) -> bool:
    """Whether an error is for us to show: a mistake of the student's, or one that was raised inside our own code."""
    if isinstance(error, PuzzleError) or isinstance(getattr(error, "trace", None), Trace):
        return True
    return any(frame.f_code.co_filename.startswith(OURS) for frame, _ in traceback.walk_tb(tb))


def error_text(
    error: BaseException,
    tb: TracebackType | None,
    cell_name: Callable[[str], tuple[str, str] | None] | None = None,
    *,
    colour: bool = False,
) -> str:
    """An error as a student needs it: the lines of their own code that led to it, then what it says."""
    red, bold, plain = ("\x1b[31m", "\x1b[1m", "\x1b[0m") if colour else ("", "", "")
    frames = [*student_frames(tb)]
    if error.__cause__ is not None:
        frames.extend(student_frames(error.__cause__.__traceback__))
    lines: list[str] = []
    for number, (frame, line) in enumerate(frames):
        if len(frames) > FRAMES and 2 <= number < len(frames) - FRAMES + 2:
            lines += ["  ..."] if number == 2 else []
            continue
        summary = traceback.FrameSummary(frame.f_code.co_filename, line, frame.f_code.co_name)
        known = cell_name(summary.filename) if cell_name is not None else None
        where = " ".join(known) if known else Path(summary.filename).name
        inside = "" if summary.name == "<module>" else f", in {summary.name}"
        lines.append(f"  {bold}{where}, line {line}{inside}{plain}")
        if summary.line:
            lines.append(f"    {summary.line}")
    said = f"{red}{type(error).__name__}{plain}: {error}" if str(error) else f"{red}{type(error).__name__}{plain}"
    return "\n".join([*lines, said, *getattr(error, "__notes__", ())])


def student_frames(tb: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """The frames of a traceback that are the student's, with the line of each."""
    return ((frame, line) for frame, line in traceback.walk_tb(tb) if is_students(frame.f_code))
