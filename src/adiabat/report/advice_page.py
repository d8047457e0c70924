"""The page of an advice: the recommendation with its reason, and the figures behind it."""

from collections.abc import Callable
from operator import itemgetter

from adiabat.core.text import NO_BREAK, counted, integer, share, verb
from adiabat.report.format import named, percent
from adiabat.report.measure_terms import measures_section
from adiabat.report.pages import Group, Page, Terms, Tone, notes_section
from adiabat.report.tables import LEVEL, PAIRED, Cell, Column, Table, pair_cell, value_cell, verdict_cell
from adiabat.results.advice_result import Advice, AdvisedSet, Choice
from adiabat.results.evaluation_result import Change

_Row = tuple[str, Change]

_TONES: dict[Choice, Tone] = {"tune the query tower": "good", "fuse with BM25": "good"}

_MEANINGS = {
    "untuned": "the model as it is",
    "BM25": "words in common, without a model",
    "fused with BM25": "reciprocal-rank fusion of both, constant 60, 100 documents of each",
    "linear map": "a matrix on the query vectors, fitted on other queries and documents",
}

_TERMS = [
    (
        "Linear map",
        "The smallest thing that can be tuned: one matrix for all query vectors, fitted by a softmax over stored documents from the "
        "identity. Queries are divided into five parts, so that those with a common relevant document stay together; each part is ranked "
        "by the map of the four others. Tuning the whole tower has more freedom than this map.",
    ),
    (
        "Intervals and verdicts",
        f"As in adiabat evaluate: paired 95{NO_BREAK}% intervals over queries, each ranking against the untuned model.",
    ),
    (
        "What the set could show",
        f"The smallest improvement that a comparison on all queries would detect with 80{NO_BREAK}% probability, if its differences "
        "from the untuned model vary as much as those of the linear map, or as those of earlier tunings if the map stays at the identity.",
    ),
    ("Headroom", "Tuning and reranking can lift answers that are found too low. Answers beyond the first 100 need a better model first."),
]


def page(result: Advice) -> Page:
    """The page of an advice."""
    target = result.target
    return Page(
        record=result,
        name="advise",
        headline=headline(result),
        tone=_TONES.get(result.choice, "plain"),
        reservations=reservations(result),
        about=[("model", result.model), ("data", target.name), ("queries", _measured(target)), ("documents", integer(target.documents))],
        sections=[
            Group(id="figures", title="What was tried", sections=[_target(result), measures_section([result.target.untuned.measure])]),
            _headroom(result),
            _retention(result),
            Group(id="reading", title="Reading", sections=[notes_section("Notes", [("", result.notes)], everyone=""), Terms(terms=_TERMS)]),
        ],
        facts=[
            ("groups of queries that share no document with another group", integer(result.clusters)),
            ("pull of the linear map", "" if result.pull is None else f"{result.pull:g}"),
        ],
    )


def exports(result: Advice) -> dict[str, Callable[[], str]]:
    """The figures beside the page, unrounded."""
    rows = [
        {"data": entry.name, "role": entry.role, "ranking": name, "measure": change.measure, "value": change.after}
        | {"improvement": change.improvement, "verdict": change.verdict or "", "queries": entry.measured}
        for entry in result.datasets
        for name, change in entry.changes.items()
    ]
    return {"table.csv": Table(columns=[Column(name, itemgetter(name)) for name in rows[0]], rows=rows).to_csv}


def terminal(result: Advice) -> list[Table]:
    """The figures, with the recommendation below them."""
    retained = _retained_table(result)
    table = _target(result)
    captions = [_headroom_sentence(result.target), *reservations(result), headline(result)]
    columns = [Column("ranking", itemgetter(0), "name"), *table.columns[1:]]
    tables = [Table(title=result.title, columns=columns, rows=table.rows, caption=[] if retained else captions)]
    return (
        tables
        if retained is None
        else [*tables, Table(title="retention sets under the linear map", columns=retained.columns, rows=retained.rows, caption=captions)]
    )


def notes(result: Advice) -> list[str]:
    """Sentences that limit what the table proves."""
    return list(result.notes)


def headline(result: Advice) -> str:
    """The recommendation and its reason."""
    return f"Recommendation: {result.choice}. {result.reason}"


def reservations(result: Advice) -> list[str]:
    """The power of the set, the time of tuning, and what the map does to retention sets."""
    target = result.target
    sentences = []
    if result.detectable is not None:
        sentences.append(
            f"Used as a test set, the {counted(target.queries, 'query')} would show an improvement of {target.untuned.measure} by "
            f"{result.detectable:.1f}{NO_BREAK}% or more with 80{NO_BREAK}% probability, if differences vary as with {result.spread}."
        )
    if result.tuning:
        sentences.append(f"adiabat tune with its default settings, {result.tuning}.")
    if worse := [named(entry.name) for entry in result.datasets[1:] if entry.mapped is not None and entry.mapped.verdict == "worse"]:
        caution = "keep the default rehearsal, and evaluate with retention sets"
        sentences.append(f"The linear map makes {' and '.join(worse)} worse: {caution}.")
    if target.measured < target.queries:
        sentences.append(f"Measured on {_measured(target)}, drawn at random.")
    return sentences


def _measured(entry: AdvisedSet) -> str:
    return (
        counted(entry.queries, "query")
        if entry.measured == entry.queries
        else f"{integer(entry.measured)} of {counted(entry.queries, 'query')}"
    )


def _columns(measure: str) -> list[Column]:
    return [
        Column(measure, lambda row: value_cell(row[1].after, row[1].after_interval), "number", LEVEL),
        Column("change", lambda row: "" if row[1].before is None else pair_cell(percent(row[1]), row[1].improvement), "number", PAIRED),
        Column("verdict", lambda row: verdict_cell(row[1].verdict)),
    ]


def _target(result: Advice) -> Table:
    def name(row: _Row) -> Cell:
        return Cell(row[0], [_MEANINGS[row[0]]], bold=True)

    rows: list[_Row] = list(result.target.changes.items())
    return Table(columns=[Column("ranking", name, "name"), *_columns(result.target.untuned.measure)], rows=rows, look="stack")


def _headroom(result: Advice) -> Group:
    room = result.target.headroom
    rows = [("among the first 10", room.top), ("from 11 to 100", room.near), ("not among the first 100", room.beyond)]
    columns = [
        Column("first answer of the untuned model", itemgetter(0), "name"),
        Column("queries", lambda row: integer(row[1]), "number"),
        Column("share", lambda row: share(row[1] / room.total), "number"),
    ]
    return Group(id="headroom", title="Headroom", lead=_headroom_sentence(result.target), sections=[Table(columns=columns, rows=rows)])


def _headroom_sentence(target: AdvisedSet) -> str:
    room = target.headroom
    top, near, beyond = (f"{integer(count)} {verb(count, 'has', 'have')}" for count in (room.top, room.near, room.beyond))
    return (
        f"Of {counted(room.total, 'query')}, {top} an answer among the first 10 documents, {near} the first one from rank 11 to 100, "
        f"and {beyond} none among the first 100."
    )


def _retained_table(result: Advice) -> Table | None:
    rows: list[_Row] = [(entry.name, entry.mapped or entry.untuned) for entry in result.datasets[1:]]
    if not rows:
        return None
    columns = [Column("retention set", lambda row: Cell(row[0], bold=True), "name"), *_columns(result.target.untuned.measure)]
    return Table(columns=columns, rows=rows, look="stack")


def _retention(result: Advice) -> Group | None:
    table = _retained_table(result)
    lead = "The map of all measured target queries, applied to the queries of each retention set."
    return None if table is None else Group(id="retention", title="Retention sets under the linear map", lead=lead, sections=[table])
