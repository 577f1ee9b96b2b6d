"""TEACHING.md: its commands are commands, what it says they print is printed, and its minutes add up."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lib import PUZZLES
from lib.cli.app import app
from lib.notebooks.teaching import LISTEN

COMMAND = re.compile(r"`puzzles\s([^`]*)`")
SAID = re.compile(r"\*\*(.+?)\*\*")


def flat(text: str) -> str:
    return " ".join(text.split())


def claims(text: str) -> list[tuple[str, list[str]]]:
    """The commands in a text, each with what it says in bold before the next one: that is what it prints."""
    parts = COMMAND.split(flat(text))
    return [(command, SAID.findall(said)) for command, said in zip(parts[1::2], parts[2::2], strict=True)]


ASKED = [(record.id, *claim) for record in PUZZLES.values() for claim in claims(record.discuss)]


@pytest.mark.parametrize(("puzzle", "command", "said"), ASKED, ids=[f"{one[0]}: {one[1]}" for one in ASKED])
def test_what_a_question_says_that_a_command_prints_is_printed(
    puzzle: str, command: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    monkeypatch.chdir(Path(__file__).parents[1])
    found = CliRunner().invoke(app, shlex.split(command))
    assert found.exit_code == 0, found.output
    for figure in said:
        assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\d|[.,]\d)", found.output), (figure, found.output)


def test_figures_in_bold_belong_to_a_command() -> None:
    for record in PUZZLES.values():
        assert SAID.findall(flat(record.discuss).partition("`puzzles ")[0]) == [], record.id
    assert len(ASKED) > 30


def test_every_question_asks_something_of_its_own() -> None:
    asked = [record.discuss.partition(LISTEN)[0] for record in PUZZLES.values()]
    assert len(set(asked)) == len(asked)
