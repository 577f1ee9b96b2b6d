"""Pages made of templates. What others wrote goes through two gates, at one place each: what cannot be seen is made
visible in everything that a template prints, and then it is escaped. A page runs its own script and loads nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cache, partial
from hashlib import sha256
from typing import Any

from drawing.canvas.palette import PAGE, Colour
from drawing.canvas.picture import asset
from lib.errors.wording import visible
from lib.extras import need_extra

__all__ = ["colours", "markup", "policy", "rendered"]


def rendered(package: str | None, template: str, **values: Any) -> str:
    """A template that lies beside the modules of a package, filled in; it may use others of the same package.

    What is text is escaped; markup of ours comes as `markup`. ModuleNotFoundError without jinja2.
    """
    need_extra("grade", "a page needs", "jinja2")
    return _template(package, template).render(**values)


@cache
def _template(package: str | None, name: str) -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # here and not above: only a page needs it

    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(partial(asset, package)),
        finalize=_seen,
    )
    return environment.get_template(name)


def _seen(value: Any) -> Any:
    """What a template prints: text with all that cannot be seen made visible. Markup is ours."""
    return visible(value) if type(value) is str else value


def markup(text: str) -> Any:
    """Markup of ours, which a template prints as it is."""
    from markupsafe import Markup  # here and not above: it comes with jinja2

    return Markup(text)


def policy(script: str, images: str = "'none'") -> Any:
    """The policy of a page: its own script, known by its hash, and `images` from where it says; nothing else from
    anywhere."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return markup(
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src {images}; "
        "base-uri 'none'; form-action 'none'"
    )


def colours(more: Mapping[str, Colour]) -> str:
    """The colours of a page, and `more` of its own, by the names that its style uses: by day and by night, as its
    `color-scheme` says, which follows the system or what is chosen on the page."""
    every = {**PAGE, **more}
    day = "".join(f"--{name}:{colour};" for name, colour in every.items())
    both = "".join(f"--{name}:light-dark({colour},{colour.night});" for name, colour in every.items())
    return f":root{{color-scheme:light dark;{day}}}\n@supports(color:light-dark(red,red)){{:root{{{both}}}}}\n"
