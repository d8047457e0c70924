"""A scaling experiment that is made once."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.results.scaling_result import ScalingResult
from adiabat.scaling_laws.fitting import Ensemble, Fitted
from adiabat.scaling_laws.laws import Points
from tests.experiments.scaling.world import rows_of, run, settings_of, write_world, written
from tests.pages import EVERY, without_pages


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ScalingResult]:
    """The folder of a scaling experiment over three sizes and budgets, and what it found; to be read alone."""
    folder = tmp_path_factory.mktemp("scaling")
    write_world(folder)
    with pytest.MonkeyPatch.context() as patch:
        without_pages(patch, EVERY)
        return folder, run(settings_of(folder))


@pytest.fixture(autouse=True)
def _no_pages_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pages(monkeypatch, EVERY)


DRAWN: dict[tuple[Any, ...], Ensemble] = {}


@pytest.fixture(autouse=True)
def _equal_laws_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Ensemble.of

    def of(fitted: Fitted, points: Points, *, resamples: int, seed: int, note: object) -> Ensemble:
        columns = (points.size, points.tokens, points.share, points.loss)
        key = (fitted.law, *(column.tobytes() for column in columns), resamples, seed)
        if key not in DRAWN:
            DRAWN[key] = real(fitted, points, resamples=resamples, seed=seed)
        return DRAWN[key]

    monkeypatch.setattr(Ensemble, "of", of)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of a scaling experiment whose laws are known, in a file alone."""
    return written(tmp_path_factory.mktemp("runs"), rows_of(scored=True))
