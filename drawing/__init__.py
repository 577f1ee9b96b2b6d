"""Pictures of values and of schedules. Importing it makes notebooks show them unasked.

    from drawing import compare, draw, draw_group, step_through

The first three give a Picture: notebooks show it, `picture.save("name.svg")` writes it (also .png and .pdf), and to
chalk it is a diagram like any other. A picture is one function from a Trace or a value to plain marks (see scene), and
nothing here runs a student's code. `step_through` gives a page to scrub through a run, one HTML file.
"""

from __future__ import annotations

from .compare import compare
from .display import register
from .network import draw_group
from .picture import Picture
from .schedule import draw
from .show import picture_of
from .stepper import step_through

__all__ = ["Picture", "compare", "draw", "draw_group", "picture_of", "step_through"]

register()
