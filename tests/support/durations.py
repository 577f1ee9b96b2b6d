"""Shares the work of pytest-xdist out by what the last run took: the file that took longest begins first.

With `--dist loadfile` a worker takes file after file, so a long one that begins last keeps the others waiting.
"""

from collections import Counter, defaultdict

import pytest

__all__ = ["Durations"]

KEY = "durations/files"
"""The seconds of each file, in pytest's cache."""


class Durations:
    """A plugin that keeps how long each file took, and sorts the files of the next run by it."""

    def __init__(self, cache: pytest.Cache) -> None:
        self.cache = cache
        self.seconds = defaultdict[str, float](float)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sorts by the last run; files that it did not have begin first, those with the most tests before others."""
        last: dict[str, float] = self.cache.get(KEY, {})
        tests = Counter(_file(item.nodeid) for item in items)
        order = {file: (file in last, -last.get(file, 0), -count, file) for file, count in tests.items()}
        items.sort(key=lambda item: order[_file(item.nodeid)])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds up what set-up, test and tear-down took."""
        self.seconds[_file(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keeps the seconds of the files that ran as a whole. Workers keep nothing: their controller hears of all."""
        config = session.config
        part = config.option.keyword or config.option.markexpr or any("::" in arg for arg in config.args)
        if not part and not hasattr(config, "workerinput"):
            seconds = {file: round(seconds, 1) for file, seconds in self.seconds.items()}
            self.cache.set(KEY, self.cache.get(KEY, {}) | seconds)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
