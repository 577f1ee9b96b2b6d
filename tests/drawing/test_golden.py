"""A few pictures byte for byte. After a change that is meant, `python -m tests.drawing.test_golden` writes them anew.

Look at the new ones before you keep them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drawing.runs import pictures

GOLDEN = Path(__file__).with_name("golden")
NAMES = ("overlapped", "deadlock", "group", "verdict")


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
