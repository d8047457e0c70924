"""Problems of a data set, as sentences that name locations and say what to do."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from adiabat.core.text import counted, cut
from adiabat.profiling.counters import SHOWN_LOCATIONS, ColumnCounter, TextCounter
from adiabat.profiling.pair_counters import PairRows
from adiabat.profiling.profile_record import Column, Finding, Groups, PairCounts, Role, Severity, Truncation
from adiabat.profiling.row_reader import Entry
from adiabat.profiling.text_lengths import percent

QUOTED = 60
"""Characters of a quoted text."""

FEW_UNIQUE = 0.5
"""Share of unique documents below which batches often hold equal documents: in Moiseev et al. 2023, 0.17 did harm and 0.98 did not."""

PLURALS: Mapping[Role, str] = {"query": "queries", "positive": "positives", "negative": "negatives", "document": "documents"}

_ONE_OR_SEVERAL = frozenset(("a string", "a list"))
_SEVERITIES: tuple[Severity, ...] = ("fault", "warning", "note")


@dataclass(frozen=True, slots=True)
class Quotes:
    """Rows by number, for quoting them."""

    rows: Mapping[int, Entry]

    def first_queries(self, numbers: Sequence[int]) -> str:
        """The first few of some rows, by location and query."""
        entries = [self.rows[number] for number in numbers[:SHOWN_LOCATIONS]]
        return _and_more([f'{entry.location} "{cut(entry.texts["query"][0], limit=QUOTED)}"' for entry in entries], len(numbers))

    def address(self, number: int) -> str:
        """A row by id and location."""
        entry = self.rows[number]
        return f'"{cut(entry.address, limit=QUOTED)}" at {entry.location}'


def by_severity(findings: Iterator[Finding]) -> tuple[Finding, ...]:
    """Sort findings, faults first."""
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)))


def id_findings(noun: str, repeated: list[list[int]], similar: list[list[int]], quotes: Quotes) -> Iterator[Finding]:
    """Ids that repeat, exactly or but for case, as (first row, later row)."""
    if repeated:
        phrases = [f"{quotes.address(row)} again, first at {quotes.rows[first].location}" for first, row in repeated[:SHOWN_LOCATIONS]]
        sentence = f"{noun} ids must be unique, got {_and_more(phrases, len(repeated))}; give each its own"
        yield Finding("repeated ids", "fault", len(repeated), sentence)
    if similar:
        phrases = [f"{quotes.address(first)} and {quotes.address(row)}" for first, row in similar[:SHOWN_LOCATIONS]]
        advice = "check that they are two ids, since tools that fold case read them as one"
        sentence = f"{noun} ids should differ in more than case, got {_and_more(phrases, len(similar))}; {advice}"
        yield Finding("ids alike but for case", "warning", len(similar), sentence)


def pair_findings(pairs: PairCounts, rows: PairRows, quotes: Quotes) -> Iterator[Finding]:
    """Pairs that disturb a loss with in-batch or listed negatives."""
    if count := pairs.missing_documents:
        problem = f"documents that examples name must be in the corpus, {count:,} of {pairs.pairs + pairs.negatives:,} entries are not"
        sentence = f"{problem}: {quotes.first_queries(rows.missing)}; name the corpus that holds them all"
        yield Finding("missing documents", "fault", count, sentence)
    if count := pairs.negatives_that_answer:
        problem = f"negatives must not be positives of the same query, {count:,} of {pairs.negatives:,} are"
        advice = "training leaves these out, but others may be wrong too: check how they were chosen"
        sentence = f"{problem}: {quotes.first_queries(rows.negatives_that_answer)}; {advice}"
        yield Finding("negatives that answer", "warning", count, sentence)
    if count := pairs.own_answer:
        problem = f"documents should say more than their query, {count:,} of {pairs.pairs:,} are the same text"
        sentence = f"{problem}: {quotes.first_queries(rows.own_answer)}; drop them"
        yield Finding("documents that are their query", "warning", count, sentence)
    if pairs.unique_documents < FEW_UNIQUE:
        sentence = (
            f"{percent(pairs.unique_documents)} of the documents are unique, so batches hold equal ones: keep train.loss.mask_duplicates "
            "on, and SamToNe to the query side (train.loss.same_tower): at 17 %, Moiseev et al. 2023 found that it harms on the document "
            "side"
        )
        yield Finding("few unique documents", "note", pairs.pairs - round(pairs.unique_documents * pairs.pairs), sentence)


def text_findings(texts: Sequence[TextCounter], *, are_ids: bool) -> Iterator[Finding]:
    """Mis-decoded texts, and texts that look like ids; `are_ids` tells that documents are ids of a corpus."""
    for counter in texts:
        if count := counter.misread:
            problem = f"{count:,} of {counted(len(counter), counter.role)} hold characters that look mis-decoded, such as Ã© or U+FFFD"
            sentence = f"{problem}: {_and_more(counter.misread_locations, count)}; decode the original again"
            yield Finding("mis-decoded texts", "warning", count, sentence)
        if counter.role == "positive" and counter.are_single_words and not are_ids:
            sentence = (
                "all positives are single words: if they are ids, name the corpus that holds their texts (data.corpus); "
                "if they are labels, name the column that holds the documents (data.columns.positive)"
            )
            yield Finding("documents of one word", "note", len(counter), sentence)


def column_findings(columns: Sequence[Column], counter: ColumnCounter) -> Iterator[Finding]:
    """Columns of several kinds, and columns with one value."""
    rows = max((column.rows for column in columns), default=0)
    for column in columns:
        kinds = {kind: count for kind, count in column.kinds if kind != "null"}
        if len(kinds) > 1 or "a list of several kinds" in kinds:
            listed = ", ".join(
                f"{kind} in {counted(count, 'row')} (first {counter.first_location(column.name, kind)})" for kind, count in kinds.items()
            )
            # One text and a list of texts are read the same way.
            severity: Severity = "warning" if column.used_as and not _ONE_OR_SEVERAL.issuperset(kinds) else "note"
            sentence = f'column "{column.name}" should hold one kind of value, got {listed}; check the rows of the rarer kind'
            yield Finding("mixed kinds", severity, sum(kinds.values()) - max(kinds.values()), sentence)
        if column.values is not None and len(column.values) == 1 and not column.used_as and column.values[0][1] == rows > 1:
            sentence = (
                f'column "{column.name}" holds "{cut(column.values[0][0], limit=QUOTED)}" in every row: as a tag it separates nothing'
            )
            yield Finding("one value for all", "note", rows, sentence)


def group_findings(all_groups: Sequence[Groups], mapped: Container[str]) -> Iterator[Finding]:
    """Topics and tags that batches cannot be grouped by; `mapped` holds those that the settings name."""
    for groups in all_groups:
        kind, batches = groups.kind, f'with batches.group = "{groups.kind}"'
        if groups.pairs > 1 and groups.names + bool(groups.without) == 1:
            value = f'"{cut(groups.largest[0].name, limit=QUOTED)}"' if groups.names else "none"
            advice = f"name another column (data.columns.{kind}), or leave batches.group out"
            sentence = f"pairs must be of several {kind}s to be trained {batches}, got {value} for all {groups.pairs:,}; {advice}"
            yield Finding("one value for all", "fault" if kind in mapped else "warning", groups.pairs, sentence)
            continue
        if groups.without:
            problem = f"{groups.without:,} of {groups.pairs:,} pairs have no {kind}: {batches} they share batches, as if of one {kind}"
            severity: Severity = "warning" if kind in mapped else "note"
            yield Finding(f"pairs without a {kind}", severity, groups.without, f"{problem}; name theirs")
        small = groups.small[0]
        if small.groups == groups.groups and kind in mapped:
            problem = f"no {kind} has the {small.batch_size} pairs of a batch, so that {batches} all batches are mixed"
            yield Finding(f"small {kind}s", "warning", small.pairs, f"{problem}; lower train.batch_size")


def truncation_findings(truncations: Sequence[Truncation]) -> Iterator[Finding]:
    """Texts that a model truncates."""
    for truncation in truncations:
        if truncation.cut:
            problem = f"{percent(truncation.share)} of {PLURALS[truncation.role]} are longer than {truncation.limit} tokens"
            lost = f"which cuts off {percent(truncation.tokens_lost)} of all their tokens"
            sentence = f"{problem}, {lost}; raise encoder.max_tokens, or split them"
            yield Finding("texts that are cut", "note", truncation.cut, sentence)


def _and_more(phrases: Sequence[str], count: int) -> str:
    more = f"; and {count - len(phrases):,} more" if count > len(phrases) else ""
    return f"{'; '.join(phrases)}{more}"
