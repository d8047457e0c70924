"""The positive-negative discrepancy as samples: its mean over queries, and all pairs together."""

import numpy as np

from adiabat.measure.metrics import PairCounts, pnd_shares
from adiabat.measure.samples import SHARE, Sample


def pnd_samples(counts: PairCounts, *, similarity: str) -> list[Sample]:
    """The two forms of the positive-negative discrepancy, ``PND`` (mean over queries) and ``PND pooled``.

    Only the pooled one counts pairs as the two-proportion test does: the mean over queries weighs them otherwise, and may even change the
    other way.

    Args:
        counts: Of every query.
        similarity: What ranked the documents.

    Returns:
        The mean first; a query without pairs weighs nothing in either.

    Raises:
        ValueError: If a query has fewer pairs than errors.

    Reference:
        Mission A6.
    """
    compared = (counts.pairs > 0).astype(np.float64)
    shares = pnd_shares(counts.errors, counts.pairs)
    mean = Sample("PND", shares, similarity, reference=compared, lower_is_better=True, bounds=SHARE)
    errors, pairs = counts.errors.astype(np.float64), counts.pairs.astype(np.float64)
    return [mean, Sample("PND pooled", errors, similarity, reference=pairs, lower_is_better=True, proportion=True, bounds=SHARE)]
