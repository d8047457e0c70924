"""Make the ten data sets of `benchmarks/recipes.py`, a folder with corpus, train and test each.

    python scripts/make_recipe_data.py SHARED_DATA_DIR OUT

SciFact keeps its published division. Elsewhere queries that share a relevant document or their text are one
group; hashes of the groups choose at most 2,000 queries to test and 4,000 to train, half of each where there
are fewer. One in ten trained groups gives the test one more of its queries, whose documents are seen.
Cranfield is one group, so its queries are divided one by one.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

import numpy as np
from make_sweep_data import Row, hashed, rows_of, write

from adiabat.core.ragged import Ragged, connected
from adiabat.datasets.arxiv import first_sentence_end

TEST, TRAIN = 2_000, 4_000
SEEN_EVERY = 10


def main() -> None:
    """Write every set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    beir = given.shared / "beir"
    scifact = documents_of(beir / "scifact")
    write_set(
        given.out / "scifact",
        scifact,
        *(judged(beir / "scifact", split, scifact) for split in ("train", "test")),
    )
    for name, split in (("squad_dev", "test"), ("msmarco_dev6980", "dev"), ("cranfield", "test")):
        documents = documents_of(beir / name)
        write_set(given.out / name, documents, *divided(judged(beir / name, split, documents)))
    pairs = {"medquad": ("medquad", "a"), "nq": ("nq_qed_dev", "p"), "pubmedqa": ("pubmedqa", "p")}
    for name, (file, answer) in pairs.items():
        rows = rows_of(given.shared / "pairs" / f"{file}.jsonl.gz")
        from_pairs(given.out / name, ((row["q"], row[answer]) for row in rows))
    for name, field in (("arxiv-cs", "cs."), ("arxiv-math", "math."), ("arxiv-physics", "physics.")):
        from_pairs(given.out / name, halves(rows_of(given.shared / "arxiv" / "arxiv60k.jsonl.gz"), field))


def halves(papers: Iterable[Row], field: str) -> Iterator[tuple[str, str]]:
    """First sentence and rest of the abstract of each paper in a field of arXiv."""
    for paper in papers:
        abstract = " ".join(paper["abstract"].split())
        end = first_sentence_end(abstract)
        if paper["primary"].startswith(field) and end < len(abstract):
            yield abstract[:end], abstract[end:].strip()


def from_pairs(folder: Path, pairs: Iterable[tuple[str, str]]) -> None:
    """Write a set whose documents are the second texts; a query has all documents that it stands beside."""
    relevant: dict[str, list[str]] = defaultdict(list)
    documents: dict[str, str] = {}
    for query, document in pairs:
        relevant[query].append(documents.setdefault(document, f"d{len(documents)}"))
    queries = [
        row_of(f"q{number}", query, set(found)) for number, (query, found) in enumerate(relevant.items())
    ]
    write_set(folder, ({"_id": name, "text": text} for text, name in documents.items()), *divided(queries))


def documents_of(folder: Path) -> list[Row]:
    """Documents of a BEIR folder that have a text."""
    return [row for row in rows_of(folder / "corpus.jsonl") if f"{row.get('title', '')}{row['text']}".strip()]


def judged(folder: Path, split: str, documents: Iterable[Row]) -> list[Row]:
    """Queries of a BEIR folder that have a relevant document among these."""
    names = {row["_id"] for row in documents}
    relevant: dict[str, set[str]] = defaultdict(set)
    for line in (folder / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) > 0 and document in names:
            relevant[query].add(document)
    texts = {row["_id"]: row["text"] for row in rows_of(folder / "queries.jsonl")}
    return [row_of(query, texts[query], found) for query, found in relevant.items()]


def divided(queries: list[Row]) -> tuple[list[Row], list[Row]]:
    """Queries to train on, and queries to test."""
    numbers: dict[str, int] = {}
    documents = Ragged.of(
        [np.array([numbers.setdefault(name, len(numbers)) for name in row["pos"]]) for row in queries]
    )
    texts = Ragged.of(
        [
            np.array([numbers.setdefault(" ".join(row["query"].lower().split()), len(numbers))])
            for row in queries
        ]
    )
    groups = connected(documents, texts)
    if 2 * np.bincount(groups).max() > len(queries):
        groups = np.arange(len(queries))
    members: dict[int, list[Row]] = defaultdict(list)
    for row, group in zip(queries, groups.tolist(), strict=True):
        members[group].append(row)
    ordered = sorted(members.values(), key=lambda rows: hashed(rows[0]["query_id"]))
    wanted = min(TEST, len(queries) // 2)
    sizes = list(accumulate(len(rows) for rows in ordered))
    last = next(number for number, size in enumerate(sizes, start=1) if size >= wanted)
    test = [row for rows in ordered[:last] for row in rows]
    train: list[Row] = []
    for number, rows in enumerate(ordered[last:]):
        if len(train) >= TRAIN:
            break
        is_shared = number % SEEN_EVERY == 0 and len(rows) > 1
        train += rows[is_shared:]
        test += rows[:is_shared]
    return train, test


def write_set(folder: Path, corpus: Iterable[Row], train: list[Row], test: list[Row]) -> None:
    """Write the three files of a set."""
    for name, rows in (("corpus", corpus), ("train", train), ("test", test)):
        write(folder / f"{name}.jsonl", rows)


def row_of(name: str, query: str, relevant: Iterable[str]) -> Row:
    """A row of an example file."""
    return {"query_id": name, "query": query, "pos": sorted(relevant)}


if __name__ == "__main__":
    main()
