"""Training data of the evaluated model's job among the units of a task."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from adiabat.data.records import POSITIVE, LanguageGridSet
from adiabat.data.trained_texts import TrainedTexts
from adiabat.results.evaluation_result import Change, DatasetResult, GridComparison, TrainedOn, Unseen
from adiabat.stats.paired import paired_changes
from adiabat.stats.samples import TaskScores, TrainingOverlap
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store


def query_overlap(record: TrainedTexts | None, examples: AddressedSet, store: Store) -> TrainingOverlap | None:
    """Training data of a job among the queries and relevant documents; None without a job."""
    if record is None:
        return None
    rows, number_of = np.unique(examples.positives.values, return_inverse=True)
    documents = store.texts(rows) if store.has_texts else store.doc_ids(rows)
    known = record.holds_documents(documents, are_texts=store.has_texts)
    lengths = examples.positives.lengths
    owners = np.repeat(np.arange(len(examples)), lengths)
    counts = None if known is None else np.bincount(owners, weights=known[number_of], minlength=len(examples)).astype(np.int64)
    return TrainingOverlap(record.holds_queries(examples.queries), np.asarray(lengths, dtype=np.int64), counts, record.unknown)


def premise_overlap(record: TrainedTexts | None, grid: LanguageGridSet, clusters: Int[np.ndarray, " n"]) -> TrainingOverlap | None:
    """Training data of a job among the premises and entailed hypotheses, in any language; None without a job."""
    if record is None:
        return None
    count, languages = int(clusters.max()) + 1, len(grid.languages)
    premise_known = record.holds_queries([text for premise in grid.premises for text in premise.values()]).reshape(-1, languages)
    entailed = np.flatnonzero([label == POSITIVE for label in grid.labels])
    hypotheses = [text for pair in entailed.tolist() for text in grid.hypotheses[pair].values()]
    known = record.holds_documents(hypotheses, are_texts=True)
    relevant = languages * np.bincount(clusters[entailed], minlength=count)
    owners = np.repeat(clusters[entailed], languages)
    counts = None if known is None else np.bincount(owners, weights=known, minlength=count).astype(np.int64)
    return TrainingOverlap(np.bincount(clusters, weights=premise_known.any(axis=1), minlength=count) > 0, relevant, counts, record.unknown)


def trained_on(model: str, scores: TaskScores) -> Iterator[TrainedOn]:
    """The record of one model's training data in a task."""
    overlap = scores.trained
    if overlap is None:
        return
    counts = overlap.documents
    yield TrainedOn(
        model=model,
        queries=len(scores.units),
        trained_queries=int(overlap.queries.sum()),
        relevant=int(overlap.relevant.sum()),
        trained_relevant=None if counts is None else int(counts.sum()),
        answered=None if counts is None else int(np.count_nonzero(counts)),
        unknown=overlap.unknown,
        is_proof=overlap.is_proof,
    )


def measure_unseen(scores: Sequence[TaskScores], *, seed: int, resamples: int) -> Unseen | None:
    """Measure on the queries without any training data of a model.

    None where that is all queries or fewer than two, or where a model may have seen more than is known.
    """
    known = [task_scores.trained for task_scores in scores if task_scores.trained is not None]
    if any(task_scores.unknown or task_scores.documents is None for task_scores in known):
        return None
    unseen = [task_scores.unseen for task_scores in known]
    rows = np.flatnonzero(np.all(unseen, axis=0)) if unseen else ()
    if not 2 <= len(rows) < len(scores[0].units):
        return None
    after, *before = ([task_scores.take(np.asarray(rows)).samples[0]] for task_scores in scores)
    (change,) = paired_changes(after, before[0] if before else None, seed=seed, resamples=resamples)
    return Unseen(len(rows), change)


def with_overlap(result: DatasetResult, overlaps: Sequence[TrainedOn]) -> DatasetResult:
    """Add the records of training data; above a tenth of the queries, verdicts go."""
    if all(overlap.is_proof for overlap in overlaps):
        return replace(result, trained=list(overlaps))
    changes, ladder = without_verdicts(result.changes), without_verdicts(result.ladder)
    return replace(result, trained=list(overlaps), changes=changes, ladder=ladder, grid=without_grid_verdicts(result.grid))


def without_verdicts(changes: Sequence[Change]) -> list[Change]:
    """Changes without verdicts, of a model that saw too many of the units in training."""
    return [replace(change, verdict=None) for change in changes]


def without_grid_verdicts(grids: Sequence[GridComparison]) -> list[GridComparison]:
    """Language grids without verdicts."""
    return [replace(grid, verdicts=None, improved=None, worsened=None, improved_z=None, worsened_z=None) for grid in grids]
