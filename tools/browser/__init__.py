"""The puzzles as a folder of web pages: every notebook in a browser, with Python in it and nothing to install.

    puzzles export --browser dist/browser                            every notebook of the suite, beginning at its map
    puzzles export --browser week1/ ddp fsdp gpipe --text week1.md   these, behind a page of a course's own
    python -m tools.browser week1/                                   shows them on this machine

Needs node, for what is in `page/`; see docs/browser.md.
"""
