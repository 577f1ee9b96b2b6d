"""What can be wrong with values, by name, as in `facts.Unsummed(gradient, batches)`.

The facts are in `lib.diagnosis.facts`, each with its fields and the causes that it may have: only a broken rule needs
them, so they are imported when one is.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lib.diagnosis.facts import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        return getattr(import_module("lib.diagnosis.facts"), name)
