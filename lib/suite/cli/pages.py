"""Pages made of templates. What others wrote goes through two gates, at one place each: what cannot be seen is made
visible in everything that a template prints, and then it is escaped. A page runs its own script and loads nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from drawing.canvas.palette import PAGE, Colour
from drawing.canvas.picture import asset
from lib.errors.wording import visible
from lib.extras import need_extra

__all__ = ["file_of", "markup", "page"]

NO_COLOURS: Final[Mapping[str, Colour]] = MappingProxyType({})


def page(
    template: str,
    look: str,
    images: str = "'none'",
    script: bool = True,
    colours: Mapping[str, Colour] = NO_COLOURS,
    **values: Any,
) -> str:
    """Fill in a template of `templates/`, which may use others there, with the style and script that a `look` has.

    `images` is from where the page may load any; its script is known by its hash, and nothing else comes from anywhere.
    `colours` are its own, by the names that its style uses. What is text in `values` is escaped; markup of ours comes
    as `markup`. ModuleNotFoundError without jinja2.
    """
    need_extra("grade", "a page needs", "jinja2")
    code = f"\n{file_of(f'{look}.js')}" if script else ""
    digest = b64encode(sha256(code.encode()).digest()).decode()
    allowed = f" script-src 'sha256-{digest}';" if script else ""
    policy = (
        f"default-src 'none';{allowed} style-src 'unsafe-inline'; img-src {images}; base-uri 'none'; form-action 'none'"
    )
    style = _variables(colours) + file_of(f"{look}.css")
    shared = {"policy": markup(policy), "style": markup(style), "script": markup(code)}
    return _template(template).render(**shared, **values)


@cache
def file_of(name: str) -> str:
    """The text of a template, style or script."""
    return asset(__package__, f"templates/{name}")


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # here and not above: only a page needs it

    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(file_of),
        finalize=_seen,
    )
    return environment.get_template(name)


def _seen(value: Any) -> Any:
    """Text with all that cannot be seen made visible. Markup is ours, and a subclass of str."""
    return visible(value) if type(value) is str else value


def markup(text: str) -> Any:
    """Markup of ours, which a template prints as it is."""
    from markupsafe import Markup  # here and not above: it comes with jinja2

    return Markup(text)


def _variables(more: Mapping[str, Colour]) -> str:
    """The colours of all pages, and `more`: by day and by night, as its `color-scheme` says, which follows the system
    or what is chosen on the page."""
    every = {**PAGE, **more}
    day = "".join(f"--{name}:{colour};" for name, colour in every.items())
    both = "".join(f"--{name}:light-dark({colour},{colour.night});" for name, colour in every.items())
    return f":root{{color-scheme:light dark;{day}}}\n@supports(color:light-dark(red,red)){{:root{{{both}}}}}\n"
