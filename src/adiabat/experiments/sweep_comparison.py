"""The models of a sweep's comparison: every case with the scores of all its seeds, and their starts.

The comparison itself is that of a suite (`adiabat.evaluation.suite_findings`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from adiabat.config.section import value_at
from adiabat.core.errors import several
from adiabat.evaluation.suite_findings import ModelScores
from adiabat.experiments.grid import SweepTrial
from adiabat.experiments.sweep_trials import StartRecord, SweepRunner
from adiabat.results.suite_result import SuiteModel
from adiabat.results.sweep_result import ONLY_CASE, SweepRun
from adiabat.stats.samples import TaskScores

MOST_COMPARED = 40
"""Maximum number of cases that are compared with one another: the time of resampling grows with it."""

LENGTHS = ("train.steps", "train.epochs", "train.batch_size", "train.budget_flops", "train.budget_seconds")
"""Settings that decide how much a training run computes."""

DONE = {"tune": "tuned", "train": "trained"}
"""Verb to its participle."""

Cases = Mapping[str, Sequence[SweepTrial]]
"""The runs of each case."""


def why_not_compared(cases: int) -> str:
    """Why a sweep of so many cases does not compare them with one another; "" if it does."""
    if cases <= MOST_COMPARED:
        return ""
    return f"only up to {MOST_COMPARED} settings are compared with one another, got {cases:,}"


def complete_cases(trials: Sequence[SweepTrial], rows: Sequence[SweepRun]) -> dict[str, list[SweepTrial]]:
    """Cases to compare: those whose runs are all done; none if there are too many cases."""
    cases: dict[str, list[SweepTrial]] = {}
    for trial in trials:
        cases.setdefault(trial.case, []).append(trial)
    if why_not_compared(len(cases)):
        return {}
    done = {row.name for row in rows if row.status == "done"}
    complete = {}
    for case, runs in cases.items():
        if all(run.name in done for run in runs):
            complete[case] = runs
    return complete


def compared_models(runner: SweepRunner, cases: Cases, rows: Sequence[SweepRun]) -> list[ModelScores]:
    """The cases with the scores of their runs, then the models that they start from."""
    records = runner.start_records()
    parameters = {row.name: row.parameters for row in rows}
    models = []
    for case, runs in cases.items():
        about = SuiteModel(
            name=case or ONLY_CASE,
            model=_origin(runner, records, runs[0]),
            runs=[run.name for run in runs[1:]],
            parameters=parameters[runs[0].name],
        )
        models.append(ModelScores(about, _scores_of(runner, [run.name for run in runs])))
    for name, record in records.items():
        about = SuiteModel(name, record.model, parameters=record.parameters)
        models.append(ModelScores(about, _scores_of(runner, [name])))
    return [model for model in models if model.runs]


def _origin(runner: SweepRunner, records: Mapping[str, StartRecord], trial: SweepTrial) -> str:
    """The model that a run starts from, and its data."""
    start = records[runner.start_name(trial)].model
    return f"{start}, {DONE[runner.settings.sweep.verb]} on {runner.trained_on(trial)}"


def _scores_of(runner: SweepRunner, names: Sequence[str]) -> list[dict[str, TaskScores]]:
    """Scores of the runs of a model by the main measure; none if some are lost, which the evaluator notes."""
    runs = []
    for name in names:
        scores = runner.evaluator.stored(name)
        if scores is None:
            return []
        # Rows have the other measures and the language grids, of each run beside its start.
        runs.append({task: replace(of, samples=of.samples[:1], grids=()) for task, of in scores.items()})
    return runs


def comparison_notes(runner: SweepRunner, cases: Cases, rows: Sequence[SweepRun]) -> Iterator[str]:
    """Why cases are left out of the comparison, and what makes it unequal."""
    if why := why_not_compared(len({trial.case for trial in runner.trials})):
        yield why
        return
    compared = list(chain.from_iterable(cases.values()))
    if left_out := sorted({row.name for row in rows} - {trial.name for trial in compared}):
        yield f"settings with a failed run are not compared with the others: {several(left_out)}"
    devices = sorted({row.device for row in rows})
    if len(devices) > 1:
        yield f"runs were made on different devices, so their times are not comparable: {', '.join(devices)}"
    differing = []
    for key in LENGTHS:
        if len({value_at(run.settings, key) for run in compared}) > 1:
            differing.append(key)
    if differing:
        yield f"runs differ in {' and '.join(differing)}, so recipes of unequal cost are compared"
