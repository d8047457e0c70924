"""Analysis of an embedding space, with or without a baseline: sample, vectors, numbers, histograms and maps
(Moiseev et al. 2023).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.config.tasks import MapSection, SpaceSection, SpaceSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import Watch, once
from adiabat.core.provenance import now, versions
from adiabat.core.text import counted
from adiabat.evaluation.space_geometry import (
    cosine_edges,
    cosines_of,
    histogram_of,
    lengths_of,
    ratio_edges,
    unit_rows,
)
from adiabat.evaluation.space_numbers import Space, SpaceResampling, space_numbers
from adiabat.evaluation.systems import System, identical_documents
from adiabat.models.device import device_name
from adiabat.results.space_result import Distribution, MapPanel, SpaceMap, SpaceNumber, SpaceResult
from adiabat.stats.unit_arrays import Numbers, Values, Vectors
from adiabat.store.addressing import AddressedSet
from adiabat.store.search import search
from adiabat.store.text_vectors import embed_texts
from adiabat.store.vector_store import Store

MIN_POSITIVES = 20
"""Minimum number of different positives for shares, probes and intervals."""

SHOWN_DIGITS = 3
"""Digits of map coordinates, which have no unit."""


@dataclass(frozen=True, slots=True)
class SpaceSample:
    """Queries and documents of the analysis; the same for both models.

    The positive of a query is the first of those of the highest grade.
    """

    query_ids: list[str]
    queries: list[str]
    positives: Numbers
    documents: Int[np.ndarray, " m"]

    @classmethod
    def drawn(
        cls, examples: AddressedSet, store: Store, section: SpaceSection, *, seed: int
    ) -> "SpaceSample":
        """Draw queries and documents."""
        generator = np.random.default_rng(seed)
        drawn = examples.take(_drawn(len(examples), section.queries, generator))
        best = [int(drawn.grades[query].argmax()) for query in range(len(drawn))]
        positives = drawn.positives.values[drawn.positives.offsets[:-1] + np.array(best, dtype=np.int64)]
        documents = _drawn(store.count, section.documents, generator)
        return cls(list(drawn.query_ids), list(drawn.queries), positives.astype(np.int64), documents)

    def only(self, queries: Bool[np.ndarray, " n"], documents: Bool[np.ndarray, " m"]) -> "SpaceSample":
        """The queries and documents where a mask is true."""
        ids = list(compress(self.query_ids, queries))
        texts = list(compress(self.queries, queries))
        return SpaceSample(ids, texts, self.positives[queries], self.documents[documents])

    @property
    def clusters(self) -> Numbers:
        """Cluster of each query: queries that share their positive are one cluster."""
        return np.unique(self.positives, return_inverse=True)[1].astype(np.int64)


def analyse_space(
    after: System,
    before: System | None,
    examples: AddressedSet,
    *,
    settings: SpaceSettings,
    title: str,
    command: str,
    inputs: dict[str, str],
    watch: Watch,
) -> SpaceResult:
    """Describe the space of a model, and its differences from a baseline's."""
    started = time.monotonic()
    section, seed = settings.space, settings.run.seed
    watch = replace(watch, note=once(watch.note))
    systems = [after] if before is None else [after, before]
    sample, spaces, zeros = _embedded(systems, examples, section, seed=seed, watch=watch)
    plan = SpaceResampling.of(
        sample.clusters,
        len(sample.documents),
        pairs=section.pairs,
        folds=section.folds,
        resamples=section.resamples,
        seed=seed,
    )
    space_map = _mapped(spaces, section.map, seed=seed, watch=watch) if section.map else None
    numbers = space_numbers(spaces[0], spaces[1] if before else None, plan)
    notes = [*examples.notes, *zeros, *_notes(systems, spaces, numbers), *_map_notes(space_map, section.map)]
    return SpaceResult(
        title=title,
        command=command,
        created=now(),
        seconds=time.monotonic() - started,
        seed=seed,
        versions=versions(device_name(after.model.query.device)),
        model=after.model.name,
        baseline=before.model.name if before else None,
        data=examples.name,
        queries=len(examples),
        looked_at=len(sample.queries),
        distinct=len(np.unique(sample.positives)),
        documents=after.store.count,
        sampled=len(sample.documents),
        pairs=len(plan.pairs),
        resamples=section.resamples,
        numbers=numbers,
        distributions=_distributions(spaces, plan),
        map=space_map,
        settings=settings.recorded(),
        inputs=inputs,
        notes=notes,
    )


def _embedded(
    systems: Sequence[System], examples: AddressedSet, section: SpaceSection, *, seed: int, watch: Watch
) -> tuple[SpaceSample, list[Space], list[str]]:
    """The sample, each model's vectors of it, and notes on omissions."""
    drawn = SpaceSample.drawn(examples, systems[0].store, section, seed=seed)
    # A vector of length 0 has no direction, and a cosine with it means nothing: it is left out for all
    # models.
    has_vectors = np.ones(len(drawn.queries), dtype=np.bool_)
    has_vector = np.ones(len(drawn.documents), dtype=np.bool_)
    vectors_of = []
    for system in systems:
        query = embed_texts(system.model, drawn.queries, side="query", name=examples.name, watch=watch)
        positive, document = system.store.gather(drawn.positives), system.store.gather(drawn.documents)
        has_vectors &= lengths_of(query, name="query vectors") > 0
        has_vectors &= lengths_of(positive, name="vectors of positives") > 0
        has_vector &= lengths_of(document, name="document vectors") > 0
        vectors_of.append((system, query, positive, document))
    sample = drawn.only(has_vectors, has_vector)
    _require_enough(sample, examples)
    notes = []
    for name, kept in (("queries", has_vectors), ("documents", has_vector)):
        if not kept.all():
            reason = "left out because their vector, or their positive's, has length 0"
            notes.append(f"{np.count_nonzero(~kept):,} of the {name} drawn {reason}")
    spaces = []
    for system, query, positive, document in vectors_of:
        queries = query[has_vectors]
        nearest = _nearest(system, sample, queries, section, watch)
        unit_vectors = (unit_rows(queries), unit_rows(positive[has_vectors]), unit_rows(document[has_vector]))
        spaces.append(Space(*unit_vectors, nearest))
    return sample, spaces, notes


def _drawn(total: int, limit: int, generator: np.random.Generator) -> Numbers:
    """Rows in ascending order: `limit` at random, or all."""
    if total <= limit:
        return np.arange(total)
    return np.sort(generator.choice(total, size=limit, replace=False, shuffle=False))


def _require_enough(sample: SpaceSample, examples: AddressedSet) -> None:
    """Refuse a sample whose queries share a few positives: they are the clusters that are drawn."""
    distinct = len(np.unique(sample.positives))
    queries = counted(len(sample.queries), "query")
    if distinct < MIN_POSITIVES:
        raise DataError(
            f"{examples.name}: the sampled queries must have at least {MIN_POSITIVES} different positives, "
            f"got {distinct} of {queries} with vectors above length 0; name more"
        )


def _nearest(
    system: System, sample: SpaceSample, queries: Vectors, section: SpaceSection, watch: Watch
) -> Values:
    """Cosine of each query to its nearest document of the whole store."""
    label = f"searching {system.store.path.name}"
    identical = identical_documents(
        system.store, sample.query_ids, sample.queries, sample.positives[:, None], drop=section.drop_same_id
    )
    for note in identical.notes:
        watch.note(note)
    hits = search(
        system.store,
        queries,
        1,
        similarity="cosine",
        device=system.device,
        excluded=[identical.rows[query] for query in range(len(sample.queries))],
        on_progress=partial(watch.progress, label),
    )
    return hits.scores[:, 0].astype(np.float64)


def _distributions(spaces: Sequence[Space], plan: SpaceResampling) -> list[Distribution]:
    """Histograms of the cosines and ratios behind the numbers, on edges that all models share."""
    nearest = [space.nearest for space in spaces]
    positive = [cosines_of(space.queries, space.positives) for space in spaces]
    ratios = [space.ratios(plan.pairs) for space in spaces]
    defined = [each.values for each in ratios]
    # Edges over all values, or histograms could not be compared.
    edges = cosine_edges(np.concatenate([*nearest, *positive]))
    edges_of_ratios = ratio_edges(np.concatenate(defined))
    histograms = [
        histogram_of(values, edges_of_ratios, left_out=int(np.count_nonzero(~each.defined)))
        for values, each in zip(defined, ratios, strict=True)
    ]
    return [
        Distribution("nearest", edges.tolist(), *(histogram_of(values, edges) for values in nearest)),
        Distribution("positive", edges.tolist(), *(histogram_of(values, edges) for values in positive)),
        Distribution("ratio", edges_of_ratios.tolist(), *histograms),
    ]


def _mapped(spaces: Sequence[Space], section: MapSection, *, seed: int, watch: Watch) -> SpaceMap:
    """Maps of the same queries and positives for both models, from the baseline's principal components."""
    count = len(spaces[0].queries)
    rows = _drawn(count, section.queries, np.random.default_rng(seed))
    vectors = [np.concatenate([space.queries[rows], space.positives[rows]]) for space in spaces]
    # Both maps start from the points of one model, so that places can be compared.
    perplexity = fit_perplexity(section.perplexity, len(vectors[0]))
    first = initial_map(vectors[-1], seed=seed)
    panels = []
    for number, model_vectors in enumerate(vectors):
        panels.append(_panel(tower_map(model_vectors, first, perplexity=perplexity, seed=seed)))
        watch.progress("drawing maps", number + 1, len(vectors))
    return SpaceMap(perplexity, *panels)


def _map_notes(space_map: SpaceMap | None, section: MapSection | None) -> list[str]:
    """A note where few points lowered the perplexity."""
    if space_map is None or section is None or space_map.perplexity >= section.perplexity:
        return []
    return [f"the map has few points: its perplexity was lowered to {space_map.perplexity:g}"]


def _panel(points: Float[np.ndarray, "n 2"]) -> MapPanel:
    """The map of one model: of its points, the first half are queries."""
    rounded = [(x, y) for x, y in np.round(points, SHOWN_DIGITS).tolist()]
    half = len(rounded) // 2
    return MapPanel(rounded[:half], rounded[half:])


def _notes(systems: Sequence[System], spaces: Sequence[Space], numbers: Sequence[SpaceNumber]) -> list[str]:
    """Reservations: shared or equal towers, limits of the sample's size, and undefined numbers."""
    tested, baseline = systems[0], systems[-1]
    notes = [
        f"{system.model.name} has one tower for both sides: only texts and prompts "
        "separate its queries from its documents"
        for system in systems
        if system.model.shared
    ]
    if (
        len(systems) > 1
        and tested.model.fingerprint("query") == baseline.model.fingerprint("query")
        and tested.store is baseline.store
    ):
        notes.append("model and baseline have the same towers, so nothing differs")
    samples = (
        ("query", [space.queries for space in spaces]),
        ("document", [space.documents for space in spaces]),
    )
    for name, vectors_of in samples:
        fewest, widest = len(vectors_of[0]), max(vectors.shape[1] for vectors in vectors_of)
        if fewest <= widest:
            notes.append(
                f"{fewest:,} {name} vectors of width {widest:,}: their effective "
                f"rank can be at most {fewest - 1:,}"
            )
    for number in numbers:
        # Of the numbers, only these two may have no value.
        undefined = {
            "effective rank": f"the vectors of {number.of} are all the same: they have no variance",
            "ratio, median": "every cosine of a query and another's positive is about 0: no ratio is defined",
        }
        for system, value in zip(systems, (number.after, number.before), strict=False):
            if value is None and number.name in undefined:
                notes.append(f"{system.model.name}: {undefined[number.name]}")
    return notes


INITIAL_SPREAD = 9e-5
"""Standard deviation of t-SNE's initial points: from 1e-4 on, points move too little (Kobak and Berens
2019)."""

MIN_PERPLEXITY = 2.0


def initial_map(vectors: Vectors, *, seed: int) -> Float[np.ndarray, "n 2"]:
    """Initial points of a map: the first two principal components, with a little noise that separates equal
    points.
    """
    centred = vectors - vectors.mean(axis=0)
    # The signs of singular vectors are arbitrary; the largest component of each becomes positive.
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    largest = np.abs(axes).argmax(axis=1)
    axes = axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]
    points = np.zeros((len(centred), 2))
    points[:, : len(axes)] = centred @ axes.T
    spread = float(points[:, 0].std())
    noise = np.random.default_rng(seed).normal(scale=INITIAL_SPREAD / 100, size=points.shape)
    scale = INITIAL_SPREAD / spread if spread > 0 else 0.0
    return np.asarray(points * scale + noise)


def fit_perplexity(perplexity: float, points: int) -> float:
    """The largest perplexity for few points: t-SNE uses three times as many neighbours."""
    return max(MIN_PERPLEXITY, min(perplexity, float((points - 1) // 3)))


def tower_map(
    vectors: Vectors, first: Float[np.ndarray, "n 2"], *, perplexity: float, seed: int
) -> Float[np.ndarray, "n 2"]:
    """Points of unit vectors in the plane, by t-SNE from initial points.

    Exact neighbours and a single thread: the same vectors give the same map.
    """
    from openTSNE import TSNE

    maker = TSNE(
        perplexity=perplexity,
        initialization=first.copy(),
        metric="euclidean",
        neighbors="exact",
        negative_gradient_method="bh",
        # scikit-learn, which checks the seed, takes 32 bits.
        random_state=seed % 2**32,
        n_jobs=1,
    )
    return np.array(maker.fit(vectors), dtype=np.float64)
