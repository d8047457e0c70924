"""Results: compare, space."""

from pathlib import Path
from typing import Annotated

import typer

from adiabat.api.progress_display import say
from adiabat.cli.options import AsJson, Assignments, Config, Device, Seed, Split, settings_of, show


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="Baseline: scores that an evaluation saved of one model, or a TREC run.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Model that is compared with A, likewise.")],
    qrels: Annotated[Path | None, typer.Option("--qrels", metavar="FILE", help="Judgements for TREC runs.", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Directory for result.json, page and tables. Default: only the table is printed.",
            show_default=False,
        ),
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Compare two models query by query from their saved scores, without loading the models."""
    from adiabat.config.tasks import CompareSettings

    settings = settings_of(CompareSettings, config, assignments, seed=seed)
    import adiabat

    result = adiabat.compare(first, second, qrels=qrels, out=out, settings=settings)
    # Notes on saved scores were printed when they were measured; those on TREC runs are new.
    for sentence in (note for task in result.tasks for note in task.notes if qrels is not None):
        say(f"note: {sentence}")
    show(result, as_json=as_json, location=None if out is None else result.page)


def space(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model under test.")],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Document vectors of its document tower.")],
    queries: Annotated[str, typer.Argument(metavar="QUERIES", help="Queries with positives in the store.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for result.json, report.html, table.csv and table.md.")],
    split: Split = None,
    baseline: Annotated[str | None, typer.Option("--baseline", metavar="MODEL", help="Model to compare with.", show_default=False)] = None,
    baseline_store: Annotated[
        Path | None,
        typer.Option(
            "--baseline-store",
            metavar="STORE",
            help="Document vectors of the baseline, if its document tower differs.",
            show_default=False,
        ),
    ] = None,
    draw_map: Annotated[bool, typer.Option("--map", help="Draw a map of both towers (space.map=true; extra maps).")] = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Measure how query and document vectors are spread: separation, uniformity, alignment and anisotropy."""
    from adiabat.config.tasks import SpaceSettings

    numbers = {"space.map": "true" if draw_map else None}
    settings = settings_of(SpaceSettings, config, assignments, seed=seed, device=device, split=split, numbers=numbers)
    import adiabat

    result = adiabat.space(model, store, queries, baseline=baseline, baseline_store=baseline_store, out=out, settings=settings)
    show(result, as_json=as_json, location=result.page)
