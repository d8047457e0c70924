"""Further queries of a data set's kind, which nobody judged: how far each could fall, from its two rankings.

`adiabat.stats.possible_losses` has the bound, and `adiabat.stats.noninferiority` what it does to a verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from adiabat.config.shared import MeasureSection
from adiabat.core.errors import DataError
from adiabat.core.progress import Watch
from adiabat.core.ragged import Ragged
from adiabat.core.text import counted
from adiabat.core.wording import option
from adiabat.data.text_hashes import TrainedTexts, folded
from adiabat.evaluation.systems import System, identical_documents, similarities_of
from adiabat.stats.possible_losses import BOUNDED, TopLists, length_of_lists, possible_losses
from adiabat.stats.ranking_measures import largest_cutoff
from adiabat.stats.samples import Sample, TaskScores
from adiabat.store.addressing import AddressedSet
from adiabat.store.text_vectors import embed_texts


def apart_from(
    judged: AddressedSet, texts: Sequence[str], records: Sequence[TrainedTexts | None]
) -> tuple[list[str], list[str]]:
    """The queries that are neither judged nor trained on, and notes on their numbers.

    The bound needs queries that are drawn apart from the judged ones; and those that a model was trained on
    move in another way than others.
    """
    known = {" ".join(folded(query)) for query in judged.queries}
    others = [text for text in texts if " ".join(folded(text)) not in known]
    trained = np.zeros(len(others), dtype=np.bool_)
    for record in filter(None, records):
        trained |= record.holds_queries(others)
    kept = [text for text, is_trained in zip(others, trained, strict=True) if not is_trained]
    if not kept:
        raise DataError(
            f"{option('unlabelled')} must hold queries that are neither judged nor trained on, got "
            f"{counted(len(texts), 'query')} for {judged.name} that all are; name other queries of its kind"
        )
    notes = []
    if left_out := len(texts) - len(kept):
        notes.append(
            f"{counted(left_out, 'query')} without judgements left out, judged or trained on elsewhere"
        )
    if len(kept) <= len(judged):
        notes.append("no more queries without judgements than with them: they bound nothing")
    return kept, notes


def with_possible_losses(
    scores: Sequence[TaskScores],
    systems: Sequence[System],
    texts: Sequence[str],
    judged: AddressedSet,
    *,
    settings: MeasureSection,
    watch: Watch,
) -> list[TaskScores]:
    """Scores that know what each unlabelled query can lose of the measures by the main similarity.

    Args:
        scores: Of the runs of a model and of the baseline, which is the last, on judged queries.
        systems: Of the same models.
        texts: The unlabelled queries.
        judged: The judged ones, by whose settings documents are left out of rankings.
        settings: How the judged ones are measured.
        watch: Receives progress.
    """
    depth = max(settings.depth, largest_cutoff(settings.report))
    lengths = {measure: length_of_lists(measure, depth) for measure in settings.report}
    length = max(lengths.values())
    if scores[0].kind != "retrieval" or not length:
        raise DataError(
            f"{option('unlabelled')} must belong to a set that ranks its whole store (measure.negatives = "
            f"store) and reports one of the measures {', '.join(BOUNDED)}, got {judged.name}; leave it out"
        )
    similarity = similarities_of(*(system.model for system in systems))[0]
    excluded = _own_documents(systems[0], texts, judged, settings)
    lists = []
    for system in systems:
        name = f"{judged.name}, without judgements"
        vectors = embed_texts(system.model, texts, side="query", name=name, watch=watch)
        hits = system.search(texts, vectors, length, similarity=similarity, excluded=excluded)
        missing = length - hits.rows.shape[1]
        lists.append(
            TopLists(
                np.pad(hits.rows, ((0, 0), (0, missing)), constant_values=-1),
                np.pad(hits.scores, ((0, 0), (0, missing)), constant_values=-np.inf),
            )
        )
    *runs, before = lists
    bounded = [
        replace(each, samples=_bounded(each.samples, similarity, lengths, before, after, depth))
        for each, after in zip(scores, runs, strict=False)
    ]
    return [*bounded, scores[-1]]


def _bounded(
    samples: Sequence[Sample],
    similarity: str,
    lengths: Mapping[str, int],
    before: TopLists,
    after: TopLists,
    depth: int,
) -> list[Sample]:
    """The samples of a run, those that two rankings bound with their possible losses."""
    bounded = []
    for sample in samples:
        if sample.similarity == similarity and lengths.get(sample.measure):
            losses = possible_losses(sample.measure, before, after, depth=depth)
            sample = replace(sample, possible_losses=losses)
        bounded.append(sample)
    return bounded


def _own_documents(
    system: System, texts: Sequence[str], judged: AddressedSet, settings: MeasureSection
) -> Ragged | None:
    """Documents that are queries themselves, by their text; None where the judged queries have none.

    A query without judgements has no id to find its document by.
    """
    identical = identical_documents(
        system.store, judged.query_ids, judged.queries, judged.positives, drop=settings.drop_same_id
    )
    if not identical.rows.values.size:
        return None
    rows = system.store.rows_of_texts(texts)
    return Ragged.of([rows[text]] if text in rows else [] for text in texts)
