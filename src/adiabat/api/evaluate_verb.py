"""`adiabat.evaluate`: a model measured against a baseline."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adiabat.api.arguments import Data, PathLike, SettingsLike, data_of, optional_path, path_of, require_model, settings_of, wrong_type
from adiabat.api.call import Progress, called
from adiabat.config.shared import EvaluateSettings
from adiabat.evaluation.evaluate import evaluate_datasets, read_dataset
from adiabat.evaluation.score_files import refuse_foreign_scores, replacing_scores
from adiabat.evaluation.systems import open_baseline_stores
from adiabat.models.model_names import Model, load, name_of
from adiabat.models.towers import DualEncoder
from adiabat.models.trained_file import trained_by
from adiabat.results.evaluation_result import Result, TrainingRecord
from adiabat.results.record import read_result
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed
from adiabat.runs.run_config import is_job
from adiabat.runs.run_dir import Job
from adiabat.stats.ranking_measures import require_relevant_only
from adiabat.stats.samples import TaskScores
from adiabat.store.vector_store import Store, refuse_swapped


def evaluate(
    model: Model,
    store: PathLike,
    data: Data,
    *,
    baseline: Model | None = None,
    baseline_stores: Sequence[PathLike] = (),
    retain: Sequence[tuple[PathLike, Data]] = (),
    split: str | None = None,
    out: PathLike | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Measure a model on a data set, against a baseline, and on retention sets that must not get worse.

    Args:
        model: Model under test.
        store: Document vectors of its document tower.
        data: The target: queries with positives.
        baseline: Model to compare with.
        baseline_stores: Document vectors of the baseline, if its document tower differs: of the target, then of the retention sets.
        retain: Store and data of each retention set.
        split: Of the target; None takes ``data.split`` of the settings, else ``test``.
        out: Directory for ``result.json``, ``report.html`` and, in ``scores``, the scores of each query; None writes nothing.
        settings: `EvaluateSettings`, a TOML file or nested dicts; ``adiabat settings evaluate`` lists them.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.
        **options: Single settings, such as ``measures=["nDCG@10"]``, ``negatives="store"`` or ``device="cuda"``.

    Returns:
        The result; of a job, with the record of its tuning.

    Raises:
        AdiabatError: If models, stores, data, settings or directory are unusable.
        TypeError: If an argument has a type that is not listed, or a setting is unknown.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> evaluation = adiabat.evaluate("demo", store, "test.jsonl", out="evaluation", resamples=100)
        >>> evaluation.datasets[0].queries
        20
        >>> evaluation.page.name
        'report.html'
    """
    chosen = settings_of(EvaluateSettings, settings, options, section="measure", function="evaluate")
    models = [model] if baseline is None else [model, baseline]
    for entry, argument in zip(models, ("model", "baseline"), strict=False):
        require_model(entry, argument)
    if isinstance(baseline_stores, str | os.PathLike) or not isinstance(baseline_stores, Sequence):
        raise wrong_type("baseline_stores", "a list of stores", baseline_stores)
    if not isinstance(retain, Sequence) or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in retain):
        raise wrong_type("retain", "a list of pairs of a store and its data", retain)
    # Measures and the job's record are checked before anything is read.
    require_relevant_only(chosen.measure.measures)
    tuning = _training_record(model)
    refuse_swapped(path_of(store, "store"), model, data, order="MODEL STORE DATA")
    others = open_baseline_stores([path_of(entry, "baseline_stores") for entry in baseline_stores], baseline=baseline is not None)
    sets = [(path_of(path, "store"), data_of(rows, "data")) for path, rows in [(store, data), *retain]]
    stores = {path: Store.open(path) for path in dict.fromkeys(path for path, _ in sets)}
    splits = [split or chosen.data.split, *[None] * len(retain)]
    datasets = [
        read_dataset(
            stores[path], rows, role="retain" if number else "target", split=splits[number], settings=chosen, baseline_stores=others
        )
        for number, (path, rows) in enumerate(sets)
    ]
    with called("evaluate", progress) as call, claimed(optional_path(out, "out")) as folder:
        if folder:
            refuse_foreign_scores(folder)
        loaded = [load(entry, settings=chosen.encoder, device=chosen.run.device) for entry in models]
        scores: list[tuple[str, TaskScores]] = []
        result = evaluate_datasets(
            loaded[0],
            None if baseline is None else loaded[1],
            datasets,
            trained=[trained_by(name_of(entry)) for entry in models],
            settings=chosen,
            title=f"{loaded[0].name} on {datasets[0].examples.name}",
            command=call.command,
            watch=call.watch,
            save_scores=scores.append,
        )
        result = replace(result, training=tuning, folder=folder)
        if folder:
            if (folder / "result.json").exists():
                call.watch.note(f"the evaluation that stood in {folder} is replaced")
            with replacing_scores(scores, folder, models={"model": loaded[0].name, "baseline": "" if baseline is None else loaded[1].name}):
                write_report(result, folder)
    return result


def _training_record(model: Model) -> TrainingRecord | None:
    """What the job did that a model came from; None where nothing of it is left but the model."""
    if isinstance(model, DualEncoder) or not is_job(Path(model)):
        return None
    written = Job(Path(model)).result
    return read_result(written, Result).training if written.exists() else None
