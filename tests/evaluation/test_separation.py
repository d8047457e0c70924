"""The probe that tells towers apart: scikit-learn's AUC, towers that are shifted or the same, and no leak between folds."""

import numpy as np
import pytest
from jaxtyping import Float
from sklearn.metrics import roc_auc_score

from adiabat.evaluation.space_geometry import auc_of, fold_of, probe_scores
from tests.evaluation.test_space_geometry import drawn, turned, unit

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


def test_turning_the_axes_changes_nothing() -> None:
    queries, documents = unit(200, 16, seed=1, shift=1.0), unit(200, 16, seed=2)
    assert area(turned(queries), turned(documents)) == pytest.approx(area(queries, documents), abs=1e-4)


def test_the_area_is_the_mean_of_scikit_learns_over_equal_folds() -> None:
    generator = np.random.default_rng(0)
    queries, documents = generator.integers(0, 30, size=(2, 200)).astype(np.float64)
    labels = np.repeat([1, 0], 40)
    peers = [roc_auc_score(labels, np.concatenate([queries[fold == FOLDS], documents[fold == FOLDS]])) for fold in range(5)]
    assert auc_of(queries, documents, FOLDS)(np.ones((1, 200)))[0] == pytest.approx(np.mean(peers))


def test_a_resample_equals_plain_loops_over_pairs_of_a_fold() -> None:
    generator = np.random.default_rng(0)
    queries, documents = generator.integers(0, 5, size=(2, 12)).astype(np.float64)
    folds, counts = np.arange(12) % 3, drawn(12)
    for own in counts:
        won, compared = 0.0, 0.0
        for one in range(12):
            for other in range(12):
                if folds[one] == folds[other]:
                    weight = own[one] * own[other]
                    compared += weight
                    won += weight * (1.0 if queries[one] > documents[other] else 0.5 if queries[one] == documents[other] else 0.0)
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
    # What fold 2 holds changes what the others learn from, but not what fold 2 is judged by: its scores change places.
    assert after[1][FOLDS == 2] == pytest.approx(before[FOLDS == 2])
    assert after[0][FOLDS != 2] != pytest.approx(before[FOLDS != 2], abs=1e-3)
