"""Scores of a model, or of BM25, on queries with known positives: ranked in a whole corpus, or among listed
candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from adiabat.config.shared import MeasureSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.core.ragged import Ragged, connected
from adiabat.data.records import ExampleSet
from adiabat.data.text_hashes import TrainedTexts, folded
from adiabat.evaluation.ranking import (
    BM25Ranker,
    DenseRanker,
    PositiveRanks,
    Ranker,
    errors_by_negative,
    fused_ranker,
    rank_in_lists,
    rank_in_store,
)
from adiabat.evaluation.systems import BM25System, System, identical_documents, ranking_notes, similarities_of
from adiabat.models.embedding_head import Similarity
from adiabat.stats.clusters import BY_DOCUMENTS, Clusters
from adiabat.stats.ranking_measures import (
    largest_cutoff,
    measures_of_ranks,
    need_judged_ranks,
    pnd_samples,
    require_report,
    same_in_any_order,
)
from adiabat.stats.samples import Sample, TaskScores, TrainingOverlap, ranking_sample
from adiabat.stats.unit_arrays import Rows
from adiabat.store.addressing import AddressedSet
from adiabat.store.fusion import FIRST
from adiabat.store.text_vectors import embed_texts, zero_rows
from adiabat.store.vector_store import Store


def score_retrieval(
    system: System | BM25System,
    examples: AddressedSet,
    *,
    settings: MeasureSection,
    similarities: Sequence[Similarity] | None = None,
    trained: TrainedTexts | None = None,
    removed: Rows | None = None,
    watch: Watch = SILENT,
) -> TaskScores:
    """Score one model on one data set.

    Args:
        similarities: To rank by, the main one first; None takes `similarities_of` the model. BM25 has its
            own.
        trained: Training data of the model's job, if it has one.
        removed: Ascending rows of documents of the store that no query is ranked against, none of them
            judged.
    """
    plan = _planned(system.documents, examples, settings, watch)
    rankers, notes = _rankers(system, plan, similarities, watch)
    clusters = query_clusters(plan.examples, settings.cluster)
    standings = [plan.standings(ranker, watch, removed) for ranker in rankers]
    samples: list[Sample] = []
    # The main similarity comes first, and so does its main measure.
    for ranker, ranks in zip(rankers, standings, strict=True):
        samples += _samples(plan, ranks, ranker.similarity)
    above = standings[0].above
    return TaskScores(
        task=examples.name,
        kind="triplets" if plan.listed else "retrieval",
        unit="query",
        units=list(plan.examples.query_ids),
        samples=[replace(sample, clusters=clusters) for sample in samples],
        texts=list(plan.examples.queries),
        documents=system.documents.count - (0 if removed is None else removed.size),
        notes=(*examples.notes, *plan.notes, *notes),
        facts={} if above is None else {ABOVE: int(above.sum())},
        trained=query_overlap(trained, plan.examples, system.store) if isinstance(system, System) else None,
        ladder=[replace(sample, clusters=clusters) for sample in _ladder(plan, rankers[0])],
    )


ABOVE = "queries with a removed document above the first relevant one"
"""A fact of scores without some documents."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Choice of the documents that positives are ranked against, and of the reported measures.

    Rows in `left_out` are not compared with their query; None ranks listed negatives alone. Rank measures
    look at the first `depth`, and need the ranks of documents judged not relevant if `judged`.
    """

    examples: AddressedSet
    left_out: Ragged | None
    depth: int
    notes: list[str]
    report: Sequence[str]
    judged: bool = False

    @property
    def listed(self) -> bool:
        """Whether only listed negatives are candidates."""
        return self.left_out is None

    def standings(self, ranker: Ranker, watch: Watch, removed: Rows | None) -> PositiveRanks:
        """Ranks by one ranker; a corpus of positives alone is a `DataError`."""
        examples, left_out = self.examples, self.left_out
        if left_out is None:
            ranks = rank_in_lists(ranker, examples, watch)
        else:
            ranks = rank_in_store(ranker, examples, left_out, watch, judged=self.judged, removed=removed)
        if not ranks.counts.pairs.any():
            raise DataError(
                f"{examples.name}: the corpus must hold documents beside the positives "
                f"of a query, got {ranker.count} in all; "
                "name a larger one"
            )
        return ranks


def _planned(
    documents: Store | BM25System, examples: AddressedSet, settings: MeasureSection, watch: Watch
) -> _Plan:
    """Choose by the settings and the data."""
    require_report(settings.report)
    has_negatives = examples.negatives.lengths > 0
    listing, queries = int(has_negatives.sum()), len(examples)
    if settings.negatives == "listed" and not listing:
        raise DataError(
            f"{examples.name}: measure.negatives must be store or auto where no "
            "query lists negatives, got listed; "
            "set measure.negatives = store"
        )
    is_auto = settings.negatives == "auto"
    # Judged documents are no candidates, and a few queries with negatives must not decide for all.
    most_list = not examples.is_judged and 0 < queries <= 2 * listing
    if settings.negatives == "listed" or (is_auto and most_list):
        return _planned_in_lists(examples.take(np.flatnonzero(has_negatives)), queries, settings.report)
    depth = max(settings.depth, largest_cutoff(settings.report))
    notes = []
    if is_auto and listing and not examples.is_judged:
        notes.append(
            f"only {listing:,} of {queries:,} queries list negatives, too few to measure "
            f"with: all {queries:,} are measured without them"
        )
    notes.append(
        "positives are compared with all other documents of the corpus; "
        f"rank measures look at the first {depth}"
    )
    identical = identical_documents(
        documents, examples.query_ids, examples.queries, examples.positives, drop=settings.drop_same_id
    )
    for note in identical.notes:
        watch.note(f"{examples.name}: {note}")
    judged = need_judged_ranks(settings.report)
    return _Plan(examples, identical.rows, depth, [*notes, *identical.notes], settings.report, judged)


def _planned_in_lists(listing: AddressedSet, queries: int, report: Sequence[str]) -> _Plan:
    """The queries that list negatives, and the measures that can differ on so few documents."""
    notes = []
    if len(listing) < queries:
        lacking = f"{queries - len(listing):,} of {queries:,} queries list no negatives"
        notes.append(f"{lacking} and were left out, {len(listing):,} are measured")
    notes.append("positives are compared with listed negatives")
    longest = int((listing.positives.lengths + listing.negatives.lengths).max())
    constant = same_in_any_order(report, longest)
    if constant:
        notes.append(f"left out, since so few listed candidates cannot change it: {', '.join(constant)}")
    return _Plan(listing, None, 0, notes, [name for name in report if name not in constant])


def _rankers(
    system: System | BM25System,
    plan: _Plan,
    similarities: Sequence[Similarity] | None,
    watch: Watch,
) -> tuple[list[Ranker], list[str]]:
    """A ranker for each similarity, and notes on the choice."""
    examples = plan.examples
    if isinstance(system, BM25System):
        return [BM25Ranker(system.index, examples.queries)], []
    vectors = embed_texts(system.model, examples.queries, side="query", name=examples.name, watch=watch)
    chosen = similarities_of(system.model) if similarities is None else similarities
    notes = [*ranking_notes(system.model, chosen), *_wordless(vectors, examples, watch)]
    dense = [DenseRanker(system.store, vectors, similarity, system.device) for similarity in chosen]
    if system.fusion is None:
        return [*dense], notes
    lexical, weight = BM25Ranker(system.fusion.index, examples.queries), system.fusion.weight
    notes.append(
        f"vectors with a weight of {weight:g} are fused with BM25; the first {FIRST} documents of both are "
        "candidates"
    )
    fused = [
        fused_ranker(each, lexical, weight, left_out=plan.left_out, name=examples.name, watch=watch)
        for each in dense
    ]
    return [*fused], notes


def _wordless(vectors: Float[np.ndarray, "q e"], examples: AddressedSet, watch: Watch) -> list[str]:
    """A note on queries without any token that a static model knows: all documents tie for them, so they lose
    to all.
    """
    if not (count := int(zero_rows(vectors).sum())):
        return []
    sentence = (
        f"{count:,} of {len(examples):,} queries hold no token that the model knows: their "
        "vectors are zero, and they retrieve no documents"
    )
    watch.note(f"{examples.name}: {sentence}")
    return [sentence]


def _samples(plan: _Plan, ranks: PositiveRanks, similarity: str) -> list[Sample]:
    """Samples of all measures, the main one first."""
    retrieved = ranks.retrieved if plan.listed else np.minimum(ranks.retrieved, plan.depth)
    values = measures_of_ranks(ranks.ranks, ranks.grades, retrieved, plan.report)
    reported = [ranking_sample(name, values[name], similarity) for name in plan.report]
    of_pairs = pnd_samples(ranks.counts, similarity=similarity)
    return [*of_pairs, *reported] if plan.listed else [*reported, *of_pairs]


def _ladder(plan: _Plan, ranker: Ranker) -> list[Sample]:
    """PND by the number of the listed negative."""
    if not plan.listed or plan.examples.negative_columns is None:
        return []
    columns = errors_by_negative(ranker, plan.examples).T.astype(np.float64)
    return [
        ranking_sample(f"PND, negative {number}", column, ranker.similarity, proportion=True)
        for number, column in enumerate(columns, start=1)
    ]


def query_clusters(examples: AddressedSet, cluster: str) -> Clusters | None:
    """Clusters of the queries by the setting ``measure.cluster``; None if every query is drawn on its own.

    Queries of equal text apart from case and white space are always connected. A column connects the queries
    of its values, and shared documents further ones if enough clusters remain.
    """
    if cluster == "none":
        return None
    # Equal texts have equal rankings, so they are one piece of evidence.
    texts = np.unique([" ".join(folded(query)) for query in examples.queries], return_inverse=True)[1]
    equal = Ragged(texts, np.arange(len(examples) + 1))
    if cluster == "documents" or examples.clusters is None:
        return Clusters(connected(examples.positives, equal))
    column = f'the column "{cluster}"'
    if empty := np.count_nonzero(examples.clusters.lengths == 0):
        column = f"{column} (without a value in {empty:,} rows)"
    further = Clusters(connected(examples.clusters, equal, examples.positives))
    if further.drawn:
        return Clusters(further.numbers, f"{column} and {BY_DOCUMENTS}")
    return Clusters(connected(examples.clusters, equal), column)


def require_clusters(examples: ExampleSet, *, source: str) -> None:
    """Refuse a column whose values make one cluster of all queries."""
    rows = list(dict.fromkeys(example.clusters for example in examples.examples))
    number_of: dict[str, int] = {}
    numbers = []
    for values in rows:
        numbers.append([number_of.setdefault(value, len(number_of)) for value in values])
    if connected(Ragged.of(numbers)).any():
        return
    got = (
        "lists that connect all rows" if len(rows) > 1 else f"{', '.join(rows[0]) or 'nothing'} in every row"
    )
    raise ConfigError(
        f"measure.cluster must name a column with different values, got {got} of {source}; leave it out"
    )


def query_overlap(
    record: TrainedTexts | None, examples: AddressedSet, store: Store
) -> TrainingOverlap | None:
    """Training data of a job among the queries and relevant documents; None without a job."""
    if record is None:
        return None
    # Each relevant document is looked up once, however many queries share it.
    rows, number_of = np.unique(examples.positives.values, return_inverse=True)
    documents = store.texts(rows) if store.has_texts else store.doc_ids(rows)
    known = record.holds_documents(documents, are_texts=store.has_texts)
    lengths = examples.positives.lengths
    counts = None
    if known is not None:
        owners = np.repeat(np.arange(len(examples)), lengths)
        counts = np.bincount(owners, weights=known[number_of], minlength=len(examples)).astype(np.int64)
    queries = record.holds_queries(examples.queries)
    near = record.nearly_holds_queries(examples.queries)
    return TrainingOverlap(queries, lengths, counts, record.unknown, near)
