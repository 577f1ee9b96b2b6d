"""Who hears of the checks that a student asks for: such as what records progress. The check knows none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lib.checker.verdict import FunctionVerdict, Verdict
    from lib.trace.trace import Trace

    Listener = Callable[[Verdict | FunctionVerdict, Trace | None], None]

__all__ = ["listen", "tell"]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Has a listener hear of every check to come."""
    _listeners.append(listener)


def tell(verdict: Verdict | FunctionVerdict, trace: Trace | None) -> None:
    """Tells all listeners of a verdict on a run."""
    for listener in _listeners:
        listener(verdict, trace)
