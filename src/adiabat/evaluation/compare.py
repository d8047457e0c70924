"""``adiabat compare``: compare two models by stored scores or TREC runs, without loading the models."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.config.tasks import CompareSettings
from adiabat.core.errors import DataError
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
    sides = [
        _stored_scores(path, left_out) if is_stored else _judged(path, judged, qrels, settings)
        for path, is_stored in zip((first, second), stored, strict=True)
    ]
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
        inputs={
            name: {"source": str(path)}
            for name, path in zip(("baseline", "model"), (first, second), strict=True)
        },
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
    records, scores_in = _readable(files, left_out)
    about_of = {file: record["about"] for file, record in records.items()}
    # Of several runs each has a folder of its own below that of the model.
    model_of = {
        file: file.parent.parent if "run" in about else file.parent for file, about in about_of.items()
    }
    if len(models := sorted(set(model_of.values()))) > 1:
        listed = ", ".join(map(str, models[:10]))
        raise DataError(
            f"{path} must hold scores of one model, got {len(models)}: {listed}; "
            "name the folder of one of them"
        )
    if len({"run" in about for about in about_of.values()}) > 1:
        raise DataError(
            f"{path} must hold scores of one run or of several, got both; remove the unwanted ones"
        )
    _require_one_state(path, about_of)
    runs: defaultdict[Path, dict[str, TaskScores]] = defaultdict(dict)
    for file, scores in scores_in.items():
        if scores.task in runs[file.parent]:
            raise DataError(
                f"{file} must hold the scores of a task once, got {scores.task} twice; remove one of them"
            )
        runs[file.parent][scores.task] = scores
    about = next(iter(about_of.values()))
    folders = [str(folder) for folder in runs] if len(runs) > 1 else []
    model = SuiteModel(str(about.get("model", path.name)), str(about.get("source", path)), runs=folders)
    states = {file.parent: str(record.get("state", "")) for file, record in about_of.items()}
    return ModelScores(model, list(runs.values()), list(states.values()) if all(states.values()) else ())


def _readable(
    files: Sequence[Path], left_out: list[str]
) -> tuple[dict[Path, dict[str, Any]], dict[Path, TaskScores]]:
    """Records and scores of the files that can be read."""
    records: dict[Path, dict[str, Any]] = {}
    scores: dict[Path, TaskScores] = {}
    faults = []
    for file in files:
        try:
            record = read_record(file)
            scores[file] = read_scores(file, record)
        except DataError as fault:
            faults.append(fault)
        else:
            records[file] = record
    if not scores:
        raise faults[0]
    left_out += [f"left out: {fault}" for fault in faults]
    return records, scores


def _require_one_state(path: Path, records: Mapping[Path, Mapping[str, Any]]) -> None:
    """Refuse scores of one run by different weights or settings."""
    states_of: defaultdict[Path, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file, about in records.items():
        states_of[file.parent][str(about.get("state", ""))].append(file.name)
    for folder, states in states_of.items():
        if len(states) > 1:
            groups = " and ".join(", ".join(names[:10]) for names in states.values())
            raise DataError(
                f"{path} must hold scores of one state of the model, got those of "
                f"{len(states)} in {folder}: {groups}; "
                "remove the older ones, or score all tasks again"
            )


def _judged(path: Path, judged: Qrels | None, qrels: Path | None, settings: CompareSettings) -> ModelScores:
    """A TREC run, measured against judgements."""
    assert judged is not None, "a run has judgements"
    task = settings.measure.task or Path(str(qrels)).stem
    return ModelScores(
        SuiteModel(path.name, str(path)),
        [
            {
                task: scores_of_run(
                    read_run(path),
                    judged,
                    settings.measure.report,
                    task=task,
                    name=str(path),
                    ties=settings.measure.ties,
                )
            }
        ],
    )


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
    relevant = {
        query: grades for query, grades in qrels.items() if any(grade > 0 for grade in grades.values())
    }
    if not set(relevant) & set(run):
        raise DataError(
            f"{name} must hold queries that are judged, got none of the {len(relevant):,} "
            f"of {task}; check that they belong together"
        )
    values = ranking_measures(run, relevant, measures, ties=ties)
    documents = {
        document: number
        for number, document in enumerate(dict.fromkeys(chain.from_iterable(relevant.values())))
    }
    shared = [
        [documents[document] for document, grade in grades.items() if grade > 0]
        for grades in relevant.values()
    ]
    clusters = Clusters(connected(Ragged.of(shared)))
    counts = {
        "judged queries without a relevant document were left out": len(qrels) - len(relevant),
        "queries of the run are not judged and were left out": len(set(run) - set(qrels)),
        "judged queries have no result in the run and count as 0": len(set(relevant) - set(run)),
    }
    return TaskScores(
        task=task,
        kind="retrieval",
        unit="query",
        units=list(relevant),
        samples=[ranking_sample(measure, values[measure], "run", clusters=clusters) for measure in measures],
        notes=(
            *(f"{count:,} {reason}" for reason, count in counts.items() if count),
            *_tie_notes(run, relevant, ties),
        ),
    )


def _tie_notes(run: Run, qrels: Qrels, ties: Ties) -> list[str]:
    """Number of tied documents, and their order."""
    counts = [
        count
        for query in qrels
        if query in run and (count := tied_documents(run[query], single=ties == "trec_eval"))
    ]
    if not counts:
        return []
    queries = "1 query" if len(counts) == 1 else f"{len(counts):,} queries"
    tied = f"{sum(counts):,} documents in {queries} have the same score as another document of the query"
    if ties == "trec_eval":
        return [f"{tied}: they are ranked in trec_eval's order, by descending document id"]
    return [
        f"{tied}: relevant documents are ranked last among equals; measure.ties "
        "= trec_eval ranks them by document id"
    ]


def _in_common(
    sides: Sequence[ModelScores], paths: Sequence[Path], units_setting: str
) -> tuple[list[ModelScores], list[str]]:
    """Shared tasks, and with ``units = common`` shared units; other tasks are noted.

    Models with equal names are named by path.
    """
    tasks = [{name for run in side.runs for name in run} for side in sides]
    shared = tasks[0] & tasks[1]
    if not shared:
        listing = " and ".join(
            f"{', '.join(sorted(names))} in {path}" for names, path in zip(tasks, paths, strict=True)
        )
        raise DataError(
            f"both must be measured on at least one task in common, got {listing}; the "
            "task of a TREC run is named by measure.task"
        )
    exclusive = [(sorted(names - shared), path) for names, path in zip(tasks, paths, strict=True)]
    notes = [f"only in {path} and not compared: {', '.join(names)}" for names, path in exclusive if names]
    units = {name: _common_units(name, sides) for name in shared} if units_setting == "common" else {}
    restricted = []
    for side, path in zip(sides, paths, strict=True):
        model = replace(side.model, name=str(path)) if sides[0].name == sides[1].name else side.model
        runs = [
            {name: _taken(run[name], units.get(name)) for name in run if name in shared} for run in side.runs
        ]
        restricted.append(replace(side, model=model, runs=runs))
    return restricted, notes


def _on_deciding_units(sides: Sequence[ModelScores]) -> tuple[list[ModelScores], list[str]]:
    """Both on the units that decide between them, so that values and differences are of the same units."""
    runs: list[list[dict[str, TaskScores]]] = [[dict(run) for run in side.runs] for side in sides]
    notes = []
    for task in sorted({task for run in runs[0] for task in run}):
        having = [run for side_runs in runs for run in side_runs if task in run]
        scores = [run[task] for run in having]
        if any(each.units != scores[0].units for each in scores):
            # These are refused with their differences.
            continue
        decision = decide(scores)
        notes += [f"{task}: {note}" for note in decision.notes()]
        for run, taken in zip(having, decision.parts[0].scores, strict=True):
            run[task] = taken
    return [replace(side, runs=side_runs) for side, side_runs in zip(sides, runs, strict=True)], notes


def _common_units(task: str, sides: Sequence[ModelScores]) -> list[str]:
    unit_lists = [run[task].units for side in sides for run in side.runs if task in run]
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
    row_of: Mapping[str, int] = {unit: number for number, unit in enumerate(scores.units)}
    restricted = scores.take(np.array([row_of[unit] for unit in units], dtype=np.int64))
    if dropped := len(scores.units) - len(units):
        return replace(
            restricted, notes=(*restricted.notes, f"{dropped:,} that the other lacks were left out")
        )
    return restricted
