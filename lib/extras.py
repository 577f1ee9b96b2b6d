"""The extras of the package: which libraries each brings, and what is said where one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

__all__ = ["EXTRAS", "install", "need_extra"]

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "cli": ("watchfiles",),
    "notebook": ("ipykernel", "jupyterlab", "jupytext", "nbclient", "nbformat"),
    "png": ("vl_convert",),
    "replay": ("torch", "numpy"),
    "grade": ("jinja2", "joblib", "msgspec", "nbformat"),
    "optimum": ("ortools",),
}
"""The extras of pyproject.toml that a command can miss, and the names by which their libraries are imported."""


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f'pip install "llm-training-puzzles[{extra}]"'


def need_extra(extra: str, doing: str, *libraries: str) -> None:
    """Raise ModuleNotFoundError where libraries of an extra are missing: any of it, or of those that are named.

    Asked before long work, and not after it. `doing` begins the message: "a page needs".
    """
    missing = next((name for name in libraries or EXTRAS[extra] if not _is_there(name)), None)
    if missing is not None:
        raise ModuleNotFoundError(f'{doing} the extra "{extra}": {install(extra)}', name=missing)


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # it is forbidden, as None in sys.modules does
        return False
