"""Drift without labels: rank-biased overlap by its definition and a peer's, margins and angles by hand,
rotations that are known.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from ir_measures import Compat, Qrel, ScoredDoc
from jaxtyping import Float, Int
from scipy.linalg import orthogonal_procrustes

from adiabat.adiabatic.drift import (
    MARGINS,
    MEASURES,
    OVERLAP_LOSS,
    ROTATION_SHARE,
    TURN,
    Reading,
    drift_of,
    margin_changes,
    overlap_losses,
    rotation_share,
    turns,
)
from adiabat.config.tuning import GuardSection

Measure = Callable[[Reading, Reading], Float[np.ndarray, " n"]]
SEEDS = some.integers(0, 2**16)
REPEATED = ([1, 1, 2], [1, 2, 2], [3, 3, 3], [1, 2, -1])


def ranked(*lists: list[int]) -> Int[np.ndarray, "n k"]:
    return np.array(lists, dtype=np.int64)


def drawn_rankings(
    probes: int = 30, depth: int = 12, documents: int = 20, *, seed: int = 0
) -> Int[np.ndarray, "n k"]:
    generator = np.random.default_rng(seed)
    return np.stack([generator.permutation(documents)[:depth] for _ in range(probes)])


def reading(vectors=None, *, rows=None, scores=None) -> Reading:
    """What is not given has the right number of probes and otherwise tells nothing."""
    probes = next(len(one) for one in (vectors, rows, scores) if one is not None)
    depth = next((np.shape(one)[1] for one in (rows, scores) if one is not None), 2)
    return Reading(
        vectors=np.asarray(np.ones((probes, 2)) if vectors is None else vectors, dtype=np.float32),
        rows=np.tile(np.arange(depth), (probes, 1)) if rows is None else np.asarray(rows),
        scores=np.asarray(np.zeros((probes, depth)) if scores is None else scores, dtype=np.float32),
    )


def drawn_reading(probes: int = 12, width: int = 6, depth: int = 5, *, seed: int = 0) -> Reading:
    generator = np.random.default_rng(seed)
    return reading(
        generator.normal(size=(probes, width)),
        rows=drawn_rankings(probes, depth, seed=seed),
        scores=-np.sort(-generator.normal(size=(probes, depth)), axis=1),
    )


def taken(one: Reading, order: Int[np.ndarray, " n"]) -> Reading:
    return Reading(one.vectors[order], one.rows[order], one.scores[order])


def rank_biased_overlap(
    one: Int[np.ndarray, "n k"], other: Int[np.ndarray, "n k"], **named: float
) -> Float[np.ndarray, " n"]:
    return 1 - overlap_losses(one, other, **named)


def overlap_in_loops(one: list[int], other: list[int], p: float) -> float:
    """The definition word by word: agreement at every depth, and beyond the last as at the last."""
    depth = len(one)
    agreement = [len({*one[:d]} & {*other[:d]}) / d for d in range(1, depth + 1)]
    return agreement[-1] * p**depth + (1 - p) / p * sum(a * p**d for d, a in enumerate(agreement, start=1))


def test_two_swapped_documents_of_three_are_worked_by_hand() -> None:
    def of(other: list[int]) -> float:
        return float(rank_biased_overlap(ranked([1, 2, 3]), ranked(other), persistence=0.5)[0])

    # Agreement is 0, 1, 1: only the first depth, of weight 1 - p, is lost.
    assert of([2, 1, 3]) == pytest.approx(0.5)
    # 1, 1, 2/3 at the weights 0.5, 0.25, 0.125, and 2/3 for the rest, 0.125.
    assert of([1, 2, 4]) == pytest.approx(0.75 + 0.25 * 2 / 3)
    # One document: all weight is on it.
    assert rank_biased_overlap(ranked([1], [1]), ranked([1], [2])).tolist() == [1, 0]


@pytest.mark.parametrize("persistence", [0.1, 0.9, 0.98])
def test_overlap_equals_its_definition_in_plain_loops(persistence: float) -> None:
    one, other = drawn_rankings(), drawn_rankings(seed=1)
    plain = [overlap_in_loops(list(a), list(b), persistence) for a, b in zip(one, other, strict=True)]
    assert rank_biased_overlap(one, other, persistence=persistence) == pytest.approx(plain)


def test_overlap_is_that_of_ir_measures_with_the_last_depth_extrapolated() -> None:
    one, other = drawn_rankings(), drawn_rankings(seed=1)
    depth = one.shape[1]
    run = [ScoredDoc(str(i), str(row), depth - d) for i, rows in enumerate(one) for d, row in enumerate(rows)]
    qrels = [Qrel(str(i), str(row), depth - d) for i, rows in enumerate(other) for d, row in enumerate(rows)]
    metrics = ir_measures.iter_calc([Compat(p=0.98, normalize=False)], qrels, run)
    found = {metric.query_id: metric.value for metric in metrics}
    # The peer stops at the end of the lists and shares out their weight, 1 - p^k, among the depths before it.
    ends = [len({*a} & {*b}) / depth for a, b in zip(one, other, strict=True)]
    expected = [(1 - 0.98**depth) * found[str(i)] + 0.98**depth * end for i, end in enumerate(ends)]
    assert rank_biased_overlap(one, other) == pytest.approx(expected)


def test_equal_lists_overlap_wholly_and_disjoint_ones_not_at_all() -> None:
    rows = drawn_rankings(5, 100, 1000)
    assert (rank_biased_overlap(rows, rows) == 1).all()
    assert rank_biased_overlap(rows, rows + 1000) == pytest.approx(np.zeros(5), abs=1e-12)


@given(SEEDS)
def test_overlap_is_symmetric_and_blind_to_names(seed: int) -> None:
    one, other = drawn_rankings(seed=seed), drawn_rankings(seed=seed + 1)
    names = np.random.default_rng(seed).permutation(20) * 10**12
    expected = rank_biased_overlap(one, other)
    assert rank_biased_overlap(other, one) == pytest.approx(expected)
    assert rank_biased_overlap(names[one], names[other]) == pytest.approx(expected)


def overlap_of(one: Reading, other: Reading) -> Float[np.ndarray, " n"]:
    return overlap_losses(one.rows, other.rows)


@pytest.mark.parametrize(("measure", "rounding"), [(overlap_of, 1e-6), (margin_changes, 1e-6), (turns, 0)])
@given(seed=SEEDS)
def test_values_follow_the_order_of_probes(measure: Measure, rounding: float, seed: int) -> None:
    base, tuned = drawn_reading(seed=seed), drawn_reading(seed=seed + 1)
    order = np.random.default_rng(seed).permutation(12)
    found = measure(taken(base, order), taken(tuned, order))
    assert found == pytest.approx(measure(base, tuned)[order], rel=rounding, abs=rounding)


def test_a_change_at_the_top_costs_more_than_one_at_the_bottom() -> None:
    rows = np.tile(np.arange(100), (2, 1))
    changed = rows.copy()
    changed[0, :2], changed[1, -2:] = [1, 0], [99, 98]
    top, bottom = overlap_losses(rows, changed)
    assert top == pytest.approx(0.02)
    assert bottom == pytest.approx(0.02 * 0.98**98 / 99)


@pytest.mark.parametrize(
    ("other", "persistence", "message"),
    [
        *(([rows], 0.9, "must name each document once, and none below 0") for rows in REPEATED),
        (np.empty((1, 0), dtype=np.int64), 0.9, "rankings must hold at least one document, got none"),
        *(([[1, 2, 3]], value, f"must lie between 0 and 1, got {value}") for value in (0.0, 1.0, math.nan)),
    ],
)
def test_rankings_and_persistence_at_fault_are_refused_on_either_side(
    other: Any, persistence: float, message: str
) -> None:
    one, other = np.arange(1, 1 + np.shape(other)[1])[None], np.asarray(other)
    for pair in ((one, other), (other, one)):
        with pytest.raises(ValueError, match=message):
            rank_biased_overlap(*pair, persistence=persistence)


def test_margins_are_worked_by_hand() -> None:
    # Margins 1, 3 and 0, 2; their root mean square is sqrt(14 / 4). Those of the first probe become 1 and 1,
    # of the second 0 and 2.
    base = reading(scores=[[5, 4, 2], [3, 3, 1]])
    tuned = reading(scores=[[2, 1, 1], [1, 1, -1]])
    assert margin_changes(base, tuned).tolist() == pytest.approx([math.sqrt(4 / 2) / math.sqrt(14 / 4), 0])


def test_margins_equal_plain_loops() -> None:
    base, tuned = drawn_reading(), drawn_reading(seed=1)
    before, after = (
        [[float(row[0]) - float(score) for score in row[1:]] for row in one.scores] for one in (base, tuned)
    )
    size = math.sqrt(sum(m * m for row in before for m in row) / 48)
    plain = [math.dist(one, other) / math.sqrt(4) / size for one, other in zip(before, after, strict=True)]
    assert margin_changes(base, tuned) == pytest.approx(plain)


def test_margins_are_blind_to_what_moves_all_similarities_and_to_their_unit() -> None:
    base, tuned = drawn_reading(), drawn_reading(seed=1)
    moved = replace(tuned, scores=tuned.scores + np.float32(0.25))
    assert margin_changes(base, moved) == pytest.approx(margin_changes(base, tuned), rel=1e-5)
    doubled = [replace(one, scores=2 * one.scores) for one in (base, tuned)]
    assert margin_changes(*doubled) == pytest.approx(margin_changes(base, tuned))


def test_margins_of_ties_and_of_a_single_document_stay_finite() -> None:
    ties, apart = reading(scores=[[1, 1, 1], [2, 2, 2]]), reading(scores=[[1, 0, 0], [2, 2, 2]])
    assert margin_changes(ties, ties).tolist() == [0, 0]
    assert margin_changes(ties, apart).tolist() == pytest.approx([math.sqrt(2), 0])
    assert margin_changes(reading(scores=[[1.0], [2.0]]), reading(scores=[[3.0], [5.0]])).tolist() == [0, 0]


def test_turns_are_worked_by_hand() -> None:
    base = reading([[1, 0], [1, 0], [1, 0], [1, 1]])
    tuned = reading([[0, 1], [-1, 0], [1, 1], [1, 1]])
    assert turns(base, tuned).tolist() == pytest.approx([math.pi / 2, math.pi, math.pi / 4, 0])


def test_turns_of_single_precision_vectors_are_right_down_to_tiny_angles() -> None:
    generator = np.random.default_rng(0)
    one, across = (np.linalg.qr(generator.normal(size=(384, 2)))[0]).T
    angles = np.array([1e-6, 1e-5, 1e-4, 1e-2, 1.0, 3.0, math.pi - 1e-3])
    after = np.cos(angles)[:, None] * one + np.sin(angles)[:, None] * across
    base, tuned = reading(np.tile(one, (7, 1))), reading(after)
    assert turns(base, tuned) == pytest.approx(angles, abs=1e-7)
    cosines = np.clip((base.vectors * tuned.vectors).sum(axis=1), -1, 1)
    assert np.abs(np.arccos(cosines[2]) - 1e-4) > 1e-5, "the plain way would do"


def test_turns_are_those_of_the_arc_cosine_where_that_is_exact_enough() -> None:
    base, tuned = drawn_reading(), drawn_reading(seed=1)
    pairs = zip(base.vectors.astype(float), tuned.vectors.astype(float), strict=True)
    plain = [
        math.acos(sum(a * b for a, b in zip(u, v, strict=True)) / math.hypot(*u) / math.hypot(*v))
        for u, v in pairs
    ]
    assert turns(base, tuned) == pytest.approx(plain)


@pytest.mark.parametrize("lengths", [(1, 1024), (1e-20, 1), (1e18, 3e-7)])
def test_turns_do_not_depend_on_lengths(lengths: tuple[float, float]) -> None:
    readings = drawn_reading(), drawn_reading(seed=1)
    longer = [
        replace(one, vectors=one.vectors * np.float32(length))
        for one, length in zip(readings, lengths, strict=True)
    ]
    assert turns(*longer) == pytest.approx(turns(*readings), rel=1e-6)


def test_a_vector_of_zeros_is_at_a_right_angle_to_others_and_at_none_to_itself() -> None:
    base, tuned = reading([[0, 0], [1, 0], [0, 0]]), reading([[1, 0], [0, 0], [0, 0]])
    assert turns(base, tuned).tolist() == [math.pi / 2, math.pi / 2, 0]


def rotation(width: int, *, seed: int = 0, angle: float = 0.01) -> Float[np.ndarray, "e e"]:
    """A rotation by small angles in all planes: the Cayley transform of a skew matrix."""
    drawn = np.random.default_rng(seed).normal(size=(width, width))
    skew = angle * (drawn - drawn.T) / math.sqrt(8 * width)
    return np.asarray(np.linalg.solve(np.eye(width) + skew, np.eye(width) - skew))


def spread(probes: int, width: int, *, seed: int = 0, falling: bool = False) -> Float[np.ndarray, "n e"]:
    vectors = np.random.default_rng(seed).normal(size=(probes, width))
    if falling:
        vectors /= np.sqrt(np.arange(1, width + 1))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def moved_by(vectors: Float[np.ndarray, "n e"], *, turned: float, noise: float) -> Reading:
    """Vectors of which shares `turned` and `noise` of the squared movement are a rotation and are their
    own.
    """
    common = vectors @ rotation(vectors.shape[1]).T - vectors
    own = np.random.default_rng(9).normal(size=vectors.shape) * np.sqrt(np.square(common).mean())
    return reading(vectors + math.sqrt(turned) * common + math.sqrt(noise) * own)


def test_a_rotation_is_shared_and_noise_is_not() -> None:
    vectors = spread(680, 16)
    base = reading(vectors)
    assert rotation_share(base, moved_by(vectors, turned=1, noise=0)) == pytest.approx(0.99, abs=0.01)
    assert rotation_share(base, moved_by(vectors, turned=0, noise=1)) == 0
    assert rotation_share(base, moved_by(vectors, turned=0.5, noise=0.5)) == pytest.approx(0.5, abs=0.05)


def test_a_rotation_by_large_angles_is_found_too() -> None:
    vectors = spread(200, 3)
    assert rotation_share(reading(vectors), reading(vectors @ rotation(3, angle=3).T)) > 0.99
    assert rotation_share(reading(vectors), reading(-vectors)) == pytest.approx(1, abs=1e-6)


def test_fewer_probes_than_dimensions_err_low_and_noise_stays_without_a_share() -> None:
    vectors = spread(170, 96, falling=True)
    base = reading(vectors)
    assert rotation_share(base, moved_by(vectors, turned=1, noise=0)) == pytest.approx(0.73, abs=0.03)
    assert 0.25 < rotation_share(base, moved_by(vectors, turned=0.5, noise=0.5)) < 0.5
    assert rotation_share(base, moved_by(vectors, turned=0, noise=1)) == 0


def test_the_share_is_that_of_plain_procrustes_with_an_unmoved_probe_on_every_axis() -> None:
    before, after = spread(30, 5), spread(30, 5) @ rotation(5, angle=0.5).T + 0.01 * spread(30, 5, seed=1)
    base, tuned = reading(before), reading(after)
    before, after = base.vectors.astype(float), tuned.vectors.astype(float)
    first = np.random.default_rng(0).permutation(30)[:15]
    halves = (first, np.setdiff1d(np.arange(30), first))
    left = 0.0
    for fitted, held in (halves, halves[::-1]):
        unmoved = math.sqrt(sum(float(v @ v) for v in before[fitted]) / 15) * np.eye(5)
        rows = np.vstack([before[fitted], unmoved]), np.vstack([after[fitted], unmoved])
        found, _ = orthogonal_procrustes(*rows)
        left += sum(float(np.sum((before[i] @ found - after[i]) ** 2)) for i in held)
    assert rotation_share(base, tuned) == pytest.approx(1 - left / np.square(after - before).sum())


@pytest.mark.parametrize("probes", [4, 9])
def test_dimensions_that_no_probe_uses_change_nothing(probes: int) -> None:
    narrow = [spread(probes, 6), spread(probes, 6) @ rotation(6, angle=0.5).T]
    wide = [np.hstack([one, np.zeros((probes, 40))]) @ rotation(46, seed=1, angle=5).T for one in narrow]
    found, expected = (rotation_share(*map(reading, vectors)) for vectors in (wide, narrow))
    assert found == pytest.approx(expected, abs=1e-5)


def test_the_share_is_blind_to_the_unit_of_all_vectors_and_follows_its_seed() -> None:
    vectors = spread(60, 6)
    base, tuned = reading(vectors), moved_by(vectors, turned=0.5, noise=0.5)
    found = rotation_share(base, tuned)
    assert rotation_share(reading(4 * base.vectors), reading(4 * tuned.vectors)) == pytest.approx(found)
    assert rotation_share(base, tuned, seed=0) == found
    assert rotation_share(base, tuned, seed=1) != found


def test_three_probes_or_none_that_moved_share_no_rotation() -> None:
    vectors = spread(8, 3)
    assert rotation_share(reading(vectors), reading(vectors)) == 0
    assert rotation_share(reading(vectors[:3]), reading(vectors[:3] @ rotation(3).T)) == 0
    assert rotation_share(reading(np.zeros((8, 3))), reading(vectors)) >= 0


def test_a_tower_beside_itself_has_not_drifted_at_all() -> None:
    base = drawn_reading()
    found = drift_of(base, replace(base), groups=["en", "fr"] * 6)
    assert found.probes == 12
    assert found.means == {OVERLAP_LOSS: 0, MARGINS: 0, TURN: 0, ROTATION_SHARE: 0}
    assert found.errors == {OVERLAP_LOSS: 0, MARGINS: 0, TURN: 0}
    assert found.groups == {group: {OVERLAP_LOSS: 0, MARGINS: 0, TURN: 0} for group in ("en", "fr")}


def test_means_errors_and_groups_are_those_of_the_measures() -> None:
    base, tuned = drawn_reading(), drawn_reading(seed=1)
    groups = ["fr"] * 3 + ["en"] * 8 + ["fr"]
    found, share = drift_of(base, tuned, groups=groups), rotation_share(base, tuned)
    values = {
        OVERLAP_LOSS: overlap_losses(base.rows, tuned.rows),
        MARGINS: margin_changes(base, tuned),
        TURN: turns(base, tuned),
    }
    means = {name: sum(one) / 12 for name, one in values.items()}
    assert found.means == pytest.approx({**means, ROTATION_SHARE: share})
    for name, one in values.items():
        error = math.sqrt(sum((value - means[name]) ** 2 for value in one) / 11 / 12)
        assert found.errors[name] == pytest.approx(error)
        assert found.groups["en"][name] == pytest.approx(sum(one[3:11]) / 8)
        assert found.groups["fr"][name] == pytest.approx((sum(one[:3]) + one[11]) / 4)
    assert list(found.groups) == ["fr", "en"]


def test_the_order_of_probes_changes_no_mean_over_them() -> None:
    base, tuned, order = drawn_reading(), drawn_reading(seed=1), np.random.default_rng(2).permutation(12)
    one, other = drift_of(base, tuned), drift_of(taken(base, order), taken(tuned, order))
    assert other.errors == pytest.approx(one.errors)
    for name in one.errors:
        assert other.means[name] == pytest.approx(one.means[name])
    assert one.groups == {}


def test_one_probe_has_means_and_no_errors() -> None:
    found = drift_of(reading([[1, 0]]), reading([[0, 1]]))
    assert found.means[TURN] == pytest.approx(math.pi / 2)
    assert found.errors == {}


def test_drift_is_made_of_finite_numbers_whatever_is_tied() -> None:
    base = reading(np.zeros((8, 2)), scores=np.zeros((8, 3)))
    found = drift_of(base, reading(np.eye(8, 2), scores=np.eye(8, 3)), groups=["one"] * 8)
    values = [*found.means.values(), *found.errors.values(), *found.groups["one"].values()]
    assert all(map(math.isfinite, values))


@pytest.mark.parametrize("measure", [margin_changes, turns, rotation_share, drift_of])
def test_readings_that_are_not_alike_are_refused(measure) -> None:
    base = drawn_reading()
    for other in (drawn_reading(11), drawn_reading(width=5), drawn_reading(depth=4)):
        with pytest.raises(ValueError, match="of both readings must be of one shape, got"):
            measure(base, other)


@pytest.mark.parametrize(("name", "value"), [("vectors", np.nan), ("scores", -np.inf), ("vectors", np.inf)])
def test_not_a_number_and_infinity_are_refused(name: str, value: float) -> None:
    base = drawn_reading()
    spoilt = getattr(base, name).copy()
    spoilt[3, 1] = value
    with pytest.raises(ValueError, match=f"{name} must be finite, got {value}"):
        drift_of(base, replace(base, **{name: spoilt}))


def test_no_probes_and_too_few_groups_are_refused() -> None:
    none = taken(drawn_reading(), np.array([], dtype=np.int64))
    with pytest.raises(ValueError, match="readings must hold at least one probe, got none"):
        drift_of(none, none)
    with pytest.raises(ValueError, match="groups must be one for each of 12 probes, got 2"):
        drift_of(drawn_reading(), drawn_reading(), groups=["en", "fr"])


def test_a_guard_may_limit_every_measure_that_grows_with_the_movement() -> None:
    words = get_args(GuardSection.model_fields["measure"].annotation)
    assert {*words} == {*MEASURES} - {ROTATION_SHARE}
