"""Templates and what all pages share: style, script, and a policy under which nothing else runs or is loaded.

What students wrote goes through two gates, at one place each: what cannot be seen is made visible in everything that a
template prints, and then it is escaped.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import Any

from drawing.canvas.frame import asset
from drawing.canvas.palette import GOLD, GOOD, PAGE, PAPER, Colour, mix
from lib.cli.grading.report.wording import STATES_IN_WORDS, message_there
from lib.errors.wording import amount, counted, exact, visible

__all__ = ["markup", "render"]

STATE_COLOURS: Mapping[str, Colour] = {
    "passed": GOOD,
    "missed": GOLD,
    "elsewhere": mix(GOLD, PAGE["alarm"], 0.45),
    "failed": PAGE["alarm"],
    "unsolved": PAGE["soft"],
    "absent": PAGE["edge"],
}
"""Of the stripe that stands for a state; the cells are the same, much paler."""


def render(template: str, **values: Any) -> str:
    """A page. What is text is escaped; markup of ours comes as `Markup`."""
    return _template(template).render(policy=_policy(), style=_style(), script=_script(), **values)


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # here and not above: only a page needs it

    def load(name: str) -> str:
        return asset(__package__, name)

    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(load),
        finalize=_seen,
    )
    words: dict[str, Any] = {"amount": amount, "counted": counted, "exact": exact, "states": STATES_IN_WORDS}
    words["message_there"] = message_there
    return environment.get_template(name, globals=words)


def _seen(value: Any) -> Any:
    """What a template prints: text with all that cannot be seen made visible. Markup is ours."""
    return visible(value) if type(value) is str else value


@cache
def _script() -> Any:
    return markup("\n" + asset(__package__, "page.js"))


@cache
def _policy() -> Any:
    """Our own script, known by its hash, and pictures that lie beside the page; nothing from anywhere else."""
    digest = b64encode(sha256(_script().encode()).digest()).decode()
    return markup(
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _style() -> Any:
    colours = dict(PAGE)
    for name, colour in STATE_COLOURS.items():
        colours |= {f"state-{name}": colour, f"pale-{name}": mix(colour, PAPER, 0.84)}
    day = "".join(f"--{name}:{colour};" for name, colour in colours.items())
    both = "".join(f"--{name}:light-dark({colour},{colour.night});" for name, colour in colours.items())
    schemes = "[data-theme=light]{color-scheme:light}[data-theme=dark]{color-scheme:dark}"
    variables = f":root{{color-scheme:light dark;{day}}}{schemes}\n"
    variables += f"@supports(color:light-dark(red,red)){{:root{{{both}}}}}\n"
    return markup(variables + asset(__package__, "page.css"))


def markup(text: str) -> Any:
    """Markup of ours, which a template prints as it is."""
    from markupsafe import Markup  # here and not above: it comes with jinja2

    return Markup(text)
