"""The job that a model comes from: its settings, the model that it started from, its training."""

from typing import Any

from adiabat.models.model_paths import DEMO_HUB_NAME, job_of
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.results.training_record import TrainingRecord
from adiabat.runs.run_config import read_description


def tables_of(model: str) -> dict[str, Any]:
    """The settings of the job of a model; empty for a model of no job."""
    job = job_of(model)
    return {} if job is None else read_description(job)


def base_of(model: str) -> str | None:
    """The model that a job started from; None for a model of no job."""
    name: str | None = tables_of(model).get("job", {}).get("model")
    return name


def training_of(model: str) -> TrainingRecord | None:
    """The record of the training of a model's job; None for a model of no job."""
    job = job_of(model)
    return None if job is None else read_result(job.result, Result).training


def hub_name(base: str) -> str:
    """The name that other programs know a base model by."""
    return DEMO_HUB_NAME if base == "demo" else base
