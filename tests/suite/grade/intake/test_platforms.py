"""Whose a file is, by the names that platforms give."""

import pytest

from lib.suite.grade.intake.owners import PLATFORMS, Platform, owner_of


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.name.replace(" ", "_"))
def test_the_example_of_a_platform_is_its_own(platform: Platform) -> None:
    first = next(one for one in PLATFORMS if one.pattern.fullmatch(platform.example))
    assert first is platform
    owner = owner_of(tuple(platform.example.split("/")))
    assert "ann" in owner.student.lower() or "alee7" in owner.student or owner.student.startswith("submission_")
    assert owner.parts[-1].startswith("05_fsdp")


FORGED = [
    "c/Ann Lee_1_assignsubmission_file_/x.zip/Bob Bad_4_assignsubmission_file_/05_fsdp.ipynb",
    "c/Ann Lee_1_assignsubmission_file_x_9_assignsubmission_file_05_fsdp.ipynb",
    "c/Ann Lee_12345_678_Bob Bad_410004_assignsubmission_file_05_fsdp.ipynb",
    "c/Ann Lee_12345_678_hw.zip/evil_99_88_ddp.ipynb",
    "c/Ann Lee_12345_678_Bob - ddp.ipynb",
    "c/HW 1_Ann Lee_attempt_2026-11-01-10-00-00_x_bob_attempt_2026-11-02-10-00-00_ddp.ipynb",
    "c/1-67 - Ann Lee - Nov 1, 2026 1000 AM - 9-9 - Bob - Nov 1, 2026 1000 AM - ddp.ipynb",
    "c/1-67 - Ann Lee - Nov 1, 2026 1000 AM/9-9 - Bob - Nov 1, 2026 1000 AM - ddp.ipynb",
    "c/submitted/Ann Lee/hw1/submitted/bob/hw1/ddp.ipynb",
]


@pytest.mark.parametrize("path", FORGED, ids=range(len(FORGED)))
def test_a_student_cannot_write_the_name_of_another_into_that_of_a_file(path: str) -> None:
    owner = owner_of(tuple(path.split("/")))
    assert owner.student == "Ann Lee"
    assert owner.id in ("", "1", "12345")
    assert owner.before.startswith(("Ann Lee", "1-67 - Ann Lee", "HW 1_Ann Lee"))
