"""Stages: where the stages of a pipeline lie, and which layers each has, as plain data that a picture can show."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from lib.errors.wording import counted


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages that each rank has, all of them once; stage s works on what stage s - 1 gives. `layers` are those of
    each stage, where they are known, and `ends` what is done before the first layer and behind the last. `wrong` are
    the stages with which something is wrong, and `title` says what is shown."""

    ranks: Sequence[Sequence[int]]
    layers: Sequence[range] = ()
    ends: tuple[str, str] = ("", "")
    wrong: Collection[int] = ()
    title: str = ""

    def __post_init__(self) -> None:
        stages = sorted(chain.from_iterable(self.ranks))
        if not stages or stages != list(range(len(stages))):
            raise ValueError(f"each stage from 0 on is on one rank; got {[list(one) for one in self.ranks]}")
        if self.layers and len(self.layers) != len(stages):
            raise ValueError(f"{counted(len(stages), 'stage')} need as many ranges of layers; got {len(self.layers)}")
        if any(len(mine) and len(its) and mine.stop != its.start for mine, its in pairwise(self.layers)):
            raise ValueError(f"the layers of a stage follow those of the stage before; got {list(self.layers)}")

    @property
    def count(self) -> int:
        """Return the number of stages."""
        return sum(map(len, self.ranks))

    def homes(self) -> list[int]:
        """Return the rank that each stage is on."""
        found = {stage: rank for rank, stages in enumerate(self.ranks) for stage in stages}
        return [found[stage] for stage in range(self.count)]

    def messages(self) -> int:
        """Return how often a microbatch goes from one rank to another on its way forward."""
        return sum(mine != its for mine, its in pairwise(self.homes()))

    def words(self) -> str:
        """Describe them in a line."""
        each = "; ".join(f"rank {rank}: {', '.join(map(str, stages))}" for rank, stages in enumerate(self.ranks))
        return f"{counted(self.count, 'stage')} on {counted(len(self.ranks), 'rank')}: {each}"

    def __repr__(self) -> str:
        return f"<{self.words()}>"
