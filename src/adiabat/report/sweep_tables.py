"""The columns of a sweep's tables, with a cell for each setting: of the page, the terminal, CSV, Markdown and
LaTeX.

Reference: Vasilyev et al. 2024, tables 1, 6 to 20.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from adiabat.core.text import DASH, NO_BREAK, setting_text
from adiabat.report.captions import sentences
from adiabat.report.format import VERDICT_MARKS, Format, cut_name, decimals_for, signed, three_digits
from adiabat.report.measure_terms import in_order
from adiabat.report.tables import Cell, Column, ColumnKind, Contents, Table, csv_of
from adiabat.results.sweep_result import (
    VARIANT,
    Case,
    CaseChange,
    SweepAnalysis,
    SweepResult,
    SweepRun,
    Value,
    is_number,
    key_of,
    mean_of,
)
from adiabat.results.verdict import WORDS

Group = Literal["", "setting", "target", "other tasks", "language pairs, better/worse", "training", "drift"]

TEXT_LENGTH = 200
"""Maximum characters of a cell."""


# --- Names of settings and cases ---


def label_of(view: SweepAnalysis, index: int) -> str:
    """A dotted setting in words; the table ``tune`` goes without saying."""
    return view.settings[index].name.removeprefix("tune.").replace(".", " ").replace("_", " ")


def described(view: SweepAnalysis, case: Case, indices: Sequence[int]) -> str:
    """The values of some settings of a case in one line; a variant has a name of its own."""
    parts = []
    for index in indices:
        text = setting_text(case.values[index])
        is_variant = view.settings[index].name == VARIANT
        parts.append(text if is_variant else f"{label_of(view, index)} {text}")
    return ", ".join(parts)


def case_label(view: SweepAnalysis, case: Case) -> str:
    """A case in one line, by the settings that differ in the sweep."""
    return described(view, case, view.differing) or "the only setting"


def labels_apart(view: SweepAnalysis, groups: Sequence[Sequence[Case]], indices: Sequence[int]) -> list[str]:
    """A label for each group of cases, by those of some settings that differ between groups."""
    firsts = [cases[0] for cases in groups]
    differing = []
    for index in indices:
        if len({key_of(case.values[index]) for case in firsts}) > 1:
            differing.append(index)
    return [described(view, case, differing) for case in firsts]


def method_labels(view: SweepAnalysis) -> list[str]:
    """A label for each method, by the settings that are no numbers."""
    words = [index for index, setting in enumerate(view.settings) if not setting.numeric]
    return labels_apart(view, [[view.cases[method.cases[0]]] for method in view.methods], words)


# --- Columns ---


@dataclass(frozen=True, slots=True)
class CaseColumn:
    """A column with a cell for each setting, and the figures behind it, which are columns of the CSV."""

    head: Column
    cells: list[Cell] = field(default_factory=list)
    figures: list[Mapping[str, object]] = field(default_factory=list)

    def add(self, cell: Cell, figures: Mapping[str, object]) -> None:
        """Add the cell of the next setting."""
        self.cells.append(cell)
        self.figures.append(figures)


def table_of(columns: Sequence[CaseColumn], *, best: int | None = None, **options: Any) -> Table:
    """A row for each setting, of which the best is shaded, without columns that are empty."""
    filled = [column for column in columns if any(cell.text not in ("", DASH) for cell in column.cells)]
    table = Table(columns=[column.head for column in filled], sortable=True, look="matrix", **options)
    for position, cells in enumerate(zip(*(column.cells for column in filled), strict=True)):
        table.add(*cells, style="safe" if position == best else "")
    return table


def _numbers(group: Group, name: str, below: Sequence[str] = ()) -> CaseColumn:
    """An empty column of numbers; `below` stands below its name."""
    first = "ascending" if group in ("setting", "drift") else "descending"
    sub = [cut_name(", ".join(filter(None, below)), limit=60)] if below else []
    return CaseColumn(Column(cut_name(name, limit=32), "number", sub, first, full=name, group=group))


def case_column(result: SweepResult) -> CaseColumn:
    """The cases by name: the value alone if one setting differs, which is the head."""
    view, differing = result.variation, result.variation.differing
    head = label_of(view, differing[0]) if len(differing) == 1 else "setting"
    column = CaseColumn(Column(head, "name"))
    for case in view.cases:
        name = setting_text(case.values[differing[0]]) if len(differing) == 1 else case_label(view, case)
        column.add(Cell(cut_name(name, limit=TEXT_LENGTH)), {})
    return column


def setting_columns(result: SweepResult) -> list[CaseColumn]:
    """The columns that identify a row: a value of each setting, and the runs."""
    view = result.variation
    columns = []
    for index, setting in enumerate(view.settings):
        column = _numbers("setting", label_of(view, index))
        if not setting.numeric:
            column = CaseColumn(replace(column.head, kind="name", first=""))
        for case in view.cases:
            value, text = case.values[index], setting_text(case.values[index])
            cell = Cell(cut_name(text, limit=TEXT_LENGTH), value=float(value) if is_number(value) else text)
            column.add(cell, {setting.name: text if isinstance(value, str | list) else value})
        columns.append(column)
    return [*columns, runs_column(result)]


def runs_column(result: SweepResult) -> CaseColumn:
    """The number of runs that left a model, of all if any failed."""
    column = _numbers("setting", "runs")
    for case in result.variation.cases:
        runs, done = len(case.runs), len(case.runs) - case.failed
        seeds = " ".join(str(run.seed) for run in result.runs_of(case, None))
        cell = Cell(str(runs), value=float(done))
        if case.failed:
            cell = Cell(f"{done} of {runs}", value=float(done), tone="bad")
        column.add(cell, {"runs": runs, "failed": case.failed, "seeds": seeds})
    return column


def taken_columns(result: SweepResult) -> list[CaseColumn]:
    """Learning rate and batch size of the runs, where a scaled rate or a variant makes them differ from the
    grid's values.
    """
    view, columns = result.variation, []
    for name in ("learning_rate", "batch_size"):
        column = mean_column(result, "setting", name, three_digits, f"{name} taken", status=None)
        taken: list[Value] = [cell.value for cell in column.cells]
        known: list[Sequence[Value]] = [taken[:1] * len(taken)]
        for index, setting in enumerate(view.settings):
            if setting.name.rpartition(".")[2] == name:
                known.append([case.values[index] for case in view.cases])
        if taken not in known:
            columns.append(column)
    return columns


def mean_column(
    result: SweepResult,
    group: Group,
    name: str,
    text: Format,
    head: str = "",
    *,
    status: str | None = "done",
) -> CaseColumn:
    """Means over the runs of a field of `SweepRun`; a head is the name of the column instead."""
    head = head or name
    column = _numbers(group, head.replace("_", " "))
    for case in result.variation.cases:
        values = [getattr(run, name) for run in result.runs_of(case, status)]
        mean = mean_of([value for value in values if value is not None])
        column.add(Cell(DASH if mean is None else text(mean), value=mean), {head: mean})
    return column


def main_columns(result: SweepResult) -> list[CaseColumn]:
    """The main table: settings, main measures, language pairs, training and failures."""
    columns = [*setting_columns(result), *taken_columns(result)]
    for task in result.ordered:
        columns += task_columns(result, task)[:1]
    columns += pair_columns(result)
    columns += [mean_column(result, "training", name, count) for name in ("steps", "best_epoch")]
    return [*columns, failure_column(result)]


def failure_column(result: SweepResult) -> CaseColumn:
    """Why runs failed."""
    column = CaseColumn(Column("failed", "name", group="training"))
    for case in result.variation.cases:
        reasons = [run.reason or "no reason given" for run in result.runs_of(case, "failed")]
        text = "; ".join(dict.fromkeys(reasons))
        column.add(Cell(cut_name(text, limit=TEXT_LENGTH) or DASH), {"reason": text})
    return column


# --- Changes of tasks ---


def task_columns(result: SweepResult, task: str) -> list[CaseColumn]:
    """The changes of a task, a column for each measure, the main one first; empty without measured runs."""
    group: Group = "target" if task in result.targets else "other tasks"
    measures: dict[tuple[str, str], None] = {}
    for case in result.variation.cases:
        for change in case.changes:
            if change.task == task:
                measures[change.measure, change.similarity] = None
    columns = []
    for measured in measures:
        column = _numbers(group, task, measured)
        name = f"{task}: {' '.join(filter(None, measured))}"
        for case in result.variation.cases:
            measured_change = case.change(task, measured)
            column.add(change_cell(measured_change), _change_figures(name, measured_change))
        columns.append(column)
    return columns


def change_cell(change: CaseChange | None) -> Cell:
    """The mean of a change, its verdicts, and below them the interval of one run or the range of several."""
    if change is None or change.mean is None:
        return Cell(DASH)
    numbers = [change.mean, *(change.interval or ())]
    # Percentages have at least one decimal, differences four; more if a number would look like zero.
    least, most, unit = (1, 3, f"{NO_BREAK}%") if change.percent else (4, 6, "")
    decimals = decimals_for(numbers, least=least, most=most)
    text, *ends = (signed(value, decimals=decimals) for value in numbers)
    # Brackets are of the interval of one run; the range of several has none.
    below = f" to{NO_BREAK}".join(ends)
    if ends and change.runs == 1:
        below = f"[{f',{NO_BREAK}'.join(ends)}]"
    tone = (change.verdict or "").replace(" ", "-")
    return Cell(f"{text}{unit}", [below], value=change.mean, sign=marks(change), sign_tone=tone)


def marks(change: CaseChange) -> str:
    """Verdicts of the runs of a case; of several verdicts each with its count."""
    if change.verdict is not None:
        return VERDICT_MARKS[change.verdict]
    counts = change.verdicts
    return " ".join(f"{VERDICT_MARKS[word]}{counts[word]}" for word in WORDS if word in counts)


def _change_figures(name: str, change: CaseChange | None) -> dict[str, object]:
    """A change by one measure for CSV; percent columns are empty if no percentage is defined."""
    ends = ("improvement %", "low %", "high %", "difference", "verdict", "runs better", "runs worse")
    figures: Sequence[object] = [None] * len(ends)
    if change is not None:
        # Intervals are in percent only where every run has a percentage.
        low, high = change.interval if change.percent and change.interval else (None, None)
        verdict = change.verdict or ("mixed" if change.verdicts else None)
        better, worse = (change.verdicts.get(word, 0) for word in ("better", "worse"))
        figures = [change.improvement, low, high, change.difference, verdict, better, worse]
    return {f"{name}, {end}": figure for end, figure in zip(ends, figures, strict=True)}


# --- Language pairs, drift and tensors ---


def pair_columns(result: SweepResult) -> list[CaseColumn]:
    """Language pairs better and worse by each comparison of a grid, by the paired test and by the z-test."""
    compared: dict[tuple[str, str, str], int] = {}
    for case in result.variation.cases:
        for counts in case.pairs:
            compared[counts.compared] = counts.pairs
    columns = []
    for (task, comparison, similarity), pairs in compared.items():
        column = _numbers("language pairs, better/worse", comparison, [task, similarity, f"of {pairs}"])
        for case in result.variation.cases:
            found = [one for one in case.pairs if one.compared == (task, comparison, similarity)]
            figures = {}
            for side in ("improved", "worsened", "improved_z", "worsened_z"):
                figures[f"{task}: {comparison} {similarity}, {side}"] = (
                    getattr(found[0], side) if found else None
                )
            # The column is sorted by the pairs that are better less those that are worse.
            improved, worsened, *by_z = figures.values()
            net = None if improved is None or worsened is None else improved - worsened
            column.add(Cell(_sides(improved, worsened), [f"z {_sides(*by_z)}"], value=net), figures)
        columns.append(column)
    return columns


def _sides(improved: float | None, worsened: float | None) -> str:
    """Better and worse pairs; a dash where the test was not made."""
    if improved is None or worsened is None:
        return DASH
    return f"{count(improved)}/{count(worsened)}"


def count(value: float) -> str:
    """A mean of counts, such as ``222`` or ``221.7``."""
    return f"{value:,.1f}".removesuffix(".0")


def drift_columns(result: SweepResult, group: str | None = None) -> list[CaseColumn]:
    """Drift of all probes, or of one group of them, such as a language."""
    columns = []
    for name in in_order(name for run in result.runs_of() for name in _drift_means(run, group)):
        column = _numbers("drift", name)
        for case in result.variation.cases:
            cell = _drift_cell(result.runs_of(case), name, group)
            column.add(cell, {f"drift: {name}": case.drift.get(name)})
        columns.append(column)
    return columns


def _drift_means(run: SweepRun, group: str | None) -> Mapping[str, float]:
    """Drift of a run by measure, over all probes or over one group."""
    if run.drift is None:
        return {}
    if group is None:
        return run.drift.means
    return run.drift.groups.get(group, {})


def _drift_cell(runs: Sequence[SweepRun], name: str, group: str | None) -> Cell:
    """Mean over runs, above the range of several runs or the standard error of one."""
    values = [means[name] for run in runs if name in (means := _drift_means(run, group))]
    if not values:
        return Cell(DASH)
    below = f"{three_digits(min(values))} to{NO_BREAK}{three_digits(max(values))}"
    if len(values) == 1:
        errors = runs[0].drift.errors if group is None and runs[0].drift is not None else {}
        below = f"± {three_digits(errors[name])}" if name in errors else ""
    return Cell(three_digits(fmean(values)), [below], value=fmean(values))


def layer_table(result: SweepResult) -> Table | None:
    """The most changed tensors of each setting by each measure; None if no tensor changed."""
    names, formulas = case_column(result), sentences("layer-measures")
    rows: list[Contents] = []
    for measure in formulas:
        for name, case in zip(names.cells, result.variation.cases, strict=True):
            if measure in case.layers:
                most = [f"{tensor} {three_digits(value)}" for tensor, value in case.layers[measure]]
                # A model may have changed in one tensor alone.
                first, second = [*most, ""][:2]
                rows.append(
                    {"measure": measure, names.head.head: name, "most changed": first, "next": second}
                )
    caption = [f"{name}: {formula}" for name, formula in formulas.items()]
    kinds: dict[str, ColumnKind] = {names.head.head: "name", "most changed": "code", "next": "code"}
    if not rows:
        return None
    return Table.of(rows, kinds, caption=caption)


def sweep_csv(result: SweepResult) -> str:
    """One line for each setting, with all digits."""
    columns = [*setting_columns(result), *taken_columns(result)]
    for task in result.ordered:
        columns += task_columns(result, task)
    columns += pair_columns(result)
    for name in ("steps", "epochs", "best_epoch", "seconds", "trainable"):
        columns.append(mean_column(result, "training", name, count))
    columns += [*drift_columns(result), failure_column(result)]
    lines = []
    for position in range(len(result.variation.cases)):
        line: dict[str, object] = {}
        for column in columns:
            line |= column.figures[position]
        lines.append(line)
    return csv_of(lines)
