"""The command in this process, what it said, and what a browser makes of a page that it wrote."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from typer.testing import CliRunner, Result

from lib.suite.cli.app import app

__all__ = ["STUB", "Page", "puzzles", "words"]

STUB = 'from lib import NotSolved\n\n\ndef basic(model):\n    raise NotSolved("basic")\n'


def puzzles(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def words(result: Result) -> str:
    """All that was said, however its lines were broken, and without the frames that are drawn around it."""
    return " ".join(re.sub("[│╭╮╰╯─┃]", " ", result.output).split())


class Page(HTMLParser):
    """What a browser makes of a page: its elements with their attributes, and its text outside of style and script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside != "style":
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements]

    def values(self, *attributes: str) -> Iterator[str]:
        return (value for _, found in self.elements for name in attributes if (value := found.get(name)) is not None)
