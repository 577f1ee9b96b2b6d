"""The lists of `make mutants`: a module or a test that has moved is noticed here, not after half an hour."""

import pytest

from tests.mutants.run import ROOT, TESTS, files, known, path_of


@pytest.mark.parametrize("module", TESTS)
def test_every_module_and_its_tests_are_there(module: str) -> None:
    assert (ROOT / path_of(module)).is_file()
    assert files(TESTS[module])


def test_a_module_is_known_by_its_last_name() -> None:
    assert known("rules") == known("values.rules") == "values.rules"
    assert path_of("values.rules") == "lib/values/rules.py"
    with pytest.raises(ValueError, match=r"^no module 'rule' has tests here; there are checker.checker, "):
        known("rule")
