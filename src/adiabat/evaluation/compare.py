"""``adiabat compare``: compare two models by stored scores or TREC runs, without loading the models."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.config.tasks import CompareSettings
from adiabat.core.errors import DataError, several
from adiabat.core.provenance import versions
from adiabat.core.ragged import Ragged, connected
from adiabat.data.judgements import Qrels, Run, read_qrels, read_run
from adiabat.evaluation.compare_checks import require_comparable
from adiabat.evaluation.decisive_queries import decide
from adiabat.evaluation.score_files import read_record, read_scores, score_files
from adiabat.evaluation.suite_findings import ModelScores, compare_models
from adiabat.results.suite_result import SuiteModel, SuiteResult
from adiabat.stats.clusters import Clusters
from adiabat.stats.ranking_measures import Ties, ranking_measures, tied_documents
from adiabat.stats.samples import TaskScores, ranking_sample


def compare_runs(
    first: Path, second: Path, *, qrels: Path | None, settings: CompareSettings, command: str
) -> SuiteResult:
    """Compare two models on every task that both were scored on."""
    stored = require_comparable(first, second, qrels=qrels, settings=settings)
    judged = None if qrels is None else read_qrels(qrels)
    left_out: list[str] = []
    sides = []
    for path, is_stored in zip((first, second), stored, strict=True):
        sides.append(_stored_scores(path, left_out) if is_stored else _judged(path, judged, qrels, settings))
    # Tasks and units in common first: which units decide depends on both sides.
    sides, notes = _in_common(sides, (first, second), settings.measure.units)
    (baseline, model), deciding = _on_deciding_units(sides)
    return compare_models(
        [baseline, model],
        settings,
        title=f"{model.name} against {baseline.name}",
        command=command,
        baseline=baseline.name,
        versions=versions("none"),
        notes=[*left_out, *notes, *deciding],
        inputs={"baseline": {"source": str(first)}, "model": {"source": str(second)}},
    )


def _stored_scores(path: Path, left_out: list[str]) -> ModelScores:
    """Stored scores of one model, of one run or several; files that cannot be read are added to `left_out`,
    unless all are.
    """
    files = list(score_files(path)) if path.is_dir() else [path]
    if not files:
        raise DataError(
            f"{path} must hold scores, got no score files in it; name the folder of an evaluation"
        )
    read = _readable(files, left_out)
    # Of several runs each has a folder of its own below that of the model.
    models = {file.parent.parent if "run" in about else file.parent for file, about, _ in read}
    if len(models) > 1:
        listed = several(map(str, sorted(models)), of="folders")
        raise DataError(f"{path} must hold scores of one model, got {listed}; name one of them")
    if len({"run" in about for _, about, _ in read}) > 1:
        raise DataError(
            f"{path} must hold scores of one run or of several, got both; remove the unwanted ones"
        )
    runs: dict[Path, dict[str, TaskScores]] = {}
    states: dict[Path, str] = {}
    for file, about, scores in read:
        run = runs.setdefault(file.parent, {})
        if scores.task in run:
            raise DataError(
                f"{file} must hold the scores of a task once, got {scores.task} twice; remove one of them"
            )
        run[scores.task] = scores
        state = str(about.get("state", ""))
        if states.setdefault(file.parent, state) != state:
            raise DataError(
                f"{file} must hold scores of the same state of the model as the other files in its folder, "
                "got another; remove the older ones, or score all tasks again"
            )
    # All files agree on the model, so any of them describes it.
    about = read[0][1]
    folders = list(map(str, runs)) if len(runs) > 1 else []
    model = SuiteModel(str(about.get("model", path.name)), str(about.get("source", path)), runs=folders)
    return ModelScores(model, list(runs.values()), list(states.values()) if all(states.values()) else ())


def _readable(files: Sequence[Path], left_out: list[str]) -> list[tuple[Path, dict[str, Any], TaskScores]]:
    """The files that can be read, with what they say of the model."""
    read, faults = [], []
    for file in files:
        try:
            record = read_record(file)
            read.append((file, record["about"], read_scores(file, record)))
        except DataError as fault:
            faults.append(fault)
    if not read:
        raise faults[0]
    left_out += [f"left out: {fault}" for fault in faults]
    return read


def _judged(path: Path, judged: Qrels | None, qrels: Path | None, settings: CompareSettings) -> ModelScores:
    """A TREC run, measured against judgements."""
    assert judged is not None, "a run has judgements"
    measure = settings.measure
    task = measure.task or Path(str(qrels)).stem
    run = read_run(path)
    scores = scores_of_run(run, judged, measure.report, task=task, name=str(path), ties=measure.ties)
    return ModelScores(SuiteModel(path.name, str(path)), [{task: scores}])


def scores_of_run(
    run: Run,
    qrels: Qrels,
    measures: Sequence[str],
    *,
    task: str,
    name: str = "the run",
    ties: Ties = "relevant_last",
) -> TaskScores:
    """Measure every query of a TREC run that has a relevant document in the judgements; 0 if the run lacks
    the query.

    Tied documents are counted, and their order is stated in the notes.
    """
    relevant = {query: grades for query, grades in qrels.items() if max(grades.values(), default=0) > 0}
    if not set(relevant) & set(run):
        raise DataError(
            f"{name} must hold queries that are judged, got none of the {len(relevant):,} "
            f"of {task}; check that they belong together"
        )
    values = ranking_measures(run, relevant, measures, ties=ties)
    number_of: dict[str, int] = {}
    shared = []
    for grades in relevant.values():
        documents = [document for document, grade in grades.items() if grade > 0]
        shared.append([number_of.setdefault(document, len(number_of)) for document in documents])
    # A run holds no texts: queries are connected by shared relevant documents alone.
    clusters = Clusters(connected(Ragged.of(shared)))
    counts = {
        "judged queries without a relevant document were left out": len(qrels) - len(relevant),
        "queries of the run are not judged and were left out": len(run.keys() - qrels.keys()),
        "judged queries have no result in the run and count as 0": len(relevant.keys() - run.keys()),
    }
    notes = [f"{count:,} {reason}" for reason, count in counts.items() if count]
    return TaskScores(
        task=task,
        kind="retrieval",
        unit="query",
        units=list(relevant),
        samples=[ranking_sample(measure, values[measure], "run", clusters=clusters) for measure in measures],
        notes=(*notes, *_tie_notes(run, relevant, ties)),
    )


def _tie_notes(run: Run, qrels: Qrels, ties: Ties) -> list[str]:
    """Number of tied documents, and their order."""
    tied = [tied_documents(run[query], single=ties == "trec_eval") for query in qrels if query in run]
    if not any(tied):
        return []
    order = {
        "trec_eval": "they are ranked in trec_eval's order, by descending document id",
        "relevant_last": "relevant documents are ranked last among equals; measure.ties = trec_eval ranks "
        "them by document id",
    }
    return [
        f"{sum(tied):,} documents, in {np.count_nonzero(tied):,} of the queries, have the same score as "
        f"another document of the query: {order[ties]}"
    ]


def _in_common(
    sides: Sequence[ModelScores], paths: Sequence[Path], units_setting: str
) -> tuple[list[ModelScores], list[str]]:
    """Shared tasks, and with ``units = common`` shared units; other tasks are noted.

    Models with equal names are named by path.
    """
    tasks = [set().union(*side.runs) for side in sides]
    shared = tasks[0] & tasks[1]
    listings = []
    notes = []
    for names, path in zip(tasks, paths, strict=True):
        listings.append(f"{', '.join(sorted(names))} in {path}")
        if exclusive := sorted(names - shared):
            notes.append(f"only in {path} and not compared: {', '.join(exclusive)}")
    if not shared:
        raise DataError(
            f"both must be measured on at least one task in common, got {' and '.join(listings)}; the "
            "task of a TREC run is named by measure.task"
        )
    units = {name: _common_units(name, sides) for name in shared} if units_setting == "common" else {}
    restricted = []
    for side, path in zip(sides, paths, strict=True):
        model = replace(side.model, name=str(path)) if sides[0].name == sides[1].name else side.model
        runs = []
        for run in side.runs:
            runs.append({name: _taken(run[name], units.get(name)) for name in run if name in shared})
        restricted.append(replace(side, model=model, runs=runs))
    return restricted, notes


def _on_deciding_units(sides: Sequence[ModelScores]) -> tuple[list[ModelScores], list[str]]:
    """Both on the units that decide between them, so that values and differences are of the same units."""
    of_sides = [list(map(dict[str, TaskScores], side.runs)) for side in sides]
    notes = []
    for task in sorted(set().union(*of_sides[0])):
        having = [run for run in chain.from_iterable(of_sides) if task in run]
        scores = [run[task] for run in having]
        if any(each.units != scores[0].units for each in scores):
            # `compare_models` refuses them, with their differences.
            continue
        decision = decide(scores)
        notes += [f"{task}: {note}" for note in decision.notes()]
        for run, taken in zip(having, decision.parts[0].scores, strict=True):
            run[task] = taken
    return [replace(side, runs=runs) for side, runs in zip(sides, of_sides, strict=True)], notes


def _common_units(task: str, sides: Sequence[ModelScores]) -> list[str]:
    """Units of a task that every run of both sides has, in the order of the first."""
    runs = chain.from_iterable(side.runs for side in sides)
    unit_lists = [run[task].units for run in runs if task in run]
    shared = set.intersection(*map(set, unit_lists))
    if not shared:
        raise DataError(
            f"{task} must have units that both were measured on, got none; "
            "check that they are of the same data"
        )
    return [unit for unit in unit_lists[0] if unit in shared]


def _taken(scores: TaskScores, units: Sequence[str] | None) -> TaskScores:
    """The scores of some units, or of all."""
    if units is None:
        return scores
    # Units of the two sides may stand in another order.
    row_of = dict(zip(scores.units, range(len(scores.units)), strict=True))
    restricted = scores.take(np.array([row_of[unit] for unit in units], dtype=np.int64))
    if dropped := len(scores.units) - len(units):
        return replace(
            restricted, notes=(*restricted.notes, f"{dropped:,} that the other lacks were left out")
        )
    return restricted
