"""``adiabat advise``: the untuned model beside BM25, their fusion and a cross-validated linear map, and what
to do about it.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float32

from adiabat.adiabatic.judged_queries import DEPTH, MEASURE
from adiabat.adiabatic.linear_map import apply_map, cross_validate, fit_maps, folds_of, map_problem
from adiabat.config.shared import AdviseSettings, FusionSection
from adiabat.core.errors import DataError
from adiabat.core.progress import Watch
from adiabat.core.provenance import now, versions
from adiabat.core.ragged import Ragged
from adiabat.core.text import counted
from adiabat.core.wording import call_of, positional, written
from adiabat.data.text_hashes import TrainedTexts
from adiabat.evaluation.decisive_queries import Untrained, untrained_queries
from adiabat.evaluation.evaluate_checks import BM25
from adiabat.evaluation.ranking import (
    BM25Ranker,
    DenseRanker,
    PositiveRanks,
    Ranker,
    fused_ranker,
    rank_in_store,
    tied_positives_last,
)
from adiabat.evaluation.retrieval import query_clusters
from adiabat.evaluation.systems import identical_documents, similarities_of
from adiabat.experiments.advice_rules import FEWEST_QUERIES, recommend
from adiabat.models.device import device_name
from adiabat.models.embedding_head import Similarity
from adiabat.models.towers import DualEncoder
from adiabat.results.advice_result import Advice, AdvisedSet, Choice, Headroom
from adiabat.results.evaluation_result import Change
from adiabat.results.verdict import Reason
from adiabat.stats.clusters import Clusters
from adiabat.stats.paired import paired_changes
from adiabat.stats.power import power_of
from adiabat.stats.samples import Sample, ranking_sample
from adiabat.store.addressing import AddressedSet
from adiabat.store.own_bm25 import own_bm25
from adiabat.store.search import search
from adiabat.store.text_vectors import embed_texts
from adiabat.store.vector_store import Store

TOP = 10
"""Ranks that headroom tells apart, beside `DEPTH`, which is also the depth of the rankings that are fused."""

FOLDS = 5
RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class _Asked:
    """Queries of one data set, drawn and embedded, with the documents that are left out of each query's
    ranking.

    `total` and `groups` count the queries, and their groups by shared documents, before the draw.
    `trained_queries` were left out before, because the job of the model trained on them or on their
    documents; `known` is what verdicts must say of its training.
    """

    store: Store
    examples: AddressedSet
    total: int
    groups: int
    vectors: Float32[np.ndarray, "q e"]
    left_out: Ragged
    similarity: Similarity
    clusters: Clusters
    device: torch.device
    trained_queries: int = 0
    known: tuple[Reason, ...] = ()

    def ranks(self, vectors: Float32[np.ndarray, "q e"], watch: Watch) -> PositiveRanks:
        """Ranks of the positives for other vectors of the same queries."""
        return self.ranked_by(DenseRanker(self.store, vectors, self.similarity, self.device), watch)

    def ranked_by(self, ranker: Ranker, watch: Watch) -> PositiveRanks:
        """Ranks of the positives for any ranker of the store's documents."""
        return rank_in_store(ranker, self.examples, self.left_out, watch)

    def sample(self, ranks: PositiveRanks) -> Sample:
        """The measure of each query."""
        return ranking_sample(MEASURE, ranks.values(MEASURE, depth=DEPTH), clusters=self.clusters)


def advise_on(
    model: DualEncoder,
    datasets: Sequence[tuple[Store, AddressedSet]],
    *,
    settings: AdviseSettings,
    command: str,
    inputs: dict[str, dict[str, str]],
    tuning: str,
    trained: TrainedTexts | None = None,
    lexical: bool = True,
    watch: Watch,
) -> Advice:
    """Measure the target, the first data set, and the retention sets after it; then recommend.

    Args:
        inputs: Paths and checksums by role, for the record.
        tuning: The expected time of tuning, in words.
        trained: Training data of the model's job, if it has one.
        lexical: Whether to measure BM25, whose index is built first, and its fusion with the model.
    """
    started = time.monotonic()
    seed = settings.run.seed
    notes = list[str]()
    for _, examples in datasets:
        notes += examples.notes
    sets = []
    for store, examples in datasets:
        queries = _untrained(model, store, examples, trained)
        notes += queries.notes
        sets.append(_asked(model, store, queries, settings, watch))
    target, *retained = sets
    ranks = target.ranks(target.vectors, watch)
    hits = search(
        target.store,
        target.vectors,
        DEPTH,
        similarity=target.similarity,
        device=target.device,
        excluded=target.left_out,
    )
    nearest = tied_positives_last(hits, target.examples)
    samples: dict[str, Sample] = {}
    if not target.store.has_texts:
        notes.append("the store keeps no texts, so BM25 was not measured")
    elif lexical:
        samples = _lexical(target, watch)
    else:
        notes.append("BM25 was not measured, since the store is large; adiabat advise measures it")
    linear = _linear_map(target, retained, nearest, seed, watch)
    mapped: list[dict[str, Sample]] = [{} for _ in retained]
    pull = None
    if linear is None:
        notes.append(_together(target.clusters))
    else:
        pull = linear.pull
        samples["mapped"] = target.sample(target.ranks(linear.vectors, watch))
        for each, vectors, found in zip(retained, linear.retained, mapped, strict=True):
            found["mapped"] = each.sample(each.ranks(vectors, watch))
    results = [_result(target, "target", ranks, samples, seed)]
    for each, found in zip(retained, mapped, strict=True):
        results.append(_result(each, "retain", each.ranks(each.vectors, watch), found, seed))
    untuned = target.sample(ranks)
    # Without a pull the map is the identity, whose differences say nothing of tuning.
    detectable = _detectable(target, untuned, None if pull is None else samples["mapped"])
    fusion_detectable = None
    if "fused" in samples:
        fusion_detectable = _detectable(target, untuned, samples["fused"])
    chosen = recommend(results[0], detectable, fusion_detectable)
    spread = "earlier tunings" if pull is None else "the linear map"
    return Advice(
        title=f"advice on {model.name} for {target.examples.name}",
        command=command,
        created=now(),
        seconds=time.monotonic() - started,
        seed=seed,
        versions=versions(device_name(model.query.device)),
        settings=settings.recorded(),
        inputs=inputs,
        notes=notes,
        model=model.name,
        datasets=results,
        choice=chosen.choice,
        reason=chosen.reason,
        detectable=detectable,
        spread="" if detectable is None else spread,
        clusters=target.clusters.count,
        pull=pull,
        steps=_steps(chosen.choice, model.name, inputs["target"]),
        tuning=tuning,
    )


def _steps(choice: Choice, model: str, target: Mapping[str, str]) -> list[str]:
    """The calls that do what is recommended."""
    store, steps, asked = written(target["store"]), [], model
    if "tune" in choice:
        asked = "JOB"
        steps.append(call_of("tune", written(model), store, written(target["data"]), out=asked))
    if "fuse" in choice:
        steps.append(call_of("search", store, positional("query"), model=asked, fuse=BM25))
    return steps


def _untrained(
    model: DualEncoder, store: Store, examples: AddressedSet, record: TrainedTexts | None
) -> Untrained:
    """The queries of a set that the model's job did not train on, at least `FEWEST_QUERIES`."""
    untrained = untrained_queries(examples, store, record, model.name)
    if len(untrained.examples) < FEWEST_QUERIES:
        raise DataError(
            f"{examples.name} must hold at least {FEWEST_QUERIES} queries that {model.name} was not trained "
            f"on, got {len(untrained.examples)} of {len(examples)}; add queries, name other data, or the "
            "model that the job started from"
        )
    return untrained


def _asked(
    model: DualEncoder, store: Store, queries: Untrained, settings: AdviseSettings, watch: Watch
) -> _Asked:
    """Draw queries, and embed them."""
    examples = queries.examples
    total = len(examples)
    clusters = query_clusters(examples, "documents")
    assert clusters is not None
    groups = clusters.count
    if total > settings.advise.queries:
        # In the order of the data, whatever the order of the draw.
        order = np.random.default_rng(settings.run.seed).permutation(total)
        drawn = np.sort(order[: settings.advise.queries])
        examples, clusters = examples.take(drawn), clusters.take(drawn)
    vectors = embed_texts(model, examples.queries, side="query", name=examples.name, watch=watch)
    same = identical_documents(store, examples.query_ids, examples.queries, examples.positives, drop="auto")
    return _Asked(
        store=store,
        examples=examples,
        total=total,
        groups=groups,
        vectors=vectors,
        left_out=same.rows,
        similarity=similarities_of(model)[0],
        clusters=clusters,
        device=model.query.device,
        trained_queries=queries.left_out,
        known=queries.known,
    )


def _lexical(target: _Asked, watch: Watch) -> dict[str, Sample]:
    """BM25, and its fusion with the model."""
    lexical = BM25Ranker(own_bm25(target.store, watch=watch), target.examples.queries)
    dense = DenseRanker(target.store, target.vectors, target.similarity, target.device)
    name = target.examples.name
    weight = FusionSection().weight
    fused = fused_ranker(dense, lexical, weight, left_out=target.left_out, name=name, watch=watch)
    rankers: dict[str, Ranker] = {"bm25": lexical, "fused": fused}
    return {name: target.sample(target.ranked_by(ranker, watch)) for name, ranker in rankers.items()}


@dataclass(frozen=True, slots=True)
class _Linear:
    """Query vectors under a linear map: of the target by cross-validation, of each retention set under the
    map of all target queries.
    """

    vectors: Float32[np.ndarray, "q e"]
    pull: float | None
    retained: list[Float32[np.ndarray, "q e"]]


def _linear_map(
    target: _Asked, retained: Sequence[_Asked], nearest: np.ndarray, seed: int, watch: Watch
) -> _Linear | None:
    """Fit and cross-validate the map; None if shared documents tie the queries together."""
    folds = folds_of(target.clusters.numbers, FOLDS, seed=seed)
    if folds is None:
        return None
    problem = map_problem(
        target.store,
        target.vectors,
        target.examples.positives,
        nearest,
        similarity=target.similarity,
        seed=seed,
    )
    problem = problem.to(target.device)
    progress = partial(watch.progress, "fitting a linear map")
    moved = cross_validate(problem, target.vectors, folds, on_progress=progress)
    if not retained or moved.pull is None:
        return _Linear(moved.vectors, moved.pull, [each.vectors for each in retained])
    *_, change = fit_maps(problem, [moved.pull])
    return _Linear(moved.vectors, moved.pull, [apply_map(each.vectors, change) for each in retained])


def _together(clusters: Clusters) -> str:
    largest = int(np.bincount(clusters.numbers).max())
    return (
        f"shared relevant documents leave {counted(clusters.count, 'group')} of queries, "
        f"the largest with {largest:,} of {len(clusters.numbers):,}: a "
        "linear map could not be tested on documents that it was not fitted on, and was left out"
    )


def _change(asked: _Asked, after: Sample, before: Sample | None, seed: int) -> Change:
    baseline = None if before is None else [before]
    return paired_changes([after], baseline, seed=seed, resamples=RESAMPLES, known=asked.known)[0]


def _result(
    asked: _Asked,
    role: Literal["target", "retain"],
    ranks: PositiveRanks,
    samples: Mapping[str, Sample],
    seed: int,
) -> AdvisedSet:
    """The record of one data set: `ranks` are those of the untuned model, and `samples` are compared with
    it.
    """
    # Ranks are also of documents that were judged not relevant.
    # Others rank behind all, and so never first.
    relevant = np.where(ranks.grades.values > 0, ranks.ranks.values, DEPTH)
    first = np.minimum.reduceat(relevant, ranks.ranks.offsets[:-1])
    top = int((first < TOP).sum())
    near = int((first < DEPTH).sum()) - top
    untuned = asked.sample(ranks)
    changes = {name: _change(asked, sample, untuned, seed) for name, sample in samples.items()}
    if "fused" in samples:
        changes["bm25_over_fused"] = _change(asked, samples["bm25"], samples["fused"], seed)
    return AdvisedSet(
        name=asked.examples.name,
        role=role,
        queries=asked.total,
        measured=len(asked.examples),
        documents=asked.store.count,
        headroom=Headroom(top, near, len(first) - top - near),
        untuned=_change(asked, untuned, None, seed),
        left_out=asked.trained_queries,
        **changes,
    )


def _detectable(target: _Asked, untuned: Sample, changed: Sample | None) -> float | None:
    """The improvement in percent that all queries of the target would show, if differences vary as those
    observed; None predicts them.

    The standard error falls with the square root of the number of groups of queries, which share no relevant
    document.
    """
    power = power_of(untuned, changed)
    if power.detectable is None or power.before <= 0:
        return None
    # The measured queries are a sample of those of the target.
    shrinking = math.sqrt(target.clusters.count / target.groups)
    return 100 * shrinking * power.detectable / power.before
