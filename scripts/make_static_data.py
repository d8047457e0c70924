"""Make the pairs that the ablation of static models in LOG.md learns from.

    python scripts/make_static_data.py SHARED_DATA_DIR OUT

Questions of SQuAD's training set with the sentences that answer them, and SciFact's training queries with
their documents.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from make_scaling_data import pair
from make_sweep_data import Row, rows_of, write


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    write(given.out / "pairs.jsonl", pairs_of(given.shared))


def pairs_of(shared: Path) -> Iterator[Row]:
    """Every pair, SQuAD's first."""
    for row in rows_of(shared / "pairs" / "squad_train_nqgtest_sent.jsonl.gz"):
        yield pair(row["q"], row["p"])
    beir = shared / "beir" / "scifact"
    queries = {row["_id"]: row["text"] for row in rows_of(beir / "queries.jsonl")}
    documents = {row["_id"]: f"{row['title']} {row['text']}" for row in rows_of(beir / "corpus.jsonl")}
    for line in (beir / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, _ = line.split("\t")
        yield pair(queries[query], documents[document])


if __name__ == "__main__":
    main()
