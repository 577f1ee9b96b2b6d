"""Why something went wrong, in words: the likely cause and the likely fix.

    from lib import diagnosis
    raise diagnosis.not_callable(...)

Nothing here is needed by a run that goes well, so each part is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.diagnosis.deadlock import on_failed, on_spinning, on_stuck, rank_failed
    from lib.diagnosis.groups import axis_twice, no_axis, no_mesh, no_peer, not_a_group
    from lib.diagnosis.likely_cause import advise
    from lib.diagnosis.python_errors import (
        asleep,
        interrupted,
        never_awaited,
        not_callable,
        not_here,
        not_ours,
        not_the_latest,
        waiting_at,
    )

__all__ = [
    "advise",
    "asleep",
    "axis_twice",
    "interrupted",
    "never_awaited",
    "no_axis",
    "no_mesh",
    "no_peer",
    "not_a_group",
    "not_callable",
    "not_here",
    "not_ours",
    "not_the_latest",
    "on_failed",
    "on_spinning",
    "on_stuck",
    "rank_failed",
    "waiting_at",
]

_HOMES = {
    "lib.diagnosis.deadlock": "on_failed on_spinning on_stuck rank_failed",
    "lib.diagnosis.groups": "axis_twice no_axis no_mesh no_peer not_a_group",
    "lib.diagnosis.likely_cause": "advise",
    "lib.diagnosis.python_errors": "asleep interrupted never_awaited not_callable not_here not_ours not_the_latest "
    "waiting_at",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found
