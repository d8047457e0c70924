"""Laws of equal runs are fitted once for all tests that ask for them: a fit depends on its runs alone."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from adiabat.scaling_laws import recommendation, selection
from adiabat.scaling_laws.fitting import Ensemble, Fitted, fit
from adiabat.scaling_laws.laws import Law, Points

FITTED: dict[tuple[Any, ...], Fitted] = {}
DRAWN: dict[tuple[Any, ...], Ensemble] = {}

draw = Ensemble.of


def _key(law: Law, points: Points) -> tuple[Any, ...]:
    return law, *(column.tobytes() for column in (points.size, points.tokens, points.share, points.loss))


def _fit(law: Law, points: Points) -> Fitted:
    if (key := _key(law, points)) not in FITTED:
        FITTED[key] = fit(law, points)
    return FITTED[key]


def _of(
    fitted: Fitted, points: Points, *, resamples: int, seed: int, note: Callable[[int], None] | None = None
) -> Ensemble:
    if (key := (*_key(fitted.law, points), resamples, seed)) not in DRAWN:
        DRAWN[key] = draw(fitted, points, resamples=resamples, seed=seed, note=note)
    return DRAWN[key]


@pytest.fixture(scope="module", autouse=True)
def equal_laws_are_fitted_once() -> Iterator[None]:
    """For files of tests that import it."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (selection, recommendation):
            patch.setattr(module, "fit", _fit)
        patch.setattr(Ensemble, "of", _of)
        yield
