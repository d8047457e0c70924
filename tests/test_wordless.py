"""Texts of which a static model knows no token: documents are named or left out, queries find nothing, and
neither ends a job.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

import adiabat
from adiabat.config.dataset_settings import MineSettings
from adiabat.config.reader import checked
from adiabat.config.shared import EmbedSettings
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import Watch
from adiabat.data.records import Document
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.models.static import StaticBackbone, StaticTokenizer
from adiabat.store.text_vectors import HEAD, known_documents, tokens_with_weight, wordless
from tests.commands import lines, run_in_process
from tests.models.static_models import (
    UNKNOWN,
    WORDS,
    static_encoder,
    word_table,
    word_tokenizer,
    write_static,
)
from tests.pages import without_pages
from tests.tiny import tiny_encoder

KNOWN = WORDS[4:]
DOCUMENTS = [{"_id": f"d{n}", "text": f"{KNOWN[n % 8]} {KNOWN[(3 * n + 1) % 8]} {n}"} for n in range(16)]
LOST = [{"_id": "lost", "text": "xyzzy plugh"}]
PAIRS = [
    {"query": f"the {KNOWN[n % 8]} number{n}", "pos": [f"d{n}"], "neg": [f"d{(n + 1) % 16}"]}
    for n in range(16)
]
SILENT = [
    {"query": "frobnicate", "pos": ["d3"], "neg": ["d4"]},
    {"query": "quux", "pos": ["d5"], "neg": ["d6"]},
]
DROP = checked(EmbedSettings, {"data": {"blank": "drop"}})


def weightless() -> Tensor:
    table = word_table()
    table[UNKNOWN] = 0
    return table


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A static model that gives unknown tokens no weight, a corpus with one document of such tokens alone,
    and a store without it.
    """
    monkeypatch.chdir(tmp_path)
    without_pages(monkeypatch)
    write_static(tmp_path / "model", weightless())
    lines(tmp_path / "corpus.jsonl", [*DOCUMENTS[:9], *LOST, *DOCUMENTS[9:]])
    lines(tmp_path / "pairs.jsonl", [*PAIRS, *SILENT])
    return tmp_path


def embedded() -> list[str]:
    notes: list[str] = []
    adiabat.embed("model", "corpus.jsonl", "store", settings=DROP, progress=Watch(note=notes.append))
    return notes


# --- Which texts they are ---


def test_texts_without_a_token_of_weight_are_found_wherever_the_first_known_one_stands() -> None:
    encoder = static_encoder(weightless())
    far = "xyzzy " * HEAD + "cat"
    texts = ["cat", "xyzzy", "", "xyzzy cat", far, "x" * HEAD + "cat", "x" * HEAD + " cat", "plugh " * HEAD]
    found = wordless(encoder, texts, side="query")
    assert found.tolist() == [False, True, True, False, False, True, False, True]
    np.testing.assert_array_equal(found, ~encoder.encode(texts, side="query").any(axis=1))


@pytest.mark.parametrize("side", ["right", "left"])
def test_tokens_behind_the_limit_do_not_count(side: str) -> None:
    encoder = static_encoder(weightless(), settings=EncoderSettings(max_tokens=3), side=side)
    texts = [
        "xyzzy xyzzy xyzzy cat",
        "cat xyzzy xyzzy xyzzy",
        "cat " + "xyzzy " * HEAD,
        "xyzzy " * HEAD + "cat",
    ]
    np.testing.assert_array_equal(
        wordless(encoder, texts, side="query"), ~encoder.encode(texts, side="query").any(axis=1)
    )


def test_a_model_that_drops_unknown_tokens_finds_the_same() -> None:
    tokenizer = StaticTokenizer(word_tokenizer(), rows=len(WORDS), unknown_id=UNKNOWN, letters_per_token=3)
    encoder = Encoder(StaticBackbone(word_table()), tokenizer, EncoderSettings())
    found = wordless(encoder, ["cat", "xyzzy", "", "xyzzy cat"], side="query")
    assert found.tolist() == [False, True, True, False]


def test_a_prompt_of_known_words_and_a_transformer_know_every_text() -> None:
    prompted = static_encoder(weightless(), settings=EncoderSettings(query_prompt="the "))
    assert not wordless(prompted, ["xyzzy"], side="query").any()
    assert wordless(prompted, ["xyzzy"], side="document").all()
    assert not wordless(tiny_encoder(), ["xyzzy", ""], side="query").any()


def test_the_table_is_read_once_however_many_documents_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, reads = static_encoder(weightless()), []

    def counted(asked: Encoder) -> object:
        reads.append(asked)
        return tokens_with_weight(asked)

    monkeypatch.setattr("adiabat.store.text_vectors.tokens_with_weight", counted)
    monkeypatch.setattr("adiabat.store.text_vectors.DOCUMENTS_PER_BLOCK", 2)
    texts = ["cat", "xyzzy", "", "xyzzy cat", "the"]
    documents = iter([Document(str(number), text) for number, text in enumerate(texts)])
    known = known_documents(encoder, documents, blank="drop", source="corpus", note=lambda said: None)
    assert [document.doc_id for document in known] == ["0", "3", "4"]
    assert len(reads) == 1


# --- What the verbs do with them ---


def test_a_document_is_named_with_the_setting_and_nothing_is_left_behind(here: Path) -> None:
    with pytest.raises(
        DataError, match=r"corpus.jsonl: .* got none in \"lost\" \('xyzzy plugh'\); set data.blank = drop"
    ) as fault:
        adiabat.embed("model", "corpus.jsonl", "store")
    assert "\n" not in str(fault.value)
    assert not [path.name for path in here.iterdir() if path.name.startswith("store")]


def test_the_setting_leaves_it_out_and_says_so(here: Path) -> None:
    notes = embedded()
    store = adiabat.embed("model", "corpus.jsonl", "store", settings=DROP)
    assert store.doc_ids(np.arange(store.count)) == [row["_id"] for row in DOCUMENTS]
    assert any(
        'documents without a token that the static model knows are left out: "lost"' in note for note in notes
    )


def test_a_query_finds_nothing_and_the_terminal_says_why(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded()
    assert list(adiabat.search("store", "frobnicate", model="model")) == []
    assert len(adiabat.search("store", "frobnicate the cat", model="model", k=3)) == 3
    said = run_in_process(capsys, monkeypatch, ["search", "store", "frobnicate", "--model", "model"])
    assert said.code == 0
    assert "no hits: the model knows no token of the query" in said.out


def test_measuring_counts_such_queries_as_lost_and_says_how_many(here: Path) -> None:
    embedded()
    notes: list[str] = []
    result = adiabat.evaluate("model", "store", "pairs.jsonl", progress=Watch(note=notes.append))
    assert any(
        "2 of 18 queries hold no token that the model knows" in note
        for note in (*notes, *result.datasets[0].notes)
    )


def test_tuning_leaves_such_queries_out_and_says_so(here: Path) -> None:
    embedded()
    tuning = {
        "batch_size": 4,
        "batches_per_epoch": 1,
        "max_epochs": 1,
        "learning_rate": 1e-3,
        "negatives": "hardest",
        "freeze": [],
    }
    settings = checked(
        TuneSettings, {"tune": tuning, "data": {"validation_fraction": 0.3}, "run": {"device": "cpu"}}
    )
    result = adiabat.tune("model", "store", "pairs.jsonl", "job", settings=settings)
    assert result.training is not None
    assert (
        sum(int(note.split()[0]) for note in result.training.notes if "no token that the model knows" in note)
        == 2
    )
    assert np.isfinite(load("job/model").query.encode(["cat"], side="query")).all()


def test_mining_finds_such_queries_no_negatives(here: Path) -> None:
    embedded()
    settings = checked(MineSettings, {"mine": {"source": "dense", "negatives_per_query": 2}})
    adiabat.mine("pairs.jsonl", "store", "mined.jsonl", model="model", store="store", settings=settings)
    mined = [
        json.loads(line)
        for path in here.glob("mined*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    negatives = {row["query"]: row.get("negative") or row.get("neg") or [] for row in mined}
    assert {query for query, found in negatives.items() if not found} == {"frobnicate", "quux"}
    assert len(negatives) == 18
