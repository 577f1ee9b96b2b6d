"""Runs a student's function on every rank."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lib.simulator.model import Model

when_loaded: "list[Callable[[type[Model]], None]]" = []
"""Told of the class Model as soon as there is one: `lib/__init__` gives it its `check`, which is none of ours."""
