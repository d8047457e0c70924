"""The problem that most tests of this folder tune on, a pace that nothing measures, and no pages."""

import pytest

from adiabat.adiabatic.expected_time import Pace
from tests.adiabatic.problem import Problem, write_problem
from tests.pages import no_page as no_page


@pytest.fixture(autouse=True)
def known_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """To measure it takes a fifth of a tiny job; tests of the expected time do.

    Nor does the time of setting up decide what a job does.
    """
    monkeypatch.setattr(
        "adiabat.adiabatic.tune.measured_pace", lambda *_, **__: Pace(0.01, 0.01, 0.01, "CPU")
    )
    monkeypatch.setattr("adiabat.adiabatic.tune.seconds_since", lambda _: 0.0)


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """A store, examples, and two files of texts beside them."""
    folder = tmp_path_factory.mktemp("problem")
    for name in ("probes", "rehearsed"):
        (folder / f"{name}.txt").write_text(
            "".join(f"{name} {number} of nothing\n" for number in range(24)), encoding="utf-8"
        )
    return write_problem(folder)
