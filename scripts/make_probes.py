"""Make the packed probe texts of `adiabat.adiabatic.probes` from two CC0 and two CC BY sources.

    python scripts/make_probes.py SHARED_DATA_DIR OUT [--round 1]

SHARED_DATA_DIR holds ``multilingual/tico19.jsonl.gz`` (lang, en, x), ``arxiv/arxiv60k.jsonl.gz`` (id, title,
primary), ``pairs/medquad.jsonl.gz`` (q) and ``classification/banking77_test.jsonl.gz`` (text). Each group is
40 texts: sentences about an epidemic in nine languages, none of them in two; titles of papers of six fields;
questions of patients, and of a bank's customers. The same inputs and
pyarrow version give the same bytes: every choice follows from hashes of ids. Another round is of other texts
of the same groups, to hold a tower at (``[rehearsal]``) whose drift the packaged ones, of round 0, still
tell.
"""

import argparse
import hashlib
import html
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from adiabat.data.table_rows import read_rows

PROBES = 40
"""Of each group."""

LANGUAGES = ("en", "ar", "es", "fr", "hi", "ru", "sw", "ur", "zh")

FIELDS: Mapping[str, tuple[str, ...]] = {
    "arXiv cs": ("cs",),
    "arXiv math": ("math",),
    "arXiv cond-mat": ("cond-mat",),
    "arXiv astro-ph and hep": ("astro-ph", "hep-ex", "hep-lat", "hep-ph", "hep-th"),
    "arXiv q-bio": ("q-bio",),
    "arXiv econ and stat": ("econ", "stat"),
}
"""Group to the archives of a paper's primary category."""

# Long enough to ask for something, short enough for a query; of a translated sentence, the English one.
CHARACTERS = range(25, 250)


def order(key: str) -> str:
    """Where an id stands in the order that all choices follow.

    Args:
        key: The id.

    Returns:
        A hash, sorted by which ids are shuffled the same everywhere.
    """
    return hashlib.sha256(f"adiabat probes {key}".encode()).hexdigest()


def tidy(text: str) -> str:
    """Make white space single, and HTML's names of characters those characters (TICO-19 has some).

    Args:
        text: As found.

    Returns:
        One line.
    """
    return " ".join(html.unescape(text).split())


def fitting_of(texts: Mapping[str, str], turn: int) -> list[str]:
    """The texts of a group: those in hash order whose length fits, each once.

    Args:
        texts: Id to text.
        turn: Of the round; 0 takes the first of them.

    Returns:
        `PROBES` of them, tidied.
    """
    ordered = (tidy(texts[key]) for key in sorted(texts, key=order))
    fitting = list(dict.fromkeys(text for text in ordered if len(text) in CHARACTERS))
    if len(fitting) < (needed := PROBES * (turn + 1)):
        raise SystemExit(
            f"a group must have {needed} texts of fitting length, got "
            f"{len(fitting)}; take more from its source"
        )
    return fitting[needed - PROBES : needed]


def sentences(path: Path, turn: int) -> Iterator[tuple[str, list[str]]]:
    """Sentences in each language; those of two languages are not translations of each other.

    Args:
        path: ``tico19.jsonl.gz``.
        turn: Of the round.

    Yields:
        Language and its sentences.
    """
    translations: dict[str, dict[str, str]] = {}
    for row in read_rows(path):
        english = tidy(row.values["en"])
        translations.setdefault(english, {"en": english}).setdefault(
            row.values["lang"], tidy(row.values["x"])
        )
    usable = sorted(
        (
            english
            for english, known in translations.items()
            if len(english) in CHARACTERS and len(set(known.values())) == len(LANGUAGES)
        ),
        key=order,
    )
    if len(usable) < (needed := PROBES * len(LANGUAGES) * (turn + 1)):
        raise SystemExit(
            f"there must be {needed} sentences of fitting length in all languages, "
            f"got {len(usable)}; take an earlier round"
        )
    for number, language in enumerate(LANGUAGES, start=turn * len(LANGUAGES)):
        yield (
            language,
            [translations[english][language] for english in usable[number * PROBES : (number + 1) * PROBES]],
        )


def titles(path: Path, turn: int) -> Iterator[tuple[str, list[str]]]:
    """Titles of papers of each field.

    Args:
        path: ``arxiv60k.jsonl.gz``.
        turn: Of the round.

    Yields:
        Group and its titles.
    """
    papers = [row.values for row in read_rows(path)]
    for group, archives in FIELDS.items():
        yield (
            group,
            fitting_of(
                {
                    paper["id"]: paper["title"]
                    for paper in papers
                    if paper["primary"].partition(".")[0] in archives
                },
                turn,
            ),
        )


def questions(path: Path, column: str, turn: int) -> list[str]:
    """Questions of a file, chosen by their own hash.

    Args:
        path: A table.
        column: That holds them.
        turn: Of the round.

    Returns:
        `PROBES` of them.
    """
    return fitting_of({row.values[column]: row.values[column] for row in read_rows(path)}, turn)


def groups(source: Path, turn: int = 0) -> dict[str, list[str]]:
    """All groups.

    Args:
        source: The folder of shared data.
        turn: Of the round.

    Returns:
        Group to its texts; a text that an earlier round has by chance, such as one translation of two
        sentences, is left out.
    """
    taken = {text for earlier in range(turn) for _, texts in of_round(source, earlier) for text in texts}
    return {group: [text for text in texts if text not in taken] for group, texts in of_round(source, turn)}


def of_round(source: Path, turn: int) -> Iterator[tuple[str, list[str]]]:
    """Texts of a round as they are drawn.

    Args:
        source: The folder of shared data.
        turn: Of the round.

    Yields:
        Group and its texts.
    """
    yield from sentences(source / "multilingual" / "tico19.jsonl.gz", turn)
    yield from titles(source / "arxiv" / "arxiv60k.jsonl.gz", turn)
    yield "medical questions", questions(source / "pairs" / "medquad.jsonl.gz", "q", turn)
    yield "banking", questions(source / "classification" / "banking77_test.jsonl.gz", "text", turn)


def main() -> None:
    """Write the file, and print its groups and its sha256, which `adiabat.adiabatic.probes` knows it by."""
    parser = argparse.ArgumentParser(description="Make the packed probe texts.")
    parser.add_argument(
        "source", type=Path, help="folder with arxiv/, classification/, multilingual/ and pairs/"
    )
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument(
        "--round",
        type=int,
        default=0,
        help="which texts of each group; 0: the probes that come with adiabat, 1: the texts to rehearse",
    )
    arguments = parser.parse_args()
    made = groups(arguments.source, arguments.round)
    rows = [{"text": text, "group": group} for group, texts in made.items() for text in texts]
    lines = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    data = bytes(pa.Codec("zstd", compression_level=19).compress(lines.encode(), asbytes=True))
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "probes.jsonl.zst").write_bytes(data)
    for group, texts in made.items():
        print(f"{group:24} {len(texts):4}  {texts[0]}")
    print(f"{len(rows)} probes, {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
