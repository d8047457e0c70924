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
from adiabat.results.verdict import Reason

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
        levels = "; ".join(map(_level, result.datasets))
        return f"{levels}. There is no baseline, so the change is unknown."
    margin = margin_of(result.settings)
    clauses = [_target_clause(dataset, margin) for dataset in compared if dataset.role == "target"]
    if not clauses:
        clauses.append("No target was measured")
    clauses += _retention_clauses([dataset for dataset in compared if dataset.role == "retain"], margin)
    for dataset in compared:
        # What a clause above tells already is not told again.
        if dataset.main_change().verdict != "undecided" and set(dataset.doubts) & _UNCERTAIN:
            clauses.append(f"the verdict on {named(dataset.name)} is less certain than it looks")
    if any(Reason.RUNS_DIFFER in dataset.doubts for dataset in compared):
        clauses.append("the runs of the model differ in more than the seed")
    return f"{'; '.join(clauses)}."


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
    sentences = [*caveats(result), cells_over_runs(result), _room_for_loss(result.datasets)]
    sentences += map(_other_measures_worse, result.datasets)
    for dataset in result.datasets:
        sentences += _worsened_languages(dataset)
    return [sentence for sentence in sentences if sentence]


def _level(dataset: DatasetResult) -> str:
    change = dataset.main_change()
    ends = bounds(change.after_interval, partial(number, digits=3))
    return joined(f"{named(dataset.name)}: {change.measure} {number(change.after, digits=3)}", ends)


def caveats(result: Result) -> list[str]:
    """Notes that always accompany the headline, also in the terminal."""
    means = []
    if result.runs:
        runs = len(result.runs) + 1
        means.append(f"Values are means over {runs} runs of the model, and intervals cover queries and runs.")
    means += [f"{sentence}." for sentence in (*result.equal_towers, *result.run_differences)]
    unsure, candidates, ranked, decisive = [], [], [], []
    for dataset in result.datasets:
        name = named(dataset.name)
        # Other reasons stand above, in the headline, or in the sentences on training data.
        told = [reason for reason in dataset.doubts if reason in (Reason.FEW_CLUSTERS, Reason.FEW_UNITS)]
        if told:
            unsure.append(f"{name}: {because(told)}.")
        if dataset.kind == "pairs":
            store = f"not the {integer(dataset.documents)} documents of the store"
            ranks_all = "set measure.negatives = store to rank them all"
            candidates.append(
                f"{name}: only each query's listed candidates were ranked, {store}; {ranks_all}."
            )
        similarity = dataset.main_change().similarity
        if similarity in RANKINGS:
            ranked.append(f"{name}: documents were ranked by {RANKINGS[similarity]}.")
        if basis := _decisive(dataset):
            decisive.append(basis)
    return [*means, *unsure, *candidates, *ranked, *_trained(result.datasets), *decisive]


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
    """The training data of the models among the data sets; a model without any has one sentence for all."""
    # Dictionaries keep the order, and each name and sentence once.
    apart: dict[str, dict[str, None]] = {}
    overlaps: dict[str, None] = {}
    for dataset in datasets:
        name = named(dataset.name)
        for overlap in dataset.trained:
            if overlap.is_apart:
                apart.setdefault(overlap.model, {})[name] = None
            else:
                overlaps[f"{name}: {overlap.said}."] = None
    none = "was trained or validated on none of the queries and relevant documents of"
    return [*(f"{model} {none} {listed(list(names))}." for model, names in apart.items()), *overlaps]


def _decisive(dataset: DatasetResult) -> str:
    """The queries that the verdict rests on, and the change on the others."""
    reasons = []
    if dataset.left_out:
        were = verb(dataset.left_out, "was", "were")
        reasons.append(f"{counted(dataset.left_out, 'query')} that a model was trained on {were} left out")
    changes = []
    if dataset.parts:
        reasons.append(_rests_on(dataset))
        first, *others = dataset.parts
        for part in others:
            if part.change != first.change:
                queries = counted(part.queries, "query")
                changes.append(f"On {queries} with {part.name}: {_level_or_change(part.change)}.")
    if not reasons:
        return ""
    return " ".join([f"{named(dataset.name)}: {'; '.join(reasons)}.", *changes])


def _rests_on(dataset: DatasetResult) -> str:
    """The part that decides, and why it is this one."""
    first = dataset.parts[0]
    sizes = {part.name: part.queries for part in dataset.parts}
    seen, queries = sizes.get("seen documents", 0), counted(first.queries, "query")
    known = "relevant documents that answered training queries"
    if first.name == "new documents":
        return f"the verdict rests on {queries} with new documents, not on {integer(seen)} with {known}"
    fewer = ""
    if "new documents" in sizes or seen < first.queries:
        fewer = "; the others are too few to judge alone"
    if first.name == "residual collection":
        return (
            f"{integer(seen)} queries have {known}{fewer}. The verdict rests on the residual collection: "
            f"these documents are taken out of ranking and judgements, which leaves {queries}; for "
            f"{integer(first.above)} of them such a document would have stood above the first relevant one"
        )
    memory = "the verdict rests on all, and part of the change may be memory of these documents"
    return f"{integer(seen)} of {queries} have {known}{fewer}: {memory}"


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
    findings = {
        "better": "got better",
        "not worse": f"shows no gain, and a loss of more than {margin} is excluded",
        "worse": "got worse",
    }
    finding = findings.get(change.verdict or "") or _undecided(dataset)
    cells = ""
    if dataset.worse_cells() and change.verdict != "worse":
        cells = f", but {_worse_cells(dataset)} got worse"
    qualified = f"{finding}{_basis(dataset)}{_nearly_seen(dataset)}{_unknown(dataset)}"
    return f"The target {named(dataset.name)} {qualified}: {_moved(change)}{cells}"


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
    if first.name == "new documents":
        basis = " on queries with new documents"
    elif first.name == "residual collection":
        basis = " in the residual collection"
    else:
        seen = sum(part.queries for part in dataset.parts if part.name == "seen documents")
        queries = counted(first.queries, "query")
        basis = f" ({integer(seen)} of {queries} have relevant documents from training)"
    worse = listed([name for name in dataset.worse_parts() if name != first.name])
    return f"{basis}, but worse on queries with {worse}" if worse else basis


def _moved(change: Change) -> str:
    """A measure before and after, and its improvement."""
    before = number(change.before, digits=3) if change.before is not None else "?"
    return f"{change.measure} {before}{_ARROW}{number(change.after, digits=3)}, {improvement(change)}"


def _retention_clauses(retained: Sequence[DatasetResult], margin: str) -> list[str]:
    """How the retention sets came out: worse ones and cells, those without a loss, and undecided ones."""
    if not retained:
        return ["no retention set was measured, so effects on other tasks are unknown"]
    worse, mixed, held, judged, open_to_loss, undecided = [], [], [], [], [], []
    for dataset in retained:
        name, change = named(dataset.name), dataset.main_change()
        if change.verdict == "worse":
            worse.append(f"{name} ({dataset.main} {improvement(change)})")
        elif dataset.worse_cells():
            mixed.append(f"{_worse_cells(dataset)} of {name} got worse")
        if change.verdict == "undecided":
            undecided.append(f"{name} {_undecided(dataset)}")
        elif change.verdict in ("better", "not worse"):
            if Reason.LOSS_POSSIBLE in dataset.doubts:
                open_to_loss.append(f"{name} got better, but a loss of more than {margin} is not excluded")
            else:
                held.append(dataset)
                if basis := _basis(dataset):
                    judged.append(f"{name} is judged{basis}")
    clauses = []
    if worse:
        clauses.append(f"{_share(len(worse), len(retained))} got worse: {', '.join(worse)}")
    clauses += mixed
    if held:
        whole = " as a whole" if any(dataset.worse_cells() for dataset in held) else ""
        clauses.append(f"not worse by more than {margin} on {_share(len(held), len(retained))}{whole}")
    return [*clauses, *judged, *open_to_loss, *undecided]


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
    share = measure.get("margin", DEFAULT_MARGIN.share)
    if isinstance(share, str):
        # A record of 0.1 that is read as it is has the text of its settings.
        return share
    return str(Margin(share, measure.get("margin_absolute")))


def _room_for_loss(datasets: Sequence[DatasetResult]) -> str:
    """The loss that the data allow on undecided retention sets, which are not proven to be unchanged."""
    losses = []
    for dataset in datasets:
        change = dataset.main_change()
        loss = _possible_loss(change)
        if dataset.role == "retain" and change.verdict == "undecided" and loss > 0:
            size = number(loss, digits=3)
            if change.before:
                size = f"{100 * loss / change.before:.1f}{NO_BREAK}%"
            losses.append(f"{size} ({named(dataset.name)}, {change.measure})")
    if not losses:
        return ""
    allowed = f"at one-sided 95{NO_BREAK}% the data allow a loss of up to {', '.join(losses)}"
    return f"Undecided does not mean unchanged: {allowed}."


def _possible_loss(change: Change) -> float:
    """The loss that the data allow, at most all that the measure can lose; 0 if it is unknown."""
    if change.loss_bound is None or change.most is None:
        return 0.0
    return min(change.loss_bound, change.most)


def _other_measures_worse(dataset: DatasetResult) -> str:
    main, worse = dataset.main_change(), []
    for change in dataset.changes:
        if change.verdict == "worse" and change is not main:
            worse.append(f"{change.measure} by {change.similarity} ({improvement(change)})")
    if not worse or main.verdict == "worse":
        return ""
    return f"On {named(dataset.name)} other measures got worse: {', '.join(worse)}."


def _worsened_languages(dataset: DatasetResult) -> list[str]:
    sentences = []
    for grid in dataset.grid:
        if grid.worsened:
            worse = f"{integer(grid.worsened)} of {counted(dataset.cells, 'language pair')} got worse"
            better = f"{integer(grid.improved or 0)} better ({grid.comparison} by {grid.similarity})"
            sentences.append(f"On {named(dataset.name)}, {worse}, {better}.")
    return sentences
