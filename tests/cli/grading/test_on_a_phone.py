"""The report of a class on a narrow screen, in a headless Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.grading.test_report import small, written
from tests.drawing.stepper.browser import Browser, find_chromium

CHROMIUM = find_chromium()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (CHROMIUM can name one)")
def test_no_page_is_wider_than_a_phone(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    book, traces = small()
    pages = [name for name in written(book, traces, tmp_path) if name.endswith(".html")]
    students = [name for name in pages if name.startswith("students")]
    (tmp_path / "profile").mkdir()
    with Browser(CHROMIUM, tmp_path / "profile") as browser:
        page = browser.page(width=390)
        for name in [*(name for name in pages if "/" not in name), *students[:2]]:
            page.call("Page.navigate", url=(tmp_path / name).resolve().as_uri())
            page.until("document.readyState === 'complete' && document.querySelector('h1') !== null")
            page.run(
                "document.querySelectorAll('section, article').forEach(e => e.style.contentVisibility = 'visible')"
            )
            assert page.run("document.documentElement.scrollWidth") <= 390, name
            wide = "[...document.querySelectorAll('caption')].filter(c => c.getBoundingClientRect().width > 390).length"
            assert page.run(wide) == 0, name
