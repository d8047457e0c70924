"""Numbers of a space: worked by hand, in plain loops, and the same however the axes lie."""

import math
from itertools import permutations, product

import numpy as np
import pytest
from jaxtyping import Float, Int
from sklearn.metrics import roc_auc_score

from adiabat.core.errors import DataError
from adiabat.evaluation import space_geometry as spaces
from adiabat.evaluation.space_geometry import auc_of, fold_of, probe_scores

ONES = np.ones((1, 3))
AXES = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
"""Two vectors that are one, and one across."""


def unit(count: int, width: int = 8, *, seed: int = 0, shift: float = 0.0) -> Float[np.ndarray, "n e"]:
    vectors = np.random.default_rng(seed).normal(size=(count, width))
    vectors[:, 0] += shift
    return spaces.unit_rows(vectors)


def drawn(count: int, resamples: int = 4, *, seed: int = 1) -> Float[np.ndarray, "r n"]:
    generator = np.random.default_rng(seed)
    return generator.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float64)


def turned(vectors: Float[np.ndarray, "n e"], *, seed: int = 5) -> Float[np.ndarray, "n e"]:
    """The same vectors in axes that lie otherwise."""
    width = vectors.shape[1]
    return np.asarray(vectors @ np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))[0])


def looped(table: Float[np.ndarray, "n n"], counts: Float[np.ndarray, " n"]) -> float:
    """The mean over pairs of two different units, one pair at a time."""
    total, weight = 0.0, 0.0
    for one, other in permutations(range(len(table)), 2):
        total += counts[one] * counts[other] * table[one, other]
        weight += counts[one] * counts[other]
    return total / weight


def test_values_worked_by_hand() -> None:
    # Of the six ordered pairs two have distance 0, four have squared distance 2.
    assert spaces.uniformity_of(AXES)(ONES)[0] == pytest.approx(math.log((2 + 4 * math.exp(-4)) / 6))
    assert spaces.mean_cosine_of(AXES)(ONES)[0] == pytest.approx(2 / 6)
    assert spaces.cosines_of(AXES, AXES[::-1]).tolist() == [0.0, 1.0, 0.0]
    assert spaces.distance_of_means(AXES, AXES[[2, 2, 2]]) == pytest.approx(math.hypot(2 / 3, -2 / 3))
    counts = np.array([[1.0, 1.0, 1.0], [0.0, 3.0, 1.0]])
    assert spaces.mean_of(np.array([1.0, 2.0, 6.0]))(counts).tolist() == [3.0, 3.0]
    # Lengths vary along one direction alone.
    assert spaces.spectrum_of(AXES).tolist() == pytest.approx([1.0, 0.0])
    assert spaces.effective_rank(np.array([0.5, 0.5])) == pytest.approx(2.0)
    assert spaces.effective_rank(np.array([1.0, 0.0])) == pytest.approx(1.0)


def test_numbers_of_pairs_equal_plain_loops_whatever_is_drawn() -> None:
    vectors, counts = unit(9), drawn(9)
    kernel = np.array([[math.exp(-2 * sum((a - b) ** 2)) for b in vectors] for a in vectors])
    cosines = np.array([[float(sum(a * b)) for b in vectors] for a in vectors])
    uniformity, mean_cosine = spaces.uniformity_of(vectors)(counts), spaces.mean_cosine_of(vectors)(counts)
    assert uniformity.tolist() == pytest.approx([math.log(looped(kernel, own)) for own in counts])
    assert mean_cosine.tolist() == pytest.approx([looped(cosines, own) for own in counts])


def test_a_unit_drawn_twice_is_as_if_it_stood_there_twice_but_makes_no_pair_with_itself() -> None:
    values, pairs = np.array([1.0, 5.0, 9.0]), np.array([[0, 1], [1, 2], [2, 0]])
    counts = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 1.0, 2.0]])
    means = spaces.mean_of_pairs(values, pairs)(counts)
    assert means[0] == 1.0
    assert np.isnan(means[1])
    assert means[2] == pytest.approx((1 * 1 + 2 * 5 + 2 * 9) / 5)


def test_the_median_of_pairs_is_that_of_pairs_written_as_often_as_they_count() -> None:
    generator = np.random.default_rng(3)
    values, pairs = generator.normal(size=12), generator.integers(0, 6, size=(12, 2))
    statistic = spaces.median_of_pairs(values, pairs)
    assert statistic(np.ones((1, 6)))[0] == np.median(values)
    for own in drawn(6, 20):
        weights = (own[pairs[:, 0]] * own[pairs[:, 1]]).astype(int)
        wanted = np.median(np.repeat(values, weights)) if weights.sum() else math.nan
        assert statistic(own[None])[0] == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize(("count", "width"), [(30, 6), (6, 30)])
def test_the_spectrum_is_that_of_the_covariance(count: int, width: int) -> None:
    vectors = unit(count, width)
    values = np.sort(np.linalg.eigvalsh(np.cov(vectors.T)))[::-1][: min(count, width)]
    found = spaces.spectrum_of(vectors)
    assert found == pytest.approx(values / values.sum(), abs=1e-12)
    entropy = -sum(share * math.log(share) for share in found if share > 1e-15)
    assert spaces.effective_rank(found) == pytest.approx(math.exp(entropy))


def test_vectors_that_are_all_the_same_have_uniformity_0_cosine_1_and_no_spectrum() -> None:
    same = np.repeat(unit(1), 5, axis=0)
    assert spaces.uniformity_of(same)(np.ones((1, 5)))[0] == pytest.approx(0.0, abs=1e-12)
    assert spaces.mean_cosine_of(same)(np.ones((1, 5)))[0] == pytest.approx(1.0)
    assert len(spaces.spectrum_of(same)) == 0
    rounded = same + np.random.default_rng(0).normal(scale=1e-7, size=same.shape)
    assert len(spaces.spectrum_of(rounded)) == 0


def test_many_even_directions_have_the_uniformity_of_the_theory() -> None:
    # In many dimensions squared distances are 2 or nearly so.
    assert spaces.uniformity_of(unit(400, 512))(np.ones((1, 400)))[0] == pytest.approx(-4, abs=0.05)


def test_pairs_are_of_different_clusters_and_each_comes_once() -> None:
    clusters = np.array([0, 0, 1, 2, 2, 2])
    every = [(one, other) for one in range(6) for other in range(6) if clusters[one] != clusters[other]]
    assert sorted(map(tuple, spaces.random_pairs(clusters, 1000, seed=0).tolist())) == every
    few = spaces.random_pairs(np.arange(500), 200, seed=0)
    assert len(few) == len(set(map(tuple, few.tolist()))) == 200
    assert (few == spaces.random_pairs(np.arange(500), 200, seed=0)).all()
    assert (few != spaces.random_pairs(np.arange(500), 200, seed=1)).any()


def test_ratios_are_cosines_to_a_query_over_cosines_to_its_positive() -> None:
    queries, positives = unit(40, seed=1, shift=2), unit(40, seed=2, shift=2)
    pairs: Int[np.ndarray, "k 2"] = spaces.random_pairs(np.arange(40), 100, seed=0)
    found = spaces.ratios_of(queries, positives, pairs)
    cosines = [(float(queries[i] @ queries[j]), float(queries[i] @ positives[j])) for i, j in pairs]
    wanted = [one / other for one, other in cosines if abs(other) >= 0.01]
    assert found.values.tolist() == pytest.approx(wanted)


def test_denominators_near_zero_are_left_out_whatever_their_sign() -> None:
    below = np.array([0.009, -0.009, 0.0, 0.01, -0.5])
    found = spaces.Ratios(np.full(5, 0.5), below, np.zeros((5, 2), dtype=int))
    assert found.defined.tolist() == [False, False, False, True, True]
    assert found.values.tolist() == [50.0, -1.0]


def test_nan_is_counted_and_lengths_are_told() -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]], dtype=np.float32)
    assert spaces.lengths_of(vectors[:2], name="query vectors").tolist() == [5.0, 0.0]
    told = (
        "^query vectors must be finite, got NaN or infinity in 2 of 4; the model's training may have diverged"
    )
    with pytest.raises(DataError, match=told):
        spaces.lengths_of(vectors, name="query vectors")


def test_a_histogram_counts_every_value_once() -> None:
    values = np.array([-2.0, 0.0, 0.05, 0.1, 0.95, 1.0, 7.0])
    found = spaces.histogram_of(values, np.linspace(0, 1, 11), left_out=3)
    assert found.counts == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert (found.below, found.above, found.left_out, found.total) == (1, 1, 3, 7)
    assert found.quantiles[3] == 0.1
    assert spaces.histogram_of(np.empty(0), np.linspace(0, 1, 3)).quantiles == []


def test_bins_hold_all_cosines_and_what_is_near_1_of_ratios() -> None:
    edges = spaces.cosine_edges(np.array([0.2, 0.7]))
    assert (edges[0], edges[-1]) == (0.2, 0.7)
    assert spaces.cosine_edges(np.full(3, 0.5))[[0, -1]].tolist() == pytest.approx([0.49, 0.51])
    assert spaces.ratio_edges(np.array([0.99, 1.01]))[[0, -1]].tolist() == [0.85, 1.15]
    assert spaces.ratio_edges(np.array([-50.0, 50.0]))[[0, -1]].tolist() == [-1.0, 3.0]
    assert spaces.ratio_edges(np.empty(0))[[0, -1]].tolist() == [0.85, 1.15]


FOLDS = np.arange(200) % 5


def area(queries: Float[np.ndarray, "n e"], documents: Float[np.ndarray, "n e"]) -> float:
    return float(auc_of(*probe_scores(queries, documents, FOLDS), FOLDS)(np.ones((1, 200)))[0])


def test_a_tower_shifted_by_a_vector_is_told_apart() -> None:
    assert area(unit(200, 16, seed=1, shift=4.0), unit(200, 16, seed=2)) > 0.98


def test_towers_of_one_distribution_are_not() -> None:
    areas = [area(unit(200, 16, seed=2 * number), unit(200, 16, seed=2 * number + 1)) for number in range(8)]
    assert np.mean(areas) == pytest.approx(0.5, abs=0.03)


def test_towers_that_give_one_vector_each_are_told_apart_and_one_vector_for_both_is_not() -> None:
    one, other = (np.repeat(unit(1, seed=seed), 200, axis=0) for seed in (0, 1))
    assert area(one, other) == 1.0
    assert area(one, one) == 0.5


def test_the_area_is_the_mean_of_scikit_learns_over_equal_folds() -> None:
    generator = np.random.default_rng(0)
    queries, documents = generator.integers(0, 30, size=(2, 200)).astype(np.float64)
    labels = np.repeat([1, 0], 40)
    parts = [np.concatenate([queries[fold == FOLDS], documents[fold == FOLDS]]) for fold in range(5)]
    peers = [roc_auc_score(labels, part) for part in parts]
    assert auc_of(queries, documents, FOLDS)(np.ones((1, 200)))[0] == pytest.approx(np.mean(peers))


def test_a_resample_equals_plain_loops_over_pairs_of_a_fold() -> None:
    generator = np.random.default_rng(0)
    queries, documents = generator.integers(0, 5, size=(2, 12)).astype(np.float64)
    folds, counts = np.arange(12) % 3, drawn(12)
    for own in counts:
        won, compared = 0.0, 0.0
        for one, other in product(range(12), range(12)):
            if folds[one] == folds[other]:
                compared += own[one] * own[other]
                # 1 if the query is ahead, half if they tie.
                points = (np.sign(queries[one] - documents[other]) + 1) / 2
                won += own[one] * own[other] * points
        assert auc_of(queries, documents, folds)(own[None])[0] == pytest.approx(won / compared)


def test_queries_of_one_positive_stay_in_one_fold_and_folds_are_about_equal() -> None:
    clusters = np.repeat(np.arange(40), np.arange(40) % 4 + 1)
    folds = fold_of(clusters, 5, seed=0)
    assert all(len(set(folds[clusters == cluster].tolist())) == 1 for cluster in range(40))
    sizes = np.bincount(folds, minlength=5)
    assert sizes.max() - sizes.min() <= 2
    assert (fold_of(clusters, 5, seed=0) == folds).all()
    assert (fold_of(clusters, 5, seed=1) != folds).any()


def test_a_fold_is_judged_by_a_probe_that_has_not_seen_it() -> None:
    queries, documents = unit(200, 16, seed=1), unit(200, 16, seed=2)
    before = probe_scores(queries, documents, FOLDS)[0]
    swapped = np.where((FOLDS == 2)[:, None], documents, queries)
    after = probe_scores(swapped, np.where((FOLDS == 2)[:, None], queries, documents), FOLDS)
    # What fold 2 holds changes what the others learn from, but not what fold 2 is judged by: its scores
    # change places.
    assert after[1][FOLDS == 2] == pytest.approx(before[FOLDS == 2])
    assert after[0][FOLDS != 2] != pytest.approx(before[FOLDS != 2], abs=1e-3)
