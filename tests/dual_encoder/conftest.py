"""The problem that most tests of this folder train on, one thread, and no pages."""

from collections.abc import Iterator

import pytest

from tests.commands import one_thread
from tests.dual_encoder.problem import Problem, write_problem
from tests.pages import no_page as no_page


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """For every test that does not ask for more."""
    with one_thread():
        yield


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """A file of pairs, and a folder for jobs."""
    return write_problem(tmp_path_factory.mktemp("problem"))
