"""What `drawing` needs of chalk, where nobody composes diagrams: the base classes, and the settings of their size.

A browser has this and not chalk-diagrams, which brings loguru, svgwrite, Pillow, toolz and planar along and takes
longer to import than all the rest. The pictures are the same, byte for byte. `install()` makes `import chalk` find it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Generic, NoReturn, TypeVar

A = TypeVar("A")


class BaseDiagram:
    """A diagram."""


class Primitive(BaseDiagram):
    """A diagram that is one shape."""

    def __init__(self, shape: Any, style: Any, transform: Any) -> None:
        self.shape, self.style, self.transform = shape, style, transform


class Shape:
    """What a Primitive is made of."""


class Style:
    """How a Primitive is drawn."""

    @staticmethod
    def empty() -> Style:
        """Return a style that changes nothing."""
        return Style()


class P2:
    """A point."""

    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y


class BoundingBox:
    """The box around points."""

    def __init__(self, limits: list[P2]) -> None:
        self.limits = limits


class Affine:
    """Where a Primitive stands."""

    @staticmethod
    def identity() -> Affine:
        """Return a transform that changes nothing."""
        return Affine()


class ShapeVisitor(Generic[A]):
    """What goes through the shapes of a diagram."""


class ToSVGShape(ShapeVisitor[Any]):
    """One that writes SVG."""


def set_svg_height(height: float) -> None:
    """Set how high pictures are, in pixels."""
    _CORE.SVG_HEIGHT = height


def set_svg_draw_height(height: float | None) -> None:
    """Set the height in pixels that lines are drawn for."""
    _CORE.SVG_DRAW_HEIGHT = height


def _absent(name: str) -> NoReturn:
    raise AttributeError(f"chalk.{name} is not in this page: install the puzzles to compose diagrams")


_CORE: Any = ModuleType("chalk.core")
_NAMES = {
    "chalk": {"core": _CORE, "set_svg_height": set_svg_height, "set_svg_draw_height": set_svg_draw_height},
    "chalk.backend": {},
    "chalk.backend.svg": {"ToSVGShape": ToSVGShape},
    "chalk.shapes": {"Shape": Shape},
    "chalk.style": {"Style": Style},
    "chalk.transform": {"P2": P2, "BoundingBox": BoundingBox, "Affine": Affine},
    "chalk.visitor": {"A": A, "ShapeVisitor": ShapeVisitor},
}
"""The names that each of chalk's modules has here."""


def install() -> None:
    """Put the modules where `import chalk` looks first."""
    _CORE.__dict__.update(
        SVG_HEIGHT=200,
        SVG_DRAW_HEIGHT=None,
        BaseDiagram=BaseDiagram,
        Primitive=Primitive,
        set_svg_height=set_svg_height,
        set_svg_draw_height=set_svg_draw_height,
    )
    sys.modules["chalk.core"] = _CORE
    for name, names in _NAMES.items():
        module = sys.modules[name] = ModuleType(name)
        module.__dict__.update(names)
    sys.modules["chalk"].__dict__.update(__getattr__=_absent, __path__=[])
