"""`adiabat.scaling`: training runs over sizes, methods and budgets, and the laws of their loss."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from adiabat.api.arguments import PathLike, SettingsLike, path_of, settings_of
from adiabat.api.call import Progress, called
from adiabat.config.budgets import ScalingSettings
from adiabat.experiments.scaling import scaling as run_scaling
from adiabat.models.model_names import load_with
from adiabat.results.scaling_result import ScalingResult


def scaling(
    settings: SettingsLike, *, out: PathLike | None = None, resume: bool = False, progress: Progress = None, **options: Any
) -> ScalingResult:
    """Train every size with every method to every budget, and fit laws of the loss (Ziarko et al. 2024).

    Args:
        settings: `ScalingSettings`, a TOML file or nested dicts; ``adiabat settings scaling`` lists them.
        out: Directory of the experiment; None takes ``scaling.out``.
        resume: Continue an interrupted experiment; models, methods, budgets and seeds may have been added.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.
        **options: Single settings, such as ``budgets=[1e12, 4e12]`` (FLOPs) or ``device="cuda"``.

    Returns:
        The result: a row for each run, and laws, frontiers and profiles.

    Raises:
        AdiabatError: If settings, models, data or directory are unusable, or every run failed.
        TypeError: If an argument has a type that is not listed, or a setting is unknown.

    Example:
        >>> spec = {
        ...     "models": [{"model": "demo", "blocks": [1], "pretraining_rate": 0.01}],
        ...     "job": {"data": "train.jsonl"},
        ...     "data": {"corpus": "corpus.jsonl", "validation_fraction": 0.4},
        ...     "train": {"batch_size": 4},
        ... }
        >>> result = adiabat.scaling(spec, out="scaling", budgets=[1e7, 2e7], least_steps=1, resamples=10)
        >>> len(result.runs)
        2
    """
    folder = None if out is None else path_of(out, "out")
    chosen = settings_of(ScalingSettings, settings, {**options, "out": folder}, section="scaling", function="scaling")
    with called("scaling", progress) as call:
        result = run_scaling(load_with, chosen, resume=resume, command=call.command, watch=call.watch)
    return replace(result, folder=Path(str(chosen.scaling.out)))
