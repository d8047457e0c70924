"""The verb that describes an embedding space: space."""

from pathlib import Path
from typing import Annotated

import typer

from adiabat.cli.console import PEOPLE, watching
from adiabat.cli.options import AsJson, Assignments, Config, Device, Seed, answer, command_line, settings_of


def space(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Under test.")],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Document vectors of its document tower.")],
    queries: Annotated[str, typer.Argument(metavar="QUERIES", help="Queries with positives in the store.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for result.json, report.html, table.csv and table.md.")],
    split: Annotated[str | None, typer.Option("--split", help="Short for --set data.split=NAME.", show_default=False)] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="MODEL", help="Compare with this model.", show_default=False)
    ] = None,
    baseline_store: Annotated[
        Path | None,
        typer.Option(
            "--baseline-store",
            metavar="STORE",
            help="The documents by the baseline's document tower, if it has its own.",
            show_default=False,
        ),
    ] = None,
    draw_map: Annotated[bool, typer.Option("--map", help="Draw a map of both towers; short for --set space.map=true.")] = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Describe how the vectors of both towers lie: separation, uniformity, alignment, anisotropy, before and after."""
    from adiabat.config.tasks import SpaceSettings

    wanted = [*(assignments or ()), *(["space.map=true"] if draw_map else [])]
    settings = settings_of(SpaceSettings, config, wanted, seed=seed, device=device, split=split)
    import adiabat
    from adiabat.report.space_table import space_table

    with watching() as watch:
        found = adiabat.space(
            model,
            store,
            queries,
            baseline=baseline,
            baseline_store=baseline_store,
            out=out,
            settings=settings,
            command=command_line(),
            watch=watch,
        )
    PEOPLE.print(space_table(found))
    answer(found.to_json() if as_json else str(out / "report.html"))
