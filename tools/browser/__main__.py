"""The command `python -m tools.browser`: shows a folder of pages on this machine, or measures it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from tools.browser.serving import server


def main() -> int:
    """Do what the command line says."""
    parser = ArgumentParser("python -m tools.browser", description=__doc__)
    parser.add_argument("folder", type=Path, help="where `make browser` or `puzzles export --browser` has made them")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--measure", action="store_true", help="say how large and how fast the folder is, in Chromium")
    asked = parser.parse_args()
    if not (asked.folder / "sw.js").is_file():
        print(f"there are no pages in {asked.folder}: make them with `make browser`", file=sys.stderr)
        return 1
    if asked.measure:
        from tools.browser.measure import measure  # here and not above: it needs playwright

        for what, figure in measure(asked.folder).items():
            print(f"{figure:6.2f}  {what}")
        return 0
    try:
        with server(asked.folder, asked.port) as serving:
            print(f"http://127.0.0.1:{serving.server_address[1]}/ (Ctrl-C ends it)", flush=True)
            serving.serve_forever()
    except OSError as error:  # the port is taken
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
