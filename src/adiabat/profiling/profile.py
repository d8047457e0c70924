"""Look at a data set before anything is spent on it: one pass over the rows, and a second for what is quoted."""

import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from adiabat.config.dataset_settings import InspectSettings
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import cut
from adiabat.data.table_rows import FileFaults, count_rows
from adiabat.profiling import profile_findings as find
from adiabat.profiling.counters import SHOWN_CHARACTERS, SHOWN_PLACES, ColumnTally, Drawing, Tally, TextTally
from adiabat.profiling.pair_counters import NAMES, Listed, PairRows, count_pairs, groups_of, in_corpus
from adiabat.profiling.profile_record import (
    ROLES,
    Column,
    Finding,
    Groups,
    Inspection,
    Languages,
    Lengths,
    PairCounts,
    ShownRow,
    Truncation,
)
from adiabat.profiling.row_reader import Entry, Judged, Source, Stream, open_source, recalled
from adiabat.profiling.text_languages import Identifier, installed_identifier, told_languages
from adiabat.profiling.text_lengths import TokenCounter, lengths, truncation

PROGRESS_ROWS = 1_000
"""Between two words about how far it is."""


def inspect(
    source: str,
    *,
    settings: InspectSettings | None = None,
    tokens: TokenCounter | None = None,
    identifier: tuple[str, Identifier] | None = None,
    watch: Watch = SILENT,
) -> Inspection:
    """Count what a data set holds, measure its texts, and find what is wrong with it.

    Rows at fault do not end the inspection: they are counted and told among the findings, beside what the sound rows hold. So is a file
    that is cut short. Memory grows by about 32 bytes a text and 28 a row, whatever the length of the texts, and by the number of different
    topics and tags; the queries of a BEIR folder are held by their reader.

    Args:
        settings: How to read it, and how much to look at; None takes the defaults.
        tokens: Counts tokens, and knows where texts are cut; None measures words and characters alone.
        identifier: Name of, and function for telling languages; None takes the installed one, if there is one.
    """
    settings = settings or InspectSettings()
    if tokens is None and settings.encoder != EncoderSection():
        raise ConfigError("[encoder] has no effect without a model; leave it out, or name a model whose tokenizer counts (--model)")
    began = time.monotonic()
    opened = open_source(source, settings.data)
    drawing = Drawing(settings.inspect.examples, settings.inspect.sample, settings.run.seed, tokens)
    documents = _read(opened.corpus, drawing, watch) if opened.corpus else None
    rows = _read(opened.rows, drawing, watch)
    gathered = _Gathered(opened, rows, documents, tokens, identifier or installed_identifier())
    return replace(gathered.inspection(source), seconds=round(time.monotonic() - began, 3))


@dataclass(slots=True)
class _Rows:
    """What came of reading one stream."""

    stream: Stream | Judged
    tally: Tally
    kinds: ColumnTally
    complaint: str

    def columns(self) -> tuple[Column, ...]:
        return self.kinds.columns(self.stream.used) if isinstance(self.stream, Stream) else ()

    def given(self) -> frozenset[str]:
        """Our names of the columns that the settings name."""
        return frozenset(self.stream.columns.given if isinstance(self.stream, Stream) else ())


def _read(stream: Stream | Judged, drawing: Drawing, watch: Watch) -> _Rows:
    """Read a stream to its end, or as far as it can be read."""
    faults, read = FileFaults(), _Rows(stream, Tally(drawing), ColumnTally(), "")
    total = _size(stream)
    try:
        for entry in stream.entries(faults, read.kinds.add):
            read.tally.add(entry)
            if total and not read.tally.rows % PROGRESS_ROWS:
                watch.progress(f"inspecting {stream.source}", read.tally.rows, total)
        faults.raise_if_any()
    except DataError as fault:
        if not read.tally.rows:
            raise
        read.complaint = str(fault)
    return read


def _size(stream: Stream | Judged) -> int | None:
    if isinstance(stream, Judged):
        return len(stream.examples)
    with suppress(DataError):  # A damaged file is told of where it is read.
        return count_rows(stream.source, split=stream.split)
    return None


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Everything that was counted, to be summed up."""

    source: Source
    rows: _Rows
    documents: _Rows | None
    tokens: TokenCounter | None
    identifier: tuple[str, Identifier] | None

    def inspection(self, source: str) -> Inspection:
        pairs, quoted = self._pairs() if self.rows.tally.positives and sum(self.rows.tally.positives) else (None, None)
        texts = self._texts()
        cuts = tuple(self._truncation(texts))
        columns = self.rows.columns()
        groups = self._groups(quoted, columns)
        return Inspection(
            source=source,
            name=self.source.name,
            layout=self.source.layout,
            rows=self.rows.tally.rows,
            model=self.tokens.name if self.tokens else None,
            texts=tuple(tally.counts() for tally in texts),
            pairs=pairs,
            lengths=tuple(self._lengths(texts)),
            truncation=cuts,
            languages=tuple(self._languages(texts)),
            groups=groups,
            columns=columns,
            findings=find.in_order(self._findings(texts, pairs, quoted, cuts, groups, columns)),
            examples=self._shown(),
            seconds=0.0,
        )

    def _texts(self) -> list[TextTally]:
        """The texts of each role; not those of documents that examples give by ids."""
        found = dict(self.rows.tally.texts)
        if self.documents is not None:
            found = {"query": found["query"], **self.documents.tally.texts}
        return [found[role] for role in ROLES if role in found and len(found[role])]

    def _pairs(self) -> tuple[PairCounts, PairRows]:
        tally = self.rows.tally
        near = _listed(tally.of("positive"), tally.positives)
        far = _listed(tally.of("negative"), tally.negatives)
        if self.documents is not None:
            held = self.documents.tally
            ids, texts = held.addresses.hashes(), held.of("document").hashes.hashes()
            near, far = in_corpus(near, ids, texts), in_corpus(far, ids, texts)
        return count_pairs(tally.of("query").hashes.hashes(), near, far)

    def _groups(self, rows: PairRows | None, columns: tuple[Column, ...]) -> tuple[Groups, ...]:
        if rows is None:
            return ()
        read = frozenset(column.used_as for column in columns).intersection(NAMES)
        return tuple(groups_of(read, self.rows.tally.topics, self.rows.tally.tags, rows.each))

    def _lengths(self, texts: list[TextTally]) -> Iterator[Lengths]:
        for tally in texts:
            if tally.tokens is not None:
                yield lengths(tally.role, "tokens", tally.tokens.counts(), texts=len(tally))
            yield lengths(tally.role, "words", tally.words, texts=len(tally))
            yield lengths(tally.role, "characters", tally.characters, texts=len(tally))

    def _truncation(self, texts: list[TextTally]) -> Iterator[Truncation]:
        for tally in texts:
            if (sample := tally.tokens) is not None:
                yield truncation(tally.role, sample.counts(), sample.counter.limit(sample.side), texts=len(tally))

    def _languages(self, texts: list[TextTally]) -> Iterator[Languages]:
        for tally in texts:
            sample = tally.beginnings.items
            yield told_languages(tally.role, sample, texts=len(tally), identifier=self.identifier, known=tally.languages)

    def _findings(
        self,
        texts: list[TextTally],
        pairs: PairCounts | None,
        quoted: PairRows | None,
        cuts: tuple[Truncation, ...],
        groups: tuple[Groups, ...],
        columns: tuple[Column, ...],
    ) -> Iterator[Finding]:
        for part in filter(None, (self.rows, self.documents)):
            yield from _reading_findings(part)
        if pairs is not None and quoted is not None:
            some = [rows[:SHOWN_PLACES] for rows in (quoted.missing, quoted.negatives_that_answer, quoted.own_answer)]
            yield from find.pair_findings(pairs, quoted, _quotes(self.rows, *some))
        yield from find.text_findings(texts, ids_expected=self.documents is not None)
        yield from find.column_findings(columns, self.rows.kinds)
        yield from find.group_findings(groups, self.rows.given())
        yield from find.cut_findings(cuts)

    def _shown(self) -> tuple[ShownRow, ...]:
        entries = self.rows.tally.shown_entries()
        held = self._texts_of(entries)
        return tuple(
            ShownRow(
                entry.place,
                tuple((role, cut(held.get(text, text), limit=SHOWN_CHARACTERS)) for role in ROLES for text in entry.texts.get(role, ())),
            )
            for entry in entries
        )

    def _texts_of(self, entries: list[Entry]) -> dict[str, str]:
        """The beginnings of the documents that entries name by id."""
        if self.documents is None:
            return {}
        wanted = set(chain.from_iterable((*entry.texts["positive"], *entry.texts["negative"]) for entry in entries))
        found: dict[str, str] = {}
        with suppress(DataError):  # What could not be read to its end was told of.
            for entry in self.documents.stream.entries(FileFaults()):
                if entry.address in wanted:
                    found.setdefault(entry.address, entry.texts["document"][0][: SHOWN_CHARACTERS + 1])
                    if len(found) == len(wanted):
                        break
        return found


def _listed(tally: TextTally, per_row: "array[int]") -> Listed:
    return Listed(tally.hashes.hashes(), np.array(per_row, dtype=np.int64), np.zeros(len(tally), dtype=np.bool_))


def _reading_findings(part: _Rows) -> Iterator[Finding]:
    """What the reader said, and ids."""
    if isinstance(part.stream, Stream):
        yield from (Finding("values of a form of their own", "note", 1, sentence) for sentence in part.stream.columns.remarks.taken())
    if part.complaint:
        yield Finding("unreadable rows", "fault", 1, part.complaint)
    noun = "document" if isinstance(part.stream, Stream) and part.stream.layout == "corpus" else "query"
    repeated, alike = part.tally.ids.repeated().tolist(), part.tally.ids.alike().tolist()
    yield from find.id_findings(noun, repeated, alike, _quotes(part, *repeated[:SHOWN_PLACES], *alike[:SHOWN_PLACES]))


def _quotes(part: _Rows, *numbers: list[int]) -> find.Quotes:
    return find.Quotes(recalled(part.stream, set(chain.from_iterable(numbers))))
