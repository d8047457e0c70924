"""The verb ``adiabat sweep`` and its function: files, and going on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import adiabat
from adiabat.config.sweeps import TuneSweepSettings
from adiabat.experiments import sweep as sweep_module
from adiabat.results.record import read_result
from adiabat.results.sweep_result import SweepResult
from adiabat.runs.run_config import without_none
from tests.commands import Said, run_in_process
from tests.experiments.sweep.world import tables_of, write_world
from tests.pages import without_pages
from tests.tiny import save_tiny

Sweep = Callable[..., Said]


@pytest.fixture
def sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """The verb on a small sweep in the test's directory; overlays are tables."""
    monkeypatch.chdir(tmp_path)
    without_pages(monkeypatch)
    write_world(tmp_path)
    save_tiny(tmp_path / "model")
    adiabat.embed(tmp_path / "model", tmp_path / "corpus.jsonl", tmp_path / "own")

    def run(*more: str, **tables: Any) -> Said:
        given = {
            "job": {"model": "model", "store": "own"},
            "grid": {"tune": {"learning_rate": [3e-3]}},
            "sweep": {"out": None},
            **tables,
        }
        Path("spec.toml").write_text(
            tomli_w.dumps(without_none(tables_of(tmp_path, **given))), encoding="utf-8"
        )
        return run_in_process(capsys, monkeypatch, ["sweep spec.toml --out out --device cpu", *more])

    return run


def test_the_verb_leaves_a_page_and_prints_where(sweep: Sweep) -> None:
    said = sweep()
    assert (said.code, said.out) == (0, "out/report.html\n"), said.err
    assert "learning_rate=0.003, seed=0: run 1 of 1, done after 8 steps" in said.err
    assert {path.name for path in Path("out").iterdir()} >= {
        "report.html",
        "result.json",
        "runs.parquet",
        "table.csv",
        "table.md",
        "table.tex",
    }
    assert [one.name for one in read_result(Path("out/result.json"), SweepResult).runs] == [
        "learning_rate=0.003, seed=0"
    ]


def test_json_is_the_record_and_a_finished_sweep_only_needs_reading(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_module, "write_report", lambda result, folder: None)
    assert sweep().code == 0
    said = sweep("--json", "--resume")
    assert said.code == 0, said.err
    assert "run 1 of" not in said.err
    found = json.loads(said.out)
    assert (found["model"], [run["status"] for run in found["runs"]]) == ("model", ["done"])


def test_the_function_gives_what_the_verb_writes(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep()
    written = read_result(Path("out/result.json"), SweepResult)
    monkeypatch.setattr(sweep_module, "write_report", lambda result, folder: None)
    settings = TuneSweepSettings.model_validate({**json.loads(json.dumps(written.settings))})
    assert adiabat.sweep(settings, resume=True).runs == written.runs
