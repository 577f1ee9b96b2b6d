"""Explanations of what went wrong: the likely cause and the likely fix, as in `diagnosis.not_callable(...)`.

Nothing here is needed by a run that goes well, so it is imported when the first of it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.diagnosis.causes import *  # noqa: F403
    from lib.diagnosis.deadlock import *  # noqa: F403
    from lib.diagnosis.groups import *  # noqa: F403
    from lib.diagnosis.python_errors import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        for home in ("causes", "python_errors", "groups", "deadlock"):
            if name in (module := import_module(f"lib.diagnosis.{home}")).__all__:
                return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
