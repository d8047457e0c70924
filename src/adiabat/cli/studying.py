"""The verb that tunes over a grid of settings: study."""

import json
from pathlib import Path
from typing import Annotated

import typer

from adiabat.cli.options import AsJson, Assignments, Device, Seed, answer, command_line, settings_of
from adiabat.config import StudySettings
from adiabat.console import PEOPLE, watching


def study(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="A tuning run, with tables grid and tasks.")],
    out: Annotated[Path | None, typer.Option("--out", help="Short for --set study.out=DIR.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was cut short; values and seeds may be added.")] = False,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Tune with every combination of a grid of settings, measure each on the same tasks, and show how far is safe."""
    place = [] if out is None else [f"study.out={json.dumps(str(out))}"]
    settings = settings_of(StudySettings, spec, [*(assignments or ()), *place], seed=seed, device=device)
    from adiabat import api
    from adiabat.report.study_table import study_tables

    with watching() as watch:
        found = api.study(settings, resume=resume, command=command_line(), watch=watch)
    PEOPLE.print(study_tables(found))
    answer(found.to_json() if as_json else str(Path(str(settings.study.out)) / "report.html"))
