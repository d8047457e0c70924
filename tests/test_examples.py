"""The files of settings in examples/ run as they are written, on data and a model small enough for a test."""

import json
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import adiabat
from tests.commands import Run, lines, run_in_process, setting
from tests.laws_once import equal_laws_are_fitted_once as equal_laws_are_fitted_once
from tests.pages import EVERY, without_pages
from tests.tiny import save_tiny

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SMALL = ("--set", "job.model=model", "--set", "train.batch_size=8", "--device", "cpu")
SHORT = (*SMALL, "--set", "train.steps=2")
KINDS = ("paper", "note", "memo", "letter", "book")


def rows(path: str, values: Sequence[object]) -> None:
    lines(Path(path), values)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    without_pages(monkeypatch, EVERY)
    save_tiny(tmp_path / "model")
    texts = [f"{KINDS[number % 5]} {number * number}" for number in range(60)]
    for name in ("pairs", "forum", "papers"):
        asked = [
            {"query": f"{name} about {text}", "positive": text, "topic": text[0], "subforum": text[0]}
            for text in texts
        ]
        rows(f"{name}.jsonl", asked)
    rows("corpus.jsonl", [{"_id": f"d{number}", "text": text} for number, text in enumerate(texts[:12])])
    rows(
        "test.jsonl",
        [{"query": f"what of {text}", "pos": [f"d{number}"]} for number, text in enumerate(texts[:8])],
    )
    return lambda *arguments: run_in_process(capsys, monkeypatch, arguments)


def test_training_runs(run: Run) -> None:
    said = run("train", str(EXAMPLES / "02_train.toml"), "--out", "job", *SMALL)
    assert (said.code, said.out) == (0, "job\n"), said.err


def test_a_mixture_runs(run: Run) -> None:
    said = run("train", str(EXAMPLES / "03_mixture.toml"), "--out", "job", *SHORT)
    assert (said.code, said.out) == (0, "job\n"), said.err
    assert "asked for 75.0 %" in said.err


def test_a_sweep_over_training_runs(run: Run) -> None:
    said = run("sweep", str(EXAMPLES / "04_compare.toml"), "--out", "out", *SHORT, "--set", "sweep.seeds=[0]")
    assert (said.code, said.out) == (0, "out/report.html\n"), said.err


def test_a_suite_runs(run: Run) -> None:
    kinds = [KINDS[number % 5] for number in range(20)]
    scored = [
        {"a": f"{kind} {n}", "b": f"{kind} {n * n}", "score": n % 7, "lang": "en"}
        for n, kind in enumerate(kinds)
    ]
    rows("scored.jsonl", [*scored, {"a": "x", "b": "y", "score": 1, "lang": "de"}])
    labelled = [{"text": f"{kind} {n}", "label": kind} for n, kind in enumerate(kinds)]
    rows("labelled.jsonl", labelled)
    rows("labelled_test.jsonl", [{**row, "text": f"{row['text']}?"} for row in labelled])
    rows("parallel.jsonl", [{"en": f"{kind} {n}", "de": f"das {kind} {n}"} for n, kind in enumerate(kinds)])
    settings = (
        (EXAMPLES / "05_suite.toml").read_text(encoding="utf-8").replace('model = "demo"', 'model = "model"')
    )
    Path("suite.toml").write_text(settings, encoding="utf-8")
    said = run("evaluate", "model", "bm25", "--suite", "suite.toml", "--out", "out", "--device", "cpu")
    assert (said.code, said.out) == (0, "out/report.html\n"), said.err
    assert "cut at 64 tokens" in said.err


def test_scaling_runs_are_planned_with(run: Run) -> None:
    save_tiny(Path("model"), layers=4)
    settings = (EXAMPLES / "07_scaling.toml").read_text(encoding="utf-8")
    assert "[1e12, 4e12, 1.6e13]" in settings
    small = settings.replace('model = "demo"', 'model = "model"').replace(
        "[1e12, 4e12, 1.6e13]", "[1e8, 2e8, 4e8]"
    )
    Path("scaling.toml").write_text(small.replace("batch_size = 32", "batch_size = 8"), encoding="utf-8")
    few = setting("scaling.resamples=8", "scaling.least_steps=1", "methods.lora=[]")
    said = run("scaling", "scaling.toml", "--out", "out", "--device", "cpu", *few)
    assert (said.code, said.out) == (0, "out/report.html\n"), said.err
    planned = run("plan --budget 1e9 --runs out --set plan.least_steps=1 --set plan.resamples=8")
    assert planned.code == 0, planned.err
    assert "budget_flops" in planned.out


def test_a_multilingual_student_is_taught(run: Run) -> None:
    rows(
        "texts.jsonl",
        [
            {"en": f"{KINDS[n % 5]} {n}", "de": f"das {KINDS[n % 5]} {n}", "fr": f"le {n} {KINDS[n % 5]}"}
            for n in range(60)
        ],
    )
    said = run(
        "distill multilingual --teacher model --student model --out student --device cpu --config",
        str(EXAMPLES / "08_multilingual.toml"),
        *setting("train.batch_size=8", "train.steps=2"),
    )
    assert (said.code, said.out) == (0, "student\n"), said.err


def test_translations_bridge(run: Run) -> None:
    rows(
        "parallel.jsonl", [{"en": f"{KINDS[n % 5]} {n}", "de": f"das {KINDS[n % 5]} {n}"} for n in range(30)]
    )
    said = run("train", str(EXAMPLES / "09_bridging.toml"), "--out", "job", *SHORT)
    assert (said.code, said.out) == (0, "job\n"), said.err


def test_every_file_of_settings_is_run_here() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    files = sorted(path.name for path in EXAMPLES.glob("*.toml"))
    assert len(files) == 8
    assert all(f'EXAMPLES / "{name}"' in here for name in files)


def test_a_sweep_runs(run: Run) -> None:
    texts = [f"{KINDS[number % 5]} {number * number}" for number in range(12)]
    rows(
        "train.jsonl",
        [
            {"query": f"where is {text}", "pos": [f"d{n}"], "neg": [f"d{(n + 5) % 12}"]}
            for n, text in enumerate(texts)
        ],
    )
    rows(
        "other.jsonl",
        [{"query": f"which {text}", "pos": [f"d{number}"]} for number, text in enumerate(texts)],
    )
    assert run("embed", "model", "corpus.jsonl", "--out", "store", "--device", "cpu").code == 0
    short = setting(
        *("job.model=model", "tune.batches_per_epoch=2", "tune.max_epochs=1", "tune.batch_size=4"),
        *("sweep.seeds=[0]", "measure.resamples=100", "data.validation_fraction=0.3", "tune.keep=last"),
    )
    said = run("sweep", str(EXAMPLES / "06_sweep.toml"), "--out", "out", "--device", "cpu", *short)
    assert (said.code, said.out) == (0, "out/report.html\n"), said.err


def test_towers_are_trained_distilled_and_compared_in_python(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    asked = [json.loads(line) for line in Path("test.jsonl").read_text(encoding="utf-8").splitlines()]
    rows(
        "train.jsonl",
        [{"query": f"{row['query']} {n}", "pos": row["pos"]} for row in asked for n in range(9)],
    )
    files = {"corpus": "corpus.jsonl", "train": "train.jsonl", "test": "test.jsonl"}
    monkeypatch.setattr(adiabat, "demo_files", lambda: files, raising=False)
    monkeypatch.setattr(sys, "argv", ["10_train_distil_compare.py", "trained", "model"])
    runpy.run_path(str(EXAMPLES / "10_train_distil_compare.py"))
    said = capsys.readouterr().out
    assert "static" in said
    assert said.endswith("trained/suite/report.html trained/compared/report.html\n")
