"""The settings of the job that an exported model comes from."""

from typing import Any

from adiabat.models.model_paths import job_of
from adiabat.runs.run_config import read_description


def tables_of(model: str) -> dict[str, Any]:
    """The settings of the job of a model; empty for a model of no job."""
    job = job_of(model)
    return {} if job is None else read_description(job)


def base_of(model: str) -> str | None:
    """The model that a job started from; None for a model of no job."""
    name: str | None = tables_of(model).get("job", {}).get("model")
    return name
