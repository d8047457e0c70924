"""The BM25 index against bm25s's own, against the formula in plain loops, and against texts in many
scripts.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import bm25s
import numpy as np
import pytest

from adiabat.core.errors import ConfigError, StoreError
from adiabat.core.files import read_json, write_json
from adiabat.core.ragged import Ragged
from adiabat.store import bm25 as bm25_module
from adiabat.store.analysers import words
from adiabat.store.bm25 import FILES, BM25Index, build_bm25
from adiabat.store.manifest import LEXICAL_FILE, SPOOL_FILE
from tests.refused import refused

TEXTS = [
    "The cat sat on the mat.",
    "A dog sat on a log; the log sank.",
    "cats and dogs",
    "...",
    "The cat sat on the mat.",
    "mat mat mat cat",
    "القطة جلست على السجادة",
]


def drawn(seed: int, count: int = 60) -> list[str]:
    rng = np.random.default_rng(seed)
    return [
        " ".join(f"w{number}" for number in rng.zipf(1.5, rng.integers(1, 30)) if number < 50) or "w1"
        for _ in range(count)
    ]


def plain_score(query: str, text: str, texts: list[str], k1: float, b: float) -> float:
    documents = [words(one) for one in texts]
    mean = sum(map(len, documents)) / len(documents)
    total = 0.0
    for word in words(query):
        holding = sum(word in document for document in documents)
        count = words(text).count(word)
        if holding and count:
            idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            total += idf * count / (k1 * (1 - b + b * len(words(text)) / mean) + count)
    return total


def test_a_score_worked_by_hand(tmp_path: Path) -> None:
    """Two documents of one word each: df = 1, N = 2, so idf = ln 2; length equals the mean, so tf / (k1 + tf)
    = 1 / 3.
    """
    hits = build_bm25(["apple", "pear"], tmp_path, k1=2.0, b=0.7).search(["Apple"], 2)
    assert hits.rows.tolist() == [[0, -1]]
    assert hits.scores[0, 0] == pytest.approx(math.log(2) / 3, rel=1e-6)
    assert hits.scores[0, 1] == -np.inf


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_the_formula_in_plain_loops(tmp_path: Path, seed: int) -> None:
    texts, queries = drawn(seed), drawn(seed + 100, 5)
    hits = build_bm25(texts, tmp_path, k1=1.1, b=0.6).search(queries, len(texts))
    for query, rows, scores in zip(queries, hits.rows.tolist(), hits.scores.tolist(), strict=True):
        expected = {row: plain_score(query, text, texts, 1.1, 0.6) for row, text in enumerate(texts)}
        assert {row for row in rows if row >= 0} == {row for row, score in expected.items() if score > 0}
        for row, score in zip(rows, scores, strict=True):
            assert row < 0 or score == pytest.approx(expected[row], rel=1e-5)


def test_the_files_are_those_that_bm25s_itself_would_write(tmp_path: Path) -> None:
    texts = drawn(7)
    build_bm25(texts, tmp_path, k1=1.5, b=0.75)
    ours = bm25s.BM25.load(tmp_path)
    theirs = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    theirs.index(
        ([[ours.vocab_dict[word] for word in words(text)] for text in texts], ours.vocab_dict),
        show_progress=False,
    )
    assert ours.scores["num_docs"] == len(texts)
    assert np.array_equal(ours.scores["indptr"], theirs.scores["indptr"])
    assert np.array_equal(ours.scores["indices"], theirs.scores["indices"])
    assert np.allclose(ours.scores["data"], theirs.scores["data"], rtol=2e-7, atol=0)


def test_the_best_are_those_that_bm25s_retrieves(tmp_path: Path) -> None:
    texts, queries = drawn(3), drawn(4, 6)
    index = build_bm25(texts, tmp_path)
    found = bm25s.BM25.load(tmp_path).retrieve([words(query) for query in queries], k=10, show_progress=False)
    assert np.array_equal(index.search(queries, 10).scores, found.scores)


def test_parts_of_any_size_give_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / name for name in ("whole", "parts")]
    for folder in folders:
        folder.mkdir()
        build_bm25(drawn(1), folder)
        monkeypatch.setattr(bm25_module, "DOCUMENTS_PER_BLOCK", 7)
        monkeypatch.setattr(bm25_module, "POSTINGS_PER_BLOCK", 11)
    for name in FILES:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_more_words_than_there_was_room_for_are_counted(tmp_path: Path) -> None:
    texts = [f"only{number} both" for number in range(70_000)]
    hits = build_bm25(texts, tmp_path).search(["only69999", "both"], 2)
    assert hits.rows.tolist() == [[69_999, -1], [0, 1]]


def test_equal_documents_tie_and_the_lower_row_comes_first(tmp_path: Path) -> None:
    hits = build_bm25(TEXTS, tmp_path).search(["cat mat"], 3)
    assert hits.rows.tolist() == [[5, 0, 4]]
    assert hits.scores[0, 1] == hits.scores[0, 2]


def test_texts_score_alike_in_the_corpus_and_outside_of_it(tmp_path: Path) -> None:
    texts = drawn(5)
    index, query = build_bm25(texts, tmp_path), "w1 w2 w3 w3 w9"
    hits = index.search([query], len(texts))
    here = hits.rows[0][hits.rows[0] >= 0]
    assert np.array_equal(index.scores(query, [texts[row] for row in here]), hits.scores[0, : len(here)])
    assert index.scores(query, ["nothing of that", "w2 unheard"]).tolist() == [
        0.0,
        index.scores("w2", ["w2 unheard"])[0],
    ]
    assert index.scores("nothing", texts).tolist() == [0.0] * len(texts)


def test_a_corpus_without_words_and_an_unknown_language_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    with refused(StoreError, "corpus with words", "2 documents without any"):
        build_bm25(["...", "?"], tmp_path)
    with refused(ConfigError, "the language of stems must be ", "got klingon"):
        build_bm25(iter(()), tmp_path, stemmer="klingon")
    assert list(tmp_path.iterdir()) == []


def test_an_index_is_opened_with_what_it_was_built_with(tmp_path: Path) -> None:
    build_bm25(TEXTS, tmp_path, k1=1.25, b=0.5, corpus="abc")
    index = BM25Index.open(tmp_path)
    assert (index.parameters, index.corpus, index.count) == ((1.25, 0.5), "abc", len(TEXTS))


def test_a_killed_build_is_not_taken_for_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_bm25(TEXTS, tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bm25_module, "_fill", killed)
    with pytest.raises(KeyboardInterrupt):
        build_bm25(TEXTS[:2], tmp_path)
    assert not (tmp_path / SPOOL_FILE).exists()
    with refused(StoreError, f"finished BM25 index, it holds no {LEXICAL_FILE}"):
        BM25Index.open(tmp_path)


@pytest.mark.parametrize("place", [None, 0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("name", [*FILES, LEXICAL_FILE])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, name: str, place: float | None) -> None:
    build_bm25(TEXTS, tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    if place is None:
        del content[-9:]
    else:
        content[int(place * (len(content) - 1))] ^= 4
    (tmp_path / name).write_bytes(content)
    with refused(StoreError, f"{name} must be undamaged, got ", "build the index again"):
        BM25Index.open(tmp_path)


def test_an_index_of_stems_cuts_queries_and_texts_alike_and_remembers_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    index = build_bm25(["The cat sat", "cats are sitting", "a dog"], folder, stemmer="english")
    again = BM25Index.open(folder)
    assert (index.stemmer, again.stemmer) == ("english", "english")
    for one in (index, again):
        hits = one.search(["the cats"], 3)
        assert sorted(hits.rows[0].tolist()) == [-1, 0, 1]
        assert one.scores("cats", ["The cat sat"])[0] == one.score_rows(["cats"], np.array([[0]]))[0, 0] > 0
        assert one.search(["the"], 1).rows.tolist() == [[-1]]


SPACELESS = {
    "Han": ("我家的狗很大", "狗"),
    "Han in two runs": ("喝水对身体好", "水"),
    "characters that stand apart in the document": ("他买了一辆红色的车", "买车"),
    "kana": ("とりがそらをとぶ", "そ"),
    "Thai": ("ฉันกินข้าวทุกวัน", "ข"),
    "Lao": ("ຂ້ອຍກິນເຂົ້າ", "ກ"),
    "Khmer": ("ខ្ញុំញ៉ាំបាយ", "ប"),
    "Burmese": ("ကျွန်တော်ထမင်းစားတယ်", "စ"),
}


@pytest.mark.parametrize("name", SPACELESS)
def test_a_character_of_a_script_without_spaces_finds_the_documents_that_hold_it(
    tmp_path: Path, name: str
) -> None:
    document, query = SPACELESS[name]
    index = build_bm25(["a plain one", "二三四五", document], tmp_path)
    hits = index.search([query], 3)
    assert hits.rows.tolist() == [[2, -1, -1]]
    assert index.scores(query, [document, "a plain one"]).tolist() == [hits.scores[0, 0], 0]
    assert index.score_rows([query], np.array([[2]]))[0, 0] == hits.scores[0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_scores_of_rows_and_counts_are_those_of_a_search_for_everything(tmp_path: Path, seed: int) -> None:
    texts, queries = drawn(seed), [*drawn(seed + 50, 4), "unheard of"]
    index = build_bm25(texts, tmp_path)
    table = np.zeros((len(queries), len(texts)), dtype=np.float32)
    hits = index.search(queries, len(texts))
    for query, row in np.argwhere(hits.rows >= 0):
        table[query, hits.rows[query, row]] = hits.scores[query, row]
    rows = np.array([[3, -1, 59], [0, 1, 2], [7, 7, -1], [-1, -1, -1], [5, 4, 3]])
    found = index.score_rows(queries, rows)
    assert np.array_equal(
        found, np.where(rows < 0, -np.inf, np.take_along_axis(table, np.maximum(rows, 0), axis=1))
    )
    thresholds = np.where(rows < 0, np.inf, found).astype(np.float32)
    aside = [[3, 4], [], [0], [1, 2, 3], []]
    others = [np.delete(table[query], rows) for query, rows in enumerate(aside)]
    expected = [
        [int((one >= level).sum()) for level in levels]
        for one, levels in zip(others, thresholds, strict=True)
    ]
    none = np.empty(0, dtype=np.int64)
    assert index.count_at_least(queries, thresholds, Ragged.of(aside), none)[0].tolist() == expected
    removed = np.array([0, 4, 5, 30])
    counts, apart = index.count_at_least(queries, thresholds, Ragged.of(aside), removed)
    without = index.count_at_least(
        queries, thresholds, Ragged.of(np.union1d(rows, removed) for rows in aside), none
    )[0]
    assert counts.tolist() == without.tolist()
    assert (counts + apart).tolist() == expected


@pytest.mark.parametrize("version", [1, 2, 99])
def test_another_version_is_refused_and_what_was_kept_of_it_is_not_at_hand(
    tmp_path: Path, version: int
) -> None:
    assert BM25Index.at_hand(tmp_path) is None
    build_bm25(TEXTS, tmp_path)
    record = read_json(tmp_path / LEXICAL_FILE, remedy="")
    write_json({**record, "version": version}, tmp_path / LEXICAL_FILE)
    advice = "update" if version > 3 else "remove the folder"
    with refused(StoreError, f"(format {version}), this is adiabat ", "(format 3); " + advice):
        BM25Index.open(tmp_path)
    assert BM25Index.at_hand(tmp_path) is None


@pytest.mark.parametrize("b", [0.0, 1.0])
def test_both_ends_of_the_range_of_b_are_in_it(tmp_path: Path, b: float) -> None:
    score = build_bm25(["cat", "dog dog dog"], tmp_path, k1=1.0, b=b).search(["cat"], 1).scores[0, 0]
    assert score == pytest.approx(math.log(2) / (1 - b + b / 2 + 1))


def test_progress_counts_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25_module, "DOCUMENTS_PER_BLOCK", 3)
    seen: list[int] = []
    build_bm25(TEXTS, tmp_path, on_progress=seen.append)
    assert seen == [3, 6, 7]


def test_bm25_is_imported_without_jax(tmp_path: Path) -> None:
    """JAX reserves most of a GPU's memory as soon as bm25s uses it; whoever imports JAX later still gets
    it.
    """
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax/__init__.py").write_text("print('jax is imported')\n")
    (tmp_path / "jax/lax.py").write_text("def top_k(values, k):\n    return values, k\n")
    code = "import adiabat.store.bm25, bm25s.selection; print(bm25s.selection.JAX_IS_AVAILABLE); import jax"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    said = subprocess.check_output([sys.executable, "-c", code], text=True, env={"PYTHONPATH": path})
    assert said.split("\n") == ["False", "jax is imported", ""]
