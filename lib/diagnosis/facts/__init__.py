"""Facts: one for each rule that values can break, with its words (`words.toml`) and the likely causes in a run."""

from lib.diagnosis.facts.arguments import *  # noqa: F403
from lib.diagnosis.facts.grids import *  # noqa: F403
from lib.diagnosis.facts.pieces import *  # noqa: F403
from lib.diagnosis.facts.shards import *  # noqa: F403
from lib.diagnosis.facts.stores import *  # noqa: F403
from lib.diagnosis.facts.sums import *  # noqa: F403
