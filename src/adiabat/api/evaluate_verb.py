"""`adiabat.evaluate`: a model measured against a baseline."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from adiabat.config.shared import EvaluateSettings
from adiabat.core.progress import SILENT, Watch
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
    store: str | Path,
    data: str | Path,
    *,
    baseline: Model | None = None,
    baseline_stores: Sequence[str | Path] = (),
    retain: Sequence[tuple[str | Path, str | Path]] = (),
    split: str | None = None,
    out: str | Path | None = None,
    settings: EvaluateSettings | None = None,
    command: str = "adiabat.evaluate(...)",
    watch: Watch = SILENT,
) -> Result:
    """Measure a model on a data set, against a baseline, and on retention sets that must not get worse.

    Args:
        model: Under test.
        store: Document vectors of its document tower.
        data: The target data set.
        baseline: What it is compared with.
        baseline_stores: Where its own document tower, if it is another than the model's, stored the documents of the target and of the
            retention sets: in the same order.
        retain: (store, data) of each retention set.
        split: Of the target; None takes ``data.split`` of the settings, or the usual one.
        out: Directory for ``result.json``, ``report.html`` and, in ``scores``, what was scored on each query; None writes nothing.
        settings: None takes the defaults.
        command: For the report.
        watch: Whom to tell.

    Returns:
        The result; where `model` is a job, with the record of its tuning.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or EvaluateSettings()
    # A measure that cannot be had is refused before anything is read.
    require_relevant_only(settings.measure.measures)
    # So is a damaged record of the job.
    tuning = _training_record(model)
    refuse_swapped(store, model, data, order="MODEL STORE DATA")
    others = open_baseline_stores(baseline_stores, baseline=baseline is not None)
    # Data sets of one store share it.
    stores = {str(place): Store.open(place) for place in dict.fromkeys([str(store), *(str(place) for place, _ in retain)])}
    read = partial(read_dataset, settings=settings, baseline_stores=others)
    target = read(stores[str(store)], str(data), role="target", split=split or settings.data.split)
    datasets = [target, *(read(stores[str(place)], str(what), role="retain", split=None) for place, what in retain)]
    with claimed(None if out is None else Path(out)) as folder:
        if folder:
            refuse_foreign_scores(folder)
        tested = load(model, settings=settings.encoder, device=settings.run.device)
        before = None if baseline is None else load(baseline, settings=settings.encoder, device=settings.run.device)
        title = f"{tested.name} on {datasets[0].examples.name}"
        kept: list[tuple[str, TaskScores]] = []
        asked: dict[str, Any] = {"settings": settings, "title": title, "command": command, "watch": watch, "save_scores": kept.append}
        trained = [trained_by(name_of(one)) for one in (model, baseline) if one is not None]
        result = evaluate_datasets(tested, before, datasets, trained=trained, **asked)
        result = replace(result, training=tuning)
        if folder:
            if (folder / "result.json").exists():
                watch.note(f"the evaluation that stood in {folder} is replaced")
            with replacing_scores(kept, folder, models={"model": tested.name, "baseline": before.name if before else ""}):
                write_report(result, folder)
    return result


def _training_record(model: Model) -> TrainingRecord | None:
    """What the job did that a model came from; None where nothing of it is left but the model."""
    if isinstance(model, DualEncoder) or not is_job(Path(model)):
        return None
    written = Job(Path(model)).result
    return read_result(written, Result).training if written.exists() else None
