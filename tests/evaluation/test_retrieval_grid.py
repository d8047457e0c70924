"""Retrieval in a language grid against plain loops over queries and candidates."""

from collections.abc import Sequence

import numpy as np
import pytest

from adiabat.evaluation.language_grid_measures import MEASURE, measure_grid_retrieval
from adiabat.models.embedding_head import Similarity
from adiabat.stats.samples import GridSample, Sample

LABELS = ("entailment", "neutral", "contradiction")


def measured(
    premises: np.ndarray, hypotheses: np.ndarray, labels: Sequence[str], clusters: np.ndarray, similarity: Similarity = "cosine"
) -> tuple[Sample, list[GridSample]]:
    """A grid of one language of premises or several, in the arrays' first axis."""
    asked, told = ({f"l{place}": vectors for place, vectors in enumerate(side)} for side in (premises, hypotheses))
    samples, cells = measure_grid_retrieval(asked, told, labels, similarities=[similarity], clusters=clusters)
    return samples[0], cells


def score(query: np.ndarray, document: np.ndarray, similarity: Similarity) -> float:
    query, document = query.astype(np.float64), document.astype(np.float64)
    if similarity == "distance":
        return -float(np.linalg.norm(query - document))
    product = float(query @ document)
    return product if similarity == "dot" else product / float(np.linalg.norm(query) * np.linalg.norm(document))


def by_loops(
    asked: np.ndarray, told: np.ndarray, labels: Sequence[str], clusters: np.ndarray, negative: str, similarity: Similarity
) -> tuple[np.ndarray, np.ndarray]:
    """Errors and comparisons by the cluster of the query and that of the candidate."""
    errors, compared = (np.zeros((clusters.max() + 1,) * 2) for _ in range(2))
    for i, label in enumerate(labels):
        for j, other in enumerate(labels):
            if label == "entailment" and other == negative and clusters[i] != clusters[j]:
                # Small whole numbers: sums are exact, and equal directions divide to equal numbers but for the last bits.
                gap = score(asked[i], told[j], similarity) - score(asked[i], told[i], similarity)
                errors[clusters[i], clusters[j]] += gap > -1e-9
                compared[clusters[i], clusters[j]] += 1
    return errors, compared


def problem(seed: int, premises: int = 7, languages: int = 2, width: int = 3) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray]:
    """Vectors of few small whole numbers, so that many tie; clusters of unequal size."""
    generator = np.random.default_rng(seed)
    clusters = np.concatenate([np.repeat(np.arange(premises), 3), generator.integers(0, premises, 6)])
    labels = [*LABELS * premises, *generator.permutation(list(LABELS) * 2)]
    vectors = generator.integers(1, 4, (2, languages, len(labels), width)).astype(np.float32)
    return vectors[0], vectors[1], labels, clusters


def test_a_case_worked_by_hand() -> None:
    # Premise 0 asks (1, 0): what it entails lies at 45 degrees, premise 1's neutral one on it (an error), its contradiction across.
    # Premise 1 asks (0, 1): what it entails lies on it, premise 0's neutral one too (a tie is an error), its contradiction across.
    asked = np.array([[[1, 0]] * 3 + [[0, 1]] * 3], dtype=np.float32)
    told = np.array([[[1, 1], [0, 1], [1, 0], [0, 1], [1, 0], [0, -1]]], dtype=np.float32)
    sample, (neutral, contradiction) = measured(asked, told, LABELS * 2, np.repeat([0, 1], 3))
    assert (neutral.comparison, neutral.errors.tolist(), neutral.total) == ("retrieval entailment-neutral", [[2]], 2)
    assert (contradiction.comparison, contradiction.errors.tolist(), contradiction.total) == (
        "retrieval entailment-contradiction",
        [[0]],
        2,
    )
    assert (sample.measure, sample.values.mean()) == (MEASURE, 0.5)


@pytest.mark.parametrize("similarity", ["cosine", "distance", "dot"])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_cell_counts_what_loops_count_with_ties(seed: int, similarity: Similarity) -> None:
    asked, told, labels, clusters = problem(seed)
    sample, cells = measured(asked, told, labels, clusters, similarity)
    shares = []
    for one, negative in zip(cells, LABELS[1:], strict=True):
        for a, b in np.ndindex(2, 2):
            errors, compared = by_loops(asked[a], told[b], labels, clusters, negative, similarity)
            assert (one.errors[a, b], one.total) == (errors.sum(), compared.sum())
            assert one.values[a, b].mean() == pytest.approx(errors.sum() / compared.sum(), abs=1e-6)
            shares.append(errors.sum() / compared.sum())
    assert sample.values.mean() == pytest.approx(np.mean(shares))
    assert 0 < np.mean(shares) < 1


def test_pseudo_values_are_the_slope_of_the_value_in_how_often_a_premise_is_drawn() -> None:
    asked, told, labels, clusters = problem(2)
    _, cells = measured(asked, told, labels, clusters)
    count, step = int(clusters.max()) + 1, 1e-5
    for one, negative in zip(cells, LABELS[1:], strict=True):
        errors, compared = by_loops(asked[1], told[0], labels, clusters, negative, "cosine")
        value = errors.sum() / compared.sum()
        for cluster in range(count):
            weights = np.ones(count)
            weights[cluster] += step
            slope = ((weights @ errors @ weights) / (weights @ compared @ weights) - value) / step
            assert one.values[1, 0, cluster] == pytest.approx(value + count * slope, abs=1e-3)


def test_neither_the_order_of_sentence_pairs_nor_the_length_of_vectors_matters_to_the_cosine() -> None:
    asked, told, labels, clusters = problem(3)
    order = np.random.default_rng(0).permutation(len(labels))
    mixed = measured(4 * asked[:, order], 8 * told[:, order], [labels[row] for row in order], clusters[order])
    plain = measured(asked, told, labels, clusters)
    assert np.array_equal(mixed[0].values, plain[0].values)
    assert [one.errors.tolist() for one in mixed[1]] == [one.errors.tolist() for one in plain[1]]


def test_one_premise_alone_has_no_candidates_of_others() -> None:
    asked, told, labels, clusters = problem(0)
    assert measure_grid_retrieval({"a": asked[0]}, {"a": told[0]}, labels, similarities=["cosine"], clusters=clusters * 0) == ([], [])
