"""The verbs that say what to train for a budget: sweep, plan."""

import json
from pathlib import Path
from typing import Annotated

import typer

from adiabat.cli.console import PEOPLE, watching
from adiabat.cli.options import AsJson, Assignments, Config, Device, Seed, answer, command_line, settings_of, short_for


def sweep(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="Models, methods and budgets, over a RUN.toml that all runs share.")],
    out: Annotated[Path | None, typer.Option("--out", help="Short for --set sweep.out=DIR.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was cut short; runs may be added.")] = False,
    engine: Annotated[str | None, typer.Option("--engine", help="process, or ray: over a cluster.", show_default=False)] = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train every size with every method to every budget, and fit how the loss goes with them."""
    from adiabat.config.budgets import SweepSettings

    short = short_for({"sweep.out": out, "sweep.engine": engine})
    settings = settings_of(SweepSettings, spec, [*(assignments or ()), *short], seed=seed, device=device)
    import adiabat
    from adiabat.report.scaling_table import sweep_tables

    with watching() as watch:
        found = adiabat.sweep(settings, resume=resume, command=command_line(), watch=watch)
    PEOPLE.print(sweep_tables(found))
    answer(found.to_json() if as_json else str(Path(str(settings.sweep.out)) / "report.html"))


def plan(
    budget: Annotated[str | None, typer.Option("--budget", metavar="FLOP", help="To be spent on training.", show_default=False)] = None,
    seconds: Annotated[
        str | None, typer.Option("--budget-time", metavar="TIME", help="Such as 8h, at the speed of the runs.", show_default=False)
    ] = None,
    runs: Annotated[Path | None, typer.Option("--runs", metavar="DIR", help="Of a sweep.", show_default=False)] = None,
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
    from adiabat.report.scaling_files import run_toml
    from adiabat.report.scaling_table import sweep_tables

    with watching() as watch:
        found = adiabat.plan(settings, command=command_line(), watch=watch)
    PEOPLE.print(sweep_tables(found))
    if as_json:
        answer(found.to_json())
    elif settings.plan.out is not None:
        answer(str(Path(settings.plan.out) / "report.html"))
    elif found.advice is not None and found.advice.settings:
        answer(run_toml(found.advice))
