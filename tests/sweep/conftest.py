"""A sweep that is made once."""

from functools import cache
from pathlib import Path

import pytest

from adiabat.measure.sweep_results import SweepResult
from adiabat.plan.recipe import KindFit, fit_kinds
from adiabat.plan.runs import Option, Run
from adiabat.report import page
from adiabat.report.sweep import files
from adiabat.sweep import analysis
from tests.sweep.world import rows_of, run, settings_of, write_world, written


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SweepResult]:
    """The folder of a sweep over three sizes and budgets, and what it found; to be read alone."""
    folder = tmp_path_factory.mktemp("sweep")
    write_world(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "render_page", lambda result: "page")
        return folder, run(settings_of(folder))


@pytest.fixture(autouse=True)
def _no_pages_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "render_page", lambda result: "page")
    monkeypatch.setattr(files, "write_figures", lambda folder, figures: None)


@cache
def _fitted(runs: tuple[Run, ...], asked: tuple[tuple[Option, float], ...], resamples: int, seed: int) -> list[KindFit]:
    return fit_kinds(runs, asked=dict(asked), resamples=resamples, seed=seed)


@pytest.fixture(autouse=True)
def _equal_runs_are_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fitted(runs: list[Run], *, asked: dict[Option, float], resamples: int, seed: int, note: object) -> list[KindFit]:
        return _fitted(tuple(runs), tuple(asked.items()), resamples, seed)

    monkeypatch.setattr(analysis, "fit_kinds", fitted)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of a sweep whose laws are known, in a file alone."""
    return written(tmp_path_factory.mktemp("runs"), rows_of(scored=True))
