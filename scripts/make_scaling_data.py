"""Make the data of the scaling experiment in LOG.md: short pairs of five kinds, split into training and
validation.

    python scripts/make_scaling_data.py SHARED_DATA_DIR OUT

Titles of arXiv with their abstracts, titles of Wikipedia with their texts, questions of SQuAD and Natural
Questions with what answers
them, and captions of the same picture: 108 thousand pairs. Which are held out follows from a hash of the
query, and so does the order.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from make_sweep_data import Row, hashed, rows_of, write

VALIDATION = 512


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    # A query that is asked twice is held out, or not, as a whole.
    pairs = sorted(pairs_of(given.shared), key=lambda row: hashed(row["query"]))
    last = pairs[VALIDATION - 1]["query"]
    held_out = next(place for place, row in enumerate(pairs) if place >= VALIDATION and row["query"] != last)
    write(given.out / "validation.jsonl", pairs[:held_out])
    write(given.out / "train.jsonl", pairs[held_out:])


def pairs_of(shared: Path) -> Iterator[Row]:
    """Every pair, kind by kind."""
    for row in rows_of(shared / "arxiv" / "arxiv60k.jsonl.gz"):
        yield pair(row["title"], row["abstract"])
    for name, query, positive in (
        ("squad_train_nqgtest_sent", "q", "p"),
        ("nq_qed_dev", "q", "p"),
        ("wiki_title_text_2wiki", "title", "text"),
    ):
        for row in rows_of(shared / "pairs" / f"{name}.jsonl.gz"):
            yield pair(row[query], row[positive])
    for row in rows_of(shared / "pairs" / "multi30k_captions5.jsonl.gz"):
        yield pair(row["captions"][0], row["captions"][1])


def pair(query: str, positive: str) -> Row:
    """A row of the kind that adiabat reads."""
    return {"query": query, "pos": [positive]}


if __name__ == "__main__":
    main()
