"""The table of a sweep, a row for each setting, as the source's tables 1 and 6 to 20 have it: what the page and the exports show alike."""

import math
from collections.abc import Callable
from statistics import fmean
from typing import Literal

from adiabat.core.text import DASH
from adiabat.report.format import cut_name
from adiabat.report.sweep_cases import Case, Compared, Measured, Overview, comparisons_of, is_number, measures_of, outcome, pair_counts
from adiabat.report.sweep_values import count, gain, gain_bounds, rate, setting_value, sides, verdict_marks
from adiabat.report.tables import Cell, Column
from adiabat.results.sweep_result import SweepRun

Group = Literal["setting", "target", "other tasks", "language pairs, better/worse", "training", "drift"]

TEXT_LENGTH = 200
"""Characters of a text that a cell holds."""


_FIRST = {"setting": "ascending", "drift": "ascending"}


def _column(group: Group, name: str, below: str, cell: Callable[[Case], Cell], *, number: bool = True) -> Column:
    first = _FIRST.get(group, "descending") if number else ""
    head = cut_name(name, limit=32)
    return Column(head, cell, "number" if number else "name", [cut_name(below, limit=60)] if below else [], first, full=name, group=group)


def columns_of(view: Overview) -> list[Column]:
    """All columns of the table of a sweep."""
    return [*setting_columns(view), *map(_task_column(view), view.ordered), *_pair_columns(view), *_training_columns(view)]


def setting_columns(view: Overview) -> list[Column]:
    """What tells the rows of a sweep apart."""
    columns = [_setting_column(view, index) for index in range(len(view.settings))]
    columns = columns or [_column("setting", "setting", "", lambda _: Cell("as configured"), number=False)]
    if not _told(view, "learning_rate"):
        columns.append(_mean_column("setting", "learning rate taken", lambda run: run.learning_rate, rate, every=True))
    if not _told(view, "batch_size"):
        columns.append(_mean_column("setting", "batch size taken", lambda run: run.batch_size, rate, every=True))
    if any(len(case.runs) > 1 for case in view.cases):
        columns.append(_column("setting", "runs", "", _runs))
    return columns


def _told(view: Overview, name: str) -> bool:
    """Whether what runs took is what the grid says, or the same for all: a rate may be scaled, and variants may set either."""
    taken: set[float] = {getattr(run, name) for run in view.result.runs}
    said = [next((value for key, value in run.varied.items() if key.rpartition(".")[2] == name), None) for run in view.result.runs]
    if not any(map(is_number, said)):
        return len(taken) < 2
    pairs = zip(view.result.runs, said, strict=True)
    return all(is_number(value) and math.isclose(getattr(run, name), value, rel_tol=1e-6) for run, value in pairs)


def _setting_column(view: Overview, index: int) -> Column:
    setting = view.settings[index]

    def cell(case: Case) -> Cell:
        value = case.values[index]
        return Cell(cut_name(setting_value(value), limit=TEXT_LENGTH), value=float(value) if is_number(value) else setting_value(value))

    return _column("setting", setting.label, "", cell, number=setting.numeric)


def _runs(case: Case) -> Cell:
    done, every = len(case.done), len(case.runs)
    return Cell(f"{done} of {every}" if done < every else str(every), value=float(done))


def _task_column(view: Overview) -> Callable[[str], Column]:
    def column(task: str) -> Column:
        group: Group = "target" if task in view.result.targets else "other tasks"
        main = measures_of(view.result, task)[:1]
        return _column(group, task, ", ".join(filter(None, main[0])) if main else "not measured", lambda case: outcome_cell(case, task))

    return column


def outcome_cell(case: Case, task: str, measured: Measured | None = None) -> Cell:
    """What a setting changed on a task.

    Args:
        measured: Measure and similarity; None is the main one.
    """
    found = outcome(case, task, measured)
    if found is None:
        return Cell(DASH)
    tone = (found.verdict or "").replace(" ", "-")
    return Cell(gain(found), [gain_bounds(found)], value=found.mean, sign=verdict_marks(found), sign_tone=tone)


def _pair_columns(view: Overview) -> list[Column]:
    return [_pair_column(view, compared) for compared in comparisons_of(view.done, view.result.tasks)]


def _pair_column(view: Overview, compared: Compared) -> Column:
    task, comparison, similarity = compared
    alone = len({other for other, *_ in comparisons_of(view.done, view.result.tasks)}) == 1
    told = ", ".join(filter(None, [similarity, _of_pairs(view, compared)]))

    def cell(case: Case) -> Cell:
        counts = pair_counts(case.done, compared)
        if counts is None:
            return Cell(DASH)
        by_z = sides(counts.improved_z, counts.worsened_z)
        net = None if counts.improved is None or counts.worsened is None else counts.improved - counts.worsened
        return Cell(sides(counts.improved, counts.worsened), sub=[] if by_z == DASH else [f"z {by_z}"], value=net)

    return _column("language pairs, better/worse", comparison if alone else f"{task}: {comparison}", told, cell)


def _of_pairs(view: Overview, compared: Compared) -> str:
    counts = pair_counts(view.done, compared)
    return "" if counts is None else f"of {counts.pairs}"


def _training_columns(view: Overview) -> list[Column]:
    columns = [
        _mean_column("training", "steps", lambda run: run.steps, count),
        _mean_column("training", "best epoch", lambda run: run.best_epoch, count),
    ]
    return [*columns, _column("training", "failed", "", _failure, number=False)] if view.failed else columns


def _mean_column(
    group: Group, name: str, value: Callable[[SweepRun], float], shown: Callable[[float], str], *, every: bool = False
) -> Column:
    def cell(case: Case) -> Cell:
        values = [float(value(run)) for run in (case.runs if every else case.done)]
        return Cell(shown(fmean(values)), value=fmean(values)) if values else Cell(DASH)

    return _column(group, name, "", cell)


def _failure(case: Case) -> Cell:
    reasons = dict.fromkeys(run.reason or "no reason given" for run in case.failed)
    return Cell(cut_name("; ".join(reasons), limit=TEXT_LENGTH))


def measure_columns(view: Overview) -> list[Column]:
    """All measures of all tasks, the main ones too."""
    every = [(task, measured) for task in view.ordered for measured in measures_of(view.result, task)]
    if len(every) <= len({task for task, _ in every}):
        return []
    return [*setting_columns(view), *(_measure_column(view, task, measured) for task, measured in every)]


def _measure_column(view: Overview, task: str, measured: Measured) -> Column:
    group: Group = "target" if task in view.result.targets else "other tasks"
    return _column(group, task, ", ".join(filter(None, measured)), lambda case: outcome_cell(case, task, measured))


def drift_columns(view: Overview, group: str | None = None) -> list[Column]:
    """Drift of the probes, or of one group of them.

    Args:
        group: Such as a language; None takes all probes.
    """
    names = list(dict.fromkeys(name for run in view.done for name in _means(run, group)))
    return [*setting_columns(view), *(_drift_column(name, group) for name in names)] if names else []


def drift_groups(view: Overview) -> list[str]:
    """Groups of probes."""
    return list(dict.fromkeys(name for run in view.done if run.drift is not None for name in run.drift.groups))


def _means(run: SweepRun, group: str | None) -> dict[str, float]:
    if run.drift is None:
        return {}
    return run.drift.means if group is None else run.drift.groups.get(group, {})


def _drift_column(name: str, group: str | None) -> Column:
    def cell(case: Case) -> Cell:
        values = [means[name] for run in case.done if name in (means := _means(run, group))]
        if not values:
            return Cell(DASH)
        errors = [run.drift.errors.get(name) for run in case.done if run.drift is not None] if group is None else []
        alone = errors[0] if len(values) == 1 and errors else None
        below = "" if alone is None else f"± {rate(alone)}"
        if len(values) > 1:
            below = f"{rate(min(values))} to {rate(max(values))}"
        return Cell(rate(fmean(values)), sub=[below], value=fmean(values))

    return _column("drift", name, "", cell)
