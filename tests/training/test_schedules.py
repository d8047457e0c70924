"""Learning-rate schedules by hand, against transformers, and whatever must hold of all of them."""

import math

import pytest
import torch
from torch import nn
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from adiabat.core.errors import ConfigError
from adiabat.training.optimizers import Schedule, scaled_learning_rate, warmup_steps_of

ROOT = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"name": "linear", "total_steps": 4}, [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]),
        ({"name": "linear", "total_steps": 4, "final_fraction": 0.5}, [1.0, 0.875, 0.75, 0.625, 0.5, 0.5]),
        ({"name": "quadratic", "total_steps": 4}, [1.0, 15 / 16, 0.75, 7 / 16, 0.0, 0.0]),
        (
            {"name": "exponential", "gamma": 0.98, "steps_per_epoch": 3},
            [1.0] * 3 + [0.98] * 3 + [0.98**2] * 3,
        ),
        (
            {"name": "cosine", "total_steps": 6, "warmup_steps": 2, "final_fraction": 0.1},
            [0.5, 1.0, 1.0, 0.1 + 0.9 * (1 + ROOT) / 2, 0.55, 0.1 + 0.9 * (1 - ROOT) / 2, 0.1, 0.1],
        ),
        ({"name": "linear", "total_steps": 4, "warmup_steps": 4}, [0.25, 0.5, 0.75, 1.0]),
        ({}, [1.0] * 5),
    ],
)
def test_curves_worked_by_hand(settings: dict[str, object], expected: list[float]) -> None:
    schedule = Schedule(**settings)
    assert [schedule.factor(step) for step in range(len(expected))] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "peer"),
    [("cosine", get_cosine_schedule_with_warmup), ("linear", get_linear_schedule_with_warmup)],
)
def test_curves_after_the_warm_up_equal_those_of_transformers(name: str, peer: object) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = peer(optimizer, num_warmup_steps=5, num_training_steps=25).lr_lambdas[0]
    ours = Schedule(name=name, total_steps=25, warmup_steps=5)
    assert [ours.factor(step) for step in range(5, 26)] == pytest.approx(
        [theirs(step) for step in range(5, 26)], abs=1e-12
    )


@pytest.mark.parametrize("name", ["constant", "linear", "quadratic", "exponential", "cosine"])
def test_every_schedule_may_warm_up_then_starts_at_the_peak_and_never_rises(name: str) -> None:
    warm = Schedule(name=name, total_steps=60, warmup_steps=10, steps_per_epoch=5)
    cold = Schedule(name=name, total_steps=50, steps_per_epoch=5)
    assert [warm.factor(step) for step in range(10)] == pytest.approx([(step + 1) / 10 for step in range(10)])
    factors = [cold.factor(step) for step in range(60)]
    assert [warm.factor(10 + step) for step in range(60)] == factors == sorted(factors, reverse=True)
    assert factors[0] == 1.0
    assert (factors[-1] < 0.7) == (name != "constant")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "cosine"}, r"^total_steps must be given for the cosine schedule"),
        ({"warmup_steps": 11, "total_steps": 10}, r"^warmup_steps must be at most total_steps, 10, got 11"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Schedule(**settings)


@pytest.mark.parametrize(
    ("fraction", "total", "steps"), [(0.1, 30, 3), (0.1, 31, 4), (0.0, 30, 0), (1.0, 30, 30), (0.07, 100, 7)]
)
def test_a_warm_up_fraction_is_rounded_up(fraction: float, total: int, steps: int) -> None:
    assert warmup_steps_of(fraction, total_steps=total) == steps


@pytest.mark.parametrize(("rule", "rate"), [("none", 5e-8), ("linear", 2e-7), ("sqrt", 1e-7)])
def test_the_rate_follows_the_batch_size_by_the_rule(rule: str, rate: float) -> None:
    assert scaled_learning_rate(5e-8, batch_size=56, reference_batch_size=14, rule=rule) == pytest.approx(
        rate, rel=1e-12
    )
    assert scaled_learning_rate(5e-8, batch_size=14, reference_batch_size=14, rule=rule) == 5e-8
