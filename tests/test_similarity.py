"""A model that states the dot product is ranked by it in every verb; what is expected is worked out in plain
loops.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import adiabat
from adiabat.adiabatic.probes import read_probes
from adiabat.adiabatic.regularization import Guard
from adiabat.adiabatic.stored_loss import in_blocks, store_softmax
from adiabat.config.dataset_settings import MineSettings
from adiabat.config.reader import checked
from adiabat.config.section import overlaid
from adiabat.config.shared import EvaluateSettings, RankingEncoderSection, SearchSettings
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, ModelError, StoreError
from adiabat.core.progress import Watch
from adiabat.core.ragged import Ragged
from adiabat.losses.in_batch import triplet_errors, triplet_margin
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.loading import load
from adiabat.models.towers import DualEncoder
from adiabat.report.evaluation_headline import caveats
from adiabat.results.record import read_result
from adiabat.store.vector_store import Store
from tests.commands import Said, inputs, lines, run_in_process
from tests.pages import no_page as no_page
from tests.settings_by_name import by_name
from tests.tiny import edit, save_tiny

RAW = EncoderSettings(max_tokens=64, normalize=False)
WORDS = ("cat", "dog", "sea", "sun", "rain", "salt", "wind", "tree")
TEXTS = [
    " ".join(WORDS[(number * step) % 8] for step in range(1, 2 + number % 5)) + f" {number}"
    for number in range(30)
]
QUERIES = [f"{one} {other}" for one in WORDS[:5] for other in WORDS[3:]]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that states the dot product, with its store; each query's answer is the document of its highest
    dot product.
    """
    folder = tmp_path_factory.mktemp("dot")
    save_tiny(folder / "model", seed=3, settings=RAW)
    edit(folder / "model", "config_sentence_transformers.json", similarity_fn_name="dot")
    lines(folder / "corpus.jsonl", [{"_id": f"d{row}", "text": text} for row, text in enumerate(TEXTS)])
    adiabat.embed(folder / "model", folder / "corpus.jsonl", folder / "store")
    best = products(folder).argmax(axis=1)
    lines(
        folder / "pairs.jsonl",
        [
            {"query": query, "pos": [f"d{row}"], "neg": [f"d{(row + 1) % 30}"]}
            for query, row in zip(QUERIES, best.tolist(), strict=True)
        ],
    )
    return folder


def vectors_of(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    queries = load(folder / "model").encode(QUERIES, side="query", precision="fp32").astype(np.float64)
    return queries, Store.open(folder / "store").gather(np.arange(30)).astype(np.float64)


def products(folder: Path) -> np.ndarray:
    queries, documents = vectors_of(folder)
    return np.array(
        [[sum(x * y for x, y in zip(one, other, strict=True)) for other in documents] for one in queries]
    )


def cosines(folder: Path) -> np.ndarray:
    queries, documents = vectors_of(folder)
    return products(folder) / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(documents, axis=1)


def test_evaluation_ranks_by_the_stated_similarity_first_and_says_so(here: Path) -> None:
    assert (products(here).argmax(axis=1) != cosines(here).argmax(axis=1)).any()
    settings = checked(EvaluateSettings, {"measure": {"negatives": "store"}})
    evaluation = adiabat.evaluate(*inputs(here), settings=settings)
    (found,) = evaluation.datasets
    main = found.main_change()
    assert (main.similarity, main.after) == ("dot", 1.0)
    assert list(dict.fromkeys(change.similarity for change in found.changes)) == ["dot", "cosine", "distance"]
    assert any("the main measure compares by dot product" in note for note in found.notes)
    assert caveats(evaluation)[-1:] == [f"{found.name}: documents were ranked by dot product."]
    by_cosine = next(
        change for change in found.changes if (change.measure, change.similarity) == (main.measure, "cosine")
    )
    assert by_cosine.after < 1.0


def test_another_similarity_may_be_asked_for(here: Path) -> None:
    settings = checked(
        EvaluateSettings, {"measure": {"negatives": "store"}, "encoder": {"similarity": "euclidean"}}
    )
    (found,) = adiabat.evaluate(*inputs(here), settings=settings).datasets
    assert found.main_change().similarity == "distance"
    loaded = adiabat.load(here / "model", settings=RankingEncoderSection(similarity="cosine"))
    assert (loaded.similarity, adiabat.load(here / "model").similarity) == ("cosine", "dot")


def test_a_baseline_that_states_another_similarity_is_named(here: Path, tmp_path: Path) -> None:
    save_tiny(tmp_path / "other", seed=3, settings=RAW)
    (found,) = adiabat.evaluate(*inputs(here), baseline=tmp_path / "other").datasets
    assert found.main_change().similarity == "dot"
    told = f"the baseline {tmp_path / 'other'} states cosine: check the values under that similarity too"
    assert told in found.notes


def test_search_ranks_by_the_stated_similarity_and_names_it(here: Path) -> None:
    expected = products(here)
    for row, query in enumerate(QUERIES):
        hits = adiabat.search(here / "store", query, model=here / "model", k=3)
        assert [hit.doc_id for hit in hits] == [
            f"d{best}" for best in np.argsort(-expected[row], kind="stable")[:3]
        ]
        assert {hit.similarity for hit in hits} == {"dot"}
        assert hits[0].score == pytest.approx(expected[row].max(), rel=1e-6)
    row = int(np.flatnonzero(expected.argmax(axis=1) != cosines(here).argmax(axis=1))[0])
    settings = SearchSettings(encoder=RankingEncoderSection(similarity="cosine"))
    (hit,) = adiabat.search(here / "store", QUERIES[row], model=here / "model", k=1, settings=settings)
    assert hit.doc_id == f"d{cosines(here)[row].argmax()}"


def test_one_search_shows_any_number_of_models(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(here / "model")]
    for stated in ("cosine", "euclidean"):
        save_tiny(tmp_path / stated, seed=3, settings=RAW)
        edit(tmp_path / stated, "config_sentence_transformers.json", similarity_fn_name=stated)
        names.append(str(tmp_path / stated))
    models = f"--model {names[0]} --compare {names[1]} --compare {names[2]}"
    arguments = [f"search {here}/store '{QUERIES[0]}' {models} -k 2"]
    said: Said = run_in_process(capsys, monkeypatch, arguments)
    heads = [line for line in said.out.splitlines() if not line.startswith(" ")]
    assert heads == [
        f"{names[0]}, by dot product",
        f"{names[1]}, by cosine",
        f"{names[2]}, by Euclidean distance",
    ]
    found = json.loads(run_in_process(capsys, monkeypatch, [*arguments, "--json"]).out)
    assert [[hit["similarity"] for hit in found[name]] for name in names] == [
        ["dot"] * 2,
        ["cosine"] * 2,
        ["distance"] * 2,
    ]


def test_candidates_are_mined_by_the_stated_similarity(here: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    settings = checked(
        MineSettings,
        {
            "mine": {
                "source": "dense",
                "negatives_per_query": 3,
                "choice": "ranked",
                "near_duplicate": 0.0,
                "listed": "keep",
            }
        },
    )
    best = products(here).argmax(axis=1).tolist()
    lines(
        tmp_path / "pairs.jsonl",
        [{"query": query, "pos": [f"d{row}"]} for query, row in zip(QUERIES, best, strict=True)],
    )
    out = tmp_path / "mined.jsonl"
    adiabat.mine(
        tmp_path / "pairs.jsonl",
        here / "store",
        out,
        model=str(here / "model"),
        settings=settings,
        progress=Watch(note=notes.append),
    )
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    for row, expected in zip(rows, products(here), strict=True):
        assert row["neg"] == [f"d{place}" for place in np.argsort(-expected, kind="stable")[1:4]]
    assert "vectors are compared by dot product" in notes
    assert (
        json.loads((tmp_path / "mined.jsonl.stats.json").read_text(encoding="utf-8"))["similarity"] == "dot"
    )


def tuned(here: Path, out: Path, notes: list[str] | None = None, **tune: Any) -> None:
    regime = {
        "loss": {"margin": 0.5},
        "learning_rate": 1e-4,
        "batch_size": 4,
        "batches_per_epoch": 2,
        "max_epochs": 1,
    }
    if tune.get("loss", "triplet") != "triplet":
        del regime["loss"]
    table = overlaid(TuneSettings, {"tune": regime}, by_name(TuneSettings, "tune", tune))
    settings = checked(TuneSettings, {**table, "data": {"validation_fraction": 0.4}})
    said = Watch(note=[].append if notes is None else notes.append)
    adiabat.tune(*inputs(here), out, settings=settings, progress=said)


def test_tuning_compares_by_the_stated_similarity_and_the_tuned_model_states_it(
    here: Path, tmp_path: Path
) -> None:
    """The validation before the first step, by loops: margin and errors in dot products."""
    notes: list[str] = []
    tuned(here, tmp_path / "job", notes)
    assert "queries and documents are compared by dot product" in notes
    first = json.loads((tmp_path / "job" / "log.jsonl").read_text(encoding="utf-8").splitlines()[0])
    record = read_result(tmp_path / "job" / "result.json").training
    assert record is not None
    assert record.settings["tune"]["loss"]["distance"] == "dot"
    expected, best = products(here), products(here).argmax(axis=1)
    losses = [
        max(0.0, 0.5 - row[first] + row[(first + 1) % 30]) for row, first in zip(expected, best, strict=True)
    ]
    # Which queries are held out is the job's choice: their mean is that of some of these, and no pair is an
    # error.
    assert first["validation_errors"] == 0
    assert min(losses) <= first["validation_loss"] <= max(losses)
    assert load(tmp_path / "job" / "model").similarity == "dot"


def test_a_model_that_was_tuned_by_another_similarity_states_that_one(here: Path, tmp_path: Path) -> None:
    tuned(here, tmp_path / "job", distance="euclidean")
    assert load(tmp_path / "job" / "model").similarity == "distance"


@pytest.mark.parametrize("loss", ["in_batch_softmax", "store_softmax"])
def test_a_softmax_takes_dot_products_and_refuses_distances(here: Path, tmp_path: Path, loss: str) -> None:
    tuned(here, tmp_path / "job", loss=loss, temperature=1.0)
    with pytest.raises(ConfigError, match="tune.loss.distance must be 'cosine' or 'dot', got 'euclidean'"):
        tuned(here, tmp_path / "other", loss=loss, temperature=1.0, distance="euclidean")
    settings = checked(TuneSettings, {"tune": {"loss": loss}, "encoder": {"similarity": "euclidean"}})
    with pytest.raises(
        ConfigError,
        match=r"tune.loss.distance must be cosine or dot .* got euclidean, which .* states; set it",
    ):
        adiabat.tune(*inputs(here), tmp_path / "third", settings=settings)
    assert not (tmp_path / "third").exists()


def test_the_triplet_loss_of_dot_products_equals_loops() -> None:
    draw = torch.Generator().manual_seed(0)
    query, positive = torch.randn(5, 8, generator=draw), torch.randn(5, 8, generator=draw)
    negative = torch.randn(5, 3, 8, generator=draw)
    negative[0, 0] = positive[0]
    gaps = [float(query[i] @ negative[i, h] - query[i] @ positive[i]) for i in range(5) for h in range(3)]
    assert float(triplet_margin(query, positive, negative, margin=0.3, distance="dot")) == pytest.approx(
        sum(max(0.0, gap + 0.3) for gap in gaps) / 15, rel=1e-5
    )
    # The copy of the positive ties, and a tie is an error.
    assert (
        int(triplet_errors(query, positive, negative, distance="dot"))
        == sum(gap >= 0 for gap in gaps[1:]) + 1
    )


def test_the_softmax_over_a_store_of_dot_products_equals_loops(here: Path) -> None:
    queries, documents = (torch.from_numpy(one) for one in vectors_of(here))
    known, temperature = Ragged.of([[row, row + 3] for row in range(len(queries))]), 2.0
    query = queries.float().requires_grad_()
    blocks = in_blocks(Store.open(here / "store"), torch.device("cpu"), block_rows=7)
    loss = store_softmax(
        query, documents[: len(queries)].float(), known, blocks, temperature=temperature, unit=False
    )
    loss.backward()
    again = queries.clone().requires_grad_()
    scores = again @ documents.T / temperature
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(queries)):
        others = [j for j in range(30) if j not in (row, row + 3)]
        total = total - scores[row, row] + torch.logsumexp(scores[row, [row, *others]], dim=0)
    expected = total / len(queries)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(query.grad.double(), again.grad, rtol=1e-3, atol=1e-5)


def test_probes_of_drift_are_looked_for_by_the_stated_similarity(here: Path, tmp_path: Path) -> None:
    (tmp_path / "probes.txt").write_text("\n".join(QUERIES) + "\n", encoding="utf-8")
    section = checked(TuneSettings, {"guard": {"depth": 5}}).guard
    guard = Guard.of(
        section, read_probes(str(tmp_path / "probes.txt")), load(here / "model"), Store.open(here / "store")
    )
    assert guard.start.rows.tolist() == np.argsort(-products(here), axis=1, kind="stable")[:, :5].tolist()


@pytest.mark.parametrize("verb", ["search", "load"])
def test_manhattan_is_refused_by_name(tmp_path: Path, here: Path, verb: str) -> None:
    save_tiny(tmp_path / "model", seed=3, settings=RAW)
    edit(tmp_path / "model", "config_sentence_transformers.json", similarity_fn_name="manhattan")
    asked: dict[str, Callable[[], object]] = {
        "search": lambda: adiabat.search(here / "store", "cat", model=tmp_path / "model"),
        "load": lambda: adiabat.load(tmp_path / "model"),
    }
    told = (
        "similarity_fn_name in config_sentence_transformers.json must be "
        "cosine, dot, euclidean, got manhattan"
    )
    with pytest.raises(ModelError, match=re.escape(told)):
        asked[verb]()
    assert (
        adiabat.load(tmp_path / "model", settings=RankingEncoderSection(similarity="dot")).similarity == "dot"
    )


def test_vectors_of_unit_length_are_ranked_by_cosine_whatever_is_stated() -> None:
    from tests.tiny import tiny_dual

    model = tiny_dual()
    unit = DualEncoder(model.query, model.document, "m", {"similarity_fn_name": "dot"})
    assert (unit.similarity, unit.ranks_by) == ("dot", "cosine")


def test_imported_vectors_of_a_dot_product_model_keep_their_lengths(here: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", Store.open(here / "store").gather(np.arange(30)))
    (tmp_path / "ids.txt").write_text("".join(f"d{row}\n" for row in range(30)), encoding="utf-8")
    vectors = {"vectors": tmp_path / "vectors.npy", "ids": tmp_path / "ids.txt"}
    adiabat.import_vectors(
        out=tmp_path / "store", texts=here / "corpus.jsonl", model=here / "model", **vectors
    )
    for query in QUERIES[:3]:
        found = [
            adiabat.search(place, query, model=here / "model", k=30)
            for place in (here / "store", tmp_path / "store")
        ]
        assert [hit.doc_id for hit in found[0]] == [hit.doc_id for hit in found[1]]


def test_an_import_of_vectors_without_their_titles_is_told_how_titles_are_joined(
    here: Path, tmp_path: Path
) -> None:
    lines(
        tmp_path / "titled.jsonl",
        [{"_id": f"d{row}", "title": "Of the sea", "text": text} for row, text in enumerate(TEXTS)],
    )
    np.save(tmp_path / "vectors.npy", Store.open(here / "store").gather(np.arange(30)))
    (tmp_path / "ids.txt").write_text("".join(f"d{row}\n" for row in range(30)), encoding="utf-8")
    with pytest.raises(
        StoreError, match=re.escape('a document with a title is embedded as title + " " + text')
    ):
        adiabat.import_vectors(
            tmp_path / "vectors.npy",
            tmp_path / "store",
            ids=tmp_path / "ids.txt",
            texts=tmp_path / "titled.jsonl",
            model=here / "model",
        )
