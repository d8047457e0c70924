"""The problem that most tests of this folder tune on, one thread, and no pages."""

import pytest

from tests.adiabatic.problem import Problem, write_problem
from tests.pages import no_page as no_page


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """A store, examples, and two files of texts beside them."""
    folder = tmp_path_factory.mktemp("problem")
    for name in ("probes", "rehearsed"):
        (folder / f"{name}.txt").write_text("".join(f"{name} {number} of nothing\n" for number in range(24)), encoding="utf-8")
    return write_problem(folder)
