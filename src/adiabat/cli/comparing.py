"""The verb that compares candidates by training them: compare."""

import json
from pathlib import Path
from typing import Annotated

import typer

from adiabat.api.progress_display import PEOPLE, shown_progress
from adiabat.cli.options import AsJson, Assignments, Device, answer, command_line, settings_of


def compare(
    kind: Annotated[str, typer.Argument(metavar="data|backbones", help="What candidates differ in.")],
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="A RUN.toml for all, with tables candidates and tasks.")],
    out: Annotated[Path | None, typer.Option("--out", help="Short for --set compare.out=DIR.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was cut short; candidates and seeds may be added.")] = False,
    assignments: Assignments = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train each data set or backbone for the same short run, measure all on the same tasks, and rank them with intervals."""
    from adiabat.config.comparison_settings import comparison_of

    place = [] if out is None else [f"compare.out={json.dumps(str(out))}"]
    settings = settings_of(comparison_of(kind), spec, [*(assignments or ()), *place], device=device)
    import adiabat
    from adiabat.report.comparison_table import comparison_tables

    with shown_progress() as watch:
        found = adiabat.compare(settings, resume=resume, command=command_line(), watch=watch)
    PEOPLE.print(comparison_tables(found))
    answer(found.to_json() if as_json else str(Path(str(settings.compare.out)) / "report.html"))
