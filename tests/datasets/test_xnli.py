from pathlib import Path

from adiabat.config.dataset_settings import XnliSettings
from adiabat.config.reader import read_settings
from adiabat.core.errors import ConfigError
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import Document, LanguageGridSet
from adiabat.datasets.xnli import make_xnli
from tests.datasets.making import fault, maker, names, rows
from tests.refused import refused, require_facts

COLUMNS = (
    *("language", "gold_label", "sentence1_binary_parse", "sentence1", "sentence2"),
    *("promptID", "pairID", "genre", "match"),
)
LABELS = ("neutral", "contradiction", "entailment")
GREETINGS = {"ar": "مرحبا", "en": 'say "hello', "zh": "你好"}


def row(pair: int, language: str, label: str | None = None, premise: str | None = None) -> str:
    text = GREETINGS[language] if premise is None else premise
    cells = {
        "language": language,
        "gold_label": label or LABELS[pair % 3],
        "sentence1": f"{text} {pair // 3}" if text else "",
        "sentence2": f"{text} {pair} ?",
        "promptID": str(pair // 3 + 1),
        "pairID": str(pair + 1),
        "genre": "face",
        "match": "True",
    }
    return "\t".join(cells.get(name, "") for name in COLUMNS)


def xnli(path: Path, rows: list[str], columns: tuple[str, ...] = COLUMNS) -> Path:
    path.write_text("".join(f"{line}\n" for line in ["\t".join(columns), *rows]), encoding="utf-8")
    return path


def by_language(pairs: int, languages: str = "ar en zh") -> list[str]:
    """As the publisher has them: all pairs in one language, then all in the next."""
    return [row(pair, language) for language in languages.split() for pair in range(pairs)]


make = maker(make_xnli, XnliSettings)


def test_rows_of_one_pair_become_one_row_with_all_languages(tmp_path: Path) -> None:
    make(xnli(tmp_path / "xnli.test.tsv", by_language(2)), tmp_path / "out")
    first, second = rows(tmp_path / "out" / "test.jsonl.gz")
    assert first == {
        "pair_id": "1",
        "label": "neutral",
        "premise": {"ar": "مرحبا 0", "en": 'say "hello 0', "zh": "你好 0"},
        "hypothesis": {"ar": "مرحبا 0 ?", "en": 'say "hello 0 ?', "zh": "你好 0 ?"},
    }
    assert (second["pair_id"], second["label"]) == ("2", "contradiction")
    assert second["hypothesis"]["zh"] == "你好 1 ?"


def test_the_reader_reads_both_splits_as_language_grids(tmp_path: Path) -> None:
    folder = tmp_path / "XNLI-1.0"
    folder.mkdir()
    xnli(folder / "xnli.dev.tsv", by_language(6))
    xnli(folder / "xnli.test.tsv", by_language(9))
    (folder / "xnli.dev.jsonl").touch()
    assert make(folder, tmp_path / "out")["examples"] == {"dev.jsonl.gz": 6, "test.jsonl.gz": 9}
    grid = read_examples(tmp_path / "out" / "test.jsonl.gz")
    assert isinstance(grid, LanguageGridSet)
    assert (grid.languages, len(grid)) == (("ar", "en", "zh"), 9)
    assert list(grid.labels) == list(LABELS) * 3
    assert next(read_corpus(tmp_path / "out" / "test.jsonl.gz")) == Document("0:ar", "مرحبا 0 ?")


def test_the_order_of_rows_changes_only_the_order_of_pairs(tmp_path: Path) -> None:
    plain = by_language(5)
    make(xnli(tmp_path / "xnli.test.tsv", plain), tmp_path / "one")
    make(xnli(tmp_path / "b.tsv", plain[::-1]), tmp_path / "two")
    one, two = (rows(tmp_path / name / "test.jsonl.gz") for name in ("one", "two"))
    assert sorted(one, key=str) == sorted(two, key=str)
    assert [list(pair["premise"]) for pair in two] == [["ar", "en", "zh"]] * 5


def test_pairs_without_a_label_are_left_out_and_counted(tmp_path: Path) -> None:
    source = xnli(tmp_path / "xnli.dev.tsv", [row(0, "en"), row(1, "en", "-"), row(2, "en")])
    record = make(source, tmp_path / "out")
    assert record["notes"] == ["1 of 3 pairs of dev left out: the annotators agreed on no label"]
    assert record["examples"] == {"dev.jsonl.gz": 2}


def test_pairs_that_lack_a_language_are_refused_dropped_or_written_in_the_chosen_languages(
    tmp_path: Path,
) -> None:
    incomplete = by_language(4)
    del incomplete[9]  # Pair 2 in Chinese.
    del incomplete[4]  # Pair 1 in English.
    source = xnli(tmp_path / "xnli.test.tsv", incomplete)
    english, chinese = f'{source}:2: pair "1"', f'{source}:3: pair "2"'
    facts = "2 faults: ", english, "none in en", chinese, "none in zh", "xnli.incomplete = drop"
    require_facts(fault(make, source, tmp_path / "out"), *facts)
    record = make(source, tmp_path / "dropped", "xnli.incomplete=drop")
    assert record["notes"] == ["2 of 4 pairs of test left out: in fewer languages than others"]
    assert [pair["pair_id"] for pair in rows(tmp_path / "dropped" / "test.jsonl.gz")] == ["3", "4"]
    make(source, tmp_path / "chosen", 'xnli.languages=["ar"]')
    assert [list(pair["premise"]) for pair in rows(tmp_path / "chosen" / "test.jsonl.gz")] == [["ar"]] * 4
    message = fault(make, source, tmp_path / "none", 'xnli.languages=["ar", "fr"]')
    require_facts(message, 'pair "1" must be in every language, got none in fr')
    with refused(ConfigError, "xnli.languages"):
        read_settings(XnliSettings, None, ["xnli.languages=[]"])


def test_every_fault_of_a_file_is_reported_with_its_line(tmp_path: Path) -> None:
    faulty = [
        row(0, "en"),
        row(0, "en"),
        row(0, "ar", "entailment"),
        row(1, "en", "maybe"),
        row(2, "zh", premise=""),
        "en\tneutral",
    ]
    source = xnli(tmp_path / "xnli.test.tsv", faulty)
    facts = (
        f'{source}:3: pair "1" must be in en once',
        f'{source}:4: pair "1" must have one label, got entailment, and neutral at {source}:2',
        f'{source}:5: "gold_label" must be entailment, neutral, contradiction or -, got maybe',
        f'{source}:6: "sentence1" must not be empty',
        f"{source}:7 must have 9 fields as the header has, got 2",
    )
    require_facts(fault(make, source, tmp_path / "out"), "5 faults: ", *facts)
    xnli(source, ["en\thello"], columns=("language", "text"))
    columns = "columns gold_label, sentence1, sentence2, pairID, got language, text"
    require_facts(fault(make, source, tmp_path / "out"), columns)
    assert names(tmp_path) == ["xnli.test.tsv"]
