"""Temperatures that change: worked by hand, against plain formulas, and in a loss."""

import math

import pytest
import torch

from adiabat.losses.embedded_pairs import Pairs
from adiabat.losses.in_batch import in_batch_softmax
from adiabat.losses.log_denominator import COLDEST, LearnedTemperature, scheduled_temperature
from tests.refused import one_line


@pytest.mark.parametrize(("step", "factor"), [(0, 1), (2_500, 6.5), (5_000, 12), (10_000, 23), (50_000, 23)])
def test_the_factor_grows_linearly_and_then_stays(step: int, factor: float) -> None:
    assert 1 / scheduled_temperature(step) == pytest.approx(factor)


def test_a_schedule_of_ones_own_by_hand() -> None:
    # Halfway from a factor of 10 to one of 20 is 15.
    assert scheduled_temperature(50, first=0.1, last=0.05, steps=100) == pytest.approx(1 / 15)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_schedule_is_refused(wrong: float) -> None:
    for name in ("first", "last"):
        with one_line(ValueError, f"{name} must be", "above 0", f"got {wrong}"):
            scheduled_temperature(0, **{name: wrong})
    with one_line(ValueError, "steps", "at least 1", "got 0"):
        scheduled_temperature(0, steps=0)


def test_learning_cools_where_positives_win_and_stops_at_the_coldest() -> None:
    temperature = LearnedTemperature(1.0, coldest=0.2)
    optimizer = torch.optim.SGD(temperature.parameters(), lr=1.0)
    pairs = Pairs(torch.eye(4), torch.eye(4) + 0.3)
    seen = [temperature().item()]
    for _ in range(40):
        optimizer.zero_grad()
        in_batch_softmax(pairs.unit(), temperature=temperature()).backward()
        optimizer.step()
        temperature.clamp_()
        seen.append(temperature().item())
    assert seen == sorted(seen, reverse=True)
    assert seen[0] > seen[1] > seen[-1] == pytest.approx(0.2)


def test_learning_warms_where_negatives_win_also_from_the_coldest() -> None:
    temperature = LearnedTemperature(COLDEST)
    pairs = Pairs(torch.eye(4), torch.eye(4)[[1, 2, 3, 0]])
    optimizer = torch.optim.SGD(temperature.parameters(), lr=0.1)
    in_batch_softmax(pairs, temperature=temperature()).backward()
    optimizer.step()
    temperature.clamp_()
    assert temperature().item() > COLDEST


def test_the_gradient_is_that_of_the_formula() -> None:
    # One negative: loss = ln(1 + exp((n - p) f)) with f = exp(x), so dloss/dx = f (n - p) sigmoid((n - p) f).
    temperature = LearnedTemperature(0.5)
    assert temperature().item() == pytest.approx(0.5)
    pairs = Pairs(torch.eye(2)[:1], torch.eye(2)[:1], shared=torch.tensor([[0.6, 0.8]]))
    in_batch_softmax(pairs, temperature=temperature()).backward()
    gap = (0.6 - 1.0) * 2
    assert temperature.log_factor.grad is not None
    assert temperature.log_factor.grad.item() == pytest.approx(gap / (1 + math.exp(-gap)))


@pytest.mark.parametrize("start", [0.0, -0.1, math.nan, math.inf, 0.001])
def test_an_impossible_start_is_refused(start: float) -> None:
    least = "at least 0.01" if start == 0.001 else "above 0"
    with one_line(ValueError, "start must be", least, f"got {start}"):
        LearnedTemperature(start)
