import inspect
import math

import pytest
import torch
from torch import nn
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from adiabat.core.errors import ConfigError
from adiabat.training.schedules import Schedule, rate_factor, scaled_learning_rate, warmup_steps_of


def test_constant_stays_at_the_peak() -> None:
    assert {Schedule().factor(step) for step in (0, 1, 10**6)} == {1.0}


def test_linear_and_quadratic_worked_by_hand() -> None:
    linear, quadratic = (Schedule(name=name, total_steps=4) for name in ("linear", "quadratic"))
    assert [linear.factor(step) for step in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert [quadratic.factor(step) for step in range(5)] == [1.0, 15 / 16, 0.75, 7 / 16, 0.0]


def test_exponential_drops_after_every_whole_epoch() -> None:
    schedule = Schedule(name="exponential", gamma=0.98, steps_per_epoch=3)
    expected = [1.0] * 3 + [0.98] * 3 + [0.98**2] * 3
    assert [schedule.factor(step) for step in range(9)] == pytest.approx(expected, rel=1e-12)


def test_cosine_worked_by_hand() -> None:
    schedule = Schedule(name="cosine", total_steps=6, warmup_steps=2, final_fraction=0.1)
    expected = [0.5, 1.0, 1.0, 0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2, 0.55, 0.1 + 0.9 * (1 - math.sqrt(0.5)) / 2, 0.1]
    assert [schedule.factor(step) for step in range(7)] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("name", "peer"), [("cosine", get_cosine_schedule_with_warmup), ("linear", get_linear_schedule_with_warmup)])
def test_curves_after_the_warm_up_equal_those_of_transformers(name: str, peer: object) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = peer(optimizer, num_warmup_steps=5, num_training_steps=25).lr_lambdas[0]
    ours = Schedule(name=name, total_steps=25, warmup_steps=5)
    assert [ours.factor(step) for step in range(5, 26)] == pytest.approx([theirs(step) for step in range(5, 26)], abs=1e-12)


@pytest.mark.parametrize("name", ["constant", "linear", "quadratic", "exponential", "cosine"])
def test_every_schedule_may_warm_up_and_then_starts_its_curve_at_the_peak(name: str) -> None:
    warm = Schedule(name=name, total_steps=30, warmup_steps=10, steps_per_epoch=4)
    cold = Schedule(name=name, total_steps=20, steps_per_epoch=4)
    assert [warm.factor(step) for step in range(10)] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert [warm.factor(10 + step) for step in range(25)] == [cold.factor(step) for step in range(25)]


@pytest.mark.parametrize("name", ["linear", "quadratic", "exponential", "cosine"])
def test_after_the_warm_up_the_rate_never_rises(name: str) -> None:
    factors = [Schedule(name=name, total_steps=50, steps_per_epoch=5).factor(step) for step in range(60)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] == 1.0
    assert factors[-1] < 0.7


@pytest.mark.parametrize("name", ["linear", "quadratic", "cosine"])
def test_the_curve_ends_at_its_final_fraction_and_stays_there(name: str) -> None:
    schedule = Schedule(name=name, total_steps=10, final_fraction=0.1)
    assert [schedule.factor(step) for step in (10, 11, 1000)] == pytest.approx([0.1] * 3)


def test_a_warm_up_as_long_as_the_run_reaches_the_peak() -> None:
    schedule = Schedule(name="linear", total_steps=4, warmup_steps=4)
    assert [schedule.factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_rate_factor_takes_progress_directly() -> None:
    assert rate_factor("quadratic", progress=0.5) == 0.75
    assert rate_factor("linear", progress=0.5, final_fraction=0.5) == 0.75
    assert rate_factor("exponential", epochs_finished=2, gamma=0.5) == 0.25


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 2.0}, r"^gamma must be in \(0, 1\], got 2"),
        ({"gamma": 0.0}, r"^gamma must be in \(0, 1\]"),
        ({"gamma": math.nan}, r"^gamma must be in \(0, 1\], got nan"),
        ({"name": "cosine"}, r"^total_steps must be given for the cosine schedule"),
        ({"total_steps": 0}, r"^total_steps must be at least 1, got 0"),
        ({"steps_per_epoch": 0}, r"^steps_per_epoch must be at least 1, got 0"),
        ({"warmup_steps": -1}, r"^warmup_steps must be 0 or more, got -1"),
        ({"warmup_steps": 11, "total_steps": 10}, r"^warmup_steps must be at most total_steps, 10, got 11"),
        ({"name": "linear", "total_steps": 9, "final_fraction": 1.5}, r"^final_fraction must be in \[0, 1\], got 1.5"),
        ({"final_fraction": 0.1}, r"^final_fraction must be 0 for the constant schedule, got 0.1"),
    ],
)
def test_a_setting_out_of_range_is_named_with_its_value(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Schedule(**settings)


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(ConfigError, match=r"^3 faults: .*total_steps.*gamma.*warmup_steps"):
        Schedule(name="linear", gamma=-1.0, warmup_steps=-2)


def test_an_unknown_schedule_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match='must be one of constant, linear, quadratic, exponential, cosine, got "step"'):
        inspect.unwrap(rate_factor)("step")


def test_a_negative_step_is_refused() -> None:
    with pytest.raises(ValueError, match="step must be 0 or more, got -1"):
        Schedule().factor(-1)


@pytest.mark.parametrize(("fraction", "total", "steps"), [(0.1, 30, 3), (0.1, 31, 4), (0.0, 30, 0), (1.0, 30, 30), (0.07, 100, 7)])
def test_a_warm_up_fraction_is_rounded_up(fraction: float, total: int, steps: int) -> None:
    assert warmup_steps_of(fraction, total_steps=total) == steps


def test_a_warm_up_fraction_above_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"warmup_fraction must be in \[0, 1\], got 10"):
        warmup_steps_of(10.0, total_steps=5)


@pytest.mark.parametrize(("rule", "rate"), [("none", 5e-8), ("linear", 2e-7), ("sqrt", 1e-7)])
def test_the_rate_follows_the_batch_size_by_the_rule(rule: str, rate: float) -> None:
    assert scaled_learning_rate(5e-8, batch_size=56, reference_batch_size=14, rule=rule) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize("rule", ["none", "linear", "sqrt"])
def test_at_the_reference_batch_size_the_rate_is_the_reference_rate(rule: str) -> None:
    assert scaled_learning_rate(5e-8, batch_size=14, reference_batch_size=14, rule=rule) == 5e-8


def test_batch_scaling_reports_all_faults() -> None:
    with pytest.raises(ConfigError, match=r"^3 faults: learning_rate must be above 0, got 0.0; .*batch_size.*reference_batch_size"):
        scaled_learning_rate(0.0, batch_size=0, reference_batch_size=-1, rule="sqrt")
    with pytest.raises(ConfigError, match='one of none, linear, sqrt, got "cubic"'):
        inspect.unwrap(scaled_learning_rate)(1.0, batch_size=1, reference_batch_size=1, rule="cubic")
