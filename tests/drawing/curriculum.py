"""A curriculum of 24 puzzles in three chapters, for pictures that must not change with every new record."""

import tomllib
from pathlib import Path
from typing import NamedTuple

__all__ = ["CURRICULUM", "SOLVED", "Stop"]


class Stop(NamedTuple):
    """A puzzle as the map sees it."""

    number: int
    needs: tuple[str, ...]
    chapter: str = "basics"
    title: str = "title"
    stem: str = "00_stem"
    teaches: str = "what it teaches, in a few words"


def _stops() -> dict[str, Stop]:
    found: dict[str, Stop] = {}
    chapters = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    for chapter, puzzles in chapters.items():
        for name, (needs, title, teaches) in puzzles.items():
            number = len(found) + 1
            found[name] = Stop(number, tuple(needs.split()), chapter, title, f"{number:02d}_{name}", teaches)
    return found


CURRICULUM = _stops()
SOLVED = ("one", "batches", "copies", "weights", "hidden", "rows")
