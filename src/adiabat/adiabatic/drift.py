"""Drift of a tuned query tower, without labels: the search results of probe texts before and after tuning.

The right answers to a probe are unknown, so drift is not better or worse: each measure is 0 if the tuned
tower behaves like the untuned one, and grows with the difference.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int

from adiabat.results.rate_search_result import Drift

OVERLAP_LOSS = "overlap loss"
"""``1 - RBO`` of the retrieved documents; see `rank_biased_overlap`."""

MARGINS = "margins"
"""`margin_changes`, in units of the root mean square margin of the untuned tower."""

TURN = "turn"
"""`turns`, in radians."""

ROTATION_SHARE = "rotation share"
"""`rotation_share`, between 0 and 1."""

MEASURES = (OVERLAP_LOSS, MARGINS, TURN, ROTATION_SHARE)
"""All measures."""

PERSISTENCE = 0.98
"""Persistence of `rank_biased_overlap`: a reader looks at 50 documents on average."""

_LEAST_PROBES = 4
"""Minimum number of probes: two for each half that a rotation is fitted on."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Probe vectors of one query tower and their search results in one store.

    Attributes:
        vectors: Probe vectors as the tower returns them, of any length.
        rows: Rows of the nearest documents of each probe, nearest first: as many as requested, or all.
        scores: Similarity of each probe to the documents that the *untuned* tower retrieved, in its order,
            for either tower; higher is closer.
    """

    vectors: Float32[np.ndarray, "n e"]
    rows: Int[np.ndarray, "n k"]
    scores: Float32[np.ndarray, "n k"]

    def of(self, chosen: Bool[np.ndarray, " n"]) -> "Reading":
        """The reading of some of the probes.

        Args:
            chosen: Rows or mask of the probes.

        Returns:
            A reading of them.
        """
        return Reading(self.vectors[chosen], self.rows[chosen], self.scores[chosen])


def overlap_losses(
    before: Int[np.ndarray, "n k"], after: Int[np.ndarray, "n k"], *, persistence: float = PERSISTENCE
) -> Float64[np.ndarray, " n"]:
    """1 minus the extrapolated rank-biased overlap of two rankings of the same depth, exactly 0 for equal
    lists.

    ``RBO = (X_k / k) p^k + ((1 - p) / p) sum_{d=1..k} (X_d / d) p^d`` with ``X_d`` the number of documents in
    the first d of both lists.

    Args:
        before: Documents retrieved for each probe by the untuned tower, best first.
        after: The same for the tuned tower, with equal probes in equal rows.
        persistence: ``p`` above, in (0, 1): the share of readers at a rank who continue to the next.

    Returns:
        One value per probe: 0 for equal lists, 1 for disjoint ones.

    Raises:
        ValueError: If `persistence` lies outside (0, 1), lists are empty, or a list names a document twice or
            is padded.

    Reference:
        Webber, Moffat and Zobel 2010, the extrapolated form for lists of equal length without ties.
    """
    if not 0 < persistence < 1:
        raise ValueError(f"persistence must lie between 0 and 1, got {persistence}")
    depths = np.arange(1, before.shape[1] + 1)
    # The weights of all depths add up to 1; each counts the documents missing at its depth.
    missing = 1 - _overlaps(before, after) / depths
    weights = (1 - persistence) * persistence ** (depths - 1.0)
    weights[-1] += persistence ** float(depths[-1])  # Beyond the lists, as at their end.
    return np.asarray(missing @ weights)


def margin_changes(base: Reading, tuned: Reading) -> Float64[np.ndarray, " n"]:
    """Change of the margins by which a probe's first document leads the others, over the documents of the
    untuned tower.

    ``sqrt(mean_j (m'_j - m_j)^2) / sqrt(mean over probes and j of m_j^2)`` with ``m_j = s_1 - s_j``, j =
    2..k. A shift of all similarities of a probe changes neither its ranking nor its margins. The divisor is
    one number for all probes, so that probes with nearly tied documents do not dominate the mean; if every
    margin was 0, it is computed from ``m'``.

    Args:
        base: Reading of the untuned tower.
        tuned: Reading of the tuned tower, on the same probes and documents.

    Returns:
        One value per probe; all 0 if there is only one document.

    Raises:
        ValueError: If the readings differ in shape, or hold values that are not finite.

    Reference:
        No source: adiabat's own measure.
    """
    _require_alike(base, tuned)
    if base.scores.shape[1] == 1:
        return np.zeros(len(base.scores))
    before, after = (
        scores[:, :1] - scores[:, 1:]
        for scores in (base.scores.astype(np.float64), tuned.scores.astype(np.float64))
    )
    size = np.sqrt(np.square(before).mean()) or np.sqrt(np.square(after).mean()) or 1.0
    return np.asarray(np.sqrt(np.square(after - before).mean(axis=1)) / size)


def turns(base: Reading, tuned: Reading) -> Float64[np.ndarray, " n"]:
    """Angle between the vectors of a probe by the two towers.

    ``2 atan2(| |v| u - |u| v |, | |v| u + |u| v |)``: computed from chords, because the arc cosine of a
    cosine near 1 loses half of its digits, and with them the small angles of careful tuning.

    Args:
        base: Reading of the untuned tower.
        tuned: Reading of the tuned tower, on the same probes.

    Returns:
        Radians, between 0 and pi. The angle between a zero vector and another is pi / 2, as for a cosine of
        0; between two zero vectors it is 0.

    Raises:
        ValueError: If the readings differ in shape, or hold values that are not finite.

    Reference:
        Kahan 2006, "How futile are mindless assessments of roundoff in floating-point computation?".
    """
    _require_alike(base, tuned)
    before, after = base.vectors.astype(np.float64), tuned.vectors.astype(np.float64)
    lengths_before, lengths_after = (
        np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (before, after)
    )
    left, right = before * lengths_after, after * lengths_before
    angles = 2 * np.arctan2(np.linalg.norm(left - right, axis=1), np.linalg.norm(left + right, axis=1))
    vanished = (lengths_before == 0) != (lengths_after == 0)
    return np.where(vanished[:, 0], np.pi / 2, angles)


def rotation_share(base: Reading, tuned: Reading, *, seed: int = 0) -> float:
    """Share of the probes' movement that is one common rotation.

    ``1 - sum |R q - q'|^2 / sum |q' - q|^2``, at least 0. R is fitted on one half of the probes and evaluated
    on the other, then vice versa, so that unrelated movements share no rotation.

    R is the orthogonal map that best moves q to q' over its half and one unmoved pseudo-probe of mean length
    along every axis. If a half
    has fewer probes than dimensions, nothing else determines R outside their span: there it is the identity,
    and in directions with few probes it stays near it; otherwise a movement that is half rotation and half
    noise came out as no rotation. So the share errs low: for 680 purely rotated probes it is 0.99 in 16
    dimensions, and for 170 probes in 96 dimensions whose variances fall as 1, 1/2, 1/3 and so on, 0.73.

    Args:
        base: Reading of the untuned tower.
        tuned: Reading of the tuned tower, on the same probes.
        seed: Seed of the halves.

    Returns:
        Between 0 and 1; 0 if nothing moved, or with fewer than 4 probes.

    Raises:
        ValueError: If the readings differ in shape, or hold values that are not finite.

    Reference:
        Schoenemann 1966 (orthogonal Procrustes).
    """
    _require_alike(base, tuned)
    before, after = base.vectors.astype(np.float64), tuned.vectors.astype(np.float64)
    moved = float(np.square(after - before).sum())
    if len(before) < _LEAST_PROBES or moved == 0:
        return 0.0
    if 2 * len(before) < before.shape[1]:
        # The same lengths and angles on fewer axes, because nothing moves outside the span of all vectors.
        axes = np.linalg.qr(np.concatenate([before, after]).T)[0]
        before, after = before @ axes, after @ axes
    first_half = np.zeros(len(before), dtype=bool)
    first_half[np.random.default_rng(seed).permutation(len(before))[: len(before) // 2]] = True
    unexplained = _left_unexplained(before, after, first_half) + _left_unexplained(before, after, ~first_half)
    return max(0.0, 1 - unexplained / moved)


def drift_of(base: Reading, tuned: Reading, *, groups: Sequence[str] = ()) -> Drift:
    """All measures over the probes, and over each group of them.

    Args:
        base: Reading of the untuned tower.
        tuned: Reading of the tuned tower, on the same probes and documents.
        groups: Group of each probe, such as its language; empty without groups.

    Returns:
        Means of `OVERLAP_LOSS`, `MARGINS` and `TURN`, over all probes and per group, and `ROTATION_SHARE`
        over all. Errors are standard errors over probes; `ROTATION_SHARE`, which is not a mean over probes,
        has none, nor has a single probe. All are 0 for the untuned tower compared with itself.

    Raises:
        ValueError: If the readings are not alike in shape, hold what is not finite, or hold no probes, a list
            names a document twice or is padded, or there is not one group per probe.

    Reference:
        No source: adiabat's own measure.
    """
    _require_alike(base, tuned)
    probes = len(base.vectors)
    if not probes:
        raise ValueError("readings must hold at least one probe, got none")
    if groups and len(groups) != probes:
        raise ValueError(f"groups must be one for each of {probes} probes, got {len(groups)}")
    values = {
        OVERLAP_LOSS: overlap_losses(base.rows, tuned.rows),
        MARGINS: margin_changes(base, tuned),
        TURN: turns(base, tuned),
    }
    group_of = np.array(groups)
    return Drift(
        probes=probes,
        means={**_means(values, np.ones(probes, dtype=bool)), ROTATION_SHARE: rotation_share(base, tuned)},
        errors={name: float(measured.std(ddof=1) / np.sqrt(probes)) for name, measured in values.items()}
        if probes > 1
        else {},
        groups={group: _means(values, group_of == group) for group in dict.fromkeys(groups)},
    )


def _means(values: Mapping[str, Float[np.ndarray, " n"]], chosen: Bool[np.ndarray, " n"]) -> dict[str, float]:
    return {name: float(measured[chosen].mean()) for name, measured in values.items()}


def _require_alike(base: Reading, tuned: Reading) -> None:
    """Check that two readings are of the same probes, with equally many documents each."""
    for name in ("vectors", "rows", "scores"):
        first, second = getattr(base, name), getattr(tuned, name)
        if first.shape != second.shape:
            raise ValueError(
                f"{name} of both readings must be of one shape, got {first.shape} and {second.shape}"
            )
        for array in (first, second):
            if not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")


def _overlaps(before: Int[np.ndarray, "n k"], after: Int[np.ndarray, "n k"]) -> Int[np.ndarray, "n k"]:
    """Number of documents in the first d of both lists, for d = 1..k."""
    probes, k = before.shape
    if not k:
        raise ValueError("rankings must hold at least one document, got none")
    # A document of both rankings stands twice in its probe's row.
    both = np.concatenate([before, after], axis=1)
    positions = np.argsort(both, axis=1, kind="stable")
    rows = np.take_along_axis(both, positions, axis=1)
    first, second, shared = positions[:, :-1], positions[:, 1:], rows[:, :-1] == rows[:, 1:]
    if (rows < 0).any() or (shared & ((first < k) == (second < k))).any():
        raise ValueError(
            "rankings must name each document once, and none below 0, got a "
            "repeated document or a padding row"
        )
    # A shared document counts from the deeper of its two positions; `before` comes first because the sort is
    # stable.
    probe, _ = np.nonzero(shared)
    deeper = np.maximum(first, second - k)[shared]
    return np.asarray(np.bincount(probe * k + deeper, minlength=probes * k).reshape(probes, k).cumsum(axis=1))


def _left_unexplained(
    before: Float[np.ndarray, "n e"], after: Float[np.ndarray, "n e"], fitted_on: Bool[np.ndarray, " n"]
) -> float:
    """``sum |R q - q'|^2`` over the held-out probes, with R fitted on the others."""
    rotation = _rotation(before[~fitted_on], after[~fitted_on])
    return float(np.square(before[fitted_on] @ rotation.T - after[fitted_on]).sum())


def _rotation(before: Float[np.ndarray, "n e"], after: Float[np.ndarray, "n e"]) -> Float[np.ndarray, "e e"]:
    """The orthogonal R that maximises ``sum q' . R q + w tr R``, w the mean squared length: the polar factor
    of ``sum q' q^T + w I``.
    """
    # The pseudo-probes keep directions that few probes span near the identity.
    unmoved = np.square(before).sum(axis=1).mean() * np.eye(before.shape[1])
    # The polar factor is the product of both orthogonal factors of the singular value decomposition.
    left_vectors, _, right_vectors = np.linalg.svd(after.T @ before + unmoved)
    return np.asarray(left_vectors @ right_vectors)


ENDINGS = ".?!。।۔؟！？…"
"""Marks that end a sentence, in the scripts of the packaged probes."""


def written_otherwise(text: str) -> str:
    """A variant of a text: without its final punctuation, or with a full stop added if it has none."""
    bare = text.rstrip().rstrip(ENDINGS).rstrip()
    return bare if bare and bare != text.rstrip() else f"{text.rstrip()}."


HEADROOM = 0.1
"""Share by which drift may increase the noise that exists anyway."""


def limits_of(noise: Mapping[str, float]) -> dict[str, float]:
    """Drift that increases independent noise by `HEADROOM`: ``noise sqrt((1 + h)^2 - 1)``.

    Args:
        noise: Measure of drift to its mean over probes with changed punctuation.

    Returns:
        Measure to limit.
    """
    share = math.sqrt((1 + HEADROOM) ** 2 - 1)
    return {name: share * value for name, value in noise.items()}
