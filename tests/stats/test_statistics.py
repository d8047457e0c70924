"""Values of resamples against the data written out at full length, and against scipy and scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score, v_measure_score

from adiabat.stats import statistics
from adiabat.stats.samples import Sample
from adiabat.stats.statistics import members_of, ranks_of, value_of, values_of


def referred(values, reference, statistic) -> Sample:
    values, reference = (np.asarray(column, dtype=np.float64) for column in (values, reference))
    return Sample("AP", values, reference=reference, statistic=statistic)


def mean(units: int = 12, *, seed: int = 0) -> Sample:
    random = np.random.default_rng(seed)
    return Sample("PND", random.random(units), reference=random.integers(1, 5, units).astype(float))


def spearman(units: int = 30, *, seed: int = 0) -> Sample:
    """With ties on both sides."""
    random = np.random.default_rng(seed)
    return referred(random.integers(0, 8, units), random.integers(0, 5, units), "spearman")


def precision(units: int = 30, *, seed: int = 0) -> Sample:
    random = np.random.default_rng(seed)
    together = (random.random(units) < 0.3).astype(float)
    return referred(random.integers(0, 8, units) + together, together, "average precision")


def clusters(units: int = 40, *, seed: int = 0) -> Sample:
    random = np.random.default_rng(seed)
    label = random.integers(0, 4, units)
    cluster = np.where(random.random(units) < 0.6, label, random.integers(0, 5, units))
    return referred(cluster, label, "v-measure")


MAKERS = (mean, spearman, precision, clusters)
EVERY = pytest.mark.parametrize("make", MAKERS)


def drawn(units: int, *, resamples: int = 40, seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.multinomial(units, np.full(units, 1 / units), size=resamples).astype(float)


def written_out(sample: Sample, counts: np.ndarray) -> Sample:
    """Every unit as often as it was drawn."""
    rows = np.repeat(np.arange(counts.size), counts.astype(int))
    return replace(sample, values=sample.values[rows], reference=sample.reference[rows])


def test_values_worked_by_hand():
    ratio = Sample("PND pooled", np.array([1.0, 2.0]), reference=np.array([4.0, 6.0]))
    assert value_of(ratio).tolist() == [0.3]
    assert value_of(ratio, np.array([[2.0, 0.0], [1.0, 3.0]])).tolist() == [0.25, 7 / 22]
    assert value_of(Sample("RR", np.array([1.0, 0.5, 0.0]))).tolist() == [0.5]
    # Two of four correct, then three of four of the other label: 1/2 and 3/4.
    grouped = Sample("accuracy", np.array([1.0, 0, 1, 0, 1, 1, 1, 0]), groups=np.repeat([0, 1], 4))
    assert value_of(grouped).tolist() == [0.625]
    # Found at the first and third of three thresholds, the second threshold holding two units: 1/2 + 1/2 *
    # 2/4.
    assert value_of(referred([3, 2, 2, 1], [1, 0, 0, 1], "average precision")).tolist() == [0.75]
    assert value_of(referred([7, 7, 2, 2], [0, 0, 1, 1], "v-measure")).tolist() == [1.0]
    assert value_of(referred([3, 2, 1], [1, 5, 9], "spearman")).tolist() == [-1.0]


def test_spearman_of_resamples_is_scipys_on_the_data_written_out():
    sample, counts = spearman(), drawn(30)
    every = [written_out(sample, row) for row in (np.ones(30), *counts)]
    whole, *expected = [stats.spearmanr(out.values, out.reference).statistic for out in every]
    assert value_of(sample, counts) == pytest.approx(expected, abs=1e-12)
    assert value_of(sample)[0] == pytest.approx(whole, abs=1e-12)


def test_average_precision_of_resamples_is_scikit_learns_with_weights_and_written_out():
    sample, counts = precision(), drawn(30)
    weighted = [average_precision_score(sample.reference, sample.values, sample_weight=row) for row in counts]
    written = [written_out(sample, row) for row in counts]
    repeated = [average_precision_score(out.reference, out.values) for out in written]
    assert value_of(sample, counts) == pytest.approx(weighted, abs=1e-12)
    assert value_of(sample, counts) == pytest.approx(repeated, abs=1e-12)


def test_v_measure_of_resamples_is_scikit_learns_on_the_data_written_out():
    sample, counts = clusters(), drawn(40)
    written = [written_out(sample, row) for row in counts]
    expected = [v_measure_score(out.reference, out.values) for out in written]
    assert value_of(sample, counts) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("label", "cluster", "expected"), [([0, 0], [1, 1], 1.0), ([0, 1], [1, 1], 0.0), ([0, 0], [0, 1], 0.0)]
)
def test_v_measure_of_one_label_or_one_cluster_is_scikit_learns(label, cluster, expected):
    found = value_of(referred(cluster, label, "v-measure")).tolist()
    assert found == [expected] == [v_measure_score(label, cluster)]


@EVERY
def test_a_resample_is_the_data_written_out(make):
    sample = make()
    counts = drawn(sample.values.size)
    expected = [float(value_of(written_out(sample, row))[0]) for row in counts]
    assert value_of(sample, counts) == pytest.approx(expected, abs=1e-12)


@EVERY
def test_groups_are_the_plain_mean_of_their_values(make):
    sample = make(60)
    groups = np.random.default_rng(3).integers(0, 3, 60)
    counts = drawn(60)
    parts = [
        replace(sample, values=sample.values[groups == g], reference=sample.reference[groups == g])
        for g in range(3)
    ]
    expected = np.mean([value_of(part, counts[:, groups == g]) for g, part in enumerate(parts)], axis=0)
    assert value_of(replace(sample, groups=groups), counts) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@EVERY
def test_the_order_of_units_does_not_matter(make):
    sample = make()
    order = np.random.default_rng(2).permutation(sample.values.size)
    mixed = replace(sample, values=sample.values[order], reference=sample.reference[order])
    counts = drawn(order.size)
    assert value_of(mixed, counts[:, order]) == pytest.approx(value_of(sample, counts), abs=1e-12)


@EVERY
def test_few_resamples_at_a_time_give_the_values_of_all_at_once(make, monkeypatch):
    sample = make()
    counts = drawn(sample.values.size)
    expected = value_of(sample, counts)
    monkeypatch.setattr(statistics, "_BLOCK_CELLS", 3 * sample.values.size)
    assert value_of(sample, counts) == pytest.approx(expected, abs=1e-15)


def test_rank_statistics_look_at_the_order_alone():
    counts = drawn(30)
    for sample in (spearman(), precision()):
        moved = replace(sample, values=np.exp(sample.values) / 7 - 3)
        assert value_of(moved, counts).tolist() == value_of(sample, counts).tolist()
    sample = clusters()
    assert value_of(replace(sample, values=9 - sample.values)) == pytest.approx(value_of(sample), abs=1e-12)


def test_what_is_not_defined_on_a_resample_is_nan_there_alone():
    counts = np.array([[2.0, 0, 0], [1.0, 1, 1]])
    constant = referred([1, 2, 3], [3, 4, 6], "spearman")
    nothing = referred([1, 2, 3], [0, 1, 0], "average precision")
    unweighted = referred([0, 2, 3], [0, 4, 6], "mean")
    found = values_of([constant, nothing, unweighted], counts)
    assert np.isnan(found[0]).all()
    assert found[1].tolist() == [1.0, 0.5, 0.5]


def test_samples_together_have_the_values_they_have_apart():
    grouped = replace(mean(30, seed=4), groups=np.arange(30) % 2)
    samples = [mean(30), spearman(), precision(), grouped, mean(30, seed=5)]
    counts = drawn(30)
    together = values_of(samples, counts)
    for column, sample in zip(together.T, samples, strict=True):
        assert column == pytest.approx(value_of(sample, counts), abs=1e-14)


def test_ranks_are_scipys():
    values = np.random.default_rng(0).integers(0, 6, 25).astype(float)
    assert ranks_of(values).tolist() == stats.rankdata(values).tolist()


def test_members_of_groups_come_group_by_group():
    assert [part.tolist() for part in members_of(np.array([1, 0, 1, 2]), 4)] == [[1], [0, 2], [3]]
    assert [part.tolist() for part in members_of(None, 3)] == [[0, 1, 2]]


@pytest.mark.parametrize("name", ["values", "reference", "groups"])
def test_columns_of_another_number_of_units_are_refused(name):
    sample = replace(mean(4), groups=np.zeros(4, dtype=int))
    # The annotations of the record are checked in tests alone.
    object.__setattr__(sample, name, getattr(sample, name)[:3])
    with pytest.raises(ValueError, match=f"PND {name} must be of 4 units, got 3"):
        value_of(sample, np.ones((1, 4)))
