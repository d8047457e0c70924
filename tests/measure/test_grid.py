from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from adiabat.errors import DataError
from adiabat.measure import grid_draws
from adiabat.measure.grid import Placements, cluster_ids, grid_scores, measure_grid, placements
from adiabat.measure.significance import Z_CRITICAL, two_proportion_z

LABELS = ("entailment", "neutral", "contradiction")


def vectors(seed: int, languages: Sequence[str], pairs: int, width: int = 16) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {language: generator.standard_normal((pairs, width)).astype(np.float32) for language in languages}


def xnli_like(premises: int) -> tuple[list[str], np.ndarray]:
    """Labels of pairs that come in threes sharing a premise, and the premises' numbers."""
    return list(LABELS) * premises, np.repeat(np.arange(premises), 3)


def models(
    seed: int, premises: int, *, cells: tuple[int, int] = (2, 3), gain: float = 0.0
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Scores before and after: premises have an effect of their own, entailment scores higher, and higher still after, by `gain`."""
    generator = np.random.default_rng(seed)
    labels, premise = xnli_like(premises)
    shape = (*cells, len(labels))
    entailed = np.array([label == "entailment" for label in labels])
    before = generator.standard_normal(shape) + generator.standard_normal((*cells, premises))[..., premise] + entailed
    after = before + 0.5 * generator.standard_normal(shape) + gain * entailed
    return {"cosine": before}, {"cosine": after}


def errors_by_loops(positive: np.ndarray, negative: np.ndarray) -> int:
    return sum(1 for score in positive for other in negative if not score > other)


def discrepancy(scores: np.ndarray, entailed: np.ndarray, other: np.ndarray) -> float:
    """Of one cell, given the rows of both classes, with repetitions."""
    return float((scores[other][None, :] >= scores[entailed][:, None]).mean())


def resample_by_brute_force(
    after: np.ndarray, before: np.ndarray, labels: Sequence[str], clusters: np.ndarray, *, resamples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw clusters, put their pairs together, and count again: the average over cells and comparisons, after and its difference."""
    generator = np.random.default_rng(99)
    names = np.array(labels)
    members = [np.flatnonzero(clusters == cluster) for cluster in np.unique(clusters)]
    values, differences = [], []
    for _ in range(resamples):
        rows = np.concatenate([members[i] for i in generator.integers(0, len(members), len(members))])
        entailed = rows[names[rows] == "entailment"]
        both = [
            [
                discrepancy(scores[cell], entailed, rows[names[rows] == other])
                for other in LABELS[1:]
                for cell in np.ndindex(*scores.shape[:2])
            ]
            for scores in (after, before)
        ]
        values.append(np.mean(both[0]))
        differences.append(np.mean(both[0]) - np.mean(both[1]))
    return np.array(values), np.array(differences)


def test_scores_of_a_case_worked_by_hand():
    premises = {"en": np.array([[1.0, 0.0], [0.0, 2.0]], dtype=np.float32)}
    hypotheses = {"de": np.array([[3.0, 0.0], [3.0, 6.0]], dtype=np.float32), "fr": np.array([[0.0, 1.0], [0.0, -1.0]], dtype=np.float32)}
    scores = grid_scores(premises, hypotheses)
    np.testing.assert_allclose(scores["cosine"], [[[1, 2 / 5**0.5], [0, -1]]], atol=1e-15)
    np.testing.assert_allclose(scores["distance"], [[[-2, -5], [-(2**0.5), -3]]], atol=1e-15)


def test_scores_agree_with_plain_loops_across_blocks():
    premises, hypotheses = vectors(0, "abc", 150), vectors(1, "xy", 150)
    scores = grid_scores(premises, hypotheses)
    assert scores["cosine"].shape == scores["distance"].shape == (3, 2, 150)
    for a, query in enumerate(premises.values()):
        for b, document in enumerate(hypotheses.values()):
            for n in (0, 63, 64, 127, 128, 149):
                q, d = query[n].astype(np.float64), document[n].astype(np.float64)
                assert scores["cosine"][a, b, n] == pytest.approx(q @ d / np.linalg.norm(q) / np.linalg.norm(d), abs=1e-14)
                assert scores["distance"][a, b, n] == pytest.approx(-np.linalg.norm(q - d), abs=1e-13)


@pytest.mark.parametrize("pairs", [131, 192])
def test_equal_vectors_give_exactly_equal_scores_wherever_they_stand(pairs):
    premises, hypotheses = vectors(2, "abcde", pairs, width=383), vectors(3, "abcde", pairs, width=383)
    rows = [0, 1, 63, 64, 100, pairs - 1]
    for a, (query, document) in enumerate(zip(premises.values(), hypotheses.values(), strict=True)):
        query[rows], document[rows] = query[7], document[7]
        assert a < 5
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
    scores, longer = grid_scores(premises, hypotheses), grid_scores({name: 4 * values for name, values in premises.items()}, hypotheses)
    assert (scores["cosine"] == longer["cosine"]).all()
    assert (scores["distance"] != longer["distance"]).all()


def test_half_precision_memory_maps_are_scored_as_their_values(tmp_path):
    premises, hypotheses = vectors(7, "a", 70), vectors(8, "b", 70)
    np.save(tmp_path / "b.npy", hypotheses["b"].astype(np.float16))
    mapped = {"b": np.load(tmp_path / "b.npy", mmap_mode="r")}
    expected = grid_scores(premises, {"b": hypotheses["b"].astype(np.float16).astype(np.float64)})
    assert (grid_scores(premises, mapped)["cosine"] == expected["cosine"]).all()


def test_zero_and_broken_vectors_are_all_reported_at_once():
    premises, hypotheses = vectors(9, ["en", "de"], 100), vectors(10, ["en", "de"], 100)
    premises["de"][3] = 0
    hypotheses["en"][80, 2] = np.nan
    with pytest.raises(
        DataError, match=r"2 faults: premise vector of sentence pair 3 in de .* squared length 0; .* sentence pair 80 in en"
    ):
        grid_scores(premises, hypotheses)


@pytest.mark.parametrize("hypotheses", [{}, {"a": np.ones((3, 4), dtype=np.float32)}, {"a": np.ones((2, 5), dtype=np.float32)}])
def test_languages_of_different_shapes_are_refused(hypotheses):
    with pytest.raises(ValueError, match="all of one shape"):
        grid_scores({"a": np.ones((2, 4), dtype=np.float32)}, hypotheses)


def test_placements_of_a_case_worked_by_hand():
    placed = placements(np.array([[[0.9, 0.5, 0.1]]]), np.array([[[0.5, 0.7]]]))
    assert placed.positive.tolist() == [[[0, 2, 2]]]
    assert placed.negative.tolist() == [[[2, 2]]]
    assert (placed.errors.tolist(), placed.total) == ([[4]], 6)


def test_placements_agree_with_plain_loops_and_from_both_sides():
    generator = np.random.default_rng(11)
    positive, negative = np.round(generator.standard_normal((2, 3, 40)), 1), np.round(generator.standard_normal((2, 3, 50)), 1)
    placed = placements(positive, negative)
    for cell in np.ndindex(2, 3):
        assert placed.errors[cell] == placed.negative[cell].sum() == errors_by_loops(positive[cell], negative[cell])
        assert placed.negative[cell].tolist() == [int((positive[cell] <= score).sum()) for score in negative[cell]]


def test_placements_agree_with_the_area_under_the_roc_curve():
    generator = np.random.default_rng(12)
    positive, negative = np.round(generator.standard_normal((1, 1, 70)) + 1, 1), np.round(generator.standard_normal((1, 1, 60)), 1)
    ties = int((positive[0, 0][:, None] == negative[0, 0][None, :]).sum())
    auc = roc_auc_score([1] * 70 + [0] * 60, np.concatenate([positive[0, 0], negative[0, 0]]))
    placed = placements(positive, negative)
    assert ties > 0
    assert (placed.errors[0, 0] - ties / 2) / placed.total == pytest.approx(1 - auc, abs=1e-12)


def test_placements_refuse_nan():
    with pytest.raises(ValueError, match="1 NaN of 2"):
        placements(np.array([[[0.1, np.nan]]]), np.array([[[0.1]]]))


def test_the_grid_without_a_baseline_holds_exact_discrepancies():
    labels, clusters = xnli_like(30)
    premises, hypotheses = vectors(13, "abc", 90, width=4), vectors(14, "abc", 90, width=4)
    for side in (premises, hypotheses):
        for values in side.values():
            np.round(values, out=values)
            values[:, 0] += 0.25
    scores = grid_scores(premises, hypotheses)
    grid = measure_grid(scores, labels, clusters=clusters, seed=0, resamples=200)
    assert [(one.comparison, one.similarity) for one in grid.grid] == [
        (f"entailment-{other}", similarity) for similarity in ("cosine", "distance") for other in LABELS[1:]
    ]
    for one in grid.grid:
        values = scores[one.similarity]
        negative = 1 if one.comparison.endswith("neutral") else 2
        loops = [[errors_by_loops(values[a, b, ::3], values[a, b, negative::3]) / 900 for b in range(3)] for a in range(3)]
        assert one.after == loops
        assert (one.before, one.improvement, one.verdicts, one.improved, one.improved_z) == (None,) * 5
    for change in grid.changes:
        cells = [one.after for one in grid.grid if one.similarity == change.similarity]
        assert change.after == pytest.approx(np.mean(cells))
        assert change.after_interval[0] < change.after < change.after_interval[1]
        assert (change.measure, change.before, change.verdict, change.z) == ("PND", None, None, None)
    assert grid.pairs == 2 * 9 * 30 * 30


def test_a_gain_everywhere_is_better_everywhere():
    before, after = models(15, 120, gain=0.6)
    labels, clusters = xnli_like(120)
    grid = measure_grid(after, labels, before=before, clusters=clusters, seed=0, resamples=2000)
    for one in grid.grid:
        assert (one.improved, one.worsened) == (6, 0)
        assert {verdict for row in one.verdicts for verdict in row} == {"better"}
        for a, b in np.ndindex(2, 3):
            assert one.improvement[a][b] == pytest.approx(100 * (one.before[a][b] - one.after[a][b]) / one.before[a][b])
    (change,) = grid.changes
    assert change.verdict == "better"
    assert change.before == pytest.approx(np.mean([one.before for one in grid.grid]))
    assert change.difference_interval[1] < 0 < change.improvement_interval[0]


def test_swapping_before_and_after_mirrors_every_cell():
    before, after = models(16, 80, gain=0.25)
    labels, clusters = xnli_like(80)
    forth = measure_grid(after, labels, before=before, clusters=clusters, seed=1, resamples=1000)
    back = measure_grid(before, labels, before=after, clusters=clusters, seed=1, resamples=1000)
    opposite = {"better": "worse", "worse": "better", "no evidence": "no evidence"}
    for one, other in zip(forth.grid, back.grid, strict=True):
        assert [[opposite[verdict] for verdict in row] for row in one.verdicts] == other.verdicts
        assert (one.improved, one.worsened, one.improved_z, one.worsened_z) == (
            other.worsened,
            other.improved,
            other.worsened_z,
            other.improved_z,
        )
    assert sum(one.improved for one in forth.grid) > 0
    assert forth.changes[0].difference_interval == pytest.approx(tuple(-end for end in back.changes[0].difference_interval[::-1]))


def test_the_same_model_twice_is_no_evidence():
    before, _ = models(17, 50)
    labels, clusters = xnli_like(50)
    grid = measure_grid(before, labels, before=before, clusters=clusters, seed=0, resamples=500)
    assert all((one.improved, one.worsened, one.improved_z, one.worsened_z) == (0, 0, 0, 0) for one in grid.grid)
    assert (grid.changes[0].difference_interval, grid.changes[0].p_paired, grid.changes[0].verdict) == ((0.0, 0.0), 1.0, "no evidence")


def test_counts_by_z_are_those_of_the_two_proportion_test():
    before, after = models(18, 40, cells=(3, 3), gain=0.1)
    labels, clusters = xnli_like(40)
    for one in measure_grid(after, labels, before=before, clusters=clusters, seed=0, resamples=100).grid:
        z = [
            two_proportion_z(round(b * 1600), round(a * 1600), 1600)
            for befores, afters in zip(one.before, one.after, strict=True)
            for b, a in zip(befores, afters, strict=True)
        ]
        assert one.improved_z == sum(value < -Z_CRITICAL for value in z)
        assert one.worsened_z == sum(value > Z_CRITICAL for value in z)
        assert one.improved_z > 0


@pytest.mark.parametrize("balanced", [True, False])
def test_the_linearised_bootstrap_agrees_with_counting_again(balanced):
    before, after = models(19, 100, cells=(1, 2), gain=0.3)
    labels, clusters = xnli_like(100)
    if not balanced:
        # Unequal clusters and classes: the number of pairs then varies from resample to resample.
        labels = list(np.random.default_rng(20).permutation(labels))
        clusters = np.sort(np.random.default_rng(21).integers(0, 60, 300))
    values, differences = resample_by_brute_force(after["cosine"], before["cosine"], labels, clusters, resamples=2500)
    (change,) = measure_grid(after, labels, before=before, clusters=clusters, seed=0, resamples=2500).changes
    # 2,500 draws give a standard deviation to 1.4 %, an interval's width to somewhat less.
    width = 2 * 1.96
    assert (change.after_interval[1] - change.after_interval[0]) / width == pytest.approx(values.std(), rel=0.08)
    assert (change.difference_interval[1] - change.difference_interval[0]) / width == pytest.approx(differences.std(), rel=0.08)
    assert np.mean(change.difference_interval) == pytest.approx(differences.mean(), abs=0.2 * differences.std())


def test_repeating_every_pair_changes_nothing_when_copies_are_drawn_together():
    before, after = models(22, 40, gain=0.1)
    labels, clusters = xnli_like(40)
    twice = [{name: np.concatenate([scores, scores], axis=-1) for name, scores in side.items()} for side in (before, after)]
    once = measure_grid(after, labels, before=before, clusters=clusters, seed=3, resamples=400)
    together = measure_grid(twice[1], labels * 2, before=twice[0], clusters=np.tile(clusters, 2), seed=3, resamples=400)
    apart = measure_grid(twice[1], labels * 2, before=twice[0], seed=3, resamples=400)
    assert together.changes[0].difference_interval == pytest.approx(once.changes[0].difference_interval, abs=1e-12)
    assert [one.verdicts for one in together.grid] == [one.verdicts for one in once.grid]
    widths = [grid.changes[0].difference_interval[1] - grid.changes[0].difference_interval[0] for grid in (apart, once)]
    assert widths[0] < 0.9 * widths[1]


def test_names_of_clusters_do_not_matter():
    before, after = models(23, 30, gain=0.1)
    labels, clusters = xnli_like(30)
    plain, renamed = (
        measure_grid(after, labels, before=before, clusters=names, seed=0, resamples=200) for names in (clusters, 7 * clusters + 5)
    )
    assert plain == renamed


def destroyed_cells(seed: int, languages: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], list[str], np.ndarray]:
    """Models that differ in two cells only: entailment falls below everything else there."""
    labels, clusters = xnli_like(30)
    before, _ = models(seed, 30, cells=(languages, languages))
    before["cosine"][:, :, ::3] += 2.0
    after = {"cosine": before["cosine"].copy()}
    for cell in ((2, 1), (0, 3)):
        after["cosine"][*cell, ::3] -= 8.0
    return before, after, labels, clusters


@pytest.mark.parametrize("wanted", [100, 1000])
def test_destroyed_pairs_of_many_languages_are_found_however_few_resamples_were_asked_for(wanted):
    before, after, labels, clusters = destroyed_cells(24, 15)
    grid = measure_grid(after, labels, before=before, clusters=clusters, seed=0, resamples=wanted)
    for one in grid.grid:
        assert (one.improved, one.worsened) == (0, 2)
        assert (one.verdicts[2][1], one.verdicts[0][3]) == ("worse", "worse")
    assert grid.notes == [
        f"the grid was resampled 9,000 times, not measure.resamples = {wanted:,}: "
        "so few could not tell a single changed pair of languages among 225"
    ]


def test_beyond_the_most_resamples_a_normal_distribution_stands_in_and_the_notes_say_so(monkeypatch):
    before, after, labels, clusters = destroyed_cells(25, 5)
    after["cosine"][4, 4, ::3] += 0.02 * np.random.default_rng(0).standard_normal(30)
    monkeypatch.setattr(grid_draws, "MOST_RESAMPLES", 200)
    grid = measure_grid(after, labels, before=before, clusters=clusters, seed=0, resamples=150)
    assert [(one.improved, one.worsened, one.verdicts[2][1], one.verdicts[0][3]) for one in grid.grid] == [(0, 2, "worse", "worse")] * 2
    assert "resampled 200 times" in grid.notes[0]
    assert "200 resamples are few for 25 pairs of languages" in grid.notes[1]
    assert "normal distribution" in grid.notes[1]


def test_a_grid_without_a_baseline_is_resampled_as_asked():
    labels, clusters = xnli_like(20)
    _, after = models(26, 20, cells=(5, 5))
    assert measure_grid(after, labels, clusters=clusters, seed=0, resamples=100).notes == []


def test_cluster_ids_number_texts_by_first_appearance():
    assert cluster_ids(["b", "a", "b", "c"]).tolist() == [0, 1, 0, 2]


def test_unknown_labels_are_all_reported_at_once():
    scores = {"cosine": np.zeros((1, 1, 4))}
    with pytest.raises(
        DataError, match=r"3 faults: label of sentence pair 1 .* 'yes'; label of sentence pair 2 .* 'no'; .* one contradiction"
    ):
        measure_grid(scores, ["entailment", "yes", "no", "neutral"], seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"after": {}}, "at least one"),
        ({"before": {"distance": np.zeros((2, 3, 9))}}, "similarities of after"),
        ({"before": {"cosine": np.zeros((2, 2, 9))}}, "one shape"),
        ({"labels": list(LABELS) * 4}, "with 12 sentence pairs last"),
        ({"clusters": np.zeros(3, dtype=np.int64)}, "one number for each of 9 sentence pairs, got 3"),
        ({"resamples": 0}, "resamples must be above 0"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, message):
    given = {
        "after": {"cosine": np.zeros((2, 3, 9))},
        "labels": list(LABELS) * 3,
        "before": None,
        "clusters": None,
        "resamples": 10,
        **change,
    }
    with pytest.raises(ValueError, match=message):
        measure_grid(
            given["after"], given["labels"], before=given["before"], clusters=given["clusters"], seed=0, resamples=given["resamples"]
        )


def test_all_tied_scores_lose_every_comparison():
    grid = measure_grid({"cosine": np.zeros((1, 1, 9))}, list(LABELS) * 3, seed=0, resamples=50)
    assert [one.after for one in grid.grid] == [[[1.0]], [[1.0]]]
    assert grid.changes[0].after_interval == (1.0, 1.0)


def test_placements_know_their_number_of_comparisons():
    placed = Placements(np.zeros((1, 1, 3), dtype=np.int64), np.zeros((1, 1, 5), dtype=np.int64))
    assert placed.total == 15
