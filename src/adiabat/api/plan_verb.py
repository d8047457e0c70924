"""`adiabat.plan`: what to train for a budget."""

from pathlib import Path

from adiabat.config.budgets import PlanSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.experiments.plan import plan as make_plan
from adiabat.models.model_names import load_with
from adiabat.results.scaling_result import ScalingResult
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed


def plan(settings: PlanSettings, *, command: str = "adiabat.plan(...)", watch: Watch = SILENT) -> ScalingResult:
    """Say what to train for a budget, with reasons; see `adiabat.experiments.plan.plan`.

    Args:
        settings: `PlanSection.budget` must be given; with `PlanSection.out` the page and ``train.toml`` are written there.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What runs say, with the advice.

    Raises:
        AdiabatError: If anything the user gave is wrong, or the runs do not suffice.
    """
    with claimed(Path(settings.plan.out) if settings.plan.out is not None else None, kind="plan") as folder:
        found = make_plan(load_with, settings, command=command, watch=watch)
        if folder is not None:
            write_report(found, folder)
    return found
