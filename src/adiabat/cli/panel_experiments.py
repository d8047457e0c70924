"""The verbs for experiments of many runs: sweep, scaling, plan, safe-rate."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from adiabat.api.progress_display import PEOPLE
from adiabat.cli.options import AsJson, Assignments, Config, Device, Seed, answer, settings_of, short_for
from adiabat.config.reader import assigned, read_table
from adiabat.core.errors import ConfigError


def sweep(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="A run, with tables grid, variants and tasks.")],
    out: Annotated[Path | None, typer.Option("--out", help="Short for --set sweep.out=DIR.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was cut short; values and seeds may be added.")] = False,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Tune or train with every combination of settings, data sets or models, measure each on the same tasks, and rank them."""
    from adiabat.config.sweeps import SweepSettings, sweep_kind

    every = [*(assignments or ()), *short_for({"sweep.out": out})]
    kind = sweep_kind(assigned(every, read_table(spec, SweepSettings)))
    settings = settings_of(kind, spec, every, seed=seed, device=device)
    import adiabat
    from adiabat.report.sweep_table import sweep_tables

    found = adiabat.sweep(settings, resume=resume)
    PEOPLE.print(sweep_tables(found))
    answer(found.to_json() if as_json else str(Path(str(settings.sweep.out)) / "report.html"))


def scaling(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="Models, methods and budgets, over a RUN.toml that all runs share.")],
    out: Annotated[Path | None, typer.Option("--out", help="Short for --set scaling.out=DIR.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was cut short; runs may be added.")] = False,
    engine: Annotated[str | None, typer.Option("--engine", help="process, or ray: over a cluster.", show_default=False)] = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train every size with every method to every budget, and fit how the loss goes with them."""
    from adiabat.config.budgets import ScalingSettings

    short = short_for({"scaling.out": out, "scaling.engine": engine})
    settings = settings_of(ScalingSettings, spec, [*(assignments or ()), *short], seed=seed, device=device)
    import adiabat
    from adiabat.report.summaries import terminal_tables

    found = adiabat.scaling(settings, resume=resume)
    PEOPLE.print(*terminal_tables(found))
    answer(found.to_json() if as_json else str(Path(str(settings.scaling.out)) / "report.html"))


def plan(
    budget: Annotated[str | None, typer.Option("--budget", metavar="FLOP", help="To be spent on training.", show_default=False)] = None,
    seconds: Annotated[
        str | None, typer.Option("--budget-time", metavar="TIME", help="Such as 8h, at the speed of the runs.", show_default=False)
    ] = None,
    runs: Annotated[Path | None, typer.Option("--runs", metavar="DIR", help="Of a scaling experiment.", show_default=False)] = None,
    models: Annotated[list[str] | None, typer.Option("--model", help="Asked where there are no runs; several may be given.")] = None,
    data_tokens: Annotated[str | None, typer.Option("--data-tokens", metavar="D", help="Most there are.", show_default=False)] = None,
    memory: Annotated[str | None, typer.Option("--memory", metavar="AMOUNT", help="Such as 24GiB.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Directory for the page and train.toml.", show_default=False)] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Say which model, how many tokens and which method a budget is best spent on, with reasons, and write the RUN.toml."""
    from adiabat.config.budgets import PlanSettings

    numbers = {
        "plan.budget": budget,
        "plan.budget_seconds": seconds,
        "plan.data_tokens": data_tokens,
        "plan.models": json.dumps(models) if models else None,
    }
    short = short_for({"plan.runs": runs, "plan.memory": memory, "plan.out": out}, numbers)
    settings = settings_of(PlanSettings, config, [*(assignments or ()), *short], seed=seed, device=device)
    import adiabat
    from adiabat.report.scaling_page import run_toml
    from adiabat.report.summaries import terminal_tables

    found = adiabat.plan(settings=settings)
    PEOPLE.print(*terminal_tables(found))
    if as_json:
        answer(found.to_json())
    elif settings.plan.out is not None:
        answer(str(Path(settings.plan.out) / "report.html"))
    elif found.advice is not None and found.advice.settings:
        answer(run_toml(found.advice))


def _require_free(table: Mapping[str, Any], probes: str | None) -> None:
    """Refuse what --set says and safe-rate decides."""
    tune, guard = (found if isinstance(found := table.get(name), Mapping) else {} for name in ("tune", "guard"))
    if "learning_rate" in tune:
        raise ConfigError(
            "tune.learning_rate is what safe-rate looks for, got it by --set; leave it out, and see ladder.low and ladder.high"
        )
    if guard.get("use") is False:
        raise ConfigError("guard.use must be true for safe-rate, which looks at drift, got false by --set; leave it out")
    if probes is not None and "probes" in guard:
        raise ConfigError(f"guard.probes must be given once, got {guard['probes']} by --set and {probes} by --probes; leave one out")


def safe_rate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Where the query tower starts.")],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Document vectors of this model.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Queries with positives and perhaps negatives.")],
    out: Annotated[Path, typer.Option("--out", help="Directory of the search.")],
    probes: Annotated[str | None, typer.Option("--probes", help="Unlabelled texts, in place of our own.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was cut short; rates and seeds may be added.")] = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Find the largest learning rate at which what unlabelled probe texts find stays within noise."""
    from adiabat.config.tuning import TuneSettings

    _require_free(assigned(assignments or ()), probes)
    # The same file as for tune serves, whatever rate it names.
    every = ["guard.use=true", *(assignments or ()), *short_for({"guard.probes": probes}), 'tune.learning_rate="safe"']
    settings = settings_of(TuneSettings, config, every, seed=seed, device=device)
    import adiabat
    from adiabat.report.summaries import terminal_tables

    found = adiabat.safe_rate(model, store, data, out, settings=settings, resume=resume)
    PEOPLE.print(*terminal_tables(found))
    answer(found.to_json() if as_json else str(out / "report.html"))
