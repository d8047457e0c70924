"""Make the packed demo data of `adiabat.demo` from two CC0 sources.

    python scripts/make_demo_data.py SHARED_DATA_DIR OUT

SHARED_DATA_DIR holds ``arxiv/arxiv60k.jsonl.gz`` (id, abstract, categories, primary) and
``multilingual/tico19.jsonl.gz`` (lang, en, x). The arXiv part is *arxiv-negatives*, flavour *first*, in small
(Vasilyev et al. 2024): the first sentence of an abstract asks for the rest of it, against papers of the same
categories whose abstracts use the most similar words. The TICO-19 part asks in Spanish and French for the
English sentence. The same inputs and pyarrow version give the same bytes: every choice follows from hashes of
ids.
"""

import argparse
import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from adiabat.data.table_rows import read_rows

NEGATIVES = 5
CS_TRAIN, CS_VALIDATION, CS_TEST, CS_OTHERS = 1800, 300, 700, 700
FIELD_QUERIES, FIELD_OTHERS = 500, 550
LANGUAGES = ("es", "fr")
TICO_QUERIES, TICO_DOCUMENTS = 300, 1200
"""Queries per language; English sentences in all."""

FIRST_CHARACTERS = range(25, 400)
# The upper bound keeps a document within the 256 tokens of the demo's model, and the package small.
REST_CHARACTERS = range(150, 1000)
TICO_CHARACTERS = range(40, 300)

# fmt: off
ABBREVIATIONS = frozenset((
    "e.g", "i.e", "et", "al", "al.", "vs", "cf", "fig", "figs", "eq", "eqs", "sec", "ref", "refs", "no",
    "nos", "dr", "mr", "mrs", "prof", "st", "resp", "approx", "ca", "etc", "viz", "dept", "univ", "thm",
    "prop", "def", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sept", "oct", "nov", "dec",
))
# fmt: on
BOUNDARY = re.compile(r"[.?!][\"')\]]*\s+(?=[\"'(\[$\\]*[A-Z0-9$\\])")
EMAIL = re.compile(r"\S@\S+\.\w")
WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class Item:
    """Something that is asked for: a paper or a sentence.

    Attributes:
        key: Its document id.
        query: What asks for it.
        text: The document.
        categories: From small to large.
        words: Share of each word of the whole text, sorted by word.
    """

    key: str
    query: str
    text: str
    categories: tuple[str, ...]
    words: Mapping[str, float] = field(repr=False)


def first_sentence(text: str) -> tuple[str, str]:
    """Split a text after its first sentence.

    A sentence does not end inside ``$...$`` or an open bracket, after a known abbreviation, an initial or
    the number of a list.

    Args:
        text: One paragraph, single-spaced.

    Returns:
        The sentence, and the rest, which is empty where there is one sentence only.
    """
    for match in BOUNDARY.finditer(text):
        sentence = text[: match.end()].rstrip()
        if is_whole(sentence):
            return sentence, text[match.end() :]
    return text, ""


def is_whole(sentence: str) -> bool:
    """Whether a text that ends in a stop ends as a sentence does.

    Args:
        sentence: From the start of a sentence to a stop.

    Returns:
        False inside a formula or bracket, and after an abbreviation, an initial or the number of a list.
    """
    if sentence.replace(r"\$", "").count("$") % 2 or sentence.count("(") > sentence.count(")"):
        return False
    if not sentence.endswith("."):
        return True
    last = sentence.split()[-1].lstrip("([\"'").removesuffix(".")
    return last.lower() not in ABBREVIATIONS and not re.fullmatch(r"[A-Z](\.[A-Z])*|\d", last)


def word_shares(text: str) -> dict[str, float]:
    """Distribution of the words of a text.

    Args:
        text: Any text.

    Returns:
        Word in lower case to its share; the shares add up to 1.
    """
    counts = Counter(WORD.findall(text.lower()))
    total = counts.total()
    return {word: counts[word] / total for word in sorted(counts)}


def jensen_shannon(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """Jensen-Shannon divergence of two word distributions; its square root, the distance, has the same order.

    ``JS = ln 2 + 1/2 sum over shared words of p ln(p / (p + q)) + q ln(q / (p + q))``: a word of one side
    alone gives its share of ln 2.

    Args:
        left: Word to share.
        right: Word to share.

    Returns:
        Nats, between 0 (the same) and ln 2 (no shared word).
    """
    if len(right) < len(left):
        left, right = right, left
    shared = ((p, right[word]) for word, p in left.items() if word in right)
    return math.log(2) + 0.5 * math.fsum(
        p * math.log(p / (p + q)) + q * math.log(q / (p + q)) for p, q in shared
    )


def order(key: str) -> str:
    """Where an id stands in the order that all choices follow.

    Args:
        key: The id.

    Returns:
        A hash, sorted by which ids are shuffled the same everywhere.
    """
    return hashlib.sha256(f"adiabat demo {key}".encode()).hexdigest()


def read_papers(path: Path) -> dict[str, list[Item]]:
    """Papers of the three fields that make a good question, each field in hash order.

    Args:
        path: ``arxiv60k.jsonl.gz``.

    Returns:
        Field to papers. A paper of mathematics or physics that is also listed under computer science is left
        out.
    """
    rows = [row.values for row in read_rows(path)]
    sizes = Counter(category for row in rows for category in row["categories"])
    fields: dict[str, list[Item]] = {"cs": [], "math": [], "physics": []}
    texts: set[str] = set()
    for row in sorted(rows, key=lambda row: order(row["id"])):
        topic = row["primary"].partition(".")[0]
        listed_in_cs = any(category.startswith("cs.") for category in row["categories"])
        if topic not in fields or (topic != "cs" and listed_in_cs):
            continue
        abstract = " ".join(row["abstract"].split())
        query, rest = first_sentence(abstract)
        if (
            len(query) not in FIRST_CHARACTERS
            or len(rest) not in REST_CHARACTERS
            or EMAIL.search(abstract)
            or rest in texts
        ):
            continue
        texts.add(rest)
        categories = tuple(sorted(row["categories"], key=lambda category: (sizes[category], category)))
        fields[topic].append(Item(row["id"], query, rest, categories, word_shares(abstract)))
    return fields


def read_sentences(path: Path) -> dict[str, list[Item]]:
    """English sentences with their translation as the query.

    Args:
        path: ``tico19.jsonl.gz``.

    Returns:
        Language to sentences, in hash order; the same sentences in every language.
    """
    translations: dict[str, dict[str, str]] = {language: {} for language in LANGUAGES}
    for row in read_rows(path):
        if row.values["lang"] in translations:
            english, other = (" ".join(row.values[side].split()) for side in ("en", "x"))
            translations[row.values["lang"]].setdefault(english, other)
    shared = [
        english
        for english in translations[LANGUAGES[0]]
        if all(english in known for known in translations.values())
    ]
    keys = {english: f"tico19:{number}" for number, english in enumerate(shared)}
    usable = [
        english
        for english in shared
        if len(english) in TICO_CHARACTERS
        and all(known[english] != english for known in translations.values())
    ]
    return {
        language: [
            Item(keys[english], known[english], english, (), word_shares(english))
            for english in sorted(usable, key=lambda english: order(keys[english]))
        ]
        for language, known in translations.items()
    }


def hard_negatives(item: Item, candidates: Mapping[tuple[str, ...], Sequence[Item]]) -> list[str]:
    """The documents that are the most easily taken for the right one, hardest first.

    Those sharing the longest prefix of the item's categories come first, by their words' distance; shorter
    prefixes fill up.

    Args:
        item: What is asked for.
        candidates: From `by_prefix`.

    Returns:
        `NEGATIVES` document ids; the place in the list is the difficulty, 1 the hardest.
    """
    chosen: list[str] = []
    for length in range(len(item.categories), -1, -1):
        others = [
            other
            for other in candidates.get(item.categories[:length], ())
            if other.key != item.key and other.key not in chosen
        ]
        others.sort(key=lambda other: (jensen_shannon(item.words, other.words), other.key))
        chosen += [other.key for other in others[: NEGATIVES - len(chosen)]]
        if len(chosen) == NEGATIVES:
            return chosen
    raise SystemExit(f"{item.key} must have {NEGATIVES} candidates, got {len(chosen)}; take more documents")


def by_prefix(items: Iterable[Item]) -> dict[tuple[str, ...], list[Item]]:
    """Index items by every prefix of their categories.

    Args:
        items: Candidates for negatives.

    Returns:
        Prefix to the items that have it.
    """
    index: dict[tuple[str, ...], list[Item]] = defaultdict(list)
    for item in items:
        for length in range(len(item.categories) + 1):
            index[item.categories[:length]].append(item)
    return index


def questions(asked: Sequence[Item], others: Sequence[Item], *, prefix: str = "") -> list[dict[str, Any]]:
    """Rows of an example file.

    Args:
        asked: What the queries ask for.
        others: Documents that may be negatives beside those.
        prefix: Of a query's id, before the id of the document it asks for.

    Returns:
        One row per item, in order.
    """
    index = by_prefix([*asked, *others])
    return [
        {
            "query_id": prefix + item.key,
            "query": item.query,
            "pos": [item.key],
            "neg": hard_negatives(item, index),
        }
        for item in asked
    ]


def documents(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Rows of a corpus file.

    Args:
        items: The documents.

    Returns:
        One row per item, in order.
    """
    return [{"doc_id": item.key, "text": item.text} for item in items]


def arxiv_files(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Files of the arXiv part. No document of one part of computer science is a negative in another part.

    Args:
        path: ``arxiv60k.jsonl.gz``.

    Yields:
        File name and rows.
    """
    fields = read_papers(path)
    papers = iter(fields["cs"])
    sizes = {"train": CS_TRAIN, "validation": CS_VALIDATION, "test": CS_TEST, "others": CS_OTHERS}
    cuts = {part: list(islice(papers, size)) for part, size in sizes.items()}
    kept = [item for part in cuts.values() for item in part]
    for part in ("train", "validation", "test"):
        yield f"arxiv-cs-{part}", questions(cuts[part], cuts["others"])
    for name in ("math", "physics"):
        chosen = fields[name][: FIELD_QUERIES + FIELD_OTHERS]
        kept += chosen
        yield f"arxiv-{name}", questions(chosen[:FIELD_QUERIES], chosen[FIELD_QUERIES:])
    # Sorted by category, alike texts lie together, and pack better.
    yield "corpus", documents(sorted(kept, key=lambda item: (item.categories[::-1], item.key)))


def tico_files(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Files of the parallel-language probe: a sentence is asked for in one language only, so that queries are
    independent.

    Args:
        path: ``tico19.jsonl.gz``.

    Yields:
        File name and rows.
    """
    sentences = read_sentences(path)
    rows: list[dict[str, Any]] = []
    for number, language in enumerate(LANGUAGES):
        items = sentences[language][:TICO_DOCUMENTS]
        asked = items[number * TICO_QUERIES : (number + 1) * TICO_QUERIES]
        others = [item for item in items if item not in asked]
        rows += questions(asked, others, prefix=f"{language}:")
    yield "tico19", rows
    yield (
        "tico19-corpus",
        documents(sorted(sentences[LANGUAGES[0]][:TICO_DOCUMENTS], key=lambda item: item.key)),
    )


def pack(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """JSON lines, packed by zstd at level 19.

    Args:
        rows: Of one file.

    Returns:
        The bytes of the file.
    """
    lines = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    return bytes(pa.Codec("zstd", compression_level=19).compress(lines.encode(), asbytes=True))


def main() -> None:
    """Write the files and their manifest, and print the table."""
    parser = argparse.ArgumentParser(description="Make the packed demo data.")
    parser.add_argument("source", type=Path, help="folder with arxiv/ and multilingual/")
    parser.add_argument("out", type=Path, help="folder to write to")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    arxiv = arxiv_files(arguments.source / "arxiv" / "arxiv60k.jsonl.gz")
    tico = tico_files(arguments.source / "multilingual" / "tico19.jsonl.gz")
    files: dict[str, dict[str, Any]] = {}
    for name, rows in chain(arxiv, tico):
        data = pack(rows)
        (arguments.out / f"{name}.jsonl.zst").write_bytes(data)
        files[f"{name}.jsonl.zst"] = {
            "rows": len(rows),
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
    (arguments.out / "manifest.json").write_text(
        json.dumps({"format": 1, "files": dict(sorted(files.items()))}, indent=2) + "\n"
    )
    for name, facts in sorted(files.items()):
        print(f"{name:32} {facts['rows']:6} rows {facts['bytes']:9} bytes  {facts['sha256']}")
    print(
        f"{'all':32} {sum(f['rows'] for f in files.values()):6} rows "
        f"{sum(f['bytes'] for f in files.values()):9} bytes"
    )


if __name__ == "__main__":
    main()
