"""Checks of sweeps, scaling experiments and plans by their settings and paths, before torch is loaded."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adiabat.config.budgets import PlanSettings, ScalingSettings
from adiabat.config.shared import require_device_name
from adiabat.config.sweeps import SweepSettings, TrainSweepSettings, TuneSweepSettings
from adiabat.core.errors import ConfigError, several
from adiabat.core.wording import option
from adiabat.dual_encoder.train_checks import require_models, require_runnable
from adiabat.evaluation.evaluate_checks import require_tasks
from adiabat.experiments.grid import SweepTrial, trials_of_sweep, ways_of
from adiabat.models.model_paths import require_names, require_reachable
from adiabat.runs.output_dir import require_begun, require_own
from adiabat.runs.run_config import is_described
from adiabat.scaling_laws.laws import SIZE_AND_TOKENS
from adiabat.stats.ranking_measures import require_report
from adiabat.store.addressing import require_inputs
from adiabat.store.vector_store import refuse_swapped

SWEEP, SCALING = "sweep", "scaling"
"""Tables that identify the configurations of experiments."""


def require_sweep(settings: SweepSettings, *, resume: bool) -> None:
    """Check that a sweep can start or resume."""
    trials = trials_of_sweep(settings)
    require_complete(settings)
    _require_place(settings.sweep.out, SWEEP, "sweep", resume=resume)
    require_tasks(settings.tasks)
    if isinstance(settings, TrainSweepSettings):
        _require_trained(trials)
    elif isinstance(settings, TuneSweepSettings):
        require_reachable(settings.job.model, named_by="job.model")


def _require_trained(trials: Sequence[SweepTrial]) -> None:
    """Check models and data of the runs of a sweep over train; runs of other seeds or rates share them."""
    known: list[object] = []
    for trial in trials:
        # Checked once for each set of inputs, since checks read files.
        inputs = (trial.trained.job, trial.trained.data, trial.trained.towers)
        if inputs not in known:
            known.append(inputs)
            require_runnable(trial.trained)
            require_models(trial.trained)


def require_complete(settings: SweepSettings) -> None:
    """Refuse a sweep without the settings that every sweep needs."""
    required: dict[str, Any] = {"sweep.out": settings.sweep.out}
    if isinstance(settings, TuneSweepSettings):
        required |= {f"job.{name}": getattr(settings.job, name) for name in ("model", "store", "data")}
    faults = [f"{name} must be given, got none" for name, value in required.items() if value is None]
    if not settings.tasks:
        faults.append("tasks must be given, got none; list the tasks to measure models on under [[tasks]]")
    processes = os.environ.get("WORLD_SIZE", "1")
    if processes != "1":
        faults.append(f"a sweep must run in one process, got {processes}; start it without a launcher")
    if faults:
        raise ConfigError(several(faults))
    require_report(settings.measure.report)
    require_device_name(settings.run.device)
    if isinstance(settings, TuneSweepSettings):
        refuse_swapped(
            str(settings.job.store),
            str(settings.job.model),
            str(settings.job.data),
            order=("model", "store", "data"),
        )
        require_names(settings.job.model, named_by="job.model")
        # Cases may name the split.
        require_inputs([str(settings.job.data)], whole=True, stores=[str(settings.job.store)])


def require_scaling(settings: ScalingSettings, *, resume: bool) -> None:
    """Check that a scaling experiment can start or resume."""
    require_stated(settings)
    _require_place(settings.scaling.out, SCALING, "scaling experiment", resume=resume)
    data = settings.data
    sources = data.listed(settings.job.data)
    corpora = filter(None, [data.corpus, *(source.corpus for source in sources)])
    require_inputs([*(source.path for source in sources), *filter(None, [data.validation])], corpora=corpora)
    require_tasks(settings.tasks)
    require_reachable(*(family.model for family in settings.models), named_by="models.model")


def many_blocks(model: str) -> int:
    """Number of blocks of a model that has not been loaded yet: larger than any requested number."""
    return 2**31


def lawless(settings: ScalingSettings) -> Iterator[str]:
    """What the runs lack for a law of each kind, as far as the settings tell: more budgets, sizes or seeds
    may be added later.
    """
    # Shares of frozen blocks differ for any large number of blocks.
    ways = ways_of(settings, many_blocks)
    kinds = dict.fromkeys(tried.way.kind for tried in ways)
    section = settings.scaling
    for kind in kinds:
        of_kind = [tried.way for tried in ways if tried.way.kind == kind]
        sizes = len({(way.model, way.blocks) for way in of_kind})
        runs = len(section.budgets) * len(section.seeds) * len(of_kind)
        lacking = []
        if runs < FEWEST_RUNS:
            lacking.append(f"at least {FEWEST_RUNS} runs, got {runs}")
        if sizes < 3:
            lacking.append(f"at least 3 sizes, got {sizes}")
        if len(section.budgets) == 1:
            lacking.append("several budgets, got 1")
        if lacking:
            yield (
                f"{kind}: these runs will give no law, which needs {' and '.join(lacking)}; "
                "add models, budgets or seeds"
            )


FEWEST_RUNS = SIZE_AND_TOKENS.coefficients + 1
"""Of a kind, for the law with the fewest coefficients."""


def require_stated(settings: ScalingSettings) -> None:
    """Refuse a scaling experiment without the settings that every one needs."""
    section, data = settings.scaling, settings.job.data or settings.data.sources
    required = {
        "scaling.out": section.out,
        "scaling.budgets": section.budgets,
        "models": settings.models,
        "job.data": data,
    }
    missing = [f"{name} must be given, got none" for name, value in required.items() if not value]
    if missing:
        raise ConfigError(
            f"{several(missing)}; write it into the file, or add {option('out')} for the directory"
        )
    require_names(*(family.model for family in settings.models), named_by="models.model")
    require_report(settings.measure.report)
    require_device_name(settings.run.device)


def _require_place(out: str | Path | None, table: str, name: str, *, resume: bool) -> None:
    folder = Path(str(out))
    require_begun(folder, name, begun=is_described(folder, table), resume=resume)


def require_plan(settings: PlanSettings) -> None:
    """Check the paths of a plan."""
    section = settings.plan
    require_device_name(settings.run.device)
    if section.out is not None:
        require_own(Path(section.out), "plan")
    # Without runs, the speed of this machine is measured with a model.
    is_timed = section.budget_seconds is not None and section.runs is None
    models = section.models or (["demo"] if is_timed else [])
    require_names(*models, named_by="plan.models")
    require_reachable(*models, named_by="plan.models")
