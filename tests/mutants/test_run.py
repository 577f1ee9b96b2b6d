"""The lists of `make mutants`: a module or a test that has moved is noticed here, not after half an hour."""

import pytest

from tests.mutants.run import ROOT, TESTS, files, path_of


@pytest.mark.parametrize("module", TESTS)
def test_every_module_and_its_tests_are_there(module: str) -> None:
    assert (ROOT / path_of(module)).is_file()
    assert files(TESTS[module])
