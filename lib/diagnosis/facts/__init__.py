"""What can be wrong with values: a fact for each broken rule, with what it is about in its fields, and its words."""

from lib.diagnosis.facts.collectives import *  # noqa: F403
from lib.diagnosis.facts.laws import *  # noqa: F403
from lib.diagnosis.facts.operations import *  # noqa: F403
