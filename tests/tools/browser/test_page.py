"""What a learner does in the page, in a real Chromium: `make test-browser`, after `make browser` has made dist/browser.

`CHROMIUM` names another browser than the first on the path, and `PUZZLES_SITE` another folder.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RDWR
from threading import Thread
from typing import Any, ClassVar

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from lib.suite.course.solutions import answer
from lib.suite.submissions.locations import notebook_in, notebooks_below
from tests.support.outputs import joined
from tests.support.profiles import THOROUGH
from tools.browser.build import ARCHIVE, LIMIT, MODULES, python
from tools.browser.measure import transferred
from tools.browser.serving import Handler, server

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[3]
SITE = Path(os.environ.get("PUZZLES_SITE") or ROOT / "dist" / "browser")
NAMES = ["chromium", "chromium-browser", "google-chrome"]
PATIENCE = 60_000
STUB = '    raise NotSolved("ddp")'
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    named = os.environ.get("CHROMIUM")
    program = next(filter(None, map(shutil.which, [named] if named else NAMES)), None)
    assert program is not None, "Chromium is not installed: `apt-get install chromium`, or name a browser in CHROMIUM"
    assert (SITE / "sw.js").is_file(), f"{SITE} is not there: run `make browser`"
    with sync_playwright() as playwright:
        flags = ["--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=program, args=flags, chromium_sandbox=False)
        expect.set_options(timeout=PATIENCE)
        yield browser
        browser.close()


@pytest.fixture
def host() -> Iterator[ThreadingHTTPServer]:
    with serving(server(SITE.parent)) as started:
        yield started


@contextmanager
def serving(started: ThreadingHTTPServer) -> Iterator[ThreadingHTTPServer]:
    Thread(target=started.serve_forever, daemon=True).start()
    try:
        yield started
    finally:
        started.shutdown()
        started.server_close()


def address(host: ThreadingHTTPServer) -> str:
    """The address of the pages, which lie below a path, as on most hosts."""
    return f"http://127.0.0.1:{host.server_address[1]}/{SITE.name}/"


@pytest.fixture
def visitor(chromium: Browser, host: ThreadingHTTPServer) -> Iterator[BrowserContext]:
    """Somebody who has never been here. All that is asked for is asked of this server, and nothing complains."""
    context = chromium.new_context(base_url=address(host))
    context.set_default_timeout(PATIENCE)
    said: list[str] = []
    asked: list[str] = []
    context.on("console", lambda message: said.append(message.text))
    context.on("weberror", lambda error: said.append(str(error.error)))
    context.on("request", lambda request: asked.append(request.url))
    yield context
    context.close()
    assert [url for url in asked if not url.startswith((address(host), "data:", "blob:"))] == []
    assert said == []


@pytest.fixture
def visit(visitor: BrowserContext) -> Open:
    def visit(stem: str = "") -> Page:
        page = visitor.new_page()
        page.goto(f"?p={stem}" if stem else "")
        return page

    return visit


def cell(page: Page, name: str) -> Locator:
    return page.locator(f'.cell[data-id="{name}"]')


def write(page: Page, name: str, text: str) -> None:
    """Puts a text in the place of that of a cell, as one pastes it."""
    cell(page, name).locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text(text)


def run(page: Page, name: str, ends: str = "Done.") -> Locator:
    """Runs a cell, and what above has to run before, and waits until that is over. Returns what it shows."""
    cell(page, name).get_by_role("button", name="Run").click()
    expect(page.get_by_role("status")).to_have_text(ends)
    return cell(page, name).locator(".out")


def more(page: Page, name: str) -> None:
    page.locator("#menu summary").click()
    page.locator("#menu").get_by_text(name).click()


def until(page: Page, script: str) -> None:
    """Waits until something is true in a page, whose policy allows no script that would look for it there."""
    for _ in range(PATIENCE // 200):
        if page.evaluate(script):
            return
        page.wait_for_timeout(200)
    raise AssertionError(f"it is never true: {script}")


def source(stem: str, name: str) -> str:
    cells = json.loads((notebook_in(ROOT / "puzzles", stem[3:])).read_text("utf-8"))["cells"]
    return next("".join(one["source"]) for one in cells if one["id"] == name)


def solved() -> str:
    text = source("04_ddp", "ddp-19")
    lines = [f"    {line}" if line else "" for line in answer("ddp").splitlines()]
    assert STUB in text
    return text.replace(STUB, "\n".join(lines))


def test_what_is_transferred_keeps_to_its_budget() -> None:
    assert 8e6 < transferred(SITE) <= 9e6


def test_pictures_are_there_before_python_and_python_draws_its_own(visit: Open) -> None:
    page = visit("04_ddp")
    expect(cell(page, "ddp-9").locator("svg")).to_have_attribute("aria-label", re.compile("All-reduce"))
    expect(cell(page, "ddp-11").frame_locator("iframe").get_by_role("button").first).to_be_visible()
    expect(page).to_have_title("1.4 Distributed data parallel · LLM Training Puzzles")
    expect(run(page, "ddp-16").locator("svg")).to_have_attribute("aria-label", re.compile("Distributed data parallel"))
    expect(cell(page, "ddp-11").frame_locator("iframe").get_by_role("button").first).to_be_visible()
    page.get_by_role("button", name="Run all").click()
    expect(page.locator(".cell .note").last).to_have_text(re.compile("ms$"))


def test_a_solution_is_judged_kept_counted_and_taken_by_the_command(visit: Open, tmp_path: Path) -> None:
    page = visit("04_ddp")
    write(page, "ddp-19", solved())
    expect(run(page, "ddp-24").locator("svg")).to_have_attribute("aria-label", re.compile("ddp: correct!"))
    page.reload()
    assert "allreduce" in cell(page, "ddp-19").inner_text()
    expect(cell(page, "ddp-19").get_by_role("button", name="As it was")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name == "04_ddp.ipynb"
    command = "from lib.suite.cli.app import app; app()"
    done = subprocess.run([sys.executable, "-c", command, "run", str(file)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Correct!")
    expect(visit().locator(".out svg")).to_contain_text("1 of 10 solved")


def test_what_was_changed_above_runs_first_with_all_that_depends_on_it(visit: Open) -> None:
    page = visit("04_ddp")
    write(page, "ddp-19", solved())
    run(page, "ddp-24")
    loop = "    for layer in range(model.LAYERS):"
    write(page, "ddp-19", solved().replace(loop, f"    print('again')\n{loop}", 1))
    run(page, "ddp-24")
    expect(cell(page, "ddp-20").locator(".out")).to_contain_text("again")


def test_what_is_asked_for_meanwhile_comes_after_and_what_fails_ends_it(visit: Open) -> None:
    page = visit("04_ddp")
    write(page, "ddp-3", "import time\ntime.sleep(2)\n'first'")
    cell(page, "ddp-3").get_by_role("button", name="+ cell").click()
    page.keyboard.insert_text("'second'")
    cell(page, "ddp-3").get_by_role("button", name="Run").click()
    expect(page.get_by_role("status")).to_have_text("Running…")
    expect(run(page, "own-1")).to_have_text("'second'")
    expect(cell(page, "ddp-3").locator(".out")).to_have_text("'first'")
    write(page, "ddp-3", "1 / 0")
    write(page, "own-1", "'third'")
    expect(run(page, "own-1", ends="Cell 1 failed: see its message.")).to_have_text("'second'")
    write(page, "ddp-3", "1")
    expect(run(page, "own-1")).to_have_text("'third'")


def test_a_wrong_answer_shows_the_lines_of_the_student_and_marks_the_last(visit: Open) -> None:
    page = visit("04_ddp")
    text = solved()
    wrong = next(line for line in text.splitlines() if "allreduce" in line)
    indent = wrong[: len(wrong) - len(wrong.lstrip())]
    write(page, "ddp-19", text.replace(wrong, f"{indent}nothing = 1 / 0\n{wrong}"))
    out = run(page, "ddp-20", ends="Cell 10 failed: see its message.")
    expect(out).to_contain_text("ZeroDivisionError")
    assert not re.search(r"\.py|site-packages|pyodide", out.inner_text())
    expect(page.locator(".cm-line.wrong")).to_have_text(f"{indent}nothing = 1 / 0")
    write(page, "ddp-20", "out = simulate(ddp, puzzle='ddp'")
    run(page, "ddp-20", ends="Cell 10 failed: see its message.")
    expect(cell(page, "ddp-20").locator(".cm-line.wrong")).to_have_count(1)


def test_an_endless_loop_is_stopped_by_hand_and_by_itself(visit: Open) -> None:
    page = visit("04_ddp")
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    write(page, "ddp-3", "while True:\n    pass")
    for ends, by_hand in ((re.compile("^Stopped. "), True), (re.compile(f"Stopped after {LIMIT} seconds"), False)):
        cell(page, "ddp-3").get_by_role("button", name="Run").click()
        expect(page.get_by_role("status")).to_have_text("Running…")
        if by_hand:
            page.get_by_role("button", name="Stop").click()
        expect(cell(page, "ddp-3").locator(".out")).to_contain_text(ends if not by_hand else "Stopped.")
        expect(page.get_by_role("status")).to_have_text("Python is ready.")
        assert "while True" in cell(page, "ddp-3").inner_text()
    write(page, "ddp-3", "1 + 1")
    expect(run(page, "ddp-3")).to_have_text("2")


def test_python_that_breaks_down_starts_again(chromium: Browser, host: ThreadingHTTPServer) -> None:
    """A link may bring what is nested more deeply than the stack of a browser is high. The console says more of it."""
    context = chromium.new_context(base_url=address(host))
    page = context.new_page()
    page.goto("?p=04_ddp")
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    write(page, "ddp-3", "import json\n\njson.loads('[' * 500_000 + ']' * 500_000)")
    cell(page, "ddp-3").get_by_role("button", name="Run").click()
    expect(cell(page, "ddp-3").locator(".out")).to_contain_text("Python broke down here", timeout=1000 * LIMIT / 2)
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    write(page, "ddp-3", "1 + 1")
    expect(run(page, "ddp-3")).to_have_text("2")
    context.close()


def test_what_a_cell_leaves_behind_holds_up_no_other_for_ever(visit: Open) -> None:
    page = visit("04_ddp")
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    left = "import asyncio\n\ndef spin():\n    while True:\n        pass\n\n"
    write(page, "ddp-3", f"{left}asyncio.get_running_loop().call_later(0.1, spin)\n'left'")
    expect(run(page, "ddp-3")).to_have_text("'left'")
    page.wait_for_timeout(1000)
    write(page, "ddp-3", "1 + 1")
    cell(page, "ddp-3").get_by_role("button", name="Run").click()
    expect(page.get_by_role("status")).to_have_text(re.compile(f"Stopped after {LIMIT} seconds"))
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    expect(run(page, "ddp-3")).to_have_text("2")


def test_a_cell_that_breaks_the_tidying_up_does_not_lose_python(visit: Open) -> None:
    page = visit("04_ddp")
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    write(page, "ddp-3", "import gc\n\ngc.collect = None\n'broken'")
    expect(run(page, "ddp-3")).to_have_text("'broken'")
    page.wait_for_timeout(1000)
    write(page, "ddp-3", "1 + 1")
    expect(run(page, "ddp-3")).to_have_text("2")


def test_the_code_of_others_reaches_neither_another_page_nor_the_files_of_this_one(visit: Open) -> None:
    """A link brings code, which the reader may run: it could have changed the page for good."""
    page = visit("04_ddp")
    led = '<meta http-equiv="refresh" content="0;url=licences.txt"><base href="licences.txt"><b>led</b>'
    for show in ("_repr_html_", "_repr_markdown_"):
        write(page, "ddp-3", f"class Shown:\n    def {show}(self):\n        return {led!r}\n\nShown()")
        expect(run(page, "ddp-3")).to_have_text("led")
    for name in ("caches", "indexedDB", "Worker"):
        write(page, "ddp-3", f"import js\njs.{name}")
        expect(run(page, "ddp-3", ends="Cell 1 failed: see its message.")).to_contain_text(f"AttributeError: {name}")
    assert "?p=04_ddp" in page.url
    assert cell(page, "ddp-3").locator("meta, base").count() == 0


def test_without_a_network_another_notebook_runs(visit: Open, host: ThreadingHTTPServer) -> None:
    page = visit("04_ddp")
    page.evaluate("navigator.serviceWorker.ready.then(() => 1)")
    host.shutdown()
    host.server_close()
    other = visit("06_fsdp")
    expect(other.get_by_role("status")).to_have_text("Python is ready.")
    expect(run(other, "fsdp-3")).to_be_attached()
    expect(visit().locator(".out svg").first).to_be_visible()


def test_cells_can_be_added_and_come_along(visit: Open, tmp_path: Path) -> None:
    page = visit("04_ddp")
    cell(page, "ddp-3").get_by_role("button", name="+ cell").click()
    page.keyboard.insert_text("6 * 7")
    expect(run(page, "own-1")).to_have_text("42")
    page.reload()
    expect(run(page, "own-1")).to_have_text("42")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    file = tmp_path / "mine.ipynb"
    download.value.save_as(file)
    ids = [one["id"] for one in json.loads(file.read_text("utf-8"))["cells"]]
    assert ids[ids.index("ddp-3") + 1] == "own-1"
    cell(page, "own-1").get_by_role("button", name="Remove").click()
    expect(cell(page, "own-1")).to_have_count(0)
    page.locator("#open").set_input_files(file)
    expect(page.get_by_role("status")).to_have_text("Opened mine.ipynb.")
    expect(run(page, "own-1")).to_have_text("42")
    page.on("dialog", lambda dialog: dialog.accept())
    more(page, "Start over")
    expect(cell(page, "own-1")).to_have_count(0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no JSON", "it.ipynb is not a notebook."),
        ("[1]", "it.ipynb is not a notebook."),
        (notebook_in(ROOT / "puzzles", "fsdp").read_text("utf-8"), "it.ipynb is not a copy of “1.4 Distributed data"),
        (" " * 100_000_000, "it.ipynb has 100 MB, and a notebook of these has less than 20."),
    ],
    ids=["text", "list", "another", "100 MB"],
)
def test_a_file_that_will_not_do_is_refused_in_a_sentence(visit: Open, tmp_path: Path, text: str, said: str) -> None:
    page = visit("04_ddp")
    write(page, "ddp-3", "'mine'")
    file = tmp_path / "it.ipynb"
    file.write_text(text, "utf-8")
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    page.locator("#open").set_input_files(file)
    expect(page.get_by_role("status")).to_contain_text(said)
    assert "'mine'" in cell(page, "ddp-3").inner_text()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("QuotaExceededError", "This browser's storage is full"),
        ("SecurityError", "This browser does not let the page keep"),
    ],
)
def test_a_storage_that_keeps_nothing_is_said(visitor: BrowserContext, visit: Open, name: str, said: str) -> None:
    visitor.add_init_script(f"Storage.prototype.setItem = () => {{ throw new DOMException('no', '{name}') }}")
    page = visit("04_ddp")
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    write(page, "ddp-3", "'mine'")
    expect(page.get_by_role("status")).to_contain_text(said)
    expect(run(page, "ddp-3")).to_have_text("'mine'")


def test_what_found_no_room_is_kept_once_there_is_some(visitor: BrowserContext, visit: Open) -> None:
    refuse = "if (self.full) throw new DOMException('no', 'QuotaExceededError')"
    visitor.add_init_script(
        "self.full = true; self.own = Storage.prototype.setItem;"
        f"Storage.prototype.setItem = function (...all) {{ {refuse}; self.own.apply(this, all); }}"
    )
    page = visit("04_ddp")
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    write(page, "ddp-3", "'mine'")
    expect(page.get_by_role("status")).to_contain_text("This browser's storage is full")
    page.evaluate("self.full = false")
    write(page, "ddp-9", "'more'")
    page.reload()
    expect(cell(page, "ddp-9")).to_contain_text("'more'")
    expect(cell(page, "ddp-3")).to_contain_text("'mine'")


def test_two_tabs_show_the_same(visit: Open) -> None:
    one, other = visit("04_ddp"), visit("04_ddp")
    expect(cell(other, "ddp-3")).to_be_visible()
    write(one, "ddp-3", "'from the other tab'")
    expect(cell(other, "ddp-3")).to_contain_text("from the other tab")
    cell(one, "ddp-3").get_by_role("button", name="+ cell").click()
    one.keyboard.insert_text("'added'")
    expect(cell(other, "own-1")).to_contain_text("'added'")


def test_what_two_tabs_write_at_once_is_kept_twice(visit: Open) -> None:
    one, other = visit("04_ddp"), visit("04_ddp")
    cell(other, "ddp-3").locator(".cm-content").click()
    write(one, "ddp-3", "'one'")
    until(other, "Object.values(localStorage).includes(\"'one'\")")  # tabs may hear of each other late
    other.keyboard.press("ControlOrMeta+A")
    other.keyboard.insert_text("'other'")
    expect(other.get_by_role("alert")).to_have_text(
        "Cell 1 was changed in another tab, too: what was written there stands here."
    )
    other.reload()
    expect(cell(other, "ddp-3")).to_contain_text("'other'")
    expect(cell(other, "own-1")).to_contain_text("'one'")


def test_a_model_offers_its_methods(visit: Open) -> None:
    page = visit("04_ddp")
    cell(page, "ddp-3").locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+End")
    page.keyboard.type("\nmodel.allr")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text("await model.allreduce")


def test_python_has_what_a_student_may_ask_for(visit: Open) -> None:
    """What is left out of the standard library is nothing of this."""
    page = visit("04_ddp")
    names = "collections, functools, math, random, statistics, datetime, decimal, textwrap, unittest.mock, uuid, csv"
    write(page, "ddp-3", f"import {names}\nfrom lib import Model\nhelp(Model.forward)")
    expect(run(page, "ddp-3")).to_contain_text("Help on function forward in module lib.simulator.model")
    write(page, "ddp-3", "import numpy")
    expect(run(page, "ddp-3", ends="Cell 1 failed: see its message.")).to_contain_text("This page has no numpy")


SOLVED = notebooks_below(ROOT / "solutions")
WORKER = """async ([start, cells]) => {
  const worker = new Worker("worker.js", {type: "module"});
  const outputs = [];
  let ended;
  const turn = new Promise((resolve, reject) => (ended = {resolve, reject}));
  worker.onmessage = ({data}) => {
    if (data.type === "broken") ended.reject(new Error(data.text));
    if (data.type === "begins") outputs.push([]);
    if (data.type === "output") outputs.at(-1).push(data.output);
    if (data.type === "done" && (!data.fine || outputs.length === cells.length)) ended.resolve();
  };
  worker.postMessage({type: "start", ...start, files: {}, progress: null});
  worker.postMessage({type: "run", cells, progress: null});
  await turn;
  worker.terminate();
  return outputs;
}"""


@pytest.mark.parametrize("path", SOLVED if THOROUGH else SOLVED[6::20], ids=lambda path: path.stem)
def test_python_in_a_browser_puts_out_what_is_stored(visit: Open, path: Path) -> None:
    cells = [one for one in json.loads(path.read_text("utf-8"))["cells"] if one["cell_type"] == "code"]
    sources = ["".join(one["source"]) for one in cells]
    found = visit("licences.txt").evaluate(WORKER, [python(SITE), sources])
    pairs = zip(cells, found, strict=True)
    assert [one["id"] for one, outputs in pairs if joined(outputs) != joined(one["outputs"])] == []


@pytest.mark.parametrize("what", ["WebAssembly", "Worker"])
def test_a_browser_that_cannot_run_python_shows_what_is_stored(visitor: BrowserContext, visit: Open, what: str) -> None:
    visitor.add_init_script(f"delete globalThis.{what}")
    page = visit("04_ddp")
    expect(page.get_by_role("status")).to_contain_text("This browser cannot run Python")
    expect(cell(page, "ddp-9").locator("svg")).to_be_visible()
    for press in (cell(page, "ddp-9").get_by_role("button", name="Run"), page.get_by_role("button", name="Run all")):
        press.click()
        expect(page.get_by_role("status")).to_contain_text("This browser cannot run Python")
    write(page, "ddp-3", "'mine'")
    page.reload()
    expect(cell(page, "ddp-3")).to_contain_text("'mine'")


class Cut(Handler):
    cut = ""

    def copyfile(self, source: Any, outputfile: Any) -> None:
        if not self.path.endswith(self.cut):
            return super().copyfile(source, outputfile)
        size = os.fstat(source.fileno()).st_size
        outputfile.write(source.read(size // 2))
        self.connection.shutdown(SHUT_RDWR)
        return None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (ARCHIVE, "Python could not be loaded"),
        ("pyodide.asm.wasm", "Python could not be loaded"),
        ("pyodide.asm.mjs", "Python could not be loaded"),
        ("python_stdlib.zip", "Python could not be loaded"),
        ("worker.js", "Python could not be loaded"),
        ("04_ddp.json", "The page could not be loaded"),
        ("app.js", "Loading"),
    ],
)
def test_a_connection_that_is_lost_is_said_and_nothing_is_lost(
    chromium: Browser, host: ThreadingHTTPServer, name: str, said: str
) -> None:
    first = chromium.new_context(base_url=address(host))
    page = first.new_page()
    page.goto("?p=04_ddp")
    write(page, "ddp-3", "'mine'")
    context = chromium.new_context(base_url=address(host), storage_state=first.storage_state())  # and no file is kept
    first.close()
    port = host.server_address[1]
    host.shutdown()
    host.server_close()
    handler = type("Cutting", (Cut,), {"cut": name})
    with serving(ThreadingHTTPServer(("127.0.0.1", port), partial(handler, directory=str(SITE.parent)))):
        other = context.new_page()
        other.goto("?p=04_ddp")
        expect(other.get_by_role("status")).to_contain_text(said)
        if name == "app.js":
            expect(other.locator("main")).to_contain_text("If it does not come, the connection was lost")
        elif name != "04_ddp.json":
            cell(other, "ddp-9").get_by_role("button", name="Run").click()
            expect(other.get_by_role("button", name="Stop")).to_be_disabled()
            expect(cell(other, "ddp-9").locator("svg")).to_be_visible()
    with serving(server(SITE.parent, port)):
        other.reload()
        expect(cell(other, "ddp-3")).to_contain_text("'mine'")
    context.close()


def test_a_link_brings_code_which_is_not_run(visitor: BrowserContext, visit: Open) -> None:
    visitor.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visit("04_ddp")
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    write(page, "ddp-19", "print('mine, ä and 𝄞')")
    more(page, "Share code")
    expect(page.get_by_role("status")).to_have_text("The link is copied: whoever opens it sees your code.")
    link = str(page.evaluate("navigator.clipboard.readText()"))
    write(page, "ddp-19", "print('another')")
    page.goto("about:blank")
    page.goto(link)
    expect(cell(page, "own-1")).to_contain_text("print('mine, ä and 𝄞')")
    expect(cell(page, "own-1").locator(".out")).to_be_empty()
    expect(cell(page, "ddp-19")).to_contain_text("another")
    assert "#" not in page.url
    half = len(link) - 20
    for damaged in (
        link[:-9],
        f"{link[:half]}{'B' if link[half] == 'A' else 'A'}{link[half + 1 :]}",
        f"{link}{'A' * 64_000}",
    ):
        page.goto("about:blank")
        page.goto(damaged)
        expect(page.get_by_role("alert")).to_contain_text("The code in this link is damaged, or too large: ask for")
        expect(cell(page, "own-2")).to_have_count(0)


def test_a_link_brings_a_run_and_two_people_compare(
    chromium: Browser, host: ThreadingHTTPServer, visitor: BrowserContext, visit: Open
) -> None:
    visitor.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visit("04_ddp")
    more(page, "Share run")
    expect(page.get_by_role("status")).to_contain_text("There is no run yet")
    write(page, "ddp-19", solved())
    run(page, "ddp-20")
    more(page, "Share run")
    expect(page.get_by_role("status")).to_have_text("The link is copied: whoever opens it sees the run.")
    link = str(page.evaluate("navigator.clipboard.readText()"))
    assert len(link) < 8_000
    friend = chromium.new_context(base_url=address(host))
    theirs = friend.new_page()
    theirs.goto(link)
    expect(theirs.get_by_role("alert")).to_contain_text("somebody else's run, which has not been run")
    expect(cell(theirs, "own-1").locator(".out")).to_be_empty()
    theirs.reload()
    expect(run(theirs, "own-1").locator("svg")).to_have_attribute("aria-label", re.compile("4 ranks"))
    lines = cell(theirs, "own-1").locator(".cm-content").inner_text()
    write(theirs, "own-1", f"{lines}\ncompare(mine=theirs, theirs=theirs)")
    expect(run(theirs, "own-1").locator("svg")).to_be_attached()
    theirs.goto("about:blank")
    theirs.goto(f"{link[:-9]}")
    expect(theirs.get_by_role("alert")).to_contain_text("The run in this link is damaged")
    friend.close()


def test_the_memory_of_a_ready_python_is_kept_and_a_damaged_one_not_used(visit: Open) -> None:
    page = visit("04_ddp")
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    until(page, "performance.getEntriesByName('remembered').length")
    for damage in (False, True):
        if damage:
            page.evaluate(
                "async () => { const kept = await caches.open('puzzles-memory');"
                " for (const one of await kept.keys()) await kept.put(one, new Response(new Uint8Array(70000))); }"
            )
        page.goto("?p=06_fsdp")
        expect(page.get_by_role("status")).to_have_text("Python is ready.")
        assert page.evaluate("performance.getEntriesByName('ready').at(-1).detail.known") is not damage
        expect(run(page, "fsdp-3")).to_be_attached()


def test_a_notebook_goes_elsewhere_and_finds_its_package_on_this_site(
    chromium: Browser, host: ThreadingHTTPServer, tmp_path: Path
) -> None:
    context = chromium.new_context(base_url=address(host))
    for place in ("https://colab.research.google.com/**", "http://localhost:8888/**"):
        context.route(place, lambda route: route.fulfill(body="there"))
    page = context.new_page()
    page.goto("?p=04_ddp")
    write(page, "ddp-3", "'mine'")
    for name, host_name in (("Open in Colab", "colab.research.google.com"), ("Open in JupyterLab", "localhost:8888")):
        with page.expect_download() as download, page.expect_popup() as popup:
            more(page, name)
        assert f"//{host_name}/" in popup.value.url
        expect(page.get_by_role("status")).to_contain_text("04_ddp.ipynb is downloaded.")
    download.value.save_as(tmp_path / "it.ipynb")
    cells = {
        one["id"]: "".join(one["source"]) for one in json.loads((tmp_path / "it.ipynb").read_text("utf-8"))["cells"]
    }
    assert cells["ddp-3"] == "'mine'"
    (wheel,) = SITE.glob("*.whl")
    assert any(f"{address(host)}{wheel.name}" in text for text in cells.values())
    context.close()


class Proxy(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_error(502)

    do_CONNECT = do_POST = do_GET  # noqa: N815 - as the base calls them

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_nothing_leaves_for_another_origin(chromium: Browser, host: ThreadingHTTPServer) -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Proxy)) as proxy:
        context = chromium.new_context(
            base_url=address(host),
            proxy={"server": f"http://127.0.0.1:{proxy.server_address[1]}", "bypass": "127.0.0.1"},
        )
        page = context.new_page()
        page.goto("?p=04_ddp")
        write(page, "ddp-3", "from pyodide.http import pyfetch\nawait pyfetch('http://example.org/')")
        run(page, "ddp-3", ends="Cell 1 failed: see its message.")
        page.evaluate("navigator.serviceWorker.ready.then(() => 1)")
        page.reload()
        run(page, "ddp-3", ends="Cell 1 failed: see its message.")
        cell(page, "ddp-3").get_by_role("button", name="As it was").click()
        run(page, "ddp-16")
        context.close()
        assert Proxy.asked == []


def test_a_keyboard_is_enough(visit: Open) -> None:
    page = visit("04_ddp")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the notebook")).to_be_focused()
    page.keyboard.press("Enter")
    write(page, "ddp-3", "6 * 7")
    page.keyboard.press("Shift+Enter")
    expect(cell(page, "ddp-3").locator(".out")).to_have_text("42")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(cell(page, "ddp-3").locator(".cm-content")).not_to_be_focused()
    summary, first = page.locator("#menu summary"), page.locator("#menu").get_by_role("link", name="Colab")
    summary.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(first).to_be_focused()
    page.keyboard.press("Escape")
    expect(summary).to_be_focused()
    expect(first).to_be_hidden()


def test_a_course_has_pages_of_its_own(chromium: Browser, tmp_path: Path) -> None:
    """Made by the command, of the same bytes as the whole suite."""
    (tmp_path / "week1.md").write_text("# Week 1\n\nHand in by *Sunday*.\n", "utf-8")
    command = "from lib.suite.cli.app import app; app()"
    words = ["export", "--browser", tmp_path / "week1", "ddp", "fsdp", "gpipe", "--text", tmp_path / "week1.md"]
    done = subprocess.run([sys.executable, "-c", command, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in (ARCHIVE, "pyodide/python_stdlib.zip", "index.html", "licences.txt"):
        assert (tmp_path / "week1" / name).read_bytes() == (SITE / name).read_bytes()
    with serving(server(tmp_path)) as host:
        context = chromium.new_context(base_url=f"http://127.0.0.1:{host.server_address[1]}/week1/")
        page = context.new_page()
        page.goto("")
        expect(page.locator("main")).to_contain_text("Hand in by Sunday.")
        assert page.locator("main a").count() == page.locator("#choose option").count() - 1 == 3
        page.get_by_role("link", name="Fully sharded").click()
        expect(page.get_by_role("status")).to_have_text("Python is ready.")
        assert "06_fsdp" in page.url
        context.close()


AXE = (MODULES / "axe-core" / "axe.min.js").read_text("utf-8") if MODULES.exists() else ""


@pytest.mark.parametrize("dark", [False, True], ids=["day", "night"])
def test_nothing_serious_is_in_the_way_of_a_screen_reader(visit: Open, dark: bool) -> None:
    page = visit("04_ddp")
    page.emulate_media(color_scheme="dark" if dark else "light")
    run(page, "ddp-16")
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {iframes: false, resultTypes: ['violations']})")
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in serious] == []
