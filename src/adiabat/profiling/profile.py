"""Inspect a data set before anything is spent on it: one pass over the rows, and a second for rows that findings quote."""

import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from adiabat.config.dataset_settings import InspectSettings
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import cut
from adiabat.data.table_rows import FileFaults, count_rows
from adiabat.profiling import profile_findings as findings
from adiabat.profiling.counters import SHOWN_CHARACTERS, SHOWN_LOCATIONS, ColumnCounter, RowCounter, Sampling, TextCounter
from adiabat.profiling.pair_counters import NAMES, Listed, PairRows, count_pairs, groups_of, in_corpus
from adiabat.profiling.profile_record import ROLES, Column, ExampleRow, Finding, Groups, Inspection, Lengths, PairCounts
from adiabat.profiling.row_reader import Entry, Judged, Source, Stream, open_source, reread
from adiabat.profiling.text_languages import Identifier, count_languages, installed_identifier
from adiabat.profiling.text_lengths import TokenCounter, lengths, truncation

PROGRESS_ROWS = 1_000
"""Rows between two progress reports."""


def inspect(
    source: str,
    *,
    settings: InspectSettings | None = None,
    tokens: TokenCounter | None = None,
    identifier: tuple[str, Identifier] | None = None,
    watch: Watch = SILENT,
) -> Inspection:
    """Count the rows of a data set, measure its texts, and report its problems.

    Faulty rows and truncated files do not end the inspection: they are findings, beside the counts of the valid rows. Memory grows by about
    32 bytes a text and 28 a row, whatever the length of the texts, and by the number of distinct topics and tags; the queries of a BEIR
    folder are in memory.

    Args:
        tokens: Counts tokens and knows the limits of a model; None measures words and characters alone.
        identifier: Name and function of a language identifier; None takes the installed one, if any.
    """
    settings = settings or InspectSettings()
    if tokens is None and settings.encoder != EncoderSection():
        raise ConfigError("[encoder] has no effect without a model; leave it out, or name a model whose tokenizer counts (--model)")
    start = time.monotonic()
    data = open_source(source, settings.data)
    sampling = Sampling(settings.inspect.examples, settings.inspect.sample, settings.run.seed, tokens)
    documents = _read(data.corpus, sampling, watch) if data.corpus else None
    rows = _read(data.rows, sampling, watch)
    return _summarise(_Counts(data, rows, documents, tokens, identifier or installed_identifier()), source, start)


@dataclass(slots=True)
class _Stream:
    """A stream and its counters; `fault` is the error that ended reading, or that its faulty rows amount to."""

    stream: Stream | Judged
    rows: RowCounter
    kinds: ColumnCounter = field(default_factory=ColumnCounter)
    fault: str = ""

    def columns(self) -> tuple[Column, ...]:
        return self.kinds.columns(self.stream.used) if isinstance(self.stream, Stream) else ()

    def quotes(self, *numbers: list[int]) -> findings.Quotes:
        return findings.Quotes(reread(self.stream, set(chain.from_iterable(numbers))))

    def findings(self) -> Iterator[Finding]:
        """Remarks and faults of the reader, and ids that repeat."""
        noun = "query"
        if isinstance(self.stream, Stream):
            yield from (
                Finding("values of a form of their own", "note", 1, remark) for remark in self.stream.columns.remarks.interpretations()
            )
            noun = "document" if self.stream.layout == "corpus" else noun
        if self.fault:
            yield Finding("unreadable rows", "fault", 1, self.fault)
        repeated, similar = self.rows.ids.repeated().tolist(), self.rows.ids.repeated_but_for_case().tolist()
        quotes = self.quotes(*repeated[:SHOWN_LOCATIONS], *similar[:SHOWN_LOCATIONS])
        yield from findings.id_findings(noun, repeated, similar, quotes)


def _read(stream: Stream | Judged, sampling: Sampling, watch: Watch) -> _Stream:
    """Read a stream to its end, or as far as it can be read."""
    faults, read = FileFaults(), _Stream(stream, RowCounter(sampling))
    total = _size(stream)
    try:
        for entry in stream.entries(faults, read.kinds.add):
            read.rows.add(entry)
            if total and not read.rows.rows % PROGRESS_ROWS:
                watch.progress(f"inspecting {stream.source}", read.rows.rows, total)
        faults.raise_if_any()
    except DataError as fault:
        if not read.rows.rows:
            raise
        read.fault = str(fault)
    return read


def _size(stream: Stream | Judged) -> int | None:
    if isinstance(stream, Judged):
        return len(stream.examples)
    with suppress(DataError):  # Reading reports a damaged file.
        return count_rows(stream.source, split=stream.split)
    return None


@dataclass(frozen=True, slots=True)
class _Counts:
    """All counters of an inspection."""

    source: Source
    rows: _Stream
    documents: _Stream | None
    tokens: TokenCounter | None
    identifier: tuple[str, Identifier] | None

    def texts(self) -> list[TextCounter]:
        """The texts of each role, without documents that examples name by id."""
        texts = dict(self.rows.rows.texts)
        if self.documents is not None:
            texts = {"query": texts["query"], **self.documents.rows.texts}
        return [texts[role] for role in ROLES if role in texts and len(texts[role])]

    def pairs(self) -> tuple[PairCounts | None, PairRows | None]:
        rows = self.rows.rows
        if not sum(rows.positives):
            return None, None
        positives = _listed(rows.of("positive"), rows.positives)
        negatives = _listed(rows.of("negative"), rows.negatives)
        if self.documents is not None:
            corpus = self.documents.rows
            ids, texts = corpus.addresses.hashes(), corpus.of("document").hashes.hashes()
            positives, negatives = in_corpus(positives, ids, texts), in_corpus(negatives, ids, texts)
        return count_pairs(rows.of("query").hashes.hashes(), positives, negatives)

    def examples(self) -> tuple[ExampleRow, ...]:
        entries = self.rows.rows.examples()
        texts = self._document_texts(entries)
        return tuple(
            ExampleRow(
                entry.location,
                tuple((role, cut(texts.get(text, text), limit=SHOWN_CHARACTERS)) for role in ROLES for text in entry.texts.get(role, ())),
            )
            for entry in entries
        )

    def _document_texts(self, entries: list[Entry]) -> dict[str, str]:
        """The first characters of the documents that entries name by id."""
        if self.documents is None:
            return {}
        ids = set(chain.from_iterable((*entry.texts["positive"], *entry.texts["negative"]) for entry in entries))
        texts: dict[str, str] = {}
        with suppress(DataError):  # Reported when the corpus was counted.
            for document in self.documents.stream.entries(FileFaults()):
                if document.address in ids:
                    texts.setdefault(document.address, document.texts["document"][0][: SHOWN_CHARACTERS + 1])
                    if len(texts) == len(ids):
                        break
        return texts


def _listed(texts: TextCounter, per_row: "array[int]") -> Listed:
    return Listed(texts.hashes.hashes(), np.array(per_row, dtype=np.int64), np.zeros(len(texts), dtype=np.bool_))


def _summarise(counts: _Counts, source: str, start: float) -> Inspection:
    pairs, pair_rows = counts.pairs()
    texts = counts.texts()
    columns = counts.rows.columns()
    groups: tuple[Groups, ...] = ()
    if pair_rows is not None:
        read = frozenset(column.used_as for column in columns).intersection(NAMES)
        groups = tuple(groups_of(read, counts.rows.rows.topics, counts.rows.rows.tags, pair_rows.distinct_pairs))
    truncations = tuple(
        truncation(counter.role, sample.counts(), sample.counter.limit(sample.side), texts=len(counter))
        for counter in texts
        if (sample := counter.tokens) is not None
    )

    def problems() -> Iterator[Finding]:
        for stream in filter(None, (counts.rows, counts.documents)):
            yield from stream.findings()
        if pairs is not None and pair_rows is not None:
            quoted = (pair_rows.missing, pair_rows.negatives_that_answer, pair_rows.own_answer)
            quotes = counts.rows.quotes(*(numbers[:SHOWN_LOCATIONS] for numbers in quoted))
            yield from findings.pair_findings(pairs, pair_rows, quotes)
        yield from findings.text_findings(texts, are_ids=counts.documents is not None)
        yield from findings.column_findings(columns, counts.rows.kinds)
        data = counts.rows.stream
        yield from findings.group_findings(groups, data.columns.mapping if isinstance(data, Stream) else ())
        yield from findings.truncation_findings(truncations)

    return Inspection(
        source=source,
        name=counts.source.name,
        layout=counts.source.layout,
        rows=counts.rows.rows.rows,
        model=counts.tokens.name if counts.tokens else None,
        texts=tuple(counter.counts() for counter in texts),
        pairs=pairs,
        lengths=tuple(_lengths(texts)),
        truncation=truncations,
        languages=tuple(
            count_languages(counter.role, counter.prefixes.items, texts=len(counter), identifier=counts.identifier, known=counter.languages)
            for counter in texts
        ),
        groups=groups,
        columns=columns,
        findings=findings.by_severity(problems()),
        examples=counts.examples(),
        seconds=round(time.monotonic() - start, 3),
    )


def _lengths(texts: list[TextCounter]) -> Iterator[Lengths]:
    for counter in texts:
        if counter.tokens is not None:
            yield lengths(counter.role, "tokens", counter.tokens.counts(), texts=len(counter))
        yield lengths(counter.role, "words", counter.words, texts=len(counter))
        yield lengths(counter.role, "characters", counter.characters, texts=len(counter))
