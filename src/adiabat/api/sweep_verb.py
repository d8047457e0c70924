"""`adiabat.sweep`: runs over a grid of settings, data sets or models."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from adiabat.api.arguments import PathLike, SettingsLike, path_of, settings_of
from adiabat.api.call import Progress, called
from adiabat.config.reader import read_table
from adiabat.config.section import Section
from adiabat.config.sweeps import SWEEPS, SweepSettings, sweep_kind
from adiabat.experiments.sweep import sweep as run_sweep
from adiabat.models.model_names import load_with
from adiabat.results.sweep_result import SweepResult


def sweep(
    settings: SettingsLike, *, out: PathLike | None = None, resume: bool = False, progress: Progress = None, **options: Any
) -> SweepResult:
    """Tune or train with every combination of settings, measure each model on the same tasks, and rank them.

    Variants may be settings that go together, and in a sweep over ``train`` data sets or models. Each run is an ordinary job in
    ``OUT/runs``; a run that diverges, lacks memory or cannot pay for a step leaves a row that says so.

    Args:
        settings: `TuneSweepSettings` or `TrainSweepSettings`, a TOML file or nested dicts; ``adiabat settings sweep tune`` and
            ``adiabat settings sweep train`` list them.
        out: Directory of the sweep; None takes ``sweep.out``.
        resume: Continue an interrupted sweep; values, variants and seeds may have been added.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.
        **options: Single settings, such as ``seeds=[0, 1]`` or ``device="cuda"``.

    Returns:
        The result: a row for each run, and the ranking.

    Raises:
        AdiabatError: If settings, models, data, tasks or directory are unusable.
        TypeError: If an argument has a type that is not listed, or a setting is unknown.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> spec = {
        ...     "job": {"model": "demo", "store": "store", "data": "train.jsonl"},
        ...     "tune": {"max_epochs": 1, "batches_per_epoch": 2},
        ...     "grid": {"tune": {"learning_rate": [1e-6, 1e-5]}},
        ...     "tasks": [{"kind": "retrieval", "data": "test.jsonl", "corpus": "corpus.jsonl", "stores": ["store"]}],
        ...     "probes": {"use": False},
        ... }
        >>> result = adiabat.sweep(spec, out="sweep", resamples=100)
        >>> [run.status for run in result.runs]
        ['done', 'done']
    """
    verb = _verb(settings, options)
    kind = sweep_kind({"sweep": {"verb": verb}})
    # The type of a settings object names a verb that its table may leave out.
    options = {**options, "verb": verb} if isinstance(settings, SweepSettings) else options
    folder = None if out is None else path_of(out, "out")
    chosen = settings_of(kind, settings, {**options, "out": folder}, section="sweep", function="sweep")
    with called("sweep", progress) as call:
        result = run_sweep(load_with, chosen, resume=resume, command=call.command, watch=call.watch)
    return replace(result, folder=Path(str(chosen.sweep.out)))


def _verb(settings: SettingsLike, options: Mapping[str, Any]) -> Any:
    """The verb that keywords or settings name; otherwise that of a settings object's type."""
    for section in (options, options.get("sweep"), _table(settings).get("sweep")):
        if isinstance(section, Mapping) and section.get("verb") is not None:
            return section["verb"]
    return next((verb for verb, kind in SWEEPS.items() if isinstance(settings, kind)), "tune")


def _table(settings: SettingsLike) -> Mapping[str, Any]:
    """The tables of settings in any form, which say the verb of the runs."""
    if isinstance(settings, Section):
        return settings.model_dump(exclude_unset=True)
    if isinstance(settings, Mapping):
        return settings
    return read_table(Path(path_of(settings, "settings")), SweepSettings)
