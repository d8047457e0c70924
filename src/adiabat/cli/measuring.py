"""The verb that compares two models from their scores: compare-runs."""

from pathlib import Path
from typing import Annotated

import typer

from adiabat.api.progress_display import say
from adiabat.cli.options import AsJson, Assignments, Config, Seed, command_line, settings_of, show


def compare_runs(
    first: Annotated[
        Path, typer.Argument(metavar="A", help="Scores that an evaluation kept of one model, or a run in the format of TREC.")
    ],
    second: Annotated[Path, typer.Argument(metavar="B", help="Likewise; it is compared with A.")],
    qrels: Annotated[
        Path | None, typer.Option("--qrels", metavar="FILE", help="Judgements for runs in the format of TREC.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Directory for result.json, page and tables; left out, the table is printed alone.", show_default=False),
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Compare two models query by query from what was kept of them, without the models."""
    from adiabat.config.tasks import CompareRunsSettings

    settings = settings_of(CompareRunsSettings, config, assignments, seed=seed)
    import adiabat

    found = adiabat.compare_runs(first, second, qrels=qrels, out=out, settings=settings, command=command_line())
    # Of what was kept, they were told when it was measured; what is said of runs is new.
    for sentence in (note for task in found.tasks for note in task.notes if qrels is not None):
        say(f"note: {sentence}")
    show(found, as_json=as_json, location=None if out is None else out / "report.html")
