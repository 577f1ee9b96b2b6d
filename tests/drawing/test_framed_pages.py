"""A page in a frame is dark exactly where the pictures of the notebook around it are."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drawing import draw_ring, step_through
from drawing.canvas.palette import PAPER
from tests.drawing.runs import RUNS
from tests.drawing.stepper.browser import Browser, find_chromium

image: Any = pytest.importorskip("PIL.Image")
CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (CHROMIUM can name one)")
LIGHT = ["", "data-jp-theme-light=true", "class=vscode-light", "theme=light"]
DARK = ["data-jp-theme-light=false", "class=vscode-dark", "class=vscode-high-contrast", "theme=dark"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def corner(browser: Browser, path: Path, shown: Any, root: str, dark: bool) -> tuple[int, ...]:
    """The colour that a reader sees in the corner of a page in its frame, once that is painted."""
    output = shown._repr_mimebundle_()["text/html"]
    assert "framed-page" in output
    path.write_text(
        f"<!doctype html><html data-ready {root}><meta charset=utf-8><body style='margin:0'>{output}", "utf-8"
    )
    page = browser.page(dark=dark, width=700, height=400).open(path)

    def seen() -> Any:
        return image.open(io.BytesIO(base64.b64decode(page.call("Page.captureScreenshot")["data"]))).convert("RGB")

    page.wait(lambda: seen().getcolors(100) is None, "nothing was painted in the frame")
    pixel = seen().getpixel((3, 3))
    page.call("Page.close")
    return pixel


@pytest.mark.parametrize("root", LIGHT + DARK)
def test_the_notebook_decides_and_not_the_system(browser: Browser, tmp_path: Path, root: str) -> None:
    wanted = PAPER.night if root in DARK else PAPER
    rgb = tuple(int(wanted[place : place + 2], 16) for place in (1, 3, 5))
    for shown in (step_through(RUNS["ddp"]), draw_ring(RUNS["ddp"])):
        assert corner(browser, tmp_path / "page.html", shown, root, dark=root not in DARK) == rgb
