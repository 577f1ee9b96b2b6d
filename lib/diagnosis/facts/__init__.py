"""Facts: one for each rule that values can break, with what it is about in its fields, and its words."""

from lib.diagnosis.facts.laws import *  # noqa: F403
from lib.diagnosis.facts.operations import *  # noqa: F403
