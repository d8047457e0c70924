"""Pairs for `batches.py`: a given number of real texts, or numbered copies of the demo's, in one file for
both sides.

A folder of public sets supplies words and glosses of WordNet, captions of the same picture, translations,
titles and abstracts, questions and answers. Words have several glosses and glosses several words, a caption
is paired with each other caption of its picture, an English
sentence with each translation: many texts repeat, as queries, as documents, and as both.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from itertools import combinations, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.datasets.bundled import DEMO_CORPUS, DEMO_TRAIN

Pair = tuple[str, str]
Row = dict[str, Any]


def write_pairs(given: Path | None, count: int, target: Path) -> None:
    """Write so many pairs in a random order that is always the same.

    Args:
        given: A folder of sets as named in `SETS`; None takes the demo's.
        count: Pairs.
        target: The JSONL file.

    Raises:
        SystemExit: If the folder holds too few.
    """
    pairs = list(islice(_numbered_demo(), count)) if given is None else list(_of_folder(given))
    if len(pairs) < count:
        raise SystemExit(f"{given} must hold {count:,} pairs, got {len(pairs):,}; ask for fewer (--pairs)")
    order = np.random.default_rng(0).permutation(len(pairs))[:count]
    with target.open("w", encoding="utf-8") as file:
        for query, positive in (pairs[place] for place in order.tolist()):
            file.write(json.dumps({"query": query, "positive": positive}, ensure_ascii=False) + "\n")


def _numbered_demo() -> Iterator[Pair]:
    """The demo's pairs round and round, a number before the query from the second time on: documents repeat,
    queries do not.
    """
    documents = {document.doc_id: document.text for document in read_corpus(DEMO_CORPUS)}
    found = read_examples(DEMO_TRAIN)
    assert isinstance(found, ExampleSet)
    rows = [(row.query, documents[row.positives[0]]) for row in found.examples]
    for number, (query, positive) in enumerate(cycle(rows)):
        time = number // len(rows)
        # Every fiftieth round has new documents: each stands in fifty pairs.
        yield (f"{time} {query}" if time else query), (f"{time // 50} {positive}" if time >= 50 else positive)


def _of_folder(folder: Path) -> Iterator[Pair]:
    for name, pairs_of in SETS.items():
        path = folder / name
        if path.exists():
            with gzip.open(path, "rt", encoding="utf-8") as file:
                for line in file:
                    yield from (
                        (query, positive)
                        for query, positive in pairs_of(json.loads(line))
                        if query.strip() and positive.strip()
                    )


def _glosses(row: Row) -> Iterator[Pair]:
    for asking in (*row["lemmas"], *row["examples"]):
        yield asking, row["gloss"]


def _captions(row: Row) -> Iterator[Pair]:
    yield from combinations(row["captions"], 2)


def _translations(row: Row) -> Iterator[Pair]:
    for language, text in row.items():
        if language != "en":
            yield row["en"], text


def _translated_inference(row: Row) -> Iterator[Pair]:
    yield from _translations(row["premise"])
    yield from _translations(row["hypothesis"])


def _between(query: str, positive: str) -> Callable[[Row], Iterator[Pair]]:
    def pairs_of(row: Row) -> Iterator[Pair]:
        yield row[query], row[positive]

    return pairs_of


SETS: dict[str, Callable[[Row], Iterator[Pair]]] = {
    "pairs/wordnet31.jsonl.gz": _glosses,
    "pairs/multi30k_captions5.jsonl.gz": _captions,
    "multilingual/mnli15k_mt10.jsonl.gz": _translated_inference,
    "multilingual/multi30k_train.jsonl.gz": _translations,
    "multilingual/xnli_dev15.jsonl.gz": _translated_inference,
    "arxiv/arxiv60k.jsonl.gz": _between("title", "abstract"),
    "multilingual/tico19.jsonl.gz": _between("en", "x"),
    "similarity/stsb_multi.jsonl.gz": _between("a", "b"),
    "multilingual/tydiqa_goldp.jsonl.gz": _between("q", "c"),
    "pairs/medquad.jsonl.gz": _between("q", "a"),
    "pairs/squad_train_nqgtest_sent.jsonl.gz": _between("q", "p"),
    "pairs/quora_dev.jsonl.gz": _between("a", "b"),
    "pairs/wiki_title_text_2wiki.jsonl.gz": _between("title", "text"),
    "pairs/nq_qed_dev.jsonl.gz": _between("q", "p"),
    "pairs/pubmedqa.jsonl.gz": _between("q", "p"),
}
