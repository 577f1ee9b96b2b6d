"""The puzzles as a folder of web pages: every notebook in a browser, with Python in it and nothing to install.

    python -m tools.browser dist/browser               every notebook of the suite, which begins at its map
    python -m tools.browser week1 ddp fsdp gpipe       these, behind a page of a course's own (--text week1.md)

Needs node, for what is in `page/`; see docs/browser.md.
"""
