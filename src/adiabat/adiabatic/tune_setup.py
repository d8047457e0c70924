"""The parts of a tuning run that follow from its settings: the tower to be tuned, its rate and schedule, the loop.

Reference: Vasilyev et al. 2024.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from adiabat.adiabatic.regularization import pull_to_start
from adiabat.adiabatic.stored_loss import DriftingDocuments, StoredDocuments
from adiabat.config.training_choices import UnscaledRate
from adiabat.config.tuning import TuneSection, TuneSettings
from adiabat.models.adapters import train_part
from adiabat.models.device import device_of
from adiabat.models.encoder import Encoder
from adiabat.models.freezing import FreezeReport, check_patterns, freeze
from adiabat.models.towers import trainable_copy
from adiabat.runs.run_dir import Job
from adiabat.runs.run_log import JobLog, require_tensorboard
from adiabat.training.limits import Limits, Position
from adiabat.training.loop import Loop
from adiabat.training.optimizers import make_optimizer
from adiabat.training.schedules import Schedule, scaled_learning_rate, schedule_from


def tunable_tower(tower: Encoder, *, dropout: bool) -> Encoder:
    """A copy of a query tower to be tuned; the original, which is often the document tower too, stays as it is."""
    return trainable_copy(tower).train(dropout)


def prepared_tower(tower: Encoder, settings: TuneSettings) -> tuple[Encoder, FreezeReport]:
    """A copy of a query tower of which what the settings ask for is trained, on the device of the run."""
    section = settings.tune
    copy = tunable_tower(tower, dropout=section.dropout).to(device_of(settings.run.device))
    with torch.random.fork_rng([]):
        torch.manual_seed(settings.run.seed)
        train_part(copy.backbone, section.method)
        # Adapters and added biases are in the mode of the tower that they are put into.
        copy.train(section.dropout)
    return copy, freeze(copy.backbone, section.freeze)


def learning_rate_of(section: TuneSection) -> float:
    """The peak rate that a run takes."""
    if isinstance(section.learning_rate, str):
        raise ValueError("the rate must be a number by now, got safe")
    scaling = section.batch_scaling
    if isinstance(scaling, UnscaledRate):
        return section.learning_rate
    return scaled_learning_rate(
        section.learning_rate, batch_size=section.batch_size, reference_batch_size=scaling.reference_batch_size, rule=scaling.kind
    )


def make_loop(
    objective: StoredDocuments | DriftingDocuments,
    settings: TuneSettings,
    folder: Path,
    *,
    limits: Limits,
    watch: Callable[[Position], None],
    note: Callable[[str], None],
) -> Loop:
    """The loop of a run, with nothing written yet."""
    section, run = settings.tune, settings.run
    rate = learning_rate_of(section)
    trainable = [weights for weights in objective.module.parameters() if weights.requires_grad]
    optimizer = make_optimizer(section.optimizer, trainable, learning_rate=rate, weight_decay=section.weight_decay)
    if section.pull:
        pull_to_start(optimizer, section.pull)
    return Loop(
        objective=objective,
        optimizer=optimizer,
        learning_rate=rate,
        schedule=schedule_of(settings),
        limits=limits,
        folder=Job(folder).checkpoints,
        log=JobLog(Job(folder).log, tensorboard=folder / "tensorboard" if run.tensorboard else None),
        seed=run.seed,
        watch=watch,
        note=note,
        cost=objective.cost,
    )


def writing(settings: TuneSettings) -> dict[str, Any]:
    """How often a run writes."""
    return settings.run.model_dump(include={"log_every", "checkpoint_seconds", "keep_checkpoints"})


def schedule_of(settings: TuneSettings) -> Schedule:
    """The schedule that settings describe, over the longest the run may last."""
    section = settings.tune
    return schedule_from(
        section.schedule,
        total_steps=section.max_epochs * section.batches_per_epoch,
        steps_per_epoch=section.batches_per_epoch,
        warmup_steps=section.warmup_steps,
    )


def check_settings(settings: TuneSettings) -> None:
    """Refuse what can be seen to be wrong without data or model."""
    device_of(settings.run.device)
    check_patterns(settings.tune.freeze)
    schedule_of(settings)
    if settings.run.tensorboard:
        require_tensorboard()
