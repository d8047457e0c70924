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
)
from adiabat.profiling.text_lengths import percent, share_of
from adiabat.report.power_section import assumption, finding

BAR_LENGTH = 32
"""Characters of the longest bar."""

MAX_LANGUAGES = 12
MAX_VALUES = 8
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
_STYLES: dict[Severity, str] = {"fault": "bold red", "warning": "yellow", "note": "dim"}


def inspection_panel(inspection: Inspection) -> Group:
    """All of an inspection, for a terminal of 80 columns or more.

    Texts of the data are shown as they are: square brackets in them are not markup.
    """
    return Group(*_blocks(inspection))


def _blocks(inspection: Inspection) -> Iterator[RenderableType]:
    noun = {"corpus": "document", "BEIR folder": "query"}.get(inspection.layout, "row")
    seconds = f"{inspection.seconds:.1f} s" if inspection.seconds >= 0.1 else "less than 0.1 s"
    size = counted(inspection.rows, noun)
    yield Text(
        f"{cut(inspection.name, limit=80)}: {size} ({inspection.layout}), inspected in {seconds}\n",
        style="bold",
    )
    texts = _table("texts", ["texts", "distinct", "but for case, width, space", "repeated"])
    for counts in inspection.texts:
        repeated = share_of(counts.texts - counts.distinct, counts.texts)
        texts.add_row(
            PLURALS[counts.role],
            *map(integer, (counts.texts, counts.distinct, counts.distinct_folded)),
            repeated,
        )
    yield texts
    if inspection.pairs is not None:
        yield _pairs_table(inspection.pairs)
    yield _lengths_table(inspection.lengths)
    unit = "words" if inspection.model is None else "tokens"
    limits = {truncation.role: truncation.limit for truncation in inspection.truncation}
    yield from (
        _histogram(lengths, limits.get(lengths.role))
        for lengths in inspection.lengths
        if lengths.unit == unit
    )
    if inspection.truncation:
        yield _truncation_table(inspection)
    yield _languages_table(inspection.languages)
    if inspection.groups:
        yield _groups_table(inspection.groups)
        # Tags are listed with their topics, if there are topics.
        yield from map(_largest_table, [groups for groups in inspection.groups if groups.groups][:1])
    if unread := [column for column in inspection.columns if not column.used_as]:
        yield _columns_table(unread)
    if inspection.examples:
        yield _examples_table(inspection.examples)
    if inspection.power is not None:
        yield Text(f"power of {finding(inspection.power)} {assumption(inspection.power)}\n")
    for found in inspection.findings:
        yield Text.assemble((f"{found.severity}: ", _STYLES[found.severity]), found.sentence)


def _pairs_table(pairs: PairCounts) -> Table:
    table = _table("pairs of a query and its document", ["", ""])
    table.add_row("pairs", integer(pairs.pairs), "")
    table.add_row(
        "distinct pairs", integer(pairs.distinct_pairs), share_of(pairs.distinct_pairs, pairs.pairs)
    )
    table.add_row("share of unique documents", "", percent(pairs.unique_documents))
    table.add_row("documents in one pair only", integer(pairs.documents_once), "")
    table.add_row(
        "pairs of the most repeated document",
        integer(pairs.most_repeated),
        share_of(pairs.most_repeated, pairs.pairs),
    )
    table.add_row("rows that repeat an earlier row's query", integer(pairs.queries_asked_again), "")
    table.add_row("queries with several documents", integer(pairs.queries_with_several), "")
    table.add_row("texts that are query and document", integer(pairs.on_both_sides), "")
    table.add_row("negatives", integer(pairs.negatives), "")
    if pairs.negatives:
        table.add_row("rows without negatives", integer(pairs.rows_without_negatives), "")
        answering = pairs.negatives_that_answer
        table.add_row("negatives that answer", integer(answering), share_of(answering, pairs.negatives))
    return table


def _lengths_table(all_lengths: Sequence[Lengths]) -> Table:
    heads = ({50: "median", 100: "most"}.get(percentage, f"{percentage} %") for percentage in SHOWN_PERCENTS)
    table = _table("lengths", ["mean", *heads])
    for lengths in all_lengths:
        name = f"{PLURALS[lengths.role]}, {lengths.unit}{_sample_size(lengths.measured, lengths.texts)}"
        quantiles = dict(lengths.quantiles)
        table.add_row(
            name, f"{lengths.mean:,.1f}", *(integer(quantiles[percentage]) for percentage in SHOWN_PERCENTS)
        )
    return table


def _histogram(lengths: Lengths, limit: int | None) -> Table:
    """Bars of a histogram; those beyond the model's limit, wholly or partly, are marked."""
    table = _table(f"{PLURALS[lengths.role]} by {lengths.unit}", ["", ""])
    highest = max(texts for _, _, texts in lengths.histogram)
    for shortest, longest, texts in lengths.histogram:
        name = integer(longest) if shortest == longest else f"{integer(shortest)}{DASH}{integer(longest)}"
        is_beyond = limit is not None and longest > limit
        full, eighths = divmod(round(texts / highest * BAR_LENGTH * 8), 8)
        bar = Text(
            "\N{FULL BLOCK}" * full + (_EIGHTHS[eighths] if eighths else ""), style="red" if is_beyond else ""
        )
        mark = (
            f"  {'' if shortest > (limit or 0) else 'partly '}beyond {limit}" if is_beyond and texts else ""
        )
        bar.append(f" {share_of(texts, lengths.measured)}{mark}", style="")
        table.add_row(Text(name, justify="right"), integer(texts), bar)
    table.columns[2].justify = "left"
    return table


def _truncation_table(inspection: Inspection) -> Table:
    table = _table(
        f"truncation by {cut(inspection.model or '', limit=60)}",
        ["limit", "texts cut", "share", "tokens lost"],
    )
    for truncation in inspection.truncation:
        low_high = truncation.interval
        interval = f" [{percent(low_high[0])}, {percent(low_high[1])}]" if low_high else ""
        texts = f"{integer(truncation.cut)} of {integer(truncation.measured)}"
        share, lost = Text(percent(truncation.share) + interval), percent(truncation.tokens_lost)
        table.add_row(PLURALS[truncation.role], integer(truncation.limit), texts, share, lost)
    return table


def _languages_table(all_languages: Sequence[Languages]) -> Table:
    identifier = next(
        (languages.identified_by for languages in all_languages if languages.identified_by), None
    )
    title = (
        f"languages, identified by {identifier}"
        if identifier
        else "scripts (languages need the extra adiabat[languages])"
    )
    table = _table(title, [""])
    table.columns[1].justify = "left"
    for languages in all_languages:
        role = PLURALS[languages.role]
        if languages.identified_by:
            total = languages.texts if languages.identified_by == "the data" else languages.measured
            sample = "" if total == languages.texts else _sample_size(languages.measured, languages.texts)
            unsure = [("too short or ambiguous", languages.unsure)] if languages.unsure else []
            shares = _shares(
                [*languages.languages[:MAX_LANGUAGES], *unsure],
                total,
                more=len(languages.languages) - MAX_LANGUAGES,
            )
            table.add_row(f"{role}{sample}", Text(shares))
        scripts = languages.scripts
        shares = _shares(scripts[:MAX_LANGUAGES], languages.measured, more=len(scripts) - MAX_LANGUAGES)
        table.add_row(f"{role}, scripts", Text(shares))
    return table


def _groups_table(kinds: Sequence[Groups]) -> Table:
    """How pairs are spread; a column for topics, one for tags."""
    table = _table(
        f"pairs by {' and '.join(groups.kind for groups in kinds)}", [f"{groups.kind}s" for groups in kinds]
    )
    table.add_row("distinct", *(integer(groups.groups) for groups in kinds))
    if any(groups.names < groups.groups for groups in kinds):
        names = (integer(groups.names) if groups.names < groups.groups else "" for groups in kinds)
        table.add_row("distinct names, over all topics", *names)
    table.add_row("pairs without one", *(_count_and_share(groups.without, groups.pairs) for groups in kinds))
    largest = (
        _count_and_share(groups.largest[0].pairs, groups.pairs) if groups.largest else DASH
        for groups in kinds
    )
    table.add_row("pairs of the largest", *largest)
    table.add_row(
        "pairs of the smallest",
        *(integer(groups.smallest.pairs) if groups.smallest else DASH for groups in kinds),
    )
    for index, small in enumerate(kinds[0].small):
        table.add_row(
            f"smaller than a batch of {small.batch_size}",
            *(integer(groups.small[index].groups) for groups in kinds),
        )
        table.add_row(
            "  pairs of these",
            *(_count_and_share(groups.small[index].pairs, groups.pairs) for groups in kinds),
        )
    return table


def _largest_table(groups: Groups) -> Table:
    """The largest groups and the smallest; of topics with their tags."""
    has_tags = any(group.tag_count for group in groups.largest)
    table = _table(f"largest {groups.kind}s", ["pairs", "share", *(["tags"] if has_tags else [])])
    if has_tags:
        table.add_column("largest of its tags", overflow="fold")

    def add(group: NamedGroup) -> None:
        shares = _shares(
            group.tags[:MAX_TAGS], group.pairs, more=group.tag_count - min(len(group.tags), MAX_TAGS)
        )
        tags: list[str | Text] = [integer(group.tag_count), Text(shares)] if has_tags else []
        table.add_row(
            Text(cut(group.name, limit=NAME_LENGTH)),
            integer(group.pairs),
            share_of(group.pairs, groups.pairs),
            *tags,
        )

    for group in groups.largest:
        add(group)
    if groups.smallest is not None and (more := groups.groups - len(groups.largest)):
        table.add_row(f"and {more:,} more, the smallest:")
        add(groups.smallest)
    return table


def _columns_table(columns: Sequence[Column]) -> Table:
    table = _table("ignored columns", ["rows", "kinds"])
    table.add_column("values", overflow="fold")
    for column in columns:
        kinds = ", ".join(kind for kind, _ in column.kinds)
        values = column.values or ()
        shares = _shares(values[:MAX_VALUES], column.rows, more=len(values) - MAX_VALUES)
        table.add_row(Text(cut(column.name, limit=40)), integer(column.rows), kinds, Text(shares))
    return table


def _examples_table(examples: Sequence[ExampleRow]) -> Table:
    title = counted(len(examples), "row") + ", drawn at random"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in examples:
        table.add_row("", Text(cut(row.location, limit=200), style="dim"))
        for role, text in row.texts[:4]:
            table.add_row(role, Text(cut(text, limit=160)))
    return table


def _table(title: str, columns: Iterable[str]) -> Table:
    """A table with a column of names and columns of numbers."""
    heads = list(columns)
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
    return table


def _shares(counts: Iterable[tuple[str, int]], total: int, *, more: int) -> str:
    shares = [f"{cut(name, limit=40)} {share_of(count, total)}" for name, count in counts]
    return ", ".join([*shares, f"and {more:,} more"] if more > 0 else shares)


def _count_and_share(count: int, total: int) -> str:
    return f"{integer(count)} ({share_of(count, total)})"


def _sample_size(measured: int, texts: int) -> str:
    return f" ({integer(measured)} drawn)" if measured < texts else ""
