"""Profile a data set: one pass over the rows, and a second one for rows that findings quote."""

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from adiabat.config.dataset_settings import InspectSettings
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import counted, cut
from adiabat.core.wording import option
from adiabat.data.table_rows import FileFaults, count_rows
from adiabat.profiling.counters import (
    SHOWN_CHARACTERS,
    SHOWN_LOCATIONS,
    ColumnCounter,
    Listed,
    PairRows,
    RowCounter,
    Sampling,
    TextCounter,
    count_pairs,
    groups_of,
    in_corpus,
)
from adiabat.profiling.profile_record import (
    NAMES,
    PLURALS,
    ROLES,
    Column,
    ExampleRow,
    Finding,
    Groups,
    Inspection,
    Lengths,
    PairCounts,
    Role,
    Severity,
    Truncation,
)
from adiabat.profiling.row_reader import Entry, Stream, open_source, reread
from adiabat.profiling.text_lengths import (
    Identifier,
    TokenCounter,
    count_languages,
    installed_identifier,
    lengths,
    percent,
    truncation,
)

QUOTED = 60
"""Characters of a quoted text."""

FEW_UNIQUE = 0.5
"""Share of unique documents below which batches often hold equal documents: in Moiseev et al. 2023, 0.17 did
harm and 0.98 did not."""

_ONE_OR_SEVERAL = frozenset(("a string", "a list"))
_SEVERITIES: tuple[Severity, ...] = ("fault", "warning", "note")


Rows = Mapping[int, Entry]
"""Rows that findings quote, by their number."""


def _first_queries(rows: Rows, numbers: Sequence[int]) -> str:
    """The first few of some rows, by location and query."""
    phrases = []
    for number in numbers[:SHOWN_LOCATIONS]:
        entry = rows[number]
        phrases.append(f'{entry.location} "{cut(entry.texts["query"][0], limit=QUOTED)}"')
    return _and_more(phrases, len(numbers))


def _address(entry: Entry) -> str:
    """A row by id and location."""
    return f'"{cut(entry.address, limit=QUOTED)}" at {entry.location}'


def id_findings(
    noun: str, repeated: list[list[int]], similar: list[list[int]], rows: Rows
) -> Iterator[Finding]:
    """Ids that repeat, exactly or but for case, as (first row, later row)."""
    fold = "check that they are two ids, since tools that fold case read them as one"
    rules: list[tuple[str, Severity, list[list[int]], str, str]] = [
        ("repeated ids", "fault", repeated, "must be unique", "give each its own"),
        ("ids alike but for case", "warning", similar, "should differ in more than case", fold),
    ]
    for kind, severity, alike, rule, advice in rules:
        phrases = []
        for first, later in alike[:SHOWN_LOCATIONS]:
            phrases.append(f"{_address(rows[first])} and {_address(rows[later])}")
        if phrases:
            sentence = f"{noun} ids {rule}, got {_and_more(phrases, len(alike))}; {advice}"
            yield Finding(kind, severity, len(alike), sentence)


def pair_findings(pairs: PairCounts, found: PairRows, rows: Rows) -> Iterator[Finding]:
    """Pairs that disturb a loss with in-batch or listed negatives."""
    if count := pairs.missing_documents:
        queries, total = _first_queries(rows, found.missing), pairs.pairs + pairs.negatives
        problem = (
            f"documents that examples name must be in the corpus, {count:,} of {total:,} entries are not"
        )
        sentence = f"{problem}: {queries}; name the corpus that holds them all"
        yield Finding("missing documents", "fault", count, sentence)
    if count := pairs.negatives_that_answer:
        queries = _first_queries(rows, found.negatives_that_answer)
        problem = f"negatives must not be positives of the same query, {count:,} of {pairs.negatives:,} are"
        advice = "training leaves these out, but others may be wrong too: check how they were chosen"
        yield Finding("negatives that answer", "warning", count, f"{problem}: {queries}; {advice}")
    if count := pairs.own_answer:
        queries = _first_queries(rows, found.own_answer)
        problem = f"documents should differ from their query, {count:,} of {pairs.pairs:,} are the same text"
        yield Finding("documents that are their query", "warning", count, f"{problem}: {queries}; drop them")
    if pairs.unique_documents < FEW_UNIQUE:
        # Pairs whose document another pair has already.
        repeated = pairs.pairs - round(pairs.unique_documents * pairs.pairs)
        sentence = (
            f"{percent(pairs.unique_documents)} of the documents are unique, so batches hold equal ones: "
            "keep train.loss.mask_duplicates on, and SamToNe to the query side (train.loss.same_tower): at "
            "17 %, Moiseev et al. 2023 found it harmful on the document side"
        )
        yield Finding("few unique documents", "note", repeated, sentence)


def text_findings(texts: Sequence[TextCounter], *, are_ids: bool) -> Iterator[Finding]:
    """Mis-decoded texts, and texts that look like ids; `are_ids` tells that documents are ids of a corpus."""
    for counter in texts:
        if count := counter.misread.count:
            total, where = counted(len(counter), counter.role), counter.misread.told("texts")
            sentence = (
                f"{count:,} of {total} hold characters that look mis-decoded, such as Ã© or U+FFFD: {where}; "
                "decode the original again"
            )
            yield Finding("mis-decoded texts", "warning", count, sentence)
        if counter.role == "positive" and counter.are_single_words and not are_ids:
            sentence = (
                "all positives are single words: if they are ids, name the corpus that holds their texts "
                "(data.corpus); if they are labels, name the column that holds the documents "
                "(data.columns.positive)"
            )
            yield Finding("documents of one word", "note", len(counter), sentence)


def column_findings(columns: Sequence[Column], counter: ColumnCounter) -> Iterator[Finding]:
    """Columns of several kinds, and columns with one value."""
    # Rows of the file: no column has more.
    rows = max((column.rows for column in columns), default=0)
    for column in columns:
        kinds = {kind: count for kind, count in column.kinds if kind != "null"}
        if len(kinds) > 1 or "a list of several kinds" in kinds:
            listed = []
            for kind, count in kinds.items():
                first = counter.first_location(column.name, kind)
                listed.append(f"{kind} in {counted(count, 'row')} (first {first})")
            # One text and a list of texts are read the same way.
            is_harmless = not column.used_as or _ONE_OR_SEVERAL.issuperset(kinds)
            sentence = (
                f'column "{column.name}" should hold one kind of value, got {", ".join(listed)}; '
                "check the rows of the rarer kind"
            )
            # Rows of all kinds but the most frequent one.
            rarer = sum(kinds.values()) - max(kinds.values())
            yield Finding("mixed kinds", "note" if is_harmless else "warning", rarer, sentence)
        values = column.values or ()
        if len(values) == 1 and not column.used_as and values[0][1] == rows > 1:
            sentence = (
                f'column "{column.name}" holds "{cut(values[0][0], limit=QUOTED)}" in every row: '
                "as a tag it separates nothing"
            )
            yield Finding("one value for all", "note", rows, sentence)


def group_findings(all_groups: Sequence[Groups], mapped: Container[str]) -> Iterator[Finding]:
    """Topics and tags that batches cannot be grouped by; `mapped` holds those that the settings name."""
    for groups in all_groups:
        kind, is_mapped = groups.kind, groups.kind in mapped
        batches = f'with batches.group = "{kind}"'
        if groups.pairs > 1 and groups.names + bool(groups.without) == 1:
            value = f'"{cut(groups.largest[0].name, limit=QUOTED)}"' if groups.names else "none"
            sentence = (
                f"pairs must be of several {kind}s to be trained {batches}, got {value} for all "
                f"{groups.pairs:,}; name another column (data.columns.{kind}), or leave batches.group out"
            )
            yield Finding("one value for all", "fault" if is_mapped else "warning", groups.pairs, sentence)
            continue
        if groups.without:
            sentence = (
                f"{groups.without:,} of {groups.pairs:,} pairs have no {kind}: {batches} they share batches, "
                f"as if of one {kind}; name theirs"
            )
            severity: Severity = "warning" if is_mapped else "note"
            yield Finding(f"pairs without a {kind}", severity, groups.without, sentence)
        small = groups.small[0]
        # Smaller groups fill up batches; where all are small, no batch is of one group.
        if small.groups == groups.groups and is_mapped:
            sentence = (
                f"no {kind} has the {small.batch_size} pairs of a batch, so that {batches} all batches are "
                "mixed; lower train.batch_size"
            )
            yield Finding(f"small {kind}s", "warning", small.pairs, sentence)


def truncation_findings(truncations: Sequence[Truncation]) -> Iterator[Finding]:
    """Texts that a model truncates, one finding for each role that has some."""
    for of_role in truncations:
        if of_role.cut:
            share, lost = percent(of_role.share), percent(of_role.tokens_lost)
            sentence = (
                f"{share} of {PLURALS[of_role.role]} are longer than {of_role.limit} tokens, which cuts off "
                f"{lost} of all their tokens; raise encoder.max_tokens, or split them"
            )
            yield Finding("texts that are cut", "note", of_role.cut, sentence)


def _and_more(phrases: Sequence[str], count: int) -> str:
    """Phrases, and how many more there are than these."""
    more = f"; and {count - len(phrases):,} more" if count > len(phrases) else ""
    return f"{'; '.join(phrases)}{more}"


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

    Faulty rows and truncated files do not end the inspection: they are findings, beside the counts of the
    valid rows. Memory grows by about 32 bytes a text and 28 a row, whatever the length of the texts, and by
    the number of distinct topics and tags; the queries of a BEIR folder are in memory.

    Args:
        tokens: Counts tokens and knows the limits of a model; None measures words and characters alone.
        identifier: Name and function of a language identifier; None takes the installed one, if any.
    """
    settings = settings or InspectSettings()
    if tokens is None and settings.encoder != EncoderSection():
        raise ConfigError(
            "[encoder] has no effect without a model; leave it out, or name one "
            f"whose tokenizer counts ({option('model')})"
        )
    start = time.monotonic()
    name, stream, corpus = open_source(source, settings.data)
    sampling = Sampling(settings.inspect.examples, settings.inspect.sample, settings.run.seed, tokens)
    # The corpus comes first: its ids decide which documents of the examples are missing.
    documents = _read(corpus, sampling, watch) if corpus else None
    read = _read(stream, sampling, watch)
    pairs, pair_rows = _count_pairs(read.rows, documents)
    # Documents that examples name by id count in the corpus.
    counters = (
        read.rows.texts if documents is None else {"query": read.rows.texts["query"], **documents.rows.texts}
    )
    texts = [counters[role] for role in ROLES if role in counters and len(counters[role])]
    columns = read.kinds.columns(stream.used)
    groups = () if pair_rows is None else _groups(columns, read.rows, pair_rows)
    truncations = tuple(_truncations(texts))
    identifier = identifier or installed_identifier()

    def problems() -> Iterator[Finding]:
        """All findings, in the order in which rows, texts, columns and groups are judged."""
        for counted_stream in filter(None, (read, documents)):
            yield from counted_stream.findings()
        if pairs is not None and pair_rows is not None:
            quoted = set[int]()
            for numbers in (pair_rows.missing, pair_rows.negatives_that_answer, pair_rows.own_answer):
                quoted.update(numbers[:SHOWN_LOCATIONS])
            yield from pair_findings(pairs, pair_rows, reread(read.stream, quoted))
        yield from text_findings(texts, are_ids=documents is not None)
        yield from column_findings(columns, read.kinds)
        yield from group_findings(groups, stream.columns.mapping)
        yield from truncation_findings(truncations)

    return Inspection(
        source=source,
        name=name,
        layout=stream.layout,
        rows=read.rows.rows,
        model=tokens.name if tokens else None,
        texts=tuple(counter.counts() for counter in texts),
        pairs=pairs,
        lengths=tuple(_lengths(texts)),
        truncation=truncations,
        languages=tuple(
            count_languages(
                counter.role,
                counter.prefixes.items,
                texts=len(counter),
                identifier=identifier,
                known=counter.languages,
            )
            for counter in texts
        ),
        groups=groups,
        columns=columns,
        findings=tuple(sorted(problems(), key=lambda finding: _SEVERITIES.index(finding.severity))),
        examples=_examples(read.rows.examples(), documents),
        seconds=round(time.monotonic() - start, 3),
    )


@dataclass(slots=True)
class _Stream:
    """A stream and its counters; `fault` is the error that ended reading, or that its faulty rows amount
    to.
    """

    stream: Stream
    rows: RowCounter
    kinds: ColumnCounter = field(default_factory=ColumnCounter)
    fault: str = ""

    def findings(self) -> Iterator[Finding]:
        """Remarks and faults of the reader, and ids that repeat."""
        for remark in self.stream.columns.remarks.interpretations():
            yield Finding("values in an unusual form", "note", 1, remark)
        if self.fault:
            yield Finding("unreadable rows", "fault", 1, self.fault)
        repeated, similar = self.rows.ids.repeated().tolist(), self.rows.ids.repeated_but_for_case().tolist()
        alike = repeated[:SHOWN_LOCATIONS] + similar[:SHOWN_LOCATIONS]
        rows = reread(self.stream, set(chain.from_iterable(alike)))
        noun = "document" if self.stream.layout == "corpus" else "query"
        yield from id_findings(noun, repeated, similar, rows)


def _read(stream: Stream, sampling: Sampling, watch: Watch) -> _Stream:
    """Read a stream to its end, or as far as it can be read.

    Progress is told as a share where the rows can be counted first without reading them.
    """
    faults, read = FileFaults(), _Stream(stream, RowCounter(sampling))
    total = len(stream.judged or ()) or None
    if stream.judged is None:
        with suppress(DataError):  # Reading reports a damaged file.
            total = count_rows(stream.source, split=stream.split, whole=stream.whole)
    try:
        for entry in stream.entries(faults, read.kinds.add):
            read.rows.add(entry)
            if total and not read.rows.rows % PROGRESS_ROWS:
                watch.progress(f"inspecting {stream.source}", read.rows.rows, total)
        faults.raise_if_any()
    except DataError as fault:
        # A file of which no row can be read is an error of the call, not a finding.
        if not read.rows.rows:
            raise
        read.fault = str(fault)
    return read


def _count_pairs(rows: RowCounter, documents: _Stream | None) -> tuple[PairCounts | None, PairRows | None]:
    """Count pairs, whose documents are ids of a corpus if there is one; None without positives.

    Ids are replaced by the texts of the corpus first, so that two ids of one text are one document.
    """
    if not sum(rows.positives):
        return None, None
    sides = []
    for texts, per_row in ((rows.of("positive"), rows.positives), (rows.of("negative"), rows.negatives)):
        listed = Listed(
            texts.hashes.hashes(), np.array(per_row, dtype=np.int64), np.zeros(len(texts), dtype=np.bool_)
        )
        if documents is not None:
            corpus = documents.rows
            listed = in_corpus(listed, corpus.addresses.hashes(), corpus.of("document").hashes.hashes())
        sides.append(listed)
    return count_pairs(rows.of("query").hashes.hashes(), *sides)


def _groups(columns: Sequence[Column], rows: RowCounter, pair_rows: PairRows) -> tuple[Groups, ...]:
    """Topics and tags, where the data has columns for them."""
    kinds = frozenset(column.used_as for column in columns).intersection(NAMES)
    return tuple(groups_of(kinds, rows.topics, rows.tags, pair_rows.distinct_pairs))


def _examples(entries: list[Entry], documents: _Stream | None) -> tuple[ExampleRow, ...]:
    """Rows to look at, with the first characters of the documents that they name by id."""
    texts: dict[str, str] = {}
    if documents is not None:
        missing: set[str] = set()
        for entry in entries:
            missing.update(entry.texts["positive"], entry.texts["negative"])
        with suppress(DataError):  # Reported when the corpus was counted.
            for document in documents.stream.entries(FileFaults()):
                if document.address in missing:
                    texts[document.address] = document.texts["document"][0][: SHOWN_CHARACTERS + 1]
                    missing.discard(document.address)
                    if not missing:
                        break
    rows = []
    for entry in entries:
        shown: list[tuple[Role, str]] = []
        # The query first, then what answers it.
        for role in ROLES:
            for text in entry.texts.get(role, ()):
                shown.append((role, cut(texts.get(text, text), limit=SHOWN_CHARACTERS)))
        rows.append(ExampleRow(entry.location, tuple(shown)))
    return tuple(rows)


def _lengths(texts: list[TextCounter]) -> Iterator[Lengths]:
    """Lengths of the texts of each role, in each unit."""
    for counter in texts:
        role, count = counter.role, len(counter)
        if counter.tokens is not None:
            yield lengths(role, "tokens", counter.tokens.counts(), texts=count)
        yield lengths(role, "words", np.array(counter.words), texts=count)
        yield lengths(role, "characters", np.array(counter.characters), texts=count)


def _truncations(texts: list[TextCounter]) -> Iterator[Truncation]:
    """What a model truncates of the texts of each role."""
    for counter in texts:
        if (sample := counter.tokens) is not None:
            limit = sample.counter.limit(sample.side)
            yield truncation(counter.role, sample.counts(), limit, texts=len(counter))
