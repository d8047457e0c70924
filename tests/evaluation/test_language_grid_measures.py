"""Measures of a grid of sentence pairs, against plain loops over pairs, queries and candidates."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from adiabat.core.errors import DataError
from adiabat.evaluation.language_grid_measures import (
    MEASURE,
    cluster_ids,
    grid_scores,
    measure_grid,
    measure_grid_retrieval,
    placements,
)
from adiabat.models.embedding_head import Similarity
from adiabat.stats.samples import GridSample, Sample
from tests.stats.brute_force import pair_score

LABELS = ("entailment", "neutral", "contradiction")


def vectors(seed: int, languages: Sequence[str], pairs: int, width: int = 16) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {language: generator.standard_normal((pairs, width)).astype(np.float32) for language in languages}


def xnli_like(premises: int) -> tuple[list[str], np.ndarray]:
    """Labels of pairs that come in threes sharing a premise, and the premises' numbers."""
    return list(LABELS) * premises, np.repeat(np.arange(premises), 3)


def scores_of(
    seed: int, labels: Sequence[str], clusters: np.ndarray, *, cells: tuple[int, int] = (2, 3)
) -> np.ndarray:
    """Random scores, rounded so that some tie: clusters have an effect of their own, entailment scores
    higher.
    """
    generator = np.random.default_rng(seed)
    entailed = np.array([label == "entailment" for label in labels])
    of_cluster = generator.standard_normal((*cells, int(clusters.max()) + 1))[..., clusters]
    return np.round(generator.standard_normal((*cells, len(labels))) + of_cluster + entailed, 1)


def ragged(seed: int, pairs: int = 120, clusters: int = 50) -> tuple[list[str], np.ndarray]:
    """Labels and clusters of unequal size; some clusters have no pair of a label."""
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, clusters, pairs)
    return list(generator.permutation(list(LABELS) * (pairs // 3))), np.unique(drawn, return_inverse=True)[1]


def measured(
    scores: np.ndarray, labels: Sequence[str], clusters: np.ndarray | None = None
) -> tuple[Sample, list[GridSample]]:
    """The grid by one similarity, its languages called by numbers."""
    rows, columns = ([f"l{number}" for number in range(size)] for size in scores.shape[:2])
    clusters = np.arange(len(labels)) if clusters is None else clusters
    samples, cells = measure_grid({"cosine": scores}, labels, rows=rows, columns=columns, clusters=clusters)
    return samples[0], cells


def errors_by_loops(positive: np.ndarray, negative: np.ndarray) -> int:
    return sum(1 for score in positive for other in negative if not score > other)


def discrepancy(scores: np.ndarray, entailed: np.ndarray, other: np.ndarray) -> float:
    """Of one cell, given the rows of both classes, with repetitions."""
    return float((scores[other][None, :] >= scores[entailed][:, None]).mean())


def resampled_by_counting(
    scores: np.ndarray, labels: Sequence[str], members: Sequence[np.ndarray], drawn: np.ndarray
) -> float:
    """Put the pairs of drawn clusters together and count again: the average over cells and comparisons."""
    names = np.array(labels)
    rows = np.concatenate([members[cluster] for cluster in drawn])
    entailed = rows[names[rows] == "entailment"]
    cells = product(LABELS[1:], np.ndindex(*scores.shape[:2]))
    return float(
        np.mean([discrepancy(scores[of], entailed, rows[names[rows] == other]) for other, of in cells])
    )


def test_scores_of_a_case_worked_by_hand():
    premises = {"en": np.array([[1.0, 0.0], [0.0, 2.0]], dtype=np.float32)}
    hypotheses = {
        "de": np.array([[3.0, 0.0], [3.0, 6.0]], dtype=np.float32),
        "fr": np.array([[0.0, 1.0], [0.0, -1.0]], dtype=np.float32),
    }
    scores = grid_scores(premises, hypotheses)
    np.testing.assert_allclose(scores["cosine"], [[[1, 2 / 5**0.5], [0, -1]]], atol=1e-15)
    np.testing.assert_allclose(scores["distance"], [[[-2, -5], [-(2**0.5), -3]]], atol=1e-15)


def test_scores_agree_with_plain_loops_across_blocks():
    premises, hypotheses = vectors(0, "abc", 150), vectors(1, "xy", 150)
    scores = grid_scores(premises, hypotheses, similarities=["cosine", "distance", "dot"])
    assert {name: values.shape for name, values in scores.items()} == dict.fromkeys(
        ["cosine", "distance", "dot"], (3, 2, 150)
    )
    for a, query in enumerate(premises.values()):
        for b, document in enumerate(hypotheses.values()):
            for n, (similarity, values) in product((0, 63, 64, 127, 128, 149), scores.items()):
                expected = score(query[n], document[n], similarity)
                assert values[a, b, n] == pytest.approx(
                    expected, abs=1e-14 if similarity == "cosine" else 1e-13
                )


@pytest.mark.parametrize("pairs", [131, 192])
def test_equal_vectors_give_exactly_equal_scores_wherever_they_stand(pairs):
    premises, hypotheses = vectors(2, "abcde", pairs, width=383), vectors(3, "abcde", pairs, width=383)
    rows = [0, 1, 63, 64, 100, pairs - 1]
    for query, document in zip(premises.values(), hypotheses.values(), strict=True):
        query[rows], document[rows] = query[7], document[7]
    premises["c"], hypotheses["e"] = premises["a"], hypotheses["b"]
    for values in grid_scores(premises, hypotheses).values():
        assert (values[:, :, rows] == values[:, :, [7]]).all()
        assert (values[0] == values[2]).all()
        assert (values[:, 1] == values[:, 4]).all()


def test_a_vector_has_with_itself_a_cosine_of_exactly_one_and_no_distance():
    same = vectors(4, "a", 200, width=384)
    scores = grid_scores(same, same)
    assert (scores["cosine"] == 1).all()
    assert (scores["distance"] == 0).all()


def test_cosine_ignores_length_and_distance_does_not():
    premises, hypotheses = vectors(5, "ab", 40), vectors(6, "ab", 40)
    four_times = {name: 4 * values for name, values in premises.items()}
    scores, longer = (grid_scores(asked, hypotheses) for asked in (premises, four_times))
    assert (scores["cosine"] == longer["cosine"]).all()
    assert (scores["distance"] != longer["distance"]).all()


def test_half_precision_memory_maps_are_scored_as_their_values(tmp_path):
    premises, hypotheses = vectors(7, "a", 70), vectors(8, "b", 70)
    np.save(tmp_path / "b.npy", hypotheses["b"].astype(np.float16))
    mapped = {"b": np.load(tmp_path / "b.npy", mmap_mode="r")}
    expected = grid_scores(premises, {"b": hypotheses["b"].astype(np.float16).astype(np.float64)})
    assert (grid_scores(premises, mapped)["cosine"] == expected["cosine"]).all()


def test_broken_vectors_are_all_reported_at_once():
    premises, hypotheses = vectors(9, ["en", "de"], 100), vectors(10, ["en", "de"], 100)
    premises["de"][3, 0] = np.inf
    hypotheses["en"][80, 2] = np.nan
    told = (
        "2 faults: premise vector of sentence pair 3 in de .* squared length inf; .* sentence pair 80 in en"
    )
    with pytest.raises(DataError, match=told):
        grid_scores(premises, hypotheses)


def test_a_zero_vector_has_a_cosine_of_zero_with_everything():
    premises, hypotheses = vectors(9, ["en"], 5), vectors(10, ["en"], 5)
    premises["en"][1], hypotheses["en"][2] = 0, 0
    scores = grid_scores(premises, hypotheses)
    assert np.flatnonzero(scores["cosine"][0, 0] == 0).tolist() == [1, 2]
    length = np.linalg.norm(hypotheses["en"][1].astype(np.float64))
    assert scores["distance"][0, 0, 1] == pytest.approx(-length)


@pytest.mark.parametrize(
    "hypotheses", [{}, {"a": np.ones((3, 4), dtype=np.float32)}, {"a": np.ones((2, 5), dtype=np.float32)}]
)
def test_languages_of_different_shapes_are_refused(hypotheses):
    with pytest.raises(ValueError, match="all of one shape"):
        grid_scores({"a": np.ones((2, 4), dtype=np.float32)}, hypotheses)


def test_placements_of_a_case_worked_by_hand():
    placed = placements(np.array([[[0.9, 0.5, 0.1]]]), np.array([[[0.5, 0.7]]]))
    assert placed.positive.tolist() == [[[0, 2, 2]]]
    assert placed.negative.tolist() == [[[2, 2]]]
    assert (placed.errors.tolist(), placed.total) == ([[4]], 6)


def test_the_pseudo_values_of_a_case_worked_by_hand():
    # Entailment 0.9 and 0.5, neutral 0.1 and 0.7, contradiction 0.2 and 0.3, each first in the first cluster.
    # Only 0.5 loses, against 0.7: U = 1/4, placements 0, 1/2 and 0, 1/2. The first cluster's influence is (0
    # - 1/4) / 2 twice, the second's (1/2 - 1/4) / 2 twice.
    scores = np.array([[[0.9, 0.1, 0.2, 0.5, 0.7, 0.3]]])
    sample, (neutral, contradiction) = measured(scores, list(LABELS) * 2, np.array([0, 0, 0, 1, 1, 1]))
    assert neutral.values.tolist() == [[[-0.25, 0.75]]]
    assert (neutral.errors.tolist(), neutral.total) == ([[1]], 4)
    assert contradiction.values.tolist() == [[[0.0, 0.0]]]
    assert sample.values.tolist() == [-0.125, 0.375]
    assert (sample.key, sample.statistic) == (("PND", "cosine"), "mean")
    assert (sample.lower_is_better, sample.reference) == (True, None)


@pytest.mark.parametrize("seed", range(3))
def test_pseudo_values_agree_with_their_definition_in_plain_loops(seed):
    labels, clusters = ragged(seed, pairs=60, clusters=25)
    scores = scores_of(seed, labels, clusters, cells=(1, 1))
    _, cells = measured(scores, labels, clusters)
    count = int(clusters.max()) + 1
    for one, other in zip(cells, LABELS[1:], strict=True):
        entailed, rest = (np.flatnonzero(np.array(labels) == name) for name in ("entailment", other))
        lost = {(i, j): scores[0, 0, j] >= scores[0, 0, i] for i in entailed for j in rest}
        level = sum(lost.values()) / len(lost)
        influence = np.zeros(count)
        for i in entailed:
            influence[clusters[i]] += (sum(lost[i, j] for j in rest) / len(rest) - level) / len(entailed)
        for j in rest:
            influence[clusters[j]] += (sum(lost[i, j] for i in entailed) / len(entailed) - level) / len(rest)
        np.testing.assert_allclose(one.values[0, 0], level + count * influence, atol=1e-6)


def test_every_cell_holds_its_exact_discrepancy_and_is_the_mean_of_its_units():
    labels, clusters = ragged(3)
    scores = scores_of(13, labels, clusters, cells=(3, 2))
    sample, cells = measured(scores, labels, clusters)
    assert [(one.comparison, one.similarity, one.rows, one.columns) for one in cells] == [
        (f"entailment-{other}", "cosine", ("l0", "l1", "l2"), ("l0", "l1")) for other in LABELS[1:]
    ]
    names, values = np.array(labels), []
    for one, other in zip(cells, LABELS[1:], strict=True):
        for cell in np.ndindex(3, 2):
            sides = (scores[cell][names == name] for name in ("entailment", other))
            assert one.errors[cell] == errors_by_loops(*sides)
        assert (one.total, one.lower_is_better) == (1600, True)
        shares = one.errors / one.total
        np.testing.assert_allclose(one.values.mean(axis=-1, dtype=np.float64), shares, atol=1e-7)
        values.append(shares)
    assert sample.values.mean() == pytest.approx(np.mean(values), abs=1e-14)
    means = np.mean([one.values for one in cells], axis=(0, 1, 2))
    np.testing.assert_allclose(sample.values, means, atol=1e-6)


@pytest.mark.parametrize("even", [True, False])
def test_weighted_means_of_units_follow_counting_again(even):
    labels, clusters = xnli_like(100) if even else ragged(20, pairs=300, clusters=100)
    scores = scores_of(19, labels, clusters, cells=(1, 2))
    sample, _ = measured(scores, labels, clusters)
    generator = np.random.default_rng(5)
    members = [np.flatnonzero(clusters == cluster) for cluster in np.unique(clusters)]
    drawn = generator.integers(0, len(members), (800, len(members)))
    counted = np.array([resampled_by_counting(scores, labels, members, one) for one in drawn])
    weighted = np.array([sample.values[one].mean() for one in drawn])
    # To first order: what is left is an order of magnitude below the spread.
    assert np.corrcoef(counted, weighted)[0, 1] > 0.99
    assert weighted.std() == pytest.approx(counted.std(), rel=0.05)
    assert np.mean(counted - weighted) == pytest.approx(0, abs=0.1 * counted.std())


def test_the_order_of_sentence_pairs_does_not_matter():
    labels, clusters = ragged(4)
    scores = scores_of(14, labels, clusters)
    order = np.random.default_rng(0).permutation(len(labels))
    sample, cells = measured(scores, labels, clusters)
    shuffled, others = measured(scores[..., order], [labels[i] for i in order], clusters[order])
    np.testing.assert_allclose(shuffled.values, sample.values, atol=1e-12)
    for one, other in zip(cells, others, strict=True):
        assert (one.values == other.values).all()


def test_repeating_every_pair_beside_itself_changes_nothing():
    labels, clusters = ragged(6)
    scores = scores_of(17, labels, clusters)
    once = measured(scores, labels, clusters)[0]
    twice = measured(np.concatenate([scores, scores], axis=-1), labels * 2, np.tile(clusters, 2))[0]
    np.testing.assert_allclose(twice.values, once.values, atol=1e-12)


def test_all_tied_scores_lose_every_comparison():
    sample, cells = measured(np.zeros((1, 1, 9)), list(LABELS) * 3)
    assert [one.errors.tolist() for one in cells] == [[[9]], [[9]]]
    np.testing.assert_allclose(sample.values, 1.0)


def test_cluster_ids_number_premises_by_first_appearance():
    assert cluster_ids(["b", "a", "b", "c"]).tolist() == [0, 1, 0, 2]
    # Alike in one language only: two premises.
    assert cluster_ids([("yes", "ja"), ("yes", "doch"), ("yes", "ja")]).tolist() == [0, 1, 0]


def test_unknown_labels_are_all_reported_at_once():
    labels = "3 faults: label of sentence pair 1 .* 'yes'; label of sentence pair 2 .* 'no'"
    with pytest.raises(DataError, match=f"{labels}; .* one contradiction, got none; name"):
        measured(np.zeros((1, 1, 4)), ["entailment", "yes", "no", "neutral"])


def measured_retrieval(
    premises: np.ndarray,
    hypotheses: np.ndarray,
    labels: Sequence[str],
    clusters: np.ndarray,
    similarity: Similarity = "cosine",
) -> tuple[Sample, list[GridSample]]:
    """A grid of one language of premises or several, in the arrays' first axis."""
    asked, told = (
        {f"l{place}": vectors for place, vectors in enumerate(side)} for side in (premises, hypotheses)
    )
    samples, cells = measure_grid_retrieval(asked, told, labels, similarities=[similarity], clusters=clusters)
    return samples[0], cells


def score(query: np.ndarray, document: np.ndarray, similarity: Similarity) -> float:
    return pair_score(query.astype(np.float64), document.astype(np.float64), similarity)


def retrieval_by_loops(
    asked: np.ndarray,
    told: np.ndarray,
    labels: Sequence[str],
    clusters: np.ndarray,
    negative: str,
    similarity: Similarity,
) -> tuple[np.ndarray, np.ndarray]:
    """Errors and comparisons by the cluster of the query and that of the candidate."""
    errors, compared = (np.zeros((clusters.max() + 1,) * 2) for _ in range(2))
    for i, label in enumerate(labels):
        for j, other in enumerate(labels):
            if label == "entailment" and other == negative and clusters[i] != clusters[j]:
                # Small whole numbers: sums are exact, and equal directions divide to equal numbers but for
                # the last bits.
                gap = score(asked[i], told[j], similarity) - score(asked[i], told[i], similarity)
                errors[clusters[i], clusters[j]] += gap > -1e-9
                compared[clusters[i], clusters[j]] += 1
    return errors, compared


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray]:
    """Vectors of few small whole numbers in two languages, so that many tie; clusters of unequal size."""
    generator = np.random.default_rng(seed)
    clusters = np.concatenate([np.repeat(np.arange(7), 3), generator.integers(0, 7, 6)])
    labels = [*LABELS * 7, *generator.permutation(list(LABELS) * 2)]
    vectors = generator.integers(1, 4, (2, 2, len(labels), 3)).astype(np.float32)
    return vectors[0], vectors[1], labels, clusters


def test_retrieval_of_a_case_worked_by_hand() -> None:
    # Premise 0 asks (1, 0): what it entails lies at 45 degrees, premise 1's neutral one on it (an error), its
    # contradiction across. Premise 1 asks (0, 1): what it entails lies on it, premise 0's neutral one too (a
    # tie is an error), its contradiction across.
    asked = np.array([[[1, 0]] * 3 + [[0, 1]] * 3], dtype=np.float32)
    told = np.array([[[1, 1], [0, 1], [1, 0], [0, 1], [1, 0], [0, -1]]], dtype=np.float32)
    sample, (neutral, contradiction) = measured_retrieval(asked, told, LABELS * 2, np.repeat([0, 1], 3))
    for one, other, errors in ((neutral, "neutral", 2), (contradiction, "contradiction", 0)):
        assert one.comparison == f"retrieval entailment-{other}"
        assert (one.errors.tolist(), one.total) == ([[errors]], 2)
    assert (sample.measure, sample.values.mean()) == (MEASURE, 0.5)


@pytest.mark.parametrize("similarity", ["cosine", "distance", "dot"])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_cell_counts_what_loops_count_with_ties(seed: int, similarity: Similarity) -> None:
    asked, told, labels, clusters = problem(seed)
    sample, cells = measured_retrieval(asked, told, labels, clusters, similarity)
    shares = []
    for one, negative in zip(cells, LABELS[1:], strict=True):
        for a, b in np.ndindex(2, 2):
            errors, compared = retrieval_by_loops(asked[a], told[b], labels, clusters, negative, similarity)
            assert (one.errors[a, b], one.total) == (errors.sum(), compared.sum())
            assert one.values[a, b].mean() == pytest.approx(errors.sum() / compared.sum(), abs=1e-6)
            shares.append(errors.sum() / compared.sum())
    assert sample.values.mean() == pytest.approx(np.mean(shares))
    assert 0 < np.mean(shares) < 1


def test_pseudo_values_are_the_slope_of_the_value_in_how_often_a_premise_is_drawn() -> None:
    asked, told, labels, clusters = problem(2)
    _, cells = measured_retrieval(asked, told, labels, clusters)
    count, step = int(clusters.max()) + 1, 1e-5
    for one, negative in zip(cells, LABELS[1:], strict=True):
        errors, compared = retrieval_by_loops(asked[1], told[0], labels, clusters, negative, "cosine")
        value = errors.sum() / compared.sum()
        for cluster in range(count):
            weights = np.ones(count)
            weights[cluster] += step
            slope = ((weights @ errors @ weights) / (weights @ compared @ weights) - value) / step
            assert one.values[1, 0, cluster] == pytest.approx(value + count * slope, abs=1e-3)


def test_neither_the_order_of_sentence_pairs_nor_the_length_of_vectors_matters_to_the_cosine() -> None:
    asked, told, labels, clusters = problem(3)
    order = np.random.default_rng(0).permutation(len(labels))
    moved = [labels[row] for row in order]
    mixed = measured_retrieval(4 * asked[:, order], 8 * told[:, order], moved, clusters[order])
    plain = measured_retrieval(asked, told, labels, clusters)
    assert np.array_equal(mixed[0].values, plain[0].values)
    assert [one.errors.tolist() for one in mixed[1]] == [one.errors.tolist() for one in plain[1]]


def test_one_premise_alone_has_no_candidates_of_others() -> None:
    asked, told, labels, clusters = problem(0)
    options = {"similarities": ["cosine"], "clusters": clusters * 0}
    assert measure_grid_retrieval({"a": asked[0]}, {"a": told[0]}, labels, **options) == ([], [])
