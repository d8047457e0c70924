"""`adiabat.plan`: the model, method and tokens to train for a budget."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adiabat.api.arguments import PathLike, SettingsLike, optional_path, path_of, settings_of
from adiabat.api.call import Progress, called
from adiabat.config.budgets import PlanSettings
from adiabat.config.shared import EncoderSection
from adiabat.experiments.plan import plan as make_plan
from adiabat.results.scaling_result import ScalingResult
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed

if TYPE_CHECKING:
    from adiabat.models.towers import DualEncoder


def plan(
    *,
    runs: PathLike | None = None,
    out: PathLike | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> ScalingResult:
    """Choose model, method, tokens and rate for a training budget, with reasons and intervals (Ziarko et al. 2024).

    Args:
        runs: Result or directory of a scaling experiment, or its ``runs.parquet``; None uses published figures.
        out: Directory for the page and ``train.toml``; None writes nothing.
        settings: `PlanSettings`, a TOML file or nested dicts; ``adiabat settings plan`` lists them.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.
        **options: Single settings, such as ``budget=1e17`` (FLOPs), ``budget_seconds="8h"``, ``memory="24GiB"`` or
            ``data_tokens=1e9``.

    Returns:
        The advice, with the laws that it rests on.

    Raises:
        AdiabatError: If settings or directory are unusable, or the runs do not suffice.
        TypeError: If an argument has a type that is not listed, or a setting is unknown.

    Example:
        >>> advice = adiabat.plan(budget=1e17).advice
        >>> advice.candidates[0].way.method
        'lora'
    """
    places = {"runs": None if runs is None else path_of(runs, "runs"), "out": None if out is None else path_of(out, "out")}
    chosen = settings_of(PlanSettings, settings, {**options, **places}, section="plan", function="plan")
    with called("plan", progress) as call, claimed(optional_path(chosen.plan.out, "out"), kind="plan") as folder:
        result = make_plan(_load, chosen, command=call.command, watch=call.watch)
        if folder is None:
            return result
        write_report(result, folder)
        return replace(result, folder=folder)


def _load(name: str, section: EncoderSection) -> "DualEncoder":
    # A plan that measures nothing loads no torch, which takes seconds.
    from adiabat.models.model_names import load_with

    return load_with(name, section)
