"""The verbs of ``adiabat distill``: models that other verbs take."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from adiabat.core.files import read_json
from tests.commands import Said, lines, run_in_process, setting
from tests.pages import no_page as no_page
from tests.tiny import save_tiny

Verb = Callable[..., Said]


@pytest.fixture
def verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """A verb in the test's directory, where a teacher lies."""
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "teacher", width=24)
    return lambda *words: run_in_process(capsys, monkeypatch, list(words))


def test_a_static_model_is_a_model_for_other_verbs(verb: Verb) -> None:
    said = verb("distill", "static", "teacher", "--out", "student", "--dims", "8")
    assert (said.code, said.out) == (0, "student\n"), said.err
    assert "258 tokens of 8 numbers, " in said.err
    Path("corpus.jsonl").write_text(
        '{"_id": "a", "text": "one text"}\n{"_id": "b", "text": "another"}\n', encoding="utf-8"
    )
    assert verb("embed", "student", "corpus.jsonl", "--out", "store").code == 0
    found = verb("search", "store", "one text", "--model", "student", "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["student"][0]["doc_id"] == "a", found.out


def test_settings_reach_the_record(verb: Verb) -> None:
    said = verb(
        "distill static teacher --out student --dims 4 --pooling last --weighting zipf "
        "--set static.dtype=int8 --seed 5 --device cpu --json"
    )
    assert said.code == 0, said.err
    record = json.loads(said.out)
    assert record == read_json(Path("student/result.json"), remedy="distill it again")
    assert record["settings"]["static"] == {
        **{"reduction": {"kind": "pca", "dims": 4}, "pooling": "last", "weighting": {"kind": "zipf"}},
        **{"without": r"\[unused\d+\]", "normalize": True, "dtype": "int8"},
    }
    assert record["seed"] == 5
    assert record["command"].startswith("adiabat distill static teacher --out student")


SHORT = setting("train.steps=4", "train.batch_size=4")


@pytest.fixture
def small(verb: Verb) -> None:
    """A student, and texts in two languages, beside the teacher."""
    del verb
    save_tiny(Path("small"), width=16)
    lines(Path("texts.jsonl"), [{"en": f"text {number}", "de": f"Satz {number}"} for number in range(60)])
    lines(Path("corpus.jsonl"), [{"id": str(number), "text": f"text {number}"} for number in range(60)])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "command",
    [
        "distill fit --texts corpus.jsonl",
        "distill multilingual --parallel texts.jsonl --languages de --source en",
    ],
)
def test_a_taught_student_is_a_model_for_other_verbs(verb: Verb, command: str) -> None:
    command = f"{command} --teacher teacher --student small --out taught"
    said = verb(command, *SHORT)
    assert (said.code, said.out) == (0, "taught\n"), said.err
    assert "16 of the 24 dimensions of the teachers' vectors are kept" in said.err.replace("\n", " ")
    assert verb("embed", "taught", "corpus.jsonl", "--out", "store").code == 0
    again = verb(command, *SHORT)
    assert again.code == 2
    assert "--out taught holds a job already; continue it with --resume" in again.err.replace("\n", " ")


@pytest.mark.usefixtures("small")
def test_a_static_query_tower_asks_a_store_of_its_teacher_and_is_tuned_against_it(verb: Verb) -> None:
    assert verb("embed", "teacher", "corpus.jsonl", "--out", "store").code == 0
    assert verb("distill", "static", "teacher", "--out", "static", "--set", "static.reduction=none").code == 0
    said = verb("distill fit --teacher teacher --student static --texts corpus.jsonl --out fitted", *SHORT)
    assert said.code == 0, said.err
    said = verb("distill", "pair", "fitted", "teacher", "--out", "pair")
    assert (said.code, said.out) == (0, "pair\n"), said.err
    assert verb("search", "store", "text 3", "--model", "pair").code == 0
    rows = [
        {"query": f"which is text {number}", "positive": str(number), "negative": str(number + 1)}
        for number in range(40)
    ]
    lines(Path("pairs.jsonl"), rows)
    tune = "tune pair store pairs.jsonl --out tuned --set tune.max_epochs=1 --device cpu"
    assert "a model without blocks has only embeddings: set freeze = []" in " ".join(verb(tune).err.split())
    said = verb(tune, *setting("tune.freeze=[]", "tune.learning_rate=1e-3"))
    assert said.code == 0, said.err
    tuned = SentenceTransformer("tuned/model", device="cpu")
    assert tuned.encode_query("text 3").shape == tuned.encode_document("text 3").shape == (24,)
