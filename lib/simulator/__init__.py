"""Runs a student's function on every rank."""

from collections.abc import Callable
from typing import Any

attached: dict[str, Callable[..., Any]] = {}
"""Methods of a Model that other rooms attach, by name: the checker attaches `check`. `lib/__init__` loads it first."""
