"""Students' functions in limited children: what comes back, and that nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lib import check
from lib.grade.isolation import AtSize, Isolation, Limits, asked_for
from lib.puzzles.records import PUZZLES, Size
from lib.submissions.locations import reference
from lib.submissions.source import Source


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    with Isolation() as made:
        yield made


def solution(puzzle: str) -> Source:
    return Source.of("mine.py", reference(puzzle).read_text("utf-8"))


def source(body: str, puzzle: str = "basic") -> Source:
    return Source.of("mine.py", f"from lib import Model, NotSolved\nimport os\n\n\ndef {puzzle}(model):\n    {body}\n")


@pytest.mark.parametrize("puzzle", ["basic", "ddp"])
def test_a_solution_comes_back_as_a_trace_at_any_size(isolation: Isolation, puzzle: str) -> None:
    sent = isolation.run(solution(puzzle), puzzle)
    assert sent.outcome == "trace", sent.text
    assert sent.trace is not None
    assert check(sent.trace, puzzle).passed
    for ranks, layers, batches, mesh in PUZZLES[puzzle].hidden:
        size = AtSize(ranks, layers, batches, mesh)
        sent = isolation.run(solution(puzzle), puzzle, size)
        assert sent.trace is not None
        assert Size.of(sent.trace) == size[:3]
        assert check(sent.trace).correct
        assert asked_for(sent.trace, puzzle, size) is None
        assert asked_for(sent.trace, puzzle) is not None


def test_what_does_not_end_is_ended_and_located(isolation: Isolation) -> None:
    sent = isolation.run(source("while True: pass"), "basic", limits=Limits(seconds=0.3))
    assert sent.outcome == "failed"
    assert "mine.py, line 6, in basic: while True: pass" in sent.text
    sent = isolation.run(source("sum(range(10**13))"), "basic", limits=Limits(seconds=0.3))
    assert "basic did not end within 0.3 seconds, so it was stopped\n  where:    mine.py, line 6, in basic" in sent.text
    assert isolation.run(solution("basic"), "basic").outcome == "trace"
