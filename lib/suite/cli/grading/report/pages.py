"""What all pages of a report share: the colours of states, style, script, and words."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from drawing.canvas.palette import GOLD, GOOD, PAGE, PAPER, Colour, mix
from drawing.canvas.picture import asset
from lib.errors.wording import amount, counted, exact
from lib.suite.cli.grading.report.wording import message_there
from lib.suite.cli.templates import colours, markup, policy, rendered
from lib.suite.submissions.states import STATES

__all__ = ["render"]

STATE_COLOURS: Mapping[str, Colour] = {
    "passed": GOOD,
    "missed": GOLD,
    "partly": mix(GOLD, PAGE["alarm"], 0.45),
    "failed": PAGE["alarm"],
    "unsolved": PAGE["soft"],
    "renamed": GOLD,
    "unreadable": PAGE["alarm"],
    "empty": PAGE["soft"],
    "unrelated": PAGE["soft"],
    "absent": PAGE["edge"],
}
"""Of the stripe that stands for a state; the cells are the same, much paler."""


def render(template: str, **values: Any) -> str:
    """A page. What is text is escaped; markup of ours comes as `Markup`. ModuleNotFoundError without jinja2."""
    return rendered(__package__, template, **_shared(), **values)


@cache
def _shared() -> dict[str, Any]:
    """What every template may use. Pictures lie beside the pages."""
    every: dict[str, Colour] = {}
    for name, colour in STATE_COLOURS.items():
        every |= {f"state-{name}": colour, f"pale-{name}": mix(colour, PAPER, 0.84)}
    script = "\n" + asset(__package__, "page.js")
    return {
        "policy": policy(script, "'self' data:"),
        "style": markup(colours(every) + asset(__package__, "page.css")),
        "script": markup(script),
        "states": STATES,
        "amount": amount,
        "counted": counted,
        "exact": exact,
        "message_there": message_there,
    }
