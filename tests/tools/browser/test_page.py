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
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from lib.suite.course.solutions import answer
from lib.suite.submissions.locations import notebook_in, notebooks_below
from tests.support.outputs import joined
from tests.support.profiles import THOROUGH
from tools.browser.build import ARCHIVE, LIMIT, MODULES
from tools.browser.measure import transferred
from tools.browser.serving import server

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
    serving = server(SITE)
    Thread(target=serving.serve_forever, daemon=True).start()
    yield serving
    serving.shutdown()
    serving.server_close()


@pytest.fixture
def visitor(chromium: Browser, host: ThreadingHTTPServer) -> Iterator[BrowserContext]:
    """Somebody who has never been here. All that is asked for is asked of this server, and nothing complains."""
    context = chromium.new_context(base_url=f"http://127.0.0.1:{host.server_address[1]}/")
    context.set_default_timeout(PATIENCE)
    said: list[str] = []
    asked: list[str] = []
    context.on("console", lambda message: said.append(message.text))
    context.on("weberror", lambda error: said.append(str(error.error)))
    context.on("request", lambda request: asked.append(request.url))
    yield context
    context.close()
    own = f"http://127.0.0.1:{host.server_address[1]}/"
    assert [url for url in asked if not url.startswith((own, "data:", "blob:"))] == []
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
    expect(cell(page, "ddp-30").locator(".note")).to_have_text(re.compile("ms$"))


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
    expect(visit().locator(".out svg")).to_contain_text("1 of 8 solved")


def test_what_was_changed_above_runs_first_with_all_that_depends_on_it(visit: Open) -> None:
    page = visit("04_ddp")
    write(page, "ddp-19", solved())
    run(page, "ddp-24")
    write(
        page,
        "ddp-19",
        solved().replace(
            "    for layer in range(model.LAYERS):",
            "    print('again')\n" * 1 + "    for layer in range(model.LAYERS):",
            1,
        ),
    )
    run(page, "ddp-24")
    expect(cell(page, "ddp-20").locator(".out")).to_contain_text("again")


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
    page.get_by_role("button", name="Start over").click()
    expect(cell(page, "own-1")).to_have_count(0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no JSON", "it.ipynb is not a notebook."),
        ("[1]", "it.ipynb is not a notebook."),
        (
            (notebook_in(ROOT / "puzzles", "fsdp")).read_text("utf-8"),
            "it.ipynb is not a copy of “1.4 Distributed data parallel”",
        ),
        (" " * 20_000_001, "it.ipynb has 20 MB, and a notebook of these has less than 20."),
    ],
    ids=["text", "list", "another", "large"],
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
    refuse = f"Storage.prototype.setItem = () => {{ throw new DOMException('no', '{name}') }}"
    visitor.add_init_script(refuse)
    page = visit("04_ddp")
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    write(page, "ddp-3", "'mine'")
    expect(page.get_by_role("status")).to_contain_text(said)
    expect(run(page, "ddp-3")).to_have_text("'mine'")


def test_two_tabs_show_the_same(visit: Open) -> None:
    one, other = visit("04_ddp"), visit("04_ddp")
    expect(cell(other, "ddp-3")).to_be_visible()
    write(one, "ddp-3", "'from the other tab'")
    expect(cell(other, "ddp-3")).to_contain_text("from the other tab")


def test_a_model_offers_its_methods(visit: Open) -> None:
    page = visit("04_ddp")
    cell(page, "ddp-3").locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+End")
    page.keyboard.type("\nmodel.allr")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text("await model.allreduce")


def test_python_has_what_a_student_may_ask_for(visit: Open) -> None:
    """What is left out of the standard library is nothing of this."""
    page = visit("04_ddp")
    names = (
        "collections functools itertools math random statistics time datetime decimal textwrap unittest.mock uuid csv"
    )
    write(page, "ddp-3", f"import {', '.join(names.split())}\nfrom lib import Model\nhelp(Model.forward)")
    expect(run(page, "ddp-3")).to_contain_text("Help on function forward in module lib.simulator.model")
    write(page, "ddp-3", "import numpy")
    expect(run(page, "ddp-3", ends="Cell 1 failed: see its message.")).to_contain_text("This page has no numpy")


SOLVED = notebooks_below(ROOT / "solutions")
WORKER = """async ([archive, lock, cells]) => {
  const worker = new Worker("worker.js", {type: "module"});
  const outputs = [];
  let shown, ended;
  const turn = new Promise((resolve, reject) => (ended = {resolve, reject}));
  const next = () => {
    if (outputs.length === cells.length) return ended.resolve();
    outputs.push(shown = []);
    worker.postMessage({type: "run", source: cells[outputs.length - 1]});
  };
  worker.onmessage = ({data}) => {
    if (data.type === "broken") ended.reject(new Error(data.text));
    if (data.type === "output") shown.push(data.output);
    if (data.type === "ready" || data.type === "done") next();
  };
  worker.postMessage({type: "start", archive, lock, files: {}, progress: null});
  await turn;
  worker.terminate();
  return outputs;
}"""


@pytest.mark.parametrize("path", SOLVED if THOROUGH else SOLVED[6::20], ids=lambda path: path.stem)
def test_python_in_a_browser_puts_out_what_is_stored(visit: Open, path: Path) -> None:
    cells = [one for one in json.loads(path.read_text("utf-8"))["cells"] if one["cell_type"] == "code"]
    info = json.loads((MODULES / "pyodide" / "pyodide-lock.json").read_text("utf-8"))["info"]
    sources = ["".join(one["source"]) for one in cells]
    found = visit("licences.txt").evaluate(WORKER, [ARCHIVE, {"info": info, "packages": {}}, sources])
    pairs = zip(cells, found, strict=True)
    assert [one["id"] for one, outputs in pairs if joined(outputs) != joined(one["outputs"])] == []


def test_a_browser_that_cannot_run_python_shows_what_is_stored(visitor: BrowserContext, visit: Open) -> None:
    visitor.add_init_script("delete globalThis.WebAssembly")
    page = visit("04_ddp")
    expect(page.get_by_role("status")).to_contain_text("This browser cannot run Python")
    expect(cell(page, "ddp-9").locator("svg")).to_be_visible()
    cell(page, "ddp-9").get_by_role("button", name="Run").click()
    expect(page.get_by_role("status")).to_contain_text("This browser cannot run Python")


def test_what_cannot_be_loaded_is_said(visitor: BrowserContext, chromium: Browser, host: ThreadingHTTPServer) -> None:
    context = chromium.new_context(base_url=f"http://127.0.0.1:{host.server_address[1]}/", service_workers="block")
    context.route(f"**/{ARCHIVE}", lambda route: route.abort())
    page = context.new_page()
    page.goto("?p=04_ddp")
    expect(page.get_by_role("status")).to_contain_text("Python could not be loaded")
    cell(page, "ddp-9").get_by_role("button", name="Run").click()
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    expect(cell(page, "ddp-9").locator("svg")).to_be_visible()
    context.close()


def test_a_link_brings_code_which_is_not_run(visitor: BrowserContext, visit: Open) -> None:
    visitor.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visit("04_ddp")
    expect(page.get_by_role("status")).to_have_text("Python is ready.")
    write(page, "ddp-19", "print('mine, ä and 𝄞')")
    page.get_by_role("button", name="Share").click()
    expect(page.get_by_role("status")).to_have_text("The link is copied: whoever opens it sees your code.")
    link = str(page.evaluate("navigator.clipboard.readText()"))
    write(page, "ddp-19", "print('another')")
    page.goto("about:blank")
    page.goto(link)
    expect(cell(page, "own-1")).to_contain_text("print('mine, ä and 𝄞')")
    expect(cell(page, "own-1").locator(".out")).to_be_empty()
    expect(cell(page, "ddp-19")).to_contain_text("another")
    assert "#" not in page.url
    page.goto("about:blank")
    page.goto(f"{link[:-9]}")
    expect(page.get_by_role("alert")).to_contain_text("The code in this link is damaged")


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
