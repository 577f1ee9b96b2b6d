"""Whose a file is, by the names that platforms give."""

from __future__ import annotations

import pytest

from lib.grade.intake.platforms import PLATFORMS, Platform, owner_of


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.name.replace(" ", "_"))
def test_the_example_of_a_platform_is_its_own(platform: Platform) -> None:
    first = next(one for one in PLATFORMS if one.pattern.fullmatch(platform.example))
    assert first is platform
    owner = owner_of(tuple(platform.example.split("/")))
    assert "ann" in owner.student.lower() or "alee7" in owner.student or owner.student.startswith("submission_")
    assert owner.parts[-1].startswith("05_fsdp")


OTHERS = [
    ("hw1/ann/05_fsdp.ipynb", "ann", ("05_fsdp.ipynb",)),
    ("hw1/ann/week 1/05_fsdp.ipynb", "ann", ("week 1", "05_fsdp.ipynb")),
    ("hw1/ann.zip/puzzles/05_fsdp.ipynb", "ann", ("puzzles", "05_fsdp.ipynb")),
    ("hw1/ann.tar.gz/05_fsdp.ipynb", "ann", ("05_fsdp.ipynb",)),
    ("hw1/ann.ipynb", "ann", ("ann.ipynb",)),
    ("hw1/05_fsdp_ann.ipynb", "ann", ("05_fsdp_ann.ipynb",)),
    ("hw1/ann_fsdp.py", "ann", ("ann_fsdp.py",)),
    ("ann/05_fsdp.ipynb", "ann", ("05_fsdp.ipynb",)),
    ("hw/ann/attempt_1_2_x.ipynb", "ann", ("attempt_1_2_x.ipynb",)),
    ("ann.zip/05_fsdp.ipynb", "ann", ("05_fsdp.ipynb",)),
]


@pytest.mark.parametrize(("path", "student", "parts"), OTHERS, ids=lambda value: str(value).replace("/", "|"))
def test_plain_names(path: str, student: str, parts: tuple[str, ...]) -> None:
    owner = owner_of(tuple(path.split("/")))
    assert (owner.student, owner.parts) == (student, parts)
