"""The publisher's own files of MS MARCO passage ranking: tables between tabs, without a header.

===========================================  ====================================================  =================
``collection.tsv``                           passage id, passage                                   needed
``queries.SPLIT.tsv``                        query id, query                                       needed
``qrels.SPLIT.tsv``                          query id, 0, passage id, relevance                    needed
``top1000.SPLIT`` (or ``.tsv``)              query id, passage id, query, passage                  gives negatives
``qidpidtriples.SPLIT.*.tsv``                query id, id of a positive, id of a negative          gives negatives
===========================================  ====================================================  =================

Each may be packed (``.gz``, ``.zst``). ``dev.small`` takes its negatives from ``top1000.dev`` where it has none of its own. Negatives are
the first passages that a file lists for a query and that are not relevant to it. Memory holds numbers of passages and no text of them; of
the collection, only those that a query names are written.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from adiabat.data.columns import RowError, text_value
from adiabat.data.tables import FileFaults
from adiabat.errors import DataError
from adiabat.makers.streams import tab_rows
from adiabat.makers.writing import Output
from adiabat.watch import Watch

_PACKINGS = ("", ".gz", ".zst")


@dataclass(frozen=True, slots=True)
class Listed:
    """One query with the numbers of its passages.

    Attributes:
        query_id: The publisher's.
        text: The query.
        positives: Relevant passages, at least one.
        negatives: Others, perhaps none.
    """

    query_id: str
    text: str
    positives: "array[int]"
    negatives: "array[int]"


def judged_queries(folder: Path, *, most_negatives: int, first: bool, watch: Watch) -> dict[str, list[Listed]]:
    """Queries of every split that the folder judges.

    Args:
        most_negatives: Kept per query.
    """
    judgements = {path.name.removeprefix("qrels.").partition(".tsv")[0]: path for path in _tables(folder, "qrels.*")}
    if not judgements:
        raise DataError(f"{folder} must hold qrels.SPLIT.tsv, got none; check that it is the folder of MS MARCO's own files")
    faults = FileFaults()
    splits = {}
    for split, path in judgements.items():
        single = first and split.startswith("train")
        relevant = _relevant(path, faults, watch)
        listed = _negatives(folder, split, relevant, 1 if single else most_negatives, faults, watch)
        texts = _texts(folder, split, relevant, faults, watch)
        splits[split] = [
            Listed(query_id, texts[query_id], passages[:1] if single else passages, listed.get(query_id, array("Q")))
            for query_id, passages in relevant.items()
            if query_id in texts
        ]
    faults.raise_if_any()
    return splits


def write_passages(folder: Path, queries: Iterable[Listed], output: Output, watch: Watch) -> None:
    """Write the passages that queries name, in the collection's order."""
    wanted = {number for query in queries for numbers in (query.positives, query.negatives) for number in numbers}
    faults, total = FileFaults(), 0
    named = len(wanted)
    path = _table(folder, "collection.tsv")
    for place, (passage_id, text) in tab_rows(path, 2, faults, watch=watch):
        total += 1
        try:
            number = _number(passage_id, place)
            if number in wanted:
                output.document(str(number), text_value(text, "passage", place))
                wanted.discard(number)
        except RowError as fault:
            faults.add(str(fault))
    if not faults.count:  # A passage whose own line is at fault would be reported twice.
        for number in sorted(wanted):
            faults.add(f'{path} must hold every passage that is named, got none with the id "{number}"')
    faults.raise_if_any()
    output.note(f"{named:,} of {total:,} passages written: those that a query names")


def _relevant(path: Path, faults: FileFaults, watch: Watch) -> dict[str, "array[int]"]:
    relevant: dict[str, array[int]] = {}
    for place, (query_id, _, passage_id, grade) in tab_rows(path, 4, faults, watch=watch):
        try:
            number, is_relevant = _number(passage_id, place), _number(grade, place) > 0
        except RowError as fault:
            faults.add(str(fault))
            continue
        if is_relevant and number not in (passages := relevant.setdefault(query_id, array("Q"))):
            passages.append(number)
    return relevant


def _texts(folder: Path, split: str, relevant: Mapping[str, "array[int]"], faults: FileFaults, watch: Watch) -> dict[str, str]:
    path = _table(folder, f"queries.{split}.tsv")
    texts: dict[str, str] = {}
    for place, (query_id, text) in tab_rows(path, 2, faults, watch=watch):
        try:
            if query_id in relevant and texts.setdefault(query_id, text_value(text, "query", place)) != text:
                faults.add(f'{place}: query id must be unique, got "{query_id}" again')
        except RowError as fault:
            faults.add(str(fault))
    if not faults.count:
        for query_id in (query_id for query_id in relevant if query_id not in texts):
            faults.add(f'{path} must hold every query that is judged, got none with the id "{query_id}"')
    return texts


def _negatives(
    folder: Path, split: str, relevant: Mapping[str, "array[int]"], most: int, faults: FileFaults, watch: Watch
) -> dict[str, "array[int]"]:
    """The first passages listed for each judged query that are not relevant to it."""
    negatives: dict[str, array[int]] = {}
    for place, query_id, passage_id in _candidates(folder, split, faults, watch):
        listed = negatives.setdefault(query_id, array("Q")) if query_id in relevant else None
        if listed is None or len(listed) >= most:
            continue
        try:
            number = _number(passage_id, place)
        except RowError as fault:
            faults.add(str(fault))
            continue
        if number not in relevant[query_id] and number not in listed:
            listed.append(number)
    return negatives


def _candidates(folder: Path, split: str, faults: FileFaults, watch: Watch) -> Iterator[tuple[str, str, str]]:
    """Place, query id and passage id of each line of the files that list negatives."""
    for name in dict.fromkeys((split, split.partition(".")[0])):
        ranked, triples = _tables(folder, f"top1000.{name}", f"top1000.{name}.tsv"), _tables(folder, f"qidpidtriples.{name}.*")
        for path in ranked:
            yield from ((place, fields[0], fields[1]) for place, fields in tab_rows(path, 4, faults, watch=watch))
        for path in triples:
            yield from ((place, fields[0], fields[2]) for place, fields in tab_rows(path, 3, faults, watch=watch))
        if ranked or triples:
            return


def _number(text: str, place: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise RowError(f"{place} must name a passage and its relevance by whole numbers, got {text or 'nothing'}")
    return int(text)


def _table(folder: Path, name: str) -> Path:
    paths = _tables(folder, name)
    if not paths:
        raise DataError(f"{folder} must hold {name} (plain, .gz or .zst), got none; put it beside the judgements")
    return paths[0]


def _tables(folder: Path, *patterns: str) -> list[Path]:
    """Files whose name fits, packed or not; of one that is there both ways, the plain one."""
    paths = [path for pattern in patterns for packing in _PACKINGS for path in sorted(folder.glob(pattern + packing))]
    return list({path.name.removesuffix(".gz").removesuffix(".zst"): path for path in reversed(paths) if path.is_file()}.values())[::-1]
