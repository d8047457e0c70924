"""The tables of a sweep, a row for each setting: of the page, as CSV, Markdown and LaTeX.

Reference: Vasilyev et al. 2024, tables 1, 6 to 20.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from adiabat.core.text import DASH, NO_BREAK, cut, setting_text
from adiabat.report.format import VERDICT_MARKS, cut_name, three_digits
from adiabat.report.measure_terms import in_order
from adiabat.report.sweep_headline import (
    case_cell,
    case_head,
    count,
    gain,
    gain_bounds,
    headline,
    reservations,
    sides,
    verdict_marks,
)
from adiabat.report.tables import NAME_LENGTH, Cell, Column, Table, csv_of, markdown
from adiabat.results.sweep_result import (
    Case,
    CaseChange,
    PairCounts,
    SweepResult,
    SweepRun,
    Value,
    is_number,
    mean_of,
)

Group = Literal["setting", "target", "other tasks", "language pairs, better/worse", "training", "drift"]
Measured = tuple[str, str]
"""A measure and its similarity."""

TEXT_LENGTH = 200
"""Maximum characters of a cell."""

SENTENCE_LENGTH = 1000
"""Maximum characters of a sentence beside a table."""


@dataclass(frozen=True, slots=True)
class CaseColumn:
    """A column with a cell for each setting."""

    head: Column
    cells: list[Cell]


def table_of(columns: Sequence[CaseColumn], *, best: int | None = None, **options: Any) -> Table | None:
    """A row for each setting, of which the best is shaded; None without columns or settings."""
    if not columns or not columns[0].cells:
        return None
    table = Table(columns=[column.head for column in columns], sortable=True, look="matrix", **options)
    for position, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        table.add(*cells, style="safe" if position == best else "")
    return table


def _column(group: Group, name: str, below: str, cells: Iterable[Cell], *, number: bool = True) -> CaseColumn:
    first = ""
    if number:
        first = "ascending" if group in ("setting", "drift") else "descending"
    sub = [cut_name(below, limit=60)] if below else []
    kind: Literal["number", "name"] = "number" if number else "name"
    head = Column(cut_name(name, limit=32), kind, sub, first, full=name, group=group)
    return CaseColumn(head, list(cells))


def main_columns(result: SweepResult) -> list[CaseColumn]:
    """The main table: settings, main measures, language pairs, training."""
    columns = setting_columns(result)
    for task in result.ordered:
        columns.append(_task_column(result, task, *measures_of(result, task)[:1]))
    for counts in compared_in(result):
        columns.append(_pair_column(result, counts))
    columns += [_mean_column(result, "training", name, count) for name in ("steps", "best epoch")]
    cases = result.variation.cases
    if any(case.failed for case in cases):
        reasons = [_failure(result, case) for case in cases]
        columns.append(_column("training", "failed", "", reasons, number=False))
    return columns


def measures_of(result: SweepResult, task: str) -> list[Measured]:
    """Measures of a task, the main one first; empty without measured runs."""
    found: dict[Measured, None] = {}
    for case in result.variation.cases:
        for change in case.changes:
            if change.task == task:
                found[change.measure, change.similarity] = None
    return list(found)


def compared_in(result: SweepResult) -> list[PairCounts]:
    """The first counts of each comparison of a language grid, in the order of the tasks."""
    first: dict[tuple[str, str, str], PairCounts] = {}
    for case in result.variation.cases:
        for counts in case.pairs:
            first.setdefault(counts.compared, counts)
    return sorted(first.values(), key=lambda counts: result.task_names.index(counts.task))


def pairs_of(case: Case, compared: tuple[str, str, str]) -> PairCounts | None:
    """The counts of a case by one comparison."""
    return next((counts for counts in case.pairs if counts.compared == compared), None)


def setting_columns(result: SweepResult) -> list[CaseColumn]:
    """The columns that identify a row."""
    cases = result.variation.cases
    columns = []
    for index, setting in enumerate(result.variation.settings):
        cells = [_value_cell(case.values[index]) for case in cases]
        columns.append(_column("setting", setting.label, "", cells, number=setting.numeric))
    if not columns:
        alike = [Cell("as configured")] * len(cases)
        columns.append(_column("setting", "setting", "", alike, number=False))
    for name in ("learning rate", "batch size"):
        if not _is_configured(result, name.replace(" ", "_")):
            columns.append(_mean_column(result, "setting", f"{name} taken", three_digits, status=None))
    if any(len(case.runs) > 1 for case in cases):
        runs = [Cell(run_count(case), value=float(len(case.runs) - case.failed)) for case in cases]
        columns.append(_column("setting", "runs", "", runs))
    return columns


def _value_cell(value: Value) -> Cell:
    text = setting_text(value)
    return Cell(cut_name(text, limit=TEXT_LENGTH), value=float(value) if is_number(value) else text)


def _is_configured(result: SweepResult, name: str) -> bool:
    """Whether each run used the grid's value, or the common one: a rate may be scaled, and variants may set
    either.
    """
    configured = [_varied_value(run, name) for run in result.runs]
    if not any(map(is_number, configured)):
        return len({getattr(run, name) for run in result.runs}) < 2
    for run, value in zip(result.runs, configured, strict=True):
        if not is_number(value) or not math.isclose(getattr(run, name), value, rel_tol=1e-6):
            return False
    return True


def _varied_value(run: SweepRun, name: str) -> Value:
    """The value of a setting by the last word of its name; None if no grid varies it."""
    return next((value for key, value in run.varied.items() if key.rpartition(".")[2] == name), None)


def run_count(case: Case) -> str:
    """Number of runs of a case that left a model."""
    return f"{len(case.runs) - case.failed} of {len(case.runs)}" if case.failed else str(len(case.runs))


def _task_column(result: SweepResult, task: str, measured: Measured | None = None) -> CaseColumn:
    group: Group = "target" if task in result.targets else "other tasks"
    below = ", ".join(filter(None, measured)) if measured else "not measured"
    return _column(group, task, below, [change_cell(case, task, measured) for case in result.variation.cases])


def change_cell(case: Case, task: str, measured: Measured | None = None) -> Cell:
    """The change of a case on a task by a measure, by default the main one."""
    changed = case.change(task, measured)
    if changed is None:
        return Cell(DASH)
    tone = (changed.verdict or "").replace(" ", "-")
    marks = verdict_marks(changed)
    return Cell(gain(changed), [gain_bounds(changed)], value=changed.mean, sign=marks, sign_tone=tone)


def _pair_column(result: SweepResult, first: PairCounts) -> CaseColumn:
    """Language pairs that are better and worse by one comparison."""
    cells = []
    for case in result.variation.cases:
        counts = pairs_of(case, first.compared)
        if counts is None:
            cells.append(Cell(DASH))
            continue
        by_z = sides(counts.improved_z, counts.worsened_z)
        net = None
        if counts.improved is not None and counts.worsened is not None:
            net = counts.improved - counts.worsened
        below = [] if by_z == DASH else [f"z {by_z}"]
        cells.append(Cell(sides(counts.improved, counts.worsened), below, value=net))
    one_task = len({counts.task for counts in compared_in(result)}) == 1
    name = first.comparison if one_task else f"{first.task}: {first.comparison}"
    similarity = ", ".join(filter(None, [first.similarity, f"of {first.pairs}"]))
    return _column("language pairs, better/worse", name, similarity, cells)


def _mean_column(
    result: SweepResult, group: Group, name: str, text: Callable[[float], str], *, status: str | None = "done"
) -> CaseColumn:
    """Means of a figure over the runs, by the name of its column."""
    field = name.removesuffix(" taken").replace(" ", "_")
    cells = []
    for case in result.variation.cases:
        values = [float(getattr(run, field)) for run in result.runs_of(case, status)]
        cells.append(Cell(text(fmean(values)), value=fmean(values)) if values else Cell(DASH))
    return _column(group, name, "", cells)


def _failure(result: SweepResult, case: Case) -> Cell:
    reasons = dict.fromkeys(run.reason or "no reason given" for run in result.runs_of(case, "failed"))
    return Cell(cut_name("; ".join(reasons), limit=TEXT_LENGTH))


def measure_columns(result: SweepResult) -> list[CaseColumn]:
    """All measures of all tasks; empty if each task has only one."""
    measures = {task: measures_of(result, task) for task in result.ordered}
    if all(len(of_task) < 2 for of_task in measures.values()):
        return []
    columns = setting_columns(result)
    for task, of_task in measures.items():
        columns += [_task_column(result, task, measured) for measured in of_task]
    return columns


def drift_columns(result: SweepResult, group: str | None = None) -> list[CaseColumn]:
    """Drift of all probes, or of one group of them, such as a language."""
    names = in_order(name for run in result.runs_of() for name in _drift_means(run, group))
    if not names:
        return []
    columns = setting_columns(result)
    for name in names:
        cells = [_drift_cell(result.runs_of(case), name, group) for case in result.variation.cases]
        columns.append(_column("drift", name, "", cells))
    return columns


def _drift_means(run: SweepRun, group: str | None) -> dict[str, float]:
    if run.drift is None:
        return {}
    return run.drift.means if group is None else run.drift.groups.get(group, {})


def _drift_cell(runs: Sequence[SweepRun], name: str, group: str | None) -> Cell:
    """Mean over runs, above the range of several runs or the standard error of one."""
    values = [means[name] for run in runs if name in (means := _drift_means(run, group))]
    if not values:
        return Cell(DASH)
    below = ""
    if len(values) > 1:
        below = f"{three_digits(min(values))} to {three_digits(max(values))}"
    elif group is None and runs[0].drift is not None and name in runs[0].drift.errors:
        below = f"± {three_digits(runs[0].drift.errors[name])}"
    return Cell(three_digits(fmean(values)), [below], value=fmean(values))


def legend(result: SweepResult) -> list[str]:
    """Explanation of the marks that occur in the main table."""
    runs = [len(case.runs) - case.failed for case in result.variation.cases]
    signs = ", ".join(f"{mark} {verdict}" for verdict, mark in VERDICT_MARKS.items())
    marks = [f"{signs}, by the paired test"]
    if 1 in runs:
        marks.append(f"in brackets: the paired 95{NO_BREAK}% interval of one run")
    if max(runs, default=0) > 1:
        marks.append(
            "a to b: the lowest and the highest of several runs, below their mean; "
            "each mark has its number of runs"
        )
    if compared_in(result):
        marks.append("language pairs: better/worse by the paired test, then by the z-test")
    return marks


LAYER_TITLES = {
    "largest weight": "largest |weight| after tuning, of tensors that changed",
    "change of the largest weight": "|(Wt - Wo) / (Wt + Wo)| of the largest |weights|",
    "relative change": "||after - before|| / ||before||, Frobenius norm",
}
"""Measure of the change of tensors to its formula."""


def layer_tables(result: SweepResult) -> tuple[list[Table], str]:
    """The most changed tensors of each case by each measure, and the prefix omitted from their names."""
    view = result.variation
    names = []
    for case in view.cases:
        for tensors in case.layers.values():
            names += [name for name, _ in tensors]
    prefix = block_prefix(names)
    heads = [Column(cut(case_head(view), limit=60), "name"), Column("most", "code"), Column("next", "code")]
    tables = []
    for measure, formula in LAYER_TITLES.items():
        table = Table(title=measure.capitalize(), lead=formula, columns=heads)
        for case in view.cases:
            if measure in case.layers:
                most = [_tensor(name.removeprefix(prefix), value) for name, value in case.layers[measure]]
                # A model may have changed in one tensor alone.
                table.add(cut_name(case_cell(view, case), limit=120), *[*most, "", ""][:2])
        if table.rows:
            tables.append(table)
    return tables, prefix


def _tensor(name: str, value: float) -> str:
    return cut_name(f"{name} {three_digits(value)}", limit=NAME_LENGTH)


def block_prefix(names: Sequence[str]) -> str:
    """The most frequent prefix before the number of a block."""
    prefixes: Counter[str] = Counter()
    for name in dict.fromkeys(names):
        words = name.split(".")
        if index := next((index for index, word in enumerate(words) if word.isdecimal()), 0):
            prefixes[".".join(words[:index]) + "."] += 1
    return prefixes.most_common(1)[0][0] if prefixes else ""


def _main_table(result: SweepResult) -> Table:
    return table_of(main_columns(result)) or Table(columns=[column.head for column in main_columns(result)])


def sweep_markdown(result: SweepResult) -> str:
    """The main table with headline and reservations, and the most changed tensors."""
    blocks = [
        markdown(cut(result.title, limit=NAME_LENGTH)),
        markdown(headline(result)),
        _main_table(result).to_markdown().rstrip("\n"),
        f"{markdown('; '.join(legend(result)))}.",
        "\n".join(f"- {markdown(cut(sentence, limit=SENTENCE_LENGTH))}" for sentence in reservations(result)),
    ]
    tables, prefix = layer_tables(result)
    omitted = f'; "{prefix}" is left out of names' if prefix else ""
    for table in tables:
        blocks.append(f"{markdown(f'{table.title}, {table.lead}{omitted}')}:")
        blocks.append(table.to_markdown().rstrip("\n"))
    return "\n\n".join(blocks) + "\n"


def sweep_latex(result: SweepResult) -> str:
    """The main table, behind headline and reservations as comments."""
    comments = [result.title, headline(result), *legend(result), *reservations(result)]
    lines = "".join(f"% {cut(comment, limit=SENTENCE_LENGTH)}\n" for comment in comments)
    return lines + _main_table(result).to_latex()


def sweep_csv(result: SweepResult) -> str:
    """One line for each setting, with all digits."""
    rows = []
    for case in result.variation.cases:
        row = _setting_figures(result, case)
        for task in result.ordered:
            for measure, similarity in measures_of(result, task):
                name = f"{task}: {' '.join(filter(None, [measure, similarity]))}"
                row |= _change_figures(name, case.change(task, (measure, similarity)))
        for first in compared_in(result):
            row |= _pair_figures(first, pairs_of(case, first.compared))
        rows.append(row | _run_figures(result, case))
    return csv_of(rows)


def _setting_figures(result: SweepResult, case: Case) -> dict[str, object]:
    row: dict[str, object] = {}
    for setting, value in zip(result.variation.settings, case.values, strict=True):
        row[setting.name] = setting_text(value) if isinstance(value, str | list) else value
    runs = result.runs_of(case, None)
    return {
        **row,
        "runs": len(runs),
        "failed": case.failed,
        "seeds": " ".join(str(run.seed) for run in runs),
        "learning_rate taken": mean_of([run.learning_rate for run in runs]),
    }


def _change_figures(name: str, changed: CaseChange | None) -> dict[str, object]:
    """A change by one measure; percent columns are empty if no percentage is defined."""
    ends = ("improvement %", "low %", "high %", "difference", "verdict", "runs better", "runs worse")
    row: dict[str, object] = {f"{name}, {end}": None for end in ends}
    if changed is None:
        return row
    if changed.percent and changed.interval is not None:
        row[f"{name}, low %"], row[f"{name}, high %"] = changed.interval
    return {
        **row,
        f"{name}, improvement %": changed.improvement,
        f"{name}, difference": changed.difference,
        f"{name}, verdict": changed.verdict or ("mixed" if changed.verdicts else None),
        f"{name}, runs better": changed.verdicts.get("better", 0),
        f"{name}, runs worse": changed.verdicts.get("worse", 0),
    }


def _pair_figures(first: PairCounts, counts: PairCounts | None) -> dict[str, object]:
    task, comparison, similarity = first.compared
    row = {}
    for side in ("improved", "worsened", "improved_z", "worsened_z"):
        value = None if counts is None else getattr(counts, side)
        row[f"{task}: {comparison} {similarity}, {side}"] = value
    return row


def _run_figures(result: SweepResult, case: Case) -> dict[str, object]:
    done = result.runs_of(case)
    row: dict[str, object] = {}
    for name in ("steps", "epochs", "best_epoch", "seconds", "trainable"):
        row[name] = mean_of([getattr(run, name) for run in done])
    for name in in_order(name for every in result.variation.cases for name in every.drift):
        row[f"drift: {name}"] = case.drift.get(name)
    row["reason"] = "; ".join(dict.fromkeys(run.reason for run in result.runs_of(case, "failed")))
    return row
