from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from adiabat.core.margin import Margin
from adiabat.evaluation.language_grid_measures import measure_grid
from adiabat.stats.grid_comparison import cell_values, compare_grids, flips_for
from adiabat.stats.samples import GridSample
from adiabat.stats.significance import Z_CRITICAL, benjamini_hochberg, sign_flip_p_values, two_proportion_z

LABELS = ("entailment", "neutral", "contradiction")


def cells_of(values: np.ndarray, *, lower_is_better: bool = False) -> GridSample:
    """Cells of a question grid: languages are called by numbers."""
    rows, columns = (tuple(map(str, range(size))) for size in values.shape[:2])
    return GridSample("P@1", "cosine", rows, columns, values.astype(np.float32), lower_is_better)


def nli_pair(
    seed: int, premises: int, *, cells: tuple[int, int] = (2, 3), gain: float = 0.0, spread: float = 0.5
) -> tuple[list[GridSample], list[GridSample]]:
    """Sentence pairs in threes of a premise, scored before and after: entailment gains by `gain`, and all
    else changes at random.
    """
    generator = np.random.default_rng(seed)
    labels, premise = list(LABELS) * premises, np.repeat(np.arange(premises), 3)
    entailed = np.array([label == "entailment" for label in labels])
    shape = (*cells, len(labels))
    of_pair = generator.standard_normal(shape)
    common = of_pair + generator.standard_normal((*cells, premises))[..., premise] + entailed
    before, after = (common + spread * generator.standard_normal(shape) for _ in range(2))
    named = {"rows": [*"ab"][: cells[0]], "columns": [*"xyz"][: cells[1]], "clusters": premise}
    sides = (before, after + gain * entailed)
    return tuple(measure_grid({"cosine": scores}, labels, **named)[1] for scores in sides)


def test_a_comparison_worked_by_hand():
    # Eight questions, two cells. In the first all eight are won anew: 2 of 2^8 sign patterns are as far from
    # 0, p = 2/256 < 0.05 / 2. In the second four are: p = 2/16.
    before = np.zeros((1, 2, 8))
    after = np.array([[[1.0] * 8, [1.0] * 4 + [0.0] * 4]])
    result = compare_grids(cells_of(after), cells_of(before), seed=0, resamples=100)
    assert (result.comparison, result.similarity) == ("P@1", "cosine")
    assert (result.after, result.before, result.improvement) == ([[1.0, 0.5]], [[0.0, 0.0]], [[None, None]])
    assert result.verdicts == [["better", "undecided"]]
    assert (result.improved, result.worsened, result.improved_z, result.worsened_z) == (1, 0, None, None)


def test_what_is_better_follows_from_the_measure():
    before, after = np.full((1, 1, 8), 0.5), np.full((1, 1, 8), 0.25)
    higher, lower = (
        compare_grids(
            *(cells_of(side, lower_is_better=falls) for side in (after, before)), seed=0, resamples=100
        )
        for falls in (False, True)
    )
    assert (higher.verdicts, higher.improvement, higher.worsened) == ([["worse"]], [[-50.0]], 1)
    assert (lower.verdicts, lower.improvement, lower.improved) == ([["better"]], [[50.0]], 1)


def test_verdicts_agree_with_going_through_all_signs():
    generator = np.random.default_rng(1)
    gains = np.array([0.0, 0.2, 0.5, 1.0, -1.0, -0.4])[:, None]
    before = generator.random((2, 3, 10))
    after = before + (gains + 0.5 * generator.standard_normal((6, 10))).reshape(2, 3, 10)
    one, other = cells_of(after), cells_of(before)
    p_values = []
    for cell in np.ndindex(2, 3):
        differences = one.values[cell].astype(np.float64) - other.values[cell]
        sums = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=10)]
        p_values.append(np.mean(np.array(sums) >= abs(differences.sum()) - 1e-9))
    # Benjamini-Hochberg in words: the largest k whose k-th least p-value is at most 0.05 k / 6.
    ordered = sorted(p_values)
    rejected = max((k for k in range(1, 7) if ordered[k - 1] <= 0.05 * k / 6), default=0)
    expected = [p <= ordered[rejected - 1] if rejected else False for p in p_values]
    result = compare_grids(one, other, seed=0, resamples=100)
    assert [verdict in ("better", "worse") for row in result.verdicts for verdict in row] == expected
    assert 0 < rejected < 6


def test_units_of_many_cells_share_their_signs():
    before, after = nli_pair(2, 40, gain=0.3)
    result = compare_grids(after[0], before[0], seed=7, resamples=500)
    differences = (after[0].values.astype(np.float64) - before[0].values).reshape(6, 40).T
    together = benjamini_hochberg(sign_flip_p_values(differences, seed=7, flips=500))
    assert [verdict in ("better", "worse") for row in result.verdicts for verdict in row] == together.tolist()


def test_a_gain_everywhere_is_better_everywhere():
    before, after = nli_pair(15, 120, gain=0.6)
    for was, now in zip(before, after, strict=True):
        result = compare_grids(now, was, seed=0, resamples=2000)
        assert (result.improved, result.worsened) == (6, 0)
        assert {verdict for row in result.verdicts for verdict in row} == {"better"}
        before_cells, after_cells = np.array(result.before), np.array(result.after)
        np.testing.assert_allclose(result.improvement, 100 * (before_cells - after_cells) / before_cells)


def test_swapping_before_and_after_mirrors_every_cell():
    before, after = nli_pair(16, 80, gain=0.25)
    opposite = {
        "better": {"worse"},
        "worse": {"better"},
        "undecided": {"undecided", "not worse"},
        "not worse": {"undecided", "not worse"},
    }
    found = 0
    for was, now in zip(before, after, strict=True):
        sides = ((now, was), (was, now))
        forth, back = (compare_grids(*pair, seed=1, resamples=1000) for pair in sides)
        for ways in zip(forth.verdicts, back.verdicts, strict=True):
            assert all(other in opposite[verdict] for verdict, other in zip(*ways, strict=True))
        assert (forth.improved, forth.worsened) == (back.worsened, back.improved)
        assert (forth.improved_z, forth.worsened_z) == (back.worsened_z, back.improved_z)
        found += forth.improved
    assert found > 0


def test_counts_by_z_are_those_of_the_two_proportion_test():
    before, after = nli_pair(18, 40, gain=0.3)
    was, now = before[0], after[0]
    errors = zip(was.errors.ravel().tolist(), now.errors.ravel().tolist(), strict=True)
    z = np.array([two_proportion_z(*pair, 1600) for pair in errors])
    result = compare_grids(now, was, seed=0, resamples=100)
    assert (result.improved_z, result.worsened_z) == (sum(z < -Z_CRITICAL), sum(z > Z_CRITICAL))
    assert result.improved_z > 0
    bare = compare_grids(replace(now, errors=None, total=0), was, seed=0, resamples=100)
    assert (bare.improved_z, bare.worsened_z) == (None, None)


def test_without_a_baseline_there_are_values_alone():
    before, _ = nli_pair(19, 20)
    result = compare_grids(before[0], None, seed=0)
    assert result.after == (before[0].errors / 400).tolist()
    compared = (result.before, result.improvement, result.verdicts, result.improved, result.improved_z)
    assert compared == (None,) * 5


def test_the_value_of_a_cell_is_exact_where_errors_were_counted_and_a_mean_elsewhere():
    values = np.array([[[0.1, 0.2, 0.6]]])
    assert cell_values(cells_of(values)) == pytest.approx(0.3, abs=1e-7)
    assert cell_values(replace(cells_of(values), errors=np.array([[3]]), total=7)).tolist() == [[3 / 7]]


def test_destroyed_pairs_of_languages_are_found_however_few_flips_were_asked_for():
    generator = np.random.default_rng(24)
    before = generator.random((15, 15, 30))
    after = before.copy()
    after[4, 4] += 0.02 * generator.standard_normal(30)
    for cell in ((2, 1), (0, 3)):
        after[cell] -= 1.0
    result = compare_grids(cells_of(after), cells_of(before), seed=0, resamples=100)
    assert (result.improved, result.worsened) == (0, 2)
    assert (result.verdicts[2][1], result.verdicts[0][3]) == ("worse", "worse")


def test_models_that_do_not_differ_are_told_apart_in_no_more_than_five_of_a_hundred_grids():
    # Under no difference any verdict is false, and Benjamini-Hochberg lets 5 % of grids have one. Of 200,
    # more than 21 would come less than once in a thousand times.
    false = 0
    for seed in range(100):
        before, after = nli_pair(1000 + seed, 30, cells=(1, 3))
        for was, now in zip(before, after, strict=True):
            result = compare_grids(now, was, seed=seed, resamples=200)
            false += result.improved + result.worsened > 0
    assert 1 <= false <= 21


def test_as_many_flips_as_the_cells_need_and_no_fewer_than_asked_for():
    flips = [flips_for(cells, requested=10_000) for cells in (0, 225, 500, 501, 1296)]
    assert flips == [10_000, 10_000, 10_000, 10_020, 25_920]
    # One cell of 501 with the least p-value that so many flips can give.
    p_values = np.array([1 / 10_021] + [1.0] * 500)
    assert benjamini_hochberg(p_values).tolist() == [True] + [False] * 500
    assert not benjamini_hochberg(np.array([1 / 10_001] + [1.0] * 500)).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"comparison": "RR"}, "same comparison, got P@1 and RR"),
        ({"similarity": "distance"}, "same similarity"),
        ({"rows": ("de", "en")}, "same rows"),
        ({"lower_is_better": True}, "same lower_is_better"),
        ({"values": np.zeros((2, 3, 7), dtype=np.float32)}, "same units, got 9 and 7"),
        ({"total": 8}, "same total, got 7 and 8"),
    ],
)
def test_cells_that_do_not_fit_together_are_refused(change, message):
    one = replace(cells_of(np.zeros((2, 3, 9))), errors=np.full((2, 3), 3), total=7)
    with pytest.raises(ValueError, match=message):
        compare_grids(one, replace(one, **change), seed=0)
    with pytest.raises(ValueError, match="resamples must be above 0, got 0"):
        compare_grids(one, one, seed=0, resamples=0)


def test_each_p_value_counts_for_as_many_comparisons_as_the_choice_was_among() -> None:
    generator = np.random.default_rng(4)
    base = generator.random((2, 2, 40)).astype(np.float32)
    shifts = np.array([[0.01, 0.035], [0.04, 0.08]])[..., None]
    moved = base + (shifts + generator.normal(0, 0.1, base.shape)).astype(np.float32)
    one, other = cells_of(moved), cells_of(base)
    found = [compare_grids(one, other, seed=0, resamples=2000, choice=choice) for choice in (1.0, 50.0)]
    assert [each.improved for each in found] == [3, 2]


def test_a_margin_of_the_discrepancy_holds_for_the_cells_that_count_it() -> None:
    """At 0.2 of the baseline nearly all cells exclude the loss, and at 1 % none does."""
    after, before = nli_pair(3, 100, spread=0.1)

    def kept(margin: Margin) -> list[int | None]:
        sides = zip(after, before, strict=True)
        return [compare_grids(*pair, seed=0, resamples=100, margin=margin).not_worse for pair in sides]

    assert all(kept(Margin(absolute=0.1)))
    assert kept(Margin()) == [0, 0]
