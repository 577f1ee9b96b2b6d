"""A headless Chromium for tests, driven by its DevTools protocol over a pair of pipes. Standard library only.

`CHROMIUM` in the environment names another browser than the first that is on the path.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any

__all__ = ["Browser", "Page", "find_chromium"]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
]
PATIENCE = 60.0
"""Seconds to wait for an answer before the test fails."""


def find_chromium() -> str | None:
    """The browser on this machine, if it has one."""
    named = os.environ.get("CHROMIUM")
    names = [named] if named else ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    """A running browser with an empty profile in a folder of its own."""

    def __init__(self, program: str, profile: Path) -> None:
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        # The browser reads commands from file 3 and answers on file 4, which sh cannot be asked for.
        moved = f"os.dup2({down_read}, 50); os.dup2({up_write}, 4); os.dup2(50, 3)"
        start = f"import os, sys; {moved}; os.execv(sys.argv[1], sys.argv[1:])"
        arguments = [sys.executable, "-c", start, program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        with open(profile / "log", "w") as log:
            self._process = subprocess.Popen(
                arguments, pass_fds=(down_read, up_write), stdout=log, stderr=log, start_new_session=True
            )
        os.close(down_read)
        os.close(up_write)
        self._out, self._in = down_write, up_read
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._out)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # a session of our own: these are our processes only
            self._process.wait()
        os.close(self._in)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select([self._in], [], [], PATIENCE)[0]:
                raise TimeoutError("the browser says nothing")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def page(self, width: int = 1280, height: int = 900, dark: bool = False, calm: bool = False) -> Page:
        """A new, empty page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        features.append({"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"})
        page.call("Emulation.setEmulatedMedia", features=features)
        return page


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser = browser
        self.session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command to this tab."""
        return self.browser.call(method, self.session, **parameters)

    def open(self, path: Path) -> Page:
        """Opens a file, and waits until the page says that it is ready."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.until("document.documentElement?.dataset.ready !== undefined")
        return self

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Waits for a JavaScript condition."""
        self.wait(lambda: bool(self.run(condition)), condition)

    def wait(self, condition: Callable[[], bool], words: str) -> None:
        """Waits for a condition."""
        limit = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > limit:
                raise TimeoutError(words)
            time.sleep(0.01)

    def settle(self) -> None:
        """Waits until everything that was asked for is painted."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def press(self, key: str, times: int = 1, shift: bool = False) -> None:
        """Presses a key, as a person would."""
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Tab": 9}
        code = codes.get(key) or ord(key[0].upper())
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for _ in range(times):
            common: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": 13 if key == "Enter" else code}
            common["modifiers"] = 8 if shift else 0
            self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        self.settle()

    def mouse(self, kind: str, x: float, y: float, pressed: bool = False) -> None:
        """Moves or presses the mouse: kind is Moved, Pressed or Released."""
        button = "left" if kind != "Moved" or pressed else "none"
        self.call(
            "Input.dispatchMouseEvent",
            type=f"mouse{kind}",
            x=x,
            y=y,
            button=button,
            buttons=int(pressed),
            clickCount=int(kind != "Moved"),
        )

    def click(self, x: float, y: float) -> None:
        """Clicks once."""
        self.mouse("Moved", x, y)
        self.mouse("Pressed", x, y, pressed=True)
        self.mouse("Released", x, y)
        self.settle()

    def screenshot(self, path: Path) -> Path:
        """Writes what is to be seen as PNG."""
        self.settle()
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
        return path

    def seen(self, *methods: str) -> list[dict[str, Any]]:
        """The protocol's events of this tab with one of these names, so far."""
        self.run("1")
        return [
            event["params"]
            for event in self.browser.events
            if event.get("sessionId") == self.session and event.get("method") in methods
        ]
