"""The headline of an evaluation and its reservations, computed so that they never claim more than the numbers
allow.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from adiabat.core.margin import DEFAULT_MARGIN, FEWEST_UNITS, Margin
from adiabat.core.text import NO_BREAK, counted, integer, two_digits, verb
from adiabat.report.format import bounds, improvement, joined, listed, named, number
from adiabat.report.pages import Tone
from adiabat.results.evaluation_result import VERDICTS, Change, DatasetResult, Result

_ARROW = f"{NO_BREAK}\N{RIGHTWARDS ARROW} "

RANKINGS = {"dot": "dot product", "distance": "Euclidean distance"}
"""Names of similarities other than cosine in sentences."""


def headline(result: Result) -> str:
    """The verdict in one sentence."""
    if not result.datasets:
        return "Nothing was measured."
    compared = [dataset for dataset in result.datasets if dataset.main_change().before is not None]
    if not compared:
        return (
            "; ".join(_level(dataset) for dataset in result.datasets)
            + ". There is no baseline, so the change is unknown."
        )
    targets = [dataset for dataset in compared if dataset.role == "target"]
    head = (
        "; ".join(_target_clause(dataset, margin_of(result.settings, dataset.main)) for dataset in targets)
        or "No target was measured"
    )
    retained = [dataset for dataset in compared if dataset.role == "retain"]
    clauses = _retention_clauses(retained, result.settings)
    clauses += [f"the retention set {_no_verdict(dataset)}" for dataset in retained if _seen(dataset)]
    doubted = [
        dataset
        for dataset in compared
        if dataset.doubt and dataset.main_change().verdict not in (None, "undecided")
    ]
    clauses += [f"the verdict on {named(dataset.name)} is less certain than it looks" for dataset in doubted]
    clauses += ["the runs of the model differ in more than the seed"] if result.run_differences else []
    return f"{'; '.join([head, *clauses])}."


def tone(result: Result) -> Tone:
    """Whether the headline is good news."""
    verdicts = {(dataset.role, dataset.main_change().verdict) for dataset in result.datasets}
    in_part = any(dataset.worse_cells() or dataset.worse_parts() for dataset in result.datasets)
    if in_part or any(verdict == "worse" for _, verdict in verdicts):
        return "bad"
    targets = [verdict for role, verdict in verdicts if role == "target"]
    proven = (
        not result.run_differences
        and not verdicts & {("retain", "undecided"), ("retain", None)}
        and not any(dataset.unproven for dataset in result.datasets)
    )
    return "good" if proven and targets and all(verdict == "better" for verdict in targets) else "plain"


def reservations(result: Result) -> list[str]:
    """Reservations that an honest reader should know."""
    sentences = [
        *caveats(result),
        cells_over_runs(result),
        _room_for_loss(result.datasets),
        *map(_other_measures_worse, result.datasets),
    ]
    sentences += [sentence for dataset in result.datasets for sentence in _worsened_languages(dataset)]
    return [sentence for sentence in sentences if sentence]


def _level(dataset: DatasetResult) -> str:
    change, three = dataset.main_change(), partial(number, digits=3)
    return joined(
        f"{named(dataset.name)}: {change.measure} {three(change.after)}", bounds(change.after_interval, three)
    )


def caveats(result: Result) -> list[str]:
    """Notes that always accompany the headline, also in the terminal."""
    candidates = [
        f"{named(dataset.name)}: only each query's listed candidates were ranked, not "
        f"the {integer(dataset.documents)} documents of "
        "the store; set measure.negatives = store to rank them all."
        for dataset in result.datasets
        if dataset.kind == "pairs"
    ]
    ranked = [
        f"{named(dataset.name)}: documents were ranked by {RANKINGS[by]}."
        for dataset in result.datasets
        if (by := dataset.main_change().similarity) in RANKINGS
    ]
    runs = len(result.runs) + 1
    means = (
        [f"Values are means over {runs} runs of the model, and intervals cover queries and runs."]
        if runs > 1
        else []
    )
    means += [f"{sentence}." for sentence in (*result.equal_towers, *result.run_differences)]
    sure = [f"{named(dataset.name)}: {dataset.doubt}." for dataset in result.datasets if dataset.doubt]
    margin = _margin(result.settings)
    if margin.unit and not any(margin.of(dataset.main).unit for dataset in result.datasets):
        means.append(
            f"measure.margin = {margin} applies to no measure that decides: "
            f"the verdicts use {DEFAULT_MARGIN}."
        )
    return [
        *means,
        *sure,
        *candidates,
        *ranked,
        *_trained(result.datasets),
        *filter(None, map(_decisive, result.datasets)),
    ]


def cells_over_runs(result: Result) -> str:
    """Why the cells of language grids have no verdicts where the model has several runs."""
    grids = [named(dataset.name) for dataset in result.datasets if any(grid.before for grid in dataset.grid)]
    if not (grids and result.runs):
        return ""
    return (
        f"Language pairs of {listed(grids)} have no verdicts: they are means over runs, "
        "and their test does not cover the spread of runs."
    )


def _trained(datasets: Sequence[DatasetResult]) -> list[str]:
    """The training data of the models among the data sets; those without any in one sentence for each
    model.
    """
    apart: dict[str, list[str]] = {}
    sentences = []
    for dataset in datasets:
        for overlap in dataset.trained:
            if overlap.is_apart:
                apart.setdefault(overlap.model, []).append(named(dataset.name))
            else:
                sentences.append(f"{named(dataset.name)}: {overlap.said}.")
    none = "was trained or validated on none of the queries and relevant documents of"
    return [
        *(f"{model} {none} {listed(list(dict.fromkeys(names)))}." for model, names in apart.items()),
        *dict.fromkeys(sentences),
    ]


def _decisive(dataset: DatasetResult) -> str:
    """The queries that the verdict rests on, and the change on the others."""
    were = verb(dataset.left_out, "was", "were")
    left_out = (
        f"{counted(dataset.left_out, 'query')} that a model was trained on {were} left out"
        if dataset.left_out
        else ""
    )
    if not dataset.parts:
        return f"{named(dataset.name)}: {left_out}." if left_out else ""
    first, *others = dataset.parts
    sizes = {part.name: part.queries for part in dataset.parts}
    seen, queries = sizes.get("seen documents", 0), counted(first.queries, "query")
    known = "relevant documents that answered training queries"
    fewer = "; the others are too few to judge alone" * ("new documents" in sizes or seen < first.queries)
    if first.name == "new documents":
        reason = f"the verdict rests on {queries} with new documents, not on {integer(seen)} with {known}"
    elif first.name == "residual collection":
        reason = (
            f"{integer(seen)} queries have {known}{fewer}. The verdict rests on the residual collection: "
            f"these documents are taken out of ranking and judgements, which leaves {queries}; "
            f"for {integer(first.above)} of them such a "
            "document would have stood above the first relevant one"
        )
    else:
        reason = (
            f"{integer(seen)} of {queries} have {known}{fewer}: the verdict rests on all, "
            "and part of the change may be memory of these "
            "documents"
        )
    changes = [
        f"On {counted(part.queries, 'query')} with {part.name}: {_level_or_change(part.change)}."
        for part in others
        if part.change != first.change
    ]
    return " ".join([f"{named(dataset.name)}: {'; '.join(filter(None, [left_out, reason]))}.", *changes])


def _level_or_change(change: Change) -> str:
    if change.before is None:
        return f"{change.measure} {number(change.after, digits=3)}"
    return f"{_moved(change)} ({change.verdict})" if change.verdict else _moved(change)


def _seen(dataset: DatasetResult) -> bool:
    """Whether a model was trained on too much of the data set."""
    return not all(overlap.is_proof for overlap in dataset.trained)


def _no_verdict(dataset: DatasetResult) -> str:
    overlap = max(dataset.trained, key=lambda model: model.trained_queries)
    were = verb(overlap.trained_queries, "was", "were")
    share = (
        f"{integer(overlap.trained_queries)} of its {counted(overlap.queries, 'query')} "
        f"{were} used in training"
    )
    return f"{named(dataset.name)} has no verdict because {share}: {_moved(dataset.main_change())}"


def _target_clause(dataset: DatasetResult, margin: str) -> str:
    if _seen(dataset):
        return f"The target {_no_verdict(dataset)}"
    change = dataset.main_change()
    finding = {
        "better": "got better",
        "not worse": f"shows no gain, and a loss of more than {margin} is excluded",
        "worse": "got worse",
    }.get(change.verdict or "") or _undecided(dataset)
    cells = (
        f", but {_worse_cells(dataset)} got worse"
        if dataset.worse_cells() and change.verdict != "worse"
        else ""
    )
    return (
        f"The target {named(dataset.name)} "
        f"{finding}{_basis(dataset)}{_nearly_seen(dataset)}{_unknown(dataset)}: {_moved(change)}{cells}"
    )


def _unknown(dataset: DatasetResult) -> str:
    """That nobody knows what a job trained on."""
    return f" (training data unknown: {dataset.training_unknown})" if dataset.training_unknown else ""


def _nearly_seen(dataset: DatasetResult) -> str:
    """Near duplicates of training queries, if they are more than a tenth of the queries that decide."""
    counts = [
        (overlap.near_queries or 0, overlap.queries - overlap.trained_queries) for overlap in dataset.trained
    ]
    if dataset.near_queries is not None:
        counts = [(dataset.near_queries, dataset.parts[0].queries if dataset.parts else dataset.queries)]
    near, queries = max(counts, key=lambda count: count[0] / max(count[1], 1), default=(0, 0))
    if 10 * near <= queries:
        return ""
    return (
        f" ({integer(near)} of {counted(queries, 'query')} "
        f"{verb(near, 'is a near duplicate', 'are near duplicates')} of training queries)"
    )


def _basis(dataset: DatasetResult) -> str:
    """The queries of the verdict, where something was trained on; worse parts that do not decide."""
    if not dataset.parts:
        queries = counted(dataset.units or dataset.queries, "query")
        return f" on the {queries} that were not trained on" if dataset.left_out else ""
    first = dataset.parts[0]
    seen = sum(part.queries for part in dataset.parts if part.name == "seen documents")
    names = {
        "new documents": " on queries with new documents",
        "residual collection": " in the residual collection",
    }
    basis = names.get(
        first.name,
        f" ({integer(seen)} of {counted(first.queries, 'query')} have relevant documents from training)",
    )
    worse = listed([name for name in dataset.worse_parts() if name != first.name])
    return f"{basis}, but worse on queries with {worse}" if worse else basis


def _moved(change: Change) -> str:
    """A measure before and after, and its improvement."""
    before = number(change.before, digits=3) if change.before is not None else "?"
    return f"{change.measure} {before}{_ARROW}{number(change.after, digits=3)}, {improvement(change)}"


def _retention_clauses(retained: Sequence[DatasetResult], settings: Mapping[str, Any]) -> list[str]:
    """How the retention sets came out: worse ones and worse cells, those without a loss of the margin, and
    undecided ones.
    """
    if not retained:
        return ["no retention set was measured, so effects on other tasks are unknown"]
    # Sets that a model was trained on have no verdict.
    by_verdict = {
        verdict: [dataset for dataset in retained if dataset.main_change().verdict == verdict]
        for verdict in VERDICTS
    }
    worse, total = by_verdict["worse"], len(retained)
    listed_worse = ", ".join(
        f"{named(dataset.name)} ({dataset.main} {improvement(dataset.main_change())})" for dataset in worse
    )
    clauses = [f"{_share(len(worse), total)} got worse: {listed_worse}"] if worse else []
    mixed = [dataset for dataset in retained if dataset.worse_cells() and dataset not in worse]
    clauses += [f"{_worse_cells(dataset)} of {named(dataset.name)} got worse" for dataset in mixed]
    held = [
        dataset
        for dataset in retained
        if dataset.main_change().verdict in ("better", "not worse") and not dataset.may_hide_loss
    ]
    if held:
        whole = " as a whole" if any(dataset.worse_cells() for dataset in held) else ""
        clauses.append(f"not worse {_held(held, total, settings)}{whole}")
        clauses += [
            f"{named(dataset.name)} is judged{_basis(dataset)}" for dataset in held if _basis(dataset)
        ]
    open_to_loss = [
        (named(dataset.name), margin_of(settings, dataset.main))
        for dataset in retained
        if dataset.may_hide_loss
    ]
    clauses += [
        f"{name} got better, but a loss of more than {margin} is not excluded"
        for name, margin in open_to_loss
    ]
    return [
        *clauses,
        *(f"{named(dataset.name)} {_undecided(dataset)}" for dataset in by_verdict["undecided"]),
    ]


def _held(held: Sequence[DatasetResult], total: int, settings: Mapping[str, Any]) -> str:
    """The sets without a loss of the margin by which each was judged."""
    by_margin: dict[str, list[str]] = {}
    for dataset in held:
        by_margin.setdefault(margin_of(settings, dataset.main), []).append(named(dataset.name))
    if len(by_margin) == 1:
        return f"by more than {next(iter(by_margin))} on {_share(len(held), total)}"
    return "; ".join(f"by more than {margin} on {listed(names)}" for margin, names in by_margin.items())


def _worse_cells(dataset: DatasetResult) -> str:
    return f"{integer(dataset.worse_cells())} of {counted(dataset.cells, 'language pair')}"


def _share(some: int, total: int) -> str:
    if total == 1:
        return "the retention set"
    if some == total == 2:
        return "both retention sets"
    return f"all {total} retention sets" if some == total else f"{some} of {total} retention sets"


def _undecided(dataset: DatasetResult) -> str:
    """That a set is undecided, with the number of units that would decide it, or the reason why none
    would.
    """
    change = dataset.main_change()
    if change.before is not None and change.before <= 0 and change.margin is None:
        if not change.lower_is_better and change.before == 0:
            return "is undecided (a share of a baseline of 0 is no margin, and there is nothing to lose)"
        family = re.split(r"[@(,]", change.measure, maxsplit=1)[0]
        reason = f"a share of a baseline of {number(change.before, digits=3)} is no margin"
        return f'is undecided ({reason}; an absolute one decides, such as measure.margin = "0.01 {family}")'
    noun, units = "premise" if dataset.kind == "grid" else "query", dataset.units
    drawn, name = (units, noun) if dataset.clusters is None else (dataset.clusters, "cluster")
    if drawn is not None and drawn < FEWEST_UNITS:
        return f"is undecided (has {counted(drawn, name)}, and fewer than {FEWEST_UNITS} prove nothing)"
    if dataset.doubt:
        return "is undecided (its queries depend on one another and form too few clusters)"
    if change.needed is None:
        return "is undecided (more queries alone would not decide it)"
    about = two_digits(change.needed)
    if units is None:
        return f"is undecided (needs about {counted(about, noun)})"
    return f"is undecided (needs about {counted(max(about, units + 1), noun)}, has {integer(units)})"


def margin_of(settings: Mapping[str, Any], measure: str) -> str:
    """The margin by which a measure was judged, as the settings of the result say it."""
    return str(_margin(settings).of(measure))


def _margin(settings: Mapping[str, Any]) -> Margin:
    return Margin.parse(settings.get("measure", {}).get("margin", DEFAULT_MARGIN.value))


def _room_for_loss(datasets: Sequence[DatasetResult]) -> str:
    """The loss that the data allow on undecided retention sets: absence of evidence is not evidence of
    absence.
    """
    losses = []
    for dataset in datasets:
        change = dataset.main_change()
        loss = _possible_loss(change)
        if dataset.role == "retain" and change.verdict == "undecided" and loss > 0:
            percent = (
                f"{100 * loss / change.before:.1f}{NO_BREAK}%" if change.before else number(loss, digits=3)
            )
            losses.append(f"{percent} ({named(dataset.name)}, {change.measure})")
    if not losses:
        return ""
    return (
        f"Undecided does not mean unchanged: at one-sided 95{NO_BREAK}% the data "
        f"allow a loss of up to {', '.join(losses)}."
    )


def _possible_loss(change: Change) -> float:
    """The loss that the data allow, at most all that the measure can lose; 0 if it is unknown."""
    if change.loss_bound is None or change.most is None:
        return 0.0
    return min(change.loss_bound, change.most)


def _other_measures_worse(dataset: DatasetResult) -> str:
    main = dataset.main_change()
    worse = [
        f"{change.measure} by {change.similarity} ({improvement(change)})"
        for change in dataset.changes
        if change.verdict == "worse" and change is not main
    ]
    return (
        f"On {named(dataset.name)} other measures got worse: {', '.join(worse)}."
        if worse and main.verdict != "worse"
        else ""
    )


def _worsened_languages(dataset: DatasetResult) -> list[str]:
    return [
        f"On {named(dataset.name)}, {integer(grid.worsened)} of "
        f"{counted(dataset.cells, 'language pair')} got worse, "
        f"{integer(grid.improved or 0)} better ({grid.comparison} by {grid.similarity})."
        for grid in dataset.grid
        if grid.worsened
    ]
