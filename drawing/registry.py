"""What has a picture, in one table: `picture_of` and notebooks look things up here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from drawing.batch import picture_of_batch
from drawing.canvas.picture import Picture
from drawing.communication.mesh import draw_mesh, picture_of_holdings, picture_of_neighbours
from drawing.goal import picture_of_task
from drawing.pipelines.stages import picture_of_stages
from drawing.recording.recording import draw_recordings
from drawing.review.path import picture_of_path
from drawing.review.review import picture_of_review
from drawing.review.what_if import picture_of_helps, picture_of_what_if
from drawing.review.why import picture_of_why
from drawing.timeline.schedule import picture_of_trace, trace_of
from drawing.values import draw_group, picture_of_value
from drawing.verdict import picture_of_answers, picture_of_verdict
from lib.analysis.recordings.recording import Recording
from lib.analysis.waiting.critical_path import Path
from lib.analysis.waiting.what_helps import Helps
from lib.analysis.waiting.what_if import WhatIf
from lib.analysis.waiting.why import Why
from lib.checker.verdict import FunctionVerdict, Verdict
from lib.cluster.batch import PhysicalBatch
from lib.cluster.holdings import Holdings, Neighbours
from lib.cluster.mesh import Mesh
from lib.cluster.stages import Stages
from lib.puzzles.records import Task
from lib.suite.course.review import Review
from lib.trace.trace import Trace
from lib.values.values import Value

__all__ = ["PICTURES", "Shown", "picture_of"]


class Shown(NamedTuple):
    """How things of a class are shown: their picture, and the text beside it where that is not the picture's words."""

    picture: Callable[[Any], Picture]
    text: Callable[[Any], str] | None = None


def _itself(picture: Picture) -> Picture:
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
    Path: Shown(picture_of_path),
    WhatIf: Shown(picture_of_what_if),
    Helps: Shown(picture_of_helps),
    Task: Shown(picture_of_task),
    Picture: Shown(_itself),
}


def picture_of(thing: Any) -> Picture:
    """The picture of a value, a Trace, a verdict, a review, a mesh, a Model, a dict or list of values, or a list of
    Models."""
    for kind, shown in PICTURES.items():
        if isinstance(thing, kind):
            return shown.picture(thing)
    values = isinstance(thing, dict) or (isinstance(thing, list | tuple) and not _is_run(thing))
    return draw_group(thing) if values else picture_of_trace(trace_of(thing))


def _is_run(things: Any) -> bool:
    """Whether a list is one of Models. An empty one is a store with nothing in it."""
    return bool(things) and hasattr(things[0], "program")
