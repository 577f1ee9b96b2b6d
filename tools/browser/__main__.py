"""The command `python -m tools.browser`: makes the folder of pages, or serves one on this machine."""

from __future__ import annotations

import gzip
import sys
from argparse import ArgumentParser
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lib.suite.submissions.gap import BuildError
from tools.browser.build import build

PACKED = (".bin", ".zip")
"""What no host packs again."""


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder, with the types that modules and WebAssembly need, whatever this machine knows of them."""

    extensions_map = {  # noqa: RUF012 - as the base has it
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the address has been said."""


def server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of a folder, on this machine only; port 0 takes any that is free."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(folder)))


def transferred(path: Path) -> int:
    """Return the bytes of a file as a host sends them: packed."""
    data = path.read_bytes()
    return len(data) if path.suffix in PACKED else len(gzip.compress(data, 6))


def main() -> int:
    """Do what the command line says."""
    parser = ArgumentParser("python -m tools.browser", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pages go")
    parser.add_argument("names", nargs="*", help="puzzles, or `introduction`; else the whole suite")
    parser.add_argument("--text", type=Path, help="a file of Markdown for the first page, above the list of notebooks")
    parser.add_argument("--serve", action="store_true", help="make nothing, show the folder on this machine")
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    try:
        if asked.serve:
            with server(asked.folder, asked.port) as serving:
                print(f"http://127.0.0.1:{serving.server_address[1]}/ (Ctrl-C ends it)")
                serving.serve_forever()
        else:
            files = build(asked.folder, asked.names, asked.text)
            size = sum(map(transferred, files))
            print(f"{asked.folder}: {len(files)} files, {size / 1e6:.2f} MB to transfer")
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
