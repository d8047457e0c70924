"""The verb ``adiabat advise`` and its function: figures, files, and what it refuses."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.api import advise_verb
from adiabat.api.space_verb import addressed_queries
from adiabat.config.shared import DataSection, MeasureSection
from adiabat.core.files import read_json
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.systems import BM25System
from adiabat.experiments import advice
from adiabat.models.towers import DualEncoder
from adiabat.results.advice_result import Advice
from adiabat.results.record import read_result
from adiabat.store.bm25 import build_bm25
from tests.commands import (
    DOCUMENTS,
    PAIRS,
    Said,
    assert_refused,
    inputs,
    lines,
    listing,
    other_pairs,
    run_in_process,
    setting,
    write_world,
)
from tests.pages import no_page as no_page
from tests.pages import real_pages as real_pages


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `write_world` writes, a second set, and one whose queries share a document."""
    here = tmp_path_factory.mktemp("world")
    write_world(here)
    lines(here / "held.jsonl", other_pairs("other", 12))
    lines(here / "tied.jsonl", [{"query": f"question {row}", "pos": ["d0", f"d{row}"]} for row in range(20)])
    lines(here / "absent.jsonl", [{"query": f"question {row}", "pos": [f"d{row + 5}"]} for row in range(20)])
    return here


@pytest.fixture
def run(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """The verb on the model, its store and the examples, into ``out`` of the test's directory."""
    monkeypatch.chdir(world)

    def advise(data: str = "pairs.jsonl", *more: str, model: str = "model", store: str = "store") -> Said:
        return run_in_process(
            capsys, monkeypatch, ["advise", model, store, data, "--out", str(tmp_path / "out"), *more]
        )

    return advise


measured = advise_verb._tuning_time


@pytest.fixture(autouse=True)
def _the_time_of_tuning_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """To measure it takes longer than all other figures."""
    monkeypatch.setattr(advise_verb, "_tuning_time", lambda *_: "expected time: 3 s")


@pytest.mark.usefixtures("real_pages")
def test_the_verb_leaves_a_page_and_a_record(
    run: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advise_verb, "_tuning_time", measured)
    said = run("pairs.jsonl", "--retain", "store", "held.jsonl", "--json")
    assert said.code == 0, said.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        ".call.json",
        "report.html",
        "result.json",
        "table.csv",
    ]
    printed, record = json.loads(said.out), read_json(tmp_path / "out" / "result.json", remedy="")
    assert printed == {**record, "headline": printed["headline"], "reasons": printed["reasons"]}
    found = read_result(tmp_path / "out" / "result.json", Advice)
    assert re.match(r"expected time: (?!unknown).*\d", found.tuning)
    assert " ".join(f"Recommendation: {found.choice}. {found.reason}".split())[:60] in " ".join(
        said.err.split()
    )
    target, held = found.datasets
    assert list(target.changes) == ["untuned", "BM25", "fused with BM25", "linear map"]
    assert list(held.changes) == ["untuned", "linear map"]
    assert (target.queries, target.measured, target.documents, target.headroom.total) == (20, 20, 20, 20)
    assert (target.headroom.beyond, found.clusters, held.role, held.queries) == (0, 20, "retain", 12)
    # Twenty queries are too few, whatever they show.
    assert found.choice == "get more data"
    assert {role: set(inputs) for role, inputs in found.inputs.items()} == {
        role: {"data", "store", "store_sha256"} for role in ("target", "retain 1")
    }
    page = (tmp_path / "out" / "report.html").read_text()
    assert found.reason.partition(" are")[0] in page


def test_the_figures_are_those_of_evaluate(world: Path, tmp_path: Path) -> None:
    store = adiabat.Store.open(world / "store")
    found = adiabat.advise(world / "model", store, world / "pairs.jsonl")
    evaluated = adiabat.evaluate(
        world / "model", store, world / "pairs.jsonl", negatives="store", resamples=100
    )
    (main,) = [change for change in evaluated.datasets[0].changes if change.measure == "nDCG@10"]
    assert found.target.untuned.after == pytest.approx(main.after, abs=1e-12)
    index = build_bm25(store.texts(np.arange(20)), tmp_path / "bm25")
    examples = addressed_queries(str(world / "pairs.jsonl"), store, DataSection())
    system = BM25System(index, store.doc_ids(np.arange(20)))
    scores = score_retrieval(system, examples, settings=MeasureSection(negatives="store")).samples[0]
    assert found.target.bm25 is not None
    assert found.target.bm25.after == pytest.approx(scores.values.mean(), abs=1e-12)
    assert found.to_frame()["ranking"].tolist() == ["untuned", "BM25", "fused with BM25", "linear map"]


def test_documents_judged_irrelevant_change_nothing(world: Path, tmp_path: Path) -> None:
    (tmp_path / "judged" / "qrels").mkdir(parents=True)
    lines(tmp_path / "judged" / "corpus.jsonl", DOCUMENTS)
    lines(
        tmp_path / "judged" / "queries.jsonl",
        [{"_id": f"q{row}", "text": pair["query"]} for row, pair in enumerate(PAIRS)],
    )
    judgements = [f"q{row}\td{(row + shift) % 20}\t{1 - shift}" for row in range(20) for shift in (0, 1)]
    lines(tmp_path / "judged" / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", *judgements])
    judged, plain = (
        adiabat.advise(world / "model", world / "store", data)
        for data in (tmp_path / "judged", world / "pairs.jsonl")
    )
    assert replace(judged.target, name="pairs") == plain.target


def test_bm25_is_compared_with_the_fusion_on_the_same_queries(world: Path) -> None:
    target = adiabat.advise(*inputs(world)).target
    assert target.bm25 is not None
    assert target.fused is not None
    assert target.bm25_over_fused is not None
    assert (target.bm25_over_fused.after, target.bm25_over_fused.before) == (
        target.bm25.after,
        target.fused.after,
    )
    assert target.bm25_over_fused.verdict is not None
    # Paired: the interval is not that of two levels.
    assert target.bm25_over_fused.difference_interval is not None


@pytest.fixture(scope="module")
def job(world: Path) -> Path:
    """A job that was tuned on ten of the pairs."""
    lines(world / "ten.jsonl", PAIRS[:10])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(world)
        adiabat.tune(
            "model",
            "store",
            "ten.jsonl",
            "job",
            recipe="paper",
            max_epochs=1,
            batches_per_epoch=2,
            validation_fraction=0.4,
        )
    return world / "job"


def test_what_the_job_of_the_model_trained_on_is_left_out(
    job: Path, run: Callable[..., Said], tmp_path: Path, world: Path
) -> None:
    lines(world / "twenty.jsonl", PAIRS)
    said = run("twenty.jsonl", model="job")
    assert said.code == 0, said.err
    found = read_result(tmp_path / "out" / "result.json", Advice)
    assert (found.target.queries, found.target.left_out) == (10, 10)
    assert "twenty: 10 of 20 queries are left out, since job was trained or validated on them" in found.notes
    lines(world / "rest.jsonl", PAIRS[10:])
    alone = adiabat.advise(job, world / "store", world / "rest.jsonl")
    assert replace(found.target, name="rest", left_out=0) == alone.target


def test_queries_with_documents_of_training_are_left_out_if_enough_others_remain(
    job: Path, world: Path
) -> None:
    rows = [{"query": f"fresh {number}", "pos": [f"d{number % 20}"]} for number in range(100)]
    lines(world / "hundred.jsonl", rows)
    lines(world / "eighty.jsonl", rows[:80])
    enough, few = (
        adiabat.advise(job, world / "store", world / name) for name in ("hundred.jsonl", "eighty.jsonl")
    )
    assert (enough.target.queries, enough.target.left_out) == (50, 50)
    assert (few.target.queries, few.target.left_out) == (80, 0)
    assert any(
        "40 of 80 queries have relevant documents that answered training queries of" in note
        for note in few.notes
    )


def test_queries_are_drawn_by_seed_and_equal_seeds_give_equal_figures(world: Path) -> None:
    first, again, other = (adiabat.advise(*inputs(world), queries=12, seed=seed) for seed in (0, 0, 1))
    assert (first.target.queries, first.target.measured) == (20, 12)
    assert first.datasets == again.datasets
    assert first.target.untuned != other.target.untuned


def test_without_texts_or_with_queries_tied_together_the_rest_is_measured(
    world: Path, tmp_path: Path
) -> None:
    vectors = adiabat.Store.open(world / "store").gather(np.arange(20))
    bare = adiabat.import_vectors(vectors, tmp_path / "bare", ids=[f"d{row}" for row in range(20)])
    found = adiabat.advise(world / "model", bare, world / "tied.jsonl")
    assert list(found.target.changes) == ["untuned"]
    assert found.pull is None
    assert any("keeps no texts" in note for note in found.notes)
    assert any("the largest with 20 of 20" in note for note in found.notes)


def test_an_earlier_advice_is_replaced_and_anything_else_is_not(
    run: Callable[..., Said], tmp_path: Path
) -> None:
    assert run().code == 0
    assert "replaced the earlier advice in" in run("pairs.jsonl", "--seed", "1").err
    (tmp_path / "out" / "result.json").write_text('{"format": 2}', encoding="utf-8")
    before = listing(tmp_path)
    assert run().code == 2
    assert listing(tmp_path) == before


def test_a_job_that_was_trained_on_nearly_all_queries_gets_no_advice(
    job: Path, run: Callable[..., Said], tmp_path: Path, world: Path
) -> None:
    lines(world / "twelve.jsonl", PAIRS[:12])
    fact = (
        "twelve must hold at least 10 queries that job was not trained on, got "
        "2 of 12; add queries, name other data, or the model that"
    )
    assert_refused(run("twelve.jsonl", model="job"), fact)
    assert not (tmp_path / "out").exists()


def test_missing_documents_are_dropped_on_request(run: Callable[..., Said], tmp_path: Path) -> None:
    assert run("absent.jsonl", *setting("data.missing=drop")).code == 0
    assert read_result(tmp_path / "out" / "result.json", Advice).target.queries == 15


def test_vectors_that_are_no_numbers_are_refused(
    run: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DualEncoder, "encode", lambda *_, **__: np.full((20, 32), np.nan, dtype=np.float32))
    assert_refused(run(), "vectors must be finite")
    assert not (tmp_path / "out").exists()


def test_an_interruption_leaves_nothing(
    run: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "cross_validate", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    said = run()
    assert said.code == 130
    assert "nothing was saved" in said.err
    assert not (tmp_path / "out").exists()
