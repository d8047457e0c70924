"""`adiabat.tune`: a query tower tuned against stored vectors."""

from collections.abc import Mapping
from pathlib import Path

from adiabat.adiabatic.tune import tune as run_tuning
from adiabat.adiabatic.tuning_context import Ground
from adiabat.config.tuning import TuneSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.models.model_names import Model, load, name_of
from adiabat.results.evaluation_result import Result


def tune(
    model: Model,
    store: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    settings: TuneSettings | None = None,
    resume: bool = False,
    command: str = "adiabat.tune(...)",
    watch: Watch = SILENT,
) -> Result:
    """Tune a query tower against the stored vectors of the document tower; see `adiabat.adiabatic.tune.tune`.

    Args:
        model: Where tuning starts.
        store: Document vectors of that model.
        data: (query, positives, negatives).
        out: Directory of the job, afterwards a MODEL.
        settings: None takes the default regime.
        resume: Go on with a job that was cut short.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What the run did, as in ``result.json``.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or TuneSettings()
    return run_tuning(
        lambda: load(model, settings=settings.encoder),
        Path(store),
        str(data),
        Path(out),
        settings=settings,
        model_name=name_of(model),
        find_rate=_find_rate if settings.tune.learning_rate == "safe" else None,
        resume=resume,
        command=command,
        watch=watch,
    )


def _find_rate(ground: Ground, inputs: Mapping[str, str], folder: Path, settings: TuneSettings, watch: Watch) -> TuneSettings:
    """The search stands above tuning, and is loaded by runs that ask for it."""
    from adiabat.experiments.rate_search import rate_for_run

    return rate_for_run(ground, inputs, folder, settings, watch)
