"""An inspection as people read it in a terminal: tables, bars of text, sentences."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from rich.box import SIMPLE, SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from adiabat.inspection.findings import PLURALS
from adiabat.inspection.reading import NAMES
from adiabat.inspection.records import (
    Column,
    Finding,
    Inspection,
    Languages,
    Lengths,
    PairCounts,
    Severity,
    ShownRow,
    TextCounts,
    Truncation,
)
from adiabat.inspection.shares import percent, share_of
from adiabat.report.wording import DASH, counted, cut, integer

BAR_LENGTH = 32
"""Characters of the longest bar."""

MOST_LANGUAGES = 12
MOST_TAGS = 8
"""Listed; the rest is summed up."""

SHOWN_QUANTILES = (5, 50, 95, 99, 100)
"""Percent; of those that are kept, as many as fit 80 columns."""

_EIGHTHS = " \N{LEFT ONE EIGHTH BLOCK}\N{LEFT ONE QUARTER BLOCK}\N{LEFT THREE EIGHTHS BLOCK}\N{LEFT HALF BLOCK}"
_EIGHTHS += "\N{LEFT FIVE EIGHTHS BLOCK}\N{LEFT THREE QUARTERS BLOCK}\N{LEFT SEVEN EIGHTHS BLOCK}"
_STYLES: dict[Severity, str] = {"fault": "bold red", "warning": "yellow", "note": "dim"}


def inspection_panel(found: Inspection) -> Group:
    """Everything that was found, for a terminal of 80 columns or more.

    Texts of the data are shown as they are: square brackets in them are no styling.

    Args:
        found: The inspection.

    Returns:
        What to print.
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
    if spare := [column for column in found.columns if column.used_as in ("", *NAMES)]:
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


def _columns_table(columns: Sequence[Column]) -> Table:
    table = _table("topics, tags, and columns that are not read", ["rows", "kinds"])
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
