"""The verbs ``adiabat scaling`` and ``adiabat plan``: files, and going on."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from adiabat.results.record import read_result
from adiabat.results.scaling_result import ScalingResult
from adiabat.runs.run_config import without_none
from tests.commands import Said, run_in_process
from tests.experiments.scaling.world import tables_of, write_world
from tests.laws_once import equal_laws_are_fitted_once as equal_laws_are_fitted_once
from tests.pages import EVERY, without_pages

Verb = Callable[..., Said]


@pytest.fixture
def verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """A verb in the test's directory."""
    monkeypatch.chdir(tmp_path)
    without_pages(monkeypatch, EVERY - {"plan"})
    write_world(tmp_path)
    return lambda *words: run_in_process(capsys, monkeypatch, list(words))


def spec(**tables: Any) -> str:
    """A SPEC.toml."""
    given = {
        "scaling": {"out": None},
        "models": [{"model": "model", "blocks": [1, 2, 4], "pretraining_rate": 0.03}],
        **tables,
    }
    Path("spec.toml").write_text(tomli_w.dumps(without_none(tables_of(Path(), **given))), encoding="utf-8")
    return "spec.toml"


def test_a_scaling_leaves_a_page_and_a_plan_is_made_of_it(verb: Verb) -> None:
    said = verb("scaling", spec(), "--out", "out")
    assert (said.code, said.out) == (0, "out/report.html\n"), said.err
    assert "model, 4 blocks, full, 8e+07 FLOP, seed 0: run 9 of 9, done after 4 steps" in said.err
    assert len(read_result(Path("out/result.json"), ScalingResult).runs) == 9
    asked = "plan --budget 3e8 --runs out --set plan.least_steps=1 --set plan.resamples=8 --device cpu"
    told = verb(asked)
    assert told.code == 0, told.err
    table = tomllib.loads(told.out)
    assert table["train"]["budget_flops"] == pytest.approx(3e8)
    assert table["job"] == {"model": "model", "data": "pairs.jsonl"}
    assert "On this machine it takes about" in told.err
    written = verb(asked, "--out", "plan")
    assert (written.code, written.out) == (0, "plan/report.html\n"), written.err
    assert {path.name for path in Path("plan").iterdir()} == {
        ".call.json",
        "figures",
        "report.html",
        "result.json",
        "train.toml",
    }
    Path("run.toml").write_text(told.out, encoding="utf-8")
    assert verb("train", "run.toml", "--out", "job", "--device", "cpu").code == 0
    assert verb(asked, "--out", "plan").code == 0
    refused = verb(asked, "--out", "out")
    assert refused.code == 2
    assert "--out must be a directory of its own, out is an experiment; choose another" in refused.err
    Path("page").mkdir()
    Path("page/result.json").write_bytes(Path("out/result.json").read_bytes())
    refused = verb(asked, "--out", "page")
    assert refused.code == 2
    assert "kind is scaling, not plan" in refused.err
    record = verb(asked, "--json")
    assert json.loads(record.out)["advice"]["budget"] == 3e8


def test_what_was_published_is_told_without_runs(verb: Verb) -> None:
    said = verb("plan", "--budget", "1e17")
    assert (said.code, said.out) == (0, "")
    assert "Published results favour LoRA; they do not determine the model." in " ".join(said.err.split())
    # Without runs there are no losses, intervals or lines.
    assert "straight line" not in said.err
    assert verb("plan --budget 1e16 --model model --data-tokens 1e6 --memory 24GiB").code == 0
