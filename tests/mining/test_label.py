"""Scores of a cross-encoder for documents of each query: the file, going on after a kill, and refusals."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adiabat.config.dataset_settings import LabelSettings
from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import DataError, ModelError, StoreError
from adiabat.core.progress import Watch
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import Example
from adiabat.mining import label as label_module
from adiabat.mining.label import Labelling, label, labelled_before
from adiabat.mining.mine_checks import working_folder
from adiabat.mining.miner import MinedQuery, Miner
from adiabat.models.cross_encoder import CrossEncoder, load_cross_encoder
from adiabat.models.towers import DualEncoder
from adiabat.store.bm25 import build_bm25
from adiabat.store.build import build_store
from adiabat.store.search import search
from adiabat.store.vector_store import Store
from tests.commands import lines
from tests.refused import refused
from tests.tiny import save_tiny_reranker, tiny_dual

WORDS = [one + two for one in ("bar", "cel", "dor", "fin", "gus", "hap") for two in ("ka", "lo", "mi", "no")]


def words_of(number: int) -> list[str]:
    """Words of a document, so that no document is nearly another."""
    return random.Random(number).sample(WORDS, 9)


DOCUMENTS = [{"_id": f"d{n}", "text": " ".join(words_of(n))} for n in range(40)]
PAIRS = [
    {"query_id": f"x{n}", "query": f"where is {' '.join(words_of(n)[:3])}?", "pos": [f"d{n}"]}
    for n in range(20)
]
DEPTH = 4

Here = Callable[..., Labelling]


def tiny(name: str, section: EncoderSection) -> DualEncoder:
    del name, section
    return tiny_dual(seed=1)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Labels in a folder with a store, pairs and a cross-encoder, four queries a block."""
    monkeypatch.setattr(label_module, "BLOCK_QUERIES", 4)
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "corpus.jsonl", DOCUMENTS)
    lines(tmp_path / "pairs.jsonl", PAIRS)
    save_tiny_reranker(tmp_path / "reranker")
    named = {"source": "corpus.jsonl", "encoder_name": "a"}
    build_store(tiny_dual(seed=1), lambda: read_corpus("corpus.jsonl"), "store", dtype="float32", **named)

    def run(out: str = "scored.jsonl", *, data: str = "pairs.jsonl", **more: Any) -> Labelling:
        given = {name: more.pop(name) for name in ("watch", "store", "reranker") if name in more}
        inputs = {"store": Path("store"), "reranker": "reranker"} | given
        settings = checked(LabelSettings, {"label": {"depth": DEPTH}, **more})
        return label(data, out=Path(out), load=tiny, settings=settings, **inputs)

    return run


def teacher() -> CrossEncoder:
    return load_cross_encoder("reranker", device=torch.device("cpu"), named_by="reranker")


def rows_of(labelling: Labelling) -> list[dict[str, Any]]:
    return [json.loads(line) for line in labelling.out.read_text(encoding="utf-8").splitlines()]


def pool_of(query: str) -> set[str]:
    """The top documents of the store and of BM25, without the code that is tested."""
    store, towers = Store.open("store"), tiny_dual(seed=1)
    vectors = towers.encode([query], side="query", precision="fp32")
    index = build_bm25([str(row["text"]) for row in DOCUMENTS], Path("index"))
    found = [search(store, vectors, DEPTH).rows[0], index.search([query], DEPTH).rows[0]]
    rows = np.concatenate(found)
    return set(store.doc_ids(rows[rows >= 0]))


def test_every_query_has_the_scores_of_its_positives_and_of_both_rankings(here: Here) -> None:
    rows, texts = rows_of(here()), {str(row["_id"]): str(row["text"]) for row in DOCUMENTS}
    assert [row["query_id"] for row in rows] == [row["query_id"] for row in PAIRS]
    for row, pair in zip(rows, PAIRS, strict=True):
        assert list(row) == ["query_id", "query", "pos", "neg", "scores"]
        assert row["pos"] == pair["pos"]
        documents = [*row["pos"], *row["neg"]]
        assert set(documents) == pool_of(row["query"]) | set(row["pos"])
        alone = [teacher().score([row["query"]], [texts[each]]) for each in documents]
        np.testing.assert_allclose(row["scores"], np.concatenate(alone), rtol=1e-4, atol=1e-5)
        # The teacher's order, its hardest negative first.
        assert row["scores"][1:] == sorted(row["scores"][1:], reverse=True)


def test_the_file_is_read_by_the_loss_and_the_report_counts(here: Here) -> None:
    labelling = here("scored.jsonl.gz")
    examples = read_examples(labelling.out).examples
    assert all(len(each.scores) == len(each.positives) + len(each.negatives) for each in examples)
    report = labelled_before(labelling.out).report
    assert report == labelling.report
    assert (report["queries"], report["written"]) == (20, 20)
    assert report["negatives"] == sum(len(each.negatives) for each in examples)
    assert report["settings"]["label"] == {"depth": DEPTH}
    assert labelling.lines[0].startswith("20 of 20")


def test_texts_stay_texts_and_answers_of_other_rows_are_no_negatives(here: Here) -> None:
    texts = [str(row["text"]) for row in DOCUMENTS]
    query = PAIRS[3]["query"]
    rows = [
        {"query": query, "pos": [texts[3]]},
        {"query": query, "pos": [texts[11], "a text that the store lacks"]},
    ]
    lines(Path("texts.jsonl"), rows)
    for row in rows_of(here(data="texts.jsonl")):
        assert set(row["neg"]) < set(texts) - {texts[3], texts[11]}
        documents = [*row["pos"], *row["neg"]]
        wanted = teacher().score([query] * len(documents), documents)
        np.testing.assert_allclose(row["scores"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_killed_run_goes_on_and_writes_the_same(
    here: Here, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    whole = here("whole.jsonl").out.read_bytes()
    mine, taken = Miner.mine, 0

    def interrupted(miner: Miner, examples: Sequence[Example]) -> Iterator[MinedQuery]:
        nonlocal taken
        if taken == blocks:
            raise KeyboardInterrupt
        taken += 1
        return mine(miner, examples)

    with monkeypatch.context() as patch:
        patch.setattr(Miner, "mine", interrupted)
        with pytest.raises(KeyboardInterrupt):
            here()
    assert not Path("scored.jsonl").exists()
    notes: list[str] = []
    told: list[tuple[str, int, int]] = []

    def progress(label: str, done: int, total: int) -> None:
        told.append((label, done, total))

    watch = Watch(note=notes.append, progress=progress)
    assert here(watch=watch).out.read_bytes() == whole
    assert f"resumed at {4 * blocks} of 20 queries" in notes
    assert [done for label, done, _ in told if label == "labelling"] == [*range(4 * blocks + 4, 21, 4)]
    assert not working_folder(Path("scored.jsonl")).exists()


def test_another_teacher_begins_anew(here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    save_tiny_reranker(tmp_path / "other", seed=1)
    wanted = rows_of(here("other.jsonl", reranker="other"))
    mine, taken = Miner.mine, []

    def interrupted(miner: Miner, examples: Sequence[Example]) -> Iterator[MinedQuery]:
        if taken:
            raise KeyboardInterrupt
        taken.append(1)
        return mine(miner, examples)

    with monkeypatch.context() as patch:
        patch.setattr(Miner, "mine", interrupted)
        with pytest.raises(KeyboardInterrupt):
            here()
    notes: list[str] = []
    assert rows_of(here(reranker="other", watch=Watch(note=notes.append))) == wanted
    assert not any("resumed" in note for note in notes)


def test_what_cannot_be_labelled_is_refused_and_leaves_nothing(here: Here, tmp_path: Path) -> None:
    bare = {"source": "corpus.jsonl", "encoder_name": "a", "keep_texts": False}
    build_store(tiny_dual(seed=1), lambda: read_corpus("corpus.jsonl"), "bare", dtype="float32", **bare)
    build_store(
        tiny_dual(seed=9),
        lambda: read_corpus("corpus.jsonl"),
        "foreign",
        dtype="float32",
        source="corpus.jsonl",
        encoder_name="b",
    )
    lines(tmp_path / "gone.jsonl", [*PAIRS[:2], {"query": "x", "pos": ["d1", "d99"]}])
    before = sorted(path.name for path in tmp_path.iterdir())
    with refused(StoreError, "bare must keep texts"):
        here(store=Path("bare"))
    with refused(StoreError, "foreign"):
        here(store=Path("foreign"))
    with refused(DataError, "gone.jsonl:3", "d99"):
        here(data="gone.jsonl")
    (tmp_path / "none").mkdir()
    with refused(ModelError, "none"):
        here(reranker="none")
    (tmp_path / "none").rmdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    done = here()
    content = done.out.read_bytes()
    with refused(DataError, "scored.jsonl exists"):
        here()
    assert done.out.read_bytes() == content
