"""A class of many: every honest solution passes, no attempt at cheating does, and nothing that anybody hands in stops
the grading of others."""

from pathlib import Path

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from lib.suite.grade.gradebook import STATES
from lib.suite.grade.judging import judge_source
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.messages import Limits
from lib.suite.submissions.source import Source
from tests.suite.grade.classes import HARD_CODED, asked, graded, hand_in, scores
from tests.support.profiles import examples, sample
from tests.support.variants import VARIANTS


def test_every_honest_solution_passes(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    some = sample(VARIANTS)
    for number, variant in enumerate(some):
        files[f"student {number:02d}/{variant.file}"] = variant.text()
        files |= {f"student {number:02d}/{path}": text for path, text in variant.modules}
    puzzles = dict.fromkeys(variant.puzzle for variant in some)
    book = graded(hand_in(tmp_path / "in", files), tmp_path / "out", asked(*puzzles, hidden=1, seed="spring"))
    for number, variant in enumerate(some):
        score = scores(book, variant.puzzle)[f"student {number:02d}"]
        assert score.state == "passed", f"{variant.name}: {score.message}"
    assert not book.refused


LINES = st.lists(
    st.sampled_from([*HARD_CODED.splitlines(), "", "    ", "x = (", "return", "\ufeff", "def ddp(model):"])
)
TEXTS = st.one_of(
    st.text(max_size=200),
    LINES.map("\n".join),
    st.tuples(LINES, st.text(max_size=20)).map(
        lambda pair: "async def ddp(model):\n    " + "\n    ".join(pair[0]) + pair[1]
    ),
    st.integers(1, 3000).map(lambda depth: "def ddp(model):\n    return " + "(" * depth),
    st.integers(1, 3000).map(lambda depth: "def ddp(model):\n    return " + "-" * depth + "1"),
)


@examples(100, 8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_nothing_that_is_handed_in_crashes_the_grader(isolation: Isolation, text: str) -> None:
    (required,) = asked("ddp", hidden=0).required
    score, _ = judge_source(Source((("ddp.py", text),), name="ddp.py"), required, isolation, Limits(seconds=10.0))
    assert score.state in STATES
    assert score.state != "passed" or "allreduce" in text
    assert score.message
