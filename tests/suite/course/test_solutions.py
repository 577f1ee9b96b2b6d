"""The official answers and the alternatives: what is shown, that all of it is correct, and when it is shown."""

import shutil
from pathlib import Path

import pytest

from lib import PUZZLES, Model, Trace, reveal, simulate
from lib.analysis.figures import end
from lib.suite.course import progress, solutions
from lib.suite.course.progress import Standing
from lib.suite.course.solutions import alternatives, answer, description, owner, refusal, run_of, ways
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import home, notebook_in, reference
from tests.support.puzzles import way
from tests.support.said import Said


def test_a_file_belongs_to_the_longest_name_of_a_puzzle() -> None:
    assert owner(Path("pipeline_fsdp_gather_again.py")) == "pipeline_fsdp"
    assert owner(Path("pipeline_halves.py")) == "pipeline"
    assert owner(Path("pipelined.py")) is None
    assert owner(Path("ddp.py")) is None


def test_another_root(tmp_path: Path) -> None:
    folder = tmp_path / "solutions" / "alternatives"
    assert alternatives("ddp", tmp_path) == []
    folder.mkdir(parents=True)
    for name in ("ddp_b.py", "ddp_a.py", "ddp_notes.txt", "fsdp_a.py"):
        (folder / name).write_text("")
    assert [path.name for path in alternatives("ddp", tmp_path)] == ["ddp_a.py", "ddp_b.py"]


@pytest.mark.parametrize("puzzle", PUZZLES)
def test_the_answer_is_what_stands_between_the_markers(puzzle: str) -> None:
    lines = answer(puzzle).splitlines()
    source = reference(puzzle).read_text("utf-8")
    assert lines
    assert not lines[0].startswith(" ")
    assert "your code" not in answer(puzzle)
    assert "\n".join(f"    {line}" if line else "" for line in lines) in source


def test_an_alternative_is_shown_with_what_stands_above_its_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = '@schedule(messages="posted")\ndef gpipe(rank, ranks, batches):\n    return ["F0", "B0"]'
    (tmp_path / "gpipe_short.py").write_text(f'"""One batch."""\n\nfrom lib import schedule\n\n\n{order}\n')
    monkeypatch.setattr("lib.suite.course.solutions.alternatives", lambda _: [tmp_path / "gpipe_short.py"])  # pyright: ignore
    monkeypatch.setattr("lib.suite.course.solutions.verdict_of", lambda *_: None)  # pyright: ignore
    assert ways("gpipe")[-1].code == order


def test_a_source_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.suite.course.solutions.reference", lambda _: home() / "solutions" / "introduction.py")  # pyright: ignore
    with pytest.raises(BuildError, match=r"introduction\.py holds no answer to 'ddp'"):
        answer("ddp")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""One.\n\nTwo,\nthree.\n"""\n', ("One.", "Two, three.")),
        ('"""One."""\n', ("One.", "")),
        ("x = 1\n", ("", "")),
    ],
)
def test_what_a_docstring_says(text: str, expected: tuple[str, str]) -> None:
    assert description(text) == expected


test_a_refusal_says_what_is_missing_and_hides_nothing = Said(__file__, "refusals").test(lambda: globals())


def test_a_puzzle_that_is_passed_is_shown() -> None:
    assert refusal("ddp", Standing(1, True, "passes", 5.6, 1.0)) is None


def test_in_a_notebook_the_answer_is_shown_once_the_puzzle_is_passed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "passed_here", passed := dict[str, Trace | None]())
    monkeypatch.setattr(solutions, "passed_here", passed)
    assert reveal("ddp") is None
    said = capsys.readouterr().out
    assert said.startswith("ddp has not been checked yet. The answer is shown when the puzzle is passed.")
    assert 'hint("ddp", 1)' in said
    Model.check(simulate(way("ddp"), puzzle="ddp"), puzzle="ddp")
    shown = reveal("ddp")
    assert shown is not None
    assert answer("ddp") in shown.markdown
    others = [path.stem.removeprefix("ddp_") for path in alternatives("ddp")]
    for name in others:
        assert f'`reveal("ddp", "{name}")`' in shown.markdown
        other = reveal("ddp", name)
        assert other is not None
        assert "async def ddp(model: Model) -> None:" in other.markdown
    with pytest.raises(ValueError, match="ddp has no solution called 'nothing'; there are official, "):
        reveal("ddp", "nothing")
    with pytest.raises(ValueError, match="there is no puzzle 'dpp'"):
        reveal("dpp")


def test_a_run_that_passed_here_is_yours_and_a_notebook_without_an_answer_is_left_in_silence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    passed: dict[str, Trace | None] = {}
    monkeypatch.setattr(progress, "passed_here", passed)
    monkeypatch.setattr(solutions, "passed_here", passed)
    monkeypatch.setattr(solutions, "known", lambda: {"ddp": Standing(passed=True)})
    monkeypatch.setenv("PUZZLES_FOLDER", str(tmp_path))
    shutil.copy(notebook_in(home() / "puzzles", "ddp"), tmp_path)
    ours, is_yours = run_of("ddp")
    assert (end(ours), is_yours) == (5.6, False)
    assert capsys.readouterr().out == ""
    models = simulate(load_function(alternatives("ddp")[0], "ddp"), puzzle="ddp")
    Model.check(models, puzzle="ddp")
    yours, is_yours = run_of("ddp")
    assert (end(yours), is_yours) == (5, True)
