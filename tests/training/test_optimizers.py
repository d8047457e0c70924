"""Each optimiser against its formula in plain loops, and which weights it decays; learning rates by hand and
against transformers, and whatever must hold of all schedules.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from adiabat.core.errors import ConfigError
from adiabat.losses.log_denominator import LearnedTemperature
from adiabat.training.optimizers import (
    ROUNDED_AWAY,
    Schedule,
    decay_groups,
    make_optimizer,
    scaled_learning_rate,
    warmup_steps_of,
)
from tests.refused import Facts, one_line
from tests.tiny import tiny_dual

START = [0.5, -2.0, 0.0, 3e-3]
GRADIENTS = [[0.1, -1.0, 0.0, 2e-8], [0.3, 0.2, 0.0, -1e-8], [-0.2, 0.4, 1.0, 0.0]]
EPSILON = torch.finfo(torch.float64).eps
"""Adafactor's own, for the dtype of these tests."""
NAMES = ["adamw", "adamax", "adamax-no-momentum", "adadelta", "adafactor", "sgd"]


def adamw(weight: float, gradients: list[float], rate: float, decay: float) -> float:
    mean = square = 0.0
    for t, gradient in enumerate(gradients, start=1):
        weight -= rate * decay * weight
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        weight -= rate * (mean / (1 - 0.9**t)) / (math.sqrt(square / (1 - 0.999**t)) + 1e-8)
    return weight


def adamax(weight: float, gradients: list[float], rate: float, decay: float) -> float:
    mean = largest = 0.0
    for t, plain in enumerate(gradients, start=1):
        gradient = plain + decay * weight
        mean = 0.9 * mean + 0.1 * gradient
        largest = max(0.999 * largest, abs(gradient) + 1e-8)
        weight -= rate / (1 - 0.9**t) * mean / largest
    return weight


def adamax_no_momentum(weight: float, gradients: list[float], rate: float, decay: float) -> float:
    for plain in gradients:
        gradient = plain + decay * weight
        weight -= rate * gradient / (abs(gradient) + 1e-8)
    return weight


def adadelta(weight: float, gradients: list[float], rate: float, decay: float) -> float:
    square = moved = 0.0
    for plain in gradients:
        gradient = plain + decay * weight
        square = 0.9 * square + 0.1 * gradient**2
        delta = math.sqrt(moved + 1e-6) / math.sqrt(square + 1e-6) * gradient
        moved = 0.9 * moved + 0.1 * delta**2
        weight -= rate * delta
    return weight


def sgd(weight: float, gradients: list[float], rate: float, decay: float) -> float:
    for plain in gradients:
        weight -= rate * (plain + decay * weight)
    return weight


UPDATES: dict[str, Callable[[float, list[float], float, float], float]] = dict(
    zip(
        [name for name in NAMES if name != "adafactor"],
        (adamw, adamax, adamax_no_momentum, adadelta, sgd),
        strict=True,
    )
)
"""Those that look at each weight by itself."""


def after_steps(
    name: str, start: Tensor, gradients: list[Tensor], *, rate: float, decay: float
) -> list[float]:
    weights = nn.Parameter(start.clone())
    optimizer = make_optimizer(name, [weights], learning_rate=rate, weight_decay=decay)
    for gradient in gradients:
        weights.grad = gradient.clone()
        optimizer.step()
    return weights.detach().flatten().tolist()


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", UPDATES)
def test_three_steps_equal_the_update_written_by_hand(name: str, decay: float) -> None:
    expected = [
        UPDATES[name](weight, [step[i] for step in GRADIENTS], 0.01, decay) for i, weight in enumerate(START)
    ]
    start, *gradients = (torch.tensor(numbers, dtype=torch.float64) for numbers in (START, *GRADIENTS))
    assert after_steps(name, start, gradients, rate=0.01, decay=decay) == pytest.approx(
        expected, rel=1e-9, abs=1e-14
    )


def one_step(name: str, weights: Tensor, gradient: Tensor, *, rate: float) -> Tensor:
    parameter = nn.Parameter(weights)
    parameter.grad = gradient
    make_optimizer(name, [parameter], learning_rate=rate, weight_decay=0.0).step()
    return parameter.detach()


def test_adamax_without_momentum_moves_by_the_sign_of_the_gradient() -> None:
    gradient = torch.tensor([3.0, -0.001, 1e-8, 0.0], dtype=torch.float64)
    moved = one_step("adamax-no-momentum", torch.zeros_like(gradient), gradient, rate=0.1)
    assert moved.tolist() == pytest.approx([-0.1, 0.1, -0.05, 0.0], rel=1e-4)


def test_adamw_on_a_cpu_is_fused_and_agrees_with_the_plain_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    start, gradient = torch.randn(1000, generator=generator), torch.randn(1000, generator=generator)
    ours, plain = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    fused = make_optimizer("adamw", [ours], learning_rate=1e-3, weight_decay=0.01)
    loop = torch.optim.AdamW([plain], lr=1e-3, weight_decay=0.01, foreach=False, fused=False)
    assert fused.defaults["fused"] is True
    for _ in range(3):
        ours.grad, plain.grad = gradient.clone(), gradient.clone()
        fused.step()
        loop.step()
    torch.testing.assert_close(ours, plain)


def test_frozen_parameters_are_left_out_so_that_no_decay_touches_them() -> None:
    frozen, free = nn.Parameter(torch.ones(2), requires_grad=False), nn.Parameter(torch.ones(2))
    optimizer = make_optimizer("adamw", iter([frozen, free]), learning_rate=0.1, weight_decay=0.5)
    free.grad = torch.zeros(2)
    optimizer.step()
    assert [len(group["params"]) for group in optimizer.param_groups] == [1]
    assert torch.equal(frozen, torch.ones(2))
    torch.testing.assert_close(free.detach(), torch.full((2,), 0.95))


@pytest.mark.parametrize(("share", "moves"), [(0.99, set()), (2.02, {1.0, 1.5, 1.99, 0.05})])
def test_a_decay_by_less_than_half_an_ulp_of_every_weight_moves_none(share: float, moves: set[float]) -> None:
    weights = [1.0, 1.5, 1.99, 0.05]
    parameter = nn.Parameter(torch.tensor(weights))
    optimizer = make_optimizer(
        "adamw", [parameter], learning_rate=5e-8, weight_decay=share * ROUNDED_AWAY / 5e-8
    )
    for _ in range(10):
        parameter.grad = torch.zeros(4)
        optimizer.step()
    found = parameter.detach().tolist()
    assert {
        start for start, weight in zip(weights, found, strict=True) if torch.tensor(start).item() != weight
    } == moves


def test_a_weight_just_above_1_does_not_follow_the_default_rate() -> None:
    parameter = nn.Parameter(torch.tensor([1.1, 0.05]))
    optimizer = make_optimizer("adamw", [parameter], learning_rate=5e-8, weight_decay=0.0)
    for _ in range(100):
        parameter.grad = torch.ones(2)
        optimizer.step()
    assert parameter[0].item() == torch.tensor(1.1).item()
    assert parameter[1].item() == pytest.approx(0.05 - 100 * 5e-8, abs=5e-7)


def rms(values: list[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))


def moved(
    weights: list[float], gradients: list[float], variances: list[float], t: int, *, rate: float, decay: float
) -> list[float]:
    """What Adafactor's step makes of one tensor, one number at a time."""
    size = max(1e-3, rms(weights)) * min(rate, t**-0.5)
    updates = [g / max(math.sqrt(v), EPSILON) for g, v in zip(gradients, variances, strict=True)]
    cut = max(1.0, rms(updates))
    return [w * (1 - rate * decay) - size * u / cut for w, u in zip(weights, updates, strict=True)]


def vector_by_hand(
    weights: list[float], steps: list[list[float]], *, rate: float, decay: float
) -> list[float]:
    variances = [0.0] * len(weights)
    for t, gradients in enumerate(steps, start=1):
        share = t**-0.8
        variances = [(1 - share) * v + share * g**2 for v, g in zip(variances, gradients, strict=True)]
        weights = moved(weights, gradients, variances, t, rate=rate, decay=decay)
    return weights


def matrix_by_hand(weights: Tensor, steps: list[Tensor], *, rate: float, decay: float) -> list[float]:
    (height, width), flat = weights.shape, weights.flatten().tolist()
    rows, columns = [0.0] * height, [0.0] * width
    for t, gradient in enumerate(steps, start=1):
        share, found = t**-0.8, gradient.tolist()
        rows = [(1 - share) * rows[i] + share * sum(g**2 for g in found[i]) / width for i in range(height)]
        columns = [
            (1 - share) * columns[j] + share * sum(line[j] ** 2 for line in found) / height
            for j in range(width)
        ]
        whole = max(sum(rows) / height, EPSILON)
        variances = [row * column / whole for row in rows for column in columns]
        flat = moved(flat, gradient.flatten().tolist(), variances, t, rate=rate, decay=decay)
    return flat


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("decay", [0.0, 0.1])
# The second rate is above 1 / sqrt(t) from the second step on, which then takes its place.
@pytest.mark.parametrize("rate", [1e-3, 0.9])
@pytest.mark.parametrize("shape", [(3, 4), (5,)])
def test_adafactor_is_the_formula_in_plain_loops(shape: tuple[int, ...], rate: float, decay: float) -> None:
    start, gradients = (
        random(*shape, seed=0),
        [random(*shape, seed=seed) * 10.0**seed for seed in range(1, 5)],
    )
    if len(shape) == 2:
        expected = matrix_by_hand(start, gradients, rate=rate, decay=decay)
    else:
        expected = vector_by_hand(
            start.tolist(), [gradient.tolist() for gradient in gradients], rate=rate, decay=decay
        )
    assert after_steps("adafactor", start, gradients, rate=rate, decay=decay) == pytest.approx(
        expected, rel=1e-9
    )


def test_the_first_step_of_adafactor_worked_by_hand() -> None:
    # All gradients have one size, so V = g^2, u = sign(g), rms(u) = 1; the weights' rms is 2: each moves by 2
    # * 0.001.
    moved = one_step(
        "adafactor",
        torch.tensor([[2.0, -2.0], [2.0, 2.0]]),
        torch.tensor([[7.0, 7.0], [-7.0, 7.0]]),
        rate=1e-3,
    )
    torch.testing.assert_close(moved, torch.tensor([[1.998, -2.002], [2.002, 1.998]]))
    # A matrix of zeros moves as if its rms were a thousandth.
    torch.testing.assert_close(
        one_step("adafactor", torch.zeros(2, 2), torch.ones(2, 2), rate=1e-3), torch.full((2, 2), -1e-6)
    )


def test_adafactor_leaves_rows_of_a_table_without_gradient_where_they_are() -> None:
    table = one_step(
        "adafactor", torch.ones(3, 2), torch.tensor([[0.0, 0.0], [1.0, -1.0], [0.0, 0.0]]), rate=1e-3
    )
    assert torch.equal(table[[0, 2]], torch.ones(2, 2))
    assert (table[1] != 1).all()


def test_adafactor_keeps_one_number_per_row_and_column() -> None:
    matrix, vector = nn.Parameter(torch.ones(30, 20)), nn.Parameter(torch.ones(30))
    matrix.grad, vector.grad = torch.ones(30, 20), torch.ones(30)
    optimizer = make_optimizer("adafactor", [matrix, vector], learning_rate=1e-3, weight_decay=0.0)
    optimizer.step()
    assert sum(value.numel() for value in optimizer.state[matrix].values()) == 30 + 20 + 1
    assert sum(value.numel() for value in optimizer.state[vector].values()) == 30 + 1


def test_a_matrix_decays_and_a_bias_and_a_temperature_do_not() -> None:
    layer, temperature = nn.Linear(2, 2), LearnedTemperature(0.05)
    nn.init.constant_(layer.weight, 2.0)
    nn.init.constant_(layer.bias, 2.0)
    start = temperature.log_factor.item()
    optimizer = make_optimizer(
        "adamw", decay_groups(nn.ModuleList([layer, temperature])), learning_rate=0.1, weight_decay=0.5
    )
    for weights in (layer.weight, layer.bias, temperature.log_factor):
        weights.grad = torch.full_like(weights, 3.0)
    optimizer.step()
    # The first step of Adam is the rate. The decay comes before it: 2 - 0.1 * 0.5 * 2 = 1.9.
    torch.testing.assert_close(layer.weight.detach(), torch.full((2, 2), 1.8))
    torch.testing.assert_close(layer.bias.detach(), torch.full((2,), 1.9))
    assert temperature.log_factor.item() == pytest.approx(start - 0.1)
    assert optimizer.defaults["fused"] is True


def test_each_trainable_weight_is_in_one_group_and_tables_decay_like_matrices() -> None:
    model = tiny_dual(shared=False)
    towers = nn.ModuleList([model.query, model.document, model.query])
    frozen = model.query.backbone.encoder.layer[0].requires_grad_(False)
    decayed, plain = decay_groups(towers)
    names = {id(weights): name for name, weights in towers.named_parameters()}
    assert len(decayed.parameters) + len(plain.parameters) == len(names) - len(list(frozen.parameters()))
    assert all(
        names[id(weights)].endswith(".bias") or "LayerNorm" in names[id(weights)]
        for weights in plain.parameters
    )
    assert sum("word_embeddings" in names[id(weights)] for weights in decayed.parameters) == 2
    assert (decayed.decays, plain.decays) == (True, False)


def test_a_group_without_trainable_weights_is_left_out() -> None:
    optimizer = make_optimizer(
        "adamw", decay_groups(nn.Linear(2, 1, bias=False)), learning_rate=0.1, weight_decay=0.5
    )
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5]


def test_nothing_to_train_is_refused() -> None:
    for given in ([], decay_groups(nn.Linear(2, 1).requires_grad_(False))):
        with one_line(ConfigError, "freeze must leave something to train"):
            make_optimizer("adamw", given, learning_rate=0.1, weight_decay=0.5)


# --- Learning rates ---

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
    ("settings", "facts"),
    [
        ({"name": "cosine"}, ("total_steps must be given", "cosine")),
        ({"warmup_steps": 11, "total_steps": 10}, ("warmup_steps must be", "total_steps, 10", "got 11")),
    ],
)
def test_lengths_that_do_not_fit_are_refused(settings: dict[str, object], facts: Facts) -> None:
    with one_line(ConfigError, *facts):
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
