"""The headline of an evaluation and its reservations, computed so that they never claim more than the numbers
allow.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from adiabat.core.margin import DEFAULT_MARGIN, FEWEST_UNITS, Margin
from adiabat.core.text import NO_BREAK, counted, integer, two_digits, verb
from adiabat.report.format import bounds, improvement, joined, listed, named, number
from adiabat.report.pages import Tone
from adiabat.report.verdict_words import because
from adiabat.results.evaluation_result import Change, DatasetResult, Result
from adiabat.results.verdict import WORDS, Reason

_ARROW = f"{NO_BREAK}\N{RIGHTWARDS ARROW} "

_UNCERTAIN = {Reason.FEW_CLUSTERS, Reason.FEW_UNITS, Reason.EQUAL_RUNS}
"""Reasons for which a verdict is less certain than it looks."""

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
        "; ".join(_target_clause(dataset, margin_of(result.settings)) for dataset in targets)
        or "No target was measured"
    )
    retained = [dataset for dataset in compared if dataset.role == "retain"]
    clauses = _retention_clauses(retained, result.settings)
    for dataset in compared:
        # What a clause above tells already is not told again.
        if dataset.main_change().verdict != "undecided" and set(dataset.doubts) & _UNCERTAIN:
            clauses.append(f"the verdict on {named(dataset.name)} is less certain than it looks")
    if any(Reason.RUNS_DIFFER in dataset.doubts for dataset in compared):
        clauses.append("the runs of the model differ in more than the seed")
    return f"{'; '.join([head, *clauses])}."


def tone(result: Result) -> Tone:
    """Whether the headline is good news."""
    for dataset in result.datasets:
        if dataset.main_change().verdict == "worse" or dataset.worse_cells() or dataset.worse_parts():
            return "bad"
    targets = [dataset.main_change().verdict for dataset in result.datasets if dataset.role == "target"]
    retained = [dataset.main_change().verdict for dataset in result.datasets if dataset.role == "retain"]
    is_proven = not any(dataset.doubts for dataset in result.datasets)
    is_kept = all(verdict in ("better", "not worse") for verdict in retained)
    return "good" if is_proven and is_kept and targets and set(targets) == {"better"} else "plain"


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
    unsure = []
    for dataset in result.datasets:
        # Other reasons stand above, in the headline, or in the sentences on training data.
        told = [reason for reason in dataset.doubts if reason in (Reason.FEW_CLUSTERS, Reason.FEW_UNITS)]
        if told:
            unsure.append(f"{named(dataset.name)}: {because(told)}.")
    return [
        *means,
        *unsure,
        *candidates,
        *ranked,
        *_trained(result.datasets),
        *filter(None, map(_decisive, result.datasets)),
    ]


def cells_over_runs(result: Result) -> str:
    """Why the cells of language grids are undecided where the model has several runs."""
    open_cells = []
    for dataset in result.datasets:
        if any(grid.before and Reason.CELLS_OVER_RUNS in grid.reasons for grid in dataset.grid):
            open_cells.append(named(dataset.name))
    if not open_cells:
        return ""
    reason = "they are means over runs, and their test does not cover the spread of runs"
    return f"Language pairs of {listed(open_cells)} are undecided: {reason}."


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


def _used(dataset: DatasetResult) -> str:
    """The queries of the model that trained on most of them."""
    counts = [(overlap.trained_queries, overlap.queries) for overlap in dataset.trained]
    trained, queries = max(counts, default=(0, 0))
    were = verb(trained, "was", "were")
    return f"{integer(trained)} of its {counted(queries, 'query')} {were} used in training"


def _target_clause(dataset: DatasetResult, margin: str) -> str:
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
    """Near duplicates of training queries, if they limit the verdict."""
    if Reason.NEAR_DUPLICATES not in dataset.doubts:
        return ""
    deciding = dataset.parts[0].queries if dataset.parts else dataset.queries
    near = dataset.near_queries or 0
    are = verb(near, "is a near duplicate", "are near duplicates")
    return f" ({integer(near)} of {counted(deciding, 'query')} {are} of training queries)"


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
    by_verdict = {
        verdict: [dataset for dataset in retained if dataset.main_change().verdict == verdict]
        for verdict in WORDS
    }
    worse, total = by_verdict["worse"], len(retained)
    listed_worse = ", ".join(
        f"{named(dataset.name)} ({dataset.main} {improvement(dataset.main_change())})" for dataset in worse
    )
    clauses = [f"{_share(len(worse), total)} got worse: {listed_worse}"] if worse else []
    mixed = [dataset for dataset in retained if dataset.worse_cells() and dataset not in worse]
    clauses += [f"{_worse_cells(dataset)} of {named(dataset.name)} got worse" for dataset in mixed]
    kept = [*by_verdict["better"], *by_verdict["not worse"]]
    open_to_loss = [dataset for dataset in kept if Reason.LOSS_POSSIBLE in dataset.doubts]
    held = [dataset for dataset in retained if dataset in kept and dataset not in open_to_loss]
    if held:
        whole = " as a whole" if any(dataset.worse_cells() for dataset in held) else ""
        clauses.append(f"not worse by more than {margin_of(settings)} on {_share(len(held), total)}{whole}")
        clauses += [
            f"{named(dataset.name)} is judged{_basis(dataset)}" for dataset in held if _basis(dataset)
        ]
    margin = margin_of(settings)
    clauses += [
        f"{named(dataset.name)} got better, but a loss of more than {margin} is not excluded"
        for dataset in open_to_loss
    ]
    return [
        *clauses,
        *(f"{named(dataset.name)} {_undecided(dataset)}" for dataset in by_verdict["undecided"]),
    ]


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
    if Reason.TRAINED_ON in change.reasons:
        return f"is undecided ({_used(dataset)})"
    if Reason.FEW_CLUSTERS in change.reasons:
        return "is undecided (its queries depend on one another and form too few clusters)"
    if Reason.NO_MARGIN in change.reasons:
        reason = f"a share of a baseline of {number(change.before or 0.0, digits=3)} is no margin"
        if not change.lower_is_better and change.before == 0:
            return f"is undecided ({reason}, and there is nothing to lose)"
        return f"is undecided ({reason}; an absolute one decides, such as measure.margin_absolute = 0.01)"
    noun, units = "premise" if dataset.kind == "grid" else "query", dataset.units
    drawn, name = (units, noun) if dataset.clusters is None else (dataset.clusters, "cluster")
    if Reason.FEW_UNITS in change.reasons and drawn is not None:
        return f"is undecided (has {counted(drawn, name)}, and fewer than {FEWEST_UNITS} prove nothing)"
    if change.needed is None:
        return "is undecided (more queries alone would not decide it)"
    about = two_digits(change.needed)
    if units is None:
        return f"is undecided (needs about {counted(about, noun)})"
    return f"is undecided (needs about {counted(max(about, units + 1), noun)}, has {integer(units)})"


def margin_of(settings: Mapping[str, Any]) -> str:
    """The margin of the measures that decide, as the settings of the result say it."""
    measure = settings.get("measure", {})
    return str(Margin(measure.get("margin", DEFAULT_MARGIN.share), measure.get("margin_absolute")))


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
