"""A scaling experiment that is made once."""

from pathlib import Path

import pytest

from adiabat.results.scaling_result import ScalingResult
from tests.experiments.scaling.world import rows_of, run, settings_of, write_world, written
from tests.laws_once import equal_laws_are_fitted_once as equal_laws_are_fitted_once
from tests.pages import EVERY, without_pages


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ScalingResult]:
    """The folder of a scaling experiment over three sizes and budgets, and what it found; to be read
    alone.
    """
    folder = tmp_path_factory.mktemp("scaling")
    write_world(folder)
    with pytest.MonkeyPatch.context() as patch:
        without_pages(patch, EVERY)
        return folder, run(settings_of(folder))


@pytest.fixture(autouse=True)
def _no_pages_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pages(monkeypatch, EVERY)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of a scaling experiment whose laws are known, in a file alone."""
    return written(tmp_path_factory.mktemp("runs"), rows_of(scored=True))
