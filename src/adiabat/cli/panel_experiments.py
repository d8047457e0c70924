"""Experiments of many runs: sweep, scaling, plan, safe-rate."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import adiabat
from adiabat.api.call import say
from adiabat.cli.options import (
    AS_JSON,
    DEVICE,
    EXIST_OK,
    RESUME,
    SEED,
    SET,
    TUNING_INPUTS,
    USUAL,
    Given,
    answer,
    argument,
    number,
    required,
    setting,
    show,
    verb,
)
from adiabat.config.reader import SettingsError, assigned, in_file, read_settings, read_table
from adiabat.core.errors import ConfigError


@verb(
    argument("SPEC.toml", "A run of tune or train, with grid or variants, and tasks.", Path, name="config"),
    setting("sweep.out", "--out", "DIR", "Directory of the sweep (sweep.out).", Path),
    RESUME,
    SET,
    SEED,
    DEVICE,
    EXIST_OK,
    AS_JSON,
)
def sweep(given: Given) -> None:
    """Tune or train with every combination of settings, data sets or models, and rank them on the same
    tasks.
    """
    from adiabat.config.sweeps import SweepSettings, sweep_kind

    assignments = given.assignments()
    table = read_table(given.config, SweepSettings)
    # The verb of the runs decides which settings a sweep has, so it is read first.
    settings = given.settings(sweep_kind(assigned(assignments, table)))

    try:
        result = adiabat.sweep(settings, resume=given.resume, exist_ok=given.exist_ok)
    # Every run of the grid is checked by itself; its faults come from the same file.
    except SettingsError as fault:
        raise in_file(fault, given.config, "--set" if assignments else "") from None
    show(result, given, result.page)


@verb(
    argument("SPEC.toml", "A run of train, with models, methods and budgets.", Path, name="config"),
    setting("scaling.out", "--out", "DIR", "Directory of the experiment (scaling.out).", Path),
    RESUME,
    setting(
        "scaling.engine",
        "--engine",
        None,
        "process, or ray for a cluster (scaling.engine). Default: process.",
    ),
    SET,
    SEED,
    DEVICE,
    EXIST_OK,
    AS_JSON,
)
def scaling(given: Given) -> None:
    """Train every size with every method to every budget, and fit scaling laws to the losses."""
    from adiabat.config.budgets import ScalingSettings

    settings = given.settings(ScalingSettings)

    result = adiabat.scaling(settings, resume=given.resume, exist_ok=given.exist_ok)
    show(result, given, result.page)


@verb(
    number("plan.budget", "--budget", "FLOP", "Training budget in FLOPs (plan.budget)."),
    number(
        "plan.budget_seconds",
        "--budget-time",
        "TIME",
        "Training time, such as 8h, at the speed of --runs, or of this machine.",
    ),
    setting("plan.runs", "--runs", "DIR", "Directory of a scaling experiment (plan.runs).", Path),
    setting(
        "plan.models", "--model", "MODEL", "Candidate model if there are no runs; repeatable.", list[str]
    ),
    number("plan.data_tokens", "--data-tokens", "N", "Maximum training tokens (plan.data_tokens)."),
    setting("plan.memory", "--memory", "AMOUNT", "Memory of the device, such as 24GiB."),
    setting("plan.out", "--out", "DIR", "Directory for the page and train.toml (plan.out).", Path),
    *USUAL,
)
def plan(given: Given) -> None:
    """Recommend a model, a number of tokens and a method for a budget, with reasons, and write the
    RUN.toml.
    """
    from adiabat.config.budgets import PlanSettings

    settings = given.settings(PlanSettings)
    from adiabat.report.scaling_page import run_toml

    result = adiabat.plan(settings=settings, exist_ok=given.exist_ok)
    # Without a directory, the settings of the recommended run go to stdout, for a file.
    is_written = settings.plan.out is not None
    show(result, given, result.page if is_written else None)
    if not (given.json or is_written) and result.advice is not None and result.advice.settings:
        answer(run_toml(result.advice))


def _require_free(table: Mapping[str, Any], probes: str | None) -> None:
    """Refuse --set for settings that safe-rate decides."""
    tune, guard = (
        section if isinstance(section := table.get(name), Mapping) else {} for name in ("tune", "guard")
    )
    if "learning_rate" in tune:
        raise ConfigError(
            "safe-rate searches for tune.learning_rate, got it by --set; leave it out, "
            "or set rate_search.low and rate_search.high"
        )
    if probes is not None and "probes" in guard:
        raise ConfigError(
            f"guard.probes must be given once, got {guard['probes']} by --set "
            f"and {probes} by --probes; leave one out"
        )


@verb(
    *TUNING_INPUTS,
    required("--out", "DIR", "Directory of the search."),
    setting(
        "guard.probes", "--probes", "FILE", "Unlabelled texts (guard.probes). Default: those of adiabat."
    ),
    RESUME,
    *USUAL,
)
def safe_rate(given: Given) -> None:
    """Find the largest learning rate at which the results of unlabelled probe texts stay within noise."""
    from adiabat.config.tuning import TuneSection, TuneSettings

    _require_free(assigned(given.set or ()), given.probes)
    # A settings file of tune works too, whatever its rate and guard.
    usual = f"tune.learning_rate={TuneSection().learning_rate}"
    # The user may override the first, and none of the last two.
    assignments = ["guard=true", *given.assignments(), 'rate_search.kind="safe"', usual]
    settings = read_settings(TuneSettings, given.config, assignments)
    from adiabat.api.experiment_verbs import replaced_notes

    for note in replaced_notes(given.config):
        say(note)
    result = adiabat.safe_rate(
        given.model,
        given.store,
        given.data,
        given.out,
        settings=settings,
        resume=given.resume,
        exist_ok=given.exist_ok,
    )
    show(result, given, result.page)
