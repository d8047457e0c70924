"""What is held out: by the hash of the query, so that it stays the same."""

from functools import partial
from hashlib import sha256
from pathlib import Path

import datasets
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from adiabat.core.errors import ConfigError
from adiabat.data.examples import read_examples
from adiabat.data.records import Example, ExampleSet, LanguageGridSet, invented_id
from adiabat.data.text_hashes import held_out_queries
from tests.data.files import refusal, table, write
from tests.refused import refused, require_facts

fault = partial(refusal, read_examples)


def beir(folder: Path, *, ending: str = "", **splits: str) -> Path:
    queries = [{"_id": 1, "text": "one"}, {"_id": "2", "text": "two"}, {"_id": "3", "text": "ثلاثة"}]
    write(folder / f"queries.jsonl{ending}", *queries)
    (folder / "qrels").mkdir(exist_ok=True)
    for split, lines in splits.items():
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    return folder


def bare(data: ExampleSet | LanguageGridSet) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    assert isinstance(data, ExampleSet)
    return [(one.query_id, one.query, one.positives, one.negatives) for one in data.examples]


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_triplets_are_read_as_they_stand(tmp_path, ending):
    path = write(
        tmp_path / f"train.jsonl{ending}",
        {"query": "who?", "pos": ["she", "he"], "neg": ["it"]},
        {"query": "מי? ", "pos": "d17", "neg": 3},
        {"query": "why?", "pos": [4]},
    )
    assert read_examples(path) == ExampleSet(
        f"{tmp_path.name}/train",
        (
            Example(invented_id(0, "who?"), "who?", ("she", "he"), ("it",), (1, 1), f"{path}:1"),
            Example(invented_id(1, "מי? "), "מי? ", ("d17",), ("3",), (1,), f"{path}:2"),
            Example(invented_id(2, "why?"), "why?", ("4",), (), (1,), f"{path}:3"),
        ),
        holds_texts=None,
    )


@pytest.mark.parametrize(
    "row",
    [
        {"query_id": "7", "query": "q", "positive": "p", "negative": "n"},
        {"qid": 7, "anchor": "q", "positives": ["p"], "negatives": ["n"]},
        {"_id": "7", "question": "q", "passage": "p", "negative_1": "n"},
        {"id": "7", "q": "q", "answer": "p", "neg": ["n"]},
        {"query_id": 7, "query_text": "q", "positive_document_ids": ["p"], "negative_document_ids": ["n"]},
    ],
)
def test_every_name_of_a_column_reads_the_same(tmp_path, row):
    datasets.DatasetDict({"dev": datasets.Dataset.from_list([row])}).save_to_disk(str(tmp_path / "saved"))
    tables = (table(tmp_path / f"e.{ending}", [row]) for ending in ("jsonl", "parquet"))
    for source in (*tables, tmp_path / "saved"):
        assert bare(read_examples(source)) == [("7", "q", ("p",), ("n",))]
    assert read_examples(tmp_path / "saved", split="dev").name == "saved/dev"


def test_csv_leaves_out_negatives_whose_cell_is_empty(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text('anchor,positive,negative_2,negative_1\r\n"a, b",p,n2,n1\r\nc,p,,n1\r\nd,p,,\r\n')
    assert bare(read_examples(path)) == [
        (invented_id(0, "a, b"), "a, b", ("p",), ("n1", "n2")),
        (invented_id(1, "c"), "c", ("p",), ("n1",)),
        (invented_id(2, "d"), "d", ("p",), ()),
    ]


def test_an_id_that_is_made_up_is_not_that_of_another_row_or_of_a_document(tmp_path):
    rows = [
        {"query": "a", "pos": ["q0"]},
        {"query": "b", "pos": ["q1"], "query_id": "q0"},
        {"query": "a", "pos": ["q1"]},
    ]
    ids = [query_id for query_id, *_ in bare(read_examples(write(tmp_path / "e.jsonl", *rows)))]
    assert ids == ["row-0-ca978112ca1b", "q0", "row-2-ca978112ca1b"]  # printf a | sha256sum | cut -c -12


def test_columns_are_mapped(tmp_path):
    path = write(tmp_path / "e.jsonl", {"query": "q", "reply": "p", "wrong": ["n"]})
    assert bare(read_examples(path, columns={"positive": "reply", "negative": "wrong"})) == [
        (invented_id(0, "q"), "q", ("p",), ("n",))
    ]


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_beir_scores_above_zero_are_graded_positives(tmp_path, ending):
    folder = beir(
        tmp_path / "set", ending=ending, dev="2\td1\t1\n1\td2\t3\n1\td3\t0\n1\td4\t-1\n1\td5\t1\n1\td5\t1\n"
    )
    where = folder / "qrels" / "dev.tsv"
    assert read_examples(folder) == ExampleSet(
        "set/dev",
        (
            Example("1", "one", ("d2", "d5"), ("d3", "d4"), (3, 1), f"{where}:3"),
            Example("2", "two", ("d1",), (), (1,), f"{where}:2"),
        ),
        holds_texts=False,
        is_judged=True,
    )


def test_the_split_of_a_beir_folder_is_chosen(tmp_path):
    folder = beir(tmp_path / "set", test="1\ta\t1\n", train="2\ta\t1\n3\tb\t2\n")
    assert [example.query_id for example in read_examples(folder).examples] == ["1"]
    assert [example.query_id for example in read_examples(folder, split="train").examples] == ["2", "3"]
    assert read_examples(folder, split="train").name == "set/train"
    require_facts(fault(folder, split="dev"), "one of its splits (test, train), got dev; ")
    folder = beir(tmp_path / "other", dev="1\ta\t1\n", train="2\ta\t1\n")
    require_facts(fault(folder), "one of its splits (dev, train), got none; ")
    assert read_examples(folder, usual_split="train").name == "other/train"


def test_queries_without_a_relevant_document_are_left_out_with_a_warning(tmp_path):
    folder = beir(tmp_path / "set", test="1\ta\t0\n2\ta\t1\n")
    with pytest.warns(UserWarning, match=r"test\.tsv: 1 of 2 queries have no score above 0 and are left out"):
        data = read_examples(folder)
    assert bare(data) == [("2", "two", ("a",), ())]
    require_facts(fault(beir(tmp_path / "none", test="1\ta\t0\n")), "at least one score above 0, got none; ")


def test_a_language_grid_keeps_the_languages_of_every_row(tmp_path):
    path = write(
        tmp_path / "xnli.jsonl.gz",
        {
            "label": "neutral",
            "premise": {"fr": "f1", "en": "e1", "ar": "a1"},
            "hypothesis": {"en": "E1", "fr": "F1", "ar": "A1"},
        },
        {"label": 0, "premise": {"en": "e2", "fr": "f2"}, "hypothesis": {"fr": "F2", "en": "E2", "ar": None}},
    )
    data = read_examples(path)
    assert data == LanguageGridSet(
        "xnli",
        ("en", "fr"),
        ("neutral", "entailment"),
        ({"en": "e1", "fr": "f1"}, {"en": "e2", "fr": "f2"}),
        ({"en": "E1", "fr": "F1"}, {"en": "E2", "fr": "F2"}),
        {"ar": f"{path}:2"},
    )
    assert [list(sides) for sides in data.premises] == [["en", "fr"]] * 2


def test_languages_left_out_of_a_grid_are_noted_with_the_rows_that_lack_them(tmp_path):
    every = ("ar", "en", "fr", "zh")
    lacking = [((), ("ar",)), (("zh",), ()), ((), ()), (("ar",), ("ar", "zh")), (("zh",), ())]
    sides = (
        {
            side: {one: one for one in every if one not in gone}
            for side, gone in zip(("premise", "hypothesis"), row, strict=True)
        }
        for row in lacking
    )
    path = write(tmp_path / "g.jsonl", *({"label": 0, **row} for row in sides))
    data = read_examples(path)
    assert isinstance(data, LanguageGridSet)
    assert data.languages == ("en", "fr")
    assert data.notes == (
        f"languages left out, since some rows lack them: ar ({path}:1 and 1 "
        f"more row), zh ({path}:2 and 2 more rows); "
        "complete these rows to measure them",
    )
    alone = {"label": 0, "premise": {"en": "e"}, "hypothesis": {"en": "E"}}
    whole = read_examples(write(tmp_path / "whole.jsonl", alone))
    assert isinstance(whole, LanguageGridSet)
    assert (whole.incomplete, whole.notes) == ({}, ())


TEXT = some.text(some.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
TRIPLETS = some.lists(
    some.tuples(TEXT, some.lists(TEXT, min_size=1, max_size=3), some.lists(TEXT, max_size=2)),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.zst", "parquet"])
@given(triplets=TRIPLETS)
def test_what_is_written_comes_back(tmp_path_factory, ending, triplets):
    rows = [
        {"query_id": f"{number}", "query": query, "pos": positives, "neg": negatives}
        for number, (query, positives, negatives) in enumerate(triplets)
    ]
    path = table(tmp_path_factory.mktemp("rows") / f"e.{ending}", rows)
    read = bare(read_examples(path))
    again = [(query, [*positives], [*negatives]) for _, query, positives, negatives in read]
    assert again == triplets


EN = {"premise": {"en": "e"}, "hypothesis": {"en": "E"}}


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        (
            [
                {"id": "a", "query": "x", "pos": ["p"]},
                {"id": "b", "query": " ", "pos": ["p"]},
                {"id": "c", "query": "x", "pos": []},
                {"id": "d", "query": "x", "pos": [""]},
                {"id": "e", "query": "x", "pos": ["p"], "neg": ["n", ""]},
                {"id": "f", "query": "x", "answers": "p"},
                "text",
                {"id": "a", "query": "x", "pos": ["p"]},
            ],
            [
                "7 faults: ",
                ':2: "query" must not be empty',
                ':3: "pos" must name at least one document',
                ':4: "pos" must not be empty',
                ':5: "neg" must not be empty',
                ':6: must have "query", "positive"',
                ":7 must be one JSON object",
                ':8: query id must be unique, got "a" again, first at {path}:1',
            ],
        ),
        (
            [
                {**EN, "label": "neutral"},
                {**EN, "label": "maybe"},
                {**EN, "label": 3},
                {**EN, "label": True},
                EN,
                {**EN, "label": 0, "premise": {"en": " "}},
                {**EN, "label": 0, "hypothesis": {}},
                {**EN, "label": 0, "hypothesis": "E"},
                {**EN, "label": 0, "hypothesis": {"language": ["en", "fr"], "translation": ["E"]}},
                {**EN, "label": 0, "hypothesis": {"language": ["en"], "translation": "E"}},
                {**EN, "label": 0, "hypothesis": {"language": ["en", None], "translation": ["E", "F"]}},
            ],
            [
                "10 faults: ",
                ":2: \"label\" must be entailment, neutral, contradiction or 0, 1, 2, got 'maybe'",
                ':3: "label" must',
                ':4: "label" must',
                ':5: expected "label"',
                ':6: "premise.en"',
                ':7: "hypothesis" must hold at least one language',
                ':8: "hypothesis" must be an object',
                ':9: "hypothesis" must hold as many translations as languages, got 1 for 2',
                ':10: "hypothesis" must hold lists',
                ':11: "hypothesis" must name every language',
            ],
        ),
        (
            [{"label": 0, "premise": {"en": "e"}, "hypothesis": {"fr": "F"}}],
            ["must have a language that every premise and hypothesis is in"],
        ),
        (
            [{"doc_id": "1", "text": "a"}],
            [':1: must have "query", "positive" (an example) or "premise", "hypothesis" '],
        ),
    ],
    ids=["triplets", "grid", "no common language", "corpus"],
)
def test_every_fault_is_reported_with_its_line(tmp_path, rows, facts):
    path = write(tmp_path / "e.jsonl", *rows)
    require_facts(fault(path), *(fact.format(path=path) for fact in facts))


@pytest.mark.parametrize(
    ("qrels", "facts"),
    [
        (
            "query-id\tcorpus-id\tscore\n1\ta\t1\n9\ta\t1\n9\tb\t1\n",
            [':3: query must be one of queries.jsonl, got unknown id "9"'],
        ),
        (
            "query-id\tcorpus-id\tscore\n1\ta\thigh\n1\tb\n2\t\t1\n3\ta\t1\n3\ta\t2\n1\tc\t\n",
            [
                "5 faults: ",
                ":2: \"score\" must be a whole number from -1,000 to 1,000, got 'high'",
                ":3 must have 3 fields",
                ':4: "corpus-id" must not be empty',
                ':6: a document must be judged once, got "a" for query "3" with 1 and 2',
                ':7: "score" must be a whole number from -1,000 to 1,000, got nothing',
            ],
        ),
        (
            "query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t1001\n",
            [":3: \"score\" must be a whole number from -1,000 to 1,000, got '1001'"],
        ),
        ("1\td1\t2\n1\td2\t1\n", [":1 must be the header query-id corpus-id score ", "got 1 d1 2; "]),
        ("1\td1\t1\n", [":1 must be the header query-id corpus-id score ", "got 1 d1 1; "]),
    ],
)
def test_faults_of_judgements_are_reported_with_their_line(tmp_path, qrels, facts):
    path = beir(tmp_path / "set") / "qrels" / "test.tsv"
    path.write_text(qrels)
    require_facts(fault(tmp_path / "set"), str(path), *facts)


def test_faults_of_beir_queries_and_mapped_columns_are_reported(tmp_path):
    folder = beir(tmp_path / "set", test="1\ta\t1\n")
    with refused(ConfigError, "columns must be left out for the BEIR folder ", "got query"):
        read_examples(folder, columns={"query": "text"})
    rows = {"_id": "1", "text": "a"}, {"_id": "2", "text": ""}, {"_id": "1", "text": "b"}, {"_id": "4"}
    path = write(folder / "queries.jsonl", *rows)
    require_facts(
        fault(folder),
        "3 faults: ",
        f'{path}:2: "text" must not be empty',
        ':3: query id must be unique, got "1" again',
        ':4: expected "_id" and "text"',
    )


def test_a_language_grid_in_the_layout_of_the_hub_is_read(tmp_path):
    hypothesis = {"language": ["en", "fr"], "translation": ["E", "F"]}
    row = {"label": 2, "premise": {"en": "e", "fr": "f"}, "hypothesis": hypothesis}
    data = read_examples(write(tmp_path / "g.jsonl", row))
    assert isinstance(data, LanguageGridSet)
    assert (data.labels, data.hypotheses) == (("contradiction",), ({"en": "E", "fr": "F"},))


QUERIES = [f"question {number}" for number in range(2000)]


def held_out(queries: list[str], fraction: float = 0.1, most: int = 10**6) -> set[str]:
    return {queries[row] for row in held_out_queries(queries, fraction, most)}


@given(
    some.lists(some.integers(0, 40), max_size=80),
    some.integers(0, 80),
    some.floats(0.05, 0.9),
    some.integers(1, 30),
)
@example(numbers=list(range(2_000)), few=700, fraction=0.1, most=40)
@example(numbers=[number % 40 for number in range(120)], few=60, fraction=0.5, most=29)
def test_what_is_held_out_stays_held_out(numbers: list[int], few: int, fraction: float, most: int) -> None:
    queries = [f"question {number}" for number in numbers]
    part, every = set(queries[:few]), held_out(queries, fraction)
    # Added data move no query to the other side, and under a limit none from training to validation.
    assert every & part == held_out(queries[:few], fraction)
    assert held_out(queries, fraction, most) & part <= held_out(queries[:few], fraction, most)
    assert held_out(queries[::-1], fraction) == every
    assert held_out(queries, fraction / 2) <= every
    # Equal queries are on one side wherever the limit falls, which is reached up to the next of them.
    rows = set(held_out_queries(queries, fraction, most).tolist())
    assert not {queries[row] for row in rows} & {queries[row] for row in {*range(len(queries))} - rows}
    copies = max(map(queries.count, every), default=0)
    assert most - copies < len(rows) <= most or len(rows) == sum(query in every for query in queries) <= most


def test_a_larger_share_contains_the_smaller_one() -> None:
    assert held_out(QUERIES, 0.05) < held_out(QUERIES, 0.1) < held_out(QUERIES, 0.999)


def test_the_choice_is_the_lowest_hashes_worked_by_hand() -> None:
    # First bytes of SHA-256: "a" ca, "b" 3e, "c" 2e, "d" 18.
    assert held_out(["a", "b", "c", "d"], 0x40 / 256) == {"b", "c", "d"}
    assert held_out(["a", "b", "c", "d"], 0x3E / 256) == {"c", "d"}
    assert held_out(["a", "b", "c", "d"], 0.1) == {"d"}
    assert held_out(["a", "b", "c", "d"], 0.9, most=1) == {"d"}


def test_hashes_are_the_first_eight_bytes_by_a_plain_loop() -> None:
    below = [
        row
        for row, query in enumerate(QUERIES)
        if int(sha256(query.encode()).hexdigest()[:16], 16) < 2**64 // 10
    ]
    assert held_out_queries(QUERIES, 0.1, 10**6).tolist() == below


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "rows.csv"])
def test_scores_of_a_teacher_are_read_for_positives_and_then_negatives(tmp_path, name):
    scores = [7, 1.5, -2.0]
    row = {"query": "who?", "pos": "she", "negative_1": "it", "negative_2": "he", "scores": scores}
    if name == "rows.csv":
        row["scores"] = str(scores)
    if name == "rows.parquet":
        row["scores"] = [float(score) for score in scores]
    path = table(tmp_path / name, [row])
    (one,) = read_examples(path).examples
    assert one.scores == (7.0, 1.5, -2.0)
    (unread,) = read_examples(f"{path}?scores=").examples
    assert unread.scores == ()


def test_scores_may_have_another_name_and_a_labelled_file_has_none(tmp_path):
    write(tmp_path / "a.jsonl", {"query": "q", "pos": ["a", "b"], "teacher": [2, 1]})
    (one,) = read_examples(f"{tmp_path / 'a.jsonl'}?scores=teacher").examples
    assert one.scores == (2.0, 1.0)
    rows = [{"query": "q", "passage": text, "label": int(text == "a"), "scores": 3.0} for text in "ab"]
    write(tmp_path / "b.jsonl", *rows)
    with pytest.warns(UserWarning, match='"label" is a label'):
        (labelled,) = read_examples(tmp_path / "b.jsonl").examples
    assert (labelled.positives, labelled.negatives, labelled.scores) == (("a",), ("b",), ())


@pytest.mark.parametrize(
    ("scores", "got"),
    [
        ("[1.0]", "got 1"),
        ("[1.0, 2.0, 3.0, 4.0]", "got 4"),
        ("[]", "got 0"),
        ("3.5", "got 1"),
        ("null", "got "),
        ("[1.0, NaN, 2.0]", "got "),
        ("[1.0, Infinity, 2.0]", "got "),
        ('[1.0, "high", 2.0]', "high"),
        ("[1.0, true, 2.0]", "True"),
    ],
)
def test_faulty_scores_of_a_teacher_are_told_by_line(tmp_path, scores, got):
    good = '{"query": "q", "pos": ["a"], "neg": ["b", "c"], "scores": [3, 2, 1]}\n'
    path = tmp_path / "rows.jsonl"
    path.write_text(good + good.replace("[3, 2, 1]", scores))
    require_facts(fault(path), f"{path}:2", '"scores"', "3 documents", got, "?scores=")
