"""Bad data: each kind is told with its place, and the rest of the file is inspected all the same."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adiabat.config.dataset_settings import InspectSettings
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import Watch
from adiabat.core.text import NO_BREAK
from adiabat.profiling.profile import PROGRESS_ROWS, inspect
from adiabat.profiling.profile_record import TextCounts
from tests.data.files import write
from tests.profiling.files import NO_IDENTIFIER, Letters, inspected, of_kind, sentence_of


def test_examples_of_texts_by_hand(tmp_path):
    path = write(
        tmp_path / "pairs.jsonl",
        {"query": "who is it?", "pos": ["she is", "he  is"], "neg": ["it"], "tag": "a"},
        {"query": "Who is it?", "pos": ["he is"], "neg": [], "tag": "b"},
    )
    found = inspected(path)
    assert (found.name, found.layout, found.rows, found.model) == ("pairs", "examples", 2, None)
    assert found.texts == (
        TextCounts("query", 2, 2, 1, 0),
        TextCounts("positive", 3, 3, 2, 0),
        TextCounts("negative", 1, 1, 1, 0),
    )
    counts = (found.pairs.pairs, found.pairs.unique_documents, found.pairs.rows_without_negatives)
    assert counts == (3, 1.0, 1)
    words = {one.role: dict(one.quantiles) for one in found.lengths if one.unit == "words"}
    assert (words["query"][100], words["positive"][0], words["negative"][50]) == (3, 2, 1)
    tag = found.columns[-1]
    assert (tag.name, tag.used_as, tag.values) == ("tag", "tag", (("a", 1), ("b", 1)))
    assert [row.location for row in found.examples] == [f"{path}:1", f"{path}:2"]
    assert found.examples[0].texts[:2] == (("query", "who is it?"), ("positive", "she is"))
    assert found.findings == ()


def test_labels_and_lists_in_csv_are_taken_as_other_verbs_take_them_and_said(tmp_path):
    labelled = write(
        tmp_path / "labelled.jsonl",
        {"qid": 1, "query": "who is it?", "passage": "she is", "label": 1},
        {"qid": 1, "query": "who is it?", "passage": "he is", "label": 0},
    )
    found = inspected(labelled)
    assert (found.pairs.pairs, found.pairs.negatives) == (1, 1)
    assert [column.used_as for column in found.columns] == ["query_id", "query", "positive", "label"]
    (told,) = found.findings
    assert '"label" is a label: documents with 0 are negatives, in 1 row' in told.sentence
    lists = write(tmp_path / "lists.csv", b"query,positive\n", b"who is it?,\"['she is', 'he is']\"\n")
    found = inspected(lists)
    assert found.pairs.pairs == 2
    (told,) = found.findings
    assert f'"positive" looks like a list in 1 row (first {lists}:2)' in told.sentence


def beir(folder, qrels: str) -> str:
    write(folder / "queries.jsonl", {"_id": "q1", "text": "one?"}, {"_id": "q2", "text": "two?"})
    write(
        folder / "corpus.jsonl",
        *({"_id": f"d{number}", "title": "", "text": f"text of {number // 2}"} for number in range(4)),
    )
    (folder / "qrels").mkdir()
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels)
    return str(folder)


def test_a_beir_folder_is_counted_by_the_texts_of_its_documents(tmp_path):
    # d0 and d1 are the same text: of three pairs two have different documents, and the negative is an answer
    # in disguise.
    found = inspected(beir(tmp_path / "set", "q1\td0\t1\nq1\td2\t1\nq2\td1\t2\nq2\td0\t0\n"))
    assert (found.name, found.layout, found.rows) == ("set/train", "BEIR folder", 2)
    counts = (found.pairs.pairs, found.pairs.unique_documents, found.pairs.negatives_that_answer)
    assert counts == (3, 2 / 3, 1)
    assert found.texts == (TextCounts("query", 2, 2, 2, 0), TextCounts("document", 4, 2, 2, 0))
    assert found.examples[0].texts == (
        ("query", "one?"),
        ("positive", "text of 0"),
        ("positive", "text of 1"),
    )
    assert "set/qrels/train.tsv:4" in sentence_of(found, "negatives that answer")
    # Documents that the corpus lacks are told with their place.
    found = inspected(beir(tmp_path / "less", "q1\td0\t1\nq2\td9\t1\n"))
    assert found.pairs.missing_documents == 1
    told = sentence_of(found, "missing documents")
    assert f'1 of 2 entries are not: {tmp_path}/less/qrels/train.tsv:3 "two?"' in told
    assert [finding.kind for finding in found.faults] == ["missing documents"]


def test_examples_that_hold_ids_are_counted_with_a_corpus_and_doubted_without(tmp_path):
    corpus = write(
        tmp_path / "corpus.jsonl", {"id": "d1", "body": "the same"}, {"id": "d2", "body": "the same"}
    )
    path = write(tmp_path / "pairs.jsonl", {"query": "a b", "pos": ["d1"]}, {"query": "c d", "pos": ["d2"]})
    with_texts = inspected(path, corpus=corpus, columns={"text": "body"})
    assert with_texts.pairs.unique_documents == 0.5
    assert of_kind(with_texts, "documents of one word") is None
    assert "data.corpus" in sentence_of(inspected(path), "documents of one word")


def test_a_language_grid_says_its_languages_itself(tmp_path):
    texts = {"en": "hello", "he": "שלום"}
    rows = ({"premise": texts, "hypothesis": texts, "label": n % 3} for n in range(6))
    found = inspected(write(tmp_path / "grid.jsonl", *rows))
    assert (found.layout, found.rows, found.pairs) == ("grid", 6, None)
    assert [(one.identified_by, one.languages) for one in found.languages] == [
        ("the data", (("en", 6), ("he", 6)))
    ] * 2
    assert found.languages[0].scripts == (("Hebrew", 6), ("Latin", 6))
    assert of_kind(found, "one value for all") is None


def test_a_models_tokens_say_what_will_be_cut(tmp_path):
    rows = {"query": "x" * 11, "pos": ["y z" * 20]}, {"query": "x" * 12, "pos": ["y z"]}
    path = write(tmp_path / "pairs.jsonl", *rows)
    found = inspect(str(path), tokens=Letters(), identifier=NO_IDENTIFIER)
    assert found.model == "letters"
    assert [(cuts.role, cuts.limit, cuts.cut, cuts.interval) for cuts in found.truncation] == [
        ("query", 16, 1, None),
        ("positive", 32, 1, None),
    ]
    # Queries have 16 and 17 tokens, positives 62 and 5.
    assert [cuts.tokens_lost for cuts in found.truncation] == [1 / 33, 30 / 67]
    assert [one.unit for one in found.lengths] == ["tokens", "words", "characters"] * 2
    cut = [finding.sentence for finding in found.findings if finding.kind == "texts that are cut"]
    assert "50.0 % of positives are longer than 32 tokens, which cuts off 44.8 % of all" in cut[1]


def test_the_sample_is_bounded_and_the_counts_are_not(tmp_path):
    rows = ({"query": f"q {number}", "pos": [f"p {number}"]} for number in range(300))
    path = write(tmp_path / "pairs.jsonl", *rows)
    found = inspected(path, sample=50, examples=4)
    assert found.texts[0].texts == 300
    assert [(one.measured, one.texts) for one in found.languages] == [(50, 300)] * 2
    assert [(one.measured, one.texts) for one in found.lengths] == [(300, 300)] * 4
    places = [int(row.location.rpartition(":")[2]) for row in found.examples]
    assert places == sorted(set(places))
    assert len(places) == 4


def test_an_inspection_is_plain_data(tmp_path):
    found = inspected(write(tmp_path / "pairs.jsonl", {"query": "q é", "pos": ["p"], "x": 0.5}))
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (plain["rows"], plain["pairs"]["pairs"], plain["format"]) == (1, 1, 1)
    kinds = [["a number", 1]]
    assert plain["columns"][2] == {"name": "x", "used_as": "", "kinds": kinds, "rows": 1, "values": None}


def test_memory_does_not_follow_the_length_of_texts(tmp_path):
    def peak(size: int) -> int:
        rows = ({"query": f"{n}" + "x" * size, "pos": [f"{n} " + "y" * size]} for n in range(60))
        path = write(tmp_path / "long.jsonl", *rows)
        tracemalloc.start()
        try:
            inspected(path, sample=1, examples=1)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)  # what is allocated once, such as regular expressions
    # The texts are 0.6 MB and 2.4 MB; what is held is a row at a time.
    assert peak(20_000) - peak(5_000) < 300_000


def test_settings_that_do_not_fit_the_data_are_refused(tmp_path):
    path = write(tmp_path / "pairs.jsonl", {"query": "q", "pos": ["p"]})
    corpus = write(tmp_path / "corpus.jsonl", {"_id": "1", "text": "t"})
    with pytest.raises(ConfigError, match=r"\[encoder\] has no effect without a model; .*\(model\)"):
        inspect(str(path), settings=InspectSettings(encoder=EncoderSection(max_tokens=9)))
    with pytest.raises(DataError, match=r'"forum" \(topic\), "query", "pos" .* got "query", "pos"'):
        inspected(path, columns={"topic": "forum"})
    with pytest.raises(ConfigError, match=r"data.corpus must be left out for .*, which holds a corpus"):
        inspected(corpus, corpus=corpus)


def test_a_corpus_has_documents_and_no_pairs_and_progress_counts_its_rows(tmp_path):
    total = 2 * PROGRESS_ROWS + 1
    rows = [{"_id": f"d{number}", "title": "T", "text": f"text {number % 3}"} for number in range(total)]
    path = write(tmp_path / "corpus.jsonl.gz", *rows)
    reports: list[tuple[str, int, int]] = []
    watch = Watch(progress=lambda *report: reports.append(report))
    found = inspect(str(path), identifier=NO_IDENTIFIER, watch=watch)
    label = f"inspecting {path}"
    assert reports == [(label, PROGRESS_ROWS, total), (label, 2 * PROGRESS_ROWS, total)]
    assert (found.layout, found.rows, found.pairs) == ("corpus", total, None)
    assert found.texts == (TextCounts("document", total, 3, 3, 0),)
    assert [column.used_as for column in found.columns] == ["doc_id", "title", "text"]
    assert found.examples == inspect(str(path), identifier=NO_IDENTIFIER).examples


def test_a_column_that_is_title_and_text_is_listed_as_the_title(tmp_path):
    path = write(tmp_path / "corpus.jsonl", {"_id": "d", "title": "graphs"})
    found = inspected(path, columns={"text": "title"})
    assert [column.used_as for column in found.columns] == ["doc_id", "title"]


GOOD = [{"query": f"question {number}", "pos": [f"answer {number}"]} for number in range(5)]


def test_a_packed_file_that_is_cut_short_is_inspected_up_to_there(tmp_path):
    rows = [{"query": f"question {n * 7919}", "pos": [f"answer {n * 104729}"]} for n in range(2_000)]
    path = write(tmp_path / "pairs.jsonl.gz", *rows)
    path.write_bytes(path.read_bytes()[:-2_000])
    found = inspected(path)
    assert 500 < found.rows < 2_000
    told = sentence_of(found, "unreadable rows")
    assert f"{path} must be a whole gzip file, got one that ends early, after line" in told
    assert of_kind(found, "unreadable rows") in found.faults


def test_values_of_a_column_are_listed_where_they_differ(tmp_path):
    more = {"tag": "x", "other": None, "empty": ""}
    rows = [{**row, **more, "topic": number % 2} for number, row in enumerate(GOOD)]
    # The mark of bytes at the start of a file is no fault.
    found = inspected(write(tmp_path / "pairs.jsonl", b"\xef\xbb\xbf", *rows))
    assert [(one.kind, one.severity) for one in found.findings] == [("one value for all", "warning")]
    wanted = {"tag": (("x", 5),), "topic": (("0", 3), ("1", 2)), "other": None, "empty": None}
    assert {column.name: column.values for column in found.columns if column.name in wanted} == wanted


def test_a_column_that_nobody_uses_does_no_harm_where_it_cannot_be_read(tmp_path):
    broken = pa.array([b"\xff\xfe", b"x"]).view(pa.string())
    table = pa.table({"query": ["one a", "two b"], "positive": ["x y", "z w"], "extra": broken})
    pq.write_table(table, tmp_path / "pairs.parquet")
    found = inspected(tmp_path / "pairs.parquet")
    assert (found.rows, [column.name for column in found.columns]) == (2, ["query", "positive"])


def asked(query: object, pos: object = ("p p",), **more: object) -> dict[str, object]:
    return {"query": query, "pos": pos, **more}


# Kind of the finding, its severity and count; the rows; and what it tells of them.
FINDINGS: list[tuple[tuple[str, str, int], list[Any], list[str]]] = [
    (
        ("unreadable rows", "fault", 1),
        [*GOOD, asked(" "), asked(7), b"{broken\n", {"query": "q"}, b'{"query": "\xe9"}\n'],
        [
            "5 faults: ",
            '{path}:6: "query" must not be empty',
            '{path}:7: "query"',
            "{path}:8 must",
            "{path}:9: must have",
            "{path}:10 must be UTF-8",
        ],
    ),
    (
        ("unreadable rows", "fault", 1),
        [*GOOD, b"\xef\xbb\xbf", GOOD[0]],
        ["{path}:6 must be one JSON object", "byte-order mark"],
    ),
    (
        ("repeated ids", "fault", 2),
        [asked(f"text {n}", qid=name) for n, name in enumerate(["Q1", "q2", "q1", "q2", "q3", "q2"])],
        ['"q2" at {path}:2 and "q2" at {path}:4; "q2" at {path}:2 and "q2" at {path}:6; give'],
    ),
    (
        ("ids alike but for case", "warning", 1),
        [asked("q a"), asked("b", qid="x"), asked("c", qid="X")],
        ['"x" at {path}:2 and "X" at {path}:3;'],
    ),
    (
        ("repeated ids", "fault", 8),
        [{"_id": "d", "text": f"t {n}"} for n in range(9)],
        ["document ids must be unique", "; and 5 more;"],
    ),
    (
        ("negatives that answer", "warning", 1),
        [*GOOD, asked("hers?", ["she is"], neg=["he is", "she is"])],
        ['1 of 2 are: {path}:6 "hers?"'],
    ),
    (
        ("documents that are their query", "warning", 1),
        [*GOOD, asked("a b", ["a b"])],
        ['1 of 6 are the same text: {path}:6 "a b"'],
    ),
    (
        ("few unique documents", "note", 8),
        [asked(f"q {n}", [f"document {n % 2}"]) for n in range(10)],
        ["20.0 % of the documents are unique"],
    ),
    (
        ("one value for all", "note", 5),
        [{**row, "kind": "x"} for row in GOOD],
        ['column "kind" holds "x" in every row'],
    ),
    (
        ("pairs without a tag", "note", 1),
        [GOOD[0], *({**row, "tag": "x"} for row in GOOD[1:])],
        ["1 of 5 pairs"],
    ),
    (("mixed kinds", "note", 1), [*GOOD, asked("q", "x y")], ['column "pos"']),
    (
        ("mixed kinds", "warning", 3),
        [*GOOD, asked("q", 3), asked("q", [4, "five"]), asked("q", "x y")],
        [
            'column "pos"',
            "a number in 1 row (first {path}:6)",
            "a list of several kinds in 1 row (first {path}:7)",
        ],
    ),
    (
        ("mis-decoded texts", "warning", 3),
        [asked(text) for text in ("cafÃ© x", "it â€™ s", "a\ufffdb", "Öl, Ãgua, São Â, £5 €9 – “so”")],
        ["3 of 4 queries", "{path}:1; {path}:2; {path}:3; decode"],
    ),
]


@pytest.mark.parametrize(("expected", "rows", "facts"), FINDINGS)
def test_each_finding_names_its_locations(
    tmp_path: Path, expected: tuple[str, str, int], rows: list[Any], facts: list[str]
) -> None:
    path = write(tmp_path / "rows.jsonl", *rows)
    finding = of_kind(inspected(path), expected[0])
    assert (finding.kind, finding.severity, finding.count) == expected
    told = finding.sentence.replace(NO_BREAK, " ")
    assert [fact for fact in facts if fact.format(path=path) not in told] == [], told
