"""Near duplicates: shares of shingles against plain loops, and texts that must and must not count as copies."""

import numpy as np
import pytest

from adiabat.mining.filters import CONTAINMENT, SHINGLE, normalised, overlaps, shingles

PASSAGE = "The 1973 oil crisis began in October 1973 when members of the organisation proclaimed an oil embargo against several nations."


def runs(text: str) -> list[str]:
    return [text[start : start + SHINGLE] for start in range(max(1, len(text) - SHINGLE + 1))] if text else []


def plain_overlap(positive: str, candidate: str) -> float:
    one, other = runs(candidate), runs(positive)
    if not one or not other:
        return 0.0
    within, around = sum(run in other for run in one) / len(one), sum(run in one for run in other) / len(other)
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
    """abcdefgh has the runs abcde, bcdef, cdefg, defgh; abcdefxy has abcde, bcdef, cdefx, defxy: two of four, either way."""
    assert overlap("abcdefgh", "abcdefxy") == 0.5


@pytest.mark.parametrize("seed", range(6))
def test_shares_are_those_of_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.choice(list("ab שק"), rng.integers(0, 90))).strip() for _ in range(25)]
    texts = [normalised(text) for text in texts]
    found = shingles(texts)
    for positive, own in zip(texts, found, strict=True):
        assert overlaps(own, found).tolist() == pytest.approx([plain_overlap(positive, candidate) for candidate in texts])


@pytest.mark.parametrize(
    "copy",
    [
        PASSAGE.upper(),
        PASSAGE.replace(",", "").replace(".", ""),
        f"It is said that {PASSAGE} This was long ago, and nobody remembers why any of it had to happen in that way.",
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
