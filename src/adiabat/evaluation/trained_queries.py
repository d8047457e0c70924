"""How much of a task the job of the measured model trained or validated on."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from adiabat.data.records import POSITIVE, LanguageGridSet
from adiabat.data.trained_texts import TrainedTexts
from adiabat.results.evaluation_result import Change, DatasetResult, GridComparison, TrainedOn, Unseen
from adiabat.stats.paired import paired_changes
from adiabat.stats.samples import TaskScores, Trained
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store


def trained_queries(record: TrainedTexts | None, examples: AddressedSet, store: Store) -> Trained | None:
    """Count what of each query was trained on.

    Args:
        record: Of the job of the measured model; None where it is of none.
    """
    if record is None:
        return None
    rows, places = np.unique(examples.positives.values, return_inverse=True)
    documents = store.texts(rows) if store.has_texts else store.doc_ids(rows)
    found = record.holds_documents(documents, are_texts=store.has_texts)
    lengths = examples.positives.lengths
    owners = np.repeat(np.arange(len(examples)), lengths)
    counts = None if found is None else np.bincount(owners, weights=found[places], minlength=len(examples)).astype(np.int64)
    return Trained(record.holds_queries(examples.queries), np.asarray(lengths, dtype=np.int64), counts, record.unknown)


def trained_premises(record: TrainedTexts | None, grid: LanguageGridSet, clusters: Int[np.ndarray, " n"]) -> Trained | None:
    """Count what of each premise was trained on, in any language.

    Args:
        record: Of the job of the measured model; None where it is of none.
    """
    if record is None:
        return None
    count, languages = int(clusters.max()) + 1, len(grid.languages)
    asked = record.holds_queries([text for premise in grid.premises for text in premise.values()]).reshape(-1, languages)
    entailed = np.flatnonzero([label == POSITIVE for label in grid.labels])
    told = [text for pair in entailed.tolist() for text in grid.hypotheses[pair].values()]
    found = record.holds_documents(told, are_texts=True)
    relevant = languages * np.bincount(clusters[entailed], minlength=count)
    owners = np.repeat(clusters[entailed], languages)
    counts = None if found is None else np.bincount(owners, weights=found, minlength=count).astype(np.int64)
    return Trained(np.bincount(clusters, weights=asked.any(axis=1), minlength=count) > 0, relevant, counts, record.unknown)


def trained_on(model: str, scores: TaskScores) -> Iterator[TrainedOn]:
    """What to say of one model."""
    found = scores.trained
    if found is None:
        return
    counts = found.documents
    yield TrainedOn(
        model=model,
        queries=len(scores.units),
        trained_queries=int(found.queries.sum()),
        relevant=int(found.relevant.sum()),
        trained_relevant=None if counts is None else int(counts.sum()),
        answered=None if counts is None else int(np.count_nonzero(counts)),
        unknown=found.unknown,
        is_proof=found.is_proof,
    )


def unseen_of(scores: Sequence[TaskScores], *, seed: int, resamples: int) -> Unseen | None:
    """Measure on the queries of which no model was trained on anything.

    Returns:
        None where that is all queries or fewer than two, or where a model may have been trained on more than is known.
    """
    known = [one.trained for one in scores if one.trained is not None]
    if any(one.unknown or one.documents is None for one in known):
        return None
    unseen = [one.unseen for one in known]
    kept = np.flatnonzero(np.all(unseen, axis=0)) if unseen else ()
    if not 2 <= len(kept) < len(scores[0].units):
        return None
    after, *before = ([one.take(np.asarray(kept)).samples[0]] for one in scores)
    (change,) = paired_changes(after, before[0] if before else None, seed=seed, resamples=resamples)
    return Unseen(len(kept), change)


def with_trained(result: DatasetResult, found: Sequence[TrainedOn]) -> DatasetResult:
    """Say what models were trained on; where that is more than a few of the queries, without a verdict."""
    if all(one.is_proof for one in found):
        return replace(result, trained=list(found))
    changes, ladder = without_verdicts(result.changes), without_verdicts(result.ladder)
    return replace(result, trained=list(found), changes=changes, ladder=ladder, grid=without_marks(result.grid))


def without_verdicts(changes: Sequence[Change]) -> list[Change]:
    """Changes of a model that was trained on too many of the units."""
    return [replace(change, verdict=None) for change in changes]


def without_marks(grids: Sequence[GridComparison]) -> list[GridComparison]:
    """The same for language grids."""
    return [replace(grid, verdicts=None, improved=None, worsened=None, improved_z=None, worsened_z=None) for grid in grids]
