"""The verb ``adiabat distill ablate``: a static model step by step, and what each step brings."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from adiabat.results.record import read_result
from adiabat.results.suite_result import SuiteResult
from tests.commands import Said, lines, run_in_process, setting
from tests.pages import no_page as no_page
from tests.tiny import save_tiny

Verb = Callable[..., Said]
WORDS = ("red", "blue", "green", "cat", "dog", "house", "tree", "river", "stone", "cloud")
TEXTS = [f"the {one} near the {other}" for one in WORDS for other in WORDS if one != other]
SHORT = (
    *setting("fit.steps=3", "fit.batch_size=8", "pairs.steps=3", "pairs.batch_size=8"),
    *("--device", "cpu"),
)
ABLATE = "distill ablate teacher --suite suite.toml --out done --pairs pairs.jsonl"


@pytest.fixture
def verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """A verb in the test's directory, where a teacher, texts, pairs and a suite of two tasks lie."""
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "teacher", width=24)
    lines(Path("corpus.jsonl"), [{"id": str(number), "text": text} for number, text in enumerate(TEXTS)])
    pairs = [
        {"query": f"{text.split('near')[0].strip()} {number}", "positive": text}
        for number, text in enumerate(TEXTS)
    ]
    lines(Path("pairs.jsonl"), pairs)
    scored = [
        {"a": one, "b": other, "score": float(len(set(one.split()) & set(other.split())))}
        for one, other in zip(TEXTS, TEXTS[7:], strict=False)
    ]
    lines(Path("sts.jsonl"), scored)
    Path("suite.toml").write_text(
        '[[tasks]]\nkind = "sts"\nname = "likeness"\ndata = "sts.jsonl"\n\n[measure]\nresamples = 100\n',
        encoding="utf-8",
    )
    return lambda *words: run_in_process(capsys, monkeypatch, list(words))


def values(found: SuiteResult) -> dict[str, float]:
    scores = {model.name: found.main_score("likeness", model.name) for model in found.models}
    return {name: score.value for name, score in scores.items() if score is not None}


def test_each_step_is_a_model_that_is_measured_beside_its_teacher(verb: Verb) -> None:
    more = setting("static.weighting.corpus=corpus.jsonl", "static.reduction.dims=16")
    said = verb(f"{ABLATE} --texts corpus.jsonl", *more, *SHORT)
    assert (said.code, said.out) == (0, "done/suite/report.html\n"), said.err
    found = read_result(Path("done/suite/result.json"), SuiteResult)
    steps = ["basic", "mean pooling", "SIF", "normalisation", "counts", "fit", "pairs"]
    assert [model.name for model in found.models] == ["teacher", *steps]
    assert [model.width for model in found.models] == [24, *[16] * 7]
    assert found.baseline == "basic"
    scores = values(found)
    assert len(set(scores.values())) > 5
    # Likeness is by cosine, which lengths do not change.
    assert scores["normalisation"] == pytest.approx(scores["SIF"], abs=1e-9)
    record = json.loads(Path("done/models/basic/result.json").read_text(encoding="utf-8"))
    assert record["settings"]["static"]["pooling"] == "token"


def test_an_ablation_goes_on_and_makes_nothing_twice(verb: Verb) -> None:
    Path("words.txt").write_text("cats\n", encoding="utf-8")
    words = (ABLATE, *setting("static.vocabulary=words.txt"), *SHORT)
    assert verb(*words).code == 0
    before = {path: path.stat().st_mtime_ns for path in Path("done").glob("models/*/model.safetensors")}
    assert len(before) == 4
    again = verb(*words)
    assert again.code == 2
    assert "--out done holds a static ablation already; continue it with --resume" in " ".join(
        again.err.split()
    )
    assert verb(*words, "--resume").code == 0
    assert {
        path: path.stat().st_mtime_ns for path in Path("done").glob("models/*/model.safetensors")
    } == before
    # Killed while its files were written.
    Path("done/models/SIF/modules.json").unlink()
    assert verb(*words, "--resume").code == 0
    assert Path("done/models/SIF/modules.json").exists()
    refused(
        verb, *words, "--set", "static.reduction.dims=8", told="static.reduction.dims was 'not set', is 8"
    )
    pairs = Path("pairs.jsonl").read_text(encoding="utf-8")
    Path("pairs.jsonl").write_text("".join(reversed(pairs.splitlines(keepends=True))), encoding="utf-8")
    refused(verb, *words, told="the texts, queries or pairs differ from those the ablation began with")
    Path("pairs.jsonl").write_text(pairs, encoding="utf-8")
    Path("words.txt").write_text("cats\ndogs\n", encoding="utf-8")
    refused(verb, *words, told="inputs.vocabulary.words_sha256 was")
    assert not Path("done/passed").exists()


def refused(verb: Verb, *words: str, told: str) -> None:
    """An ablation does not go on with what differs from its beginning."""
    said = verb(*words, "--resume")
    assert said.code == 2
    assert told in " ".join(said.err.split())
