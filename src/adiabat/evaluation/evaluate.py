"""``adiabat evaluate``: a model, optionally against a baseline, on a target data set and on retention
sets.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from adiabat.config.shared import EvaluateSettings, MeasureSection
from adiabat.core.errors import DataError
from adiabat.core.margin import DEFAULT_MARGIN, Margin
from adiabat.core.progress import Watch, once
from adiabat.core.provenance import now, versions
from adiabat.core.text import IN_WORDS
from adiabat.core.wording import option
from adiabat.data.examples import read_examples
from adiabat.data.language_grids import require_every_label
from adiabat.data.records import Fingerprint, LanguageGridSet
from adiabat.data.text_files import QueryLog
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
from adiabat.evaluation.unlabelled_queries import apart_from, with_possible_losses
from adiabat.evaluation.verdicts import grid_over_runs, require_margin_below
from adiabat.models.device import device_name
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import (
    Change,
    ChangedQuery,
    DatasetResult,
    Part,
    Result,
)
from adiabat.results.verdict import Reason
from adiabat.stats.grid_comparison import flips_notes
from adiabat.stats.paired import changes_over_runs
from adiabat.stats.samples import Sample, TaskScores
from adiabat.stats.unit_arrays import Rows
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.fusion import Fusion
from adiabat.store.own_bm25 import own_fusion
from adiabat.store.search import Hits, hits_of
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
    tower (`baseline_stores`); `unlabelled` are further queries of its kind, which nobody judged.
    """

    store: Store
    examples: AddressedSet | LanguageGridSet
    role: Role
    source: str = ""
    split: str | None = None
    baseline_stores: Sequence[Store] = ()
    notes: Sequence[str] = ()
    unlabelled: QueryLog | None = None


def read_dataset(
    store: Store,
    path: str,
    *,
    role: Role,
    settings: EvaluateSettings,
    split: str | None,
    baseline_stores: Sequence[Store] = (),
    unlabelled: QueryLog | None = None,
) -> Dataset:
    """Read a data set and find its documents in a store."""
    columns: dict[str, str] = {}
    by_column = False
    if role == "target":
        columns = settings.data.columns.given()
        by_column = settings.measure.cluster not in ("documents", "none")
    if by_column:
        columns["measure.cluster"] = settings.measure.cluster
    examples = read_examples(path, split=split, columns=columns)
    if isinstance(examples, LanguageGridSet):
        require_every_label(examples, source=path)
        if unlabelled is not None:
            raise DataError(
                f"{option('unlabelled')} must belong to queries with relevant documents, got the language "
                f"grid {path}; leave it out"
            )
        return Dataset(store, examples, role, path, split, baseline_stores)
    if by_column:
        require_clusters(examples, source=path)
    addressed = address(
        examples, store, missing=settings.data.missing, ids=settings.data.ids, merge_equal=True
    )
    return Dataset(store, addressed, role, path, split, baseline_stores, unlabelled=unlabelled)


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
    watch = replace(watch, note=once(watch.note))
    models = [model, *further, *filter(None, [baseline])]
    # Each model once, since that hashes its weights.
    prints = [each.fingerprints() for each in models]
    is_fused = [settings.fuse.by is not None] * len(models)
    if baseline is not None and settings.fuse.baseline == "none":
        is_fused[-1] = False
    states = [
        state_of(*sides, each.similarity, settings.fuse.key if fused else "")
        for sides, each, fused in zip(prints, models, is_fused, strict=True)
    ]
    equal, known = _equal_towers(models, prints, is_fused, has_baseline=baseline is not None)
    if run_differences:
        known.append(Reason.RUNS_DIFFER)
    contests = []
    of_stores: dict[tuple[int, bool], tuple[list[System], System | None]] = {}
    for dataset in datasets:
        # Data sets of one store share its systems: a baseline's store is compared with it once, id by id.
        key = id(dataset.store), isinstance(dataset.examples, LanguageGridSet)
        systems = of_stores.get(key)
        if systems is None:
            # A language grid ranks nothing.
            _, is_grid = key
            fusion = None if is_grid else own_fusion(dataset.store, settings.fuse, watch)
            fusions = [fusion if fused else None for fused in is_fused]
            systems = _systems(dataset, models, prints, fusions, has_baseline=baseline is not None)
            of_stores[key] = systems
        contests.append(_Contest(dataset, *systems, trained or [None] * len(models), known, settings, watch))
    befores = [contest.before for contest in contests]
    used = [before.store for before in befores if before]
    for dataset in datasets:
        refuse_unused_stores(dataset.baseline_stores, used)
    results: list[DatasetResult] = []
    deciding: list[ScoredPart] = []
    for contest in contests:
        scores = contest.scores()
        if save_scores:
            for side, task_scores, state in zip(contest.sides, scores, states, strict=True):
                save_scores(Scored(side, task_scores, state))
        result, part = contest.judged(scores)
        results.append(replace(result, notes=[*equal, *result.notes]))
        deciding.append(part)
    margin = settings.measure.loss_margin()
    return Result(
        title=title,
        command=command,
        created=now(),
        seconds=time.monotonic() - started,
        seed=settings.run.seed,
        versions=versions(device_name(model.query.device)),
        model=contests[0].runs[0].name,
        runs=[run.name for run in contests[0].runs[1:]],
        run_differences=list(run_differences),
        equal_towers=equal,
        baseline=None if befores[0] is None else befores[0].name,
        datasets=results,
        # Of the target, which is the first data set.
        examples=contests[0].changed_queries(deciding[0]),
        power=set_powers([part.scores for part in deciding], margin=margin) if power else [],
        settings=settings.recorded(),
        inputs=_inputs(datasets, befores),
    )


def _equal_towers(
    models: Sequence[DualEncoder],
    prints: Sequence[Sequence[Fingerprint]],
    is_fused: Sequence[bool],
    *,
    has_baseline: bool,
) -> tuple[list[str], list[Reason]]:
    """Notes on models that are one model, and the reason of a verdict that follows.

    Runs with the weights of another run say nothing about the spread of runs.
    """
    queries = [query for query, _ in prints]
    # Fingerprints cover weights, tokenizer, prompt and limits of both towers.
    alike = prints.count(prints[0]) == len(prints) and len(set(is_fused)) == 1
    if has_baseline and alike:
        return [SAME_TOWER], [Reason.ONE_MODEL]
    notes = []
    # A baseline may equal a run: that is no fault of the runs.
    for number in range(len(models) - has_baseline):
        first = queries.index(queries[number])
        if first < number:
            notes.append(
                f"{models[number].name} has the query tower of {models[first].name}: it is a copy, or both "
                "kept the starting weights; intervals over runs are too narrow"
            )
    return notes, [Reason.EQUAL_RUNS] if notes else []


def _systems(
    dataset: Dataset,
    models: Sequence[DualEncoder],
    prints: Sequence[Sequence[Fingerprint]],
    fusions: Sequence[Fusion | None],
    *,
    has_baseline: bool,
) -> tuple[list[System], System | None]:
    """The runs, whose document towers must have made the store, and the baseline with its documents."""
    runs, before = [], None
    for number, (model, (_, document)) in enumerate(zip(models, prints, strict=True), start=1):
        if has_baseline and number == len(models):
            before = baseline_system(model, document, dataset.store, dataset.baseline_stores)
            before = replace(before, fusion=fusions[-1])
        else:
            dataset.store.require_encoder(document, who=model.name)
            runs.append(System(model, dataset.store, fusions[0]))
    return runs, before


def _inputs(datasets: Sequence[Dataset], baselines: Sequence[System | None]) -> dict[str, Any]:
    """Inputs by role: ``target``, ``retain 1``, ``retain 2``, ..."""
    inputs: dict[str, Any] = {}
    for dataset, before in zip(datasets, baselines, strict=True):
        name = dataset.role if dataset.role == "target" else f"retain {len(inputs.keys() - {'target'}) + 1}"
        split = {} if dataset.split is None else {"split": dataset.split}
        log = {} if dataset.unlabelled is None else {"unlabelled": dataset.unlabelled.source}
        inputs[name] = {"data": dataset.source, **split, **log, **store_inputs(dataset.store, before)}
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
            for system, record in zip(self.systems, self.trained, strict=True)
        ]

    def judged(self, scores: list[TaskScores]) -> tuple[DatasetResult, ScoredPart]:
        """The comparison, and the part of the queries that decides it."""
        decision = self._decision(scores)
        deciding, *others = decision.parts
        deciding, unlabelled, notes = self._with_unlabelled(deciding)
        result = self._result(deciding.scores, [*self.known, *decision.known])
        can_prove = Reason.TRAINED_ON not in decision.known
        overlaps = []
        for system, task_scores in zip(self.systems, scores, strict=True):
            for overlap in task_scores.trained_on(system.name):
                overlaps.append(replace(overlap, is_proof=can_prove or not overlap.trained_queries))
        # The parts that do not decide are shown beside the one that does.
        parts = [_part(part, self._main_change(part)) for part in others]
        if parts:
            parts.insert(0, _part(deciding, result.main_change()))
        notes += [*self.dataset.notes, *result.notes, *_other_similarity(self.runs[0], self.before)]
        result = replace(result, notes=notes, trained=overlaps, parts=parts, left_out=decision.left_out)
        result = replace(result, unlabelled=unlabelled)
        if not isinstance(self.dataset.examples, LanguageGridSet):
            result = replace(result, near_queries=_near_queries(deciding))
        return result, deciding

    def _with_unlabelled(self, part: ScoredPart) -> tuple[ScoredPart, int, list[str]]:
        """The part that decides, with what queries without judgements can lose, their number, and notes."""
        log, examples = self.dataset.unlabelled, self.dataset.examples
        if log is None or isinstance(examples, LanguageGridSet):
            return part, 0, []
        # A part of the queries may be of another kind than all of them.
        if part.name != "all queries":
            return part, 0, [f"queries without judgements bound nothing, since only {part.name} decide"]
        kept, notes = apart_from(examples, log.texts, self.trained)
        # What the judged queries miss, no more of others miss too.
        if len(kept) <= len(examples):
            return part, 0, notes
        scores = with_possible_losses(
            part.scores, self.systems, kept, examples, settings=self.settings.measure, watch=self.watch
        )
        return replace(part, scores=scores), len(kept), notes

    def _main_change(self, part: ScoredPart) -> Change:
        """The change of the main measure on a part that does not decide."""
        *runs, last = [task_scores.samples[:1] for task_scores in part.scores]
        known = [*self.known, Reason.SEEN_DOCUMENTS] if part.name == "seen documents" else self.known
        is_retained = self.dataset.role == "retain"
        (change,) = _changes(runs, last, **self._drawing, known=known, is_retained=is_retained)
        return change

    def _decision(self, scores: list[TaskScores]) -> Decision:
        """The units that decide; without a baseline all, since there is nothing to decide."""
        if self.before is None:
            return Decision([ScoredPart("all queries", scores)], 0)
        examples = self.dataset.examples
        if scores[0].kind != "retrieval" or isinstance(examples, LanguageGridSet):
            return decide(scores)
        return decide(scores, partial(self._residual, examples))

    def _residual(self, examples: AddressedSet, queries: Rows) -> ScoredPart | None:
        """Scores without the documents that answered training queries; None if too little is left."""
        collection = residual_collection(examples, queries, self.runs[0].store, self.trained)
        if collection is None:
            return None
        rest, removed = collection
        # The training data was counted on all queries already.
        scores = self._ranked(rest, [None] * len(self.systems), removed)
        return ScoredPart("residual collection", scores, rest, removed)

    def _ranked(
        self,
        examples: AddressedSet,
        trained: Sequence[TrainedTexts | None],
        removed: Rows | None = None,
    ) -> list[TaskScores]:
        """Scores of each system on queries; `trained` is what the job of each trained on."""
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
            for system, record in zip(self.systems, trained, strict=True)
        ]

    @property
    def _drawing(self) -> dict[str, Any]:
        """How changes are tested, and the loss that matters."""
        measure = self.settings.measure
        seed, margin = self.settings.run.seed, measure.loss_margin()
        return {"seed": seed, "resamples": measure.resamples, "margin": margin}

    def _result(self, scores: Sequence[TaskScores], known: Sequence[Reason]) -> DatasetResult:
        """The comparison on the units that decide."""
        examples = self.dataset.examples
        return dataset_result(
            scores[: len(self.runs)],
            None if self.before is None else scores[-1],
            examples if isinstance(examples, LanguageGridSet) else None,
            role=self.dataset.role,
            known=known,
            **self._drawing,
        )

    def changed_queries(self, part: ScoredPart) -> list[ChangedQuery]:
        """Queries among those that decide whose top results changed, for the page."""
        examples = self.dataset.examples
        if self.before is None or isinstance(examples, LanguageGridSet):
            return []
        deciding = np.isin(examples.query_ids, part.scores[0].units)
        return changed_queries(
            self.runs[0],
            self.before,
            part.queries or examples.take(np.flatnonzero(deciding)),
            settings=self.settings.measure,
            seed=self.settings.run.seed,
            removed=part.removed,
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
    # Every similarity has grids of its own; pairs are counted once.
    by_main = [each for each in after.grids if each.similarity == after.samples[0].similarity]
    cells = by_main[0].values[..., 0].size
    # Over several runs cells have no verdict: the number of flips says nothing.
    is_tested = before is not None and len(runs) == 1
    grids = []
    for number in range(len(after.grids)):
        of_runs = [scores.grids[number] for scores in runs]
        against = [before.grids[number]] if before else None
        grids.append(
            grid_over_runs(of_runs, against, seed=seed, resamples=resamples, margin=margin, known=known)
        )
    return replace(
        result,
        kind="grid",
        queries=len(grid) * len(grid.languages),
        pairs=sum(each.total * cells for each in by_main),
        languages=list(grid.languages),
        grid=grids,
        notes=[*result.notes, *flips_notes(cells if is_tested else 0, requested=resamples)],
    )


def _changes(
    runs: Sequence[Sequence[Sample]], before: Sequence[Sample] | None, **drawing: Any
) -> list[Change]:
    """A change for each measure, over the runs of the model."""
    return changes_over_runs(
        list(zip(*runs, strict=True)), None if before is None else [[sample] for sample in before], **drawing
    )


def _near_queries(part: ScoredPart) -> int | None:
    """The most near duplicates of training queries that a model has; None if no job recorded them."""
    counts = []
    for scores in part.scores:
        for overlap in scores.trained_on(""):
            if overlap.near_queries is not None:
                counts.append(overlap.near_queries)
    return max(counts, default=None)


def _part(part: ScoredPart, change: Change) -> Part:
    """A part of the queries as the result records it."""
    scores = part.scores[0]
    return Part(part.name, len(scores.units), change, above=int(scores.facts.get(ABOVE, 0)))


def _other_similarity(after: System, before: System | None) -> list[str]:
    """A note if the baseline states another similarity than the model, by which both are compared first."""
    if before is None or before.model.unit:
        return []
    stated = before.model.similarity
    if stated == similarities_of(after.model, before.model)[0]:
        return []
    return [
        f"the baseline {before.model.name} states {IN_WORDS[stated]}: "
        "check the values under that similarity too"
    ]


def changed_queries(
    after: System,
    before: System,
    examples: AddressedSet | LanguageGridSet,
    *,
    settings: MeasureSection,
    seed: int,
    removed: Rows | None = None,
) -> list[ChangedQuery]:
    """Queries whose top results changed, drawn at random: gains and losses as they come.

    Rows in `removed` are in no ranking.
    """
    if isinstance(examples, LanguageGridSet):
        return []
    order = np.random.default_rng(seed).permutation(len(examples))[:SEARCHED_QUERIES]
    drawn = examples.take(order)
    identical = identical_documents(
        after.store, drawn.query_ids, drawn.queries, drawn.positives, drop=settings.drop_same_id
    )
    similarity = similarities_of(after.model, before.model)[0]
    excluded = [identical.rows[number] for number in range(len(drawn))]

    def found(system: System) -> Hits:
        vectors = system.model.encode(drawn.queries, side="query", precision="fp32")
        return system.search(
            drawn.queries,
            vectors,
            SHOWN_HITS,
            similarity=similarity,
            excluded=excluded,
            removed=removed,
        )

    first, last = found(before), found(after)
    shown: list[ChangedQuery] = []
    for number, query in enumerate(drawn.queries):
        if list(first.rows[number]) == list(last.rows[number]):
            continue
        if len(shown) == SHOWN_QUERIES:
            break
        # Both sides show texts of one store: the baseline's holds the same documents.
        top = partial(
            hits_of,
            after.store,
            query=number,
            positives=drawn.positives[number],
            similarity=similarity,
            characters=SHOWN_CHARACTERS,
        )
        shown.append(ChangedQuery(examples.name, query, before=top(first), after=top(last)))
    return shown
