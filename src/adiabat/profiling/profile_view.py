"""An inspection as people read it in a terminal: tables, bars of text, sentences."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from rich.box import SIMPLE, SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from adiabat.core.text import DASH, counted, cut, integer
from adiabat.profiling.profile_findings import PLURALS
from adiabat.profiling.profile_record import (
    Column,
    Finding,
    Groups,
    Inspection,
    Languages,
    Lengths,
    NamedGroup,
    PairCounts,
    Severity,
    ShownRow,
    TextCounts,
    Truncation,
)
from adiabat.profiling.text_lengths import percent, share_of

BAR_LENGTH = 32
"""Characters of the longest bar."""

MOST_LANGUAGES = 12
MOST_TAGS = 8
MOST_INNER = 3
"""Listed, the last of the tags of one topic; the rest is summed up."""

NAME_LENGTH = 24
"""Characters of a topic or tag."""

SHOWN_QUANTILES = (5, 50, 95, 99, 100)
"""Percent; of those that are kept, as many as fit 80 columns."""

_EIGHTHS = " \N{LEFT ONE EIGHTH BLOCK}\N{LEFT ONE QUARTER BLOCK}\N{LEFT THREE EIGHTHS BLOCK}\N{LEFT HALF BLOCK}"
_EIGHTHS += "\N{LEFT FIVE EIGHTHS BLOCK}\N{LEFT THREE QUARTERS BLOCK}\N{LEFT SEVEN EIGHTHS BLOCK}"
_STYLES: dict[Severity, str] = {"fault": "bold red", "warning": "yellow", "note": "dim"}


def inspection_panel(found: Inspection) -> Group:
    """Everything that was found, for a terminal of 80 columns or more.

    Texts of the data are shown as they are: square brackets in them are no styling.
    """
    return Group(*_parts(found))


def _parts(found: Inspection) -> Iterator[RenderableType]:
    seconds = f"{found.seconds:.1f} s" if found.seconds >= 0.1 else "less than 0.1 s"
    yield Text(f"{cut(found.name, limit=80)}: {counted(found.rows, _noun(found))} ({found.layout}), looked at in {seconds}\n", style="bold")
    yield _texts_table(found.texts)
    if found.pairs is not None:
        yield _pairs_table(found.pairs)
    yield _lengths_table(found.lengths)
    yield from _histograms(found)
    if found.truncation:
        yield _truncation_table(found.truncation, found.model or "")
    yield _languages_table(found.languages)
    if found.groups:
        yield _groups_table(found.groups)
        # Tags are listed beside their topics, where there are topics.
        yield from map(_largest_table, [one for one in found.groups if one.groups][:1])
    if spare := [column for column in found.columns if not column.used_as]:
        yield _columns_table(spare)
    if found.examples:
        yield _examples_table(found.examples)
    yield from map(_sentence, found.findings)


def _noun(found: Inspection) -> str:
    return {"corpus": "document", "BEIR folder": "query"}.get(found.layout, "row")


def _texts_table(texts: Sequence[TextCounts]) -> Table:
    table = _table("texts", ["texts", "distinct", "but for case, width, space", "repeated"])
    for counts in texts:
        repeated = share_of(counts.texts - counts.distinct, counts.texts)
        numbers = (integer(counts.texts), integer(counts.distinct), integer(counts.distinct_folded), repeated)
        table.add_row(PLURALS[counts.role], *numbers)
    return table


def _pairs_table(pairs: PairCounts) -> Table:
    table = _table("pairs of a query and its document", ["", ""])
    lines = [
        ("pairs", integer(pairs.pairs), ""),
        ("of them different", integer(pairs.distinct_pairs), share_of(pairs.distinct_pairs, pairs.pairs)),
        ("share of unique documents", "", percent(pairs.unique_documents)),
        ("documents in one pair only", integer(pairs.documents_once), ""),
        ("pairs of the most repeated document", integer(pairs.most_repeated), share_of(pairs.most_repeated, pairs.pairs)),
        ("rows that ask an earlier row's query", integer(pairs.queries_asked_again), ""),
        ("queries with several documents", integer(pairs.queries_with_several), ""),
        ("texts that are query and document", integer(pairs.on_both_sides), ""),
        ("negatives", integer(pairs.negatives), ""),
    ]
    if pairs.negatives:
        lines.append(("rows without negatives", integer(pairs.rows_without_negatives), ""))
        lines.append(
            ("negatives that answer", integer(pairs.negatives_that_answer), share_of(pairs.negatives_that_answer, pairs.negatives))
        )
    for line in lines:
        table.add_row(*line)
    return table


def _lengths_table(lengths: Sequence[Lengths]) -> Table:
    table = _table("lengths", ["mean", *map(_quantile, SHOWN_QUANTILES)])
    for one in lengths:
        name = f"{PLURALS[one.role]}, {one.unit}{_drawn(one.measured, one.texts)}"
        table.add_row(name, f"{one.mean:,.1f}", *(integer(dict(one.quantiles)[quantile]) for quantile in SHOWN_QUANTILES))
    return table


def _histograms(found: Inspection) -> Iterator[Table]:
    unit: Literal["tokens", "words"] = "tokens" if found.model is not None else "words"
    limits = {cuts.role: cuts.limit for cuts in found.truncation}
    for one in found.lengths:
        if one.unit == unit:
            yield _histogram(one, limits.get(one.role))


def _histogram(lengths: Lengths, limit: int | None) -> Table:
    """Bars that lie beyond the limit are marked, and the one that it falls into."""
    table = _table(f"{PLURALS[lengths.role]} by {lengths.unit}", ["", ""])
    most = max(texts for _, _, texts in lengths.histogram)
    for shortest, longest, texts in lengths.histogram:
        name = integer(longest) if shortest == longest else f"{integer(shortest)}{DASH}{integer(longest)}"
        beyond = limit is not None and longest > limit
        bar = Text(_bar(texts / most), style="red" if beyond else "")
        mark = f"  {'' if shortest > (limit or 0) else 'partly '}beyond {limit}" if beyond and texts else ""
        bar.append(f" {share_of(texts, lengths.measured)}{mark}", style="")
        table.add_row(Text(name, justify="right"), integer(texts), bar)
    table.columns[2].justify = "left"
    return table


def _bar(share: float) -> str:
    whole, eighths = divmod(round(share * BAR_LENGTH * 8), 8)
    return "\N{FULL BLOCK}" * whole + (_EIGHTHS[eighths] if eighths else "")


def _truncation_table(truncation: Sequence[Truncation], model: str) -> Table:
    table = _table(f"what {cut(model, limit=60)} cuts off", ["limit", "texts cut", "share", "tokens lost"])
    for one in truncation:
        between = f" [{percent(one.interval[0])}, {percent(one.interval[1])}]" if one.interval else ""
        cut_texts = f"{integer(one.cut)} of {integer(one.measured)}"
        table.add_row(PLURALS[one.role], integer(one.limit), cut_texts, Text(percent(one.share) + between), percent(one.tokens_lost))
    return table


def _languages_table(languages: Sequence[Languages]) -> Table:
    by = next((one.identified_by for one in languages if one.identified_by), None)
    table = _table(f"languages, told by {by}" if by else "scripts (languages are told with the extra adiabat[languages])", [""])
    table.columns[1].justify = "left"
    for one in languages:
        of = one.texts if one.identified_by == "the data" else one.measured
        if one.identified_by:
            unsure = [("too short or ambiguous to tell", one.unsure)] if one.unsure else []
            name = f"{PLURALS[one.role]}{'' if of == one.texts else _drawn(one.measured, one.texts)}"
            table.add_row(name, Text(_listed([*one.languages[:MOST_LANGUAGES], *unsure], of, more=len(one.languages) - MOST_LANGUAGES)))
        table.add_row(
            f"{PLURALS[one.role]}, scripts",
            Text(_listed(one.scripts[:MOST_LANGUAGES], one.measured, more=len(one.scripts) - MOST_LANGUAGES)),
        )
    return table


def _groups_table(groups: Sequence[Groups]) -> Table:
    """How pairs are spread; a column for topics, one for tags."""
    table = _table(f"pairs by {' and '.join(one.kind for one in groups)}", [f"{one.kind}s" for one in groups])
    table.add_row("different ones", *(integer(one.groups) for one in groups))
    if repeated := [one for one in groups if one.names < one.groups]:
        table.add_row("different names, over all topics", *(integer(one.names) if one in repeated else "" for one in groups))
    table.add_row("pairs without one", *(_part(one.without, one.pairs) for one in groups))
    table.add_row("pairs of the largest", *(_part(one.largest[0].pairs, one.pairs) if one.largest else DASH for one in groups))
    table.add_row("pairs of the smallest", *(integer(one.smallest.pairs) if one.smallest else DASH for one in groups))
    for place, small in enumerate(groups[0].small):
        table.add_row(f"smaller than a batch of {small.batch_size}", *(integer(one.small[place].groups) for one in groups))
        table.add_row("  pairs of these", *(_part(one.small[place].pairs, one.pairs) for one in groups))
    return table


def _largest_table(one: Groups) -> Table:
    """The largest groups and the smallest; of topics with their tags."""
    tagged = any(group.tag_count for group in one.largest)
    table = _table(f"largest {one.kind}s", ["pairs", "share", *(["tags"] if tagged else [])])
    if tagged:
        table.add_column("largest of its tags", overflow="fold")
    for group in one.largest:
        _add_group(table, group, one.pairs, tagged=tagged)
    if one.smallest is not None and (more := one.groups - len(one.largest)):
        table.add_row(f"and {more:,} more, the smallest:")
        _add_group(table, one.smallest, one.pairs, tagged=tagged)
    return table


def _add_group(table: Table, group: NamedGroup, pairs: int, *, tagged: bool) -> None:
    tags = _listed(group.tags[:MOST_INNER], group.pairs, more=group.tag_count - min(len(group.tags), MOST_INNER))
    more: list[str | Text] = [integer(group.tag_count), Text(tags)] if tagged else []
    table.add_row(Text(cut(group.name, limit=NAME_LENGTH)), integer(group.pairs), share_of(group.pairs, pairs), *more)


def _part(count: int, of: int) -> str:
    return f"{integer(count)} ({share_of(count, of)})"


def _columns_table(columns: Sequence[Column]) -> Table:
    table = _table("columns that are not read", ["rows", "kinds"])
    table.add_column("values", overflow="fold")
    for column in columns:
        kinds = ", ".join(kind for kind, _ in column.kinds)
        tags = "" if column.values is None else _listed(column.values[:MOST_TAGS], column.rows, more=len(column.values) - MOST_TAGS)
        table.add_row(Text(cut(column.name, limit=40)), integer(column.rows), kinds, Text(tags))
    return table


def _examples_table(examples: Sequence[ShownRow]) -> Table:
    table = Table(
        title=counted(len(examples), "row") + ", drawn at random", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_header=False
    )
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in examples:
        table.add_row("", Text(cut(row.place, limit=200), style="dim"))
        for role, text in row.texts[:4]:
            table.add_row(role, Text(cut(text, limit=160)))
    return table


def _sentence(finding: Finding) -> Text:
    return Text.assemble((f"{finding.severity}: ", _STYLES[finding.severity]), finding.sentence)


def _table(title: str, columns: Iterable[str]) -> Table:
    columns = list(columns)
    headed = any(columns)
    box = SIMPLE_HEAD if headed else SIMPLE
    table = Table(title=Text(title, no_wrap=True), title_justify="left", box=box, pad_edge=False, collapse_padding=True, show_header=headed)
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _listed(counts: Iterable[tuple[str, int]], of: int, *, more: int) -> str:
    rest = [f"and {more:,} more"] if more > 0 else []
    return ", ".join([*(f"{cut(name, limit=40)} {share_of(count, of)}" for name, count in counts), *rest])


def _quantile(quantile: int) -> str:
    return {50: "median", 100: "most"}.get(quantile, f"{quantile} %")


def _drawn(measured: int, texts: int) -> str:
    return f" ({integer(measured)} drawn)" if measured < texts else ""
