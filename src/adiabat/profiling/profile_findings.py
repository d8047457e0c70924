"""What the owner of a data set should know about it, in sentences that name places and say what to do."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from adiabat.core.text import counted, cut
from adiabat.profiling.counters import SHOWN_PLACES, ColumnTally, TextTally
from adiabat.profiling.pair_counters import PairRows
from adiabat.profiling.profile_record import Column, Finding, Groups, PairCounts, Role, Severity, Truncation
from adiabat.profiling.row_reader import Entry
from adiabat.profiling.text_lengths import percent

QUOTED = 60
"""Characters of a text that a sentence quotes."""

FEW_UNIQUE = 0.5
"""Share of unique documents below which batches meet equal documents often; Moiseev et al. 2023 has 0.17 where it harmed and 0.98 where
not."""

PLURALS: Mapping[Role, str] = {"query": "queries", "positive": "positives", "negative": "negatives", "document": "documents"}

_ONE_OR_SEVERAL = frozenset(("a string", "a list"))
_SEVERITIES: tuple[Severity, ...] = ("fault", "warning", "note")


@dataclass(frozen=True, slots=True)
class Quotes:
    """Rows that were read again to be quoted.

    Attributes:
        rows: Number to row.
    """

    rows: Mapping[int, Entry]

    def query(self, number: int) -> str:
        """A row by its place and its query."""
        entry = self.rows[number]
        return f'{entry.place} "{cut(entry.texts["query"][0], limit=QUOTED)}"'

    def first(self, numbers: Sequence[int]) -> str:
        """The first few of some rows."""
        return _and_more([self.query(number) for number in numbers[:SHOWN_PLACES]], len(numbers))

    def address(self, number: int) -> str:
        """A row by its id and its place."""
        entry = self.rows[number]
        return f'"{cut(entry.address, limit=QUOTED)}" at {entry.place}'


def in_order(findings: Iterator[Finding]) -> tuple[Finding, ...]:
    """Sort findings."""
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)))


def id_findings(noun: str, repeated: list[list[int]], alike: list[list[int]], quotes: Quotes) -> Iterator[Finding]:
    """Ids that are not unique, or hardly."""
    if repeated:
        phrases = [f"{quotes.address(row)} again, first at {quotes.rows[first].place}" for first, row in repeated[:SHOWN_PLACES]]
        told = _and_more(phrases, len(repeated))
        yield Finding("repeated ids", "fault", len(repeated), f"{noun} ids must be unique, got {told}; give each its own")
    if alike:
        phrases = [f"{quotes.address(first)} and {quotes.address(row)}" for first, row in alike[:SHOWN_PLACES]]
        told = _and_more(phrases, len(alike))
        advice = "check that they are meant to be two, for tools that fold case would take them for one"
        yield Finding("ids alike but for case", "warning", len(alike), f"{noun} ids should differ in more than case, got {told}; {advice}")


def pair_findings(pairs: PairCounts, rows: PairRows, quotes: Quotes) -> Iterator[Finding]:
    """What pairs do to a loss with in-batch or listed negatives."""
    if count := pairs.missing_documents:
        said = f"documents that examples name must be in the corpus, {count:,} of {pairs.pairs + pairs.negatives:,} entries are not"
        yield Finding("missing documents", "fault", count, f"{said}: {quotes.first(rows.missing)}; name the corpus that holds them all")
    if count := pairs.negatives_that_answer:
        said = f"negatives must not be positives of the same query, {count:,} of {pairs.negatives:,} are"
        advice = "training leaves these out, but others may be wrong too: see how they were chosen"
        yield Finding("negatives that answer", "warning", count, f"{said}: {quotes.first(rows.negatives_that_answer)}; {advice}")
    if count := pairs.own_answer:
        said = f"documents should say more than their query, {count:,} of {pairs.pairs:,} are the same text"
        yield Finding("documents that are their query", "warning", count, f"{said}: {quotes.first(rows.own_answer)}; drop them")
    if pairs.unique_documents < FEW_UNIQUE:
        said = (
            f"{percent(pairs.unique_documents)} of the documents are unique, so batches hold equal ones: keep train.mask_duplicates on, "
            "and SamToNe to the query side (train.same_tower): at 17 % Moiseev et al. 2023 found it to harm on the document side"
        )
        yield Finding("few unique documents", "note", pairs.pairs - round(pairs.unique_documents * pairs.pairs), said)


def text_findings(texts: Sequence[TextTally], *, ids_expected: bool) -> Iterator[Finding]:
    """What is wrong with the texts themselves."""
    for tally in texts:
        if tally.misread:
            said = f"{tally.misread:,} of {counted(len(tally), tally.role)} hold characters that look mis-decoded, such as Ã© or U+FFFD"
            where = _and_more(tally.misread_places, tally.misread)
            yield Finding("mis-decoded texts", "warning", tally.misread, f"{said}: {where}; decode the original again")
        if tally.role == "positive" and tally.bare and not ids_expected:
            said = "positives are single words without exception: if they are ids, name the corpus that holds their texts (data.corpus)"
            advice = "if they are labels, name the column that holds the documents (data.columns.positive)"
            yield Finding("documents of one word", "note", len(tally), f"{said}; {advice}")


def column_findings(columns: Sequence[Column], tally: ColumnTally) -> Iterator[Finding]:
    """Columns of several kinds, and tags that tell nothing apart."""
    rows = max((column.rows for column in columns), default=0)
    for column in columns:
        kinds = {kind: count for kind, count in column.kinds if kind != "null"}
        if len(kinds) > 1 or "a list of several kinds" in kinds:
            places = [(kind, counted(count, "row"), tally.first_place(column.name, kind)) for kind, count in kinds.items()]
            told = ", ".join(f"{kind} in {number} (first {place})" for kind, number, place in places)
            # One text, or a list of them, are read alike.
            severity: Severity = "warning" if column.used_as and not _ONE_OR_SEVERAL.issuperset(kinds) else "note"
            said = f'column "{column.name}" should hold one kind of value, got {told}; check the rows of the rarer kind'
            yield Finding("mixed kinds", severity, sum(kinds.values()) - max(kinds.values()), said)
        if column.values is not None and len(column.values) == 1 and not column.used_as and column.values[0][1] == rows > 1:
            said = f'column "{column.name}" holds "{cut(column.values[0][0], limit=QUOTED)}" in every row: as a tag it tells nothing apart'
            yield Finding("one value for all", "note", rows, said)


def group_findings(groups: Sequence[Groups], given: Container[str]) -> Iterator[Finding]:
    """What batches of one topic or tag would stumble over."""
    for one in groups:
        grouped = f'with batches.group = "{one.kind}"'
        if one.pairs > 1 and one.names + bool(one.without) == 1:
            got = f'"{cut(one.largest[0].name, limit=QUOTED)}"' if one.names else "none"
            advice = f"name another column (data.columns.{one.kind}), or leave batches.group out"
            said = f"pairs must be of several {one.kind}s to be trained {grouped}, got {got} for all {one.pairs:,}; {advice}"
            yield Finding("one value for all", "fault" if one.kind in given else "warning", one.pairs, said)
            continue
        if one.without:
            said = f"{one.without:,} of {one.pairs:,} pairs have no {one.kind}: {grouped} they are batched together, as if of one"
            yield Finding(f"pairs without a {one.kind}", "warning" if one.kind in given else "note", one.without, f"{said}; name theirs")
        usual = one.small[0]
        if usual.groups == one.groups and one.kind in given:
            said = (
                f"no {one.kind} has the {usual.batch_size} pairs of a batch, so that {grouped} every batch is mixed; lower train.batch_size"
            )
            yield Finding(f"small {one.kind}s", "warning", usual.pairs, said)


def cut_findings(truncation: Sequence[Truncation]) -> Iterator[Finding]:
    """What a model will not see."""
    for cuts in truncation:
        if cuts.cut:
            said = f"{percent(cuts.share)} of {PLURALS[cuts.role]} are longer than {cuts.limit} tokens"
            lost = f"which cuts off {percent(cuts.tokens_lost)} of all their tokens"
            yield Finding("texts that are cut", "note", cuts.cut, f"{said}, {lost}; raise encoder.max_tokens, or split them")


def _and_more(phrases: Sequence[str], count: int) -> str:
    """The phrases, and how many there are besides."""
    more = f"; and {count - len(phrases):,} more" if count > len(phrases) else ""
    return f"{'; '.join(phrases)}{more}"
