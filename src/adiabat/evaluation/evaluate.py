"""``adiabat evaluate``: a model, optionally against a baseline, on a target data set and on retention
sets.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Int

from adiabat.config.shared import EvaluateSettings, MeasureSection
from adiabat.core.margin import DEFAULT_MARGIN, Margin
from adiabat.core.progress import Watch, once
from adiabat.core.provenance import now, versions
from adiabat.core.text import IN_WORDS
from adiabat.data.examples import read_examples
from adiabat.data.language_grids import require_every_label
from adiabat.data.records import Fingerprint, LanguageGridSet
from adiabat.data.text_hashes import TrainedTexts
from adiabat.evaluation.decisive_queries import Decision, ScoredPart, decide, residual_collection
from adiabat.evaluation.language_grid_tasks import score_nli_grid
from adiabat.evaluation.retrieval import ABOVE, require_clusters, score_retrieval
from adiabat.evaluation.score_files import Scored, state_of
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
from adiabat.evaluation.verdicts import grid_over_runs, require_margin_below
from adiabat.models.device import device_name
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import (
    Change,
    ChangedQuery,
    DatasetResult,
    Hit,
    Part,
    Result,
    TrainedOn,
)
from adiabat.results.verdict import Reason
from adiabat.stats.grid_comparison import flips_notes
from adiabat.stats.paired import changes_over_runs
from adiabat.stats.samples import Sample, TaskScores
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.search import Hits, hits_of, search
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


SaveScores = Callable[[Scored], None]
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
    run_differences: Sequence[str] = (),
    power: bool = False,
) -> Result:
    """Measure a model on every data set, optionally against a baseline.

    Args:
        run_differences: Sentences on further runs that differ from the model in more than the seed.
        power: Whether to compute what each data set could show.
        save_scores: Receives the scores of each model on each data set; None drops them.
        trained: Training data of the jobs of the model, its further runs, and the baseline; None for a model
            without a job.
        further: Further runs of the model, of other seeds.
    """
    started = time.monotonic()
    runs_of_model = [model, *further]
    # Each model once, since that hashes its weights.
    measured = [*runs_of_model, *filter(None, [baseline])]
    prints = [each.fingerprints() for each in measured]
    states = [state_of(*sides, each.similarity) for sides, each in zip(prints, measured, strict=True)]
    queries, documents = [query for query, _ in prints], [document for _, document in prints]
    systems = _systems(model, baseline, [documents[0], *documents[len(runs_of_model) :]], datasets)
    baseline_stores = {id(store): store for dataset in datasets for store in dataset.baseline_stores}
    refuse_unused_stores(list(baseline_stores.values()), [before.store for _, before in systems if before])
    same = (
        baseline is not None and documents[0] == documents[-1] and queries.count(queries[0]) == len(queries)
    )
    equal = [SAME_TOWER] if same else _equal_runs(runs_of_model, queries)
    known = [Reason.RUNS_DIFFER] if run_differences else []
    if equal:
        known.append(Reason.ONE_MODEL if same else Reason.EQUAL_RUNS)
    watch = replace(watch, note=once(watch.note))
    for dataset in datasets if further else ():
        for run, document in zip(runs_of_model, documents, strict=False):
            dataset.store.require_encoder(document, who=run.name)
    results: list[DatasetResult] = []
    deciding: list[ScoredPart] = []
    for (after, before), dataset in zip(systems, datasets, strict=True):
        runs = [after, *(System(run, after.store) for run in further)]
        contest = _Contest(
            dataset, runs, before, tuple(trained) or (None,) * (len(runs) + 1), known, settings, watch
        )
        scores = contest.scores()
        if save_scores:
            for side, task_scores, state in zip(contest.sides, scores, states, strict=True):
                save_scores(Scored(side, task_scores, state))
        result, part = contest.judged(scores)
        results.append(result)
        deciding.append(part)
    after, before = systems[0]
    target, shown = datasets[0].examples, deciding[0]
    if not isinstance(target, LanguageGridSet):
        target = shown.queries or target.take(
            np.flatnonzero(np.isin(target.query_ids, shown.scores[0].units))
        )
    examples: list[ChangedQuery] = []
    if before:
        examples = changed_queries(
            after, before, target, settings=settings.measure, seed=settings.run.seed, removed=shown.removed
        )
    return Result(
        title=title,
        command=command,
        created=now(),
        seconds=time.monotonic() - started,
        seed=settings.run.seed,
        versions=versions(device_name(model.query.device)),
        model=model.name,
        runs=[run.name for run in further],
        run_differences=list(run_differences),
        equal_towers=equal,
        baseline=baseline.name if baseline else None,
        datasets=[replace(dataset, notes=[*equal, *dataset.notes]) for dataset in results],
        examples=examples,
        power=set_powers([part.scores for part in deciding], margin=settings.measure.loss_margin())
        if power
        else [],
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


@dataclass(frozen=True, slots=True)
class _Contest:
    """The runs of a model on a data set, against a baseline if there is one.

    Attributes:
        trained: Training data of the jobs of the runs, and of the baseline.
        known: What is known of the models beside their scores.
    """

    dataset: Dataset
    runs: Sequence[System]
    before: System | None
    trained: Sequence[TrainedTexts | None]
    known: Sequence[Reason]
    settings: EvaluateSettings
    watch: Watch

    @property
    def systems(self) -> list[System]:
        """The runs, then the baseline."""
        return [*self.runs, *([] if self.before is None else [self.before])]

    @property
    def sides(self) -> list[str]:
        """Names of the scores of each system."""
        further = [f"model/run {number}" for number in range(2, len(self.runs) + 1)]
        return ["model", *further, "baseline"][: len(self.systems)]

    def scores(self) -> list[TaskScores]:
        """Scores of each system on all units."""
        examples = self.dataset.examples
        if not isinstance(examples, LanguageGridSet):
            return self._ranked(examples, self.trained)
        similarities = similarities_of(*(system.model for system in self.systems))
        return [
            score_nli_grid(
                system.model,
                examples,
                hypotheses=system.store,
                similarities=similarities,
                trained=record,
                watch=self.watch,
            )
            for system, record in zip(self.systems, self.trained, strict=False)
        ]

    def judged(self, scores: list[TaskScores]) -> tuple[DatasetResult, ScoredPart]:
        """The comparison, and the part of the queries that decides it."""
        overlaps: list[TrainedOn] = []
        for system, task_scores in zip(self.systems, scores, strict=True):
            overlaps += task_scores.trained_on(system.model.name)
        decision = self._decision(scores)
        deciding = decision.parts[0]
        result = self._result(deciding.scores, [*self.known, *decision.known])
        if not isinstance(self.dataset.examples, LanguageGridSet):
            result = self._with_parts(result, decision)
        can_prove = Reason.TRAINED_ON not in decision.known
        overlaps = [
            replace(overlap, is_proof=can_prove or not overlap.trained_queries) for overlap in overlaps
        ]
        notes = [*self.dataset.notes, *result.notes, *_other_similarity(self.runs[0], self.before)]
        return replace(result, notes=notes, trained=overlaps), deciding

    def _with_parts(self, result: DatasetResult, decision: Decision) -> DatasetResult:
        """The result of the part that decides, with the changes on the others."""
        deciding, *others = decision.parts
        parts = [_part(part, self._main_change(part)) for part in others]
        if parts:
            parts.insert(0, _part(deciding, result.main_change()))
        near: list[int] = []
        for task_scores in deciding.scores:
            near += [
                seen.near_queries for seen in task_scores.trained_on("") if seen.near_queries is not None
            ]
        return replace(result, parts=parts, left_out=decision.left_out, near_queries=max(near, default=None))

    def _main_change(self, part: ScoredPart) -> Change:
        """The change of the main measure on a part that does not decide."""
        *runs, last = [task_scores.samples[:1] for task_scores in part.scores]
        known = [*self.known, Reason.SEEN_DOCUMENTS] if part.name == "seen documents" else self.known
        measure, is_retained = self.settings.measure, self.dataset.role == "retain"
        (change,) = _changes(
            runs,
            last,
            seed=self.settings.run.seed,
            resamples=measure.resamples,
            margin=measure.loss_margin(),
            known=known,
            is_retained=is_retained,
        )
        return change

    def _decision(self, scores: list[TaskScores]) -> Decision:
        """The units that decide; without a baseline all, since there is nothing to decide."""
        if self.before is None:
            return Decision([ScoredPart("all queries", scores)], 0)
        examples = self.dataset.examples
        if scores[0].kind != "retrieval" or isinstance(examples, LanguageGridSet):
            return decide(scores)
        return decide(scores, partial(self._residual, examples))

    def _residual(self, examples: AddressedSet, queries: Int[np.ndarray, " k"]) -> ScoredPart | None:
        collection = residual_collection(examples, queries, self.runs[0].store, self.trained)
        if collection is None:
            return None
        rest, removed = collection
        return ScoredPart(
            "residual collection", self._ranked(rest, (None,) * len(self.systems), removed), rest, removed
        )

    def _ranked(
        self,
        examples: AddressedSet,
        trained: Sequence[TrainedTexts | None],
        removed: Int[np.ndarray, " r"] | None = None,
    ) -> list[TaskScores]:
        similarities = similarities_of(*(system.model for system in self.systems))
        return [
            score_retrieval(
                system,
                examples,
                settings=self.settings.measure,
                similarities=similarities,
                trained=record,
                removed=removed,
                watch=self.watch,
            )
            for system, record in zip(self.systems, trained, strict=False)
        ]

    def _result(self, scores: Sequence[TaskScores], known: Sequence[Reason]) -> DatasetResult:
        has_baseline, examples = self.before is not None, self.dataset.examples
        return dataset_result(
            scores[:-1] if has_baseline else scores,
            scores[-1] if has_baseline else None,
            examples if isinstance(examples, LanguageGridSet) else None,
            role=self.dataset.role,
            seed=self.settings.run.seed,
            resamples=self.settings.measure.resamples,
            margin=self.settings.measure.loss_margin(),
            known=known,
        )


def dataset_result(
    runs: Sequence[TaskScores],
    before: TaskScores | None,
    grid: LanguageGridSet | None,
    *,
    role: Role,
    seed: int,
    resamples: int,
    margin: Margin = DEFAULT_MARGIN,
    known: Sequence[Reason] = (),
) -> DatasetResult:
    """Result of queries, or of a grid of sentence pairs, over the runs of a model; `before` is the baseline,
    or None.
    """
    after = runs[0]
    compare = partial(_changes, seed=seed, resamples=resamples, known=known, is_retained=role == "retain")
    changes = compare([scores.samples for scores in runs], before.samples if before else None, margin=margin)
    # Errors by listed negative are measures of their own, which never decide.
    ladder = compare(
        [scores.ladder for scores in runs], before.ladder if before else None, margin=margin.of_others
    )
    require_margin_below(margin, changes[0], after.task)
    clusters = after.samples[0].clusters
    result = DatasetResult(
        name=after.task,
        role=role,
        kind="pairs" if after.kind == "triplets" else "ranking",
        queries=len(after.units),
        documents=after.documents,
        pairs=0,
        main=after.samples[0].measure,
        changes=changes,
        notes=[*after.notes, *after.cluster_notes],
        ladder=ladder,
        units=int((after.samples[0].weights > 0).sum()),
        clusters=clusters.count if clusters is not None and clusters.drawn else None,
    )
    if grid is None:
        pooled = next(sample for sample in after.samples if sample.measure == "PND pooled")
        return replace(result, pairs=int(pooled.weights.sum()))
    by_main = [each for each in after.grids if each.similarity == after.samples[0].similarity]
    against = [[each] for each in before.grids] if before else [None] * len(after.grids)
    grids = zip(zip(*(scores.grids for scores in runs), strict=True), against, strict=True)
    cells = by_main[0].values[..., 0].size
    return replace(
        result,
        kind="grid",
        queries=len(grid) * len(grid.languages),
        pairs=sum(each.total * cells for each in by_main),
        languages=list(grid.languages),
        grid=[
            grid_over_runs(now, was, seed=seed, resamples=resamples, margin=margin, known=known)
            for now, was in grids
        ],
        notes=[*result.notes, *flips_notes(cells if before and len(runs) == 1 else 0, requested=resamples)],
    )


def _changes(
    runs: Sequence[Sequence[Sample]], before: Sequence[Sample] | None, **drawing: Any
) -> list[Change]:
    """A change for each measure, over the runs of the model."""
    return changes_over_runs(
        list(zip(*runs, strict=True)), None if before is None else [[sample] for sample in before], **drawing
    )


def _part(part: ScoredPart, change: Change) -> Part:
    return Part(part.name, len(part.scores[0].units), change, above=int(part.scores[0].facts.get(ABOVE, 0)))


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

    def shown(found: Hits, number: int) -> list[Hit]:
        positives = examples.positives[order[number]]
        return hits_of(store, found, number, positives, similarity=similarity, characters=SHOWN_CHARACTERS)

    changed = [number for number in range(len(order)) if list(first.rows[number]) != list(last.rows[number])][
        :SHOWN_QUERIES
    ]
    return [
        ChangedQuery(
            dataset=examples.name,
            query=texts[number],
            before=shown(first, number),
            after=shown(last, number),
        )
        for number in changed
    ]
