"""A few pictures byte for byte. After a change that is meant, `python -m tests.drawing.test_golden` writes them anew.

Look at the new ones before you keep them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drawing import Picture, puzzle_map
from drawing.registry import picture_of
from lib import PUZZLES
from lib.course.target import run
from tests.course.test_review import bound, reviewed
from tests.drawing import runs

GOLDEN = Path(__file__).with_name("golden")
NAMES = ("overlapped", "deadlock", "group", "verdict", "gpipe", "map", "review_ddp", "review_gpipe")


def pictures() -> dict[str, Picture]:
    """The pictures of `runs`, that of the README (the reference solution of gpipe), the map of the puzzles, and reviews
    of solutions that keep more than they have to."""
    gpipe = run("gpipe")
    assert gpipe is not None, "a reference is solved"
    found = {**runs.pictures(), "gpipe": picture_of(gpipe.trace), "map": puzzle_map(PUZZLES)}
    found["review_ddp"] = picture_of(replace(reviewed("ddp"), bound=bound(), excuse=None))
    found["review_gpipe"] = picture_of(replace(reviewed("gpipe"), bound=None))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    assert pictures()[name].svg() == (GOLDEN / f"{name}.svg").read_text("utf-8")


def main() -> None:
    """Writes the golden pictures."""
    GOLDEN.mkdir(exist_ok=True)
    found = pictures()
    for name in NAMES:
        print(found[name].save(GOLDEN / f"{name}.svg"))


if __name__ == "__main__":
    main()
