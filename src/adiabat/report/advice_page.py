"""The page of an advice: the recommendation with its reason, and the figures behind it."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from adiabat.core.text import NO_BREAK, counted, integer, share
from adiabat.report.captions import glossary, sentences
from adiabat.report.format import named, percent
from adiabat.report.measure_terms import measures_section
from adiabat.report.pages import Files, Group, Page, Terms, Tone, group, notes_section
from adiabat.report.tables import (
    Cell,
    Contents,
    Table,
    csv_of,
    pair_cell,
    value_cell,
    verdict_cell,
)
from adiabat.results.advice_result import Advice, AdvisedSet, Choice
from adiabat.results.evaluation_result import Change

_TONES: dict[Choice, Tone] = {
    "tune the query tower": "good",
    "fuse with BM25": "good",
    "fuse with BM25, then tune": "good",
}


def page(result: Advice) -> Page:
    """The page of an advice."""
    target = result.target
    rankings = _rankings(result, "ranking", target.changes, meanings=sentences("advice-meanings"))
    tried = [rankings, measures_section([target.untuned.measure])]
    reading = [notes_section("Notes", [("", result.notes)], everyone=""), Terms(terms=glossary("advice"))]
    last = Group(id="reading", title="Reading", sections=reading)
    about = [("model", result.model), ("data", target.name)]
    about += [("queries", _measured(target)), ("documents", integer(target.documents))]
    clusters = "groups of queries that share no document with another group"
    facts = [(clusters, integer(result.clusters))]
    # Without a pull, the identity was the best map, or none could be cross-validated.
    if result.pull is not None:
        facts.append(("pull of the linear map", f"{result.pull:g}"))
    return Page(
        record=result,
        name="advise",
        headline=headline(result),
        tone=_TONES.get(result.choice, "plain"),
        reservations=reservations(result),
        about=about,
        sections=[group("advice", "figures", *tried), _headroom(result), _retention(result), last],
        facts=facts,
    )


def exports(result: Advice) -> Files:
    """The figures beside the page, unrounded."""
    return {"table.csv": partial(csv_of, _figures(result))}


def _figures(result: Advice) -> list[dict[str, object]]:
    """A row for each ranking of each data set."""
    rows: list[dict[str, object]] = []
    for entry in result.datasets:
        for ranking, change in entry.changes.items():
            row = {
                "data": entry.name,
                "role": entry.role,
                "ranking": ranking,
                "measure": change.measure,
                "value": change.after,
                "improvement": change.improvement,
                "verdict": change.verdict or "",
                "queries": entry.measured,
            }
            rows.append(row)
    return rows


def terminal(result: Advice) -> list[Table]:
    """The figures, with the recommendation below the last table."""
    captions = [_headroom_sentence(result.target), *reservations(result), headline(result)]
    retained = _retained(result)
    if not retained:
        return [_rankings(result, "ranking", result.target.changes, title=result.title, caption=captions)]
    title = "retention sets under the linear map"
    return [
        _rankings(result, "ranking", result.target.changes, title=result.title),
        _rankings(result, "retention set", retained, title=title, caption=captions),
    ]


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
            f"Used as a test set, the {counted(target.queries, 'query')} would show an "
            f"improvement of {target.untuned.measure} by "
            f"{result.detectable:.1f}{NO_BREAK}% or more with 80{NO_BREAK}% probability, "
            f"if differences vary as with {result.spread}."
        )
    sentences += [f"Next: {step}" for step in result.steps]
    if result.tuning:
        sentences.append(f"adiabat tune with its default settings, {result.tuning}.")
    worse = []
    for entry in result.datasets[1:]:
        if entry.mapped is not None and entry.mapped.verdict == "worse":
            worse.append(named(entry.name))
    if worse:
        caution = "keep the default rehearsal, and evaluate with retention sets"
        sentences.append(f"The linear map makes {' and '.join(worse)} worse: {caution}.")
    if target.measured < target.queries:
        sentences.append(f"Measured on {_measured(target)}, drawn at random.")
    return sentences


def _measured(entry: AdvisedSet) -> str:
    """The queries that a set was measured with, of all it has."""
    queries = counted(entry.queries, "query")
    if entry.measured == entry.queries:
        return queries
    return f"{integer(entry.measured)} of {queries}"


def _rankings(
    result: Advice,
    head: str,
    changes: Mapping[str, Change],
    *,
    meanings: Mapping[str, str] = MappingProxyType({}),
    title: str = "",
    caption: Sequence[str] = (),
) -> Table:
    """A row for each ranking or data set by its name, with its meaning and its change from the untuned
    model.
    """
    rows = []
    level = f"{result.target.untuned.measure} [95{NO_BREAK}%]"
    for name, change in changes.items():
        row: Contents = {
            head: Cell(name, [meanings.get(name, "")], bold=True),
            level: value_cell(change.after, change.after_interval),
            f"change [paired 95{NO_BREAK}%]": pair_cell(percent(change)),
            "verdict": verdict_cell(change.verdict),
        }
        rows.append(row)
    return Table.of(rows, {"verdict": "text"}, title=title, caption=caption, look="stack")


def _headroom(result: Advice) -> Group:
    """Queries by the rank of their first answer under the untuned model."""
    room = result.target.headroom
    counts = {
        "among the first 10": room.top,
        "from 11 to 100": room.near,
        "not among the first 100": room.beyond,
    }
    rows = []
    for place, count in counts.items():
        rows.append(
            {
                "first answer of the untuned model": place,
                "queries": integer(count),
                "share": share(count / room.total),
            }
        )
    return group("advice", "headroom", Table.of(rows), sentence=_headroom_sentence(result.target))


def _headroom_sentence(target: AdvisedSet) -> str:
    """The same in a sentence, for the terminal."""
    room = target.headroom
    return (
        f"Of {counted(room.total, 'query')}, {integer(room.top)} have an answer among the first 10 "
        f"documents, {integer(room.near)} the first one from rank 11 to 100, "
        f"and {integer(room.beyond)} none among the first 100."
    )


def _retained(result: Advice) -> dict[str, Change]:
    """Each retention set under the linear map, or as it is without one."""
    return {entry.name: entry.mapped or entry.untuned for entry in result.datasets[1:]}


def _retention(result: Advice) -> Group | None:
    """The retention sets; None without any."""
    retained = _retained(result)
    if not retained:
        return None
    return group("advice", "retention", _rankings(result, "retention set", retained))
