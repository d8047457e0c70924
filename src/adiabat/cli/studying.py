"""The verbs that ask how far a query tower can be tuned: study, safe-rate."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from adiabat.cli.console import PEOPLE, watching
from adiabat.cli.options import AsJson, Assignments, Config, Device, Seed, answer, command_line, settings_of, short_for
from adiabat.config.reader import assigned
from adiabat.core.errors import ConfigError


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
    from adiabat.config.sweeps import StudySettings

    settings = settings_of(StudySettings, spec, [*(assignments or ()), *short_for({"study.out": out})], seed=seed, device=device)
    import adiabat
    from adiabat.report.sweep_table import study_tables

    with watching() as watch:
        found = adiabat.study(settings, resume=resume, command=command_line(), watch=watch)
    PEOPLE.print(study_tables(found))
    answer(found.to_json() if as_json else str(Path(str(settings.study.out)) / "report.html"))


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
    from adiabat.report.rate_search_table import safe_rate_table

    with watching() as watch:
        found = adiabat.safe_rate(model, store, data, out, settings=settings, resume=resume, command=command_line(), watch=watch)
    PEOPLE.print(safe_rate_table(found))
    answer(found.to_json() if as_json else str(out / "report.html"))
