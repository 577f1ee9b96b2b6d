"""What can be wrong with values, by name, as in `facts.Unsummed(gradient, batches)`.

The facts are in `lib.diagnosis.facts`, each with its fields and possible causes: they are imported when a rule is
broken.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lib.diagnosis.facts import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        return getattr(import_module("lib.diagnosis.facts"), name)
