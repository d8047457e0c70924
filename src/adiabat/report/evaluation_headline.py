"""The headline of an evaluation and its reservations, computed so that they never claim more than the numbers allow."""

from collections.abc import Sequence
from functools import partial
from operator import itemgetter

from adiabat.core.text import NO_BREAK, counted, integer
from adiabat.report.format import bounds, improvement, joined, named, number
from adiabat.report.pages import Tone
from adiabat.results.evaluation_result import Change, DatasetResult, Result

_ARROW = f"{NO_BREAK}\N{RIGHTWARDS ARROW} "

RANKINGS = {"dot": "dot product", "distance": "Euclidean distance"}
"""Names of similarities other than cosine in sentences."""


def headline(result: Result) -> str:
    """The verdict in one sentence."""
    if not result.datasets:
        return "Nothing was measured."
    compared = [dataset for dataset in result.datasets if dataset.main_change().before is not None]
    if not compared:
        return "; ".join(_level(dataset) for dataset in result.datasets) + ". There is no baseline, so the change is unknown."
    targets = [dataset for dataset in compared if dataset.role == "target"]
    head = "; ".join(_target_clause(dataset) for dataset in targets) or "No target was measured"
    retained = [dataset for dataset in compared if dataset.role == "retain"]
    clauses = [_retention_clause([dataset for dataset in retained if not _seen(dataset)])] if not all(map(_seen, retained)) else []
    clauses += [f"the retention set {_no_verdict(dataset)}" for dataset in retained if _seen(dataset)]
    return f"{'; '.join([head, *(clauses or [_retention_clause([])])])}."


def tone(result: Result) -> Tone:
    """Whether the headline is good news."""
    verdicts = {(dataset.role, dataset.main_change().verdict) for dataset in result.datasets}
    if any(verdict == "worse" for _, verdict in verdicts):
        return "bad"
    targets = [verdict for role, verdict in verdicts if role == "target"]
    return "good" if targets and all(verdict == "better" for verdict in targets) else "plain"


def reservations(result: Result) -> list[str]:
    """Reservations that an honest reader should know."""
    sentences = [*caveats(result), _room_for_loss(result.datasets), *map(_other_measures_worse, result.datasets)]
    sentences += [sentence for dataset in result.datasets for sentence in _worsened_languages(dataset)]
    return [sentence for sentence in sentences if sentence]


def _level(dataset: DatasetResult) -> str:
    change, three = dataset.main_change(), partial(number, digits=3)
    return joined(f"{named(dataset.name)}: {change.measure} {three(change.after)}", bounds(change.after_interval, three))


def caveats(result: Result) -> list[str]:
    """Notes that always accompany the headline, also in the terminal."""
    candidates = [
        f"{named(dataset.name)}: only each query's listed candidates were ranked, not the {integer(dataset.documents)} documents of "
        "the store; set measure.negatives = store to rank them all."
        for dataset in result.datasets
        if dataset.kind == "pairs"
    ]
    ranked = [
        f"{named(dataset.name)}: documents were ranked by {RANKINGS[by]}."
        for dataset in result.datasets
        if (by := dataset.main_change().similarity) in RANKINGS
    ]
    trained = [f"{named(dataset.name)}: {overlap.said}." for dataset in result.datasets for overlap in dataset.trained]
    return [*candidates, *ranked, *trained, *filter(None, map(_on_unseen, result.datasets))]


def _on_unseen(dataset: DatasetResult) -> str:
    """The main measure without anything that was trained on."""
    if dataset.unseen is None:
        return ""
    change = dataset.unseen.change
    moved = f"{change.measure} {number(change.after, digits=3)}" if change.before is None else _moved(change)
    verdict = f" ({change.verdict})" if change.verdict else ""
    queries = f"the {counted(dataset.unseen.queries, 'query')} with no text or relevant document in the training data"
    return f"{named(dataset.name)}, on {queries}: {moved}{verdict}."


def _seen(dataset: DatasetResult) -> bool:
    """Whether a model was trained on too much of the data set."""
    return not all(overlap.is_proof for overlap in dataset.trained)


def _no_verdict(dataset: DatasetResult) -> str:
    overlap = max(dataset.trained, key=lambda model: model.trained_queries)
    share = f"{integer(overlap.trained_queries)} of its {counted(overlap.queries, 'query')} were used in training"
    return f"{named(dataset.name)} has no verdict because {share}: {_moved(dataset.main_change())}"


def _target_clause(dataset: DatasetResult) -> str:
    if _seen(dataset):
        return f"The target {_no_verdict(dataset)}"
    change = dataset.main_change()
    finding = {"better": "got better", "worse": "got worse"}.get(change.verdict or "", "shows no evidence of change")
    return f"The target {named(dataset.name)} {finding}: {_moved(change)}"


def _moved(change: Change) -> str:
    """A measure before and after, and its improvement."""
    before = number(change.before, digits=3) if change.before is not None else "?"
    return f"{change.measure} {before}{_ARROW}{number(change.after, digits=3)}, {improvement(change)}"


def _retention_clause(sets: Sequence[DatasetResult]) -> str:
    worse = [
        f"{named(dataset.name)} ({change.measure} {improvement(change)})"
        for dataset in sets
        if (change := dataset.main_change()).verdict == "worse"
    ]
    if not sets:
        return "no retention set was measured, so effects on other tasks are unknown"
    if len(sets) == 1:
        return (
            f"the retention set got worse: {worse[0]}" if worse else f"the retention set {named(sets[0].name)} did not get measurably worse"
        )
    if worse:
        return f"{len(worse)} of the {len(sets)} retention sets got worse: {', '.join(worse)}"
    return f"none of the {len(sets)} retention sets got measurably worse"


def _room_for_loss(datasets: Sequence[DatasetResult]) -> str:
    """The loss that the intervals leave open if none was found: absence of evidence is not evidence of absence."""
    undecided = [
        (named(dataset.name), change)
        for dataset in datasets
        if dataset.role == "retain" and (change := dataset.main_change()).verdict == "no evidence"
    ]
    percents = [
        (-change.improvement_interval[0], f"{name}, {change.measure}")
        for name, change in undecided
        if change.improvement_interval is not None
    ]
    loss, location = max(percents, key=itemgetter(0), default=(0.0, ""))
    losses = [f"{loss:.1f}{NO_BREAK}% ({location})"] if loss >= 0.05 else []
    # If the baseline is 0 in many resamples, there are no percentages; differences are not comparable between data sets, so each is named.
    for name, change in undecided:
        if change.improvement_interval is None:
            low, high = change.difference_interval or (0.0, 0.0)
            loss = high if change.lower_is_better else -low
            losses += [f"{number(loss, digits=3)} ({name}, difference of {change.measure})"] if loss > 0 else []
    if not losses:
        return ""
    return (
        f"\u201cNo evidence\u201d is not proof of no change: on the retention sets without evidence, the intervals allow a loss of "
        f"up to {', '.join(losses)}."
    )


def _other_measures_worse(dataset: DatasetResult) -> str:
    main = dataset.main_change()
    worse = [
        f"{change.measure} by {change.similarity} ({improvement(change)})"
        for change in dataset.changes
        if change.verdict == "worse" and change is not main
    ]
    return f"On {named(dataset.name)} other measures got worse: {', '.join(worse)}." if worse and main.verdict != "worse" else ""


def _worsened_languages(dataset: DatasetResult) -> list[str]:
    cells = len(dataset.languages) ** 2
    return [
        f"On {named(dataset.name)}, {integer(grid.worsened)} of {counted(cells, 'language pair')} got worse, "
        f"{integer(grid.improved or 0)} better ({grid.comparison} by {grid.similarity})."
        for grid in dataset.grid
        if grid.worsened
    ]
