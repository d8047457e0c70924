"""All numbers of a space together: before beside after on the same resamples, intervals that hold what they
should, nothing by mistake.
"""

from dataclasses import replace

import numpy as np
import pytest
from jaxtyping import Int

from adiabat.evaluation import space_geometry as spaces
from adiabat.evaluation.space_numbers import FORMULAS, Space, SpaceResampling, space_numbers
from adiabat.results.space_result import SpaceNumber, Whose
from tests.evaluation.test_space_geometry import turned, unit

COUNT = 60
MEANS = ["cosine to nearest document", "cosine to positive", "alignment", "uniformity"]
MEANS += ["cosine of random pairs", "ratio, median"]


def made(*, seed: int = 0, shift: float = 1.0, count: int = COUNT) -> Space:
    queries, positives = unit(count, seed=seed, shift=shift), unit(count, seed=seed + 1, shift=1.0)
    return Space(queries, positives, unit(50, seed=seed + 2), spaces.cosines_of(queries, positives))


def plan_of(clusters: Int[np.ndarray, " n"] | None = None, *, pairs: int = 300) -> SpaceResampling:
    clusters = np.arange(COUNT) if clusters is None else clusters
    return SpaceResampling.of(clusters, 50, pairs=pairs, folds=3, resamples=200, seed=0)


def named(numbers: list[SpaceNumber]) -> dict[tuple[str, Whose], SpaceNumber]:
    return {(one.name, one.of): one for one in numbers}


def test_every_number_comes_once_with_its_formula_and_source() -> None:
    numbers = space_numbers(made(), None, plan_of())
    assert {one.name for one in numbers} == set(FORMULAS)
    assert len(named(numbers)) == len(numbers) == 16
    assert all((one.formula, one.source) == FORMULAS[one.name] for one in numbers)
    without = {one.name for one in numbers if one.after_interval is None}
    assert without == {"distance of tower means", "variance along first component", "effective rank"}
    assert {(one.before, one.difference, one.difference_interval) for one in numbers} == {(None, None, None)}


def test_values_are_those_of_the_plain_formulas() -> None:
    space, plan = made(), plan_of()
    found = named(space_numbers(space, None, plan))
    queries, positives, (i, j) = space.queries, space.positives, plan.pairs.T
    to_query, to_positive = np.vecdot(queries[i], queries[j]), np.vecdot(queries[i], positives[j])
    ratios = (to_query / to_positive)[np.abs(to_positive) >= 0.01]
    apart = np.linalg.norm(queries.mean(axis=0) - positives.mean(axis=0))
    of_pairs = (np.sum(space.documents @ space.documents.T) - 50) / (50 * 49)
    wanted = {
        ("alignment", "both"): np.mean(2 - 2 * np.vecdot(queries, positives)),
        ("ratio, median", "both"): np.median(ratios),
        ("ratio, share within 1 ± 0.1", "both"): np.mean((ratios >= 0.9) & (ratios <= 1.1)),
        ("cosine to another query less to its positive", "both"): np.mean(to_query - to_positive),
        ("distance of tower means", "both"): apart,
        ("cosine of random pairs", "documents"): of_pairs,
    }
    assert {key: found[key].after for key in wanted} == pytest.approx(wanted)


def test_before_and_after_are_what_each_gives_alone_and_a_difference_is_theirs() -> None:
    after, before, plan = made(seed=0), made(seed=5, shift=2.0), plan_of()
    both = space_numbers(after, before, plan)
    alone, other = (space_numbers(space, None, plan) for space in (after, before))
    for together, now, was in zip(both, alone, other, strict=True):
        assert (together.after, together.after_interval) == (now.after, now.after_interval)
        assert (together.before, together.before_interval) == (was.after, was.after_interval)
        assert None in (now.after, was.after) or together.difference == now.after - was.after


def test_a_model_beside_itself_differs_nowhere() -> None:
    for one in space_numbers(made(), made(), plan_of()):
        assert one.difference == 0.0
        assert one.difference_interval in (None, (0.0, 0.0))
        assert not one.changed


def test_turning_the_axes_of_one_model_changes_nothing() -> None:
    space, plan = made(), plan_of()
    moved = Space(*map(turned, (space.queries, space.positives, space.documents)), space.nearest)
    sides = (space_numbers(each, None, plan) for each in (space, moved))
    for one, other in zip(*sides, strict=True):
        assert other.after == pytest.approx(one.after, abs=1e-3 if "AUC" in one.name else 1e-9), one.name


def test_queries_that_share_a_positive_are_drawn_together_and_widen_the_intervals() -> None:
    space = made()
    six = np.repeat(np.arange(10), 6)
    # Six copies each of ten queries: as sure as ten, not as sixty.
    copied = Space(space.queries[six], space.positives[six], space.documents, space.nearest[six])
    widths = []
    for clusters in (np.arange(COUNT), six):
        numbers = named(space_numbers(copied, None, plan_of(clusters)))
        widths.append(np.ptp(numbers["cosine to nearest document", "both"].after_interval))
    assert widths[1] == pytest.approx(widths[0] * np.sqrt(6), rel=0.2)


@pytest.mark.parametrize("name", MEANS)
def test_intervals_hold_the_value_and_narrow_with_more_queries(name: str) -> None:
    of: Whose = "queries" if name in ("uniformity", "cosine of random pairs") else "both"
    widths = []
    for count in (COUNT, 16 * COUNT):
        plan = plan_of(np.arange(count), pairs=300 * count // COUNT)
        one = named(space_numbers(made(count=count, shift=3.0), None, plan))[name, of]
        assert one.after is not None
        assert one.after_interval is not None
        # Resampled pairs hold no copies of a query, so that the middle may lie a little aside.
        low, high = one.after_interval
        assert low - 0.3 * (high - low) < one.after < high + 0.3 * (high - low)
        widths.append(high - low)
    assert widths[1] == pytest.approx(widths[0] / 4, rel=0.5)


def test_ratios_over_nothing_are_not_defined() -> None:
    space = made()
    across = np.zeros_like(space.queries)
    across[:, 0], flat = 1.0, np.zeros_like(space.queries)
    flat[:, 1] = 1.0
    numbers = named(space_numbers(replace(space, queries=across, positives=flat), None, plan_of()))
    for name in ("ratio, median", "ratio, share within 1 ± 0.1"):
        assert (numbers[name, "both"].after, numbers[name, "both"].after_interval) == (None, None)
    assert numbers["cosine to another query less to its positive", "both"].after == 1.0


def test_blocks_of_any_size_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    first = space_numbers(made(), None, plan_of(np.arange(COUNT) // 2))
    monkeypatch.setattr("adiabat.evaluation.space_numbers.BLOCK_CELLS", 900)
    again = space_numbers(made(), None, plan_of(np.arange(COUNT) // 2))
    for one, other in zip(first, again, strict=True):
        assert other.after_interval == pytest.approx(one.after_interval), one.name
