"""The end of a training run: its record, changes of tensors, model and checkpoints."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from adiabat.core.errors import DataError, JobError
from adiabat.core.formats import layout_of
from adiabat.core.provenance import now, versions
from adiabat.data.text_hashes import TrainedTexts
from adiabat.models.device import device_name
from adiabat.models.model_names import packed
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.results.training_record import LayerChange, TrainingRecord
from adiabat.runs.output_dir import finish_job
from adiabat.runs.run_config import Job
from adiabat.runs.run_log import REMEDY, read_log
from adiabat.training.checkpoint import Outcome, drop_older


def log_fields(
    job: Job, outcome: Outcome, *, total: int, planned: float | None = None, measures: Sequence[str] = ()
) -> dict[str, Any]:
    """The fields of a `TrainingRecord` that follow from the log of a run and from its end.

    Args:
        total: Number of steps that were planned.
        planned: The budget in FLOP; without a budget (None), the FLOP of all planned steps.
        measures: Further figures of a validation to take from the log, where it has them.
    """
    position, rows = outcome.position, list(read_log(job.log))
    validations = [row for row in rows if "validation_loss" in row]
    with layout_of(job.log, remedy=REMEDY, error=JobError):
        measured = {}
        for name in measures:
            # An earlier version that knew fewer measures may have begun the log.
            rows_with = [row for row in validations if f"validation_{name}" in row]
            if rows_with:
                measured[name] = _by_epoch(rows_with, f"validation_{name}")
    return {
        "steps": position.step,
        "epochs": position.epoch,
        "best_epoch": position.best_epoch,
        "stop_reason": outcome.reason,
        "seconds": position.seconds,
        "loss": [(row["step"], row["loss"]) for row in rows if "loss" in row],
        "validation_loss": _by_epoch(validations, "validation_loss"),
        "validation_errors": _by_epoch(validations, "validation_errors"),
        "flops": position.flops,
        "operations": position.operations,
        # The mean step so far, as often as the run was to take one.
        "planned": planned or position.flops * total / max(1, position.step),
        "measures": measured,
    }


def _by_epoch(rows: Sequence[Mapping[str, Any]], column: str) -> list[tuple[Any, Any]]:
    return [(row["epoch"], row[column]) for row in rows]


def result_of(
    job: Job,
    record: TrainingRecord,
    *,
    title: str,
    command: str,
    seed: int,
    inputs: Mapping[str, Any],
    device: torch.device,
) -> Result:
    """Put a record into the result of its job."""
    return Result(
        kind="training",
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


def finished(job: Job, purpose: str) -> tuple[Result, TrainingRecord]:
    """The result of a finished job, with the record of its run."""
    result = read_result(job.result, Result)
    if result.training is None:
        raise JobError(
            f"{job.result} must be the result of a {purpose} run, got another; "
            f"remove {job.folder} to rebuild it"
        )
    return result, result.training


_CHUNK = 1 << 20
"""Values compared at a time, so that a large embedding table is never copied whole in double precision."""


def layer_changes(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[LayerChange]:
    """Compare two sets of weights, tensor by tensor.

    ``relative = |after - before| / |before|`` (Frobenius norm), ``largest = max |w|``, ``largest_change = (Wt
    - Wo) / (Wt + Wo)`` with ``Wo`` the largest before and ``Wt`` the largest after.

    Args:
        before: Weights by name, of any floating type and on any device.
        after: The same names and shapes.

    Returns:
        One change for every name, in the order of `before`, unchanged tensors too (all zeros). Computed in
        double precision.

    Raises:
        ModelError: If names or shapes differ; all differences are named.

    Reference:
        Vasilyev et al. 2024.
    """
    return [_change(name, tensor, after[name]) for name, tensor in before.items()]


def _change(name: str, before: Tensor, after: Tensor) -> LayerChange:
    """Compare one tensor, a chunk at a time."""
    old_squares = moved_squares = largest_before = largest_after = 0.0
    chunks = zip(
        torch.split(before.detach().flatten(), _CHUNK),
        torch.split(after.detach().flatten(), _CHUNK),
        strict=True,
    )
    for old, new in ((old.cpu().double(), new.cpu().double()) for old, new in chunks if old.numel()):
        # In 64 bits: tuning moves weights by single units in the last place of float32, whose squares would
        # vanish in its sums.
        moved = new - old
        old_squares += torch.dot(old, old).item()
        moved_squares += torch.dot(moved, moved).item()
        largest_before = max(largest_before, old.abs().max().item())
        largest_after = max(largest_after, new.abs().max().item())
    both = largest_before + largest_after
    return LayerChange(
        name=name,
        relative=math.sqrt(moved_squares / old_squares) if old_squares else None,
        largest_before=largest_before,
        largest_after=largest_after,
        largest_change=(largest_after - largest_before) / both if both else 0.0,
    )


def finish_run(
    job: Job, model: DualEncoder, result: Result, trained: TrainedTexts, *, keep_checkpoints: int | None
) -> Result:
    """Write the model, the result with the record of its training texts, and the page.

    Args:
        keep_checkpoints: Number of checkpoints to keep; None keeps only the newest, which takes several times
            the space of the model.
    """
    texts, content = packed(trained)
    if result.training is not None:
        result = replace(result, training=replace(result.training, texts=texts))

    # Passed as functions, so that the end of a run (`runs.output_dir`) knows neither models nor checkpoints.
    def write_model(folder: Path) -> None:
        try:
            save(model.to("cpu"), folder)
        except SafetensorError as fault:
            raise DataError(str(fault)) from fault

    def tidy() -> None:
        if keep_checkpoints is None:
            drop_older(job.checkpoints)

    finish_job(job, result, save=write_model, beside={job.trained.name: content}, tidy=tidy)
    return result
