"""What a run that updated weights leaves for readers: its record, read off its log, and the result around it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from adiabat.errors import JobError
from adiabat.jobs.job import Job
from adiabat.measure.results import LayerChange, Result, TrainingRecord
from adiabat.model.device import device_name
from adiabat.provenance import now, versions
from adiabat.report.files import read_result
from adiabat.train.limits import Outcome
from adiabat.train.log import read_log


def record_of(
    job: Job,
    outcome: Outcome,
    *,
    settings: Mapping[str, Any],
    kind: Literal["tuning", "training"],
    unit: Literal["pairs", "queries"],
    trained_on: str,
    parameters: int,
    trainable: int,
    validated: int,
    layers: list[LayerChange],
    notes: tuple[str, ...],
    total: int,
    planned: float | None = None,
    passes: float | None = None,
    measures: Sequence[str] = (),
) -> TrainingRecord:
    """Put together what a run did.

    Args:
        planned: Its budget in FLOP; None where it has none, so that it is what all its steps would take.
        passes: How often the run went over its pairs; None where it did not go by them.
    """
    position, rows = outcome.position, list(read_log(job.log))
    validations = [row for row in rows if "validation_loss" in row]
    return TrainingRecord(
        settings=dict(settings),
        trained_on=trained_on,
        parameters=parameters,
        trainable=trainable,
        steps=position.step,
        epochs=position.epoch,
        best_epoch=position.best_epoch,
        stop_reason=outcome.reason,
        seconds=position.seconds,
        loss=[(row["step"], row["loss"]) for row in rows if "loss" in row],
        validation_loss=[(row["epoch"], row["validation_loss"]) for row in validations],
        validation_errors=[(row["epoch"], row["validation_errors"]) for row in validations],
        validation_pairs=validated,
        layers=layers,
        notes=notes,
        kind=kind,
        unit=unit,
        passes=passes,
        flops=position.flops,
        operations=position.operations,
        planned=planned or position.flops * total / max(1, position.step),
        measures={name: [(row["epoch"], row[f"validation_{name}"]) for row in validations] for name in measures},
    )


def result_of(
    job: Job, record: TrainingRecord, *, title: str, command: str, seed: int, inputs: Mapping[str, Any], device: torch.device
) -> Result:
    """Put a record into the result of its job."""
    return Result(
        title=title,
        command=command,
        created=now(),
        seconds=record.seconds,
        seed=seed,
        versions=versions(device_name(device)),
        model=str(job.folder),
        training=record,
        settings=record.settings,
        inputs={"train": dict(inputs)},
    )


def finished(job: Job, what: str) -> tuple[Result, TrainingRecord]:
    """The result of a job that is over, and what its run did."""
    result = read_result(job.result)
    if result.training is None:
        raise JobError(f"{job.result} must be the result of a {what} run, got another; remove {job.folder}, and it is made again")
    return result, result.training
