"""Results: space."""

from pathlib import Path
from typing import Annotated

import typer

from adiabat.cli.options import AsJson, Assignments, Config, Device, Seed, Split, settings_of, show


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
