"""MS MARCO: queries with their answers and with passages that look like answers (Vasilyev et al. 2024,
appendix A).

Made from either of two sources:

- *A file of triplets*, as the source used it: JSON lines ``{"query": ..., "pos": [...], "neg": [...]}`` of
  texts (``msmarco-triplets.jsonl.gz`` of the data sets for training embeddings). Its first samples make
  ``train``, the next ``dev``, the last ``test``; ``test-65negatives`` holds those of ``test`` that list at
  least 65.
- *A folder with the publisher's own files* (``collection.tsv``, ``queries.SPLIT.tsv``, ``qrels.SPLIT.tsv``),
  which keep their splits.

``triples.train.small.tsv`` is neither: it names each query about a hundred times in random order, so that no
cut of it separates the queries of two splits.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from adiabat.config.dataset_settings import MsmarcoSection, MsmarcoSettings
from adiabat.core.errors import ConfigError, DataError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.data.columns import Table, text_value
from adiabat.data.examples import parse_example
from adiabat.data.folders import place_of, require_path
from adiabat.data.records import Example
from adiabat.data.table_rows import FileFaults, RowError, count_rows
from adiabat.datasets.json_streams import tab_rows
from adiabat.datasets.writer import DatasetSummary, DatasetWriter, HashSet, SkipCounts, create_dataset

Passages: TypeAlias = "array[int]"
"""Numbers of passages, 8 bytes each."""

_COMPRESSIONS = ("", ".gz", ".zst")
_PROGRESS_SAMPLES = 1_000


def make_msmarco(
    source: Path, out: Path, settings: MsmarcoSettings, *, watch: Watch = SILENT
) -> DatasetSummary:
    """Make examples of queries and passages, with only ids in memory.

    Triplets without negatives are skipped, and a negative that is also a positive is dropped.
    """
    require_path(source)
    section = settings.msmarco
    _refuse_unused_settings(section, source)
    with create_dataset(
        out, maker="msmarco", source=source, settings=settings, documents=section.documents
    ) as writer:
        if source.is_dir():
            _Folder(source, section, watch).write(writer)
        else:
            _write_triplets(source, writer, section, watch)
    return writer.summary


def _refuse_unused_settings(section: MsmarcoSection, source: Path) -> None:
    """Refuse settings of the other kind of source, all at once."""
    unused = ("train", "dev", "test") if source.is_dir() else ("most_negatives",)
    usual = MsmarcoSection()
    kind = "a folder of the publisher's files" if source.is_dir() else "a file of triplets"
    faults = [
        f"msmarco.{name} has no effect with {kind}; leave it out"
        for name in unused
        if getattr(section, name) != getattr(usual, name)
    ]
    if source.is_dir() and section.documents == "texts":
        faults.append(
            'msmarco.documents must be "ids" with a folder of the publisher\'s '
            'files, got "texts"; their passages have ids'
        )
    if faults:
        raise ConfigError(several(faults))


def _stems(split: str, negatives: int, section: MsmarcoSection, *, is_test: bool) -> list[str]:
    """Files of an example: its split, and the subset with many negatives."""
    subset = f"{split}-{section.subset_negatives}negatives"
    return [split, subset] if is_test and negatives >= section.subset_negatives else [split]


def split_of(number: int, total: int, section: MsmarcoSection) -> str | None:
    """Split of a triplet: ``train`` for the first, ``dev`` for the next, ``test`` for the last, None for
    those between.
    """
    if number < section.train:
        return "train"
    if number < section.train + section.dev:
        return "dev"
    return "test" if number >= total - section.test else None


def _write_triplets(source: Path, writer: DatasetWriter, section: MsmarcoSection, watch: Watch) -> None:
    """Cut a file of triplets into splits, by the number of each sample."""
    total = _count_triplets(source, section)
    table = Table.open(source, wanted=("examples",))
    skipped, queries, repeated = SkipCounts("samples"), HashSet(), 0
    for number, example in enumerate(table.whole(parse_example)):
        if number % _PROGRESS_SAMPLES == 0:
            watch.progress("samples", number, total)
        split = split_of(number, total, section)
        skipped.count()
        if split is None:
            skipped.skip("between the validation and the test samples")
            continue
        # Only 64 bits of each query stay in memory.
        is_new = queries.add(example.query)
        repeated += split != "train" and not is_new
        _write_triplet(writer, split, example, section, skipped)
    skipped.write_notes(writer)
    if repeated:
        writer.note(f"{repeated:,} samples of dev and test repeat the query of an earlier sample")


def _count_triplets(source: Path, section: MsmarcoSection) -> int:
    """Number of samples, which must be enough for all splits."""
    if place_of(source).form in ("tsv", "csv"):
        raise DataError(
            f"{source} must be a file of triplets (JSON lines with query, pos and neg), or a folder with "
            "collection.tsv, queries.SPLIT.tsv and qrels.SPLIT.tsv, got a table; name one of these"
        )
    total = count_rows(source) or 0
    wanted = section.train + section.dev + section.test
    if total < wanted:
        raise DataError(
            f"{source} must hold at least msmarco.train + msmarco.dev + msmarco.test = "
            f"{wanted:,} samples, got {total:,}; lower these"
        )
    return total


def _write_triplet(
    writer: DatasetWriter, split: str, example: Example, section: MsmarcoSection, skipped: SkipCounts
) -> None:
    """Write a sample that has negatives, equal texts once."""
    positives = list(dict.fromkeys(example.positives))
    negatives = [text for text in dict.fromkeys(example.negatives) if text not in positives]
    if not negatives:
        skipped.skip("without negatives")
        return
    if split != "test" and section.pairs == "first":
        positives, negatives = positives[:1], negatives[:1]
    stems = _stems(split, len(negatives), section, is_test=split == "test")
    pos, neg = writer.texts(positives), writer.texts(negatives)
    writer.triplet(stems, example.query_id, example.query, positives=pos, negatives=neg)


@dataclass(frozen=True, slots=True)
class _Query:
    """A query with its passages: at least one positive, perhaps no negatives."""

    query_id: str
    text: str
    positives: Passages
    negatives: Passages


class _Folder:
    """The publisher's own files, plain or compressed.

    Faults of all files are collected and told together. Passages stay on disk: only their numbers are kept.
    """

    def __init__(self, folder: Path, section: MsmarcoSection, watch: Watch) -> None:
        self._folder = folder
        self._section = section
        self._watch = watch
        self._faults = FileFaults()

    def write(self, writer: DatasetWriter) -> None:
        """Write all splits that the folder judges, and the passages that their queries name."""
        splits = self._read_queries()
        self._write_passages(writer, chain.from_iterable(splits.values()))
        for split, queries in splits.items():
            is_test, bare = not split.startswith("train"), 0
            for query in queries:
                positives, negatives = list(map(str, query.positives)), list(map(str, query.negatives))
                stems = _stems(split, len(negatives), self._section, is_test=is_test)
                writer.triplet(stems, query.query_id, query.text, positives=positives, negatives=negatives)
                bare += not negatives
            if bare:
                writer.note(
                    f"{split}: {bare:,} of {len(queries):,} queries have no negatives: "
                    "no file beside the judgements lists any"
                )

    def _read_queries(self) -> dict[str, list[_Query]]:
        """Split to its queries."""
        paths = self._tables("qrels.*")
        if not paths:
            raise DataError(
                f"{self._folder} must hold qrels.SPLIT.tsv, got none; check that it "
                "is the folder of MS MARCO's own files"
            )
        splits = {}
        for path in paths:
            split = path.name.removeprefix("qrels.").partition(".tsv")[0]
            # Test queries keep all of their passages in any case.
            first_only = self._section.pairs == "first" and split.startswith("train")
            relevant = self._relevant(path)
            negatives = self._negatives(split, relevant, 1 if first_only else self._section.most_negatives)
            queries = []
            for query_id, text in self._query_texts(split, relevant).items():
                passages = relevant[query_id][:1] if first_only else relevant[query_id]
                queries.append(_Query(query_id, text, passages, negatives.get(query_id, array("Q"))))
            splits[split] = queries
        self._faults.raise_if_any()
        return splits

    def _relevant(self, path: Path) -> dict[str, Passages]:
        """Query id to the numbers of its relevant passages."""
        relevant: dict[str, Passages] = {}
        for location, (query_id, _, passage_id, grade) in self._rows(path, 4):
            with self._faults.collected():
                number, is_relevant = _number(passage_id, location), _number(grade, location) > 0
                if is_relevant:
                    _append_new(number, relevant.setdefault(query_id, array("Q")))
        return relevant

    def _query_texts(self, split: str, relevant: Mapping[str, Passages]) -> dict[str, str]:
        """Texts of the judged queries, in the order of the judgements."""
        path = self._table(f"queries.{split}.tsv")
        texts: dict[str, str] = {}
        for location, (query_id, text) in self._rows(path, 2):
            if query_id in relevant:
                with self._faults.collected():
                    first = texts.setdefault(query_id, text_value(text, "query", location))
                    if first != text:
                        self._faults.add(f'{location}: query id must be unique, got "{query_id}" again')
        missing = [query_id for query_id in relevant if query_id not in texts]
        if not self._faults.count:
            for query_id in missing:
                self._faults.add(
                    f'{path} must hold every query that is judged, got none with the id "{query_id}"'
                )
        return {query_id: texts[query_id] for query_id in relevant if query_id in texts}

    def _negatives(self, split: str, relevant: Mapping[str, Passages], limit: int) -> dict[str, Passages]:
        """The first listed passages of each judged query that are not relevant to it."""
        negatives: dict[str, Passages] = {}
        for location, query_id, passage_id in self._candidates(split):
            if query_id not in relevant:
                continue
            listed = negatives.setdefault(query_id, array("Q"))
            if len(listed) < limit:
                with self._faults.collected():
                    number = _number(passage_id, location)
                    if number not in relevant[query_id]:
                        _append_new(number, listed)
        return negatives

    def _candidates(self, split: str) -> Iterator[tuple[str, str, str]]:
        """Location, query id and passage id of each line of the files that list negatives."""
        # Names such as dev.small fall back on the files of dev.
        for name in dict.fromkeys((split, split.partition(".")[0])):
            ranked = self._tables(f"top1000.{name}", f"top1000.{name}.tsv")
            triples = self._tables(f"qidpidtriples.{name}.*")
            for path in ranked:
                for location, (query_id, passage_id, _, _) in self._rows(path, 4):
                    yield location, query_id, passage_id
            for path in triples:
                for location, (query_id, _, passage_id) in self._rows(path, 3):
                    yield location, query_id, passage_id
            if ranked or triples:
                return

    def _write_passages(self, writer: DatasetWriter, queries: Iterable[_Query]) -> None:
        """Write the passages that queries name, in the collection's order."""
        missing: set[int] = set()
        for query in queries:
            # Numbers, not passages: 8.8 million passages stay on disk.
            missing.update(query.positives, query.negatives)
        named, total = len(missing), 0
        path = self._table("collection.tsv")
        for location, (passage_id, text) in self._rows(path, 2):
            total += 1
            with self._faults.collected():
                number = _number(passage_id, location)
                if number in missing:
                    writer.document(str(number), text_value(text, "passage", location))
                    missing.discard(number)
        if not self._faults.count:  # A passage whose own line is at fault would be reported twice.
            for number in sorted(missing):
                self._faults.add(
                    f'{path} must hold every passage that queries name, got none with the id "{number}"'
                )
        self._faults.raise_if_any()
        writer.note(f"{named:,} of {total:,} passages written: those that a query names")

    def _rows(self, path: Path, width: int) -> Iterator[tuple[str, list[str]]]:
        """Lines of a TSV file of the folder; faults of all files are collected together."""
        return tab_rows(path, width, self._faults, watch=self._watch)

    def _table(self, name: str) -> Path:
        """A file that the folder must have."""
        paths = self._tables(name)
        if not paths:
            raise DataError(
                f"{self._folder} must hold {name} (plain, .gz or .zst), got "
                "none; put it beside the judgements"
            )
        return paths[0]

    def _tables(self, *patterns: str) -> list[Path]:
        """Files whose name matches, plain or compressed; where both exist, the plain one."""
        paths: dict[str, Path] = {}
        for pattern in patterns:
            for compression in _COMPRESSIONS:
                for path in sorted(self._folder.glob(pattern + compression)):
                    if path.is_file():
                        paths.setdefault(path.name.removesuffix(".gz").removesuffix(".zst"), path)
        return list(paths.values())


def _append_new(number: int, passages: Passages) -> None:
    """Add a passage once; lists are short, so that they are searched from end to end."""
    if number not in passages:
        passages.append(number)


def _number(text: str, location: str) -> int:
    """A whole number below 10^18, which fits into 64 bits."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise RowError(
            f"{location} must name a passage and its relevance by whole numbers, got {text or 'nothing'}"
        )
    return int(text)
