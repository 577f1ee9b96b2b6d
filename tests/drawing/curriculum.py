"""A curriculum of 24 puzzles in three chapters, for pictures that must not change with every new record."""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["CURRICULUM", "SOLVED", "Stop"]


class Stop(NamedTuple):
    """A puzzle as the map sees it."""

    label: str
    needs: tuple[str, ...]
    chapter: str = "basics"
    title: str = "title"
    path: str = "basics/00_stem"
    teaches: str = "what it teaches, in a few words"
    minutes: int = 20
    deepens: str = ""
    part_of: str = ""


def _stops() -> dict[str, Any]:
    found: dict[str, Any] = {}
    chapters = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    for chapter, puzzles in chapters.items():
        for name, (needs, title, teaches) in puzzles.items():
            label, path = str(len(found) + 1), f"{chapter}/{len(found) + 1:02d}_{name}"
            found[name] = Stop(label, tuple(needs.split()), chapter, title, path, teaches)
    return found


CURRICULUM = _stops()
SOLVED = ("one", "batches", "copies", "weights", "hidden", "rows")
