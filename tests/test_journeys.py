"""Whole jobs on a tiny model, as a user runs them: the command line from a corpus to a report, with what can
happen on the way.
"""

import json
import os
import random
import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.data.records import text_id
from adiabat.models.embedding_head import EncoderSettings
from adiabat.results.record import read_result
from adiabat.store.vector_store import Store
from adiabat.training import loop
from tests.commands import Said, lines, run_in_process
from tests.tiny import files_of, save_tiny

Run = Callable[..., Said]

TOPICS = {
    "cat": "purring furry whiskers",
    "car": "engine wheels diesel",
    "sea": "waves salt tide",
    "sun": "light heat noon",
}
PROMPTS = EncoderSettings(max_tokens=48, query_prompt="query: ", document_prompt="passage: ")
SETTINGS = """
[data]
validation_fraction = 0.3
[tune]
learning_rate = 2e-3
batch_size = 8
batches_per_epoch = 10
max_epochs = 4
[run]
log_every = 5
checkpoint_seconds = 1000
"""


def triplets(seed: int, count: int) -> list[dict[str, object]]:
    """Queries on a topic, one text of the topic and two of others."""
    draw = random.Random(seed)
    rows: list[dict[str, object]] = []
    for number in range(count):
        topic, *others = draw.sample(sorted(TOPICS), 3)
        rows.append(
            {
                "query": f"{topic} {draw.choice('abcd')}{number}",
                "pos": [f"{TOPICS[topic]} {draw.choice('xyz')}"],
                "neg": [f"{TOPICS[other]} {draw.choice('xyz')}" for other in others],
            }
        )
    return rows


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_tiny(tmp_path / "model", settings=PROMPTS)
    lines(tmp_path / "train.jsonl", triplets(1, 60))
    lines(tmp_path / "test.jsonl", triplets(2, 24))
    (tmp_path / "tune.toml").write_text(SETTINGS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_a_file_of_triplets_to_a_proof_of_what_changed(run: Run, here: Path) -> None:
    for name in ("train", "test"):
        done(run, f"embed model {name}.jsonl --out {name}.store")
    store = Store.open(here / "train.store")
    assert set(store.doc_ids(range(store.count))) == {
        text_id(text) for row in triplets(1, 60) for text in (*row["pos"], *row["neg"])
    }  # type: ignore[misc]
    done(run, "tune model train.store train.jsonl --out job --config tune.toml")
    result = json.loads(
        done(
            run,
            "evaluate job train.store train.jsonl --baseline model --retain "
            "test.store test.jsonl --out proof --json",
        )
    )
    target, retained = result["datasets"]
    changes = {change["measure"]: change for change in target["changes"]}
    assert (target["role"], retained["role"], target["kind"]) == ("target", "retain", "pairs")
    # All of the target was trained on, so that its change proves nothing.
    assert (changes["PND"]["verdict"], changes["PND"]["reasons"]) == ("undecided", ["trained on it"])
    assert target["trained"][0]["trained_queries"] == target["queries"]
    assert changes["PND"]["difference_interval"][1] < 0
    assert result["training"]["best_epoch"] > 0
    assert result["training"]["validation_errors"][0][1] > min(
        errors for _, errors in result["training"]["validation_errors"]
    )
    page = (here / "proof" / "report.html").read_text(encoding="utf-8")
    assert "train" in page
    assert not re.search(r"""(src|href)=["']https?:""", page)
    found = json.loads(done(run, "search train.store --model model --compare job -k 2 --json", "cat a0"))
    assert list(found) == ["model", "job"]
    assert all(len(hits) == 2 for hits in found.values())


@pytest.fixture
def run(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return lambda command, *more: run_in_process(capsys, monkeypatch, [*command.split(), *more])


def done(run: Run, command: str, *more: str) -> str:
    said = run(command, *more)
    assert said.code == 0, said.err
    return said.out


@pytest.fixture
def stored(run: Run) -> None:
    done(run, "embed model train.jsonl --out store")


@pytest.mark.usefixtures("stored")
def test_a_run_stopped_by_ctrl_c_goes_on_to_the_same_weights_bit_for_bit(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(run, "tune model store train.jsonl --out whole --config tune.toml --set tune.max_epochs=3")
    plain = loop.Loop.step

    def stopped(self: loop.Loop) -> None:
        plain(self)
        if self.position.step == 17:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop.Loop, "step", stopped)
    said = run("tune model store train.jsonl --out cut --config tune.toml --set tune.max_epochs=3")
    monkeypatch.setattr(loop.Loop, "step", plain)
    assert (said.code, said.out) == (130, "")
    assert (
        said.err.splitlines()[-1]
        == "adiabat: stopped at step 17; run the same command with --resume to continue"
    )
    assert not (here / "cut" / "model").exists()
    done(run, "tune model store train.jsonl --out cut --config tune.toml --set tune.max_epochs=3 --resume")
    assert files_of(here / "cut" / "model") == files_of(here / "whole" / "model")
    first, second = (read_result(here / name / "result.json").training for name in ("cut", "whole"))
    assert first is not None
    assert second is not None
    assert (first.loss, first.validation_loss, first.validation_errors) == (
        second.loss,
        second.validation_loss,
        second.validation_errors,
    )


@pytest.mark.usefixtures("stored")
def test_a_tuned_job_is_what_sentence_transformers_loads(run: Run, here: Path) -> None:
    from sentence_transformers import SentenceTransformer

    done(run, "tune model store train.jsonl --out job --config tune.toml")
    ours, theirs = adiabat.load(here / "job"), SentenceTransformer(str(here / "job" / "model"), device="cpu")
    original = SentenceTransformer(str(here / "model"), device="cpu")
    texts = ["cat a0", "a much longer text about the sea " * 8, "", "שלום 🎉", "diesel"]
    queries = theirs.encode_query(texts)
    np.testing.assert_allclose(queries, ours.encode(texts, side="query", precision="fp32"), atol=1e-5)
    np.testing.assert_allclose(theirs.encode_document(texts), original.encode_document(texts), atol=1e-5)
    assert np.abs(queries - original.encode_query(texts)).max() > 1e-3


def test_a_store_grows_by_appending_and_by_importing_alike(run: Run, here: Path) -> None:
    rows = [{"_id": f"d{number}", "text": f"text {number} {'ab'[number % 2]}"} for number in range(12)]
    for name, part in {"all": rows, "first": rows[:7], "rest": rows[7:]}.items():
        lines(here / f"{name}.jsonl", part)
    done(run, "embed model all.jsonl --out whole --set store.precision=fp32")
    done(run, "embed model first.jsonl --out grown --set store.precision=fp32")
    done(run, "embed model rest.jsonl --out grown --append --set store.precision=fp32")
    whole, grown = Store.open(here / "whole"), Store.open(here / "grown")
    assert grown.doc_ids(range(12)) == whole.doc_ids(range(12))
    np.testing.assert_allclose(grown.vectors, whole.vectors, atol=1e-3)
    np.save(here / "vectors.npy", np.asarray(whole.vectors))
    (here / "ids.txt").write_text("".join(f"{row['_id']}\n" for row in rows), encoding="utf-8")
    done(run, "embed model all.jsonl --out imported --import vectors.npy --ids ids.txt")
    imported = Store.open(here / "imported")
    np.testing.assert_array_equal(imported.vectors, whole.vectors)
    assert imported.fingerprint == whole.fingerprint


@pytest.mark.usefixtures("stored")
def test_a_store_whose_building_was_cut_short_is_finished_by_the_same_command(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adiabat.models.encoder import Encoder

    plain = Encoder.encode
    monkeypatch.setattr(Encoder, "encode", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    said = run("embed model train.jsonl --out again")
    assert (said.code, "run the same command again" in said.err) == (130, True)
    said = run("search again --model model", "cat")
    assert said.code == 2
    assert "its build was interrupted (again.building); run its command again to resume" in said.err
    monkeypatch.setattr(Encoder, "encode", plain)
    done(run, "embed model train.jsonl --out again")
    np.testing.assert_array_equal(Store.open(here / "again").vectors, Store.open(here / "store").vectors)
    assert not (here / "again.building").exists()


def test_a_language_grid_is_kept_beside_what_was_tuned(run: Run, here: Path) -> None:
    labels = ("entailment", "neutral", "contradiction")
    grid: list[dict[str, object]] = [
        {
            "premise": {language: f"{language} premise {number // 3}" for language in ("de", "en")},
            "hypothesis": {language: f"{language} hypothesis {number}" for language in ("de", "en")},
            "label": labels[number % 3],
        }
        for number in range(12)
    ]
    lines(here / "grid.jsonl", grid)
    done(run, "embed model train.jsonl --out store")
    done(run, "embed model grid.jsonl --out grid.store")
    done(run, "tune model store train.jsonl --out job --config tune.toml --set tune.max_epochs=1")
    out = done(
        run,
        "evaluate job store train.jsonl --baseline model --retain grid.store grid.jsonl "
        "--out proof --set measure.resamples=200",
    )
    assert out == "proof/report.html\n"
    kept = read_result(here / "proof" / "result.json").datasets[1]
    assert (kept.kind, kept.role, kept.languages, kept.queries) == ("grid", "retain", ["de", "en"], 24)
    comparisons = ("entailment-neutral", "entailment-contradiction")
    assert {table.comparison for table in kept.grid} == {
        *comparisons,
        *(f"retrieval {name}" for name in comparisons),
    }
    said = run("tune model grid.store grid.jsonl --out other")
    assert said.code == 2
    assert "got a language grid; use it with adiabat evaluate" in said.err
