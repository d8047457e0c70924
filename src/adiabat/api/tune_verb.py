"""`adiabat.tune`: a query tower tuned against stored vectors."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adiabat.adiabatic.tune_checks import inputs_of, require_ready
from adiabat.api.arguments import Data, PathLike, SettingsLike, data_of, path_of, require_model, settings_of
from adiabat.api.call import Progress, called
from adiabat.config.tuning import TuneSettings
from adiabat.results.evaluation_result import Result

if TYPE_CHECKING:
    from adiabat.models.model_names import Model


def tune(
    model: "Model",
    store: PathLike,
    data: Data,
    out: PathLike,
    *,
    resume: bool = False,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Tune a query tower against stored document vectors, which stay as they are (Vasilyev et al. 2024).

    Args:
        model: Where tuning starts.
        store: Document vectors of that model.
        data: Queries with positives and, where the data has them, negatives, as document ids or texts: a file, a BEIR folder, or rows
            such as ``{"query": ..., "pos": [...], "neg": [...]}``.
        out: Directory of the job; afterwards a model.
        resume: Continue an interrupted job, or one that ended, to another end.
        settings: `TuneSettings`, a TOML file or nested dicts; ``adiabat settings tune`` lists them.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.
        **options: Single settings, such as ``negatives="hardest"``, ``learning_rate=2e-6``, ``batch_size=14``, ``max_epochs=20``,
            ``validation="dev.jsonl"``, ``device="cuda"`` or ``seed=1``.

    Returns:
        The record of the run, which other functions take as the tuned model.

    Raises:
        AdiabatError: If model, store, data, settings or directory are unusable, or the loss diverges.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> job = adiabat.tune("demo", store, "train.jsonl", out="job", negatives="hardest", max_epochs=1, batches_per_epoch=2)
        >>> job.training.steps
        2
    """
    chosen = settings_of(TuneSettings, settings, options, section="tune", function="tune")
    require_model(model, "model")
    folder, source = Path(path_of(out, "out")), data_of(data, "data")
    if isinstance(model, str):
        require_ready(inputs_of(model, path_of(store, "store"), source), folder, settings=chosen, resume=resume)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.adiabatic.tune import tune as run_tuning
    from adiabat.models.model_names import load, name_of

    find_rate = None
    if chosen.tune.learning_rate == "safe":
        # The search stands above tuning, which cannot import it.
        from adiabat.experiments.rate_search import rate_for_run

        find_rate = rate_for_run
    with called("tune", progress) as call:
        result = run_tuning(
            lambda: load(model, settings=chosen.encoder),
            Path(path_of(store, "store")),
            source,
            folder,
            settings=chosen,
            model_name=name_of(model),
            find_rate=find_rate,
            resume=resume,
            command=call.command,
            watch=call.watch,
        )
    return replace(result, folder=folder)
