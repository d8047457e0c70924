"""``adiabat evaluate``: a model, optionally against a baseline, on a target data set and on retention
sets.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int

from adiabat.config.shared import EvaluateSettings, MeasureSection
from adiabat.core.errors import ConfigError
from adiabat.core.margin import DEFAULT_MARGIN, FEWEST_UNITS, Margin, require_margin
from adiabat.core.progress import Watch, once
from adiabat.core.provenance import now, versions
from adiabat.core.text import IN_WORDS, counted
from adiabat.data.examples import read_examples
from adiabat.data.language_grids import require_every_label
from adiabat.data.records import Fingerprint, LanguageGridSet
from adiabat.data.text_hashes import TrainedTexts
from adiabat.evaluation.decisive_queries import Decision, ScoredPart, decide, residual_collection
from adiabat.evaluation.language_grid_tasks import OF_NLI_GRIDS, score_nli_grid
from adiabat.evaluation.retrieval import ABOVE, OF_PAIRS, require_clusters, score_retrieval
from adiabat.evaluation.set_power import set_powers
from adiabat.evaluation.systems import (
    Role,
    System,
    baseline_system,
    identical_documents,
    refuse_unused_stores,
    similarities_of,
    store_inputs,
)
from adiabat.evaluation.verdicts import (
    grid_over_runs,
    of_one_model,
    without_good_news,
    without_grid_verdicts,
    without_verdicts,
)
from adiabat.models.device import device_name
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Change, ChangedQuery, DatasetResult, Part, Result, TrainedOn
from adiabat.stats.clusters import Clusters
from adiabat.stats.grid_comparison import flips_notes
from adiabat.stats.paired import changes_over_runs
from adiabat.stats.samples import Sample, TaskScores
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.search import hits_of, search
from adiabat.store.vector_store import Store

SHOWN_QUERIES = 10
SHOWN_HITS = 5
SEARCHED_QUERIES = 500
"""Queries drawn at random to find those whose top results changed."""

SHOWN_CHARACTERS = 500
"""Characters of a document's text in a result file."""


SAME_TOWER = (
    "Model and baseline have the same query tower, so nothing differs: both are "
    "one model, or the tuning kept the starting weights"
)


SaveScores = Callable[[tuple[str, TaskScores]], None]
"""Receives ``model`` or ``baseline`` with its scores on one data set."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set, read and checked, with its store, and with its documents embedded by a baseline's document
    tower (`baseline_stores`).
    """

    store: Store
    examples: AddressedSet | LanguageGridSet
    role: Role
    source: str = ""
    split: str | None = None
    baseline_stores: Sequence[Store] = ()
    notes: Sequence[str] = ()


def read_dataset(
    store: Store,
    path: str,
    *,
    role: Role,
    settings: EvaluateSettings,
    split: str | None,
    baseline_stores: Sequence[Store] = (),
) -> Dataset:
    """Read a data set and find its documents in a store."""
    columns, setting = (settings.data.columns.given(), "data.columns") if role == "target" else ({}, "")
    by_column = role == "target" and settings.measure.cluster not in ("documents", "none")
    if by_column:
        columns["measure.cluster"] = settings.measure.cluster
    examples = read_examples(path, split=split, columns=columns, setting=setting)
    if isinstance(examples, LanguageGridSet):
        require_every_label(examples, source=path)
        return Dataset(store, examples, role, path, split, baseline_stores)
    if by_column:
        require_clusters(examples, source=path)
    addressed = address(
        examples, store, missing=settings.data.missing, ids=settings.data.ids, merge_equal=True
    )
    return Dataset(store, addressed, role, path, split, baseline_stores)


def evaluate_datasets(
    model: DualEncoder,
    baseline: DualEncoder | None,
    datasets: Sequence[Dataset],
    *,
    settings: EvaluateSettings,
    title: str,
    command: str,
    watch: Watch,
    save_scores: SaveScores | None = None,
    trained: Sequence[TrainedTexts | None] = (),
    further: Sequence[DualEncoder] = (),
    power: bool = False,
) -> Result:
    """Measure a model on every data set, optionally against a baseline.

    Args:
        power: Whether to compute what each data set could show.
        save_scores: Receives the scores of each model on each data set; None drops them.
        trained: Training data of the jobs of the model, its further runs, and the baseline; None for a model
            without a job.
        further: Further runs of the model, of other seeds.
    """
    started = time.monotonic()
    require_margin(settings.measure.margin, _measures(datasets, settings.measure.report))
    runs_of_model = [model, *further]
    # Each model once, since that hashes its weights.
    prints = [each.fingerprints() for each in (*runs_of_model, *filter(None, [baseline]))]
    queries, documents = [query for query, _ in prints], [document for _, document in prints]
    systems = _systems(model, baseline, [documents[0], *documents[len(runs_of_model) :]], datasets)
    baseline_stores = {id(store): store for dataset in datasets for store in dataset.baseline_stores}
    refuse_unused_stores(list(baseline_stores.values()), [before.store for _, before in systems if before])
    same = (
        baseline is not None and documents[0] == documents[-1] and queries.count(queries[0]) == len(queries)
    )
    equal = [SAME_TOWER] if same else _equal_runs(runs_of_model, queries)
    seed = settings.run.seed
    watch = replace(watch, note=once(watch.note))
    for dataset in datasets if further else ():
        for run, document in zip(runs_of_model, documents, strict=False):
            dataset.store.require_encoder(document, who=run.name)
    results = []
    for (after, before), dataset in zip(systems, datasets, strict=True):
        runs = [after, *(System(run, after.store) for run in further)]
        results.append(_measure(runs, before, dataset, settings, watch, save_scores, trained))
    measured, deciding = [result for result, _ in results], [part.scores for _, part in results]
    # Measures that cannot change among listed candidates were left out.
    require_margin(
        settings.measure.margin, [change.measure for result in measured for change in result.changes]
    )
    measured = (
        [of_one_model(result, Margin.parse(settings.measure.margin)) for result in measured]
        if same
        else measured
    )
    after, before = systems[0]
    target, shown = datasets[0].examples, results[0][1]
    if not isinstance(target, LanguageGridSet):
        target = shown.queries or target.take(
            np.flatnonzero(np.isin(target.query_ids, shown.scores[0].units))
        )
    examples = (
        changed_queries(after, before, target, settings=settings.measure, seed=seed, removed=shown.removed)
        if before
        else []
    )
    return Result(
        title=title,
        command=command,
        created=now(),
        seconds=time.monotonic() - started,
        seed=seed,
        versions=versions(device_name(model.query.device)),
        model=model.name,
        runs=[run.name for run in further],
        equal_towers=equal,
        baseline=baseline.name if baseline else None,
        datasets=[replace(dataset, notes=[*equal, *dataset.notes]) for dataset in measured],
        examples=examples,
        power=set_powers(deciding, margin=Margin.parse(settings.measure.margin)) if power else [],
        settings=settings.recorded(),
        inputs=_inputs(datasets, [before for _, before in systems]),
    )


def _equal_runs(runs: Sequence[DualEncoder], queries: Sequence[Fingerprint]) -> list[str]:
    """Notes on runs with the weights of another, which say nothing about the spread of runs; `queries` begin
    with theirs.
    """
    pairs = [(run.name, runs[queries.index(own)].name) for run, own in zip(runs, queries, strict=False)]
    return [
        f"{run} has the query tower of {other}: it is a copy, or both kept the starting "
        "weights; intervals over runs are too narrow"
        for run, other in pairs
        if run != other
    ]


def _systems(
    model: DualEncoder,
    baseline: DualEncoder | None,
    prints: Sequence[Fingerprint],
    datasets: Sequence[Dataset],
) -> list[tuple[System, System | None]]:
    """Systems to measure on each data set: the model, and the baseline; data sets of one store share
    theirs.
    """
    systems: dict[int, tuple[System, System | None]] = {}
    for dataset in datasets:
        if id(dataset.store) not in systems:
            dataset.store.require_encoder(prints[0], who=model.name)
            before = (
                None
                if baseline is None
                else baseline_system(baseline, prints[1], dataset.store, dataset.baseline_stores)
            )
            systems[id(dataset.store)] = System(model, dataset.store), before
    return [systems[id(dataset.store)] for dataset in datasets]


def _inputs(datasets: Sequence[Dataset], baselines: Sequence[System | None]) -> dict[str, Any]:
    """Inputs by role: ``target``, ``retain 1``, ``retain 2``, ..."""
    inputs: dict[str, Any] = {}
    for dataset, before in zip(datasets, baselines, strict=True):
        name = (
            dataset.role
            if dataset.role == "target"
            else f"retain {sum(key != 'target' for key in inputs) + 1}"
        )
        split = {} if dataset.split is None else {"split": dataset.split}
        inputs[name] = {"data": dataset.source, **split, **store_inputs(dataset.store, before)}
    return inputs


def _measure(
    runs: Sequence[System],
    before: System | None,
    dataset: Dataset,
    settings: EvaluateSettings,
    watch: Watch,
    save_scores: SaveScores | None,
    trained: Sequence[TrainedTexts | None],
) -> tuple[DatasetResult, ScoredPart]:
    """Score the runs of the model and the baseline, and compare their queries; also the part that decides."""
    drawing: dict[str, Any] = {
        "seed": settings.run.seed,
        "resamples": settings.measure.resamples,
        "margin": Margin.parse(settings.measure.margin),
    }
    after, systems = runs[0], [*runs, *([] if before is None else [before])]
    similarities = similarities_of(*(system.model for system in systems))
    grid = dataset.examples
    scores = []
    for system, record in zip(systems, trained or [None] * len(systems), strict=True):
        options: dict[str, Any] = {"similarities": similarities, "trained": record, "watch": watch}
        if isinstance(grid, LanguageGridSet):
            scores.append(score_nli_grid(system.model, grid, hypotheses=system.store, **options))
        else:
            scores.append(score_retrieval(system, grid, settings=settings.measure, **options))
    sides = [
        "model",
        *(f"model/run {number}" for number in range(2, len(runs) + 1)),
        *(["baseline"] if before else []),
    ]
    for side, each in zip(sides, scores, strict=True):
        if save_scores:
            save_scores((side, each))
    overlaps = [
        overlap
        for system, each in zip(systems, scores, strict=True)
        for overlap in each.trained_on(system.model.name)
    ]
    if isinstance(grid, LanguageGridSet):
        result = dataset_result(*_sides(scores, before), grid, role=dataset.role, **drawing)
        deciding = ScoredPart("all queries", scores)
    else:

        def residual(queries: Int[np.ndarray, " k"]) -> ScoredPart | None:
            collection = (
                residual_collection(grid, queries, after.store, trained)
                if scores[0].kind == "retrieval"
                else None
            )
            if collection is None:
                return None
            examples, removed = collection
            options: dict[str, Any] = {
                "settings": settings.measure,
                "similarities": similarities,
                "removed": removed,
                "watch": watch,
            }
            return ScoredPart(
                "residual collection",
                [score_retrieval(system, examples, **options) for system in systems],
                *collection,
            )

        # Without a baseline there is nothing to decide.
        decision = (
            decide(scores, residual)
            if before
            else Decision([ScoredPart("all queries", scores)], 0, is_proof=True)
        )
        deciding = decision.parts[0]
        result = dataset_result(*_sides(deciding.scores, before), None, role=dataset.role, **drawing)
        # The first part decides, and is measured already.
        changes = [
            result.main_change(),
            *(_main_change(part, before, **drawing) for part in decision.parts[1:]),
        ]
        parts = (
            [_part(*pair) for pair in zip(decision.parts, changes, strict=True)] if len(changes) > 1 else []
        )
        near = [
            seen.near_queries
            for each in deciding.scores
            for seen in each.trained_on("")
            if seen.near_queries is not None
        ]
        result = replace(
            result, parts=parts, left_out=decision.left_out, near_queries=max(near, default=None)
        )
        overlaps = [
            replace(overlap, is_proof=decision.is_proof or not overlap.trained_queries)
            for overlap in overlaps
        ]
    result = replace(result, notes=[*dataset.notes, *result.notes, *_other_similarity(after, before)])
    return _with_overlap(result, overlaps), deciding


def _measures(datasets: Sequence[Dataset], report: Sequence[str]) -> list[str]:
    """What may be measured on the data sets."""
    is_grid = [isinstance(dataset.examples, LanguageGridSet) for dataset in datasets]
    return [*([] if all(is_grid) else [*report, *OF_PAIRS]), *(OF_NLI_GRIDS if any(is_grid) else [])]


def _sides(
    scores: Sequence[TaskScores], before: System | None
) -> tuple[Sequence[TaskScores], TaskScores | None]:
    """Scores of the runs of the model, and of the baseline, which come last."""
    return (scores, None) if before is None else (scores[:-1], scores[-1])


def dataset_result(
    runs: Sequence[TaskScores],
    before: TaskScores | None,
    grid: LanguageGridSet | None,
    *,
    role: Role,
    seed: int,
    resamples: int,
    margin: Margin = DEFAULT_MARGIN,
) -> DatasetResult:
    """Result of queries, or of a grid of sentence pairs, over the runs of a model; `before` is the baseline,
    or None.
    """
    after = runs[0]
    drawing: dict[str, Any] = {"seed": seed, "resamples": resamples, "margin": margin}
    changes = _changes([scores.samples for scores in runs], before.samples if before else None, **drawing)
    clusters, units = after.samples[0].clusters, int((after.samples[0].weights > 0).sum())
    changes = without_good_news(changes) if clusters is not None and clusters.too_few else changes
    doubt = _doubt(changes[0], clusters, units, after.unit)
    result = DatasetResult(
        name=after.task,
        role=role,
        kind="pairs" if after.kind == "triplets" else "ranking",
        queries=len(after.units),
        documents=after.documents,
        pairs=0,
        main=after.samples[0].measure,
        changes=changes,
        notes=[*after.notes, *(note for note in after.cluster_notes if note != doubt)],
        ladder=_changes([scores.ladder for scores in runs], before.ladder if before else None, **drawing),
        units=units,
        clusters=clusters.count if clusters is not None and clusters.drawn else None,
        doubt=doubt,
    )
    _require_below_measure(margin, result)
    if grid is None:
        pooled = next(sample for sample in after.samples if sample.measure == "PND pooled")
        return replace(result, pairs=int(pooled.weights.sum()))
    against = [[each] for each in before.grids] if before else [None] * len(after.grids)
    grids = list(zip(*(scores.grids for scores in runs), strict=True))
    by_main = [each for each in after.grids if each.similarity == after.samples[0].similarity]
    compared = by_main[0].values[..., 0].size if before and len(runs) == 1 else 0
    return replace(
        result,
        kind="grid",
        queries=len(grid) * len(grid.languages),
        pairs=sum(each.total * each.values[..., 0].size for each in by_main),
        languages=list(grid.languages),
        grid=[grid_over_runs(now, was, **drawing) for now, was in zip(grids, against, strict=True)],
        notes=[*result.notes, *flips_notes(compared, requested=resamples)],
    )


def _changes(
    runs: Sequence[Sequence[Sample]], before: Sequence[Sample] | None, **drawing: Any
) -> list[Change]:
    """A change for each measure, over the runs of the model."""
    return changes_over_runs(
        list(zip(*runs, strict=True)), None if before is None else [[sample] for sample in before], **drawing
    )


def _doubt(change: Change, clusters: Clusters | None, units: int, unit: str) -> str:
    """Why the verdict is less certain than it looks: units depend on one another but are drawn singly, or
    there are very few.
    """
    if clusters is not None and clusters.too_few:
        return clusters.sentence(unit)
    count, noun = (clusters.count, "cluster") if clusters is not None and clusters.drawn else (units, unit)
    if change.verdict in ("better", "worse") and count < FEWEST_UNITS:
        return (
            f"{change.verdict} on {counted(count, noun)}, and fewer than "
            f"{FEWEST_UNITS} say little about others"
        )
    return ""


def _require_below_measure(margin: Margin, result: DatasetResult) -> None:
    """A margin that is all of a measure would call any loss no loss."""
    for change in result.changes:
        if (
            change.most is not None
            and change.margin is not None
            and margin.of(change.measure).unit
            and change.margin >= change.most
        ):
            raise ConfigError(
                f"measure.margin must be below all that {change.measure} can lose on "
                f"{result.name}, {change.most:.3g}, got {margin}; "
                "take a smaller one"
            )


def _main_change(
    part: ScoredPart, before: System | None, *, seed: int, resamples: int, margin: Margin
) -> Change:
    """The main measure on a part of the queries."""
    runs, baseline = _sides(part.scores, before)
    drawing: dict[str, Any] = {"seed": seed, "resamples": resamples, "margin": margin}
    (change,) = _changes(
        [scores.samples[:1] for scores in runs], baseline.samples[:1] if baseline else None, **drawing
    )
    return change


def _part(part: ScoredPart, change: Change) -> Part:
    return Part(part.name, len(part.scores[0].units), change, above=int(part.scores[0].facts.get(ABOVE, 0)))


def _with_overlap(result: DatasetResult, overlaps: Sequence[TrainedOn]) -> DatasetResult:
    """Add the records of training data; verdicts are removed if they prove nothing."""
    if all(overlap.is_proof for overlap in overlaps):
        return replace(result, trained=list(overlaps))
    changes, ladder = without_verdicts(result.changes), without_verdicts(result.ladder)
    return replace(
        result,
        trained=list(overlaps),
        changes=changes,
        ladder=ladder,
        grid=without_grid_verdicts(result.grid),
    )


def _other_similarity(after: System, before: System | None) -> list[str]:
    """A note if the baseline states another similarity than the model, by which both are compared first."""
    if (
        before is None
        or before.model.unit
        or before.model.similarity == similarities_of(after.model, before.model)[0]
    ):
        return []
    return [
        f"the baseline {before.model.name} states {IN_WORDS[before.model.similarity]}: "
        "check the values under that similarity too"
    ]


def changed_queries(
    after: System,
    before: System,
    examples: AddressedSet | LanguageGridSet,
    *,
    settings: MeasureSection,
    seed: int,
    removed: Int[np.ndarray, " r"] | None = None,
) -> list[ChangedQuery]:
    """Queries whose top results changed, drawn at random: gains and losses as they come.

    Rows in `removed` are in no ranking.
    """
    store = after.store
    if isinstance(examples, LanguageGridSet):
        return []
    order: list[int] = np.random.default_rng(seed).permutation(len(examples))[:SEARCHED_QUERIES].tolist()
    texts = [examples.queries[row] for row in order]
    ids = [examples.query_ids[row] for row in order]
    identical = identical_documents(
        store, ids, texts, examples.positives.take(np.array(order)), drop=settings.drop_same_id
    )
    excluded = [identical.rows[number] for number in range(len(order))]
    similarity = similarities_of(after.model, before.model)[0]
    options: dict[str, Any] = {"similarity": similarity, "excluded": excluded, "removed": removed}
    first, last = (
        search(
            system.store,
            system.model.encode(texts, side="query", precision="fp32"),
            SHOWN_HITS,
            device=system.device,
            **options,
        )
        for system in (before, after)
    )
    changed = [number for number in range(len(order)) if list(first.rows[number]) != list(last.rows[number])][
        :SHOWN_QUERIES
    ]
    return [
        ChangedQuery(
            dataset=examples.name,
            query=texts[number],
            before=hits_of(
                store,
                first,
                number,
                examples.positives[order[number]],
                similarity=similarity,
                characters=SHOWN_CHARACTERS,
            ),
            after=hits_of(
                store,
                last,
                number,
                examples.positives[order[number]],
                similarity=similarity,
                characters=SHOWN_CHARACTERS,
            ),
        )
        for number in changed
    ]
