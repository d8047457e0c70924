"""`adiabat compare` as it is typed: what it prints, what it leaves, and what it says of a spec that is wrong."""

import json
from pathlib import Path

import pytest

import adiabat
from tests.commands import Run, Said, run_in_process
from tests.experiments.comparison.world import write_world
from tests.tiny import save_tiny

SPEC = """
[compare]
seeds = [0]

[job]
model = "model"

[data]
validation_fraction = 0.3

[train]
steps = 2
batch_size = 6

[run]
device = "cpu"

[measure]
resamples = 200
measures = ["nDCG@10", "RR"]

[[candidates]]
name = "near"
job = {data = "near.jsonl"}

[[candidates]]
name = "far"
job = {data = "far.jsonl"}

[[tasks]]
data = "asked.jsonl"
corpus = "corpus.jsonl"
"""


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    save_tiny(tmp_path / "model")
    (tmp_path / "spec.toml").write_text(SPEC)
    return lambda *arguments: run_in_process(capsys, monkeypatch, arguments)


def test_people_see_a_ranking_and_programs_the_page(run: Run, tmp_path: Path) -> None:
    said = run("compare", "data", "spec.toml", "--out", "out")
    assert (said.code, said.out) == (0, "out/report.html\n")
    assert "Data sets compared: 2 trained on from model" in said.err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.toml", "runs.jsonl", "runs", "result.json", "report.html"}
    assert "adiabat compare data spec.toml --out out" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_the_same_again_needs_resume_and_then_trains_nothing(run: Run) -> None:
    assert run("compare", "data", "spec.toml", "--out", "out").code == 0
    again = run("compare", "data", "spec.toml", "--out", "out")
    assert again == Said(2, "", "adiabat: --out out holds a comparison already; go on with it by --resume, or choose another directory\n")
    resumed = run("compare", "data", "spec.toml", "--out", "out", "--resume", "--json")
    assert resumed.code == 0
    assert {one["name"] for one in json.loads(resumed.out)["standings"]} == {"near", "far"}
    assert "run 1 of" not in resumed.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dta", "spec.toml", "--out", "out"), "what is compared must be data or backbones, got 'dta'"),
        (("data", "none.toml", "--out", "out"), "none.toml must be a TOML file of settings, got no such file"),
        (("data", "spec.toml"), "compare.out must be given"),
        (("backbones", "spec.toml", "--out", "out"), 'candidate "near": job.data must be the same for all candidates'),
        (("data", "spec.toml", "--out", "out", "--set", "train.stesp=3"), "unknown key train.stesp; did you mean train.steps?"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(run: Run, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    said = run("compare", *arguments)
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert not (tmp_path / "out").exists()


def test_ctrl_c_says_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(adiabat, "compare", interrupted)
    said = run("compare", "data", "spec.toml", "--out", "out")
    assert said == Said(130, "", "adiabat: interrupted; run the same command with --resume to continue\n")
