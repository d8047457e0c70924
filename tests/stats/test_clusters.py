"""Clusters of units: connections by hand, sums, and resamples that draw whole clusters, against plain
loops.
"""

from dataclasses import replace

import numpy as np
import pytest
from statsmodels.regression.linear_model import OLS

from adiabat.core.ragged import Ragged, connected
from adiabat.stats.clusters import FEWEST_CLUSTERS, Clusters
from adiabat.stats.paired import changes_over_runs, paired_changes
from adiabat.stats.samples import SHARE, Sample


def made(clusters: int, *, seed: int = 0, sizes: tuple[int, int] = (1, 8)) -> tuple[Sample, Sample]:
    """Scores before and after, whose differences are equal within a cluster but for a little."""
    random = np.random.default_rng(seed)
    numbers = np.repeat(np.arange(clusters), random.integers(*sizes, clusters))
    before = random.uniform(0.3, 0.7, numbers.size)
    after = before + random.normal(0.01, 0.1, clusters)[numbers] + random.normal(0, 0.01, numbers.size)
    shuffled = random.permutation(numbers.size)
    sample = Sample("nDCG@10", before[shuffled], "cosine", bounds=SHARE, clusters=Clusters(numbers[shuffled]))
    return replace(sample, values=after[shuffled]), sample


def test_units_are_connected_through_any_shared_number_of_the_same_list() -> None:
    documents = Ragged.of([[1, 2], [2, 3], [4], [3], [5], [1000]])
    texts = Ragged.of([[0], [1], [2], [3], [2], [4]])
    assert connected(documents).tolist() == [0, 0, 1, 0, 2, 3]
    assert connected(documents, texts).tolist() == [0, 0, 1, 0, 1, 2]
    assert connected(Ragged.of([[], [7], [], [7]])).tolist() == [0, 1, 2, 1]
    assert connected(Ragged.of([[3]])).tolist() == [0]


def test_values_of_clusters_are_sums_and_the_mean_stays() -> None:
    sample = Sample("nDCG@10", np.array([0.1, 0.2, 0.6, 1.0]), clusters=Clusters(np.array([5, 2, 5, 9])))
    summed = sample.summed_over(sample.clusters)
    assert summed.values.tolist() == pytest.approx([0.2, 0.7, 1.0])
    assert summed.weights.tolist() == [1, 2, 1]
    assert summed.clusters is None
    with pytest.raises(ValueError, match="mean without groups"):
        replace(sample, statistic="spearman").summed_over(sample.clusters)


def test_few_clusters_of_documents_are_not_drawn_and_a_column_is() -> None:
    numbers = np.repeat(np.arange(FEWEST_CLUSTERS - 1), 2)
    assert not Clusters(numbers).drawn
    assert Clusters(numbers, "session").drawn
    assert Clusters(np.repeat(np.arange(FEWEST_CLUSTERS), 2)).drawn
    assert not Clusters(np.arange(100)).drawn
    assert Clusters(np.arange(100)).sentence("query") == ""
    assert f"{FEWEST_CLUSTERS - 1}\N{NO-BREAK SPACE}clusters, too few" in Clusters(numbers).sentence("query")
    assert "differs for every query" in Clusters(np.arange(100), 'the column "id"').sentence("query")


def test_the_spread_is_that_of_cluster_robust_errors() -> None:
    """The half width of the interval against statsmodels' cluster-robust standard error of the mean
    difference.
    """
    after, before = made(300, seed=1)
    change = paired_changes([after], [before], seed=0, resamples=4000)[0]
    difference = after.values - before.values
    robust = {"cov_type": "cluster", "cov_kwds": {"groups": after.clusters.numbers}, "use_t": True}
    fit = OLS(difference, np.ones(difference.size)).fit(**robust)
    low, high = change.difference_interval
    assert change.difference == pytest.approx(difference.mean(), abs=1e-12)
    assert high - low == pytest.approx(2 * 1.968 * fit.bse[0], rel=0.06)
    assert change.p == pytest.approx(fit.pvalues[0], abs=0.02)
    sides = ([replace(side, clusters=None)] for side in (after, before))
    alone = paired_changes(*sides, seed=0, resamples=4000)[0]
    assert alone.difference_interval[1] - alone.difference_interval[0] < 0.7 * (high - low)
    # Units are still counted one by one.
    assert (change.gained, change.lost) == (alone.gained, alone.lost)


def test_equal_units_count_once() -> None:
    """Twenty copies of each of 40 queries give the interval of the 40."""
    random = np.random.default_rng(3)
    before, after = (random.uniform(0.2, 0.8, 40) for _ in range(2))
    once = paired_changes([Sample("RR", after)], [Sample("RR", before)], seed=0, resamples=1000)[0]
    clusters = Clusters(np.repeat(np.arange(40), 20))
    copied = [Sample("RR", np.repeat(values, 20), clusters=clusters) for values in (after, before)]
    change = paired_changes(copied[:1], copied[1:], seed=0, resamples=1000)[0]
    assert change.difference_interval == pytest.approx(once.difference_interval)
    assert change.after_interval == pytest.approx(once.after_interval)
    assert change.p == once.p
    assert change.loss_bound == pytest.approx(once.loss_bound)
    assert once.needed is not None
    assert change.needed == pytest.approx(20 * once.needed, abs=20)


def test_one_sample_may_lack_clusters_and_subsets_keep_theirs() -> None:
    after, before = made(100, seed=2)
    change = paired_changes([after], [before], seed=0, resamples=500)[0]
    assert paired_changes([after], [replace(before, clusters=None)], seed=0, resamples=500)[0] == change
    rows = np.flatnonzero(after.clusters.numbers < 60)
    part = after.take(rows)
    assert part.clusters.count == 60
    assert part.clusters.drawn
    assert not after.take(np.flatnonzero(after.clusters.numbers < 8)).clusters.drawn


def test_runs_draw_whole_clusters() -> None:
    after, before = made(60, seed=5, sizes=(4, 5))
    noisy = replace(after, values=after.values + 0.001)
    runs = changes_over_runs([[after, noisy]], [[before]], seed=0, resamples=2000)[0]
    alone = [replace(sample, clusters=None) for sample in (after, noisy, before)]
    single = changes_over_runs([alone[:2]], [alone[2:]], seed=0, resamples=2000)[0]
    assert np.ptp(runs.difference_interval) > 1.5 * np.ptp(single.difference_interval)
