"""Pictures of values and of schedules: draw, draw_group, compare. Importing it makes notebooks show them unasked.

    from drawing import draw, draw_group, compare

Each gives a Picture: notebooks show it, `picture.save("name.svg")` writes it (also .png and .pdf), and to chalk it is
a diagram like any other. A picture is one function from a Trace or a value to plain marks (see scene), and nothing
here runs a student's code.
"""

from __future__ import annotations

from .compare import compare
from .display import register
from .network import draw_group
from .picture import Picture
from .schedule import draw
from .show import picture_of

__all__ = ["Picture", "compare", "draw", "draw_group", "picture_of"]

register()
