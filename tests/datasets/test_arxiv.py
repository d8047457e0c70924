"""arxiv-negatives from a snapshot of our own in arXiv's format: who is kept, what is asked, which negatives,
and the faults of a file.
"""

import gzip
import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.config.dataset_settings import ArxivSettings
from adiabat.config.reader import checked
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import Watch
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.datasets.arxiv import first_sentence_end, make_arxiv, random_others, sentence_spans
from adiabat.datasets.writer import DatasetSummary
from tests.refused import refused

SUBJECTS = ["groups", "graphs", "lattices", "knots", "sheaves", "primes", "matroids", "codes", "flows"]


def paper(paper_id: str, categories: str, abstract: str | None = None, **other: Any) -> dict[str, Any]:
    """A row as the snapshot has it, line ends and blanks included."""
    text = f"  We sweep {paper_id}. Its rest is about {paper_id}.\n" if abstract is None else abstract
    return {
        "id": paper_id,
        "submitter": "A. B.",
        "title": f"On\n  {paper_id}",
        "categories": categories,
        "abstract": text,
        **other,
    }


def many(count: int = 60) -> list[dict[str, Any]]:
    generator = np.random.default_rng(0)
    fields = ["math.CO", "math.GR", "cs.IT", "physics.gen-ph"]
    rows = []
    for number in range(count):
        words = " ".join(generator.choice(SUBJECTS, 6))
        categories = " ".join(generator.choice(fields, generator.integers(1, 4), replace=False))
        abstract = f"We sweep {words}. Number {number} is about {words}."
        rows.append(paper(f"{number:04}.1", categories, abstract))
    return rows


def snapshot(folder: Path, rows: list[dict[str, Any]], name: str = "snapshot.json") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def settings(*, run: dict[str, Any] | None = None, **section: Any) -> ArxivSettings:
    return checked(ArxivSettings, {"arxiv": section, "run": run or {}})


def make(
    folder: Path,
    rows: list[dict[str, Any]],
    *,
    out: str = "made",
    run: dict[str, Any] | None = None,
    **section: Any,
) -> DatasetSummary:
    return make_arxiv(snapshot(folder, rows), folder / out, settings(run=run, **section))


def examples(made: DatasetSummary, stem: str = "test") -> ExampleSet:
    read = read_examples(made.folder / f"{stem}.jsonl.gz")
    assert isinstance(read, ExampleSet)
    return read


def corpus(made: DatasetSummary) -> dict[str, str]:
    return {document.doc_id: document.text for document in read_corpus(made.folder / "corpus.jsonl.gz")}


def negatives(made: DatasetSummary, stem: str = "test") -> dict[str, tuple[str, ...]]:
    return {example.query_id: example.negatives for example in examples(made, stem).examples}


def test_negatives_worked_by_hand(tmp_path: Path) -> None:
    rows = [
        paper("1", "big small", "Red green blue. Red."),
        paper("2", "small big", "Red green blue. Blue."),
        paper("3", "big small", "Red. Unlike."),
        paper(
            "4", "small", "Red green blue. Red"
        ),  # The nearest to paper 1 by its words, but it shares one category only.
        paper("5", "big", "Red green blue. Red and."),
        paper("6", "big", "Unlike. It is."),
    ]
    found = negatives(make(tmp_path, rows))
    assert found["1"][:20] == ("2", *["3"] * 19)
    assert found["3"][:20] == ("1", "2", *["2"] * 18)
    assert found["4"][:20] == ("1", "2", *["3"] * 18)
    assert found["5"][:20] == ("6",) * 20  # The lists of papers 1 to 3 begin with the smaller category.
    assert all(len(one) == 21 and one[20] != query for query, one in found.items())


def test_categories_are_sorted_by_their_size_in_the_whole_snapshot(tmp_path: Path) -> None:
    rows = [
        paper("1", "x y"),
        paper("2", "x"),
        paper("3", "y"),
        *(paper(f"x{n}", "x", f"One {n}. Two {n}.") for n in range(3)),
    ]
    # With y the smaller one, paper 1 is matched by 3; with more of y, by the papers of x.
    assert set(negatives(make(tmp_path, rows, out="few"))["1"][:20]) == {"3"}
    more = [paper(f"y{n}", "y z", "") for n in range(9)]
    assert set(negatives(make(tmp_path, rows + more, out="more"))["1"][:20]) == {"2", "x0", "x1", "x2"}


def test_what_is_left_out_is_counted_by_the_reason(tmp_path: Path) -> None:
    rows = [
        paper("1", "a"),
        paper("2", "a", "Only one sentence."),
        paper("3", "a", " "),
        paper("4", "a", None),
        paper("7", "a", "Other words. Its rest is about 1."),
        paper("8", ""),
    ]
    large = [paper(f"large{number}", "large") for number in range(6)]
    made = make(tmp_path, rows + large, max_category_size=5)
    assert list(corpus(made)) == ["1", "4"]
    assert made.notes[:3] == (
        "5 of 12 papers have a category of at most 5 papers; categories of that size: 1",
        "2 of 5 papers with a small category left out: an abstract of one sentence or none",
        "1 of 5 papers with a small category left out: the text of another",
    )
    assert json.loads((made.folder / "made.json").read_text())["notes"] == list(made.notes)


def test_every_example_lists_the_twenty_nearest_and_one_at_random(tmp_path: Path) -> None:
    made = make(tmp_path, many(), difficulties=[1, 21])
    found = negatives(made)
    assert len(found) == 60 == made.documents
    stems = ("test", "test-difficulty-01", "test-difficulty-21")
    assert made.examples == dict.fromkeys([f"{stem}.jsonl.gz" for stem in stems], 60)
    assert negatives(made, "test-difficulty-01") == {query: others[:1] for query, others in found.items()}
    assert negatives(made, "test-difficulty-21") == {query: others[20:] for query, others in found.items()}
    for query, others in found.items():
        assert len(others) == 21
        assert query not in others
        different = list(dict.fromkeys(others[:20]))
        assert others[:20] == (*different, *[different[-1]] * (20 - len(different)))
    assert set().union(*found.values()) <= corpus(made).keys()


def test_a_narrow_subset_is_tuned_on_and_left_out_of_what_is_measured(tmp_path: Path) -> None:
    rows = [*many(), paper("m", "math-ph", "Not of math. At all.")]
    made = make(tmp_path, rows, narrow=["math.", "cs"])
    listed = {row["id"]: row["categories"].split() for row in rows}
    for prefix, name in (("math.", "math"), ("cs", "cs")):
        inside = {one for one, labels in listed.items() if any(label.startswith(prefix) for label in labels)}
        assert 0 < len(inside) < 61
        assert set(negatives(made, f"narrow-{name}")) == inside
        assert set(negatives(made, f"test-without-{name}")) == set(listed) - inside
    assert "m" in negatives(made, "test-without-math")
    assert negatives(made, "narrow-math").items() <= negatives(made).items()
    assert "narrow-math-difficulty-21.jsonl.gz" in made.examples


def test_papers_to_tune_on_are_kept_apart_from_those_to_measure_on(tmp_path: Path) -> None:
    made = make(tmp_path, many(), train_fraction=0.4, narrow=["math."])
    train, test = set(negatives(made, "train")), set(negatives(made))
    assert 10 < len(train) < 40
    assert not train & test
    assert len(train | test) == 60
    assert set(negatives(made, "test-without-math")) == test - set(negatives(made, "narrow-math"))


def test_the_order_of_the_file_changes_nothing_and_the_seed_the_random_paper_alone(tmp_path: Path) -> None:
    rows = many()
    first = make(tmp_path, rows, out="first")
    shuffled = [rows[number] for number in np.random.default_rng(1).permutation(60)]
    second = make(tmp_path, shuffled, out="second")
    for name in ("corpus.jsonl.gz", "test.jsonl.gz", "test-difficulty-21.jsonl.gz"):
        assert (first.folder / name).read_bytes() == (second.folder / name).read_bytes()
    one, other = negatives(first), negatives(make(tmp_path, rows, out="other seed", run={"seed": 1}))
    assert {query: near[:20] for query, near in one.items()} == {
        query: near[:20] for query, near in other.items()
    }
    assert [others[20] for others in one.values()] != [others[20] for others in other.values()]


def test_a_random_other_is_never_the_row_itself_and_is_any_other_alike() -> None:
    assert random_others(2, seed=3).tolist() == [1, 0]
    drawn = np.concatenate([random_others(5, seed=seed) for seed in range(4000)]).reshape(-1, 5)
    counts = Counter((row, other) for line in drawn.tolist() for row, other in enumerate(line))
    assert all(row != other for row, other in counts)
    assert len(counts) == 20
    # Standard deviation 27 about 1,000.
    assert all(abs(count - 1000) < 150 for count in counts.values())


def test_an_interrupt_and_a_snapshot_that_is_cut_short_leave_nothing_behind(tmp_path: Path) -> None:
    def stop(label: str, done: int, total: int) -> None:
        if label == "nearest papers":
            raise KeyboardInterrupt

    source = snapshot(tmp_path, many())
    with pytest.raises(KeyboardInterrupt):
        make_arxiv(source, tmp_path / "made", settings(), watch=Watch(progress=stop))
    assert list(tmp_path.iterdir()) == [source]
    packed = tmp_path / "snapshot.json.gz"
    packed.write_bytes(gzip.compress(source.read_bytes())[:-100])
    with refused(DataError, "must be a whole gzip file, got one that ends early, after line"):
        make_arxiv(packed, tmp_path / "made", settings())
    assert sorted(tmp_path.iterdir()) == [source, packed]


@pytest.mark.parametrize(
    ("first", "rest"),
    [
        ("We prove it.", "It holds."),
        ("Let $f: X. Y$ be a map.", "It has $n$ points."),
        ("A price of \\$5 is paid.", "Cost $x. Y$ rises."),
        ("It is of $5.", "An unpaired sign hides no sentence."),
        ("By J. Smith et al. [3] this is so, cf. Fig. 2.", "[4] says otherwise."),
        ("One sentence only", ""),
        ("Ends inside $x. Y$ at last.", ""),
        ("", ""),
    ],
)
def test_the_first_sentence_ends_where_a_reader_would_end_it(first: str, rest: str) -> None:
    assert first_sentence_end(f"{first} {rest}".strip()) == len(first)


@pytest.mark.parametrize(
    ("flavour", "expected"),
    [
        ("first", [("1", "We ask e.g. this.", "And answer that. Twice."), ("2", "Other.", "Things.")]),
        (
            "title",
            [
                ("1", "On 1", "We ask e.g. this. And answer that. Twice."),
                ("2", "On 2", "Other. Things."),
                ("3", "On 3", "One only."),
            ],
        ),
    ],
)
def test_queries_and_documents_of_each_flavour(
    tmp_path: Path, flavour: str, expected: list[tuple[str, str, str]]
) -> None:
    abstracts = ["We ask\n e.g. this. And answer\nthat. Twice.", "Other. Things.", " One only.\n"]
    papers = [paper(str(number), "a", text) for number, text in enumerate(abstracts, 1)]
    made = make(tmp_path, papers, flavour=flavour)
    texts, rows = corpus(made), examples(made).examples
    assert [(row.query_id, row.query, *(texts[name] for name in row.positives)) for row in rows] == expected


def test_categories_may_be_a_list_and_every_script_is_split_into_sentences(tmp_path: Path) -> None:
    listed = {"id": 2, "title": "t", "abstract": "Ü ist. Öl.", "categories": ["a", "b"]}
    made = make(tmp_path, [paper("1", "a", "שלום עולם. זה הסוף."), listed, paper("3", "c", "中文。句子。")])
    assert corpus(made) == {"1": "זה הסוף.", "2": "Öl.", "3": "句子。"}
    # No other list begins with b, its smallest category, and no paper shares a word with it: all match, and
    # go by id.
    assert negatives(made)["2"][:20] == ("1", *["3"] * 19)


def test_every_fault_of_the_snapshot_is_reported_with_its_line(tmp_path: Path) -> None:
    lines = [
        json.dumps(paper("1", "a")),
        '{"id": "2", "title": "t", "abstract": "x"}',
        '{"id": "3", "title": 5, "abstract": "x", "categories": "a"}',
        '{"id": "4", "title": "t", "abstract": "\\ud800", "categories": "a"}',
        '{"id": " ", "title": "t", "abstract": "x", "categories": "a"}',
        '{"id": "6", "title": "t", "abstract": "x", "categories": {"a": 1}}',
        "{",
    ]
    path = tmp_path / "snapshot.jsonl"
    path.write_text("\n".join(lines) + "\n")
    faults = [
        ':2: expected "categories"',
        ':3: "title" must be a text, got a number',
        ':4: "abstract" must be Unicode text, got half of a surrogate pair',
        ':5: "id" must not be empty',
        ':6: "categories" must be ',
        ":7 must be one JSON object, got { ",
    ]
    with refused(DataError, "6 faults: ", "got an object", *(f"{path}{fault}" for fault in faults)):
        make_arxiv(path, tmp_path / "made", settings())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("rows", "section", "facts"),
    [
        (
            [{"id": "1", "query": "a"}, *[{}] * 30],
            {},
            ["snapshot.json must", "id, query", "title, abstract, categories missing"],
        ),
        (
            [paper("1", "a"), paper("2", "a"), paper("1", "a", "Else. More.")],
            {},
            ["json:3: id", 'got "1" again', "json:1"],
        ),
        (many(), {"narrow": ["math.", "matj.", "q-bio"]}, ["no paper has matj., q-bio"]),
        ([paper("1", "a")], {}, ["arxiv.max_category_size", "two usable papers, 10,000 leaves 1"]),
        ([], {"narrow": ["math.", "../x"]}, ["arxiv.narrow"]),
        ([], {"narrow": ["math", "math."]}, ["arxiv.narrow"]),
        ([], {"difficulties": [1, 1]}, ["arxiv.difficulties"]),
        ([], {"difficulties": [22]}, ["arxiv.difficulties"]),
    ],
)
def test_a_source_or_setting_that_does_not_fit_is_refused(
    tmp_path: Path, rows: list[Any], section: dict[str, Any], facts: list[str]
) -> None:
    with refused((DataError, ConfigError), *facts):
        make(tmp_path, rows, **section)


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "parts",
    [
        ["The cat sat.", "It purred!", "Why?", "Nobody knows."],
        ["Born in 1990.", "2 years later he left."],
        ['He said "stop."', "She did.", "(They all did.)", "«Oui !»", "Bien."],
        ["Dr. J. R. Smith met Mr. Brown et al. He left at once.", "Then nothing."],
        [
            "He came from the U.S. Army, i.e. Washington (D.C. or near).",
            "See No. 5 and Fig. 2.",
            "No.",
            "That is all.",
        ],
        ["Yahoo! is old.", "An ellipsis... goes on.", "Or…", "It does not."],
        ["他来了。", "她说：「好。」", "真的吗？", "是"],
        ["متى بدأت الأعراض؟", "بدأت أمس.", "شكرا۔", "نعم"],
        ["वह आया।", "वह गया।"],
        ["שלום.", "מה שלומך?"],
        ["Один.", "Два.", "И т. д. не конец."],
        ["A title", "A text below an empty line."],
        ["3.14 is pi.", "Version 2.0 is out."],
        ["Roe v. Wade was c. 1973.", "It matters.", ". ... ! C. Darwin agreed. ?"],
    ],
    ids=lambda parts: parts[0][:12],
)
def test_sentences_are_cut_where_a_reader_would_cut_them(parts: list[str]) -> None:
    cjk = not parts[0].isascii() and parts[0].endswith("。")
    gap = "\n \n" if parts[0] == "A title" else "" if cjk else " "
    assert sentences(gap.join(parts)) == parts


def test_a_line_end_alone_ends_no_sentence_and_a_text_without_words_gives_what_it_holds() -> None:
    text = "The first line\n  goes on here. The second.\n"
    assert sentences(text) == ["The first line\n  goes on here.", "The second."]
    assert [sentences(text) for text in ("", "  \n\n ", ".", ". ! ... ?")] == [[], [], ["."], [". ! ... ?"]]


def test_spans_give_the_letters_of_the_text_and_lose_none_but_white_space() -> None:
    draw = random.Random(0)
    letters = ["a", "B", ".", "!", " ", "\n", "\n\n", "é", "。", "א", "(", '"', "Dr", "U.S", "7"]
    for _ in range(2_000):
        text = "".join(draw.choices(letters, k=draw.randrange(30)))
        spans = sentence_spans(text)
        assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
        kept = {place for span in spans for place in range(*span)}
        assert all(letter.isspace() for place, letter in enumerate(text) if place not in kept)


def test_a_text_put_before_changes_no_sentence_behind() -> None:
    text = "He met Prof. Lee. They talked (a lot). Why? Nobody asked."
    assert sentences(f"One more. {text}") == ["One more.", *sentences(text)]
