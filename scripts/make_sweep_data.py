"""Make the data of the sweeps in LOG.md: arXiv and MS MARCO split into training, validation and test, and
samples of SQuAD and XNLI.

    adiabat data arxiv-negatives SHARED_DATA_DIR/arxiv/arxiv60k.jsonl.gz --out ARXIV
    python scripts/make_sweep_data.py SHARED_DATA_DIR ARXIV OUT

Every choice follows from a hash of ids. Training examples of arXiv keep two of their 21 negatives, the random
one (difficulty 21) first, then the nearest (1); those to measure on keep seven, from the nearest to the
random one, and so do 1,400 of the training examples in
`difficulty`, a smaller set that compares them. MS MARCO has no negatives: they come from the store.
"""

import argparse
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

TRAIN, VALIDATION, TEST = 3_000, 300, 300
DIFFICULTY_TRAIN = 1_400
TRAINED_DIFFICULTIES, MEASURED_DIFFICULTIES = (21, 1), (1, 2, 3, 5, 8, 13, 21)
FIELDS = {
    "cs": ("cs",),
    "math": ("math", "math-ph"),
    "physics": ("physics", "astro-ph", "hep-th", "hep-ph", "quant-ph"),
    "q-bio": ("q-bio",),
}
MSMARCO_TRAIN, MSMARCO_VALIDATION, MSMARCO_TEST = 4_000, 400, 1_500
SQUAD_QUESTIONS = 1_500
XNLI_PER_LABEL = {"xnli": 150, "xnli-short": 50}

Row = dict[str, Any]


def main() -> None:
    """Write every file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("arxiv", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    fields = fields_of(given.shared, given.arxiv)
    make_arxiv(fields, given.arxiv, given.out / "arxiv")
    make_difficulty(fields["cs"], given.arxiv, given.out / "difficulty")
    make_msmarco(given.shared / "beir" / "msmarco_dev6980", given.out / "msmarco")
    make_squad(given.shared / "beir" / "squad_dev", given.out / "squad")
    make_xnli(given.shared / "multilingual" / "xnli_dev15.jsonl.gz", given.out)


def fields_of(shared: Path, made: Path) -> dict[str, list[Row]]:
    """The examples of every field, in the order of their hashes."""
    primary = {row["id"]: row["primary"] for row in rows_of(shared / "arxiv" / "arxiv60k.jsonl.gz")}
    fields: dict[str, list[Row]] = {name: [] for name in FIELDS}
    for row in rows_of(made / "test.jsonl.gz"):
        for name, prefixes in FIELDS.items():
            if primary[row["query_id"]].split(".")[0] in prefixes:
                fields[name].append(row)
    return {name: sorted(rows, key=lambda row: hashed(row["query_id"])) for name, rows in fields.items()}


def make_arxiv(fields: dict[str, list[Row]], made: Path, out: Path) -> None:
    """Training and validation of computer science, tests of every field and of all, and the papers that they
    name.
    """
    cs = [cut(row, TRAINED_DIFFICULTIES) for row in fields["cs"][TEST : TEST + VALIDATION + TRAIN]]
    files = {"train": cs[VALIDATION:], "validation": cs[:VALIDATION]}
    files |= {
        f"test-{name}": [cut(row, MEASURED_DIFFICULTIES) for row in rows[:TEST]]
        for name, rows in fields.items()
    }
    files["test"] = [row for name in FIELDS for row in files[f"test-{name}"]]
    write_with_corpus(files, [row for rows in files.values() for row in rows], made, out)


def make_difficulty(cs: list[Row], made: Path, out: Path) -> None:
    """The first training examples and the test of computer science, both with every measured difficulty."""
    first = TEST + VALIDATION
    parts = {"test": cs[:TEST], "train": cs[first : first + DIFFICULTY_TRAIN]}
    files = {name: [cut(row, MEASURED_DIFFICULTIES) for row in rows] for name, rows in parts.items()}
    named = [row for rows in files.values() for row in rows]
    # Some have the same paper at two difficulties; their papers stay in the corpus, for others to be told
    # from.
    files["train"] = [row for row in files["train"] if len(row["neg"]) == len(MEASURED_DIFFICULTIES)]
    write_with_corpus(files, named, made, out)


def write_with_corpus(files: dict[str, list[Row]], naming: list[Row], made: Path, out: Path) -> None:
    """Write examples, and the papers that some name."""
    for name, rows in files.items():
        write(out / f"{name}.jsonl", rows)
    named = {doc_id for row in naming for doc_id in (*row["pos"], *row["neg"])}
    write(out / "corpus.jsonl", (row for row in rows_of(made / "corpus.jsonl.gz") if row["_id"] in named))


def cut(row: Row, difficulties: Iterable[int]) -> Row:
    """An example with some of its negatives, each once."""
    return {**row, "neg": list(dict.fromkeys(row["neg"][difficulty - 1] for difficulty in difficulties))}


def make_msmarco(beir: Path, out: Path) -> None:
    """Queries parted by the hash of their id."""
    texts = {row["_id"]: row["text"] for row in rows_of(beir / "queries.jsonl")}
    lines = (next(beir.glob("qrels/*.tsv"))).read_text(encoding="utf-8").splitlines()[1:]
    judged = [line.split("\t") for line in lines]
    examples = [
        {"query_id": query, "query": texts[query], "pos": [document]} for query, document, _ in judged
    ]
    examples.sort(key=lambda row: hashed(row["query_id"]))
    ends = {"test": MSMARCO_TEST, "validation": MSMARCO_VALIDATION, "train": MSMARCO_TRAIN}
    start = 0
    for name, count in ends.items():
        write(out / f"{name}.jsonl", examples[start : start + count])
        start += count


def make_squad(beir: Path, out: Path) -> None:
    """A sample of the questions."""
    texts = {row["_id"]: row["text"] for row in rows_of(beir / "queries.jsonl")}
    lines = (next(beir.glob("qrels/*.tsv"))).read_text(encoding="utf-8").splitlines()[1:]
    judged = sorted((line.split("\t") for line in lines), key=lambda parts: hashed(parts[0]))
    write(
        out / "test.jsonl",
        (
            {"query_id": one, "query": texts[one], "pos": [other]}
            for one, other, _ in judged[:SQUAD_QUESTIONS]
        ),
    )


def make_xnli(path: Path, out: Path) -> None:
    """As many pairs of each label, in all languages."""
    rows = sorted(rows_of(path), key=lambda row: hashed(str(row["i"])))
    by_label = [
        [row for row in rows if row["label"] == label] for label in ("entailment", "neutral", "contradiction")
    ]
    for name, count in XNLI_PER_LABEL.items():
        chosen = [row for labelled in by_label for row in labelled[:count]]
        write(out / f"{name}.jsonl", sorted(chosen, key=lambda row: int(row["i"])))


def hashed(key: str) -> str:
    """A number that has nothing to do with the order of ids."""
    return hashlib.sha256(key.encode()).hexdigest()


def rows_of(path: Path) -> Iterator[Row]:
    """Rows of a file of JSON lines, packed or not."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        yield from map(json.loads, lines)


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write JSON lines, and say how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")
    print(f"{path}: {len(lines):,}")


if __name__ == "__main__":
    main()
