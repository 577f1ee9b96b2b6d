"""The command `python -m tools.browser`: makes the folder of pages, shows one on this machine, or measures it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from lib.suite.submissions.gap import BuildError
from tools.browser.build import build
from tools.browser.serving import server


def main() -> int:
    """Do what the command line says."""
    parser = ArgumentParser("python -m tools.browser", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pages go, or are")
    parser.add_argument("names", nargs="*", help="puzzles, or `introduction`; else the whole suite")
    parser.add_argument("--text", type=Path, help="a file of Markdown for the first page, above the list of notebooks")
    parser.add_argument("--serve", action="store_true", help="show the folder on this machine, and make nothing")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--measure", action="store_true", help="say how large and how fast the folder is, in Chromium")
    asked = parser.parse_args()
    try:
        if (asked.serve or asked.measure) and not (asked.folder / "sw.js").is_file():
            raise BuildError(f"there are no pages in {asked.folder}: make them with `make browser`")
        if asked.serve:
            with server(asked.folder, asked.port) as serving:
                print(f"http://127.0.0.1:{serving.server_address[1]}/ (Ctrl-C ends it)", flush=True)
                serving.serve_forever()
        elif asked.measure:
            from tools.browser.measure import measure  # here and not above: it needs playwright

            for what, figure in measure(asked.folder).items():
                print(f"{figure:6.2f}  {what}")
        else:
            files = build(asked.folder, asked.names, asked.text)
            print(f"{asked.folder}: {len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")
    except (BuildError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
