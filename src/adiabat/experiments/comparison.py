"""A comparison from its settings to its report: checked, trained, measured, ranked; what was cut short goes on where it was."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adiabat.config.comparison_settings import CompareSettings, TaskSection
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import keys_of
from adiabat.core.progress import SILENT, Watch
from adiabat.dual_encoder.tower_setup import Loader
from adiabat.dual_encoder.train_checks import FREE_MEMORY
from adiabat.evaluation.retrieval_data import RetrievalTaskData, read_retrieval_tasks
from adiabat.experiments.comparison_outcome import outcome_of
from adiabat.experiments.comparison_rows import ROWS, rows_at
from adiabat.experiments.comparison_runs import Grid
from adiabat.experiments.comparison_spec import Candidate, candidates_of
from adiabat.results.comparison_result import Comparison
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed_for_jobs, require_begun
from adiabat.runs.run_config import FREE_RUNS, Rules, description_of, is_described, require_same, without_none
from adiabat.runs.run_dir import Job


def compare(load: Loader, settings: CompareSettings, *, resume: bool = False, command: str = "", watch: Watch = SILENT) -> Comparison:
    """Train every candidate with every seed for the same short run, measure all on the same tasks, and rank them.

    The directory holds ``config.toml`` (as resolved), ``runs.jsonl`` (a row for each finished run), ``runs/NAME/seed-N`` (a job each),
    ``result.json`` and ``report.html``.
    """
    candidates = candidates_of(settings)
    folder = Path(str(settings.compare.out))
    going_on = is_described(folder, "candidates")
    if note := require_begun(folder, "comparison", begun=going_on, resume=resume):
        watch.note(note)
    tasks = read_retrieval_tasks(settings.tasks, watch)
    wanted = _description(settings, candidates, tasks)

    def description() -> dict[str, Any]:
        return _same(folder, wanted, _defaults(settings, wanted)) if going_on else wanted

    # Refused before data are read.
    description()
    grid = Grid(folder, settings, candidates, tasks, rows_at(folder / ROWS), load, command, watch)
    grid.read_data()
    with claimed_for_jobs(folder, description, begun=going_on):
        # Another process may have added some.
        grid.rows = rows_at(folder / ROWS)
        grid.work()
        found = outcome_of(grid)
        write_report(found, folder)
    return found


def _description(settings: CompareSettings, candidates: list[Candidate], tasks: list[RetrievalTaskData]) -> dict[str, Any]:
    """Everything that decides what runs give. It has no table ``[job]``: the directory is no job, and has some inside."""
    exclude: dict[str, Any] = {"job": {"out"}, "run": {"seed"}, "digests": True}
    shared = settings.compare.model_dump(exclude={"out", "seeds", "keep_models"})
    return without_none(
        {
            "compare": {"kind": settings.kind, **shared},
            "measure": settings.measure.model_dump(exclude={"resamples"}),
            "tasks": {task.name: _described(task) for task in tasks},
            "candidates": {one.name: one.settings.model_dump(exclude=exclude) for one in candidates},
        }
    )


def _described(task: RetrievalTaskData) -> dict[str, Any]:
    """Files may have moved; what they hold must be the same."""
    section = task.section.model_dump(exclude={"name", "data", "corpus"})
    return {**section, "examples_sha256": task.examples_sha256, "corpus_sha256": task.corpus_sha256}


def _defaults(settings: CompareSettings, wanted: Mapping[str, Any]) -> dict[str, Any]:
    plain = type(settings)()
    alike = {"tasks": TaskSection(data="any").model_dump(), "candidates": TrainSettings().model_dump()}
    named = {table: dict.fromkeys(wanted[table], section) for table, section in alike.items()}
    return {"compare": plain.compare.model_dump(), "measure": plain.measure.model_dump(), **named}


def _same(folder: Path, wanted: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse to go on with another comparison; candidates that are there already and not wanted now stay described."""
    before = description_of(Job(folder), wanted, of="a comparison")["candidates"]
    come_or_gone = before.keys() ^ wanted["candidates"].keys()
    free = {f"candidates.{name}.{key}" for name in come_or_gone for key in keys_of(TrainSettings)}
    free |= {f"candidates.{name}.{key}" for name in wanted["candidates"] for key in (*FREE_MEMORY, *FREE_RUNS)}
    require_same(Job(folder), wanted, rules=Rules(free=frozenset(free), defaults=defaults))
    return {**wanted, "candidates": {**before, **wanted["candidates"]}}
