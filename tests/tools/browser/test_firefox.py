"""The page in Firefox, where that can be had: it is driven by Marionette, its own protocol, as playwright drives only a
Firefox of its own."""

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from lib.puzzles.records import PUZZLES
from tests.tools.browser.test_page import SITE, serving
from tools.browser.serving import server

PROGRAM = shutil.which("firefox") or shutil.which("firefox-esr")
PATIENCE = 120
pytestmark = [pytest.mark.browser, pytest.mark.skipif(PROGRAM is None, reason="Firefox is not installed")]
STATE = "return document.getElementById('state').textContent"


class Firefox:
    """A session: each call is an array of JSON behind its length."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.file = self.socket.makefile("rb")
        self.count = 0
        self.read()
        self.call("WebDriver:NewSession")

    def read(self) -> Any:
        size = b""
        while (one := self.file.read(1)) != b":":
            size += one
        return json.loads(self.file.read(int(size)))

    def call(self, name: str, **words: Any) -> Any:
        self.count += 1
        data = json.dumps([0, self.count, name, words]).encode()
        self.socket.sendall(b"%d:%b" % (len(data), data))
        _, _, error, result = self.read()
        assert error is None, error
        return result

    def ask(self, script: str) -> Any:
        return self.call("WebDriver:ExecuteScript", script=script, args=[])["value"]

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def until(self, script: str, wanted: object) -> None:
        wait(lambda: self.ask(script) == wanted, script)


def wait(is_there: Callable[[], bool], what: str) -> None:
    end = monotonic() + PATIENCE
    while not is_there():
        assert monotonic() < end, f"waited for {what}"
        sleep(0.2)


@pytest.fixture
def firefox(tmp_path: Path) -> Iterator[Firefox]:
    (tmp_path / "user.js").write_text('user_pref("marionette.port", 0);\n', "utf-8")  # any that is free
    command = [str(PROGRAM), "--headless", "--marionette", "--no-remote", "--profile", str(tmp_path)]
    port = tmp_path / "MarionetteActivePort"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait(lambda: port.is_file() and port.read_text("utf-8").strip() != "", "Firefox")
            with closing(Firefox(int(port.read_text("utf-8")))) as session:
                yield session
        finally:
            process.terminate()


@pytest.mark.timeout(600)
def test_firefox_draws_keeps_its_memory_and_draws_again(firefox: Firefox) -> None:
    with serving(server(SITE)) as host:
        for name, known in (("ddp", False), ("fsdp", True)):
            address = f"http://127.0.0.1:{host.server_address[1]}/?p={PUZZLES[name].stem}"
            firefox.call("WebDriver:Navigate", url=address)
            firefox.until(STATE, "Python is ready.")
            assert firefox.ask("return performance.getEntriesByName('ready')[0].detail.known") is known
            firefox.ask("document.getElementById('all').click()")
            firefox.until(STATE, "Done.")
            assert firefox.ask("return document.querySelectorAll('.out svg').length")
            firefox.until("return performance.getEntriesByName('remembered').length", 0 if known else 1)
