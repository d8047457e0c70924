"""Maps: begun from principal components, near in the plane where near on the sphere, the same each time."""

import builtins
from typing import Any

import numpy as np
import pytest

from adiabat.core.errors import MissingDependencyError
from adiabat.evaluation import space_analysis as space_maps
from adiabat.evaluation.space_geometry import unit_rows
from tests.evaluation.test_space_geometry import turned, unit


def two_groups() -> np.ndarray:
    vectors = 0.2 * np.random.default_rng(0).normal(size=(40, 6))
    vectors[:20, 0] += 1
    vectors[20:, 1] += 1
    return unit_rows(vectors)


def test_a_map_starts_along_the_principal_components_and_so_however_the_axes_lie() -> None:
    vectors = two_groups()
    first = space_maps.initial_map(vectors, seed=0)
    assert first.std(axis=0).max() == pytest.approx(space_maps.INITIAL_SPREAD, rel=1e-2)
    axis = np.linalg.svd(vectors - vectors.mean(axis=0))[2][0]
    assert abs(np.corrcoef(first[:, 0], vectors @ axis)[0, 1]) > 0.999
    again = space_maps.initial_map(turned(vectors), seed=0)
    assert np.abs(again[:, 0]) == pytest.approx(np.abs(first[:, 0]), abs=space_maps.INITIAL_SPREAD / 20)


def test_vectors_that_are_all_the_same_start_apart() -> None:
    first = space_maps.initial_map(np.repeat(unit(1), 10, axis=0), seed=0)
    assert len(np.unique(first, axis=0)) == 10
    assert np.isfinite(first).all()


def test_groups_stay_together_and_the_same_vectors_give_the_same_map() -> None:
    vectors = two_groups()
    first = space_maps.initial_map(vectors, seed=0)
    kept = first.copy()
    places = space_maps.tower_map(vectors, first, perplexity=5.0, seed=0)
    assert (first == kept).all()
    assert (places == space_maps.tower_map(vectors, first, perplexity=5.0, seed=0)).all()
    # 32 bits at a time is what the library draws from.
    assert (places == space_maps.tower_map(vectors, first, perplexity=5.0, seed=2**32)).all()
    centres = [places[:20].mean(axis=0), places[20:].mean(axis=0)]
    for row, place in enumerate(places):
        own, other = (np.linalg.norm(place - centres[group]) for group in (row // 20, 1 - row // 20))
        assert own < other


@pytest.mark.parametrize(("wanted", "points", "fits"), [(30.0, 1000, 30.0), (30.0, 40, 13.0), (30.0, 4, 2.0), (5.5, 100, 5.5)])
def test_the_perplexity_fits_the_number_of_points(wanted: float, points: int, fits: float) -> None:
    assert space_maps.fit_perplexity(wanted, points) == fits


def test_a_missing_package_is_told_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **options: Any) -> Any:
        if name.startswith("openTSNE"):
            raise ImportError(name)
        return real(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=r"^the map of adiabat space --map needs .* pip install 'adiabat\[maps\]'"):
        space_maps.require_maps()
