"""Reasons to drop a candidate, worked by hand."""

import numpy as np
import pytest

from adiabat.mining.candidates import (
    CONTAINMENT,
    PASSED,
    SHINGLE,
    Reason,
    code_of,
    first_reasons,
    fused_ranks,
    normalised,
    overlaps,
    shingles,
    too_close,
)


def test_scaling_all_scores_changes_nothing_where_the_margin_is_relative() -> None:
    rng = np.random.default_rng(0)
    candidates, positives = (
        rng.standard_normal(100).astype(np.float32),
        rng.standard_normal(2).astype(np.float32),
    )
    before = too_close(candidates, positives, 0.3, relative=True)
    assert np.array_equal(before, too_close(candidates * 8, positives * 8, 0.3, relative=True))
    assert 0 < before.sum() < 100


def test_the_first_reason_counts() -> None:
    masks: dict[Reason, np.ndarray] = {
        "judge": np.array([True, True, False]),
        "duplicate": np.array([True, False, False]),
    }
    assert first_reasons(3, masks).tolist() == [code_of("duplicate"), code_of("judge"), PASSED]
    assert first_reasons(2, {}).tolist() == [PASSED, PASSED]


def test_two_rankings_fused_by_hand() -> None:
    """Row 2 is second and first: 1/62 + 1/61; row 1 first and third: 1/61 + 1/63; rows 3 and 7 second and
    third of one: 1/62, 1/63.
    """
    one, other = np.array([1, 2, 7, -1]), np.array([2, 3, 1, -1])
    assert fused_ranks(one, other, depth=10).tolist() == [2, 1, 3, 7]
    assert fused_ranks(one, other, depth=2).tolist() == [2, 1]
    # First in two rankings more, row 7 comes before them: 1/63 + 2/61.
    assert fused_ranks(one, other, np.array([7]), np.array([7]), depth=2).tolist() == [7, 2]
    # Equal scores go by row.
    assert fused_ranks(np.array([9, 4]), np.array([4, 9]), depth=2).tolist() == [4, 9]


@pytest.mark.parametrize("seed", range(3))
def test_a_ranking_fused_with_itself_or_with_nothing_stays(seed: int) -> None:
    ranking = np.random.default_rng(seed).permutation(30)
    assert np.array_equal(fused_ranks(ranking, ranking, depth=30), ranking)
    assert np.array_equal(fused_ranks(ranking, np.full(5, -1), depth=30), ranking)


@pytest.mark.parametrize(
    ("candidates", "positives", "margin", "relative", "expected"),
    [
        ([0.75, 0.5, 0.25], [0.5], 0.0, False, [True, True, False]),  # A tie is too close.
        (
            [0.5, 0.375, 0.25, 0.125],
            [0.75, 0.5],
            0.25,
            False,
            [True, True, True, False],
        ),  # Below the lowest positive.
        ([8.0, 7.5, 7.0], [10.0], 0.25, True, [True, True, False]),
        (
            [-0.5, -0.625, -0.75],
            [-0.5],
            0.25,
            True,
            [True, True, False],
        ),  # The bar lies below a negative score too.
    ],
)
def test_scores_within_the_margin_are_too_close(
    candidates: list[float], positives: list[float], margin: float, relative: bool, expected: list[bool]
) -> None:
    scores = [np.array(values, dtype=np.float32) for values in (candidates, positives)]
    assert too_close(*scores, margin, relative=relative).tolist() == expected


PASSAGE = (
    "The 1973 oil crisis began in October 1973 when members of the organisation "
    "proclaimed an oil embargo against several nations."
)


def runs(text: str) -> list[str]:
    return [text[start : start + SHINGLE] for start in range(max(1, len(text) - SHINGLE + 1))] if text else []


def plain_overlap(positive: str, candidate: str) -> float:
    one, other = runs(candidate), runs(positive)
    if not one or not other:
        return 0.0
    within, around = (
        sum(run in other for run in one) / len(one),
        sum(run in one for run in other) / len(other),
    )
    both = min(within, around)
    return max(within if len(one) >= CONTAINMENT else both, around if len(other) >= CONTAINMENT else both)


def overlap(positive: str, candidate: str) -> float:
    one, other = shingles([normalised(positive), normalised(candidate)])
    return float(overlaps(one, [other])[0])


def test_normalising_forgives_case_white_space_and_compatibility_forms() -> None:
    assert normalised("  The\tCAT\n\n sat ") == "the cat sat"
    assert normalised("ﬁne e\u0301") == normalised("FINE é")
    assert normalised("Straße") == normalised("STRASSE")
    assert normalised(" \n") == ""


def test_a_share_worked_by_hand() -> None:
    """abcdefgh has the runs abcde, bcdef, cdefg, defgh; abcdefxy has abcde, bcdef, cdefx, defxy: two of four,
    either way.
    """
    assert overlap("abcdefgh", "abcdefxy") == 0.5


@pytest.mark.parametrize("seed", range(6))
def test_shares_are_those_of_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.choice(list("ab שק"), rng.integers(0, 90))).strip() for _ in range(25)]
    texts = [normalised(text) for text in texts]
    found = shingles(texts)
    for positive, own in zip(texts, found, strict=True):
        assert overlaps(own, found).tolist() == pytest.approx(
            [plain_overlap(positive, candidate) for candidate in texts]
        )


@pytest.mark.parametrize(
    "copy",
    [
        PASSAGE.upper(),
        PASSAGE.replace(",", "").replace(".", ""),
        f"It is said that {PASSAGE} This was long ago, and nobody remembers "
        "why any of it had to happen in that way.",
        PASSAGE[:70],
        PASSAGE.replace("several", "some"),
    ],
)
def test_copies_parts_and_wholes_are_near(copy: str) -> None:
    assert overlap(PASSAGE, copy) >= 0.8
    assert overlap(copy, PASSAGE) == pytest.approx(overlap(PASSAGE, copy))


def test_short_and_empty_texts_are_not_copies_of_every_text_that_holds_them() -> None:
    assert overlap("Paris", "Paris is the capital of France, and has been so for most of its history.") < 0.1
    assert overlap("Paris", "paris") == 1.0
    assert overlap("yes", "yes") == 1.0
    assert overlap("yes", "yes indeed") == 0.0
    assert shingles([]) == []
    assert [len(hashes) for hashes in shingles(["", "a", "abcde", "x" * 40])] == [0, 1, 1, 36]
    empty, full = shingles(["", PASSAGE])
    assert overlaps(full, []).shape == (0,)
    assert overlaps(empty, [full, empty]).tolist() == [0.0, 0.0]
