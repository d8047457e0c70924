"""Describing a space from models and stores: what is drawn, what is left out, and what is refused in
words.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adiabat.config.tasks import SpaceSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT
from adiabat.core.ragged import Ragged
from adiabat.evaluation import space_analysis as space_maps
from adiabat.evaluation.space_analysis import SpaceSample, analyse_space
from adiabat.evaluation.space_geometry import unit_rows
from adiabat.evaluation.systems import System
from adiabat.models.towers import DualEncoder
from adiabat.results.space_result import SpaceResult
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store
from tests.evaluation.given_ranker import asked
from tests.evaluation.given_vectors import give
from tests.evaluation.test_space_geometry import turned, unit
from tests.tiny import tiny_dual

COUNT, WIDTH = 30, 6
Vectors = dict[str, Sequence[float]]
Stored = Callable[[Vectors], System]


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny_dual(width=32)


def settings_of(**section: object) -> SpaceSettings:
    return SpaceSettings.model_validate({"space": {"resamples": 100, "pairs": 200, "folds": 3, **section}})


def vectors_of(*, seed: int = 0, shift: float = 0.0) -> Vectors:
    """Documents at random, each with a query beside it; `shift` moves all queries the same way."""
    generator = np.random.default_rng(seed)
    documents = generator.normal(size=(COUNT, 32))
    queries = documents + 0.3 * generator.normal(size=(COUNT, 32))
    queries[:, 0] += shift
    made = {f"document {row}": vector for row, vector in enumerate(documents.tolist())}
    return made | {f"query {row}": vector for row, vector in enumerate(queries.tolist())}


def examples_of(
    store: Store, positives: Sequence[Sequence[int]] | None = None, *, ids: str = "q"
) -> AddressedSet:
    positives = positives or [[number] for number in range(COUNT)]
    rows = [store.rows([f"d{number}" for number in own]).tolist() for own in positives]
    numbers = range(len(rows))
    return asked(rows, ids=[f"{ids}{n}" for n in numbers], queries=[f"query {n}" for n in numbers])


def analysed(
    after: System, examples: AddressedSet, *, before: System | None = None, **options: Any
) -> SpaceResult:
    about = {"title": "A title", "command": "adiabat space", "inputs": {"data": "set"}, "watch": SILENT}
    return analyse_space(after, before, examples, **{**about, "settings": settings_of(), **options})


@pytest.fixture
def stored(make_store: Callable[..., Store], model: DualEncoder, monkeypatch: pytest.MonkeyPatch) -> Stored:
    def system(vectors: Vectors) -> System:
        give(monkeypatch, vectors)
        return System(model, make_store(model, [f"document {number}" for number in range(COUNT)]))

    return system


def test_cosines_are_those_of_the_models_vectors(stored: Stored) -> None:
    vectors = vectors_of()
    system = stored(vectors)
    found = analysed(system, examples_of(system.store))
    unit = {name: np.array(vector) / np.linalg.norm(vector) for name, vector in vectors.items()}
    own = [unit[f"query {n}"] @ unit[f"document {n}"] for n in range(COUNT)]
    best = [max(unit[f"query {n}"] @ unit[f"document {m}"] for m in range(COUNT)) for n in range(COUNT)]
    assert found.number("cosine to positive").after == pytest.approx(np.mean(own))
    assert found.number("cosine to nearest document").after == pytest.approx(np.mean(best))
    assert found.distribution("nearest").after.quantiles[3] == pytest.approx(np.median(best))
    assert found.distribution("positive").edges == found.distribution("nearest").edges
    assert {found.looked_at, found.queries, found.distinct, found.sampled, found.documents} == {30}


def test_a_shift_of_one_tower_is_seen_beside_the_baseline(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = stored(vectors_of())
    other = tiny_dual(width=32, shared=False)
    shifted, plain = vectors_of(shift=5.0), vectors_of()

    def encode(self: DualEncoder, texts: Sequence[str], **_: object) -> np.ndarray:
        return np.array([(shifted if self is other else plain)[text] for text in texts], dtype=np.float32)

    monkeypatch.setattr(DualEncoder, "encode", encode)
    found = analysed(System(other, system.store), examples_of(system.store), before=system)
    separation = found.number("tower separation, AUC")
    assert separation.before is not None
    assert separation.after is not None
    assert separation.after > 0.95 > separation.before
    assert separation.changed
    assert found.number("effective rank", "documents").difference == 0.0
    assert any("tiny has one tower for both sides" in note for note in found.notes)
    assert not any("nothing differs" in note for note in found.notes)


def test_the_same_analysis_gives_the_same_numbers_and_another_seed_draws_others(stored: Stored) -> None:
    system = stored(vectors_of())
    few = settings_of(queries=20, documents=20, map={"queries": 20, "perplexity": 5.0})
    one, again = (analysed(system, examples_of(system.store), settings=few) for _ in range(2))
    assert replace(one, created="", seconds=0.0) == replace(again, created="", seconds=0.0)
    assert one.map is not None
    assert len(one.map.after.queries) == len(one.map.after.documents) == 20
    seeded = SpaceSettings.model_validate({**few.model_dump(), "run": {"seed": 1, "device": "auto"}})
    other = analysed(system, examples_of(system.store), settings=seeded)
    assert other.numbers != one.numbers


def test_each_query_is_taken_with_the_first_positive_of_its_highest_grade(stored: Stored) -> None:
    system = stored(vectors_of())
    examples = examples_of(system.store, [[n, (n + 1) % COUNT, (n + 2) % COUNT] for n in range(COUNT)])
    graded = replace(examples, grades=Ragged.of([[1, 2, 2]] * COUNT))
    looked = SpaceSample.drawn(graded, system.store, settings_of().space, seed=0)
    assert looked.positives.tolist() == [
        int(system.store.rows([f"d{(n + 1) % COUNT}"])[0]) for n in range(COUNT)
    ]


def test_queries_that_share_a_positive_are_one_cluster(stored: Stored) -> None:
    system = stored(vectors_of())
    in_twos = examples_of(system.store, [[n // 2 * 2] for n in range(COUNT)])
    clusters = SpaceSample.drawn(in_twos, system.store, settings_of().space, seed=0).clusters
    pairs = np.arange(COUNT) // 2
    assert np.array_equal(clusters[:, None] == clusters, pairs[:, None] == pairs)


def test_a_document_with_the_querys_own_id_is_passed_over_unless_it_is_the_positive(stored: Stored) -> None:
    vectors = vectors_of()
    # Each query lies on the document of its own id, which is not its answer.
    for number in range(COUNT):
        vectors[f"query {number}"] = vectors[f"document {number}"]
    system = stored(vectors)
    others = examples_of(system.store, [[(n + 1) % COUNT] for n in range(COUNT)], ids="d")
    nearest = []
    for examples, drop in ((others, True), (others, False), (examples_of(system.store, ids="d"), True)):
        found = analysed(system, examples, settings=settings_of(drop_same_id=drop))
        nearest.append(found.number("cosine to nearest document").after)
    assert nearest[0] < 0.9
    assert nearest[1:] == pytest.approx([1.0, 1.0], abs=1e-6)


def test_vectors_of_length_zero_are_left_out_and_counted(stored: Stored) -> None:
    vectors = vectors_of()
    system = stored(vectors)
    vectors["query 3"] = [0.0] * 32
    found = analysed(system, examples_of(system.store))
    assert found.looked_at == COUNT - 1
    left_out = "1 of the queries drawn left out because their vector"
    assert any(note.startswith(left_out) for note in found.notes)


def test_a_tower_that_gives_one_vector_is_described_with_a_note(stored: Stored) -> None:
    vectors = vectors_of()
    system = stored(vectors)
    vectors |= {f"query {number}": vectors["query 0"] for number in range(COUNT)}
    found = analysed(system, examples_of(system.store), settings=settings_of(map=True))
    assert found.number("uniformity", "queries").after == pytest.approx(0.0, abs=1e-9)
    assert found.number("effective rank", "queries").after is None
    assert "tiny: the vectors of queries are all the same: they have no variance" in found.notes
    assert found.map is not None
    assert np.isfinite(found.map.after.queries).all()
    assert any("its perplexity was lowered to 19" in note for note in found.notes)


@pytest.mark.parametrize(
    ("positives", "zeros", "says"),
    [
        ([[0]], 0, "got 1 of 1"),
        ([[n % 19] for n in range(COUNT)], 0, "got 19 of 30"),
        (None, COUNT, "got 0 of 0"),
    ],
)
def test_too_few_queries_are_refused(
    stored: Stored,
    positives: list[list[int]] | None,
    zeros: int,
    says: str,
) -> None:
    vectors = vectors_of()
    system = stored(vectors)
    vectors |= {f"query {number}": [0.0] * 32 for number in range(zeros)}
    told = f"^set: the sampled queries must have at least 20 different positives, {says}"
    with pytest.raises(DataError, match=told):
        analysed(system, examples_of(system.store, positives))


def two_groups() -> np.ndarray:
    vectors = 0.2 * np.random.default_rng(0).normal(size=(40, 6))
    vectors[:20, 0] += 1
    vectors[20:, 1] += 1
    return unit_rows(vectors)


def test_a_map_starts_along_the_principal_components_and_so_however_the_axes_lie() -> None:
    vectors = two_groups()
    first = space_maps.initial_map(vectors, seed=0)
    assert first.std(axis=0).max() == pytest.approx(space_maps.INITIAL_SPREAD, rel=1e-2)
    axis = np.linalg.svd(vectors - vectors.mean(axis=0))[2][0]
    assert abs(np.corrcoef(first[:, 0], vectors @ axis)[0, 1]) > 0.999
    again = space_maps.initial_map(turned(vectors), seed=0)
    assert np.abs(again[:, 0]) == pytest.approx(np.abs(first[:, 0]), abs=space_maps.INITIAL_SPREAD / 20)


def test_vectors_that_are_all_the_same_start_apart() -> None:
    first = space_maps.initial_map(np.repeat(unit(1), 10, axis=0), seed=0)
    assert len(np.unique(first, axis=0)) == 10
    assert np.isfinite(first).all()


def test_groups_stay_together_and_the_same_vectors_give_the_same_map() -> None:
    vectors = two_groups()
    first = space_maps.initial_map(vectors, seed=0)
    kept = first.copy()
    places = space_maps.tower_map(vectors, first, perplexity=5.0, seed=0)
    assert (first == kept).all()
    assert (places == space_maps.tower_map(vectors, first, perplexity=5.0, seed=0)).all()
    # 32 bits at a time is what the library draws from.
    assert (places == space_maps.tower_map(vectors, first, perplexity=5.0, seed=2**32)).all()
    centres = [places[:20].mean(axis=0), places[20:].mean(axis=0)]
    for row, place in enumerate(places):
        own, other = (np.linalg.norm(place - centres[group]) for group in (row // 20, 1 - row // 20))
        assert own < other


@pytest.mark.parametrize(
    ("wanted", "points", "fits"), [(30.0, 1000, 30.0), (30.0, 40, 13.0), (30.0, 4, 2.0), (5.5, 100, 5.5)]
)
def test_the_perplexity_fits_the_number_of_points(wanted: float, points: int, fits: float) -> None:
    assert space_maps.fit_perplexity(wanted, points) == fits
