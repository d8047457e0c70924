"""One analysis of a space: queries and documents are drawn, embedded or read from a store, and described, before and after.

Reference: Moiseev et al. 2023.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.config.tasks import SpaceSection, SpaceSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import Watch, once
from adiabat.core.provenance import now, versions
from adiabat.evaluation import space_maps
from adiabat.evaluation.retrieval_data import own_documents
from adiabat.evaluation.space_geometry import cosine_edges, cosines_of, histogram_of, lengths_of, ratio_edges, unit_rows
from adiabat.evaluation.space_numbers import Plan, Space, numbers_of, ratios
from adiabat.evaluation.systems import System
from adiabat.models.device import device_name
from adiabat.results.space_result import Distribution, MapPanel, SpaceMap, SpaceNumber, SpaceResult
from adiabat.store.addressing import AddressedSet
from adiabat.store.search import search
from adiabat.store.text_vectors import embed_texts
from adiabat.store.vector_store import Store

LEAST_POSITIVES = 20
"""Different positives below which shares, probes and intervals say nothing."""

SHOWN_DIGITS = 3
"""Of places on a map, whose unit means nothing."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What is looked at; the same for both models.

    Attributes:
        query_ids: Of the sample.
        queries: Texts.
        positives: Row of one positive each: the first of those of the highest grade.
        documents: Rows at random.
    """

    query_ids: list[str]
    queries: list[str]
    positives: Int[np.ndarray, " n"]
    documents: Int[np.ndarray, " m"]

    @classmethod
    def drawn(cls, examples: AddressedSet, store: Store, section: SpaceSection, *, seed: int) -> "Looked":
        """Draw queries and documents."""
        generator = np.random.default_rng(seed)
        picked: list[int] = _drawn(len(examples), section.queries, generator).tolist()
        positives = [int(examples.positives[row][examples.grades[row].argmax()]) for row in picked]
        documents = _drawn(store.count, section.documents, generator)
        ids, texts = [examples.query_ids[row] for row in picked], [examples.queries[row] for row in picked]
        return cls(ids, texts, np.array(positives, dtype=np.int64), documents)

    def only(self, queries: Bool[np.ndarray, " n"], documents: Bool[np.ndarray, " m"]) -> "Looked":
        """What is left of it."""
        kept = np.flatnonzero(queries)
        ids, texts = [self.query_ids[row] for row in kept], [self.queries[row] for row in kept]
        return Looked(ids, texts, self.positives[kept], self.documents[documents])

    @property
    def clusters(self) -> Int[np.ndarray, " n"]:
        """A number for each query: the same where they share their positive."""
        return np.unique(self.positives, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Raw:
    """One model's vectors as they are."""

    queries: Float[np.ndarray, "n e"]
    positives: Float[np.ndarray, "n e"]
    documents: Float[np.ndarray, "m e"]

    def only(self, queries: Bool[np.ndarray, " n"], documents: Bool[np.ndarray, " m"]) -> "_Raw":
        return _Raw(self.queries[queries], self.positives[queries], self.documents[documents])


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
    """Describe the space of a model, and how it differs from a baseline's."""
    started = time.monotonic()
    section, seed = settings.space, settings.run.seed
    watch = replace(watch, note=once(watch.note))
    systems = [after] if before is None else [after, before]
    looked, spaces, zeros = _embedded(systems, examples, section, seed=seed, watch=watch)
    seeds = {"pairs": section.pairs, "folds": section.folds, "resamples": section.resamples, "seed": seed}
    plan = Plan.of(looked.clusters, len(looked.documents), **seeds)
    picture, map_notes = _mapped(spaces, section, seed=seed, watch=watch) if section.map else (None, [])
    numbers = numbers_of(spaces[0], spaces[1] if before else None, plan)
    return replace(
        _described(systems, examples, looked, plan, settings, title=title, command=command, inputs=inputs),
        numbers=numbers,
        distributions=_distributions(spaces, plan),
        map=picture,
        notes=[*examples.notes, *zeros, *_all_notes(systems, spaces, numbers), *map_notes],
        seconds=time.monotonic() - started,
    )


def _described(
    systems: Sequence[System],
    examples: AddressedSet,
    looked: Looked,
    plan: Plan,
    settings: SpaceSettings,
    *,
    title: str,
    command: str,
    inputs: dict[str, str],
) -> SpaceResult:
    """A result that tells what was given and how much of it is looked at, and has nothing found yet."""
    after, *before = systems
    return SpaceResult(
        title=title,
        command=command,
        created=now(),
        seconds=0.0,
        seed=settings.run.seed,
        versions=versions(device_name(after.model.query.device)),
        model=after.model.name,
        baseline=before[0].model.name if before else None,
        data=examples.name,
        queries=len(examples),
        looked_at=len(looked.queries),
        distinct=len(np.unique(looked.positives)),
        documents=after.store.count,
        sampled=len(looked.documents),
        pairs=len(plan.pairs),
        resamples=settings.space.resamples,
        numbers=[],
        distributions=[],
        settings=settings.model_dump(mode="json", exclude_none=True),
        inputs=inputs,
    )


def _all_notes(systems: Sequence[System], spaces: Sequence[Space], numbers: Sequence[SpaceNumber]) -> list[str]:
    """What needs saying of models, samples and numbers."""
    names = [system.model.name for system in systems]
    return [*_shared_towers(systems), *_same_towers(systems), *_limits(spaces), *_undefined(numbers, names)]


def _embedded(
    systems: Sequence[System], examples: AddressedSet, section: SpaceSection, *, seed: int, watch: Watch
) -> tuple[Looked, list[Space], list[str]]:
    """What is looked at, how each model places it, and what had to be left out."""
    looked = Looked.drawn(examples, systems[0].store, section, seed=seed)
    drawn = len(looked.queries)
    _require_enough(looked, examples, drawn=drawn)
    raw = [_vectors(system, looked, examples.name, watch) for system in systems]
    looked, raw, zeros = _without_zeros(looked, raw)
    _require_enough(looked, examples, drawn=drawn)
    return looked, [_space(system, own, looked, section, watch) for system, own in zip(systems, raw, strict=True)], zeros


def _drawn(total: int, most: int, generator: np.random.Generator) -> Int[np.ndarray, " n"]:
    """Which of so many, in ascending order: all of them where there are no more than wanted."""
    if total <= most:
        return np.arange(total)
    return np.sort(generator.choice(total, size=most, replace=False, shuffle=False))


def _require_enough(looked: Looked, examples: AddressedSet, *, drawn: int) -> None:
    distinct, lost = len(np.unique(looked.positives)), drawn - len(looked.queries)
    if distinct < LEAST_POSITIVES:
        raise DataError(
            f"{examples.name}: the queries that are looked at must have at least {LEAST_POSITIVES} different positives, "
            f"got {distinct:,} of {len(looked.queries):,} {'query' if len(looked.queries) == 1 else 'queries'}"
            f"{f', after {lost:,} of {drawn:,} drawn were left out for a vector of length 0, of theirs or of the positive' if lost else ''}"
            "; name more"
        )


def _vectors(system: System, looked: Looked, name: str, watch: Watch) -> _Raw:
    """Queries through the query tower; documents as they are stored."""
    queries = embed_texts(system.model, looked.queries, side="query", name=name, watch=watch)
    return _Raw(queries, system.store.gather(looked.positives), system.store.gather(looked.documents))


def _without_zeros(looked: Looked, raw: Sequence[_Raw]) -> tuple[Looked, list[_Raw], list[str]]:
    """Leave out what has no direction in one of the models: a cosine with it means nothing."""
    queries, documents = np.ones(len(looked.queries), dtype=bool), np.ones(len(looked.documents), dtype=bool)
    for own in raw:
        queries &= (lengths_of(own.queries, what="query vectors") > 0) & (lengths_of(own.positives, what="vectors of positives") > 0)
        documents &= lengths_of(own.documents, what="document vectors") > 0
    lost = {"queries": int((~queries).sum()), "documents": int((~documents).sum())}
    notes = [
        f"{count:,} of the {name} drawn left out, whose vector (or positive's) has length 0 and so no direction"
        for name, count in lost.items()
        if count
    ]
    return looked.only(queries, documents), [own.only(queries, documents) for own in raw], notes


def _space(system: System, raw: _Raw, looked: Looked, section: SpaceSection, watch: Watch) -> Space:
    label = f"searching {system.store.path.name}"
    own = own_documents(system, looked.query_ids, looked.queries, looked.positives[:, None], drop=section.drop_same_id)
    for note in own.notes:
        watch.note(note)
    hits = search(
        system.store,
        raw.queries,
        1,
        similarity="cosine",
        excluded=[own.rows[query] for query in range(len(looked.queries))],
        on_progress=lambda done, total: watch.progress(label, done, total),
    )
    nearest = hits.scores[:, 0].astype(np.float64)
    return Space(unit_rows(raw.queries), unit_rows(raw.positives), unit_rows(raw.documents), nearest)


def _distributions(spaces: Sequence[Space], plan: Plan) -> list[Distribution]:
    nearest = [space.nearest for space in spaces]
    positive = [cosines_of(space.queries, space.positives) for space in spaces]
    found = [ratios(space, plan) for space in spaces]
    defined, lost = [own.values for own in found], [int((~own.defined).sum()) for own in found]
    every = ((0,) * len(spaces), lost)
    return [
        _distribution("nearest", nearest, cosine_edges(np.concatenate([*nearest, *positive])), every[0]),
        _distribution("positive", positive, cosine_edges(np.concatenate([*nearest, *positive])), every[0]),
        _distribution("ratio", defined, ratio_edges(np.concatenate(defined)), every[1]),
    ]


def _distribution(
    name: str, values: Sequence[Float[np.ndarray, " _"]], edges: Float[np.ndarray, " b"], left_out: Sequence[int]
) -> Distribution:
    """After comes first, before, where there is one, second."""
    histograms = [histogram_of(own, edges, left_out=lost) for own, lost in zip(values, left_out, strict=True)]
    return Distribution(name, edges.tolist(), histograms[0], histograms[1] if len(histograms) > 1 else None)


def _mapped(spaces: Sequence[Space], section: SpaceSection, *, seed: int, watch: Watch) -> tuple[SpaceMap, list[str]]:
    """Maps of the same queries and positives, all begun where the baseline's principal components put them."""
    count = len(spaces[0].queries)
    picked = _drawn(count, section.map_queries, np.random.default_rng(seed))
    vectors = [np.concatenate([space.queries[picked], space.positives[picked]]) for space in spaces]
    perplexity = space_maps.fitting_perplexity(section.perplexity, len(vectors[0]))
    first = space_maps.first_places(vectors[-1], seed=seed)
    panels = []
    for number, own in enumerate(vectors):
        panels.append(_panel(space_maps.tower_map(own, first, perplexity=perplexity, seed=seed)))
        watch.progress("drawing maps", number + 1, len(vectors))
    lowered = [f"the map has few points: its perplexity was lowered to {perplexity:g}"] if perplexity < section.perplexity else []
    return SpaceMap(perplexity, panels[0], panels[1] if len(panels) > 1 else None), lowered


def _panel(places: Float[np.ndarray, "n 2"]) -> MapPanel:
    rounded = [(x, y) for x, y in np.round(places, SHOWN_DIGITS).tolist()]
    half = len(rounded) // 2
    return MapPanel(rounded[:half], rounded[half:])


def _shared_towers(systems: Sequence[System]) -> list[str]:
    return [
        f"{system.model.name} has one tower for both sides: what tells queries from documents there is how their texts, or prompts, differ"
        for system in systems
        if system.model.shared
    ]


def _same_towers(systems: Sequence[System]) -> list[str]:
    one, other = systems[0], systems[-1]
    if len(systems) < 2 or one.model.fingerprint("query") != other.model.fingerprint("query") or one.store is not other.store:
        return []
    return ["model and baseline have the same towers, so nothing differs"]


def _limits(spaces: Sequence[Space]) -> list[str]:
    """What the samples do not allow to say."""
    notes = []
    for name, sets in {"query": [space.queries for space in spaces], "document": [space.documents for space in spaces]}.items():
        fewest, widest = len(sets[0]), max(own.shape[1] for own in sets)
        if fewest <= widest:
            notes.append(f"{fewest:,} {name} vectors of width {widest:,}: their effective rank can be at most {fewest - 1:,}")
    return notes


def _undefined(numbers: Sequence[SpaceNumber], names: Sequence[str]) -> list[str]:
    """Why numbers are missing."""
    notes = []
    for one in numbers:
        missing = [name for name, value in zip(names, (one.after, one.before), strict=False) if value is None]
        if one.name == "effective rank":
            notes += [f"the vectors of {one.of} by {name} are all the same: there is no variance to speak of" for name in missing]
        elif one.name == "ratio, median":
            notes += [f"every cosine of a query and another's positive by {name} is about 0: the ratio is not defined" for name in missing]
    return notes
