"""Notebooks show values, Traces, verdicts and errors by themselves, from one table that `picture_of` reads too.

IPython is never imported, only used where it is already loaded: `import drawing` works, just as fast, without it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, NamedTuple, cast

from chalk.core import BaseDiagram

from drawing.canvas.picture import Picture, bundle
from drawing.comparing.answers import picture_of_path, picture_of_what_if, picture_of_why
from drawing.comparing.goals import picture_of_answers, picture_of_task, picture_of_verdict
from drawing.comparing.recordings import draw_recordings
from drawing.comparing.review import picture_of_review
from drawing.diagrams.lanes import picture_of_batch, picture_of_stages
from drawing.diagrams.mesh import draw_mesh, picture_of_holdings, picture_of_neighbours
from drawing.timeline.schedule import picture_of_trace, trace_of
from drawing.values import draw_group, picture_of_value
from lib.analysis.recording import Recording
from lib.analysis.waiting.critical_path import Path as CriticalPath
from lib.analysis.waiting.what_if import WhatIf
from lib.analysis.waiting.why import Why
from lib.checker.verdict import FunctionVerdict, Verdict
from lib.cluster.layouts import Holdings, Neighbours, PhysicalBatch, Stages
from lib.cluster.mesh import Mesh
from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import OURS, is_students, notebook
from lib.puzzles.puzzle import Task
from lib.suite.course.review import Review
from lib.trace.trace import Trace
from lib.values.operations import TIMED
from lib.values.values import Value


class Shown(NamedTuple):
    """How to show things of a class: their picture, and the text beside it where it is not the picture's words."""

    picture: Callable[[Any], Picture]
    text: Callable[[Any], str] | None = None


def _itself(picture: Any) -> Any:
    return picture


PICTURES: Final[Mapping[type, Shown]] = {
    Value: Shown(picture_of_value, repr),
    Trace: Shown(picture_of_trace),
    Verdict: Shown(picture_of_verdict),
    FunctionVerdict: Shown(picture_of_answers, repr),
    Mesh: Shown(draw_mesh, repr),
    Holdings: Shown(picture_of_holdings),
    Neighbours: Shown(picture_of_neighbours),
    PhysicalBatch: Shown(picture_of_batch, repr),
    Recording: Shown(draw_recordings),
    Stages: Shown(picture_of_stages, repr),
    Review: Shown(picture_of_review, Review.text),
    Why: Shown(picture_of_why),
    CriticalPath: Shown(picture_of_path),
    WhatIf: Shown(picture_of_what_if),
    Task: Shown(picture_of_task),
    Picture: Shown(_itself),
}


def picture_of(thing: Any) -> Picture:
    """Return the picture of a value, a Trace, a verdict, a review, a mesh, a Model, a dict or list of values, or a list
    of Models."""
    for kind, shown in PICTURES.items():
        if isinstance(thing, kind):
            return shown.picture(thing)
    # A list of Models is a run; an empty one is a store with nothing in it.
    if isinstance(thing, list | tuple) and hasattr(next(iter(cast("Sequence[Any]", thing)), None), "program"):
        return picture_of_trace(trace_of(thing))
    return draw_group(thing) if isinstance(thing, dict | list | tuple) else picture_of_trace(trace_of(thing))


Bundle = dict[str, str]
CellName = Callable[[str], tuple[str, str] | None]
FRAMES: Final = 8  # most lines of a student's code that an error shows; beyond that, the first two and the last ones


def register() -> None:
    """Tell a running IPython how to show our objects. A second call changes nothing."""
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
    """Show an error of ours, or one that came through our code: the student's own lines, the message, and the run up
    to there. It stays an error. IPython shows all others."""
    ours = isinstance(error, PuzzleError) or isinstance(getattr(error, "trace", None), Trace)
    if not ours and not any(frame.f_code.co_filename.startswith(OURS) for frame, _ in traceback.walk_tb(tb)):
        has_run = next(student_frames(tb), None) is not None
        if isinstance(error, IndentationError) and not has_run:  # a cell with a syntax error has not run at all
            shell.showindentationerror()
        else:
            shell.showtraceback((kind, error, tb), tb_offset=tb_offset, running_compiled_code=has_run)
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


def error_text(
    error: BaseException, tb: TracebackType | None, cell_name: CellName | None = None, *, colour: bool = False
) -> str:
    """Return an error as a student needs it: the lines of their own code that led to it, then what it says."""
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
    """Return the student's frames of a traceback, with the line of each."""
    return ((frame, line) for frame, line in traceback.walk_tb(tb) if is_students(frame.f_code))
