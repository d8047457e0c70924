"""The loop of a tuning run, of its rate search and of the measurement of its speed: learning rate, schedule,
optimizer.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn, optim

from adiabat.adiabatic.stored_loss import StoredDocuments
from adiabat.config.tuning import TuneSection, TuneSettings
from adiabat.models.device import device_of
from adiabat.models.freezing import check_patterns
from adiabat.runs.run_config import Job
from adiabat.runs.run_log import JobLog, require_tensorboard
from adiabat.training.captured_step import RECORDERS, CapturedSteps
from adiabat.training.checkpoint import Limits, Position
from adiabat.training.loop import Loop
from adiabat.training.optimizers import Schedule, make_optimizer, scaled_learning_rate, schedule_from


def learning_rate_of(section: TuneSection) -> float:
    """The peak learning rate of a run."""
    scaling = section.batch_scaling
    return scaled_learning_rate(
        section.learning_rate,
        batch_size=section.batch_size,
        reference_batch_size=scaling.reference_batch_size,
        rule=scaling.kind,
    )


def schedule_of(settings: TuneSettings) -> Schedule:
    """The schedule of the settings, over the maximum length of the run."""
    section = settings.tune
    return schedule_from(
        section.schedule,
        total_steps=section.max_epochs * section.batches_per_epoch,
        steps_per_epoch=section.batches_per_epoch,
        warmup_steps=section.warmup_steps,
    )


def check_settings(settings: TuneSettings) -> None:
    """Checks that need neither data nor model."""
    device_of(settings.run.device)
    check_patterns(settings.tune.freeze)
    schedule_of(settings)
    if settings.run.tensorboard:
        require_tensorboard()


def optimizer_of(module: nn.Module, section: TuneSection) -> optim.Optimizer:
    """The optimizer of the weights that are not frozen."""
    rate = learning_rate_of(section)
    trainable = [weights for weights in module.parameters() if weights.requires_grad]
    optimizer = make_optimizer(
        section.optimizer, trainable, learning_rate=rate, weight_decay=section.weight_decay
    )
    if section.l2_to_start:
        from adiabat.adiabatic.regularization import l2_to_start

        l2_to_start(optimizer, section.l2_to_start)
    return optimizer


def make_loop(
    objective: StoredDocuments,
    settings: TuneSettings,
    folder: Path,
    *,
    limits: Limits,
    watch: Callable[[Position], None],
    note: Callable[[str], None],
) -> Loop:
    """The loop of a run; nothing is written yet."""
    run = settings.run
    optimizer = optimizer_of(objective.module, settings.tune)
    steps = objective.capture.steps
    return Loop(
        objective=objective,
        optimizer=optimizer,
        learning_rate=learning_rate_of(settings.tune),
        schedule=schedule_of(settings),
        limits=limits,
        folder=Job(folder).checkpoints,
        log=JobLog(Job(folder).log, tensorboard=Job(folder).board if run.tensorboard else None),
        seed=run.seed,
        watch=watch,
        note=note,
        # A checkpoint must not hold weights that were trained on two stores.
        saving=objective.store.require_unchanged,
        cost=objective.cost if steps is None else steps.cost,
        captured=captured_steps(objective, optimizer),
    )


def captured_steps(objective: StoredDocuments, optimizer: optim.Optimizer) -> CapturedSteps | None:
    """The steps of a run as recorded graphs; None where they are not recorded."""
    steps, device = objective.capture.steps, objective.encoder.device
    return None if steps is None else CapturedSteps(steps, optimizer, RECORDERS[device.type](device))


def limits_of(settings: TuneSettings) -> Limits:
    """When a run ends, and what it keeps."""
    # A run that is softened at its end may exceed the limit until then.
    section, guard = settings.tune, settings.guard
    return Limits(
        section.batches_per_epoch,
        section.max_epochs,
        section.idle_epochs if section.keep != "last" else None,
        max_seconds=section.budget_seconds,
        keep=section.keep,
        outside=guard.action if guard is not None and guard.action != "soften" else None,
        **writing(settings),
    )


def writing(settings: TuneSettings) -> dict[str, Any]:
    """Limits of the run, and how often it writes."""
    return settings.run.model_dump(include={"log_every", "checkpoint_seconds", "keep_checkpoints"})
