"""One server for all that is graded in this process: each that is started costs half a second."""

from collections.abc import Iterator

import pytest

from lib.suite.isolation.isolation import Isolation


@pytest.fixture(scope="session")
def isolation() -> Iterator[Isolation]:
    """What students' functions run in. Its server does not know a variable that this process had when it started."""
    with Isolation() as made:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SECRET_OF_OTHERS", "hush")
            assert made.features
        yield made


@pytest.fixture(autouse=True)
def one_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is graded in this process is graded there; `monkeypatch.undo()` gives a grading one of its own."""
    monkeypatch.setattr("lib.suite.grade.grading._isolation", lambda: request.getfixturevalue("isolation"))


class Shared:
    """The Isolation of all tests, which nobody closes."""

    def __init__(self, isolation: Isolation) -> None:
        self.run, self.answers = isolation.run, isolation.answers
        self.one_after_another, self.features = isolation.one_after_another, isolation.features

    def close(self) -> None:
        pass


@pytest.fixture
def shared(isolation: Isolation) -> Shared:
    return Shared(isolation)
