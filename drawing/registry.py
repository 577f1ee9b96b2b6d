"""picture_of: the picture of anything that has one, without printing."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from drawing.canvas.picture import Picture
from drawing.timeline.schedule import picture_of_trace, trace_of
from drawing.values import draw_group, picture_of_value
from drawing.verdict import picture_of_verdict
from lib.checker.verdict import Verdict
from lib.trace.trace import Trace
from lib.values.values import Value

__all__ = ["picture_of"]


@singledispatch
def picture_of(thing: Any) -> Picture:
    """The picture of a value, a Trace, a verdict, a Model, a dict or list of values, or a list of Models."""
    return picture_of_trace(trace_of(thing))


@picture_of.register(list)
@picture_of.register(tuple)
def _(thing: Any) -> Picture:
    return picture_of_trace(trace_of(thing)) if thing and hasattr(thing[0], "program") else draw_group(thing)


picture_of.register(dict, draw_group)
picture_of.register(Value, picture_of_value)
picture_of.register(Trace, picture_of_trace)
picture_of.register(Verdict, picture_of_verdict)
