"""Closest papers: the arithmetic by hand, in plain loops, against scipy, and the same whatever the blocks."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from adiabat.core.progress import Watch
from adiabat.datasets import neighbours
from adiabat.datasets.neighbours import (
    RESOLUTION,
    WORD,
    count_words,
    groups_of,
    nearest,
    nearest_of_groups,
    sort_by_size,
)

LETTERS = "abcdefghij"


def texts_at_random(count: int, *, seed: int = 0, words: int = 40) -> list[str]:
    """Texts whose words are as unequal as those of a language, every tenth of them a copy of the one
    before.
    """
    generator = np.random.default_rng(seed)
    vocabulary = [f"w{LETTERS[i // 10]}{LETTERS[i % 10]}" for i in range(100)]
    weights = 1 / np.arange(1, 101)
    texts = [
        " ".join(generator.choice(vocabulary, generator.integers(1, words), p=weights / weights.sum()))
        for _ in range(count)
    ]
    for row in range(9, count, 10):
        texts[row] = " ".join(generator.permutation(texts[row - 1].split()))
    return texts


def distribution(text: str, vocabulary: list[str]) -> np.ndarray:
    counts = Counter(WORD.findall(text.lower()))
    return np.array([counts[word] for word in vocabulary]) / max(1, counts.total())


def plain_divergence(left: str, right: str) -> float:
    """By the definition: the mean of both Kullback-Leibler divergences from the mixture."""
    vocabulary = sorted(set(WORD.findall(f"{left} {right}".lower())))
    total = 0.0
    for p, q in zip(distribution(left, vocabulary), distribution(right, vocabulary), strict=True):
        middle = (p + q) / 2
        total += 0.5 * sum(share * math.log(share / middle) for share in (p, q) if share)
    return total


def plain_nearest(texts: list[str], row: int, candidates: list[int], k: int) -> list[int]:
    """Sort all, take the first, repeat the last."""
    others = [other for other in candidates if other != row]
    others.sort(key=lambda other: (round(plain_divergence(texts[row], texts[other]) / RESOLUTION), other))
    return (others + others[-1:] * k)[:k]


def divergences(texts: list[str], row: int = 0) -> list[float]:
    bags = count_words(texts)
    found: list[float] = neighbours.divergences(bags, row, bags.tocsc()).tolist()
    return found


def test_a_divergence_worked_by_hand() -> None:
    # p = (1/2, 1/2, 0), q = (1/2, 0, 1/2): the shared word adds nothing, each of the others 1/2 x 1/2 ln 2.
    assert divergences(["aa bb", "aa cc"])[1] == pytest.approx(0.5 * math.log(2), abs=1e-15)
    # p = (3/4, 1/4), q = (1/4, 3/4), middle (1/2, 1/2): 3/4 ln 3/2 + 1/4 ln 1/2.
    assert divergences(["aa aa aa bb", "bb aa bb bb"])[1] == pytest.approx(
        0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs=1e-15
    )
    # Equal distributions are at 0, disjoint ones at ln 2.
    found = divergences(["aa bb", "BB aa", "aa bb aa bb", "cc dd", "", "12 $x^2$ a"])
    assert found[:3] == pytest.approx([0, 0, 0], abs=1e-15)
    assert min(found) >= 0
    assert found[3:] == [math.log(2)] * 3


def test_divergences_are_those_of_scipy_and_of_the_definition() -> None:
    texts = texts_at_random(60)
    vocabulary = sorted({word for text in texts for word in WORD.findall(text)})
    for row in (0, 8, 9, 59):
        found = divergences(texts, row)
        peers = [
            jensenshannon(distribution(texts[row], vocabulary), distribution(other, vocabulary)) ** 2
            for other in texts
        ]
        assert found == pytest.approx(peers, abs=1e-12)
        assert found == pytest.approx([plain_divergence(texts[row], other) for other in texts], abs=1e-12)


def test_words_are_runs_of_letters_of_any_script_in_lower_case() -> None:
    bags = count_words(["The the x 2D state-of-the-art", "שלום שלום naïve μm", r"\alpha_{ij} 100"])
    assert bags.indptr.tolist() == [0, 4, 7, 9]
    assert bags.data == pytest.approx(np.array([3, 1, 1, 1, 2, 1, 1, 1, 1]) / ([6] * 4 + [4] * 3 + [2] * 2))
    assert bags.indices.tolist() == list(range(9))
    assert WORD.findall("the x 2D state-of-the-art".lower()) == ["the", "state", "of", "the", "art"]


@pytest.mark.parametrize("k", [1, 3, 20, 59, 70])
def test_the_nearest_are_those_of_a_plain_sort_ties_by_row(k: int) -> None:
    texts = texts_at_random(60, seed=1, words=6)
    rows = np.arange(60)
    found = nearest(count_words(texts), rows, rows, k)
    assert found.tolist() == [plain_nearest(texts, row, rows.tolist(), k) for row in range(60)]


@pytest.mark.parametrize("block_size", [1, 2, 7, 20, 21, 1000])
def test_the_size_of_blocks_changes_nothing(block_size: int) -> None:
    bags = count_words(texts_at_random(50, seed=2, words=8))
    asking, candidates = np.arange(0, 50, 3), np.arange(0, 50, 2)
    expected = nearest(bags, asking, candidates, 20)
    assert nearest(bags, asking, candidates, 20, block_size=block_size).tolist() == expected.tolist()
    assert set(expected.ravel().tolist()) <= set(candidates.tolist())


def test_copies_come_first_by_row_and_the_last_is_repeated_where_candidates_are_few() -> None:
    bags = count_words(["aa bb", "aa bb", "aa cc", "dd"])
    assert nearest(bags, np.array([0]), np.arange(4), 6).tolist() == [[1, 2, 3, 3, 3, 3]]
    assert nearest(bags, np.array([0]), np.array([0, 3]), 3, block_size=1).tolist() == [[3, 3, 3]]


def test_categories_go_sort_by_size_equal_ones_by_name() -> None:
    sizes = {"math.CO": 30, "cs.DM": 7, "math.LO": 7, "cs.CC": 12}
    assert sort_by_size(["math.CO", "math.LO", "cs.DM", "cs.CC", "cs.DM"], sizes) == (
        "cs.DM",
        "math.LO",
        "cs.CC",
        "math.CO",
    )


def test_groups_worked_by_hand() -> None:
    lists = [("a", "b"), ("a", "b", "c"), ("a", "d"), ("0", "a", "d"), ("e",), ("b", "c"), ("b",)]
    groups = {group.prefix: (group.queries.tolist(), group.candidates.tolist()) for group in groups_of(lists)}
    assert groups == {
        ("a", "b"): ([0, 1], [0, 1]),  # No other list begins with a, b, c.
        ("a",): ([2], [0, 1, 2]),  # Row 3 has both a and d, but its list begins with another category.
        (): ([3, 4], [0, 1, 2, 3, 4, 5, 6]),  # No other list begins with 0, nor with e.
        ("b",): ([5, 6], [5, 6]),
    }


def plain_candidates(lists: list[tuple[str, ...]], row: int) -> list[int]:
    for length in range(len(lists[row]), -1, -1):
        found = [other for other, labels in enumerate(lists) if labels[:length] == lists[row][:length]]
        if len(found) > 1:
            return found
    raise AssertionError("one paper alone")


def lists_at_random(count: int, *, letters: str, most: int) -> list[tuple[str, ...]]:
    generator = np.random.default_rng(5)
    return [
        tuple(sorted(generator.choice(list(letters), generator.integers(1, most), replace=False).tolist()))
        for _ in range(count)
    ]


def test_groups_are_those_of_plain_loops_and_everyone_asks_once() -> None:
    lists = lists_at_random(80, letters=LETTERS, most=5)
    groups = list(groups_of(lists))
    assert sorted(row for group in groups for row in group.queries.tolist()) == list(range(80))
    assert len({len(group.prefix) for group in groups}) > 2
    for group in groups:
        for row in group.queries.tolist():
            assert lists[row][: len(group.prefix)] == group.prefix
            assert group.candidates.tolist() == plain_candidates(lists, row)


@pytest.mark.parametrize("block_size", [9, 1000])
def test_the_whole_is_that_of_plain_loops_whatever_the_blocks(block_size: int) -> None:
    texts = texts_at_random(80, seed=4, words=10)
    lists = lists_at_random(80, letters="abcd", most=4)
    seen: list[tuple[str, int, int]] = []
    watch = Watch(progress=lambda label, done, total: seen.append((label, done, total)))
    found = nearest_of_groups(count_words(texts), groups_of(lists), 5, block_size=block_size, watch=watch)
    assert found.tolist() == [plain_nearest(texts, row, plain_candidates(lists, row), 5) for row in range(80)]
    assert seen[-1] == ("nearest papers", 80, 80)
