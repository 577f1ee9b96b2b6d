"""TEACHING.md: its commands are commands, what it says they print is printed, and its minutes add up."""

import ast
import re
import shlex
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from lib import PUZZLES
from lib.suite.cli.app import app
from lib.suite.grade.assignment import KEYS, Config, read_config
from lib.suite.grade.grading import grade
from lib.suite.grade.intake.collecting import PLATFORMS, collect
from lib.suite.grade.patterns import similar
from lib.suite.grade.results import COLUMNS
from lib.suite.isolation.isolation import FEATURES
from lib.suite.submissions.locations import reference
from tests.support.drivers import ROOT
from tests.support.profiles import sample
from tests.support.said import Said
from tools.example_class import ASKED as ASKED_OF_THE_CLASS
from tools.example_class import STUDENTS, write_class
from tools.notebooks.shared_cells import LISTEN, MARKED, teaching

pytestmark = pytest.mark.usefixtures("warm")

PAGE = (ROOT / "TEACHING.md").read_text("utf-8")
WRITTEN = MARKED.sub("", PAGE)
"""The page without what is made of the records."""

COMMAND = re.compile(r"`puzzles\s([^`]*)`")
SAID = re.compile(r"\*\*(.+?)\*\*")


def flat(text: str) -> str:
    return " ".join(text.split())


def claims(text: str) -> list[tuple[str, list[str]]]:
    """The commands in a text, each with what it says in bold before the next one: that is what it prints."""
    parts = COMMAND.split(flat(text))
    return [(command, SAID.findall(said)) for command, said in zip(parts[1::2], parts[2::2], strict=True)]


ASKED = [(record.id, *claim) for record in PUZZLES.values() for claim in claims(record.discuss)]


@pytest.mark.parametrize(("puzzle", "command", "said"), sample(ASKED), ids=str)
def test_what_a_question_says_that_a_command_prints_is_printed(
    puzzle: str, command: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    monkeypatch.chdir(ROOT)
    found = CliRunner().invoke(app, shlex.split(command))
    assert found.exit_code == 0, found.output
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", found.output)]
    for figure in said:
        if re.fullmatch(r"\d[\d,]*(?:\.\d+)?", figure):  # as it is printed, or rounded
            digits = len(figure.partition(".")[2])
            assert float(figure.replace(",", "")) in [round(one, digits) for one in numbers], (figure, found.output)
        else:
            assert figure in found.output, (figure, found.output)


def test_figures_in_bold_belong_to_a_command() -> None:
    for record in PUZZLES.values():
        assert SAID.findall(flat(record.discuss).partition("`puzzles ")[0]) == [], record.id
    assert len(ASKED) > 30


def test_every_question_asks_something_of_its_own() -> None:
    asked = [record.discuss.partition(LISTEN)[0] for record in PUZZLES.values()]
    assert len(set(asked)) == len(asked)


def sections() -> dict[str, str]:
    """The text under each heading, without that of the headings below it."""
    parts = re.split(r"^#{1,4} (.*)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without their headings."""
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    rules = [number for number, row in enumerate(found) if set("".join(row)) <= {"-"}]
    return [row for number, row in enumerate(found) if number not in rules and number + 1 not in rules]


def puzzles_in(cell: str) -> list[str]:
    return [name for name in re.findall(r"`(\w+)`", cell) if name in PUZZLES]


def commands() -> list[str]:
    """Every command of ours in the page, in blocks and in sentences, without those of the questions."""
    blocks = re.findall(r"^```sh\n(.*?)^```", WRITTEN, re.MULTILINE | re.DOTALL)
    lines = [
        line.removeprefix("puzzles ") for block in blocks for line in block.splitlines() if line.startswith("puzzles ")
    ]
    return [*lines, *(command for command in COMMAND.findall(flat(WRITTEN)) if command.strip())]


def test_it_is_what_the_records_give() -> None:
    assert teaching(PAGE) == PAGE, "mend with `puzzles build`"


@pytest.mark.parametrize("course", ["One lecture", "One week", "Half a term"])
def test_a_course_has_every_puzzle_after_what_it_needs(course: str) -> None:
    before: set[str] = set()
    for row in rows(sections()[course]):
        for cell in row:
            for puzzle in puzzles_in(cell):
                missing = set(PUZZLES[puzzle].needs) - before
                assert not missing, f"{puzzle} needs {missing}: {row}"
                before.add(puzzle)
    assert len(before) > 5


def test_six_weeks_are_closed_too() -> None:
    text = sections()["Half a term"].replace("`one_f_one_b`", "`pipeline_fsdp`")
    weeks = [row for row in rows(text) if row[0][0] not in "56"]
    before: set[str] = set()
    for puzzle in (name for row in weeks for cell in row for name in puzzles_in(cell)):
        assert set(PUZZLES[puzzle].needs) <= before, puzzle
        before.add(puzzle)
    assert len(weeks) == 6


def test_what_is_solved_in_class_fits_into_a_session() -> None:
    for course in ("One week", "Half a term"):
        for row in rows(sections()[course]):
            assert sum(PUZZLES[puzzle].minutes for puzzle in puzzles_in(row[2])) <= 80, row
            assert sum(PUZZLES[puzzle].minutes for puzzle in puzzles_in(row[3])) <= 180, row


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_a_command_is_one(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    name, *arguments = shlex.split(command)
    found: Any = get_command(app)
    while isinstance(found, TyperGroup) and name in found.list_commands(cast("Any", None)):
        found = found.get_command(cast("Any", None), name)
        if isinstance(found, TyperGroup):
            name, *arguments = arguments
    assert not isinstance(found, TyperGroup), f"there is no puzzles {command}"
    if arguments:  # else it is only named
        found.make_context(name, arguments).close()


def test_the_pictures_of_the_lecture_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lecture").mkdir()
    drawn = [command for command in commands() if "-o lecture/" in command]
    for command in drawn:
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == 0, result.output
    assert len([*(tmp_path / "lecture").glob("*.svg")]) == len(drawn) == 8


def test_the_cell_that_saves_runs_makes_those_that_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs where the notebook's functions and prices are known."""
    (cell,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert f"`solutions/{PUZZLES['expert_parallel'].path}.ipynb`" in WRITTEN
    solution = ast.parse(reference("expert_parallel").read_text("utf-8")).body
    known = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef)
    made = [node for node in solution if isinstance(node, known) or ast.unparse(node).startswith("PRICES =")]
    names: dict[str, object] = {}
    exec(compile(ast.Module(made, []), "solution", "exec"), names)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "220")
    exec(cell, names)
    (told,) = [(command, said) for command, said in claims(WRITTEN) if command.startswith("compare balanced.json")]
    found = CliRunner().invoke(app, shlex.split(told[0]))
    assert found.exit_code == 0, found.output
    assert [found.output.find(figure) >= 0 for figure in told[1][:4]] == [True] * 4, found.output


def test_links_in_the_page_lead_somewhere() -> None:
    headings = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in sections()}
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= headings
    assert len(headings) == len(sections())


def test_everybody_of_the_made_up_class_is_explained() -> None:
    named = [name for row in rows(sections()["Try it before the course"]) for name in row[0].split(", ")]
    assert named == [*STUDENTS]


def test_how_each_platform_names_files_is_told() -> None:
    examples = [row[2].strip("`") for row in rows(sections()["1. Collect"])]
    assert {platform.example for platform in PLATFORMS} <= set(examples)


def test_every_feature_of_isolation_is_told() -> None:
    text = flat(sections()["What keeps students' code apart"])
    assert [words for words in FEATURES.values() if f"*{words}*" not in text] == []


def test_the_example_of_an_assignment_is_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert set(tomllib.loads(example)) == set(KEYS)
    (tmp_path / "grade.toml").write_text(example, "utf-8")
    assignment = read_config(tmp_path / "grade.toml").assignment()
    assert [required.record.id for required in assignment.required] == ["ddp", "fsdp", "gpipe"]
    assert [len(required.hidden) for required in assignment.required] == [2, 2, 1]


def test_every_column_of_the_scores_is_told() -> None:
    told = {row[0].strip("`"): row[1] for row in rows(sections()["3. Grade"]) if row[0].startswith("`ddp")}
    assert told == {f"ddp {column.name}".strip(): column.about for column in COLUMNS}


def outcome() -> str:
    """What comes out of the made-up class, whose students the page explains."""
    with TemporaryDirectory() as folder:
        write_class(Path(folder, "class"))
        config = Config().with_options(puzzles=ASKED_OF_THE_CLASS, hidden=2, seed="1")
        book = grade(collect([Path(folder, "class")]), config.assignment(), Path(folder, "report"), jobs=1)
    found = similar(book)
    told = [f"{student.name}: {', '.join(score.state for score in student.scores)}" for student in book.students]
    told += [f"{row.student}: {row.file} {row.why}" for row in book.refused]
    told += [f"alike: {', '.join(one.students)}" for one in found.alike]
    return "\n".join([*told, *(f"{one.solution}: {', '.join(one.students)}" for one in found.ours)])


test_the_made_up_class_comes_out_as_is_told = pytest.mark.thorough(
    Said(Path(__file__).with_name("made_up_class.txt")).test(lambda: globals())
)
