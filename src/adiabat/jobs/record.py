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
        job: Whose log is read.
        outcome: How the loop ended.
        settings: As resolved.
        kind: Of the run.
        unit: What its validation errors are counted in.
        trained_on: One line: data set, split, counts.
        parameters: All of what the run had in hand.
        trainable: Those that were updated.
        validated: How many units validation counts errors over.
        layers: Per parameter tensor that was updated.
        notes: Plain sentences.
        total: Steps that the run was to take at the most.
        planned: Its budget in FLOP; None where it has none, so that it is what all its steps would take.
        passes: How often the run went over its pairs; None where it did not go by them.
        measures: Further figures of each validation that the log holds.

    Returns:
        The record.
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
    """Put a record into the result of its job.

    Args:
        job: The model under that name is the result's.
        record: What the run did.
        title: For the report.
        command: The command line.
        seed: Of the run.
        inputs: What was read.
        device: That the run was on.

    Returns:
        The result, as it is written to ``result.json``.
    """
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
    """The result of a job that is over, and what its run did.

    Args:
        job: Whose ``result.json`` is read.
        what: The run did, such as ``training``; for a message.

    Returns:
        Both.

    Raises:
        DataError: If there is none, or it is damaged.
        JobError: If it is the result of something else.
    """
    result = read_result(job.result)
    if result.training is None:
        raise JobError(f"{job.result} must be the result of a {what} run, got another; remove {job.folder}, and it is made again")
    return result, result.training
