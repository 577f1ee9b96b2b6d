"""One headless Chromium and one tab for all tests of this folder: a tab for each test would take more than the tests.

`CHROMIUM` in the environment names another browser than the first that is on the path.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Frame, Page, expect, sync_playwright

from drawing.pages.view import step_through
from lib import Trace

FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
]
NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]

PATIENCE = 100_000
"""Milliseconds to wait for a page: on a busy machine it may take long."""

Show = Callable[..., Page]


@pytest.fixture(scope="package")
def tab() -> Iterator[Page]:
    named = os.environ.get("CHROMIUM")
    program = next(filter(None, map(shutil.which, [named] if named else NAMES)), None)
    if program is None:
        pytest.skip(
            f"{named or 'Chromium'} is not installed: `apt-get install chromium`, or name a browser in CHROMIUM"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, chromium_sandbox=False)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        yield page
        browser.close()


@pytest.fixture
def show(tab: Page, tmp_path: Path) -> Iterator[Show]:
    """Opens pages that say when they are ready, and asks at the end whether all went well and nothing else was read."""
    tab.goto("about:blank")  # a page of the test before may still be asking for its pictures
    opened: list[str] = []
    asked: list[str] = []
    said: list[str] = []
    heard: dict[Any, Callable[[Any], None]] = {
        "request": lambda request: asked.append(request.url),
        "console": lambda message: said.append(message.text),
        "pageerror": lambda error: said.append(str(error)),
    }
    for event, note in heard.items():
        tab.on(event, note)

    def open_page(page: Any, width: int = 1280, dark: bool | None = False, calm: bool = False) -> Page:
        html = page if isinstance(page, str) else (step_through(page) if isinstance(page, Trace) else page).html()
        path = tmp_path / f"{len(opened)}.{'svg' if html.startswith('<svg') else 'html'}"
        path.write_text(html, "utf-8")
        tab.set_viewport_size({"width": width, "height": 900})
        side: Any = "null" if dark is None else "dark" if dark else "light"  # "null" leaves it to the page
        tab.emulate_media(color_scheme=side, reduced_motion="reduce" if calm else "no-preference")
        tab.mouse.move(0, 0)  # where the test before has left it, there may be something to point at
        opened.append(path.as_uri())
        tab.goto(opened[-1])
        return tab

    yield open_page
    settle(tab)
    for event, note in heard.items():
        tab.remove_listener(event, note)
    assert said == []
    assert [url for url in asked if url != "data:,"] == opened


def settle(page: Page | Frame) -> None:
    """Waits until everything that was asked for is painted."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")


def press(page: Page, key: str, times: int = 1) -> None:
    for _ in range(times):
        page.keyboard.press(key)
    settle(page)


def rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*(int(colour[at : at + 2], 16) for at in (1, 3, 5)))
