"""grade: who passes and who does not; and that it comes out the same, however it was run."""

from pathlib import Path

import pytest

from lib.suite.grade import grading
from tests.suite.grade.classes import (
    ENDLESS,
    HARD_CODED,
    RAISES,
    STUB,
    WRONG,
    alternative,
    asked,
    graded,
    hand_in,
    scores,
    solution,
)

CLASS = {
    "ana/ddp.py": solution("ddp"),
    "ben/ddp.py": alternative("ddp_sharded_update"),
    "cleo/ddp.py": HARD_CODED,
    "dan/ddp.py": STUB,
    "eva/ddp.py": WRONG,
    "fay/ddp.py": RAISES,
    "gus/fsdp.py": solution("fsdp"),
}


def test_each_gets_the_score_that_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # in a server of its own, which is gone afterwards
    book = graded(hand_in(tmp_path / "in", CLASS), tmp_path / "out", asked("ddp"))
    found = scores(book, "ddp")
    states = {name: (score.own.state, score.hidden_passed, score.state) for name, score in found.items()}
    assert states == {
        "ana": ("passed", 2, "passed"),
        "ben": ("missed", 2, "missed"),
        "cleo": ("passed", 0, "partly"),
        "dan": ("unsolved", 0, "unsolved"),
        "eva": ("failed", 0, "failed"),
        "fay": ("failed", 0, "failed"),
        "gus": ("unrelated", 0, "unrelated"),
    }
    assert "At 2 ranks, 3 layers, 2 batches" in found["cleo"].message
    assert "KeyError" in found["fay"].message
    assert found["ana"].own.schedule == book.asked[0].reference.schedule if book.asked[0].reference else False
    assert not book.passed
    assert grading._every == []


def test_what_ends_nowhere_is_ended(tmp_path: Path) -> None:
    book = graded(hand_in(tmp_path / "in", {"ida/ddp.py": ENDLESS}), tmp_path / "out", asked("ddp", seconds=0.5))
    assert scores(book, "ddp")["ida"].state == "failed"
    assert "did not end within 0.5 seconds" in scores(book, "ddp")["ida"].message


def test_what_is_finished_is_not_done_again_and_gives_the_same(tmp_path: Path) -> None:
    folder = hand_in(tmp_path / "in", CLASS)
    first = graded(folder, tmp_path / "out", asked("ddp"))
    journal = tmp_path / "out" / "work" / "journal.jsonl"
    before = journal.read_bytes()
    assert graded(folder, tmp_path / "out", asked("ddp")) == first
    assert journal.read_bytes() == before
    journal.write_bytes(before[:-30])  # a line that was cut off
    assert graded(folder, tmp_path / "out", asked("ddp")) == first
