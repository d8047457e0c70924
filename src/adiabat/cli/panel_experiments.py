"""Experiments of many runs: sweep, scaling, plan, safe-rate."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from adiabat.api.call import say
from adiabat.cli.options import (
    AsJson,
    Assignments,
    Config,
    Device,
    ExistOk,
    ItsStore,
    Model,
    Resume,
    Seed,
    TuningData,
    answer,
    option,
    settings_of,
    short_for,
    show,
)
from adiabat.config.reader import SettingsError, assigned, in_file, read_table
from adiabat.core.errors import ConfigError


def sweep(
    spec: Annotated[
        Path,
        typer.Argument(metavar="SPEC.toml", help="A run of tune or train, with grid or variants, and tasks."),
    ],
    out: Annotated[Path | None, option("--out", "DIR", "Directory of the sweep (sweep.out).")] = None,
    resume: Resume = False,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Tune or train with every combination of settings, data sets or models, and rank them on the same
    tasks.
    """
    from adiabat.config.sweeps import SweepSettings, sweep_kind

    assignments = [*(assignments or ()), *short_for({"sweep.out": out})]
    kind = sweep_kind(assigned(assignments, read_table(spec, SweepSettings)))
    settings = settings_of(kind, spec, assignments, seed=seed, device=device)
    import adiabat

    try:
        result = adiabat.sweep(settings, resume=resume, exist_ok=exist_ok or None)
    except SettingsError as fault:
        raise in_file(fault, spec, "--set" if assignments else "") from None
    show(result, as_json=as_json, location=result.page)


def scaling(
    spec: Annotated[
        Path, typer.Argument(metavar="SPEC.toml", help="A run of train, with models, methods and budgets.")
    ],
    out: Annotated[Path | None, option("--out", "DIR", "Directory of the experiment (scaling.out).")] = None,
    resume: Resume = False,
    engine: Annotated[
        str | None,
        option("--engine", None, "process, or ray for a cluster (scaling.engine). Default: process."),
    ] = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Train every size with every method to every budget, and fit scaling laws to the losses."""
    from adiabat.config.budgets import ScalingSettings

    texts = {"scaling.out": out, "scaling.engine": engine}
    settings = settings_of(ScalingSettings, spec, assignments, seed=seed, device=device, texts=texts)
    import adiabat

    result = adiabat.scaling(settings, resume=resume, exist_ok=exist_ok or None)
    show(result, as_json=as_json, location=result.page)


def plan(
    budget: Annotated[
        str | None, option("--budget", "FLOP", "Training budget in FLOPs (plan.budget).")
    ] = None,
    seconds: Annotated[
        str | None,
        option(
            "--budget-time", "TIME", "Training time, such as 8h, at the speed of --runs, or of this machine."
        ),
    ] = None,
    runs: Annotated[
        Path | None, option("--runs", "DIR", "Directory of a scaling experiment (plan.runs).")
    ] = None,
    models: Annotated[
        list[str] | None, option("--model", "MODEL", "Candidate model if there are no runs; repeatable.")
    ] = None,
    data_tokens: Annotated[
        str | None, option("--data-tokens", "N", "Maximum training tokens (plan.data_tokens).")
    ] = None,
    memory: Annotated[
        str | None, option("--memory", "AMOUNT", "Memory of the device, such as 24GiB.")
    ] = None,
    out: Annotated[
        Path | None, option("--out", "DIR", "Directory for the page and train.toml (plan.out).")
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Recommend a model, a number of tokens and a method for a budget, with reasons, and write the
    RUN.toml.
    """
    from adiabat.config.budgets import PlanSettings

    numbers = {"plan.budget": budget, "plan.budget_seconds": seconds, "plan.data_tokens": data_tokens}
    texts = {"plan.runs": runs, "plan.memory": memory, "plan.out": out, "plan.models": models}
    settings = settings_of(
        PlanSettings, config, assignments, seed=seed, device=device, texts=texts, numbers=numbers
    )
    import adiabat
    from adiabat.report.scaling_page import run_toml

    result = adiabat.plan(settings=settings, exist_ok=exist_ok or None)
    show(result, as_json=as_json, location=None if settings.plan.out is None else result.page)
    if not as_json and settings.plan.out is None and result.advice is not None and result.advice.settings:
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


def safe_rate(
    model: Model,
    store: ItsStore,
    data: TuningData,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the search.")],
    probes: Annotated[
        str | None, option("--probes", "FILE", "Unlabelled texts (guard.probes). Default: those of adiabat.")
    ] = None,
    resume: Resume = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Find the largest learning rate at which the results of unlabelled probe texts stay within noise."""
    from adiabat.config.tuning import TuneSection, TuneSettings

    _require_free(assigned(assignments or ()), probes)
    # A settings file of tune works too, whatever its rate and guard.
    usual = f"tune.learning_rate={TuneSection().learning_rate}"
    assignments = [
        "guard=true",
        *(assignments or ()),
        *short_for({"guard.probes": probes}),
        'rate_search.kind="safe"',
        usual,
    ]
    settings = settings_of(TuneSettings, config, assignments, seed=seed, device=device)
    import adiabat
    from adiabat.api.experiment_verbs import replaced_notes

    for note in replaced_notes(config):
        say(note)
    result = adiabat.safe_rate(
        model, store, data, out, settings=settings, resume=resume, exist_ok=exist_ok or None
    )
    show(result, as_json=as_json, location=result.page)
