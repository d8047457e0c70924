"""A training run small enough for tests of the loop: a few numbers, dropout, and frozen weights beside the
trained ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from adiabat.config.section import OptimizerName
from adiabat.data.batch_sampler import ShuffledBatches
from adiabat.runs.run_log import JobLog, Validation
from adiabat.training.checkpoint import Limits, Position
from adiabat.training.loop import Loop
from adiabat.training.optimizers import Schedule, make_optimizer

STEPS_PER_EPOCH, EPOCHS = 5, 4
RATES: dict[OptimizerName, float] = {
    "adafactor": 0.05,
    "adamw": 0.01,
    "adamax": 0.01,
    "adamax-no-momentum": 0.003,
    "adadelta": 1.0,
    "sgd": 0.05,
}


def nothing(number: int) -> None:
    """Do nothing."""


@dataclass
class Regression:
    """Learns a line; `before_loss` and `before_validation` are called with the number of the step or
    validation.
    """

    before_loss: Callable[[int], None] = nothing
    before_validation: Callable[[int], None] = nothing
    validations: int = 0

    def __post_init__(self) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.module: nn.Module = nn.Sequential(
                nn.Linear(4, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1)
            )
            self.inputs = torch.randn(60, 4)
        self.targets = self.inputs.sum(dim=1, keepdim=True)
        self.module.get_submodule("0").requires_grad_(False)
        self.sampler = ShuffledBatches(30, 4, seed=0)

    def loss(self, step: int) -> Tensor:
        self.before_loss(step)
        rows = torch.from_numpy(self.sampler.rows(step))
        self.module.train()
        found: Tensor = self.module(self.inputs[rows])
        return (found - self.targets[rows]).square().mean()

    def batch_ids(self, step: int) -> list[str]:
        return [f"row {row}" for row in self.sampler.rows(step)]

    def validate(self) -> Validation:
        self.before_validation(self.validations)
        self.validations += 1
        self.module.eval()
        with torch.no_grad():
            apart = (self.module(self.inputs[30:]) - self.targets[30:]).abs()
        return Validation(loss=float(apart.square().mean()), errors=int((apart > 0.5).sum()), pairs=30)


@dataclass
class Scripted:
    """Validates as told, whatever the weights; each step moves the one weight by -1 (under SGD with rate
    1).
    """

    script: Sequence[tuple[float, int]]
    losses: Sequence[float] = ()
    module: nn.Module = field(default_factory=lambda: nn.Linear(1, 1, bias=False))
    validated: int = 0

    def __post_init__(self) -> None:
        nn.init.zeros_(self.weight)

    @property
    def weight(self) -> nn.Parameter:
        return self.module.get_parameter("weight")

    def loss(self, step: int) -> Tensor:
        moving = self.weight.sum()
        return moving - moving.detach() + (self.losses[step] if self.losses else 1.0)

    def batch_ids(self, step: int) -> list[str]:
        return [f"q{step}", f"q{step + 1}"]

    def validate(self) -> Validation:
        loss, errors = self.script[min(self.validated, len(self.script) - 1)]
        self.validated += 1
        return Validation(loss=loss, errors=errors, pairs=100)


@dataclass
class Seen:
    """What a loop told its caller."""

    notes: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)


def regression_loop(
    folder: Path,
    *,
    objective: Regression | None = None,
    optimizer: OptimizerName = "adamw",
    seed: int = 0,
    checkpoint_seconds: float = 1e9,
    seen: Seen | None = None,
) -> Loop:
    """A loop over `Regression` in a folder of its own."""
    objective, seen = objective or Regression(), seen or Seen()
    folder.mkdir(parents=True, exist_ok=True)
    return Loop(
        objective=objective,
        optimizer=make_optimizer(
            optimizer, objective.module.parameters(), learning_rate=RATES[optimizer], weight_decay=0.1
        ),
        learning_rate=RATES[optimizer],
        schedule=Schedule(name="linear", total_steps=STEPS_PER_EPOCH * EPOCHS),
        limits=Limits(STEPS_PER_EPOCH, EPOCHS, EPOCHS, log_every=2, checkpoint_seconds=checkpoint_seconds),
        folder=folder / "checkpoints",
        log=JobLog(folder / "log.jsonl"),
        seed=seed,
        watch=lambda position: seen.steps.append(position.step),
        note=seen.notes.append,
    )


def scripted_loop(folder: Path, objective: Scripted, *, limits: Limits, seen: Seen | None = None) -> Loop:
    """A loop over `Scripted`, by SGD with a constant rate of 1."""
    seen = seen or Seen()
    return Loop(
        objective=objective,
        optimizer=torch.optim.SGD(objective.module.parameters(), lr=1.0),
        learning_rate=1.0,
        schedule=Schedule(),
        limits=limits,
        folder=folder / "checkpoints",
        log=JobLog(folder / "log.jsonl"),
        watch=lambda position: seen.steps.append(position.step),
        note=seen.notes.append,
    )


def position_of(loop: Loop) -> Position:
    """The position, without the seconds, which differ from run to run."""
    loop.position.seconds = 0.0
    return loop.position
