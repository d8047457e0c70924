import hashlib
import json
import math
from pathlib import Path

import pytest

from adiabat.core.errors import DataError
from adiabat.core.provenance import packaged_folder
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.datasets import bundled as data
from adiabat.datasets.bundled import (
    DEMO_CORPUS,
    DEMO_RETAIN,
    DEMO_TEST,
    DEMO_TRAIN,
    DEMO_VALIDATION,
    demo_file,
)
from tests.packaged import copy_read_by, require_damage_told, script
from tests.refused import refused

SETS = {path.name: (DEMO_CORPUS, path) for path in (DEMO_TRAIN, DEMO_VALIDATION, DEMO_TEST)} | dict(
    DEMO_RETAIN
)


@pytest.fixture(scope="module")
def maker():
    return script("make_demo_data")


def examples(path: Path) -> ExampleSet:
    read = read_examples(path)
    assert isinstance(read, ExampleSet)
    return read


@pytest.fixture
def copied(tmp_path, monkeypatch):
    return copy_read_by(data, "datasets", tmp_path / "files", monkeypatch)


@pytest.mark.parametrize("name", SETS)
def test_every_document_that_is_named_is_in_the_corpus_and_is_not_the_query(name):
    corpus, file = SETS[name]
    documents = list(read_corpus(corpus))
    texts = {document.doc_id: document.text for document in documents}
    assert len(texts) == len(documents)
    read = examples(file)
    assert len(read) >= 300
    for example in read.examples:
        assert len(example.positives) == 1
        assert len(set(example.negatives)) == 5
        assert example.positives[0] not in example.negatives
        assert {*example.positives, *example.negatives} <= texts.keys()
        assert example.query not in texts.values()


def test_parts_of_the_tuned_field_share_no_paper_that_is_asked_for():
    named, asked = {}, {}
    for name in (DEMO_TRAIN, DEMO_VALIDATION, DEMO_TEST):
        read = examples(name).examples
        asked[name] = {example.positives[0] for example in read}
        named[name] = {doc_id for example in read for doc_id in example.positives + example.negatives}
    for name, papers in asked.items():
        assert all(papers.isdisjoint(documents) for other, documents in named.items() if other != name)


def test_the_language_probe_asks_each_sentence_once():
    read = examples(DEMO_RETAIN["tico19"][1]).examples
    assert len({example.positives[0] for example in read}) == len(read) == 600
    assert {example.query_id.partition(":")[0] for example in read} == {"es", "fr"}


def test_the_whole_set_is_small_and_listed():
    folder = packaged_folder("datasets")
    packed = {path.name: path for path in folder.glob("*.zst")}
    manifest = json.loads((folder / "manifest.json").read_text())["files"]
    assert packed.keys() == manifest.keys()
    assert {path.name for paths in SETS.values() for path in paths} == packed.keys()
    assert sum(path.stat().st_size for path in packed.values()) < 3_000_000
    for name, path in packed.items():
        assert manifest[name]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert manifest[name]["bytes"] == path.stat().st_size


def test_a_changed_or_missing_file_is_refused(copied):
    assert demo_file(DEMO_TEST.name) == copied / DEMO_TEST.name
    require_damage_told(copied / DEMO_TEST.name, lambda: demo_file(DEMO_TEST.name))
    with refused(DataError, "must be one of arxiv-cs-test.jsonl.zst, ", "got test"):
        demo_file("test")


@pytest.mark.parametrize(
    "content", ["", "{}", '{"format": 2, "files": {}}', '{"format": 1, "files": [1]}', None]
)
def test_a_damaged_manifest_is_refused(copied, content):
    path = copied / "manifest.json"
    path.unlink() if content is None else path.write_text(content)
    with refused(DataError, "manifest.json must be"):
        demo_file(DEMO_TEST.name)


def test_jensen_shannon_is_what_its_definition_says(maker):
    texts = ["the cat sat on the mat", "the dog sat", "the dog sat", "no shared words"]
    left, right, again, apart = (maker.word_shares(text) for text in texts)
    words = {*left, *right}
    middle = {word: (left.get(word, 0) + right.get(word, 0)) / 2 for word in words}
    plain = sum(
        share[word] * math.log(share[word] / middle[word]) / 2 for share in (left, right) for word in share
    )
    assert maker.jensen_shannon(left, right) == pytest.approx(plain)
    assert maker.jensen_shannon(left, right) == maker.jensen_shannon(right, left)
    assert maker.jensen_shannon(right, again) == pytest.approx(0, abs=1e-12)
    assert maker.jensen_shannon(left, apart) == pytest.approx(math.log(2))


def test_negatives_share_the_longest_prefix_first_and_then_the_most_words(maker):
    def item(key, categories, text):
        return maker.Item(key, "", "", categories, maker.word_shares(text))

    asked = item("asked", ("rare", "common"), "red green blue")
    others = [
        item("far", ("rare", "common"), "one two three"),
        item("near", ("rare", "common"), "red green three"),
        item("half", ("rare", "other"), "red green blue"),
        item("none-near", ("other",), "red green blue"),
        item("none-far", ("other",), "one two three"),
        item("none-mid", ("common",), "red two three"),
    ]
    found = maker.hard_negatives(asked, maker.by_prefix([asked, *others]))
    assert found == ["near", "far", "half", "none-near", "none-mid"]
