"""A plugin for pytest: files in another order, and the tests in each; ORDER in the environment says in which."""

import os
import random
from itertools import groupby

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    chance = random.Random(os.environ["ORDER"])
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    chance.shuffle(files)
    for tests in files:
        chance.shuffle(tests)
    items[:] = [test for tests in files for test in tests]
