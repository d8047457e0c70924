"""`adiabat.safe_rate`: the largest learning rate without measurable drift."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from adiabat.api.arguments import Data, PathLike, SettingsLike, data_of, path_of, require_model, settings_of
from adiabat.api.call import Progress, called
from adiabat.config.tuning import TuneSettings
from adiabat.experiments.rate_search import safe_rate as find_safe_rate
from adiabat.models.model_names import Model, load, name_of
from adiabat.results.rate_search_result import SafeRate


def safe_rate(
    model: Model,
    store: PathLike,
    data: Data,
    out: PathLike,
    *,
    resume: bool = False,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> SafeRate:
    """Find the largest learning rate at which the answers to unlabelled probe texts drift no more than noise.

    Args:
        model: Where tuning starts.
        store: Document vectors of that model.
        data: Queries with positives and perhaps negatives that are to be tuned on.
        out: Directory of the search.
        resume: Continue an interrupted search; rates and seeds may have been added.
        settings: `TuneSettings`, a TOML file or nested dicts; ``adiabat settings safe-rate`` lists them.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.
        **options: Single settings, such as ``rate_search={"low": 1e-7, "high": 1e-4}`` or ``device="cuda"``.

    Returns:
        The result, with a row for each trial.

    Raises:
        AdiabatError: If model, store, data, settings or directory are unusable.
        TypeError: If an argument has a type that is not listed, or a setting is unknown.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> rates = {"low": 1e-7, "high": 1e-6, "count": 2, "steps": 2, "looks": 1}
        >>> result = adiabat.safe_rate("demo", store, "train.jsonl", "search", rate_search=rates, guard={"use": True, "depth": 10})
        >>> len(result.rates)
        2
    """
    tune = options.get("tune")
    if not (isinstance(tune, Mapping) and "learning_rate" in tune):
        options = {"learning_rate": "safe", **options}
    chosen = settings_of(TuneSettings, settings, options, section="tune", function="safe_rate")
    require_model(model, "model")
    folder = Path(path_of(out, "out"))
    with called("safe_rate", progress) as call:
        result = find_safe_rate(
            lambda: load(model, settings=chosen.encoder),
            Path(path_of(store, "store")),
            data_of(data, "data"),
            folder,
            settings=chosen,
            model_name=name_of(model),
            resume=resume,
            command=call.command,
            watch=call.watch,
        )
    return replace(result, folder=folder)
