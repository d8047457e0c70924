"""Shapes are checked while tests run: of functions, in NumPy and torch, of methods, and of what dataclasses
are made of.
"""

from pkgutil import resolve_name

import jaxtyping
import numpy as np
import pytest
import torch

from adiabat.models.embedding_head import pool
from adiabat.scaling_laws.fitting import Ensemble, estimate
from adiabat.scaling_laws.laws import Points
from tests.checking import OFTEN, SHAPES

pytestmark = pytest.mark.skipif(not SHAPES, reason="shapes are checked by make test-shapes")


def test_a_function_refuses_another_shape() -> None:
    assert estimate(1.0, np.ones(4)).holds(1.0)
    with pytest.raises(jaxtyping.TypeCheckError):
        estimate(1.0, np.ones((2, 2)))


def test_sizes_of_two_tensors_must_agree() -> None:
    states, mask = torch.ones(2, 3, 4), torch.ones(2, 3, dtype=torch.int64)
    assert pool(states, mask, pooling="mean").shape == (2, 4)
    with pytest.raises(jaxtyping.TypeCheckError):
        pool(states, mask[:, :2], pooling="mean")


def test_a_dataclass_refuses_arrays_that_do_not_agree() -> None:
    four = np.ones(4)
    assert len(Points(four, four, four, four)) == 4
    with pytest.raises(jaxtyping.TypeCheckError):
        Points(four, four, four, np.ones(5))


def test_a_method_refuses_another_shape() -> None:
    ensemble = object.__new__(Ensemble)
    with pytest.raises(jaxtyping.TypeCheckError):
        ensemble.estimates(Points(*[np.ones(2)] * 4), np.ones(2))


def test_what_is_left_out_is_there() -> None:
    for name in OFTEN:
        function = resolve_name(name)
        assert not hasattr(function, "__wrapped__")
        assert function.__qualname__ in name
