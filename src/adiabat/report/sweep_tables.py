"""The tables of a sweep, a row for each setting: columns of the page, CSV, Markdown and LaTeX (Vasilyev et al. 2024, tables 1, 6 to 20)."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any, Literal

from adiabat.core.text import DASH, NO_BREAK, cut
from adiabat.report.format import VERDICT_MARKS, cut_name
from adiabat.report.sweep_analysis import LayerTable, most_changed
from adiabat.report.sweep_cases import (
    Case,
    Compared,
    Measured,
    Overview,
    case_cell,
    case_head,
    comparisons_of,
    is_number,
    measures_of,
    outcome,
    pair_counts,
    rate,
    setting_value,
)
from adiabat.report.sweep_headline import count, gain, gain_bounds, headline, reservations, sides, verdict_marks
from adiabat.report.tables import NAME_LENGTH, Cell, Column, Table, latex, markdown
from adiabat.results.sweep_result import SweepRun

Group = Literal["setting", "target", "other tasks", "language pairs, better/worse", "training", "drift"]

TEXT_LENGTH = 200
"""Characters of a text that a cell holds."""

SENTENCE_LENGTH = 1000
"""Characters of a sentence beside a table."""


def _column(group: Group, name: str, below: str, cell: Callable[[Case], Cell], *, number: bool = True) -> Column:
    first = "" if not number else "ascending" if group in ("setting", "drift") else "descending"
    head = cut_name(name, limit=32)
    return Column(head, cell, "number" if number else "name", [cut_name(below, limit=60)] if below else [], first, full=name, group=group)


def columns_of(view: Overview) -> list[Column]:
    """The main table: settings, main measures, language pairs, training."""
    mains = [(task, measures_of(view.result, task)[:1]) for task in view.ordered]
    tasks = [_task_column(view, task, *main) for task, main in mains]
    pairs = [_pair_column(view, compared) for compared in comparisons_of(view.done, view.result.tasks)]
    training = [
        _mean_column("training", "steps", lambda run: run.steps, count),
        _mean_column("training", "best epoch", lambda run: run.best_epoch, count),
    ]
    if view.failed:
        training.append(_column("training", "failed", "", _failure, number=False))
    return [*setting_columns(view), *tasks, *pairs, *training]


def setting_columns(view: Overview) -> list[Column]:
    """The columns that identify a row."""
    columns = [_setting_column(view, index) for index in range(len(view.settings))]
    columns = columns or [_column("setting", "setting", "", lambda _: Cell("as configured"), number=False)]
    if not _is_configured(view, "learning_rate"):
        columns.append(_mean_column("setting", "learning rate taken", lambda run: run.learning_rate, rate, failed=True))
    if not _is_configured(view, "batch_size"):
        columns.append(_mean_column("setting", "batch size taken", lambda run: run.batch_size, rate, failed=True))
    if any(len(case.runs) > 1 for case in view.cases):
        columns.append(_column("setting", "runs", "", lambda case: Cell(run_count(case), value=float(len(case.done)))))
    return columns


def _is_configured(view: Overview, name: str) -> bool:
    """Whether the value of each run is that of the grid, or common to all: a rate may be scaled, and variants may set either."""
    values: set[float] = {getattr(run, name) for run in view.result.runs}
    configured = [next((value for key, value in run.varied.items() if key.rpartition(".")[2] == name), None) for run in view.result.runs]
    if not any(map(is_number, configured)):
        return len(values) < 2
    pairs = zip(view.result.runs, configured, strict=True)
    return all(is_number(value) and math.isclose(getattr(run, name), value, rel_tol=1e-6) for run, value in pairs)


def _setting_column(view: Overview, index: int) -> Column:
    setting = view.settings[index]

    def cell(case: Case) -> Cell:
        value = case.values[index]
        return Cell(cut_name(setting_value(value), limit=TEXT_LENGTH), value=float(value) if is_number(value) else setting_value(value))

    return _column("setting", setting.label, "", cell, number=setting.numeric)


def run_count(case: Case) -> str:
    """How many runs of a case left a model."""
    done, total = len(case.done), len(case.runs)
    return f"{done} of {total}" if done < total else str(total)


def _task_column(view: Overview, task: str, measured: Measured | None = None) -> Column:
    group: Group = "target" if task in view.result.targets else "other tasks"
    below = ", ".join(filter(None, measured)) if measured else "not measured"
    return _column(group, task, below, lambda case: outcome_cell(case, task, measured))


def outcome_cell(case: Case, task: str, measured: Measured | None = None) -> Cell:
    """The change of a case on a task by a measure, by default the main one."""
    changed = outcome(case, task, measured)
    if changed is None:
        return Cell(DASH)
    tone = (changed.verdict or "").replace(" ", "-")
    return Cell(gain(changed), [gain_bounds(changed)], value=changed.mean, sign=verdict_marks(changed), sign_tone=tone)


def _pair_column(view: Overview, compared: Compared) -> Column:
    task, comparison, similarity = compared
    one_task = len({other for other, *_ in comparisons_of(view.done, view.result.tasks)}) == 1
    total = pair_counts(view.done, compared)
    below = ", ".join(filter(None, [similarity, "" if total is None else f"of {total.pairs}"]))

    def cell(case: Case) -> Cell:
        counts = pair_counts(case.done, compared)
        if counts is None:
            return Cell(DASH)
        by_z = sides(counts.improved_z, counts.worsened_z)
        net = None if counts.improved is None or counts.worsened is None else counts.improved - counts.worsened
        return Cell(sides(counts.improved, counts.worsened), sub=[] if by_z == DASH else [f"z {by_z}"], value=net)

    return _column("language pairs, better/worse", comparison if one_task else f"{task}: {comparison}", below, cell)


def _mean_column(
    group: Group, name: str, value: Callable[[SweepRun], float], text: Callable[[float], str], *, failed: bool = False
) -> Column:
    def cell(case: Case) -> Cell:
        values = [float(value(run)) for run in (case.runs if failed else case.done)]
        return Cell(text(fmean(values)), value=fmean(values)) if values else Cell(DASH)

    return _column(group, name, "", cell)


def _failure(case: Case) -> Cell:
    reasons = dict.fromkeys(run.reason or "no reason given" for run in case.failed)
    return Cell(cut_name("; ".join(reasons), limit=TEXT_LENGTH))


def measure_columns(view: Overview) -> list[Column]:
    """All measures of all tasks; empty where each task has one."""
    measures = [(task, measured) for task in view.ordered for measured in measures_of(view.result, task)]
    if len(measures) <= len({task for task, _ in measures}):
        return []
    return [*setting_columns(view), *(_task_column(view, task, measured) for task, measured in measures)]


def drift_columns(view: Overview, group: str | None = None) -> list[Column]:
    """Drift of all probes, or of one group of them, such as a language."""
    names = list(dict.fromkeys(name for run in view.done for name in _drift_means(run, group)))
    return [*setting_columns(view), *(_drift_column(name, group) for name in names)] if names else []


def _drift_means(run: SweepRun, group: str | None) -> dict[str, float]:
    if run.drift is None:
        return {}
    return run.drift.means if group is None else run.drift.groups.get(group, {})


def _drift_column(name: str, group: str | None) -> Column:
    def cell(case: Case) -> Cell:
        values = [means[name] for run in case.done if name in (means := _drift_means(run, group))]
        if not values:
            return Cell(DASH)
        errors = [run.drift.errors.get(name) for run in case.done if run.drift is not None] if group is None else []
        below = f"{rate(min(values))} to {rate(max(values))}" if len(values) > 1 else ""
        if len(values) == 1 and errors and errors[0] is not None:
            below = f"± {rate(errors[0])}"
        return Cell(rate(fmean(values)), sub=[below], value=fmean(values))

    return _column("drift", name, "", cell)


def legend(view: Overview) -> list[str]:
    """The marks of the main table, as far as it has them."""
    runs = [len(case.done) for case in view.cases]
    marks = [f"{', '.join(f'{mark} {verdict}' for verdict, mark in VERDICT_MARKS.items())}, by the paired test"]
    if 1 in runs:
        marks.append(f"in brackets the paired 95{NO_BREAK}% interval of one run")
    if max(runs, default=0) > 1:
        marks.append("a to b: the lowest and the highest of several runs, below their mean; a mark bears its number of runs")
    if comparisons_of(view.done, view.result.tasks):
        marks.append("language pairs: better/worse by the paired test, then z by the source's test")
    return marks


def layer_tensors(view: Overview, table: LayerTable) -> Table:
    """The most changed tensors of each case by one measure."""

    def tensor(index: int, row: tuple[Case, Sequence[tuple[str, float]]]) -> str:
        return cut_name(" ".join((row[1][index][0], rate(row[1][index][1]))), limit=NAME_LENGTH) if index < len(row[1]) else ""

    setting = Column(cut(case_head(view), limit=60), lambda row: cut_name(case_cell(view, row[0]), limit=120), "name")
    tensors = [Column(head, partial(tensor, index), "code") for index, head in enumerate(("most", "next"))]
    return Table(title=table.title, lead=table.formula, columns=[setting, *tensors], rows=table.rows)


def sweep_markdown(view: Overview) -> str:
    """The main table with headline and reservations, and the most changed tensors."""
    sentences = [*(f"- {markdown(cut(sentence, limit=SENTENCE_LENGTH))}" for sentence in reservations(view))]
    blocks = [
        markdown(cut(view.result.title, limit=NAME_LENGTH)),
        markdown(headline(view)),
        Table(columns=columns_of(view), rows=view.cases).to_markdown().rstrip("\n"),
        f"{markdown('; '.join(legend(view)))}.",
        "\n".join(sentences),
    ]
    layers, prefix = most_changed(view)
    for table in layers:
        omitted = f'; "{prefix}" is left out of names' if prefix else ""
        blocks += [f"{markdown(f'{table.title}, {table.formula}{omitted}')}:", layer_tensors(view, table).to_markdown().rstrip("\n")]
    return "\n\n".join(blocks) + "\n"


def sweep_latex(view: Overview) -> str:
    """The main table as a plain ``tabular`` that needs no package, behind headline and reservations as comments."""
    comments = [view.result.title, headline(view), *legend(view), *reservations(view)]
    lines = "".join(f"% {latex(cut(comment, limit=SENTENCE_LENGTH))}\n" for comment in comments)
    return lines + Table(columns=columns_of(view), rows=view.cases).to_latex()


def sweep_csv(view: Overview) -> str:
    """One line for each setting, with all digits."""
    return Table(columns=list(_csv_columns(view)), rows=view.cases).to_csv()


def _csv_columns(view: Overview) -> Iterator[Column]:
    for index, setting in enumerate(view.settings):
        yield Column(setting.name, partial(_plain_setting, index))
    yield Column("runs", lambda case: len(case.runs))
    yield Column("failed", lambda case: len(case.failed))
    yield Column("seeds", lambda case: " ".join(str(run.seed) for run in case.runs))
    yield Column("learning_rate taken", lambda case: _mean([run.learning_rate for run in case.runs]))
    for task in view.ordered:
        for measured in measures_of(view.result, task):
            for name in ("improvement %", "low %", "high %", "difference", "verdict", "runs better", "runs worse"):
                yield Column(f"{task}: {' '.join(filter(None, measured))}, {name}", partial(_outcome_value, task, measured, name))
    for compared in comparisons_of(view.done, view.result.tasks):
        task, comparison, similarity = compared
        for name in ("improved", "worsened", "improved_z", "worsened_z"):
            yield Column(f"{task}: {comparison} {similarity}, {name}", partial(_pair_value, compared, name))
    for name in ("steps", "epochs", "best_epoch", "seconds", "trainable"):
        yield Column(name, partial(lambda name, case: _mean([getattr(run, name) for run in case.done]), name))
    for name in dict.fromkeys(name for run in view.done if run.drift is not None for name in run.drift.means):
        yield Column(f"drift: {name}", partial(_drift_value, name))
    yield Column("reason", lambda case: "; ".join(dict.fromkeys(run.reason for run in case.failed)))


def _plain_setting(index: int, case: Case) -> Any:
    value = case.values[index]
    return Cell("", value=value if isinstance(value, int | float | bool) or value is None else setting_value(value))


def _outcome_value(task: str, measured: Measured, name: str, case: Case) -> Any:
    """Percent columns stay empty where there is no percent."""
    changed = outcome(case, task, measured)
    if changed is None or ("%" in name and not changed.percent):
        return None
    low, high = changed.bounds or (None, None)
    return {
        "improvement %": changed.mean,
        "low %": low,
        "high %": high,
        "difference": _mean([change.difference for change in changed.changes if change.difference is not None]),
        "verdict": changed.verdict or ("mixed" if changed.verdicts else None),
        "runs better": changed.verdicts["better"],
        "runs worse": changed.verdicts["worse"],
    }[name]


def _pair_value(compared: Compared, name: str, case: Case) -> Any:
    counts = pair_counts(case.done, compared)
    return None if counts is None else getattr(counts, name)


def _drift_value(name: str, case: Case) -> int | float | None:
    return _mean([run.drift.means[name] for run in case.done if run.drift is not None and name in run.drift.means])


def _mean(values: Sequence[int | float]) -> int | float | None:
    """The mean; of equal values the value itself, without rounding errors of a sum."""
    return fmean(values) if len(set(values)) > 1 else next(iter(values), None)
