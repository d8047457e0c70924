"""An inspection as tables, bars and sentences for a terminal."""

from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE, SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from adiabat.core.text import DASH, counted, cut, integer
from adiabat.profiling.profile_record import (
    PLURALS,
    Column,
    ExampleRow,
    Groups,
    Inspection,
    Languages,
    Lengths,
    NamedGroup,
    PairCounts,
    Severity,
    TextCounts,
)
from adiabat.profiling.text_lengths import percent, share_of
from adiabat.report.power_section import assumption, finding

Cell = str | Text
Cells = Sequence[Cell]
"""One row of a table."""

BAR_LENGTH = 32
"""Characters of the longest bar."""

MAX_LANGUAGES = 12
"""Languages or scripts listed for one role."""

MAX_VALUES = 8
"""Values listed for one column."""

MAX_TAGS = 3
"""Tags listed for one topic."""

NAME_LENGTH = 24
"""Characters of a topic or tag."""

SHOWN_PERCENTS = (5, 50, 95, 99, 100)
"""Quantiles in the table: as many as fit 80 columns."""

_EIGHTHS = (
    " \N{LEFT ONE EIGHTH BLOCK}\N{LEFT ONE QUARTER BLOCK}\N{LEFT THREE EIGHTHS BLOCK}\N{LEFT HALF BLOCK}"
)
_EIGHTHS += "\N{LEFT FIVE EIGHTHS BLOCK}\N{LEFT THREE QUARTERS BLOCK}\N{LEFT SEVEN EIGHTHS BLOCK}"
"""Bars of 0 to 7 eighths of a character."""

_STYLES: dict[Severity, str] = {"fault": "bold red", "warning": "yellow", "note": "dim"}


def inspection_panel(inspection: Inspection) -> Group:
    """All of an inspection, for a terminal of 80 columns or more.

    Texts of the data are shown as they are: square brackets in them are not markup.
    """
    return Group(*_blocks(inspection))


def _blocks(inspection: Inspection) -> Iterator[RenderableType]:
    """The parts of the panel that an inspection has, from rows to findings."""
    noun = {"corpus": "document", "BEIR folder": "query"}.get(inspection.layout, "row")
    seconds = f"{inspection.seconds:.1f} s" if inspection.seconds >= 0.1 else "less than 0.1 s"
    name, size = cut(inspection.name, limit=80), counted(inspection.rows, noun)
    yield Text(f"{name}: {size} ({inspection.layout}), inspected in {seconds}\n", style="bold")
    yield _texts_table(inspection.texts)
    if inspection.pairs is not None:
        yield _pairs_table(inspection.pairs)
    yield _lengths_table(inspection.lengths)
    unit = "words" if inspection.model is None else "tokens"
    # Bars of words have no limit: without a model there is none.
    limits = {truncation.role: truncation.limit for truncation in inspection.truncation}
    for lengths in inspection.lengths:
        if lengths.unit == unit:
            yield _histogram(lengths, limits.get(lengths.role))
    if inspection.truncation:
        yield _truncation_table(inspection)
    yield _languages_table(inspection.languages)
    if inspection.groups:
        yield _groups_table(inspection.groups)
        # Tags are listed with their topics, if there are topics.
        largest = [groups for groups in inspection.groups if groups.groups]
        yield from map(_largest_table, largest[:1])
    if unread := [column for column in inspection.columns if not column.used_as]:
        yield _columns_table(unread)
    if inspection.examples:
        yield _examples_table(inspection.examples)
    if inspection.power is not None:
        yield Text(f"power of {finding(inspection.power)} {assumption(inspection.power)}\n")
    for found in inspection.findings:
        yield Text.assemble((f"{found.severity}: ", _STYLES[found.severity]), found.sentence)


def _texts_table(texts: Iterable[TextCounts]) -> Table:
    """Number of texts of each role, and of distinct ones."""
    rows: list[Cells] = []
    for counts in texts:
        repeated = share_of(counts.texts - counts.distinct, counts.texts)
        numbers = map(integer, (counts.texts, counts.distinct, counts.distinct_folded))
        rows.append([PLURALS[counts.role], *numbers, repeated])
    return _table("texts", ["texts", "distinct", "but for case, width, space", "repeated"], rows)


def _pairs_table(pairs: PairCounts) -> Table:
    """Number of pairs, and how often queries and documents repeat."""
    counts = [
        ("pairs", pairs.pairs, ""),
        ("distinct pairs", pairs.distinct_pairs, share_of(pairs.distinct_pairs, pairs.pairs)),
        ("share of unique documents", None, percent(pairs.unique_documents)),
        ("documents in one pair only", pairs.documents_once, ""),
        (
            "pairs of the most repeated document",
            pairs.most_repeated,
            share_of(pairs.most_repeated, pairs.pairs),
        ),
        ("rows that repeat an earlier row's query", pairs.queries_asked_again, ""),
        ("queries with several documents", pairs.queries_with_several, ""),
        ("texts that are query and document", pairs.on_both_sides, ""),
        ("negatives", pairs.negatives, ""),
    ]
    if pairs.negatives:
        answering = pairs.negatives_that_answer
        counts += [
            ("rows without negatives", pairs.rows_without_negatives, ""),
            ("negatives that answer", answering, share_of(answering, pairs.negatives)),
        ]
    rows = [(name, "" if count is None else integer(count), share) for name, count, share in counts]
    return _table("pairs of a query and its document", ["", ""], rows)


def _lengths_table(all_lengths: Sequence[Lengths]) -> Table:
    """Mean and quantiles of lengths, by role and unit."""
    heads = [{50: "median", 100: "most"}.get(share, f"{share} %") for share in SHOWN_PERCENTS]
    rows: list[Cells] = []
    for lengths in all_lengths:
        name = f"{PLURALS[lengths.role]}, {lengths.unit}{_sample_size(lengths)}"
        quantiles = dict(lengths.quantiles)
        shown = [integer(quantiles[share]) for share in SHOWN_PERCENTS]
        rows.append([name, f"{lengths.mean:,.1f}", *shown])
    return _table("lengths", ["mean", *heads], rows)


def _histogram(lengths: Lengths, limit: int | None) -> Table:
    """Bars of a histogram; those beyond the model's limit, wholly or partly, are marked."""
    rows: list[Cells] = []
    highest = max(texts for _, _, texts in lengths.histogram)
    for shortest, longest, texts in lengths.histogram:
        # A bar of one length has no dash.
        name = integer(longest) if shortest == longest else f"{integer(shortest)}{DASH}{integer(longest)}"
        # Blocks of an eighth make bars eight times as fine as characters.
        full, eighths = divmod(round(texts / highest * BAR_LENGTH * 8), 8)
        bar = Text("\N{FULL BLOCK}" * full + _EIGHTHS[eighths].strip())
        mark = ""
        if limit is not None and longest > limit:
            bar.style = "red"
            mark = f"  beyond {limit}" if shortest > limit else f"  partly beyond {limit}"
        bar.append(f" {share_of(texts, lengths.measured)}{mark if texts else ''}", style="")
        rows.append([Text(name, justify="right"), integer(texts), bar])
    table = _table(f"{PLURALS[lengths.role]} by {lengths.unit}", ["", ""], rows)
    table.columns[2].justify = "left"
    return table


def _truncation_table(inspection: Inspection) -> Table:
    """How many texts a model truncates, with the interval where they were drawn."""
    rows: list[Cells] = []
    for truncation in inspection.truncation:
        share = percent(truncation.share)
        if truncation.interval:
            low, high = map(percent, truncation.interval)
            share += f" [{low}, {high}]"
        texts = f"{integer(truncation.cut)} of {integer(truncation.measured)}"
        name, lost = PLURALS[truncation.role], percent(truncation.tokens_lost)
        rows.append([name, integer(truncation.limit), texts, Text(share), lost])
    title = f"truncation by {cut(inspection.model or '', limit=60)}"
    return _table(title, ["limit", "texts cut", "share", "tokens lost"], rows)


def _languages_table(all_languages: Sequence[Languages]) -> Table:
    """Languages and scripts of each role, the most frequent first."""
    title = "scripts (languages need the extra adiabat[languages])"
    rows: list[Cells] = []
    for languages in all_languages:
        role = PLURALS[languages.role]
        if languages.identified_by:
            title = f"languages, identified by {languages.identified_by}"
            # Languages that the data names are known of all texts, others of a sample.
            total, sample = languages.measured, _sample_size(languages)
            if languages.identified_by == "the data":
                total, sample = languages.texts, ""
            shown = list(languages.languages[:MAX_LANGUAGES])
            if languages.unsure:
                shown.append(("too short or ambiguous", languages.unsure))
            more = len(languages.languages) - MAX_LANGUAGES
            rows.append([f"{role}{sample}", Text(_shares(shown, total, more=more))])
        scripts, more = languages.scripts[:MAX_LANGUAGES], len(languages.scripts) - MAX_LANGUAGES
        rows.append([f"{role}, scripts", Text(_shares(scripts, languages.measured, more=more))])
    table = _table(title, [""], rows)
    table.columns[1].justify = "left"
    return table


def _groups_table(kinds: Sequence[Groups]) -> Table:
    """How pairs are spread; a column for topics, one for tags."""
    rows: list[Cells] = []
    for cells in zip(*map(_group_cells, kinds), strict=True):
        values = [value for _, value in cells]
        if any(values):
            rows.append([cells[0][0], *values])
    title = f"pairs by {' and '.join(groups.kind for groups in kinds)}"
    return _table(title, [f"{groups.kind}s" for groups in kinds], rows)


def _group_cells(groups: Groups) -> Iterator[tuple[str, str]]:
    """The name of each row, and its cell for topics or tags."""
    yield "distinct", integer(groups.groups)
    names = integer(groups.names) if groups.names < groups.groups else ""
    yield "distinct names, over all topics", names
    yield "pairs without one", _count_and_share(groups.without, groups.pairs)
    largest = smallest = DASH
    if groups.smallest is not None:
        largest = _count_and_share(groups.largest[0].pairs, groups.pairs)
        smallest = integer(groups.smallest.pairs)
    yield "pairs of the largest", largest
    yield "pairs of the smallest", smallest
    for small in groups.small:
        yield f"smaller than a batch of {small.batch_size}", integer(small.groups)
        yield "  pairs of these", _count_and_share(small.pairs, groups.pairs)


def _largest_table(groups: Groups) -> Table:
    """The largest groups and the smallest; of topics with their tags."""
    has_tags = any(group.tag_count for group in groups.largest)

    def cells(group: NamedGroup) -> list[Cell]:
        """The row of a group."""
        name, share = Text(cut(group.name, limit=NAME_LENGTH)), share_of(group.pairs, groups.pairs)
        row: list[Cell] = [name, integer(group.pairs), share]
        if has_tags:
            more = group.tag_count - min(len(group.tags), MAX_TAGS)
            shares = _shares(group.tags[:MAX_TAGS], group.pairs, more=more)
            row += [integer(group.tag_count), Text(shares)]
        return row

    rows = [cells(group) for group in groups.largest]
    # Between the largest and the smallest.
    more = groups.groups - len(groups.largest)
    if groups.smallest is not None and more:
        rows += [[f"and {more:,} more, the smallest:"], cells(groups.smallest)]
    heads = ["pairs", "share", "tags"] if has_tags else ["pairs", "share"]
    return _table(f"largest {groups.kind}s", heads, rows, last="largest of its tags" if has_tags else "")


def _columns_table(columns: Sequence[Column]) -> Table:
    """Columns that are not read, with their kinds and most frequent values: one of them may be a topic or a
    tag.
    """
    rows: list[Cells] = []
    for column in columns:
        kinds = ", ".join(kind for kind, _ in column.kinds)
        values = column.values or ()
        shares = _shares(values[:MAX_VALUES], column.rows, more=len(values) - MAX_VALUES)
        rows.append([Text(cut(column.name, limit=40)), integer(column.rows), kinds, Text(shares)])
    return _table("ignored columns", ["rows", "kinds"], rows, last="values")


def _examples_table(examples: Sequence[ExampleRow]) -> Table:
    """A few rows, with the first four of their texts."""
    title = counted(len(examples), "row") + ", drawn at random"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in examples:
        table.add_row("", Text(cut(row.location, limit=200), style="dim"))
        # A query, its positive and two negatives, say; rows may list hundreds.
        for role, text in row.texts[:4]:
            table.add_row(role, Text(cut(text, limit=160)))
    return table


def _table(title: str, heads: Sequence[str], rows: Iterable[Cells], *, last: str = "") -> Table:
    """A table with a column of names, columns of numbers, and perhaps a `last` one of long texts."""
    table = Table(
        title=Text(title, no_wrap=True),
        title_justify="left",
        box=SIMPLE_HEAD if any(heads) else SIMPLE,
        pad_edge=False,
        collapse_padding=True,
        show_header=any(heads),
    )
    table.add_column("")
    for head in heads:
        table.add_column(head, justify="right")
    if last:
        table.add_column(last, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _shares(counts: Iterable[tuple[str, int]], total: int, *, more: int) -> str:
    """Names with their shares, and how many more there are."""
    shares = [f"{cut(name, limit=40)} {share_of(count, total)}" for name, count in counts]
    if more > 0:
        shares.append(f"and {more:,} more")
    return ", ".join(shares)


def _count_and_share(count: int, total: int) -> str:
    """A count, and its share of a total."""
    return f"{integer(count)} ({share_of(count, total)})"


def _sample_size(texts: Lengths | Languages) -> str:
    """The size of the sample, "" if all texts were measured."""
    return f" ({integer(texts.measured)} drawn)" if texts.measured < texts.texts else ""
