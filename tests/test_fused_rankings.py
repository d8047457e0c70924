"""Rankings by vectors and BM25 together, through every door that takes them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.evaluation.evaluate import SAME_TOWER
from adiabat.models.model_names import load
from adiabat.store.fusion import FusedCandidates
from adiabat.store.own_bm25 import own_bm25
from tests.commands import PAIRS, lines, run_in_process, write_world
from tests.pages import no_page as no_page


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a store of its vectors, queries, and a suite of one task."""
    here = tmp_path_factory.mktemp("world")
    write_world(here)
    lines(here / "plain.jsonl", [{"query": pair["query"], "pos": pair["pos"]} for pair in PAIRS])
    (here / "log.txt").write_text("\n".join(f"another question {row}" for row in range(60)))
    models = '[[models]]\nname = "fused"\nmodel = "model"\nfuse = {by = "bm25", weight = 0.85}\n'
    models += '[[models]]\nname = "vectors"\nmodel = "model"\n'
    task = '[[tasks]]\nkind = "retrieval"\nname = "pairs"\ndata = "plain.jsonl"\ncorpus = "corpus.jsonl"\n'
    (here / "suite.toml").write_text(models + task + "[measure]\nresamples = 100\n")
    return here


@pytest.fixture
def here(world: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The world as the working directory."""
    monkeypatch.chdir(world)
    return world


def by_hand(here: Path, weight: float) -> list[float]:
    """nDCG@10 of every query, whose single answer is found by the fused scores."""
    store, model = adiabat.Store.open(here / "store"), load(here / "model")
    texts = [pair["query"] for pair in PAIRS]
    vectors = model.encode(texts, side="query", precision="fp32")
    candidates = FusedCandidates.of(store, own_bm25(store), vectors, texts)
    values = []
    for rows, scores, pair in zip(candidates.rows, candidates.fused(weight), PAIRS, strict=True):
        score_of = dict(zip(store.doc_ids(rows[rows >= 0]), scores[rows >= 0], strict=True))
        (answer,) = pair["pos"]
        rank = sum(score >= score_of.get(answer, -math.inf) for score in score_of.values())
        values.append(1 / math.log2(1 + rank) if answer in score_of and rank <= 10 else 0.0)
    return values


def test_an_evaluation_fuses_both_sides_or_the_model_alone(here: Path) -> None:
    options = {"baseline": "model", "negatives": "store", "resamples": 100}
    both = adiabat.evaluate(
        "model",
        "store",
        "pairs.jsonl",
        fuse={"by": "bm25", "weight": 0.85},
        unlabelled=[("pairs.jsonl", "log.txt")],
        **options,
    )
    alone = adiabat.evaluate(
        "model", "store", "pairs.jsonl", fuse={"by": "bm25", "weight": 0.85, "baseline": "none"}, **options
    )
    plain = adiabat.evaluate("model", "store", "pairs.jsonl", **options)
    assert (both.model, both.baseline) == ("model with BM25", "model with BM25")
    assert (alone.model, alone.baseline, alone.title) == (
        "model with BM25",
        "model",
        "model with BM25 on pairs",
    )
    changes = [each.datasets[0].main_change() for each in (both, alone, plain)]
    assert (
        changes[0].after
        == changes[0].before
        == changes[1].after
        == pytest.approx(np.mean(by_hand(here, 0.85)))
    )
    assert "vectors with a weight of 0.85 are fused with BM25" in " ".join(alone.datasets[0].notes)
    # Neither ranking alone decides at this weight.
    assert 0.2 < changes[0].after < 0.95
    assert changes[1].before == changes[2].after != changes[1].after
    # One model on both sides is no comparison; fused and alone it is.
    assert both.equal_towers == plain.equal_towers == [SAME_TOWER]
    assert alone.equal_towers == []
    # The lists beside the page are those of the fusion.
    assert alone.examples
    assert any(hit.score != pytest.approx(0, abs=1) for shown in alone.examples for hit in shown.after)


def test_a_search_has_the_hits_of_the_fusion_in_its_own_words(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = PAIRS[3]["query"]
    command = [
        "search",
        "store",
        query,
        "--model",
        "model",
        "--fuse",
        "bm25",
        "--set",
        "fuse.weight=0.85",
        "-k",
        "5",
        "--json",
    ]
    said = run_in_process(capsys, monkeypatch, command)
    (name, hits), *_ = json.loads(said.out).items()
    assert name == "model with BM25"
    store, model = adiabat.Store.open(here / "store"), load("model")
    vectors = model.encode([query], side="query", precision="fp32")
    expected = FusedCandidates.of(store, own_bm25(store), vectors, [query]).hits(5, 0.85)
    assert [hit["doc_id"] for hit in hits] == store.doc_ids(expected.rows[0])
    assert [hit["score"] for hit in hits] == pytest.approx(expected.scores[0].tolist())
    # A fused score is no similarity.
    assert {hit["similarity"] for hit in hits} == {""}
    assert (
        adiabat.search("store", query, model="model", fuse={"by": "bm25", "weight": 0.85}, k=5).to_json()[
            name
        ]
        == hits
    )


@pytest.mark.usefixtures("no_page")
def test_a_suite_has_a_column_of_a_fused_model(here: Path, tmp_path: Path) -> None:
    result = adiabat.evaluate_suite((), "suite.toml", out=tmp_path / "out")
    values = {score.model: score.value for score in result.scores if score.measure == "nDCG@10"}
    assert values["fused"] == pytest.approx(np.mean(by_hand(here, 0.85)))
    assert values["vectors"] != values["fused"]
    assert [note for model in result.models for note in model.notes] == [
        "in retrieval and triplets, vectors of the weight 0.85 are fused with bm25"
    ]


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["search", "bare", "words", "--model", "model", "--fuse", "bm25"], ["bare must keep its texts"]),
        (["evaluate", "model", "bare", "pairs.jsonl", "--fuse", "bm25"], ["bare must keep its texts"]),
        (
            ["search", "store", "words", "--model", "model", "--fuse", "bm25:englsh"],
            ["did you mean english?"],
        ),
        (["search", "store", "words", "--model", "model", "--fuse", "splade"], ["fuse.by", "splade"]),
        (
            ["search", "store", "words", "--model", "model", "--set", "fuse.weight=0.5"],
            ["fuse.weight", "fuse.by"],
        ),
        (
            ["evaluate", "model", "store", "pairs.jsonl", "--baseline-fuse", "none"],
            ["fuse.baseline", "fuse.by"],
        ),
        (
            ["evaluate", "model", "--suite", "suite.toml", "--fuse", "bm25"],
            ["--fuse", "no effect with --suite"],
        ),
    ],
)
def test_what_cannot_be_fused_is_refused_in_a_line(
    here: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    facts: list[str],
) -> None:
    if not (here / "bare").exists():
        store = adiabat.Store.open("store")
        vectors = store.gather(np.arange(store.count))
        adiabat.import_vectors(vectors, "bare", ids=store.doc_ids(np.arange(store.count)))
    out = ["--out", str(tmp_path / "out")] if words[0] == "evaluate" else []
    said = run_in_process(capsys, monkeypatch, [*words, *out])
    assert said.code == 2
    assert all(fact in said.err for fact in facts), said.err
    assert len(said.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
