"""`adiabat.safe_rate`: the largest learning rate without measurable drift."""

from pathlib import Path

from adiabat.config.reader import checked
from adiabat.config.tuning import TuneSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.experiments.rate_search import safe_rate as find_safe_rate
from adiabat.models.model_names import Model, load, name_of
from adiabat.results.rate_search_result import SafeRate


def safe_rate(
    model: Model,
    store: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    settings: TuneSettings | None = None,
    resume: bool = False,
    command: str = "adiabat.safe_rate(...)",
    watch: Watch = SILENT,
) -> SafeRate:
    """Find the largest rate at which what unlabelled probes find stays within noise; see `adiabat.experiments.rate_search.safe_rate`.

    Args:
        model: Where tuning starts.
        store: Document vectors of that model.
        data: (query, positives, negatives) that are to be tuned on.
        out: Directory of the search.
        settings: With ``tune.learning_rate = "safe"``; None takes that and the default regime.
        resume: Go on with a search that was cut short; rates and seeds may have been added.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What was found, as in ``result.json``.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or checked(TuneSettings, {"tune": {"learning_rate": "safe"}})
    return find_safe_rate(
        lambda: load(model, settings=settings.encoder),
        Path(store),
        str(data),
        Path(out),
        settings=settings,
        model_name=name_of(model),
        resume=resume,
        command=command,
        watch=watch,
    )
