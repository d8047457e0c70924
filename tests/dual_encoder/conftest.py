"""The problem that most tests of this folder train on, and no pages."""

import pytest

from tests.dual_encoder import problem as problem_module
from tests.dual_encoder.problem import Problem, write_problem
from tests.pages import no_page as no_page


@pytest.fixture
def two_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that freeze one and train another."""
    monkeypatch.setattr(problem_module, "BLOCKS", 2)


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """A file of pairs, and a folder for jobs."""
    return write_problem(tmp_path_factory.mktemp("problem"))
